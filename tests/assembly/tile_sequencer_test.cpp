#include "assembly/tile_sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace advectio {
namespace {

using journal::Record;
using journal::RecordType;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t points = 12, levels = 5;

Attribute ints(const std::string& name, std::int32_t value) {
  Attribute a{name, DataType::int32, 1, {}, {}};
  Encoder(a.values).number(value);
  return a;
}

/// A NEMO-like tile that owns [first, last] of the points, counted from 1, and has a halo of one at each inner edge.
Schema tile(std::int32_t first, std::int32_t last) {
  const std::int32_t before = first > 1 ? 1 : 0, behind = last < static_cast<std::int32_t>(points) ? 1 : 0;
  const auto local = last - first + 1 + before + behind;
  Schema s;
  s.dimensions = {{"x", static_cast<std::uint64_t>(local), false}, {"t", 0, true}, {"level", levels, false}};
  const auto variable = [&s](const char* name, DataType type, std::vector<std::uint32_t> dimensions) {
    Variable v;
    v.name = name;
    v.type = type;
    v.dimensions = std::move(dimensions);
    s.variables.push_back(v);
  };
  variable("f", DataType::float32, {1, 2, 0});
  variable("names", DataType::string, {1, 0});
  variable("depth", DataType::float32, {1, 2});
  s.attributes = {ints("DOMAIN_dimensions_ids", 1),
                  ints("DOMAIN_size_global", points),
                  ints("DOMAIN_size_local", local),
                  ints("DOMAIN_position_first", first - before),
                  ints("DOMAIN_position_last", last + behind),
                  ints("DOMAIN_halo_size_start", before),
                  ints("DOMAIN_halo_size_end", behind)};
  return s;
}

Bytes floats(const std::vector<float>& values) {
  Bytes b;
  for (const auto v : values) Encoder(b).number(v);
  return b;
}

Bytes strings(const std::vector<std::string>& values) {
  Bytes b;
  Encoder e(b);
  for (const auto& v : values) {
    e.number(static_cast<std::uint32_t>(v.size()));
    e.raw(v.data(), v.size());
  }
  return b;
}

/// Tiles that put as their journals would tell it, and a file that takes what is given out.
class TileSequencerTest : public ::testing::Test {
 protected:
  std::size_t add(const Schema& schema) {
    const auto t = sequencer_.add("tile_000" + std::to_string(sequencer_.size()));
    sequence_.push_back(0);
    say(t, RecordType::schema, {}, encode(schema));
    return t;
  }
  void say(std::size_t t, RecordType type, Bytes meta, Bytes payload = {}) {
    Record r;
    r.type = type;
    r.sequence = ++sequence_[t];
    r.meta = kept_.emplace_back(std::move(meta));
    r.payload = kept_.emplace_back(std::move(payload));
    r.payload_crc = journal::crc32c(r.payload.data(), r.payload.size());
    const auto taken = sequencer_.take(t, r);
    ASSERT_TRUE(taken.ok()) << taken.error().message;
  }
  void put(std::size_t t, std::uint32_t variable, Box box, Bytes payload, std::vector<std::uint64_t> stride = {}) {
    say(t, RecordType::put, encode(journal::Put{variable, std::move(box), std::move(stride)}), std::move(payload));
  }
  void end(std::size_t t, RecordType type = RecordType::sync, std::uint64_t frame = 1) {
    say(t, type, encode(journal::Sync{frame, 0, 0, {}}));
  }
  /// Everything that may go; the error that stopped it, or nothing.
  std::string move_on(bool now = false) {
    for (;;) {
      const auto planned = sequencer_.plan(now);
      if (!planned) return planned.error().message;
      if (!*planned) return {};
      for (std::size_t t = 0; t < sequencer_.size(); ++t) write_all(t, now);
      auto sync_index = sequencer_.end_sync();
      if (!sync_index) return sync_index.error().message;
      if (!*sync_index) break;
      ++rounds_;
      sequencer_.committed();
    }
    if (now) sequencer_.committed_part();
    return {};
  }
  void write_all(std::size_t t, bool now) {
    for (;;) {
      auto block = sequencer_.next_block(t, now);
      ASSERT_TRUE(block.ok()) << block.error().message;
      if (!*block) return;
      write(**block);
    }
  }
  void write(const Block& b) {
    const std::byte* data = b.data;
    Box at{b.box.start, std::vector<std::uint64_t>(b.box.rank(), 1)};
    std::vector<std::uint64_t> index(b.box.rank(), 0);
    for (auto n = b.box.volume(); n > 0; --n) {
      std::string value;
      if (b.variable == 1) {
        std::uint32_t length = 0;
        std::memcpy(&length, data, sizeof length);
        value.assign(reinterpret_cast<const char*>(data) + 4, length);
        data += 4 + length;
      } else {
        float number = 0;
        std::memcpy(&number, data, sizeof number);
        value = std::to_string(static_cast<int>(number));
        data += sizeof number;
      }
      auto where = b.box.start;
      for (std::size_t i = 0; i < where.size(); ++i) where[i] += index[i] * (b.stride.empty() ? 1 : b.stride[i]);
      file_[{b.variable, where}] = value;
      for (std::size_t i = index.size(); i-- > 0;) {
        if (++index[i] < b.box.count[i]) break;
        index[i] = 0;
      }
    }
    EXPECT_EQ(data, b.data + b.bytes);
  }

