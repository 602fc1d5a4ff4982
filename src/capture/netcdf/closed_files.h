// Files that this process has created and closed, as far as one that opens them again for writing has to know them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capture/netcdf/classic_layout.h"
#include "core/schema.h"

namespace advectio::netcdf {

struct ClosedFile {
  std::string identity;                ///< Session::identity_of
  Schema schema;                       ///< as it was sent last
  std::vector<std::uint64_t> lengths;  ///< of each dimension, as the program has seen them
  ClassicLayout layout;
  bool of_others = false;  ///< this run has not made it
};

/// The latest ones. Any thread; nothing waits for the lock, which a fork may have left with a thread of the parent.
class ClosedFiles {
 public:
  /// Never destroyed, as the last calls of a program may come from destructors.
  static ClosedFiles& of_process();
  void keep(ClosedFile file);
  /// It is forgotten here. Nothing: it is not known.
  std::optional<ClosedFile> take(const std::string& identity);

 private:
  static constexpr std::size_t kept = 256;
  std::mutex mutex_;
  std::vector<ClosedFile> files_;  ///< the latest last
};

}  // namespace advectio::netcdf
