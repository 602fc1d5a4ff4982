// Which bytes of a classic file are filled, and by which writes. The layout is invented here.
#include "sinks/cdf5/fill_values.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace advectio {
namespace {

/// Variables of bytes: `a` [6] at 10, and `r` and `s` [time][4] at 20, 8 bytes a record. They are filled with their
/// names.
class FillValuesOf : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-fill-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    file_ = std::move(system_files().open(directory_ + "/data", OpenMode::create)).value();
    schema_.dimensions = {{"time", 0, true}, {"six", 6, false}, {"four", 4, false}};
    add("a", {1}, 10, 6);
    add("r", {0, 2}, 20, 4);
    add("s", {0, 2}, 24, 4);
    layout_.record_bytes = 8;
    layout_.record_variables = 2;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void add(const char* name, std::vector<std::uint32_t> dimensions, std::uint64_t begin, std::uint64_t bytes) {
    Variable v;
    v.name = name;
    v.type = DataType::int8;
    v.fill = Bytes(1, static_cast<std::byte>(name[0]));
    v.dimensions = std::move(dimensions);
    layout_.variables.push_back({v.type, v.dimensions[0] == 0, {}, begin, bytes});
    schema_.variables.push_back(std::move(v));
  }
  /// '.' is a byte that is zero.
  [[nodiscard]] std::string content() const {
    const auto bytes = read_file(system_files(), directory_ + "/data");
    std::string out;
    for (const auto b : *bytes) out += b == std::byte{0} ? '.' : static_cast<char>(b);
    return out;
  }
  void put(std::uint64_t at, const std::string& text) {
    ASSERT_TRUE(file_->write(at, std::as_bytes(std::span(text))).ok());
    fill_.note_put(at, at + text.size());
  }

  std::string directory_;
  std::unique_ptr<File> file_;
  Schema schema_;
  ClassicLayout layout_;
  SinkCounters counters_;
  FillValues fill_{schema_, layout_, counters_};
};

TEST_F(FillValuesOf, WhatNobodyHasPutAreWrittenOnce) {
  put(12, "12");
  put(20, "1234");
  ASSERT_TRUE(fill_.are_due(0, 0));
  ASSERT_TRUE(fill_.are_due(1, 0));
  ASSERT_TRUE(fill_.write(*file_, 1).ok());
  EXPECT_EQ(content(), "..........aa12aa....1234ssss");
  EXPECT_EQ(counters_.bytes_out, 8U);
  EXPECT_FALSE(fill_.are_due(0, 0));
  EXPECT_FALSE(fill_.are_due(1, 0));
  EXPECT_TRUE(fill_.are_due(1, 1));
  put(32, "5678");
  ASSERT_TRUE(fill_.write(*file_, 2).ok());
  EXPECT_EQ(content(), "..........aa12aa....1234ssssrrrr5678");
  EXPECT_EQ(counters_.bytes_out, 12U);
}

TEST_F(FillValuesOf, AFileThatIsTakenUpAreThereAlready) {
  fill_.reset(1, true);
  ASSERT_TRUE(fill_.write(*file_, 2).ok());
  EXPECT_EQ(content(), "............................rrrrssss");
}

TEST_F(FillValuesOf, RecordsAreLeftOutOnlyWhereNoVariableHasThem) {
  schema_.variables[1].no_fill = true;
  EXPECT_TRUE(fill_.are_due(1, 0));
  schema_.variables[0].no_fill = schema_.variables[2].no_fill = true;
  EXPECT_FALSE(fill_.are_due(0, 0));
  EXPECT_FALSE(fill_.are_due(1, 0));
  ASSERT_TRUE(fill_.write(*file_, 1).ok());
  EXPECT_EQ(content(), "");
}

TEST_F(FillValuesOf, VariablesThatComeLaterAreInAllRecordsThatThereAre) {
  ASSERT_TRUE(fill_.write_added(*file_, 2, 2).ok());
  EXPECT_EQ(content(), "........................ssss....ssss");
}

TEST_F(FillValuesOf, LargeVariablesAreWrittenInPieces) {
  constexpr std::uint64_t bytes = 3'000'001;
  layout_.variables[0].bytes = bytes;
  ASSERT_TRUE(fill_.write(*file_, 0).ok());
  EXPECT_TRUE(content() == std::string(10, '.') + std::string(bytes, 'a'));
  EXPECT_EQ(counters_.bytes_out, bytes);
}

TEST_F(FillValuesOf, ManyPiecesWantToBeWritten) {
  layout_.variables[0].bytes = 1 << 20;
  for (std::uint64_t at = 10; !fill_.many(); at += 2) {
    ASSERT_LT(at, std::uint64_t{1} << 20U);
    fill_.note_put(at, at + 1);
  }
  ASSERT_TRUE(fill_.write(*file_, 0).ok());
  EXPECT_FALSE(fill_.many());
}

}  // namespace
}  // namespace advectio
