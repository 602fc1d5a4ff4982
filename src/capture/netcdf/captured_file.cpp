#include "capture/netcdf/captured_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "capture/netcdf/open_files.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio {

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
  return result.ok() ? NC_NOERR : advectio::code_of(result.error());
}
}  // namespace

std::uint64_t CapturedFile::now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

void Stall::report() noexcept {
  if (file_ == nullptr) return;
  const auto whole = CapturedFile::now() - begin_;
  if (file_->out_ != nullptr && whole > file_->inside_ns_) file_->out_->add_stall(whole - file_->inside_ns_);
  file_ = nullptr;
}

CapturedFile::CapturedFile(const RealLibrary& real, int id, std::string name, int creation_mode, FileFormat f,
                           std::unique_ptr<CapturedDataset> out)
    : lib(real),
      ncid(id),
      path(std::move(name)),
      where(absolute(path)),
      mode(creation_mode),
      format(f),
      out_(std::move(out)),
      converter_(real, f) {
  schema_.format = f;
  noted_.emplace_back(std::in_place);
}

CapturedFile::~CapturedFile() {
  close_reader();
  close_shadow();
}

// --- modes ---------------------------------------------------------------------------------------------------------

/// Define mode has ended for the program.
void CapturedFile::ended() {
  lib.nc_inq(ncid, &ended_dimensions_, &ended_variables_, nullptr, nullptr);
  defining_ = fresh_ = false;
  for (auto& q : quantized_)
    if (q.attributes_before < 0) lib.nc_inq_varnatts(ncid, q.variable, &q.attributes_before);
}

void CapturedFile::owe_enddef() {
  ended();
  owed_ = true;
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
  if (owed_) return;
  touch_data(lib, ncid, variable, [&](const std::size_t* start, const std::size_t* count, void* from) {
    return lib.nc_put_vara(ncid, variable, start, count, from);
  });
}

int CapturedFile::pay_enddef() {
  paid_ = true;
  if (!owed_) return NC_NOERR;
  owed_ = false;
  int code = end_shadow();
  const auto written = std::exchange(written_, {});
  for (std::size_t v = 0; v < written.size(); ++v)
    if (written[v]) note_written(static_cast<int>(v));
  if (code == NC_NOERR && defining_) code = lib.nc_redef(ncid);
  return code;
}

/// Define mode is about to begin again: what has been ended can be told until it ends.
void CapturedFile::remember_ended() {
  read_schema();
  dirty_before_redef_ = dirty_;
}

int CapturedFile::redef() {
  const Collective turn(turns());
  if (classic_format()) {
    if (defining_) return NC_EINDEFINE;
  } else if (owed_) {
    // netCDF-4 proper takes a second redef without a word.
  } else if (const int code = lib.nc_redef(ncid); code != NC_NOERR) {
    return code;
  }
  if (!defining_) remember_ended();
  defining_ = true;
  return NC_NOERR;
}

int CapturedFile::enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad,
                         std::size_t record_align) {
  const Collective turn(turns());
  if (classic_format()) {
    if (!defining_) return NC_ENOTINDEFINE;
    ClassicPadding padding;
    if (header_pad != nullptr) padding = {*header_pad, data_align, data_pad, record_align};
    return end_classic(padding, header_pad != nullptr);
  }
  if (may_owe()) {
    all_written();
    if (!defining_) return NC_ENOTINDEFINE;
    owe_enddef();
    return tell_structure();
  }
  const int code = header_pad != nullptr ? lib.nc__enddef(ncid, *header_pad, data_align, data_pad, record_align)
                                         : lib.nc_enddef(ncid);
  all_written();
  if (code != NC_NOERR) return code;
  ended();
  return tell_structure();
}

/// The library checks the limits of the format here, and the shadow never gets there.
int CapturedFile::end_classic(const ClassicPadding& asked, bool padded) {
  ClassicPadding padding = asked;
  for (auto* align : {&padding.data_align, &padding.record_align}) {
    struct stat file {};
    if (*align == static_cast<std::size_t>(NC_ALIGN_CHUNK))
      *align = stat(out_->file_path().c_str(), &file) == 0 ? static_cast<std::uint64_t>(file.st_blksize) : 4096;
  }
  // Where that can fail, what was ended before must not be lost.
  int variables = 0;
  lib.nc_inq(ncid, nullptr, &variables, nullptr, nullptr);
  const bool changes =
      padded || layout_.begin_records > INT_MAX / 2 || static_cast<std::size_t>(variables) != schema_.variables.size();
  std::optional<Schema> before;
  if (dirty_before_redef_ && changes) before = schema_;
  const auto layout_before = layout_;
  const int code = layout_.end_define_mode(read_schema(), padding);
  if (code == NC_NOERR) {
    dirty_ |= layout_ != layout_before;
    ended();
    return tell_structure();
  }
  if (before && tell(*before) == NC_NOERR) dirty_before_redef_ = false;
  return code;
}

