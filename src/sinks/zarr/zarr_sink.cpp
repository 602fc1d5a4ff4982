#include "sinks/zarr/zarr_sink.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "sinks/transaction/transactional_sink.h"
#include "sinks/zarr/metadata.h"
#include "sinks/zarr/redo.h"
#include "sinks/zarr/shards.h"

namespace advectio {

namespace {

using zarr::Form;
using zarr::Json;
using zarr::Redo;
using zarr::Shards;

constexpr const char *root_name = "zarr.json", *mark_name = ".advectio", *next_mark = ".advectio.next";
/// What a redo file is called until it is whole.
const std::string next_redo = std::string(zarr::redo_name) + ".next";

std::string part_of(const std::string& name) {
  return name + ".part";
}

/// Where arrays lie that readers do not know yet, or that get another name.
std::string new_directory(std::uint32_t variable) {
  return ".advectio-new-" + std::to_string(variable);
}
std::string aside_directory(std::uint32_t variable) {
  return ".advectio-aside-" + std::to_string(variable);
}

/// Files that have changed since somebody last made them durable, as paths. Outlives the sink.
struct Unforced {
  std::mutex mutex;  ///< held while they are synced: nothing is renamed meanwhile
  std::set<std::string> files;
  std::atomic<bool> asked = false;

  Result<void> force(Files& files_of_system, const std::string& store) {
    const std::lock_guard lock(mutex);
    std::set<std::string> directories = {store, directory_of(store)};
    for (const auto& file : files) {
      ADVECTIO_TRY(make_durable(files_of_system, file));
      directories.insert(directory_of(file));
    }
    for (const auto& directory : directories) ADVECTIO_TRY(make_names_durable(files_of_system, directory));
    files.clear();
    return {};
  }
};

/// Strings of chunks that have been put since the last commit.
struct TextChunks {
  using Key = std::pair<std::uint32_t, std::vector<std::uint64_t>>;
  std::map<Key, std::vector<String>> chunks;
};

/// vlen-utf8: how many, then the length and the bytes of each.
Result<Bytes> encode_texts(const std::vector<String>& texts) {
  Bytes bytes;
  Encoder out(bytes);
  out.number(static_cast<std::uint32_t>(texts.size()));
  for (const auto& t : texts) {
    // The JSON library knows what is UTF-8.
    try {
      if (t) (void)nlohmann::json(*t).dump();
    } catch (const nlohmann::json::exception&) {
      return Error{Code::unsupported, "a string that is not UTF-8, which Zarr cannot hold", 0};
    }
    out.text(t.value_or(""));
  }
  return bytes;
}

bool decode_texts(std::span<const std::byte> bytes, std::vector<String>& texts) {
  Decoder in(bytes);
  if (in.number<std::uint32_t>() != texts.size()) return false;
  for (auto& t : texts) t = in.text();
  return in.ok() && in.at_end();
}

class ZarrSink final : public TransactionalSink {
 public:
  ZarrSink(Files& files, const std::string& path, const ZarrOptions& options, Executor& executor)
      : TransactionalSink(path),
        files_(files),
        options_(options),
        shards_(files, path),
        chunks_(shards_, executor, options.memory ? options.memory : std::make_shared<MemoryBudget>(options.memory_max),
                options.helpers, options.wake) {}

  ~ZarrSink() override { abandon(); }

  Result<void> open(bool resume);

  [[nodiscard]] Abilities abilities() const override { return zarr_abilities(); }

  std::function<Result<void>()> make_durable() override {
    unforced_->asked = true;
    return [unforced = unforced_, &files = files_, store = path()] { return unforced->force(files, store); };
  }

  [[nodiscard]] SinkCounters counters() const override {
    auto c = counters_;
    c.encode_ns = chunks_.encode_ns();
    c.bytes_out += shards_.bytes_written();
    c.write_ns = shards_.write_ns();
    return c;
  }

