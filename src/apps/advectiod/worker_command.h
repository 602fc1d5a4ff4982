// What the commands that work on files do alike: `join`, `process` and `convert`. Each is the worker of the command of
// the same name of `advectio`: names on the command line or on stdin, on stdout a JSON object a line.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/result.h"

namespace advectio {

/// A command line, taken apart.
struct Words {
  std::set<std::string> flags;                ///< as given: "--force"
  std::map<std::string, std::string> values;  ///< by option
  std::vector<std::string> names;             ///< the rest; of "-" the lines of stdin

  [[nodiscard]] bool has(const std::string& flag) const { return flags.contains(flag); }
  /// Empty where the option is not given.
  [[nodiscard]] std::string value(const std::string& option) const {
    const auto it = values.find(option);
    return it == values.end() ? std::string() : it->second;
  }
};

/// Errors: Code::invalid for an option that is neither among `flags` nor among `options`, which have a value.
Result<Words> parse_words(std::span<const std::string> arguments, std::span<const std::string_view> flags,
                          std::span<const std::string_view> options);

/// Of `--memory` in bytes and of `--jobs`, where they are given; else the second argument. Errors: Code::invalid.
Result<std::uint64_t> memory_of(const Words& words, std::uint64_t otherwise);
Result<unsigned> jobs_of(const Words& words, unsigned otherwise);

/// Of `--rule`: keys of a dataset rule, read as the config reads them. Empty where it is not given. Errors name the
/// key.
Result<std::vector<DatasetRule>> rule_of(const Words& words);

/// One line on stderr. Returns the exit code: 2 where the caller can put it right, else 1.
int complain(const Error& error);
int complain(const Error& error, const char* usage);

/// Told how many bytes of how many are done.
using TellProgress = std::function<void(std::uint64_t, std::uint64_t)>;

/// Does `work` until a signal asks to stop, and says on stdout {"done", "of"} and at last {"result"}. Returns the exit
/// code; an error is one line on stderr.
int run_command(
    const std::function<Result<nlohmann::ordered_json>(const TellProgress&, const std::atomic<bool>& stop)>& work);

}  // namespace advectio
