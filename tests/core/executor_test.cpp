#include "core/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

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

TEST(Executor, CountsWhatHasNotBegunAndTakesSomeFirst) {
  std::string order;
  std::promise<void> begun, may_go;
  {
    Executor executor(1);
    EXPECT_EQ(executor.backlog(), 0U);
    executor.run([&] {
      begun.set_value();
      may_go.get_future().wait();
    });
    begun.get_future().wait();
    executor.run([&] { order += 'a'; });
    executor.run([&] { order += 'b'; });
    executor.run_first([&] { order += 'c'; });
    EXPECT_EQ(executor.backlog(), 3U);
    may_go.set_value();
  }
  EXPECT_EQ(order, "cab");
}

}  // namespace
}  // namespace advectio
