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
