#include "journal/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace advectio::journal {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);  // the check value of CRC-32C
  EXPECT_EQ(crc32c("56789", 5, crc32c("1234", 4)), 0xE3069283U);
  EXPECT_EQ(crc32c("", 0), 0U);
}

TEST(Crc32c, OfACopyIsThatOfTheBytes) {
  std::mt19937 random(3);
  for (const std::size_t n :
       {0UL, 1UL, 63UL, 32768UL, 32769UL, 200001UL, streamed_min, streamed_min + 1, streamed_min + 16511}) {
    for (const std::size_t shift : {0UL, 8UL, 32UL}) {
      SCOPED_TRACE(n);
      std::vector<unsigned char> from(n + 3), space(n + 128, 0xEE);
      for (auto& c : from) c = static_cast<unsigned char>(random());
      unsigned char* to = space.data() + (64 - reinterpret_cast<std::uintptr_t>(space.data()) % 64) + shift;
      EXPECT_EQ(copy_crc32c(to, from.data() + 3, n), crc32c(from.data() + 3, n));
      EXPECT_TRUE(std::equal(from.begin() + 3, from.end(), to));
      EXPECT_EQ(to[-1], 0xEE);
      EXPECT_EQ(to[n], 0xEE);
    }
  }
}

#if defined(__x86_64__)
/// The upper halves of the 16 registers that SSE code shares.
__attribute__((target("avx"), noinline)) std::array<std::uint64_t, 32> upper_halves() {
  std::array<std::uint64_t, 32> found{};
  auto* to = found.data();
  asm volatile(
      "vextractf128 $1, %%ymm0, (%0)\n vextractf128 $1, %%ymm1, 16(%0)\n"
      "vextractf128 $1, %%ymm2, 32(%0)\n vextractf128 $1, %%ymm3, 48(%0)\n"
      "vextractf128 $1, %%ymm4, 64(%0)\n vextractf128 $1, %%ymm5, 80(%0)\n"
      "vextractf128 $1, %%ymm6, 96(%0)\n vextractf128 $1, %%ymm7, 112(%0)\n"
      "vextractf128 $1, %%ymm8, 128(%0)\n vextractf128 $1, %%ymm9, 144(%0)\n"
      "vextractf128 $1, %%ymm10, 160(%0)\n vextractf128 $1, %%ymm11, 176(%0)\n"
      "vextractf128 $1, %%ymm12, 192(%0)\n vextractf128 $1, %%ymm13, 208(%0)\n"
      "vextractf128 $1, %%ymm14, 224(%0)\n vextractf128 $1, %%ymm15, 240(%0)\n"
      :
      : "r"(to)
      : "memory");
  return found;
}

TEST(Crc32c, LeavesTheVectorRegistersAsAModelNeedsThem) {
  if (!__builtin_cpu_supports("avx")) GTEST_SKIP() << "no AVX on this machine";
  std::vector<unsigned char> from(100000, 7), to(from.size());
  const auto crc = crc32c(from.data(), from.size());
  const auto after_crc = upper_halves();
  const auto copied = copy_crc32c(to.data(), from.data(), from.size());
  const auto after_copy = upper_halves();
  EXPECT_EQ(crc, copied);
  EXPECT_THAT(after_crc, testing::Each(0U));
  EXPECT_THAT(after_copy, testing::Each(0U));
}
#endif

TEST(Records, DescriptionsReadBackAndCutsAreRefused) {
  const Create create{FileFormat::cdf5, "/data/wrfout", "/data/.wrfout.advectio-1", "12-34"};
  const Put put{7, {{1, 0, 5}, {1, 40, 9}}, {1, 2, 3}};
  const Sync sync{4, 5, 6, SyncIndex{7}};
  auto c = decode_create(encode(create));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->path, create.path);
  EXPECT_EQ(c->link, create.link);
  EXPECT_EQ(c->shared_state, create.shared_state);
  EXPECT_EQ(c->format, create.format);
  auto p = decode_put(encode(put));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->variable, 7U);
  EXPECT_EQ(p->box, put.box);
  EXPECT_EQ(p->stride, put.stride);
  auto s = decode_sync(encode(sync));
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->bytes, 6U);
  EXPECT_EQ(number(s->sync_index), 7U);
  auto j = decode_enter(encode(Enter{"12-34", 3}));
  ASSERT_TRUE(j.ok());
  EXPECT_EQ(j->shared_state, "12-34");
  EXPECT_EQ(j->writer, 3U);
  auto settle = decode_settle(encode(Settle{{4, 9}, {6}}));
  ASSERT_TRUE(settle.ok());
  EXPECT_THAT(settle->written, testing::ElementsAre(4, 9));
  EXPECT_THAT(settle->dropped, testing::ElementsAre(6));
  const auto bytes = encode(put);
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_put(std::span(bytes).first(n)).ok());
}

