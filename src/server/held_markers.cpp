#include "server/held_markers.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "server/output.h"
#include "workflow/workflow.h"

namespace advectio {

namespace {

constexpr std::uint64_t look_every_ns = 2'000'000;

void note_name(Run& run, const journal::Marker& marker) {
  if (!marker.is_file || marker.file.empty()) ++run.markers_named;
  run.log.debug(marker.path + ": has its name, as what it speaks of is complete");
  run.forward(true);
}

}  // namespace

bool name_file(Run& run, const Output& d, bool is_complete) {
  if (run.stage.control().files_held.load(std::memory_order_acquire) == 0) return false;
  // A program that keeps the lock for longer may have been stopped. Then the next look at all notes gives the name.
  const auto notes = journal::Markers::await(run.stage, std::chrono::milliseconds(20));
  if (!notes) return false;
  const auto found = notes->of(workflow::resolved(d.path));
  if (!found || !*found || (*found)->file != d.state_name) return false;
  const auto& marker = **found;
  const bool awaits_all = !marker.files.empty() && marker.files.front().closed;
  if (awaits_all && !is_complete) return false;
  const auto named = notes->name(marker);
  if (!named) run.report(named.error().message);
  if (named && *named) note_name(run, marker);
  return named && *named;
}

bool HeldMarkers::any() const noexcept {
  const auto& control = run_.stage.control();
  return control.markers_held.load(std::memory_order_acquire) > 0 ||
         control.files_held.load(std::memory_order_acquire) > 0;
}

void HeldMarkers::look(std::uint64_t now) {
  if (now < look_again_ns_) return;
  look_again_ns_ = now + look_every_ns;
  if (!any()) return run_.markers_waiting.clear();
  (void)settle();
  // Where many are held, a look at all takes long.
  constexpr std::uint64_t share = 20;
  look_again_ns_ = std::max(look_again_ns_, now + share * (journal::monotonic_ns() - now));
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
  std::stable_partition(all->begin(), all->end(), [](const auto& marker) { return !marker.is_file; });
  std::vector<bool> is_due;
  for (auto& marker : *all) is_due.push_back(has_come(*notes, marker));
  bool all_named = true;
  for (const bool renamed : {true, false})
    for (std::size_t i = 0; i < all->size(); ++i) {
      const auto& marker = (*all)[i];
      if (marker.is_file != renamed) continue;
      if (is_due[i] && (renamed || all_named)) {
        if (name(*notes, marker)) continue;
        all_named = false;
      }
      if (marker.file.empty()) run_.markers_waiting.push_back(marker.path);
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
  const auto named = notes.name(marker);
  if (!named) {
    report_once(named.error().message);
    return false;
  }
  if (*named) note_name(run_, marker);
  return true;
}

void HeldMarkers::report_rest() {
  const auto notes = journal::Markers::take(run_.stage);
  if (!notes) return;
  auto all = notes->all();
  if (!all) return report_once(all.error().message);
  for (const auto& marker : *all) {
    if (!marker.file.empty()) {
      report_once(marker.path + " has nothing to show yet; until then it is " + marker.held);
      continue;
    }
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
