#include "capture/netcdf/captured_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "capture/netcdf/open_files.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio::netcdf {

int code_of(const Error& error) noexcept {
  if (error.sys > 0) return error.sys;
  switch (error.code) {
    case Code::full: return ENOSPC;
    case Code::permission: return EACCES;
    case Code::not_found: return ENOENT;
    case Code::timeout: return ETIMEDOUT;
    default: return NC_EIO;
  }
}

namespace {
int code_of(const Result<void>& result) noexcept {
  return result.ok() ? NC_NOERR : netcdf::code_of(result.error());
}
}  // namespace

CapturedFile::CapturedFile(const RealLibrary& real, int id, std::string name, int creation_mode, FileFormat f,
                           std::unique_ptr<CapturedDataset> out, std::string place)
    : lib(real),
      ncid(id),
      path(std::move(name)),
      where(absolute(place.empty() ? path : place)),
      mode(creation_mode),
      format(f),
      out_(std::move(out)),
      stall_(*out_),
      description_(real, id, f),
      shapes_(real, id),
      converter_(real, f) {}

/// The library is about to take the file over: from here on it is complete when that closes it.
void CapturedFile::keep_from_server() {
  if (!coupled_) return;
  auto* workflow = capture::workflow_of_process();
  if (workflow != nullptr && workflow->holds(where)) where += workflow::handed_over;
  if (coupled_->publish.empty()) return;  // a rank that is not the first
  if (workflow != nullptr) workflow->keep_from_server(*coupled_);
}

CapturedFile::~CapturedFile() {
  if (auto* workflow = coupled_ ? capture::workflow_of_process() : nullptr; workflow != nullptr)
    workflow->close_for_server(*coupled_);
  close_reader();
  close_shadow();
}

// --- modes --------------------------------------------------------------------------------------

/// Define mode has ended for the program.
void CapturedFile::ended() {
  lib.nc_inq(ncid, &ended_dimensions_, &ended_variables_, nullptr, nullptr);
  define_mode_.end();
  description_.end_define_mode();
}

void CapturedFile::put_off_enddef() {
  ended();
  define_mode_.put_off();
}

void CapturedFile::all_written() {
  int variables = 0;
  lib.nc_inq(ncid, nullptr, &variables, nullptr, nullptr);
  written_.assign(static_cast<std::size_t>(variables), true);
}

namespace {
/// A put or a get of nothing, or of a whole scalar, which the shadow knows no use for.
template <typename Access>
int touch_data(const RealLibrary& lib, int ncid, int variable, Access&& access) {
  static constexpr std::size_t none[NC_MAX_VAR_DIMS] = {};
  alignas(8) char element[8] = {};
  nc_type type = NC_NAT;
  int rank = 0;
  if (const int code = lib.nc_inq_var(ncid, variable, nullptr, &type, &rank, nullptr, nullptr); code != NC_NOERR)
    return code;
  const int code = access(none, none, static_cast<void*>(element));
  if (char* text = nullptr; type == NC_STRING && rank == 0 && code == NC_NOERR) {
    std::memcpy(&text, element, sizeof text);
    if (text != nullptr) lib.nc_free_string(1, &text);
  }
  return code;
}
}  // namespace

/// The shadow leaves define mode as by a put or a get: no variable counts as written.
int CapturedFile::end_shadow() {
  int variables = 0;
  lib.nc_inq(ncid, nullptr, &variables, nullptr, nullptr);
  if (variables == 0) return lib.nc_enddef(ncid);
  return touch_data(lib, ncid, 0, [&](const std::size_t* start, const std::size_t* count, void* to) {
    return lib.nc_get_vara(ncid, 0, start, count, to);
  });
}

/// For the library the variable has data from here on.
void CapturedFile::note_written(int variable) {
  const auto at = static_cast<std::size_t>(variable);
  if (explicit_modes() || written(variable)) return;
  if (written_.size() <= at) written_.resize(at + 1);
  written_[at] = true;
  if (enddef_pending()) return;
  touch_data(lib, ncid, variable, [&](const std::size_t* start, const std::size_t* count, void* from) {
    return lib.nc_put_vara(ncid, variable, start, count, from);
  });
}

