#include "capture/held_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "workflow/workflow.h"

namespace advectio::capture {

namespace {

/// Another file may take its place, and nobody sees a difference but in its contents.
bool can_be_replaced(const struct stat& there, bool in_set) {
  return S_ISREG(there.st_mode) && (there.st_nlink == 1 || in_set) && there.st_uid == ::geteuid() &&
         there.st_gid == ::getegid();
}

}  // namespace

HeldFile::HeldFile(const journal::Stage& stage, const Rule& rule, const std::string& path, bool in_set)
    : stage_(stage), path_(workflow::resolved(path)), made_as_(path), awaits_all_(rule.appears_complete()) {
  if (rule.appears_at_once() || rule.joins_tiles() || stage.control().nodes > 1) return;
  if (path_.find('\n') != std::string::npos) return;
  struct stat there {};
  const bool any = ::lstat(path_.c_str(), &there) == 0;
  if (any && !can_be_replaced(there, in_set)) return;
  if (any) replaced_mode_ = there.st_mode & 07777;
  made_as_ = journal::held_name_of_new(path_);
  held_ = true;
}

HeldFile::~HeldFile() {
  if (!noted_) return;
  try {
    if (auto notes = journal::Markers::await(stage_))
      if (auto marker = notes->of(path_); marker && *marker && (*marker)->held == made_as_)
        (void)notes->forget(**marker);
  } catch (...) {  // no memory: the server forgets it, as there is no such dataset
  }
}

void HeldFile::take_permissions() const {
  if (replaced_mode_ != 0) (void)::chmod(made_as_.c_str(), replaced_mode_);
}

Result<void> HeldFile::note(const journal::Awaited& dataset) {
  auto notes = journal::Markers::await(stage_);
  if (!notes) return std::move(notes).error();
  auto awaited = dataset;
  awaited.synced = journal::Awaited::first_frame;
  awaited.closed = awaits_all_;
  ADVECTIO_TRY(notes->keep(notes->make_new(path_, awaited)));
  noted_ = true;
  return {};
}

Result<void> HeldFile::name() {
  if (std::rename(made_as_.c_str(), path_.c_str()) != 0)
    return system_error("rename " + made_as_ + " to " + path_, errno);
  made_as_ = path_;
  held_ = false;
  return {};
}

}  // namespace advectio::capture
