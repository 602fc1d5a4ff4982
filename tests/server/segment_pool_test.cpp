#include "server/segment_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "journal/scratch.h"

namespace advectio {
namespace {

using namespace std::chrono_literals;

bool becomes(const std::function<bool()>& true_at_last) {
  for (int i = 0; i < 1000 && !true_at_last(); ++i) std::this_thread::sleep_for(5ms);
  return true_at_last();
}

std::vector<std::string> free_segments(const journal::Stage& stage) {
  return stage.files().list(stage.pool()).value();
}

// Clearing memory for later frames took up to a third of a frame's stall from a model that had no core to spare.
TEST(SegmentPool, MakesFewWhileAModelPuts) {
  const Scratch scratch;
  auto stage = journal::Stage::make(system_files(), scratch / "stage", 1U << 20U, 64, 0).value();
  Log log(LogLevel::error);
  SegmentPool pool(stage, 8, log);
  ASSERT_TRUE(becomes([&] { return pool.total() == 8 && free_segments(stage).size() == 8; }));

  pool.rest(true);
  const std::string journal = stage.journals() + "/writer";
  ASSERT_TRUE(stage.files().make_directory(journal, 0700));
  auto taken = free_segments(stage);
  taken.resize(6);
  for (std::size_t i = 0; i < taken.size(); ++i)
    ASSERT_TRUE(
        stage.files().rename(stage.pool() + "/" + taken[i], journal + "/0000000" + std::to_string(i) + "-" + taken[i]));
  ASSERT_TRUE(becomes([&] { return free_segments(stage).size() == 4; })) << "some must be free all the same";
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(pool.total(), 10U);

  pool.rest(false);
  EXPECT_TRUE(becomes([&] { return free_segments(stage).size() == 8; }));
}

}  // namespace
}  // namespace advectio
