// What every source must do: datasets made up from a seed, and of each the schema and any box.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "core/executor.h"
#include "journal/scratch.h"
#include "platform/files.h"
#include "sinks/adios2/bp5_file_sink.h"
#include "sinks/adios2/bp5_sink.h"
#include "sinks/bp5_reader.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"
#include "sinks/zarr/zarr_sink.h"
#include "sinks/zarr_reader.h"
#include "sources/adios2/bp5_source.h"
#include "sources/grib/grib_source.h"
#include "sources/grib/library.h"
#include "sources/grib_file.h"
#include "sources/netcdf/netcdf_source.h"
#include "sources/source_readers.h"
#include "sources/zarr/zarr_source.h"

namespace advectio {
namespace {

using testing::Ability;
using testing::Contents;
using testing::OwnedBlock;
using testing::Random;

struct Kind {
  std::string name;
  Ability ability;
  std::function<void(const std::string&, const Schema&, const std::vector<OwnedBlock>&)> write;
  OpenSource open;
  /// What an independent reader finds, in the words of netCDF.
  std::function<Contents(const std::string&, const Schema&, const std::vector<OwnedBlock>&)> expected;
  bool storage = true;  ///< chunks and filters are those that were asked for
  /// In place of the three above, where a format holds no dataset that is made up: makes one of its own.
  std::function<Contents(Random&, const std::string&)> make;
  std::function<std::string()> missing;  ///< why the kind cannot be tried; empty: it can
};

void PrintTo(const Kind& kind, std::ostream* to) {
  *to << kind.name;
}

Kind netcdf(const std::string& name, std::vector<FileFormat> formats) {
  Kind k;
  k.name = name;
  k.ability.formats = std::move(formats);
  const bool classic = is_classic(k.ability.formats.front()),
             model = k.ability.formats.front() == FileFormat::netcdf4_classic;
  k.ability.strings = !classic && !model;
  k.ability.many_unlimited = !classic && !model;
  k.ability.storage = !classic;
  k.ability.types = {DataType::int8,  DataType::text,    DataType::int16,
                     DataType::int32, DataType::float32, DataType::float64};
  if (k.ability.formats.front() == FileFormat::cdf5 || k.ability.strings)
    k.ability.types.insert(k.ability.types.end(),
                           {DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64});
  if (!classic)
    k.ability.pipelines = {{},
                           {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                           {{filter_id::deflate, {5}}},
                           {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}}};
  k.write = testing::write_by_netcdf;
  k.open = NetcdfSource::open;
  k.expected = [](const std::string& path, const Schema&, const std::vector<OwnedBlock>&) {
    return testing::read_by_netcdf(path);
  };
  return k;
}

Kind zarr() {
  Kind k;
  k.name = "zarr";
  k.ability = testing::ability_of(zarr_abilities());
  k.ability.pipelines = {{},
                         {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                         {{filter_id::deflate, {9}}},
                         {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}},
                         {{filter_id::shuffle, {}}, {filter_id::zstd, {3}}},
                         {{filter_id::zstd, {1}}, {filter_id::fletcher32, {}}},
                         {{filter_id::lz4, {0}}},
                         {{filter_id::bitshuffle, {}}, {filter_id::zstd, {1}}},
                         {{filter_id::blosc, {2, 2, 4, 0, 5, 1, 0}}}};
  k.storage = false;
  k.write = [](const std::string& path, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
    Executor executor(1);
    auto sink = testing::fed(open_zarr(system_files(), path, {}, executor, false));
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->declare(schema).ok());
    for (const auto& b : blocks) ASSERT_TRUE((*sink)->write(b.block).ok());
    ASSERT_TRUE((*sink)->close().ok());
  };
  k.open = open_zarr_source;
  k.expected = [](const std::string& path, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
    auto found = testing::model_of(schema, blocks).contents;
    // Values are the strict reader's; the rest is what the program said, types of attributes too.
    const auto read = testing::read_zarr(path);
    found.values = read.values;
    found.strings = read.strings;
    for (auto& v : found.schema.variables)
      if (v.type == DataType::string)
        std::erase_if(v.attributes, [](const Attribute& a) { return a.name == "_FillValue"; });
    const auto no_null = [](std::vector<Attribute>& attributes) {
      for (auto& a : attributes)
        for (auto& s : a.strings) s = s.value_or("");
    };
    no_null(found.schema.attributes);
    for (auto& v : found.schema.variables) no_null(v.attributes);
    return found;
  };
  return k;
}

Kind grib() {
  Kind k;
  k.name = "grib";
  k.open = open_grib_source;
  k.make = [](Random& random, const std::string& path) { return testing::make_grib(random, path); };
  k.missing = [] {
    const auto library = grib::library();
    return library ? std::string() : library.error().message;
  };
  return k;
}

/// By the sink of a run; what is missing is filled by the sink.
void write_bp5(const std::string& path, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
  auto sink = testing::fed(open_bp5(system_files(), path, {}, false));
  ASSERT_TRUE(sink.ok()) << sink.error().message;
  ASSERT_TRUE((*sink)->declare(schema).ok());
  for (const auto& b : blocks) ASSERT_TRUE((*sink)->write(b.block).ok());
  ASSERT_TRUE((*sink)->close().ok());
}

/// By the sink of `convert`: variables without records in two parts each, then record by record, with commits between.
void write_bp5_at_once(const std::string& path, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
  const auto whole = testing::model_of(schema, blocks).contents;
  ASSERT_TRUE(system_files().make_directory(path, 0777).ok());
  auto sink = testing::fed(open_bp5_file(system_files(), path, {}));
  ASSERT_TRUE(sink.ok()) << sink.error().message;
  ASSERT_TRUE((*sink)->declare(schema).ok());
  std::vector<OwnedBlock> given;
  const auto give = [&](std::uint32_t v, const Box& box) {
    if (box.empty()) return;
    Box all;
    for (const auto d : whole.schema.variables[v].dimensions) {
      all.start.push_back(0);
      all.count.push_back(whole.schema.dimensions[d].length);
    }
    const auto element = size_of(whole.schema.variables[v].type);
    Bytes values(box.volume() * element);
    copy_part(box, whole.values[v].data(), all, values.data(), box, element);
    const OwnedBlock block(v, box, std::move(values));
    const auto written = (*sink)->write(block.block);
    ASSERT_TRUE(written.ok()) << written.error().message;
    ASSERT_TRUE((*sink)->checkpoint().ok());
  };
  std::uint64_t records = 0;
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t record = 0; record < (round == 0 ? 1 : records); ++record)
      for (std::uint32_t v = 0; v < whole.schema.variables.size(); ++v) {
        Box box;
        bool grows = false;
        for (const auto d : whole.schema.variables[v].dimensions) {
          const auto& dim = whole.schema.dimensions[d];
          grows = grows || dim.unlimited;
          if (dim.unlimited) records = dim.length;
          box.start.push_back(dim.unlimited ? record : 0);
          box.count.push_back(dim.unlimited ? 1 : dim.length);
        }
        if (grows != (round == 1)) continue;
        const std::size_t k = grows ? 1 : 0;
        auto rest = box;
        if (box.rank() > k) {
          box.count[k] = (box.count[k] + 1) / 2;
          rest.start[k] += box.count[k];
          rest.count[k] -= box.count[k];
          give(v, rest);
        }
        give(v, box);
      }
  const auto closed = (*sink)->close();
  ASSERT_TRUE(closed.ok()) << closed.error().message;
}

