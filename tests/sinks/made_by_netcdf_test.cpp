// A sink goes on with files that netCDF-C has made, and with no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <netcdf.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf4/hdf5.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"

namespace advectio {
namespace {

using ::testing::HasSubstr;
using testing::Random;

class FilesOfOthers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-others-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/out.nc";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  virtual Result<std::unique_ptr<Sink>> open(bool made_by_others = true) {
    Netcdf4Options options;
    options.made_by_others = made_by_others;
    return open_netcdf4(system_files(), path_, options, executor_, true);
  }
  /// As a program sees it that opens the file.
  Schema seen() const {
    auto schema = testing::read_by_netcdf(path_).schema;
    for (auto& d : schema.dimensions)
      if (d.unlimited) d.length = 0;
    for (auto& v : schema.variables)
      for (const auto& a : v.attributes)
        if (!is_hdf5(schema.format) && a.name == "_FillValue") v.fill = a.values;
    return schema;
  }
  /// Empty: the sink can go on with the file. Whatever it says, the file stays as it is.
  std::string in_the_way(const Schema& schema) {
    const auto before = read_file(system_files(), path_);
    const auto changed = std::filesystem::last_write_time(path_);
    auto sink = open();
    auto holds = sink ? (*sink)->holds(schema) : Result<void>(sink.error());
    if (sink) (*sink)->abandon();
    EXPECT_EQ(*before, *read_file(system_files(), path_));
    EXPECT_EQ(changed, std::filesystem::last_write_time(path_));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
    return holds ? "" : holds.error().message;
  }
  /// A file with the dimension t, without end, and the variables v(t) and w; `change` may change how.
  void make_by_netcdf(const std::function<void(int)>& change = nullptr, int mode = NC_NETCDF4) const {
    int nc = -1, t = -1, x = -1, v = -1;
    ASSERT_EQ(nc_create(path_.c_str(), mode | NC_CLOBBER, &nc), NC_NOERR);
    ASSERT_EQ(nc_def_dim(nc, "t", NC_UNLIMITED, &t), NC_NOERR);
    ASSERT_EQ(nc_def_dim(nc, "x", 4, &x), NC_NOERR);
    ASSERT_EQ(nc_def_var(nc, "v", NC_FLOAT, 1, &t, &v), NC_NOERR);
    ASSERT_EQ(nc_def_var(nc, "w", NC_INT, 1, &x, &v), NC_NOERR);
    if (change) change(nc);
    ASSERT_EQ(nc_close(nc), NC_NOERR);
  }
  /// By HDF5's own functions.
  void change_by_hdf5(const std::function<void(hid_t)>& change) const {
    const Hdf5Lock lock;
    const Hdf5Id file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    ASSERT_TRUE(file);
    change(file);
  }

  /// `sink_` goes on with the file. Returns the error.
  std::string go_on(const Schema& schema) {
    auto opened = open(false);
    if (!opened) return opened.error().message;
    sink_ = std::make_unique<testing::FedSink>(std::move(opened).value());
    const auto declared = sink_->declare(schema);
    return declared ? "" : declared.error().message;
  }
  void go_on_with_random_files(const Abilities& abilities, int at_least);

  std::string directory_, path_;
  Executor executor_{2};
  std::unique_ptr<testing::FedSink> sink_;
};

class ClassicFilesOfOthers : public FilesOfOthers {
 protected:
  Result<std::unique_ptr<Sink>> open(bool made_by_others = true) override {
    Cdf5Options options;
    options.made_by_others = made_by_others;
    options.continues = true;
    return open_cdf5(system_files(), path_, options, true);
  }
};

void FilesOfOthers::go_on_with_random_files(const Abilities& abilities, int at_least) {
  const auto ability = testing::ability_of(abilities);
  int tried = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto schema = testing::random_schema(random, ability);
    if (schema.variables.empty() || schema.dimensions.empty()) continue;
    ++tried;
    auto blocks = testing::random_frame(random, schema, 0);
    const auto later = testing::random_frame(random, schema, 1);
    testing::write_by_netcdf(path_, schema, blocks);
    const auto there = seen();
    ASSERT_EQ(in_the_way(there), "");
    ASSERT_EQ(go_on(there), "");
    auto& sink = *sink_;
    for (const auto& b : later) ASSERT_TRUE(sink.write(b.block));
    const auto ended = sink.commit();
    ASSERT_TRUE(ended) << ended.error().message;
    const auto closed = sink.close();
    ASSERT_TRUE(closed) << closed.error().message;
    blocks.insert(blocks.end(), later.begin(), later.end());
    const auto reference = directory_ + "/reference.nc";
    testing::write_by_netcdf(reference, schema, blocks);
    const auto model = testing::model_of(schema, blocks);
    ASSERT_EQ(testing::difference(testing::read_by_netcdf(reference), testing::read_by_netcdf(path_), model.written),
              "");
    std::filesystem::remove(reference);
  }
  EXPECT_GT(tried, at_least);
}

