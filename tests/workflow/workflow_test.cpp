// Coupled files as programs of a workflow see them, without programs: who waits for what, and what is told of whom.
#include "workflow/workflow.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "workflow/members.h"
#include "workflow/versions.h"

namespace advectio::workflow {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;

/// A registry of its own, and a directory for the programs' names.
class WorkflowTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/advectio-workflow-XXXXXX";
    top_ = ::mkdtemp(name);
    for (const char* below : {"memory/members", "memory/waits", "memory/files", "here"})
      fs::create_directories(top_ + "/" + below);
    rules_ = {rule("*.nc", {"a"}, {"b"})};
  }
  void TearDown() override {
    for (const int fd : locks_) ::close(fd);
    fs::remove_all(top_);
  }

  static CoupleRule rule(const std::string& match, std::vector<std::string> from, std::vector<std::string> to) {
    CoupleRule r;
    r.match = match;
    r.from = std::move(from);
    r.to = std::move(to);
    return r;
  }
  /// A program that lives.
  std::unique_ptr<Workflow> come(const std::string& name) {
    Settings s;
    s.memory = memory();
    s.directory = "/w";
    s.name = name;
    s.entry = name + "," + std::to_string(++members_);
    s.wait_max = wait_max_;
    s.restart_max = milliseconds(1);
    s.rules = rules_;
    const int fd = ::open((memory() + "/members/" + s.entry).c_str(), O_RDWR | O_CREAT, 0600);
    EXPECT_EQ(::flock(fd, LOCK_EX), 0);
    locks_.push_back(fd);
    return std::make_unique<Workflow>(s);
  }
  /// The latest that came ends; without a code it dies.
  void go(std::optional<int> code = {}) {
    if (code) (void)!::write(locks_.back(), ("ended " + std::to_string(*code) + "\n").data(), 8);
    ::close(locks_.back());
    locks_.pop_back();
  }
  [[nodiscard]] std::string memory() const { return top_ + "/memory"; }
  [[nodiscard]] std::string path(const std::string& name) const { return top_ + "/here/" + name; }
  static void write(const std::string& at, const std::string& text) { std::ofstream(at) << text; }
  static std::string text(const std::string& at) {
    std::ifstream in(at);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(Workflow& w, const std::string& name, const std::string& what) {
    auto opened = w.create(*w.of(name), false);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    write(opened->path, what);
    ASSERT_TRUE(w.close(*opened, true).ok());
  }
  static std::string get(Workflow& w, const std::string& name) {
    auto opened = w.open_to_read(*w.of(name), [](const auto&) {});
    if (!opened) return "error: " + opened.error().message;
    auto what = text(opened->path);
    EXPECT_TRUE(w.close(*opened, true).ok());
    return what;
  }

  std::string top_;
  std::vector<CoupleRule> rules_;
  milliseconds wait_max_{30'000};
  std::vector<int> locks_;
  int members_ = 0;
};

TEST_F(WorkflowTest, OnlyNamesOfARuleAreCoupled) {
  rules_ = {rule("hist.{m}.nc", {"fc-{m}"}, {"an"})};
  const auto fc = come("fc-07"), an = come("an"), other = come("fc-08");
  EXPECT_TRUE(fc->of(path("hist.07.nc"))->writes);
  EXPECT_FALSE(fc->of(path("hist.07.nc"))->reads);
  EXPECT_TRUE(an->of(path("hist.07.nc"))->reads);
  EXPECT_EQ(an->of(path("hist.07.nc"))->from, std::vector<std::string>{"fc-07"});
  EXPECT_FALSE(other->of(path("hist.07.nc")));
  EXPECT_FALSE(an->of(path("hist.07.txt")));
  EXPECT_FALSE(an->of(memory() + "/files/hist.07.nc"));
}

TEST_F(WorkflowTest, NamesAreComparedAfterResolvingDirectories) {
  const auto a = come("a");
  fs::create_directory_symlink(top_ + "/here", top_ + "/link");
  EXPECT_EQ(a->of(top_ + "/link/x.nc")->path, a->of(top_ + "/here/../here/x.nc")->path);
}

TEST_F(WorkflowTest, SettingsComeThroughTheirLines) {
  rules_[0].exclude = {"*0000*", "tmp*"};
  rules_[0].variables = {"T", "Q*"};
  rules_[0].mode = CoupleRule::Mode::memory_and_file;
  rules_[0].origin = "x.yaml:3";
  const auto a = come("a");
  Settings back;
  std::istringstream in(a->settings().to_lines());
  for (std::string line; std::getline(in, line);) EXPECT_TRUE(back.take_line(line)) << line;
  EXPECT_EQ(back.to_lines(), a->settings().to_lines());
  EXPECT_EQ(back.rules, rules_);
  EXPECT_FALSE(back.take_line("rule 1 - - - - *"));
}

TEST_F(WorkflowTest, AReaderWaitsUntilTheFileIsComplete) {
  const auto a = come("a"), b = come("b");
  auto opened = a->create(*a->of(path("x.nc")), false);
  ASSERT_TRUE(opened.ok());
  write(opened->path, "half");
  std::string got;
  std::thread reader([&] { got = get(*b, path("x.nc")); });
  while (waits_in(memory()).empty()) std::this_thread::yield();
  EXPECT_EQ(waits_in(memory())[0].member, "b");
  EXPECT_EQ(waits_in(memory())[0].programs, std::vector<std::string>{"a"});
  write(opened->path, "whole");
  ASSERT_TRUE(a->close(*opened, true).ok());
  reader.join();
  EXPECT_EQ(got, "whole");
  EXPECT_TRUE(waits_in(memory()).empty());
}

TEST_F(WorkflowTest, WhoHasAVersionOpenKeepsItWhenTheNextComes) {
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "one");
  auto first = b->open_to_read(*b->of(path("x.nc")), [](const auto&) {});
  ASSERT_TRUE(first.ok());
  put(*a, path("x.nc"), "two");
  EXPECT_EQ(text(first->path), "one");
  EXPECT_EQ(get(*b, path("x.nc")), "two");
  ASSERT_TRUE(b->close(*first, true).ok());
  EXPECT_FALSE(fs::exists(first->path));
}

