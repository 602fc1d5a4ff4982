// Chunks of one netCDF-4 file, copied as they are into another one.
#include <gtest/gtest.h>

#include "core/executor.h"
#include "journal/scratch.h"
#include "platform/files.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"
#include "sources/netcdf/netcdf_source.h"

namespace advectio {
namespace {

using testing::Random;

class StoredChunks : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }

  Scratch scratch_;
  Executor executor_{1};
};

/// Every chunk that meets the box, cut off at its end.
std::vector<Box> chunks_of(const Box& box, const std::vector<std::uint64_t>& chunk) {
  std::vector<Box> all;
  Box one{box.start, {}};
  for (;;) {
    one.count.clear();
    for (std::size_t i = 0; i < box.rank(); ++i)
      one.count.push_back(std::min(chunk[i], box.start[i] + box.count[i] - one.start[i]));
    all.push_back(one);
    auto i = box.rank();
    for (; i > 0; --i) {
      if ((one.start[i - 1] += chunk[i - 1]) < box.start[i - 1] + box.count[i - 1]) break;
      one.start[i - 1] = box.start[i - 1];
    }
    if (i == 0) return all;
  }
}

TEST_F(StoredChunks, AreTheSameFileWhereverTheyAreCopied) {
  auto ability = testing::ability_of(netcdf4_abilities());
  ability.strings = ability.many_unlimited = false;
  ability.pipelines = {{},
                       {{filter_id::shuffle, {}}, {filter_id::deflate, {7}}},
                       {{filter_id::deflate, {5}}},
                       {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}}};
  std::size_t copied = 0, read = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto schema = testing::random_schema(random, ability);
    auto blocks = testing::random_frame(random, schema, 0);
    for (const auto& b : testing::random_frame(random, schema, 1)) blocks.push_back(b);
    Scratch scratch;
    const auto from = scratch.path() + "/from", to = scratch.path() + "/to";
    testing::write_by_netcdf(from, schema, blocks);
    const auto expected = testing::read_by_netcdf(from);

    auto source = NetcdfSource::open(from);
    ASSERT_TRUE(source.ok());
    const auto head = (*source)->head();
    ASSERT_TRUE(head.ok());
    ASSERT_TRUE(system_files().open(to, OpenMode::create_new, 0666).ok());
    auto sink = open_netcdf4(system_files(), to, {}, executor_, false);
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->declare(head->schema).ok());
    ASSERT_TRUE((*sink)->begin(1).ok());
    Frame frame;
    frame.declare(head->schema);
    std::vector<Bytes> held;
    for (std::uint32_t v = 0; v < head->schema.variables.size(); ++v) {
      const auto& variable = head->schema.variables[v];
      Box whole;
      for (const auto d : variable.dimensions) {
        whole.start.push_back(0);
        whole.count.push_back(head->lengths[d]);
      }
      if (whole.empty()) continue;
      auto& bytes = held.emplace_back(whole.volume() * size_of(variable.type) * 4 + 4096);
      auto chunks = (*source)->read_stored(v, whole, bytes);
      ASSERT_TRUE(chunks.ok()) << chunks.error().message;
      if (chunks->empty()) {
        ++read;
        ASSERT_TRUE((*source)->read(v, whole, bytes.data()).ok());
        const auto field = frame.add({v, whole, {}, bytes.data(), whole.volume() * size_of(variable.type), nullptr});
        ASSERT_TRUE(field.ok());
        ASSERT_TRUE((*sink)->ready(*field, Part(whole)).ok());
        continue;
      }
      ASSERT_TRUE(stored_alike(variable, variable));
      const auto boxes = chunks_of(whole, variable.chunks);
      ASSERT_EQ(boxes.size(), chunks->size()) << variable.name;
      std::size_t at = 0;
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        const auto& chunk = (*chunks)[i];
        const auto done = (*sink)->ready_stored(v, boxes[i], chunk.mask, std::span(bytes).subspan(at, chunk.bytes));
        ASSERT_TRUE(done.ok()) << done.error().message;
        at += chunk.bytes;
        ++copied;
      }
    }
    ASSERT_TRUE((*sink)->close().ok());
    EXPECT_EQ(testing::difference(expected, testing::read_by_netcdf(to)), "");
  }
  EXPECT_GT(copied, 200U);
  EXPECT_GT(read, 0U);
}

Schema of_chunks(std::vector<Filter> filters) {
  Schema s;
  s.dimensions = {{"x", 8, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::int32;
  v.dimensions = {0};
  v.contiguous = false;
  v.chunks = {4};
  v.filters = std::move(filters);
  s.variables = {v};
  return s;
}

TEST_F(StoredChunks, WithoutRoomOrWithHolesAreNotRead) {
  const auto schema = of_chunks({});
  Bytes values(4 * sizeof(std::int32_t));
  testing::write_by_netcdf(path("one"), schema, {testing::OwnedBlock(0, {{0}, {4}}, values)});
  auto source = NetcdfSource::open(path("one"));
  ASSERT_TRUE(source.ok());
  Bytes room(64);
  EXPECT_EQ(*(*source)->read_stored(0, {{0}, {4}}, room), (std::vector<StoredChunk>{{16, 0}}));
  EXPECT_TRUE((*source)->read_stored(0, {{0}, {4}}, std::span(room).first(15))->empty());
  EXPECT_TRUE((*source)->read_stored(0, {{0}, {8}}, room)->empty()) << "the second one was never written";
}

TEST_F(StoredChunks, ThatDoNotFitAreRefused) {
  ASSERT_TRUE(system_files().open(path("copy"), OpenMode::create_new, 0666).ok());
  const auto refused = [&](const Box& box, std::size_t bytes) {
    auto sink = open_netcdf4(system_files(), path("copy"), {}, executor_, false);
    EXPECT_TRUE(sink.ok() && (*sink)->declare(of_chunks({})).ok() && (*sink)->begin(1).ok());
    const auto done = (*sink)->ready_stored(0, box, 0, Bytes(bytes));
    EXPECT_FALSE(done.ok());
    return done.ok() ? std::string() : done.error().message;
  };
  EXPECT_EQ(refused({{2}, {4}}, 16), "write a chunk of a: there is no such chunk");
  EXPECT_EQ(refused({{0}, {8}}, 32), "write a chunk of a: there is no such chunk");
  EXPECT_NE(refused({{8}, {4}}, 16), "");
  EXPECT_EQ(refused({{0}, {4}}, 15), "write a chunk of a: 15 bytes in place of 16");
}

TEST(StoredAlike, WantsTheSameChunksFiltersAndBytes) {
  const auto a = of_chunks({{filter_id::shuffle, {}}, {filter_id::deflate, {1}}}).variables[0];
  EXPECT_TRUE(stored_alike(a, a));
  const auto other = [&](auto change) {
    auto b = a;
    change(b);
    return !stored_alike(a, b) && !stored_alike(b, a);
  };
  EXPECT_TRUE(other([](Variable& v) { v.chunks = {8}; }));
  EXPECT_TRUE(other([](Variable& v) { v.filters[1].parameters = {2}; }));
  EXPECT_TRUE(other([](Variable& v) { v.filters.pop_back(); }));
  EXPECT_TRUE(other([](Variable& v) { v.type = DataType::float32; }));
  EXPECT_TRUE(other([](Variable& v) { v.endian = Endian::big; }));
  EXPECT_TRUE(other([](Variable& v) { v.contiguous = true; }));
  const auto szip = of_chunks({{filter_id::szip, {32, 8}}}).variables[0];
  EXPECT_FALSE(stored_alike(szip, szip));
}

}  // namespace
}  // namespace advectio
