// Coupled files (docs/coupling.md), as the server sees them: which outputs other programs get, and when.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/result.h"
#include "platform/log.h"
#include "server/output.h"
#include "workflow/workflow.h"

namespace advectio {

class CoupledOutputs {
 public:
  /// `settings.memory` is empty: the run is in no workflow.
  CoupledOutputs(workflow::Settings settings, const Config& config, Log& log);

  /// What the config says about a dataset, or about the memory in which it is: uncompressed, and not durable.
  [[nodiscard]] DatasetPolicy policy(const std::string& path) const;
  /// The name that programs have for it.
  [[nodiscard]] std::string name(const std::string& path) const;

  /// Other programs get it.
  [[nodiscard]] bool has(const Output& output) const { return version_of(output).has_value(); }
  /// Tiles become one file (`join`), which no process has created: where other programs get it, its version is begun
  /// here, before its file is made. The shared state has its `created_ns`. Nothing: no program gets it.
  Result<std::optional<workflow::Opened>> begin_whole(const Output& whole);
  /// Its file could not be made.
  void give_up(const workflow::Opened& version);
  /// A frame is in the file, and nothing is written to it at present.
  Result<void> frame(const Output& output) const;
  /// The program has closed the file, and it is complete.
  Result<void> complete(const Output& output) const;
  /// Of an earlier server: it was published, and must not be touched any more.
  [[nodiscard]] bool is_published(const Output& output) const;
  /// It will not be complete; or it is, and has been published.
  void over(const Output& output) const;
  /// Publish what programs of this run have written without libraries, or moved to coupled names, and nobody writes any
  /// more. `is_in_flight`: the run writes the file at that path. Returns the paths of what somebody still writes.
  std::vector<std::string> settle(const std::function<bool(const std::string&)>& is_in_flight);
  /// It cannot be written, at present.
  void trouble(const Output& output, const std::string& why) const;

 private:
  struct Version {
    workflow::Coupled file;
    std::string entry;  ///< `writing.…`; empty: there is none (any more)
    bool is_link = false;
  };
  [[nodiscard]] std::optional<Version> version_of(const Output& output) const;
  [[nodiscard]] std::optional<workflow::Coupled> disk_of(const Output& output) const;

  const Config& config_;
  std::optional<workflow::Workflow> workflow_;
  Log& log_;
};

}  // namespace advectio
