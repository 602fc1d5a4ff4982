#include "readers/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "readers/client.h"
#include "readers/live_frames.h"

namespace advectio::readers {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

constexpr auto patience = std::chrono::seconds(5);
const DatasetKey served{7, 1};
const std::string served_path = "/run/wrfout_d01";
constexpr std::uint64_t served_inode = 4711;
const std::string secret = "0123456789abcdef0123456789abcdef";

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("advectio_service_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    store_ = std::move(FrameStore::open(directory_ + "/frames", 1 << 20)).value();
    open();
  }
  void open(std::chrono::milliseconds message_max = std::chrono::milliseconds(50),
            std::chrono::milliseconds group_max = std::chrono::milliseconds(0)) {
    ServiceOptions o;
    o.message_max = message_max;
    o.group_max = group_max;
    o.socket = directory_ + "/readers";
    o.listen = {"tcp:127.0.0.1:0"};
    o.secret = secret;
    o.run_dir = directory_;
    auto s = Service::open(*store_, o, log_);
    ASSERT_TRUE(s) << s.error().message;
    service_ = std::move(*s);
    ASSERT_TRUE(service_->write_contact(directory_ + "/contact", json::array({service_->contact()})));
  }
  void TearDown() override {
    service_.reset();
    std::filesystem::remove_all(directory_);
  }
  [[nodiscard]] Address address(bool tcp) const {
    if (!tcp) return *parse_address("unix:" + directory_ + "/readers");
    std::ifstream in(directory_ + "/contact");
    return *parse_address(json::parse(in)["nodes"][0]["addresses"][0].get<std::string>());
  }
  std::unique_ptr<Client> client(bool tcp, const std::string& shown = secret) {
    auto c = Client::connect(address(tcp), shown, "test", patience);
    return c ? std::move(*c) : nullptr;
  }
  void put(std::uint64_t number, bool with_static = false) {
    store_->publish(served, served_path, FileFormat::netcdf4, number, {{number, number + 1}},
                    live_frame(number, with_static), served_inode);
    store_->set_visible(served, number + 1);
  }
  static std::uint64_t subscribe(Client& c, const std::string& policy = "wait") {
    return (*c.ask({{"do", "subscribe"}, {"match", {"wrfout*"}}, {"policy", policy}}))["subscription"];
  }
  static std::uint64_t subscribe_to_group(Client& c) {
    return (*c.ask({{"do", "subscribe"}, {"match", {"wrfout*"}}, {"group", "farm"}}))["subscription"];
  }
  static json next(Client& c, std::uint64_t subscription, int wait_ms = 5000) {
    auto reply = c.ask({{"do", "next"}, {"subscription", subscription}, {"wait_ms", wait_ms}});
    return reply ? *reply : json{{"error", reply.error().message}};
  }
  std::string directory_;
  Log log_{LogLevel::error};
  std::unique_ptr<FrameStore> store_;
  std::unique_ptr<Service> service_;
};

class OverBothTest : public ServiceTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Tcp, OverBothTest, ::testing::Bool());