int CapturedFile::set_fill(int fill_mode, int* old_mode) {
  const Collective turn(turns());
  if (fill_mode != fill_mode_)
    if (const int code = keep_filled(); code != NC_NOERR) return code;
  const int code = lib.nc_set_fill(ncid, fill_mode, old_mode);
  if (code != NC_NOERR) return code;
  fill_mode_ = fill_mode;
  // One mode for the whole file in the classic formats; with netCDF-4 it is that of variables defined from now on.
  if (classic_format()) touch(Touched::everything);
  return NC_NOERR;
}

/// netCDF-4 proper enters data mode by itself.
int CapturedFile::leave_define_mode() {
  if (!defining_) return NC_NOERR;
  if (classic_format()) return enddef(nullptr, 0, 0, 0);
  if (may_owe()) {
    owe_enddef();
    return NC_NOERR;
  }
  const int code = explicit_modes() ? lib.nc_enddef(ncid) : end_shadow();
  // We take it to be in define mode after any change of metadata; the library may know better.
  if (code != NC_NOERR && code != NC_ENOTINDEFINE) return code;
  ended();
  return NC_NOERR;
}

// --- metadata ------------------------------------------------------------------------------------------------------

void CapturedFile::touch(Touched what, int variable) {
  dirty_ = true;
  owe_structure(what, variable);
  close_reader();
  switch (what) {
    case Touched::dimensions: dirty_dimensions_ = extents_stale_ = true; break;
    case Touched::globals: dirty_globals_ = true; break;
    case Touched::variable:
    case Touched::all_but_attributes:
      if (what == Touched::variable) forget_attributes(variable);
      if (variable == NC_GLOBAL) {
        dirty_globals_ = true;
      } else if (variable >= 0 && static_cast<std::size_t>(variable) < dirty_variables_.size()) {
        dirty_variables_[static_cast<std::size_t>(variable)] = true;
      }
      break;
    case Touched::everything:
      noted_.clear();
      dirty_dimensions_ = dirty_globals_ = extents_stale_ = true;
      dirty_variables_.assign(dirty_variables_.size(), true);
      break;
  }
}

std::optional<std::vector<Attribute>>* CapturedFile::noted(int variable) {
  const auto at = static_cast<std::size_t>(variable - NC_GLOBAL);
  return variable >= NC_GLOBAL && at < noted_.size() && noted_[at] ? &noted_[at] : nullptr;
}

void CapturedFile::forget_attributes(int variable) {
  if (auto* known = noted(variable); known != nullptr) known->reset();
}

void CapturedFile::note_variable(int variable) {
  if (together_ != nullptr && together_->ranks->rank() != 0) return;  // only rank 0 tells the schema
  const auto at = static_cast<std::size_t>(variable - NC_GLOBAL);
  if (noted_.size() <= at) noted_.resize(at + 1);
  noted_[at].emplace();
}

void CapturedFile::note_attribute(int variable, const char* name, nc_type type, std::size_t count, const void* values) {
  auto* known = noted(variable);
  if (known == nullptr) return;
  // The library has names in a normal form of UTF-8, gives the fill value a meaning, and leaves one that is put again
  // where it was.
  const std::string_view n = name != nullptr ? name : "";
  const bool ascii = std::all_of(n.begin(), n.end(), [](char c) { return static_cast<signed char>(c) > 0; });
  const bool again = std::any_of((*known)->begin(), (*known)->end(), [n](const Attribute& a) { return a.name == n; });
  const auto data_type = static_cast<DataType>(type);
  if (n.empty() || n == "_FillValue" || !ascii || again || (values == nullptr && count > 0) || !is_known(data_type) ||
      data_type == DataType::string) {
    known->reset();
    return;
  }
  Attribute& a = (*known)->emplace_back();
  a.name = n;
  a.type = data_type;
  a.count = count;
  const auto* bytes = static_cast<const std::byte*>(values);
  a.values.assign(bytes, bytes + count * size_of(data_type));
}

