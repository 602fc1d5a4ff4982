// A Zarr store of version 3 on a file system: those of our sink, and those that zarr-python and
// xarray write. Arrays are plain or sharded, with the codecs bytes, vlen-utf8, gzip, zstd, blosc and
// crc32c. What else there is (other codecs and data types, nested groups) is refused by its name.
//
//   group                    the dataset; its attributes are global ones
//   array                    a variable; `dimension_names` tell its dimensions. An array without names
//                            gets dimensions named by their lengths (dim_100)
//   chunk, or inner chunk of a shard
//                            Variable::chunks; a variable of one chunk without a codec is contiguous
//   codecs                   the HDF5 filters of the same name (see docs/sinks/zarr.md for the way back)
//   bool                     byte with the attribute `dtype` "bool", as xarray has it in netCDF
//   null_terminated_bytes    char; with several bytes one more dimension (string8)
//   string, fixed_length_utf32
//                            string
//   numbers of attributes    int where they fit, else int64; double. Stores of our sink say what they
//                            were
#pragma once

#include <memory>
#include <string>

#include "sources/source.h"

namespace advectio {

/// A directory in which there is a Zarr store, of any version.
bool is_zarr(const std::string& path);

/// Errors: Code::unsupported for what is beyond us, with the array and the reason; Code::corrupt for
/// metadata that are not a store's.
Result<std::unique_ptr<Source>> open_zarr_source(const std::string& path);

}  // namespace advectio