// As where the run has been killed, and the library goes on with what should have been captured.
TEST_F(WorkflowTest, WhatALibraryWritesToTheDiskIsAVersionInMemoryToo) {
  rules_[0].mode = CoupleRule::Mode::memory_and_file;
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "one");
  auto first = b->open_to_read(*b->of(path("x.nc")), [](const auto&) {});
  ASSERT_TRUE(first.ok());
  put(*a, path("x.nc"), "two");  // into the same file on the disk
  EXPECT_EQ(text(path("x.nc")), "two");
  EXPECT_EQ(text(first->path), "one");
  EXPECT_EQ(get(*b, path("x.nc")), "two");
  ASSERT_TRUE(b->close(*first, true).ok());
}

TEST_F(WorkflowTest, WhatCannotBeCopiedIntoMemoryIsAnErrorAndNobodyWaitsForIt) {
  rules_[0].mode = CoupleRule::Mode::memory_and_file;
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "old");
  auto opened = a->create(*a->of(path("x.nc")), false);
  ASSERT_TRUE(opened.ok());
  fs::remove(path("x.nc"));
  const auto closed = a->close(*opened, true);
  ASSERT_FALSE(closed.ok());
  EXPECT_THAT(closed.error().message, HasSubstr(path("x.nc")));
  EXPECT_EQ(get(*b, path("x.nc")), "old");
  put(*a, path("x.nc"), "new");
  EXPECT_EQ(get(*b, path("x.nc")), "new");
}

/// A file that a program opens by itself: its descriptor.
int open_plainly(Workflow& w, const std::string& name, const Workflow::PlainOpen& how, int flags) {
  auto opened = w.open_plainly(*w.of(name), how, [](const auto&) {});
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return opened ? ::open(opened->path.c_str(), flags | O_CLOEXEC, 0600) : -1;
}
constexpr Workflow::PlainOpen anew{true, true, false}, as_it_is{false, false, false};

