#include "sinks/netcdf4/netcdf4_sink.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sinks/netcdf4/crash_safe_file.h"
#include "sinks/netcdf4/early_allocation.h"
#include "sinks/netcdf4/hdf5.h"
#include "sinks/netcdf4/layout.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {

namespace {

/// More chunks in one part than this means chunks so small that HDF5 itself is the better way.
constexpr std::uint64_t part_chunks_max = 1 << 16;

/// Chunks of the file's data sets, as HDF5 keeps them.
class Hdf5Chunks final : public ChunkStore {
 public:
  Hdf5Chunks(const Layout& layout, const std::unique_ptr<CrashSafeFile>& storage)
      : layout_(layout), storage_(storage) {}

  [[nodiscard]] bool is_behind() const override { return storage_ && storage_->is_behind(); }

  Result<void> put(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                   std::uint32_t mask, std::span<const std::byte> data) override {
    const Hdf5Lock lock;
    ADVECTIO_HDF5(
        H5Dwrite_chunk(layout_.variable(variable).dataset, H5P_DEFAULT, mask, offsets(start), data.size(), data.data()),
        "write a chunk of " + how.name);
    return {};
  }

  /// (To ask HDF5 1.10 whether it has the chunk would cost a walk over all chunks.)
  Result<void> get(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                   const std::vector<std::uint64_t>& extent, std::byte* to) override {
    const auto& dataset = layout_.variable(variable).dataset;
    const auto rank = start.size();
    const auto what = "read a chunk of " + how.name;
    std::array<hsize_t, ChunkAssembly::rank_max> count{}, chunk{}, zero{};
    for (std::size_t i = 0; i < rank; ++i) {
      chunk[i] = how.chunk[i];
      count[i] = std::min(how.chunk[i], extent[i] - start[i]);
    }
    const Hdf5Lock lock;
    const Hdf5Id from(H5Dget_space(dataset), H5Sclose),
        memory(H5Screate_simple(static_cast<int>(rank), chunk.data(), nullptr), H5Sclose);
    const Hdf5Id type(H5Dget_type(dataset), H5Tclose), native(H5Tget_native_type(type, H5T_DIR_DEFAULT), H5Tclose);
    ADVECTIO_HDF5(H5Sselect_hyperslab(from, H5S_SELECT_SET, offsets(start), nullptr, count.data(), nullptr), what);
    ADVECTIO_HDF5(H5Sselect_hyperslab(memory, H5S_SELECT_SET, zero.data(), nullptr, count.data(), nullptr), what);
    ADVECTIO_HDF5(H5Dread(dataset, native, memory, from, H5P_DEFAULT, to), what);
    return {};
  }

 private:
  static const hsize_t* offsets(std::span<const std::uint64_t> start) {
    static_assert(sizeof(hsize_t) == sizeof(std::uint64_t));
    return reinterpret_cast<const hsize_t*>(start.data());
  }

  const Layout& layout_;
  const std::unique_ptr<CrashSafeFile>& storage_;
};

class Netcdf4Sink final : public TransactionalSink {
 public:
  Netcdf4Sink(const std::string& path, std::unique_ptr<CrashSafeFile> storage, const Netcdf4Options& options,
              Executor& executor)
      : TransactionalSink(path),
        storage_(std::move(storage)),
        options_(options),
        chunks_(store_, executor, options.memory ? options.memory : std::make_shared<MemoryBudget>(options.memory_max),
                options.helpers, options.wake) {}

  ~Netcdf4Sink() override { abandon(); }

  Result<void> open();

  [[nodiscard]] Abilities abilities() const override { return netcdf4_abilities(); }

  Result<void> holds(const Schema& schema) override;

  std::function<Result<void>()> make_durable() override {
    return [durability = durability_] { return durability->make_durable(); };
  }

  [[nodiscard]] SinkCounters counters() const override {
    auto c = counters_;
    c.encode_ns = chunks_.encode_ns();
    if (storage_) {
      c.bytes_out = storage_->bytes_written();
      c.write_ns = storage_->write_ns();
    }
    return c;
  }

 private:
  Result<void> apply(const Schema& schema) override;
  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override;
  [[nodiscard]] bool takes_layouts() const override { return true; }
  Result<void> take_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                           std::span<const std::byte> bytes) override;
  void seal_parts() override { chunks_.seal(); }
  Result<bool> advance_parts() override { return chunks_.advance(); }
  Result<void> commit(bool last) override;

