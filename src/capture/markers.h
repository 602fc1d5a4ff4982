// Markers (journal/markers.h) that this process makes or looks at, for plain_files.cpp.
//
// A call that makes a marker goes to its held name, if the run has closed or synced something that is not in its file
// yet. So do later calls on the marker, until the server has given it its own name: for the programs of the run it is
// there at once. Names that match no pattern of the config's `markers` cost a comparison with each pattern, and only
// where a call makes a name or some marker is held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "journal/markers.h"

namespace advectio::capture {

/// One call on a name that may be a marker. While it lives, and the name is held, it has the lock of the notes.
class MarkerCall {
 public:
  enum class Use : std::uint8_t {
    look,     ///< the call makes nothing: stat, open to read
    write,    ///< opens it to write, and keeps what is in it
    replace,  ///< makes it anew: open with O_TRUNC, rename to it
    make,     ///< fails where it is there: link, symlink, open with O_EXCL
    remove,   ///< takes the name away: unlink, rename from it
    wait,     ///< makes what cannot be held, a directory: waits until the files are visible
  };
  MarkerCall() = default;
  /// `path` as the program gave it. `other`: the call's other name, whose lock serves for both. Use::wait blocks until
  /// the files of the run are visible; so do others where a marker cannot be held, which one line of log says.
  MarkerCall(const std::string& path, Use use, const MarkerCall* other = nullptr);
  ~MarkerCall();
  MarkerCall(MarkerCall&&) noexcept = default;
  MarkerCall& operator=(MarkerCall&&) noexcept = default;

  /// Where the call goes; empty: to the name that the program gave.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void find(const std::string& path, Use use, const MarkerCall* other);
  void hold(const std::string& path, Use use);

  std::shared_ptr<const journal::Markers> notes_;
  std::optional<journal::Marker> marker_;
  std::string path_;
  bool removes_ = false;
};

}  // namespace advectio::capture
