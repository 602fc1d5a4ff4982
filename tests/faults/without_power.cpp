#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "faults/power.h"
#include "faults/run.h"

namespace advectio::faults {

void Run::go_without_power() {
  std::filesystem::create_directory(shadow_of(run_dir_));
  play_until_power_goes();
  lose();
  if (below(3) == 0) {
    servers_.start(Servers::Task::recover, 0, some(400));
    (void)servers_.wait();
    lose();
  }
  recover();
  judge();
  report_.done = true;
}

void Run::play_until_power_goes() {
  const auto wait_us = static_cast<useconds_t>(some(6000));
  const bool at_end = below(4) == 0;
  start_servers();
  for (bool gone = false; !gone; ::usleep(100)) {
    collect();
    if (writers_.empty() && serving_ && servers_.ready()) {
      struct stat st {};
      if (::stat(run_dir_.c_str(), &st) == 0) run_inode_ = st.st_ino;
      start_writers();
    }
    const bool ended = !writers_.empty() && writers_gone();
    if (ended && serving_ && !drain_asked_) {
      servers_.drain();
      drain_asked_ = true;
    }
    if (!serving_ && servers_.code() == 128 + SIGKILL && server_lives_ <= case_.restarts && below(2) == 0)
      start_servers();
    gone = !serving_ || (at_end ? ended : !writers_.empty() && ledger_.frames >= strike_at_);
  }
  ::usleep(wait_us);
  for (const auto pid : writers_)
    if (pid > 0) kill_writer(pid);
  if (serving_) kill_servers();
  for (; !writers_gone() || serving_; ::usleep(100)) collect();
}

void Run::lose() {
  lose_power(run_dir_, shadow_of(run_dir_), random_(), run_inode_);
  lose_power(output_, shadow_of(run_dir_), random_());
  servers_.power_lost();
  if (std::getenv("ADVECTIO_FAULTS_KEEP") != nullptr) keep_what_is_left();
}

/// Copies stage and files as recovery finds them. What recovery makes of them is kept, too, where the run fails.
void Run::keep_what_is_left() {
  namespace fs = std::filesystem;
  const auto scratch = fs::path(run_dir_).parent_path();
  const auto to = scratch / ("left-" + std::to_string(++losses_));
  for (const auto& from : {fs::path(run_dir_), fs::path(output_)}) {
    if (!fs::exists(from)) continue;
    fs::create_directories(to / from.filename());
    for (const auto& e : fs::recursive_directory_iterator(from)) {
      const auto there = to / e.path().lexically_relative(scratch);
      if (e.is_directory())
        fs::create_directories(there);
      else if (e.is_regular_file())
        fs::copy_file(e.path(), there);
    }
  }
}

}  // namespace advectio::faults
