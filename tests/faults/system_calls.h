// The system as the processes of a fault run find it: disks fill and fail, clocks jump, and a process dies at its n-th
// call. Works below everything that is tested, Advectio's own files and what netCDF writes by itself alike: the calls
// of the C library are replaced in the program that this is linked into (system_calls.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace advectio::faults {

inline constexpr std::int64_t no_limit = INT64_MAX;

/// Shared by all processes of a run, and changed at any time. What is said of files strikes those below `output` only.
struct Weather {
  std::atomic<std::int64_t> space{no_limit};  ///< bytes that files may still grow by; then ENOSPC, after a short write
  std::atomic<std::int64_t> writes_until{no_limit};  ///< so many more writes succeed
  std::atomic<std::int64_t> syncs_until{no_limit};   ///< the same for fsync and fdatasync
  std::atomic<std::int64_t> stage_space{no_limit};   ///< bytes that can still be reserved, anywhere
  std::atomic<std::uint32_t> delay_us{0};            ///< each write and sync takes longer by up to this
  std::atomic<bool> short_writes{false};             ///< a write takes only part of what it is given
  std::atomic<bool> read_only{false};                ///< nothing can be made, removed or opened for writing
  std::atomic<std::int64_t> clock_ns{0};             ///< added to CLOCK_REALTIME
  std::atomic<std::uint64_t> strikes{0};             ///< how often a call has failed or been cut short

  void clear() {
    for (auto* until : {&space, &writes_until, &syncs_until, &stage_space}) until->store(no_limit);
    delay_us.store(0);
    short_writes.store(false);
    read_only.store(false);
  }
};

/// From now on this process meets that weather. It dies by SIGKILL at its `dies_at`-th call that changes a file or
/// opens one; of a write it has then done a part. 0: it does not.
void expose(Weather& weather, const std::string& output, std::uint64_t dies_at);

}  // namespace advectio::faults
