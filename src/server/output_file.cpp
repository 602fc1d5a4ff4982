#include "server/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "journal/hard_link.h"
#include "journal/markers.h"
#include "workflow/workflow.h"

namespace advectio {
namespace {

std::string_view suffix_of(FileFormat store) {
  switch (store) {
    case FileFormat::bp5: return ".bp";
    case FileFormat::sst: return ".sst";
    default: return ".zarr";
  }
}

constexpr std::string_view of_placeholder = ".output";

/// Under no other name first: a directory that begins to refuse changes would keep that. Returns the state's name.
Result<std::string> make_empty(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("create " + path, errno);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return system_error("create " + path, errno);
  struct stat st {};
  const int failed = ::fstat(fd, &st) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) return system_error("create " + path, failed);
  return Stage::state_name(st.st_dev, st.st_ino);
}

/// A path like ./{name} leads to the program's own file.
bool program_writes(const Run& run, const std::string& path) {
  const auto there = Stage::state_name_of(journal::held_name_of(run.stage, workflow::resolved(path)));
  if (!there) return false;
  const auto shared_state = run.stage.open_state(*there);
  return shared_state && (*shared_state)->output == 0;
}

}  // namespace

std::string store_path(const std::string& file, FileFormat format) {
  const auto suffix = suffix_of(format);
  const auto directory = directory_of(file);
  auto name = file.substr(directory.size());
  const auto placeholder = std::string(suffix).append(of_placeholder);
  if (name.starts_with('.') && name.ends_with(placeholder))
    return directory + name.substr(1, name.size() - 1 - placeholder.size()).append(suffix);
  for (const std::string_view other : {std::string_view(".nc"), suffix})
    if (name.size() > other.size() && name.ends_with(other)) {
      name.resize(name.size() - other.size());
      break;
    }
  return directory + name.append(suffix);
}

std::string file_of_output(const OutputRule& rule, const std::string& dataset) {
  auto path = output_path(rule, dataset);
  const auto& format = rule.policy.format;
  if (!format || !is_store(*format)) return path;
  const auto store = store_path(path, *format), directory = directory_of(store);
  return directory + "." + store.substr(directory.size()).append(of_placeholder);
}

std::string Output::destination() const {
  return is_store() ? store_path(path, *policy.format) : path;
}

Result<void> make_output_file(Run& run, Output& output, const std::string& link_name,
                              const std::function<void(SharedState&)>& describe) {
  const auto& path = output.path;
  if (program_writes(run, path)) return Error{Code::exists, "a program of this run writes that file", EEXIST};
  std::error_code failed;
  std::filesystem::create_directories(directory_of(path), failed);
  if (failed) return system_error("make the directory " + directory_of(path), failed.value());
  const auto link_directories = journal::hard_link_directories(path, run.directory);
  output.file.link = link_directories.front() + link_name;
  if (path.size() >= sizeof(SharedState::path) || output.file.link.size() >= sizeof(SharedState::link))
    return system_error("create " + path, ENAMETOOLONG);
  auto state_name = make_empty(path);
  if (!state_name) return std::move(state_name).error();
  output.state_name = std::move(state_name).value();
  // The shared state first: what it names is found again and removed by the next server, should this one die here.
  auto made = run.stage.make_dataset(output.state_name, [&](SharedState& p) {
    p.format = output.format;
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, output.file.link.c_str(), output.file.link.size() + 1);
    output.file.made_in = journal::DirectoryId::of(path);
    output.file.made_in.keep_in(p);
    describe(p);
  });
  if (!made) {
    (void)::unlink(path.c_str());
    return std::move(made).error();
  }
  output.file.link = journal::give_hard_link(*made->shared_state, path, link_name, link_directories);
  output.shared_state = std::move(made->shared_state);
  return {};
}

}  // namespace advectio
