// What every sink must do: the values that a reader finds are those that were put.
#include <netcdf.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "sinks/every_sink.h"
#include "sinks/netcdf4/hdf5.h"

namespace advectio {
namespace {

using testing::chunks_made_by_others;
using testing::EverySink;
using testing::OwnedBlock;
using testing::Random;

/// The data sets of variables with chunks that parallel HDF5 could not make longer.
std::string not_for_parallel_hdf5(const std::string& path, const Schema& schema) {
  const Hdf5Lock lock;
  std::string out;
  const Hdf5Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  for (const auto& v : schema.variables) {
    const auto name =
        H5Lexists(file, ("_nc4_non_coord_" + v.name).c_str(), H5P_DEFAULT) > 0 ? "_nc4_non_coord_" + v.name : v.name;
    const Hdf5Id dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
    const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose), space(H5Dget_space(dataset), H5Sclose);
    auto when = H5D_ALLOC_TIME_ERROR;
    if (H5Pget_alloc_time(creation, &when) < 0 || when != H5D_ALLOC_TIME_EARLY) out += v.name + ": late\n";
    if (v.contiguous || v.compact || v.dimensions.empty() || v.type == DataType::string) continue;
    std::vector<hsize_t> extent(v.dimensions.size());
    (void)H5Sget_simple_extent_dims(space, extent.data(), nullptr);
    hsize_t chunks = 0, expected = 1;
    (void)H5Dget_num_chunks(dataset, space, &chunks);
    for (std::size_t i = 0; i < extent.size(); ++i) expected *= (extent[i] + v.chunks[i] - 1) / v.chunks[i];
    if (chunks != expected) out += v.name + ": " + std::to_string(chunks) + " of " + std::to_string(expected) + "\n";
  }
  return out;
}

/// Where two files differ.
std::string first_difference(const std::string& a, const std::string& b) {
  const auto x = read_file(system_files(), a), y = read_file(system_files(), b);
  if (!x || !y) return "not read";
  if (x->size() != y->size()) return std::to_string(x->size()) + " and " + std::to_string(y->size()) + " bytes";
  const auto at = static_cast<std::size_t>(std::mismatch(x->begin(), x->end(), y->begin()).first - x->begin());
  return at == x->size() ? "" : "at byte " + std::to_string(at) + " of " + std::to_string(x->size());
}

/// `allocation`: with the times at which HDF5 allocates.
std::string dump(const std::string& path, bool allocation) {
  std::string out;
  std::FILE* p =
      ::popen(("h5dump -p -A '" + path +
               "' | sed -E -e 's/DATASET [0-9]+ /DATASET /g' -e '/^HDF5 /d' -e '/OFFSET/d' -e '/ SIZE [0-9]+/d' "
               "-e '/_NCProperties/,/}/d' -e '/version=2,/d' -e '/_Netcdf4Dimid/,/^      }/d'" +
               (allocation ? "" : " -e '/H5D_ALLOC_TIME_/d'"))
                  .c_str(),
              "r");
  std::array<char, 65536> buffer{};
  for (std::size_t n = 0; p != nullptr && (n = std::fread(buffer.data(), 1, buffer.size(), p)) > 0;)
    out.append(buffer.data(), n);
  if (p != nullptr) ::pclose(p);
  return out;
}

TEST_P(EverySink, MakesOfAnyDecompositionWhatNetcdfMakesOfTheSame) {
  const auto helped_before = chunks_made_by_others();
  for (std::uint64_t seed = 1; seed <= 60; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 3);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    for (const auto& frame : s.frames) {
      ASSERT_OK(put(*sink, frame));
      ASSERT_OK(sink->commit());
    }
    ASSERT_OK(sink->close());
    ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
    ASSERT_THAT(litter(), ::testing::IsEmpty());
    // For check_zarr.py.
    if (const char* keep = std::getenv("ADVECTIO_ZARR_FILES");
        keep != nullptr && s.schema.format == FileFormat::zarr && seed <= 30) {
      const auto name = std::string(keep) + '/' + std::to_string(seed);
      std::filesystem::copy(path_, name + ".zarr", std::filesystem::copy_options::recursive);
      std::filesystem::copy(directory_ + "/reference.nc", name + ".nc");
    }
    if (is_classic(s.schema.format)) {
      ASSERT_EQ(first_difference(path_, directory_ + "/reference.nc"), "");
    }
    // HDF5's own tool sees the same too: every property of every data set, and the hidden attributes. (Positions
    // differ; and netCDF-C puts _Netcdf4Dimid on variables too that are no scales, where nobody looks for it, and not
    // on every scale.)
    if (is_hdf5(s.schema.format) && !GetParam().abilities.directory && seed <= 10) {
      const bool parallel = GetParam().name == "netcdf4_for_parallel_hdf5";
      const auto ours = dump(path_, !parallel), theirs = dump(directory_ + "/reference.nc", !parallel);
      ASSERT_EQ(theirs, ours);
    }
    if (GetParam().name == "netcdf4_for_parallel_hdf5") {
      ASSERT_EQ(not_for_parallel_hdf5(path_, s.schema), "");
    }
  }
  if (GetParam().name == "netcdf4_helped") {
    EXPECT_GT(chunks_made_by_others(), helped_before);
  }
}