int CapturedFile::end_pending() {
  shadow_follows_ = true;
  if (!define_mode_.take_pending()) return NC_NOERR;
  int code = end_shadow();
  const auto written = std::exchange(written_, {});
  for (std::size_t v = 0; v < written.size(); ++v)
    if (written[v]) note_written(static_cast<int>(v));
  if (code == NC_NOERR && defining()) code = lib.nc_redef(ncid);
  return code;
}

/// Define mode is about to begin again. The definitions ended before can still be sent until it
/// ends.
void CapturedFile::remember_ended() {
  read_schema();
  description_.begin_define_mode();
}

int CapturedFile::redef() {
  const Collective in_call(collective_out());
  if (classic_format()) {
    if (defining()) return NC_EINDEFINE;
  } else if (enddef_pending()) {
    // netCDF-4 proper takes a second redef without a word.
  } else if (const int code = lib.nc_redef(ncid); code != NC_NOERR) {
    return code;
  }
  if (!defining()) remember_ended();
  define_mode_.begin();
  return NC_NOERR;
}

int CapturedFile::enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad,
                         std::size_t record_align) {
  const Collective in_call(collective_out());
  if (classic_format()) {
    if (!defining()) return NC_ENOTINDEFINE;
    ClassicPadding padding;
    if (header_pad != nullptr) padding = {*header_pad, data_align, data_pad, record_align};
    return end_classic(padding, header_pad != nullptr);
  }
  if (may_put_off()) {
    all_written();
    if (!defining()) return NC_ENOTINDEFINE;
    put_off_enddef();
    return send_structure();
  }
  const int code = header_pad != nullptr ? lib.nc__enddef(ncid, *header_pad, data_align, data_pad, record_align)
                                         : lib.nc_enddef(ncid);
  all_written();
  if (code != NC_NOERR) return code;
  ended();
  return send_structure();
}

/// The library checks the limits of the format here, and the shadow never gets there.
int CapturedFile::end_classic(const ClassicPadding& asked, bool padded) {
  ClassicPadding padding = asked;
  for (auto* align : {&padding.data_align, &padding.record_align}) {
    struct stat file {};
    if (*align == static_cast<std::size_t>(NC_ALIGN_CHUNK))
      *align = stat(out_->file_path().c_str(), &file) == 0 ? static_cast<std::uint64_t>(file.st_blksize) : 4096;
  }
  // This can fail. Then the definitions ended before must not be lost.
  int variables = 0;
  lib.nc_inq(ncid, nullptr, &variables, nullptr, nullptr);
  const bool changes = padded || layout_.begin_records > INT_MAX / 2 ||
                       static_cast<std::size_t>(variables) != description_.last_read().variables.size();
  std::optional<Schema> before;
  if (description_.unsent_before_redef() && changes) before = description_.last_read();
  const auto layout_before = layout_;
  const int code = layout_.end_define_mode(read_schema(), padding);
  if (code == NC_NOERR) {
    if (layout_ != layout_before) description_.must_send();
    ended();
    return send_structure();
  }
  if (before && send_schema(*before) == NC_NOERR) description_.sent_before_redef();
  return code;
}

/// A change that has failed may not have ended data mode. Only the shadow knows.
bool CapturedFile::is_defining() const {
  if (!defining() || fresh() || ended_variables_ == 0 || lib.nc_def_var_filter == nullptr) return defining();
  // The variable is there already, so the call fails in both modes. The code tells which mode it
  // is.
  const unsigned level = 1;
  return lib.nc_def_var_filter(ncid, 0, filter_id::deflate, 1, &level) != NC_EINDEFINE;
}

int CapturedFile::set_fill(int fill_mode, int* old_mode) {
  const Collective in_call(collective_out());
  if (fill_mode != fill_mode_)
    if (const int code = keep_filled(); code != NC_NOERR) return code;
  const int code = lib.nc_set_fill(ncid, fill_mode, old_mode);
  if (code != NC_NOERR) return code;
  fill_mode_ = fill_mode;
  // One mode for the whole file in the classic formats; with netCDF-4 it is that of variables
  // defined from now on.
  if (classic_format()) touch(Touched::everything);
  return NC_NOERR;
}

