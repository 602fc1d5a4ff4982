#include "sinks/netcdf4/crash_safe_file.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>

#include "platform/machine.h"

namespace advectio {

namespace {

constexpr std::array<char, 8> magic = {'A', 'D', 'V', 'R', 'E', 'D', 'O', '1'};

struct Trailer {
  std::array<char, 8> magic{};
  std::uint64_t pages = 0;
  std::uint64_t protected_end = 0;  // before the commit: the copies count up to here
  std::uint64_t end = 0;            // of the file after it
  std::uint32_t page_bytes = 0;
  std::uint32_t crc = 0;  // of all bytes of the redo file before this one
};
static_assert(sizeof(Trailer) == 40);

std::span<const std::byte> bytes_of(const void* data, std::size_t n) {
  return {static_cast<const std::byte*>(data), n};
}

std::uint32_t crc_of(std::uint32_t seed, std::span<const std::byte> data) {
  const auto crc = crc32_gzip_refl(seed, reinterpret_cast<const unsigned char*>(data.data()), data.size());
  clean_vector_registers();
  return crc;
}

std::uint32_t crc_of(std::uint32_t seed, const Trailer& t) {
  return crc_of(seed, bytes_of(&t, offsetof(Trailer, crc)));
}

}  // namespace

CrashSafeFile::CrashSafeFile(Files& files, std::shared_ptr<File> file, const std::string& redo_path)
    : file_(std::move(file)),
      durability_(std::make_shared<Durability>(files, file_, directory_of(redo_path))),
      redo_(files, redo_path, file_, RedoFile::Whole::by_content) {}

Result<std::unique_ptr<CrashSafeFile>> CrashSafeFile::open(Files& files, const std::string& path,
                                                           const std::string& redo_path, bool resume) {
  auto file = files.open(path, OpenMode::read_write);
  if (!file) return std::move(file).error();
  std::unique_ptr<CrashSafeFile> out(new CrashSafeFile(files, std::move(file).value(), redo_path));
  auto size = out->file_->size();
  if (!size) return std::move(size).error();
  out->file_size_ = *size;
  if (resume) {
    ADVECTIO_TRY(out->recover());
    std::array<std::byte, 8> begin{};
    ADVECTIO_TRY(out->read_file(0, begin));
    out->has_commit_ = std::any_of(begin.begin(), begin.end(), [](std::byte b) { return b != std::byte{0}; });
  } else {
    ADVECTIO_TRY(out->redo_.forget());
  }
  if (out->has_commit_) {
    // Nothing may change before `settle` says where the committed part ends.
    out->size_ = out->protected_end_ = out->committed_end_ = out->file_size_;
    // Somebody may have made it durable before us.
    out->durability_->ordered = true;
  } else {
    if (out->file_size_ > 0) ADVECTIO_TRY(out->file_->resize(0));
    out->file_size_ = 0;
    out->protected_end_ = page_bytes;
  }
  return out;
}

Result<void> CrashSafeFile::recover() {
  auto there = redo_.take_up();
  if (!there) return std::move(there).error();
  if (!*there) return {};
  ADVECTIO_TRY(apply_redo());
  if (file_size_ > 0) redo_.keep();
  return redo_.remove(false);
}

/// One that is not whole does nothing.
Result<void> CrashSafeFile::apply_redo() {
  File& redo = redo_.file();
  auto size = redo.size();
  if (!size) return std::move(size).error();
  Trailer t;
  if (*size < sizeof t) return {};
  ADVECTIO_TRY(redo.read(*size - sizeof t, {reinterpret_cast<std::byte*>(&t), sizeof t}));
  const std::uint64_t entry = page_bytes + sizeof(std::uint64_t);
  if (t.magic != magic || t.page_bytes != page_bytes || t.pages > *size / entry || t.pages * entry + sizeof t != *size)
    return {};

  std::uint32_t crc = 0;
  std::vector<std::byte> buffer(1 << 20);
  for (std::uint64_t at = 0; at < t.pages * entry;) {
    const auto n = std::min<std::uint64_t>(buffer.size(), t.pages * entry - at);
    const auto part = std::span(buffer).first(n);
    ADVECTIO_TRY(redo.read(at, part));
    crc = crc_of(crc, part);
    at += n;
  }
  if (crc_of(crc, t) != t.crc) return {};

  std::vector<std::uint64_t> pages(t.pages);
  ADVECTIO_TRY(redo.read(t.pages * page_bytes,
                         {reinterpret_cast<std::byte*>(pages.data()), pages.size() * sizeof(std::uint64_t)}));
  protected_end_ = t.protected_end;
  return apply(pages, t.end);
}

Result<void> CrashSafeFile::apply(const std::vector<std::uint64_t>& pages, std::uint64_t end) {
  // Neighbouring pages go out in one write. The sort also makes the writes ascend.
  std::vector<std::size_t> order(pages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return pages[a] < pages[b]; });
  const auto limit = std::min(protected_end_, end);
  std::vector<std::byte> run;
  for (std::size_t i = 0; i < order.size();) {
    const auto first = pages[order[i]];
    run.clear();
    std::size_t k = i;
    for (; k < order.size() && k - i < arena_pages && pages[order[k]] == first + (k - i); ++k) {
      run.resize((k - i + 1) * page_bytes);
      const auto to = std::span(run).subspan((k - i) * page_bytes, page_bytes);
      if (const auto* p = order[k] < arenas_.size() * arena_pages ? in_memory(order[k]) : nullptr; p != nullptr)
        std::memcpy(to.data(), p, page_bytes);
      else
        ADVECTIO_TRY(redo_.file().read(order[k] * page_bytes, to));
    }
    i = k;
    const auto offset = first * page_bytes;
    if (offset >= limit) continue;
    const auto bytes = std::min<std::uint64_t>(run.size(), limit - offset);
    ADVECTIO_TRY(timed_write(*file_, offset, std::span(run).first(bytes)));
    file_size_ = std::max(file_size_, offset + bytes);
  }
  return {};
}

