// How a schema can change after there is data, although in these formats that moves the data:
//   1. What there is is committed, and the file closed.
//   2. A copy (`REDO.part`) gets the new header from netCDF-C, which moves the data within the copy.
//   3. The copy is renamed to REDO. From here on the change will happen.
//   4. Its bytes are written over the file's, whose inode stays.
//   5. REDO is removed.
// `resume` does 4 and 5 where it finds REDO, and removes a `REDO.part`.
//
// Loss of power, where somebody asks for it (`ordered`): 3 and 5 end with a sync of the directory. Records are written
// in place, and counted by netCDF-C, so any of those after the last that were made durable may be counted and not
// there: how many were durable stands in REDO.records, and `resume` with `power_lost` counts back to it. The file is
// synced before REDO.records goes.
#include "sinks/cdf5/cdf5_sink.h"

#include <netcdf.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "sinks/blocks.h"
#include "sinks/cdf5/patches.h"
#include "sinks/library_lock.h"

namespace advectio {

namespace {

struct Lock : std::lock_guard<std::recursive_mutex> {
  Lock() : std::lock_guard<std::recursive_mutex>(library_mutex()) {}
};

Error netcdf_error(const std::string& what, int status) {
  // Positive numbers are the system's.
  if (status > 0) return system_error(what, status);
  const bool caller = status == NC_EBADTYPE || status == NC_ESTRICTNC3 || status == NC_EUNLIMIT ||
                      status == NC_EVARSIZE || status == NC_EDIMSIZE || status == NC_EUNLIMPOS || status == NC_EBADNAME;
  return Error{caller ? Code::unsupported : Code::io, what + ": " + nc_strerror(status), 0};
}

#define ADVECTIO_NC(call, what)                                                              \
  do {                                                                                       \
    if (const int status_ = (call); status_ != NC_NOERR) return netcdf_error(what, status_); \
  } while (false)

int mode_of(FileFormat format) {
  switch (format) {
    case FileFormat::offset64: return NC_64BIT_OFFSET;
    case FileFormat::cdf5: return NC_64BIT_DATA;
    default: return 0;
  }
}

Result<void> put_attribute(int nc, int variable, const Attribute& a) {
  if (a.type == DataType::string) return Error{Code::unsupported, "attribute " + a.name + ": strings", 0};
  ADVECTIO_NC(nc_put_att(nc, variable, a.name.c_str(), static_cast<nc_type>(a.type), a.count, a.values.data()),
              "attribute " + a.name);
  return {};
}

Result<void> set_attributes(int nc, int variable, const std::vector<Attribute>& is, const std::vector<Attribute>& to) {
  for (const auto& a : is)
    if (std::none_of(to.begin(), to.end(), [&](const Attribute& b) { return b.name == a.name; }))
      ADVECTIO_NC(nc_del_att(nc, variable, a.name.c_str()), "attribute " + a.name);
  for (const auto& a : to)
    if (std::find(is.begin(), is.end(), a) == is.end()) ADVECTIO_TRY(put_attribute(nc, variable, a));
  return {};
}

/// In define mode: make what the file is into what is wanted.
Result<void> define(int nc, const Schema& is, const Schema& to) {
  // Through names that nobody uses, because old and new ones may be exchanged.
  for (const bool last : {false, true}) {
    for (std::size_t d = 0; d < std::min(is.dimensions.size(), to.dimensions.size()); ++d)
      if (is.dimensions[d].name != to.dimensions[d].name)
        ADVECTIO_NC(nc_rename_dim(nc, static_cast<int>(d),
                                  (last ? to.dimensions[d].name : "_advectio_" + std::to_string(d)).c_str()),
                    "dimension " + to.dimensions[d].name);
    for (std::size_t v = 0; v < std::min(is.variables.size(), to.variables.size()); ++v)
      if (is.variables[v].name != to.variables[v].name)
        ADVECTIO_NC(nc_rename_var(nc, static_cast<int>(v),
                                  (last ? to.variables[v].name : "_advectio_" + std::to_string(v)).c_str()),
                    "variable " + to.variables[v].name);
  }
  for (auto d = is.dimensions.size(); d < to.dimensions.size(); ++d) {
    const auto& dim = to.dimensions[d];
    int id = 0;
    ADVECTIO_NC(nc_def_dim(nc, dim.name.c_str(), dim.unlimited ? NC_UNLIMITED : dim.length, &id),
                "dimension " + dim.name);
  }
  for (std::size_t v = 0; v < to.variables.size(); ++v) {
    const auto& var = to.variables[v];
    int id = static_cast<int>(v);
    const std::vector<Attribute> none;
    if (v >= is.variables.size()) {
      const std::vector<int> ids(var.dimensions.begin(), var.dimensions.end());
      ADVECTIO_NC(nc_def_var(nc, var.name.c_str(), static_cast<nc_type>(var.type), static_cast<int>(ids.size()),
                             ids.data(), &id),
                  "variable " + var.name);
      ADVECTIO_NC(nc_def_var_fill(nc, id, var.no_fill ? NC_NOFILL : NC_FILL, nullptr), "variable " + var.name);
    } else if (is.variables[v].type != var.type || is.variables[v].dimensions != var.dimensions) {
      return Error{Code::invalid, "variable " + var.name + " has changed its type or its dimensions", 0};
    }
    ADVECTIO_TRY_WITH(
        set_attributes(nc, id, v < is.variables.size() ? is.variables[v].attributes : none, var.attributes),
        "variable " + var.name);
  }
  return set_attributes(nc, NC_GLOBAL, is.attributes, to.attributes);
}

/// What netCDF-C reads and writes at once; an open file has two of it.
constexpr std::size_t buffer_bytes = 64U << 10U;

int open_file(const std::string& path, int& nc) {
  auto hint = buffer_bytes;
  return nc__open(path.c_str(), NC_WRITE, &hint, &nc);
}

int end_define(int nc, const Schema& s) {
  if (s.header_pad == 0 && s.data_align == 0 && s.data_pad == 0 && s.record_align == 0) return nc_enddef(nc);
  // 1 is no alignment; 0 is none of netCDF-C's values.
  return nc__enddef(nc, s.header_pad, std::max<std::size_t>(s.data_align, 1), s.data_pad,
                    std::max<std::size_t>(s.record_align, 1));
}

Result<std::vector<Attribute>> read_attributes(int nc, int variable, int count) {
  std::vector<Attribute> out;
  for (int i = 0; i < count; ++i) {
    std::array<char, NC_MAX_NAME + 1> name{};
    ADVECTIO_NC(nc_inq_attname(nc, variable, i, name.data()), "list attributes");
    Attribute a;
    a.name = name.data();
    nc_type type = NC_NAT;
    std::size_t n = 0;
    ADVECTIO_NC(nc_inq_att(nc, variable, name.data(), &type, &n), "attribute " + a.name);
    a.type = static_cast<DataType>(type);
    a.count = n;
    a.values.resize(n * size_of(a.type));
    if (n > 0) ADVECTIO_NC(nc_get_att(nc, variable, name.data(), a.values.data()), "attribute " + a.name);
    out.push_back(std::move(a));
  }
  return out;
}

Result<Schema> read_schema(int nc) {
  Schema s;
  int dims = 0, vars = 0, atts = 0, unlimited = -1;
  ADVECTIO_NC(nc_inq(nc, &dims, &vars, &atts, &unlimited), "read the header");
  std::array<char, NC_MAX_NAME + 1> name{};
  for (int d = 0; d < dims; ++d) {
    std::size_t length = 0;
    ADVECTIO_NC(nc_inq_dim(nc, d, name.data(), &length), "read the header");
    s.dimensions.push_back({name.data(), d == unlimited ? 0 : length, d == unlimited});
  }
  auto global = read_attributes(nc, NC_GLOBAL, atts);
  if (!global) return std::move(global).error();
  s.attributes = std::move(global).value();
  for (int v = 0; v < vars; ++v) {
    Variable var;
    nc_type type = NC_NAT;
    int rank = 0, n = 0;
    std::array<int, NC_MAX_VAR_DIMS> ids{};
    ADVECTIO_NC(nc_inq_var(nc, v, name.data(), &type, &rank, ids.data(), &n), "read the header");
    var.name = name.data();
    var.type = static_cast<DataType>(type);
    var.dimensions.assign(ids.begin(), ids.begin() + rank);
    auto attributes = read_attributes(nc, v, n);
    if (!attributes) return std::move(attributes).error();
    var.attributes = std::move(attributes).value();
    s.variables.push_back(std::move(var));
  }
  return s;
}

/// Bytes that lie together are written at once when they are as many, so that little is left to do for a commit.
constexpr std::uint64_t worth_a_write = 1U << 20U;

/// What of the file is netCDF-C's to change at any time: the number of records.
struct Committed {
  std::uint64_t size = 0;
  std::array<std::byte, 12> head{};
};

class Cdf5Sink final : public Sink {
 public:
  Cdf5Sink(Files& files, std::string path, std::string redo, const Cdf5Options& options, std::shared_ptr<File> file)
      : files_(files), path_(std::move(path)), redo_(std::move(redo)), options_(options), file_(std::move(file)) {}
  ~Cdf5Sink() override { abandon(); }

