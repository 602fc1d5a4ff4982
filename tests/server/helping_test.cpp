// Nodes that help each other, carried by hand.
#include "server/helping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <thread>

namespace advectio {
namespace {

/// Numbers only: letters are carried by the test.
class Numbers final : public Neighbours {
 public:
  Numbers(unsigned node, unsigned nodes, unsigned io_nodes) : node_(node), nodes_(nodes), io_nodes_(io_nodes) {}
  [[nodiscard]] unsigned node() const noexcept override { return node_; }
  [[nodiscard]] unsigned nodes() const noexcept override { return nodes_; }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return io_nodes_; }
  [[nodiscard]] const std::string& name(unsigned) const noexcept override { return name_; }
  void send(unsigned, Lane, int, std::span<const std::byte>, std::uint64_t) override {}
  void sent(std::vector<std::uint64_t>&) override {}
  std::optional<Arrival> arrived(Lane) override { return std::nullopt; }
  void receive(const Arrival&, std::byte*) override {}
  void leave(bool) override {}

 private:
  unsigned node_, nodes_, io_nodes_;
  std::string name_ = "n";
};

std::shared_ptr<Message> text(const std::string& s) {
  auto m = std::make_shared<Message>();
  m->buffer.reserve(s.size());
  std::memcpy(m->buffer.data(), s.data(), s.size());
  m->bytes = s.size();
  return m;
}

std::string text_of(std::span<const std::byte> s) {
  return {reinterpret_cast<const char*>(s.data()), s.size()};
}

/// Says it backwards; "no" cannot be done.
std::shared_ptr<const Message> backwards(std::span<const std::byte> request) {
  auto s = text_of(request);
  if (s == "no") return nullptr;
  std::reverse(s.begin(), s.end());
  return text(s);
}

class HelpingTest : public ::testing::Test {
 protected:
  /// `threads` each.
  void start(unsigned nodes, unsigned io_nodes = 0, unsigned threads = 1) {
    for (unsigned n = 0; n < nodes; ++n) {
      executors_.push_back(std::make_unique<Executor>(threads));
      helping_.push_back(
          std::make_unique<Helping>(Numbers(n, nodes, io_nodes), *executors_.back(), backwards, least_bytes));
    }
    for (unsigned n = 0; n < nodes; ++n)
      helping_[n]->connect([this, n](const Helping::Letter& l) {
        const std::lock_guard guard(mutex_);
        under_way_.push_back({n, l});
        news_.notify_all();
      });
  }
  void TearDown() override {
    for (auto& h : helping_) h->disconnect();
    helping_.clear();  // before the executors
  }
  /// The letters that there are now.
  void carry() {
    std::deque<std::pair<unsigned, Helping::Letter>> letters;
    {
      const std::lock_guard guard(mutex_);
      letters.swap(under_way_);
    }
    for (auto& [from, l] : letters) {
      Message copy;
      copy.buffer.reserve(l.message->bytes);
      if (l.message->bytes > 0) std::memcpy(copy.buffer.data(), l.message->buffer.data(), l.message->bytes);
      copy.bytes = l.message->bytes;
      helping_[l.to]->take(from, l.kind, std::move(copy));
    }
  }
  void carry_one_that_comes() {
    {
      std::unique_lock guard(mutex_);
      news_.wait(guard, [this] { return !under_way_.empty(); });
    }
    carry();
  }
  /// What it has said; "nobody" where nobody has done it.
  std::future<std::string> ask(unsigned who, unsigned place, const std::string& what) {
    auto said = std::make_shared<std::promise<std::string>>();
    helping_[who]->ask(place, text(what), [said](std::optional<Message> reply) {
      said->set_value(reply ? text_of(reply->span()) : "nobody");
    });
    return said->get_future();
  }

  static constexpr std::size_t least_bytes = 100;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<Helping>> helping_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::pair<unsigned, Helping::Letter>> under_way_;
};

TEST_F(HelpingTest, OneDoesWhatAnotherAsks) {
  start(2);
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt) << "nobody has said yet that it is there";
  carry();
  EXPECT_EQ(helping_[0]->place(least_bytes - 1), std::nullopt) << "sooner done than sent";
  const auto place = helping_[0]->place(least_bytes);
  ASSERT_TRUE(place);
  auto said = ask(0, *place, "chunk");
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "knuhc");
  EXPECT_EQ(helping_[0]->by_others(), 1U);
  EXPECT_EQ(helping_[1]->for_others(), 1U);
}

