#include "platform/open_for_writing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "journal/scratch.h"

namespace advectio {
namespace {

TEST(OpenForWriting, IsAFileAsLongAsAnyDescriptorIs) {
  const Scratch scratch;
  const auto file = scratch / "plain";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_TRUE(is_open_for_writing(file));
  ::close(fd);
  EXPECT_FALSE(is_open_for_writing(file));
  const int reads = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_FALSE(is_open_for_writing(file));
  ::close(reads);
}

TEST(OpenForWriting, IsAFileThatIsMappedToBeWritten) {
  const Scratch scratch;
  const auto file = scratch / "mapped";
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(at, MAP_FAILED);
  ::close(fd);
  EXPECT_TRUE(is_open_for_writing_by_lease(file).value_or(true));
  ::munmap(at, 4096);
  EXPECT_FALSE(is_open_for_writing(file));
}

}  // namespace
}  // namespace advectio
