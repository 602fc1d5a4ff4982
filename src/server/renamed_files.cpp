#include "server/renamed_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "journal/markers.h"
#include "platform/files.h"
#include "workflow/workflow.h"

namespace advectio {

namespace {

std::uint64_t inode_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) ? st.st_ino : 0;
}

/// The name of that file beside `path`; empty: it has none there.
std::string name_beside(const std::string& path, std::uint64_t inode) {
  std::error_code failed;
  for (auto entry = std::filesystem::directory_iterator(directory_of(path), failed);
       !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    // Hidden names are ours.
    if (entry->path().filename().string().starts_with('.')) continue;
    if (inode_of(entry->path()) == inode) return entry->path();
  }
  return {};
}

}  // namespace

bool is_in_place(NamedFile& file) {
  if (inode_of(file.path) == file.inode ||
      inode_of(journal::held_name_of_new(workflow::resolved(file.path))) == file.inode)
    return true;
  auto name = name_beside(file.path, file.inode);
  file.missed = name.empty() ? file.missed + 1 : 0;
  if (!name.empty()) file.path = std::move(name);
  return false;
}

std::vector<NamedFile> not_in_place(std::vector<NamedFile> files, const std::function<bool(NamedFile&)>& look) {
  // The latest file is looked at first. One that was renamed before it is looked at later, and seen to be renamed.
  std::vector<NamedFile> moved;
  for (auto file = files.rbegin(); file != files.rend(); ++file)
    if (!look(*file)) moved.push_back(std::move(*file));
  std::reverse(moved.begin(), moved.end());
  return moved;
}

std::vector<NamedFile> in_their_turn(const std::vector<NamedFile>& moved) {
  std::vector<NamedFile> shown;
  std::set<std::uint64_t> waiting;  // journals
  for (const auto& file : moved) {
    // A file that is over gets its name within so many looks, or never.
    constexpr unsigned at_once = 2;
    if (file.missed > 0 && (!file.over || file.missed <= at_once)) waiting.insert(file.key.journal);
    if (file.missed > 0 || !waiting.contains(file.key.journal)) shown.push_back(file);
  }
  return shown;
}

}  // namespace advectio
