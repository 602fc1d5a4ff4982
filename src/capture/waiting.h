// How a program waits for the server, and when it gives up. For what it waits after a sync:
// JournalledDataset::await_promise.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "capture/dataset.h"
#include "core/result.h"
#include "journal/stage.h"

namespace advectio::capture {

/// One wait for the server. It is over when the server has done nothing for `stage.wait_max`. A
/// process that has given up once, and waits again while the server has still done nothing, waits
/// less long. The time in which the job was suspended does not count.
class Patience {
 public:
  static constexpr std::uint64_t never = UINT64_MAX;
  static constexpr std::uint64_t suspended_ns = 10'000'000'000;
  /// `gave_up_at`: `activity` of the server when this process last gave up. `again_max_ns`: the
  /// shorter wait. `suspended`, ns: nobody waits that long between two looks, but a process that was stopped.
  Patience(const journal::StageControl& control, std::atomic<std::uint64_t>& gave_up_at, std::uint64_t again_max_ns,
           std::uint64_t suspended = suspended_ns)
      : control_(control),
        gave_up_at_(gave_up_at),
        again_max_ns_(again_max_ns),
        suspended_ns_(suspended),
        since_(journal::monotonic_ns()),
        looked_(since_),
        activity_(control.activity.load()) {}
  enum class State : std::uint8_t {
    moves,   ///< the server has done something since the last look
    stands,  ///< nothing, but there is time left
    over,    ///< nothing for too long: give up
  };
  State look();

 private:
  const journal::StageControl& control_;
  std::atomic<std::uint64_t>& gave_up_at_;
  std::uint64_t again_max_ns_, suspended_ns_;
  std::uint64_t since_, looked_, activity_;
};

/// All waits of one process. Any thread may call.
class Waiting {
 public:
  /// Borrows the stage.
  explicit Waiting(const journal::Stage& stage) : stage_(stage) {}

  /// Wait until `done()`. `what` begins the error's text. Errors: Code::timeout, Code::gone.
  /// `awaited`: the dataset for which it is. Null: for none, or it is not urgent.
  Result<void> until(const std::function<bool()>& done, const std::string& what,
                     journal::SharedState* awaited = nullptr);
  /// The path of the file that programs call `path`: its held name (journal/markers.h) if it was renamed and is in
  /// flight, else `path`.
  [[nodiscard]] std::string present_path(const std::string& path) const;
  /// A file that is held back gets its name at once. `path`: that name, or the held one.
  Result<void> name_now(const std::string& path) const;
  /// Until that is `path`.
  Result<void> for_name(const std::string& path);
  /// For a wait for room in the stage.
  Patience for_room();

  /// A line for the user.
  using Say = std::function<void(const std::string&)>;
  /// See Session::wait_for_file. `own_journal`: the journal of this process; 0: it has none. `say`
  /// writes a line where the wait for another process is long.
  Result<void> for_file(const std::string& path, bool for_writing, std::uint64_t own_journal, const Say& say);
  /// The same before a file is created that is there already. Code::exists where another process has it open for
  /// writing: one that lives and has not closed it. HDF5 refuses that, too. Of a classic file the library would write
  /// both.
  Result<void> for_creating(const std::string& path, std::uint64_t own_journal, const Say& say);
  /// See Session::turn_to_open.
  Result<std::shared_ptr<void>> for_turn(const std::string& path, Session::Opening opening);
  /// That error alone, at once.
  Result<void> not_written_now(const std::string& path) const;
  /// See Session::wait_for_plain_use.
  Result<void> for_plain_use(const std::string& path, Session::Until until);

 private:
  Result<void> ask_other_nodes(const std::string& path, const std::string& shared_state, bool for_writing,
                               std::time_t changed);

  const journal::Stage& stage_;
  std::atomic<std::uint64_t> gave_up_at_{Patience::never};
};

}  // namespace advectio::capture
