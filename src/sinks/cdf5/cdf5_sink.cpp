// netCDF-C writes and changes the header; the data are written here. It would fill every variable and every record
// before their data, and write all of it twice. Here only what nobody has put is filled, when that is committed.
//
// How a schema can change after there is data, although in these formats that moves the data:
//   1. What there is is committed, and the file closed.
//   2. netCDF-C writes the new header into a file of its own, `REDO.part`. The data are copied there, and added
//      variables are filled. netCDF-C's own change of a header fails where an alignment moves records to before the
//      end of the other variables.
//   3. The copy is renamed to REDO. From here on the change will happen.
//   4. Its bytes are written over the file's, whose inode stays.
//   5. REDO is removed.
// `resume` does 4 and 5 where it finds REDO, and removes a `REDO.part` (transaction/redo_file.h).
//
// Where the new header leaves all data in their places (attributes go into room that was reserved), only the header is
// copied: by the same steps, with REDO.header in place of REDO.
//
// A program may define and put one variable after the other. Each would move the data. So a change waits, with the
// parts that come behind it, until they are committed or many (`waiting_max`).
//
// Loss of power (`ordered`): records are written in place, then counted. After a loss of power the count may include
// records that never reached the disk. REDO.records holds the number of durable records; `resume` with `power_lost`
// sets the count back to it. The file is synced before REDO.records is removed.
#include "sinks/cdf5/cdf5_sink.h"

#include <netcdf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "sinks/cdf5/fill_values.h"
#include "sinks/cdf5/header.h"
#include "sinks/cdf5/patches.h"
#include "sinks/cdf5/values.h"
#include "sinks/library_lock.h"
#include "sinks/transaction/redo_file.h"
#include "sinks/transaction/transactional_sink.h"
#include "sinks/transaction/write_behind.h"

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

Result<void> put_attributes(int nc, int variable, const std::vector<Attribute>& all) {
  for (const auto& a : all) ADVECTIO_TRY(put_attribute(nc, variable, a));
  return {};
}

/// In define mode of a new file.
Result<void> define(int nc, const Schema& s) {
  int id = 0;
  for (const auto& d : s.dimensions)
    ADVECTIO_NC(nc_def_dim(nc, d.name.c_str(), d.unlimited ? NC_UNLIMITED : d.length, &id), "dimension " + d.name);
  for (const auto& v : s.variables) {
    const std::vector<int> ids(v.dimensions.begin(), v.dimensions.end());
    ADVECTIO_NC(
        nc_def_var(nc, v.name.c_str(), static_cast<nc_type>(v.type), static_cast<int>(ids.size()), ids.data(), &id),
        "variable " + v.name);
    ADVECTIO_TRY_WITH(put_attributes(nc, id, v.attributes), "variable " + v.name);
  }
  return put_attributes(nc, NC_GLOBAL, s.attributes);
}

/// What netCDF-C reads and writes at once; an open file has two of it.
constexpr std::size_t buffer_bytes = 64U << 10U;

