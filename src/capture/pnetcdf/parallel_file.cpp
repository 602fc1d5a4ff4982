#include "capture/pnetcdf/parallel_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <utility>

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

int read_attribute(const RealLibrary& lib, int ncid, int variable, const char* name, Attribute& a) {
  nc_type type = NC_NAT;
  MPI_Offset length = 0;
  if (const int code = lib.ncmpi_inq_att(ncid, variable, name, &type, &length); code != NC_NOERR) return code;
  a.name = name;
  a.type = static_cast<DataType>(type);
  a.count = static_cast<std::uint64_t>(length);
  a.values.resize(a.count * memory_size(type));
  return a.count != 0 ? lib.ncmpi_get_att(ncid, variable, name, a.values.data()) : NC_NOERR;
}

int read_attributes(const RealLibrary& lib, int ncid, int variable, int count, std::vector<Attribute>& attributes) {
  attributes.clear();
  for (int i = 0; i < count; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    Attribute a;
    if (const int code = lib.ncmpi_inq_attname(ncid, variable, i, name); code != NC_NOERR) return code;
    if (const int code = read_attribute(lib, ncid, variable, name, a); code != NC_NOERR) return code;
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
  // What is abandoned in this define mode goes back to here.
  described();
  if (!owed_) {
    if (const int code = lib.ncmpi_redef(ncid); code != NC_NOERR) return code;
  }
  owed_ = false;
  defining_ = true;
  independent_ = false;  // the library ends it by itself
  return NC_NOERR;
}

int ParallelFile::enddef() {
  return end_definitions(nullptr);
}

int ParallelFile::enddef(MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad, MPI_Offset record_align) {
  const MPI_Offset pads[4] = {header_pad, data_align, data_pad, record_align};
  return end_definitions(pads);
}

/// The library finds here what its format cannot hold. Nothing of that goes further.
int ParallelFile::end_definitions(const MPI_Offset* pads) {
  const auto end = [&] {
    return pads == nullptr ? lib.ncmpi_enddef(ncid) : lib.ncmpi__enddef(ncid, pads[0], pads[1], pads[2], pads[3]);
  };
  if (!defining_) {
    const int code = settle();
    return code != NC_NOERR ? code : end();
  }
  take_over_fill_modes();
  owed_ = pads == nullptr && surely_fits();
  if (!owed_) {
    if (const int code = end(); code != NC_NOERR) return code;
  }
  if (pads != nullptr) {
    std::uint64_t* const to[4] = {&schema_.header_pad, &schema_.data_align, &schema_.data_pad, &schema_.record_align};
    for (int i = 0; i < 4; ++i) {
      *to[i] = static_cast<std::uint64_t>(pads[i]);
      // Whatever the pads, PnetCDF aligns data to four bytes; netCDF-C would not, and then refuses its own file.
      if (to[i] == &schema_.data_align || to[i] == &schema_.record_align)
        *to[i] = std::max<std::uint64_t>((*to[i] + 3) / 4 * 4, 4);
      if (__builtin_add_overflow(bytes_defined_, *to[i], &bytes_defined_)) bytes_defined_ = UINT64_MAX;
    }
  }
  const auto first = schema_.variables.size();
  defining_ = independent_ = fresh_ = false;
  untold_ = true;
  if (rank_ == 0) out_->owe_schema();
  return fill_added_records(first);
}

int ParallelFile::settle() {
  if (!owed_) return NC_NOERR;
  owed_ = false;
  return lib.ncmpi_enddef(ncid);
}

/// Can the end of define mode find nothing wrong? It looks at the sizes that the format can say, after padding.
bool ParallelFile::surely_fits() const noexcept {
  constexpr std::uint64_t GiB = std::uint64_t{1} << 30U;
  switch (format_) {
    case FileFormat::classic: return bytes_defined_ < GiB;
    case FileFormat::offset64: return largest_ < 3 * GiB;
    default: return bytes_defined_ < GiB * GiB;
  }
}

/// Before the shadow leaves define mode: it is not to fill its variables, for it would then hold them.
void ParallelFile::take_over_fill_modes() {
  int variables = 0;
  if (lib.ncmpi_inq(ncid, nullptr, &variables, nullptr, nullptr) != NC_NOERR) return;
  const auto filled_there = [this](int v) {
    int no_fill = 1;
    return lib.ncmpi_inq_var_fill(ncid, v, &no_fill, nullptr) == NC_NOERR && no_fill == 0;
  };
  const int before = static_cast<int>(filled_.size());
  for (int v = shadow_would_fill_ ? 0 : before; v < variables; ++v) {
    const bool fills = filled_there(v);
    if (fills) lib.ncmpi_def_var_fill(ncid, v, 1, nullptr);
    if (v < before) continue;
    filled_.push_back(fills);
    std::uint64_t bytes = UINT64_MAX;
    if (const auto* k = known(v); k != nullptr) {
      bytes = k->element;
      for (std::size_t d = k->record ? 1 : 0; d < k->lengths.size(); ++d)
        if (__builtin_mul_overflow(bytes, k->lengths[d], &bytes)) bytes = UINT64_MAX;
    }
    largest_ = std::max(largest_, bytes);
    if (__builtin_add_overflow(bytes_defined_, bytes, &bytes_defined_)) bytes_defined_ = UINT64_MAX;
  }
  shadow_would_fill_ = false;
}

void ParallelFile::set_filled(int variable, bool is_filled) {
  if (!fill_mode_kept(variable)) return;
  filled_[static_cast<std::size_t>(variable)] = is_filled;
  shadow_would_fill_ = shadow_would_fill_ || is_filled;
}

void ParallelFile::set_all_filled(bool are_filled) {
  for (std::size_t v = 0; v < filled_.size(); ++v) set_filled(static_cast<int>(v), are_filled);
}

void ParallelFile::independent(bool now_independent) {
  independent_ = now_independent;
  // The others may put and read from here on while rank 0 waits for them.
  if (independent_) (void)flush_schema();
}

void ParallelFile::touch(int variable) {
  if (variable == NC_GLOBAL)
    stale_globals_ = true;
  else if (variable >= 0)
    stale_.push_back(variable);
  changed();
}

void ParallelFile::touch_dimensions() {
  stale_dimensions_ = true;
  changed();
}

/// In define mode that counts when it ends.
void ParallelFile::changed() {
  if (defining_) return;
  untold_ = true;
  if (rank_ == 0) out_->owe_schema();
  if (independent_) (void)flush_schema();
}

ParallelFile::LateFill::LateFill(ParallelFile& file, int variable, const char* name)
    : file_(file), variable_(variable) {
  late_ = file.defining_ && variable >= 0 && static_cast<std::size_t>(variable) < file.schema_.variables.size() &&
          name != nullptr && std::string_view(name) == "_FillValue";
  there_ = late_ && read_attribute(file.lib, file.ncid, variable, name, before_) == NC_NOERR;
}

int ParallelFile::LateFill::undo(int code) {
  if (!late_ || code != NC_NOERR) return code;
  const char* name = "_FillValue";
  if (there_)
    file_.lib.ncmpi_put_att(file_.ncid, variable_, name, static_cast<nc_type>(before_.type),
                            static_cast<MPI_Offset>(before_.count), before_.values.data());
  else
    file_.lib.ncmpi_del_att(file_.ncid, variable_, name);
  return NC_ELATEFILL;
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

/// As it is in the file, or will be: without what the program is defining. Only what may have changed is read again.
/// A shadow that cannot be read is one whose library is ending; what was read before stands.
const Schema& ParallelFile::described() {
  if (defining_) return schema_;
  int dimensions = 0, variables = 0, attributes = 0, record = -1;
  if (lib.ncmpi_inq(ncid, &dimensions, &variables, &attributes, &record) != NC_NOERR) return schema_;
  if (std::exchange(stale_dimensions_, false)) schema_.dimensions.clear();
  for (int i = static_cast<int>(schema_.dimensions.size()); i < dimensions; ++i) {
    Dimension d;
    char name[NC_MAX_NAME + 1] = {};
    MPI_Offset length = 0;
    lib.ncmpi_inq_dim(ncid, i, name, &length);
    d.name = name;
    d.unlimited = i == record;
    d.length = d.unlimited ? 0 : static_cast<std::uint64_t>(length);
    schema_.dimensions.push_back(std::move(d));
  }
  if (std::exchange(stale_globals_, false)) read_attributes(lib, ncid, NC_GLOBAL, attributes, schema_.attributes);
  const int before = static_cast<int>(schema_.variables.size());
  schema_.variables.resize(static_cast<std::size_t>(variables));
  std::sort(stale_.begin(), stale_.end());
  stale_.erase(std::unique(stale_.begin(), stale_.end()), stale_.end());
  for (const int v : stale_)
    if (v < before) describe_variable(v, record);
  stale_.clear();
  for (int v = before; v < variables; ++v) describe_variable(v, record);
  return schema_;
}

void ParallelFile::describe_variable(int variable, int record) {
  auto& v = schema_.variables[static_cast<std::size_t>(variable)];
  char name[NC_MAX_NAME + 1] = {};
  nc_type type = NC_NAT;
  int rank = 0, count = 0;
  lib.ncmpi_inq_var(ncid, variable, name, &type, &rank, nullptr, &count);
  std::vector<int> ids(static_cast<std::size_t>(rank));
  lib.ncmpi_inq_var(ncid, variable, nullptr, nullptr, nullptr, ids.data(), nullptr);
  v.name = name;
  v.type = static_cast<DataType>(type);
  v.dimensions.assign(ids.begin(), ids.end());
  read_attributes(lib, ncid, variable, count, v.attributes);
  const auto fill = std::find_if(v.attributes.begin(), v.attributes.end(), [&v](const Attribute& a) {
    return a.name == "_FillValue" && a.type == v.type && a.count == 1;
  });
  v.has_fill = fill != v.attributes.end();
  v.fill = v.has_fill && fill->values != default_fill(v.type) ? fill->values : Bytes{};
  // Records are filled by the program (ncmpi_fill_var_rec), and in fill_added_records.
  v.no_fill = !filled(variable) || (rank > 0 && ids[0] == record);
}

int ParallelFile::flush_schema() {
  if (rank_ != 0 || !untold_ || fresh_) return NC_NOERR;
  const auto told = out_->schema(described());
  if (told.ok()) untold_ = false;
  return code_of(told);
}

// --- fill values ---------------------------------------------------------------------------------------------------

/// The bytes that this variable is filled with; false: there is a `_FillValue` of another type.
bool ParallelFile::fill_value(int variable, Bytes& value) {
  Attribute fill;
  const auto* v = known(variable);
  value = v != nullptr ? default_fill(static_cast<DataType>(v->type)) : Bytes{};
  if (v == nullptr || read_attribute(lib, ncid, variable, "_FillValue", fill) != NC_NOERR) return true;
  value = fill.values;
  return static_cast<nc_type>(fill.type) == v->type && fill.count == 1;
}

/// This rank's share of a record. The elements are divided as the library does it: ranks may name different records.
int ParallelFile::fill_share(int variable, std::uint64_t record) {
  const auto& v = *known(variable);
  Bytes fill;
  if (!fill_value(variable, fill)) return NC_EBADTYPE;
  std::uint64_t elements = 1;
  for (std::size_t d = 1; d < v.lengths.size(); ++d) elements *= v.lengths[d];
  const auto ranks = static_cast<std::uint64_t>(ranks_), rank = static_cast<std::uint64_t>(rank_);
  auto at = elements / ranks * rank + std::min(rank, elements % ranks);
  const auto end = at + elements / ranks + (rank < elements % ranks ? 1 : 0);
  out_->grow(record + 1);
  while (at < end) {
    // As many whole rows as begin here, or a part of one.
    std::size_t d = v.lengths.size() - 1;
    std::uint64_t inner = 1;
    while (d > 1 && at % (inner * v.lengths[d]) == 0 && at + inner * v.lengths[d] <= end) inner *= v.lengths[d--];
    Box box{std::vector<std::uint64_t>(v.lengths.size(), 0), std::vector<std::uint64_t>(v.lengths.size(), 1)};
    auto rest = at;
    for (std::size_t i = v.lengths.size(); i-- > 1;) {
      box.start[i] = rest % v.lengths[i];
      rest /= v.lengths[i];
      if (i > d) box.count[i] = v.lengths[i];
    }
    box.start[0] = record;
    if (d > 0) box.count[d] = std::min((end - at) / inner, v.lengths[d] - box.start[d]);
    Bytes values;
    for (auto n = box.volume(); n > 0; --n) values.insert(values.end(), fill.begin(), fill.end());
    const auto put = out_->put(static_cast<std::uint32_t>(variable), box, {}, Memory{values.data(), {}}, v.element);
    if (!put.ok()) return code_of(put);
    at += box.volume();
  }
  return NC_NOERR;
}

int ParallelFile::fill_record(int variable, MPI_Offset record) {
  const auto* v = known(variable);
  if (v == nullptr) return NC_ENOTVAR;
  if (!v->record) return NC_ENOTRECVAR;
  Attribute fill;
  if (!filled(variable) && read_attribute(lib, ncid, variable, "_FillValue", fill) != NC_NOERR) return NC_ENOTFILL;
  if (defining_) return NC_EINDEFINE;
  if (record < 0) return NC_EINVALCOORDS;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  const Stall stall(*this);
  return fill_share(variable, static_cast<std::uint64_t>(record));
}

/// Variables from `first` on have been added where there may be records: those of them that are to be filled are.
int ParallelFile::fill_added_records(std::size_t first) {
  std::vector<int> added;
  for (auto v = first; v < filled_.size(); ++v)
    if (const auto* k = known(static_cast<int>(v)); k != nullptr && k->record && filled_[v])
      added.push_back(static_cast<int>(v));
  if (added.empty() || first == 0) return NC_NOERR;
  const auto records = out_->records();
  if (records == 0) return NC_NOERR;
  // The others' blocks come after rank 0's word on the variables, which belongs to the turn that ends here.
  out_->end_turn();
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  const Stall stall(*this);
  for (std::uint64_t r = 0; r < records; ++r)
    for (const int v : added)
      if (const int code = fill_share(v, r); code != NC_NOERR) return code;
  return NC_NOERR;
}

// --- reading back --------------------------------------------------------------------------------------------------

void ParallelFile::close_reader() {
  if (reader_ < 0) return;
  lib.ncmpi_close(reader_);
  reader_ = -1;
}

/// On the file as it is now. The reader stays open for as long as nothing can have changed.
int ParallelFile::open_reader(bool independent) {
  if (reader_generation_ != out_->generation()) close_reader();
  if (reader_ < 0) {
    if (const auto visible = out_->wait_visible(); !visible.ok()) return code_of(visible);
    if (const int code = lib.ncmpi_open(lib.mpi.self, out_->file_path().c_str(), NC_NOWRITE, lib.mpi.no_info, &reader_);
        code != NC_NOERR) {
      reader_ = -1;
      return code;
    }
    reader_generation_ = out_->generation();
    reader_independent_ = false;
    int dimension = -1;
    MPI_Offset records = 0;
    if (lib.ncmpi_inq_unlimdim(reader_, &dimension) == NC_NOERR && dimension >= 0)
      lib.ncmpi_inq_dimlen(reader_, dimension, &records);
    reader_records_ = static_cast<std::uint64_t>(records);
  }
  if (reader_independent_ != independent) {
    const int code = independent ? lib.ncmpi_begin_indep_data(reader_) : lib.ncmpi_end_indep_data(reader_);
    if (code != NC_NOERR) return code;
    reader_independent_ = independent;
  }
  return NC_NOERR;
}

int ParallelFile::variable_in_reader(int variable) {
  // By name: whoever wrote the file need not have numbered its variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  int id = variable;
  if (known(variable) != nullptr && lib.ncmpi_inq_varname(ncid, variable, name) == NC_NOERR)
    lib.ncmpi_inq_varid(reader_, name, &id);
  return id;
}

/// All records that there are for this rank: the file may have others.
int ParallelFile::get_records(const Request& r, bool collective) {
  const auto& v = *known(r.variable);
  if (r.memory.type != NC_NAT && (r.memory.type == NC_CHAR) != (v.type == NC_CHAR)) return NC_ECHAR;
  const std::vector<MPI_Offset> start(v.lengths.size(), 0);
  std::vector<MPI_Offset> count(v.lengths.begin(), v.lengths.end());
  count[0] = static_cast<MPI_Offset>(out_->records());
  const auto call = collective ? lib.ncmpi_get_vara_all : lib.ncmpi_get_vara;
  return call(reader_, variable_in_reader(r.variable), start.data(), count.data(), const_cast<void*>(r.data),
              r.memory.count, r.memory.type != NC_NAT ? mpi_type(lib.mpi, r.memory.type) : r.memory.datatype);
}

ParallelFile::Reading ParallelFile::read(Mode mode, const std::vector<Request>& requests) {
  Reading reading;
  reading.ask_shadow = !right_mode(mode);
  for (std::size_t i = 0; !reading.ask_shadow && i < requests.size(); ++i) {
    const auto* v = known(requests[i].variable);
    Place at;
    reading.ask_shadow = v == nullptr || !place(requests[i], *v, at, true);
    if (requests[i].one_of_many && !reading.ask_shadow && !at.box.empty()) (void)number_of_get();
  }
  const Stall stall(*this);
  if (!reading.ask_shadow) reading.code = flush_schema();
  // What the others have put before this call is then of an earlier turn.
  if (mode == Mode::collective) out_->end_turn(true);
  if (reading.ask_shadow) {
    show_records();
    return reading;
  }
  if (reading.code == NC_NOERR) reading.code = open_reader(mode == Mode::independent);
  if (reading.code != NC_NOERR) return reading;
  const auto whole = [this](const Request& r) { return r.form == Form::var && known(r.variable)->record; };
  if (requests.size() == 1 && whole(requests[0]) && out_->records() != reader_records_) {
    reading.done = true;
    reading.code = get_records(requests[0], mode == Mode::collective);
    return reading;
  }
  reading.ncid = reader_;
  for (const auto& r : requests) reading.variables.push_back(variable_in_reader(r.variable));
  return reading;
}

ParallelFile::Reading ParallelFile::read_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts,
                                               MPI_Offset* const* counts, const MemoryType& memory) {
  std::vector<Request> requests;
  for (int i = 0; i < boxes; ++i) {
    Request r;
    r.variable = variable;
    r.memory = memory;
    r.start = starts != nullptr ? starts[i] : nullptr;
    r.count = counts != nullptr ? counts[i] : nullptr;
    r.form = r.count != nullptr ? Form::vara : Form::var1;
    requests.push_back(r);
  }
  if (boxes <= 0) requests.emplace_back();  // the shadow knows what that is
  auto reading = read(mode, requests);
  // The library posts it, and waits.
  const auto rank = known(variable) != nullptr ? known(variable)->lengths.size() : 0;
  const auto nothing = [rank](const Request& r) { return names_nothing(r, rank); };
  if (rank > 0 && !reading.ask_shadow && !std::all_of(requests.begin(), requests.end(), nothing)) (void)number_of_get();
  return reading;
}

void ParallelFile::show_records() {
  if (defining_ || settle() != NC_NOERR) return;
  const auto records = static_cast<MPI_Offset>(out_->records());
  if (records <= shown_records_) return;
  int variable = 0;
  while (known(variable) != nullptr && !known(variable)->record) ++variable;
  if (known(variable) == nullptr) return;
  // A collective put of nothing behind the last record is how the library grows without any data.
  std::vector<MPI_Offset> start(known(variable)->lengths.size(), 0), count(start.size(), 0);
  start[0] = records;
  if (independent_) lib.ncmpi_end_indep_data(ncid);
  lib.ncmpi_put_vara_all(ncid, variable, start.data(), count.data(), nullptr, 0, lib.mpi.null_type);
  if (independent_) lib.ncmpi_begin_indep_data(ncid);
  shown_records_ = records;
}

int ParallelFile::answered(const Answer& answer, int code, int* request) {
  if (code != NC_NOERR) return code;
  (void)lib.ncmpi_cancel(ncid, NC_REQ_ALL, nullptr, nullptr);
  if (request != nullptr) *request = NC_REQ_NULL;
  return answer.nothing ? NC_NOERR : answer.code;
}

// --- frames and the end --------------------------------------------------------------------------------------------

int ParallelFile::sync() {
  const Collective collective(turns());
  const Stall stall(*this);
  if (const int code = settle(); code != NC_NOERR) return code;
  if (const int code = lib.ncmpi_sync(ncid); code != NC_NOERR) return code;
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
  // The library ends define mode by itself, and may find then that the file cannot be laid out.
  int code = defining_ ? end_definitions(nullptr) : NC_NOERR;
  if ((!puts_.empty() || !gets_.empty()) && code == NC_NOERR) code = NC_EPENDING;
  drop_pending(true);
  if (fresh_) {
    // The library leaves it without a byte.
    (void)remove();
    if (rank_ != 0) return code;
    if (const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666); fd >= 0) ::close(fd);
    return code;
  }
  const int finished = finish();
  return code != NC_NOERR ? code : finished;
}

int ParallelFile::abort() {
  drop_pending(false);
  return fresh_ ? remove() : finish();
}

/// A file that was never laid out. Until the server has let go of its path.
int ParallelFile::remove() {
  close_reader();
  converter_.close(true);
  close_shadow();
  const auto aborted = out_->abort();
  (void)out_->hand_over();
  return code_of(aborted);
}

/// With what there was when define mode last ended, and all that was put.
int ParallelFile::finish() {
  close_reader();
  const int flushed = flush_schema();
  converter_.close(true);
  close_shadow();
  const auto closed = out_->close();
  return flushed != NC_NOERR ? flushed : code_of(closed);
}

void ParallelFile::close_at_exit() {
  drop_pending(false);
  flush_schema();
  (void)out_->close();
  // MPI has ended: what it holds goes with the process.
  shadow_open_ = false;
  reader_ = -1;
  converter_.close(false);
  unlink(shadow_.c_str());
}

}  // namespace advectio
