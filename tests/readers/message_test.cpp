#include "readers/message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "readers/base64.h"

namespace advectio::readers {
namespace {

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a = Descriptor(fds[0]);
    b = Descriptor(fds[1]);
  }
  Descriptor a, b;
};

TEST(MessageTest, ArrivesWithItsDataAndDescriptors) {
  Ends ends;
  char path[] = "/tmp/advectio_message_XXXXXX";
  const Descriptor file(::mkstemp(path));
  ASSERT_EQ(::write(file.get(), "hello", 5), 5);
  ::unlink(path);
  const std::string data(3 << 20, 'x');
  std::thread sender([&] {
    const int fds[] = {file.get()};
    EXPECT_TRUE(send_head(ends.a.get(), {{"id", 7}}, data.size(), fds));
    EXPECT_TRUE(send_bytes(ends.a.get(), std::as_bytes(std::span(data))));
  });
  auto head = receive_head(ends.b.get(), request_head_max);
  ASSERT_TRUE(head && *head);
  EXPECT_EQ((**head).object["id"], 7);
  ASSERT_EQ((**head).data_bytes, data.size());
  std::string got(data.size(), '\0');
  EXPECT_TRUE(receive_bytes(ends.b.get(), std::as_writable_bytes(std::span(got))));
  sender.join();
  EXPECT_EQ(got, data);
  ASSERT_EQ((**head).descriptors.size(), 1U);
  char text[6] = {};
  EXPECT_EQ(::pread((**head).descriptors[0].get(), text, 5, 0), 5);
  EXPECT_STREQ(text, "hello");
}

TEST(MessageTest, EndsBetweenTwoMessagesWithoutAnError) {
  Ends ends;
  ends.a = Descriptor();
  auto head = receive_head(ends.b.get(), request_head_max);
  ASSERT_TRUE(head);
  EXPECT_FALSE(*head);
}

TEST(MessageTest, ThatIsCutOffIsAnError) {
  Ends ends;
  ASSERT_EQ(::write(ends.a.get(), "ADVR\x05", 5), 5);
  ends.a = Descriptor();
  const auto head = receive_head(ends.b.get(), request_head_max);
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, Code::gone);
}

TEST(MessageTest, OfAnotherProtocolOrTooLongIsRefused) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "ADVR\xff\xff\xff\xff\0\0\0\0\0\0\0\0"}) {
    Ends ends;
    ASSERT_EQ(::write(ends.a.get(), text, 16), 16);
    const auto head = receive_head(ends.b.get(), request_head_max);
    ASSERT_FALSE(head);
    EXPECT_EQ(head.error().code, Code::corrupt);
  }
}

TEST(MessageTest, WhoseHeadIsNoObjectIsRefused) {
  for (const std::string text : {"[1]", "{", "", "7"}) {
    Ends ends;
    const auto prefix = encode({static_cast<std::uint32_t>(text.size()), 0});
    ASSERT_TRUE(send_bytes(ends.a.get(), prefix));
    ASSERT_TRUE(send_bytes(ends.a.get(), std::as_bytes(std::span(text))));
    const auto head = receive_head(ends.b.get(), request_head_max);
    ASSERT_FALSE(head) << text;
    EXPECT_EQ(head.error().code, Code::corrupt);
  }
}

TEST(AddressTest, IsLocalOrOfTcp) {
  auto local = parse_address("unix:/dev/shm/x/readers");
  ASSERT_TRUE(local);
  EXPECT_TRUE(local->local);
  EXPECT_EQ(local->path, "/dev/shm/x/readers");
  auto tcp = parse_address("tcp:[::1]:40");
  ASSERT_TRUE(tcp);
  EXPECT_FALSE(tcp->local);
  EXPECT_EQ(tcp->host, "::1");
  EXPECT_EQ(tcp->port, "40");
  for (const char* bad : {"", "tcp:", "tcp:host", "tcp:host:", "tcp::40", "tcp:host:http", "udp:host:40", "unix:"})
    EXPECT_FALSE(parse_address(bad)) << bad;
}

TEST(Base64Test, GivesBackWhatItTook) {
  Bytes bytes;
  for (int n = 0; n < 300; ++n) {
    const auto back = from_base64(to_base64(bytes));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, bytes);
    bytes.push_back(static_cast<std::byte>(n * 37));
  }
  const std::string text = "any carnal pleas";
  EXPECT_EQ(to_base64(std::as_bytes(std::span(text))), "YW55IGNhcm5hbCBwbGVhcw==");
  for (const char* bad : {"a", "ab?=", "=aaa", "aaaa="}) EXPECT_FALSE(from_base64(bad)) << bad;
}

}  // namespace
}  // namespace advectio::readers
