// compare_directories A B: are there the same netCDF files in both, with the same in them? Says how the first one that
// is not the same differs.
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "capture/netcdf/compare_files.h"

namespace fs = std::filesystem;

static std::set<std::string> files_in(const char* directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_regular_file()) names.insert(entry.path().filename().string());
  return names;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto names = files_in(argv[1]);
  if (names != files_in(argv[2])) {
    for (int i : {1, 2}) {
      std::printf("%s:", argv[i]);
      for (const auto& name : files_in(argv[i])) std::printf(" %s", name.c_str());
      std::printf("\n");
    }
    return 1;
  }
  for (const auto& name : names) {
    if (name.find(".nc") == std::string::npos) continue;
    const auto found = difference(std::string(argv[1]) + "/" + name, std::string(argv[2]) + "/" + name);
    if (found.empty()) continue;
    std::printf("%s: %s\n", name.c_str(), found.c_str());
    return 1;
  }
  return 0;
}
