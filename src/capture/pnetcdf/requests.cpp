// Posted calls, and the buffer that some of them are counted against.
#include <algorithm>
#include <cstdio>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio {

// --- posted reads --------------------------------------------------------------------------------------------------

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
  get.id = number_of_get();
  if (id != nullptr) *id = get.id;
  gets_.push_back(std::move(get));
  return {};
}

/// The reader is open, for collective calls.
int ParallelFile::run(const PostedGet& get) {
  const int variable = variable_in_reader(get.variable);
  const auto or_null = [](const std::vector<MPI_Offset>& v) { return v.empty() ? nullptr : v.data(); };
  if (!get.boxes) {
    // A scalar has no places, but the library looks at them.
    const MPI_Offset none = 0, one = 1;
    return lib.ncmpi_get_varm_all(reader_, variable, get.start[0].empty() ? &none : get.start[0].data(),
                                  get.count[0].empty() ? &one : get.count[0].data(), or_null(get.stride),
                                  or_null(get.map), get.data, get.elements, get.datatype);
  }
  std::vector<MPI_Offset*> starts, counts;
  for (const auto& s : get.start) starts.push_back(const_cast<MPI_Offset*>(s.data()));
  for (const auto& c : get.count) counts.push_back(const_cast<MPI_Offset*>(c.data()));
  return lib.ncmpi_get_varn_all(reader_, variable, static_cast<int>(starts.size()), starts.data(), counts.data(),
                                get.data, get.elements, get.datatype);
}

void ParallelFile::forget(PostedGet& get) {
  if (get.own_type) lib.mpi.MPI_Type_free(&get.datatype);
}

// --- waiting -------------------------------------------------------------------------------------------------------

/// What is waited for is chosen, as the library chooses it: by its count where that is all there is, else by numbers.
int ParallelFile::choose(int count, int* ids, int* statuses) {
  const auto all = [](auto& posted, int* status) {
    for (auto& p : posted) {
      p.chosen = true;
      if (status != nullptr) *(p.status = status++) = NC_NOERR;
    }
  };
  const int puts = static_cast<int>(puts_.size()), gets = static_cast<int>(gets_.size());
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL) all(puts_, nullptr);
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL) all(gets_, nullptr);
  if (count < 0) return NC_NOERR;
  const bool only_puts = gets == 0 && count == puts, only_gets = puts == 0 && count == gets;
  if (only_puts || only_gets || (count == puts + gets && statuses == nullptr)) {
    std::fill(ids, ids + count, NC_REQ_NULL);
    all(puts_, only_puts ? statuses : nullptr);
    all(gets_, only_puts ? nullptr : statuses);
    return NC_NOERR;
  }
  int code = NC_NOERR;
  for (int i = 0; i < count; ++i) {
    bool found = ids[i] == NC_REQ_NULL;
    const auto take = [&](auto& posted) {
      for (auto& p : posted) {
        if (found || p.chosen || p.id != ids[i]) continue;
        p.chosen = found = true;
        p.status = statuses != nullptr ? statuses + i : nullptr;
      }
    };
    take(puts_);
    take(gets_);
    if (statuses != nullptr) statuses[i] = found ? NC_NOERR : NC_EINVAL_REQUEST;
    if (!found) code = NC_EINVAL_REQUEST;
  }
  if (code == NC_NOERR) std::fill(ids, ids + count, NC_REQ_NULL);
  return code;
}

int ParallelFile::wait(bool collective, int count, int* ids, int* statuses) {
  // The library's own word on the mode.
  if (const int settled = settle(); settled != NC_NOERR) return settled;
  const int refused =
      collective ? lib.ncmpi_wait_all(ncid, 0, nullptr, nullptr) : lib.ncmpi_wait(ncid, 0, nullptr, nullptr);
  const Collective turn(turns(collective && refused != NC_NOERR));
  if (refused != NC_NOERR || (!collective && count == 0)) return refused;
  const Stall stall(*this);
  const int flushed = flush_schema();
  const int wrong = choose(count, ids, statuses);
  int code = wrong != NC_NOERR ? wrong : flushed;

  if (wrong == NC_NOERR) {
    std::vector<std::uint64_t> sequences;
    std::uint64_t records = 0;
    bool any = false;
    for (const auto& p : puts_) {
      if (!p.chosen) continue;
      any = true;
      sequences.insert(sequences.end(), p.sequences.begin(), p.sequences.end());
      records = std::max(records, p.records);
      if (p.buffered >= 0) buffered_[static_cast<std::size_t>(p.buffered)].used = false;
    }
    std::erase_if(puts_, [](const PostedPut& p) { return p.chosen; });
    if (any) give_back_buffer();
    if (!sequences.empty()) {
      const auto settled = out_->settle(sequences, {});
      if (!settled.ok() && code == NC_NOERR) code = code_of(settled.error());
      out_->grow(records);
    }
  }
  // What the others have put before this call is then of an earlier turn.
  if (collective) out_->end_turn();
  if (wrong != NC_NOERR) return code;
  if (std::any_of(gets_.begin(), gets_.end(), [](const PostedGet& g) { return g.chosen; })) {
    const int opened = open_reader(false);
    for (auto& get : gets_) {
      if (!get.chosen) continue;
      const int got = opened == NC_NOERR ? run(get) : opened;
      if (got != NC_NOERR && code == NC_NOERR) code = got;
      if (get.status != nullptr) *get.status = got;
      forget(get);
    }
    std::erase_if(gets_, [](const PostedGet& g) { return g.chosen; });
  }
  return code;
}

