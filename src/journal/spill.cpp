#include "journal/spill.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "journal/segments.h"

namespace advectio::journal {

namespace {

std::string link_of(const Stage& stage) {
  return stage.directory() + "/spill";
}

/// Where a symbolic link leads; empty where it is none.
std::string target_of(const std::string& link) {
  char target[PATH_MAX];
  const auto n = ::readlink(link.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : std::string();
}

}  // namespace

Result<void> begin_spill(const Stage& stage, const std::string& directory, std::uint64_t segments_max) {
  const auto link = link_of(stage);
  if (target_of(link).empty()) {
    std::string made = std::filesystem::absolute(directory).string() + "/advectio-spill-XXXXXX";
    if (::mkdtemp(made.data()) == nullptr) return system_error("make a directory in " + directory, errno);
    if (::symlink(made.c_str(), link.c_str()) != 0) {
      const int e = errno;
      ::rmdir(made.c_str());
      return system_error("link " + link, e);
    }
  }
  stage.control().spill_max.store(segments_max);
  return {};
}

Result<void> make_spilled(const Stage& stage, std::uint64_t number) {
  auto& control = stage.control();
  if (control.spill_total.load() >= control.spill_max.load()) return Error{Code::full, "the spill is full", ENOSPC};
  char name[24];
  std::snprintf(name, sizeof name, "%c%06llu", spilled_letter, static_cast<unsigned long long>(number));
  const auto path = target_of(link_of(stage)) + "/" + name;
  auto& files = stage.files();
  auto file = files.open(path, OpenMode::create, 0600);
  if (!file) return std::move(file).error();
  Result<void> made = (*file)->reserve(control.segment_bytes);
  // A link whose file is not reserved would be taken, and touching it could kill the program.
  if (made && ::symlink(path.c_str(), (stage.pool() + "/" + name).c_str()) != 0)
    made = system_error("link " + stage.pool() + "/" + name, errno);
  if (!made) {
    (void)files.remove(path);
    return made;
  }
  control.spill_total.fetch_add(1);
  control.spilled.fetch_add(1, std::memory_order_relaxed);
  ring(control.progress);
  return {};
}

namespace {

/// Where the stage survives a loss of power nobody may use a segment before its old name has gone from the disk: else
/// that name could come back, with what has been written since.
Result<void> give_back_in_order(const Stage& stage, std::string path, const std::string& segment) {
  auto& files = stage.files();
  if (stage.survives_power()) {
    const auto directory = directory_of(path);
    const auto unused = directory + "ahead-" + segment;
    if (path != unused) ADVECTIO_TRY(files.rename(path, unused));
    path = unused;
    ADVECTIO_TRY(make_durable(files, directory));
  }
  return files.rename(path, stage.pool() + "/" + segment);
}

}  // namespace

Result<void> give_back(const Stage& stage, const std::string& path, const std::string& segment) {
  if (is_long(segment)) {
    ADVECTIO_TRY(stage.files().remove(path));
    uncount_segments(stage.control(), count_of_segment(segment));
    ring(stage.control().progress);
    return {};
  }
  if (!is_spilled(segment)) return give_back_in_order(stage, path, segment);
  // The file first: a link that leads nowhere is only a name.
  if (const auto target = target_of(path); !target.empty()) ADVECTIO_TRY(stage.files().remove(target));
  ADVECTIO_TRY(stage.files().remove(path));
  auto& total = stage.control().spill_total;
  if (total.load() > 0) total.fetch_sub(1);
  return {};
}

void remove_spill(const Stage& stage) noexcept {
  const auto target = target_of(link_of(stage));
  if (target.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(target, ignored);
  std::filesystem::remove(link_of(stage), ignored);
}

}  // namespace advectio::journal
