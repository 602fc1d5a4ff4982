#include "server/held_markers.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

namespace advectio {

namespace {
constexpr std::uint64_t look_every_ns = 2'000'000;
}  // namespace

bool HeldMarkers::any() const noexcept {
  const auto& control = run_.stage.control();
  return control.markers_held.load(std::memory_order_acquire) > 0 ||
         control.files_held.load(std::memory_order_acquire) > 0;
}

void HeldMarkers::look(std::uint64_t now) {
  if (now - looked_ns_ < look_every_ns) return;
  looked_ns_ = now;
  if (any())
    (void)settle();
  else
    run_.markers_waiting.clear();
}

bool HeldMarkers::settle() {
  // The lock is not waited for: who has it may have been stopped.
  const auto notes = journal::Markers::take(run_.stage);
  if (!notes) return notes.error().code != Code::exists;
  auto all = notes->all();
  if (!all) {
    report_once(all.error().message);
    return true;
  }
  run_.markers_waiting.clear();
  // A marker that speaks of a renamed file is looked at before that file, and gets its name after it.
  std::stable_partition(all->begin(), all->end(), [](const auto& marker) { return !marker.is_renamed; });
  std::vector<bool> is_due;
  for (auto& marker : *all) is_due.push_back(has_come(*notes, marker));
  bool all_named = true;
  for (const bool renamed : {true, false})
    for (std::size_t i = 0; i < all->size(); ++i) {
      const auto& marker = (*all)[i];
      if (marker.is_renamed != renamed) continue;
      if (is_due[i] && (renamed || all_named)) {
        if (name(*notes, marker)) continue;
        all_named = false;
      }
      run_.markers_waiting.push_back(marker.path);
    }
  return true;
}

/// Everything that its note awaits.
bool HeldMarkers::has_come(const journal::Markers& notes, journal::Marker& marker) const {
  const auto before = marker.files.size();
  std::erase_if(marker.files, [this](const auto& awaited) { return journal::has_come(run_.stage, awaited); });
  if (marker.files.size() < before) (void)notes.keep(marker);
  // The answer says that the files of other nodes are there.
  const auto answer = run_.stage.questions() + "/" + marker.question + journal::answer_suffix;
  return marker.files.empty() && (marker.question.empty() || run_.files.exists(answer));
}

/// False: it keeps its held name.
bool HeldMarkers::name(const journal::Markers& notes, const journal::Marker& marker) {
  struct stat st {};
  // It is not there where a process has died between its note and its call, or a server between the name and the note.
  const bool there = ::lstat(marker.held.c_str(), &st) == 0;
  if (there && ::rename(marker.held.c_str(), marker.path.c_str()) != 0) {
    report_once(system_error("rename " + marker.held + " to " + marker.path, errno).message);
    return false;
  }
  if (auto forgotten = notes.forget(marker); !forgotten) {
    report_once(forgotten.error().message);
    return false;
  }
  if (there) {
    ++run_.markers_named;
    run_.log.debug(marker.path + ": has its name, as what was closed before it is complete");
    run_.forward(true);
  }
  return true;
}

void HeldMarkers::report_rest() {
  const auto notes = journal::Markers::take(run_.stage);
  if (!notes) return;
  auto all = notes->all();
  if (!all) return report_once(all.error().message);
  for (const auto& marker : *all) {
    std::string files;
    for (const auto& awaited : marker.files)
      if (const auto p = run_.stage.open_state(awaited.shared_state))
        files += (files.empty() ? "" : ", ") + std::string((*p)->path);
    report_once(marker.path + " is held back as " + marker.held +
                (files.empty() ? std::string(marker.question.empty() ? "" : ", as other nodes have files in flight")
                               : ", as it may say that these files are complete: " + files));
  }
}

void HeldMarkers::report_once(const std::string& text) {
  if (reported_.insert(text).second) run_.report(text);
}

}  // namespace advectio
