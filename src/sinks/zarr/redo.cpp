#include "sinks/zarr/redo.h"

#include <set>
#include <utility>

#include "sinks/chunks/codec.h"

namespace advectio::zarr {

namespace {

constexpr std::uint32_t magic = 0x315A4441;  // "ADZ1"

void put(Encoder& out, const Redo::Rename& r) {
  out.text(r.from);
  out.text(r.to);
}

Redo::Rename get_rename(Decoder& in) {
  Redo::Rename r;
  r.from = in.text();
  r.to = in.text();
  return r;
}

Bytes encode(const Redo& redo) {
  Bytes bytes;
  Encoder out(bytes);
  out.number(magic);
  for (const auto* list : {&redo.aside, &redo.names}) {
    out.number(static_cast<std::uint32_t>(list->size()));
    for (const auto& r : *list) put(out, r);
  }
  out.number(static_cast<std::uint32_t>(redo.writes.size()));
  for (const auto& w : redo.writes) {
    out.text(w.file);
    out.blob(w.bytes);
  }
  put(out, redo.root);
  out.number(crc32c_of(bytes));
  return bytes;
}

std::optional<Redo> decode(std::span<const std::byte> bytes) {
  Redo redo;
  std::uint32_t sum = 0;
  if (bytes.size() < sizeof sum) return std::nullopt;
  const auto content = bytes.first(bytes.size() - sizeof sum);
  std::memcpy(&sum, bytes.data() + content.size(), sizeof sum);
  if (sum != crc32c_of(content)) return std::nullopt;
  Decoder in(content);
  if (in.number<std::uint32_t>() != magic) return std::nullopt;
  for (auto* list : {&redo.aside, &redo.names}) {
    list->resize(in.count(8));
    for (auto& r : *list) r = get_rename(in);
  }
  redo.writes.resize(in.count(8));
  for (auto& w : redo.writes) {
    w.file = in.text();
    w.bytes = in.blob();
  }
  redo.root = get_rename(in);
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return redo;
}

Result<void> rename_if_there(Files& files, const std::string& store, const Redo::Rename& r) {
  const auto from = store + '/' + r.from;
  return files.exists(from) ? files.rename(from, store + '/' + r.to) : Result<void>{};
}

}  // namespace

Result<void> decide(Files& files, const std::string& store, const Redo& redo, bool durable) {
  ADVECTIO_TRY(files.remove(store + '/' + aside_name));
  return replace_file(files, store + '/' + redo_name, encode(redo), durable);
}

Result<void> carry_out(Files& files, const std::string& store, const Redo& redo, bool durable) {
  std::set<std::string> changed, directories = {store};
  if (!redo.aside.empty()) {
    // As long as this file is not there, what has an old name is an array that has not gone aside
    // yet.
    const auto done = store + '/' + aside_name;
    if (!files.exists(done)) {
      for (const auto& r : redo.aside) ADVECTIO_TRY(rename_if_there(files, store, r));
      if (durable) ADVECTIO_TRY(make_names_durable(files, store));
      auto file = files.open(done, OpenMode::create);
      if (!file) return std::move(file).error();
      if (durable) ADVECTIO_TRY(make_names_durable(files, store));
    }
  }
  for (const auto& r : redo.names) {
    ADVECTIO_TRY(rename_if_there(files, store, r));
    directories.insert(directory_of(store + '/' + r.to));
  }
  for (const auto& w : redo.writes) {
    const auto path = store + '/' + w.file;
    auto file = files.open(path, OpenMode::read_write);
    if (!file) return std::move(file).error();
    ADVECTIO_TRY((*file)->write(0, w.bytes));
    changed.insert(path);
  }
  if (durable) {
    for (const auto& path : changed) ADVECTIO_TRY(make_durable(files, path));
    for (const auto& path : directories) ADVECTIO_TRY(make_names_durable(files, path));
  }
  ADVECTIO_TRY(rename_if_there(files, store, redo.root));
  if (durable) ADVECTIO_TRY(make_names_durable(files, store));
  // The list first: without the mark beside it, it would be done from its beginning.
  ADVECTIO_TRY(files.remove(store + '/' + redo_name));
  return redo.aside.empty() ? Result<void>{} : files.remove(store + '/' + aside_name);
}

Result<void> take_up(Files& files, const std::string& store, bool durable) {
  const auto path = store + '/' + redo_name;
  if (!files.exists(path)) return files.remove(store + '/' + aside_name);
  auto bytes = read_file(files, path);
  if (!bytes) return std::move(bytes).error();
  const auto redo = decode(*bytes);
  // A rename puts it there whole, unless the power is lost: then nothing of it was done before it
  // was on the disk.
  if (!redo) return Error{Code::corrupt, path + ": what a commit has to do was not whole on the disk", 0};
  return carry_out(files, store, *redo, durable);
}

}  // namespace advectio::zarr