/// netCDF-4 proper enters data mode by itself.
int CapturedFile::leave_define_mode() {
  if (!defining()) return NC_NOERR;
  if (classic_format()) return enddef(nullptr, 0, 0, 0);
  if (may_put_off()) {
    put_off_enddef();
    return NC_NOERR;
  }
  const int code = explicit_modes() ? lib.nc_enddef(ncid) : end_shadow();
  // We take it to be in define mode after any change of metadata; the library may know better.
  if (code != NC_NOERR && code != NC_ENOTINDEFINE) return code;
  ended();
  return NC_NOERR;
}

// --- metadata -----------------------------------------------------------------------------------

void CapturedFile::touch(Touched what, int variable) {
  description_.touch(what, variable);
  note_structure(what, variable);
  close_reader();
  if (what == Touched::dimensions || what == Touched::everything) shapes_.touch();
}

int CapturedFile::flush_schema() {
  if (!description_.unsent() || (together_ != nullptr && together_->ranks->rank() != 0)) return NC_NOERR;
  read_schema();
  if (const int code = send_schema(description_.last_read()); code != NC_NOERR) return code;
  description_.sent_all();
  if (together_ != nullptr) together_->structure_unsent = false;
  return NC_NOERR;
}

int CapturedFile::send_schema(Schema& schema) {
  if (classic_format()) layout_.pad(schema);
  const auto sent = stall_.timed([&] { return out_->schema(schema); });
  if (sent.ok()) description_.sent(schema.variables.size());
  return code_of(sent);
}

int CapturedFile::keep_filled() {
  if (!classic_format() || fresh()) return NC_NOERR;
  if (!defining()) read_schema();
  if (!(defining() ? description_.unsent_before_redef() : description_.unsent())) return NC_NOERR;
  shapes_.load();
  auto& schema = description_.last_read();
  for (auto i = description_.sent_variables(); i < schema.variables.size(); ++i) {
    const auto& v = schema.variables[i];
    const auto* first = v.dimensions.empty() ? nullptr : &shapes_.extents()[v.dimensions[0]];
    if (v.no_fill || (first != nullptr && first->unlimited && first->length == 0)) continue;
    if (const int code = send_schema(schema); code != NC_NOERR) return code;
    if (defining()) {
      description_.sent_before_redef();
    } else {
      description_.sent_all();
    }
    // The server makes the file for a block: one element, as it is filled.
    const Box one{std::vector<std::uint64_t>(v.dimensions.size(), 0),
                  std::vector<std::uint64_t>(v.dimensions.size(), 1)};
    return put_fill(static_cast<int>(i), one);
  }
  return NC_NOERR;
}

/// By the schema that was sent last.
int CapturedFile::put_fill(int variable, const Box& box) {
  const auto& v = description_.last_read().variables[static_cast<std::size_t>(variable)];
  const Bytes fill = v.fill.empty() ? default_fill(v.type) : v.fill;
  if (!reads_copy_) close_reader();
  const auto put = stall_.timed([&] {
    return out_->put(static_cast<std::uint32_t>(variable), box, {}, Memory{fill.data(), {}}, size_of(v.type));
  });
  if (put.ok()) {
    put_anything_ = true;
    put_into_copy(variable, box, {}, fill.data(), size_of(v.type));
  }
  return code_of(put);
}

bool CapturedFile::has_grown(const Shape& variable) {
  learn_lengths();
  return shapes_.has_grown(variable);
}

bool CapturedFile::grown_length(int dimension, std::size_t& length) {
  learn_lengths();
  return shapes_.ask(dimension, length);
}

// --- reading back -------------------------------------------------------------------------------

