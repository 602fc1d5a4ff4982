#include "capture/pnetcdf/parallel_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace advectio {

int code_of(const Error& error) noexcept {
  switch (error.sys) {
    case ENOSPC: return NC_ENO_SPACE;
    case EDQUOT: return NC_EQUOTA;
    case EACCES: return NC_EACCESS;
    case ENOENT: return NC_ENOENT;
    default: break;
  }
  return error.code == Code::full ? NC_ENO_SPACE : NC_EWRITE;
}

namespace {
int code_of(const Result<void>& result) noexcept {
  return result.ok() ? NC_NOERR : advectio::code_of(result.error());
}

std::uint64_t now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

int read_attributes(const RealLibrary& lib, int ncid, int variable, int count, std::vector<Attribute>& attributes) {
  attributes.clear();
  for (int i = 0; i < count; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    MPI_Offset length = 0;
    if (const int code = lib.ncmpi_inq_attname(ncid, variable, i, name); code != NC_NOERR) return code;
    if (const int code = lib.ncmpi_inq_att(ncid, variable, name, &type, &length); code != NC_NOERR) return code;
    Attribute a;
    a.name = name;
    a.type = static_cast<DataType>(type);
    a.count = static_cast<std::uint64_t>(length);
    a.values.resize(a.count * memory_size(type));
    if (a.count != 0) {
      if (const int code = lib.ncmpi_get_att(ncid, variable, name, a.values.data()); code != NC_NOERR) return code;
    }
    attributes.push_back(std::move(a));
  }
  return NC_NOERR;
}
}  // namespace

Stall::Stall(ParallelFile& file) noexcept : file_(file), begin_(now()) {}
Stall::~Stall() {
  file_.out().add_stall(now() - begin_);
}

ParallelFile::ParallelFile(const RealLibrary& real, int id, std::string name, std::string shadow, int rank, int ranks,
                           std::unique_ptr<SharedDataset> out)
    : lib(real),
      ncid(id),
      path(std::move(name)),
      out_(std::move(out)),
      shadow_(std::move(shadow)),
      rank_(rank),
      ranks_(ranks),
      converter_(real, format_, shadow_ + ".scratch") {
  int format = NC_FORMAT_CLASSIC;
  lib.ncmpi_inq_format(ncid, &format);
  format_ = schema_.format = static_cast<FileFormat>(format);
}

ParallelFile::~ParallelFile() {
  close_reader();
  close_shadow();
}

// --- modes and metadata --------------------------------------------------------------------------------------------

int ParallelFile::redef() {
  if (!owed_) {
    if (const int code = lib.ncmpi_redef(ncid); code != NC_NOERR) return code;
  }
  owed_ = false;
  defines(true);
  return NC_NOERR;
}

int ParallelFile::enddef() {
  if (defining_) {
    keep_shadow_empty();
    owed_ = surely_fits();
  } else if (const int code = settle(); code != NC_NOERR) {
    return code;
  }
  if (!owed_) {
    if (const int code = lib.ncmpi_enddef(ncid); code != NC_NOERR) return code;
  }
  defines(false);
  return NC_NOERR;
}

int ParallelFile::settle() {
  if (!owed_) return NC_NOERR;
  owed_ = false;
  return lib.ncmpi_enddef(ncid);
}

/// Can the end of define mode find nothing wrong? It looks at the sizes that the format can say, after padding.
bool ParallelFile::surely_fits() {
  constexpr std::uint64_t GiB = std::uint64_t{1} << 30U;
  switch (format_) {
    case FileFormat::classic: return bytes_defined_ < GiB;
    case FileFormat::offset64: return largest_ < 3 * GiB;
    default: return bytes_defined_ < GiB * GiB;
  }
}

void ParallelFile::defines(bool now_defining) {
  defining_ = now_defining;
  independent_ = false;  // the library ends it by itself
  close_reader();
  if (now_defining) return;
  fresh_ = false;
  touch();
}

void ParallelFile::independent(bool now_independent) {
  independent_ = now_independent;
  close_reader();
}

void ParallelFile::keep_shadow_empty() {
  int variables = 0;
  if (lib.ncmpi_inq(ncid, nullptr, &variables, nullptr, nullptr) != NC_NOERR) return;
  for (int v = settled_variables_; v < variables; ++v) {
    std::uint64_t bytes = UINT64_MAX;
    if (const auto* k = known(v); k != nullptr) {
      bytes = k->element;
      for (std::size_t d = k->record ? 1 : 0; d < k->lengths.size(); ++d)
        if (__builtin_mul_overflow(bytes, k->lengths[d], &bytes)) bytes = UINT64_MAX;
    }
    largest_ = std::max(largest_, bytes);
    if (__builtin_add_overflow(bytes_defined_, bytes, &bytes_defined_)) bytes_defined_ = UINT64_MAX;
    int no_fill = 1;
    if (lib.ncmpi_inq_var_fill(ncid, v, &no_fill, nullptr) != NC_NOERR || no_fill != 0) continue;
    set_filled(v, true);
    lib.ncmpi_def_var_fill(ncid, v, 1, nullptr);
  }
  settled_variables_ = variables;
}