  Result<void> open(bool resume);

  Result<void> declare(const Schema& schema) override {
    ADVECTIO_TRY(usable());
    if (is_hdf5(schema.format))
      return Error{Code::invalid, "a " + std::string(name_of(schema.format)) + " file is not for the cdf5 sink", 0};
    pending_ = schema;
    return {};
  }
  Result<void> write(const Block& block) override {
    ADVECTIO_TRY(usable());
    return judge(take(block));
  }
  Result<void> commit() override {
    ADVECTIO_TRY(usable());
    return judge(commit_all());
  }
  std::function<Result<void>()> make_durable() override {
    if (!options_.ordered) return [file = file_] { return file->sync(); };
    return [&files = files_, file = file_, noted = records_, n = committed_records_,
            directory = directory_of(redo_)]() -> Result<void> {
      ADVECTIO_TRY(file->sync());
      if (!noted) return {};
      ADVECTIO_TRY(write_count(*noted, durable_at, n));
      ADVECTIO_TRY(noted->sync());
      return advectio::make_durable(files, directory);
    };
  }
  Result<void> close() override {
    if (closed_) return {};
    ADVECTIO_TRY(commit());
    const Lock lock;
    const int status = nc_close(nc_);
    nc_ = -1;
    closed_ = true;
    if (status != NC_NOERR) return netcdf_error("close " + path_, status);
    if (options_.ordered) ADVECTIO_TRY(file_->sync());
    records_.reset();
    ADVECTIO_TRY(files_.remove(records_path()));
    return sync_names();
  }
  void abandon() noexcept override;
  [[nodiscard]] SinkCounters counters() const override { return counters_; }