TEST_P(OverBothTest, AReaderGetsTheValuesOfAFrame) {
  auto c = client(GetParam());
  ASSERT_NE(c, nullptr);
  const auto s = subscribe(*c);
  put(3, true);
  const auto frame = next(*c, s)["frame"];
  EXPECT_EQ(frame["number"], 3);
  EXPECT_EQ(frame["path"], served_path);
  EXPECT_EQ(frame["inode"], served_inode);
  EXPECT_EQ(frame["records"], json({3, 4}));
  EXPECT_TRUE(frame["in_memory"]);
  float t[6] = {};
  auto read = c->read(frame["frame"], 0, {Box{{3, 0}, {1, 6}}}, std::as_writable_bytes(std::span(t)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(t, ElementsAre(300, 301, 302, 303, 304, 305));
  float some[2] = {};
  ASSERT_TRUE(c->read(frame["frame"], 0, Part(Box{{3, 1}, {1, 2}}, {1, 3}), std::as_writable_bytes(std::span(some))));
  EXPECT_THAT(some, ElementsAre(301, 304));
  std::int32_t h[6] = {};
  ASSERT_TRUE(c->read(frame["frame"], 1, {Box{{0}, {6}}}, std::as_writable_bytes(std::span(h))));
  EXPECT_THAT(h, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(OverBothTest, WhatNobodyHasPutIsTheFillValue) {
  auto c = client(GetParam());
  const auto s = subscribe(*c);
  put(0);
  const auto frame = next(*c, s)["frame"];
  std::int32_t h[6] = {};
  ASSERT_TRUE(c->read(frame["frame"], 1, {Box{{0}, {6}}}, std::as_writable_bytes(std::span(h))));
  for (const auto x : h) EXPECT_EQ(x, -2147483647);
}

TEST_P(OverBothTest, MistakesGetAnErrorAndTheConnectionGoesOn) {
  auto c = client(GetParam());
  const auto s = subscribe(*c);
  put(0);
  const std::uint64_t frame = next(*c, s)["frame"]["frame"];
  float t[6] = {};
  const auto into = std::as_writable_bytes(std::span(t));
  EXPECT_FALSE(c->read(frame + 1, 0, {Box{{0, 0}, {1, 6}}}, into));
  EXPECT_FALSE(c->read(frame, 9, {Box{{0, 0}, {1, 6}}}, into));
  EXPECT_FALSE(c->read(frame, 0, {Box{{0}, {6}}}, into));
  EXPECT_FALSE(c->ask({{"do", "next"}, {"subscription", 99}}));
  EXPECT_FALSE(c->ask({{"do", "schema"}, {"schema", 99}}));
  EXPECT_FALSE(c->ask({{"do", "read"}, {"frame", frame}, {"variable", 0}, {"start", {0, 4}}, {"count", {1, 6}}}));
  EXPECT_FALSE(c->ask({{"do", "sing"}}));
  EXPECT_TRUE(c->read(frame, 0, {Box{{0, 0}, {1, 6}}}, into));
  EXPECT_EQ(t[5], 5);
}

TEST_P(OverBothTest, AFrameThatWasLetGoIsAnError) {
  auto c = client(GetParam());
  const auto s = subscribe(*c);
  put(0);
  const std::uint64_t frame = next(*c, s)["frame"]["frame"];
  c->done(frame);
  float t[6] = {};
  const auto read = c->read(frame, 0, {Box{{0, 0}, {1, 6}}}, std::as_writable_bytes(std::span(t)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::not_found);
}

TEST_P(OverBothTest, WithoutTheSecretNobodyIsHeard) {
  EXPECT_EQ(client(GetParam(), "0123456789abcdef0123456789abcdeX"), nullptr);
  EXPECT_EQ(client(GetParam(), ""), nullptr);
}

TEST_F(ServiceTest, AServerThatIsStoppedMakesNobodyWaitForEver) {
  // The kernel takes connections for a stopped process, as for one that never accepts them.
  const std::string socket_path = directory_ + "/stopped";
  const Descriptor listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  socket_path.copy(at.sun_path, sizeof at.sun_path - 1);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listening.get(), 4), 0);
  const auto client =
      Client::connect(*parse_address("unix:" + socket_path), secret, "test", std::chrono::milliseconds(20));
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Code::timeout);
}

TEST_P(OverBothTest, SeveralRequestsMayWaitAtATime) {
  auto c = client(GetParam());
  const auto s = subscribe(*c);
  std::thread waiting([&] { EXPECT_EQ(next(*c, s)["frame"]["number"], 0); });
  EXPECT_TRUE(c->ask({{"do", "list"}}));
  put(0);
  waiting.join();
  EXPECT_EQ(next(*c, s, 1), (json{{"id", 5}, {"timeout", true}}));
}

TEST_F(ServiceTest, AReaderOfThisNodeSeesTheMemoryItself) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  const std::uint64_t frame = next(*c, s)["frame"]["frame"];
  auto view = c->view(frame, 0, {Box{{0, 3}, {1, 3}}});
  ASSERT_TRUE(view);
  ASSERT_EQ(view->first.size(), 12U);
  float t[3] = {};
  std::memcpy(t, view->first.data(), sizeof t);
  EXPECT_THAT(t, ElementsAre(3, 4, 5));
  auto across = c->view(frame, 0, {Box{{0, 0}, {1, 6}}});
  ASSERT_TRUE(across);
  EXPECT_TRUE(across->first.empty()) << "it lies in two pieces";
  EXPECT_EQ(c->ask({{"do", "status"}})->at("readers")[0]["bytes_sent"], 0);
}

TEST_F(ServiceTest, MappedMemoryStaysAsLongAsItIsLookedAt) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  const std::uint64_t frame = next(*c, s)["frame"]["frame"];
  auto view = c->view(frame, 0, {Box{{0, 0}, {1, 3}}});
  ASSERT_TRUE(view && !view->first.empty());
  c->done(frame);
  c.reset();
  service_.reset();
  float t = 0;
  std::memcpy(&t, view->first.data() + 8, sizeof t);
  EXPECT_EQ(t, 2);
}

