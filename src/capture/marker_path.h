// The path of a call, as open(2) or rename(2), where it may be a name that is held back (markers.h): a marker, or the
// final name of a file in flight.
#pragma once

#include <optional>

#include "capture/markers.h"

namespace advectio::capture {

/// The path for the C library, for as long as a call takes. It must not wait meanwhile: it may have the lock of the
/// notes.
class MarkerPath {
 public:
  using Use = MarkerCall::Use;
  /// `use` empty: the call does not concern names.
  MarkerPath(int directory, const char* path, std::optional<Use> use, const void* caller);
  /// The name that the file `from`, in that directory, gets.
  MarkerPath(int directory, const char* path, Use use, const MarkerPath& from, int from_directory, const void* caller);
  ~MarkerPath();
  MarkerPath(const MarkerPath&) = delete;
  MarkerPath& operator=(const MarkerPath&) = delete;
  [[nodiscard]] const char* get() const { return !call_ || call_->path().empty() ? path_ : call_->path().c_str(); }

  static std::optional<Use> of_flags(int flags);  ///< of open(2)
  static Use of_mode(const char* mode);           ///< of fopen(3)
  /// The use of stat(2), or of lstat(2), which means the name itself.
  static Use of_look(bool means_name) { return means_name ? Use::look : Use::read; }

 private:
  template <typename Make>
  void make(const void* caller, Make&& call);

  const char* path_;
  std::optional<MarkerCall> call_;
};

/// A call like renameat(2), which may move a directory with such names in it. It must not wait meanwhile, either.
class MovePath {
 public:
  MovePath(int from_directory, const char* from, int to_directory, const char* to, const void* caller) noexcept;
  /// With the C library's answer, which is returned.
  int after(int answer) noexcept;
  ~MovePath();
  MovePath(const MovePath&) = delete;
  MovePath& operator=(const MovePath&) = delete;

 private:
  std::optional<DirectoryMove> move_;
};

}  // namespace advectio::capture
