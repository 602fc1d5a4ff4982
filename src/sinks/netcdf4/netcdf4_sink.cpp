#include "sinks/netcdf4/netcdf4_sink.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sinks/blocks.h"
#include "sinks/netcdf4/crash_safe_file.h"
#include "sinks/netcdf4/early_allocation.h"
#include "sinks/netcdf4/hdf5.h"
#include "sinks/netcdf4/layout.h"

namespace advectio {

namespace {

/// More chunks in one block than this means chunks so small that HDF5 itself is the better way.
constexpr std::uint64_t block_chunks_max = 1 << 16;

class Netcdf4Sink final : public Sink {
 public:
  Netcdf4Sink(std::string path, std::unique_ptr<CrashSafeFile> storage, const Netcdf4Options& options,
              Executor& executor)
      : path_(std::move(path)),
        storage_(std::move(storage)),
        options_(options),
        chunks_(executor, options.memory ? options.memory : std::make_shared<MemoryBudget>(options.memory_max),
                options.helpers) {}

  ~Netcdf4Sink() override { abandon(); }

  Result<void> open();

  Result<void> declare(const Schema& schema) override {
    ADVECTIO_TRY(usable());
    if (!is_hdf5(schema.format))
      return Error{Code::invalid, "a " + std::string(name_of(schema.format)) + " file is not for the netcdf4 sink", 0};
    // Put into the file when something needs it: a program may define hundreds of things one at a time.
    pending_ = schema;
    return {};
  }

  Result<void> write(const Block& block) override {
    ADVECTIO_TRY(usable());
    return judge(take(block));
  }

  Result<void> commit() override {
    ADVECTIO_TRY(usable());
    return judge(commit_all(false));
  }

  std::function<Result<void>()> make_durable() override {
    return [durability = durability_] { return durability->make_durable(); };
  }

  Result<void> close() override {
    if (closed_) return {};
    ADVECTIO_TRY(usable());
    ADVECTIO_TRY(judge(commit_all(options_.for_parallel_hdf5)));
    const Hdf5Lock lock;
    // HDF5 has nothing left to write, except that it may want to say so.
    storage_->discard();
    release();
    ADVECTIO_TRY_WITH(storage_->close(), "close " + path_);
    finish();
    return {};
  }

