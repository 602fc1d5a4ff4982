// What every sink must do, as far as its abilities go. A Kind adds what only tests need to know of a sink.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netcdf.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "platform/faulty_files.h"
#include "sinks/adios2/bp5_sink.h"
#include "sinks/after_others.h"
#include "sinks/bp5_reader.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/chunks/elsewhere.h"
#include "sinks/fed_sink.h"
#include "sinks/library_lock.h"
#include "sinks/netcdf4/hdf5.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"
#include "sinks/raw_directory.h"
#include "sinks/zarr/zarr_sink.h"
#include "sinks/zarr_reader.h"

namespace advectio {
namespace {

using testing::Ability;
using testing::ability_of;
using testing::Contents;
using testing::difference;
using testing::model_of;
using testing::OwnedBlock;
using testing::Random;
using testing::read_by_netcdf;
using testing::write_by_netcdf;

struct Kind {
  std::string name;
  Abilities abilities;
  Ability ability;                  ///< the same, as datasets are made up from it
  bool redo_in_each_commit = true;  ///< false: only where a schema changes
  bool exact_after_crash = true;    ///< false: blocks written after the last commit may already be seen
  std::function<Result<std::unique_ptr<Sink>>(Files&, const std::string&, Executor&, bool)> open;
  std::function<Contents(const std::string&)> read = read_by_netcdf;  ///< what an ordinary reader finds
  /// What the format keeps of what netCDF would.
  std::function<Contents(const Contents&)> keeps = nullptr;
  std::uint64_t every = 1;  ///< of the seeds; a library that takes its time with each file is tried with fewer
  bool only_grows = false;  ///< no names change, and what nobody has put is not there
  bool own_files = true;    ///< written through `Files`
  /// Why the sink cannot be tried here; empty: it can.
  std::function<std::string()> missing = [] { return std::string(); };
};

void PrintTo(const Kind& kind, std::ostream* to) {
  *to << kind.name;
}

Kind netcdf4() {
  Kind k;
  k.name = "netcdf4";
  k.abilities = netcdf4_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.pipelines = {{},
                         {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                         {{filter_id::deflate, {9}}},
                         {{filter_id::shuffle, {}}},
                         // netCDF-C puts the checksum first, whenever it is asked for.
                         {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}}};
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return open_netcdf4(files, path, Netcdf4Options{}, executor, resume);
  };
  return k;
}

/// Somebody who does what is asked, each piece in a thread of its own, but for every third, which nobody does.
class SomebodyElse final : public Helpers {
 public:
  ~SomebodyElse() override { wait(); }
  std::optional<unsigned> place(std::size_t) override {
    const std::lock_guard guard(mutex_);
    if (given_ == 0) wait();
    if (given_ == places) return std::nullopt;
    ++given_;
    return 0;
  }
  void let_go(unsigned) override {
    const std::lock_guard guard(mutex_);
    --given_;
  }
  void ask(unsigned place, std::shared_ptr<const Message> request, Answer answer) override {
    const std::lock_guard guard(mutex_);
    threads_.emplace_back([this, place, request = std::move(request), answer = std::move(answer), number = ++asked_] {
      const auto reply = number % 3 == 0 ? nullptr : encode_for_another(request->span(), memory_);
      std::optional<Message> said;
      if (reply != nullptr) {
        said.emplace();
        said->buffer.reserve(reply->bytes);
        std::memcpy(said->buffer.data(), reply->buffer.data(), reply->bytes);
        said->bytes = reply->bytes;
        ++answered_;
      }
      let_go(place);
      answer(std::move(said));
    });
  }
  /// Chunks that it has made.
  [[nodiscard]] unsigned answered() const { return answered_; }

 private:
  void wait() {
    for (auto& t : threads_) t.join();
    threads_.clear();
  }

  static constexpr unsigned places = 3;
  std::mutex mutex_;
  unsigned given_ = 0, asked_ = 0;
  std::atomic<unsigned> answered_ = 0;
  std::vector<std::thread> threads_;
  std::shared_ptr<MemoryBudget> memory_ = std::make_shared<MemoryBudget>(std::uint64_t{1} << 20);
};

SomebodyElse& somebody_else() {
  static SomebodyElse one;
  return one;
}

Kind netcdf4_helped() {
  auto k = netcdf4();
  k.name = "netcdf4_helped";
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    Netcdf4Options options;
    options.helpers = &somebody_else();
    return open_netcdf4(files, path, options, executor, resume);
  };
  return k;
}

Kind netcdf4_for_parallel_hdf5() {
  auto k = netcdf4();
  k.name = "netcdf4_for_parallel_hdf5";
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    Netcdf4Options options;
    options.for_parallel_hdf5 = true;
    return open_netcdf4(files, path, options, executor, resume);
  };
  return k;
}

Kind netcdf4_after_others() {
  auto k = netcdf4();
  k.name = "netcdf4_after_others";
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return testing::open_after_others(files, path, {}, executor, resume);
  };
  return k;
}

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

Kind cdf5() {
  Kind k;
  k.name = "cdf5";
  k.abilities = cdf5_abilities();
  k.ability = ability_of(k.abilities);
  k.redo_in_each_commit = false;
  k.exact_after_crash = false;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return open_cdf5(files, path, {}, resume);
  };
  return k;
}

