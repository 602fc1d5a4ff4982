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
#include "journal/hard_link.h"
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

/// Null: outside a run, or after its end. Found once.
const RunOfProcess* run_of_process() {
  static const RunOfProcess* const found = []() -> const RunOfProcess* {
    const auto directory = stage_directory_of_process();
    if (directory.empty()) return nullptr;
    auto stage = Stage::open(system_files(), directory);
    if (!stage) return nullptr;
    std::vector<std::string> patterns;
    std::ifstream in(directory + "/markers.conf");
    for (std::string line; std::getline(in, line);) patterns.push_back(line);
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

MarkerCall::MarkerCall(const std::string& path, Use use) {
  const auto* const run = run_of_process();
  if (run == nullptr) return;
  const auto& control = run->stage.control();
  const bool makes = use == Use::write || use == Use::replace || use == Use::make;
  const bool any_file_held = control.files_held.load(std::memory_order_acquire) > 0;
  const bool any_marker = makes || use == Use::wait || control.markers_held.load(std::memory_order_acquire) > 0;
  if (!any_marker && !any_file_held) return;
  const bool follows = use == Use::read || use == Use::write || use == Use::replace;
  const auto meant = follows ? journal::without_last_links(path) : path;
  const bool is_marker = any_marker && (matches(*run, path) || (meant != path && matches(*run, meant)));
  if (use == Use::wait) {
    if (is_marker) wait_for_files(run->stage, path);
    return;
  }
  if (!is_marker && !any_file_held) return;
  const auto whole = workflow::resolved(meant);
  if (!(is_marker && makes) && !journal::may_be_held(run->stage, whole)) return;
  if (!take_notes(whole, use) || !look_up(whole)) return;
  if (makes && is_marker && !(marker_ && marker_->is_file)) hold_marker(whole, use);
  go_there(use);
}

MarkerCall::MarkerCall(const std::string& path, Use use, const MarkerCall& from, const std::string& source) {
  const auto* const run = run_of_process();
  if (run == nullptr) return;
  const bool is_marker = matches(*run, path);
  auto file = journal::in_flight_and_closed(run->stage, from.path_.empty() ? source : from.path_);
  // It is still open, and has nothing to show.
  if (!file && from.marker_ && !from.marker_->file.empty()) file = from.marker_->files.front();
  const bool any_file_held = run->stage.control().files_held.load(std::memory_order_acquire) > 0;
  if (!is_marker && !file && !any_file_held) return;
  const auto whole = workflow::resolved(path);
  notes_ = from.notes_;
  if (!is_marker && !file && !journal::may_be_held(run->stage, whole)) return;
  if (!take_notes(whole, use) || !look_up(whole)) return;
  if (use == Use::replace && marker_ && !marker_->file.empty()) {
    // The new file of that name goes, and so does its note.
    (void)::unlink(marker_->held.c_str());
    (void)notes_->forget(*std::exchange(marker_, {}));
  }
  if (is_marker && !(marker_ && marker_->is_file))
    hold_marker(whole, use);
  else if (file && (!run->patterns.empty() || from.marker_))
    hold_renamed(whole, use, *file);
  go_there(use);
}

/// False: they cannot be had. Where the stage is gone, the run has ended.
bool MarkerCall::take_notes(const std::string& path, Use use) {
  const auto& stage = run_of_process()->stage;
  if (notes_) return true;
  auto notes = Markers::await(stage);
  if (notes)
    notes_ = std::make_shared<const Markers>(std::move(notes).value());
  else if (stage.there() && use != Use::look && use != Use::read)
    do_without(path, notes.error());
  return static_cast<bool>(notes_);
}

bool MarkerCall::look_up(const std::string& path) {
  auto held = notes_->of(path);
  if (!held) {
    do_without(path, held.error());
    return false;
  }
  marker_ = std::move(held).value();
  // A new file that has gone, as its dataset was given up. The name is free.
  if (marker_ && !marker_->file.empty() && look_at(marker_->held) == There::nothing)
    (void)notes_->forget(*std::exchange(marker_, {}));
  return true;
}

void MarkerCall::go_there(Use use) {
  if (marker_) {
    path_ = marker_->held;
    removes_ = use == Use::remove;
  } else {
    notes_.reset();
  }
}

/// The name is not held; the call waits for the files instead.
void MarkerCall::do_without(const std::string& path, const Error& why) {
  say(path + " cannot be held back: " + why.message);
  marker_.reset();
  notes_.reset();  // the server may need the lock to go on
  wait_for_files(run_of_process()->stage, path);
}

/// The program makes the marker. It stays its own name where nothing is in flight.
void MarkerCall::hold_marker(const std::string& path, Use use) {
  const auto& stage = run_of_process()->stage;
  const bool several_nodes = stage.control().nodes > 1;
  auto files = journal::not_visible(stage);
  if (!files) return do_without(path, files.error());
  if (!marker_) {
    const auto there = look_at(path);
    // A complete file may have yet to get its final name.
    const bool is_complete =
        files->empty() && !several_nodes && stage.control().files_held.load(std::memory_order_acquire) == 0;
    if (is_complete || there == There::other || (there == There::file && use == Use::make)) return;
    auto made = notes_->make(path);
    (void)::unlink(made.held.c_str());  // of a process that died before its note
    if (there == There::file && use == Use::write)
      if (auto copied = workflow::copy_file(path, made.held); !copied) {
        (void)::unlink(made.held.c_str());
        return do_without(path, copied.error());
      }
    marker_ = std::move(made);
  }
  for (auto& one : *files)
    if (std::find(marker_->files.begin(), marker_->files.end(), one) == marker_->files.end())
      marker_->files.push_back(std::move(one));
  Result<void> kept;
  if (several_nodes) {
    // Other nodes may have closed more since the last question.
    if (const auto before = std::exchange(marker_->question, {}); !before.empty())
      for (const char* suffix : {"", journal::answer_suffix})
        (void)stage.files().remove(stage.questions() + "/" + before + suffix);
    if (auto asked = journal::ask_other_nodes(stage))
      marker_->question = std::move(asked).value();
    else
      kept = std::move(asked).error();
  }
  if (kept) kept = notes_->keep(*marker_);
  if (kept) return;
  (void)::unlink(marker_->held.c_str());
  do_without(path, kept.error());
}

/// The program gives a file that is in flight its final name, or a further one.
void MarkerCall::hold_renamed(const std::string& path, Use use, const journal::Awaited& file) {
  const auto there = look_at(path);
  if (use == Use::make && (marker_ || there != There::nothing)) return;  // the call fails by itself
  auto renamed = notes_->make(path, true);
  if (!marker_) (void)::unlink(renamed.held.c_str());  // of a process that died before its note
  renamed.files = {file};
  if (auto kept = notes_->keep(renamed); !kept) return do_without(path, kept.error());
  marker_ = std::move(renamed);
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

namespace {

std::string as_directory(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return workflow::resolved(path) + "/";
}

}  // namespace

DirectoryMove::DirectoryMove(const std::string& from, const std::string& to) {
  const auto* const run = run_of_process();
  if (run == nullptr) return;
  const auto& control = run->stage.control();
  if (control.files_held.load(std::memory_order_acquire) + control.markers_held.load(std::memory_order_acquire) == 0)
    return;
  struct stat st {};
  if (::lstat(from.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return;
  from_ = as_directory(from);
  to_ = as_directory(to);
  if (auto notes = Markers::await(run->stage)) notes_ = std::make_shared<const Markers>(std::move(notes).value());
}

void DirectoryMove::done() const {
  if (!notes_) return;
  const auto all = notes_->all();
  for (const auto& marker : all ? *all : std::vector<Marker>()) {
    if (!marker.path.starts_with(from_) || !marker.held.starts_with(from_)) continue;
    auto moved = marker, before = marker;
    moved.path.replace(0, from_.size(), to_);
    moved.held.replace(0, from_.size(), to_);
    before.question.clear();  // which is that of the moved one now
    if (auto kept = notes_->keep(moved); !kept)
      say(moved.path + ": " + kept.error().message);  // the server finds the directory by itself
    else
      (void)notes_->forget(before);
  }
}

bool any_file_held() {
  const auto* const run = run_of_process();
  return run != nullptr && run->stage.control().files_held.load(std::memory_order_acquire) > 0;
}

std::string own_name(const std::string& held) {
  const auto* const run = run_of_process();
  if (run == nullptr) return {};
  const auto& control = run->stage.control();
  if (control.files_held.load(std::memory_order_acquire) + control.markers_held.load(std::memory_order_acquire) == 0)
    return {};
  const auto marker = journal::held_as(run->stage, held);
  return marker ? marker->path : std::string();
}

std::string present_path(const std::string& path) {
  const auto* const run = run_of_process();
  return run != nullptr ? Waiting(run->stage).present_path(path) : path;
}

}  // namespace advectio::capture