TEST_F(WorkflowTest, WhatIsWrittenWithoutALibraryIsAVersionAsSoonAsNobodyHasItOpen) {
  for (const auto mode : {CoupleRule::Mode::memory, CoupleRule::Mode::memory_and_file, CoupleRule::Mode::file}) {
    rules_ = {rule("*.nc", {"a"}, {"b"})};
    rules_[0].mode = mode;
    const auto a = come("a"), b = come("b");
    const auto name = path(std::to_string(static_cast<int>(mode)) + ".nc");
    put(*a, name, "old");
    const int fd = open_plainly(*a, name, anew, O_WRONLY | O_CREAT | O_TRUNC);
    ASSERT_EQ(::write(fd, "new", 3), 3);
    const int other = ::dup(fd);
    EXPECT_EQ(get(*a, name), "new");  // as on the disk
    ::close(fd);
    EXPECT_EQ(Versions::in(a->of(name)->directory).newest, 1U);
    std::string got;
    std::thread reader([&] { got = get(*b, name); });
    while (waits_in(memory()).empty()) std::this_thread::yield();
    ::close(other);
    reader.join();
    EXPECT_EQ(got, "new");
    EXPECT_EQ(Versions::in(a->of(name)->directory).newest, 2U);
    EXPECT_EQ(fs::exists(name), mode != CoupleRule::Mode::memory);
  }
}

