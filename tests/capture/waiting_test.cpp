#include "capture/waiting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace advectio::capture {
namespace {

using std::chrono::milliseconds;

/// As of a job that a scheduler suspends for hours while a program waits for room.
TEST(PatienceTest, TheTimeInWhichAJobWasSuspendedDoesNotCount) {
  constexpr std::uint64_t ms = 1'000'000;
  const auto control = std::make_unique<journal::StageControl>();
  control->wait_max_ns = 100 * ms;
  std::atomic<std::uint64_t> gave_up_at{Patience::never};
  Patience suspended(*control, gave_up_at, 10 * ms, 150 * ms);
  Patience waits(*control, gave_up_at, 10 * ms);
  EXPECT_EQ(suspended.look(), Patience::State::stands);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(suspended.look(), Patience::State::stands);
  EXPECT_EQ(waits.look(), Patience::State::over);
  gave_up_at = Patience::never;
  // What is left of its time still counts.
  while (suspended.look() != Patience::State::over) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace
}  // namespace advectio::capture
