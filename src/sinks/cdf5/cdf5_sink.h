// Classic, 64-bit offset and CDF-5 files: headers by netCDF-C, data by the sink. What is promised,
// and what is not: docs/sinks/cdf5.md.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/executor.h"
#include "core/result.h"
#include "platform/files.h"
#include "sinks/memory_budget.h"
#include "sinks/sink.h"

namespace advectio {

struct Cdf5Options {
  /// Where a changed header is prepared; empty: beside the file, `.NAME.advectio-redo`. A sink that resumes must be
  /// given the same.
  std::string redo_path;
  /// After a loss of power `resume` finds what was made durable last, whatever else has reached the disk.
  bool ordered = false;
  /// With `resume`: that has happened.
  bool power_lost = false;
  /// Without variables the file ends with its header, as PnetCDF leaves it. netCDF-C fills 4096 bytes.
  bool ends_with_header = false;
  /// With `resume`: nobody knows yet whether this sink can go on with the file. Only Sink::holds
  /// may be asked; the file stays as it is.
  bool made_by_others = false;
  /// The file was there, and complete, before anything was written by this sink: it never becomes
  /// empty.
  bool continues = false;
  /// Threads that write data meanwhile; null: the sink writes itself. They outlive it.
  Executor* disk = nullptr;
  /// Counts bytes that wait to be written; null: not counted with other sinks.
  std::shared_ptr<MemoryBudget> memory;
  /// Called on any thread where there may be something for `advance`.
  std::function<void()> wake;
};

/// What the sink can do, known before there is a file.
Abilities cdf5_abilities();

/// The file at `path` must exist; it is written into, so that its inode stays. With `resume` what it holds is taken up;
/// without, it is emptied. netCDF-C opens the file for its header: `files` is used for everything else.
Result<std::unique_ptr<Sink>> open_cdf5(Files& files, const std::string& path, const Cdf5Options& options, bool resume);

}  // namespace advectio
