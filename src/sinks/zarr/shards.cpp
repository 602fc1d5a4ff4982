#include "sinks/zarr/shards.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace advectio::zarr {

namespace {

constexpr std::uint64_t absent = UINT64_MAX;
/// At once, of one store.
constexpr std::size_t open_files_max = 64;

std::uint64_t index_bytes(std::uint64_t chunks) {
  return 16 * chunks + 4;
}

std::string with_suffix(const std::string& name) {
  return name + ".part";
}

}  // namespace

void Shards::place(std::uint32_t variable, std::string directory, Form form) {
  if (arrays_.size() <= variable) arrays_.resize(variable + 1);
  arrays_[variable] = {std::move(directory), std::move(form)};
}

std::string Shards::path_of(const Key& key, const Shard& shard) const {
  return store_ + '/' + arrays_[key.first].directory + '/' + (shard.is_new ? with_suffix(shard.name) : shard.name);
}

/// The shard, and the chunk's number in it.
std::pair<Shards::Key, std::size_t> Shards::find(std::uint32_t variable, std::span<const std::uint64_t> start) const {
  const auto& form = arrays_[variable].form;
  std::pair<Key, std::size_t> out{{variable, {}}, 0};
  for (std::size_t i = 0; i < start.size(); ++i) {
    const auto chunk = start[i] / form.chunk[i];
    out.first.second.push_back(chunk / form.shard[i]);
    out.second = out.second * form.shard[i] + chunk % form.shard[i];
  }
  return out;
}

Result<void> Shards::open(const Key& key, Shard& shard, OpenMode mode) {
  if (shard.file) return {};
  if (open_files_ >= open_files_max) {
    for (auto& other : touched_) other.second.file.reset();
    open_files_ = 0;
  }
  auto file = files_.open(path_of(key, shard), mode, 0666);
  if (!file) return std::move(file).error();
  shard.file = std::move(file).value();
  ++open_files_;
  return {};
}

/// What is committed of it.
Result<void> Shards::look_at(const Key& key, Shard& shard) {
  shard.name = "c";
  for (const auto place : key.second) shard.name += '.' + std::to_string(place);
  const auto& form = arrays_[key.first].form;
  const auto path = path_of(key, shard);
  shard.is_new = !files_.exists(path);
  shard.index.assign(key.second.empty() ? 1 : form.chunks(), Entry{});
  shard.begin = shard.end = key.second.empty() ? 0 : index_bytes(shard.index.size());
  if (shard.is_new) return {};
  ADVECTIO_TRY(open(key, shard, OpenMode::read_write));
  auto size = shard.file->size();
  if (!size) return std::move(size).error();
  if (key.second.empty()) {
    shard.index[0] = {0, *size};
    shard.end = *size;
    return {};
  }
  Bytes bytes(shard.begin);
  if (*size < bytes.size()) return Error{Code::corrupt, path + " ends within its index", 0};
  ADVECTIO_TRY(shard.file->read(0, bytes));
  std::uint32_t sum = 0;
  const auto content = std::span<const std::byte>(bytes).first(bytes.size() - sizeof sum);
  std::memcpy(&sum, bytes.data() + content.size(), sizeof sum);
  if (sum != crc32c_of(content)) return Error{Code::corrupt, path + ": its index is damaged", 0};
  std::memcpy(shard.index.data(), content.data(), content.size());
  shard.begin = shard.end = *size;
  return {};
}

Result<void> Shards::write(const Key& key, Shard& shard, std::uint64_t at, std::span<const std::byte> data) {
  if (!shard.file) {
    const bool there = !shard.is_new || files_.exists(path_of(key, shard));
    ADVECTIO_TRY(open(key, shard, there ? OpenMode::read_write : OpenMode::create));
  }
  const auto from = std::chrono::steady_clock::now();
  ADVECTIO_TRY(shard.file->write(at, data));
  write_ns_ += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - from).count());
  bytes_written_ += data.size();
  return {};
}