 private:
  /// An array, by the number of its variable.
  struct Array {
    Json metadata;
    std::string name;       ///< as committed; empty: readers do not know it yet
    std::string directory;  ///< where it lies now
    bool changed = true;    ///< its own metadata are older than what is declared
    std::shared_ptr<const ChunkedVariable> how;
  };

  /// Files of the commit under way, as they are called before it.
  struct Written {
    std::vector<std::string> files, replacing;  ///< the latter take the place of others
  };

  Result<void> apply(const Schema& schema) override;
  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override;
  [[nodiscard]] bool takes_layouts() const override { return true; }
  void seal_parts() override { chunks_.seal(); }
  Result<bool> advance_parts() override { return chunks_.advance(); }
  Result<void> commit(bool last) override;

  Result<void> leave() override {
    ADVECTIO_TRY(files_.remove(path() + '/' + mark_name));
    closed();
    return {};
  }

  void drop() noexcept override {
    chunks_.abandon();
    // A commit that was decided happens, by `resume`: what it has made stays.
    if (decided_) return;
    shards_.abandon();
    remove_what_is_new();
    (void)files_.remove(path() + '/' + mark_name);
    // Nothing was ever in it.
    if (!committed_ && made_here_) (void)::rmdir(path().c_str());
  }

  void failed() noexcept override { chunks_.abandon(); }

  Result<void> load();
  Result<void> begin_store();
  Result<void> mark();
  Result<std::optional<std::string>> owner_there();
  Result<void> take_texts(const Field& field, const Part& part);
  Result<void> put_texts();
  Result<void> write_part(const std::string& name, const std::string& text);
  Result<void> redo_of(bool last, Redo& redo, Written& written);
  Result<void> force(const Written& written);
  void note_changed(const Redo& redo);
  void remove_what_is_new() noexcept;
  [[nodiscard]] std::vector<std::uint64_t> shape_of(const Variable& v) const {
    std::vector<std::uint64_t> shape;
    for (const auto d : v.dimensions) shape.push_back(lengths_[d]);
    return shape;
  }

