// Threads that wait for disks instead of the loop. Each file system has its own: one that hangs holds up only its own
// files.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>

#include "core/executor.h"

namespace advectio {

class DiskThreads {
 public:
  /// So many for each file system; 0: its jobs run at once, on the caller's thread.
  explicit DiskThreads(unsigned each) : each_(each) {}

  /// The loop only. The destructor waits for what was given.
  Executor& of(dev_t file_system);

 private:
  const unsigned each_;
  std::map<dev_t, std::unique_ptr<Executor>> of_;
};

}  // namespace advectio
