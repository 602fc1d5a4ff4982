#include "journal/markers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <span>
#include <utility>

namespace advectio::journal {
namespace {

constexpr std::string_view held_begin = ".advectio-", held_file = ".file", held_marker = ".marker";

/// The same in every process of a run.
std::string hash_of(const std::string& text) {
  char out[17];
  std::snprintf(out, sizeof out, "%016zx", std::hash<std::string>()(text));
  return out;
}

std::string to_text(const Marker& marker) {
  std::string out = "path " + marker.path + "\nheld " + marker.held + '\n';
  if (!marker.file.empty()) out += "file " + marker.file + '\n';
  if (!marker.question.empty()) out += "ask " + marker.question + '\n';
  for (const auto& a : marker.files)
    out += "await " + std::to_string(a.journal) + ' ' + std::to_string(a.number) + ' ' + std::to_string(a.synced) +
           (a.closed ? " 1 " : " 0 ") + a.shared_state + '\n';
  return out;
}

/// Takes a number and the blank behind it.
template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto used = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || used >= text.size() || text[used] != ' ') return false;
  text.remove_prefix(used + 1);
  return true;
}

std::optional<Marker> of_text(std::string_view text) {
  Marker marker;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    auto line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    const auto key = line.substr(0, blank);
    line.remove_prefix(blank + 1);
    if (key == "path") marker.path = line;
    if (key == "held") marker.held = line;
    if (key == "file") marker.file = line;
    if (key == "ask") marker.question = line;
    if (key != "await") continue;
    Awaited a;
    int closed = 0;
    if (!take_number(line, a.journal) || !take_number(line, a.number) || !take_number(line, a.synced) ||
        !take_number(line, closed) || line.empty() || line.find('/') != std::string_view::npos)
      return std::nullopt;
    a.closed = closed != 0;
    a.shared_state = line;
    marker.files.push_back(std::move(a));
  }
  if (!marker.path.starts_with('/') || !marker.held.starts_with('/') || marker.question.find('/') != std::string::npos)
    return std::nullopt;
  return marker;
}

/// A new file appears as it does without us: watchers of its directory (inotify) see IN_CREATE.
Result<void> give_name(const Marker& marker) {
  struct stat held {
  }, named{};
  bool has_name = !marker.file.empty() && ::link(marker.held.c_str(), marker.path.c_str()) == 0;
  // A server may have died in between.
  if (!has_name && ::lstat(marker.held.c_str(), &held) == 0 && ::lstat(marker.path.c_str(), &named) == 0)
    has_name = named.st_dev == held.st_dev && named.st_ino == held.st_ino;
  if (has_name ? ::unlink(marker.held.c_str()) == 0 : ::rename(marker.held.c_str(), marker.path.c_str()) == 0)
    return {};
  return system_error("rename " + marker.held + " to " + marker.path, errno);
}

constexpr char file_letter = 'f';

/// Of a note's name: it is that of a renamed file. A hash has 16 digits.
bool is_of_file(std::string_view name) {
  return name.size() == 17 && name[0] == file_letter;
}

std::string directory_of_notes(const Stage& stage) {
  return stage.directory() + "/markers";
}

std::string note_of(const Stage& stage, const std::string& path, bool is_file) {
  return directory_of_notes(stage) + "/" + (is_file ? std::string(1, file_letter) : std::string()) + hash_of(path);
}

/// Code::not_found; Code::exists where the note is that of another path.
Result<Marker> read_note(const Stage& stage, const std::string& note) {
  auto text = read_file(stage.files(), note);
  if (!text) return std::move(text).error();
  auto marker = of_text({reinterpret_cast<const char*>(text->data()), text->size()});
  if (!marker) return Error{Code::corrupt, note + " is no note of a marker", 0};
  marker->is_file = is_of_file(std::string_view(note).substr(note.rfind('/') + 1));
  return std::move(*marker);
}

}  // namespace

std::optional<Awaited> in_flight_and_closed(const Stage& stage, const std::string& path) {
  const auto name = Stage::state_name_of(path);
  if (!name) return std::nullopt;
  const auto shared_state = stage.open_state(*name);
  if (!shared_state) return std::nullopt;
  const SharedState& p = **shared_state;
  if (has_ended(p) || p.closed.load(std::memory_order_acquire) == 0) return std::nullopt;
  return Awaited{*name, p.journal, p.number, p.synced.load(std::memory_order_acquire), true};
}

