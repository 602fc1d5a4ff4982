// The events that have been written of an output (events.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace advectio {

struct EventsSaid {
  std::string id;  ///< names the dataset in its run; empty: nothing has been said yet
  bool begun = false, over = false, durable = false;
  std::uint64_t frames = 0, frames_durable = 0, left_out = 0;
  std::string error;                           ///< of the latest failure; empty: something has come since
  std::uint64_t committed = 0;                 ///< the latest sequence that is being made durable
  std::map<std::uint64_t, std::string> times;  ///< model times of frames that are not visible yet, by number
};

}  // namespace advectio
