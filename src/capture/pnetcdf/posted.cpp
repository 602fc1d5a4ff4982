// Posted calls: gets are made when the program waits for them.
#include <algorithm>
#include <cstdio>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio::pnetcdf {

// --- posted reads -------------------------------------------------------------------------------

Answer ParallelFile::post_get(const Request& r, int* id) {
  if (id != nullptr) *id = NC_REQ_NULL;
  const auto* v = variables_.of(r.variable);
  Place at;
  const bool right = v != nullptr && (r.memory.type == NC_NAT || (r.memory.type == NC_CHAR) == (v->type == NC_CHAR)) &&
                     find_place(r, *v, format_, *out_, at, true);
  nc_type type = NC_NAT;
  const bool flexible = r.memory.type == NC_NAT && r.memory.datatype != lib.mpi.null_type;
  if (right && flexible && r.memory.count == 0) return {};
  if (!right || (flexible && !memory_fits(lib.mpi, r.memory, *v, at.box.volume(), type))) {
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
  requests_.post(std::move(get), r.memory, id);
  return {};
}

Answer ParallelFile::post_get_boxes(int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                                    void* data, const MemoryType& memory, int* id) {
  if (id != nullptr) *id = NC_REQ_NULL;
  const auto* v = variables_.of(variable);
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
    if (!find_place(r, *v, format_, *out_, at, true)) return wrong();
    elements += at.box.volume();
    get.start.emplace_back(at.box.start.begin(), at.box.start.end());
    get.count.emplace_back(at.box.count.begin(), at.box.count.end());
  }
  nc_type type = NC_NAT;
  if (flexible && !memory_fits(lib.mpi, memory, *v, elements, type)) return wrong();
  if (elements == 0) return {};
  requests_.post(std::move(get), memory, id);
  return {};
}

// --- waiting ------------------------------------------------------------------------------------

int ParallelFile::wait(bool collective, int count, int* ids, int* statuses) {
  // The library answers whether the mode is right.
  if (const int settled = end_pending(); settled != NC_NOERR) return settled;
  const int refused =
      collective ? lib.ncmpi_wait_all(ncid, 0, nullptr, nullptr) : lib.ncmpi_wait(ncid, 0, nullptr, nullptr);
  if (refused != NC_NOERR || (!collective && count == 0)) return refused;
  const shadow::Stall stall(stall_);
  Collective in_call(collective_out(collective));
  const int flushed = schema_.flush();
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
  in_call.end();
  if (wrong != NC_NOERR) return code;
  if (std::any_of(requests_.gets.begin(), requests_.gets.end(), [](const PostedGet& g) { return g.chosen; })) {
    const int opened = reader_.open(*out_, false);
    for (auto& get : requests_.gets) {
      if (!get.chosen) continue;
      const int got = opened == NC_NOERR ? reader_.get(get) : opened;
      if (got != NC_NOERR && code == NC_NOERR) code = got;
      if (get.status != nullptr) *get.status = got;
      requests_.forget(get);
    }
    std::erase_if(requests_.gets, [](const PostedGet& g) { return g.chosen; });
  }
  return code;
}

int ParallelFile::cancel(int count, int* ids, int* statuses) {
  if (count == 0) return NC_NOERR;
  if (count < NC_PUT_REQ_ALL) return NC_EINVAL;
  std::vector<std::uint64_t> dropped;
  const int code = requests_.cancel(count, ids, statuses, dropped);
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

}  // namespace advectio::pnetcdf