  TileSequencer sequencer_;
  std::vector<std::uint64_t> sequence_;
  std::deque<Bytes> kept_;
  std::map<std::pair<std::uint32_t, std::vector<std::uint64_t>>, std::string> file_;
  std::uint64_t rounds_ = 0;
};

struct Part {
  std::int32_t first, last;
  [[nodiscard]] std::uint64_t begins() const { return static_cast<std::uint64_t>(first > 1 ? first - 2 : 0); }
  [[nodiscard]] std::uint64_t length() const { return tile(first, last).dimensions[0].length; }
};

TEST_F(TileSequencerTest, NothingIsGivenOutBeforeAllTilesAreThere) {
  const auto a = add(tile(1, 4));
  put(a, 2, {{0, 0}, {1, levels}}, floats({1, 2, 3, 4, 5}));
  end(a);
  EXPECT_EQ(move_on(), "");
  EXPECT_THAT(file_, IsEmpty());
  EXPECT_EQ(sequencer_.given(a), 0U);
  EXPECT_THAT(sequencer_.why_not(), HasSubstr("a part of the domain is in no tile: x 5 to 12"));
}

/// However tiles cut, order and repeat their puts, and wherever the stage forces a part out, the file is the same.
TEST_F(TileSequencerTest, AnyWayToPutGivesTheSameFile) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto one_of = [&random](std::uint64_t n) { return random() % n; };
    sequencer_ = TileSequencer();
    sequence_.clear();
    file_.clear();
    kept_.clear();
    rounds_ = 0;
    const auto cut = static_cast<std::int32_t>(2 + one_of(8));
    const std::vector<Part> parts{{1, cut}, {cut + 1, points}};
    for (const auto& p : parts) add(tile(p.first, p.last));
    const std::uint64_t frames = 3;
    std::map<std::pair<std::uint32_t, std::vector<std::uint64_t>>, std::string> expected;
    for (std::uint64_t f = 0; f < frames; ++f) {
      for (std::uint64_t l = 0; l < levels; ++l) expected[{2, {f, l}}] = std::to_string(100 * f + l);
      for (std::uint64_t x = 0; x < points; ++x) {
        expected[{1, {f, x}}] = std::string(x + 1, static_cast<char>('a' + f));
        for (std::uint64_t l = 0; l < levels; ++l) expected[{0, {f, l, x}}] = std::to_string(1000 * f + 20 * l + x);
      }
    }
    const auto put_frame = [&](std::size_t t, std::uint64_t f) {
      const auto begins = parts[t].begins(), length = parts[t].length();
      // Halves of the levels, or every second point, in any order; something wrong before.
      put(t, 0, {{f, 0, 0}, {1, levels, 1}}, floats(std::vector<float>(levels, -1)));
      const auto f_of = [&](std::uint64_t l, std::uint64_t from, std::uint64_t step) {
        std::vector<float> row;
        for (auto x = from; x < length; x += step) row.push_back(static_cast<float>(1000 * f + 20 * l + begins + x));
        return row;
      };
      if (one_of(2) == 0) {
        std::vector<float> all;
        for (std::uint64_t l = 0; l < levels; ++l)
          for (const auto v : f_of(l, 0, 1)) all.push_back(v);
        put(t, 0, {{f, 0, 0}, {1, levels, length}}, floats(all));
      } else {
        for (std::uint64_t i = 0; i < 2 * levels; ++i) {
          const auto l = (i * 3) % levels, from = i / levels;
          const auto row = f_of(l, from, 2);
          put(t, 0, {{f, l, from}, {1, 1, row.size()}}, floats(row), {1, 1, 2});
        }
      }
      std::vector<std::string> names;
      for (std::uint64_t x = 0; x < length; ++x) names.emplace_back(begins + x + 1, static_cast<char>('a' + f));
      put(t, 1, {{f, 0}, {1, length}}, strings(names));
      if (one_of(3) == 0) put(t, 2, {{f, 1}, {1, 1}}, floats({-5}));
      if (one_of(2) == 0) {
        std::vector<float> depth;
        for (std::uint64_t l = 0; l < levels; ++l) depth.push_back(static_cast<float>(100 * f + l));
        put(t, 2, {{f, 0}, {1, levels}}, floats(depth));
      } else {
        for (std::uint64_t l = levels; l-- > 0;) put(t, 2, {{f, l}, {1, 1}}, floats({static_cast<float>(100 * f + l)}));
      }
    };
    std::vector<std::uint64_t> at(2, 0);
    while (at[0] < frames || at[1] < frames) {
      const auto t = one_of(2);
      if (at[t] == frames) continue;
      put_frame(t, at[t]);
      if (one_of(3) == 0) {
        ASSERT_EQ(move_on(true), "");
      }
      ++at[t];
      end(t, at[t] == frames ? RecordType::close : RecordType::sync);
      ASSERT_EQ(move_on(one_of(4) == 0), "");
    }
    EXPECT_EQ(rounds_, frames);
    EXPECT_TRUE(sequencer_.all_closed());
    EXPECT_EQ(file_, expected);
    for (std::size_t t = 0; t < 2; ++t) EXPECT_EQ(sequencer_.given(t), sequence_[t]);
  }
}

