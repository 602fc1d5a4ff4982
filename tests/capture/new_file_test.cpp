#include "capture/new_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "journal/scratch.h"

namespace advectio::capture {
namespace {

namespace fs = std::filesystem;

class NewFileTest : public ::testing::Test {
 protected:
  static Result<void> free() { return {}; }
  static Result<void> refused() { return Error{Code::exists, "another process writes it", EACCES}; }
  Scratch directory_;
  const std::string path_ = directory_ / "out.nc";
};

TEST_F(NewFileTest, IsRemovedWhereNobodyKeepsIt) {
  ASSERT_TRUE(NewFile::take(path_, false, free).ok());
  EXPECT_FALSE(fs::exists(path_));
  std::ofstream(path_) << "values";
  ASSERT_TRUE(NewFile::take(path_, false, free).ok());
  EXPECT_EQ(fs::file_size(path_), 6U) << "it was there before";
}

TEST_F(NewFileTest, StaysWhereAnotherProcessHasBegunToWriteIt) {
  // Both make the file at one moment; the other was the first to lock it.
  EXPECT_EQ(NewFile::take(path_, false, refused).error().sys, EACCES);
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(NewFileTest, StaysWhereAnotherHoldsTheLock) {
  auto made = NewFile::take(path_, false, free);
  ASSERT_TRUE(made.ok());
  {
    auto second = NewFile::take(path_, false, free);
    ASSERT_TRUE(second.ok());
    EXPECT_FALSE(second->is_locked());
  }
  EXPECT_TRUE(fs::exists(path_));
  const auto mark = made->keep();
  EXPECT_TRUE(NewFile::take(path_, false, free)->is_locked());
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(NewFileTest, IsNotMadeOverAFileWhereThatIsForbidden) {
  std::ofstream(path_) << "values";
  EXPECT_EQ(NewFile::take(path_, true, free).error().sys, EEXIST);
  EXPECT_EQ(fs::file_size(path_), 6U);
}

TEST_F(NewFileTest, MadeAnewLeavesTheOldOneToItsOtherName) {
  std::ofstream(path_) << "values";
  fs::create_hard_link(path_, directory_ / "kept");
  auto made = NewFile::take(path_, false, free, true);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(made->empty().ok());
  const auto mark = made->keep();
  EXPECT_EQ(fs::file_size(path_), 0U);
  EXPECT_EQ(fs::file_size(directory_ / "kept"), 6U);
}

TEST_F(NewFileTest, MadeAnewLeavesWhatAnotherProcessWrites) {
  std::ofstream(path_) << "values";
  EXPECT_EQ(NewFile::take(path_, false, refused, true).error().sys, EACCES);
  EXPECT_EQ(fs::file_size(path_), 6U);
}

}  // namespace
}  // namespace advectio::capture
