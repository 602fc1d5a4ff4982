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
  [[nodiscard]] FileToOpen there() const {
    struct stat st {};
    if (::stat(out("a.nc").c_str(), &st) != 0) return {};
    return {out("a.nc"), FileFormat::netcdf4, static_cast<std::uint64_t>(st.st_size),
            static_cast<std::uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000U +
                static_cast<std::uint64_t>(st.st_mtim.tv_nsec)};
  }
  Result<std::unique_ptr<CapturedDataset>> open(Session& s) const { return s.open_file_of_others(there()); }
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

TEST_F(TakenUpTest, ADefinitionThatWasNotCommittedSurvivesTheServersDeath) {
  Program a(run_dir(), [this](Session& s) {
    auto schema = series(width);
    auto d = open(s);
    if (!d || !(*d)->schema(schema) || !(*d)->await_answer() || !(*d)->sync() || !(*d)->wait_visible()) return 1;
    schema.attributes.push_back({"title", DataType::text, 4, Bytes(4), {}});
    if (!(*d)->schema(schema)) return 2;
    (void)!::close(::creat((scratch_ / "defined").c_str(), 0600));
    if (!eventually([&] { return std::filesystem::exists(scratch_ / "enough"); })) return 3;
    return (*d)->close() ? 0 : 4;
  });
  start();
  a.go();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "defined"); }));
  const auto has_read_it = [&] {
    bool all = false;
    change_pages(run_dir(), [&](const auto& stage, const std::string& name, auto&) {
      const auto bytes = read_file(system_files(), stage.datasets() + "/" + name + ".schema");
      const auto stored = bytes ? decode_schema(*bytes) : Result<Schema>(Error(bytes.error()));
      all = stored && stored->attributes.size() == 1;
    });
    return all;
  };
  ASSERT_TRUE(eventually(has_read_it));
  stop();
  start();
  (void)!::close(::creat((scratch_ / "enough").c_str(), 0600));
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(image("a.nc").declared, 1);
  EXPECT_EQ(image("a.nc").commits, 1);
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
    const auto d = s.open_file_of_others({out("a.nc"), FileFormat::netcdf4, 14, 1});
    const auto classic = s.open_file_of_others({out("a.nc"), FileFormat::classic, 14, 1});
    return !d && d.error().code == Code::unsupported && !classic && classic.error().code == Code::unsupported ? 0 : 1;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

/// Several processes open it together.
class TakenUpTogetherTest : public TakenUpTest {
 protected:
  /// As ranks do. Nothing where it is not carried; then nobody has it open.
  std::unique_ptr<SharedDataset> open_together(Session& s, std::uint32_t writer) const {
    const auto file = there();
    auto d = meeting_.meet(s, file.path, writer, &file);
    if (!d || (writer == 0 && !d->schema(series(width)))) return nullptr;
    d->end_collective_call();
    return d;
  }
  static bool put(SharedDataset& d, std::uint32_t writer, std::uint64_t frame, bool synced = true) {
    const auto row = frame * writers + writer;
    const std::vector<float> values(width, static_cast<float>(row));
    const bool done = d.put(0, {{row, 0}, {1, width}}, {}, {values.data(), {}}, 4).ok();
    d.end_collective_call();
    const bool ended = !synced || d.sync().ok();
    if (synced) d.end_collective_call();
    return done && ended;
  }
  void begin(const std::function<int(Session&, std::uint32_t)>& body) {
    for (std::uint32_t w = 0; w < writers; ++w)
      programs_.push_back(std::make_unique<Program>(run_dir(), [body, w](Session& s) { return body(s, w); }));
    start();
    for (auto& p : programs_) p->go();
  }
  void await() {
    for (auto& p : programs_) EXPECT_EQ(p->wait(), ends_with_);
  }
  void run(const std::function<int(Session&, std::uint32_t)>& body) {
    begin(body);
    await();
  }
  void expect_unchanged() {
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(bytes(), "made by others");
    EXPECT_EQ(image("a.nc").commits, 0);
    EXPECT_TRUE(hard_links().empty());
  }
  static constexpr std::uint32_t writers = 3;
  Meeting meeting_{writers};
  std::vector<std::unique_ptr<Program>> programs_;
  int ends_with_ = 0;
};

