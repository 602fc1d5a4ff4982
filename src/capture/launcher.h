// The launcher of an MPI job sets variables of the environment. They tell a process its rank.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

namespace advectio::capture {

/// The rank of this process in its job; -1: none.
inline std::int64_t rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return std::atoll(value);
  }
  return -1;
}

/// This process is, or may be, a rank of a job that has more ranks than `known`.
inline bool is_rank_of_several(long long known = 1) {
  bool any_size = false;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    if (const auto size = std::atoll(value); size < 1 || size > known) return true;
    any_size = true;
  }
  if (any_size) return false;
  // Launchers that say no size. A batch script has SLURM_PROCID without being a rank.
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return true;
  return false;
}

}  // namespace advectio::capture