namespace {

/// Files that are so long, and so much put into the copy between two reads: no copy is kept.
constexpr std::uint64_t copy_max = 16U << 20U;

/// A copy of the file in the stage. Empty: it is too long, or cannot be made.
std::string copy_in_stage(const std::string& path) {
  auto* session = Session::current();
  std::error_code error;
  if (session == nullptr || std::filesystem::file_size(path, error) > copy_max || error) return {};
  std::string name = session->directory() + "/copy-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return {};
  ::close(fd);
  std::filesystem::copy_file(path, name, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return name;
  ::unlink(name.c_str());
  return {};
}

}  // namespace

/// A program that reads, adds and writes would wait for a commit at each read. After a few of these
/// a copy of the file is read instead.
int CapturedFile::open_reader() {
  constexpr int with_a_commit = 4;
  const auto& path = out_->file_path();
  reads_copy_ = false;
  const auto& variables = description_.last_read().variables;
  // 4.9.0 swaps the bytes of big-endian variables in a file that it has not made (hand_over.cpp).
  const bool swaps =
      std::any_of(variables.begin(), variables.end(), [](const Variable& v) { return v.endian == Endian::big; });
  if (together_ == nullptr && !swaps && ++reads_after_puts_ > with_a_commit) {
    if (const auto copy = copy_in_stage(path); !copy.empty()) {
      reads_copy_ = lib.nc_open(copy.c_str(), NC_WRITE, &reader_) == NC_NOERR;
      ::unlink(copy.c_str());  // the library has it open
      int old = NC_FILL;
      if (reads_copy_) return lib.nc_set_fill(reader_, fill_mode_, &old);
    }
  }
  const int code = lib.nc_open(path.c_str(), NC_NOWRITE, &reader_);
  if (code != NC_NOERR) reader_ = -1;
  return code;
}

void CapturedFile::put_into_copy(int variable, const Box& box, const std::vector<std::uint64_t>& stride,
                                 const void* data, std::size_t element) {
  constexpr std::uint64_t of_a_call = 4096;  // what a put costs beside its bytes
  if (!reads_copy_) return;
  unread_bytes_ += box.volume() * element + of_a_call;
  int there = -1;
  char name[NC_MAX_NAME + 1] = {};
  int code = unread_bytes_ > copy_max ? NC_ENOMEM : lib.nc_inq_varname(ncid, variable, name);
  if (code == NC_NOERR) code = lib.nc_inq_varid(reader_, name, &there);
  const std::vector<std::ptrdiff_t> steps(stride.begin(), stride.end());
  if (code == NC_NOERR)
    code = lib.nc_put_vars(reader_, there, box.start.data(), box.count.data(), steps.empty() ? nullptr : steps.data(),
                           data);
  if (code != NC_NOERR) close_reader();  // the next read opens the file
}

void CapturedFile::close_reader() {
  reads_copy_ = false;
  if (reader_ < 0) return;
  lib.nc_close(reader_);
  reader_ = -1;
}

int CapturedFile::make_visible() {
  if (explicit_modes() && defining()) return NC_EINDEFINE;
  if (const int code = leave_define_mode(); code != NC_NOERR) return code;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  return code_of(stall_.timed([&] { return out_->wait_visible(); }));
}

CapturedFile::Reading CapturedFile::read(int variable, nc_type memory, bool whole, bool placed) {
  const shadow::Stall stall(stall_);
  Collective in_call(collective(variable) ? collective_out() : nullptr);
  const auto* v = shapes_.of(variable);
  if (explicit_modes() && defining()) {
    const bool grown = v != nullptr && has_grown(*v);
    return {grown && whole ? NC_EINDEFINE : NC_NOERR, true, grown};
  }
  if (!classic_format()) {
    if (v == nullptr) return {NC_ENOTVAR, true};
    // The library refuses a read without a place, and text as numbers, before it ends define mode.
    if (!placed && !v->dimensions.empty()) return {NC_EINVALCOORDS, true};
    if (memory != NC_NAT && (memory == NC_CHAR) != (v->type == NC_CHAR)) return {NC_ECHAR, true};
  }
  Reading reading;
  reading.code = leave_define_mode();
  if (reading.code != NC_NOERR) return reading;
  if (reader_ < 0) {
    reading.code = flush_schema();
    if (reading.code != NC_NOERR) return reading;
    in_call.end();  // what the others have put before this call is then of an earlier collective index
    reading.code = make_visible();
    if (reading.code != NC_NOERR) return reading;
    reading.code = open_reader();
    if (reading.code != NC_NOERR) return reading;
  }
  unread_bytes_ = 0;
  reading.ncid = reader_;
  reading.variable = variable;
  if (v == nullptr) return reading;  // the file has no such variable either
  // By name: whoever wrote the file need not have numbered its variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  reading.code = lib.nc_inq_varname(ncid, variable, name);
  if (reading.code == NC_NOERR) reading.code = lib.nc_inq_varid(reader_, name, &reading.variable);
  return reading;
}

// --- frames and the end -------------------------------------------------------------------------

int CapturedFile::sync() {
  if (inherited()) return NC_NOERR;  // nothing here is new
  shadow::Stall stall(stall_);
  const Collective in_call(collective_out());
  if (explicit_modes() && defining()) return NC_EINDEFINE;
  if (may_put_off()) {
    if (defining()) all_written();
    put_off_enddef();
  } else if (!classic_format()) {
    const bool all = is_defining();
    if (const int code = lib.nc_sync(ncid); code != NC_NOERR) return code;
    if (all) all_written();
    ended();
  }
  if (!reads_copy_) close_reader();
  const int flushed = flush_schema();
  const auto synced = stall_.timed([&] { return out_->sync(); });
  return flushed != NC_NOERR ? flushed : code_of(synced);
}

void CapturedFile::settle_at_exit() {
  if (inherited()) return;
  close_reader();
  if (leave_define_mode() == NC_NOERR) (void)flush_schema();
}

void CapturedFile::close_shadow() {
  if (!shadow_open_) return;
  shadow_open_ = false;
  // A classic shadow is in a redefinition: closing would lay it out in memory, aborting forgets it.
  // Aborting also forgets a netCDF-4 shadow that has never left define mode. Where closing fails
  // (4.9.0: a quantized variable in the classic model), only aborting frees the number.
  if (classic_format() || may_put_off() || lib.nc_close(ncid) != NC_NOERR) lib.nc_abort(ncid);
}

/// The dataset gets everything that is not sent yet, and the shadow goes.
int CapturedFile::send_rest() {
  close_reader();
  const int left = leave_define_mode();
  const int flushed = left == NC_NOERR ? flush_schema() : left;
  close_shadow();
  return flushed;
}

int CapturedFile::close() {
  if (inherited()) return NC_NOERR;
  shadow::Stall stall(stall_);
  if (classic_format() && defining()) {
    // The format cannot hold these definitions: nc_abort is all that the library would do.
    if (const int code = enddef(nullptr, 0, 0, 0); code != NC_NOERR) {
      abort();
      return code;
    }
  }
  const int settled = send_rest();
  stall.report();
  const auto closed = out_->close();
  return settled != NC_NOERR ? settled : code_of(closed);
}

int CapturedFile::abort() {
  if (inherited()) return NC_NOERR;
  if (!defining() || !(fresh() || description_.unsent())) return close();
  close_reader();
  close_shadow();
  if (fresh()) {
    struct stat made {
    }, now{};
    const bool known = ::stat(out_->file_path().c_str(), &made) == 0;
    const int code = code_of(out_->abort());
    // The server removes it in a moment; the program may look at once.
    const bool speaks = ranks() == nullptr || ranks()->rank() == 0;
    if (known && speaks && ::stat(where.c_str(), &now) == 0 && now.st_dev == made.st_dev && now.st_ino == made.st_ino &&
        now.st_size == 0)
      ::unlink(where.c_str());
    return code;
  }
  // Definitions since the last nc_redef are forgotten. Values put before it stay. So does the
  // library.
  const int sent = description_.unsent_before_redef() ? send_schema(description_.last_read()) : NC_NOERR;
  const auto closed = out_->close();
  return sent != NC_NOERR ? sent : code_of(closed);
}

}  // namespace advectio::netcdf