  Result<void> leave() override {
    const Hdf5Lock lock;
    // HDF5 has nothing left to write, except that it may want to say so.
    storage_->discard();
    release();
    ADVECTIO_TRY_WITH(storage_->close(), "close " + path());
    finish();
    closed();
    return {};
  }

  void drop() noexcept override {
    chunks_.abandon();
    const Hdf5Lock lock;
    storage_->discard();
    release();
    storage_->abandon();
    finish();
  }

  /// HDF5 does not hear of failing writes (crash_safe_file.h).
  [[nodiscard]] std::optional<Error> hidden_error() const override { return storage_->error(); }

  void failed() noexcept override {
    chunks_.abandon();
    storage_->discard();
  }

  Result<void> create(const Schema& schema);
  Result<void> keep_skeleton(const Schema& schema);
  Result<void> allocate();
  Result<void> note_allocation();
  Result<void> write_through_library(const Field& field, const Part& part);
  Result<std::shared_ptr<const ChunkedVariable>> chunked(std::uint32_t number);

  void release() noexcept {
    chunked_.clear();
    layout_.release();
    file_.reset();
  }
  void finish() noexcept {
    counters_ = counters();
    storage_.reset();
  }

  std::unique_ptr<CrashSafeFile> storage_;
  std::shared_ptr<CrashSafeFile::Durability> durability_ = storage_->durability();
  Netcdf4Options options_;
  Hdf5Id file_;
  Layout layout_;
  Hdf5Chunks store_{layout_, storage_};
  ChunkAssembly chunks_;
  bool fresh_ = false;                                                          // there is nothing in the file
  std::vector<std::optional<std::shared_ptr<const ChunkedVariable>>> chunked_;  // null: goes through HDF5
  SinkCounters counters_;
};

Result<void> Netcdf4Sink::open() {
  const Hdf5Lock lock;
  const auto access = crash_safe_access(*storage_);
  ADVECTIO_HDF5(access.get(), "set up the driver");
  if (storage_->has_commit()) {
    file_ = Hdf5Id(H5Fopen(path().c_str(), H5F_ACC_RDWR, access), H5Fclose);
    ADVECTIO_HDF5(file_.get(), "open " + path());
    // The superblock has told the driver where the file ends.
    if (options_.made_by_others && storage_->allocated() != storage_->size())
      return Error{Code::unsupported, "it has bytes behind its end", 0};
    ADVECTIO_TRY(storage_->settle(storage_->allocated()));
    if (auto loaded = layout_.load(file_); !loaded)
      return options_.made_by_others ? std::move(loaded).error() : std::move(loaded).error().with(path());
  } else {
    fresh_ = true;
  }
  if (storage_->error()) return *storage_->error();
  return {};
}

Result<void> Netcdf4Sink::holds(const Schema& schema) {
  const Hdf5Lock lock;
  if (fresh_) return Error{Code::unsupported, "it is empty", 0};
  const Hdf5Id creation(H5Fget_create_plist(file_), H5Pclose);
  ADVECTIO_HDF5(creation.get(), "look at " + path());
  H5F_info2_t info{};
  ADVECTIO_HDF5(H5Fget_info2(file_, &info), "look at " + path());
  unsigned shared = 0;
  hsize_t before = 0;
  H5F_fspace_strategy_t strategy = H5F_FSPACE_STRATEGY_NONE;
  hbool_t persist = true;
  hsize_t threshold = 0;
  ADVECTIO_HDF5(H5Pget_shared_mesg_nindexes(creation, &shared), "look at " + path());
  ADVECTIO_HDF5(H5Pget_userblock(creation, &before), "look at " + path());
  ADVECTIO_HDF5(H5Pget_file_space_strategy(creation, &strategy, &persist, &threshold), "look at " + path());
  // From version 3 on the superblock says who has the file open.
  if (info.super.version > 2 || shared != 0 || before != 0 || persist || strategy != H5F_FSPACE_STRATEGY_FSM_AGGR)
    return Error{Code::unsupported, "it is an HDF5 file of another kind than netCDF's", 0};
  return layout_.holds(schema);
}

