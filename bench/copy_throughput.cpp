// What a put costs at the least: copying a field into the stage, with its checksum, beside plain copies.
//
//   copy_throughput [MB, default 742]
//
// Memory is touched before. Prints milliseconds for the whole, best and median of nine.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "journal/format.h"

using namespace advectio::journal;

namespace {

void measure(const char* name, const std::function<void()>& work) {
  std::array<double, 9> ms{};
  for (double& t : ms) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    t = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%-36s %7.1f %7.1f\n", name, ms.front(), ms[ms.size() / 2]);
}

/// Cached stores, in pieces that stay in the first-level cache, as for small blocks.
std::uint32_t copy_through_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < bytes; at += 32768) {
    const auto n = std::min<std::size_t>(32768, bytes - at);
    crc = crc32c(from + at, n, crc);
    std::memcpy(to + at, from + at, n);
  }
  return crc;
}

}  // namespace

int main(int argc, char** argv) {
  const auto bytes = static_cast<std::size_t>(argc > 1 ? std::atof(argv[1]) : 742) * 1000 * 1000;
  char name[] = "/dev/shm/copy_throughput-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0 || unlink(name) != 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    std::perror("memory in /dev/shm");
    return 1;
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* stage = static_cast<std::byte*>(mapped);
  const std::unique_ptr<std::byte[]> field(new std::byte[bytes]), heap(new std::byte[bytes]);
  std::memset(field.get(), 3, bytes);
  std::memset(heap.get(), 1, bytes);
  std::memset(stage, 2, bytes);
  volatile std::uint32_t crc = 0;
  std::printf("%zu MB%31s %7s %7s ms\n", bytes / 1000000, "", "best", "median");
  measure("memcpy, heap to heap", [&] { std::memcpy(heap.get(), field.get(), bytes); });
  measure("memcpy, heap to stage", [&] { std::memcpy(stage, field.get(), bytes); });
  measure("checksum only", [&] { crc = crc32c(field.get(), bytes); });
  measure("checksum and copy, through the cache", [&] { crc = copy_through_cache(stage, field.get(), bytes); });
  measure("checksum and copy, streamed (used)", [&] { crc = copy_crc32c(stage, field.get(), bytes); });
  return 0;
}