TEST(RecordEnds, AreReadAsWrittenAndDamageIsNoticed) {
  const std::vector<RecordEnd> ends = {{7, 3, 1000}, {12, 4, 2000}};
  auto bytes = encode(ends);
  auto again = decode_ends(bytes);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, ends);
  EXPECT_TRUE(decode_ends(encode(std::vector<RecordEnd>()))->empty());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_ends(std::span(bytes).first(n)).ok());
    bytes[n] ^= std::byte{4};
    EXPECT_FALSE(decode_ends(bytes).ok());
    bytes[n] ^= std::byte{4};
  }
  bytes.push_back({});
  EXPECT_FALSE(decode_ends(bytes).ok());
}

/// What unpacking gives, or nothing.
std::optional<std::vector<Box>> unpacked(const Put& put, std::uint64_t elements) {
  const auto boxes = unpack(put, elements);
  if (!boxes) return std::nullopt;
  std::vector<Box> out;
  for (std::size_t i = 0; i < boxes->size(); ++i) out.push_back((*boxes)[i]);
  return out;
}

TEST(Boxes, ArePackedAsThePageShows) {
  BoxList boxes(2);
  for (const auto& start : {std::vector<std::uint64_t>{4, 10}, {4, 14}, {5, 10}})
    boxes.add(start, std::vector<std::uint64_t>{1, 1});
  const auto packed = pack(boxes, 0, 3, std::vector<std::uint64_t>{4, 10});
  const std::vector<unsigned> shown = {2, 0, 1, 2, 1, 0, 1, 8, 1, 7, 1, 2, 2, 0, 1, 2, 2, 0};
  ASSERT_EQ(packed.size(), shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(packed[i]), shown[i]) << i;
}

TEST(Boxes, UnpackToWhatWasPackedAndCutsAreRefused) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    const std::size_t rank = 1 + random() % 4;
    BoxList boxes(rank);
    std::uint64_t elements = 0;
    for (auto n = 1 + random() % 40; n > 0; --n) {
      std::vector<std::uint64_t> start(rank), count(rank);
      for (auto& x : start) x = random() >> (random() % 64);
      for (auto& x : count) x = 1 + random() % 3;
      boxes.add(start, count);
      elements += boxes.volume(boxes.size() - 1);
    }
    const auto origin = boxes.bounds(0, boxes.size()).start;
    const auto packed = pack(boxes, 0, boxes.size(), origin);
    const Put put{3, boxes.bounds(0, boxes.size()), {}, static_cast<std::uint32_t>(boxes.size()), packed};
    const auto bytes = encode(put);
    const auto again = decode_put(bytes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->box, put.box);
    ASSERT_EQ(again->boxes, put.boxes);
    const auto all = unpacked(*again, elements);
    ASSERT_TRUE(all.has_value());
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      auto box = (*all)[b];
      for (std::size_t d = 0; d < rank; ++d) box.start[d] += origin[d];
      EXPECT_EQ(box, boxes[b]);
    }
    const auto before = encode(Put{3, put.box, {}}).size();
    for (auto n = before + 1; n < bytes.size(); ++n) EXPECT_FALSE(decode_put(std::span(bytes).first(n)).ok());
    auto cut = *again;
    for (std::size_t n = 0; n < packed.size(); ++n) {
      cut.packed = std::span(packed).first(n);
      EXPECT_FALSE(unpacked(cut, elements).has_value());
    }
    auto more = packed;
    more.push_back(std::byte{0});
    cut.packed = more;
    EXPECT_FALSE(unpacked(cut, elements).has_value());
    // A few bytes do not claim memory for boxes beyond the payload.
    cut.packed = packed;
    EXPECT_FALSE(unpacked(cut, put.boxes - 1).has_value());
  }
}

TEST(Boxes, OfAStrideOrOfNoBoxAreRefused) {
  const Bytes packed(4, std::byte{1});
  EXPECT_FALSE(decode_put(encode(Put{0, {{1}, {1}}, {2}, 1, packed})).ok());
  auto none = encode(Put{0, {{1}, {1}}, {}, 1, packed});
  none[none.size() - 12] = std::byte{0};
  EXPECT_FALSE(decode_put(none).ok());
}

TEST(Records, OfVersionOneReadWithWhatCameLaterLeftOut) {
  auto create = encode(Create{FileFormat::cdf5, "/a", "/b", "12-34", 4});
  create.resize(create.size() - 4);
  ASSERT_TRUE(decode_create(create).ok());
  EXPECT_EQ(decode_create(create)->writers, 0U);
  auto sync = encode(Sync{4, 5, 6, SyncIndex{7}});
  sync.resize(sync.size() - 8);
  ASSERT_TRUE(decode_sync(sync).ok());
  EXPECT_EQ(number(decode_sync(sync)->sync_index), 0U);
  sync.resize(sync.size() - 1);
  EXPECT_FALSE(decode_sync(sync).ok());
}

TEST(Records, APageNameCannotLeadOutOfTheStage) {
  for (const char* name : {"", "../x", "a/b", ".hidden"})
    EXPECT_FALSE(decode_create(encode(Create{FileFormat::netcdf4, "/a", "/b", name})).ok() ||
                 decode_enter(encode(Enter{name, 1})).ok())
        << name;
}

}  // namespace
}  // namespace advectio::journal