TEST_F(HelpingTest, WhatCannotBeDoneThereIsSaid) {
  start(2);
  carry();
  auto said = ask(0, *helping_[0]->place(least_bytes), "no");
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(helping_[1]->for_others(), 0U);
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt) << "it is left alone for a while";
}

TEST_F(HelpingTest, NobodyIsAskedByAllTogetherForMoreThanItsThreadsAndOne) {
  start(3, 0, 5);
  carry();
  std::vector<unsigned> places;
  while (const auto place = helping_[0]->place(least_bytes)) places.push_back(*place);
  EXPECT_EQ(places.size(), 2U * 3U);
  helping_[0]->let_go(places.back());
  EXPECT_EQ(helping_[0]->place(least_bytes), places.back());
  // And all of them evenly.
  std::sort(places.begin(), places.end());
  EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end());
}

TEST_F(HelpingTest, ByManyForOneEach) {
  start(5);
  carry();
  std::size_t places = 0;
  while (helping_[0]->place(least_bytes)) ++places;
  EXPECT_EQ(places, 4U);
}

TEST_F(HelpingTest, WhoHasTooMuchToDoItselfIsLeftAlone) {
  start(2);
  carry();
  std::promise<void> may_go;
  auto wait = may_go.get_future().share();
  const auto place = *helping_[0]->place(least_bytes);
  // One that runs, and two that wait.
  for (int i = 0; i < 3; ++i) executors_[1]->run([wait] { wait.wait(); });
  auto said = ask(0, place, "ab");
  carry();
  may_go.set_value();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "ba");
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_TRUE(helping_[0]->place(least_bytes)) << "not for ever";
}

TEST_F(HelpingTest, WhoIsAskedByManyAtOnceRefuses) {
  start(6);
  carry();
  std::promise<void> may_go;
  auto wait = may_go.get_future().share();
  executors_[5]->run([wait] { wait.wait(); });
  std::vector<std::future<std::string>> said;
  for (unsigned n = 0; n < 5; ++n)
    // Places are by node: one each.
    for (std::optional<unsigned> place; (place = helping_[n]->place(least_bytes));)
      if (*place / 64 == 5) said.push_back(ask(n, *place, "ab"));
  ASSERT_EQ(said.size(), 5U);
  carry();
  may_go.set_value();
  std::size_t done = 0, refused = 0;
  for (auto& s : said) {
    while (s.wait_for(std::chrono::seconds(0)) != std::future_status::ready) carry_one_that_comes();
    (s.get() == "ba" ? done : refused) += 1;
  }
  EXPECT_EQ(done, 4U);
  EXPECT_EQ(refused, 1U);
}

TEST_F(HelpingTest, WhoHasSaidItsLastAsksNobody) {
  start(2);
  carry();
  const auto place = *helping_[0]->place(least_bytes);
  auto said = ask(0, place, "ab");
  helping_[0]->ask_no_more();
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt);
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "ba") << "but has the answers to what it has asked";
}

TEST_F(HelpingTest, WhoEndsIsNotWaitedFor) {
  start(2);
  carry();
  const auto first = *helping_[0]->place(least_bytes), second = *helping_[0]->place(least_bytes);
  auto said = ask(0, first, "ab");
  for (const auto& l : helping_[1]->goodbye()) helping_[l.to]->take(1, l.kind, {});
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(ask(0, second, "ab").get(), "nobody");
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt);
}

TEST_F(HelpingTest, WhereNodesAreForOutputOnlyTheOthersAreLeftToTheModel) {
  start(4, 2);
  carry();
  EXPECT_TRUE(helping_[3]->place(least_bytes));
  std::size_t places = 1;
  while (helping_[3]->place(least_bytes)) ++places;
  EXPECT_EQ(places, 2U) << "of node 2 only";
}

TEST_F(HelpingTest, WhoIsCutOffGetsNoAnswerAndAsksNoMore) {
  start(2);
  carry();
  const auto first = *helping_[0]->place(least_bytes), second = *helping_[0]->place(least_bytes);
  auto said = ask(0, first, "chunk");
  helping_[0]->disconnect();
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(ask(0, second, "chunk").get(), "nobody");
  EXPECT_EQ(helping_[0]->place(least_bytes), std::nullopt);
  carry();
  carry_one_that_comes();  // an answer that comes too late
}

}  // namespace
}  // namespace advectio
