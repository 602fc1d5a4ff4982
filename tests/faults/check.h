// The judge of a run: reads what is there through netCDF-C, and knows of Advectio only what its writers saw.
#pragma once

#include <cstdint>
#include <string>

#include "faults/case.h"

namespace advectio::faults {

struct Verdict {
  bool there = false;          ///< the file is there and not empty
  std::uint64_t complete = 0;  ///< so many frames from the first on are there, every cell of them
  std::uint64_t held = 0;      ///< of frames that were synced so many are complete, wherever they stand
  std::string wrong;           ///< not empty: the file is not one that can be there
};

/// `synced`: frames whose sync has returned to all writers. `begun`: frames of which anything was put.
Verdict check_file(const std::string& path, const DatasetCase& dataset, std::size_t number, std::uint64_t synced,
                   std::uint64_t begun);

}  // namespace advectio::faults