 private:
  Result<void> usable() const {
    if (closed_) return Error{Code::bug, path_ + " is closed", 0};
    if (failed_) return *failed_;
    return {};
  }
  Result<void> judge(Result<void> result) {
    if (!result) failed_ = result.error();
    return result;
  }
  Result<void> settle();
  Result<void> create();
  Result<void> change();
  Result<void> take(const Block& block);
  [[nodiscard]] bool lies_together(const Variable& v, const Box& box) const;
  Result<void> flush();
  Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides,
                   const std::byte* data);
  Result<void> commit_all();
  Result<void> commit_data();
  Result<void> note_commit();
  Result<void> count_records();
  Result<void> note_records(std::uint64_t records);
  Result<void> restore_records();
  void forget_records() noexcept;
  [[nodiscard]] std::string records_path() const { return redo_ + ".records"; }
  Result<void> replace_content();
  Result<void> sync_names() {
    return options_.ordered ? advectio::make_durable(files_, directory_of(redo_)) : Result<void>{};
  }
  Result<void> set_fill_mode();

  Files& files_;
  /// How many records there are, so that what is half-written is known for that. In REDO.records first the number that
  /// is committed, then the one that is durable.
  static constexpr std::uint64_t durable_at = 16;
  static Result<void> write_count(File& to, std::uint64_t at, std::uint64_t records) {
    const std::array<std::uint64_t, 2> twice{records, ~records};
    return to.write(at, std::as_bytes(std::span(twice)));
  }
  static std::optional<std::uint64_t> count_in(std::span<const std::byte> noted, std::uint64_t at) {
    std::array<std::uint64_t, 2> twice{};
    if (noted.size() < at + sizeof twice) return std::nullopt;
    std::memcpy(twice.data(), noted.data() + at, sizeof twice);
    return twice[0] == ~twice[1] ? std::optional(twice[0]) : std::nullopt;
  }

