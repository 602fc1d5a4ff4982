#include "capture/netcdf/captured_file.h"

#include <algorithm>
#include <cerrno>
#include <climits>
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

void CapturedFile::owe_enddef() {
  lib.nc_inq(ncid, nullptr, &owed_variables_, nullptr, nullptr);
  owed_ = true;
  defining_ = fresh_ = false;
}

int CapturedFile::pay_enddef() {
  paid_ = true;
  if (!owed_) return NC_NOERR;
  owed_ = false;
  int code = lib.nc_enddef(ncid);
  if (code == NC_NOERR && defining_) code = lib.nc_redef(ncid);
  return code;
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
  dirty_before_redef_ = dirty_;
  defining_ = true;
  return NC_NOERR;
}

int CapturedFile::enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad,
                         std::size_t record_align) {
  const Collective turn(turns());
  if (classic_format()) {
    if (!defining_) return NC_ENOTINDEFINE;
    if (const int code = check_layout(); code != NC_NOERR) return code;
    if (header_pad != nullptr) {
      schema_.header_pad = *header_pad;
      schema_.data_align = data_align;
      schema_.data_pad = data_pad;
      schema_.record_align = record_align;
    }
  } else if (may_owe()) {
    if (!defining_) return NC_ENOTINDEFINE;
    owe_enddef();
    return tell_structure();
  } else {
    const int code = header_pad != nullptr ? lib.nc__enddef(ncid, *header_pad, data_align, data_pad, record_align)
                                           : lib.nc_enddef(ncid);
    if (code != NC_NOERR) return code;
  }
  defining_ = fresh_ = false;
  return tell_structure();
}

int CapturedFile::set_fill(int fill_mode, int* old_mode) {
  const Collective turn(turns());
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
  const int code = lib.nc_enddef(ncid);
  // We take it to be in define mode after any change of metadata; the library may know better.
  if (code != NC_NOERR && code != NC_ENOTINDEFINE) return code;
  defining_ = fresh_ = false;
  return NC_NOERR;
}

namespace {
/// What the classic formats can say of the size of a variable (without its record dimension), or 0 when it is more.
bool fits(const Schema& schema, const Variable& v, std::uint64_t bytes_max) {
  std::uint64_t bytes = size_of(v.type);
  for (const auto d : v.dimensions) {
    const auto& dimension = schema.dimensions[d];
    if (dimension.unlimited) continue;
    if (dimension.length > bytes_max / bytes) return false;
    bytes *= dimension.length == 0 ? 1 : dimension.length;
  }
  return true;
}

bool is_record(const Schema& schema, const Variable& v) {
  return !v.dimensions.empty() && schema.dimensions[v.dimensions[0]].unlimited;
}
}  // namespace

/// The limits of the classic formats, which their library checks when define mode ends: the shadow never gets there.
int CapturedFile::check_layout() {
  const Schema& schema = read_schema();
  const std::uint64_t bytes_max = format == FileFormat::cdf5       ? static_cast<std::uint64_t>(INT64_MAX) - 3
                                  : format == FileFormat::offset64 ? static_cast<std::uint64_t>(UINT_MAX) - 3
                                                                   : static_cast<std::uint64_t>(INT_MAX) - 3;
  // One too large is allowed where nothing comes after it, for only beginnings are stored.
  for (const bool records : {false, true}) {
    unsigned large = 0;
    bool last_is_large = false;
    bool any_records = false;
    for (const auto& v : schema.variables) {
      any_records |= is_record(schema, v);
      if (is_record(schema, v) != records) continue;
      last_is_large = !fits(schema, v, bytes_max);
      large += last_is_large ? 1U : 0U;
    }
    if (large == 0) continue;
    if (format == FileFormat::cdf5 || large > 1 || !last_is_large || (!records && any_records)) return NC_EVARSIZE;
  }
  if (format != FileFormat::classic) return NC_NOERR;
  // CDF-1 keeps beginnings in 31 bits.
  std::uint64_t begin = 0;
  for (const bool records : {false, true}) {
    for (const auto& v : schema.variables) {
      if (is_record(schema, v) != records) continue;
      if (begin > INT_MAX) return NC_EVARSIZE;
      std::uint64_t bytes = size_of(v.type);
      for (const auto d : v.dimensions)
        if (!schema.dimensions[d].unlimited) bytes *= schema.dimensions[d].length;
      begin += (bytes + 3) / 4 * 4;
    }
  }
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
    dirty_variables_[i] = false;
  }
  return schema_;
}

