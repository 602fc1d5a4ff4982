#include <algorithm>
#include <cstdio>
#include <sstream>

#include "faults/run.h"
#include "journal/markers.h"

namespace advectio::faults {

void Run::judge() {
  for (std::size_t i = 0; i < case_.datasets.size(); ++i) judge_dataset(i);
  for (const auto& file : files_in(output_)) judge_leftover(file);
  if (report_.failure[0] == '\0' || damage_.empty()) return;
  const std::string all =
      std::string(report_.failure) + " (damaged: " + damage_ + (met_by_restart_ ? "met by a server" : "") + ")";
  std::snprintf(report_.failure, sizeof report_.failure, "%s", all.c_str());
}

void Run::judge_dataset(std::size_t i) {
  const auto& d = case_.datasets[i];
  auto& count = report_.of[static_cast<std::size_t>(d.writing)];
  ++count.datasets;
  std::uint64_t synced = UINT64_MAX, begun = 0;
  for (std::uint32_t w = 0; w < case_.writers; ++w) {
    if (!d.written_by(w)) continue;
    synced = std::min<std::uint64_t>(synced, ledger_.part[i][w].synced);
    begun = std::max<std::uint64_t>(begun, ledger_.part[i][w].begun);
  }
  if (case_.has(Kind::power_lost) && !d.promised) synced = 0;
  count.synced += synced;
  Found found(d, i);
  bool readable =
      judge_file(i, d.made(), found.look_into(output_ + "/" + d.made(), d.domain(), d.domain(), synced, begun));
  if (d.tiled()) readable = judge_tiles(i, found, synced) && readable;
  if (d.second) judge_second(i, synced, begun);
  std::uint64_t held = 0;
  for (std::uint64_t f = 0; f < synced; ++f) held += found.holds(f, d.domain()) ? 1 : 0;
  if (held == synced) return;
  count.lost += synced - held;
  const bool is_said = said(i) && (said_by_exit_ || vanished_);
  if (is_said) count.lost_said += synced - held;
  const auto text = d.name + ": of " + std::to_string(synced) + " synced frames " + std::to_string(held) + " are there";
  if (!touched_[i] && !vanished_)
    failed(text + (report_.damaged ? ", and it was not touched" : ""));
  else if (!is_said)
    failed(text + ", and nobody says so");
}

/// The file of the further output holds the same frames, or somebody says why not.
void Run::judge_second(std::size_t i, std::uint64_t synced, std::uint64_t begun) {
  const auto& d = case_.datasets[i];
  Found found(d, i);
  const auto name = d.second_file();
  if (!judge_file(i, name, found.look_into(output_ + "/" + name, d.domain(), d.domain(), synced, begun))) return;
  std::uint64_t held = 0;
  for (std::uint64_t f = 0; f < synced; ++f) held += found.holds(f, d.domain()) ? 1 : 0;
  if (held == synced || is_said_of(name) || (vanished_ && said(i))) return;
  // A journal or a page that is damaged is the dataset's.
  if (touched_[i] && said(i)) return;
  failed(name + ": of " + std::to_string(synced) + " synced frames " + std::to_string(held) +
         " are there, and nobody says so");
}

/// An error names that file.
bool Run::is_said_of(const std::string& file) const {
  std::istringstream lines(log());
  for (std::string line; std::getline(lines, line);)
    if (line.find(" error: ") != std::string::npos && line.find("/" + file) != std::string::npos) return true;
  return false;
}

/// Those that have not become one file each hold what their process has synced, where the one file does not.
bool Run::judge_tiles(std::size_t i, Found& found, std::uint64_t synced_by_all) {
  const auto& d = case_.datasets[i];
  bool readable = true;
  for (std::uint32_t w = 0; w < case_.writers; ++w) {
    std::error_code none;
    const auto path = output_ + "/" + d.file_of(w);
    if (std::filesystem::file_size(path, none) > 0 && !none) apart_[i] = true;
    const auto& part = ledger_.part[i][w];
    readable =
        judge_file(i, d.file_of(w),
                   found.look_into(path, d.held(w, case_.writers), d.own(w, case_.writers), part.synced, part.begun)) &&
        readable;
  }
  if (!apart_[i]) return readable;
  const auto why = why_apart(i);
  // Of a tile whose shared state is damaged it is said that it is what it is.
  if (why.empty() && !(case_.has(Kind::page_damaged) && said(i)))
    failed(d.name + ": its tiles are files of their own, and nobody says so");
  if (!may_stay_apart(i, why)) failed(d.name + ": its tiles are files of their own: " + why);
  for (std::uint32_t w = 0; w < case_.writers && !case_.may_lose(); ++w)
    for (std::uint64_t f = synced_by_all; f < ledger_.part[i][w].synced; ++f)
      if (!found.holds(f, d.own(w, case_.writers)))
        failed(d.file_of(w) + ": a file of its own, and frame " + std::to_string(f) + " that was synced is not there");
  return readable;
}

/// A file with something in it that cannot be there. Where the disk has refused to the end to take back what was begun,
/// and nobody is left who could do it later, it is said.
bool Run::judge_file(std::size_t i, const std::string& name, const std::string& wrong) {
  if (wrong.empty()) return true;
  auto& count = report_.of[static_cast<std::size_t>(case_.datasets[i].writing)];
  ++count.malformed;
  if (vanished_ && said(i, "is not to be trusted"))
    ++count.malformed_said;
  else
    failed(name + ": " + wrong);
  return false;
}

/// What the server has said of it.
std::string Run::why_apart(std::size_t i) const {
  std::istringstream lines(log());
  for (std::string line; std::getline(lines, line);)
    if (line.find("/" + case_.datasets[i].name + ": ") != std::string::npos &&
        line.find("its tiles are written") != std::string::npos)
      return line;
  return {};
}

bool Run::may_stay_apart(std::size_t i, const std::string& why) const {
  // Who could not begin its tile has been told.
  for (std::uint32_t w = 0; w < case_.writers; ++w)
    if (ledger_.told[w] && ledger_.part[i][w].begun == 0) return true;
  return case_.may_lose() || case_.has(Kind::stage_full) || case_.has(Kind::read_only) || writer_killed_ ||
         writer_gave_up_ || why.find("the stage is full") != std::string::npos;
}

bool Run::said(std::size_t dataset, const std::string& what) const {
  std::istringstream lines(log());
  const auto& d = case_.datasets[dataset];
  for (std::string line; std::getline(lines, line);)
    if (line.find(" error: ") != std::string::npos && line.find(what) != std::string::npos &&
        (line.find("/" + d.name) != std::string::npos ||
         (what.empty() && vanished_ && line.find(run_dir_) != std::string::npos)))
      return true;
  if (!vanished_ || !what.empty()) return false;
  if (run_dir_missed_) return true;  // `advectio run` says it
  // To the program itself, which has had an error instead of success.
  for (std::uint32_t w = 0; w < case_.writers; ++w)
    if (d.written_by(w) && ledger_.told[w]) return true;
  return false;
}

/// Of a file that has no frame yet.
std::string Run::held_name(const std::string& file) const {
  return Path(journal::held_name_of_new(output_ + "/" + file)).filename();
}

void Run::judge_leftover(const Path& file) {
  const auto name = file.filename().string();
  std::error_code ignored;
  const bool empty = std::filesystem::file_size(file, ignored) == 0;
  for (std::size_t i = 0; i < case_.datasets.size(); ++i) {
    const auto& d = case_.datasets[i];
    if (d.name == name || d.made() == name || (d.second && d.second_file() == name)) return;
    for (std::uint32_t w = 0; w < case_.writers; ++w)
      // Of one that could not be created the program has been told; nothing was put there.
      if (const bool refused = empty && ledger_.told[w] && ledger_.part[i][w].begun == 0;
          (d.file_of(w) == name && (apart_[i] || refused)) || (held_name(d.file_of(w)) == name && refused))
        return;
  }
  // A tile of another node's file, which was complete when the output was away: docs/limitations.md.
  if (case_.away && case_.nodes > 1 && name.starts_with(".advectio-")) return;
  // Empty: of who is killed within nc_create. And what was not promised need not be known of after a loss of power.
  if ((empty && writer_killed_) || left_in_stage_ || vanished_ || case_.has(Kind::power_lost)) return;
  std::string within;
  for (const auto& inner : files_in(file)) within += " " + inner.filename().string();
  failed("left behind: " + name + (within.empty() ? "" : ", with" + within));
}

}  // namespace advectio::faults
