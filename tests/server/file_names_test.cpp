// The names of files in flight, and their hard links: removed, renamed, left by the dead, refused by the disk.
#include "server/server_fixture.h"

namespace advectio {
namespace {

/// A disk that takes its time to remove files.
class SlowToRemove final : public Files {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions) override {
    return system_files().open(path, mode, permissions);
  }
  Result<Mapping> map(File& file, std::size_t bytes, bool writable) override {
    return system_files().map(file, bytes, writable);
  }
  Result<void> make_directory(const std::string& path, unsigned permissions) override {
    return system_files().make_directory(path, permissions);
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return system_files().rename(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) override { return system_files().link(from, to); }
  Result<void> remove(const std::string& path) override {
    if (path.ends_with("/a.nc")) ::usleep(100'000);
    return system_files().remove(path);
  }
  bool exists(const std::string& path) override { return system_files().exists(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return system_files().free_bytes(path); }
  Result<std::vector<std::string>> list(const std::string& directory) override {
    return system_files().list(directory);
  }
};

TEST_F(ServerTest, AFileThatItsProgramGivesUpIsGoneWhenItIsHandedOver) {
  SlowToRemove slow;
  files_ = &slow;
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false, 0});
    if (!d || !(*d)->abort() || !(*d)->hand_over()) return 1;
    return std::filesystem::exists(out("a.nc")) ? 2 : 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  server_.reset();
}

TEST_F(ServerTest, AFileThatItsProgramRemovesInFlightIsDropped) {
  for (const bool with_link : {false, true}) {
    SCOPED_TRACE(with_link);
    ASSERT_NO_FATAL_FAILURE(leave_in_flight());
    ASSERT_EQ(hard_links().empty(), false);
    if (with_link)
      for (const auto& link : hard_links()) std::filesystem::remove(link);
    std::filesystem::remove(present("a.nc"));
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["state"], "removed");
    EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{});
  }
}

TEST_F(ServerTest, AFileThatItsProgramRenamesInFlightIsWhereTheProgramHasPutIt) {
  ASSERT_NO_FATAL_FAILURE(leave_in_flight());
  std::filesystem::create_directory(out("kept"));
  std::filesystem::rename(present("a.nc"), out("kept/b.nc"));
  store_.allow();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"kept"});
}

/// Its file system is not mounted, or another one is: an empty directory is there, or one of another run.
TEST_F(ServerTest, AFileWhoseDirectoryIsNotThereIsKeptInTheStage) {
  ASSERT_NO_FATAL_FAILURE(leave_in_flight());
  stop();
  store_.allow();
  const auto there = output_.path(), away = there + "-away";
  std::filesystem::rename(there, away);
  for (const auto* what : {"nothing", "a directory", "a directory of ours"}) {
    SCOPED_TRACE(what);
    if (what != std::string("nothing")) std::filesystem::create_directories(there);
    if (what == std::string("a directory of ours"))
      std::filesystem::create_directory(out(".advectio-" + std::to_string(::geteuid())));
    start(2, true);
    thread_.join();
    EXPECT_EQ(outcome_, Outcome::incomplete);
    const auto status = json::parse(server_->status());
    EXPECT_EQ(status["datasets"][0]["state"], "failed");
    EXPECT_NE(status["errors"].dump().find("is its file system mounted?"), std::string::npos) << status["errors"];
    server_.reset();
    EXPECT_TRUE(std::filesystem::exists(run_dir()));
    EXPECT_EQ(image("a.nc").commits, 0);
  }
  std::filesystem::remove_all(there);
  std::filesystem::rename(away, there);
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
  EXPECT_EQ(*system_files().list(there), std::vector<std::string>{"a.nc"});
}

/// Of an ordinary user: root may write what is read-only.
class OrdinaryUserTest : public ServerTest {
 protected:
  static constexpr uid_t nobody = 65534;
  void SetUp() override {
    ServerTest::SetUp();
    if (::geteuid() != 0) return;
    for (const auto& directory : {output_.path(), scratch_.path()})
      ASSERT_EQ(::chown(directory.c_str(), nobody, nobody), 0);
    ASSERT_EQ(::setresuid(nobody, nobody, 0), 0);
    was_root_ = true;
  }
  void TearDown() override {
    ServerTest::TearDown();
    if (was_root_) {
      ASSERT_EQ(::setresuid(0, 0, 0), 0);
    }
  }
  bool was_root_ = false;
};

TEST_F(OrdinaryUserTest, AFileThatItsProgramMakesReadOnlyIsWrittenAndStaysReadOnly) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false, 0});
    if (!d || ::chmod(present("a.nc").c_str(), 0440) != 0) return 1;
    const std::vector<float> values(width, 1);
    const Memory memory{reinterpret_cast<const std::byte*>(values.data()), {}};
    return (*d)->schema(series(width)) && (*d)->put(0, Box{{0, 0}, {1, width}}, {}, memory, 4) && (*d)->close() ? 0 : 2;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 1U);
  struct stat st {};
  ASSERT_EQ(::stat(out("a.nc").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0440U);
}