int open_file(const std::string& path, int mode, int& nc) {
  auto hint = buffer_bytes;
  return nc__open(path.c_str(), mode, &hint, &nc);
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

/// Pieces whose beginnings are so near are written together with what lies between them, which is read before.
constexpr std::uint64_t near_bytes = 4096;

/// Copies pieces of a file to their places in another. Pieces that keep their distance are copied together.
class Mover {
 public:
  Mover(File& from, std::uint64_t from_bytes, File& to, SinkCounters& counters)
      : from_(from), to_(to), from_bytes_(from_bytes), counters_(counters) {}

  Result<void> move(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    if (from != at_ + bytes_ || to != place_ + bytes_) {
      ADVECTIO_TRY(flush());
      at_ = from;
      place_ = to;
    }
    bytes_ += bytes;
    return {};
  }
  /// What lies beyond the end of the first file was never written, and is not copied.
  Result<void> flush() {
    for (auto end = std::min(std::exchange(bytes_, 0) + at_, from_bytes_); at_ < end;) {
      buffer_.resize(std::min<std::uint64_t>(end - at_, 4U << 20U));
      ADVECTIO_TRY(from_.read(at_, buffer_));
      ADVECTIO_TRY(to_.write(place_, buffer_));
      counters_.bytes_out += buffer_.size();
      at_ += buffer_.size();
      place_ += buffer_.size();
    }
    return {};
  }

 private:
  File& from_;
  File& to_;
  std::uint64_t from_bytes_;
  SinkCounters& counters_;
  std::uint64_t at_ = 0, place_ = 0, bytes_ = 0;
  std::vector<std::byte> buffer_;
};

/// Bytes of parts that are held back behind a change of the schema.
constexpr std::uint64_t waiting_max = 64U << 20U;

/// All data of the first are in the same places in the second, and that has no others.
bool has_same_places(const ClassicLayout& a, const ClassicLayout& b) {
  return a.record_bytes == b.record_bytes &&
         std::equal(a.variables.begin(), a.variables.end(), b.variables.begin(), b.variables.end(),
                    [](const ClassicVariable& x, const ClassicVariable& y) {
                      return x.begin == y.begin && x.bytes == y.bytes && x.has_records == y.has_records;
                    });
}

/// Both schemas make the same header, but for where values begin and what is filled.
bool has_same_header(const Schema& a, const Schema& b, bool paddings_known) {
  if (a.dimensions != b.dimensions || a.attributes != b.attributes || a.variables.size() != b.variables.size())
    return false;
  const auto paddings = [](const Schema& s) {
    return std::array{s.header_pad, s.data_align, s.data_pad, s.record_align};
  };
  return (!paddings_known || paddings(a) == paddings(b)) &&
         std::equal(a.variables.begin(), a.variables.end(), b.variables.begin(),
                    [](const Variable& x, const Variable& y) {
                      return x.name == y.name && x.type == y.type && x.dimensions == y.dimensions &&
                             x.attributes == y.attributes;
                    });
}

/// Part of the new file that a redo file holds.
enum class Holds : std::uint8_t { all, header };
std::string kind_of(Holds what) {
  return what == Holds::header ? ".header" : "";
}

/// What a reader sees change: the number of records.
struct Committed {
  std::uint64_t size = 0;
  std::array<std::byte, 12> head{};
};

class Cdf5Sink final : public TransactionalSink {
 public:
  Cdf5Sink(Files& files, const std::string& path, std::string redo, const Cdf5Options& options,
           std::shared_ptr<File> file)
      : TransactionalSink(path),
        files_(files),
        redo_path_(std::move(redo)),
        options_(options),
        on_disk_(std::move(file)),
        behind_(write_behind(options, on_disk_)),
        file_(behind_ ? std::shared_ptr<File>(behind_) : on_disk_),
        redo_(files, redo_path_, file_, RedoFile::Whole::by_name) {}
  ~Cdf5Sink() override { abandon(); }

  Result<void> open(bool resume);
  Result<void> holds(const Schema& schema) override;

  [[nodiscard]] Abilities abilities() const override { return cdf5_abilities(); }

  std::function<Result<void>()> make_durable() override {
    if (!options_.ordered) return [file = to_sync()] { return file->sync(); };
    return [&files = files_, file = to_sync(), noted = records_, n = committed_records_,
            directory = directory_of(redo_path_)]() -> Result<void> {
      ADVECTIO_TRY(file->sync());
      if (!noted) return {};
      ADVECTIO_TRY(write_count(*noted, durable_at, n));
      ADVECTIO_TRY(noted->sync());
      return make_names_durable(files, directory);
    };
  }
  [[nodiscard]] SinkCounters counters() const override {
    auto c = counters_;
    if (behind_) c.write_ns += behind_->behind().write_ns();
    return c;
  }

 private:
  static std::shared_ptr<FileWrittenBehind> write_behind(const Cdf5Options& options,
                                                         const std::shared_ptr<File>& file) {
    if (options.disk == nullptr || options.disk->threads() == 0) return nullptr;
    auto memory = options.memory ? options.memory : std::make_shared<MemoryBudget>(WriteBehind::waiting_max);
    return std::make_shared<FileWrittenBehind>(file, *options.disk, std::move(memory), options.wake);
  }
  const std::shared_ptr<File>& to_sync();
  Result<void> apply(const Schema& schema) override;
  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override;
  Result<bool> advance_parts() override;
  [[nodiscard]] bool takes_layouts() const override { return true; }
  Result<void> commit(bool last) override;
  Result<void> leave() override {
    ADVECTIO_TRY(pad());
    closed();
    if (options_.ordered) ADVECTIO_TRY(file_->sync());
    records_.reset();
    ADVECTIO_TRY(files_.remove(records_path()));
    return sync_names();
  }
  void drop() noexcept override;
  void failed() noexcept override { forget_waiting(); }

  Result<bool> take_up_file();
  Result<void> open_to_look();
  Result<void> look(bool fixed_filled);
  Result<void> write_header(const File& file, const Schema& schema);
  Result<void> create(const Schema& to);
  Result<void> change(const Schema& to);
  Result<void> make_changed(const Schema& schema, const ClassicLayout& old, File& to);
  Result<void> settle();
  /// Parts wait for the disk.
  [[nodiscard]] bool is_behind() const { return behind_ && behind_->behind().is_behind(); }
  Result<void> take_now(const std::shared_ptr<const Field>& field, const Part& part);
  void forget_waiting() noexcept {
    patches_.clear();
    next_.reset();
    waiting_.clear();
    waiting_bytes_ = 0;
  }
  Result<void> write_record_count(File& file, std::uint64_t records);
  [[nodiscard]] bool lies_together(const Variable& v, const Box& box) const;
  Result<void> flush();
  Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides,
                   const std::byte* data);
  struct Runs;
  Runs runs_of(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides);
  Result<void> put_between_holes(std::uint32_t variable, const Box& box, const std::byte* data,
                                 const std::vector<bool>& marks);
  Result<void> put_runs(const Runs& runs, const std::byte* data);
  Result<void> put_near(const Runs& runs, std::uint64_t at, const std::byte* data);
  Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes);
  Result<void> commit_data();
  Result<void> note_commit();
  Result<void> pad();
  Result<void> note_records(std::uint64_t records);
  Result<void> restore_records();
  void forget_records() noexcept;
  [[nodiscard]] std::string records_path() const { return redo_path_ + ".records"; }
  Result<void> write_over(Holds what);
  Result<void> sync_names() {
    return options_.ordered ? make_names_durable(files_, directory_of(redo_path_)) : Result<void>{};
  }

  Files& files_;
  /// REDO.records: the number of committed records, then of durable ones, then 1 once anything was committed. Records
  /// beyond the first number are half-written. A loss of power may bring back older values of the last two.
  static constexpr std::uint64_t durable_at = 16, any_commit_at = 32;
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

  std::string redo_path_;
  Cdf5Options options_;
  std::shared_ptr<File> on_disk_, to_sync_;
  std::shared_ptr<FileWrittenBehind> behind_;  // null: the sink writes itself
  std::shared_ptr<File> file_;                 // one of them
  RedoFile redo_;
  std::shared_ptr<File> records_;  // how many are committed; see note_records
  std::uint64_t committed_records_ = 0;
  bool made_ = false;            // there is a header
  bool paddings_known_ = false;  // not those of a file that was there
  Schema is_;
  std::optional<Schema> next_;  // what it is to be before the parts that wait are written
  std::deque<std::pair<std::shared_ptr<const Field>, Part>> waiting_;  // for that, or for the disk
  std::uint64_t waiting_bytes_ = 0;
  ClassicLayout layout_;
  std::uint64_t records_now_ = 0;   // of what was put
  std::vector<std::byte> scratch_;  // what is written next
  Patches patches_;
  std::optional<Committed> committed_;
  SinkCounters counters_;
  FillValues fill_values_{is_, layout_, counters_};
};

