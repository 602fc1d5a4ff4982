#include "sinks/netcdf4/readable.h"

#include <hdf5.h>

#include <map>
#include <mutex>
#include <set>

#include "core/schema.h"
#include "sinks/library_lock.h"

namespace advectio {

bool can_read(const std::string& program, std::uint32_t filter) {
  if (filter == filter_id::deflate || filter == filter_id::shuffle || filter == filter_id::fletcher32) return true;
  if (program == "netcdf") {
    const std::lock_guard guard(library_mutex());
    return H5Zfilter_avail(static_cast<H5Z_filter_t>(filter)) > 0;
  }
  using namespace filter_id;
  static const std::map<std::string, std::set<std::uint32_t>> brought = {
      {"netcdf4-python", {szip, zstd, blosc}},  // the wheel
      {"h5py", {szip}},                         // the wheel
      {"hdf5plugin", {szip, zstd, blosc, lz4, bitshuffle}},
      {"every-netcdf", {}},
  };
  const auto found = brought.find(program);
  return found != brought.end() && found->second.contains(filter);
}

}  // namespace advectio
