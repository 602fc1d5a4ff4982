// The file's state when the process is killed within any single operation on the file system, and the parts that see to
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netcdf.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "platform/faulty_files.h"
#include "sinks/after_others.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf4/crash_safe_file.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"
#include "sinks/zarr/zarr_sink.h"
#include "sinks/zarr_reader.h"

namespace advectio {
namespace {

using testing::Contents;
using testing::difference;
using testing::model_of;
using testing::OwnedBlock;
using testing::Random;
using testing::read_by_netcdf;

/// A system that lives for `left` more changes and does half of the one after (of a write; any other it does not
/// begin).
struct Life {
  std::uint64_t left = UINT64_MAX;
  std::uint64_t changes = 0;
  std::uint64_t syncs_left = UINT64_MAX;  ///< it ends at the one after
  bool over = false;
  [[nodiscard]] bool change() {
    ++changes;
    if (over) return false;
    if (left == 0) {
      over = true;
      return false;
    }
    --left;
    return true;
  }
};
Error dead() {
  return Error{Code::io, "the process is dead", EIO};
}

class MortalFile final : public File {
 public:
  MortalFile(std::unique_ptr<File> real, std::shared_ptr<Life> life) : real_(std::move(real)), life_(std::move(life)) {}
  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    const bool was_over = life_->over;
    if (life_->change()) return real_->write(offset, data);
    if (!was_over) (void)real_->write(offset, data.first(data.size() / 2));
    return dead();
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> data) override { return real_->read(offset, data); }
  Result<std::uint64_t> size() override { return real_->size(); }
  Result<void> resize(std::uint64_t bytes) override {
    return life_->change() ? real_->resize(bytes) : Result<void>(dead());
  }
  Result<void> reserve(std::uint64_t bytes) override { return real_->reserve(bytes); }
  Result<void> sync() override {
    if (life_->syncs_left == 0) life_->over = true;
    if (life_->over) return dead();
    --life_->syncs_left;
    return {};
  }
  [[nodiscard]] int descriptor() const noexcept override { return real_->descriptor(); }
  [[nodiscard]] const std::string& path() const noexcept override { return real_->path(); }

 private:
  std::unique_ptr<File> real_;
  std::shared_ptr<Life> life_;
};

class MortalFiles final : public Files {
 public:
  explicit MortalFiles(std::shared_ptr<Life> life) : life_(std::move(life)) {}
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions) override {
    if (mode != OpenMode::read && mode != OpenMode::read_write && !life_->change()) return dead();
    auto file = real_.open(path, mode, permissions);
    if (!file) return file;
    return std::unique_ptr<File>(std::make_unique<MortalFile>(std::move(file).value(), life_));
  }
  Result<Mapping> map(File& file, std::size_t bytes, bool writable) override {
    return real_.map(file, bytes, writable);
  }
  Result<void> make_directory(const std::string& path, unsigned p) override { return real_.make_directory(path, p); }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return life_->change() ? real_.rename(from, to) : Result<void>(dead());
  }
  Result<void> link(const std::string& from, const std::string& to) override { return real_.link(from, to); }
  Result<void> remove(const std::string& path) override {
    return life_->change() ? real_.remove(path) : Result<void>(dead());
  }
  bool exists(const std::string& path) override { return real_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& directory) override { return real_.list(directory); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return real_.free_bytes(path); }

 private:
  Files& real_ = system_files();
  std::shared_ptr<Life> life_;
};

class Crash : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-crash-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/out.nc";
    redo_ = default_redo_path(path_);
    anew();
  }
  void TearDown() override {
    if (std::getenv("ADVECTIO_KEEP") == nullptr) std::filesystem::remove_all(directory_);
  }
  void anew() const {
    std::filesystem::remove(path_);
    std::filesystem::remove(redo_);
    std::ofstream(path_).flush();
  }

  std::string directory_, path_, redo_;
  Executor executor_{0};
};

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)