std::string held_name_of_new(const std::string& path) {
  return directory_of(path).append(held_begin).append(hash_of(path)).append(held_file);
}

bool is_held_name(std::string_view name) noexcept {
  return name.starts_with(held_begin) && (name.ends_with(held_file) || name.ends_with(held_marker));
}

std::optional<Marker> held_as(const Stage& stage, const std::string& held) {
  const auto name = std::string_view(held).substr(directory_of(held).size());
  if (!is_held_name(name)) return std::nullopt;
  if (name.ends_with(held_file)) {
    const auto hash = name.substr(held_begin.size(), name.size() - held_begin.size() - held_file.size());
    const auto marker = read_note(stage, directory_of_notes(stage) + "/" + file_letter + std::string(hash));
    if (marker && marker->held == held) return *marker;
  }
  const auto all = markers_in(stage);
  for (const auto& marker : all ? *all : std::vector<Marker>())
    if (marker.held == held) return marker;
  return std::nullopt;
}

bool may_be_held(const Stage& stage, const std::string& path) {
  return stage.files().exists(note_of(stage, path, false)) || stage.files().exists(note_of(stage, path, true));
}

std::string held_name_of(const Stage& stage, const std::string& path) {
  if (stage.control().files_held.load(std::memory_order_acquire) == 0) return path;
  const auto marker = read_note(stage, note_of(stage, path, true));
  return marker && marker->path == path ? marker->held : path;
}

Result<std::vector<Awaited>> not_visible(const Stage& stage) {
  auto names = stage.files().list(stage.datasets());
  if (!names) return std::move(names).error();
  std::vector<Awaited> all;
  for (const auto& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    const auto shared_state = stage.open_state(name);
    if (!shared_state) {
      if (shared_state.error().code == Code::not_found) continue;  // finished meanwhile
      return Error(shared_state.error());
    }
    const SharedState& p = **shared_state;
    // A further output is beside what the program has asked for.
    if (has_ended(p) || p.output != 0) continue;
    const bool closed = p.closed.load(std::memory_order_acquire) != 0;
    const auto synced = p.synced.load(std::memory_order_acquire);
    if (closed || p.visible.load(std::memory_order_acquire) < synced)
      all.push_back({name, p.journal, p.number, synced, closed});
  }
  return all;
}

bool has_come(const Stage& stage, const Awaited& awaited) {
  const auto shared_state = stage.open_state(awaited.shared_state);
  if (!shared_state) return shared_state.error().code == Code::not_found;
  const SharedState& p = **shared_state;
  if (p.journal != awaited.journal || p.number != awaited.number || has_ended(p)) return true;
  if (awaited.synced == Awaited::first_frame)
    return !awaited.closed && p.frames_visible.load(std::memory_order_acquire) > 0;
  const bool goes_on = reopened_behind(p) >= awaited.synced;  // what it speaks of is what had been closed
  return (!awaited.closed || goes_on) && p.visible.load(std::memory_order_acquire) >= awaited.synced;
}

Result<std::string> ask_other_nodes(const Stage& stage) {
  static std::atomic<unsigned> count{0};
  auto question =
      std::string(all_files) + "+m+" + std::to_string(::getpid()) + "+" + std::to_string(count.fetch_add(1));
  ADVECTIO_TRY(replace_file(stage.files(), stage.questions() + "/" + question, {}));
  stage.control().asked.fetch_add(1, std::memory_order_release);
  return question;
}

