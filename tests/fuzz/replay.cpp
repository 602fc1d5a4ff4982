// Calls a target with files instead of with libFuzzer's inputs: what was once found stays found out, without clang.
//   fuzz_TARGET FILE|DIRECTORY…
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

void play(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::fprintf(stderr, "%s\n", file.c_str());  // the last one named is the one that failed
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  int played = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      play(argv[i]);
      ++played;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      play(entry.path());
      ++played;
    }
  }
  std::printf("%d inputs\n", played);
  return played > 0 ? 0 : 1;
}