/// Open to read. It is forced to the disk long after the sink is closed, perhaps. The program that
/// opens it again then must not find that somebody has it open for writing.
const std::shared_ptr<File>& Cdf5Sink::to_sync() {
  if (to_sync_) return to_sync_;
  to_sync_ = on_disk_;
  struct stat one {
  }, other{};
  if (auto file = files_.open(path(), OpenMode::read); file && ::fstat((*file)->descriptor(), &one) == 0 &&
                                                       ::fstat(on_disk_->descriptor(), &other) == 0 &&
                                                       one.st_dev == other.st_dev && one.st_ino == other.st_ino)
    to_sync_ = std::move(file).value();
  return to_sync_;
}

Result<void> Cdf5Sink::open(bool resume) {
  const Lock lock;
  if (options_.made_by_others) return open_to_look();
  ADVECTIO_TRY(redo_.forget_begun());
  if (!resume) {
    for (const auto what : {Holds::all, Holds::header}) ADVECTIO_TRY(redo_.forget(kind_of(what)));
    ADVECTIO_TRY(files_.remove(records_path()));
    ADVECTIO_TRY(file_->resize(0));
    ADVECTIO_TRY(note_records(0));
    return write_count(*records_, any_commit_at, 0);
  }
  for (const auto what : {Holds::all, Holds::header}) {
    auto there = redo_.take_up(kind_of(what));
    if (!there) return std::move(there).error();
    if (*there) ADVECTIO_TRY(write_over(what));
  }
  ADVECTIO_TRY(restore_records());
  const bool noted = files_.exists(records_path());
  auto size = file_->size();
  if (!size) return std::move(size).error();
  if (*size == 0) return {};
  // A header is complete or not there at all: what was only begun is begun again.
  auto there = take_up_file();
  if (!there) return std::move(there).error();
  if (!*there) return file_->resize(0);
  if (!options_.ordered) return {};
  // The next call of make_durable notes this number, also where no commit comes before it.
  ADVECTIO_TRY(note_records(layout_.records));
  return noted ? Result<void>{} : write_count(*records_, durable_at, layout_.records);
}

