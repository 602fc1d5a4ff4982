#include "capture/pnetcdf/parallel_file.h"

#include "capture/coupling.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "capture/shadow/metadata.h"

namespace advectio::pnetcdf {

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

int code_of(const Result<void>& result) noexcept {
  return result.ok() ? NC_NOERR : code_of(result.error());
}

namespace {
/// See shadow/metadata.h.
struct Calls {
  const RealLibrary& lib;
  int ncid;

  int dimension(int id, char* name, std::uint64_t& length) const {
    MPI_Offset n = 0;
    const int code = lib.ncmpi_inq_dim(ncid, id, name, &n);
    length = static_cast<std::uint64_t>(n);
    return code;
  }
  int variable(int id, char* name, int& type, std::vector<std::uint32_t>& dimensions) const {
    int rank = 0;
    if (const int code = lib.ncmpi_inq_var(ncid, id, name, &type, &rank, nullptr, nullptr); code != NC_NOERR)
      return code;
    std::vector<int> ids(static_cast<std::size_t>(rank));
    const int code = lib.ncmpi_inq_var(ncid, id, nullptr, nullptr, nullptr, ids.data(), nullptr);
    dimensions.assign(ids.begin(), ids.end());
    return code;
  }
  int attribute_count(int variable, int& count) const {
    return variable == NC_GLOBAL ? lib.ncmpi_inq(ncid, nullptr, nullptr, &count, nullptr)
                                 : lib.ncmpi_inq_varnatts(ncid, variable, &count);
  }
  int attribute_name(int variable, int number, char* name) const {
    return lib.ncmpi_inq_attname(ncid, variable, number, name);
  }
  int attribute(int variable, const char* name, int& type, std::uint64_t& count) const {
    MPI_Offset n = 0;
    const int code = lib.ncmpi_inq_att(ncid, variable, name, &type, &n);
    count = static_cast<std::uint64_t>(n);
    return code;
  }
  int attribute_values(int variable, const char* name, void* values) const {
    return lib.ncmpi_get_att(ncid, variable, name, values);
  }
};
static_assert(NC_MAX_NAME == shadow::name_max && NC_EBADTYPE == shadow::bad_type);

}  // namespace

ParallelFile::ParallelFile(const RealLibrary& real, int id, std::string name, std::string shadow, int rank, int ranks,
                           std::unique_ptr<SharedDataset> out)
    : lib(real),
      ncid(id),
      path(std::move(name)),
      out_(std::move(out)),
      stall_(*out_),
      shadow_(std::move(shadow)),
      rank_(rank),
      ranks_(ranks),
      reader_(real, id),
      converter_(real, format_, shadow_ + ".scratch") {
  int format = NC_FORMAT_CLASSIC;
  lib.ncmpi_inq_format(ncid, &format);
  format_ = schema_.format = static_cast<FileFormat>(format);
}

ParallelFile::~ParallelFile() {
  if (auto* workflow = coupled ? capture::workflow_of_process() : nullptr; workflow != nullptr)
    workflow->close_for_server(*coupled);
  reader_.close();
  close_shadow();
}

// --- modes and metadata -------------------------------------------------------------------------

int ParallelFile::redef() {
  // ncmpi_abort goes back to this schema.
  described();
  // With an end pending, the shadow is still in define mode.
  if (!define_mode_.take_pending()) {
    if (const int code = lib.ncmpi_redef(ncid); code != NC_NOERR) return code;
  }
  define_mode_.begin();
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
  if (!define_mode_.defining()) {
    const int code = end_pending();
    return code != NC_NOERR ? code : end();
  }
  take_over_fill_modes();
  if (pads == nullptr && surely_fits()) {
    define_mode_.put_off();
  } else if (const int code = end(); code != NC_NOERR) {
    return code;
  }
  if (pads != nullptr) {
    std::uint64_t* const to[4] = {&schema_.header_pad, &schema_.data_align, &schema_.data_pad, &schema_.record_align};
    for (int i = 0; i < 4; ++i) {
      *to[i] = static_cast<std::uint64_t>(pads[i]);
      // Whatever the pads, PnetCDF aligns data to four bytes; netCDF-C would not, and then refuses
      // its own file.
      if (to[i] == &schema_.data_align || to[i] == &schema_.record_align)
        *to[i] = std::max<std::uint64_t>((*to[i] + 3) / 4 * 4, 4);
      if (__builtin_add_overflow(bytes_defined_, *to[i], &bytes_defined_)) bytes_defined_ = UINT64_MAX;
    }
  }
  const auto first = schema_.variables.size();
  define_mode_.end();
  independent_ = false;
  unsent_ = true;
  if (rank_ == 0) out_->hold_schema();
  return fill_added_records(first);
}

int ParallelFile::end_pending() {
  return define_mode_.take_pending() ? lib.ncmpi_enddef(ncid) : NC_NOERR;
}

/// The end of define mode cannot fail. The library checks that the format can hold the sizes, after
/// padding.
bool ParallelFile::surely_fits() const noexcept {
  constexpr std::uint64_t GiB = std::uint64_t{1} << 30U;
  switch (format_) {
    case FileFormat::classic: return bytes_defined_ < GiB;
    case FileFormat::offset64: return largest_ < 3 * GiB;
    default: return bytes_defined_ < GiB * GiB;
  }
}

/// Before the shadow leaves define mode: it is not to fill its variables, for it would then hold
/// them.
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
  if (define_mode_.defining()) return;
  unsent_ = true;
  if (rank_ == 0) out_->hold_schema();
  if (independent_) (void)flush_schema();
}