TEST_P(EverySink, HoldsPutsOfManyBoxesBesideOthers) {
  for (std::uint64_t seed = 701; seed <= 720; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 3);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    for (const auto& frame : s.frames) {
      std::size_t n = 0;
      for (const auto& b : frame) {
        const auto element = size_of(s.schema.variables[b.block.variable].type);
        const bool scattered = element > 0 && b.block.box.volume() < 20'000 && n++ % 3 != 0;
        ASSERT_OK(scattered ? sink->write_scattered(b.block, element) : sink->write(b.block));
      }
      ASSERT_OK(sink->commit());
    }
    ASSERT_OK(sink->close());
    ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
    if (is_classic(s.schema.format)) {
      ASSERT_EQ(first_difference(path_, directory_ + "/reference.nc"), "");
    }
  }
}

TEST_P(EverySink, HoldsFramesThatAreCommittedTogether) {
  for (std::uint64_t seed = 651; seed <= 665; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 3);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    for (const auto& frame : s.frames) {
      ASSERT_OK(put(*sink, frame));
      sink->wait_for_the_next();
    }
    ASSERT_OK(sink->commit());
    ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
    ASSERT_OK(sink->close());
  }
}

// A classic file said that its values were rounded, and they were not.
TEST_P(EverySink, WritesWhatItsOperatorsMakeOfEveryBlock) {
  for (std::uint64_t seed = 601; seed <= 625; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 3);
    const auto operators = testing::rounding(7);
    const auto schema = operators->declare(s.schema);
    ASSERT_OK(schema);
    auto rounded = s.blocks(3);
    for (auto& b : rounded)
      if (operators->changes(b.block.variable)) operators->apply(b.block.variable, b.block.box, b.data);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(*schema, operators));
    for (const auto& frame : s.frames) {
      ASSERT_OK(put(*sink, frame));
      ASSERT_OK(sink->commit());
    }
    ASSERT_OK(sink->close());
    // The library is given the rounded values, and is not to round them again.
    auto plain = *schema;
    for (auto& v : plain.variables) v.round_bits = 0;
    ASSERT_NO_FATAL_FAILURE(expect_file(plain, rounded));
  }
}

TEST_P(EverySink, CanBeReadAfterEachCommitAndKeepsTheInode) {
  for (std::uint64_t seed = 101; seed <= 115; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 3);
    place(path_);
    struct stat before {
    }, after{};
    ASSERT_EQ(::stat(path_.c_str(), &before), 0);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    for (std::size_t f = 0; f < s.frames.size(); ++f) {
      ASSERT_OK(put(*sink, s.frames[f]));
      ASSERT_OK(sink->commit());
      ASSERT_OK(sink->make_durable()());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(f + 1)));
    }
    ASSERT_OK(sink->close());
    ASSERT_OK(sink->close());
    ASSERT_EQ(::stat(path_.c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
  }
}

// Whatever a sink writes at once and whatever it keeps for the commit.
TEST_P(EverySink, TheLaterOfLargeAndSmallBlocksWins) {
  const Schema s = of_one_variable({{"y", 600, false}, {"x", 600, false}});
  const Box all{{0, 0}, {600, 600}};
  Random random(1);
  const auto block = [&](Box box, std::vector<std::uint64_t> stride = {}) {
    auto values = testing::random_values(random, DataType::float64, box.volume());
    return OwnedBlock(0, std::move(box), std::move(values), std::move(stride));
  };
  const std::vector<OwnedBlock> blocks = {block({{5, 5}, {10, 10}}),   block(all),
                                          block({{7, 0}, {300, 600}}), block({{3, 3}, {50, 50}}, {2, 2}),
                                          block({{0, 599}, {600, 1}}), block({{9, 9}, {1, 1}})};
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  for (const auto& b : blocks) ASSERT_OK(sink->write(b.block));
  ASSERT_OK(sink->close());
  Bytes expected(all.volume() * 8);
  for (const auto& b : blocks) {
    if (b.block.stride.empty()) {
      copy_part(b.block.box, b.data.data(), b.block.box, expected.data(), all, 8);
      continue;
    }
    for (std::uint64_t y = 0; y < 50; ++y)
      for (std::uint64_t x = 0; x < 50; ++x)
        std::memcpy(expected.data() + ((3 + 2 * y) * 600 + 3 + 2 * x) * 8, b.data.data() + (y * 50 + x) * 8, 8);
  }
  EXPECT_TRUE(contents().values[0] == expected);
}

