// Stores that are not our sink's: what is read of them, and what is refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "journal/scratch.h"
#include "sources/zarr/zarr_source.h"

namespace advectio {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class ZarrStores : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path_ + "/t");
    save("zarr.json", Json{{"zarr_format", 3}, {"node_type", "group"}, {"attributes", {{"title", "by hand"}}}});
  }

  void save(const std::string& name, const Json& json) const { std::ofstream(path_ + '/' + name) << json.dump(); }

  /// Of two chunks, `t/c/0` and `t/c/1`.
  [[nodiscard]] static Json array() {
    return {{"zarr_format", 3},
            {"node_type", "array"},
            {"shape", {6}},
            {"data_type", "int16"},
            {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", {4}}}}}},
            {"chunk_key_encoding", {{"name", "default"}}},
            {"fill_value", -1},
            {"codecs", Json::array({{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}})},
            {"attributes", {{"units", "K"}}},
            {"dimension_names", {"x"}}};
  }

  void chunk(const std::string& name, const std::vector<std::int16_t>& values) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + '/' + name).parent_path());
    std::ofstream(path_ + '/' + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 2));
  }

  std::string refusal(const Json& metadata) {
    save("t/zarr.json", metadata);
    auto source = open_zarr_source(path_);
    return source.ok() ? "it was read" : source.error().message;
  }

  [[nodiscard]] Result<std::vector<std::int16_t>> values() const {
    auto source = open_zarr_source(path_);
    if (!source) return std::move(source).error();
    std::vector<std::int16_t> out(6);
    ADVECTIO_TRY((*source)->read(0, {{0}, {6}}, reinterpret_cast<std::byte*>(out.data())));
    return out;
  }

  Scratch scratch_;
  std::string path_ = scratch_.path() + "/store.zarr";
};

TEST_F(ZarrStores, AChunkThatIsNotThereIsTheFillValue) {
  save("t/zarr.json", array());
  chunk("t/c/1", {5, 6, 0, 0});
  auto read = values();
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (std::vector<std::int16_t>{-1, -1, -1, -1, 5, 6}));
}

TEST_F(ZarrStores, KeysOfVersionTwoAndBigEndianAreRead) {
  auto metadata = array();
  metadata["chunk_key_encoding"] = {{"name", "v2"}, {"configuration", {{"separator", "."}}}};
  metadata["codecs"][0]["configuration"]["endian"] = "big";
  save("t/zarr.json", metadata);
  chunk("t/0", {0x0100, 0x0200, 0x0300, 0x0400});
  chunk("t/1", {0x0500, 0x0600, 0, 0});
  auto read = values();
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (std::vector<std::int16_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(ZarrStores, DimensionsWithoutNamesGetSome) {
  auto metadata = array();
  metadata.erase("dimension_names");
  save("t/zarr.json", metadata);
  auto source = open_zarr_source(path_);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto head = (*source)->head();
  ASSERT_EQ(head->schema.dimensions.size(), 1U);
  EXPECT_EQ(head->schema.dimensions[0].name, "dim_6");
  EXPECT_EQ(head->schema.attributes[0].name, "title");
  EXPECT_EQ(head->schema.variables[0].chunks, (std::vector<std::uint64_t>{4}));
}

TEST_F(ZarrStores, WhatIsNotReadIsRefusedByItsName) {
  auto metadata = array();
  metadata["codecs"].push_back({{"name", "lzma"}});
  EXPECT_THAT(refusal(metadata), HasSubstr("store.zarr: array t: the codec lzma"));
  metadata = array();
  metadata["codecs"] = Json::array({{{"name", "transpose"}, {"configuration", {{"order", {0}}}}}});
  EXPECT_THAT(refusal(metadata), HasSubstr("array t: the codec transpose"));
  metadata = array();
  metadata["data_type"] = "complex64";
  EXPECT_THAT(refusal(metadata), HasSubstr("array t: the data type complex64"));
  metadata = array();
  metadata["chunk_grid"]["name"] = "rectilinear";
  EXPECT_THAT(refusal(metadata), HasSubstr("array t: the chunk grid rectilinear"));
  metadata = array();
  metadata["fill_value"] = 70000;
  EXPECT_THAT(refusal(metadata), HasSubstr("its fill value is 70000"));
  metadata = array();
  metadata.erase("codecs");
  EXPECT_THAT(refusal(metadata), HasSubstr("codecs"));
}

TEST_F(ZarrStores, ADamagedChunkIsAnErrorAndNeverOtherValues) {
  save("t/zarr.json", array());
  chunk("t/c/0", {1, 2, 3});  // one is missing
  chunk("t/c/1", {5, 6, 0, 0});
  auto read = values();
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("array t: a chunk in "));
  auto metadata = array();
  metadata["codecs"].push_back({{"name", "crc32c"}});
  save("t/zarr.json", metadata);
  chunk("t/c/0", {1, 2, 3, 4, 5, 6});
  EXPECT_FALSE(values().ok());
}

TEST_F(ZarrStores, OtherVersionsAndGroupsAreRefused) {
  std::filesystem::create_directories(scratch_.path() + "/two.zarr");
  std::ofstream(scratch_.path() + "/two.zarr/.zgroup") << R"({"zarr_format": 2})";
  auto two = open_zarr_source(scratch_.path() + "/two.zarr");
  ASSERT_FALSE(two.ok());
  EXPECT_THAT(two.error().message, HasSubstr("is a Zarr store of version 2"));
  EXPECT_TRUE(is_zarr(scratch_.path() + "/two.zarr"));
  EXPECT_FALSE(is_zarr(scratch_.path()));
  EXPECT_THAT(open_zarr_source(scratch_.path()).error().message, HasSubstr("is a directory, and no Zarr store"));
  EXPECT_THAT(refusal({{"zarr_format", 3}, {"node_type", "group"}}), HasSubstr("array t: it is a group"));
  save("zarr.json", array());
  EXPECT_THAT(open_zarr_source(path_).error().message, HasSubstr("is a single Zarr array"));
}

}  // namespace
}  // namespace advectio