TEST_F(TileSequencerTest, ADisagreementIsNamedAndNothingOfTheFrameCounts) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  for (const auto t : {a, b}) put(t, 2, {{0, 0}, {1, levels}}, floats({1, 2, 3, 4, t == a ? 5.0F : 6.0F}));
  for (const auto t : {a, b}) end(t);
  EXPECT_EQ(move_on(), "tile_0000 and tile_0001 disagree about depth, which is neither's own");
  EXPECT_EQ(rounds_, 0U);
  EXPECT_EQ(sequencer_.take_out(b).size(), 3U);  // schema, block and sync
}

TEST_F(TileSequencerTest, WhatOnlyOneHasPutIsADisagreement) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  put(a, 2, {{0, 0}, {1, levels}}, floats({1, 2, 3, 4, 5}));
  put(b, 2, {{0, 0}, {1, levels - 1}}, floats({1, 2, 3, 4}));
  for (const auto t : {a, b}) end(t);
  EXPECT_THAT(move_on(), HasSubstr("disagree about depth"));
}

TEST_F(TileSequencerTest, ADisagreementIsFoundThoughAPartHasLeftTheStage) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  put(a, 2, {{0, 0}, {1, levels}}, floats({1, 2, 3, 4, 5}));
  EXPECT_EQ(move_on(true), "");
  for (auto& bytes : kept_) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});  // the segment is somebody else's
  put(b, 2, {{0, 0}, {1, levels}}, floats({1, 2, 3, 4, 6}));
  for (const auto t : {a, b}) end(t);
  EXPECT_THAT(move_on(), HasSubstr("disagree about depth"));
}

TEST_F(TileSequencerTest, ATileThatWasClosedEarlierIsNamed) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  end(a, RecordType::close);
  end(b);
  EXPECT_EQ(move_on(), "");
  put(b, 2, {{1, 0}, {1, 1}}, floats({1}));
  end(b);
  EXPECT_EQ(move_on(), "tile_0000 was closed after 1 syncs, and tile_0001 has put more");
}

TEST_F(TileSequencerTest, OneThatOnlyClosesLaterIsNot) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  end(a, RecordType::close);
  end(b);
  end(b, RecordType::close, 0);
  EXPECT_EQ(move_on(), "");
  EXPECT_TRUE(sequencer_.all_closed());
}

TEST_F(TileSequencerTest, ASchemaCountsFromTheFrameInWhichAllHaveToldIt) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  const auto changed = [](Schema s) {
    s.attributes.push_back(ints("more", 1));
    return s;
  };
  end(a);
  say(a, RecordType::schema, {}, encode(changed(tile(1, 6))));
  end(a, RecordType::close);
  end(b);
  EXPECT_EQ(move_on(), "");
  EXPECT_EQ(rounds_, 1U);
  ASSERT_NE(sequencer_.changed(), nullptr);
  EXPECT_EQ(sequencer_.changed(), nullptr);
  say(b, RecordType::schema, {}, encode(changed(tile(7, points))));
  end(b, RecordType::close);
  EXPECT_EQ(move_on(), "");
  EXPECT_EQ(rounds_, 2U);
  const auto* schema = sequencer_.changed();
  ASSERT_NE(schema, nullptr);
  EXPECT_EQ(schema->attributes.back().name, "more");
}

