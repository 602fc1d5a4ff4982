#include "journal/run_mark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "journal/scratch.h"

namespace advectio::journal {
namespace {

class RunMarkTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::close(::creat(path_.c_str(), 0600)), 0); }
  Scratch scratch_;
  const std::string path_ = scratch_ / "a.nc";
};

TEST_F(RunMarkTest, IsFoundUntilItIsRemoved) {
  EXPECT_FALSE(RunMark::is_on(path_));
  auto mark = RunMark::on(path_);
  ASSERT_TRUE(mark);
  EXPECT_TRUE(RunMark::is_on(path_));
  {
    const auto another = RunMark::on(path_);  // the program's and the server's
    mark.remove();
    EXPECT_FALSE(mark);
    EXPECT_TRUE(RunMark::is_on(path_));
  }
  EXPECT_FALSE(RunMark::is_on(path_));
  EXPECT_FALSE(RunMark::is_on(scratch_ / "nothing"));
  EXPECT_FALSE(RunMark::on(scratch_ / "nothing"));
}

TEST_F(RunMarkTest, MeetsNoLockOfAReaderOrALibrary) {
  const auto mark = RunMark::on(path_);
  ASSERT_TRUE(mark);
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  struct flock data {};
  data.l_type = F_WRLCK;
  data.l_whence = SEEK_SET;
  data.l_len = off_t{1} << 60;
  EXPECT_EQ(::fcntl(fd, F_OFD_SETLK, &data), 0);
  ::close(fd);
  EXPECT_TRUE(RunMark::is_on(path_));
}

TEST_F(RunMarkTest, GoesThoughAForkedProcessLivesOn) {
  auto mark = RunMark::on(path_);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char c = 0;
    (void)!::read(ends[0], &c, 1);
    ::_exit(0);
  }
  mark.remove();
  EXPECT_FALSE(RunMark::is_on(path_));
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
}

TEST_F(RunMarkTest, IsTheParentsAloneWhereAForkedProcessLeavesIt) {
  const auto mark = RunMark::on(path_);
  const pid_t child = ::fork();
  if (child == 0) {
    const_cast<RunMark&>(mark).leave_to_parent();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunMark::is_on(path_));
}

TEST_F(RunMarkTest, DoesNotCloseTheFileThatHasItsNumberNow) {
  const int number = ::dup(0);
  ::close(number);
  {
    const auto mark = RunMark::on(path_);
    ::close(number);
    ASSERT_EQ(::dup(0), number);
  }
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  ::close(number);
}

}  // namespace
}  // namespace advectio::journal
