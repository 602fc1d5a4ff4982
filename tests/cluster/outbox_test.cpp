// What waits to be sent to other nodes, and what has left.
#include "cluster/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace advectio {
namespace {

using Lane = Transport::Lane;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Keeps what it is to send, and has sent what the test says.
class Wire final : public Transport {
 public:
  struct Sent {
    unsigned to;
    int kind;
    std::uint64_t ticket;
  };
  [[nodiscard]] unsigned node() const noexcept override { return 1; }
  [[nodiscard]] unsigned nodes() const noexcept override { return 3; }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return 0; }
  [[nodiscard]] const std::string& name(unsigned) const noexcept override { return name_; }
  void send(unsigned to, Lane, int kind, std::span<const std::byte>, std::uint64_t ticket) override {
    all.push_back({to, kind, ticket});
  }
  void sent(std::vector<std::uint64_t>& tickets) override { tickets.swap(gone); }
  std::optional<Arrival> arrived(Lane) override { return std::nullopt; }
  void receive(const Arrival&, std::byte*) override {}
  void leave(bool) override {}

  [[nodiscard]] std::vector<int> kinds() const {
    std::vector<int> kinds;
    for (const auto& s : all) kinds.push_back(s.kind);
    return kinds;
  }
  void let_go(std::size_t which) { gone.push_back(all[which].ticket); }

  std::vector<Sent> all;
  std::vector<std::uint64_t> gone;

 private:
  std::string name_ = "n";
};

class OutboxTest : public ::testing::Test {
 protected:
  void push(unsigned to, Lane lane, int kind) { outbox_.push({to, lane, kind, Bytes(8), {}}); }
  void push_record(unsigned to, int kind, std::span<const std::byte> bytes, std::uint64_t sequence) {
    outbox_.push({to, Lane::journals, kind, {}, bytes, 7, sequence});
  }
  bool wait() { return outbox_.wait(std::chrono::microseconds(0)); }

  static constexpr auto none = std::numeric_limits<std::uint64_t>::max();
  Wire wire_;
  Outbox outbox_{wire_};
};

TEST_F(OutboxTest, SendsWordsBeforeRecordsAndEachLaneInItsOrder) {
  push(0, Lane::journals, 1);
  push(0, Lane::words, 2);
  push(2, Lane::journals, 3);
  push(2, Lane::words, 4);
  EXPECT_TRUE(outbox_.send());
  EXPECT_THAT(wire_.kinds(), ElementsAre(2, 4, 1, 3));
  EXPECT_FALSE(outbox_.send());
}

TEST_F(OutboxTest, SendsToAllButItself) {
  outbox_.push_to_all(Lane::words, 1, {});
  outbox_.send();
  ASSERT_EQ(wire_.all.size(), 2U);
  EXPECT_EQ(wire_.all[0].to, 0U);
  EXPECT_EQ(wire_.all[1].to, 2U);
}

TEST_F(OutboxTest, ANodeThatTakesNothingHoldsBackOnlyItsOwnRecords) {
  const Bytes large(64U << 20U);
  push_record(0, 1, large, 1);
  push_record(0, 2, large, 2);
  push_record(2, 3, large, 3);
  outbox_.send();
  EXPECT_THAT(wire_.kinds(), ElementsAre(1, 3));
  wire_.let_go(0);
  outbox_.send();
  EXPECT_THAT(wire_.kinds(), ElementsAre(1, 3, 2));
}

TEST_F(OutboxTest, ARecordIsUnsentUntilItHasLeft) {
  const Bytes bytes(8);
  EXPECT_EQ(outbox_.unsent(7), none);
  push_record(0, 1, bytes, 4);
  push_record(2, 2, bytes, 5);
  outbox_.send();
  EXPECT_EQ(outbox_.unsent(7), 4U);
  wire_.let_go(0);
  outbox_.send();
  EXPECT_EQ(outbox_.unsent(7), 5U);
  wire_.let_go(1);
  outbox_.send();
  EXPECT_EQ(outbox_.unsent(7), none);
}

TEST_F(OutboxTest, ClosedItIsDoneWhenAllHasLeft) {
  push(0, Lane::words, 1);
  outbox_.close();
  EXPECT_TRUE(wait());
  outbox_.send();
  EXPECT_TRUE(wait());
  wire_.let_go(0);
  outbox_.send();
  EXPECT_FALSE(wait());
}

TEST_F(OutboxTest, CutShortItIsDoneAsSoonAsItIsClosed) {
  push(0, Lane::words, 1);
  outbox_.cut_short();
  EXPECT_TRUE(wait());
  outbox_.close();
  EXPECT_FALSE(wait());
  EXPECT_THAT(wire_.all, IsEmpty());
}

}  // namespace
}  // namespace advectio
