#include "sinks/transaction/transactional_sink.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace advectio {

Result<void> TransactionalSink::usable() const {
  if (closed_) return Error{Code::bug, path_ + " is closed", 0};
  if (error_) return *error_;
  return {};
}

/// Remembers an error. A library does not always report what the file system has refused, and where
/// it fails for another reason it may be because of that.
Result<void> TransactionalSink::judge(Result<void> result) {
  if (auto hidden = hidden_error()) result = std::move(*hidden);
  if (!result) {
    error_ = result.error();
    failed();
  }
  return result;
}

Result<void> TransactionalSink::declare(const Schema& schema) {
  ADVECTIO_TRY(usable());
  ADVECTIO_TRY(can_carry(abilities(), schema));
  pending_ = schema;
  return {};
}

Result<void> TransactionalSink::apply_pending() {
  if (!pending_) return {};
  ADVECTIO_TRY(apply(*pending_));
  pending_.reset();
  return {};
}

Result<void> TransactionalSink::begin(std::uint64_t frame) {
  ADVECTIO_TRY(usable());
  frame_ = frame;
  begun_ = true;
  return {};
}

Result<void> TransactionalSink::ready_for_parts() {
  ADVECTIO_TRY(usable());
  if (!begun_) return judge(Error{Code::bug, path_ + ": a part before its frame", 0});
  if (auto applied = apply_pending(); !applied) return judge(std::move(applied));
  return {};
}

Result<void> TransactionalSink::ready(const std::shared_ptr<const Field>& field, const Part& part) {
  ADVECTIO_TRY(ready_for_parts());
  if (part.layout && !takes_layouts())
    return judge(for_each_box(part, [&](const Part& box) { return take(field, box); }));
  return judge(take(field, part));
}

Result<void> TransactionalSink::ready_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                                             std::span<const std::byte> bytes) {
  ADVECTIO_TRY(ready_for_parts());
  return judge(take_stored(variable, box, mask, bytes));
}

Result<void> TransactionalSink::commit_all(bool last) {
  ADVECTIO_TRY(apply_pending());
  return commit(last);
}

Result<void> TransactionalSink::seal() {
  ADVECTIO_TRY(usable());
  seal_parts();
  return {};
}

Result<bool> TransactionalSink::advance() {
  ADVECTIO_TRY(usable());
  auto done = advance_parts();
  ADVECTIO_TRY(judge(done ? Result<void>{} : Result<void>(done.error())));
  return done;
}

Result<void> TransactionalSink::end() {
  ADVECTIO_TRY(usable());
  begun_ = false;
  return judge(commit_all(false));
}

Result<void> TransactionalSink::checkpoint() {
  ADVECTIO_TRY(usable());
  if (!abilities().checkpoints) return Error{Code::unsupported, path_ + ": a commit in the midst of a frame", 0};
  return judge(commit_all(false));
}

Result<void> TransactionalSink::close() {
  if (closed_) return {};
  ADVECTIO_TRY(usable());
  ADVECTIO_TRY(judge(commit_all(true)));
  return leave();
}

void TransactionalSink::abandon() noexcept {
  if (std::exchange(closed_, true)) return;
  drop();
}

namespace {
constexpr std::size_t redo_name_max = 120;  // with what a sink adds to it; some file systems allow 143
}

std::string default_redo_path(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const auto directory = slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  const auto name = slash == std::string::npos ? path : path.substr(slash + 1);
  auto redo = name.starts_with('.') ? name : "." + name + ".advectio";
  if (redo.size() > redo_name_max) {
    // A name of the greatest length has no room for an addition.
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
    char text[32];
    std::snprintf(text, sizeof text, ".advectio-%016" PRIx64, hash);
    redo = text;
  }
  return directory + redo + "-redo";
}

void fill_with(std::byte* to, std::size_t bytes, const Bytes& element) noexcept {
  if (std::all_of(element.begin(), element.end(), [&](std::byte b) { return b == element[0]; })) {
    std::memset(to, std::to_integer<int>(element[0]), bytes);
    return;
  }
  // Doubling: each copy is of what has been filled so far.
  auto done = std::min(bytes, element.size());
  std::memcpy(to, element.data(), done);
  while (done < bytes) {
    const auto more = std::min(done, bytes - done);
    std::memcpy(to + done, to, more);
    done += more;
  }
}

}  // namespace advectio
