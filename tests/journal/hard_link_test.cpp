// Where the hard links of files in flight lie, and what becomes of them.
#include "journal/hard_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "journal/scratch.h"

/// What the file system makes of a link: a file of its own (sshfs).
static bool link_makes_a_file = false;
extern "C" int link(const char* from, const char* to) noexcept {
  if (!link_makes_a_file) return ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  const int fd = ::open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  return fd < 0 ? -1 : ::close(fd);
}

namespace advectio::journal {
namespace {

namespace fs = std::filesystem;

class HardLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(scratch_ / "run");
    fs::create_directories(scratch_ / "out/deep");
    std::ofstream(file_) << "x";
  }
  std::string give(const std::vector<std::string>& directories) {
    return give_hard_link(shared_state_, file_, hard_link_name(file_, 0xabcd, "1"), directories);
  }
  static bool same(const std::string& a, const std::string& b) { return fs::exists(a) && fs::equivalent(a, b); }

  Scratch scratch_;
  std::string own_ = ".advectio-" + std::to_string(::geteuid()) + "/";
  std::string file_ = scratch_ / "out/deep/a.nc";
  SharedState shared_state_{};
};

TEST_F(HardLinkTest, LiesWhereTheRunWasStartedAndLeavesNothing) {
  const auto directories = hard_link_directories(file_, scratch_ / "run");
  ASSERT_EQ(directories.front(), scratch_ / "run/" + own_);
  const auto link = give(directories);
  EXPECT_EQ(link, directories.front() + ".a.nc.advectio-0000abcd-1");
  EXPECT_EQ(shared_state_.link, link);
  EXPECT_EQ(shared_state_.seal, seal_of(shared_state_));
  EXPECT_TRUE(is_hard_link(link));
  EXPECT_TRUE(same(link, file_));
  ASSERT_TRUE(remove_hard_link(system_files(), link).ok());
  EXPECT_TRUE(system_files().list(scratch_ / "run")->empty());
  EXPECT_TRUE(fs::exists(file_));
}

TEST_F(HardLinkTest, LiesAboveTheFileWhereTheRunIsOnAnotherFileSystem) {
  const auto directories = hard_link_directories(file_, "/proc/self");
  ASSERT_EQ(directories.size(), 2U);
  EXPECT_EQ(directories.back(), scratch_ / "out/deep/");
  // The scratch directory is in a directory that everybody may write.
  EXPECT_TRUE(directories.front().ends_with(own_));
  EXPECT_LT(directories.front().size(), (scratch_ / "out").size() + own_.size());
}

// The program takes the right to write in its directory away, even from itself.
TEST_F(HardLinkTest, GoesAlsoWhereItsDirectoryHasToStay) {
  const auto link = give(hard_link_directories(file_, scratch_ / "run"));
  ::chmod((scratch_ / "run").c_str(), 0555);
  std::thread([&] {  // without root's right to write everywhere, which is a thread's own
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> none = {};
    ASSERT_EQ(::syscall(SYS_capset, &header, none.data()), 0);
    EXPECT_TRUE(remove_hard_link(system_files(), link).ok());
  })
      .join();
  ::chmod((scratch_ / "run").c_str(), 0755);
  EXPECT_FALSE(fs::exists(link));
  EXPECT_TRUE(fs::exists(fs::path(link).parent_path()));
}

TEST_F(HardLinkTest, LiesInTheNextDirectoryWhereOneDoesNotTakeIt) {
  // Somebody else could write there.
  const auto open_to_all = scratch_ / "run/" + own_;
  fs::create_directory(open_to_all);
  ::chmod(open_to_all.c_str(), 0777);
  const auto beside = scratch_ / "out/deep/";
  const auto link = give({open_to_all, "/proc/self/", beside});
  EXPECT_EQ(link, beside + ".a.nc.advectio-0000abcd-1");
  EXPECT_EQ(shared_state_.link, link);
  EXPECT_FALSE(fs::exists(open_to_all + ".a.nc.advectio-0000abcd-1"));
  ASSERT_TRUE(remove_hard_link(system_files(), link).ok());
  EXPECT_TRUE(fs::exists(beside));
}

TEST_F(HardLinkTest, IsTheFileItselfWhereNoneCanBeMade) {
  EXPECT_EQ(give({"/proc/self/"}), file_);
  EXPECT_EQ(shared_state_.link, file_);
  EXPECT_EQ(shared_state_.seal, seal_of(shared_state_));
  EXPECT_FALSE(is_hard_link(shared_state_.link));
}

TEST_F(HardLinkTest, ReplacesWhatAnEarlierLifeOfTheDatasetHasLeft) {
  const auto directories = hard_link_directories(file_, scratch_ / "run");
  const auto link = give(directories);
  EXPECT_EQ(give(directories), link);
  fs::remove(file_);
  std::ofstream(file_) << "y";
  EXPECT_EQ(give(directories), link);
  EXPECT_TRUE(same(link, file_));
}