/// There is nothing in the file.
Result<void> Netcdf4Sink::create(const Schema& schema) {
  const auto skeleton = options_.skeletons ? options_.skeletons->find(schema) : nullptr;
  if (skeleton) {
    storage_->write(0, skeleton->bytes, CrashSafeFile::Kind::metadata);
    storage_->set_allocated(skeleton->bytes.size());
    const auto access = crash_safe_access(*storage_);
    file_ = Hdf5Id(H5Fopen(path().c_str(), H5F_ACC_RDWR, access), H5Fclose);
    ADVECTIO_HDF5(file_.get(), "open " + path());
    return layout_.take_up(file_, skeleton->layout);
  }
  const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  constexpr unsigned tracked = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
  ADVECTIO_HDF5(H5Pset_obj_track_times(creation, false), "set up");
  ADVECTIO_HDF5(H5Pset_link_creation_order(creation, tracked), "set up");
  ADVECTIO_HDF5(H5Pset_attr_creation_order(creation, tracked), "set up");
  const auto access = crash_safe_access(*storage_);
  file_ = Hdf5Id(H5Fcreate(path().c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  ADVECTIO_HDF5(file_.get(), "create " + path());
  ADVECTIO_TRY(layout_.create(file_, schema.format));
  ADVECTIO_TRY(layout_.apply(schema));
  return options_.skeletons && options_.skeletons->is_wanted(schema) ? keep_skeleton(schema) : Result<void>{};
}

/// Nothing has been put yet.
Result<void> Netcdf4Sink::keep_skeleton(const Schema& schema) {
  ADVECTIO_HDF5(H5Fflush(file_, H5F_SCOPE_GLOBAL), "flush " + path());
  Skeleton skeleton{layout_.known(), std::vector<std::byte>(storage_->allocated())};
  ADVECTIO_TRY(storage_->read(0, skeleton.bytes));
  options_.skeletons->keep(schema, std::move(skeleton));
  return {};
}

Result<void> Netcdf4Sink::apply(const Schema& schema) {
  // Chunks under way belong to data sets as they are now.
  ADVECTIO_TRY(chunks_.flush());
  const Hdf5Lock lock;
  if (fresh_) ADVECTIO_TRY(create(schema));
  fresh_ = false;
  ADVECTIO_TRY(layout_.apply(schema));
  chunked_.clear();
  return {};
}

Result<std::shared_ptr<const ChunkedVariable>> Netcdf4Sink::chunked(std::uint32_t number) {
  chunked_.resize(layout_.variables());
  if (chunked_[number]) return *chunked_[number];
  auto& out = chunked_[number].emplace();
  const auto& v = layout_.variable(number);
  const auto rank = v.is.dimensions.size();
  if (v.is.type == DataType::string || rank == 0 || rank > ChunkAssembly::rank_max) return out;
  const Hdf5Lock lock;
  const Hdf5Id creation(H5Dget_create_plist(v.dataset), H5Pclose), type(H5Dget_type(v.dataset), H5Tclose);
  ADVECTIO_HDF5(creation.get(), "look at " + v.is.name);
  if (H5Pget_layout(creation) != H5D_CHUNKED) return out;
  auto c = std::make_shared<ChunkedVariable>();
  std::array<hsize_t, ChunkAssembly::rank_max> chunk{};
  ADVECTIO_HDF5(H5Pget_chunk(creation, static_cast<int>(rank), chunk.data()), "look at " + v.is.name);
  const int filters = H5Pget_nfilters(creation);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    std::array<unsigned, 32> values{};
    std::size_t count = values.size();
    const auto id =
        H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &count, values.data(), 0, nullptr, &config);
    if (id < 0 || !can_encode(static_cast<std::uint32_t>(id)) || count > values.size()) return out;
    c->pipeline.stages.push_back({static_cast<std::uint32_t>(id),
                                  (flags & H5Z_FLAG_OPTIONAL) != 0,
                                  {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)}});
  }
  c->name = v.is.name;
  c->type = v.is.type;
  c->element = size_of(v.is.type);
  c->swap = c->element > 1 && H5Tget_order(type) == H5T_ORDER_BE;
  c->fill = v.is.no_fill ? Bytes(c->element) : v.is.fill.empty() ? default_fill(v.is.type) : v.is.fill;
  c->chunk.assign(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(rank));
  for (const auto d : v.is.dimensions) {
    const auto& dim = layout_.dimension(d).is;
    c->limit.push_back(dim.unlimited ? UINT64_MAX : dim.length);
  }
  c->pipeline.element = c->element;
  c->pipeline.deflate = options_.deflate;
  c->pipeline.level = options_.level;
  out = std::move(c);
  return out;
}

