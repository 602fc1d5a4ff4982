// The filters HDF5 lacks, made known to it in this process, so that what it reads and writes itself agrees with what we
// write past it.
#pragma once

namespace advectio {

/// Blosc, LZ4, bitshuffle and zstd. Called once, under Hdf5Lock.
void register_hdf5_filters();

}  // namespace advectio
