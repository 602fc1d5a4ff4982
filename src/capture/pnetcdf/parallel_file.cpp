#include "capture/pnetcdf/parallel_file.h"

#include "capture/coupling.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "capture/pnetcdf/shadow_calls.h"

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
      variables_(real, id),
      fill_modes_(real, id),
      schema_(real, id, define_mode_, fill_modes_, rank == 0, *out_, stall_),
      requests_(real, id),
      reader_(real, id),
      puts_(real, format_, shadow_ + ".scratch", variables_, *out_, stall_) {
  int format = NC_FORMAT_CLASSIC;
  lib.ncmpi_inq_format(ncid, &format);
  format_ = static_cast<FileFormat>(format);
  schema_.set_format(format_);
}

ParallelFile::~ParallelFile() {
  if (auto* workflow = coupled ? capture::workflow_of_process() : nullptr; workflow != nullptr)
    workflow->close_for_server(*coupled);
  reader_.close();
  close_shadow();
}

int ParallelFile::take_up(MPI_Offset records) {
  int code = enddef(nullptr);
  if (code == NC_NOERR) code = end_pending();
  // Opening a file writes no header: the shadow's does not count.
  if (MPI_Offset header = 0; code == NC_NOERR && lib.ncmpi_inq_put_size(ncid, &header) == NC_NOERR)
    bytes_put -= static_cast<std::uint64_t>(header);
  if (code == NC_NOERR) out_->grow(static_cast<std::uint64_t>(records));
  // Later puts have a later collective index.
  out_->end_collective_call();
  return code == NC_NOERR ? schema_.flush() : code;
}

// --- modes and metadata -------------------------------------------------------------------------

int ParallelFile::redef() {
  // ncmpi_abort goes back to this schema.
  schema_.read();
  // With an end pending, the shadow is still in define mode.
  if (!define_mode_.take_pending()) {
    if (const int code = lib.ncmpi_redef(ncid); code != NC_NOERR) return code;
  }
  define_mode_.begin();
  independent_ = false;  // the library ends it by itself
  return NC_NOERR;
}

/// The library finds here what its format cannot hold. Nothing of that goes further.
int ParallelFile::enddef(const MPI_Offset* pads) {
  const auto end = [&] {
    return pads == nullptr ? lib.ncmpi_enddef(ncid) : lib.ncmpi__enddef(ncid, pads[0], pads[1], pads[2], pads[3]);
  };
  if (!define_mode_.defining()) {
    const int code = end_pending();
    return code != NC_NOERR ? code : end();
  }
  // The shadow shall not fill anything.
  const int before = fill_modes_.count();
  fill_modes_.take_over();
  for (int v = before; v < fill_modes_.count(); ++v) sizes_.add(variables_.of(v));
  if (pads == nullptr && sizes_.surely_fit(format_)) {
    define_mode_.put_off();
  } else if (const int code = end(); code != NC_NOERR) {
    return code;
  }
  if (pads != nullptr)
    for (const auto bytes : schema_.pad(pads)) sizes_.add_bytes(bytes);
  const auto first = schema_.variables();
  define_mode_.end();
  independent_ = false;
  schema_.must_send();
  return fill_added_records(first);
}

int ParallelFile::end_pending() {
  return define_mode_.take_pending() ? lib.ncmpi_enddef(ncid) : NC_NOERR;
}

void ParallelFile::independent(bool now_independent) {
  independent_ = now_independent;
  // The others may put and read from here on while rank 0 waits for them.
  if (independent_) (void)schema_.flush();
}

void ParallelFile::touch(int variable) {
  schema_.touch(variable);
  if (independent_) (void)schema_.flush();
}

void ParallelFile::touch_dimensions() {
  schema_.touch_dimensions();
  if (independent_) (void)schema_.flush();
}

// --- fill values --------------------------------------------------------------------------------

int ParallelFile::fill_record(int variable, MPI_Offset record, bool& refused) {
  refused = true;
  const auto* v = variables_.of(variable);
  if (v == nullptr) return NC_ENOTVAR;
  if (!v->record) return NC_ENOTRECVAR;
  Attribute fill;
  if (!fill_modes_.filled(variable) &&
      shadow::read_attribute(Calls{lib, ncid}, variable, "_FillValue", fill) != NC_NOERR)
    return NC_ENOTFILL;
  if (define_mode_.defining()) return NC_EINDEFINE;
  if (record < 0) return NC_EINVALCOORDS;
  refused = false;
  if (const int code = schema_.flush(); code != NC_NOERR) return code;
  const shadow::Stall stall(stall_);
  return puts_.send_fill(variable, static_cast<std::uint64_t>(record), rank_, ranks_);
}