TEST_F(ServiceTest, AReaderHoldsOnlySoManyFramesInMemory) {
  auto c = client(false);
  const auto s = subscribe(*c);
  for (std::uint64_t k = 0; k < 10; ++k) put(k);
  std::vector<bool> in_memory;
  for (int k = 0; k < 10; ++k) in_memory.push_back(next(*c, s)["frame"]["in_memory"]);
  EXPECT_EQ(std::count(in_memory.begin(), in_memory.end(), true), 8);
  EXPECT_TRUE(in_memory.front());
  EXPECT_FALSE(in_memory.back());
}

TEST_F(ServiceTest, WhoGoesLetsGoOfItsFrames) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  (void)next(*c, s);
  EXPECT_EQ(store_->held_bytes(), 24U);
  c.reset();
  for (int i = 0; i < 500 && store_->held_bytes() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(store_->held_bytes(), 0U);
}

TEST_F(ServiceTest, TheEndSaysWhichFramesAreLeftInTheFiles) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  put(1);
  (void)next(*c, s);
  service_->finish();
  const auto end = c->end(true);
  ASSERT_TRUE(end.is_object());
  ASSERT_EQ(end["frames"].size(), 1U);
  EXPECT_EQ(end["frames"][0]["number"], 1);
  EXPECT_EQ(end["frames"][0]["inode"], served_inode);
  EXPECT_EQ(end["frames"][0]["subscription"], s);
}

/// Many that have asked for nothing since, so that one of them would hear of the end first.
TEST_F(ServiceTest, WhatAGroupHasNotTakenGoesToAMemberThatAsks) {
  service_.reset();
  open(std::chrono::seconds(20), std::chrono::seconds(20));
  std::vector<std::unique_ptr<Client>> stopped;
  for (int i = 0; i < 20; ++i) (void)subscribe_to_group(*stopped.emplace_back(client(false)));
  auto c = client(false);
  const auto s = subscribe_to_group(*c);
  for (std::uint64_t k = 0; k < 3; ++k) put(k);
  std::thread ending([&] { service_->finish(); });
  while (!store_->ended()) std::this_thread::yield();
  EXPECT_EQ(next(*c, s)["frame"]["number"], 0);
  ending.join();
  EXPECT_EQ(c->end(true)["frames"].size(), 2U);
  for (auto& one : stopped) EXPECT_TRUE(one->end(true)["frames"].empty());
}

TEST_F(ServiceTest, WhereNoMemberOfAGroupAsksTheOneThatWasHeardLastGetsWhatIsLeft) {
  service_.reset();
  open(std::chrono::seconds(20));
  std::vector<std::unique_ptr<Client>> members;
  for (int i = 0; i < 20; ++i) (void)subscribe_to_group(*members.emplace_back(client(false)));
  put(0);
  (void)members[10]->ask({{"do", "status"}});
  service_->finish();
  for (std::size_t i = 0; i < members.size(); ++i)
    EXPECT_EQ(members[i]->end(true)["frames"].size(), i == 10 ? 1U : 0U) << i;
}

