// Records of other nodes, and a stage that has no room for them.
#include "cluster/journal_arrivals.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>

#include "cluster/messages.h"
#include "journal/scratch.h"
#include "journal/stage.h"

namespace advectio {
namespace {

using Lane = Transport::Lane;

/// Node 1 of two. What node 0 has sent comes in turn.
class Incoming final : public Transport {
 public:
  [[nodiscard]] unsigned node() const noexcept override { return 1; }
  [[nodiscard]] unsigned nodes() const noexcept override { return 2; }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return 0; }
  [[nodiscard]] const std::string& name(unsigned) const noexcept override { return name_; }
  void send(unsigned, Lane, int, std::span<const std::byte>, std::uint64_t) override {}
  void sent(std::vector<std::uint64_t>&) override {}
  std::optional<Arrival> arrived(Lane) override {
    if (come_ == messages.size()) return std::nullopt;
    const auto handle = come_++;
    return Arrival{0, Lane::journals, first_writer_kind, messages[handle].size(), handle};
  }
  void receive(const Arrival& arrival, std::byte* to) override {
    std::memcpy(to, messages[arrival.handle].data(), arrival.bytes);
    received.push_back(arrival.handle);
  }
  void leave(bool) override {}

  std::deque<Bytes> messages;
  std::vector<std::uint64_t> received;

 private:
  std::string name_ = "n";
  std::size_t come_ = 0;
};

class JournalArrivalsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t segment_bytes = 64 * 1024;

  void SetUp() override {
    auto stage = journal::Stage::make(system_files(), scratch_ / "run", segment_bytes, 1, 1'000'000'000);
    ASSERT_TRUE(stage.ok()) << stage.error().message;
    stage_ = std::make_unique<journal::Stage>(std::move(stage).value());
    arrivals_ = std::make_unique<JournalArrivals>(*stage_, wire_);
    journal::WriterState writer{};
    writer.journal = 4711;
    Bytes said;
    Encoder out(said);
    out.number(static_cast<int>(first_writer_kind));
    out.text("0-12-0000abcd");
    out.raw(&writer, sizeof writer);
    const auto taken = arrivals_->on_writer(0, said);
    ASSERT_TRUE(taken.ok()) << taken.error().message;
  }
  /// More than half of a segment.
  void send_record(std::uint64_t sequence) {
    journal::RecordHeader header{};
    header.type = static_cast<std::uint16_t>(journal::RecordType::put);
    header.sequence = sequence;
    Bytes record(40 * 1024);
    std::memcpy(record.data(), &header, sizeof header);
    wire_.messages.push_back(std::move(record));
  }
  bool take() {
    return arrivals_->take([](const auto&) {});
  }

  Scratch scratch_{"/dev/shm"};
  Incoming wire_;
  std::unique_ptr<journal::Stage> stage_;
  std::unique_ptr<JournalArrivals> arrivals_;
};

TEST_F(JournalArrivalsTest, RecordsWithoutRoomWaitUntilTheServerEnds) {
  send_record(1);
  send_record(2);
  send_record(3);
  EXPECT_TRUE(take());
  EXPECT_EQ(wire_.received.size(), 1U);
  EXPECT_TRUE(arrivals_->held_up());
  EXPECT_FALSE(take());
  // The other node's server ends when all that it has sent has been received.
  arrivals_->end();
  EXPECT_TRUE(take());
  EXPECT_EQ(wire_.received.size(), 3U);
  EXPECT_FALSE(arrivals_->held_up());
}

}  // namespace
}  // namespace advectio