Result<void> CrashSafeFile::settle(std::uint64_t end) {
  if (file_size_ > end) {
    ADVECTIO_TRY(file_->resize(end));
    file_size_ = end;
  }
  size_ = protected_end_ = committed_end_ = end;
  return {};
}

Result<void> CrashSafeFile::timed_write(File& file, std::uint64_t offset, std::span<const std::byte> data) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = file.write(offset, data);
  write_ns_ += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  bytes_written_ += data.size();
  return result;
}

Result<void> CrashSafeFile::read_file(std::uint64_t offset, std::span<std::byte> data) {
  const auto there = offset < file_size_ ? std::min<std::uint64_t>(data.size(), file_size_ - offset) : 0;
  if (there > 0 && behind_) {
    auto written = behind_->drain(offset, there);
    // HDF5 only learns that a read failed; the cause is kept here.
    if (!written) fail(written.error());
    ADVECTIO_TRY(std::move(written));
  }
  if (there > 0) ADVECTIO_TRY(file_->read(offset, data.first(there)));
  std::fill(data.begin() + static_cast<std::ptrdiff_t>(there), data.end(), std::byte{0});
  return {};
}

Result<void> CrashSafeFile::read(std::uint64_t offset, std::span<std::byte> data) {
  while (!data.empty()) {
    const auto page = offset / page_bytes;
    const auto within = offset % page_bytes;
    if (const auto it = slots_.find(page); it != slots_.end()) {
      // A page that protected_end cuts has its upper part in the file.
      const auto page_end = std::min((page + 1) * page_bytes, discarding_ ? ~std::uint64_t{0} : protected_end_);
      if (offset < page_end) {
        const auto n = std::min<std::uint64_t>(data.size(), page_end - offset);
        if (const auto* p = in_memory(it->second); p != nullptr)
          std::memcpy(data.data(), p + within, n);
        else
          ADVECTIO_TRY(redo_.file().read(it->second * page_bytes + within, data.first(n)));
        data = data.subspan(n);
        offset += n;
        continue;
      }
    }
    // Everything up to the next page that has a copy comes from the file in one read.
    std::uint64_t n = std::min<std::uint64_t>(data.size(), page_bytes - within);
    while (n < data.size() && !slots_.contains((offset + n) / page_bytes))
      n += std::min<std::uint64_t>(data.size() - n, page_bytes);
    ADVECTIO_TRY(read_file(offset, data.first(n)));
    data = data.subspan(n);
    offset += n;
  }
  return {};
}

