// BP files that are cut, damaged, still written, or not BP files: an error that names the file, and
// never other values. Files of other writers: tests/shows/test_convert_bp5.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "journal/scratch.h"
#include "platform/files.h"
#include "sinks/adios2/bp5_file_sink.h"
#include "sinks/bp5_reader.h"
#include "sinks/fed_sink.h"
#include "sources/adios2/bp5_source.h"

namespace advectio {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t rows = 30, columns = 100;
constexpr std::uint32_t records = 3;

Schema schema() {
  Schema s;
  s.format = FileFormat::bp5;
  s.dimensions = {{"time", 0, true}, {"y", rows, false}, {"x", columns, false}};
  for (const auto* name : {"T", "H"}) {
    Variable v;
    v.name = name;
    v.type = DataType::float32;
    v.dimensions = {0, 1, 2};
    if (v.name == "H") v.dimensions.erase(v.dimensions.begin());
    s.variables.push_back(std::move(v));
  }
  return s;
}

std::vector<float> values_of(std::uint32_t variable, std::uint32_t record) {
  std::vector<float> out(rows * columns);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i + 10000 * (record + 10 * variable) + 1);
  return out;
}

class BpFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = testing::why_no_adios2(); !why.empty()) GTEST_SKIP() << why;
    write(path_);
  }

  static void write(const std::string& path) {
    ASSERT_TRUE(system_files().make_directory(path, 0777).ok());
    auto sink = testing::fed(open_bp5_file(system_files(), path, {}));
    ASSERT_TRUE(sink.ok()) << sink.error().message;
    ASSERT_TRUE((*sink)->declare(schema()).ok());
    const auto give = [&](std::uint32_t variable, std::uint32_t record, const Box& box) {
      const auto values = values_of(variable, record);
      const auto* const data = reinterpret_cast<const std::byte*>(values.data());
      ASSERT_TRUE((*sink)->write({variable, box, {}, data, values.size() * sizeof(float), nullptr}).ok());
      ASSERT_TRUE((*sink)->checkpoint().ok());
    };
    give(1, 0, {{0, 0}, {rows, columns}});
    for (std::uint32_t r = 0; r < records; ++r) give(0, r, {{r, 0, 0}, {1, rows, columns}});
    ASSERT_TRUE((*sink)->close().ok());
  }

  /// Empty: everything was read, and is what was written. Else the error.
  static std::string read(const std::string& path) {
    auto source = open_bp5_source(path);
    if (!source) return source.error().message;
    EXPECT_EQ((*source)->head()->lengths.at(0), records) << path;
    for (std::uint32_t variable = 0; variable < 2; ++variable)
      for (std::uint32_t r = 0; r < (variable == 0 ? records : 1); ++r) {
        std::vector<float> found(rows * columns);
        Box box{{r, 0, 0}, {1, rows, columns}};
        if (variable == 1) box = {{0, 0}, {rows, columns}};
        auto done = (*source)->read(variable, box, reinterpret_cast<std::byte*>(found.data()));
        if (!done) return done.error().message;
        EXPECT_EQ(found, values_of(variable, r)) << path;
      }
    return {};
  }

  std::string copy() {
    const auto to = scratch_.path() + "/copy" + std::to_string(copies_++) + ".bp";
    std::filesystem::copy(path_, to);
    return to;
  }

  Scratch scratch_;
  std::string path_ = scratch_.path() + "/file.bp";
  int copies_ = 0;
};

TEST_F(BpFiles, AreRead) {
  EXPECT_EQ(read(path_), "");
  EXPECT_TRUE(is_bp(path_));
  EXPECT_FALSE(is_bp(scratch_.path()));
}