void ParallelFile::align(MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad, MPI_Offset record_align) {
  schema_.header_pad = static_cast<std::uint64_t>(std::max<MPI_Offset>(header_pad, 0));
  schema_.data_align = static_cast<std::uint64_t>(std::max<MPI_Offset>(data_align, 0));
  schema_.data_pad = static_cast<std::uint64_t>(std::max<MPI_Offset>(data_pad, 0));
  schema_.record_align = static_cast<std::uint64_t>(std::max<MPI_Offset>(record_align, 0));
}

bool ParallelFile::filled(int variable) const noexcept {
  return variable >= 0 && static_cast<std::size_t>(variable) < filled_.size() &&
         filled_[static_cast<std::size_t>(variable)];
}

void ParallelFile::set_filled(int variable, bool is_filled) {
  if (variable < 0) return;
  if (filled_.size() <= static_cast<std::size_t>(variable)) filled_.resize(static_cast<std::size_t>(variable) + 1);
  filled_[static_cast<std::size_t>(variable)] = is_filled;
}

int ParallelFile::record_dimension() {
  int dimension = -1;
  return lib.ncmpi_inq_unlimdim(ncid, &dimension) == NC_NOERR ? dimension : -1;
}

const ParallelFile::Known* ParallelFile::known(int variable) {
  if (variable < 0) return nullptr;
  while (known_.size() <= static_cast<std::size_t>(variable)) {
    Known k;
    int rank = 0;
    const int id = static_cast<int>(known_.size());
    if (lib.ncmpi_inq_var(ncid, id, nullptr, &k.type, &rank, nullptr, nullptr) != NC_NOERR) return nullptr;
    std::vector<int> dimensions(static_cast<std::size_t>(rank));
    lib.ncmpi_inq_var(ncid, id, nullptr, nullptr, nullptr, dimensions.data(), nullptr);
    k.element = memory_size(k.type);
    k.record = rank > 0 && dimensions[0] == record_dimension();
    for (const int d : dimensions) {
      MPI_Offset length = 0;
      lib.ncmpi_inq_dimlen(ncid, d, &length);
      k.lengths.push_back(static_cast<std::uint64_t>(length));
    }
    known_.push_back(std::move(k));
  }
  return &known_[static_cast<std::size_t>(variable)];
}

/// As the shadow has it now. A shadow that cannot be read is one whose library is ending; what was read before stands.
const Schema& ParallelFile::read_schema() {
  if (!dirty_) return schema_;
  int dimensions = 0, variables = 0, attributes = 0, record = -1;
  if (lib.ncmpi_inq(ncid, &dimensions, &variables, &attributes, &record) != NC_NOERR) return schema_;
  schema_.dimensions.assign(static_cast<std::size_t>(dimensions), {});
  for (int i = 0; i < dimensions; ++i) {
    auto& d = schema_.dimensions[static_cast<std::size_t>(i)];
    char name[NC_MAX_NAME + 1] = {};
    MPI_Offset length = 0;
    lib.ncmpi_inq_dim(ncid, i, name, &length);
    d.name = name;
    d.unlimited = i == record;
    d.length = d.unlimited ? 0 : static_cast<std::uint64_t>(length);
  }
  read_attributes(lib, ncid, NC_GLOBAL, attributes, schema_.attributes);
  schema_.variables.assign(static_cast<std::size_t>(variables), {});
  for (int i = 0; i < variables; ++i) {
    auto& v = schema_.variables[static_cast<std::size_t>(i)];
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    int rank = 0, count = 0;
    lib.ncmpi_inq_var(ncid, i, name, &type, &rank, nullptr, &count);
    std::vector<int> ids(static_cast<std::size_t>(rank));
    lib.ncmpi_inq_var(ncid, i, nullptr, nullptr, nullptr, ids.data(), nullptr);
    v.name = name;
    v.type = static_cast<DataType>(type);
    v.dimensions.assign(ids.begin(), ids.end());
    read_attributes(lib, ncid, i, count, v.attributes);
    const auto fill = std::find_if(v.attributes.begin(), v.attributes.end(), [&v](const Attribute& a) {
      return a.name == "_FillValue" && a.type == v.type && a.count == 1;
    });
    v.has_fill = fill != v.attributes.end();
    if (v.has_fill && fill->values != default_fill(v.type)) v.fill = fill->values;
    // Records are filled by the program itself (ncmpi_fill_var_rec).
    v.no_fill = !filled(i) || (rank > 0 && ids[0] == record);
  }
  return schema_;
}

int ParallelFile::flush_schema() {
  if (rank_ != 0 || !dirty_) return NC_NOERR;
  read_schema();
  const auto told = out_->schema(schema_);
  if (told.ok()) dirty_ = false;
  return code_of(told);
}