/// The reader writes what it finds into a netCDF file, so that it is compared as everything else is.
Kind raw_directory() {
  Kind k;
  k.name = "raw_directory";
  k.abilities = testing::raw_directory_abilities();
  k.ability = ability_of(k.abilities);
  k.redo_in_each_commit = false;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return testing::open_raw_directory(files, path, resume);
  };
  k.read = [](const std::string& path) {
    auto found = testing::read_raw_directory(path);
    for (auto& v : found.schema.variables) v.round_bits = 0;
    const auto file = path + "/read.nc";
    write_by_netcdf(file, found.schema, found.parts);
    auto out = read_by_netcdf(file);
    std::filesystem::remove(file);
    return out;
  };
  return k;
}

Kind zarr() {
  Kind k;
  k.name = "zarr";
  k.abilities = zarr_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.pipelines = {{},
                         {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                         {{filter_id::deflate, {9}}},
                         {{filter_id::shuffle, {}}},
                         {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}},
                         {{filter_id::shuffle, {}}, {filter_id::zstd, {3}}},
                         {{filter_id::zstd, {1}}, {filter_id::fletcher32, {}}},
                         {{filter_id::lz4, {0}}},
                         {{filter_id::bitshuffle, {}}, {filter_id::zstd, {1}}},
                         {{filter_id::blosc, {2, 2, 4, 0, 5, 1, 0}}}};
  k.redo_in_each_commit = false;
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return open_zarr(files, path, {}, executor, resume);
  };
  k.read = testing::read_zarr;
  k.keeps = testing::as_zarr_keeps;
  return k;
}

Kind bp5() {
  Kind k;
  k.name = "bp5";
  k.abilities = bp5_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.no_fill = false;
  k.redo_in_each_commit = k.own_files = false;
  k.only_grows = true;
  k.every = 3;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return open_bp5(files, path, {}, resume);
  };
  k.read = testing::read_bp5;
  k.keeps = testing::as_bp5_keeps;
  k.missing = testing::why_no_adios2;
  return k;
}

/// `allocation`: with the times at which HDF5 allocates.
std::string dump(const std::string& path, bool allocation) {
  std::string out;
  std::FILE* p =
      ::popen(("h5dump -p -A '" + path +
               "' | sed -E -e 's/DATASET [0-9]+ /DATASET /' -e '/^HDF5 /d' -e '/OFFSET/d' -e '/ SIZE [0-9]+/d' "
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

class EverySink : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (const auto why = GetParam().missing(); !why.empty()) GTEST_SKIP() << why;
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-sinks-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/out.nc";
    place(path_);
  }
  void TearDown() override {
    if (std::getenv("ADVECTIO_KEEP") == nullptr && !directory_.empty()) std::filesystem::remove_all(directory_);
  }

  static void place(const std::string& path) {
    if (GetParam().abilities.directory)
      std::filesystem::create_directories(path);
    else
      std::ofstream(path).flush();
  }
  Contents contents() const { return GetParam().read(path_); }
  std::uintmax_t bytes_there() const {
    if (!GetParam().abilities.directory) return std::filesystem::file_size(path_);
    std::uintmax_t sum = 0;
    for (const auto& e : std::filesystem::recursive_directory_iterator(path_))
      if (e.is_regular_file()) sum += e.file_size();
    return sum;
  }

  std::unique_ptr<testing::FedSink> open(bool resume = false, Files& files = system_files()) {
    auto sink = testing::fed(GetParam().open(files, path_, *executor_, resume));
    EXPECT_TRUE(sink.ok()) << (sink.ok() ? "" : sink.error().message);
    return sink.ok() ? std::move(sink).value() : nullptr;
  }

  /// "a", of all these dimensions; in chunks of a record where it has records and the format has chunks.
  static Schema of_one_variable(std::vector<Dimension> dimensions, DataType type = DataType::float64) {
    Schema s;
    s.format = GetParam().ability.formats[0];
    s.dimensions = std::move(dimensions);
    Variable v;
    v.name = "a";
    v.type = type;
    for (std::uint32_t d = 0; d < s.dimensions.size(); ++d) v.dimensions.push_back(d);
    if (s.dimensions[0].unlimited && is_hdf5(s.format)) {
      v.contiguous = false;
      for (const auto& d : s.dimensions) v.chunks.push_back(std::max<std::uint64_t>(d.length, 1));
    }
    s.variables = {v};
    return s;
  }

  static Result<void> put(testing::FedSink& sink, const std::vector<OwnedBlock>& blocks) {
    for (const auto& b : blocks) ADVECTIO_TRY(sink.write(b.block));
    return {};
  }

  /// Names in the directory besides the file itself.
  std::vector<std::string> litter() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(directory_))
      if (e.path() != path_ && e.path().filename() != "reference.nc") names.push_back(e.path().filename());
    return names;
  }

  struct Story {
    Schema schema;
    std::vector<std::vector<OwnedBlock>> frames;
    [[nodiscard]] std::vector<OwnedBlock> blocks(std::size_t frames_seen) const {
      std::vector<OwnedBlock> all;
      for (std::size_t f = 0; f < frames_seen; ++f) all.insert(all.end(), frames[f].begin(), frames[f].end());
      return all;
    }
  };
  static Story story(std::uint64_t seed, std::uint64_t frames) {
    Random random(seed);
    Story s;
    s.schema = testing::random_schema(random, GetParam().ability);
    for (std::uint64_t f = 0; f < frames; ++f) s.frames.push_back(testing::random_frame(random, s.schema, f));
    return s;
  }

  /// The file holds what netCDF makes of these blocks, and what a plain computation makes of them.
  void expect_file(const Schema& schema, const std::vector<OwnedBlock>& blocks) {
    const auto model = model_of(schema, blocks);
    const auto reference = directory_ + "/reference.nc";
    write_by_netcdf(reference, schema, blocks);
    const auto& keeps = GetParam().keeps;
    const auto kept = [&](Contents c) { return keeps ? keeps(c) : std::move(c); };
    auto theirs = read_by_netcdf(reference);
    for (std::size_t i = 0; keeps && i < schema.variables.size(); ++i) {
      // What netCDF-C 4.9 itself reads wrong (see `difference`).
      const auto& d = schema.variables[i].dimensions;
      if (std::any_of(d.begin() + (d.empty() ? 0 : 1), d.end(), [&](auto k) { return schema.dimensions[k].unlimited; }))
        theirs.values[i] = model.contents.values[i];
    }
    theirs = kept(std::move(theirs));
    const auto ours = contents();
    ASSERT_EQ(difference(theirs, ours, model.written), "");
    auto plain = kept(model.contents);
    for (std::size_t d = 0; d < plain.schema.dimensions.size(); ++d)
      ASSERT_EQ(plain.schema.dimensions[d], ours.schema.dimensions[d]);
    plain.schema = ours.schema;
    ASSERT_EQ(difference(plain, ours, model.written, keeps == nullptr), "");
  }

  /// A process that is forked while another thread has the sanitizer's lock stands still.
  void no_threads() { executor_ = std::make_unique<Executor>(0); }

  std::unique_ptr<Executor> executor_ = std::make_unique<Executor>(2);
  std::string directory_, path_;
};

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)

