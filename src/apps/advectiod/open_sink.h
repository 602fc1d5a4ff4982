// Which sink a file gets.
#pragma once

#include <memory>

#include "config/config.h"
#include "core/executor.h"
#include "core/result.h"
#include "server/server.h"
#include "sinks/adios2/sst_sink.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/sink.h"

namespace advectio {

/// What all sinks of a process share.
struct SharedBySinks {
  std::shared_ptr<MemoryBudget> memory;
  std::shared_ptr<Skeletons> skeletons = std::make_shared<Skeletons>();
  std::shared_ptr<ClosingStreams> streams = std::make_shared<ClosingStreams>();
};

/// Of a Zarr store that becomes netCDF: HDF5 has filters for all of its codecs, and few programs that read netCDF have
/// the filters. Codecs that are not asked for become deflate.
void make_readable(Schema& schema);

/// What the sink of a format can do.
Abilities abilities_of(FileFormat format);

/// An error that names the rule whose format or codec this machine cannot write: ADIOS2 is missing, or
/// has not what is asked of it. Loads it only where some rule needs it.
Result<void> can_be_written(const Config& config);

/// The same of one policy; `origin` says where it was asked for.
Result<void> can_be_written(const DatasetPolicy& policy, const std::string& origin);

/// An error where `join` and `process` do not write that format.
Result<void> can_be_made_of_files(FileFormat format);

Result<std::unique_ptr<Sink>> open_sink(const SinkRequest& request, const SharedBySinks& shared, Executor& executor,
                                        Helpers* helpers);

/// The same for a file that is made at once, at a path where nobody looks before it is complete. That of BP5 is
/// sinks/adios2/bp5_file_sink.h, and asks for an order.
Result<std::unique_ptr<Sink>> open_sink_for_whole(const SinkRequest& request, const SharedBySinks& shared,
                                                  Executor& executor);

}  // namespace advectio
