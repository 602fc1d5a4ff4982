// Nodes that help each other, carried by hand.
#include "cluster/remote_encoder.h"

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
class Numbers final : public Transport {
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

class RemoteEncoderTest : public ::testing::Test {
 protected:
  /// `threads` each.
  void start(unsigned nodes, unsigned io_nodes = 0, unsigned threads = 1) {
    for (unsigned n = 0; n < nodes; ++n) {
      executors_.push_back(std::make_unique<Executor>(threads));
      remote_encoder_.push_back(
          std::make_unique<RemoteEncoder>(Numbers(n, nodes, io_nodes), *executors_.back(), backwards, least_bytes));
    }
    for (unsigned n = 0; n < nodes; ++n)
      remote_encoder_[n]->connect([this, n](const RemoteEncoder::Letter& l) {
        const std::lock_guard guard(mutex_);
        under_way_.push_back({n, l});
        news_.notify_all();
      });
  }
  void TearDown() override {
    for (auto& h : remote_encoder_) h->disconnect();
    remote_encoder_.clear();  // before the executors
  }
  /// The letters that there are now.
  void carry() {
    std::deque<std::pair<unsigned, RemoteEncoder::Letter>> letters;
    {
      const std::lock_guard guard(mutex_);
      letters.swap(under_way_);
    }
    for (auto& [from, l] : letters) {
      Message copy;
      copy.buffer.reserve(l.message->bytes);
      if (l.message->bytes > 0) std::memcpy(copy.buffer.data(), l.message->buffer.data(), l.message->bytes);
      copy.bytes = l.message->bytes;
      remote_encoder_[l.to]->take(from, l.kind, std::move(copy));
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
    remote_encoder_[who]->ask(place, text(what), [said](std::optional<Message> reply) {
      said->set_value(reply ? text_of(reply->span()) : "nobody");
    });
    return said->get_future();
  }

  static constexpr std::size_t least_bytes = 100;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<RemoteEncoder>> remote_encoder_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::pair<unsigned, RemoteEncoder::Letter>> under_way_;
};

TEST_F(RemoteEncoderTest, OneDoesWhatAnotherAsks) {
  start(2);
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt) << "nobody has said yet that it is there";
  carry();
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes - 1), std::nullopt) << "sooner done than sent";
  const auto place = remote_encoder_[0]->place(least_bytes);
  ASSERT_TRUE(place);
  auto said = ask(0, *place, "chunk");
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "knuhc");
  EXPECT_EQ(remote_encoder_[0]->by_others(), 1U);
  EXPECT_EQ(remote_encoder_[1]->for_others(), 1U);
}

TEST_F(RemoteEncoderTest, WhatCannotBeDoneThereIsSaid) {
  start(2);
  carry();
  auto said = ask(0, *remote_encoder_[0]->place(least_bytes), "no");
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(remote_encoder_[1]->for_others(), 0U);
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt) << "it is left alone for a while";
}

TEST_F(RemoteEncoderTest, NobodyIsAskedByAllTogetherForMoreThanItsThreadsAndOne) {
  start(3, 0, 5);
  carry();
  std::vector<unsigned> places;
  while (const auto place = remote_encoder_[0]->place(least_bytes)) places.push_back(*place);
  EXPECT_EQ(places.size(), 2U * 3U);
  remote_encoder_[0]->let_go(places.back());
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), places.back());
  // And all of them evenly.
  std::sort(places.begin(), places.end());
  EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end());
}

TEST_F(RemoteEncoderTest, ByManyForOneEach) {
  start(5);
  carry();
  std::size_t places = 0;
  while (remote_encoder_[0]->place(least_bytes)) ++places;
  EXPECT_EQ(places, 4U);
}

TEST_F(RemoteEncoderTest, WhoHasTooMuchToDoItselfIsLeftAlone) {
  start(2);
  carry();
  std::promise<void> may_go;
  auto wait = may_go.get_future().share();
  const auto place = *remote_encoder_[0]->place(least_bytes);
  // One that runs, and two that wait.
  for (int i = 0; i < 3; ++i) executors_[1]->run([wait] { wait.wait(); });
  auto said = ask(0, place, "ab");
  carry();
  may_go.set_value();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "ba");
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt);
  bool again = false;
  for (int i = 0; i < 10'000 && !again; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    again = remote_encoder_[0]->place(least_bytes).has_value();
  }
  EXPECT_TRUE(again) << "not for ever";
}

TEST_F(RemoteEncoderTest, WhoIsAskedByManyAtOnceRefuses) {
  start(6);
  carry();
  std::promise<void> may_go, begun;
  auto wait = may_go.get_future().share();
  executors_[5]->run([wait, &begun] {
    begun.set_value();
    wait.wait();
  });
  begun.get_future().wait();  // else the thread takes what it is asked for first
  std::vector<std::future<std::string>> said;
  for (unsigned n = 0; n < 5; ++n)
    // Places are by node: one each.
    for (std::optional<unsigned> place; (place = remote_encoder_[n]->place(least_bytes));)
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

TEST_F(RemoteEncoderTest, WhoHasSaidItsLastAsksNobody) {
  start(2);
  carry();
  const auto place = *remote_encoder_[0]->place(least_bytes);
  auto said = ask(0, place, "ab");
  remote_encoder_[0]->ask_no_more();
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt);
  carry();
  carry_one_that_comes();
  EXPECT_EQ(said.get(), "ba") << "but has the answers to what it has asked";
}

TEST_F(RemoteEncoderTest, WhoEndsIsNotWaitedFor) {
  start(2);
  carry();
  const auto first = *remote_encoder_[0]->place(least_bytes), second = *remote_encoder_[0]->place(least_bytes);
  auto said = ask(0, first, "ab");
  for (const auto& l : remote_encoder_[1]->goodbye()) remote_encoder_[l.to]->take(1, l.kind, {});
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(ask(0, second, "ab").get(), "nobody");
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt);
}

TEST_F(RemoteEncoderTest, WhereNodesAreForOutputOnlyTheOthersAreLeftToTheModel) {
  start(4, 2);
  carry();
  EXPECT_TRUE(remote_encoder_[3]->place(least_bytes));
  std::size_t places = 1;
  while (remote_encoder_[3]->place(least_bytes)) ++places;
  EXPECT_EQ(places, 2U) << "of node 2 only";
}

TEST_F(RemoteEncoderTest, WhoIsCutOffGetsNoAnswerAndAsksNoMore) {
  start(2);
  carry();
  const auto first = *remote_encoder_[0]->place(least_bytes), second = *remote_encoder_[0]->place(least_bytes);
  auto said = ask(0, first, "chunk");
  remote_encoder_[0]->disconnect();
  EXPECT_EQ(said.get(), "nobody");
  EXPECT_EQ(ask(0, second, "chunk").get(), "nobody");
  EXPECT_EQ(remote_encoder_[0]->place(least_bytes), std::nullopt);
  carry();
  carry_one_that_comes();  // an answer that comes too late
}

}  // namespace
}  // namespace advectio