TEST_F(Crash, LeavesACommitWhereverItCuts) {
  testing::Ability can;
  can.formats = {FileFormat::netcdf4};
  can.types = {DataType::int16, DataType::float32, DataType::float64, DataType::text};
  can.pipelines = {{}, {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}}};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Random random(seed);
    const auto schema = testing::random_schema(random, can);
    Netcdf4Options options;
    options.for_parallel_hdf5 = seed % 2 == 0;
    if (seed > 2) options.skeletons = std::make_shared<Skeletons>();
    std::vector<std::vector<OwnedBlock>> frames;
    for (std::uint64_t f = 0; f < 3; ++f) frames.push_back(testing::random_frame(random, schema, f));
    std::vector<OwnedBlock> all;
    std::vector<std::vector<std::vector<bool>>> written;
    for (const auto& f : frames) {
      all.insert(all.end(), f.begin(), f.end());
      written.push_back(model_of(schema, all).written);
    }
    // Frame by frame, noting what a reader sees after each commit; returns the number of commits that returned ok.
    const auto run = [&](Files& files, std::vector<Contents>* seen) {
      auto sink = testing::fed(options.skeletons ? testing::open_after_others(files, path_, options, executor_, false)
                                                 : open_netcdf4(files, path_, options, executor_, false));
      std::size_t done = 0;
      if (!sink) return done;
      if (!(*sink)->declare(schema)) return done;
      for (const auto& frame : frames) {
        for (const auto& b : frame)
          if (!(*sink)->write(b.block)) return done;
        if (!(*sink)->commit()) return done;
        if (seen != nullptr) seen->push_back(read_by_netcdf(path_));
        // Its later commits have to be careful of this one.
        if (!(*sink)->make_durable()()) return done;
        ++done;
      }
      (void)(*sink)->close();
      return done;
    };
    auto life = std::make_shared<Life>();
    MortalFiles counted(life);
    std::vector<Contents> seen;
    anew();
    ASSERT_EQ(run(counted, &seen), 3U);
    const auto changes = life->changes;

    std::size_t applied = 0;
    for (std::uint64_t cut = 0; cut < changes; cut += 1 + changes / 150) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", cut at change " + std::to_string(cut) + " of " +
                   std::to_string(changes));
      anew();
      auto mortal = std::make_shared<Life>();
      mortal->left = cut;
      MortalFiles files(mortal);
      const auto done = run(files, nullptr);

      const bool redo = std::filesystem::exists(redo_);
      if (!redo && done > 0) {
        const auto now = read_by_netcdf(path_);
        ASSERT_TRUE(difference(seen[done - 1], now, written[done - 1]).empty() ||
                    (done < 3 && difference(seen[done], now, written[done]).empty()));
      }
      if (done == 0 && !redo && std::filesystem::file_size(path_) > 0) {
        // What was never committed is no file to anybody; or the first commit was complete but for its return.
        std::array<char, 8> begin{};
        std::ifstream(path_).read(begin.data(), begin.size());
        if (begin != std::array<char, 8>{}) {
          ASSERT_EQ(difference(seen[0], read_by_netcdf(path_), written[0]), "");
        }
      }

      {
        auto sink = testing::fed(open_netcdf4(system_files(), path_, options, executor_, true));
        ASSERT_OK(sink);
        (*sink)->abandon();
      }
      ASSERT_FALSE(std::filesystem::exists(redo_));
      std::size_t state = done;
      if (std::filesystem::file_size(path_) > 0) {
        const auto now = read_by_netcdf(path_);
        const bool last = done > 0 && difference(seen[done - 1], now, written[done - 1]).empty();
        const bool next = done < 3 && difference(seen[done], now, written[done]).empty();
        ASSERT_TRUE(last || next);
        if (next && !last) {
          state = done + 1;
          ++applied;
        }
      } else {
        ASSERT_EQ(done, 0U);
      }
      (void)state;

      auto sink = testing::fed(open_netcdf4(system_files(), path_, options, executor_, true));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(schema));
      for (auto f = done; f < frames.size(); ++f) {
        for (const auto& b : frames[f]) ASSERT_OK((*sink)->write(b.block));
        ASSERT_OK((*sink)->commit());
      }
      ASSERT_OK((*sink)->close());
      ASSERT_EQ(difference(seen[2], read_by_netcdf(path_), written[2]), "");
    }
    // The cuts have also met commits that were complete in the redo file only.
    EXPECT_GT(applied, 0U);
  }
}

Bytes random_bytes(Random& random, std::size_t n) {
  Bytes out(n);
  for (auto& b : out) b = static_cast<std::byte>(random());
  return out;
}