// What was put while records were to be filled is filled, though that is not so any more when it is committed.
TEST_P(EverySink, FillsWhatWasPutBeforeFillingWasTurnedOff) {
  if (GetParam().abilities.keeps_layout)
    GTEST_SKIP() << GetParam().name << ": a variable keeps what it was defined with";
  for (const auto format : GetParam().ability.formats) {
    auto s = of_one_variable({{"t", 0, true}, {"x", 50, false}});
    s.format = format;
    Random random(1);
    const OwnedBlock part(0, Box{{0, 0}, {1, 10}}, testing::random_values(random, DataType::float64, 10));
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(sink->write(part.block));
    for (auto& v : s.variables) v.no_fill = true;
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(sink->close());
    const auto contents = this->contents();
    ASSERT_EQ(contents.values[0].size(), 400U);
    const auto* a = reinterpret_cast<const double*>(contents.values[0].data());
    for (std::size_t i = 10; i < 50; ++i) EXPECT_EQ(a[i], NC_FILL_DOUBLE) << i;
  }
}

/// In pieces near to each other and far apart, of several records at once, and with much that nobody puts.
TEST_P(EverySink, OfLargeBlocksAndLargeGapsMakesWhatNetcdfMakes) {
#ifdef __SANITIZE_ADDRESS__
  const std::uint64_t rows = 300;
#else
  const std::uint64_t rows = 2500;
#endif
  for (const bool fills : {true, false}) {
    if (!fills && !GetParam().ability.no_fill) continue;
    SCOPED_TRACE(fills ? "fill" : "no fill");
    Schema s;
    s.format = GetParam().ability.formats.back();
    s.dimensions = {{"t", 0, true}, {"row", rows, false}, {"column", 4200, false}, {"x", 3, false}};
    const auto variable = [&](const char* name, DataType type, std::vector<std::uint32_t> dimensions) {
      Variable v;
      v.name = name;
      v.type = type;
      v.dimensions = std::move(dimensions);
      v.no_fill = !fills;
      if (v.dimensions[0] == 0 && is_hdf5(s.format)) {
        v.contiguous = false;
        for (const auto d : v.dimensions) v.chunks.push_back(std::max<std::uint64_t>(s.dimensions[d].length, 1));
      }
      s.variables.push_back(std::move(v));
    };
    variable("bytes", DataType::int8, {1, 2});
    variable("strided", DataType::int16, {1, 2});
    variable("series", DataType::int16, {0, 3});
    variable("planes", DataType::float64, {0, 2, 3});
    if (!GetParam().only_grows) variable("unput", DataType::float32, {1, 2});
    Random random(1);
    const auto block = [&](std::uint32_t v, Box box, std::vector<std::uint64_t> stride = {}) {
      const auto n = box.volume();
      return OwnedBlock(v, std::move(box), testing::random_values(random, s.variables[v].type, n), std::move(stride));
    };
    std::vector<OwnedBlock> blocks;
    blocks.push_back(block(0, {{0, 7}, {rows, 2}}));                   // rows of 2 bytes, 4198 apart
    blocks.push_back(block(0, {{2, 100}, {rows / 4, 3}}, {3, 1}));     // in every third row
    blocks.push_back(block(1, {{1, 0}, {rows - 100, 1400}}, {1, 3}));  // near to each other
    blocks.push_back(block(1, {{5, 1}, {3, 2100}}, {rows / 4, 2}));    // over them and between them
    // Each record may cost a step.
    const std::uint64_t many = GetParam().only_grows ? 30 : 300;
    blocks.push_back(block(2, {{0, 1}, {3 * many, 2}}));      // pieces of many records
    blocks.push_back(block(2, {{1, 0}, {many, 2}}, {2, 2}));  // of every second one
    blocks.push_back(block(3, {{3, 4000, 0}, {2, 200, 3}}));  // of two records
    blocks.push_back(block(3, {{2 * many + 100, 0, 0}, {1, 4200, 1}}));
    auto sink = open();
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(put(*sink, blocks));
    ASSERT_OK(sink->close());
    ASSERT_NO_FATAL_FAILURE(expect_file(s, blocks));
    if (is_classic(s.format)) {
      ASSERT_EQ(first_difference(path_, directory_ + "/reference.nc"), "");
    }
  }
}