int CapturedFile::read_globals() {
  const auto* known = noted(NC_GLOBAL);
  if (known == nullptr) return read_attributes(lib, ncid, NC_GLOBAL, schema_.attributes);
  const int code = lib.nc_inq(ncid, nullptr, nullptr, nullptr, nullptr);
  if (code == NC_NOERR) schema_.attributes = **known;
  return code;
}

void CapturedFile::mark_rounding(Variable& v, int variable) const {
  const auto q = std::find_if(quantized_.begin(), quantized_.end(),
                              [variable](const Quantized& of) { return of.variable == variable; });
  if (q == quantized_.end() || q->attributes_before < 0) return;
  Attribute mark{"_QuantizeBitRoundNumberOfSignificantBits", DataType::int32, 1, {}, {}};
  if (std::any_of(v.attributes.begin(), v.attributes.end(), [&](const Attribute& a) { return a.name == mark.name; }))
    return;
  Encoder(mark.values).number(static_cast<std::int32_t>(v.round_bits));
  const auto before = std::min<std::size_t>(static_cast<std::size_t>(q->attributes_before), v.attributes.size());
  v.attributes.insert(v.attributes.begin() + static_cast<std::ptrdiff_t>(before), std::move(mark));
}

const Schema& CapturedFile::read_schema() {
  if (!dirty_) return schema_;
  // A shadow that cannot be read is one whose library is ending; what was read before stands.
  if (dirty_dimensions_ && read_dimensions(lib, ncid, schema_.dimensions) == NC_NOERR) dirty_dimensions_ = false;
  if (dirty_globals_ && read_globals() == NC_NOERR) dirty_globals_ = false;
  int count = 0;
  if (lib.nc_inq(ncid, nullptr, &count, nullptr, nullptr) == NC_NOERR) {
    schema_.variables.resize(static_cast<std::size_t>(count));
    dirty_variables_.resize(static_cast<std::size_t>(count), true);
  }
  for (std::size_t i = 0; i < dirty_variables_.size(); ++i) {
    if (!dirty_variables_[i]) continue;
    auto& v = schema_.variables[i];
    const auto* known = noted(static_cast<int>(i));
    if (read_variable(lib, ncid, static_cast<int>(i), !classic_format(), known != nullptr ? &**known : nullptr, v) !=
        NC_NOERR)
      continue;
    if (classic_format()) v.no_fill = v.no_fill || fill_mode_ == NC_NOFILL;
    if (v.round_bits > 0) mark_rounding(v, static_cast<int>(i));
    dirty_variables_[i] = false;
  }
  return schema_;
}

int CapturedFile::flush_schema() {
  if (!dirty_ || (together_ != nullptr && together_->ranks->rank() != 0)) return NC_NOERR;
  read_schema();
  if (const int code = tell(schema_); code != NC_NOERR) return code;
  dirty_ = dirty_before_redef_ = false;
  if (together_ != nullptr) together_->owes_structure = false;
  return NC_NOERR;
}

int CapturedFile::tell(Schema& schema) {
  if (classic_format()) layout_.pad(schema);
  const auto told = timed([&] { return out_->schema(schema); });
  if (told.ok()) told_variables_ = schema.variables.size();
  return code_of(told);
}

int CapturedFile::keep_filled() {
  if (!classic_format() || fresh_) return NC_NOERR;
  if (!defining_) read_schema();
  if (!(defining_ ? dirty_before_redef_ : dirty_)) return NC_NOERR;
  load_dimensions();
  for (auto i = told_variables_; i < schema_.variables.size(); ++i) {
    const auto& v = schema_.variables[i];
    const auto* first = v.dimensions.empty() ? nullptr : &extents_[v.dimensions[0]];
    if (v.no_fill || (first != nullptr && first->unlimited && first->length == 0)) continue;
    if (const int code = tell(schema_); code != NC_NOERR) return code;
    dirty_before_redef_ = false;
    if (!defining_) dirty_ = false;
    // The file is made for a block: one element, as it is filled.
    const Box one{std::vector<std::uint64_t>(v.dimensions.size(), 0),
                  std::vector<std::uint64_t>(v.dimensions.size(), 1)};
    return put_fill(static_cast<int>(i), one);
  }
  return NC_NOERR;
}

/// Of the schema that was told last.
int CapturedFile::put_fill(int variable, const Box& box) {
  const auto& v = schema_.variables[static_cast<std::size_t>(variable)];
  const Bytes fill = v.fill.empty() ? default_fill(v.type) : v.fill;
  close_reader();
  const auto put = timed([&] {
    return out_->put(static_cast<std::uint32_t>(variable), box, {}, Memory{fill.data(), {}}, size_of(v.type));
  });
  if (put.ok()) put_anything_ = true;
  return code_of(put);
}