  std::string path_, redo_;
  Cdf5Options options_;
  std::shared_ptr<File> file_;
  std::shared_ptr<File> records_;  // how many are committed; see note_records
  std::uint64_t committed_records_ = 0;
  int nc_ = -1;
  std::optional<Schema> pending_;
  Schema is_;
  Patches patches_;
  std::optional<Committed> committed_;
  std::optional<Error> failed_;
  SinkCounters counters_;
  bool closed_ = false;
};

Result<void> Cdf5Sink::open(bool resume) {
  const Lock lock;
  ADVECTIO_TRY(files_.remove(redo_ + ".part"));
  if (!resume) {
    ADVECTIO_TRY(files_.remove(redo_));
    ADVECTIO_TRY(files_.remove(records_path()));
    ADVECTIO_TRY(file_->resize(0));
    return note_records(0);
  }
  if (files_.exists(redo_)) ADVECTIO_TRY(replace_content());
  ADVECTIO_TRY(restore_records());
  auto size = file_->size();
  if (!size) return std::move(size).error();
  if (*size == 0) return {};
  // A header is complete or not there at all: what was only begun is begun again.
  if (const int status = open_file(path_, nc_); status != NC_NOERR) {
    nc_ = -1;
    // What the system refuses now says nothing of what is in the file.
    if (status > 0) return netcdf_error("open " + path_, status);
    return file_->resize(0);
  }
  auto schema = read_schema(nc_);
  if (!schema) return std::move(schema).error();
  is_ = std::move(schema).value();
  // What is made durable next counts from here, whether or not anything is committed before.
  if (options_.ordered) ADVECTIO_TRY(count_records());
  return note_commit();
}

/// netCDF-C counts a record in the header before all of it is in the file. Who dies in between, or meets a full disk,
/// leaves records that are counted and not filled, and nobody would fill them later. So the number that has been
/// committed stands beside the file before anything is written, until that is closed.
Result<void> Cdf5Sink::note_records(std::uint64_t records) {
  if (!records_) {
    // Whatever is durable stays noted.
    const auto mode = files_.exists(records_path()) ? OpenMode::read_write : OpenMode::create;
    auto file = files_.open(records_path(), mode, 0600);
    if (!file) return std::move(file).error();
    records_ = std::move(file).value();
  }
  committed_records_ = records;
  return write_count(*records_, 0, records);
}

Result<void> Cdf5Sink::restore_records() {
  const auto noted = read_whole(files_, records_path());
  if (!noted) return {};
  const auto records = count_in(*noted, options_.power_lost ? durable_at : 0);
  auto size = file_->size();
  if (!size) return std::move(size).error();
  std::array<std::byte, 12> head{};
  if (!records || *size < head.size()) return {};
  ADVECTIO_TRY(file_->read(0, head));
  // "CDF", version, and the number: big-endian, of 8 bytes from version 5 on.
  const std::size_t bytes = head[3] == std::byte{5} ? 8 : 4;
  std::uint64_t counted = 0;
  for (std::size_t i = 0; i < bytes; ++i) counted = counted << 8U | std::to_integer<std::uint64_t>(head[4 + i]);
  if (counted <= *records) return {};
  for (std::size_t i = 0; i < bytes; ++i) head[4 + i] = static_cast<std::byte>(*records >> (8 * (bytes - 1 - i)));
  return file_->write(4, std::span(head).subspan(4, bytes));
}

void Cdf5Sink::forget_records() noexcept {
  records_.reset();
  // Should the name come back, so would an old number.
  if (files_.remove(records_path())) (void)sync_names();
}

/// Steps 4 and 5.
Result<void> Cdf5Sink::replace_content() {
  auto from = files_.open(redo_, OpenMode::read);
  if (!from) return std::move(from).error();
  auto size = (*from)->size();
  if (!size) return std::move(size).error();
  std::vector<std::byte> buffer(std::size_t{4} << 20);
  for (std::uint64_t at = 0; at < *size;) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), *size - at));
    ADVECTIO_TRY((*from)->read(at, part));
    ADVECTIO_TRY(file_->write(at, part));
    counters_.bytes_out += part.size();
    at += part.size();
  }
  ADVECTIO_TRY(file_->resize(*size));
  ADVECTIO_TRY(file_->sync());
  ADVECTIO_TRY(files_.remove(redo_));
  return sync_names();
}

