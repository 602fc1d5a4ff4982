// BP5 files of ADIOS2, written by ADIOS2 itself (library.h). What is promised, and what is not:
// docs/sinks/bp5.md.
//
//   NAME.bp/data.0, md.0, mmd.0, md.idx   ADIOS2's. They only grow, but for one byte of md.idx,
//                                         which says that somebody writes them
//   NAME.bp/advectio.json                   what has been committed (committed_steps.h)
//
// A commit:
//   1. the steps of its frames are written
//   2. advectio.json is replaced: it says how long the files are, and how many steps they have
// A reader may see steps of a commit under way. After a death, `resume` cuts the files to what
// advectio.json says, and their frames come again.
//
// ADIOS2 writes nothing before a step, so a commit that has only attributes is in the next step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"
#include "sinks/adios2/step_writer.h"
#include "sinks/sink.h"

namespace advectio {

struct Bp5Options {
  /// From its first commit on the file can be brought to a commit after a loss of power, too. Commits
  /// then wait for the disk.
  bool ordered = false;
  /// As ZarrOptions::owner.
  std::string owner;
  adios2::Compression compression;
};

Abilities bp5_abilities();

/// The directory at `path` is made where it is missing; `resume` as for `open_zarr`. Errors:
/// Code::unsupported where there is no ADIOS2; Code::exists where the directory is to be emptied and
/// holds other things than a BP file, or the one of another file.
Result<std::unique_ptr<Sink>> open_bp5(Files& files, const std::string& path, const Bp5Options& options, bool resume);

}  // namespace advectio