  Files& files_;
  const ZarrOptions options_;
  Schema schema_;
  std::vector<std::uint64_t> lengths_;  ///< of the schema's dimensions, as far as the unlimited ones have grown
  std::vector<Array> arrays_;
  Shards shards_;
  ChunkAssembly chunks_;
  TextChunks texts_;
  std::shared_ptr<Unforced> unforced_ = std::make_shared<Unforced>();
  std::uint64_t taken_frame_ = 0;
  bool made_here_ = false;      ///< the directory is this sink's, or that of one who died over it
  bool committed_ = false;      ///< there is a root
  bool decided_ = false;        ///< a commit failed after it was decided: what it has made stays for `resume`
  bool root_changed_ = false;   ///< the schema or a length is not what the root says
  bool shapes_behind_ = false;  ///< arrays' own metadata have older shapes
  SinkCounters counters_;
};

/// Empties the directory, and marks it. Marked first: should this process die meanwhile, the next one
/// may empty it too.
Result<void> ZarrSink::begin_store() {
  auto names = files_.list(path());
  if (!names) return std::move(names).error();
  const auto has = [&](const char* name) { return std::find(names->begin(), names->end(), name) != names->end(); };
  const bool ours = has(root_name) || has(mark_name) || has(next_mark);
  if (!names->empty() && !ours)
    return Error{Code::exists,
                 path() +
                     " is a directory that holds no Zarr store, and it is not emptied; move it away, or give "
                     "the dataset another name",
                 EEXIST};
  made_here_ = made_here_ || ours;
  ADVECTIO_TRY(mark());
  for (const auto& name : *names) {
    std::error_code failed;
    if (name != mark_name) std::filesystem::remove_all(path() + '/' + name, failed);
    if (failed) return system_error("remove " + path() + '/' + name, failed.value());
  }
  return {};
}

/// Whole, and with `ordered` on the disk before anything else of the store: a loss of power must not leave a directory
/// of which nobody knows whose it is.
Result<void> ZarrSink::mark() {
  return replace_file(files_, path() + '/' + mark_name, std::as_bytes(std::span(options_.owner)), options_.ordered);
}

/// Which dataset the store is of, as it says itself; none: there is no store. The root says it where
/// there is one: a process may have died before its mark was whole.
Result<std::optional<std::string>> ZarrSink::owner_there() {
  const auto marked = path() + '/' + mark_name, root = path() + '/' + root_name;
  const bool has_root = files_.exists(root);
  if (!has_root && !files_.exists(marked)) return std::optional<std::string>();
  auto bytes = read_file(files_, has_root ? root : marked);
  if (!bytes) return std::move(bytes).error();
  std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (!has_root) return std::optional(std::move(text));
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("consolidated_metadata")) return std::optional(std::string());
  const auto& beside = json["consolidated_metadata"];
  const bool says = beside.is_object() && beside.contains("dataset") && beside["dataset"].is_string();
  return std::optional(says ? beside["dataset"].get<std::string>() : std::string());
}

Result<void> ZarrSink::open(bool resume) {
  made_here_ = !files_.exists(path());
  ADVECTIO_TRY(files_.make_directory(path(), 0777));
  auto there = owner_there();
  if (!there) return std::move(there).error();
  const auto& owner = options_.owner;
  const auto file_of = [](const std::string& o) { return o.substr(0, o.find('/')); };
  if (*there && !(*there)->empty() && !owner.empty() && file_of(**there) != file_of(owner))
    return Error{Code::exists,
                 path() + " is the store of the file " + file_of(**there) + ", not of " + file_of(owner) +
                     "; move it away, or give the dataset another name",
                 EEXIST};
  const bool ours = *there && (owner.empty() || **there == owner);
  if (!resume || !ours) return begin_store();
  ADVECTIO_TRY(zarr::take_up(files_, path(), options_.ordered));
  if (!files_.exists(path() + '/' + root_name)) return begin_store();
  ADVECTIO_TRY(load());
  return mark();
}

Result<void> ZarrSink::load() {
  const auto file = path() + '/' + root_name;
  auto bytes = read_file(files_, file);
  if (!bytes) return std::move(bytes).error();
  const auto* begin = reinterpret_cast<const char*>(bytes->data());
  const auto root = Json::parse(begin, begin + bytes->size(), nullptr, false);
  try {
    if (root.is_discarded()) return Error{Code::corrupt, file + " is not JSON", 0};
    for (const auto& [name, metadata] : root.at("consolidated_metadata").at("metadata").items())
      arrays_.push_back({metadata, name, name, false, nullptr});
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::corrupt, file + " is not what a Zarr store of ours has: " + e.what(), 0};
  }
  committed_ = true;
  // Who wrote it before may have died.
  shapes_behind_ = true;
  unforced_->files.insert(file);
  auto names = files_.list(path());
  if (!names) return std::move(names).error();
  for (const auto& name : *names) {
    const bool known = std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.name == name; });
    if (known) {
      auto inside = files_.list(path() + '/' + name);
      if (!inside) return std::move(inside).error();
      for (const auto& n : *inside) {
        const auto inner = path() + '/' + name + '/' + n;
        if (n.ends_with(".part"))
          ADVECTIO_TRY(files_.remove(inner));
        else
          unforced_->files.insert(inner);  // nobody knows what of it is on the disk
      }
    } else if (name.ends_with(".part") || name == next_redo) {
      ADVECTIO_TRY(files_.remove(path() + '/' + name));
    } else if (name.starts_with(".advectio-new-")) {
      std::error_code failed;
      std::filesystem::remove_all(path() + '/' + name, failed);
      if (failed) return system_error("remove " + path() + '/' + name, failed.value());
    }
  }
  return {};
}