Result<void> Cdf5Sink::create() {
  // Whatever fails from here to the end of define mode, netCDF-C removes the file it was told to create. By the name of
  // our descriptor it cannot.
  const auto unremovable = "/proc/self/fd/" + std::to_string(file_->descriptor());
  auto hint = buffer_bytes;
  ADVECTIO_NC(nc__create(unremovable.c_str(), NC_CLOBBER | mode_of(pending_->format), 0, &hint, &nc_),
              "create " + path_);
  auto defined = define(nc_, {}, *pending_);
  // Leaving define mode comes first in any case: netCDF-C removes a file that it is told to give up before.
  const int status = end_define(nc_, *pending_);
  ADVECTIO_TRY(std::move(defined));
  if (status != NC_NOERR) return netcdf_error("write the header of " + path_, status);
  return {};
}

Result<void> Cdf5Sink::change() {
  ADVECTIO_TRY(commit_data());
  const int closed = nc_close(nc_);
  nc_ = -1;
  if (closed != NC_NOERR) return netcdf_error("close " + path_, closed);
  const auto part = redo_ + ".part";
  {
    auto to = files_.open(part, OpenMode::create, 0600);
    if (!to) return std::move(to).error();
    auto size = file_->size();
    if (!size) return std::move(size).error();
    std::vector<std::byte> buffer(std::size_t{4} << 20);
    for (std::uint64_t at = 0; at < *size;) {
      const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), *size - at));
      ADVECTIO_TRY(file_->read(at, piece));
      ADVECTIO_TRY((*to)->write(at, piece));
      counters_.bytes_out += piece.size();
      at += piece.size();
    }
  }
  int nc = -1;
  ADVECTIO_NC(open_file(part, nc), "open a copy of " + path_);
  int status = nc_redef(nc);
  Result<void> defined;
  if (status == NC_NOERR) {
    defined = define(nc, is_, *pending_);
    status = end_define(nc, *pending_);
  }
  const int ended = nc_close(nc);
  if (!defined || status != NC_NOERR || ended != NC_NOERR) {
    (void)files_.remove(part);
    ADVECTIO_TRY(std::move(defined));
    return netcdf_error("change the header of " + path_, status != NC_NOERR ? status : ended);
  }
  {
    // A loss of power must not leave half of what step 4 relies upon.
    auto copy = files_.open(part, OpenMode::read_write);
    if (!copy) return std::move(copy).error();
    ADVECTIO_TRY((*copy)->sync());
  }
  ADVECTIO_TRY(files_.rename(part, redo_));
  ADVECTIO_TRY(sync_names());
  ADVECTIO_TRY(replace_content());
  ADVECTIO_NC(open_file(path_, nc_), "open " + path_);
  return note_commit();
}