/// No file may be longer while one lives.
class ShortFiles {
 public:
  explicit ShortFiles(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit now{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~ShortFiles() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }
  ShortFiles(const ShortFiles&) = delete;
  ShortFiles& operator=(const ShortFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_F(WorkflowTest, WhatIsWrittenWithoutALibraryAndCannotBeCopiedIntoMemoryIsSaid) {
  rules_[0].mode = CoupleRule::Mode::memory_and_file;
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "old");
  const std::string large(100'000, 'n');
  const auto write_plainly = [&] {
    const int fd = open_plainly(*a, path("x.nc"), anew, O_WRONLY | O_CREAT | O_TRUNC);
    ASSERT_EQ(::write(fd, large.data(), large.size()), static_cast<ssize_t>(large.size()));
    ::close(fd);
  };
  std::vector<std::string> said;
  const auto read = [&] {
    auto opened = b->open_to_read(*b->of(path("x.nc")), [&said](const auto& text) { said.push_back(text); });
    EXPECT_TRUE(opened.ok());
    auto what = opened ? text(opened->path) : std::string();
    if (opened) {
      EXPECT_TRUE(b->close(*opened, true).ok());
    }
    return what;
  };
  // The program that reads says it, or the server of the one that writes.
  for (const bool by_reader : {true, false}) {
    SCOPED_TRACE(by_reader);
    write_plainly();
    said.clear();
    {
      const ShortFiles at_most(50'000);
      if (!by_reader)
        EXPECT_TRUE(
            a->settle_own([](const auto&) { return false; }, [&said](const auto& text) { said.push_back(text); })
                .empty());
      EXPECT_EQ(read(), "old");
    }
    ASSERT_EQ(said.size(), 1U);
    EXPECT_THAT(said[0], HasSubstr(path("x.nc") + ": no other program gets what was written"));
    EXPECT_THAT(said[0], HasSubstr("File too large"));
  }
  write_plainly();
  EXPECT_EQ(read(), large);
}

TEST_F(WorkflowTest, AFileIsPublishedOnceHoweverManyLookAtIt) {
  const auto a = come("a"), b = come("b");
  const int fd = open_plainly(*a, path("x.nc"), anew, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<std::thread> readers;
  for (int k = 0; k < 4; ++k) readers.emplace_back([&] { EXPECT_EQ(get(*b, path("x.nc")), "new"); });
  std::thread server([&] {
    while (!a->settle_own([](const auto&) { return false; }, {}).empty()) std::this_thread::yield();
  });
  ASSERT_EQ(::write(fd, "new", 3), 3);
  ::close(fd);
  for (auto& reader : readers) reader.join();
  server.join();
  EXPECT_EQ(Versions::in(a->of(path("x.nc"))->directory).newest, 1U);
  EXPECT_TRUE(fs::is_empty(memory() + "/pending"));
}

TEST_F(WorkflowTest, AFileThatIsOpenedForWritingAndNotChangedIsNoVersion) {
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "old");
  ::close(open_plainly(*a, path("x.nc"), as_it_is, O_RDWR));
  EXPECT_EQ(get(*b, path("x.nc")), "old");
  EXPECT_EQ(Versions::in(a->of(path("x.nc"))->directory).newest, 1U);
  const int fd = open_plainly(*a, path("x.nc"), as_it_is, O_RDWR);
  ASSERT_EQ(::write(fd, "n", 1), 1);
  ::close(fd);
  EXPECT_EQ(get(*b, path("x.nc")), "nld");
}

TEST_F(WorkflowTest, WhatADeadRunWasWritingIsNoVersion) {
  auto b = come("b");
  put(*come("a"), path("x.nc"), "old");
  const auto a = come("a");
  ::close(open_plainly(*a, path("x.nc"), anew, O_WRONLY | O_CREAT | O_TRUNC));
  go();
  EXPECT_EQ(get(*b, path("x.nc")), "old");
}

TEST_F(WorkflowTest, WhatTheServerStillWritesIsPublishedByItAlone) {
  const auto a = come("a"), b = come("b");
  write(path("x.nc"), "moved");
  ASSERT_TRUE(a->has_come(*a->of(path("x.nc")), Pending::Kind::moved).ok());
  EXPECT_EQ(a->settle_own([](const auto&) { return true; }, {}), std::vector<std::string>{path("x.nc")});
  EXPECT_EQ(Versions::in(a->of(path("x.nc"))->directory).newest, 0U);
  EXPECT_TRUE(a->settle_own([](const auto&) { return false; }, {}).empty());
  EXPECT_EQ(get(*b, path("x.nc")), "moved");
  EXPECT_FALSE(fs::exists(path("x.nc")));
}

TEST_F(WorkflowTest, AVersionMovesToAnotherName) {
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "one");
  const auto version = a->wait(*a->of(path("x.nc")), Workflow::For::writing, [](const auto&) {});
  ASSERT_TRUE(version.ok());
  ASSERT_TRUE(a->move(*version, *a->of(path("y.nc"))).ok());
  EXPECT_EQ(get(*b, path("y.nc")), "one");
  EXPECT_EQ(Versions::in(a->of(path("x.nc"))->directory).newest, 0U);
}

TEST_F(WorkflowTest, WhoIsNotInFromWritesNothingOfOthers) {
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "one");
  const auto say = [](const auto&) {};
  EXPECT_EQ(b->open_to_write(*b->of(path("x.nc")), say).error().sys, EACCES);
  EXPECT_EQ(b->open_to_write(*b->of(path("none.nc")), say).error().sys, EACCES);  // at once
  EXPECT_EQ(b->open_plainly(*b->of(path("x.nc")), anew, say).error().sys, EACCES);
  EXPECT_EQ(b->open_plainly(*b->of(path("none.nc")), as_it_is, say).error().sys, EACCES);
  EXPECT_TRUE(b->open_plainly(*b->of(path("own.nc")), anew, say)->path.empty());
  EXPECT_EQ(get(*b, path("x.nc")), "one");
}

TEST_F(WorkflowTest, ASymbolicLinkIsTheFileThatItLeadsTo) {
  rules_ = {rule("hist.*", {"a"}, {"b"}), rule("guess.*", {"a"}, {"b"})};
  const auto a = come("a");
  fs::create_symlink("hist.1", path("link"));  // nothing of it is on the disk
  fs::create_symlink(path("link"), path("guess.1"));
  fs::create_symlink("input", path("guess.2"));
  fs::create_symlink("guess.3", path("guess.3"));
  EXPECT_EQ(a->of(path("link"))->path, a->of(path("hist.1"))->path);
  EXPECT_EQ(a->of(path("guess.1"))->path, a->of(path("hist.1"))->path);
  EXPECT_EQ(a->of(path("guess.2"))->path, a->of_name(path("guess.2"))->path);
  EXPECT_EQ(a->of(path("guess.3"))->path, path("guess.3"));
  EXPECT_FALSE(a->of_name(path("link")));
}

TEST_F(WorkflowTest, WhatIsOverwrittenInPlaceBeginsAsTheFileOnTheDisk) {
  rules_[0].mode = CoupleRule::Mode::memory_and_file;
  const auto a = come("a");
  const auto x = *a->of(path("x.nc"));
  put(*a, path("x.nc"), "one");
  const auto say = [](const auto&) {};
  const auto overwrite = [&](const std::string& text) {
    auto opened = a->open_to_write(x, say);
    ASSERT_TRUE(opened.ok());
    write(opened->path, text);
    ASSERT_TRUE(a->close(*opened, true).ok());
  };
  auto opened = a->open_to_write(x, say);
  EXPECT_TRUE(opened->copy_in);
  ASSERT_TRUE(a->close(*opened, false).ok());
  EXPECT_EQ(get(*a, path("x.nc")), "one");
  overwrite("two");
  EXPECT_EQ(text(path("x.nc")), "two");
  EXPECT_EQ(get(*a, path("x.nc")), "two");
  write(path("x.nc"), "by somebody else");  // then what is in memory counts
  opened = a->open_to_write(x, say);
  EXPECT_FALSE(opened->copy_in);
  EXPECT_EQ(text(opened->path), "two");
  ASSERT_TRUE(a->close(*opened, true).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(top_ + "/here"), fs::directory_iterator()), 1);
}

TEST_F(WorkflowTest, WhoOverwritesAFileMakesItsNextVersion) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "forecast");
  auto opened = b->open_to_write(*b->of(path("x.nc")), [](const auto&) {});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(text(opened->path), "forecast");
  write(opened->path, "analysis");
  ASSERT_TRUE(b->close(*opened, true).ok());
  EXPECT_EQ(get(*a, path("x.nc")), "analysis");
}