TEST_F(FilesOfOthers, WhatNetcdfHasMadeIsGoneOnWith) {
  go_on_with_random_files(netcdf4_abilities(), 120);
}

TEST_F(FilesOfOthers, WhatTheSinkWouldNotHaveMadeSoIsTheLibrarys) {
  make_by_netcdf();
  const auto schema = seen();
  ASSERT_EQ(in_the_way(schema), "");

  auto other = schema;
  other.variables[1].filters = {{filter_id::deflate, {1}}};
  other.variables[1].contiguous = false;
  other.variables[1].chunks = {4};
  EXPECT_THAT(in_the_way(other), HasSubstr("its layout"));
  other = schema;
  other.variables[0].chunks = {7};
  EXPECT_THAT(in_the_way(other), HasSubstr("its chunks"));
  other = schema;
  other.variables[0].fill = Bytes(4);
  EXPECT_THAT(in_the_way(other), HasSubstr("its fill value"));
  other = schema;
  other.variables[0].endian = Endian::big;
  EXPECT_THAT(in_the_way(other), HasSubstr("its type"));
  other = schema;
  other.variables[0].name = "u";
  EXPECT_THAT(in_the_way(other), HasSubstr("variable v"));
  other = schema;
  other.variables.pop_back();
  EXPECT_THAT(in_the_way(other), HasSubstr("the number of dimensions or variables"));
  other = schema;
  other.attributes.push_back({"title", DataType::text, 1, Bytes(1), {}});
  EXPECT_THAT(in_the_way(other), HasSubstr("a global attribute"));
  other = schema;
  other.format = FileFormat::netcdf4_classic;
  EXPECT_THAT(in_the_way(other), HasSubstr("the data model"));
}