Result<std::vector<Marker>> markers_in(const Stage& stage) {
  auto names = stage.files().list(directory_of_notes(stage));
  if (!names) {
    if (names.error().code == Code::not_found) return std::vector<Marker>();
    return std::move(names).error();
  }
  std::vector<Marker> markers;
  for (const auto& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    auto marker = read_note(stage, directory_of_notes(stage) + "/" + name);
    if (!marker && marker.error().code == Code::not_found) continue;  // it has got its name meanwhile
    if (!marker) return std::move(marker).error();
    markers.push_back(std::move(marker).value());
  }
  std::sort(markers.begin(), markers.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return markers;
}

Result<Markers> Markers::take(const Stage& stage) {
  auto lock = ProcessLock::take(stage.directory() + "/markers.lock");
  if (!lock) return std::move(lock).error();
  return Markers(stage, std::move(lock).value());
}

Result<Markers> Markers::await(const Stage& stage, std::chrono::milliseconds most) {
  constexpr std::chrono::microseconds pause(100);
  for (auto left = most / pause;; --left) {
    auto taken = take(stage);
    if (taken || taken.error().code != Code::exists || left <= 0) return taken;
    ::usleep(pause.count());
  }
}

Marker Markers::make(const std::string& path, bool is_file) const {
  // Two runs may hold one name: each has a stage of its own.
  Marker marker;
  marker.path = path;
  marker.held = directory_of(path).append(held_begin).append(hash_of(stage_->directory() + path)).append(held_marker);
  marker.is_file = is_file;
  return marker;
}

Marker Markers::make_new(const std::string& path, const Awaited& dataset) const {
  auto marker = make(path, true);
  marker.held = held_name_of_new(path);
  marker.file = dataset.shared_state;
  marker.files = {dataset};
  return marker;
}

Result<std::vector<std::string>> Markers::forget_damaged() const {
  std::vector<std::string> damaged;
  const auto names = stage_->files().list(directory_of_notes(*stage_));
  for (const auto& name : names ? *names : std::vector<std::string>()) {
    const auto note = directory_of_notes(*stage_) + "/" + name;
    if (name.find('.') == std::string::npos && read_note(*stage_, note)) continue;
    ADVECTIO_TRY(stage_->files().remove(note));
    damaged.push_back(note);
  }
  count();
  return damaged;
}

Result<std::optional<Marker>> Markers::of(const std::string& path) const {
  for (const bool is_file : {false, true}) {
    auto marker = read_note(*stage_, note_of(*stage_, path, is_file));
    if (!marker && marker.error().code == Code::not_found) continue;
    if (!marker) return std::move(marker).error();
    if (marker->path != path) return Error{Code::exists, "its note is that of " + marker->path, 0};
    return std::optional(std::move(marker).value());
  }
  return std::optional<Marker>();
}

Result<std::vector<Marker>> Markers::all() const {
  auto markers = markers_in(*stage_);
  if (markers) count();
  return markers;
}

Result<void> Markers::keep(const Marker& marker) const {
  if (marker.path.find('\n') != std::string::npos)
    return Error{Code::invalid, "a name with a line break is not held back", 0};
  ADVECTIO_TRY(stage_->files().make_directory(directory_of_notes(*stage_), 0700));
  const auto text = to_text(marker);
  const auto note = note_of(*stage_, marker.path, marker.is_file);
  // First the count: a process that dies in between leaves one too high, which `all` mends.
  if (!stage_->files().exists(note)) counter(marker).fetch_add(1, std::memory_order_release);
  return replace_file(stage_->files(), note, std::as_bytes(std::span(text)));
}

bool Markers::is_held(const Marker& marker) {
  struct stat st {};
  // Another run may have made its own file there since this one died.
  return ::lstat(marker.held.c_str(), &st) == 0 && (marker.file.empty() || Stage::inode_in(marker.file) == st.st_ino);
}

Result<bool> Markers::name(const Marker& marker) const {
  const bool there = is_held(marker);
  if (there) ADVECTIO_TRY(give_name(marker));
  ADVECTIO_TRY(forget(marker));
  return there;
}

Result<void> Markers::forget(const Marker& marker) const {
  if (!marker.question.empty()) {
    const auto question = stage_->questions() + "/" + marker.question;
    ADVECTIO_TRY(stage_->files().remove(question));
    ADVECTIO_TRY(stage_->files().remove(question + answer_suffix));
  }
  const auto note = note_of(*stage_, marker.path, marker.is_file);
  if (!stage_->files().exists(note)) return {};
  ADVECTIO_TRY(stage_->files().remove(note));
  counter(marker).fetch_sub(1, std::memory_order_release);
  return {};
}

std::atomic<std::uint32_t>& Markers::counter(const Marker& marker) const {
  auto& control = stage_->control();
  return marker.is_file ? control.files_held : control.markers_held;
}

/// Anew: a process may have died between a note and its count, or a loss of power has left only one of them.
void Markers::count() const {
  const auto names = stage_->files().list(directory_of_notes(*stage_));
  if (!names && names.error().code != Code::not_found) return;
  std::uint32_t markers = 0, files = 0;
  if (names)
    for (const auto& name : *names) {
      if (name.find('.') != std::string::npos) continue;
      ++(is_of_file(name) ? files : markers);
    }
  stage_->control().markers_held.store(markers, std::memory_order_release);
  stage_->control().files_held.store(files, std::memory_order_release);
}

}  // namespace advectio::journal
