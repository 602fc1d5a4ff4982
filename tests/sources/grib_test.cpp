// Files that are cut, damaged or not GRIB: an error that names the message, and never other values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "journal/scratch.h"
#include "platform/files.h"
#include "sources/grib/grib_source.h"
#include "sources/grib/library.h"
#include "sources/grib/messages.h"
#include "sources/grib_file.h"

namespace advectio {
namespace {

using ::testing::HasSubstr;

class GribFiles : public ::testing::Test {
 protected:
  std::string write(const Bytes& bytes) {
    const auto path = scratch_.path() + "/" + std::to_string(count_++);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  Result<std::vector<grib::FieldPlace>> places(const Bytes& bytes) {
    auto file = system_files().open(write(bytes), OpenMode::read);
    return grib::find_fields(**file);
  }
  static Bytes two() {
    testing::GribMessage m;
    m.values.assign(12, 7);
    auto bytes = testing::encoded(m);
    m.level = 850;
    const auto second = testing::encoded(m);
    bytes.insert(bytes.end(), second.begin(), second.end());
    return bytes;
  }

  Scratch scratch_;
  int count_ = 0;
};

TEST_F(GribFiles, AreFoundByTheirFirstBytes) {
  EXPECT_TRUE(is_grib(write(two())));
  auto bulletin = two();
  const std::string_view header = "\r\r\n001\r\r\nHTXA85 ECMF 311200\r\r\n";
  bulletin.insert(bulletin.begin(), reinterpret_cast<const std::byte*>(header.data()),
                  reinterpret_cast<const std::byte*>(header.data() + header.size()));
  EXPECT_TRUE(is_grib(write(bulletin)));
  EXPECT_EQ(places(bulletin)->at(0).offset, header.size());
  auto netcdf = two();
  netcdf.insert(netcdf.begin(), {std::byte{'C'}, std::byte{'D'}, std::byte{'F'}, std::byte{0x81}});
  EXPECT_FALSE(is_grib(write(netcdf)));
  EXPECT_FALSE(is_grib(write({})));
  EXPECT_FALSE(is_grib(scratch_.path() + "/none"));
}

Bytes text_bytes(std::string_view text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST_F(GribFiles, MayHaveLongHeadersAndGribInThem) {
  const auto message = two();
  const auto one = places(message)->at(1).offset;
  const std::string_view soh("\r\r\nGRIB\r\r\n\x01\r\r\n001\r\r\nHTXA85 ECMF 311200\r\r\n");
  const std::string long_header = std::string(40'000, '*') + "\n" + std::string(20'000, '\0');
  for (const auto& header :
       {std::string("GRIB FILE of ECMWF, made from 2 GRIB messages\n"), std::string("GRIBGRIB GRIB\r\r\n"),
        std::string(soh), long_header, std::string(2000, 'x') + "GRIB2 " + std::string(70'000, ' ')}) {
    auto bytes = text_bytes(header);
    bytes.insert(bytes.end(), message.begin(), message.begin() + static_cast<std::ptrdiff_t>(one));
    const auto second = bytes.size() + header.size();
    const auto between = text_bytes(header);
    bytes.insert(bytes.end(), between.begin(), between.end());
    bytes.insert(bytes.end(), message.begin() + static_cast<std::ptrdiff_t>(one), message.end());
    const auto found = places(bytes);
    ASSERT_TRUE(found.ok()) << header.substr(0, 40) << ": " << found.error().message;
    ASSERT_EQ(found->size(), 2U) << header.substr(0, 40);
    EXPECT_EQ(found->at(0).offset, header.size());
    EXPECT_EQ(found->at(1).offset, second);
    EXPECT_EQ(is_grib(write(bytes)), header.size() < 65'000) << header.substr(0, 40);
  }
}

TEST_F(GribFiles, AreNotThoseWhereGribIsAWordOrAName) {
  EXPECT_FALSE(is_grib(write(text_bytes("what GRIB is, in a text\n"))));
  // A classic netCDF file with a text of the name GRIB: its type is 2, where a message has its edition.
  const char netcdf[] = "CDF\1\0\0\0\4GRIB\0\0\0\2\0\0\0\4";
  EXPECT_FALSE(is_grib(write(text_bytes({netcdf, sizeof netcdf - 1}))));
}

TEST_F(GribFiles, MayHaveGribInTheirValues) {
  testing::GribMessage m;
  m.values = {'G' << 8U | 'R', 'I' << 8U | 'B', 1, 2, 'G' << 8U | 'R', 'I' << 8U | 'B', 257, 514, 0, 0, 0, 0};
  auto bytes = testing::encoded(m);
  m.level = 850;
  const auto second = testing::encoded(m);
  bytes.insert(bytes.end(), second.begin(), second.end());
  const auto found = places(bytes);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ(found->at(1).offset, bytes.size() - second.size());
}

TEST_F(GribFiles, OfAnyLengthThatIsNotWholeAreRefused) {
  const auto whole = two();
  const auto one = places(whole)->at(0).bytes;
  for (std::size_t n = 1; n < whole.size(); ++n) {
    if (n >= one && n < one + 8) continue;  // too short for a message: bytes that nobody knows
    const auto found = places({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)});
    ASSERT_FALSE(found.ok()) << n;
    EXPECT_THAT(found.error().message,
                HasSubstr(n > one ? "message 2 (byte " + std::to_string(one) : std::string("message")));
  }
  EXPECT_EQ(places(whole)->size(), 2U);
}

TEST_F(GribFiles, WithAnyByteAnotherOneAreReadOrRefusedAndNeverHang) {
  for (const std::size_t at : {4U, 5U, 6U, 7U, 8U, 10U, 15U, 36U, 37U, 38U, 68U, 69U, 70U}) {
    auto bytes = two();
    for (const unsigned value : {0U, 1U, 2U, 127U, 128U, 255U}) {
      bytes[at] = static_cast<std::byte>(value);
      auto file = system_files().open(write(bytes), OpenMode::read);
      const auto found = grib::find_fields(**file);
      if (!found) continue;
      for (const auto& place : *found) {
        const auto header = grib::field_bytes(**file, place, true);
        if (header) grib::grid_section(*header);
      }
    }
  }
}

TEST_F(GribFiles, WithTheSameFieldTwiceAreRefusedByBothMessages) {
  if (const auto library = grib::library(); !library) GTEST_SKIP() << library.error().message;
  auto bytes = two();
  const auto again = bytes;
  bytes.insert(bytes.end(), again.begin(), again.end());
  const auto source = open_grib_source(write(bytes));
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, Code::invalid);
  EXPECT_THAT(source.error().message, HasSubstr("message 1 (byte 0 of the file) and message 3"));
}

TEST_F(GribFiles, AreReadAnewWhenTheyHaveChanged) {
  if (const auto library = grib::library(); !library) GTEST_SKIP() << library.error().message;
  const auto whole = two();
  const auto path = write({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(places(whole)->at(0).bytes)});
  EXPECT_TRUE(open_grib_source(path).ok());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(whole.data()), static_cast<std::streamsize>(whole.size()));
  const auto source = open_grib_source(path);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_THAT((*source)->head()->lengths, ::testing::Contains(2U));
}

}  // namespace
}  // namespace advectio