TEST_F(WorkflowTest, WhoHasClosedAFileFindsThatVersionAlsoWhereOthersReadItFrameByFrame) {
  rules_[0].when = CoupleRule::When::sync;
  const auto a = come("a");
  put(*a, path("x.nc"), "one");
  auto two = a->create(*a->of(path("x.nc")), false);
  ASSERT_TRUE(two.ok());
  write(two->path, "two");
  a->close_for_server(*two);  // which is not done with it
  std::atomic<bool> done{false};
  std::string got;
  std::thread program([&] {
    auto opened = a->open_to_write(*a->of(path("x.nc")), [](const auto&) {});
    got = opened ? text(opened->path) : opened.error().message;
    done = true;
  });
  while (waits_in(memory()).empty() && !done) std::this_thread::yield();
  ASSERT_TRUE(publish(two->publish, "a").ok());
  program.join();
  EXPECT_EQ(got, "two");
}

TEST_F(WorkflowTest, WhatAnotherRankHasOpenIsWaitedForOnlyOnceItHasClosedIt) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  wait_max_ = milliseconds(300);
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "forecast");
  const auto entry =
      b->of(path("x.nc"))->directory + "/writing." + b->settings().entry + '.' + std::to_string(::getpid() + 1) + ".7";
  write(entry, "half an analysis");
  EXPECT_EQ(get(*b, path("x.nc")), "forecast");
  write(closed_mark(entry), "");
  EXPECT_THAT(get(*b, path("x.nc")), HasSubstr("not there after 300 ms"));
  ASSERT_TRUE(publish(entry, "b").ok());
  EXPECT_FALSE(fs::exists(closed_mark(entry)));
}

TEST_F(WorkflowTest, WhoOpensAFileWhileTheServerPublishesItFindsThatVersion) {
  const auto a = come("a");
  const auto file = *a->of(path("x.nc"));
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    auto opened = a->create(file, false);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    write(opened->path, std::to_string(i));
    a->close_for_server(*opened);
    std::atomic<bool> ready{false}, go{false};
    std::thread server([&, spins = random() % 20'000] {
      ready = true;
      while (!go) {
      }
      for (volatile unsigned k = 0; k < spins; k = k + 1) {
      }
      EXPECT_TRUE(publish(opened->publish, "a").ok());
    });
    while (!ready) std::this_thread::yield();
    go = true;
    auto again = a->open_to_write(file, [](const auto&) {});
    server.join();
    ASSERT_TRUE(again.ok()) << i << ": " << again.error().message;
    ASSERT_EQ(text(again->path), std::to_string(i));
    ASSERT_TRUE(a->close(*again, false).ok());
    if (i % 2 == 0) {
      ASSERT_TRUE(a->remove(file));
    }
  }
}

