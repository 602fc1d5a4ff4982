// One rule of the config's `couple`: files that one program of a workflow writes and another reads. Without the YAML
// parser: it is needed inside the programs, too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace advectio {

struct CoupleRule {
  enum class Mode : std::uint8_t {
    memory,           ///< the file is in memory, and nowhere else
    memory_and_file,  ///< and on the disk, at its own path
    file,             ///< on the disk; readers wait until it is complete
  };
  enum class When : std::uint8_t {
    close,  ///< readers get the file when its writer has closed it
    sync,   ///< and each frame when it is synced
  };
  enum class Keep : std::uint8_t {
    workflow,  ///< until the last program has left
    read,      ///< until all programs that read it have left
  };

  std::string match;  ///< as of `datasets`; {name} stands for a part of the name, and is filled in in `from` and `to`
  std::vector<std::string> from, to;  ///< names of programs; patterns
  Mode mode = Mode::memory;
  When when = When::close;
  Keep keep = Keep::workflow;
  std::vector<std::string> exclude;    ///< patterns
  std::vector<std::string> variables;  ///< patterns of those that are in memory; empty: all
  std::string origin;                  ///< "advectio.yaml:12"

  bool operator==(const CoupleRule&) const = default;
};

std::string_view name_of(CoupleRule::Mode) noexcept;
std::string_view name_of(CoupleRule::When) noexcept;
std::string_view name_of(CoupleRule::Keep) noexcept;

/// Text of the {name}s of a pattern.
using Captures = std::map<std::string, std::string>;

/// What is wrong with a pattern with captures.
Result<void> check_couple_pattern(const std::string& pattern);
/// Names of the captures of a pattern, in their order.
std::vector<std::string> captures_of(const std::string& pattern);
/// Does the rule hold for that file? Then the text of its captures. `path` is absolute.
std::optional<Captures> couples(const CoupleRule& rule, const std::string& path);
/// The names of programs with the captures filled in.
std::vector<std::string> filled_in(const std::vector<std::string>& names, const Captures& captures);

/// A line of `couple.conf`, without its end; see server/PROTOCOL.md.
std::string to_line(const CoupleRule& rule);
std::optional<CoupleRule> couple_rule_of_line(const std::string& line);

}  // namespace advectio