Kind bp5(const std::string& name, void (*write)(const std::string&, const Schema&, const std::vector<OwnedBlock>&)) {
  Kind k;
  k.name = name;
  k.ability = testing::ability_of(bp5_abilities());
  k.ability.no_fill = false;
  k.storage = false;
  k.write = write;
  k.open = open_bp5_source;
  k.expected = [](const std::string&, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
    return testing::as_bp5_keeps_in_order(testing::model_of(schema, blocks).contents);
  };
  k.missing = testing::why_no_adios2;
  return k;
}

class Sources : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!GetParam().missing) return;
    if (const auto why = GetParam().missing(); !why.empty()) GTEST_SKIP() << why;
  }
  /// Writes a dataset, and tells what is to be found.
  static Contents make(Random& random, const std::string& path) {
    if (GetParam().make) return GetParam().make(random, path);
    const auto schema = testing::random_schema(random, GetParam().ability);
    std::vector<OwnedBlock> blocks;
    for (std::uint64_t frame = 0; frame < 3; ++frame)
      for (auto& b : testing::random_frame(random, schema, frame)) blocks.push_back(b);
    GetParam().write(path, schema, blocks);
    return GetParam().expected(path, schema, blocks);
  }
  Scratch scratch_;
};

std::vector<std::uint64_t> lengths_of(const Contents& c, std::size_t variable) {
  std::vector<std::uint64_t> lengths;
  for (const auto d : c.schema.variables[variable].dimensions) lengths.push_back(c.schema.dimensions[d].length);
  return lengths;
}

