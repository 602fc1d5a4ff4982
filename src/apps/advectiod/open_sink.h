// Which sink a file gets.
#pragma once

#include <memory>

#include "core/executor.h"
#include "core/result.h"
#include "server/server.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/sink.h"

namespace advectio {

Result<std::unique_ptr<Sink>> open_sink(const SinkRequest& request, const std::shared_ptr<MemoryBudget>& memory,
                                        Executor& executor, Helpers* helpers);

}  // namespace advectio
