// Classic files where a schema changes after data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netcdf.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "platform/files.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/every_sink.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf_reference.h"

namespace advectio {
namespace {

using testing::OwnedBlock;
using testing::read_by_netcdf;

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

}  // namespace
}  // namespace advectio