TEST_F(TakenUpTogetherTest, ItIsGoneOnWith) {
  run([this](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && !d->await_answer())) return 1;
    for (std::uint64_t f = 0; f < 3; ++f)
      if (!put(*d, w, f)) return 2;
    return d->close().ok() ? 0 : 3;
  });
  const auto status = drain();
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 3);
  EXPECT_EQ(image("a.nc").committed.size(), 3 * writers);
  EXPECT_EQ(bytes().substr(0, 14), "made by others");
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(TakenUpTogetherTest, ReadAndNotChangedItIsNotTouched) {
  const auto before = there();
  add_rule("promise").promise = Promise::durable;
  run([this](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && !d->await_answer()) || !d->wait_visible()) return 1;
    d->end_collective_call();
    if (!d->sync()) return 2;
    d->end_collective_call();
    return d->close().ok() ? 0 : 3;
  });
  (void)drain();
  EXPECT_EQ(there().changed_ns, before.changed_ns);
  expect_unchanged();
}

TEST_F(TakenUpTogetherTest, AReadIsNotAnsweredOnceMoreWithWhatWasPutSince) {
  ends_with_ = 128 + SIGKILL;
  const auto is_there = [this](const std::string& what) {
    return eventually([&] { return std::filesystem::exists(scratch_ / what); });
  };
  const auto all_have = [&](const std::string& what) {
    return is_there(what + "0") && is_there(what + "1") && is_there(what + "2");
  };
  const auto say = [this](const std::string& what, std::uint32_t w) {
    (void)!::close(::creat((scratch_ / (what + std::to_string(w))).c_str(), 0600));
  };
  begin([&](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && !d->await_answer()) || !d->wait_visible()) return 1;
    say("read", w);
    // In the same collective call as the read.
    if (!all_have("read") || !put(*d, w, 0, false) || !put(*d, w, 1, false)) return 2;
    say("put", w);
    return is_there("enough0") ? ::kill(::getpid(), SIGKILL) : 3;
  });
  ASSERT_TRUE(all_have("put"));
  stop();
  start();
  say("enough", 0);
  await();
  (void)drain();
  expect_unchanged();
}

TEST_F(TakenUpTogetherTest, WhereTheSinkCannotItStaysAsItIs) {
  store_.refuses_others = true;
  run([this](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && d->await_answer())) return 1;
    if (!d->abort()) return 2;
    return d->hand_over().ok() && s.wait_for_file(out("a.nc"), true) ? 0 : 3;
  });
  EXPECT_EQ(drain()["datasets"].size(), 0U);
  expect_unchanged();
}

TEST_F(TakenUpTogetherTest, ProcessesThatAllDieLeaveIt) {
  ends_with_ = 128 + SIGKILL;
  run([this](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && !d->await_answer())) return 1;
    return ::kill(::getpid(), SIGKILL);
  });
  (void)drain();
  expect_unchanged();
}

TEST_F(TakenUpTogetherTest, TheServersDeathLosesNothing) {
  store_.fail_commit_of = "a.nc";
  run([this](Session& s, std::uint32_t w) {
    auto d = open_together(s, w);
    if (!d || (w == 0 && !d->await_answer())) return 1;
    for (std::uint64_t f = 0; f < 2; ++f) (void)put(*d, w, f);
    (void)d->close();
    return 0;
  });
  stop_after_a_failure();
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 2 * writers);
  EXPECT_EQ(bytes().substr(0, 14), "made by others");
  EXPECT_TRUE(hard_links().empty());
}

}  // namespace
}  // namespace advectio