TEST_P(EverySink, MakesOfAnyDecompositionWhatNetcdfMakesOfTheSame) {
  const auto helped_before = somebody_else().answered();
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
    EXPECT_GT(somebody_else().answered(), helped_before);
  }
}

// A classic file said that its values were rounded, and they were not.
TEST(SkeletonsOfFiles, AreKeptForAllTilesOfADomainAndWithinTheirMemory) {
  const auto tile = [](std::uint64_t width) {
    Schema s;
    s.dimensions = {{"x", width, false}};
    return s;
  };
  Skeletons skeletons;
  const auto make = [&](const Schema& s, std::size_t bytes) {
    EXPECT_FALSE(skeletons.is_wanted(s)) << "the first of its kind";
    EXPECT_TRUE(skeletons.is_wanted(s));
    skeletons.keep(s, {{}, std::vector<std::byte>(bytes)});
  };
  for (std::uint64_t width = 1; width <= 16; ++width) make(tile(width), 1000);
  for (std::uint64_t width = 1; width <= 16; ++width) EXPECT_NE(skeletons.find(tile(width)), nullptr) << width;
  make(tile(100), 40U << 20U);
  make(tile(101), 40U << 20U);
  EXPECT_EQ(skeletons.find(tile(100)), nullptr);
  EXPECT_EQ(skeletons.find(tile(1)), nullptr) << "the ones used longest ago go first";
  EXPECT_NE(skeletons.find(tile(101)), nullptr);
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

TEST_P(EverySink, AbandonLeavesTheLastCommit) {
  for (std::uint64_t seed = 201; seed <= 215; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 2);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[0]));
    ASSERT_OK(sink->commit());
    const auto before = contents();
    const auto bytes = bytes_there();
    ASSERT_OK(put(*sink, s.frames[1]));
    sink->abandon();
    if (GetParam().exact_after_crash) {
      ASSERT_EQ(difference(before, contents(), model_of(s.schema, s.blocks(1)).written), "");
      EXPECT_EQ(bytes_there(), bytes);
    }
    EXPECT_THAT(litter(), ::testing::IsEmpty());

    sink = open(true);
    sink->set_frames(1);
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[1]));
    ASSERT_OK(sink->close());
    ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(2)));
  }
}

TEST_P(EverySink, AbandonBeforeAnyCommitLeavesAnEmptyFile) {
  const auto s = story(7, 1);
  auto sink = open();
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(put(*sink, s.frames[0]));
  sink->abandon();
  EXPECT_EQ(bytes_there(), 0U);
}

