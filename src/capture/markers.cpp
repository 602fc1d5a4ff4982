#include "capture/markers.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "capture/dataset.h"
#include "capture/rules.h"
#include "capture/waiting.h"
#include "workflow/versions.h"
#include "workflow/workflow.h"

namespace advectio::capture {

using journal::Marker;
using journal::Markers;
using journal::Stage;

namespace {

struct RunOfProcess {
  Stage stage;
  std::vector<std::string> patterns;
};

/// Null: outside a run, after its end, or where its config has no markers. Found once.
const RunOfProcess* run_of_process() {
  static const RunOfProcess* const found = []() -> const RunOfProcess* {
    const auto directory = stage_directory_of_process();
    if (directory.empty()) return nullptr;
    auto stage = Stage::open(system_files(), directory);
    if (!stage) return nullptr;
    std::vector<std::string> patterns;
    std::ifstream in(directory + "/markers.conf");
    for (std::string line; std::getline(in, line);) patterns.push_back(line);
    if (patterns.empty()) return nullptr;
    return new RunOfProcess{std::move(stage).value(), std::move(patterns)};
  }();
  return found;
}

bool matches(const RunOfProcess& run, const std::string& path) {
  const auto name = base_name(path);
  return !name.empty() && std::any_of(run.patterns.begin(), run.patterns.end(), [&](const auto& pattern) {
    const bool by_path = pattern.find('/') != std::string::npos;
    return ::fnmatch(pattern.c_str(), by_path ? absolute(path).c_str() : name.c_str(), 0) == 0;
  });
}

void say(const std::string& text) {
  const std::string line = "advectio: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

enum class There : std::uint8_t { nothing, file, other };

There look_at(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return There::nothing;
  return S_ISREG(st.st_mode) ? There::file : There::other;
}

/// Until all that is in flight now is visible. `path`: for texts.
void wait_for_files(const Stage& stage, const std::string& path) {
  auto files = journal::not_visible(stage);
  if (!files || files->empty()) return;
  const auto done = Waiting(stage).until(
      [&] {
        std::erase_if(*files, [&](const auto& awaited) { return journal::has_come(stage, awaited); });
        return files->empty();
      },
      "wait with " + path + " until the run's files are complete");
  if (!done) say(done.error().message + "; it is made although they are not");
}

}  // namespace

MarkerCall::MarkerCall(const std::string& path, Use use, const MarkerCall* other) {
  const auto* const run = run_of_process();
  if (run == nullptr) return;
  const bool makes = use == Use::write || use == Use::replace || use == Use::make;
  const bool any_held = run->stage.control().markers_held.load(std::memory_order_acquire) > 0;
  if ((!makes && use != Use::wait && !any_held) || !matches(*run, path)) return;
  if (use == Use::wait)
    wait_for_files(run->stage, path);
  else
    find(workflow::resolved(path), use, other);
}

/// Is the name held, or is it to be?
void MarkerCall::find(const std::string& path, Use use, const MarkerCall* other) {
  const auto& stage = run_of_process()->stage;
  if (other != nullptr) notes_ = other->notes_;
  if (!notes_) {
    auto notes = Markers::await(stage);
    // Where its directory is gone, the run has ended.
    if (!notes && stage.there() && use != Use::look) wait_for_files(stage, path);
    if (!notes) return;
    notes_ = std::make_shared<const Markers>(std::move(notes).value());
  }
  auto held = notes_->of(path);
  if (!held) {
    notes_.reset();  // the server may need the lock to go on
    say("the note of " + path + " cannot be read: " + held.error().message);
    return wait_for_files(stage, path);
  }
  marker_ = std::move(held).value();
  if (use == Use::write || use == Use::replace || use == Use::make) hold(path, use);
  if (!marker_) {
    notes_.reset();
    return;
  }
  path_ = marker_->held;
  removes_ = use == Use::remove;
}

/// The program makes the marker. It stays its own name where nothing is in flight.
void MarkerCall::hold(const std::string& path, Use use) {
  const auto& stage = run_of_process()->stage;
  auto files = journal::not_visible(stage);
  if (files && !marker_) {
    const auto there = look_at(path);
    const bool several_nodes = stage.control().nodes > 1;
    const bool is_complete = files->empty() && !several_nodes;
    if (is_complete || there == There::other || (there == There::file && use == Use::make)) return;
    auto made = notes_->make(path);
    (void)::unlink(made.held.c_str());  // of a process that died before its note
    if (there == There::file && use == Use::write)
      if (auto copied = workflow::copy_file(path, made.held); !copied) files = std::move(copied).error();
    marker_ = std::move(made);
  }
  if (files) {
    for (auto& one : *files)
      if (std::find(marker_->files.begin(), marker_->files.end(), one) == marker_->files.end())
        marker_->files.push_back(std::move(one));
    Result<void> kept;
    if (stage.control().nodes > 1) {
      if (auto asked = journal::ask_other_nodes(stage))
        marker_->question = std::move(asked).value();
      else
        kept = std::move(asked).error();
    }
    if (kept) kept = notes_->keep(*marker_);
    if (kept) return;
    files = std::move(kept).error();
  }
  say(path + " cannot be held back: " + files.error().message);
  if (marker_) (void)::unlink(marker_->held.c_str());
  marker_.reset();
  notes_.reset();
  wait_for_files(stage, path);
}

MarkerCall::~MarkerCall() {
  if (!marker_ || !notes_) return;
  // The call has failed, or has taken the name away.
  if (look_at(marker_->held) == There::nothing) {
    (void)notes_->forget(*marker_);
    // One of an earlier run, to the program the same file.
    if (removes_) (void)::unlink(marker_->path.c_str());
  }
  notes_.reset();
  journal::ring(run_of_process()->stage.control().work);
}

}  // namespace advectio::capture
