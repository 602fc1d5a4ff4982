#include "server/disk_threads.h"

#include <utility>

namespace advectio {

void DiskThreads::run(dev_t file_system, std::function<void()> job) {
  auto& threads = of_[file_system];
  if (!threads) threads = std::make_unique<Executor>(each_);
  threads->run(std::move(job));
}

}  // namespace advectio