TEST_F(ServiceTest, AReaderElsewhereGetsTheRestBeforeTheEnd) {
  auto c = client(true);
  const auto s = subscribe(*c);
  put(0);
  put(1);
  std::thread ending([&] { service_->finish(); });
  for (std::uint64_t k = 0; k < 2; ++k) {
    const auto frame = next(*c, s)["frame"];
    ASSERT_EQ(frame["number"], k);
    EXPECT_TRUE(frame["in_memory"]);
    float t[6] = {};
    EXPECT_TRUE(c->read(frame["frame"], 0, {Box{{k, 0}, {1, 6}}}, std::as_writable_bytes(std::span(t))));
    EXPECT_EQ(t[1], value_of(k, 1));
    c->done(frame["frame"]);
  }
  ending.join();
  EXPECT_TRUE(c->end(true)["frames"].empty());
}

TEST_F(ServiceTest, ValuesComeOverUcxWhereAReaderWantsThat) {
  auto c = Client::connect(address(true), secret, "test", patience, true);
  if (!c && c.error().code == Code::unsupported) GTEST_SKIP() << c.error().message;
  ASSERT_TRUE(c) << c.error().message;
  const auto s = subscribe(**c);
  for (std::uint64_t k = 0; k < 3; ++k) {
    put(k);
    const auto frame = next(**c, s)["frame"];
    float t[6] = {};
    auto read = (*c)->read(frame["frame"], 0, {Box{{k, 0}, {1, 6}}}, std::as_writable_bytes(std::span(t)));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(t[5], value_of(k, 5));
    EXPECT_FALSE((*c)->read(frame["frame"], 9, {Box{{k, 0}, {1, 6}}}, std::as_writable_bytes(std::span(t))));
    (*c)->done(frame["frame"]);
  }
}

TEST_F(ServiceTest, AnAddressThatIsNoneOfUcxIsSaid) {
  auto socket = connect_to(address(true), patience);
  ASSERT_TRUE(socket);
  ASSERT_TRUE(send_head(socket->get(), {{"id", 1}, {"do", "hello"}, {"secret", secret}, {"ucx", "nonsense!"}}));
  auto head = receive_head(socket->get(), request_head_max);
  ASSERT_TRUE(head && *head);
  EXPECT_FALSE((**head).object.at("ucx"));
  EXPECT_FALSE((**head).object.at("ucx_error").get<std::string>().empty());
}

TEST_F(ServiceTest, BytesThatAreNoMessagesHarmNobody) {
  auto c = client(false);
  const auto s = subscribe(*c);
  for (const std::string text : {"", "ADVR", "GET / HTTP/1.1\r\n\r\n", "ADVR\xff\xff\xff\x7f\0\0\0\0\0\0\0\0"}) {
    auto liar = connect_to(address(true), patience);
    ASSERT_TRUE(liar);
    (void)send_bytes(liar->get(), std::as_bytes(std::span(text)));
  }
  auto stopped = connect_to(address(true), patience);  // says nothing, and stays
  ASSERT_TRUE(stopped);
  put(0);
  EXPECT_EQ(next(*c, s)["frame"]["number"], 0);
}

