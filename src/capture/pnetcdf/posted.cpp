// Posted calls: gets are made when the program waits for them.
#include <algorithm>
#include <cstdio>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio::pnetcdf {

// --- posted reads -------------------------------------------------------------------------------

Answer ParallelFile::post_get(const Request& r, int* id) {
  if (id != nullptr) *id = NC_REQ_NULL;
  const auto* v = known(r.variable);
  Place at;
  const bool right = v != nullptr && (r.memory.type == NC_NAT || (r.memory.type == NC_CHAR) == (v->type == NC_CHAR)) &&
                     place(r, *v, at, true);
  nc_type type = NC_NAT;
  const bool flexible = r.memory.type == NC_NAT && r.memory.datatype != lib.mpi.null_type;
  if (right && flexible && r.memory.count == 0) return {};
  if (!right || (flexible && !memory_fits(r.memory, *v, at.box.volume(), type))) {
    show_records();
    return {NC_EINVALCOORDS, true, v != nullptr && names_nothing(r, v->lengths.size())};
  }
  if (at.box.empty()) return {};
  PostedGet get;
  get.variable = r.variable;
  get.data = const_cast<void*>(r.data);
  get.start.emplace_back(at.box.start.begin(), at.box.start.end());
  get.count.emplace_back(at.box.count.begin(), at.box.count.end());
  get.stride.assign(at.stride.begin(), at.stride.end());
  get.map = at.map;
  return post(std::move(get), r.memory, id);
}

Answer ParallelFile::post_get_boxes(int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                                    void* data, const MemoryType& memory, int* id) {
  if (id != nullptr) *id = NC_REQ_NULL;
  const auto* v = known(variable);
  bool nothing = true;
  const auto wrong = [this, &nothing] {
    show_records();
    return Answer{NC_EINVALCOORDS, true, nothing};
  };
  if (v == nullptr || (memory.type != NC_NAT && (memory.type == NC_CHAR) != (v->type == NC_CHAR))) return wrong();
  const bool flexible = memory.type == NC_NAT && memory.datatype != lib.mpi.null_type;
  if (boxes == 0 || (flexible && memory.count == 0)) return {};
  const bool scalar = v->lengths.empty();
  if (boxes < 0 || (scalar && boxes != 1) || (!scalar && starts == nullptr)) return wrong();
  PostedGet get;
  get.variable = variable;
  get.boxes = !scalar;
  get.data = data;
  std::vector<Request> requests(static_cast<std::size_t>(boxes));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto& r = requests[i];
    r.start = starts != nullptr ? starts[i] : nullptr;
    r.count = counts != nullptr ? counts[i] : nullptr;
    r.form = r.count != nullptr ? Form::vara : Form::var1;
    nothing = nothing && names_nothing(r, v->lengths.size());
  }
  std::uint64_t elements = 0;
  for (const auto& r : requests) {
    Place at;
    if (!place(r, *v, at, true)) return wrong();
    elements += at.box.volume();
    get.start.emplace_back(at.box.start.begin(), at.box.start.end());
    get.count.emplace_back(at.box.count.begin(), at.box.count.end());
  }
  nc_type type = NC_NAT;
  if (flexible && !memory_fits(memory, *v, elements, type)) return wrong();
  if (elements == 0) return {};
  return post(std::move(get), memory, id);
}

/// Found right.
Answer ParallelFile::post(PostedGet get, const MemoryType& memory, int* id) {
  get.datatype = memory.type != NC_NAT ? mpi_type(lib.mpi, memory.type) : memory.datatype;
  get.elements = memory.count;
  if (memory.type == NC_NAT && memory.datatype != lib.mpi.null_type)
    get.own_type = lib.mpi.MPI_Type_dup(get.datatype, &get.datatype) == MPI_SUCCESS;
  get.id = requests_.number_of_get();
  if (id != nullptr) *id = get.id;
  requests_.gets.push_back(std::move(get));
  return {};
}