/// netCDF-C does not find in a file which of its variables are to be filled when records are added. When all are not,
/// that can be told outside define mode; otherwise some are filled that need not be.
Result<void> Cdf5Sink::set_fill_mode() {
  const bool none =
      std::all_of(pending_->variables.begin(), pending_->variables.end(), [](const Variable& v) { return v.no_fill; });
  int before = 0;
  if (none) ADVECTIO_NC(nc_set_fill(nc_, NC_NOFILL, &before), "set no fill");
  return {};
}

Result<void> Cdf5Sink::settle() {
  if (!pending_) return {};
  // What was put before is put as it was to be: filled or not.
  ADVECTIO_TRY(flush());
  const Lock lock;
  // What the file has beyond the schema stays: an older schema may be declared while a journal is replayed.
  auto& to = *pending_;
  for (auto d = to.dimensions.size(); d < is_.dimensions.size(); ++d) to.dimensions.push_back(is_.dimensions[d]);
  for (auto v = to.variables.size(); v < is_.variables.size(); ++v) to.variables.push_back(is_.variables[v]);
  const auto same = [&] {
    if (is_.dimensions != to.dimensions || is_.attributes != to.attributes ||
        is_.variables.size() != to.variables.size())
      return false;
    for (std::size_t v = 0; v < to.variables.size(); ++v)
      if (is_.variables[v].name != to.variables[v].name || is_.variables[v].type != to.variables[v].type ||
          is_.variables[v].dimensions != to.variables[v].dimensions ||
          is_.variables[v].attributes != to.variables[v].attributes)
        return false;
    return true;
  };
  if (nc_ < 0)
    ADVECTIO_TRY(create());
  else if (!same())
    ADVECTIO_TRY(change());
  ADVECTIO_TRY(set_fill_mode());
  is_ = std::move(to);
  pending_.reset();
  return {};
}

Result<void> Cdf5Sink::take(const Block& block) {
  ADVECTIO_TRY(settle());
  if (block.variable >= is_.variables.size())
    return Error{Code::invalid, "no variable " + std::to_string(block.variable), 0};
  const auto& v = is_.variables[block.variable];
  ADVECTIO_TRY(check(block, v, [this](std::uint32_t d) -> const Dimension& { return is_.dimensions[d]; }));
  counters_.bytes_in += block.bytes;
  if (block.box.empty()) return {};
  const bool has_records = !v.dimensions.empty() && is_.dimensions[v.dimensions[0]].unlimited;
  if (block.stride.empty() && (!has_records || block.box.count[0] == 1) &&
      (block.bytes < worth_a_write || patches_.holds(block.variable) || !lies_together(v, block.box))) {
    patches_.add(block, has_records);
    return patches_.many() ? flush() : Result<void>{};
  }
  if (patches_.holds(block.variable)) ADVECTIO_TRY(flush());
  return put(block.variable, block.box, block.stride, block.data);
}

/// In the file: all of the last dimensions, a part of one, and one index of each before that.
bool Cdf5Sink::lies_together(const Variable& v, const Box& box) const {
  std::size_t i = v.dimensions.size();
  while (i > 0 && box.count[i - 1] == is_.dimensions[v.dimensions[i - 1]].length) --i;
  if (i > 0) --i;
  return std::all_of(box.count.begin(), box.count.begin() + static_cast<std::ptrdiff_t>(i),
                     [](std::uint64_t n) { return n == 1; });
}

Result<void> Cdf5Sink::flush() {
  return patches_.flush(is_, [this](std::uint32_t variable, const Box& box, const std::byte* data) {
    return put(variable, box, {}, data);
  });
}