int ParallelFile::cancel(int count, int* ids, int* statuses) {
  if (count == 0) return NC_NOERR;
  if (count < NC_PUT_REQ_ALL) return NC_EINVAL;
  std::vector<std::uint64_t> dropped;
  const auto drop_put = [&](PostedPut& p) {
    dropped.insert(dropped.end(), p.sequences.begin(), p.sequences.end());
    if (p.buffered >= 0) buffered_[static_cast<std::size_t>(p.buffered)].used = false;
  };
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL) {
    std::for_each(puts_.begin(), puts_.end(), drop_put);
    puts_.clear();
    buffered_.clear();
    buffer_used_ = 0;
  }
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL) {
    for (auto& g : gets_) forget(g);
    gets_.clear();
  }
  int code = NC_NOERR;
  for (int i = 0; i < count; ++i) {
    if (statuses != nullptr) statuses[i] = NC_NOERR;
    if (ids[i] == NC_REQ_NULL) continue;
    const auto named = [&](const Posted& p) { return p.id == ids[i]; };
    const auto put = std::find_if(puts_.begin(), puts_.end(), named);
    const auto get = std::find_if(gets_.begin(), gets_.end(), named);
    if (put != puts_.end()) {
      drop_put(*put);
      puts_.erase(put);
    } else if (get != gets_.end()) {
      forget(*get);
      gets_.erase(get);
    } else {
      code = NC_EINVAL_REQUEST;
      if (statuses != nullptr) statuses[i] = code;
      continue;
    }
    ids[i] = NC_REQ_NULL;
  }
  if (count > 0) give_back_buffer();
  if (dropped.empty()) return code;
  const auto settled = out_->settle({}, dropped);
  return settled.ok() || code != NC_NOERR ? code : code_of(settled.error());
}

void ParallelFile::drop_pending(bool say) {
  // In the library's words, and where it says them.
  const auto say_of = [&](const char* what, std::size_t n) {
    if (say && n > 0)
      std::printf("PnetCDF warning: %zu nonblocking %s requests still pending on process %d. Cancelling ...\n", n, what,
                  rank_);
  };
  say_of("get", gets_.size());
  say_of("put", puts_.size());
  (void)cancel(NC_REQ_ALL, nullptr, nullptr);
}

// --- the attached buffer -------------------------------------------------------------------------------------------

void ParallelFile::give_back_buffer() {
  while (!buffered_.empty() && !buffered_.back().used) {
    buffer_used_ -= buffered_.back().bytes;
    buffered_.pop_back();
  }
}

int ParallelFile::attach(MPI_Offset bytes) {
  // In the shadow, too, which is asked about buffered calls. Its memory is not touched.
  if (const int code = lib.ncmpi_buffer_attach(ncid, bytes); code != NC_NOERR) return code;
  attached_ = true;
  buffer_bytes_ = bytes;
  buffer_used_ = 0;
  buffered_.clear();
  return NC_NOERR;
}

int ParallelFile::detach() {
  if (std::any_of(puts_.begin(), puts_.end(), [](const PostedPut& p) { return p.buffered >= 0; }))
    return NC_EPENDINGBPUT;
  attached_ = false;
  return lib.ncmpi_buffer_detach(ncid);
}

int ParallelFile::usage(MPI_Offset* bytes) const {
  if (!attached_) return NC_ENULLABUF;
  if (bytes != nullptr) *bytes = buffer_used_;
  return NC_NOERR;
}

}  // namespace advectio