/// Variables from `first` on have been added where there may be records: those of them that are to
/// be filled are.
int ParallelFile::fill_added_records(std::size_t first) {
  std::vector<int> added;
  for (int v = static_cast<int>(first); v < fill_modes_.count(); ++v)
    if (const auto* k = variables_.of(v); k != nullptr && k->record && fill_modes_.filled(v)) added.push_back(v);
  if (added.empty() || first == 0) return NC_NOERR;
  const auto records = out_->records();
  if (records == 0) return NC_NOERR;
  // Rank 0 sends the new variables in the collective index that ends here. The blocks of the others come after
  // it.
  out_->end_collective_call();
  if (const int code = schema_.flush(); code != NC_NOERR) return code;
  const shadow::Stall stall(stall_);
  for (std::uint64_t r = 0; r < records; ++r)
    for (const int v : added)
      if (const int code = puts_.send_fill(v, r, rank_, ranks_); code != NC_NOERR) return code;
  return NC_NOERR;
}

// --- reading back -------------------------------------------------------------------------------

ParallelFile::Reading ParallelFile::read(Mode mode, const std::vector<Request>& requests) {
  Reading reading;
  reading.ask_shadow = !right_mode(mode);
  for (std::size_t i = 0; !reading.ask_shadow && i < requests.size(); ++i) {
    const auto* v = variables_.of(requests[i].variable);
    Place at;
    reading.ask_shadow = v == nullptr || !find_place(requests[i], *v, format_, *out_, at, true);
    if (requests[i].one_of_many && !reading.ask_shadow && !at.box.empty()) (void)requests_.number_of_get();
  }
  const shadow::Stall stall(stall_);
  if (!reading.ask_shadow) reading.code = schema_.flush();
  // Blocks that the others have put before this call then belong to an earlier collective index.
  if (mode == Mode::collective && right_mode(mode)) out_->end_collective_call(true);
  if (reading.ask_shadow) {
    show_records();
    return reading;
  }
  if (reading.code == NC_NOERR) reading.code = reader_.open(*out_, mode == Mode::independent);
  if (reading.code != NC_NOERR) return reading;
  const auto whole = [this](const Request& r) { return r.form == Form::var && variables_.of(r.variable)->record; };
  if (requests.size() == 1 && whole(requests[0]) && out_->records() != reader_.records()) {
    reading.done = true;
    const auto& r = requests[0];
    reading.code = reader_.get_records(r, *variables_.of(r.variable), out_->records(), mode == Mode::collective);
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
  const auto rank = variables_.of(variable) != nullptr ? variables_.of(variable)->lengths.size() : 0;
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
  while (variables_.of(variable) != nullptr && !variables_.of(variable)->record) ++variable;
  if (variables_.of(variable) == nullptr) return;
  // One element in the last record: a put of nothing adds no records in PnetCDF 1.14.
  std::vector<MPI_Offset> start(variables_.of(variable)->lengths.size(), 0), count(start.size(), 1);
  start[0] = records - 1;
  const std::array<std::byte, sizeof(double)> element{};
  if (independent_) lib.ncmpi_end_indep_data(ncid);
  lib.ncmpi_put_vara_all(ncid, variable, start.data(), count.data(), element.data(), 0, lib.mpi.null_type);
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
  Collective in_call(collective_out());
  const shadow::Stall stall(stall_);
  int code = end_pending();
  if (code == NC_NOERR) code = lib.ncmpi_sync(ncid);
  if (code != NC_NOERR) {
    in_call.refused();
    return code;
  }
  const int flushed = schema_.flush();
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
  int code = define_mode_.defining() ? shadow::answered("ncmpi_close", [&] { return enddef(nullptr); }) : NC_NOERR;
  if (!requests_.empty() && code == NC_NOERR) code = NC_EPENDING;
  shadow::guarded("ncmpi_close", [&] { drop_pending(true); });
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
  shadow::guarded("ncmpi_abort", [&] { drop_pending(false); });
  return define_mode_.fresh() ? remove() : finish();
}

/// A file that was never laid out. Until the server has let go of its path.
int ParallelFile::remove() {
  reader_.close();
  puts_.close(true);
  close_shadow();
  const auto aborted = out_->abort();
  (void)out_->hand_over();
  return code_of(aborted);
}

/// With what there was when define mode last ended, and all that was put.
int ParallelFile::finish() {
  reader_.close();
  const int flushed = schema_.flush();
  puts_.close(true);
  close_shadow();
  const auto closed = out_->close();
  return flushed != NC_NOERR ? flushed : code_of(closed);
}

void ParallelFile::close_at_exit() {
  shadow::guarded("the end of the program", [&] { drop_pending(false); });
  schema_.flush();
  (void)out_->close();
  // MPI has ended: what it holds goes with the process.
  shadow_open_ = false;
  reader_.abandon();
  puts_.close(false);
  unlink(shadow_.c_str());
}

}  // namespace advectio::pnetcdf
