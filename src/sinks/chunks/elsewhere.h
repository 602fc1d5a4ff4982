// A chunk that another node encodes: what is sent there, what it does, and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/helpers.h"
#include "sinks/chunks/chunk_assembly.h"
#include "sinks/chunks/codec.h"

namespace advectio {

/// How to encode `bytes` that precede it in a request.
Bytes told_how(const EncodePipeline& pipeline, std::size_t bytes);

/// The work: a request is the chunk and what `told_how` says of it. Null: it cannot be done (no memory, or not what a
/// node of the same version would ask for). Memory is the budget's where it has any to spare.
std::shared_ptr<const Message> encode_for_another(std::span<const std::byte> request,
                                                  const std::shared_ptr<MemoryBudget>& memory);

struct EncodedElsewhere {
  Encoded encoded;  ///< its bytes are the first ones of the reply
  std::uint64_t cpu_ns = 0;
};
/// What a reply says. nullopt: it is none, or damaged.
std::optional<EncodedElsewhere> read_reply(std::span<const std::byte> reply);

/// A message whose memory goes back to the budget.
std::shared_ptr<Message> message_of(const std::shared_ptr<MemoryBudget>& memory, Buffer buffer);

}  // namespace advectio
