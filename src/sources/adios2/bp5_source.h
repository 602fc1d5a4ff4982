// Reads BP files of ADIOS2, by ADIOS2 itself (sinks/adios2/library.h): those that Advectio has written
// (docs/sinks/bp5.md), WRF's, and those of others.
//
// What becomes of steps:
//   * of a file that our sink has written: as it says, record n is the n-th step
//   * of other files: the steps are the records of a variable that is in all of them. A variable in one
//     of several steps has no records. One in some of them has a dimension of its own for these
//     (VARIABLE_steps): the file does not say which are its neighbours' records
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "sources/source.h"

namespace advectio {

/// The directory holds files of ADIOS2.
bool is_bp(const std::string& path);

/// Errors: those of adios2::BpFile::open; Code::unsupported for names and shapes that netCDF cannot have.
Result<std::unique_ptr<Source>> open_bp5_source(const std::string& path);

}  // namespace advectio
