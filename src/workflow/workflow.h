// Coupled files, as one program of a workflow sees them: which names are coupled, where the file behind a name is, and
// how long to wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/couple.h"
#include "core/result.h"
#include "workflow/pending.h"
#include "workflow/versions.h"

namespace advectio::workflow {

/// What a program needs of its workflow. The server puts it into `couple.conf` (server/PROTOCOL.md).
struct Settings {
  std::string memory;     ///< the registry, see README.md; empty: no workflow
  std::string directory;  ///< as the user named it, for texts
  std::string name;       ///< of this program
  std::string entry;      ///< of this run in `members/`
  std::chrono::milliseconds wait_max{0}, restart_max{0};
  std::vector<CoupleRule> rules;

  [[nodiscard]] std::string to_lines() const;
  /// Takes a line that is one of those. False: it is none.
  bool take_line(const std::string& line);
};

/// A coupled file, and what this program has to do with it.
struct Coupled {
  std::string path;                    ///< absolute, without symbolic links in its directory
  std::string directory;               ///< of its versions
  const CoupleRule* rule = nullptr;    ///< the first that matches
  bool writes = false, reads = false;  ///< this program is named in `from`, in `to`
  /// Whose versions it reads, by all rules that match. Where it only writes: the others that do.
  std::vector<std::string> from;
  std::vector<std::string> to;  ///< who reads it, by all rules that match
};

/// The file behind a name, for a program that reads it or writes on in it.
struct Opened {
  std::string path;     ///< what to open
  std::string release;  ///< to be removed when it is closed; empty: nothing
  std::string publish;  ///< to be published when it is closed; empty: nothing
  std::string disk;     ///< and copied there before; empty: to no place
  /// `path` is on the disk, and is moved to `disk` before; what is published is a copy of it in memory.
  bool copy_in = false;
  /// Of what `create` has returned: the number in the entry's name. The shared state of its dataset has it as
  /// `created_ns`, so the server knows which version a dataset is, of several of one name.
  std::uint64_t created_ns = 0;
};

/// Below the registry, where the workflow is of several nodes: the lock of the node's server, which fetches versions
/// (exchange/).
inline constexpr const char* node_server = "/server";

/// Ends the name of a version that the server must not publish: a library of the program goes on writing it.
inline constexpr const char* handed_over = ".handed-over";

/// Any thread may call.
class Workflow {
 public:
  explicit Workflow(Settings settings) : settings_(std::move(settings)) {}

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

  /// Null: no rule holds for that name, or this program is in neither side of it. `path` as the program gave it. Of a
  /// symbolic link it is the file that it leads to, which need not be on the disk; else the link's own name.
  [[nodiscard]] std::optional<Coupled> of(const std::string& path) const;
  /// The same for calls that mean the name itself, and not what a symbolic link leads to.
  [[nodiscard]] std::optional<Coupled> of_name(const std::string& path) const;
  /// The name that programs have for a file of the registry, else `path` itself.
  [[nodiscard]] std::string name_for_programs(const std::string& path) const;
  [[nodiscard]] bool holds(const std::string& path) const;

  using Say = std::function<void(const std::string&)>;
  enum class For : std::uint8_t {
    looking,  ///< there is a version; a program that writes it does not wait for that
    opening,  ///< there is a version
    reading,  ///< and the newest is by a program of `from`
    writing,  ///< or by this one
  };
  /// Wait until there is a complete version, and nobody writes the next one. Returns its path. Where this program only
  /// writes the file and nobody does at present, there is nothing to wait for: Code::not_found. Errors: Code::timeout,
  /// Code::gone (who should write it has died). `say` writes a line of log.
  Result<std::string> wait(const Coupled& file, For use, const Say& say);
  /// wait until there is a version by a program of `from`, which this program then reads where it is (`mode: file`).
  /// While the program has the file open for writing, any version will do: its libraries read, too, what they write.
  Result<void> wait_on_disk(const Coupled& file, const Say& say);
  /// wait, and have a name for it.
  Result<Opened> open_to_read(const Coupled& file, const Say& say);
  /// wait, and have a copy that becomes the next version. Code::permission: this program may not write it.
  Result<Opened> open_to_write(const Coupled& file, const Say& say);
  /// A new version, empty yet: nothing is there but where the file is to be. `no_clobber`: Code::exists where there is
  /// one.
  Result<Opened> create(const Coupled& file, bool no_clobber);
  /// The program has removed the file: its versions go. False: there are none.
  bool remove(const Coupled& file);

