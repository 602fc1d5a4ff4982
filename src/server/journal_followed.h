// One journal that the server follows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "journal/reader.h"
#include "server/output.h"

namespace advectio {

/// One journal being followed.
struct Journal {
  std::string name;
  std::unique_ptr<journal::Reader> reader;
  std::multimap<std::uint32_t, std::shared_ptr<Output>> datasets;  ///< by number: all outputs of each dataset
  std::vector<std::shared_ptr<Output>> shared;  ///< of these, the ones in flight that others write too
  /// For each held segment, oldest first: the last record of each dataset in it.
  struct Load {
    std::uint64_t index = 0;
    std::map<std::uint32_t, std::uint64_t> last;
    std::uint64_t bytes = 0;
  };
  std::deque<Load> loads;
  bool alive = true;
  bool broken = false;
  bool begun = false;        ///< something has been read of it, or nothing was there
  bool read_to_end = false;  ///< nothing more was there when last asked
};

}  // namespace advectio