TEST_F(ServiceTest, WhoStopsWithinAMessageIsCutOffAtTheEnd) {
  auto half = connect_to(address(false), patience);  // sends half a message
  ASSERT_TRUE(half);
  ASSERT_TRUE(send_bytes(half->get(), std::as_bytes(std::span("ADVR", 4))));
  auto deaf = connect_to(address(false), patience);  // asks, and takes no answer
  ASSERT_TRUE(deaf);
  ASSERT_TRUE(send_head(deaf->get(), {{"id", 1}, {"do", "hello"}, {"protocol", 1}, {"secret", secret}}));
  const std::string text = R"({"id": 2, "do": "status"})";
  const auto prefix = encode({static_cast<std::uint32_t>(text.size()), 0});
  const auto request = std::string(reinterpret_cast<const char*>(prefix.data()), prefix.size()) + text;
  pollfd room{deaf->get(), POLLOUT, 0};
  while (::poll(&room, 1, 300) > 0)
    (void)!::send(deaf->get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  std::thread ending([&] { service_->finish(); });
  for (const auto* one : {&*half, &*deaf}) {
    pollfd cut{one->get(), POLLRDHUP, 0};
    EXPECT_EQ(::poll(&cut, 1, 20'000), 1) << "the run has ended long ago";
  }
  ending.join();
}

TEST_F(ServiceTest, WhatReachesBeyondTheFrameIsNotRead) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  const auto frame = next(*c, s)["frame"]["frame"];
  const auto reply =
      c->ask({{"do", "read"}, {"frame", frame}, {"variable", 0}, {"start", {0, 0}}, {"count", {1ULL << 50, 6}}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::invalid);
  EXPECT_EQ(reply.error().message, "T: the frame does not reach that far along Time");
}

TEST_F(ServiceTest, WhoHasUnsubscribedKeepsWhatItHasAndNothingWaitsForIt) {
  auto c = client(false);
  const auto s = subscribe(*c);
  put(0);
  const auto frame = next(*c, s)["frame"]["frame"];
  ASSERT_TRUE(c->ask({{"do", "unsubscribe"}, {"subscription", s}}));
  EXPECT_FALSE(store_->is_wanted(served_path));
  std::vector<float> values(6);
  EXPECT_TRUE(c->read(frame, 0, {{{0, 0}, {1, 6}}}, std::as_writable_bytes(std::span(values))));
  EXPECT_EQ(next(*c, s)["error"], "there is no subscription " + std::to_string(s));
  EXPECT_FALSE(c->ask({{"do", "unsubscribe"}, {"subscription", s}}));
}

TEST_F(ServiceTest, ANetworkInPlaceOfAHostIsThisNodesAddressInIt) {
  const auto listen = [this](const std::string& address) {
    ServiceOptions o;
    o.socket = directory_ + "/other";
    o.listen = {address};
    o.secret = secret;
    return Service::open(*store_, o, log_);
  };
  {
    const auto there = listen("tcp:127.0.0.0/8:0");
    ASSERT_TRUE(there) << there.error().message;
    const auto contact = (*there)->contact();
    EXPECT_EQ(contact["addresses"][0].get<std::string>().rfind("tcp:127.0.0.1:", 0), 0U) << contact.dump();
  }
  const auto nowhere = listen("tcp:255.255.255.255/32:0");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::not_found);
  EXPECT_NE(nowhere.error().message.find("has no address in 255.255.255.255/32"), std::string::npos);
  for (const std::string wrong : {"10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "host/8", "[fd00::/129]"}) {
    const auto refused = listen("tcp:" + wrong + ":0");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, Code::invalid) << refused.error().message;
  }
}

TEST_F(ServiceTest, TheServerAfterOneThatWasStoppedWaitsForItsReaders) {
  auto stays = client(false), leaves = client(false);
  for (auto* c : {stays.get(), leaves.get()})
    ASSERT_TRUE(c->ask({{"do", "subscribe"}, {"match", {"*"}}, {"reader", c == stays.get() ? "stays" : "leaves"}}));
  ASSERT_TRUE(leaves->ask({{"do", "unsubscribe"}, {"subscription", 1}}));
  service_.reset();
  store_ = std::move(FrameStore::open(directory_ + "/frames", 1 << 20)).value();
  open();
  EXPECT_FALSE(store_->readers_are_back());
  stays = client(false);
  ASSERT_TRUE(stays->ask({{"do", "subscribe"}, {"match", {"*"}}, {"reader", "stays"}}));
  EXPECT_TRUE(store_->readers_are_back());
}

TEST_F(ServiceTest, TheContactFileIsForItsUserAloneAndGoesWithTheServer) {
  const auto contact = directory_ + "/contact";
  const auto mode = std::filesystem::status(contact).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  service_.reset();
  EXPECT_FALSE(std::filesystem::exists(contact));
}

}  // namespace
}  // namespace advectio::readers
