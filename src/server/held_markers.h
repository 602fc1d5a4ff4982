// Names that this node's programs have made, and that wait for files (journal/markers.h): markers, and final names of
// files that were renamed. They appear when the files are complete.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "journal/markers.h"
#include "server/run.h"

namespace advectio {

struct Output;

class HeldMarkers {
 public:
  explicit HeldMarkers(Run& run) : run_(run) {}

  /// Gives their names to those whose files have come, some milliseconds later at most. Where none is held it costs a
  /// look at one number.
  void look(std::uint64_t now);
  /// Looks now, before the end. False: a program is at its notes; look again.
  bool settle();
  /// Some have no name of their own yet.
  [[nodiscard]] bool any() const noexcept;
  /// Reports those that the run leaves without their names, and why.
  void report_rest();

 private:
  bool has_come(const journal::Markers& notes, journal::Marker& marker) const;
  bool name(const journal::Markers& notes, const journal::Marker& marker);
  void report_once(const std::string& text);

  Run& run_;
  std::set<std::string> reported_;
  std::uint64_t look_again_ns_ = 0;
};

/// The file of the output gets its own name, if it waits for a frame, or for its end (`is_complete`). To be called
/// before anybody hears of that frame or end. True: it has got its name now.
bool name_file(Run& run, const Output& d, bool is_complete);

}  // namespace advectio
