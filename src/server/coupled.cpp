#include "server/coupled.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "platform/files.h"
#include "workflow/versions.h"

namespace advectio {

namespace {

using Mode = CoupleRule::Mode;

/// Name of the output in memory of `memory+file`, in the directory of versions.
constexpr const char* part = "/part";

DatasetPolicy in_memory(const DatasetPolicy& asked) {
  DatasetPolicy policy;
  policy.codec = Codec::none;
  policy.shuffle = Shuffle::none;
  policy.durable = false;
  policy.priority = Priority::high;  // another program waits for it, or will
  policy.chunks = asked.chunks;
  policy.join = asked.join;
  // A file in memory is read by the netCDF library.
  if (!asked.format || !is_store(*asked.format)) policy.format = asked.format;
  return policy;
}

void add_part(DatasetPolicy& policy, const workflow::Coupled& file) {
  auto of_part = in_memory(policy);
  of_part.variables = file.rule->variables;
  policy.outputs.push_back({file.directory + part, of_part});
}

}  // namespace

CoupledOutputs::CoupledOutputs(workflow::Settings settings, const Config& config, Log& log)
    : config_(config), log_(log) {
  if (!settings.memory.empty()) workflow_.emplace(std::move(settings));
}

DatasetPolicy CoupledOutputs::policy(const std::string& path) const {
  if (!workflow_) return resolve(config_, path);
  if (workflow_->holds(path)) return in_memory(resolve(config_, workflow_->name_for_programs(path)));
  auto policy = resolve(config_, path);
  const auto file = workflow_->of(path);
  if (!file || !file->writes) return policy;
  if (file->rule->mode == Mode::memory_and_file) {
    if (std::exchange(policy.join, false))
      log_.warning(path + ": its tiles do not become one file (join: true), as couple has mode: memory+file for it; " +
                   "with mode: memory or mode: file they do");
    add_part(policy, *file);
  }
  if (file->rule->mode == Mode::file && policy.format && is_store(*policy.format)) {
    log_.warning(path + ": another program reads it with netCDF (couple, mode: file), so format: " +
                 std::string(name_of(*policy.format)) + " does not hold");
    policy.format.reset();
  }
  return policy;
}

std::string CoupledOutputs::name(const std::string& path) const {
  return workflow_ ? workflow_->name_for_programs(path) : path;
}

std::optional<CoupledOutputs::Version> CoupledOutputs::version_of(const Output& output) const {
  if (!workflow_ || !output.shared_state) return std::nullopt;
  const bool is_part = output.is_further();
  const bool in_memory = workflow_->holds(output.path);
  if (is_part && !in_memory) return std::nullopt;  // of the config's `outputs`
  auto file = workflow_->of(is_part ? output.further.source : workflow_->name_for_programs(output.path));
  if (!file || !file->writes) return std::nullopt;
  // Of memory+file it is the part that is published.
  if (!is_part && file->rule->mode == Mode::memory_and_file) return std::nullopt;
  Version version{std::move(*file), {}, false};
  if (in_memory && !is_part) {
    if (::access(output.path.c_str(), F_OK) == 0) version.entry = output.path;
    return version;
  }
  version.is_link = !is_part;
  for (const auto& name : workflow::Versions::in(version.file.directory).writing) {
    const auto maker = workflow::maker_of(name);
    if (maker && maker->member == workflow_->settings().entry &&
        maker->pid == static_cast<long>(output.shared_state->writer_pid) &&
        maker->number == output.shared_state->created_ns && !name.ends_with(workflow::handed_over) &&
        name.find(workflow::of_node) == std::string::npos)
      version.entry = version.file.directory + "/" + name;
  }
  return version;
}

Result<std::optional<workflow::Opened>> CoupledOutputs::begin_whole(const Output& whole) {
  const auto file = workflow_ ? workflow_->of(whole.path) : std::nullopt;
  if (!file || !file->writes || file->rule->mode == Mode::memory_and_file) return std::optional<workflow::Opened>();
  auto opened = workflow_->create(*file, false);
  if (!opened) return std::move(opened).error();
  return std::optional(std::move(opened).value());
}

void CoupledOutputs::give_up(const workflow::Opened& version) {
  (void)workflow_->close(version, false);
}

Result<void> CoupledOutputs::frame(const Output& output) const {
  const auto version = version_of(output);
  if (!version || version->entry.empty() || version->file.rule->when != CoupleRule::When::sync) return {};
  const auto& directory = version->file.directory;
  const auto& writer = workflow_->settings().name;
  auto done = version->is_link ? workflow::publish_link(version->file.path, directory, writer)
                               : workflow::publish_copy(output.file.link, directory, writer);
  return done ? Result<void>{} : std::move(done).error();
}

/// A copy of it is in memory.
std::optional<workflow::Coupled> CoupledOutputs::disk_of(const Output& output) const {
  if (!workflow_ || !output.shared_state || output.is_further() || workflow_->holds(output.path)) return std::nullopt;
  auto file = workflow_->of(output.path);
  return file && file->writes && file->rule->mode == Mode::memory_and_file ? std::move(file) : std::nullopt;
}

Result<void> CoupledOutputs::complete(const Output& output) const {
  if (const auto disk = disk_of(output))
    return workflow::note_disk(disk->directory, disk->path, output.shared_state->created_ns);
  const auto version = version_of(output);
  if (!version || version->entry.empty()) return {};
  if (output.is_further() && ::rename(output.path.c_str(), version->entry.c_str()) != 0 && errno != ENOENT)
    return system_error("publish " + output.path, errno);
  if (output.is_further()) ADVECTIO_TRY(workflow::note_made(version->entry, output.shared_state->created_ns));
  auto done = workflow::publish(version->entry, workflow_->settings().name);
  if (!done) return std::move(done).error();
  (void)system_files().remove(version->file.directory + "/trouble");
  log_.debug(version->file.path + ": version " + std::to_string(*done) + " is complete");
  return {};
}

bool CoupledOutputs::is_published(const Output& output) const {
  const auto is_there = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  return workflow_ && workflow_->holds(output.path) && !is_there(output.path) &&
         !is_there(output.path + workflow::handed_over);
}

void CoupledOutputs::over(const Output& output) const {
  const auto version = version_of(output);
  if (!version || version->entry.empty()) return;
  if (!output.hidden)  // a tile is in its whole
    log_.warning(version->file.path + ": its writer " + output.writer +
                 " has gone without closing it; no other program gets what it has written of it");
  // The file of a tile in memory is removed as any tile's is.
  if (!output.hidden || version->is_link) (void)::unlink(version->entry.c_str());
  (void)::unlink(workflow::closed_mark(version->entry).c_str());
}

std::vector<std::string> CoupledOutputs::settle(const std::function<bool(const std::string&)>& is_in_flight) {
  if (!workflow_) return {};
  return workflow_->settle_own(is_in_flight, [this](const std::string& text) { log_.error(text); });
}

void CoupledOutputs::trouble(const Output& output, const std::string& why) const {
  const auto version = version_of(output);
  if (version) (void)replace_file(system_files(), version->file.directory + "/trouble", std::as_bytes(std::span(why)));
}

}  // namespace advectio