Result<void> Netcdf4Sink::take(const std::shared_ptr<const Field>& field, const Part& part) {
  const auto number = field->variable();
  if (number >= layout_.variables()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
  const auto& v = layout_.variable(number);
  ADVECTIO_TRY(check(part, v.is, [this](std::uint32_t d) -> const Dimension& { return layout_.dimension(d).is; }));
  counters_.bytes_in += part.box.volume() * size_of(v.is.type);
  if (part.box.empty()) return {};
  const auto bounds = part.bounds();
  const auto rank = bounds.rank();
  std::vector<std::uint64_t> end(rank);
  for (std::size_t i = 0; i < rank; ++i) end[i] = bounds.start[i] + bounds.count[i];
  {
    const Hdf5Lock lock;
    ADVECTIO_TRY(layout_.extend(number, end));
  }
  auto c = chunked(number);
  if (!c) return std::move(c).error();
  if (*c) {
    std::uint64_t touched = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const auto n = (end[i] - 1) / (*c)->chunk[i] - bounds.start[i] / (*c)->chunk[i] + 1;
      touched = touched > part_chunks_max / n ? part_chunks_max + 1 : touched * n;
    }
    if ((part.dense() || part.layout) && touched <= part_chunks_max)
      return chunks_.add(field, *c, v.extent, part.box, part.dense());
    // Chunks that were started before must not go over what is written now.
    ADVECTIO_TRY(chunks_.flush());
  }
  if (part.layout) return for_each_box(part, [&](const Part& box) { return write_through_library(*field, box); });
  return write_through_library(*field, part);
}

Result<void> Netcdf4Sink::take_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                                      std::span<const std::byte> bytes) {
  if (variable >= layout_.variables()) return Error{Code::invalid, "no variable " + std::to_string(variable), 0};
  const auto& v = layout_.variable(variable);
  ADVECTIO_TRY(check(box, v.is, [this](std::uint32_t d) -> const Dimension& { return layout_.dimension(d).is; }));
  const auto what = "write a chunk of " + v.is.name;
  if (v.is.contiguous || box.empty()) return Error{Code::invalid, what + ": there is no such chunk", 0};
  counters_.bytes_in += box.volume() * size_of(v.is.type);
  std::vector<hsize_t> start(box.start.begin(), box.start.end());
  std::vector<std::uint64_t> end(box.rank());
  for (std::size_t i = 0; i < end.size(); ++i) {
    if (box.start[i] % v.is.chunks[i] != 0 || box.count[i] > v.is.chunks[i])
      return Error{Code::invalid, what + ": there is no such chunk", 0};
    end[i] = box.start[i] + box.count[i];
  }
  if (v.is.filters.empty()) {
    auto whole = size_of(v.is.type);
    for (const auto c : v.is.chunks) whole *= c;
    if (bytes.size() != whole)
      return Error{Code::invalid,
                   what + ": " + std::to_string(bytes.size()) + " bytes in place of " + std::to_string(whole), 0};
  }
  const Hdf5Lock lock;
  ADVECTIO_TRY(layout_.extend(variable, end));
  ADVECTIO_HDF5(H5Dwrite_chunk(v.dataset, H5P_DEFAULT, mask, start.data(), bytes.size(), bytes.data()), what);
  return {};
}

Result<void> Netcdf4Sink::write_through_library(const Field& field, const Part& part) {
  const auto& v = layout_.variable(field.variable());
  const auto volume = part.box.volume();
  const auto view = field.view(part);
  const void* from = view.data();

  Bytes values;
  std::vector<String> texts;
  std::vector<const char*> pointers;
  if (v.is.type == DataType::string) {
    texts.resize(volume);
    field.read(part, texts);
    for (const auto& t : texts) {
      pointers.push_back(t ? t->c_str() : nullptr);
      counters_.bytes_in += sizeof(std::uint32_t) + (t ? t->size() : 0);
    }
    from = pointers.data();
  } else if (view.empty()) {
    values.resize(volume * size_of(v.is.type));
    field.read(part, values.data());
    from = values.data();
  }

  const Hdf5Lock lock;
  const auto type = hdf5_type(v.is.type, Endian::native);
  const auto rank = part.box.rank();
  Hdf5Id memory(H5Screate(H5S_SCALAR), H5Sclose), space(H5Dget_space(v.dataset), H5Sclose);
  if (rank > 0) {
    const std::vector<hsize_t> start(part.box.start.begin(), part.box.start.end()),
        count(part.box.count.begin(), part.box.count.end()), stride(part.stride.begin(), part.stride.end());
    memory = Hdf5Id(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), H5Sclose);
    ADVECTIO_HDF5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), stride.empty() ? nullptr : stride.data(),
                                      count.data(), nullptr),
                  "write " + v.is.name);
  }
  ADVECTIO_HDF5(H5Dwrite(v.dataset, type, memory, space, H5P_DEFAULT, from), "write " + v.is.name);
  return {};
}

