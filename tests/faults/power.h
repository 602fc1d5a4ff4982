// A disk that loses power. What a process has forced to it (fsync, fdatasync) is noted; when all processes are dead,
// the tree becomes what such a disk may hold: of each file what was forced last, or any of its newer shared states of 4
// KiB; of each directory the names that were forced last, or the newer ones.
//
// Names keep their inodes, by which Advectio knows files: everything happens in place, and whatever has ever been named
// in a directory that was forced keeps another name in the shadow.
#pragma once

#include <cstdint>
#include <string>

namespace advectio::faults {

/// Where what is forced is noted: a directory beside that of the run.
std::string shadow_of(const std::string& run_dir);

/// From now on this process notes what it forces of everything beside and below the directory of the run.
void watch_disk(const std::string& run_dir);

/// To be called before the call itself: what is there now is on the disk when that returns.
void note_forced(int fd);

/// No process is left. `disk` becomes what is to be found after a loss of power, chosen by `seed`; what is noted stays
/// true. `inode`: its own, where it may have been removed; that need not have reached the disk.
void lose_power(const std::string& disk, const std::string& shadow, std::uint64_t seed, std::uint64_t inode = 0);

}  // namespace advectio::faults
