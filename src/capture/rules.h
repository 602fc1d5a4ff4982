// What the config says about each dataset. The server passes it on in `capture.conf`
// (server/PROTOCOL.md).
#pragma once

#include <string>
#include <vector>

namespace advectio::capture {

/// What holds for a dataset. Each field is the letter of `capture.conf`; '-': the rule leaves it
/// open.
struct Rule {
  char capture = '1', close = '0', join = '0', promise = 's', full = 'a', appear = 'f', frames = 'a';
  std::string match;  ///< pattern of fnmatch(3)

  [[nodiscard]] bool captures() const noexcept { return capture == '1'; }
  [[nodiscard]] bool close_waits() const noexcept { return close == '1'; }
  [[nodiscard]] bool joins_tiles() const noexcept { return join == '1'; }
  [[nodiscard]] bool promises_only_staged() const noexcept { return promise == 's'; }
  [[nodiscard]] bool promises_durable() const noexcept { return promise == 'd'; }
  [[nodiscard]] bool appears_at_once() const noexcept { return appear == 'n'; }
  [[nodiscard]] bool appears_complete() const noexcept { return appear == 'c'; }
  [[nodiscard]] bool ends_frames_by_record() const noexcept { return frames != 's'; }
  [[nodiscard]] bool ends_frames_by_any_record() const noexcept { return frames == 'r'; }
  [[nodiscard]] bool spills() const noexcept { return full == 'a' || full == 's'; }
  [[nodiscard]] bool drops_frames() const noexcept { return full == 'd'; }
};

/// The file `capture.conf` of a run.
struct Rules {
  std::vector<Rule> rules;
  bool later = false;             ///< programs do not wait for their files when they end
  std::string run_directory;      ///< where the run was started; empty: not known
  std::string memory;             ///< of coupled files (workflow/README.md); empty: none
  std::vector<std::string> sets;  ///< patterns of files of which a set keeps an earlier one (the config's `sets`)

  /// A file that is not there gives no rules.
  static Rules read(const std::string& path);
  /// The rule for a dataset: later rules win. `path` is as the program gave it.
  [[nodiscard]] Rule of(const std::string& path) const;
  [[nodiscard]] bool in_set(const std::string& path) const;
};

/// The last component of a path.
std::string base_name(const std::string& path);
/// The path from the root, by the current directory.
std::string absolute(const std::string& path);

}  // namespace advectio::capture