TEST_F(WorkflowTest, VersionsAreThoseOfOneMoment) {
  const auto a = come("a");
  const auto file = *a->of(path("x.nc"));
  auto opened = a->create(file, false);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  write(opened->path, "one");
  a->close_for_server(*opened);
  const auto before = Versions::in(file.directory);
  ASSERT_EQ(publish(opened->publish, "a").value(), 1U);
  ASSERT_EQ(before.writing.size(), 1U);
  EXPECT_TRUE(before.is_closed(before.writing.front())) << "it was when they were looked at";
  EXPECT_EQ(before.newest, 0U);
  const auto after = Versions::in(file.directory);
  EXPECT_EQ(after.newest, 1U);
  EXPECT_TRUE(after.writing.empty() && after.closed.empty());
}

TEST_F(WorkflowTest, OneLibraryOfAProcessDoesNotWaitForWhatTheOtherHasOpen) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  wait_max_ = milliseconds(300);
  const auto a = come("a"), b = come("b");
  const auto same = std::make_unique<Workflow>(b->settings());
  put(*a, path("x.nc"), "forecast");
  auto opened = b->open_to_write(*b->of(path("x.nc")), [](const auto&) {});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(same->wait(*same->of(path("x.nc")), Workflow::For::opening, [](const auto&) {}).ok());
  ASSERT_TRUE(b->close(*opened, true).ok());
}

TEST_F(WorkflowTest, WhoReadsAFileOnTheDiskWaitsForTheVersionOfTheOther) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  rules_[0].mode = rules_[1].mode = CoupleRule::Mode::file;
  const auto a = come("a"), b = come("b");
  const auto file = *b->of(path("x.nc"));
  put(*a, path("x.nc"), "forecast");
  ASSERT_TRUE(b->wait_on_disk(file, [](const auto&) {}).ok());
  put(*b, path("x.nc"), "analysis");
  // The next forecast may empty the file at any moment.
  std::atomic<bool> done{false};
  std::thread reader([&] {
    EXPECT_TRUE(b->wait_on_disk(file, [](const auto&) {}).ok());
    done = true;
  });
  while (waits_in(memory()).empty() && !done) std::this_thread::yield();
  EXPECT_FALSE(done) << "it took its own version";
  put(*a, path("x.nc"), "next forecast");
  reader.join();
}

TEST_F(WorkflowTest, WhoWritesAFileOnTheDiskReadsItMeanwhile) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  rules_[0].mode = rules_[1].mode = CoupleRule::Mode::file;
  wait_max_ = milliseconds(300);
  const auto a = come("a"), b = come("b");
  const auto other_library = std::make_unique<Workflow>(b->settings());
  const auto file = *b->of(path("x.nc"));
  const auto say = [](const std::string&) {};
  put(*a, path("x.nc"), "forecast");
  for (int step = 0; step < 2; ++step) {
    auto opened = b->open_to_write(file, say);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE(b->wait_on_disk(file, say).ok());
    EXPECT_TRUE(other_library->wait_on_disk(file, say).ok());
    ASSERT_TRUE(b->close(*opened, true).ok());
  }
  const int fd = open_plainly(*b, path("x.nc"), as_it_is, O_RDWR);
  EXPECT_TRUE(b->wait_on_disk(file, say).ok());
  ::close(fd);
}

TEST_F(WorkflowTest, WhatWasNotClosedWellIsNoVersion) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "forecast");
  auto opened = b->open_to_write(*b->of(path("x.nc")), [](const auto&) {});
  ASSERT_TRUE(opened.ok());
  write(opened->path, "half an analysis");
  ASSERT_TRUE(b->close(*opened, false).ok());
  EXPECT_EQ(get(*b, path("x.nc")), "forecast");
}