TEST_P(EverySink, CanBeReadAfterACheckpointAndTheFrameGoesOn) {
  for (std::uint64_t seed = 501; seed <= 510; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 2);
    std::filesystem::remove_all(path_);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    std::vector<OwnedBlock> all;
    for (const auto& frame : s.frames) {
      for (std::size_t i = 0; i < frame.size(); ++i) {
        ASSERT_OK(sink->write(frame[i].block));
        all.push_back(frame[i]);
        if (i != frame.size() / 2) continue;
        const auto done = sink->sink().checkpoint();
        if (!GetParam().abilities.checkpoints) {
          ASSERT_FALSE(done.ok());
          ASSERT_EQ(done.error().code, Code::unsupported);
          continue;
        }
        ASSERT_OK(done);
        ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, all));
      }
      ASSERT_OK(sink->commit());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, all));
    }
    ASSERT_OK(sink->close());
  }
}

TEST_P(EverySink, LetsGoOfEveryFieldWhenItCommitsOrIsAbandoned) {
  const auto schema = of_one_variable({{"t", 0, true}, {"x", 50, false}});
  Random random(1);
  const auto values = testing::random_values(random, DataType::float64, 50);
  Frame frame;
  frame.declare(schema);
  auto opened = GetParam().open(system_files(), path_, *executor_, false);
  ASSERT_OK(opened);
  auto& sink = **opened;
  ASSERT_OK(sink.declare(schema));
  std::weak_ptr<const Field> field;
  const auto put_some = [&](std::uint64_t t) {
    ASSERT_OK(sink.begin(t + 1));
    for (const std::uint64_t x : {0, 20}) {
      const Part part(Box{{t, x}, {1, 20}});
      auto added = frame.add({0, part.box, {}, values.data(), 160, nullptr});
      ASSERT_OK(added);
      field = *added;
      ASSERT_OK(sink.ready(*added, part));
    }
    frame.clear();
  };
  ASSERT_NO_FATAL_FAILURE(put_some(0));
  ASSERT_OK(sink.end());
  EXPECT_TRUE(field.expired());
  if (GetParam().abilities.checkpoints) {
    ASSERT_NO_FATAL_FAILURE(put_some(1));
    ASSERT_OK(sink.checkpoint());
    EXPECT_TRUE(field.expired());
  }
  ASSERT_NO_FATAL_FAILURE(put_some(2));
  sink.abandon();
  EXPECT_TRUE(field.expired());
}

TEST_P(EverySink, OfPartsThatAreReadyTwiceOrOverlapHoldsWhatTheFieldHasAtLast) {
  const auto schema = of_one_variable({{"t", 0, true}, {"y", 30, false}, {"x", 40, false}});
  Random random(2);
  std::vector<OwnedBlock> blocks;
  for (const auto& box : {Box{{0, 0, 0}, {1, 30, 40}}, Box{{0, 3, 3}, {1, 20, 20}}, Box{{0, 10, 0}, {1, 5, 40}}})
    blocks.emplace_back(0, box, testing::random_values(random, DataType::float64, box.volume()));
  Frame frame;
  frame.declare(schema);
  auto opened = GetParam().open(system_files(), path_, *executor_, false);
  ASSERT_OK(opened);
  auto& sink = **opened;
  ASSERT_OK(sink.declare(schema));
  ASSERT_OK(sink.begin(1));
  // The last block is told of before the others, and all of them twice.
  std::shared_ptr<const Field> field;
  for (const auto& b : blocks) field = frame.add(b.block).value();
  for (int i = 0; i < 2; ++i)
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) ASSERT_OK(sink.ready(field, b->block.box));
  ASSERT_OK(sink.ready(field, Box{{0, 5, 5}, {1, 9, 30}}));
  ASSERT_OK(sink.close());
  ASSERT_NO_FATAL_FAILURE(expect_file(schema, blocks));
}

}  // namespace
}  // namespace advectio
