// Files that parallel HDF5 can make longer. Its collective writes expect that every chunk within a
// data set's lengths has its place in the file. It gives new chunks theirs only where the data set
// asks for early allocation, as those do that parallel HDF5 creates. If the sink asked for it at the
// creation, HDF5 would write fill values everywhere before any data. So the sink does it at the end:
// it allocates the chunks that are missing, then changes the property.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>

#include "core/result.h"
#include "sinks/chunks/chunk_assembly.h"
#include "sinks/netcdf4/crash_safe_file.h"

namespace advectio {

/// Chunks that nobody has put get a place and the fill value. `how` is how chunks of `dataset` are
/// encoded; null where HDF5 itself has to do it. Data sets without chunks stay as they are. Called
/// under Hdf5Lock.
Result<void> allocate_all_chunks(hid_t dataset, const std::string& name, const ChunkedVariable* how,
                                 CrashSafeFile& file);

/// Where the object header of `object` is in its file. Called under Hdf5Lock.
Result<std::uint64_t> header_address(hid_t object);

/// Note early allocation in the object header at `address`, which is that of a data set. HDF5 must
/// have flushed the header and must not use it any more. HDF5 has no call for this: the property is
/// fixed when the data set is created.
Result<void> note_early_allocation(CrashSafeFile& file, std::uint64_t address);

}  // namespace advectio