TEST_F(FilesOfOthers, WhatOtherProgramsHaveAddedIsSeen) {
  const auto refused = [this](const std::function<void(hid_t)>& change, bool sees_it = false) {
    make_by_netcdf();
    const auto before = seen();
    change_by_hdf5(change);
    return in_the_way(sees_it ? seen() : before);
  };
  EXPECT_THAT(refused([](hid_t file) {
                const Hdf5Id group(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
              }),
              HasSubstr("g: open"));
  EXPECT_THAT(refused([](hid_t file) {
                const Hdf5Id v(H5Dopen2(file, "v", H5P_DEFAULT), H5Dclose), space(H5Screate(H5S_SCALAR), H5Sclose);
                const Hdf5Id a(H5Acreate2(v, "a", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
              }),
              HasSubstr("an attribute of v"));
  // netCDF-C takes all of these for its own.
  EXPECT_THAT(refused([](hid_t file) { (void)H5Lcreate_soft("/w", file, "soft", H5P_DEFAULT, H5P_DEFAULT); }, true),
              HasSubstr("leads to another name"));
  const auto attribute = [](hid_t file, hid_t type, hid_t space, const void* values) {
    const Hdf5Id a(H5Acreate2(file, "a", type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    (void)H5Awrite(a, type, values);
  };
  EXPECT_THAT(refused(
                  [&](hid_t file) {
                    const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
                    (void)H5Tset_size(type, 100'000);
                    const hsize_t three = 3;
                    const Hdf5Id space(H5Screate_simple(1, &three, nullptr), H5Sclose);
                    attribute(file, type, space, std::string(300'000, 'x').data());
                  },
                  true),
              HasSubstr("an array of strings of one length"));
  EXPECT_THAT(refused(
                  [&](hid_t file) {
                    const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose), space(H5Screate(H5S_SCALAR), H5Sclose);
                    (void)H5Tset_size(type, 3);
                    (void)H5Tset_cset(type, H5T_CSET_UTF8);
                    attribute(file, type, space, "abc");
                  },
                  true),
              HasSubstr("attribute a in the file"));
  EXPECT_THAT(refused(
                  [&](hid_t file) {
                    const Hdf5Id v(H5Dopen2(file, "v", H5P_DEFAULT), H5Dclose);
                    (void)H5Adelete(v, "_Netcdf4Coordinates");
                  },
                  true),
              HasSubstr("its dimensions are not recorded"));
}

TEST_F(FilesOfOthers, TwoNamesOfOneDataSetAreTheLibrarys) {
  make_by_netcdf();
  change_by_hdf5([](hid_t file) { (void)H5Lcreate_hard(file, "w", file, "again", H5P_DEFAULT, H5P_DEFAULT); });
  const auto schema = seen();
  ASSERT_EQ(schema.variables.size(), 3U);
  EXPECT_THAT(in_the_way(schema), HasSubstr("the number of its names"));
}

TEST_F(FilesOfOthers, AFileThatIsNoneOfHdf5StaysAsItIs) {
  for (const std::string& bytes :
       {std::string(), std::string(10'000, '\0'), std::string("CDF\1 and more"), std::string(10'000, 'x')}) {
    std::ofstream(path_) << bytes;
    EXPECT_NE(in_the_way({}), "");
  }
  make_by_netcdf();
  const auto schema = seen();
  std::ofstream(path_, std::ios::app) << "something behind its end";
  EXPECT_THAT(in_the_way(schema), HasSubstr("bytes behind its end"));
  make_by_netcdf();
  std::filesystem::resize_file(path_, 1000);  // cut off
  EXPECT_NE(in_the_way(schema), "");
}

TEST_F(FilesOfOthers, AFileOfHdf5InAnotherWayIsTheLibrarys) {
  const auto made = [this](const std::function<void(hid_t, hid_t)>& set) {
    const Hdf5Lock lock;
    const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    constexpr unsigned tracked = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    (void)H5Pset_link_creation_order(creation, tracked);
    (void)H5Pset_attr_creation_order(creation, tracked);
    set(creation, access);
    const Hdf5Id file(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
    return file ? 0 : -1;
  };
  Schema empty;
  empty.format = FileFormat::netcdf4;
  ASSERT_EQ(made([](hid_t, hid_t) {}), 0);
  EXPECT_EQ(in_the_way(empty), "");
  ASSERT_EQ(made([](hid_t creation, hid_t) { (void)H5Pset_link_creation_order(creation, 0); }), 0);
  EXPECT_NE(in_the_way(empty), "");
  ASSERT_EQ(made([](hid_t creation, hid_t) { (void)H5Pset_userblock(creation, 512); }), 0);
  EXPECT_THAT(in_the_way(empty), HasSubstr("does not begin"));
  ASSERT_EQ(made([](hid_t, hid_t access) { (void)H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST); }),
            0);
  EXPECT_THAT(in_the_way(empty), HasSubstr("another kind"));
  ASSERT_EQ(made([](hid_t creation, hid_t) {
              (void)H5Pset_file_space_strategy(creation, H5F_FSPACE_STRATEGY_FSM_AGGR, true, 1);
            }),
            0);
  EXPECT_THAT(in_the_way(empty), HasSubstr("another kind"));
}

TEST_F(ClassicFilesOfOthers, WhatNetcdfHasMadeIsGoneOnWith) {
  go_on_with_random_files(cdf5_abilities(), 100);
}

/// How a program leaves define mode, and the length of the only variable that has records.
struct Places {
  std::size_t header_pad, data_align, data_pad, record_align, length;
};

/// netCDF-C appends to a copy of the file. All bytes are compared, also those between variables.
TEST_F(ClassicFilesOfOthers, EachByteIsWhereTheLibraryPutsIt) {
  const std::array<Places, 5> all = {Places{0, 4, 0, 4, 5}, Places{1000, 4, 0, 4, 5}, Places{100, 512, 300, 1024, 5},
                                     Places{0, 4, 0, 4, 3}, Places{17, 8, 64, 4096, 7}};
  for (const int mode : {0, NC_64BIT_OFFSET, NC_64BIT_DATA})
    for (const auto& places : all) {
      SCOPED_TRACE(mode);
      SCOPED_TRACE(places.header_pad);
      SCOPED_TRACE(places.length);
      int nc = -1, fixed = -1, odd = -1;
      std::array<int, 2> dims{};
      ASSERT_EQ(nc_create(path_.c_str(), mode | NC_CLOBBER, &nc), NC_NOERR);
      ASSERT_EQ(nc_def_dim(nc, "t", NC_UNLIMITED, dims.data()), NC_NOERR);
      ASSERT_EQ(nc_def_dim(nc, "x", places.length, &dims[1]), NC_NOERR);
      ASSERT_EQ(nc_def_var(nc, "f", NC_SHORT, 1, &dims[1], &fixed), NC_NOERR);
      ASSERT_EQ(nc_def_var(nc, "odd", NC_BYTE, 2, dims.data(), &odd), NC_NOERR);
      ASSERT_EQ(nc__enddef(nc, places.header_pad, places.data_align, places.data_pad, places.record_align), NC_NOERR);
      const std::vector<signed char> one(places.length, 1), two(places.length, 2);
      std::array<std::size_t, 2> start{}, count{1, places.length};
      ASSERT_EQ(nc_put_vara(nc, odd, start.data(), count.data(), one.data()), NC_NOERR);
      ASSERT_EQ(nc_close(nc), NC_NOERR);
      const auto copy = directory_ + "/copy.nc";
      std::filesystem::copy_file(path_, copy);

      ASSERT_EQ(nc_open(copy.c_str(), NC_WRITE, &nc), NC_NOERR);
      start[0] = 3;
      ASSERT_EQ(nc_put_vara(nc, odd, start.data(), count.data(), two.data()), NC_NOERR);
      ASSERT_EQ(nc_close(nc), NC_NOERR);
      const auto library = read_file(system_files(), copy);
      std::filesystem::remove(copy);

      const auto there = seen();
      ASSERT_EQ(in_the_way(there), "");
      ASSERT_EQ(go_on(there), "");
      auto& sink = *sink_;
      Block block;
      block.variable = 1;
      block.box = {{3, 0}, {1, places.length}};
      block.data = reinterpret_cast<const std::byte*>(two.data());
      block.bytes = two.size();
      ASSERT_TRUE(sink.write(block));
      const auto closed = sink.close();
      ASSERT_TRUE(closed) << closed.error().message;
      ASSERT_EQ(*library, *read_file(system_files(), path_));
    }
}

TEST_F(ClassicFilesOfOthers, WhatCannotBeGoneOnWithStaysAsItIs) {
  for (const std::string& bytes : {std::string(), std::string(10'000, '\0'), std::string("CDF\1 and more"),
                                   std::string("CDF"), std::string(10'000, 'x')}) {
    std::ofstream(path_) << bytes;
    EXPECT_NE(in_the_way({}), "");
    EXPECT_EQ(open(false).ok(), bytes.empty());  // after a crash, too
    EXPECT_EQ(std::filesystem::file_size(path_), bytes.size());
  }
  for (const int mode : {0, NC_64BIT_OFFSET, NC_64BIT_DATA}) {
    SCOPED_TRACE(mode);
    make_by_netcdf(nullptr, mode);
    const auto schema = seen();
    ASSERT_EQ(in_the_way(schema), "");
    auto other = schema;
    other.variables[0].name = "u";
    EXPECT_THAT(in_the_way(other), HasSubstr("its definitions"));
    other = schema;
    other.format = schema.format == FileFormat::cdf5 ? FileFormat::classic : FileFormat::cdf5;
    EXPECT_THAT(in_the_way(other), HasSubstr("its definitions"));
    // The number of records is left open.
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4);
    file << std::string(mode == NC_64BIT_DATA ? 8 : 4, '\xff');
    file.close();
    EXPECT_THAT(in_the_way(schema), HasSubstr("how many records"));
    // Cut off in its header.
    make_by_netcdf(nullptr, mode);
    std::filesystem::resize_file(path_, 40);
    EXPECT_NE(in_the_way(schema), "");
  }
}

TEST_F(ClassicFilesOfOthers, WhatAnEarlierRunHasLeftBesideIsNotTakenUp) {
  make_by_netcdf(nullptr, 0);
  const auto schema = seen();
  std::ofstream(default_redo_path(path_) + ".records") << "of a run that was killed";
  auto sink = open();
  auto holds = sink ? (*sink)->holds(schema) : Result<void>(sink.error());
  ASSERT_FALSE(holds);
  EXPECT_THAT(holds.error().message, HasSubstr("is left from an earlier run"));
}

}  // namespace
}  // namespace advectio