int ParallelFile::fill_record(int variable, MPI_Offset record) {
  if (defining_) return NC_EINDEFINE;
  if (independent_) return NC_EINDEP;
  const auto* v = known(variable);
  if (v == nullptr) return NC_ENOTVAR;
  if (!v->record) return NC_ENOTRECVAR;
  if (!filled(variable)) return NC_ENOTFILL;
  if (record < 0) return NC_EINVALCOORDS;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  const Stall stall(*this);

  // Every rank fills its share of the rows.
  Box box{std::vector<std::uint64_t>(v->lengths.size(), 0), v->lengths};
  box.start[0] = static_cast<std::uint64_t>(record);
  box.count[0] = 1;
  const auto ranks = static_cast<std::uint64_t>(ranks_), rank = static_cast<std::uint64_t>(rank_);
  const std::uint64_t rows = box.rank() > 1 ? v->lengths[1] : 1;
  const auto from = rows * rank / ranks, to = rows * (rank + 1) / ranks;
  out_->grow(static_cast<std::uint64_t>(record) + 1);
  if (box.rank() > 1) box.start[1] = from;
  const Schema& schema = read_schema();
  const auto& described = schema.variables[static_cast<std::size_t>(variable)];
  const Bytes fill = described.fill.empty() ? default_fill(described.type) : described.fill;
  for (auto row = from; row < to; ++row) {
    if (box.rank() > 1) {
      box.start[1] = row;
      box.count[1] = 1;
    }
    Bytes values;
    for (std::uint64_t n = box.volume(); n > 0; --n) values.insert(values.end(), fill.begin(), fill.end());
    const auto put = out_->put(static_cast<std::uint32_t>(variable), box, {}, Memory{values.data(), {}}, v->element);
    if (!put.ok()) return code_of(put);
  }
  return NC_NOERR;
}

// --- reading back --------------------------------------------------------------------------------------------------

void ParallelFile::close_reader() {
  if (reader_ < 0) return;
  lib.ncmpi_close(reader_);
  reader_ = -1;
}

int ParallelFile::variable_in_reader(int variable) {
  // By name: whoever wrote the file need not have numbered its variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  int id = variable;
  if (known(variable) != nullptr && lib.ncmpi_inq_varname(ncid, variable, name) == NC_NOERR)
    lib.ncmpi_inq_varid(reader_, name, &id);
  return id;
}

ParallelFile::Reading ParallelFile::read(Mode mode, int variable) {
  Reading reading;
  if (!right_mode(mode)) {
    reading.ask_shadow = true;
    return reading;
  }
  const Stall stall(*this);
  if (reader_ < 0) {
    reading.code = flush_schema();
    // What the others have put before this call is then of an earlier turn.
    if (mode == Mode::collective) out_->end_turn();
    const auto visible = out_->wait_visible();
    if (reading.code == NC_NOERR) reading.code = code_of(visible);
    if (reading.code != NC_NOERR) return reading;
    reading.code = lib.ncmpi_open(lib.mpi.self, out_->file_path().c_str(), NC_NOWRITE, lib.mpi.no_info, &reader_);
    if (reading.code != NC_NOERR) {
      reader_ = -1;
      return reading;
    }
    reader_independent_ = mode == Mode::independent;
    if (reader_independent_) lib.ncmpi_begin_indep_data(reader_);
  } else if (mode == Mode::collective) {
    out_->end_turn();
  }
  reading.ncid = reader_;
  reading.variable = variable_in_reader(variable);
  return reading;
}

// --- frames and the end --------------------------------------------------------------------------------------------

int ParallelFile::sync() {
  const Collective collective(turns());
  const Stall stall(*this);
  if (const int code = settle(); code != NC_NOERR) return code;
  if (const int code = lib.ncmpi_sync(ncid); code != NC_NOERR) return code;
  close_reader();
  const int flushed = flush_schema();
  const auto synced = out_->sync();
  return flushed != NC_NOERR ? flushed : code_of(synced);
}

void ParallelFile::close_shadow() {
  if (!shadow_open_) return;
  shadow_open_ = false;
  lib.ncmpi_abort(ncid);
  unlink(shadow_.c_str());
}

int ParallelFile::close() {
  int code = puts_.empty() && gets_.empty() ? NC_NOERR : NC_EPENDING;
  drop_pending();
  close_reader();
  if (defining_) {
    // The library ends define mode by itself, and may find then that the file cannot be laid out.
    keep_shadow_empty();
    if (const int ended = lib.ncmpi_enddef(ncid); ended != NC_NOERR && code == NC_NOERR) code = ended;
    dirty_ = true;
  }
  const int flushed = flush_schema();
  converter_.close(true);
  close_shadow();
  const auto closed = out_->close();
  if (code == NC_NOERR) code = flushed != NC_NOERR ? flushed : code_of(closed);
  return code;
}

int ParallelFile::abort() {
  if (!defining_) return close();
  drop_pending();
  close_reader();
  converter_.close(true);
  close_shadow();
  // What was defined since the last redef is forgotten; what was put before stays.
  return code_of(fresh_ ? out_->abort() : out_->close());
}

void ParallelFile::close_at_exit() {
  drop_pending();
  if (!defining_) flush_schema();
  (void)out_->close();
  // MPI has ended: what it holds goes with the process.
  shadow_open_ = false;
  reader_ = -1;
  converter_.close(false);
  unlink(shadow_.c_str());
}

}  // namespace advectio