void CrashSafeFile::fail(Error error) noexcept {
  if (!error_) error_ = std::move(error);
  discard();
}

void CrashSafeFile::discard() noexcept {
  if (discarding_) return;
  discarding_ = true;
  // From now on copies hold their whole pages. Of the page that protected_end cuts the upper part was in the file only.
  const auto cut = protected_end_ % page_bytes;
  if (const auto it = slots_.find(protected_end_ / page_bytes); cut != 0 && it != slots_.end()) {
    if (auto* p = in_memory(it->second); p != nullptr) (void)read_file(protected_end_, {p + cut, page_bytes - cut});
  }
}

void CrashSafeFile::write(std::uint64_t offset, std::span<const std::byte> data, Kind kind) noexcept {
  size_ = std::max(size_, offset + data.size());
  // In discard mode metadata is still kept in memory, because HDF5 may read it again before it closes.
  if (discarding_ && kind == Kind::raw) return;
  if (leaves_holes_ && kind == Kind::raw && offset >= std::max(file_size_, protected_end_)) return;
  try {
    const auto limit = discarding_ ? ~std::uint64_t{0} : protected_end_;
    if (offset < limit) {
      const auto n = std::min<std::uint64_t>(data.size(), limit - offset);
      if (auto r = write_pages(offset, data.first(n)); !r) return fail(std::move(r).error());
      offset += n;
      data = data.subspan(n);
    }
    if (data.empty()) return;
    auto r = behind_ ? behind_->write(offset, data) : timed_write(*file_, offset, data);
    if (!r) return fail(std::move(r).error());
    file_size_ = std::max(file_size_, offset + data.size());
  } catch (const std::bad_alloc&) {
    fail(Error{Code::full, "no memory for " + std::to_string(data.size()) + " bytes of metadata", 0});
  }
}

std::byte* CrashSafeFile::in_memory(std::size_t slot) noexcept {
  if (slot / arena_pages >= arenas_.size()) return nullptr;
  return arenas_[slot / arena_pages]->bytes.data() + slot % arena_pages * page_bytes;
}

/// Where the copy of `page` is; a new one holds what the file holds, unless all of it will be overwritten.
Result<std::size_t> CrashSafeFile::slot_for(std::uint64_t page, bool whole) {
  if (const auto it = slots_.find(page); it != slots_.end()) return it->second;
  const auto slot = pages_.size();
  const bool memory = slot < memory_pages_max;
  if (discarding_ && !memory) return slot;  // there is no place for it, and nobody will miss it
  if (memory && slot / arena_pages == arenas_.size()) {
    arenas_.push_back(std::make_unique<Arena>());
  } else if (!memory) {
    ADVECTIO_TRY(redo_.begin());
  }
  if (!whole || !memory) {
    std::array<std::byte, page_bytes> buffer{};
    std::span<std::byte> to = memory ? std::span<std::byte>(in_memory(slot), page_bytes) : std::span<std::byte>(buffer);
    ADVECTIO_TRY(read_file(page * page_bytes, to));
    if (!memory) ADVECTIO_TRY(timed_write(redo_.file(), slot * page_bytes, buffer));
  }
  pages_.push_back(page);
  slots_.emplace(page, slot);
  return slot;
}

Result<void> CrashSafeFile::write_pages(std::uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const auto within = offset % page_bytes;
    const auto n = std::min<std::uint64_t>(data.size(), page_bytes - within);
    auto slot = slot_for(offset / page_bytes, n == page_bytes);
    if (!slot) return std::move(slot).error();
    if (auto* p = in_memory(*slot); p != nullptr)
      std::memcpy(p + within, data.data(), n);
    else if (!discarding_)
      ADVECTIO_TRY(timed_write(redo_.file(), *slot * page_bytes + within, data.first(n)));
    offset += n;
    data = data.subspan(n);
  }
  return {};
}

