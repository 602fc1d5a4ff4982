// Which datasets of this process are captured, by number and by path.
#pragma once

#include <memory>
#include <string>

#include "capture/coupling.h"
#include "capture/netcdf/captured_file.h"
#include "capture/shadow/open_files.h"

namespace advectio::netcdf {

inline shadow::OpenFiles<CapturedFile>& open_files() {
  return shadow::OpenFiles<CapturedFile>::of_process();
}

/// Coupled files that the library has open. Beside each: its ranks, where several have it open.
using LentFiles = capture::LentFiles<std::shared_ptr<shadow::Ranks>>;
inline LentFiles& lent_files() {
  return LentFiles::of_process();
}

/// The captured dataset that writes the file which is at `path` now, or null.
CapturedFile* file_at(const std::string& path);

/// `path` from the root, as of now.
std::string absolute(const std::string& path);

/// The program's name of the file that the library has made by this name. They differ where the
/// library has taken the file over (hand_over.cpp).
std::string name_for_program(const std::string& library_name);

}  // namespace advectio::netcdf