// The process is killed at every call in turn (between two calls; test_crash.cpp cuts within them).
TEST_P(EverySink, GoesOnWhereAKilledProcessStopped) {
  no_threads();
  for (std::uint64_t seed = 301; seed <= 306; seed += GetParam().every) {
    const auto s = story(seed, 3);
    const std::size_t calls = 1 + s.blocks(3).size() + 3;
    for (std::size_t stop = 0; stop <= calls; stop += 1 + calls / 12) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", killed after call " + std::to_string(stop));
      std::filesystem::remove_all(path_);
      place(path_);
      int pipe_ends[2];
      ASSERT_EQ(::pipe(pipe_ends), 0);
      const pid_t child = ::fork();
      if (child == 0) {
        std::size_t left = stop;
        const auto tick = [&] {
          if (left-- == 0) ::kill(::getpid(), SIGKILL);
        };
        Executor here(0);
        auto sink = testing::fed(GetParam().open(system_files(), path_, here, false));
        tick();
        (void)(*sink)->declare(s.schema);
        for (const auto& frame : s.frames) {
          for (const auto& b : frame) {
            tick();
            (void)(*sink)->write(b.block);
          }
          tick();
          if ((*sink)->commit().ok()) (void)!::write(pipe_ends[1], "c", 1);
        }
        ::kill(::getpid(), SIGKILL);
      }
      ::close(pipe_ends[1]);
      std::size_t committed = 0;
      char c = 0;
      while (::read(pipe_ends[0], &c, 1) == 1) ++committed;
      ::close(pipe_ends[0]);
      ASSERT_EQ(::waitpid(child, nullptr, 0), child);

      if (committed > 0 && GetParam().exact_after_crash) {
        ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(committed)));
      } else if (committed > 0) {
        ASSERT_EQ(contents().schema.dimensions, model_of(s.schema, s.blocks(committed)).contents.schema.dimensions);
      }
      auto sink = open(true);
      sink->set_frames(committed > 0 && stop % 2 == 0 ? committed - 1 : committed);
      ASSERT_OK(sink->declare(s.schema));
      // Replay from the last commit that is known of, or from one before it: both are right.
      for (std::size_t f = committed > 0 && stop % 2 == 0 ? committed - 1 : committed; f < s.frames.size(); ++f) {
        ASSERT_OK(put(*sink, s.frames[f]));
        ASSERT_OK(sink->commit());
      }
      ASSERT_OK(sink->close());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
      ASSERT_THAT(litter(), ::testing::IsEmpty());
    }
  }
}

TEST_P(EverySink, IsNotClosedAsLongAsSomethingStaysBesideTheFile) {
  if (!GetParam().redo_in_each_commit) GTEST_SKIP() << GetParam().name << ": no redo file beside it in each commit";
  const auto s = story(411, 3);
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  const auto names = [this] { return system_files().list(directory_).value(); };
  {
    auto sink = open(false, files);
    ASSERT_OK(sink->declare(s.schema));
    for (const auto& f : s.frames) {
      ASSERT_OK(put(*sink, f));
      ASSERT_OK(sink->commit());
      ASSERT_OK(sink->make_durable()());
    }
    faults->syncs_until = 0;
    EXPECT_FALSE(sink->close().ok());
  }
  EXPECT_EQ(names().size(), 2U);
  faults->syncs_until = Faults::never;
  auto sink = open(true, files);
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(sink->close());
  EXPECT_EQ(names(), std::vector<std::string>{"out.nc"});
}

TEST_P(EverySink, GoesOnWhereTheDiskLetNothingGoThatWasBesideTheFile) {
  if (!GetParam().redo_in_each_commit) GTEST_SKIP() << GetParam().name << ": no redo file beside it in each commit";
  const auto s = story(412, 1);
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  {
    auto sink = open(false, files);
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[0]));
    faults->keeps_names = true;
    EXPECT_FALSE(sink->commit().ok());
    sink->abandon();
  }
  faults->keeps_names = false;
  auto sink = open(true, files);
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(put(*sink, s.frames[0]));
  ASSERT_OK(sink->close());
}

TEST_P(EverySink, SaysThatTheDiskIsFullAndGoesOnLater) {
  if (!GetParam().own_files) GTEST_SKIP() << GetParam().name << ": a library writes the files";
  for (std::uint64_t seed = 401; seed <= 402; ++seed) {
    const auto s = story(seed, 3);
    std::uint64_t needed = 0;
    {
      place(path_);
      auto sink = open();
      ASSERT_OK(sink->declare(s.schema));
      for (const auto& f : s.frames) {
        ASSERT_OK(put(*sink, f));
        ASSERT_OK(sink->commit());
      }
      needed = sink->counters().bytes_out;
      ASSERT_OK(sink->close());
    }
    // Enough to open a sink.
    for (std::uint64_t space = 64; space < needed; space += 1 + needed / 20) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", space for " + std::to_string(space) + " of " +
                   std::to_string(needed));
      std::filesystem::remove_all(path_);
      place(path_);
      auto faults = std::make_shared<Faults>();
      faults->space = space;
      FaultyFiles files(system_files(), faults);
      std::size_t committed = 0;
      std::optional<Error> error;
      {
        auto sink = open(false, files);
        if (auto r = sink->declare(s.schema); !r) error = r.error();
        for (std::size_t f = 0; f < s.frames.size() && !error; ++f) {
          if (auto r = put(*sink, s.frames[f]); !r) error = r.error();
          if (error) break;
          if (auto r = sink->commit(); !r)
            error = r.error();
          else
            ++committed;
        }
        if (!error) {
          // How much is needed varies a little with the order in which chunks are ready.
          ASSERT_GT(space, needed * 9 / 10);
          break;
        }
        EXPECT_EQ(error->code, Code::full) << error->message;
        EXPECT_EQ(error->sys, ENOSPC) << error->message;
        // It stays failed, and says the same.
        const auto again = sink->commit();
        ASSERT_FALSE(again.ok());
        EXPECT_EQ(again.error().sys, ENOSPC);
        sink->abandon();
      }
      faults->space = Faults::never;
      auto sink = open(true, files);
      sink->set_frames(committed);
      ASSERT_OK(sink->declare(s.schema));
      for (std::size_t f = committed; f < s.frames.size(); ++f) ASSERT_OK(put(*sink, s.frames[f]));
      ASSERT_OK(sink->close());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
    }
  }
}