  void abandon() noexcept override {
    if (closed_) return;
    chunks_.abandon();
    const Hdf5Lock lock;
    storage_->discard();
    release();
    storage_->abandon();
    finish();
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
  Result<void> usable() const {
    if (closed_) return Error{Code::bug, path_ + " is closed", 0};
    if (failed_) return *failed_;
    return {};
  }

  /// HDF5 does not hear of failing writes (crash_safe_file.h), and where it fails for another reason it may be because
  /// of one.
  Result<void> judge(Result<void> result) {
    if (storage_->error()) result = *storage_->error();
    if (!result) {
      failed_ = result.error();
      chunks_.abandon();
      storage_->discard();
    }
    return result;
  }

  Result<void> settle();
  Result<void> take(const Block& block);
  Result<void> commit_all(bool for_parallel_hdf5);
  Result<void> allocate();
  Result<void> note_allocation();
  Result<void> check(const Block& block) const;
  Result<void> write_through_library(const Block& block);
  Result<std::shared_ptr<const ChunkedVariable>> chunked(std::uint32_t number);

  void release() noexcept {
    chunked_.clear();
    layout_.release();
    file_.reset();
  }
  void finish() noexcept {
    counters_ = counters();
    storage_.reset();
    closed_ = true;
  }

  std::string path_;
  std::unique_ptr<CrashSafeFile> storage_;
  std::shared_ptr<CrashSafeFile::Durability> durability_ = storage_->durability();
  Netcdf4Options options_;
  Hdf5Id file_;
  Layout layout_;
  ChunkAssembly chunks_;
  std::optional<Schema> pending_;                                               // declared, not in the file yet
  bool fresh_ = false;                                                          // the root group has not been set up
  std::vector<std::optional<std::shared_ptr<const ChunkedVariable>>> chunked_;  // null: goes through HDF5
  std::optional<Error> failed_;
  SinkCounters counters_;
  bool closed_ = false;
};

Result<void> Netcdf4Sink::open() {
  const Hdf5Lock lock;
  const auto access = crash_safe_access(*storage_);
  ADVECTIO_HDF5(access.get(), "set up the driver");
  if (storage_->has_commit()) {
    file_ = Hdf5Id(H5Fopen(path_.c_str(), H5F_ACC_RDWR, access), H5Fclose);
    ADVECTIO_HDF5(file_.get(), "open " + path_);
    // The superblock has told the driver where the file ends.
    ADVECTIO_TRY(storage_->settle(storage_->allocated()));
    ADVECTIO_TRY_WITH(layout_.load(file_), path_);
  } else {
    const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    constexpr unsigned tracked = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    ADVECTIO_HDF5(H5Pset_obj_track_times(creation, false), "set up");
    ADVECTIO_HDF5(H5Pset_link_creation_order(creation, tracked), "set up");
    ADVECTIO_HDF5(H5Pset_attr_creation_order(creation, tracked), "set up");
    file_ = Hdf5Id(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
    ADVECTIO_HDF5(file_.get(), "create " + path_);
    fresh_ = true;
  }
  if (storage_->error()) return *storage_->error();
  return {};
}

/// Bring what was declared into the file.
Result<void> Netcdf4Sink::settle() {
  if (!pending_) return {};
  // Chunks under way belong to data sets as they are now.
  ADVECTIO_TRY(chunks_.flush());
  const Hdf5Lock lock;
  if (fresh_) {
    ADVECTIO_TRY(layout_.create(file_, pending_->format));
    fresh_ = false;
  }
  ADVECTIO_TRY(layout_.apply(*pending_));
  pending_.reset();
  chunked_.clear();
  return {};
}

Result<void> Netcdf4Sink::check(const Block& b) const {
  if (b.variable >= layout_.variables()) return Error{Code::invalid, "no variable " + std::to_string(b.variable), 0};
  return advectio::check(b, layout_.variable(b.variable).is,
                         [this](std::uint32_t d) -> const Dimension& { return layout_.dimension(d).is; });
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
  c->dataset = v.dataset;
  c->type = v.is.type;
  c->element = size_of(v.is.type);
  c->swap = c->element > 1 && H5Tget_order(type) == H5T_ORDER_BE;
  c->round_bits = v.is.round_bits;
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

Result<void> Netcdf4Sink::take(const Block& block) {
  ADVECTIO_TRY(settle());
  ADVECTIO_TRY(check(block));
  counters_.bytes_in += block.bytes;
  if (block.box.empty()) return {};
  const auto& v = layout_.variable(block.variable);
  const auto rank = block.box.rank();
  std::vector<std::uint64_t> end(rank);
  for (std::size_t i = 0; i < rank; ++i)
    end[i] = block.box.start[i] + (block.box.count[i] - 1) * (block.stride.empty() ? 1 : block.stride[i]) + 1;
  {
    const Hdf5Lock lock;
    ADVECTIO_TRY(layout_.extend(block.variable, end));
  }
  auto c = chunked(block.variable);
  if (!c) return std::move(c).error();
  if (*c) {
    const bool dense = std::all_of(block.stride.begin(), block.stride.end(), [](std::uint64_t s) { return s == 1; });
    std::uint64_t touched = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const auto n = (end[i] - 1) / (*c)->chunk[i] - block.box.start[i] / (*c)->chunk[i] + 1;
      touched = touched > block_chunks_max / n ? block_chunks_max + 1 : touched * n;
    }
    if (dense && touched <= block_chunks_max) return chunks_.add(block.variable, *c, v.extent, block);
    // Blocks that came before have to be in the file before this one goes over them.
    ADVECTIO_TRY(chunks_.flush());
  }
  return write_through_library(block);
}

Result<void> Netcdf4Sink::write_through_library(const Block& block) {
  const auto& v = layout_.variable(block.variable);
  const auto volume = block.box.volume();
  const void* from = block.data;

  std::vector<std::byte> rounded;
  std::string texts;
  std::vector<const char*> pointers;
  if (v.is.type == DataType::string) {
    Decoder d({block.data, block.bytes});
    constexpr std::size_t none = SIZE_MAX;
    std::vector<std::size_t> starts;
    starts.reserve(std::min<std::uint64_t>(volume, block.bytes / 4));
    for (std::uint64_t i = 0; i < volume && d.ok(); ++i) {
      const auto text = d.string();
      starts.push_back(text ? texts.size() : none);
      if (text) texts.append(text->c_str(), text->size() + 1);
    }
    if (!d.ok() || !d.at_end())
      return Error{Code::corrupt, "block of " + v.is.name + ": not " + std::to_string(volume) + " strings", 0};
    for (const auto s : starts) pointers.push_back(s != none ? texts.data() + s : nullptr);
    from = pointers.data();
  } else if (v.is.round_bits > 0) {
    rounded.assign(block.data, block.data + block.bytes);
    const auto fill = v.is.no_fill ? Bytes() : v.is.fill.empty() ? default_fill(v.is.type) : v.is.fill;
    round_bits(v.is.type, v.is.round_bits, fill, rounded.data(), volume);
    from = rounded.data();
  }

  const Hdf5Lock lock;
  const auto type = hdf5_type(v.is.type, Endian::native);
  const auto rank = block.box.rank();
  Hdf5Id memory(H5Screate(H5S_SCALAR), H5Sclose), space(H5Dget_space(v.dataset), H5Sclose);
  if (rank > 0) {
    const std::vector<hsize_t> start(block.box.start.begin(), block.box.start.end()),
        count(block.box.count.begin(), block.box.count.end()), stride(block.stride.begin(), block.stride.end());
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

/// `for_parallel_hdf5`: this is the last commit. HDF5 must not write headers after it.
Result<void> Netcdf4Sink::commit_all(bool for_parallel_hdf5) {
  ADVECTIO_TRY(settle());
  ADVECTIO_TRY(chunks_.flush());
  if (fresh_) return Error{Code::bug, "commit before declare", 0};
  {
    const Hdf5Lock lock;
    if (for_parallel_hdf5) ADVECTIO_TRY(allocate());
    ADVECTIO_HDF5(H5Fflush(file_, H5F_SCOPE_GLOBAL), "flush " + path_);
    if (for_parallel_hdf5) ADVECTIO_TRY(note_allocation());
  }
  // Other sinks need not wait for our disk.
  return storage_->commit(storage_->allocated());
}

}  // namespace

std::string default_redo_path(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const auto directory = slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  const auto name = slash == std::string::npos ? path : path.substr(slash + 1);
  return directory + (name.starts_with('.') ? name + "-redo" : "." + name + ".advectio-redo");
}

Result<std::unique_ptr<Sink>> open_netcdf4(Files& files, const std::string& path, const Netcdf4Options& options,
                                           Executor& executor, bool resume) {
  const auto redo = options.redo_path.empty() ? default_redo_path(path) : options.redo_path;
  auto storage = CrashSafeFile::open(files, path, redo, resume);
  if (!storage) return std::move(storage).error();
  if (options.ordered) storage.value()->durability()->ordered = true;
  auto sink = std::make_unique<Netcdf4Sink>(path, std::move(storage).value(), options, executor);
  ADVECTIO_TRY(sink->open());
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
