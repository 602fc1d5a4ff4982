#include "capture/coupling.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>

#include "capture/dataset.h"

namespace advectio::capture {

namespace {

/// This thread reads `couple.conf`. Where we are linked into the program, that goes through our own fopen.
constinit thread_local bool reads_rules __attribute__((tls_model("initial-exec"))) = false;

struct Found {
  workflow::Workflow* workflow = nullptr;
  std::string lost;  ///< the run is of this workflow, and its rules are not there any more; else empty
};

Found find_workflow() {
  Found found;
  const char* const named = std::getenv("ADVECTIO_WORKFLOW");
  const auto stage = stage_directory_of_process();
  if (stage.empty()) return found;
  workflow::Settings settings;
  reads_rules = true;
  std::ifstream in(stage + "/couple.conf");
  const bool there = in.is_open();
  for (std::string line; std::getline(in, line);) (void)settings.take_line(line);
  reads_rules = false;
  if (!settings.memory.empty() && !settings.rules.empty()) found.workflow = new workflow::Workflow(std::move(settings));
  if (!there && named != nullptr) found.lost = named;
  return found;
}

/// Once: a process belongs to one run.
const Found& found_by_process() {
  static const Found found = find_workflow();
  return found;
}

}  // namespace

workflow::Workflow* workflow_of_process() {
  return reads_rules ? nullptr : found_by_process().workflow;
}

void say_of_coupling(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  {
    const std::lock_guard guard(mutex);
    if (!said->insert(text).second) return;
  }
  const std::string line = "advectio: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

void look_at_moved(const workflow::Coupled& file) {
  workflow_of_process()->look_at_moved(file, [](const std::string& path) {
    const auto* session = Session::current();
    return session != nullptr && session->is_open_in_flight(path);
  });
}

void say_not_for_others(const workflow::Coupled& file) {
  say_of_coupling(file.path + " is coupled, and " + workflow_of_process()->settings().name +
                  " is not among those who write it (from): no other program gets what it creates there");
}

namespace {

Error logged(Error error) {
  say_of_coupling(error.message);
  return error;
}

}  // namespace

Result<void> run_is_there(const std::string& path) {
  if (reads_rules || found_by_process().lost.empty()) return {};
  return logged(Error{Code::gone,
                      "the run of this program in the workflow " + found_by_process().lost + " has ended; " + path +
                          " is neither read nor written, as it may be coupled",
                      EOWNERDEAD});
}

Result<Place> place_to_create(const std::string& path, bool no_clobber) {
  auto* workflow = workflow_of_process();
  const auto file = workflow != nullptr ? workflow->of(path) : std::nullopt;
  if (!file || !file->writes) {
    if (file) say_not_for_others(*file);
    return Place{path, std::nullopt};
  }
  auto opened = workflow->create(*file, no_clobber);
  if (!opened) return logged(std::move(opened).error());
  return Place{opened->path == file->path ? path : opened->path, std::move(opened).value()};
}

Result<Place> place_to_open(const std::string& path, bool writing) {
  auto* workflow = workflow_of_process();
  const auto file = workflow != nullptr ? workflow->of(path) : std::nullopt;
  if (!file) return Place{path, std::nullopt};
  look_at_moved(*file);
  auto opened =
      writing ? workflow->open_to_write(*file, say_of_coupling) : workflow->open_to_read(*file, say_of_coupling);
  if (!opened) {
    if (opened.error().code == Code::not_found) return Place{path, std::nullopt};
    return logged(std::move(opened).error());
  }
  return Place{opened->path == file->path ? path : opened->path, std::move(opened).value()};
}

bool remove_coupled(const std::string& path) {
  auto* workflow = workflow_of_process();
  const auto file = workflow != nullptr ? workflow->of_name(path) : std::nullopt;
  char target;
  if (!file || ::readlink(path.c_str(), &target, 1) >= 0) return false;  // a symbolic link itself is on the disk
  return workflow->remove(*file) && file->rule->mode == CoupleRule::Mode::memory;
}

Result<void> leave(const workflow::Opened& opened, bool complete) {
  auto* workflow = workflow_of_process();
  auto done = workflow != nullptr ? workflow->close(opened, complete) : Result<void>{};
  if (!done) say_of_coupling(done.error().message);
  return done;
}

}  // namespace advectio::capture
