#include "server/held_markers.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace advectio {

namespace {
constexpr std::uint64_t look_every_ns = 2'000'000;
}  // namespace

bool HeldMarkers::any() const noexcept {
  return run_.stage.control().markers_held.load(std::memory_order_acquire) > 0;
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
  for (auto& marker : *all) {
    const auto before = marker.files.size();
    std::erase_if(marker.files, [this](const auto& awaited) { return journal::has_come(run_.stage, awaited); });
    // Where the answer is there, the files of other nodes are.
    const auto answer = run_.stage.questions() + "/" + marker.question + journal::answer_suffix;
    const bool others_have = marker.question.empty() || run_.files.exists(answer);
    if (marker.files.empty() && others_have && name(*notes, marker)) continue;
    run_.markers_waiting.push_back(marker.path);
    if (marker.files.size() < before) (void)notes->keep(marker);
  }
  return true;
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
