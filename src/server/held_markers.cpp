#include "server/held_markers.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "journal/hard_link.h"
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

std::string in_directory(const std::string& directory, const std::string& path) {
  return directory + path.substr(directory_of(path).size());
}

/// Gives it its name in the directory where that is now. False as Markers::name.
Result<bool> give_name(Run& run, const journal::Markers& notes, const journal::Marker& marker) {
  if (journal::Markers::is_held(marker)) return notes.name(marker);
  for (const auto& directory : run.held_directories.now(directory_of(marker.path))) {
    auto moved = marker;
    moved.path = in_directory(directory, marker.path);
    moved.held = in_directory(directory, marker.held);
    if (!journal::Markers::is_held(moved)) continue;
    auto named = notes.name(moved);
    if (!named) return named;
    ADVECTIO_TRY(notes.forget(marker));
    run.log.info(marker.path + ": its directory has been moved; it is " + moved.path);
    return true;
  }
  // Where its file system is not mounted, the note stays for the next recovery.
  if (!marker.file.empty())
    if (const auto s = run.stage.open_state(marker.file);
        s && journal::look_for_file(**s, marker.file) == journal::FileNames::away)
      return false;
  if (!run.files.exists(directory_of(marker.path)))
    run.log.warning(marker.path + ": its directory is not there; if it has been moved, the file in it is " +
                    marker.held.substr(directory_of(marker.held).size()));
  return notes.name(marker);
}

/// The note of the output's file. Its path is another than the output's if the directory has been moved.
std::optional<journal::Marker> note_of(const journal::Markers& notes, const Output& d) {
  if (auto found = notes.of(workflow::resolved(d.path)); found && *found && (*found)->file == d.state_name)
    return std::move(**found);
  const auto all = notes.all();
  for (const auto& marker : all ? *all : std::vector<journal::Marker>())
    if (marker.file == d.state_name) return marker;
  return std::nullopt;
}

}  // namespace

bool name_file(Run& run, const Output& d, bool is_complete) {
  if (run.stage.control().files_held.load(std::memory_order_acquire) == 0) return false;
  // A program that keeps the lock for longer may have been stopped. Then the next look at all notes gives the name.
  const auto notes = journal::Markers::await(run.stage, std::chrono::milliseconds(20));
  if (!notes) return false;
  const auto marker = note_of(*notes, d);
  if (!marker) return false;
  const bool awaits_all = !marker->files.empty() && marker->files.front().closed;
  if (awaits_all && !is_complete) return false;
  const auto named = give_name(run, *notes, *marker);
  if (!named) run.report(named.error().message);
  if (named && *named) note_name(run, *marker);
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
  if (!any()) {
    run_.held_directories.forget();
    run_.markers_waiting.clear();
    run_.awaited_by_markers.clear();
    return;
  }
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
  run_.awaited_by_markers.clear();
  // A marker that speaks of a renamed file is looked at before that file, and gets its name after it.
  std::stable_partition(all->begin(), all->end(), [](const auto& marker) { return !marker.is_file; });
  std::vector<bool> is_due;
  for (auto& marker : *all) {
    run_.held_directories.watch(directory_of(marker.held));
    is_due.push_back(has_come(*notes, marker));
    if (!marker.is_file)
      for (const auto& awaited : marker.files) run_.awaited_by_markers.insert(awaited.shared_state);
  }
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
  const auto named = give_name(run_, notes, marker);
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
