#include "sinks/chunks/elsewhere.h"

#include <isa-l/crc.h>

#include <cstring>
#include <new>
#include <utility>

#include "platform/machine.h"

namespace advectio {

namespace {

struct ReplyEnd {
  std::uint64_t cpu_ns = 0;
  std::uint32_t mask = 0;
  std::uint32_t checksum = 0;  ///< of the encoded bytes: who is ended while it sends may send anything
};

/// Of less than 2 GiB.
std::uint32_t checksum_of(const std::byte* data, std::size_t bytes) {
  // Never changed, whatever its declaration says.
  auto* at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data));
  const auto sum = ::crc32_iscsi(at, static_cast<int>(bytes), ~0U);
  clean_vector_registers();
  return sum;
}

}  // namespace

Bytes told_how(const EncodePipeline& pipeline, std::size_t bytes) {
  Bytes how;
  how.reserve(128);
  Encoder out(how);
  out.number(static_cast<std::uint32_t>(pipeline.stages.size()));
  for (const auto& stage : pipeline.stages) {
    out.number(stage.id);
    out.number(static_cast<std::uint8_t>(stage.optional));
    out.number(static_cast<std::uint32_t>(stage.parameters.size()));
    for (const auto p : stage.parameters) out.number(p);
  }
  out.number(static_cast<std::uint64_t>(pipeline.element));
  out.number(static_cast<std::uint8_t>(pipeline.deflate));
  out.number(static_cast<std::uint8_t>(pipeline.level.has_value()));
  out.number(static_cast<std::int32_t>(pipeline.level.value_or(0)));
  out.number(static_cast<std::uint64_t>(bytes));
  return how;
}

std::shared_ptr<const Message> encode_for_another(std::span<const std::byte> request,
                                                  const std::shared_ptr<MemoryBudget>& memory) {
  const auto begin = thread_cpu_ns();
  std::uint64_t bytes = 0;
  if (request.size() < sizeof bytes) return nullptr;
  std::memcpy(&bytes, request.data() + request.size() - sizeof bytes, sizeof bytes);
  if (bytes > request.size() - sizeof bytes) return nullptr;
  Decoder in(request.subspan(bytes));
  EncodePipeline pipeline;
  pipeline.stages.resize(in.count(9));
  for (auto& stage : pipeline.stages) {
    stage.id = in.number<std::uint32_t>();
    stage.optional = in.number<std::uint8_t>() != 0;
    stage.parameters.resize(in.count(4));
    for (auto& p : stage.parameters) p = in.number<std::uint32_t>();
    if (!can_encode(stage.id)) return nullptr;
  }
  pipeline.element = in.number<std::uint64_t>();
  pipeline.deflate = static_cast<DeflateMaker>(in.number<std::uint8_t>());
  const bool has_level = in.number<std::uint8_t>() != 0;
  const auto level = in.number<std::int32_t>();
  if (has_level) pipeline.level = level;
  (void)in.number<std::uint64_t>();
  if (!in.ok() || !in.at_end() || pipeline.element == 0) return nullptr;
  try {
    auto reply = message_of(memory, memory->take());
    auto spare = memory->take();
    auto encoded = encode(pipeline, request.first(bytes), reply->buffer, spare);
    memory->give(std::move(spare));
    // What is wrong is found, and said, by who asks.
    if (!encoded) return nullptr;
    reply->bytes = encoded->bytes + sizeof(ReplyEnd);
    if (reply->buffer.capacity() < reply->bytes) {
      Buffer larger;
      larger.reserve(reply->bytes);
      std::memcpy(larger.data(), reply->buffer.data(), encoded->bytes);
      reply->buffer = std::move(larger);
    }
    const ReplyEnd end{thread_cpu_ns() - begin, encoded->mask, checksum_of(reply->buffer.data(), encoded->bytes)};
    std::memcpy(reply->buffer.data() + encoded->bytes, &end, sizeof end);
    return reply;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::optional<EncodedElsewhere> read_reply(std::span<const std::byte> reply) {
  ReplyEnd end;
  if (reply.size() < sizeof end) return std::nullopt;
  const auto bytes = reply.size() - sizeof end;
  std::memcpy(&end, reply.data() + bytes, sizeof end);
  if (end.checksum != checksum_of(reply.data(), bytes)) return std::nullopt;
  return EncodedElsewhere{{bytes, end.mask}, end.cpu_ns};
}

std::shared_ptr<Message> message_of(const std::shared_ptr<MemoryBudget>& memory, Buffer buffer) {
  return {new Message{std::move(buffer), 0}, [memory](Message* m) {
            memory->give(std::move(m->buffer));
            delete m;
          }};
}

}  // namespace advectio
