// A dataset between its shared state and its first record.
#pragma once

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "journal/hard_link.h"
#include "journal/stage.h"

namespace advectio::capture {

/// The path without symbolic links, for one that exists; else as given.
inline std::string real_path(const std::string& path) {
  char real[PATH_MAX];
  return ::realpath(path.c_str(), real) != nullptr ? std::string(real) : path;
}

/// The shared state of a dataset before its first record, and the file's hard link. Both go, also when an exception
/// leaves, unless `keep` is called. With the session's mutex.
class Registered {
 public:
  Registered(const journal::Stage& stage, std::string state_name, std::uint64_t journal, std::uint32_t number)
      : stage_(stage), state_name_(std::move(state_name)), journal_(journal), number_(number) {}
  ~Registered() {
    try {
      if (begun_) take_back();
    } catch (...) {  // no memory: the server finds both when this process ends
    }
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  void begin() noexcept { begun_ = true; }
  void keep() noexcept { begun_ = false; }

 private:
  /// If the hard link stays, the shared state stays too: the server finds the link by it.
  void take_back() const {
    const auto shared_state = stage_.open_state(state_name_);
    if (!shared_state || (*shared_state)->journal != journal_ || (*shared_state)->number != number_) return;
    const std::string link = (*shared_state)->link;
    if (!journal::is_hard_link(link) || journal::remove_hard_link(stage_.files(), link).ok())
      stage_.remove_dataset(state_name_, journal_, number_);
  }
  const journal::Stage& stage_;
  const std::string state_name_;
  const std::uint64_t journal_;
  const std::uint32_t number_;
  bool begun_ = false;
};

/// HDF5 locks the files that it has open, unless that is switched off; whoever reads one shares the lock.
inline bool hdf5_locks() {
  const char* set = std::getenv("HDF5_USE_FILE_LOCKING");
  return set == nullptr || (std::strcmp(set, "FALSE") != 0 && std::strcmp(set, "0") != 0);
}

}  // namespace advectio::capture