Result<void> ZarrSink::apply(const Schema& schema) {
  // Chunks under way belong to arrays as they are now.
  ADVECTIO_TRY(chunks_.flush());
  if (schema.variables.size() < arrays_.size())
    return Error{Code::invalid,
                 path() + " holds " + std::to_string(arrays_.size()) + " variables, and the schema has " +
                     std::to_string(schema.variables.size()),
                 0};
  const auto known = lengths_.size();
  for (std::size_t d = known; d < schema.dimensions.size(); ++d)
    lengths_.push_back(schema.dimensions[d].unlimited ? 0 : schema.dimensions[d].length);
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i) {
    const auto& v = schema.variables[i];
    if (i == arrays_.size()) {
      auto made = zarr::new_array(schema, v);
      if (!made) return std::move(made).error();
      const auto directory = new_directory(i);
      ADVECTIO_TRY(files_.make_directory(path() + '/' + directory, 0777));
      arrays_.push_back({std::move(made).value(), "", directory, true, nullptr});
    }
    auto& array = arrays_[i];
    const auto form = zarr::form_of(array.metadata, v.type);
    if (!form || form->chunk.size() != v.dimensions.size())
      return Error{Code::corrupt,
                   path() + ": the array of variable " + v.name +
                       " is not what was declared: " + (form ? "other dimensions" : form.error().message),
                   0};
    // Of a store that is taken up: how far its records have got.
    const auto shape = array.metadata.at("shape").get<std::vector<std::uint64_t>>();
    for (std::size_t k = 0; k < std::min(shape.size(), v.dimensions.size()); ++k)
      if (const auto d = v.dimensions[k]; schema.dimensions[d].unlimited) lengths_[d] = std::max(lengths_[d], shape[k]);
    shards_.place(i, array.directory, *form);
    auto how = std::make_shared<ChunkedVariable>();
    how->name = v.name;
    how->type = v.type;
    how->element = size_of(v.type);
    how->swap = form->swap;
    how->fill = v.no_fill || v.fill.empty() ? default_fill(v.type) : v.fill;
    how->chunk = form->chunk;
    for (const auto d : v.dimensions)
      how->limit.push_back(schema.dimensions[d].unlimited ? UINT64_MAX : schema.dimensions[d].length);
    how->pipeline = form->pipeline;
    how->pipeline.deflate = options_.deflate;
    how->pipeline.level = options_.level;
    array.how = std::move(how);
  }
  schema_ = schema;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    auto now = arrays_[i].metadata;
    zarr::describe(now, schema_, schema_.variables[i], shape_of(schema_.variables[i]));
    if (now == arrays_[i].metadata) continue;
    arrays_[i].metadata = std::move(now);
    arrays_[i].changed = true;
  }
  root_changed_ = true;
  return {};
}

