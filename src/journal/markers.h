// Names that say that a file is complete. Nobody outside the run may see one before that is so.
//
// * A marker, such as `log.f001`, is a file that speaks of others.
// * A file that its program has closed, and renames to its final name while the server writes it, speaks of itself.
// * A file that a program creates speaks of its first frame, or of all of it (`appear`, capture/create.cpp).
//
// The program makes them under a *held name* in the same directory, and a note of it in the stage, `markers/<hash>`
// (of such a file `markers/f<hash>`). The server renames the held name to the final one when all files that the note
// awaits are as far as they were. The note survives both.
//
// All of it happens under the lock of `markers.lock`. A program holds that lock over its own call on the name, so that
// the marker never moves between a look at the note and the call.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "journal/stage.h"

namespace advectio::journal {

/// One dataset for which a marker waits.
struct Awaited {
  static constexpr std::uint64_t first_frame = 0;
  std::string shared_state;   ///< its name in `datasets/`
  std::uint64_t journal = 0;  ///< with `number`: tells datasets of one name apart
  std::uint32_t number = 0;
  std::uint64_t synced = 0;  ///< everything up to this sync is to be visible; `first_frame`
  bool closed = false;       ///< the program has closed it: it is to be complete
  bool operator==(const Awaited&) const = default;
};

struct Marker {
  std::string path;  ///< absolute
  std::string held;  ///< its name until then, in the same directory
  std::vector<Awaited> files;
  bool is_file = false;  ///< a dataset's file; its note is its own
  std::string file;      ///< of a file that is new: its name in `datasets/`
  /// Of a run on several nodes: the name in `questions/` by which the other nodes are asked for their files. Empty:
  /// they are not asked, or have answered.
  std::string question;
};

/// Datasets of this node of which something that a program has synced or closed is not visible yet.
Result<std::vector<Awaited>> not_visible(const Stage& stage);
/// The note of a file that is about to be renamed awaits this. Nothing: it is not in flight, or not closed yet.
std::optional<Awaited> in_flight_and_closed(const Stage& stage, const std::string& path);
/// The held name of the dataset's file that is to be `path` (absolute, without symbolic links in its directory); else
/// `path`. Without the lock: it may get its name at any moment.
std::string held_name_of(const Stage& stage, const std::string& path);
/// Where a file is made that is to be `path` (absolute): the same for all runs, so that one of them has it at a time.
std::string held_name_of_new(const std::string& path);
/// True: `name`, without its directory, has the form of a held name.
bool is_held_name(std::string_view name) noexcept;
/// The note whose held name that is (absolute, without symbolic links). Without the lock.
std::optional<Marker> held_as(const Stage& stage, const std::string& held);
/// A program may have a note of that path. Without the lock.
bool may_be_held(const Stage& stage, const std::string& path);
/// The dataset is as far as the note awaits it, or it has been dropped.
bool has_come(const Stage& stage, const Awaited& awaited);

/// The question of a marker begins so, in place of a shared state's name.
inline constexpr std::string_view all_files = "all";
/// Ask the other nodes of the run, through this node's server: it answers when all that programs there have synced or
/// closed by then is visible. Returns the question.
Result<std::string> ask_other_nodes(const Stage& stage);

/// The notes of a stage as they are at the moment, without the lock: for who only looks. Sorted by path.
Result<std::vector<Marker>> markers_in(const Stage& stage);

/// The notes of a stage, under their lock. Blocks nobody for longer than a call on a name takes.
class Markers {
 public:
  /// Waits for the lock, for about that time at most. Errors: Code::exists where somebody keeps it; those of the
  /// system.
  static Result<Markers> await(const Stage& stage, std::chrono::milliseconds most = std::chrono::seconds(1));
  /// At once.
  static Result<Markers> take(const Stage& stage);

  /// The note of that path; empty: it is not held.
  [[nodiscard]] Result<std::optional<Marker>> of(const std::string& path) const;
  [[nodiscard]] Result<std::vector<Marker>> all() const;
  /// A note for that path, without files.
  [[nodiscard]] Marker make(const std::string& path, bool is_file = false) const;
  /// A note for a new file that is made under `held_name_of_new`; it gets its name when the dataset has come that far.
  [[nodiscard]] Marker make_new(const std::string& path, const Awaited& dataset) const;
  /// Removes notes that cannot be read; a loss of power may leave such. Returns their names.
  [[nodiscard]] Result<std::vector<std::string>> forget_damaged() const;
  /// Writes the note, in place of an older one.
  [[nodiscard]] Result<void> keep(const Marker& marker) const;
  /// The held name becomes the path, in place of what is there, and the note goes. False: it was not there, as a
  /// process has died between its note and its call, or a server between the name and the note.
  [[nodiscard]] Result<bool> name(const Marker& marker) const;
  /// The file has its held name.
  [[nodiscard]] static bool is_held(const Marker& marker);
  /// Removes it, and its question.
  [[nodiscard]] Result<void> forget(const Marker& marker) const;

 private:
  Markers(const Stage& stage, ProcessLock lock) : stage_(&stage), lock_(std::move(lock)) {}
  void count() const;
  std::atomic<std::uint32_t>& counter(const Marker& marker) const;

  const Stage* stage_;
  ProcessLock lock_;
};

}  // namespace advectio::journal
