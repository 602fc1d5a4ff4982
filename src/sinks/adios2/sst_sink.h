// A stream of ADIOS2 (SST): readers of ADIOS2 follow the dataset while it is written. What is
// promised, and what is not: docs/sinks/bp5.md.
//
// NAME.sst is the stream's address, which ADIOS2 writes and removes. Nothing else is on the disk.
//
// Nobody waits for a reader: the stream begins without one, keeps two steps, and drops the newest
// where a reader has not taken them. Closing is what ADIOS2 waits in, so a thread of its own does it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "core/result.h"
#include "sinks/adios2/step_writer.h"
#include "sinks/sink.h"

namespace advectio {

/// Streams that are being closed. Outlives the sinks.
class ClosingStreams : public std::enable_shared_from_this<ClosingStreams> {
 public:
  /// Closes it on another thread.
  void close(std::unique_ptr<adios2::StepWriter> stream);
  /// False: a reader still holds one up. The process may only leave by `_exit` then.
  bool wait(std::chrono::milliseconds most);

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  unsigned count_ = 0;
};

struct SstOptions {
  adios2::Compression compression;
  /// Of the engine, in place of the sink's own or beside them.
  std::vector<std::pair<std::string, std::string>> parameters;
  std::shared_ptr<ClosingStreams> closing = std::make_shared<ClosingStreams>();
};

Abilities sst_abilities();

/// `path`: NAME.sst. There is nothing to take up: a sink that is opened again begins a new stream.
/// Errors: Code::unsupported where there is no ADIOS2.
Result<std::unique_ptr<Sink>> open_sst(const std::string& path, const SstOptions& options);

}  // namespace advectio