void CapturedFile::load_dimensions() {
  if (!extents_stale_) return;
  std::vector<Dimension> dimensions;
  if (read_dimensions(lib, ncid, dimensions) != NC_NOERR) return;
  extents_.resize(dimensions.size());
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    extents_[i].unlimited = dimensions[i].unlimited;
    if (!dimensions[i].unlimited) extents_[i].length = dimensions[i].length;
  }
  extents_stale_ = false;
}

bool CapturedFile::has_grown(const Known& variable) {
  learn_lengths();
  return std::any_of(variable.dimensions.begin(), variable.dimensions.end(), [&](int d) {
    const auto& extent = extents_[static_cast<std::size_t>(d)];
    return extent.unlimited && extent.length > 0;
  });
}

bool CapturedFile::grown_length(int dimension, std::size_t& length) {
  learn_lengths();
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= extents_.size()) return false;
  auto& extent = extents_[static_cast<std::size_t>(dimension)];
  if (!extent.unlimited) return false;
  length = extent.asked = extent.length;
  asked_ = asked_ || length > 0;
  return true;
}

const CapturedFile::Known* CapturedFile::known(int variable) {
  if (variable < 0) return nullptr;
  while (known_.size() <= static_cast<std::size_t>(variable)) {
    Known k;
    int rank = 0;
    int dimensions[NC_MAX_VAR_DIMS];
    if (lib.nc_inq_var(ncid, static_cast<int>(known_.size()), nullptr, &k.type, &rank, dimensions, nullptr) != NC_NOERR)
      return nullptr;
    k.element = memory_size(k.type);
    k.dimensions.assign(dimensions, dimensions + rank);
    known_.push_back(std::move(k));
  }
  return &known_[static_cast<std::size_t>(variable)];
}

int CapturedFile::choose_chunks(int variable) {
  if (!asked_ || classic_format() || lib.nc_inq_var_chunking == nullptr) return NC_NOERR;
  const auto* v = known(variable);
  if (v == nullptr) return NC_NOERR;
  load_dimensions();
  bool grown = false;
  for (const int d : v->dimensions) {
    const auto& extent = extents_[static_cast<std::size_t>(d)];
    grown |= extent.unlimited && extent.asked > 0;
  }
  if (!grown) return NC_NOERR;

  // The same variable in a dataset in memory whose dimensions have grown the same.
  int scratch = -1;
  int code = lib.nc_create("advectio-chunks", NC_NETCDF4 | NC_DISKLESS, &scratch);
  if (code != NC_NOERR) return code;
  const char nothing = 0;
  std::vector<int> dimensions;
  for (std::size_t i = 0; i < v->dimensions.size() && code == NC_NOERR; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v->dimensions[i])];
    const std::string name = std::to_string(i);
    int d = -1, grower = -1;
    code = lib.nc_def_dim(scratch, name.c_str(), extent.unlimited ? NC_UNLIMITED : extent.length, &d);
    dimensions.push_back(d);
    if (code != NC_NOERR || !extent.unlimited || extent.asked == 0) continue;
    const std::size_t last = extent.asked - 1;
    std::size_t length = 0;
    code = lib.nc_def_var(scratch, ("grower" + name).c_str(), NC_CHAR, 1, &d, &grower);
    if (code == NC_NOERR) code = lib.nc_put_var1_text(scratch, grower, &last, &nothing);
    if (code == NC_NOERR) code = lib.nc_inq_dimlen(scratch, d, &length);
  }
  int like = -1, storage = NC_CONTIGUOUS;
  std::vector<std::size_t> chunks(v->dimensions.size());
  if (code == NC_NOERR)
    code = lib.nc_def_var(scratch, "v", v->type, static_cast<int>(dimensions.size()), dimensions.data(), &like);
  if (code == NC_NOERR) code = lib.nc_inq_var_chunking(scratch, like, &storage, chunks.data());
  if (code == NC_NOERR && storage == NC_CHUNKED) code = lib.nc_def_var_chunking(ncid, variable, storage, chunks.data());
  lib.nc_close(scratch);
  return code;
}

// --- reading back --------------------------------------------------------------------------------------------------

void CapturedFile::close_reader() {
  if (reader_ < 0) return;
  lib.nc_close(reader_);
  reader_ = -1;
}

