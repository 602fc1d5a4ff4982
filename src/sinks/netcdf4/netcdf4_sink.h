// NetCDF-4 files. What is promised, and what is not: docs/sinks/netcdf4.md. How a crash at any instant leaves
// a whole file: crash_safe_file.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/executor.h"
#include "core/result.h"
#include "platform/files.h"
#include "sinks/chunks/chunk_assembly.h"
#include "sinks/chunks/codec.h"
#include "sinks/netcdf4/skeletons.h"
#include "sinks/sink.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {

struct Netcdf4Options {
  DeflateMaker deflate = DeflateMaker::isal;
  /// Instead of the level that the schema's filters ask for, on the codec's own scale (ISA-L 0 … 3). The file's
  /// metadata keep saying what was asked.
  std::optional<int> level;
  /// Chunks being made or waiting to be written may take this much; one chunk always may.
  std::uint64_t memory_max = std::uint64_t{512} << 20;
  /// The same, shared by several sinks; memory_max is not looked at then.
  std::shared_ptr<MemoryBudget> memory;
  /// Who compresses chunks where this process' threads have too many; null: nobody. Outlives the sink.
  Helpers* helpers = nullptr;
  /// Called on any thread where there may be something for `advance`; empty: `ready` waits for memory.
  std::function<void()> wake;
  /// Threads that write chunks meanwhile; null: the sink writes itself. They outlive it.
  Executor* disk = nullptr;
  /// Where the redo file is; empty: `default_redo_path(path)`. A sink that resumes must be given the same.
  std::string redo_path;
  /// From its first commit on the file can be brought to a commit after a loss of power, too, whatever part of it has
  /// reached the disk. Else that holds once somebody has made it durable.
  bool ordered = false;
  /// Where the begin of files comes from that are like earlier ones; null: each is made anew.
  std::shared_ptr<Skeletons> skeletons;
  /// When it is closed, the file is one that parallel HDF5 can make longer (early_allocation.h).
  bool for_parallel_hdf5 = false;
  /// With `resume`: nobody knows yet whether this sink can go on with the file (Sink::holds). Where it is no whole HDF5
  /// file, `open_netcdf4` fails and leaves it as it is.
  bool made_by_others = false;
};

/// What the sink can do, known before there is a file.
Abilities netcdf4_abilities();

/// The file at `path` must exist; it is written into, so that its inode stays. With `resume` it is taken up where its
/// last commit left it (where there was none: from the beginning); without, it is emptied.
Result<std::unique_ptr<Sink>> open_netcdf4(Files& files, const std::string& path, const Netcdf4Options& options,
                                           Executor& executor, bool resume);

}  // namespace advectio
