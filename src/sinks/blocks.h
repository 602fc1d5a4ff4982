// What both sinks ask of blocks.
#pragma once

#include <functional>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "sinks/sink.h"

namespace advectio {

/// An error unless the block lies within its variable and has as many bytes as elements take.
Result<void> check(const Block& block, const Variable& variable,
                   const std::function<const Dimension&(std::uint32_t)>& dimension);

/// True when the blocks together cover all of `whole`. Gives up (false) when it becomes involved.
bool cover(const std::vector<const Block*>& blocks, const Box& whole);

}  // namespace advectio