TEST_F(BpFiles, ThatAreCutAnywhereAreRefusedWhenTheyAreOpened) {
  for (const bool ours : {true, false})
    for (const std::string name : {"md.idx", "md.0", "mmd.0", "data.0"}) {
      const auto size = std::filesystem::file_size(path_ + '/' + name);
      for (const auto n : {std::uintmax_t{0}, size / 3, size / 2, size - 8, size - 1}) {
        SCOPED_TRACE(name + " cut to " + std::to_string(n) + (ours ? "" : ", without advectio.json"));
        const auto path = copy();
        if (!ours) std::filesystem::remove(path + "/advectio.json");
        std::filesystem::resize_file(path + '/' + name, n);
        const auto source = open_bp5_source(path);
        ASSERT_FALSE(source.ok());
        EXPECT_EQ(source.error().code, Code::corrupt) << source.error().message;
        EXPECT_THAT(source.error().message, HasSubstr(path));
        if (ours) {
          EXPECT_THAT(source.error().message, HasSubstr(name + " is cut"));
        }
      }
    }
}

TEST_F(BpFiles, ThatLackAFileAreRefusedByItsName) {
  for (const std::string name : {"md.idx", "md.0", "mmd.0", "data.0"}) {
    const auto path = copy();
    std::filesystem::remove(path + '/' + name);
    EXPECT_THAT(read(path), HasSubstr(path + " lacks " + name));
  }
}

TEST_F(BpFiles, WithDamagedDescriptionsAreReadOrRefusedAndNeverCrashUs) {
  std::size_t refused = 0;
  const auto size = std::filesystem::file_size(path_ + "/mmd.0");
  for (std::uintmax_t at = 0; at < size; at += 29) {
    const auto path = copy();
    std::fstream file(path + "/mmd.0", std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
    file.close();
    if (!open_bp5_source(path)) ++refused;
  }
  EXPECT_GT(refused, 0U);
}

TEST_F(BpFiles, WithADamagedIndexAreRefused) {
  // The kind of the first record, of the second, and the place of a step's metadata.
  for (const std::streamoff at : {64, 105, 114}) {
    SCOPED_TRACE(at);
    const auto path = copy();
    std::fstream file(path + "/md.idx", std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const auto byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x20));
    file.close();
    EXPECT_THAT(read(path), HasSubstr(path + ": md.idx is damaged"));
  }
}

TEST_F(BpFiles, ThatSomebodyWritesAreRefused) {
  std::fstream index(path_ + "/md.idx", std::ios::binary | std::ios::in | std::ios::out);
  index.seekp(39);
  index.put(1);
  index.close();
  EXPECT_THAT(read(path_), HasSubstr("somebody still writes the file"));
}

TEST_F(BpFiles, OfAnotherVersionAreRefused) {
  std::fstream index(path_ + "/md.idx", std::ios::binary | std::ios::in | std::ios::out);
  index.seekp(37);
  index.put(3);
  index.close();
  EXPECT_THAT(read(path_), HasSubstr("is no BP file of version 4 or 5 (its index says 3)"));
}

TEST_F(BpFiles, MadeAtOnceWantRecordsInTheirOrder) {
  const auto path = scratch_.path() + "/other.bp";
  ASSERT_TRUE(system_files().make_directory(path, 0777).ok());
  auto sink = testing::fed(open_bp5_file(system_files(), path, {}));
  ASSERT_TRUE(sink.ok());
  ASSERT_TRUE((*sink)->declare(schema()).ok());
  const auto values = values_of(0, 1);
  ASSERT_TRUE((*sink)
                  ->write({0,
                           {{1, 0, 0}, {1, rows, columns}},
                           {},
                           reinterpret_cast<const std::byte*>(values.data()),
                           values.size() * sizeof(float),
                           nullptr})
                  .ok());
  const auto committed = (*sink)->checkpoint();
  ASSERT_FALSE(committed.ok());
  EXPECT_THAT(committed.error().message, HasSubstr("variable T does not come in order"));
}

TEST_F(BpFiles, CannotHaveDimensionsWithSpaces) {
  auto s = schema();
  s.dimensions[1].name = "south north";
  const auto fits = fits_bp5_file(s);
  ASSERT_FALSE(fits.ok());
  EXPECT_THAT(fits.error().message, HasSubstr("dimension 'south north' has a space"));
}

}  // namespace
}  // namespace advectio
