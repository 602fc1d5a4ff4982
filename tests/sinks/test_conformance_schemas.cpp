// What every sink must do with schemas: those that change, and those that it cannot have.
#include <netcdf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "sinks/every_sink.h"
#include "sinks/library_lock.h"

namespace advectio {
namespace {

using testing::EverySink;
using testing::model_of;
using testing::OwnedBlock;
using testing::Random;

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

}  // namespace
}  // namespace advectio