Result<void> CrashSafeFile::write_redo(std::uint64_t end) {
  ADVECTIO_TRY(redo_.begin());
  std::uint32_t crc = 0;
  const std::uint64_t slots = pages_.size();
  for (std::size_t a = 0; a < arenas_.size() && a * arena_pages < slots; ++a) {
    const auto n = std::min<std::uint64_t>(arena_pages, slots - a * arena_pages);
    const auto part = std::span<const std::byte>(arenas_[a]->bytes).first(n * page_bytes);
    ADVECTIO_TRY(timed_write(redo_.file(), a * arena_pages * page_bytes, part));
    crc = crc_of(crc, part);
  }
  if (const std::uint64_t in_arenas = arenas_.size() * arena_pages; slots > in_arenas) {
    std::vector<std::byte> buffer(arena_pages * page_bytes);
    for (auto slot = in_arenas; slot < slots;) {
      const auto n = std::min<std::uint64_t>(arena_pages, slots - slot);
      const auto part = std::span(buffer).first(n * page_bytes);
      ADVECTIO_TRY(redo_.file().read(slot * page_bytes, part));
      crc = crc_of(crc, part);
      slot += n;
    }
  }
  // The disk may have the trailer before it is told to.
  if (durability_->ordered) ADVECTIO_TRY(file_->sync());
  const auto table = bytes_of(pages_.data(), slots * sizeof(std::uint64_t));
  ADVECTIO_TRY(timed_write(redo_.file(), slots * page_bytes, table));
  crc = crc_of(crc, table);
  Trailer t;
  t.magic = magic;
  t.pages = slots;
  t.protected_end = protected_end_;
  t.end = end;
  t.page_bytes = page_bytes;
  t.crc = crc_of(crc, t);
  redo_.may_count();
  ADVECTIO_TRY(timed_write(redo_.file(), slots * (page_bytes + sizeof(std::uint64_t)), bytes_of(&t, sizeof t)));
  return redo_.decide(durability_->ordered);
}

Result<void> CrashSafeFile::Durability::make_durable() {
  bool first = false;
  {
    const std::lock_guard guard(committing);
    first = !ordered.exchange(true);
  }
  // A redo file of before that is removed in memory only would be applied to what the file has become since.
  if (first) ADVECTIO_TRY(make_names_durable(files, directory));
  return file->sync();
}

Result<void> CrashSafeFile::drain() {
  auto written = behind_ ? behind_->drain() : Result<void>{};
  if (!written) fail(written.error());
  return written;
}

Result<void> CrashSafeFile::commit(std::uint64_t end) {
  if (error_) return *error_;
  const std::lock_guard guard(durability_->committing);
  const auto body = [&]() -> Result<void> {
    if (behind_) ADVECTIO_TRY(behind_->drain());
    if (file_size_ < end) {
      ADVECTIO_TRY(file_->resize(end));
      file_size_ = end;
    }
    if (!pages_.empty()) {
      ADVECTIO_TRY_WITH(write_redo(end), "prepare the commit");
      ADVECTIO_TRY_WITH(apply(pages_, end), "apply the commit, which is safe in " + redo_.file().path());
      if (durability_->ordered)
        redo_.keep();
      else
        ADVECTIO_TRY_WITH(redo_.remove(false), "end the commit");
    }
    return {};
  };
  if (auto r = body(); !r) {
    fail(r.error());
    return r;
  }
  forget_pages();
  has_commit_ = true;
  size_ = protected_end_ = committed_end_ = end;
  // Free space that HDF5 has given back at the end. The file is right with or without it.
  if (file_size_ > end && file_->resize(end).ok()) file_size_ = end;
  return {};
}

void CrashSafeFile::forget_pages() noexcept {
  slots_.clear();
  pages_.clear();
  if (arenas_.size() > 1) arenas_.resize(1);
}

Result<void> CrashSafeFile::close() {
  discard();
  return redo_.remove(false);
}

void CrashSafeFile::abandon() noexcept {
  discard();
  // A redo file that is whole and could not be applied is the only way to a whole file: `resume` needs it. Nor may one
  // stay that `resume` would apply to what is cut off here.
  if (!redo_.give_up()) return;
  if (behind_) (void)behind_->drain();
  if (file_size_ > committed_end_ && file_->resize(committed_end_).ok()) file_size_ = committed_end_;
}

}  // namespace advectio