ParallelFile::LateFill::LateFill(ParallelFile& file, int variable, const char* name)
    : file_(file), variable_(variable) {
  late_ = file.defining() && variable >= 0 && static_cast<std::size_t>(variable) < file.schema_.variables.size() &&
          name != nullptr && std::string_view(name) == "_FillValue";
  there_ = late_ && shadow::read_attribute(Calls{file.lib, file.ncid}, variable, name, before_) == NC_NOERR;
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

/// The schema of the file, without what the program is defining. Only parts that may have changed
/// are read again. A shadow cannot be read while its library ends; the schema then stays as it was
/// read before.
const Schema& ParallelFile::described() {
  if (define_mode_.defining()) return schema_;
  int dimensions = 0, variables = 0, record = -1;
  if (lib.ncmpi_inq(ncid, &dimensions, &variables, nullptr, &record) != NC_NOERR) return schema_;
  if (std::exchange(stale_dimensions_, false)) schema_.dimensions.clear();
  for (int i = static_cast<int>(schema_.dimensions.size()); i < dimensions; ++i) {
    shadow::read_dimension(Calls{lib, ncid}, i, i == record, schema_.dimensions.emplace_back());
  }
  if (std::exchange(stale_globals_, false)) shadow::read_attributes(Calls{lib, ncid}, NC_GLOBAL, schema_.attributes);
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
  shadow::read_shape(Calls{lib, ncid}, variable, v);
  shadow::read_attributes(Calls{lib, ncid}, variable, v.attributes);
  const auto* fill = shadow::fill_attribute(v);
  v.has_fill = fill != nullptr;
  v.fill = v.has_fill && fill->values != default_fill(v.type) ? fill->values : Bytes{};
  // Records are filled by the program (ncmpi_fill_var_rec), and in fill_added_records.
  v.no_fill = !filled(variable) || (!v.dimensions.empty() && static_cast<int>(v.dimensions[0]) == record);
}

int ParallelFile::flush_schema() {
  if (rank_ != 0 || !unsent_ || define_mode_.fresh()) return NC_NOERR;
  const Schema& schema = described();
  const auto sent = stall_.timed([&] { return out_->schema(schema); });
  if (sent.ok()) unsent_ = false;
  return code_of(sent);
}

// --- fill values --------------------------------------------------------------------------------

/// The bytes that this variable is filled with; false: there is a `_FillValue` of another type.
bool ParallelFile::fill_value(int variable, Bytes& value) {
  Attribute fill;
  const auto* v = known(variable);
  value = v != nullptr ? default_fill(static_cast<DataType>(v->type)) : Bytes{};
  if (v == nullptr || shadow::read_attribute(Calls{lib, ncid}, variable, "_FillValue", fill) != NC_NOERR) return true;
  value = fill.values;
  return static_cast<nc_type>(fill.type) == v->type && fill.count == 1;
}

/// This rank's share of a record. The elements are divided as the library does it: ranks may name
/// different records.
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
    const auto put = stall_.timed([&] {
      return out_->put(static_cast<std::uint32_t>(variable), box, {}, Memory{values.data(), {}}, v.element);
    });
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
  if (!filled(variable) && shadow::read_attribute(Calls{lib, ncid}, variable, "_FillValue", fill) != NC_NOERR)
    return NC_ENOTFILL;
  if (define_mode_.defining()) return NC_EINDEFINE;
  if (record < 0) return NC_EINVALCOORDS;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  const shadow::Stall stall(stall_);
  return fill_share(variable, static_cast<std::uint64_t>(record));
}