// Against a plain array of bytes, with more pages changed than are kept in memory.
// The names of variables are exchanged before the last frame, which moves the arrays' directories.
TEST_F(Crash, LeavesACommitOfAZarrStoreWhereverItCuts) {
  testing::Ability can;
  can.formats = {FileFormat::zarr};
  can.types = {DataType::int16, DataType::float32, DataType::float64, DataType::text};
  can.pipelines = {{}, {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}}, {{filter_id::zstd, {1}}}};
  // A commit is many small files: in memory, where there is such a directory.
  std::string pattern = std::filesystem::exists("/dev/shm") ? "/dev/shm/advectio-crash-XXXXXX" : directory_ + "/XXXXXX";
  const std::string place = ::mkdtemp(pattern.data()), store = place + "/out.zarr";
  const auto redo_there = [&] { return std::filesystem::exists(store + "/.advectio-redo"); };
  const auto leftovers = [&] {
    std::string found;
    for (const auto& e : std::filesystem::recursive_directory_iterator(store)) {
      const auto name = e.path().filename().string();
      if (name.ends_with(".part") || name.starts_with(".advectio")) found += e.path().string() + "\n";
    }
    return found;
  };
  std::size_t applied = 0, with_redo = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Random random(seed);
    ZarrOptions options, resumed;
    options.owner = resumed.owner = "this dataset";
    options.ordered = seed > 2;
    std::vector<Schema> schemas(2, testing::random_schema(random, can));
    while (schemas[0].variables.size() < 2) schemas[0] = schemas[1] = testing::random_schema(random, can);
    schemas.push_back(schemas[0]);
    std::swap(schemas[2].variables[0].name, schemas[2].variables[1].name);
    std::vector<std::vector<OwnedBlock>> frames;
    std::vector<OwnedBlock> all;
    std::vector<std::vector<std::vector<bool>>> written;
    for (std::uint64_t f = 0; f < 3; ++f) {
      frames.push_back(testing::random_frame(random, schemas[0], f));
      all.insert(all.end(), frames[f].begin(), frames[f].end());
      written.push_back(model_of(schemas[0], all).written);
    }
    const auto run = [&](Files& files, std::vector<Contents>* seen) {
      std::size_t done = 0;
      auto sink = testing::fed(open_zarr(files, store, options, executor_, false));
      if (!sink) return done;
      for (std::size_t f = 0; f < frames.size(); ++f) {
        if (!(*sink)->declare(schemas[f])) return done;
        for (const auto& b : frames[f])
          if (!(*sink)->write(b.block)) return done;
        if (!(*sink)->commit()) return done;
        if (seen != nullptr) seen->push_back(testing::read_zarr(store));
        // Its later commits have to be careful of this one.
        if (seed % 2 == 0 && !(*sink)->make_durable()()) return done;
        ++done;
      }
      (void)(*sink)->close();
      return done;
    };
    auto life = std::make_shared<Life>();
    MortalFiles counted(life);
    std::vector<Contents> seen;
    std::filesystem::remove_all(store);
    ASSERT_EQ(run(counted, &seen), 3U);
    ASSERT_EQ(leftovers(), "");
    const auto changes = life->changes;

    for (std::uint64_t cut = 0; cut < changes; cut += 1 + changes / 80) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", cut at change " + std::to_string(cut) + " of " +
                   std::to_string(changes));
      std::filesystem::remove_all(store);
      auto mortal = std::make_shared<Life>();
      mortal->left = cut;
      MortalFiles files(mortal);
      const auto done = run(files, nullptr);
      const auto is_commit = [&](std::size_t n) {
        return n > 0 && n <= 3 && difference(seen[n - 1], testing::read_zarr(store), written[n - 1]).empty();
      };
      if (redo_there()) ++with_redo;
      if (!redo_there() && done > 0) {
        ASSERT_TRUE(is_commit(done) || is_commit(done + 1));
      }
      {
        auto sink = testing::fed(open_zarr(system_files(), store, resumed, executor_, true));
        ASSERT_OK(sink);
        (*sink)->abandon();
      }
      if (std::filesystem::exists(store + "/zarr.json")) {
        ASSERT_EQ(leftovers(), "");
        ASSERT_TRUE(is_commit(done) || is_commit(done + 1));
        if (!is_commit(done)) ++applied;
      } else {
        ASSERT_EQ(done, 0U);
      }
      auto sink = testing::fed(open_zarr(system_files(), store, resumed, executor_, true));
      ASSERT_OK(sink);
      for (auto f = done; f < frames.size(); ++f) {
        ASSERT_OK((*sink)->declare(schemas[f]));
        for (const auto& b : frames[f]) ASSERT_OK((*sink)->write(b.block));
        ASSERT_OK((*sink)->commit());
      }
      ASSERT_OK((*sink)->close());
      ASSERT_EQ(difference(seen[2], testing::read_zarr(store), written[2]), "");
      ASSERT_EQ(leftovers(), "");
    }
  }
  // The cuts have also met commits that were decided and not done.
  EXPECT_GT(with_redo, 0U);
  EXPECT_GT(applied, 0U);
  std::filesystem::remove_all(place);
}

