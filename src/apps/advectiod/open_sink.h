// Which sink a file gets.
#pragma once

#include <memory>

#include "core/executor.h"
#include "core/result.h"
#include "server/server.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/sink.h"

namespace advectio {

/// What all sinks of a process share.
struct SharedBySinks {
  std::shared_ptr<MemoryBudget> memory;
  std::shared_ptr<Skeletons> skeletons = std::make_shared<Skeletons>();
};

Result<std::unique_ptr<Sink>> open_sink(const SinkRequest& request, const SharedBySinks& shared, Executor& executor,
                                        Helpers* helpers);

}  // namespace advectio
