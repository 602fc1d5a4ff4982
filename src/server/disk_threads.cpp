#include "server/disk_threads.h"

namespace advectio {

Executor& DiskThreads::of(dev_t file_system) {
  auto& threads = of_[file_system];
  if (!threads) threads = std::make_unique<Executor>(each_);
  return *threads;
}

}  // namespace advectio