TEST_F(HardLinkTest, IsNoneWhereTheFileSystemMakesAnotherFileOfIt) {
  link_makes_a_file = true;
  const auto given = give(hard_link_directories(file_, scratch_ / "run"));
  link_makes_a_file = false;
  EXPECT_EQ(given, file_);
  EXPECT_TRUE(system_files().list(scratch_ / "run")->empty());
  EXPECT_EQ(*system_files().list(scratch_ / "out/deep"), std::vector<std::string>{"a.nc"});
}

TEST_F(HardLinkTest, HasAShortNameHoweverLongThatOfTheFileIs) {
  const std::string longest(255, 'n'), accents = std::string(59, 'n') + "\u00e9\u00e9";
  EXPECT_LT(hard_link_name("/out/" + longest, ~0U, "4294967295").size(), 100U);
  EXPECT_EQ(hard_link_name("/out/" + accents, 0xabcd, "1"), "." + std::string(59, 'n') + ".advectio-0000abcd-1");
  for (const auto& name : {longest, accents, std::string("a.nc"), std::string(".a.nc")})
    EXPECT_EQ(name_in_hard_link("/out/" + hard_link_name("/out/" + name, 1, "1")), name_kept("/out/" + name));
}

/// The names of a file in flight, and of another in our own directory.
class FileNamesTest : public HardLinkTest {
 protected:
  void SetUp() override {
    HardLinkTest::SetUp();
    std::memcpy(shared_state_.path, file_.c_str(), file_.size() + 1);
    name_ = Stage::state_name_of(file_).value();
    DirectoryId::of(file_).keep_in(shared_state_);
    link_ = give(directories());
    std::ofstream(other_) << "y";
    SharedState other{};
    (void)give_hard_link(other, other_, hard_link_name(other_, 0xabcd, "2"), directories());
  }
  [[nodiscard]] std::vector<std::string> directories() const { return {out_ + "/" + own_}; }
  FileNames look() { return look_for_file(shared_state_, name_); }

  std::string out_ = scratch_ / "out", other_ = scratch_ / "out/deep/b.nc", name_, link_;
};

TEST_F(FileNamesTest, AreThereUnderAnyName) {
  EXPECT_EQ(look(), FileNames::there);
  fs::rename(file_, out_ + "/renamed");
  EXPECT_EQ(look(), FileNames::there);
  fs::remove_all(out_ + "/deep");
  EXPECT_EQ(look(), FileNames::there);
}

TEST_F(FileNamesTest, AreRemovedWhereOnlyTheHardLinkIsLeft) {
  fs::remove(file_);
  EXPECT_EQ(look(), FileNames::removed);
  std::ofstream(file_) << "another file";
  EXPECT_EQ(look(), FileNames::removed);
  fs::remove_all(out_ + "/deep");
  EXPECT_EQ(look(), FileNames::removed);
}

TEST_F(FileNamesTest, AreRemovedWhereBothDirectoriesAreThereAndNoName) {
  fs::remove(link_);
  EXPECT_EQ(look(), FileNames::there);
  fs::remove(file_);
  EXPECT_EQ(look(), FileNames::removed);
}

TEST_F(FileNamesTest, AreAwayWithTheDirectoryThatHeldThem) {
  fs::rename(out_, scratch_ / "away");
  EXPECT_EQ(look(), FileNames::away);
  fs::create_directories(out_ + "/deep");  // what is there where nothing is mounted
  EXPECT_EQ(look(), FileNames::away);
  fs::create_directories(directories().front());  // of another run
  EXPECT_EQ(look(), FileNames::away);
  fs::remove_all(out_);
  fs::rename(scratch_ / "away", out_);
  EXPECT_EQ(look(), FileNames::there);
}

TEST_F(FileNamesTest, AreAwayWhereOurOwnDirectoryIs) {
  fs::remove(file_);
  fs::remove_all(directories().front());
  EXPECT_EQ(look(), FileNames::away);
}

TEST_F(FileNamesTest, AreAwayBehindASymbolicLinkThatLeadsToNothing) {
  fs::create_directory_symlink(out_ + "/deep", scratch_ / "by");
  const auto by = scratch_ / "link.nc";
  fs::create_symlink("by/a.nc", by);
  std::memcpy(shared_state_.path, by.c_str(), by.size() + 1);
  DirectoryId::of(by).keep_in(shared_state_);
  EXPECT_EQ(look(), FileNames::there);
  fs::rename(out_, scratch_ / "away");
  EXPECT_EQ(look(), FileNames::away);
  fs::rename(scratch_ / "away", out_);
  fs::remove(file_);
  fs::remove(link_);
  EXPECT_EQ(look(), FileNames::removed);
}

TEST_F(FileNamesTest, AreNeverSeenToBeRemovedWithoutAHardLink) {
  (void)give({"/proc/self/"});
  EXPECT_EQ(look(), FileNames::there);
  fs::remove(file_);
  EXPECT_EQ(look(), FileNames::away);
}

}  // namespace
}  // namespace advectio::journal
