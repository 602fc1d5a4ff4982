#include "capture/rules.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>

#include "workflow/workflow.h"

namespace advectio::capture {

std::string base_name(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string absolute(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char here[PATH_MAX];
  if (::getcwd(here, sizeof here) == nullptr) return path;
  return std::string(here) + "/" + path;
}

namespace {

bool matches(const std::string& pattern, const std::string& whole) {
  const auto text = pattern.find('/') != std::string::npos ? whole : base_name(whole);
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

Rules Rules::read(const std::string& path) {
  Rules all;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line == "later") all.later = true;
    if (line.rfind("workflow ", 0) == 0) all.memory = line.substr(9);
    if (line.rfind("set ", 0) == 0) all.sets.push_back(line.substr(4));
    if (line.rfind("directory ", 0) == 0) all.run_directory = line.substr(10);
    if (line.rfind("rule ", 0) != 0 || line.size() < 20) continue;
    all.rules.push_back({line[5], line[7], line[9], line[11], line[13], line[15], line[17], line.substr(19)});
  }
  return all;
}

Rule Rules::of(const std::string& path) const {
  Rule all;
  const std::string whole = workflow::name_for_programs(memory, absolute(path));
  for (const auto& r : rules) {
    if (!matches(r.match, whole)) continue;
    for (const auto letter :
         {&Rule::capture, &Rule::close, &Rule::join, &Rule::promise, &Rule::full, &Rule::appear, &Rule::frames})
      if (r.*letter != '-') all.*letter = r.*letter;
  }
  if (whole != absolute(path)) {
    // In memory, and one file whatever other rules say.
    all.join = '0';
    all.promise = 's';
  }
  // In a workflow a file may become another program's input by a new name while it is open.
  if (!memory.empty()) all.appear = 'n';
  return all;
}

bool Rules::in_set(const std::string& path) const {
  const auto whole = absolute(path);
  return std::any_of(sets.begin(), sets.end(), [&](const auto& pattern) { return matches(pattern, whole); });
}

}  // namespace advectio::capture