/// Variables from `first` on have been added where there may be records: those of them that are to
/// be filled are.
int ParallelFile::fill_added_records(std::size_t first) {
  std::vector<int> added;
  for (auto v = first; v < filled_.size(); ++v)
    if (const auto* k = known(static_cast<int>(v)); k != nullptr && k->record && filled_[v])
      added.push_back(static_cast<int>(v));
  if (added.empty() || first == 0) return NC_NOERR;
  const auto records = out_->records();
  if (records == 0) return NC_NOERR;
  // Rank 0 sends the new variables in the collective index that ends here. The blocks of the others come after
  // it.
  out_->end_collective_call();
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  const shadow::Stall stall(stall_);
  for (std::uint64_t r = 0; r < records; ++r)
    for (const int v : added)
      if (const int code = fill_share(v, r); code != NC_NOERR) return code;
  return NC_NOERR;
}

// --- reading back -------------------------------------------------------------------------------

/// All records that there are for this rank: the file may have others.
int ParallelFile::get_records(const Request& r, bool collective) {
  const auto& v = *known(r.variable);
  if (r.memory.type != NC_NAT && (r.memory.type == NC_CHAR) != (v.type == NC_CHAR)) return NC_ECHAR;
  const std::vector<MPI_Offset> start(v.lengths.size(), 0);
  std::vector<MPI_Offset> count(v.lengths.begin(), v.lengths.end());
  count[0] = static_cast<MPI_Offset>(out_->records());
  const auto call = collective ? lib.ncmpi_get_vara_all : lib.ncmpi_get_vara;
  return call(reader_.ncid(), reader_.variable(r.variable), start.data(), count.data(), const_cast<void*>(r.data),
              r.memory.count, r.memory.type != NC_NAT ? mpi_type(lib.mpi, r.memory.type) : r.memory.datatype);
}

ParallelFile::Reading ParallelFile::read(Mode mode, const std::vector<Request>& requests) {
  Reading reading;
  reading.ask_shadow = !right_mode(mode);
  for (std::size_t i = 0; !reading.ask_shadow && i < requests.size(); ++i) {
    const auto* v = known(requests[i].variable);
    Place at;
    reading.ask_shadow = v == nullptr || !place(requests[i], *v, at, true);
    if (requests[i].one_of_many && !reading.ask_shadow && !at.box.empty()) (void)requests_.number_of_get();
  }
  const shadow::Stall stall(stall_);
  if (!reading.ask_shadow) reading.code = flush_schema();
  // Blocks that the others have put before this call then belong to an earlier collective index.
  if (mode == Mode::collective) out_->end_collective_call(true);
  if (reading.ask_shadow) {
    show_records();
    return reading;
  }
  if (reading.code == NC_NOERR) reading.code = reader_.open(*out_, mode == Mode::independent);
  if (reading.code != NC_NOERR) return reading;
  const auto whole = [this](const Request& r) { return r.form == Form::var && known(r.variable)->record; };
  if (requests.size() == 1 && whole(requests[0]) && out_->records() != reader_.records()) {
    reading.done = true;
    reading.code = get_records(requests[0], mode == Mode::collective);
    return reading;
  }
  reading.ncid = reader_.ncid();
  for (const auto& r : requests) reading.variables.push_back(reader_.variable(r.variable));
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
  if (rank > 0 && !reading.ask_shadow && !std::all_of(requests.begin(), requests.end(), nothing))
    (void)requests_.number_of_get();
  return reading;
}

void ParallelFile::show_records() {
  if (define_mode_.defining() || end_pending() != NC_NOERR) return;
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

// --- frames and the end -------------------------------------------------------------------------

int ParallelFile::sync() {
  const Collective collective(collective_out());
  const shadow::Stall stall(stall_);
  if (const int code = end_pending(); code != NC_NOERR) return code;
  if (const int code = lib.ncmpi_sync(ncid); code != NC_NOERR) return code;
  const int flushed = flush_schema();
  const auto synced = stall_.timed([&] { return out_->sync(); });
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
  int code = define_mode_.defining() ? end_definitions(nullptr) : NC_NOERR;
  if (!requests_.empty() && code == NC_NOERR) code = NC_EPENDING;
  drop_pending(true);
  if (define_mode_.fresh()) {
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
  return define_mode_.fresh() ? remove() : finish();
}

/// A file that was never laid out. Until the server has let go of its path.
int ParallelFile::remove() {
  reader_.close();
  converter_.close(true);
  close_shadow();
  const auto aborted = out_->abort();
  (void)out_->hand_over();
  return code_of(aborted);
}

/// With what there was when define mode last ended, and all that was put.
int ParallelFile::finish() {
  reader_.close();
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
  reader_.abandon();
  converter_.close(false);
  unlink(shadow_.c_str());
}

}  // namespace advectio::pnetcdf