Result<void> Netcdf4Sink::allocate() {
  for (std::uint32_t v = 0; v < layout_.variables(); ++v) {
    const auto how = chunked(v);
    if (!how) return how.error();
    const auto& variable = layout_.variable(v);
    ADVECTIO_TRY(allocate_all_chunks(variable.dataset, variable.is.name, how->get(), *storage_));
  }
  return {};
}

Result<void> Netcdf4Sink::note_allocation() {
  for (std::uint32_t v = 0; v < layout_.variables(); ++v) {
    const auto& variable = layout_.variable(v);
    const auto at = header_address(variable.dataset);
    if (!at) return at.error();
    ADVECTIO_TRY_WITH(note_early_allocation(*storage_, *at), "variable " + variable.is.name);
  }
  return {};
}

Result<void> Netcdf4Sink::commit(bool last) {
  ADVECTIO_TRY(chunks_.flush());
  // A disk that hangs does so before this sink takes the lock that all of them share.
  ADVECTIO_TRY(storage_->drain());
  // HDF5 must not write headers after that.
  const bool for_parallel_hdf5 = last && options_.for_parallel_hdf5;
  {
    const Hdf5Lock lock;
    if (for_parallel_hdf5) ADVECTIO_TRY(allocate());
    ADVECTIO_HDF5(H5Fflush(file_, H5F_SCOPE_GLOBAL), "flush " + path());
    if (for_parallel_hdf5) ADVECTIO_TRY(note_allocation());
  }
  // Other sinks need not wait for our disk.
  return storage_->commit(storage_->allocated());
}

}  // namespace

Abilities netcdf4_abilities() {
  const std::vector<DataType> classic = {DataType::int8,  DataType::text,    DataType::int16,
                                         DataType::int32, DataType::float32, DataType::float64};
  auto all = classic;
  all.insert(all.end(), {DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64,
                         DataType::string});
  Abilities out;
  out.forms = {{FileFormat::netcdf4, all}, {FileFormat::netcdf4_classic, classic, 1}};
  out.takes_stored = true;
  return out;
}

namespace {
/// By its first bytes.
Result<void> is_hdf5_file(Files& files, const std::string& path) {
  constexpr std::string_view signature = "\211HDF\r\n\032\n";
  std::array<char, signature.size()> begin{};
  auto file = files.open(path, OpenMode::read);
  if (!file) return std::move(file).error();
  auto size = (*file)->size();
  if (!size) return std::move(size).error();
  if (*size >= begin.size()) ADVECTIO_TRY((*file)->read(0, std::as_writable_bytes(std::span(begin))));
  if (std::string_view(begin.data(), begin.size()) == signature) return {};
  return Error{Code::unsupported, "it does not begin as an HDF5 file does", 0};
}
}  // namespace

Result<std::unique_ptr<Sink>> open_netcdf4(Files& files, const std::string& path, const Netcdf4Options& options,
                                           Executor& executor, bool resume) {
  const auto redo = options.redo_path.empty() ? default_redo_path(path) : options.redo_path;
  if (options.made_by_others) {
    ADVECTIO_TRY(is_hdf5_file(files, path));
    if (files.exists(redo))
      return Error{Code::unsupported, redo + " is left from an earlier run, and nobody knows whether it is up to date",
                   0};
  }
  auto storage = CrashSafeFile::open(files, path, redo, resume);
  if (!storage) return std::move(storage).error();
  if (options.ordered) storage.value()->durability()->ordered = true;
  if (options.disk != nullptr && options.disk->threads() > 0)
    storage.value()->write_behind(*options.disk,
                                  options.memory ? options.memory : std::make_shared<MemoryBudget>(options.memory_max),
                                  options.wake);
  auto sink = std::make_unique<Netcdf4Sink>(path, std::move(storage).value(), options, executor);
  ADVECTIO_TRY(sink->open());
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