  /// How a program opens a file for writing without a library; none of them: a file that is there.
  struct PlainOpen {
    bool creates = false, truncates = false, exclusive = false;
  };
  /// The path to open, within the turn. The file becomes the next version when nobody has it open for writing.
  struct PlainFile {
    std::string path;
    std::optional<Turn> turn;
  };
  /// Waits until what this program has written by a library is there; without `creates`, also as `wait` does. Errors:
  /// Code::permission: this program may not write it; Code::exists, Code::not_found and those of `wait`. Empty path:
  /// the program, which only reads such files, makes one of its own under a name that nobody has written.
  Result<PlainFile> open_plainly(const Coupled& file, const PlainOpen& how, const Say& say);
  /// The error where this program is not in `from`.
  [[nodiscard]] Error may_not_write(const Coupled& file) const;
  /// A file that this program has open for writing, or has moved there, is no version any more.
  void forget_own(const Coupled& file) const;
  /// This program has it open by a library.
  [[nodiscard]] bool is_open_by_library(const Coupled& file) const;
  /// Waits until the server has published what this program has closed, and has moved there.
  Result<void> await_own(const Coupled& file);
  /// The version (a path that `wait` has returned) becomes the next one of the other file.
  Result<void> move(const std::string& version, const Coupled& to);
  /// The program has moved a file of the disk to that name.
  Result<void> has_come(const Coupled& to, Pending::Kind kind);
  /// Of a file that was moved there while this program had it open by a library: if it has been closed since, processes
  /// of the program wait until the server has published it.
  void look_at_moved(const Coupled& file, const std::function<bool(const std::string&)>& is_open);
  /// Publish what programs of this run have written without libraries, and nobody writes any more. `is_in_flight`: this
  /// run writes the file. Returns the paths of files that somebody still writes.
  std::vector<std::string> settle_own(const std::function<bool(const std::string&)>& is_in_flight, const Say& say);

  /// A library of the program is about to go on with what `create` has returned: the server must not publish it.
  void keep_from_server(Opened& opened);
  /// The program has closed what `create` has returned, and it is complete; the server goes on with it. Processes of
  /// this program find it there, and wait until it is published.
  void close_for_server(const Opened& opened);
  /// Of what `open_*` and `create` have returned. `complete`: it was closed well.
  Result<void> close(const Opened& opened, bool complete);

  /// Names in a directory of versions, of this run: "KIND.NAME,ID.PID.N".
  [[nodiscard]] std::string name_for(const char* kind) const;

 private:
  Result<void> begin(const Coupled& file) const;
  [[nodiscard]] bool has_disk(const Coupled& file, const std::string& version) const;
  Result<Opened> copy_of_disk(const Coupled& file, const std::string& next);
  static Result<void> bring(const Opened& opened);
  /// The versions of a file. Publishes first what programs have finished writing without a library. `say` hears of
  /// what cannot be copied; without `say` the server tells it.
  Versions settled(const Coupled& file, const Say& say);
  void settle_or_tell(const Coupled& file, const std::string& entry, bool& busy, const Say& say) const;
  [[nodiscard]] std::optional<std::string> open_by_own(const Coupled& file, const Versions& there,
                                                       bool by_library) const;

  Result<PlainFile> own_pending(const Coupled& file, const PlainOpen& how, Turn turn) const;
  [[nodiscard]] bool is_own(const std::string& entry) const;
  [[nodiscard]] Result<void> note_pending(const std::string& entry) const;
  Result<Opened> held(const Coupled& file, For use, const Say& say);
  void note_read(const Coupled& file, const std::string& version) const;
  void keep(const Opened& opened);
  void forget(const Opened& opened);
  [[nodiscard]] bool is_written(const Coupled& file, const Versions& there, const std::string& entry);
  class Wanted;
  [[nodiscard]] std::optional<Error> why_not_fetched(const Wanted& wanted, std::chrono::steady_clock::time_point now,
                                                     std::chrono::steady_clock::time_point& served_at) const;
  [[nodiscard]] std::string find_fault(const Coupled& file, bool& died) const;

  const Settings settings_;
  mutable std::atomic<unsigned> count_{0};
  std::mutex mutex_;
  std::set<std::string> open_here_;  ///< entries `writing.…` that this process has open: it does not wait for them
  std::set<std::string> in_vain_;    ///< waited for once until the time was over
};

/// `path` is in the registry `memory`: the name that programs have for it.
std::string name_for_programs(const std::string& memory, const std::string& path);

/// Absolute, without symbolic links in its directory, where that is there.
std::string resolved(const std::string& path);

}  // namespace advectio::workflow
