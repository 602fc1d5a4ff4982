// Frames for tests: made of memory that is a file, as the stage's segments are.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "readers/frame_store.h"

namespace advectio::readers {

inline Schema schema_of_test() {
  Schema s;
  s.dimensions = {{"Time", 0, true}, {"x", 6, false}};
  Variable t;
  t.name = "T";
  t.type = DataType::float32;
  t.dimensions = {0, 1};
  Variable h;
  h.name = "H";
  h.type = DataType::int32;
  h.dimensions = {1};
  s.variables = {t, h};
  return s;
}

/// Value of T at (frame, x).
inline float value_of(std::uint64_t frame, std::uint64_t x) {
  return static_cast<float>(frame * 100 + x);
}

/// Frame `number`: T[number, :] in two blocks of three. `with_static`: H as well.
inline std::shared_ptr<LiveFrame> live_frame(std::uint64_t number, bool with_static = false,
                                             const std::shared_ptr<int>& counted = nullptr) {
  static std::atomic<std::uint64_t> next_region{1};
  auto frame = std::make_shared<LiveFrame>();
  frame->schema = std::make_shared<const Schema>(schema_of_test());
  constexpr std::uint64_t bytes = 4096;
  const int fd = ::memfd_create("segment", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, bytes), 0);
  auto* at = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  const Lease lease(at, [counted](const void* p) { ::munmap(const_cast<void*>(p), bytes); });
  auto region = std::make_shared<Region>();
  region->id = next_region++;
  region->begin = at;
  region->bytes = bytes;
  region->descriptor = Descriptor(fd);
  region->lease = lease;
  frame->regions.push_back(region);
  auto t = std::make_shared<AssembledField>(0, DataType::float32, 2);
  for (std::uint64_t half = 0; half < 2; ++half) {
    Block b;
    b.box = {{number, 3 * half}, {1, 3}};
    b.data = at + 64 + 64 * half;
    b.bytes = 12;
    b.lease = lease;
    for (std::uint64_t x = 0; x < 3; ++x) {
      const auto v = value_of(number, 3 * half + x);
      std::memcpy(at + 64 + 64 * half + 4 * x, &v, 4);
    }
    EXPECT_TRUE(t->add(b));
  }
  frame->fields[0] = t;
  frame->bytes = 24;
  if (with_static) {
    auto h = std::make_shared<AssembledField>(1, DataType::int32, 1);
    Block b;
    b.variable = 1;
    b.box = {{0}, {6}};
    b.data = at + 512;
    b.bytes = 24;
    b.lease = lease;
    for (int x = 0; x < 6; ++x) std::memcpy(at + 512 + 4 * x, &x, 4);
    EXPECT_TRUE(h->add(b));
    frame->fields[1] = h;
  }
  return frame;
}

inline Request wants(const std::string& pattern, Policy policy = Policy::wait) {
  Request r;
  r.kind = Request::Kind::subscribe;
  r.match = {pattern};
  r.policy = policy;
  return r;
}

}  // namespace advectio::readers