TEST_F(ServerTest, AProgramThatDiesAsItCreatesAFileLeavesNothing) {
  for (const bool has_hard_link : {false, true})
    for (const bool server_dies_too : {false, true}) {
      SCOPED_TRACE(std::string(has_hard_link ? "with" : "without") + " a hard link, and the server " +
                   (server_dies_too ? "dies too" : "lives"));
      Program a(run_dir(), [this, has_hard_link](Session& s) {
        (has_hard_link ? dies_at_link : dies_before_link) = true;
        return write_frames(s, out("a.nc"), 1);
      });
      start();
      a.go();
      EXPECT_EQ(a.wait(), 128 + SIGKILL);
      if (server_dies_too) {
        stop();
        start();
      }
      (void)drain();
      EXPECT_EQ(outcome_, Outcome::clean);
      const auto names = system_files().list(output_.path());
      ASSERT_TRUE(names.ok());
      EXPECT_EQ(*names, std::vector<std::string>{});
    }
}

TEST_F(ServerTest, OneThatIsStoppedLeavesTheStageOfAFileThatNoJournalSpeaksOf) {
  Program a(run_dir(), [this](Session& s) {
    dies_at_link = true;
    return write_frames(s, out("a.nc"), 1);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  // Its journal, of which nothing is needed, has been forgotten.
  ASSERT_TRUE(eventually([&] { return system_files().list(run_dir() + "/journals")->empty(); }));
  stop();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_TRUE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, AProgramThatDiesAsItCreatesAnotherFileLeavesNothingOfThat) {
  // Its journal is needed to the last moment, and never speaks of that file. (Of what is to be durable one waits.)
  config_ = parse_config("datasets: [{match: '*', durable: false}]", "test").value();
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    (void)write_frames(s, out("a.nc"), 3, true, false);
    dies_at_link = true;
    return write_frames(s, out("b.nc"), 1);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  store_.allow();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

TEST_F(ServerTest, OfAFileWhoseJournalHasGoneNothingStaysBesideIt) {
  Program a(run_dir(), [this](Session& s) {
    (void)write_frames(s, out("a.nc"), 3, false, false);
    return ::pause();
  });
  start();
  a.go();
  ASSERT_TRUE(eventually([this] { return image("a.nc").committed.size() == 3; }));
  stop();
  a.kill();
  std::filesystem::remove_all(run_dir() + "/journals");
  std::filesystem::create_directory(run_dir() + "/journals");
  // What the death of a server leaves of its sink.
  for_each_page([](journal::SharedState& shared_state) { std::ofstream(std::string(shared_state.link) + "-redo"); });
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

TEST_F(ServerTest, AHardLinkThatStaysIsReportedAndGoesLater) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  names_stay = true;
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  names_stay = false;
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(status["errors"].dump().find("a.nc: its hard link"), std::string::npos);
  EXPECT_EQ(status["datasets"].size(), 1U) << status["datasets"].dump(1);
  EXPECT_EQ(hard_links().size(), 2U) << "the link, and what its sink had";
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

TEST_F(ServerTest, TheDirectoryOfHardLinksGoesLaterWhereItCannotBeRemovedAtFirst) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  directories_stay = true;
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  directories_stay = false;
  EXPECT_EQ(outcome_, Outcome::incomplete);
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

TEST_F(ServerTest, AFileThatIsDoneIsNotBegunAnewWhereItsHardLinkHasStayed) {
  Program a(run_dir(), [this](Session& s) {
    const int code = write_frames(s, out("a.nc"), 3);
    ::pause();  // its journal stays
    return code;
  });
  start();
  names_stay = true;
  a.go();
  ASSERT_TRUE(eventually([&] { return server_->status().find("its hard link") != std::string::npos; }));
  const auto done = image("a.nc");
  for (int life = 0; life < 2; ++life) {
    stop();
    start();
  }
  names_stay = false;
  a.kill();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").commits, done.commits);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

/// So a server leaves it that dies between the two.
TEST_F(ServerTest, AStoreThatIsDoneStaysWhereTheProgramsEmptyFileHasGoneAndItsHardLinkHasNot) {
  config_ = parse_config("datasets: [{match: \"*\", format: zarr}]\n", "test").value();
  std::filesystem::create_directory(out("a.zarr"));
  std::ofstream(out("a.zarr/chunk")) << "values";
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  names_stay = true;
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  names_stay = false;
  ASSERT_EQ(outcome_, Outcome::incomplete);
  ASSERT_FALSE(std::filesystem::exists(out("a.nc")));
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_TRUE(std::filesystem::exists(out("a.zarr/chunk")));
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.zarr"});
}

TEST_F(ServerTest, ANameThatHasComeToStandForAnotherFileIsNotWrittenThrough) {
  leave_uncommitted();
  std::string link;
  for_each_page([&link](journal::SharedState& shared_state) { link = shared_state.link; });
  const auto valuable = out("valuable");
  std::ofstream(valuable) << "not ours";
  std::filesystem::rename(link, link + "-kept");
  for (const bool soft : {true, false}) {
    std::filesystem::remove(link);
    if (soft)
      std::filesystem::create_symlink(valuable, link);
    else
      std::filesystem::create_hard_link(valuable, link);
    start(2, true);
    thread_.join();
    EXPECT_EQ(outcome_, Outcome::incomplete);
    EXPECT_NE(server_->status().find("no longer the file"), std::string::npos);
    server_.reset();
    EXPECT_EQ(image("a.nc").commits, 0);
  }
  std::filesystem::rename(link + "-kept", link);
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

}  // namespace
}  // namespace advectio
