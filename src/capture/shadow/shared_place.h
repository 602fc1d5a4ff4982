// The place of a coupled file, for ranks that use it together.
#pragma once

#include <cerrno>
#include <span>

#include "capture/coupling.h"
#include "capture/shadow/guard.h"
#include "capture/shadow/ranks.h"

namespace advectio::capture {

/// Collective: rank 0 calls `find(code, place)`, and the others have its code and path afterwards. `no_memory`: the
/// code where a rank has none. An exception must not leave: the other ranks wait.
template <typename Find>
void share_place(const shadow::Ranks& ranks, int no_memory, int& code, Place& place, Find&& find) noexcept {
  struct Message {
    int code;
    char path[4096];
  };
  Message message{no_memory, ""};
  if (ranks.rank() == 0)
    shadow::guarded("the place of a coupled file", [&] {
      find(code, place);
      place.path.copy(message.path, sizeof message.path - 1);
      message.code = place.path.size() < sizeof message.path ? code : ENAMETOOLONG;
    });
  ranks.broadcast(std::as_writable_bytes(std::span(&message, 1)));
  bool has_it = false;
  shadow::guarded("the place of a coupled file", [&] {
    place.path = message.path;
    has_it = true;
  });
  code = ranks.all(has_it) || message.code != 0 ? message.code : no_memory;
  if (code == 0 || !place.coupled) return;
  shadow::guarded("the place of a coupled file", [&] { (void)leave(*place.coupled, false); });
  place.coupled.reset();
}

}  // namespace advectio::capture