/// The reader is open, for collective calls.
int ParallelFile::run(const PostedGet& get) {
  const int variable = reader_.variable(get.variable);
  const auto or_null = [](const std::vector<MPI_Offset>& v) { return v.empty() ? nullptr : v.data(); };
  if (!get.boxes) {
    // A scalar has no places, but the library looks at them.
    const MPI_Offset none = 0, one = 1;
    return lib.ncmpi_get_varm_all(reader_.ncid(), variable, get.start[0].empty() ? &none : get.start[0].data(),
                                  get.count[0].empty() ? &one : get.count[0].data(), or_null(get.stride),
                                  or_null(get.map), get.data, get.elements, get.datatype);
  }
  std::vector<MPI_Offset*> starts, counts;
  for (const auto& s : get.start) starts.push_back(const_cast<MPI_Offset*>(s.data()));
  for (const auto& c : get.count) counts.push_back(const_cast<MPI_Offset*>(c.data()));
  return lib.ncmpi_get_varn_all(reader_.ncid(), variable, static_cast<int>(starts.size()), starts.data(), counts.data(),
                                get.data, get.elements, get.datatype);
}

// --- waiting ------------------------------------------------------------------------------------

int ParallelFile::wait(bool collective, int count, int* ids, int* statuses) {
  // The library answers whether the mode is right.
  if (const int settled = end_pending(); settled != NC_NOERR) return settled;
  const int refused =
      collective ? lib.ncmpi_wait_all(ncid, 0, nullptr, nullptr) : lib.ncmpi_wait(ncid, 0, nullptr, nullptr);
  const Collective in_call(collective_out(collective && refused != NC_NOERR));
  if (refused != NC_NOERR || (!collective && count == 0)) return refused;
  const shadow::Stall stall(stall_);
  const int flushed = flush_schema();
  const int wrong = requests_.choose(count, ids, statuses);
  int code = wrong != NC_NOERR ? wrong : flushed;

  if (wrong == NC_NOERR) {
    const auto done = requests_.take_chosen_puts();
    if (!done.sequences.empty()) {
      const auto settled = stall_.timed([&] { return out_->settle(done.sequences, {}); });
      if (!settled.ok() && code == NC_NOERR) code = code_of(settled.error());
      out_->grow(done.records);
    }
  }
  // Blocks that the others have put before this call then belong to an earlier collective index.
  if (collective) out_->end_collective_call();
  if (wrong != NC_NOERR) return code;
  if (std::any_of(requests_.gets.begin(), requests_.gets.end(), [](const PostedGet& g) { return g.chosen; })) {
    const int opened = reader_.open(*out_, false);
    for (auto& get : requests_.gets) {
      if (!get.chosen) continue;
      const int got = opened == NC_NOERR ? run(get) : opened;
      if (got != NC_NOERR && code == NC_NOERR) code = got;
      if (get.status != nullptr) *get.status = got;
      Requests::forget(lib.mpi, get);
    }
    std::erase_if(requests_.gets, [](const PostedGet& g) { return g.chosen; });
  }
  return code;
}

int ParallelFile::cancel(int count, int* ids, int* statuses) {
  if (count == 0) return NC_NOERR;
  if (count < NC_PUT_REQ_ALL) return NC_EINVAL;
  std::vector<std::uint64_t> dropped;
  const int code = requests_.cancel(lib.mpi, count, ids, statuses, dropped);
  if (dropped.empty()) return code;
  const auto settled = out_->settle({}, dropped);
  return settled.ok() || code != NC_NOERR ? code : code_of(settled.error());
}

void ParallelFile::drop_pending(bool say) {
  // As the library prints it, on stdout.
  const auto say_of = [&](const char* what, std::size_t n) {
    if (say && n > 0)
      std::printf("PnetCDF warning: %zu nonblocking %s requests still pending on process %d. Cancelling ...\n", n, what,
                  rank_);
  };
  say_of("get", requests_.gets.size());
  say_of("put", requests_.puts.size());
  (void)cancel(NC_REQ_ALL, nullptr, nullptr);
}

// --- the attached buffer ------------------------------------------------------------------------

int ParallelFile::attach(MPI_Offset bytes) {
  // In the shadow, too, which is asked about buffered calls. Its memory is not touched.
  if (const int code = lib.ncmpi_buffer_attach(ncid, bytes); code != NC_NOERR) return code;
  requests_.buffer.attach(bytes);
  return NC_NOERR;
}

int ParallelFile::detach() {
  const auto& puts = requests_.puts;
  if (std::any_of(puts.begin(), puts.end(), [](const PostedPut& p) { return p.buffered >= 0; })) return NC_EPENDINGBPUT;
  requests_.buffer.detach();
  return lib.ncmpi_buffer_detach(ncid);
}

int ParallelFile::usage(MPI_Offset* bytes) const {
  if (!requests_.buffer.attached()) return NC_ENULLABUF;
  if (bytes != nullptr) *bytes = requests_.buffer.used();
  return NC_NOERR;
}

}  // namespace advectio::pnetcdf
