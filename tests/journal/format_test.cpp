#include "journal/format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace advectio::journal {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);  // the check value of CRC-32C
  EXPECT_EQ(crc32c("56789", 5, crc32c("1234", 4)), 0xE3069283U);
  EXPECT_EQ(crc32c("", 0), 0U);
}

TEST(Crc32c, OfACopyIsThatOfTheBytes) {
  std::mt19937 random(3);
  for (const std::size_t n : {0UL, 1UL, 63UL, 32768UL, 32769UL, 200001UL}) {
    std::vector<unsigned char> from(n), to(n + 1, 0xEE);
    for (auto& c : from) c = static_cast<unsigned char>(random());
    EXPECT_EQ(copy_crc32c(to.data(), from.data(), n), crc32c(from.data(), n));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to[n], 0xEE);
  }
}

TEST(Records, DescriptionsReadBackAndCutsAreRefused) {
  const Create create{FileFormat::cdf5, "/data/wrfout", "/data/.wrfout.advectio-1", "12-34"};
  const Put put{7, {{1, 0, 5}, {1, 40, 9}}, {1, 2, 3}};
  const Sync sync{4, 5, 6};
  auto c = decode_create(encode(create));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->path, create.path);
  EXPECT_EQ(c->link, create.link);
  EXPECT_EQ(c->page, create.page);
  EXPECT_EQ(c->format, create.format);
  auto p = decode_put(encode(put));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->variable, 7U);
  EXPECT_EQ(p->box, put.box);
  EXPECT_EQ(p->stride, put.stride);
  auto s = decode_sync(encode(sync));
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->bytes, 6U);
  const auto bytes = encode(put);
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_put(std::span(bytes).first(n)).ok());
}

TEST(Records, APageNameCannotLeadOutOfTheStage) {
  for (const char* name : {"", "../x", "a/b", ".hidden"})
    EXPECT_FALSE(decode_create(encode(Create{FileFormat::netcdf4, "/a", "/b", name})).ok()) << name;
}

}  // namespace
}  // namespace advectio::journal
