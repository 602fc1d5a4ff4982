#include "sinks/adios2/committed_steps.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

namespace advectio::adios2 {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *mark_name = "advectio.json", *index_name = "md.idx";

Json to_json(const Progress& p) {
  return {{"steps", p.steps}, {"frame", p.frame}, {"lengths", p.lengths}, {"bytes", p.bytes}};
}

Progress progress_of(const Json& j) {
  return {j.at("steps"), j.at("frame"), j.at("lengths").get<std::vector<std::uint64_t>>(),
          j.at("bytes").get<std::map<std::string, std::uint64_t>>()};
}

/// Not ours, and nothing that a reader needs.
bool is_of_file(const std::string& name) {
  return !name.starts_with(mark_name) && name != "profiling.json";
}

}  // namespace

Result<std::optional<CommittedSteps>> read_committed(Files& files, const std::string& directory) {
  const auto path = directory + '/' + mark_name;
  if (!files.exists(path)) return std::optional<CommittedSteps>();
  auto bytes = read_file(files, path);
  if (!bytes) return std::move(bytes).error();
  const auto* begin = reinterpret_cast<const char*>(bytes->data());
  try {
    const auto j = Json::parse(begin, begin + bytes->size());
    CommittedSteps out;
    out.owner = j.at("dataset");
    out.variables = j.at("variables").get<std::vector<std::string>>();
    out.now = progress_of(j.at("now"));
    for (const auto& e : j.at("earlier")) out.earlier.push_back(progress_of(e));
    return std::optional(std::move(out));
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::corrupt, path + " is not what it was written as: " + e.what(), 0};
  }
}

Result<void> write_committed(Files& files, const std::string& directory, const CommittedSteps& committed,
                             bool durable) {
  Json j = {{"dataset", committed.owner}, {"variables", committed.variables}, {"now", to_json(committed.now)}};
  j["earlier"] = Json::array();
  for (const auto& e : committed.earlier) j["earlier"].push_back(to_json(e));
  const auto text = j.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  // As `replace_file`, for whoever may read the directory.
  const auto path = directory + '/' + mark_name, next = path + ".next";
  {
    auto file = files.open(next, OpenMode::create, 0666);
    if (!file) return std::move(file).error();
    ADVECTIO_TRY((*file)->write(0, std::as_bytes(std::span(text))));
    if (durable) ADVECTIO_TRY((*file)->sync());
  }
  ADVECTIO_TRY(files.rename(next, path));
  return durable ? make_names_durable(files, directory) : Result<void>{};
}

Result<void> remove_committed(Files& files, const std::string& directory) {
  const auto path = directory + '/' + mark_name;
  ADVECTIO_TRY(files.remove(path + ".next"));
  return files.remove(path);
}

Result<std::map<std::string, std::uint64_t>> bytes_of_files(Files& files, const std::string& directory) {
  auto names = files.list(directory);
  if (!names) return std::move(names).error();
  std::map<std::string, std::uint64_t> out;
  for (const auto& name : *names) {
    if (!is_of_file(name)) continue;
    auto file = files.open(directory + '/' + name, OpenMode::read);
    if (!file) return std::move(file).error();
    auto size = (*file)->size();
    if (!size) return std::move(size).error();
    out[name] = *size;
  }
  return out;
}

Result<void> force_files(Files& files, const std::string& directory) {
  auto there = bytes_of_files(files, directory);
  if (!there) return std::move(there).error();
  for (const auto& [name, size] : *there) ADVECTIO_TRY(make_durable(files, directory + '/' + name));
  return {};
}

Result<void> cut_files(Files& files, const std::string& directory, const std::map<std::string, std::uint64_t>& bytes) {
  auto there = bytes_of_files(files, directory);
  if (!there) return std::move(there).error();
  for (const auto& [name, size] : bytes) {
    const auto it = there->find(name);
    if (it == there->end() || it->second < size)
      return Error{
          Code::corrupt,
          directory + '/' + name + " is shorter than what was committed of it (" + std::to_string(size) + " bytes)", 0};
  }
  for (const auto& [name, size] : *there) {
    const auto path = directory + '/' + name;
    const auto kept = bytes.find(name);
    if (kept == bytes.end()) {
      ADVECTIO_TRY(files.remove(path));
    } else if (size > kept->second) {
      auto file = files.open(path, OpenMode::read_write);
      if (!file) return std::move(file).error();
      ADVECTIO_TRY((*file)->resize(kept->second));
    }
  }
  return {};
}

Result<bool> say_that_nobody_writes(Files& files, const std::string& directory) {
  // Of the index' header of 64 bytes: version of BP in 37, "somebody writes it" in 39.
  constexpr std::uint64_t version_at = 37, writes_at = 39, header_bytes = 64;
  const auto path = directory + '/' + index_name;
  if (!files.exists(path)) return false;
  auto file = files.open(path, OpenMode::read_write);
  if (!file) return std::move(file).error();
  auto size = (*file)->size();
  if (!size) return std::move(size).error();
  if (*size < header_bytes) return false;
  std::array<std::byte, 3> header{};
  ADVECTIO_TRY((*file)->read(version_at, header));
  if (header[0] != std::byte{5}) return false;
  const std::byte nobody{0};
  ADVECTIO_TRY((*file)->write(writes_at, {&nobody, 1}));
  return true;
}

bool is_bp_file(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == index_name || name == mark_name || name == std::string(mark_name) + ".next";
  });
}

}  // namespace advectio::adios2