// A directory keeps its name from run to run, and a server may die before it has opened the sink.
TEST_F(Crash, AZarrStoreOfAnotherDatasetIsBegunAnew) {
  const auto store = directory_ + "/out.zarr";
  Schema schema;
  schema.format = FileFormat::zarr;
  schema.dimensions = {{"t", 0, true}};
  Variable v;
  v.name = "a";
  v.type = DataType::int32;
  v.dimensions = {0};
  schema.variables = {v};
  const auto put = [&](const std::string& owner, std::uint64_t record, std::int32_t value, bool closes) {
    ZarrOptions options;
    options.owner = owner;
    auto sink = testing::fed(open_zarr(system_files(), store, options, executor_, true));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    Bytes bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    const OwnedBlock block(0, Box{{record}, {1}}, bytes);
    ASSERT_OK((*sink)->write(block.block));
    ASSERT_OK((*sink)->commit());
    if (closes) ASSERT_OK((*sink)->close());
  };
  const auto values = [&] {
    const auto found = testing::read_zarr(store);
    std::vector<std::int32_t> out(found.values[0].size() / sizeof(std::int32_t));
    std::memcpy(out.data(), found.values[0].data(), found.values[0].size());
    return out;
  };
  for (const bool closes : {false, true}) {
    SCOPED_TRACE(closes ? "closed" : "left open");
    std::filesystem::remove_all(store);
    ASSERT_NO_FATAL_FAILURE(put("f/first", 0, 1, closes));
    ASSERT_NO_FATAL_FAILURE(put("f/first", 1, 2, closes));
    EXPECT_THAT(values(), ::testing::ElementsAre(1, 2));
    ASSERT_NO_FATAL_FAILURE(put("f/second", 0, 3, closes));
    EXPECT_THAT(values(), ::testing::ElementsAre(3));
    ZarrOptions of_another_file;
    of_another_file.owner = "g/first";
    for (const bool resume : {false, true}) {
      const auto refused = open_zarr(system_files(), store, of_another_file, executor_, resume);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::exists);
    }
    EXPECT_THAT(values(), ::testing::ElementsAre(3));
  }
}

TEST_F(Crash, ADirectoryThatIsNoZarrStoreIsNotEmptied) {
  const auto store = directory_ + "/mine.zarr";
  std::filesystem::create_directories(store);
  std::ofstream(store + "/notes.txt") << "mine";
  const auto sink = open_zarr(system_files(), store, {}, executor_, false);
  ASSERT_FALSE(sink.ok());
  EXPECT_EQ(sink.error().code, Code::exists);
  EXPECT_THAT(sink.error().message, ::testing::HasSubstr(store));
  EXPECT_TRUE(std::filesystem::exists(store + "/notes.txt"));
}

