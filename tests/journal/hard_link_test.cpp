// Where the hard links of files in flight lie, and what becomes of them.
#include "journal/hard_link.h"

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

}  // namespace
}  // namespace advectio::journal
