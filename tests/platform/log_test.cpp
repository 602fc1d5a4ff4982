#include "platform/log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "journal/scratch.h"

namespace advectio {
namespace {

TEST(Log, AMessageIsOneLineWhateverIsInIt) {
  const Scratch scratch;
  const auto path = scratch / "log";
  {
    Log log(LogLevel::error);
    log.also_to(path, 0600);
    log.warning("a\nb\tc\x1b[31md\x7f ä.nc: lost");
    log.warning("next");
  }
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].ends_with("warning: a\\nb\\x09c\\x1b[31md\\x7f ä.nc: lost")) << lines[0];
}

}  // namespace
}  // namespace advectio