int CapturedFile::make_visible() {
  if (explicit_modes() && defining_) return NC_EINDEFINE;
  if (const int code = leave_define_mode(); code != NC_NOERR) return code;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  return code_of(timed([&] { return out_->wait_visible(); }));
}

CapturedFile::Reading CapturedFile::read(int variable, nc_type memory, bool whole, bool placed) {
  const Stall stall(*this);
  Collective turn(collective(variable) ? turns() : nullptr);
  const auto* v = known(variable);
  if (explicit_modes() && defining_) {
    const bool grown = v != nullptr && has_grown(*v);
    return {grown && whole ? NC_EINDEFINE : NC_NOERR, true, grown};
  }
  if (!classic_format()) {
    if (v == nullptr) return {NC_ENOTVAR, true};
    // Neither what has no place is read, nor is text converted, and finding that out does not end define mode.
    if (!placed && !v->dimensions.empty()) return {NC_EINVALCOORDS, true};
    if (memory != NC_NAT && (memory == NC_CHAR) != (v->type == NC_CHAR)) return {NC_ECHAR, true};
  }
  Reading reading;
  reading.code = leave_define_mode();
  if (reading.code != NC_NOERR) return reading;
  if (reader_ < 0) {
    reading.code = flush_schema();
    if (reading.code != NC_NOERR) return reading;
    turn.end();  // what the others have put before this call is then of an earlier turn
    reading.code = make_visible();
    if (reading.code != NC_NOERR) return reading;
    reading.code = lib.nc_open(out_->file_path().c_str(), NC_NOWRITE, &reader_);
    if (reading.code != NC_NOERR) {
      reader_ = -1;
      return reading;
    }
  }
  reading.ncid = reader_;
  reading.variable = variable;
  if (v == nullptr) return reading;  // the file has no such variable either
  // By name: whoever wrote the file need not have numbered its variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  reading.code = lib.nc_inq_varname(ncid, variable, name);
  if (reading.code == NC_NOERR) reading.code = lib.nc_inq_varid(reader_, name, &reading.variable);
  return reading;
}

// --- frames and the end --------------------------------------------------------------------------------------------

int CapturedFile::sync() {
  Stall stall(*this);
  const Collective turn(turns());
  if (explicit_modes() && defining_) return NC_EINDEFINE;
  if (may_owe()) {
    if (defining_) all_written();
    owe_enddef();
  } else if (!classic_format()) {
    const bool all = is_defining();
    if (const int code = lib.nc_sync(ncid); code != NC_NOERR) return code;
    if (all) all_written();
    ended();
  }
  close_reader();
  const int flushed = flush_schema();
  const auto synced = timed([&] { return out_->sync(); });
  return flushed != NC_NOERR ? flushed : code_of(synced);
}

void CapturedFile::close_shadow() {
  if (!shadow_open_) return;
  shadow_open_ = false;
  // A classic shadow is in define mode of a redefinition: closing would lay it out, aborting forgets it. So it does a
  // netCDF-4 one that has never left define mode (and fails to remove its file, of which there is none). Where closing
  // fails (4.9.0: a quantized variable in the classic model) the number would not become free.
  if (classic_format() || may_owe() || lib.nc_close(ncid) != NC_NOERR) lib.nc_abort(ncid);
}

/// Everything the program has said reaches the dataset, and the shadow goes.
int CapturedFile::settle() {
  close_reader();
  const int left = leave_define_mode();
  const int flushed = left == NC_NOERR ? flush_schema() : left;
  close_shadow();
  return flushed;
}

int CapturedFile::close() {
  Stall stall(*this);
  if (classic_format() && defining_) {
    // The format cannot hold these definitions: nc_abort is all that the library would do.
    if (const int code = enddef(nullptr, 0, 0, 0); code != NC_NOERR) {
      abort();
      return code;
    }
  }
  const int settled = settle();
  stall.report();
  const auto closed = out_->close();
  return settled != NC_NOERR ? settled : code_of(closed);
}

int CapturedFile::abort() {
  if (!defining_ || !(fresh_ || dirty_)) return close();
  close_reader();
  close_shadow();
  if (fresh_) {
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
  // Definitions since the last nc_redef are forgotten. Values put before it stay. So does the library.
  const int told = dirty_before_redef_ ? tell(schema_) : NC_NOERR;
  const auto closed = out_->close();
  return told != NC_NOERR ? told : code_of(closed);
}

}  // namespace advectio