Result<void> Cdf5Sink::put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides,
                           const std::byte* data) {
  const Lock lock;
  if (!records_) ADVECTIO_TRY(count_records());
  const auto& v = is_.variables[variable];
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::size_t> start(box.start.begin(), box.start.end()), count(box.count.begin(), box.count.end());
  const int id = static_cast<int>(variable);
  int status = NC_NOERR;
  if (strides.empty()) {
    status = nc_put_vara(nc_, id, start.data(), count.data(), data);
  } else {
    const std::vector<std::ptrdiff_t> stride(strides.begin(), strides.end());
    status = nc_put_vars(nc_, id, start.data(), count.data(), stride.data(), data);
  }
  counters_.write_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  if (status != NC_NOERR) return netcdf_error("write " + v.name, status);
  counters_.bytes_out += box.volume() * size_of(v.type);
  return {};
}

Result<void> Cdf5Sink::note_commit() {
  Committed c;
  auto size = file_->size();
  if (!size) return std::move(size).error();
  c.size = *size;
  ADVECTIO_TRY(file_->read(0, std::span(c.head).first(std::min<std::uint64_t>(c.head.size(), c.size))));
  committed_ = c;
  return {};
}

Result<void> Cdf5Sink::commit_all() {
  ADVECTIO_TRY(settle());
  if (nc_ < 0) return Error{Code::bug, "commit before declare", 0};
  return commit_data();
}

Result<void> Cdf5Sink::commit_data() {
  ADVECTIO_TRY(flush());
  const Lock lock;
  ADVECTIO_NC(nc_sync(nc_), "commit " + path_);
  ADVECTIO_TRY(count_records());
  return note_commit();
}

Result<void> Cdf5Sink::count_records() {
  int record_dimension = -1;
  std::size_t records = 0;
  ADVECTIO_NC(nc_inq_unlimdim(nc_, &record_dimension), "commit " + path_);
  if (record_dimension >= 0) ADVECTIO_NC(nc_inq_dimlen(nc_, record_dimension, &records), "commit " + path_);
  return note_records(records);
}

void Cdf5Sink::abandon() noexcept {
  patches_.clear();
  if (closed_) return;
  closed_ = true;
  const Lock lock;
  if (nc_ < 0) {
    if (const auto size = file_->size(); size.ok() && *size == 0) forget_records();
    return;
  }
  (void)nc_close(nc_);
  nc_ = -1;
  // Closing has counted the records written since the last commit. Where there were none nothing is written: the disk
  // may refuse it.
  Result<void> restored;
  if (committed_) {
    const auto bytes = std::min<std::uint64_t>(committed_->head.size(), committed_->size);
    std::array<std::byte, 12> head{};
    restored = file_->read(0, std::span(head).first(bytes));
    if (!restored || head != committed_->head) restored = file_->write(0, std::span(committed_->head).first(bytes));
    if (auto size = file_->size(); size.ok() && *size > committed_->size) (void)file_->resize(committed_->size);
  } else {
    restored = file_->resize(0);
  }
  if (restored && (!options_.ordered || file_->sync())) forget_records();
}

}  // namespace

Result<std::unique_ptr<Sink>> open_cdf5(Files& files, const std::string& path, const Cdf5Options& options,
                                        bool resume) {
  auto redo = options.redo_path;
  if (redo.empty()) {
    const auto slash = path.find_last_of('/');
    const auto name = slash == std::string::npos ? path : path.substr(slash + 1);
    redo = (slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) +
           (name.starts_with('.') ? name + "-redo" : "." + name + ".advectio-redo");
  }
  auto file = files.open(path, OpenMode::read_write);
  if (!file) return std::move(file).error();
  auto sink = std::make_unique<Cdf5Sink>(files, path, redo, options, std::shared_ptr<File>(std::move(file).value()));
  ADVECTIO_TRY(sink->open(resume));
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