// As a full disk, also for what a library writes by itself: the system refuses to let files grow.
TEST_P(EverySink, FailsWhenTheFileMayNotGrow) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const Schema s = of_one_variable({{"t", 0, true}, {"x", 100000, false}});
  Random random(1);
  const auto block = [&](std::uint64_t t) {
    return OwnedBlock(0, Box{{t, 0}, {1, 100000}}, testing::random_values(random, DataType::float64, 100000));
  };
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  const auto first = block(0), second = block(1);
  ASSERT_OK(sink->write(first.block));
  ASSERT_OK(sink->commit());
  rlimit small = old;
  small.rlim_cur = GetParam().abilities.directory ? 500000 : 1000000;  // a directory gets a new file for each frame
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto result = sink->write(second.block);
  if (result.ok()) result = sink->commit();
  sink->abandon();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  (void)std::signal(SIGXFSZ, before);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().sys, EFBIG) << result.error().message;
  EXPECT_EQ(contents().values[0], first.data);
  sink = open(true);
  sink->set_frames(1);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(second.block));
  ASSERT_OK(sink->close());
  auto both = first.data;
  both.insert(both.end(), second.data.begin(), second.data.end());
  EXPECT_EQ(contents().values[0], both);
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

// An earlier server let netCDF-C count a record in the classic header before all of it was written.
TEST_P(EverySink, RecordsThatAreCountedAndNotCommittedAreFilledAgain) {
  no_threads();
  if (!is_classic(GetParam().ability.formats[0]))
    GTEST_SKIP() << GetParam().name << ": counts nothing before its commit";
  for (const auto format : GetParam().ability.formats) {
    Schema s;
    s.format = format;
    s.dimensions = {{"t", 0, true}, {"x", 50, false}};
    for (const auto* name : {"a", "b"}) {
      Variable v;
      v.name = name;
      v.type = DataType::float64;
      v.dimensions = {0, 1};
      s.variables.push_back(v);
    }
    Random random(1);
    const OwnedBlock first(0, Box{{0, 0}, {1, 50}}, testing::random_values(random, DataType::float64, 50));
    const OwnedBlock second(0, Box{{1, 0}, {1, 50}}, testing::random_values(random, DataType::float64, 50));
    const pid_t dies = ::fork();
    if (dies == 0) {
      auto sink = open();
      if (!sink->declare(s) || !sink->write(first.block) || !sink->commit()) ::_exit(1);
      ::_exit(0);  // without a close
    }
    int status = 0;
    ::waitpid(dies, &status, 0);
    ASSERT_EQ(status, 0);
    {
      // As one that dies within its second commit leaves the file: two records are counted, nothing of the second is
      // there.
      auto file = system_files().open(path_, OpenMode::read_write);
      const std::byte two{2};
      ASSERT_TRUE((*file)->write(format == FileFormat::cdf5 ? 11 : 7, {&two, 1}).ok());
      ASSERT_TRUE((*file)->resize(*(*file)->size() + 800).ok());
    }
    auto sink = open(true);
    sink->set_frames(1);
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(sink->write(second.block));
    ASSERT_OK(sink->close());
    const auto contents = this->contents();
    const auto* b = reinterpret_cast<const double*>(contents.values[1].data());
    EXPECT_EQ(contents.values[1].size(), 800U);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(b[i], NC_FILL_DOUBLE) << i;
    EXPECT_EQ(litter(), std::vector<std::string>());
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

/// What died before had begun to write, and had filled nothing.
TEST_P(EverySink, AFileThatWasNeverCommittedIsFilledAllTheSame) {
  Schema s = of_one_variable({{"y", 1000, false}, {"x", 500, false}}, DataType::float32);
  Variable other = s.variables[0];
  other.name = "b";
  s.variables.push_back(other);
  Random random(1);
  const std::vector<OwnedBlock> blocks = {
      {0, Box{{10, 0}, {600, 500}}, testing::random_values(random, DataType::float32, 300'000)},
      {1, Box{{999, 3}, {1, 7}}, testing::random_values(random, DataType::float32, 7)}};
  no_threads();
  const pid_t dies = ::fork();
  if (dies == 0) {
    auto sink = open();
    ::_exit(sink->declare(s).ok() && put(*sink, blocks).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(dies, &status, 0);
  ASSERT_EQ(status, 0);
  auto sink = open(true);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(put(*sink, blocks));
  ASSERT_OK(sink->close());
  ASSERT_NO_FATAL_FAILURE(expect_file(s, blocks));
  EXPECT_EQ(litter(), std::vector<std::string>());
}

TEST_P(EverySink, AFileWhoseBeginningCannotBeWrittenStaysAndIsBegunAgain) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const Schema s = of_one_variable({{"x", 100, false}});
  Random random(1);
  const OwnedBlock block(0, Box{{0}, {100}}, testing::random_values(random, DataType::float64, 100));
  rlimit none = old;
  none.rlim_cur = 0;
  auto sink = open();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  auto result = sink->declare(s);
  if (result.ok()) result = sink->write(block.block);
  if (result.ok()) result = sink->commit();
  sink.reset();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  (void)std::signal(SIGXFSZ, before);
  EXPECT_FALSE(result.ok());
  ASSERT_TRUE(std::filesystem::exists(path_));
  sink = open(true);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(block.block));
  ASSERT_OK(sink->close());
  EXPECT_EQ(contents().values[0], block.data);
}

TEST_P(EverySink, WhatTheSystemRefusesAtTheOpeningDoesNotEmptyAFile) {
  const Schema s = of_one_variable({{"x", 100, false}});
  Random random(1);
  const OwnedBlock block(0, Box{{0}, {100}}, testing::random_values(random, DataType::float64, 100));
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(block.block));
  ASSERT_OK(sink->close());
  sink.reset();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  for (rlim_t more = 1; more < 4; ++more) {
    rlimit few = old;
    few.rlim_cur = static_cast<rlim_t>(next) + more;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    (void)GetParam().open(system_files(), path_, *executor_, true).ok();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
    EXPECT_EQ(contents().values[0], block.data);
  }
}

Attribute text(const std::string& name, const std::string& value) {
  Attribute a{name, DataType::text, value.size(), Bytes(value.size()), {}};
  std::memcpy(a.values.data(), value.data(), value.size());
  return a;
}

TEST_P(EverySink, FollowsASchemaThatGrowsAndChangesAfterData) {
  if (GetParam().only_grows) GTEST_SKIP() << GetParam().name << ": names do not change";
  Schema s;
  s.format = GetParam().ability.formats[0];
  s.dimensions = {{"time", 0, true}, {"y", 4, false}};
  Variable a;
  a.name = "a";
  a.type = DataType::int32;
  a.dimensions = {0, 1};
  a.contiguous = false;
  a.chunks = {1, 3};
  a.attributes = {text("units", "K"), text("long_name", "first")};
  if (!GetParam().abilities.keeps_layout) {
    a.contiguous = true;
    a.chunks.clear();
  }
  s.variables = {a};
  s.attributes = {text("title", "one"), text("history", "none")};
  Random random(3);
  std::vector<OwnedBlock> all;
  const auto frame = [&](testing::FedSink& sink, std::uint64_t t, std::size_t variables) {
    const auto from = all.size();
    for (std::uint32_t i = 0; i < variables; ++i) {
      const auto& v = s.variables[i];
      Box box;
      for (const auto d : v.dimensions) {
        box.start.push_back(s.dimensions[d].unlimited ? t : 0);
        box.count.push_back(s.dimensions[d].unlimited ? 1 : s.dimensions[d].length);
      }
      all.emplace_back(i, box, testing::random_values(random, v.type, box.volume()));
    }
    for (auto i = from; i < all.size(); ++i) EXPECT_TRUE(sink.write(all[i].block).ok());
    EXPECT_TRUE(sink.commit().ok());
  };
  const auto check = [&] {
    const auto model = model_of(s, all);
    auto expected = model.contents;
    const auto ours = contents();
    ASSERT_EQ(ours.schema.variables.size(), s.variables.size());
    for (std::size_t i = 0; i < s.variables.size(); ++i) {
      EXPECT_EQ(ours.schema.variables[i].name, s.variables[i].name);
      EXPECT_EQ(ours.schema.variables[i].attributes, s.variables[i].attributes) << s.variables[i].name;
      EXPECT_EQ(ours.schema.variables[i].dimensions, s.variables[i].dimensions);
      EXPECT_EQ(ours.values[i], expected.values[i]) << s.variables[i].name;
    }
    for (std::size_t d = 0; d < s.dimensions.size(); ++d)
      EXPECT_EQ(ours.schema.dimensions[d].name, s.dimensions[d].name);
    EXPECT_EQ(ours.schema.attributes, s.attributes);
  };
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  frame(*sink, 0, 1);
  check();

  // A variable of a new dimension; one whose name is that of an old dimension, and so its coordinate; attributes.
  s.dimensions.push_back({"x", 3, false});
  Variable b = a;
  b.name = "b";
  b.type = DataType::float64;
  b.dimensions = {0, 1, 2};
  if (!b.chunks.empty()) b.chunks = {1, 2, 2};
  b.attributes = {};
  Variable time;
  time.name = "time";
  time.type = DataType::float64;
  time.dimensions = {0};
  if (GetParam().abilities.keeps_layout) {
    time.contiguous = false;
    time.chunks = {8};
  }
  time.attributes = {text("units", "hours")};
  s.variables.push_back(b);
  s.variables.push_back(time);
  s.attributes[0] = text("title", "two, and longer");
  s.variables[0].attributes[0] = text("units", "C");
  ASSERT_OK(sink->declare(s));
  frame(*sink, 1, 3);
  {
    SCOPED_TRACE("grown");
    check();
  }

  // Renamed: a variable; a dimension away from its coordinate variable; attributes gone.
  s.variables[0].name = "alpha";
  s.dimensions[0].name = "t";
  s.attributes.erase(s.attributes.begin());
  s.variables[0].attributes.pop_back();
  ASSERT_OK(sink->declare(s));
  frame(*sink, 2, 3);
  {
    SCOPED_TRACE("renamed");
    check();
  }
  // Names exchanged, and a dimension that gets a coordinate variable by it.
  s.variables[0].name = "b";
  s.variables[1].name = "alpha";
  s.dimensions[1].name = "z";
  s.variables[2].name = "t";
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->commit());
  {
    SCOPED_TRACE("exchanged");
    check();
  }
  ASSERT_OK(sink->close());
  sink = open(true);
  ASSERT_OK(sink->declare(s));
  frame(*sink, 3, 3);
  ASSERT_OK(sink->close());
  {
    SCOPED_TRACE("resumed");
    check();
  }

  // netCDF can go on with the file: what was defined has the same numbers.
  if (GetParam().abilities.directory) return;
  {
    const std::lock_guard lock(library_mutex());
    int nc = 0, id = 0, dim = 0;
    ASSERT_EQ(nc_open(path_.c_str(), NC_WRITE, &nc), NC_NOERR);
    ASSERT_EQ(nc_redef(nc), NC_NOERR);
    ASSERT_EQ(nc_def_dim(nc, "more", 2, &dim), NC_NOERR);
    ASSERT_EQ(dim, 3);
    ASSERT_EQ(nc_def_var(nc, "late", NC_INT, 1, &dim, &id), NC_NOERR);
    ASSERT_EQ(id, 3);
    ASSERT_EQ(nc_enddef(nc), NC_NOERR);
    const std::array<int, 2> values = {5, 6};
    ASSERT_EQ(nc_put_var_int(nc, id, values.data()), NC_NOERR);
    const std::array<std::size_t, 2> start = {4, 0}, count = {1, 4};
    const std::array<int, 4> row = {1, 2, 3, 4};
    ASSERT_EQ(nc_put_vara_int(nc, 0, start.data(), count.data(), row.data()), NC_NOERR);
    ASSERT_EQ(nc_close(nc), NC_NOERR);
  }
  const auto after = contents();
  EXPECT_EQ(after.schema.dimensions[0].length, 5U);
  EXPECT_EQ(after.schema.variables.size(), 4U);
}

TEST_P(EverySink, RefusesWhatCannotBeRight) {
  const auto s = [] {
    Schema out;
    out.format = GetParam().ability.formats[0];
    out.dimensions = {{"x", 4, false}};
    Variable v;
    v.name = "a";
    v.type = DataType::int32;
    v.dimensions = {0};
    out.variables = {v};
    return out;
  }();
  const auto fails = [&](const OwnedBlock& b) {
    place(path_);
    auto sink = open();
    EXPECT_TRUE(sink->declare(s).ok());
    return !sink->write(b.block).ok();
  };
  EXPECT_FALSE(fails(OwnedBlock(0, Box{{0}, {4}}, Bytes(16))));
  EXPECT_TRUE(fails(OwnedBlock(1, Box{{0}, {4}}, Bytes(16))));
  EXPECT_TRUE(fails(OwnedBlock(0, Box{{1}, {4}}, Bytes(16))));
  EXPECT_TRUE(fails(OwnedBlock(0, Box{{0}, {4}}, Bytes(12))));
  EXPECT_TRUE(fails(OwnedBlock(0, Box{{0, 0}, {2, 2}}, Bytes(16))));
  EXPECT_TRUE(fails(OwnedBlock(0, Box{{UINT64_MAX}, {2}}, Bytes(8))));
}

TEST_P(EverySink, RefusesABoxWhoseBytesCannotBeCounted) {
  const Schema s = of_one_variable({{"t", 0, true}}, DataType::int32);
  place(path_);
  auto sink = open();
  ASSERT_TRUE(sink->declare(s).ok());
  // 2^62 elements of four bytes: none, where bytes are counted modulo 2^64.
  const OwnedBlock b(0, Box{{0}, {std::uint64_t{1} << 62}}, Bytes());
  EXPECT_FALSE(sink->write(b.block).ok());
}

TEST_P(EverySink, HoldsADatasetWithoutDimensionsOrVariables) {
  Schema s;
  s.format = GetParam().ability.formats[0];
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->close());
  const auto c = contents();
  EXPECT_EQ(c.schema.format, s.format);
  EXPECT_TRUE(c.schema.variables.empty());
}

TEST_P(EverySink, SaysWhenOpenWhatItSaidBefore) {
  const auto sink = open();
  const auto said = sink->sink().abilities(), before = GetParam().abilities;
  EXPECT_EQ(said.rewrites, before.rewrites);
  EXPECT_EQ(said.directory, before.directory);
  EXPECT_EQ(said.checkpoints, before.checkpoints);
  EXPECT_EQ(said.keeps_layout, before.keeps_layout);
  ASSERT_EQ(said.forms.size(), before.forms.size());
  for (std::size_t i = 0; i < said.forms.size(); ++i) {
    EXPECT_EQ(said.forms[i].format, before.forms[i].format);
    EXPECT_EQ(said.forms[i].types, before.forms[i].types);
    EXPECT_EQ(said.forms[i].unlimited_max, before.forms[i].unlimited_max);
  }
}

TEST_P(EverySink, RefusesASchemaBeyondItsAbilitiesAndTakesTheNext) {
  const std::vector<FileFormat> formats = {FileFormat::classic, FileFormat::offset64,        FileFormat::cdf5,
                                           FileFormat::netcdf4, FileFormat::netcdf4_classic, FileFormat::zarr,
                                           FileFormat::bp5};
  const auto& forms = GetParam().abilities.forms;
  auto sink = open();
  const auto code = [&](const Schema& s) {
    const auto r = sink->declare(s);
    return r.ok() ? Code{} : r.error().code;
  };
  for (const auto format : formats) {
    SCOPED_TRACE(name_of(format));
    const auto form = std::find_if(forms.begin(), forms.end(), [&](const auto& f) { return f.format == format; });
    Schema s = of_one_variable({{"x", 4, false}});
    s.format = format;
    EXPECT_EQ(code(s), form == forms.end() ? Code::unsupported : Code{});
    if (form == forms.end()) continue;
    for (const auto type :
         {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64,
          DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64, DataType::string}) {
      const bool can = std::find(form->types.begin(), form->types.end(), type) != form->types.end();
      s.variables[0].type = type;
      EXPECT_EQ(code(s), can ? Code{} : Code::unsupported) << name_of(type);
      s.variables[0].type = form->types[0];
      s.attributes = {{"a", type, 0, {}, {}}};
      EXPECT_EQ(code(s), can ? Code{} : Code::unsupported) << name_of(type);
      s.attributes.clear();
    }
    if (form->unlimited_max > 9) continue;
    for (std::size_t i = 0; i <= form->unlimited_max; ++i) {
      EXPECT_EQ(code(s), Code{});
      s.dimensions.push_back({"u" + std::to_string(i), 0, true});
    }
    EXPECT_EQ(code(s), Code::unsupported);
  }
  const auto s = story(77, 1);
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(put(*sink, s.frames[0]));
  ASSERT_OK(sink->close());
  ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(1)));
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

