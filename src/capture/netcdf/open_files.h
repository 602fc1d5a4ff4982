// Which datasets of this process are captured, by number and by path.
#pragma once

#include <memory>
#include <string>

#include "capture/coupling.h"
#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/codes.h"
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

/// Open the dataset to read it anew, under the same number. The library has it open by that path.
int open_again(const RealLibrary& lib, int ncid, const std::string& path);

/// In a forked child, before a call that changes the dataset: the library gets the file. Then there
/// is no captured dataset of that number any more. Blocks until the server has let go of the file.
int take_over(CapturedFile& file);

/// The program calls from a signal handler, in the midst of another call: what it wants is done when
/// that is over.
int do_later(CapturedFile& file, WantedLater::What what) noexcept;
/// The same for a put, which is refused.
int refuse_put() noexcept;

/// `path` from the root, as of now.
std::string absolute(const std::string& path);

/// The program's name of the file that the library has made by this name. They differ where the
/// library has taken the file over (hand_over.cpp).
std::string name_for_program(const std::string& library_name);

}  // namespace advectio::netcdf
