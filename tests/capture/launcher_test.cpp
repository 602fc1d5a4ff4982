#include "capture/launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv

#include <map>
#include <string>

namespace advectio::capture {
namespace {

using Environment = std::map<std::string, std::string>;

/// These of a launcher's variables are set, and no others.
bool is_rank_with(const Environment& set) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
                           "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"})
    ::unsetenv(name);
  for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  return is_rank_of_several();
}

TEST(Launcher, TheEnvironmentSaysWhetherThisIsARankOfSeveral) {
  EXPECT_FALSE(is_rank_with({}));
  EXPECT_FALSE(is_rank_with({{"OMPI_COMM_WORLD_SIZE", ""}}));
  EXPECT_TRUE(is_rank_with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  EXPECT_FALSE(is_rank_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  EXPECT_TRUE(is_rank_with({{"PMI_SIZE", "64"}, {"PMI_RANK", "3"}}));
  // mpirun -n 2 in a batch script of one task, and the other way round.
  EXPECT_TRUE(is_rank_with({{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "2"}}));
  EXPECT_TRUE(is_rank_with({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "1"}}));
  // Launchers that say no size.
  EXPECT_TRUE(is_rank_with({{"PMIX_RANK", "0"}}));
  EXPECT_TRUE(is_rank_with({{"PMI_RANK", "0"}}));
  // A batch script, or srun of one task.
  EXPECT_FALSE(is_rank_with({{"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(is_rank_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}));
  is_rank_with({});
}

}  // namespace
}  // namespace advectio::capture
