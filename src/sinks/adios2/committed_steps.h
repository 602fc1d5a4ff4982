// What has been committed of a BP5 file, as the file `advectio.json` in its directory says it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/files.h"

namespace advectio::adios2 {

/// How far the file has got.
struct Progress {
  std::uint64_t steps = 0;
  std::uint64_t frame = 0;                     ///< the last one that it has
  std::vector<std::uint64_t> lengths;          ///< of each variable: steps that have it
  std::map<std::string, std::uint64_t> bytes;  ///< of ADIOS2's files
  bool operator==(const Progress&) const = default;
};

struct CommittedSteps {
  std::string owner;
  std::vector<std::string> variables;  ///< names, by number
  Progress now;
  /// As it was before the latest commits, the oldest first: the server gives frames again that it
  /// does not know to be committed, or durable.
  std::vector<Progress> earlier;
};

/// Nothing where there is none. Errors: Code::corrupt.
Result<std::optional<CommittedSteps>> read_committed(Files& files, const std::string& directory);
Result<void> write_committed(Files& files, const std::string& directory, const CommittedSteps& committed, bool durable);
Result<void> remove_committed(Files& files, const std::string& directory);

/// ADIOS2's files in the directory.
Result<std::map<std::string, std::uint64_t>> bytes_of_files(Files& files, const std::string& directory);

/// They survive a loss of power on return; their names do not yet.
Result<void> force_files(Files& files, const std::string& directory);

/// Cuts them to that; removes those that it does not name. Errors: Code::corrupt where one is shorter.
Result<void> cut_files(Files& files, const std::string& directory, const std::map<std::string, std::uint64_t>& bytes);

/// Readers that follow the file wait for more as long as it says that somebody writes it. For one
/// whose writer has died or failed; ADIOS2 does it itself when it closes a file. False: there is no
/// index yet.
Result<bool> say_that_nobody_writes(Files& files, const std::string& directory);

/// A directory that holds a BP file, or one that was begun.
bool is_bp_file(const std::vector<std::string>& names);

}  // namespace advectio::adios2