int CapturedFile::flush_schema() {
  if (!dirty_ || (together_ != nullptr && together_->ranks->rank() != 0)) return NC_NOERR;
  read_schema();
  const auto told = timed([&] { return out_->schema(schema_); });
  if (told.ok()) dirty_ = dirty_before_redef_ = false;
  if (told.ok() && together_ != nullptr) together_->owes_structure = false;
  return code_of(told);
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

CapturedFile::Reading CapturedFile::read(int variable, nc_type memory, bool whole) {
  const Stall stall(*this);
  Collective turn(collective(variable) ? turns() : nullptr);
  const auto* v = known(variable);
  if (explicit_modes() && defining_) {
    const bool grown = v != nullptr && has_grown(*v);
    return {grown && whole ? NC_EINDEFINE : NC_NOERR, true, grown};
  }
  if (!classic_format()) {
    if (v == nullptr) return {NC_ENOTVAR, true};
    // Text is not converted, and finding that out does not end define mode.
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
    owe_enddef();
  } else if (!classic_format()) {
    if (const int code = lib.nc_sync(ncid); code != NC_NOERR) return code;
    defining_ = fresh_ = false;
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
  const int settled = settle();
  stall.report();
  const auto closed = out_->close();
  return settled != NC_NOERR ? settled : code_of(closed);
}

int CapturedFile::abort() {
  if (!defining_ || !(fresh_ || dirty_)) return close();
  close_reader();
  close_shadow();
  if (fresh_) return code_of(out_->abort());
  // What was defined since the last redef is forgotten, as the library does; what was put before stays.
  if (dirty_before_redef_) flush_schema();
  return code_of(out_->close());
}

/// Until our number, which is free, is the lowest that is: netCDF-C gives that one. What holds the others is in memory.
int CapturedFile::hold_lower_numbers(std::vector<int>& held) const {
  for (;;) {
    const std::string name = "advectio-placeholder-" + std::to_string(held.size());
    int id = -1;
    if (const int code = lib.nc_create(name.c_str(), NC_NETCDF4 | NC_DISKLESS, &id); code != NC_NOERR) return code;
    if (id == ncid) return lib.nc_close(id);
    held.push_back(id);
    if (id > ncid) return NC_ENFILE;
  }
}

int CapturedFile::open_real(bool create_anew, int& id) const {
  const int flags = mode & ~NC_NOCLOBBER;
  if (const auto* all = ranks(); all != nullptr)
    return create_anew ? lib.nc_create_par(where.c_str(), flags, all->communicator(), all->hints(), &id)
                       : lib.nc_open_par(where.c_str(), NC_WRITE, all->communicator(), all->hints(), &id);
  return create_anew ? lib.nc_create(where.c_str(), flags, &id) : lib.nc_open(where.c_str(), NC_WRITE, &id);
}

/// The real file gets our number.
int CapturedFile::reopen(bool create_anew, bool define_mode) {
  std::vector<int> held;
  int id = -1, code = hold_lower_numbers(held);
  if (agreed(code)) code = open_real(create_anew, id);
  if (code == NC_NOERR && id != ncid) {
    lib.nc_close(id);
    code = NC_ENFILE;
  }
  for (const int other : held) lib.nc_close(other);
  if (code != NC_NOERR) return code;

  lib.nc_set_fill(ncid, fill_mode_, nullptr);
  if (create_anew) {
    code = define(lib, ncid, schema_);
    if (code == NC_NOERR && !define_mode) code = lib.nc_enddef(ncid);
  } else if (define_mode) {
    code = lib.nc_redef(ncid);
  }
  for (std::size_t v = 0; together_ != nullptr && v < together_->variables.size(); ++v)
    if (together_->variables[v].collective) lib.nc_var_par_access(ncid, static_cast<int>(v), NC_COLLECTIVE);
  return code;
}

/// Nothing has been said but definitions: they can all still be changed, and only in a file made anew can they stay so.
bool CapturedFile::all_fresh() const {
  return together_ != nullptr ? together_->ranks->all(!put_anything_) : fresh_ && !put_anything_;
}

int CapturedFile::hand_over() {
  Stall stall(*this);
  const bool define_mode = defining_;
  const bool create_anew = all_fresh();
  int code = NC_NOERR;
  if (create_anew) {
    close_reader();
    read_schema();
    close_shadow();
  } else {
    code = settle();
  }
  stall.report();
  const auto handed = out_->hand_over();
  if (code == NC_NOERR) code = code_of(handed);
  out_.reset();
  if (together_ != nullptr) together_->out = nullptr;
  return agreed(code) ? reopen(create_anew, define_mode) : code;
}

}  // namespace advectio
