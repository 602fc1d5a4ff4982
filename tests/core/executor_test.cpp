#include "core/executor.h"

#include <gtest/gtest.h>

#include <atomic>

namespace advectio {
namespace {

TEST(Executor, RunsEveryJobBeforeItEnds) {
  for (const unsigned threads : {0U, 1U, 4U}) {
    std::atomic<int> done{0};
    {
      Executor executor(threads);
      for (int i = 0; i < 1000; ++i) executor.run([&done] { ++done; });
    }
    EXPECT_EQ(done, 1000) << threads << " threads";
  }
}

}  // namespace
}  // namespace advectio
