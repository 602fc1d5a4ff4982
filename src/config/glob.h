// Shell patterns on names and paths.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace advectio {

/// What is wrong with a pattern: it is empty, a `[` is not closed, or it ends in a single backslash.
Result<void> check_glob(std::string_view pattern);

/// `*`, `?`, `[a-z]` and backslash, as in fnmatch(3); `*` also matches `/`.
bool glob_matches(const std::string& pattern, const std::string& text);

/// How `datasets: match` reads a pattern: on the file's name, or on the whole path where the pattern has a `/`.
bool dataset_matches(const std::string& pattern, const std::string& path);

}  // namespace advectio
