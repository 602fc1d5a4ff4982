// Who can read what a filter has made.
#pragma once

#include <cstdint>
#include <string>

namespace advectio {

/// `program` is a word of the config's `readers.programs`. Of `netcdf`, the library of this machine, HDF5 is asked,
/// which looks for its plugin; what the others bring is known (docs/performance.md, "A codec").
bool can_read(const std::string& program, std::uint32_t filter);

}  // namespace advectio
