// The tiles of a split dataset, read and written as one file through a sink.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/result.h"

namespace advectio {

struct JoinRequest {
  std::vector<std::string> tiles;
  std::string output;
  DatasetPolicy policy;  ///< how it is stored
  bool replace = false;
  /// Where tiles disagree about what none of them owns alone, the first one's values count.
  bool take_first = false;
  unsigned threads = 1;
  std::uint64_t memory_max = 0;  ///< of what is read and not yet written; the field of one frame always may be
};

struct JoinReport {
  std::string model, format;
  std::uint64_t tiles = 0, variables = 0, frames = 0, bytes = 0, bytes_written = 0, land_points = 0;
  std::vector<std::string> disagreements;  ///< variables, with `take_first`
};

/// `progress` is told how many bytes of how many are done; when `stop` becomes true, it ends with Code::gone. Nothing
/// is at the output's path before it is complete. Errors: Code::invalid, unsupported and exists are the caller's to put
/// right; a line each.
Result<JoinReport> join(const JoinRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                        const std::atomic<bool>& stop);

}  // namespace advectio