/// False: it has no header.
Result<bool> Cdf5Sink::take_up_file() {
  int nc = -1;
  if (const int status = open_file(path(), NC_NOWRITE, nc); status != NC_NOERR) {
    // Such a refusal says nothing of what is in the file.
    if (status > 0 || status == NC_ENOMEM || status == NC_ENFILE || options_.continues)
      return netcdf_error("open " + path(), status);
    return false;
  }
  auto schema = read_schema(nc);
  (void)nc_close(nc);
  if (!schema) return std::move(schema).error();
  is_ = std::move(schema).value();
  ADVECTIO_TRY(look(true));
  ADVECTIO_TRY(note_commit());
  made_ = true;
  return true;
}

/// Nothing is changed, beside the file neither. The layout is that of the file, whoever has made
/// it.
Result<void> Cdf5Sink::open_to_look() {
  const Lock lock;
  const auto directory = directory_of(redo_path_);
  if (::access(directory.c_str(), W_OK) != 0)
    return Error{Code::unsupported, directory + ": no file can be made there (" + std::strerror(errno) + ")", 0};
  for (const auto& left : {redo_path_ + kind_of(Holds::all), redo_path_ + kind_of(Holds::header), records_path()})
    if (files_.exists(left))
      return Error{Code::unsupported, left + " is left from an earlier run, and nobody knows whether it is up to date",
                   0};
  auto there = take_up_file();
  if (!there) return std::move(there).error();
  // Its writer left the number of records open.
  const std::uint64_t streaming = layout_.version == 5 ? UINT64_MAX : UINT32_MAX;
  if (layout_.records == streaming) return Error{Code::unsupported, "it does not say how many records it has", 0};
  return {};
}

Result<void> Cdf5Sink::holds(const Schema& schema) {
  const auto format = layout_.version == 5   ? FileFormat::cdf5
                      : layout_.version == 2 ? FileFormat::offset64
                                             : FileFormat::classic;
  if (made_ && format == schema.format && has_same_header(is_, schema, false)) return {};
  return Error{Code::unsupported, "its definitions are others than those that the program has read", 0};
}

/// Where things are in the file as it is now.
Result<void> Cdf5Sink::look(bool fixed_filled) {
  auto layout = read_classic_layout(*file_);
  if (!layout) return std::move(layout).error().with(path());
  layout_ = std::move(layout).value();
  records_now_ = layout_.records;
  fill_values_.reset(layout_.records, fixed_filled);
  return {};
}

/// After a loss of power the header may count records that are not in the file. An older server may have left one that
/// does so without that. Nobody would fill them later. So the number that has been committed stands beside the file
/// before anything is written, until that is closed.
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
  const auto noted = read_file(files_, records_path());
  if (!noted) return {};
  // What was not committed is begun again: part of it may not be filled.
  if (!options_.power_lost && !options_.continues && count_in(*noted, any_commit_at) == 0U) return file_->resize(0);
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
Result<void> Cdf5Sink::write_over(Holds what) {
  auto bytes = redo_.file().size();
  if (!bytes) return std::move(bytes).error();
  Mover mover(redo_.file(), *bytes, *file_, counters_);
  ADVECTIO_TRY(mover.move(0, 0, *bytes));
  ADVECTIO_TRY(mover.flush());
  if (what == Holds::all) ADVECTIO_TRY(file_->resize(*bytes));
  if (behind_) ADVECTIO_TRY(behind_->drain());
  if (what == Holds::all || options_.ordered) redo_.keep();
  return redo_.remove(options_.ordered);
}

/// The header that is wanted, and no data. Where that fails netCDF-C removes the file; by the name of a descriptor it
/// cannot.
Result<void> Cdf5Sink::write_header(const File& file, const Schema& schema) {
  const Lock lock;
  const auto name = "/proc/self/fd/" + std::to_string(file.descriptor());
  auto hint = buffer_bytes;
  int nc = -1;
  ADVECTIO_NC(nc__create(name.c_str(), NC_CLOBBER | mode_of(schema.format), 0, &hint, &nc), "create " + path());
  auto defined = define(nc, schema);
  int before = 0;
  int status = nc_set_fill(nc, NC_NOFILL, &before);
  // Leaving define mode comes first in any case: netCDF-C removes a file that it is told to give up before.
  if (const int ended = end_define(nc, schema); status == NC_NOERR) status = ended;
  if (const int closed = nc_close(nc); status == NC_NOERR) status = closed;
  ADVECTIO_TRY(std::move(defined));
  return status == NC_NOERR ? Result<void>{} : netcdf_error("write the header of " + path(), status);
}

Result<void> Cdf5Sink::create(const Schema& to) {
  ADVECTIO_TRY(note_records(0));
  ADVECTIO_TRY(write_count(*records_, any_commit_at, 0));
  ADVECTIO_TRY(write_header(*file_, to));
  made_ = true;
  return look(false);
}

