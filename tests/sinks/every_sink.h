// What every sink must do, as far as its abilities go: the fixture of the suite `EverySink`. Its tests stand in
// test_conformance*.cpp, the sinks that it runs on in sink_kinds.cpp.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "platform/files.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"
#include "sinks/sink.h"

namespace advectio::testing {

/// A sink as the suite knows it: what only tests need to know of it.
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

void PrintTo(const Kind& kind, std::ostream* to);

/// Chunks that somebody else has made for the kind `netcdf4_helped`.
unsigned chunks_made_by_others();

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

  std::unique_ptr<FedSink> open(bool resume = false, Files& files = system_files()) {
    auto sink = fed(GetParam().open(files, path_, *executor_, resume));
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

  static Result<void> put(FedSink& sink, const std::vector<OwnedBlock>& blocks) {
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
    s.schema = random_schema(random, GetParam().ability);
    for (std::uint64_t f = 0; f < frames; ++f) s.frames.push_back(random_frame(random, s.schema, f));
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

}  // namespace advectio::testing

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)
