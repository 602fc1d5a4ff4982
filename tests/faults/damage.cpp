#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <fstream>

#include "faults/run.h"
#include "journal/markers.h"
#include "journal/stage.h"

namespace advectio::faults {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> all;
  std::error_code ignored;
  for (const auto& e : fs::directory_iterator(directory, ignored)) all.push_back(e.path());
  std::sort(all.begin(), all.end());
  return all;
}

void Run::damage() {
  if (case_.has(Kind::journal_damaged)) damage_journal();
  if (case_.has(Kind::page_damaged)) damage_page();
}

void Run::flip(const Path& file, std::uint64_t at, std::uint64_t bytes) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    f.seekg(static_cast<std::streamoff>(at + i));
    const int byte = f.get();
    f.seekp(static_cast<std::streamoff>(at + i));
    f.put(static_cast<char>(byte ^ static_cast<int>(1 + below(255))));
  }
  report_.damaged = true;
  damage_ +=
      file.string().substr(run_dir_.size()) + " byte " + std::to_string(at) + " +" + std::to_string(bytes) + "; ";
}

void Run::damage_journal() {
  std::vector<fs::path> segments;
  for (const auto& journal : files_in(run_dir_ + "/journals"))
    for (const auto& file : files_in(journal))
      if (std::isdigit(file.filename().string()[0]) != 0) segments.push_back(file);
  if (segments.empty()) return;
  const auto& segment = segments[below(segments.size())];
  // "x-<pid>-…"
  const auto name = segment.parent_path().filename().string();
  const auto pid = std::atoi(name.c_str() + name.find('-') + 1);
  std::uint64_t published = 0;
  std::ifstream(segment, std::ios::binary).seekg(64).read(reinterpret_cast<char*>(&published), sizeof published);
  if (published <= 4096 || published > segment_bytes) return;
  // Mostly records; sometimes the header, which says among others up to where there are any.
  const auto at = below(8) == 0 ? below(80) : 4096 + below(published - 4096);
  flip(segment, at, 1 + below(8));
  const auto w = std::find(pids_.begin(), pids_.end(), pid) - pids_.begin();
  for (std::size_t i = 0; i < case_.datasets.size(); ++i)
    touched_[i] = touched_[i] || case_.datasets[i].written_by(static_cast<std::uint32_t>(w));
}

void Run::damage_page() {
  std::vector<fs::path> shared_states;
  for (const auto& shared_state : files_in(run_dir_ + "/datasets"))
    if (shared_state.filename().string().find('.') == std::string::npos) shared_states.push_back(shared_state);
  if (shared_states.empty()) return;
  const auto& shared_state = shared_states[below(shared_states.size())];
  using journal::SharedState;
  struct Field {
    std::uint64_t at, bytes;
  };
  const Field fields[] = {{0, 32},
                          {offsetof(SharedState, path), 40},
                          {offsetof(SharedState, link), 60},
                          {offsetof(SharedState, synced), 32},
                          {offsetof(SharedState, visible), 36},
                          {offsetof(SharedState, writers), 20},
                          {offsetof(SharedState, whole), 8}};
  const auto& field = fields[below(std::size(fields))];
  flip(shared_state, field.at + below(field.bytes), 1 + below(4));
  for (std::size_t i = 0; i < case_.datasets.size(); ++i) {
    const auto is_page_of = [&](const std::string& name) {
      const auto path = output_ + "/" + name;
      for (const auto& names : {path, journal::held_name_of_new(path)})
        if (const auto page = journal::Stage::state_name_of(names); page && *page == shared_state.filename().string())
          return true;
      return false;
    };
    touched_[i] = touched_[i] || is_page_of(case_.datasets[i].name);
    for (std::uint32_t w = 0; w < case_.writers; ++w)
      touched_[i] = touched_[i] || is_page_of(case_.datasets[i].file_of(w));
  }
}

}  // namespace advectio::faults
