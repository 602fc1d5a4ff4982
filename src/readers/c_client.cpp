// The client with a C face, for python/src/advectio/live_client.py. Not an interface for users: it may
// change with every version.
//
// Every function that can fail returns null or a number that is not 0, and puts a text into `error`.
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "readers/client.h"

namespace {

using namespace advectio;
using namespace advectio::readers;

struct View {
  Lease lease;
};

void put(char* error, std::size_t room, const Error& e) {
  if (error == nullptr || room == 0) return;
  const auto text = std::string(name_of(e.code)) + ": " + e.message;
  const auto n = std::min(room - 1, text.size());
  std::memcpy(error, text.data(), n);
  error[n] = '\0';
}

char* copy_of(const nlohmann::json& object) {
  const auto text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

Part part_of(const std::uint64_t* start, const std::uint64_t* count, const std::uint64_t* stride, std::size_t rank) {
  Part out;
  out.box.start.assign(start, start + rank);
  out.box.count.assign(count, count + rank);
  if (stride != nullptr) out.stride.assign(stride, stride + rank);
  return out;
}

/// Nothing is thrown across C.
template <typename Body, typename Out>
Out guarded(char* error, std::size_t room, Out failed, Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    put(error, room, Error{Code::bug, e.what(), 0});
    return failed;
  }
}

}  // namespace

#define ADVECTIO_EXPORT extern "C" __attribute__((visibility("default")))

/// Of the functions here: whoever loads the library compares it first.
ADVECTIO_EXPORT int advectio_reader_version() {
  return 2;
}

ADVECTIO_EXPORT void* advectio_reader_connect(const char* address, const char* secret, const char* name, int timeout_ms,
                                              int by_ucx, char* error, std::size_t room) {
  return guarded(error, room, static_cast<void*>(nullptr), [&]() -> void* {
    auto a = parse_address(address);
    if (!a) return put(error, room, a.error()), nullptr;
    auto client = Client::connect(*a, secret, name, std::chrono::milliseconds(timeout_ms), by_ucx != 0);
    if (!client) return put(error, room, client.error()), nullptr;
    return client->release();
  });
}

ADVECTIO_EXPORT void advectio_reader_close(void* reader) {
  delete static_cast<Client*>(reader);
}

/// To be freed with `advectio_reader_free`, as all texts.
ADVECTIO_EXPORT char* advectio_reader_server(void* reader) {
  return copy_of(static_cast<Client*>(reader)->server());
}

ADVECTIO_EXPORT void advectio_reader_free(void* memory) {
  std::free(memory);
}

ADVECTIO_EXPORT char* advectio_reader_ask(void* reader, const char* request, char* error, std::size_t room) {
  return guarded(error, room, static_cast<char*>(nullptr), [&]() -> char* {
    auto object = nlohmann::json::parse(request, nullptr, false);
    if (!object.is_object()) return put(error, room, {Code::invalid, "a request is a JSON object", 0}), nullptr;
    auto reply = static_cast<Client*>(reader)->ask(std::move(object));
    if (!reply) return put(error, room, reply.error()), nullptr;
    return copy_of(*reply);
  });
}

ADVECTIO_EXPORT int advectio_reader_read(void* reader, std::uint64_t frame, std::uint32_t variable,
                                         const std::uint64_t* start, const std::uint64_t* count,
                                         const std::uint64_t* stride, std::size_t rank, void* destination,
                                         std::uint64_t bytes, char* error, std::size_t room) {
  return guarded(error, room, 1, [&]() -> int {
    auto done = static_cast<Client*>(reader)->read(frame, variable, part_of(start, count, stride, rank),
                                                   {static_cast<std::byte*>(destination), bytes});
    if (!done) return put(error, room, done.error()), 1;
    return 0;
  });
}

ADVECTIO_EXPORT void* advectio_reader_read_strings(void* reader, std::uint64_t frame, std::uint32_t variable,
                                                   const std::uint64_t* start, const std::uint64_t* count,
                                                   const std::uint64_t* stride, std::size_t rank, std::uint64_t* bytes,
                                                   char* error, std::size_t room) {
  return guarded(error, room, static_cast<void*>(nullptr), [&]() -> void* {
    auto read = static_cast<Client*>(reader)->read_strings(frame, variable, part_of(start, count, stride, rank));
    if (!read) return put(error, room, read.error()), nullptr;
    auto* out = std::malloc(read->size() + 1);
    if (out == nullptr) throw std::bad_alloc();
    std::memcpy(out, read->data(), read->size());
    *bytes = read->size();
    return out;
  });
}

/// 0: `data` and `view` are set, both null where the values lie in no single piece.
ADVECTIO_EXPORT int advectio_reader_view(void* reader, std::uint64_t frame, std::uint32_t variable,
                                         const std::uint64_t* start, const std::uint64_t* count,
                                         const std::uint64_t* stride, std::size_t rank, const void** data, void** view,
                                         char* error, std::size_t room) {
  *data = nullptr;
  *view = nullptr;
  return guarded(error, room, 1, [&]() -> int {
    auto found = static_cast<Client*>(reader)->view(frame, variable, part_of(start, count, stride, rank));
    if (!found) return put(error, room, found.error()), 1;
    if (found->first.empty()) return 0;
    *data = found->first.data();
    *view = new View{std::move(found->second)};
    return 0;
  });
}

ADVECTIO_EXPORT void advectio_reader_let_view_go(void* view) {
  delete static_cast<View*>(view);
}

ADVECTIO_EXPORT void advectio_reader_done(void* reader, std::uint64_t frame) {
  (void)guarded(nullptr, 0, 0, [&] { return static_cast<Client*>(reader)->done(frame), 0; });
}

/// The server's last word; null: it has not ended.
ADVECTIO_EXPORT char* advectio_reader_end(void* reader, int wait) {
  return guarded(nullptr, 0, static_cast<char*>(nullptr), [&]() -> char* {
    const auto end = static_cast<Client*>(reader)->end(wait != 0);
    return end.is_null() ? nullptr : copy_of(end);
  });
}

ADVECTIO_EXPORT int advectio_reader_gone(void* reader) {
  return static_cast<Client*>(reader)->gone() ? 1 : 0;
}