TEST_F(WorkflowTest, NoOneReadsWhatItHasWrittenItself) {
  rules_ = {rule("*.nc", {"a"}, {"b"}), rule("*.nc", {"b"}, {"a"})};
  wait_max_ = milliseconds(300);
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "forecast");
  EXPECT_THAT(get(*a, path("x.nc")), HasSubstr("a: wait for " + path("x.nc") + " from b: not there after 300 ms"));
}

TEST_F(WorkflowTest, AProgramThatOnlyWritesDoesNotWait) {
  const auto a = come("a");
  auto none = a->open_to_read(*a->of(path("x.nc")), [](const auto&) {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::not_found);
  put(*a, path("x.nc"), "mine");
  EXPECT_EQ(get(*a, path("x.nc")), "mine");
  EXPECT_EQ(a->create(*a->of(path("x.nc")), true).error().code, Code::exists);
  EXPECT_TRUE(a->remove(*a->of(path("x.nc"))));
  EXPECT_FALSE(a->remove(*a->of(path("x.nc"))));
}

TEST_F(WorkflowTest, SaysWhoHasNotCome) {
  wait_max_ = milliseconds(1);
  const auto b = come("b"), c = come("c");
  EXPECT_THAT(get(*b, path("x.nc")), HasSubstr("a has not come to the workflow /w (there are: c)"));
}

TEST_F(WorkflowTest, SaysWhoHasDiedOrFailed) {
  const auto b = come("b");
  {
    const auto a = come("a");
    go();
  }
  EXPECT_THAT(get(*b, path("x.nc")), HasSubstr("a has died without having completed it"));
  {
    const auto a = come("a");
    go(7);
  }
  EXPECT_THAT(get(*b, path("x.nc")), HasSubstr("a has ended (exit code 7) without having completed it"));
}

TEST_F(WorkflowTest, WhatADeadProgramWasWritingIsNotWaitedFor) {
  const auto b = come("b");
  const auto a = come("a");
  put(*a, path("x.nc"), "old");
  ASSERT_TRUE(a->create(*a->of(path("x.nc")), false).ok());
  go();
  EXPECT_EQ(get(*b, path("x.nc")), "old");
}

TEST_F(WorkflowTest, SaysThatTwoWaitForEachOther) {
  rules_ = {rule("x.nc", {"a"}, {"b"}), rule("y.nc", {"b"}, {"a"})};
  wait_max_ = milliseconds(500);
  const auto a = come("a"), b = come("b");
  std::string first;
  std::thread other([&] { first = get(*a, path("y.nc")); });
  while (waits_in(memory()).empty()) std::this_thread::yield();
  // It waits longer than the other: as long as it takes to see the other wait.
  const auto second = get(*b, path("x.nc"));
  other.join();
  EXPECT_THAT(first + second, HasSubstr("runs, and itself waits for"));
}

/// Whatever the order in which versions come and go, a reader gets a whole one, and never an older one than before.
TEST_F(WorkflowTest, ReadersOfAFileThatIsOftenReplacedGetWholeVersions) {
  const auto a = come("a"), b = come("b");
  put(*a, path("x.nc"), "0");
  constexpr int versions = 300;
  std::thread writer([&] {
    for (int v = 1; v <= versions; ++v) put(*a, path("x.nc"), std::to_string(v));
  });
  const auto file = *b->of(path("x.nc"));
  int last = 0;
  while (last < versions) {
    const auto got = get(*b, path("x.nc"));
    ASSERT_THAT(got, testing::MatchesRegex("[0-9]+"));
    ASSERT_GE(std::stoi(got), last);
    last = std::stoi(got);
  }
  writer.join();
  const auto left = Versions::in(file.directory);
  EXPECT_EQ(left.newest, versions + 1U);
  EXPECT_TRUE(left.writing.empty());
}

TEST(MakerOfAnEntry, IsFoundWhateverTheNameHolds) {
  const auto maker = maker_of("writing.fc.v1.2,77-ab.1234.5");
  ASSERT_TRUE(maker.has_value());
  EXPECT_EQ(maker->member, "fc.v1.2,77-ab");
  EXPECT_EQ(maker->pid, 1234);
  EXPECT_FALSE(maker_of("writing").has_value());
  EXPECT_FALSE(maker_of("000007.a").has_value());
}

}  // namespace
}  // namespace advectio::workflow
