#include "config/glob.h"

#include <fnmatch.h>

namespace advectio {

Result<void> check_glob(std::string_view pattern) {
  if (pattern.empty()) return Error{Code::config, "the pattern is empty"};
  // What YAML makes of a quote that is not closed, and of those that word processors write: matches nothing.
  if (pattern.find(": ") != std::string_view::npos)
    return Error{Code::config, "there is ': ' in it; is a quote not closed?"};
  if (pattern.find("\u201c") != std::string_view::npos || pattern.find("\u201d") != std::string_view::npos)
    return Error{Code::config, "these are typographic quotes; write straight ones: \"wrfout_*\""};
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i == pattern.size()) return Error{Code::config, "the pattern ends in a single backslash"};
    } else if (pattern[i] == '[') {
      // "[]a]" and "[!]a]" hold the bracket itself, so the search for the end begins after the first character.
      std::size_t first = i + 1;
      if (first < pattern.size() && (pattern[first] == '!' || pattern[first] == '^')) ++first;
      const std::size_t end = first < pattern.size() ? pattern.find(']', first + 1) : std::string_view::npos;
      if (end == std::string_view::npos) return Error{Code::config, "the pattern has a '[' without its ']'"};
      i = end;
    }
  }
  return {};
}

bool glob_matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool dataset_matches(const std::string& pattern, const std::string& path) {
  if (pattern.find('/') != std::string::npos) return glob_matches(pattern, path);
  return glob_matches(pattern, path.substr(path.rfind('/') + 1));
}

}  // namespace advectio
