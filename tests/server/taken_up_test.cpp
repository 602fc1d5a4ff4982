// A program opens a file for writing that Advectio has not made in this run: the server says whether it goes on with
// it.
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/server_fixture.h"

namespace advectio {
namespace {

class TakenUpTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    store_.files_grow = true;
    config_.outside.events = scratch_ / "events";
    std::ofstream(out("a.nc")) << "made by others";
  }
  DatasetPolicy& add_rule(const std::string& key) {
    DatasetRule rule;
    rule.match = "*.nc";
    rule.origins[key] = "test";
    config_.datasets.push_back(rule);
    return config_.datasets.back().values;
  }
  /// As it is now.
  Result<std::unique_ptr<CapturedDataset>> open(Session& s) const {
    struct stat st {};
    if (::stat(out("a.nc").c_str(), &st) != 0) return system_error("look", errno);
    return s.open_file_of_others(out("a.nc"), FileFormat::netcdf4, static_cast<std::uint64_t>(st.st_size),
                                 static_cast<std::uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000U +
                                     static_cast<std::uint64_t>(st.st_mtim.tv_nsec));
  }
  static bool frame(CapturedDataset& d, std::uint64_t t) {
    const std::vector<float> row(width, static_cast<float>(t));
    return d.put(0, {{t, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok() && d.sync().ok();
  }
  static bool is_finished(Session& s, const std::string& path) {
    return eventually([&] { return !s.is_in_flight(path); });
  }
  /// Those of the file. When it is durable depends on the disk.
  [[nodiscard]] std::vector<std::string> events() const {
    std::ifstream in(scratch_ / "events");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);)
      if (const auto event = json::parse(line); event.contains("path") && event["event"] != "durable")
        all.push_back(event["event"]);
    return all;
  }
  [[nodiscard]] std::string bytes() const {
    std::ifstream in(out("a.nc"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(TakenUpTest, ItIsGoneOnWithByEachProcessThatOpensIt) {
  const auto appends = [this](std::uint64_t t) {
    return [this, t](Session& s) {
      auto d = open(s);
      if (!d) return 1;
      if (!(*d)->schema(series(width)) || !(*d)->await_answer()) return 2;
      if (!frame(**d, t) || !(*d)->close()) return 3;
      // Once more, as its own.
      if (!is_finished(s, out("a.nc"))) return 5;
      auto again = s.reopen(out("a.nc"));
      if (!again || !(*again)->schema(series(width)) || !frame(**again, t + 10) || !(*again)->close()) return 6;
      s.finish();
      return is_finished(s, out("a.nc")) ? 0 : 4;
    };
  };
  Program a(run_dir(), appends(5)), b(run_dir(), appends(6));
  start();
  for (auto* program : {&a, &b}) {
    program->go();
    EXPECT_EQ(program->wait(), 0);
  }
  const auto status = drain();
  ASSERT_EQ(status["datasets"].size(), 1U);
  const auto& row = status["datasets"][0];
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["frames_synced"], 4);
  EXPECT_EQ(row["frames_visible"], 4);
  EXPECT_EQ(row["bytes_put"], 4 * width * sizeof(float));
  EXPECT_EQ(image("a.nc").committed, (std::map<std::uint64_t, float>{{5, 5.0F}, {6, 6.0F}, {15, 15.0F}, {16, 16.0F}}));
  const std::vector<std::string> opening = {"begun", "frame", "complete"};
  std::vector<std::string> expected;
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), opening.begin(), opening.end());
  EXPECT_EQ(events(), expected);
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(TakenUpTest, WhereTheSinkCannotItStaysAsItIsAndNobodyIsTold) {
  store_.refuses_others = true;
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    if (!d || !(*d)->schema(series(width))) return 1;
    const auto answer = (*d)->await_answer();
    if (answer || answer.error().code != Code::unsupported || answer.error().message != "the chunks are not ours")
      return 2;
    if (!(*d)->abort()) return 3;
    return s.wait_for_file(out("a.nc"), true) ? 0 : 4;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(drain()["datasets"].size(), 0U);
  EXPECT_EQ(bytes(), "made by others");
  EXPECT_TRUE(events().empty());
  EXPECT_TRUE(hard_links().empty());
  EXPECT_EQ(image("a.nc").commits, 0);
}

TEST_F(TakenUpTest, OpenedAndNotChangedItIsNotTouched) {
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(out("a.nc").c_str(), &before), 0);
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    if (!d || !(*d)->schema(series(width)) || !(*d)->await_answer() || !(*d)->sync()) return 1;
    if (!(*d)->wait_visible() || !(*d)->close()) return 2;
    return is_finished(s, out("a.nc")) ? 0 : 3;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  ASSERT_EQ(::stat(out("a.nc").c_str(), &after), 0);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(image("a.nc").commits, 0);
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(TakenUpTest, ASyncOfWhatWasNotChangedIsDurable) {
  add_rule("promise").promise = Promise::durable;
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    return d && (*d)->schema(series(width)) && (*d)->await_answer() && (*d)->sync() && (*d)->close() ? 0 : 1;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

TEST_F(TakenUpTest, ARuleThatAsksForAnotherFormatIsTheAnswer) {
  add_rule("format").format = FileFormat::classic;
  Program a(run_dir(), [this](Session& s) {
    auto schema = series(width);
    schema.variables[0].type = DataType::uint64;  // no classic file can hold it
    auto d = open(s);
    if (!d || !(*d)->schema(schema) || (*d)->await_answer() || !(*d)->abort()) return 1;
    return is_finished(s, out("a.nc")) && s.wait_for_file(out("a.nc"), false) ? 0 : 2;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(drain()["datasets"].size(), 0U);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(bytes(), "made by others");
}

TEST_F(TakenUpTest, TwoThatOpenItAtOnceAreNotBothLet) {
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    const auto again = open(s);
    return d && !again && again.error().code == Code::unsupported && (*d)->abort() ? 0 : 1;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

TEST_F(TakenUpTest, AProgramThatDiesMeanwhileLeavesTheFile) {
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    if (!d || !(*d)->schema(series(width))) return 1;
    ::kill(::getpid(), SIGKILL);
    return 2;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(bytes(), "made by others");
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(TakenUpTest, TheServersDeathLosesNothing) {
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    if (!d || !(*d)->schema(series(width)) || !(*d)->await_answer()) return 1;
    (void)(frame(**d, 1) && frame(**d, 2));
    (void)(*d)->close();
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  stop_after_a_failure();
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 2U);
  EXPECT_EQ(bytes().substr(0, 14), "made by others");
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(TakenUpTest, AnotherProcessMeanwhileIsRefusedAsByHdf5) {
  Program a(run_dir(), [this](Session& s) {
    auto d = open(s);
    if (!d || !(*d)->schema(series(width)) || !(*d)->await_answer() || !frame(**d, 1)) return 1;
    (void)!::close(::creat((scratch_ / "open").c_str(), 0600));
    if (!eventually([&] { return std::filesystem::exists(scratch_ / "refused"); })) return 2;
    return frame(**d, 2) && (*d)->close() ? 0 : 3;
  });
  Program b(run_dir(), [this](Session& s) {
    const auto waited = s.wait_for_file(out("a.nc"), true);
    (void)!::close(::creat((scratch_ / "refused").c_str(), 0600));
    return !waited && waited.error().sys == EACCES ? 0 : 1;
  });
  start();
  a.go();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "open"); }));
  b.go();
  EXPECT_EQ(b.wait(), 0);
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(image("a.nc").committed.size(), 2U);
}

TEST_F(TakenUpTest, AFileThatHasChangedSinceItWasLookedAtIsTheLibrarys) {
  Program a(run_dir(), [this](Session& s) {
    const auto d = s.open_file_of_others(out("a.nc"), FileFormat::netcdf4, 14, 1);
    const auto classic = s.open_file_of_others(out("a.nc"), FileFormat::classic, 14, 1);
    return !d && d.error().code == Code::unsupported && !classic && classic.error().code == Code::unsupported ? 0 : 1;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

}  // namespace
}  // namespace advectio
