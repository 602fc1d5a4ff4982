// What all parts of the server share: the run that it serves, what has been asked of it, and what is to be said in the
// end. Only the loop touches it, except what `Shutdown` allows.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cluster/peers.h"
#include "journal/reader.h"
#include "journal/stage.h"
#include "server/config_names.h"
#include "server/disk_threads.h"
#include "server/drain_rate.h"
#include "server/held_directories.h"
#include "server/layouts.h"
#include "server/segment_pool.h"
#include "server/server.h"

namespace advectio {

using journal::monotonic_ns;
using journal::Reader;
using journal::realtime_ns;
using journal::Record;
using journal::RecordType;
using journal::Stage;
using journal::Trust;
using nlohmann::json;

inline double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

/// How the server comes to its end: serving → draining → agreed with the other nodes → ended. Or sooner: left as it is,
/// stopped, or without a stage.
class Shutdown {
 public:
  // Any thread, and signal handlers.

  /// Nobody new is expected: end when all is written.
  void drain() noexcept {
    auto nothing = Asked::nothing;
    asked_.compare_exchange_strong(nothing, Asked::drain);
  }
  /// Drain, but what is not written when nobody writes any more stays.
  void leave() noexcept { asked_ = Asked::leave; }
  /// Commit what is published, then end.
  void stop() noexcept { stopping_ = true; }

  [[nodiscard]] bool draining() const noexcept { return asked_ != Asked::nothing; }
  [[nodiscard]] bool leaving() const noexcept { return asked_ == Asked::leave; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_; }

  // The loop only.

  /// In what state the server leaves what is in no file.
  enum class Rest : std::uint8_t {
    as_it_is,
    nothing,      ///< all is in its file
    on_disk,      ///< the stage is safe on its disk, for another server
    with_others,  ///< what other nodes still have to send stays in their stages
  };
  Rest rest = Rest::as_it_is;
  bool stage_gone = false;  ///< somebody has removed it

 private:
  enum class Asked : std::uint8_t { nothing, drain, leave };

  std::atomic<Asked> asked_{Asked::nothing};
  std::atomic<bool> stopping_{false};
  static_assert(std::atomic<Asked>::is_always_lock_free, "a signal handler sets it");
};

class CoupledOutputs;
class Events;
class Live;
class Sprint;

struct Run {
  ~Run();
  Run(Files& its_files, ServerOptions its_options, Config its_config, SinkFactory its_sinks, Log& its_log,
      Stage its_stage);

  Files& files;
  const ServerOptions options;
  const Config config;
  const SinkFactory sinks;
  Log& log;
  Stage stage;
  const std::unique_ptr<CoupledOutputs> coupled;
  const std::unique_ptr<Events> events;
  std::string directory;  ///< where the run was started
  std::uint64_t started_ns = monotonic_ns();
  DrainRate rate;
  std::unique_ptr<Peers> peers = std::make_unique<NoPeers>();  ///< none until the server has begun
  std::unique_ptr<Live> live;                                  ///< null: nobody reads while it runs (recovery)
  std::unique_ptr<SegmentPool> pool;                           ///< null: nobody writes any more (recovery)
  std::unique_ptr<Sprint> sprint;                              ///< null: as many threads as ever
  DiskThreads disk_threads{options.disk_threads};
  Shutdown shutdown;
  /// Answers who has asked for the status. Long work calls it from time to time.
  std::function<void()> answer = [] {};

  bool survives_power = false;          ///< of the stage: segments wait until what was in them is durable
  bool power_lost = false;              ///< and that has happened to what is taken up here
  std::set<std::string> lost_journals;  ///< those of before, of which only what is whole on the disk counts
  bool verify = false;                  ///< records may have been through a crash: look at every byte

  Layouts layouts;

  ConfigNames config_names;
  std::vector<std::string> errors;
  std::uint64_t markers_named = 0;           ///< markers that were held back and have got their names (held_markers.h)
  std::vector<std::string> markers_waiting;  ///< paths of those that are held back
  HeldDirectories held_directories;          ///< of those, and of files that have no name yet
  std::set<std::string> awaited_by_markers;  ///< shared states of the datasets for which they wait
  bool not_durable = false;
  bool state_damaged = false;
  bool output_lost = false;  ///< a further output could not be made, or was given up

  std::uint64_t commits = 0;              ///< of all outputs, and their ends
  std::atomic<std::uint64_t> backlog{0};  ///< when the latest frame was about to be committed
  std::uint64_t backlog_peak = 0;
  std::uint64_t last_writer_ns = 0;
  bool any_writer = false;
  /// The stage grows for room that others need and nothing makes, after this time; more after attempts in vain.
  static constexpr std::uint64_t stuck_max_ns = 100'000'000, stuck_longest_ns = 10'000'000'000;
  std::uint64_t stuck_for_ns = stuck_max_ns;

  /// Log an error, and keep it for the summary.
  void report(const std::string& text);
  /// A step forward: whoever waits for it looks again. `rang`: programs wait for it.
  void forward(bool rang);
  /// Any thread: there may be something for the loop.
  void wake() {
    ++own_rings;
    journal::ring(stage.control().work);
  }
  std::atomic<std::uint32_t> own_rings{0};
  /// While what is written is paid for (`server.drain_max`) nothing is done.
  bool in_debt() { return rate.limited() && rate.in_debt(monotonic_ns()); }
  [[nodiscard]] Trust trust_in(const std::string& journal) const {
    return lost_journals.contains(journal) ? Trust::scan : Trust::published;
  }
  /// Several nodes have a server.
  [[nodiscard]] bool has_other_nodes() const { return options.transport != nullptr && options.transport->nodes() > 1; }
};

}  // namespace advectio
