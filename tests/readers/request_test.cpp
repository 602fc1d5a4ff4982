#include "readers/request.h"

#include <gtest/gtest.h>

namespace advectio::readers {
namespace {

using nlohmann::json;

TEST(RequestTest, HasWhatItWasGivenAndDefaults) {
  const auto s = parse_request(
      {{"id", 3}, {"do", "subscribe"}, {"match", {"/a/b*"}}, {"policy", "drop-oldest"}, {"depth", 5}, {"after", 0}});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->kind, Request::Kind::subscribe);
  EXPECT_EQ(s->id, 3U);
  EXPECT_EQ(s->match, std::vector<std::string>{"/a/b*"});
  EXPECT_EQ(s->policy, Policy::drop_oldest);
  EXPECT_EQ(s->depth, 5U);
  EXPECT_EQ(s->after, 0U);
  const auto plain = parse_request({{"do", "subscribe"}, {"match", {"x"}}, {"unknown", 1}});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->policy, Policy::wait);
  EXPECT_FALSE(plain->after);
}

TEST(RequestTest, ThatCannotBeRightIsRefusedWithTheKey) {
  const std::vector<std::pair<json, std::string>> cases = {
      {json::array(), "JSON object"},
      {{{"do", "dance"}}, "dance"},
      {{{"do", 3}}, "do"},
      {{{"do", "hello"}, {"protocol", 2}}, "protocol"},
      {{{"do", "hello"}, {"secret", 7}}, "secret"},
      {{{"do", "subscribe"}}, "match"},
      {{{"do", "subscribe"}, {"match", "x"}}, "match"},
      {{{"do", "subscribe"}, {"match", {1}}}, "match"},
      {{{"do", "subscribe"}, {"match", {"x"}}, {"policy", "newest"}}, "newest"},
      {{{"do", "subscribe"}, {"match", {"x"}}, {"depth", 0}}, "depth"},
      {{{"do", "next"}, {"subscription", -1}}, "subscription"},
      {{{"do", "next"}, {"wait_ms", 1e99}}, "wait_ms"},
      {{{"do", "read"}, {"start", {0, 1}}, {"count", {1}}}, "length"},
      {{{"do", "read"}, {"start", {-1}}, {"count", {1}}}, "start"},
      {{{"do", "map"}, {"variables", {1ULL << 40}}}, "variables"},
  };
  for (const auto& [object, word] : cases) {
    const auto r = parse_request(object);
    ASSERT_FALSE(r) << object;
    EXPECT_NE(r.error().message.find(word), std::string::npos) << r.error().message;
  }
}

}  // namespace
}  // namespace advectio::readers
