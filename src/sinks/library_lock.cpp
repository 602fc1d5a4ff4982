#include "sinks/library_lock.h"

namespace advectio {

std::recursive_mutex& library_mutex() {
  // Never destroyed: a sink with static storage may outlive every other static object.
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

}  // namespace advectio