Box random_box(Random& random, const std::vector<std::uint64_t>& lengths) {
  Box box;
  for (const auto length : lengths) {
    const auto begin = length == 0 ? 0 : std::uniform_int_distribution<std::uint64_t>(0, length - 1)(random);
    box.start.push_back(begin);
    box.count.push_back(length == 0 ? 0 : std::uniform_int_distribution<std::uint64_t>(1, length - begin)(random));
  }
  return box;
}

std::vector<String> strings_in(const Bytes& bytes) {
  std::vector<String> out;
  Decoder in(bytes);
  while (in.ok() && !in.at_end()) out.push_back(in.string());
  return out;
}

/// netCDF-C 4.9 itself reads wrong values of others, where a variable is shorter than a dimension that is not its
/// first.
bool simple(const Contents& c, std::size_t variable) {
  const auto& dimensions = c.schema.variables[variable].dimensions;
  for (std::size_t i = 1; i < dimensions.size(); ++i)
    if (c.schema.dimensions[dimensions[i]].unlimited) return false;
  return true;
}

TEST_P(Sources, TellTheWholeSchema) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto path = scratch_.path() + "/" + std::to_string(seed);
    auto expected = make(random, path);
    auto source = GetParam().open(path);
    ASSERT_TRUE(source.ok()) << source.error().message;
    auto head = (*source)->head();
    ASSERT_TRUE(head.ok()) << head.error().message;
    Contents found;
    found.schema = head->schema;
    found.values = expected.values;
    found.strings = expected.strings;
    ASSERT_EQ(found.schema.variables.size(), expected.schema.variables.size());
    ASSERT_EQ(head->lengths.size(), expected.schema.dimensions.size());
    for (std::size_t d = 0; d < head->lengths.size(); ++d) {
      EXPECT_EQ(found.schema.dimensions[d].length, found.schema.dimensions[d].unlimited ? 0 : head->lengths[d]);
      found.schema.dimensions[d].length = head->lengths[d];
    }
    for (std::size_t i = 0; i < found.schema.variables.size(); ++i) {
      // `difference` wants the fill value said, and compares storage, which not every kind keeps.
      auto &v = found.schema.variables[i], &w = expected.schema.variables[i];
      if (v.type != DataType::string && v.fill.empty()) v.fill = default_fill(v.type);
      if (!GetParam().storage) {
        EXPECT_EQ(v.fill, w.no_fill && !w.has_fill ? v.fill : w.fill) << v.name;
        EXPECT_EQ(v.has_fill, w.has_fill && w.type != DataType::string) << v.name;
        if (!v.contiguous && !w.contiguous && !w.chunks.empty()) {
          EXPECT_EQ(v.chunks.size(), w.chunks.size());
        }
      }
    }
    EXPECT_EQ(testing::difference(found, expected), "");
  }
}

