#include "apps/advectiod/leftover.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "journal/reader.h"

namespace advectio {

int list_leftover(const std::string& run_dir, bool as_json) {
  auto& files = system_files();
  auto stage = journal::Stage::open(files, run_dir);
  if (!stage) {
    std::fprintf(stderr, "advectiod: error: %s\n", stage.error().message.c_str());
    return 2;
  }
  // What is staged beyond the last commit, per (journal, dataset).
  struct Staged {
    std::uint64_t frames = 0, bytes = 0;
  };
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> visible;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Staged> staged;
  auto datasets = nlohmann::json::array();
  auto problems = nlohmann::json::array();
  std::vector<journal::Page<journal::DatasetPage>> pages;
  if (auto names = files.list(stage->datasets())) {
    for (const auto& name : *names) {
      if (name[0] == '.' || name.find(".schema") != std::string::npos) continue;
      auto page = stage->open_page(name);
      if (!page) {
        problems.push_back(page.error().message);
        continue;
      }
      visible[{(*page)->journal, (*page)->number}] = (*page)->visible.load();
      pages.push_back(std::move(page).value());
    }
  }
  if (auto names = files.list(stage->journals())) {
    for (const auto& name : *names) {
      if (name[0] == '.') continue;
      auto reader = journal::Reader::open(files, stage->journals() + "/" + name, journal::Trust::published);
      if (!reader) {
        problems.push_back(reader.error().message);
        continue;
      }
      for (;;) {
        auto record = (*reader)->next();
        if (!record) {
          problems.push_back(record.error().message);
          break;
        }
        if (!record->has_value()) break;
        const auto& r = **record;
        const std::pair key{(*reader)->journal(), r.dataset};
        const auto it = visible.find(key);
        if (it == visible.end() || r.sequence <= it->second) continue;
        if (r.type == journal::RecordType::put) staged[key].bytes += r.payload.size();
        if (r.type == journal::RecordType::sync || r.type == journal::RecordType::close) {
          if (auto sync = journal::decode_sync(r.meta); sync && sync->frame > 0) ++staged[key].frames;
        }
      }
    }
  }
  for (const auto& page : pages) {
    const auto s = staged[{page->journal, page->number}];
    datasets.push_back({{"path", page->path},
                        {"frames_visible", page->frames_visible.load()},
                        {"frames_staged", s.frames},
                        {"bytes_staged", s.bytes},
                        {"closed", page->closed.load() != 0},
                        {"error", page->error_text[0] != '\0' ? nlohmann::json(page->error_text) : nlohmann::json()}});
  }
  if (as_json) {
    std::printf(
        "%s\n",
        nlohmann::json{
            {"run_dir", run_dir}, {"served", stage->server_alive()}, {"datasets", datasets}, {"errors", problems}}
            .dump(2)
            .c_str());
  } else {
    for (const auto& d : datasets)
      std::printf("%s: %llu frames in the file, %llu frames (%llu bytes) staged%s\n",
                  d["path"].get<std::string>().c_str(), d["frames_visible"].get<unsigned long long>(),
                  d["frames_staged"].get<unsigned long long>(), d["bytes_staged"].get<unsigned long long>(),
                  d["closed"].get<bool>() ? "" : ", never closed");
    for (const auto& p : problems) std::printf("problem: %s\n", p.get<std::string>().c_str());
    if (datasets.empty()) std::puts("nothing is staged");
  }
  return problems.empty() ? 0 : 1;
}

}  // namespace advectio
