// Journals written by released versions stay readable: every directory of golden/ is a stage with one journal.
// ADVECTIO_WRITE_GOLDEN=<directory> makes a new one of this version.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/schema.h"
#include "journal/reader.h"
#include "journal/scratch.h"
#include "journal/writer.h"

namespace advectio::journal {
namespace {

constexpr std::uint64_t segment_bytes = 16 * 1024;

Schema golden_schema() {
  Schema s;
  s.dimensions = {{"Time", 0, true}, {"x", 300, false}};
  Variable v;
  v.name = "T";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  v.contiguous = false;
  v.chunks = {1, 300};
  v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}};
  s.variables = {v};
  return s;
}

std::vector<float> golden_field(int frame) {
  std::vector<float> f(300);
  for (int i = 0; i < 300; ++i) f[static_cast<std::size_t>(i)] = static_cast<float>(frame * 1000 + i) * 0.5F;
  return f;
}

/// 20 times of it in one block, which is longer than a segment. Since version 4.
std::vector<float> golden_fields() {
  std::vector<float> all;
  for (int frame = 17; frame <= 36; ++frame) {
    const auto one = golden_field(frame);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// Every sixth element of a record, then the five behind each. Since version 5.
BoxList golden_boxes() {
  BoxList boxes(2);
  for (const std::uint64_t first : {0, 1})
    for (std::uint64_t x = 0; x < 300; x += 6)
      boxes.add(std::vector<std::uint64_t>{36, first == 0 ? x : x + 1},
                std::vector<std::uint64_t>{1, first == 0 ? 1U : 5U});
  return boxes;
}

void write_golden(const std::string& directory) {
  auto stage = Stage::make(system_files(), directory, segment_bytes, 4, 1'000'000'000);
  ASSERT_TRUE(stage.ok());
  for (const char* name : {"s000000", "s000001"}) {
    auto file = system_files().open(stage->pool() + "/" + name, OpenMode::create_new, 0600);
    ASSERT_TRUE((*file)->reserve(segment_bytes).ok());
    ++stage->control().segments_total;
    ++stage->control().next_segment;
  }
  auto w = Writer::open(*stage, {2, 4711, "golden", "model"});
  ASSERT_TRUE(w.ok());
  (*w)->keep_ahead(0);
  const auto record = [&](RecordType type, const Bytes& meta, const void* data, std::size_t n) {
    ASSERT_TRUE((*w)->append(
                        type, 0, 1, meta, n, [&](std::byte* to) { return copy_crc32c(to, data, n); },
                        [] {
                          return Result<void>(Error{Code::full, "full", 0});
                        })
                    .ok());
  };
  record(RecordType::create, encode(Create{FileFormat::netcdf4, "/data/out.nc", "/data/.out.nc.advectio-1", "1-2"}),
         nullptr, 0);
  const auto schema = encode(golden_schema());
  record(RecordType::schema, {}, schema.data(), schema.size());
  for (int frame = 1; frame <= 16; ++frame) {
    const auto field = golden_field(frame);
    record(RecordType::put, encode(Put{0, {{static_cast<std::uint64_t>(frame - 1), 0}, {1, 300}}, {}}), field.data(),
           1200);
    record(RecordType::sync, encode(Sync{static_cast<std::uint64_t>(frame), 5, 1200}), nullptr, 0);
  }
  const auto many = golden_fields();
  record(RecordType::put, encode(Put{0, {{16, 0}, {20, 300}}, {}}), many.data(), 24'000);
  record(RecordType::sync, encode(Sync{17, 5, 24'000}), nullptr, 0);
  const auto some = golden_field(37);
  const auto boxes = golden_boxes();
  const auto packed = pack(boxes, 0, boxes.size(), std::vector<std::uint64_t>{36, 0});
  Put put{0, boxes.bounds(0, boxes.size()), {}, 100, packed};
  record(RecordType::put, encode(put), some.data(), 1200);
  record(RecordType::sync, encode(Sync{18, 5, 1200}), nullptr, 0);
  record(RecordType::close, encode(Sync{0, 0, 0}), nullptr, 0);
}

void read_golden(const std::string& directory) {
  auto names = system_files().list(directory + "/journals");
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1U);
  for (const auto trust : {Trust::published, Trust::scan}) {
    auto r = Reader::open(system_files(), directory + "/journals/" + (*names)[0], trust);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ((*r)->writer().rank, 2);
    EXPECT_STREQ((*r)->writer().command, "model");
    int frame = 0;
    std::vector<RecordType> types;
    for (auto next = (*r)->next();; next = (*r)->next()) {
      ASSERT_TRUE(next.ok()) << next.error().message;
      if (!next->has_value()) break;
      const auto& record = **next;
      EXPECT_TRUE(verify_payload(record).ok());
      types.push_back(record.type);
      if (record.type == RecordType::create) {
        EXPECT_EQ(decode_create(record.meta)->path, "/data/out.nc");
      }
      if (record.type == RecordType::schema) {
        EXPECT_EQ(*decode_schema(record.payload), golden_schema());
      }
      if (record.type == RecordType::put && ++frame == 18) {
        const auto put = decode_put(record.meta);
        ASSERT_TRUE(put.ok());
        EXPECT_EQ(put->boxes, 100U);
        const auto boxes = unpack(*put, 300), expected = Result(golden_boxes());
        ASSERT_TRUE(boxes.ok());
        for (std::size_t i = 0; i < 100; ++i) {
          EXPECT_EQ((*boxes)[i].start[1], (*expected)[i].start[1]);
          EXPECT_EQ((*boxes)[i].count, (*expected)[i].count);
        }
      } else if (record.type == RecordType::put && frame == 17) {
        const auto fields = golden_fields();
        ASSERT_EQ(record.payload.size(), 24'000U);
        EXPECT_EQ(std::memcmp(record.payload.data(), fields.data(), 24'000), 0);
      } else if (record.type == RecordType::put) {
        const auto field = golden_field(frame);
        ASSERT_EQ(record.payload.size(), 1200U);
        EXPECT_EQ(std::memcmp(record.payload.data(), field.data(), 1200), 0);
        EXPECT_EQ(decode_put(record.meta)->box.start[0], static_cast<std::uint64_t>(frame - 1));
      }
    }
    const auto version = (*r)->writer().version;
    const auto more = version >= boxes_version ? 2U : version >= shared_making_version ? 1U : 0U;
    EXPECT_EQ(static_cast<unsigned>(frame), 16 + more);
    ASSERT_EQ(types.size(), 35U + 2 * more);
    EXPECT_EQ(types.back(), RecordType::close);
  }
}

TEST(Golden, JournalsOfEveryVersionRead) {
  if (const char* directory = std::getenv("ADVECTIO_WRITE_GOLDEN")) write_golden(directory);
  int n = 0;
  for (const auto& version : std::filesystem::directory_iterator(GOLDEN_DIR)) {
    SCOPED_TRACE(version.path().string());
    read_golden(version.path().string());
    ++n;
  }
  EXPECT_GE(n, 5);
}

TEST(Golden, ThisVersionReadsWhatItWrites) {
  const Scratch scratch;
  write_golden(scratch / "run");
  read_golden(scratch / "run");
}

}  // namespace
}  // namespace advectio::journal