TEST_F(TileSequencerTest, WhatOneTileWasAheadWithWhenAServerDiedIsNotHeldAgainstTheOthers) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  const auto frame = [this](std::size_t t, std::uint64_t f) {
    put(t, 2, {{f, 0}, {1, levels}}, floats(std::vector<float>(levels, static_cast<float>(f))));
    end(t);
  };
  for (const auto t : {a, b}) frame(t, 0);
  EXPECT_EQ(move_on(), "");
  EXPECT_FALSE(sequencer_.is_ahead());
  for (const std::uint64_t f : {1, 2, 3}) frame(a, f);
  EXPECT_EQ(move_on(true), "");  // there was no room to wait for the other
  EXPECT_TRUE(sequencer_.is_ahead());
  const std::uint64_t visible[] = {sequencer_.given(a), sequencer_.given(b)};
  const journal::SyncIndex syncs[] = {sequencer_.sync_index(a), sequencer_.sync_index(b)};
  sequencer_ = TileSequencer();
  for (const auto t : {a, b}) (void)sequencer_.add("tile_000" + std::to_string(t));
  sequencer_.resume(journal::SyncIndex{1}, true);
  sequencer_.resume(a, visible[a], syncs[a], tile(1, 6), false);
  sequencer_.resume(b, visible[b], syncs[b], tile(7, points), false);
  for (const std::uint64_t f : {1, 2, 3}) {
    frame(b, f);
    EXPECT_EQ(move_on(), "");
    EXPECT_EQ(rounds_, f + 1);
    EXPECT_TRUE(sequencer_.is_ahead());  // of the next, too, a part could have been there
  }
  for (const auto t : {a, b}) frame(t, 4);
  EXPECT_EQ(move_on(), "");
  EXPECT_FALSE(sequencer_.is_ahead());
  put(b, 2, {{5, 0}, {1, levels}}, floats(std::vector<float>(levels, 99)));
  end(b);
  frame(a, 5);
  EXPECT_THAT(move_on(), HasSubstr("disagree about depth"));
  EXPECT_EQ(rounds_, 5U);
}

TEST_F(TileSequencerTest, ARoundThatAnEarlierServerHasCommittedIsNotDoneAgain) {
  const auto a = add(tile(1, 6)), b = add(tile(7, points));
  sequencer_.resume(journal::SyncIndex{1}, false);
  sequencer_.resume(b, 0, {}, tile(7, points), false);
  for (const std::uint64_t f : {0, 1})
    for (const auto t : {a, b}) {
      put(t, 2, {{f, 0}, {1, levels}}, floats(std::vector<float>(levels, static_cast<float>(f))));
      end(t);
    }
  EXPECT_EQ(move_on(), "");
  EXPECT_EQ(rounds_, 1U);
  EXPECT_EQ(file_.size(), levels);
  EXPECT_EQ(file_.begin()->second, "1");
}

TEST_F(TileSequencerTest, WithoutRoomAnEarlierServersTileThatHasNotBeenReadYetIsNotOneWithoutDefinitions) {
  const auto a = add(tile(1, 6));
  const auto b = sequencer_.add("tile_0001");  // its journal comes after the other's
  sequence_.push_back(0);
  sequencer_.resume(journal::SyncIndex{1}, false);
  for (const std::uint64_t f : {0, 1}) {
    put(a, 2, {{f, 0}, {1, levels}}, floats(std::vector<float>(levels, static_cast<float>(f))));
    end(a);
  }
  EXPECT_EQ(move_on(true), "");
  say(b, RecordType::schema, {}, encode(tile(7, points)));
  for (const std::uint64_t f : {0, 1}) {
    put(b, 2, {{f, 0}, {1, levels}}, floats(std::vector<float>(levels, static_cast<float>(f))));
    end(b);
  }
  EXPECT_EQ(move_on(), "");
  EXPECT_EQ(rounds_, 1U);  // the second
  EXPECT_EQ(file_.begin()->second, "1");
}

}  // namespace
}  // namespace advectio
