#include "capture/netcdf/closed_files.h"

#include <algorithm>
#include <utility>

namespace advectio::netcdf {

ClosedFiles& ClosedFiles::of_process() {
  static auto* files = new ClosedFiles;
  return *files;
}

void ClosedFiles::keep(ClosedFile file) {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard) return;
  std::erase_if(files_, [&file](const ClosedFile& f) { return f.identity == file.identity; });
  if (files_.size() == kept) files_.erase(files_.begin());
  files_.push_back(std::move(file));
}

std::optional<ClosedFile> ClosedFiles::take(const std::string& identity) {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard) return std::nullopt;
  const auto it =
      std::find_if(files_.begin(), files_.end(), [&](const ClosedFile& f) { return f.identity == identity; });
  if (it == files_.end()) return std::nullopt;
  std::optional<ClosedFile> file(std::move(*it));
  files_.erase(it);
  return file;
}

}  // namespace advectio::netcdf
