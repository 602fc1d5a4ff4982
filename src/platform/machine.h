// What this machine has, as far as this process may use it.
#pragma once

#include <cstdint>
#include <string>

namespace advectio {

/// Bytes of main memory this process may use: the machine's, or less where a control group says so (a batch job's
/// limit counts what is in /dev/shm too).
std::uint64_t usable_memory_bytes();

/// Bytes of main memory that processes here can still get without any being written to a swap device: what the system
/// says is available, or less where a control group's limit is nearer (version 2 of control groups only). 0: not known.
std::uint64_t available_memory_bytes();

/// Cores this process may use: those of its affinity mask, or less where a control group's quota says so, as in a
/// container. Whole ones; at least 1.
unsigned usable_cores();
/// What the quotas alone leave. `groups`: the file /proc/self/cgroup; `root`: /sys/fs/cgroup. No quota: the greatest
/// number.
unsigned cores_of_control_groups(const std::string& groups, const std::string& root);

/// What tells this run of the kernel from any other (36 characters); empty where the system does not say.
std::string boot_id();

/// False where the file system of `path` is in memory, or cannot be asked.
bool is_on_disk(const std::string& path) noexcept;

/// To be called after code that leaves the upper halves of the vector registers in use, as ISA-L 2.30 does with
/// AVX-512: every SSE instruction of the program that follows (all of a model compiled without -march) would run up to
/// five times slower. Costs a few cycles.
void clean_vector_registers() noexcept;

/// Has that process a file mapped to be written whose path has this in it? Not where /proc does not say it, as of a
/// process of another user or PID namespace.
bool maps_to_write(std::uint32_t pid, const std::string& part_of_path);

/// Raise how many files this process may have open, as far as the system lets it.
void allow_open_files() noexcept;

/// The process that has started that one; 0: not known.
std::uint32_t parent_of(std::uint32_t pid);

}  // namespace advectio