TEST_F(Crash, FileReadsBackWhatWasWrittenAndCommitsIt) {
  Random random(11);
  auto opened = CrashSafeFile::open(system_files(), path_, redo_, false);
  ASSERT_OK(opened);
  auto& file = **opened;
  Bytes model(24 << 20);
  ASSERT_FALSE(file.has_commit());
  const auto write = [&](std::uint64_t at, std::size_t n) {
    const auto data = random_bytes(random, n);
    file.write(at, data, CrashSafeFile::Kind::raw);
    std::copy(data.begin(), data.end(), model.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto expect_equal = [&](std::uint64_t at, std::size_t n) {
    Bytes got(n);
    ASSERT_OK(file.read(at, got));
    ASSERT_TRUE(std::equal(got.begin(), got.end(), model.begin() + static_cast<std::ptrdiff_t>(at))) << at << " " << n;
  };
  for (int i = 0; i < 200; ++i) write(random() % (2 << 20), 1 + random() % 9000);
  for (int i = 0; i < 50; ++i) expect_equal(random() % (2 << 20), 1 + random() % 20000);
  write(0, 8);
  EXPECT_EQ(read_file(system_files(), path_)->at(0), std::byte{0});
  ASSERT_OK(file.commit(20 << 20));
  ASSERT_TRUE(file.has_commit());
  for (int round = 0; round < 2; ++round) {
    const auto before = *read_file(system_files(), path_);
    for (int i = 0; i < 6000; ++i) write(random() % (20 << 20), 1 + random() % 6000);
    for (int i = 0; i < 200; ++i) expect_equal(random() % (20 << 20), 1 + random() % 20000);
    // Nothing of it is in the committed part yet.
    const auto still = *read_file(system_files(), path_);
    ASSERT_TRUE(std::equal(before.begin(), before.end(), still.begin()));
    ASSERT_OK(file.commit((20 << 20) + round * 1000));
    const auto now = *read_file(system_files(), path_);
    ASSERT_EQ(now.size(), (20U << 20) + static_cast<unsigned>(round) * 1000);
    ASSERT_TRUE(std::equal(now.begin(), now.end(), model.begin()));
    ASSERT_FALSE(std::filesystem::exists(redo_));
  }
  // Abandoned: as after the last commit.
  const auto before = *read_file(system_files(), path_);
  for (int i = 0; i < 6000; ++i) write(random() % (22 << 20), 1 + random() % 6000);
  file.abandon();
  EXPECT_EQ(*read_file(system_files(), path_), before);
  EXPECT_FALSE(std::filesystem::exists(redo_));
}

TEST_F(Crash, ARedoFileCutOrChangedAnywhereIsNotApplied) {
  Random random(12);
  Bytes redo, before, after;
  {
    auto life = std::make_shared<Life>();
    MortalFiles files(life);
    auto file = std::move(CrashSafeFile::open(files, path_, redo_, false)).value();
    file->write(0, random_bytes(random, 20000), CrashSafeFile::Kind::raw);
    ASSERT_OK(file->commit(20000));
    before = *read_file(system_files(), path_);
    const auto change = random_bytes(random, 3000);
    file->write(9000, change, CrashSafeFile::Kind::raw);
    after = before;
    std::copy(change.begin(), change.end(), after.begin() + 9000);
    // Open the redo file, page, table, trailer; not a byte of the file itself.
    life->left = 4;
    ASSERT_FALSE(file->commit(20000).ok());
    EXPECT_EQ(file->error()->sys, EIO);
    redo = *read_file(system_files(), redo_);
    before = *read_file(system_files(), path_);
  }
  const auto recovered = [&](const Bytes& with) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(before.data()), static_cast<std::streamsize>(before.size()));
    std::ofstream(redo_, std::ios::binary)
        .write(reinterpret_cast<const char*>(with.data()), static_cast<std::streamsize>(with.size()));
    EXPECT_TRUE(CrashSafeFile::open(system_files(), path_, redo_, true).ok());
    EXPECT_FALSE(std::filesystem::exists(redo_));
    return *read_file(system_files(), path_);
  };
  ASSERT_EQ(recovered(redo), after);
  for (std::size_t n = 0; n < redo.size(); n += 1 + redo.size() / 100)
    ASSERT_EQ(recovered(Bytes(redo.begin(), redo.begin() + static_cast<std::ptrdiff_t>(n))), before) << "cut to " << n;
  for (std::size_t i = 0; i < redo.size(); i += 1 + redo.size() / 200) {
    auto changed = redo;
    changed[i] ^= std::byte{1};
    ASSERT_EQ(recovered(changed), before) << "bit at " << i;
  }
  for (std::size_t i = redo.size() - 40; i < redo.size(); ++i) {
    auto changed = redo;
    changed[i] ^= std::byte{0x80};
    ASSERT_EQ(recovered(changed), before) << "bit at " << i;
  }
}

// What a redo file speaks of must be there as long as that can be applied: one that the disk has refused to keep, and
// then to remove.
TEST_F(Crash, ARedoFileThatIsRefusedAndStaysIsAppliedToAllOrNothing) {
  Random random(13);
  const auto first = random_bytes(random, 20000), change = random_bytes(random, 30000);
  const auto commit_twice = [&](Files& files, const std::function<void()>& refuse) {
    anew();
    auto file = std::move(CrashSafeFile::open(files, path_, redo_, false)).value();
    file->write(0, first, CrashSafeFile::Kind::raw);
    ASSERT_OK(file->commit(20000));
    ASSERT_OK(file->durability()->make_durable());
    // In the middle of what is committed, and beyond its end.
    file->write(9000, change, CrashSafeFile::Kind::raw);
    refuse();
    ASSERT_FALSE(file->commit(39000).ok());
    file->abandon();
    EXPECT_TRUE(std::filesystem::exists(redo_));
  };
  const auto reopened = [&] {
    EXPECT_TRUE(CrashSafeFile::open(system_files(), path_, redo_, true).ok());
    EXPECT_FALSE(std::filesystem::exists(redo_));
    return *read_file(system_files(), path_);
  };
  auto faults = std::make_shared<Faults>();
  FaultyFiles faulty(system_files(), faults);
  commit_twice(faulty, [&] {
    faults->only = "redo";
    faults->syncs_until = 0;
    faults->keeps_names = true;
  });
  EXPECT_TRUE(reopened() == first) << "it can be emptied";

  auto life = std::make_shared<Life>();
  MortalFiles mortal(life);
  commit_twice(mortal, [&] { life->syncs_left = 1; });  // of the file
  auto both = first;
  both.resize(39000);
  std::copy(change.begin(), change.end(), both.begin() + 9000);
  EXPECT_TRUE(reopened() == both) << "nothing can be changed any more";
}