/// netCDF-C fills what was there before a fill value changed.
TEST(ClassicFill, OfRecordsBeforeItChangedStaysTheOldOne) {
  std::string pattern = (std::filesystem::temp_directory_path() / "advectio-sinks-XXXXXX").string();
  const std::string directory = ::mkdtemp(pattern.data()), path = directory + "/out.nc";
  std::ofstream(path).flush();
  Schema s;
  s.format = FileFormat::cdf5;
  s.dimensions = {{"t", 0, true}, {"x", 3, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::int32;
  v.dimensions = {0, 1};
  s.variables = {v};
  const std::array<std::int32_t, 2> values = {1, 2};
  const auto put = [&](testing::FedSink& sink, std::uint64_t record) {
    Block b;
    b.box = {{record, 0}, {1, 2}};
    b.data = reinterpret_cast<const std::byte*>(values.data());
    b.bytes = sizeof values;
    return sink.write(b);
  };
  auto sink = testing::fed(open_cdf5(system_files(), path, {}, false));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(s));
  ASSERT_OK(put(**sink, 1));
  const std::int32_t five = 5;
  Attribute fill{"_FillValue", DataType::int32, 1, Bytes(sizeof five), {}};
  std::memcpy(fill.values.data(), &five, sizeof five);
  s.variables[0].fill = fill.values;
  s.variables[0].has_fill = true;
  s.variables[0].attributes.push_back(fill);
  ASSERT_OK((*sink)->declare(s));
  ASSERT_OK(put(**sink, 3));
  ASSERT_OK((*sink)->close());
  const auto contents = read_by_netcdf(path);
  std::array<std::int32_t, 12> got{};
  ASSERT_EQ(contents.values[0].size(), sizeof got);
  std::memcpy(got.data(), contents.values[0].data(), sizeof got);
  const auto old = NC_FILL_INT;
  EXPECT_THAT(got, ::testing::ElementsAre(old, old, old, 1, 2, old, 5, 5, 5, 1, 2, 5));
  std::filesystem::remove_all(directory);
}

/// netCDF-C 4.9.0 itself refuses this (NC_ENOTNC): with the smaller alignment it would place the records before the end
/// of the other variables.
TEST(ClassicHeader, ChangesWhereTheAlignmentOfRecordsBecomesSmaller) {
  std::string pattern = (std::filesystem::temp_directory_path() / "advectio-sinks-XXXXXX").string();
  const std::string directory = ::mkdtemp(pattern.data()), path = directory + "/out.nc";
  std::ofstream(path).flush();
  Schema s;
  s.format = FileFormat::classic;
  s.dimensions = {{"t", 0, true}, {"x", 3, false}};
  const auto add = [&](const std::string& name, const std::vector<std::uint32_t>& dimensions) {
    Variable v;
    v.name = name;
    v.type = DataType::int8;
    v.dimensions = dimensions;
    s.variables.push_back(v);
  };
  add("fixed", {1});
  add("fixed_too", {1});
  add("records", {0, 1});
  add("records_too", {0, 1});
  s.data_align = 64;
  s.data_pad = 10;
  s.record_align = 1;
  const Bytes values = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::vector<OwnedBlock> blocks;
  for (std::uint32_t v = 0; v < 4; ++v) blocks.emplace_back(v, v < 2 ? Box{{0}, {3}} : Box{{1, 0}, {1, 3}}, values);
  auto sink = testing::fed(open_cdf5(system_files(), path, {}, false));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(s));
  for (const auto& b : blocks) ASSERT_OK((*sink)->write(b.block));
  ASSERT_OK((*sink)->commit());

  add("records_added", {0, 1});
  s.data_pad = 0;
  s.record_align = 4;
  ASSERT_OK((*sink)->declare(s));
  ASSERT_OK((*sink)->close());
  const auto contents = read_by_netcdf(path);
  const Bytes nothing(3, std::byte{0x81});  // NC_FILL_BYTE
  auto two_records = nothing;
  two_records.insert(two_records.end(), values.begin(), values.end());
  for (std::size_t v = 0; v < 4; ++v) EXPECT_EQ(contents.values[v], v < 2 ? values : two_records) << v;
  EXPECT_EQ(contents.values[4], Bytes(6, std::byte{0x81}));
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Sinks, EverySink,
                         ::testing::Values(netcdf4(), netcdf4_helped(), netcdf4_for_parallel_hdf5(),
                                           netcdf4_after_others(), cdf5(), zarr(), bp5(), raw_directory()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace advectio
