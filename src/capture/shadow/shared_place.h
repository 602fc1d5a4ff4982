// The place of a coupled file, for ranks that use it together.
#pragma once

#include <cerrno>
#include <memory>
#include <span>

#include "capture/coupling.h"
#include "capture/shadow/ranks.h"

namespace advectio::capture {

/// Collective: rank 0 calls `find(code, place)`, and the others have its code and path afterwards.
template <typename Find>
void share_place(const shadow::Ranks& ranks, int& code, Place& place, Find&& find) {
  struct Message {
    int code;
    char path[4096];
  };
  auto message = std::make_unique<Message>();
  if (ranks.rank() == 0) {
    find(code, place);
    message->code = place.path.size() < sizeof message->path ? code : ENAMETOOLONG;
    place.path.copy(message->path, sizeof message->path - 1);
  }
  ranks.broadcast(std::as_writable_bytes(std::span(message.get(), 1)));
  code = message->code;
  place.path = message->path;
}

}  // namespace advectio::capture
