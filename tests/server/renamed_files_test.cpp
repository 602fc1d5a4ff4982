#include "server/renamed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace advectio {
namespace {

NamedFile file(std::uint32_t number) {
  return {{7, number}, "step" + std::to_string(number) + ".nc.tmp", number, 1};
}
std::vector<std::uint64_t> inodes_of(const std::vector<NamedFile>& files) {
  std::vector<std::uint64_t> inodes;
  for (const auto& f : files) inodes.push_back(f.inode);
  return inodes;
}

// A live reader gets the frames of renamed files in the order of the program.
TEST(RenamedFiles, AFileDoesNotComeBeforeOneThatWasRenamedEarlier) {
  // The program renames its files one after the other, `before` of them before the first look, two more behind each.
  for (std::uint64_t before = 0; before <= 4; ++before) {
    std::uint64_t renamed = before;
    const auto moved = not_in_place({file(1), file(2), file(3), file(4)}, [&](const NamedFile& f) {
      const bool in_place = f.inode > renamed;
      renamed += 2;
      return in_place;
    });
    std::vector<std::uint64_t> all;
    for (std::uint64_t n = 1; n <= moved.size(); ++n) all.push_back(n);
    EXPECT_EQ(inodes_of(moved), all) << before;
    EXPECT_GE(moved.size(), before);
  }
}

TEST(RenamedFiles, AFileWaitsForAnEarlierOneThatHasYetToGetItsName) {
  auto first = file(1), second = file(2), third = file(3), other = file(1);
  first.missed = 1;  // closed and renamed, and not complete
  second.path = "step2.nc";
  third.path = "step3.nc";
  other.key.journal = 8;
  other.path = "step1.nc";
  const auto shown = [&] { return inodes_of(in_their_turn({first, second, third, other})); };
  EXPECT_EQ(shown(), (std::vector<std::uint64_t>{1, 1}));  // so its looks are counted; and another process'
  first.over = true;
  EXPECT_EQ(shown(), (std::vector<std::uint64_t>{1, 1}));
  first.missed = 3;  // it was removed
  EXPECT_EQ(shown(), (std::vector<std::uint64_t>{1, 2, 3, 1}));
}

}  // namespace
}  // namespace advectio
