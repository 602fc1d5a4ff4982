// Events: what becomes of the files of this node, a JSON object a line, in the run directory (events_file) and in the
// file that the config names. Other programs read them there: `advectio wait`, `advectio events`, the commands of `on`.
//
// Each line is true when it is written. A server that takes over reads from the run directory what has been said, and
// says what is missing: no line of the run directory comes twice, and none is missing. In the config's file the last
// line before a crash may come again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/block.h"
#include "server/events_said.h"
#include "server/output.h"

namespace advectio {

struct Run;

class Events {
 public:
  static constexpr const char* file_name = "events";  ///< in the run directory

  explicit Events(Run& run);
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Before anything is taken up. Errors: the run directory cannot be written.
  Result<void> open();
  /// Says all that is new of an output.
  void look(Output& d);
  /// The records up to this sequence are being made durable.
  static void note_commit(Output& d, std::uint64_t sequence);
  /// The time of its frame, where the block is a coordinate of time.
  static void note_block(Output& d, const Block& block);
  /// The disk has refused to make the file durable, and nothing tries again.
  void say_not_durable(const Output& d, const std::string& error);
  /// The server ends; `complete`: everything is in its file.
  void end(bool complete);

 private:
  using Line = nlohmann::ordered_json;
  class Target;

  [[nodiscard]] bool is_told(const Output& d) const;
  void know(Output& d);
  Result<void> read_back();
  void take_back(const Line& line);
  [[nodiscard]] Line line_of(const char* event, const Output& d) const;
  void say_frames(Output& d);
  void say_end(Output& d);
  void say_durable(Output& d);
  void say(Line line);

  Run& run_;
  std::string node_;  ///< of several; empty: there is one
  std::string directory_;
  std::map<std::string, EventsSaid> before_;  ///< by an earlier server, by id
  bool begun_ = false;                        ///< the run has been said to begin
  std::unique_ptr<Target> kept_, told_;       ///< in the run directory; in the config's file
};

}  // namespace advectio