TEST_P(Sources, ReadAnyBox) {
  std::size_t boxes = 0;
  for (std::uint64_t seed = 100; seed < 125; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto path = scratch_.path() + "/" + std::to_string(seed);
    const auto expected = make(random, path);
    auto source = GetParam().open(path);
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (std::uint32_t v = 0; v < expected.schema.variables.size(); ++v) {
      const auto& variable = expected.schema.variables[v];
      if (GetParam().storage && !simple(expected, v)) continue;
      const auto lengths = lengths_of(expected, v);
      const Box whole{std::vector<std::uint64_t>(lengths.size(), 0), lengths};
      for (int i = 0; i < 4; ++i) {
        const auto box = i == 0 ? whole : random_box(random, lengths);
        if (box.empty()) continue;
        ++boxes;
        if (variable.type == DataType::string) {
          auto read = (*source)->read_strings(v, box);
          ASSERT_TRUE(read.ok()) << read.error().message;
          const auto strings = strings_in(*read);
          ASSERT_EQ(strings.size(), box.volume());
          std::vector<std::uint64_t> numbers(whole.volume());
          for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
          std::vector<std::uint64_t> chosen(box.volume());
          copy_part(box, numbers.data(), whole, chosen.data(), box, sizeof chosen[0]);
          for (std::size_t k = 0; k < chosen.size(); ++k)
            ASSERT_EQ(strings[k], expected.strings[v][chosen[k]]) << variable.name;
          continue;
        }
        const auto element = size_of(variable.type);
        Bytes read(box.volume() * element), wanted(read.size());
        copy_part(box, expected.values[v].data(), whole, wanted.data(), box, element);
        auto done = (*source)->read(v, box, read.data());
        ASSERT_TRUE(done.ok()) << done.error().message;
        ASSERT_EQ(read, wanted) << variable.name;
      }
    }
  }
  EXPECT_GT(boxes, 100U);
}

TEST_P(Sources, AreReadByProcesses) {
  Random random(7);
  const auto path = scratch_.path() + "/one";
  const auto expected = make(random, path);
  auto readers = SourceReaders::start(2, 1 << 20, GetParam().open);
  ASSERT_TRUE(readers.ok()) << readers.error().message;
  std::vector<SourceReaders::Request> requests;
  std::uint64_t at = 0;
  for (std::uint32_t v = 0; v < expected.schema.variables.size(); ++v) {
    const auto lengths = lengths_of(expected, v);
    const Box whole{std::vector<std::uint64_t>(lengths.size(), 0), lengths};
    if (expected.schema.variables[v].type == DataType::string || whole.empty() || !simple(expected, v)) continue;
    requests.push_back({requests.size(), path, v, whole, at});
    at += (expected.values[v].size() + 63) / 64 * 64;
  }
  ASSERT_LT(at, 1U << 20);
  const std::atomic<bool> stop{false};
  ASSERT_TRUE((*readers)->read(requests, stop).ok());
  for (const auto& r : requests)
    EXPECT_EQ(std::memcmp((*readers)->memory() + r.to, expected.values[r.variable].data(),
                          expected.values[r.variable].size()),
              0);
  requests = {{0, scratch_.path() + "/none", 0, {}, 0}};
  const auto failed = (*readers)->read(requests, stop);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("/none"), std::string::npos) << failed.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, Sources,
                         ::testing::Values(netcdf("netcdf4", {FileFormat::netcdf4}),
                                           netcdf("netcdf4_classic", {FileFormat::netcdf4_classic}),
                                           netcdf("classic", {FileFormat::classic, FileFormat::offset64}),
                                           netcdf("cdf5", {FileFormat::cdf5}), zarr(), grib(), bp5("bp5", write_bp5),
                                           bp5("bp5_at_once", write_bp5_at_once)),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace advectio