// A changed header moves all data in these formats. netCDF-C's own writes cannot be cut here; all others are.
TEST_F(Crash, AChangedClassicHeaderIsThereOrNotWhereverItCuts) {
  Random random(21);
  Schema before;
  before.format = FileFormat::offset64;
  before.dimensions = {{"t", 0, true}, {"x", 1'500'000, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  before.variables = {v};
  auto after = before;
  v.name = "b";
  v.type = DataType::int32;
  v.dimensions = {1};
  after.variables.push_back(v);
  after.attributes.push_back({"title", DataType::text, 3, Bytes(3, std::byte{'x'}), {}});
  const OwnedBlock a0(0, Box{{0, 0}, {1, 1'500'000}}, testing::random_values(random, DataType::float32, 1'500'000)),
      a1(0, Box{{1, 0}, {1, 1'500'000}}, testing::random_values(random, DataType::float32, 1'500'000)),
      b(1, Box{{0}, {1'500'000}}, testing::random_values(random, DataType::int32, 1'500'000));
  const auto a = [&] {
    auto both = a0.data;
    both.insert(both.end(), a1.data.begin(), a1.data.end());
    return both;
  }();
  std::uint64_t changes = 1;
  std::size_t old = 0, changed = 0;
  for (std::uint64_t cut = 0; cut <= changes; ++cut) {
    SCOPED_TRACE("cut at change " + std::to_string(cut));
    anew();
    auto life = std::make_shared<Life>();
    MortalFiles files(life);
    {
      auto sink = testing::fed(open_cdf5(files, path_, {}, false));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(before));
      ASSERT_OK((*sink)->write(a0.block));
      ASSERT_OK((*sink)->commit());
      life->left = cut;
      life->changes = 0;
      ASSERT_OK((*sink)->declare(after));
      const bool done = (*sink)->commit().ok();
      ASSERT_EQ(done, !life->over);
      if (done)
        changes = 0;
      else
        changes = std::max(changes, cut + 1);
    }
    auto sink = testing::fed(open_cdf5(system_files(), path_, {}, true));
    ASSERT_OK(sink);
    const auto now = read_by_netcdf(path_);
    ASSERT_EQ(now.values[0], a0.data);
    now.schema.variables.size() == 1 ? ++old : ++changed;
    EXPECT_EQ(now.schema.attributes.size(), now.schema.variables.size() - 1);
    ASSERT_OK((*sink)->declare(after));
    ASSERT_OK((*sink)->write(b.block));
    ASSERT_OK((*sink)->write(a1.block));
    ASSERT_OK((*sink)->close());
    const auto last = read_by_netcdf(path_);
    ASSERT_EQ(last.values[0], a);
    ASSERT_EQ(last.values[1], b.data);
    EXPECT_FALSE(std::filesystem::exists(redo_));
    EXPECT_FALSE(std::filesystem::exists(redo_ + ".part"));
  }
  EXPECT_GT(old, 2U);
  EXPECT_GT(changed, 2U);
}

/// There is room for a longer header: it changes, and the data stay where they are.
TEST_F(Crash, AClassicHeaderThatLeavesTheDataInTheirPlacesIsThereOrNotWhereverItCuts) {
  constexpr std::uint64_t width = 1'500'000;
  Random random(22);
  Schema before;
  before.format = FileFormat::offset64;
  before.dimensions = {{"t", 0, true}, {"x", width, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  before.variables = {v};
  before.record_align = 4096;
  auto after = before;
  after.attributes.push_back({"title", DataType::text, 3, Bytes(3, std::byte{'x'}), {}});
  const OwnedBlock a0(0, Box{{0, 0}, {1, width}}, testing::random_values(random, DataType::float32, width));
  std::uint64_t changes = 1;
  std::size_t old = 0, changed = 0;
  for (std::uint64_t cut = 0; cut <= changes; ++cut) {
    SCOPED_TRACE("cut at change " + std::to_string(cut));
    anew();
    auto life = std::make_shared<Life>();
    MortalFiles files(life);
    {
      auto sink = testing::fed(open_cdf5(files, path_, {}, false));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(before));
      ASSERT_OK((*sink)->write(a0.block));
      ASSERT_OK((*sink)->commit());
      const auto bytes = (*sink)->counters().bytes_out;
      life->left = cut;
      ASSERT_OK((*sink)->declare(after));
      const bool done = (*sink)->commit().ok();
      ASSERT_EQ(done, !life->over);
      EXPECT_LT((*sink)->counters().bytes_out - bytes, 20'000U) << "no data were moved";
      changes = done ? 0 : std::max(changes, cut + 1);
    }
    auto sink = testing::fed(open_cdf5(system_files(), path_, {}, true));
    ASSERT_OK(sink);
    const auto now = read_by_netcdf(path_);
    ASSERT_EQ(now.values[0], a0.data);
    now.schema.attributes.empty() ? ++old : ++changed;
    ASSERT_OK((*sink)->declare(after));
    ASSERT_OK((*sink)->close());
    const auto last = read_by_netcdf(path_);
    ASSERT_EQ(last.values[0], a0.data);
    ASSERT_EQ(last.schema.attributes.size(), 1U);
    for (const auto* name : {"", ".part", ".header", ".records"}) EXPECT_FALSE(std::filesystem::exists(redo_ + name));
  }
  EXPECT_GT(old, 2U);
  EXPECT_GT(changed, 2U);
}

/// One variable after the other, each defined behind the data of the one before.
TEST_F(Crash, ManyChangesOfAClassicHeaderBetweenTwoCommitsMoveTheDataOnce) {
  constexpr std::uint64_t width = 100'000, variables = 12;
  Random random(23);
  Schema schema;
  schema.format = FileFormat::cdf5;
  schema.dimensions = {{"t", 0, true}, {"x", width, false}};
  auto sink = testing::fed(open_cdf5(system_files(), path_, {}, false));
  ASSERT_OK(sink);
  std::vector<OwnedBlock> blocks;
  blocks.reserve(variables);
  for (std::uint32_t k = 0; k < variables; ++k) {
    Variable v;
    v.name = "v" + std::to_string(k);
    v.type = DataType::float32;
    if (k % 3 == 0) v.dimensions.push_back(0);
    v.dimensions.push_back(1);
    schema.variables.push_back(v);
    ASSERT_OK((*sink)->declare(schema));
    auto box = k % 3 == 0 ? Box{{k, 0}, {1, width}} : Box{{0}, {width}};
    blocks.emplace_back(k, std::move(box), testing::random_values(random, DataType::float32, width));
    ASSERT_OK((*sink)->write(blocks.back().block));
  }
  ASSERT_OK((*sink)->commit());
  const auto size = std::filesystem::file_size(path_);
  EXPECT_LT((*sink)->counters().bytes_out, 2 * size);
  ASSERT_OK((*sink)->close());
  const auto contents = read_by_netcdf(path_);
  for (std::uint32_t k = 0; k < variables; ++k) {
    const auto& got = contents.values[k];
    const auto* values = got.data() + (k % 3 == 0 ? k * width * sizeof(float) : 0);
    EXPECT_EQ(std::memcmp(values, blocks[k].data.data(), width * sizeof(float)), 0) << k;
  }
  const auto* first = reinterpret_cast<const float*>(contents.values[0].data()) + width;
  EXPECT_TRUE(std::all_of(first, first + width, [](float x) { return x == NC_FILL_FLOAT; })) << "nobody has put it";
}

/// A last look at a file, in which nothing is to be changed.
TEST_F(Crash, AClassicFileThatIsAtItsLastCommitIsLeftWithoutAWrite) {
  Schema schema;
  schema.format = FileFormat::cdf5;
  schema.dimensions = {{"time", 0, true}, {"x", 10, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  schema.variables = {v};
  std::mt19937_64 random(7);
  const OwnedBlock a(0, Box{{0, 0}, {1, 10}}, testing::random_values(random, DataType::float32, 10));
  const auto records = redo_ + ".records", kept = directory_ + "/kept";
  {
    auto sink = testing::fed(open_cdf5(system_files(), path_, {}, false));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    ASSERT_OK((*sink)->write(a.block));
    ASSERT_OK((*sink)->commit());
    std::filesystem::copy(records, kept);
  }
  std::filesystem::copy(kept, records);  // as a death would have left it
  auto faults = std::make_shared<Faults>();
  faults->writes_until = 0;
  FaultyFiles files(system_files(), faults);
  auto sink = testing::fed(open_cdf5(files, path_, {}, true));
  ASSERT_OK(sink);
  (*sink)->abandon();
  EXPECT_EQ(faults->writes, 0U);
  EXPECT_FALSE(std::filesystem::exists(records));
  EXPECT_EQ(read_by_netcdf(path_).values[0], a.data);
}

/// Beside a classic file is the number of its records, not a redo file.
TEST_F(Crash, AClassicFileIsNotClosedAsLongAsTheNumberOfItsRecordsStaysBesideIt) {
  Schema schema;
  schema.format = FileFormat::cdf5;
  schema.dimensions = {{"time", 0, true}, {"x", 10, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  schema.variables = {v};
  std::mt19937_64 random(7);
  const OwnedBlock a(0, Box{{0, 0}, {1, 10}}, testing::random_values(random, DataType::float32, 10));
  const auto records = redo_ + ".records";
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  {
    auto sink = testing::fed(open_cdf5(files, path_, {}, false));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    ASSERT_OK((*sink)->write(a.block));
    ASSERT_OK((*sink)->commit());
    faults->keeps_names = true;
    EXPECT_FALSE((*sink)->close().ok());
  }
  EXPECT_TRUE(std::filesystem::exists(records));
  faults->keeps_names = false;
  auto sink = testing::fed(open_cdf5(files, path_, {}, true));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(schema));
  ASSERT_OK((*sink)->close());
  EXPECT_FALSE(std::filesystem::exists(records));
  EXPECT_EQ(read_by_netcdf(path_).values[0], a.data);
}

/// netCDF-C counts a record that it has begun, and the disk refuses to count it back. Who writes it again must fill it.
TEST_F(Crash, ARecordThatWasCountedAndNotWrittenIsFilledWhenItIsWrittenAgain) {
  constexpr std::uint64_t width = 300'000;  // of more than 1 MiB, which netCDF-C is given at once
  Schema schema;
  schema.format = FileFormat::cdf5;
  schema.dimensions = {{"time", 0, true}, {"x", width, false}};
  for (const auto* name : {"a", "b"}) {
    Variable v;
    v.name = name;
    v.type = DataType::float32;
    v.dimensions = {0, 1};
    schema.variables.push_back(v);
  }
  std::mt19937_64 random(7);
  const auto record = [&](std::uint32_t variable, std::uint64_t r) {
    return OwnedBlock(variable, Box{{r, 0}, {1, width}}, testing::random_values(random, DataType::float32, width));
  };
  const auto a0 = record(0, 0), b0 = record(1, 0), a1 = record(0, 1);
  {
    auto sink = testing::fed(open_cdf5(system_files(), path_, {}, false));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    ASSERT_OK((*sink)->write(a0.block));
    ASSERT_OK((*sink)->write(b0.block));
    ASSERT_OK((*sink)->commit());
  }
  {
    auto faults = std::make_shared<Faults>();
    FaultyFiles files(system_files(), faults);
    auto sink = testing::fed(open_cdf5(files, path_, {}, true));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    ASSERT_OK((*sink)->write(a1.block));
    faults->writes_until = 0;
    (*sink)->abandon();
  }
  auto sink = testing::fed(open_cdf5(system_files(), path_, {}, true));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(schema));
  ASSERT_OK((*sink)->write(a1.block));
  ASSERT_OK((*sink)->close());
  const auto contents = read_by_netcdf(path_);
  ASSERT_EQ(contents.values[1].size(), 2 * width * sizeof(float));
  const auto* b = reinterpret_cast<const float*>(contents.values[1].data());
  for (std::uint64_t i = width; i < 2 * width; ++i) ASSERT_EQ(b[i], NC_FILL_FLOAT) << i;
  EXPECT_FALSE(std::filesystem::exists(redo_ + ".records"));
}

/// The header counted two records and could not be written back, and the second one was cut off: `b` read as zeros.
TEST_F(Crash, AClassicCommitWhoseWritesFailFromAnyOneOnIsFilledWhenItIsMadeAgain) {
  constexpr std::uint64_t width = 30;
  Schema schema;
  schema.format = FileFormat::cdf5;
  schema.dimensions = {{"time", 0, true}, {"x", width, false}};
  for (const auto* name : {"a", "b"}) {
    Variable v;
    v.name = name;
    v.type = DataType::float32;
    v.dimensions = {0, 1};
    schema.variables.push_back(v);
  }
  std::mt19937_64 random(7);
  const OwnedBlock first(0, Box{{0, 0}, {1, width}}, testing::random_values(random, DataType::float32, width));
  const OwnedBlock second(0, Box{{1, 0}, {1, width}}, testing::random_values(random, DataType::float32, width));
  bool all_written = false;
  for (std::uint64_t written = 0; !all_written; ++written) {
    SCOPED_TRACE(written);
    anew();
    auto faults = std::make_shared<Faults>();
    FaultyFiles files(system_files(), faults);
    {
      auto sink = testing::fed(open_cdf5(files, path_, {}, false));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(schema));
      ASSERT_OK((*sink)->write(first.block));
      ASSERT_OK((*sink)->commit());
      ASSERT_OK((*sink)->write(second.block));
      faults->writes_until = written;
      all_written = (*sink)->commit().ok();
      (*sink)->abandon();
    }
    auto sink = testing::fed(open_cdf5(system_files(), path_, {}, true));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(schema));
    ASSERT_OK((*sink)->write(second.block));
    ASSERT_OK((*sink)->close());
    const auto contents = read_by_netcdf(path_);
    ASSERT_EQ(contents.values[1].size(), 2 * width * sizeof(float));
    const auto* b = reinterpret_cast<const float*>(contents.values[1].data());
    for (std::uint64_t i = 0; i < 2 * width; ++i) ASSERT_EQ(b[i], NC_FILL_FLOAT) << i;
  }
}

}  // namespace
}  // namespace advectio
