// The server of one node's run: follows the journals, keeps the ledger of datasets and frames, feeds the sinks,
// commits, and only then lets segments be used again.
//
// What it knows that must outlive it is in the stage (journal/stage.h): a server that died and one that is told to
// recover a leftover run directory do the same thing: take up every dataset behind its last commit and replay.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cluster/remote_encoder.h"
#include "cluster/transport.h"
#include "config/config.h"
#include "core/executor.h"
#include "core/result.h"
#include "platform/files.h"
#include "platform/log.h"
#include "sinks/sink.h"
#include "workflow/workflow.h"

namespace advectio {

/// What a sink is opened for.
struct SinkRequest {
  std::string path;  ///< an existing file, whose inode stays; of a store what takes its place, which may be missing
  FileFormat format = FileFormat::netcdf4;
  DatasetPolicy policy;
  bool resume = false;
  bool ordered = false;     ///< what is durable stays so, whatever part of what comes after it reaches the disk
  bool together = false;    ///< several ranks write it together, and may open it together later
  std::string owner;        ///< of a store: which dataset it is of; empty: of any
  bool power_lost = false;  ///< with `resume`: the file is as a loss of power has left it
  /// With `resume`: the sink is asked whether it can go on with the file (Sink::holds), and changes nothing before.
  bool made_by_others = false;
  bool continues = false;  ///< the file was there, and complete, before the dataset began
  /// Called on any thread where there may be something for `Sink::advance`; empty: the sink waits.
  std::function<void()> wake;
  Executor* disk = nullptr;  ///< threads that may write for the sink; null: it writes itself
};
using SinkFactory = std::function<Result<std::unique_ptr<Sink>>(const SinkRequest&)>;

struct ServerOptions {
  std::string run_dir;
  std::uint64_t segment_bytes = 0;
  std::uint64_t segments_max = 0;
  std::uint64_t warm_segments = 0;
  std::uint64_t wait_max_ns = 0;
  std::string spill;  ///< directory; empty: nothing spills
  std::uint64_t spill_max = 0;
  double exit_when_idle_s = -1;    ///< < 0: only when told to drain
  bool recover = false;            ///< finish what is there, then end; nobody new is expected
  bool survives_power = false;     ///< where the stage is made: what programs make durable in it is kept (decision 10)
  std::string boot;                ///< the present one; empty: not known
  bool drain_later = false;        ///< the programs need not wait for their files when they end
  unsigned urgencies_share = 20;   ///< the look for what is urgent takes one part of so many of the time
  Executor* encoders = nullptr;    ///< whose threads compress for the sinks; null: not known
  unsigned disk_threads = 0;       ///< for each file system: they commit; 0: the loop does
  unsigned cores = 0;              ///< that the server may use: for its threads, once the programs have ended
  Transport* transport = nullptr;  ///< the servers of the run's other nodes, where there are
  workflow::Settings workflow;     ///< whose files other programs read and write
  RemoteEncoder* remote_encoder = nullptr;  ///< what they do for each other; null: nothing
};

enum class Outcome : std::uint8_t {
  clean = 0,       ///< everything is in its file; the run directory has been removed
  incomplete = 1,  ///< some dataset could not be finished; what is left is in the run directory
  left = 3,        ///< as asked (`leave`): what is not in its file is safe in the run directory, on its disk
  stage_gone = 4,  ///< somebody has removed the run directory; to start again would serve an empty one
};

class Server {
 public:
  /// Takes the run directory (Code::exists when another server has it) and answers on its socket. A program may start
  /// from here on: it waits for the segments that `run` makes.
  static Result<std::unique_ptr<Server>> open(Files& files, const ServerOptions& options, const Config& config,
                                              SinkFactory sinks, Log& log);
  virtual ~Server() = default;

  /// Serve until drained (`drain` request, idle time, recovery done), until nobody writes after a `leave` request, or
  /// until `stop` was called.
  virtual Outcome run() = 0;

  /// From a signal handler: commit what has been published (as far as `server.drain_max` lets it), then end; what is
  /// left stays in the run directory.
  virtual void stop() noexcept = 0;

  /// As a `drain` request on the socket. May be called from a signal handler.
  virtual void drain() noexcept = 0;

  /// How often the loop has come round, from any thread: what has not happened after some turns is
  /// not going to happen by itself.
  [[nodiscard]] virtual std::uint64_t turns() const noexcept = 0;

  /// The server status (docs/json.md), as JSON text.
  virtual std::string status() = 0;
};

}  // namespace advectio