Result<void> Cdf5Sink::change(const Schema& to) {
  for (std::size_t v = 0; v < is_.variables.size(); ++v)
    if (const auto& was = is_.variables[v], &now = to.variables[v];
        was.type != now.type || was.dimensions != now.dimensions)
      return Error{Code::invalid, "variable " + now.name + " has changed its type or its dimensions", 0};
  ADVECTIO_TRY(commit_data());
  auto what = Holds::all;
  const auto make = [&]() -> Result<void> {
    ADVECTIO_TRY(redo_.begin());
    auto& file = redo_.file();
    ADVECTIO_TRY(write_header(file, to));
    auto layout = read_classic_layout(file);
    if (!layout) return std::move(layout).error().with(file.path());
    if (!layout_.variables.empty() && has_same_places(layout_, *layout)) what = Holds::header;
    auto old = std::exchange(layout_, std::move(layout).value());
    if (what == Holds::all) {
      ADVECTIO_TRY(make_changed(to, old, file));
    } else {
      is_ = to;
      std::uint64_t end = UINT64_MAX;
      for (const auto& v : layout_.variables) end = std::min(end, v.begin);
      ADVECTIO_TRY(file.resize(end));
    }
    ADVECTIO_TRY(write_record_count(file, old.records));
    return redo_.decide(options_.ordered, kind_of(what));
  };
  if (auto made = make(); !made) {
    (void)redo_.give_up();
    return made;
  }
  ADVECTIO_TRY(write_over(what));
  ADVECTIO_TRY(look(true));
  return note_commit();
}

/// Step 2.
Result<void> Cdf5Sink::make_changed(const Schema& schema, const ClassicLayout& old, File& to) {
  const auto added = is_.variables.size();
  is_ = schema;
  auto size = file_->size();
  if (!size) return std::move(size).error();

  Mover mover(*file_, *size, to, counters_);
  for (std::size_t v = 0; v < added; ++v)
    if (!old.variables[v].has_records)
      ADVECTIO_TRY(mover.move(old.variables[v].begin, layout_.variables[v].begin, old.variables[v].bytes));
  for (std::uint64_t r = 0; r < old.records; ++r)
    for (std::size_t v = 0; v < added; ++v)
      if (old.variables[v].has_records)
        ADVECTIO_TRY(mover.move(old.variables[v].begin + r * old.record_bytes,
                                layout_.variables[v].begin + r * layout_.record_bytes,
                                std::min(old.variables[v].bytes, old.record_bytes)));
  ADVECTIO_TRY(mover.flush());
  return fill_values_.write_added(to, added, old.records);
}

/// The variables of the first are filled as in the second, which has them, too.
bool is_filled_alike(const Schema& a, const Schema& b) {
  return std::equal(a.variables.begin(), a.variables.end(), b.variables.begin(),
                    [](const Variable& x, const Variable& y) { return x.no_fill == y.no_fill && x.fill == y.fill; });
}

Result<void> Cdf5Sink::apply(const Schema& schema) {
  // What the file has beyond the schema stays: an older schema may be declared while a journal is replayed.
  auto to = schema;
  const auto& before = next_ ? *next_ : is_;
  for (auto d = to.dimensions.size(); d < before.dimensions.size(); ++d) to.dimensions.push_back(before.dimensions[d]);
  for (auto v = to.variables.size(); v < before.variables.size(); ++v) to.variables.push_back(before.variables[v]);
  if (!made_) {
    ADVECTIO_TRY(create(to));
  } else {
    // What was put before is filled as it was to be.
    if (!is_filled_alike(before, to)) {
      ADVECTIO_TRY(settle());
      ADVECTIO_TRY(flush());
      ADVECTIO_TRY(fill_values_.write(*file_, records_now_));
    }
    if (next_ || !has_same_header(is_, to, paddings_known_)) {
      next_ = std::move(to);
      return {};
    }
  }
  is_ = std::move(to);
  paddings_known_ = true;
  return {};
}

/// The change that waits is made, and the parts that wait are written.
Result<void> Cdf5Sink::settle() {
  if (next_) {
    const auto to = *std::exchange(next_, std::nullopt);
    ADVECTIO_TRY(flush());
    if (!has_same_header(is_, to, paddings_known_)) ADVECTIO_TRY(change(to));
    is_ = to;
    paddings_known_ = true;
  }
  waiting_bytes_ = 0;
  for (const auto& [field, part] : std::exchange(waiting_, {})) ADVECTIO_TRY(take_now(field, part));
  return {};
}

Result<void> Cdf5Sink::take(const std::shared_ptr<const Field>& field, const Part& part) {
  if (!next_ && waiting_.empty() && !is_behind()) return take_now(field, part);
  if (next_) waiting_bytes_ += part.elements() * size_of(field->type());
  waiting_.emplace_back(field, part);
  return waiting_bytes_ > waiting_max ? settle() : Result<void>{};
}

