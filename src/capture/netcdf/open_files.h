// Which datasets of this process are captured. Looking one up by its number is RealLibrary::find; what is here happens
// once per file or less.
#pragma once

#include <memory>
#include <string>

#include "capture/netcdf/captured_file.h"

namespace advectio {

/// `path` from the root, as of now.
std::string absolute(const std::string& path);

/// From now on the library's number stands for this dataset.
CapturedFile& add_file(std::unique_ptr<CapturedFile> file);
/// The number is the library's again; the caller owns what was behind it.
std::unique_ptr<CapturedFile> remove_file(CapturedFile& file);

/// What the program called the file that the library knows by this name: not the same where values were handed over.
std::string name_for_program(const std::string& library_name);

/// The captured dataset that writes the file which is at `path` now, or null. Costs nothing when there is none at all.
CapturedFile* file_at(const std::string& path);

}  // namespace advectio