Result<void> ZarrSink::take(const std::shared_ptr<const Field>& field, const Part& part) {
  const auto number = field->variable();
  if (number >= arrays_.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
  const auto& v = schema_.variables[number];
  ADVECTIO_TRY(check(part, v, [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
  counters_.bytes_in += part.elements() * size_of(v.type);
  if (part.box.empty()) return {};
  const auto bounds = part.bounds();
  for (std::size_t i = 0; i < bounds.rank(); ++i) {
    auto& length = lengths_[v.dimensions[i]];
    const auto end = bounds.start[i] + bounds.count[i];
    if (end <= length) continue;
    length = end;
    root_changed_ = true;
  }
  if (v.type == DataType::string) return take_texts(*field, part);
  // A chunk may have records of several frames, and an assembly reads each chunk from one field.
  if (std::exchange(taken_frame_, frame()) != frame()) ADVECTIO_TRY(chunks_.flush());
  return chunks_.add(field, arrays_[number].how, shape_of(v), bounds, part.dense());
}

Result<void> ZarrSink::take_texts(const Field& field, const Part& part) {
  const auto number = field.variable();
  const auto& how = *arrays_[number].how;
  const auto rank = how.chunk.size();
  std::vector<String> texts(part.box.volume());
  field.read(part, texts);
  std::uint64_t chunk_volume = 1;
  for (const auto c : how.chunk) chunk_volume *= c;
  std::vector<std::uint64_t> at(rank, 0), start(rank, 0);
  for (const auto& text : texts) {
    counters_.bytes_in += sizeof(std::uint32_t) + (text ? text->size() : 0);
    std::uint64_t index = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      const auto x = part.box.start[i] + at[i] * (part.stride.empty() ? 1 : part.stride[i]);
      start[i] = x / how.chunk[i] * how.chunk[i];
      index = index * how.chunk[i] + x % how.chunk[i];
    }
    auto& chunk = texts_.chunks[{number, start}];
    if (chunk.empty()) {
      chunk.assign(chunk_volume, schema_.variables[number].fill_text.value_or(""));
      auto bytes = shards_.read(number, start);
      if (!bytes) return std::move(bytes).error().with("read a chunk of " + how.name);
      if (!bytes->empty() && !decode_texts(*bytes, chunk))
        return Error{Code::corrupt, "a chunk of " + how.name + " in " + path() + " is damaged", 0};
    }
    chunk[index] = text;
    for (std::size_t i = rank; i-- > 0;) {
      if (++at[i] < part.box.count[i]) break;
      at[i] = 0;
    }
  }
  return {};
}

Result<void> ZarrSink::put_texts() {
  for (const auto& [key, texts] : texts_.chunks) {
    const auto what = "write a chunk of " + schema_.variables[key.first].name;
    auto bytes = encode_texts(texts);
    if (!bytes) return std::move(bytes).error().with(what);
    ADVECTIO_TRY_WITH(shards_.write(key.first, key.second, *bytes), what);
  }
  texts_.chunks.clear();
  return {};
}

/// Under another name: a rename puts it in place.
Result<void> ZarrSink::write_part(const std::string& name, const std::string& text) {
  auto file = files_.open(path() + '/' + part_of(name), OpenMode::create, 0666);
  if (!file) return std::move(file).error();
  counters_.bytes_out += text.size();
  return (*file)->write(0, std::as_bytes(std::span(text)));
}

/// Writes all that readers do not see yet, and lists what will show it to them.
Result<void> ZarrSink::redo_of(bool last, Redo& redo, Written& written) {
  std::vector<std::string> directories;
  for (std::uint32_t i = 0; i < arrays_.size(); ++i) {
    const auto& a = arrays_[i];
    const auto& name = directories.emplace_back(schema_.variables[i].name);
    if (a.directory == name) continue;
    if (a.name.empty()) {
      redo.names.push_back({a.directory, name});
    } else {
      redo.aside.push_back({a.directory, aside_directory(i)});
      redo.names.push_back({aside_directory(i), name});
    }
  }
  Json arrays = Json::object();
  for (std::uint32_t i = 0; i < arrays_.size(); ++i) {
    auto& a = arrays_[i];
    const auto& v = schema_.variables[i];
    a.metadata["shape"] = shape_of(v);
    arrays[v.name] = a.metadata;
    if (!a.changed && !(last && shapes_behind_)) continue;
    ADVECTIO_TRY(write_part(a.directory + '/' + root_name, zarr::text_of(a.metadata)));
    written.replacing.push_back(path() + '/' + part_of(a.directory + '/' + root_name));
    redo.names.push_back({part_of(directories[i] + '/' + root_name), directories[i] + '/' + root_name});
  }
  ADVECTIO_TRY(shards_.prepare(directories, redo, written.files, written.replacing));
  ADVECTIO_TRY(
      write_part(root_name, zarr::text_of(zarr::root_of(schema_, lengths_, std::move(arrays), options_.owner))));
  written.replacing.push_back(path() + '/' + part_of(root_name));
  redo.root = {part_of(root_name), root_name};
  return {};
}

/// For `make_durable`, under the names that they have now.
void ZarrSink::note_changed(const Redo& redo) {
  const auto prefix = path() + '/';
  for (const auto& r : redo.names)
    if (r.to.find('/') != std::string::npos) unforced_->files.insert(prefix + r.to);
  for (const auto& w : redo.writes) unforced_->files.insert(prefix + w.file);
  unforced_->files.insert(prefix + root_name);
}

/// Before the commit is decided. What takes the place of a file that is durable is durable before.
/// Other files only grow, and where they were durable they stay right up to there.
Result<void> ZarrSink::force(const Written& written) {
  if (!options_.ordered && !unforced_->asked) return {};
  for (const auto& file : written.replacing) ADVECTIO_TRY(advectio::make_durable(files_, file));
  if (!options_.ordered) return {};
  std::set<std::string> directories;
  for (const auto& file : written.files) {
    ADVECTIO_TRY(advectio::make_durable(files_, file));
    directories.insert(directory_of(file));
  }
  for (const auto& file : written.replacing) directories.insert(directory_of(file));
  for (const auto& directory : directories) ADVECTIO_TRY(make_names_durable(files_, directory));
  return {};
}

Result<void> ZarrSink::commit(bool last) {
  ADVECTIO_TRY(chunks_.flush());
  ADVECTIO_TRY(put_texts());
  const bool anything = !committed_ || root_changed_ || shards_.changed() || (last && shapes_behind_);
  // Nobody has said yet what it holds.
  const bool known = arrays_.size() == schema_.variables.size();
  if (!anything || !known) return {};
  Redo redo;
  Written written;
  ADVECTIO_TRY(redo_of(last, redo, written));
  // What was to be made durable has other names from here on.
  std::unique_lock lock(unforced_->mutex);
  if (!redo.aside.empty()) {
    lock.unlock();
    ADVECTIO_TRY(unforced_->force(files_, path()));
    lock.lock();
  }
  ADVECTIO_TRY(force(written));
  ADVECTIO_TRY_WITH(zarr::decide(files_, path(), redo, options_.ordered), "commit");
  decided_ = true;
  ADVECTIO_TRY_WITH(zarr::carry_out(files_, path(), redo, options_.ordered), "commit");
  decided_ = false;
  note_changed(redo);
  lock.unlock();
  shards_.committed();
  committed_ = true;
  shapes_behind_ = !last && (shapes_behind_ || root_changed_);
  root_changed_ = false;
  for (std::uint32_t i = 0; i < arrays_.size(); ++i) {
    auto& a = arrays_[i];
    a.name = a.directory = schema_.variables[i].name;
    a.changed = false;
    auto form = zarr::form_of(a.metadata, schema_.variables[i].type);
    if (!form) return std::move(form).error();
    shards_.place(i, a.directory, std::move(form).value());
  }
  return {};
}

void ZarrSink::remove_what_is_new() noexcept {
  const auto remove_part = [this](const std::string& name) { (void)files_.remove(path() + '/' + part_of(name)); };
  remove_part(root_name);
  (void)files_.remove(path() + '/' + next_redo);
  for (const auto& a : arrays_) {
    if (!a.name.empty()) {
      remove_part(a.directory + '/' + root_name);
      continue;
    }
    std::error_code failed;
    std::filesystem::remove_all(path() + '/' + a.directory, failed);
  }
}

}  // namespace

Abilities zarr_abilities() {
  Abilities out;
  out.forms = {
      {FileFormat::zarr,
       {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64,
        DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64, DataType::string}}};
  out.directory = true;
  return out;
}

Result<std::unique_ptr<Sink>> open_zarr(Files& files, const std::string& path, const ZarrOptions& options,
                                        Executor& executor, bool resume) {
  auto sink = std::make_unique<ZarrSink>(files, path, options, executor);
  ADVECTIO_TRY(sink->open(resume));
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