Result<bool> Cdf5Sink::advance_parts() {
  if (next_) return true;  // the commit makes the change
  while (!waiting_.empty() && !is_behind()) {
    const auto [field, part] = std::move(waiting_.front());
    waiting_.pop_front();
    ADVECTIO_TRY(take_now(field, part));
  }
  return waiting_.empty();
}

Result<void> Cdf5Sink::take_now(const std::shared_ptr<const Field>& field, const Part& part) {
  const auto number = field->variable();
  if (number >= is_.variables.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
  const auto& v = is_.variables[number];
  ADVECTIO_TRY(check(part, v, [this](std::uint32_t d) -> const Dimension& { return is_.dimensions[d]; }));
  const auto bytes = part.elements() * size_of(v.type);
  const bool has_records = !v.dimensions.empty() && is_.dimensions[v.dimensions[0]].unlimited;
  const bool of_one_record = !has_records || part.box.count[0] == 1;
  if (part.layout && !of_one_record) return for_each_box(part, [&](const Part& box) { return take_now(field, box); });
  counters_.bytes_in += bytes;
  if (bytes == 0) return {};
  if (part.layout || (part.stride.empty() && of_one_record &&
                      (bytes < worth_a_write || patches_.holds(number) || !lies_together(v, part.box)))) {
    patches_.add(field, part.box, has_records, part.layout != nullptr);
    return patches_.many() ? flush() : Result<void>{};
  }
  if (patches_.holds(number)) ADVECTIO_TRY(flush());
  const auto view = field->view(part);
  if (!view.empty()) return put(number, part.box, part.stride, view.data());
  Bytes values(bytes);
  field->read(part, values.data());
  return put(number, part.box, part.stride, values.data());
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
  return patches_.flush(
      is_,
      [this](std::uint32_t variable, const Box& box, const std::byte* data) { return put(variable, box, {}, data); },
      [this](std::uint32_t variable, const Box& box, const std::byte* data, const std::vector<bool>& marks) {
        return put_between_holes(variable, box, data, marks);
      });
}

/// A block as the file has it: pieces that lie together, at equal distances in each dimension.
struct Cdf5Sink::Runs {
  std::size_t variable = 0;
  std::size_t element = 0;
  std::uint64_t begin = 0;              ///< of the first one
  std::uint64_t bytes = 0;              ///< of each
  std::vector<std::uint64_t> count;     ///< of them, slowest first
  std::vector<std::uint64_t> distance;  ///< bytes between their beginnings
  std::optional<std::uint64_t> record;  ///< the one in which all of them are; 0 where the variable has none
};

Cdf5Sink::Runs Cdf5Sink::runs_of(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides) {
  const auto& v = layout_.variables[variable];
  Runs runs{variable, size_of(v.type), v.begin, size_of(v.type), {}, {}, 0};
  auto pitch = static_cast<std::uint64_t>(runs.element);
  for (auto k = box.rank(); k > 0; --k) {
    const auto stride = strides.empty() ? 1 : strides[k - 1];
    const bool of_records = k == 1 && v.has_records;
    if (of_records) pitch = layout_.record_bytes;
    runs.begin += box.start[k - 1] * pitch;
    if (of_records) {
      records_now_ = std::max(records_now_, box.start[0] + (box.count[0] - 1) * stride + 1);
      runs.record = box.count[0] == 1 ? std::optional(box.start[0]) : std::nullopt;
    }
    if (box.count[k - 1] > 1) {
      if (runs.count.empty() && pitch * stride == runs.bytes) {
        runs.bytes *= box.count[k - 1];
      } else {
        runs.count.insert(runs.count.begin(), box.count[k - 1]);
        runs.distance.insert(runs.distance.begin(), pitch * stride);
      }
    }
    pitch *= v.lengths[k - 1];
  }
  return runs;
}

Result<void> Cdf5Sink::put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& strides,
                           const std::byte* data) {
  if (!records_) ADVECTIO_TRY(note_records(layout_.records));
  const auto runs = runs_of(variable, box, strides);
  const auto begin = std::chrono::steady_clock::now();
  auto done = put_runs(runs, data);
  counters_.write_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  if (!done) return std::move(done).error().with("write " + is_.variables[variable].name);
  return fill_values_.many() ? fill_values_.write(*file_, records_now_) : Result<void>{};
}

