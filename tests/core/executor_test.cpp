#include "core/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <thread>

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

TEST(Executor, TakesJobsOfAHigherLevelFirst) {
  std::string order;
  std::promise<void> begun, may_go;
  {
    Executor executor(1);
    executor.run([&] {
      begun.set_value();
      may_go.get_future().wait();
    });
    begun.get_future().wait();
    const auto add = [&](unsigned level, char name) {
      executor.set_level(level);
      executor.run([&order, name] { order += name; });
    };
    add(0, 'a');
    add(2, 'b');
    add(0, 'c');
    add(1, 'd');
    add(2, 'e');
    executor.run_first([&] { order += 'f'; });
    executor.run_first([&] { order += 'g'; });
    may_go.set_value();
  }
  EXPECT_EQ(order, "gfbedac");
}

TEST(Executor, LetsAFlowThatHasLittleToDoGoBeforeOneThatHasMuch) {
  std::string order;
  std::promise<void> begun, may_go;
  Executor::Flow a, b, c;
  {
    Executor executor(1);
    EXPECT_FALSE(executor.is_busy());
    executor.run([&] {
      begun.set_value();
      may_go.get_future().wait();
    });
    begun.get_future().wait();
    EXPECT_TRUE(executor.is_busy());
    const auto add = [&](Executor::Flow& flow, std::uint64_t cost, char name) {
      executor.run([&order, name] { order += name; }, flow, cost);
    };
    for (const char name : {'1', '2', '3', '4', '5'}) add(a, Executor::little / 2, name);
    for (const char name : {'a', 'b', 'c'}) add(b, 10, name);
    executor.set_level(1);
    add(c, Executor::little * 2, 'x');
    may_go.set_value();
  }
  EXPECT_EQ(order, "xa1bc2345") << "the fourth job is of the flow that has much";
}

TEST(Executor, EndsOneFlowAfterTheOtherWhereSomebodyWaits) {
  std::string order;
  std::promise<void> begun, may_go;
  Executor::Flow a, b, c;
  {
    Executor executor(1);
    executor.run([&] {
      begun.set_value();
      may_go.get_future().wait();
    });
    begun.get_future().wait();
    for (const auto& [flow, name] : {std::pair(&a, 'a'), std::pair(&b, 'b'), std::pair(&c, 'c')})
      for (int i = 0; i < 3; ++i) executor.run([&order, name = name] { order += name; }, *flow, Executor::little + 1);
    executor.set_awaited(c, true);
    executor.set_awaited(b, true);
    may_go.set_value();
  }
  EXPECT_EQ(order, "cccbbbaaa");
}

TEST(Executor, RunsJobsOnAsManyThreadsAsItWasGivenLast) {
  Executor executor(1);
  const auto at_one_time = [&executor](unsigned jobs) {
    std::atomic<unsigned> begun{0}, ended{0};
    std::promise<void> all;
    for (unsigned i = 0; i < jobs; ++i)
      executor.run([&, jobs] {
        // Ends only where the others run beside it.
        for (++begun; begun < jobs;) std::this_thread::yield();
        if (++ended == jobs) all.set_value();
      });
    all.get_future().wait();
  };
  executor.resize(3);
  EXPECT_EQ(executor.threads(), 3U);
  at_one_time(3);
  executor.resize(1);
  EXPECT_EQ(executor.threads(), 1U);
  std::atomic<int> inside{0}, most{0}, done{0};
  for (int i = 0; i < 20; ++i)
    executor.run([&] {
      most = std::max(most.load(), ++inside);
      std::this_thread::yield();
      --inside;
      ++done;
    });
  while (done < 20) std::this_thread::yield();
  EXPECT_EQ(most, 1);
  executor.resize(2);
  at_one_time(2);
}

}  // namespace
}  // namespace advectio
