// One journal that the server follows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "journal/reader.h"
#include "server/output.h"

namespace advectio {

/// One journal being followed.
struct Journal {
  std::string name;
  std::unique_ptr<journal::Reader> reader;
  std::multimap<std::uint32_t, std::shared_ptr<Output>> datasets;  ///< by number: all outputs of each dataset
  std::vector<std::shared_ptr<Output>> shared;  ///< of these, the ones in flight that others write too
  /// For each held segment, oldest first: the last record of each dataset in it.
  struct Load {
    std::uint64_t index = 0;
    std::map<std::uint32_t, std::uint64_t> last;
    std::uint64_t bytes = 0;
  };
  std::deque<Load> loads;
  bool alive = true;  ///< its process

  /// Something has been read of it, or nothing was there, or it cannot be read.
  [[nodiscard]] bool begun() const { return reading_ != Reading::not_begun; }
  [[nodiscard]] bool broken() const { return reading_ == Reading::broken; }
  /// Nothing more was there when last asked.
  [[nodiscard]] bool at_end() const { return reading_ == Reading::at_end; }
  /// Nothing more can be read at present.
  [[nodiscard]] bool is_read() const { return at_end() || broken(); }
  /// Its process has gone, and all that it has said has been read.
  [[nodiscard]] bool over() const { return !alive && at_end(); }

  /// More may be there.
  void look_again() {
    if (at_end()) reading_ = Reading::under_way;
  }
  void note_record() {
    if (!begun()) reading_ = Reading::under_way;
  }
  void reach_end() { reading_ = Reading::at_end; }
  void break_off() { reading_ = Reading::broken; }

 private:
  enum class Reading : std::uint8_t { not_begun, under_way, at_end, broken };
  Reading reading_ = Reading::not_begun;
};

}  // namespace advectio