Result<void> Cdf5Sink::put_runs(const Runs& runs, const std::byte* data) {
  // The pieces of the last dimension are written one by one, or all together.
  const bool near = !runs.count.empty() && runs.distance.back() <= near_bytes && runs.bytes < runs.distance.back();
  const auto outer = runs.count.size() - (near ? 1 : 0);
  std::vector<std::uint64_t> index(outer, 0);
  for (;;) {
    auto at = runs.begin;
    for (std::size_t k = 0; k < outer; ++k) at += index[k] * runs.distance[k];
    if (near) {
      ADVECTIO_TRY(put_near(runs, at, data));
      data += runs.bytes * runs.count.back();
    } else {
      if (runs.element == 1) {
        ADVECTIO_TRY(write_at(at, {data, runs.bytes}));
      } else {
        scratch_.resize(std::max(scratch_.size(), std::min(runs.bytes, write_bytes)));
        for (std::uint64_t done = 0; done < runs.bytes;) {
          const auto n = next_piece(at + done, runs.bytes - done, runs.element);
          swap_to(scratch_.data(), data + done, n, runs.element);
          ADVECTIO_TRY(write_at(at + done, std::span(scratch_).first(n)));
          done += n;
        }
      }
      // Where the pieces lie in several records, some of those may be to be filled.
      if (!runs.record || fill_values_.are_due(runs.variable, *runs.record)) fill_values_.note_put(at, at + runs.bytes);
      data += runs.bytes;
    }
    auto k = outer;
    for (; k > 0; --k) {
      if (++index[k - 1] < runs.count[k - 1]) break;
      index[k - 1] = 0;
    }
    if (k == 0) return {};
  }
}

/// Pieces of the last dimension, and what lies between them as it is, or the fill value.
Result<void> Cdf5Sink::put_near(const Runs& runs, std::uint64_t at, const std::byte* data) {
  const auto distance = runs.distance.back();
  auto left = runs.count.back();
  auto size = file_->size();
  if (!size) return std::move(size).error();
  // What lies between records is of other variables.
  const bool alone = runs.record.has_value();
  const bool fills = alone && fill_values_.are_due(runs.variable, *runs.record);
  const auto fill = fills ? fill_values_.value_of(runs.variable) : Bytes();
  while (left > 0) {
    const auto n = std::min(left, write_bytes / distance);
    const auto bytes = (n - 1) * distance + runs.bytes;
    scratch_.resize(std::max(scratch_.size(), bytes));
    const auto window = std::span(scratch_).first(bytes);
    const auto there = at < *size ? std::min(bytes, *size - at) : 0;
    if (there > 0) ADVECTIO_TRY(file_->read(at, window.first(there)));
    std::fill(window.begin() + static_cast<std::ptrdiff_t>(there), window.end(), std::byte{0});
    if (fills)
      ADVECTIO_TRY(
          fill_values_.put().for_each_gap(at, at + bytes, [&](std::uint64_t begin, std::uint64_t end) -> Result<void> {
            fill_with(window.data() + (begin - at), end - begin, fill);
            return {};
          }));
    for (std::uint64_t i = 0; i < n; ++i) {
      swap_to(window.data() + i * distance, data, runs.bytes, runs.element);
      data += runs.bytes;
      if (!alone) fill_values_.note_put(at + i * distance, at + i * distance + runs.bytes);
    }
    if (fills) fill_values_.note_put(at, at + bytes);
    ADVECTIO_TRY(write_at(at, window));
    at += n * distance;
    left -= n;
  }
  return {};
}

/// A box that lies together in the file; of its elements those with marks. What lies between them stays as it is, or
/// becomes the fill value.
Result<void> Cdf5Sink::put_between_holes(std::uint32_t variable, const Box& box, const std::byte* data,
                                         const std::vector<bool>& marks) {
  if (!records_) ADVECTIO_TRY(note_records(layout_.records));
  const auto runs = runs_of(variable, box, {});
  if (!runs.count.empty() || !runs.record) return Error{Code::bug, "a box that does not lie together", 0};
  const auto begin = std::chrono::steady_clock::now();
  const auto at = runs.begin;
  auto size = file_->size();
  if (!size) return std::move(size).error();
  const bool fills = fill_values_.are_due(runs.variable, *runs.record);
  scratch_.resize(std::max<std::size_t>(scratch_.size(), runs.bytes));
  const auto window = std::span(scratch_).first(runs.bytes);
  const auto there = at < *size ? std::min(runs.bytes, *size - at) : 0;
  if (there > 0) ADVECTIO_TRY(file_->read(at, window.first(there)));
  std::fill(window.begin() + static_cast<std::ptrdiff_t>(there), window.end(), std::byte{0});
  if (fills) {
    const auto fill = fill_values_.value_of(runs.variable);
    ADVECTIO_TRY(
        fill_values_.put().for_each_gap(at, at + runs.bytes, [&](std::uint64_t from, std::uint64_t to) -> Result<void> {
          fill_with(window.data() + (from - at), to - from, fill);
          return {};
        }));
  }
  for (std::size_t i = 0; i < marks.size();) {
    auto end = i;
    while (end < marks.size() && marks[end]) ++end;
    const auto offset = i * runs.element;
    swap_to(window.data() + offset, data + offset, (end - i) * runs.element, runs.element);
    i = end;
    while (i < marks.size() && !marks[i]) ++i;
  }
  if (fills) fill_values_.note_put(at, at + runs.bytes);
  auto done = write_at(at, window);
  counters_.write_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  if (!done) return std::move(done).error().with("write " + is_.variables[variable].name);
  return fill_values_.many() ? fill_values_.write(*file_, records_now_) : Result<void>{};
}

