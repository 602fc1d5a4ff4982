// Failures on our side as netCDF's error numbers.
#pragma once

#include <cerrno>

#include "capture/netcdf/real_library.h"
#include "core/result.h"

namespace advectio::netcdf {

/// The netCDF error number that a program gets: the system's errno where there is one (nc_strerror
/// explains positive numbers), else NC_EIO.
inline int code_of(const Error& error) noexcept {
  if (error.sys > 0) return error.sys;
  switch (error.code) {
    case Code::full: return ENOSPC;
    case Code::permission: return EACCES;
    case Code::not_found: return ENOENT;
    case Code::timeout: return ETIMEDOUT;
    default: return NC_EIO;
  }
}

inline int code_of(const Result<void>& result) noexcept {
  return result.ok() ? NC_NOERR : code_of(result.error());
}

}  // namespace advectio::netcdf
