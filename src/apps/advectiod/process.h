// Files that exist, and further ones that the rules of `advectio process` make of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/processing.h"
#include "core/result.h"

namespace advectio {

struct ProcessRequest {
  std::vector<std::string> inputs;  ///< one series of records, in any order
  ProcessRules rules;
  std::string directory;          ///< of outputs whose paths are not absolute
  bool replace = false;           ///< outputs that are there already
  bool keep = false;              ///< the same: they are complete, and stay as they are
  std::vector<std::string> kept;  ///< outputs of these paths, likewise
  /// Only files of periods (`split`) that later records will not change are made; all are checked.
  bool complete = false;
  unsigned threads = 1;
  /// Of what is read, reckoned and not yet written; a chunk of each variable that an output needs for one of its own
  /// always may be.
  std::uint64_t memory_max = 0;
};

struct ProcessReport {
  struct Output {
    std::string path, format;
    std::uint64_t variables = 0, records = 0, bytes_read = 0, bytes_written = 0;
    bool kept = false;
    std::vector<std::string> left_out;  ///< variables that have no numbers
  };
  std::vector<Output> outputs;
  std::uint64_t files = 0, records = 0;
  std::vector<std::string> notes;  ///< what files of the series do not have in common, a line each
  std::string first, last;         ///< times of the series; empty where it has none
};

/// `progress` is told how many bytes of how many have been read; when `stop` becomes true, it ends with Code::gone.
/// Nothing is at an output's path before it is complete. Everything that can be wrong with rules, files and paths is
/// found before the first output is begun. Errors: Code::config, invalid, unsupported, exists and not_found are the
/// caller's to put right; a line each.
Result<ProcessReport> process(const ProcessRequest& request,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                              const std::atomic<bool>& stop);

}  // namespace advectio
