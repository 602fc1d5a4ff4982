// Sources, read and written as one dataset through a sink: in another format, with other chunks and codecs, some of the
// variables or records, or a file for each variable.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/processing.h"
#include "core/result.h"

namespace advectio {

struct ConvertRequest {
  std::vector<std::string> inputs;     ///< tiles, files of a series, or both; see sources/collection.h
  std::string output;                  ///< with `split` a directory, or a path with {variable}
  DatasetPolicy policy;                ///< how it is stored; without a format as the input is
  std::vector<std::string> variables;  ///< names or patterns; empty: all
  std::string records, times;          ///< which ones, see selection.h; both empty: all
  std::string along;                   ///< the dimension along which inputs follow each other; empty: that of the time
  bool split = false;                  ///< an output for each variable
  bool replace = false;                ///< outputs that are there already
  Overlap overlap = Overlap::refused;  ///< whose records count where several have one time
  /// Where inputs disagree about what all of them hold, the first one's values count.
  bool take_first = false;
  unsigned threads = 1;
  /// Of what is read and not yet written; one chunk of the output, and of the input, always may be.
  std::uint64_t memory_max = 0;
};

struct ConvertReport {
  struct Output {
    std::string path, format;
    std::uint64_t variables = 0, records = 0, bytes = 0, bytes_written = 0;
  };
  std::vector<Output> outputs;
  std::uint64_t files = 0, tiles = 0, records = 0, land_points = 0;
  std::string model;                       ///< whose tiles they were
  std::string first, last;                 ///< times of what was written, where they are known
  std::vector<std::string> notes;          ///< what files of a series do not have in common, a line each
  std::vector<std::string> disagreements;  ///< variables, with `take_first`
  std::uint64_t memory_peak = 0;           ///< bytes of main memory, of the largest process
};

/// `progress` is told how many bytes of how many are done; when `stop` becomes true, it ends with Code::gone. Nothing
/// is at an output's path before it is complete. What can be wrong with files, names and formats is found before the
/// first output is begun. Errors: Code::config, invalid, unsupported, exists and not_found are the caller's to put
/// right; a line each.
Result<ConvertReport> convert(const ConvertRequest& request,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                              const std::atomic<bool>& stop);

}  // namespace advectio