Result<void> Cdf5Sink::write_at(std::uint64_t at, std::span<const std::byte> bytes) {
  counters_.bytes_out += bytes.size();
  return file_->write(at, bytes);
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

Result<void> Cdf5Sink::commit(bool) {
  if (!made_) return Error{Code::bug, "commit before declare", 0};
  ADVECTIO_TRY(settle());
  ADVECTIO_TRY(flush());
  return commit_data();
}

Result<void> Cdf5Sink::commit_data() {
  ADVECTIO_TRY_WITH(fill_values_.write(*file_, records_now_), "commit " + path());
  // Records count when all of them is there.
  if (records_now_ != layout_.records) {
    ADVECTIO_TRY(write_record_count(*file_, records_now_));
    layout_.records = records_now_;
  }
  if (behind_) ADVECTIO_TRY_WITH(behind_->drain(), "commit " + path());
  ADVECTIO_TRY(note_records(records_now_));
  ADVECTIO_TRY(write_count(*records_, any_commit_at, 1));
  return note_commit();
}

/// In the header.
Result<void> Cdf5Sink::write_record_count(File& file, std::uint64_t records) {
  std::array<std::byte, 8> count{};
  const auto n = layout_.count_bytes();
  for (std::size_t i = 0; i < n; ++i) count[i] = static_cast<std::byte>(records >> (8 * (n - 1 - i)));
  counters_.bytes_out += n;
  return file.write(ClassicLayout::count_at, std::span(count).first(n));
}

/// netCDF-C makes the file as long as it is to be, when it closes one in which not everything was put.
Result<void> Cdf5Sink::pad() {
  if (options_.ends_with_header && made_ && layout_.variables.empty()) return file_->resize(layout_.header_bytes);
  auto size = file_->size();
  if (!size) return std::move(size).error();
  std::uint64_t end = 0;
  for (const auto& v : layout_.variables)
    end = std::max(end, v.begin + (v.has_records ? layout_.records * layout_.record_bytes : v.bytes));
  if (end <= *size) return {};
  const Lock lock;
  int nc = -1;
  ADVECTIO_NC(open_file(path(), NC_WRITE, nc), "close " + path());
  ADVECTIO_NC(nc_close(nc), "close " + path());
  return {};
}

void Cdf5Sink::drop() noexcept {
  if (options_.made_by_others) return;
  forget_waiting();
  if (behind_) behind_->stop();
  if (!made_) {
    if (const auto size = file_->size(); size.ok() && *size == 0) forget_records();
    return;
  }
  // Where the commit failed its records may be counted. Where they are not nothing is written: the disk may refuse it.
  Result<void> restored;
  if (committed_) {
    const auto bytes = std::min<std::uint64_t>(committed_->head.size(), committed_->size);
    std::array<std::byte, 12> head{};
    restored = file_->read(0, std::span(head).first(bytes));
    if (!restored || head != committed_->head) restored = file_->write(0, std::span(committed_->head).first(bytes));
    // A header that still counts the new records needs them: cut off, they would read as zeros.
    if (auto size = file_->size(); restored && size.ok() && *size > committed_->size)
      (void)file_->resize(committed_->size);
  } else {
    restored = file_->resize(0);
  }
  if (restored && (!options_.ordered || file_->sync())) forget_records();
}

}  // namespace

Abilities cdf5_abilities() {
  const std::vector<DataType> classic = {DataType::int8,  DataType::text,    DataType::int16,
                                         DataType::int32, DataType::float32, DataType::float64};
  auto all = classic;
  all.insert(all.end(), {DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64});
  Abilities out;
  out.forms = {{FileFormat::classic, classic, 1}, {FileFormat::offset64, classic, 1}, {FileFormat::cdf5, all, 1}};
  out.keeps_layout = false;
  return out;
}

Result<std::unique_ptr<Sink>> open_cdf5(Files& files, const std::string& path, const Cdf5Options& options,
                                        bool resume) {
  const auto redo = options.redo_path.empty() ? default_redo_path(path) : options.redo_path;
  auto file = files.open(path, OpenMode::read_write);
  if (!file) return std::move(file).error();
  auto sink = std::make_unique<Cdf5Sink>(files, path, redo, options, std::shared_ptr<File>(std::move(file).value()));
  ADVECTIO_TRY(sink->open(resume));
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