Result<void> Shards::write(std::uint32_t variable, std::span<const std::uint64_t> start,
                           std::span<const std::byte> data) {
  const auto [key, number] = find(variable, start);
  auto it = touched_.find(key);
  if (it == touched_.end()) {
    Shard shard;
    ADVECTIO_TRY(look_at(key, shard));
    it = touched_.emplace(key, std::move(shard)).first;
  }
  auto& shard = it->second;
  if (key.second.empty()) {
    // All of it is one value, which is replaced as a whole.
    if (!shard.is_new) shard.file.reset();
    shard.is_new = true;
    shard.end = 0;
  }
  ADVECTIO_TRY(write(key, shard, shard.end, data));
  shard.index[number] = {shard.end, data.size()};
  shard.end += data.size();
  return {};
}

Result<Bytes> Shards::read(std::uint32_t variable, std::span<const std::uint64_t> start) {
  const auto [key, number] = find(variable, start);
  auto it = touched_.find(key);
  Shard found;
  if (it == touched_.end()) ADVECTIO_TRY(look_at(key, found));
  auto& shard = it == touched_.end() ? found : it->second;
  const auto entry = shard.index[number];
  if (entry.offset == absent && entry.bytes == absent) return Bytes();
  ADVECTIO_TRY(open(key, shard, OpenMode::read_write));
  const auto path = path_of(key, shard);
  auto size = shard.file->size();
  if (!size) return std::move(size).error();
  if (entry.bytes > *size || entry.offset > *size - entry.bytes)
    return Error{Code::corrupt, path + " ends before a chunk that it names", 0};
  Bytes bytes(entry.bytes);
  ADVECTIO_TRY(shard.file->read(entry.offset, bytes));
  return bytes;
}

Result<void> Shards::put(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                         std::uint32_t /*mask*/, std::span<const std::byte> data) {
  ADVECTIO_TRY_WITH(write(variable, start, data), "write a chunk of " + how.name);
  return {};
}

Result<void> Shards::get(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                         const std::vector<std::uint64_t>& /*extent*/, std::byte* to) {
  auto bytes = read(variable, start);
  if (!bytes) return std::move(bytes).error().with("read a chunk of " + how.name);
  if (bytes->empty()) return {};
  const auto size = how.chunk_bytes();
  if (!decode(how.pipeline, *bytes, {to, size}))
    return Error{Code::corrupt, "a chunk of " + how.name + " in " + store_ + " is damaged", 0};
  if (how.swap) swap_bytes(to, size / how.element, how.element);
  return {};
}

Result<void> Shards::prepare(const std::vector<std::string>& directories, Redo& redo, std::vector<std::string>& files,
                             std::vector<std::string>& replacing) {
  for (auto& [key, shard] : touched_) {
    const auto now = path_of(key, shard), then = directories[key.first] + '/' + shard.name;
    (key.second.empty() ? replacing : files).push_back(now);
    Bytes index(index_bytes(shard.index.size()));
    const auto content = index.size() - 4;
    std::memcpy(index.data(), shard.index.data(), content);
    const auto sum = crc32c_of(std::span<const std::byte>(index).first(content));
    std::memcpy(index.data() + content, &sum, sizeof sum);
    if (!shard.is_new) {
      redo.writes.push_back({then, std::move(index)});
      bytes_written_ += content + sizeof sum;
    } else if (key.second.empty()) {
      // A shorter value may have come after a longer one.
      ADVECTIO_TRY(open(key, shard, OpenMode::read_write));
      ADVECTIO_TRY(shard.file->resize(shard.end));
    } else {
      ADVECTIO_TRY(write(key, shard, 0, index));
    }
    if (shard.is_new) redo.names.push_back({with_suffix(then), then});
    shard.file.reset();
  }
  open_files_ = 0;
  return {};
}

void Shards::abandon() noexcept {
  for (auto& [key, shard] : touched_) {
    if (shard.is_new) {
      shard.file.reset();
      (void)files_.remove(path_of(key, shard));
    } else {
      // Also what a write that failed has left.
      if (!shard.file)
        if (auto file = files_.open(path_of(key, shard), OpenMode::read_write)) shard.file = std::move(file).value();
      if (shard.file) (void)shard.file->resize(shard.begin);
    }
  }
  touched_.clear();
  open_files_ = 0;
}

}  // namespace advectio::zarr
