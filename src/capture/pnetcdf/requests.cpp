// Posted calls, and the buffer that some of them are counted against.
#include <algorithm>
#include <cstdio>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio {

int ParallelFile::post_get(const Request& r, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts, int* id) {
  const auto* v = known(r.variable);
  if (v == nullptr) return NC_ENOTVAR;
  const std::size_t rank = v->lengths.size();
  PostedGet get;
  get.variable = r.variable;
  auto* data = static_cast<std::byte*>(const_cast<void*>(r.data));
  for (int i = 0; i < boxes; ++i) {
    Request one = r;
    if (starts != nullptr) {
      one.start = starts[i];
      one.count = counts != nullptr ? counts[i] : nullptr;
      one.form = one.count != nullptr ? Form::vara : Form::var1;
    }
    PostedGet::Piece piece;
    const auto copy = [rank](const MPI_Offset* from, std::vector<MPI_Offset>& to) {
      if (from != nullptr) to.assign(from, from + rank);
    };
    copy(one.form == Form::var ? nullptr : one.start, piece.start);
    copy(one.form == Form::var1 || one.form == Form::var ? nullptr : one.count, piece.count);
    copy(one.stride, piece.stride);
    copy(one.map, piece.map);
    if (one.form == Form::var) {
      piece.start.assign(rank, 0);
      piece.count.assign(v->lengths.begin(), v->lengths.end());
      if (v->record) piece.count[0] = static_cast<MPI_Offset>(out_->records());
    }
    if (piece.count.empty()) piece.count.assign(rank, 1);
    piece.data = data;
    std::uint64_t elements = 1;
    for (const auto n : piece.count) elements *= static_cast<std::uint64_t>(n);
    get.pieces.push_back(std::move(piece));
    nc_type type = r.memory.type;
    if (type == NC_NAT && (r.memory.datatype == lib.mpi.null_type || !element_type(r.memory.datatype, type)))
      type = v->type;
    data += elements * memory_size(type);
  }
  get.datatype = r.memory.type != NC_NAT ? mpi_type(lib.mpi, r.memory.type) : r.memory.datatype;
  get.count = r.memory.count;
  if (boxes > 1 && get.count >= 0) {
    // The boxes lie one behind the other; a datatype with gaps would have to be cut.
    nc_type type = NC_NAT;
    int bytes = 0;
    if (get.datatype != lib.mpi.null_type &&
        (!element_type(get.datatype, type) || lib.mpi.MPI_Type_size(get.datatype, &bytes) != MPI_SUCCESS ||
         static_cast<std::size_t>(bytes) != memory_size(type)))
      return NC_ENOTSUPPORT;
    get.count = -1;
  }
  if (get.count >= 0 && get.datatype != lib.mpi.null_type)
    get.own_type = lib.mpi.MPI_Type_dup(get.datatype, &get.datatype) == MPI_SUCCESS;
  int number = 1;
  while (gets_.count(number) > 0) number += 2;
  gets_.emplace(number, std::move(get));
  if (id != nullptr) *id = number;
  return NC_NOERR;
}

int ParallelFile::run(const PostedGet& get, bool collective) {
  const int variable = variable_in_reader(get.variable);
  int worst = NC_NOERR;
  for (const auto& p : get.pieces) {
    const auto or_null = [](const std::vector<MPI_Offset>& v) { return v.empty() ? nullptr : v.data(); };
    const auto call = collective ? lib.ncmpi_get_varm_all : lib.ncmpi_get_varm;
    // A scalar has no places, but the library looks at them.
    const MPI_Offset none = 0, one = 1;
    const int code =
        call(reader_, variable, p.start.empty() ? &none : p.start.data(), p.count.empty() ? &one : p.count.data(),
             or_null(p.stride), or_null(p.map), p.data, get.count, get.datatype);
    if (worst == NC_NOERR) worst = code;
  }
  return worst;
}

void ParallelFile::forget(PostedGet& get) {
  if (get.own_type) lib.mpi.MPI_Type_free(&get.datatype);
}

int ParallelFile::wait(bool collective, int count, int* ids, int* statuses) {
  // The library's own word on the mode.
  if (const int settled = settle(); settled != NC_NOERR) return settled;
  const int refused =
      collective ? lib.ncmpi_wait_all(ncid, 0, nullptr, nullptr) : lib.ncmpi_wait(ncid, 0, nullptr, nullptr);
  const Collective turn(turns(collective && refused != NC_NOERR));
  if (refused != NC_NOERR) return refused;
  const Stall stall(*this);
  int code = flush_schema();

  // Everything that is asked for, or nothing where one number is wrong.
  std::vector<int> puts, gets;
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL)
    for (const auto& [id, p] : puts_) puts.push_back(id);
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL)
    for (const auto& [id, g] : gets_) gets.push_back(id);
  bool wrong = false;
  for (int i = 0; i < count; ++i) {
    if (statuses != nullptr) statuses[i] = NC_NOERR;
    if (ids[i] == NC_REQ_NULL) continue;
    auto& list = puts_.count(ids[i]) > 0 ? puts : gets;
    const bool there = puts_.count(ids[i]) + gets_.count(ids[i]) > 0;
    if (!there || std::find(list.begin(), list.end(), ids[i]) != list.end()) {
      wrong = true;
      if (statuses != nullptr) statuses[i] = NC_EINVAL_REQUEST;
    } else {
      list.push_back(ids[i]);
    }
  }
  if (wrong) {
    code = NC_EINVAL_REQUEST;
    puts.clear();
    gets.clear();
  }

  std::vector<std::uint64_t> sequences;
  std::uint64_t records = 0;
  for (const int id : puts) {
    const auto it = puts_.find(id);
    sequences.insert(sequences.end(), it->second.sequences.begin(), it->second.sequences.end());
    records = std::max(records, it->second.records);
    puts_.erase(it);
  }
  if (!sequences.empty()) {
    close_reader();
    const auto settled = out_->settle(sequences, {});
    if (!settled.ok() && code == NC_NOERR) code = code_of(settled.error());
    out_->grow(records);
  }
  // What the others have put before this call is then of an earlier turn.
  if (collective) out_->end_turn();
  if (!gets.empty()) {
    close_reader();
    const auto visible = out_->wait_visible();
    const int read =
        visible.ok() ? lib.ncmpi_open(lib.mpi.self, out_->file_path().c_str(), NC_NOWRITE, lib.mpi.no_info, &reader_)
                     : code_of(visible.error());
    if (read != NC_NOERR) reader_ = -1;
    for (const int id : gets) {
      auto it = gets_.find(id);
      const int got = read == NC_NOERR ? run(it->second, true) : read;
      if (got != NC_NOERR && code == NC_NOERR) code = got;
      for (int i = 0; statuses != nullptr && i < count; ++i)
        if (ids[i] == id) statuses[i] = got;
      forget(it->second);
      gets_.erase(it);
    }
    close_reader();
  }
  for (int i = 0; !wrong && i < count; ++i) ids[i] = NC_REQ_NULL;
  return code;
}

int ParallelFile::cancel(int count, int* ids, int* statuses) {
  std::vector<std::uint64_t> dropped;
  int code = NC_NOERR;
  const auto drop = [&](int id) {
    if (const auto it = puts_.find(id); it != puts_.end()) {
      dropped.insert(dropped.end(), it->second.sequences.begin(), it->second.sequences.end());
      puts_.erase(it);
      return true;
    }
    const auto it = gets_.find(id);
    if (it == gets_.end()) return false;
    forget(it->second);
    gets_.erase(it);
    return true;
  };
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL)
    while (!puts_.empty()) drop(puts_.begin()->first);
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL)
    while (!gets_.empty()) drop(gets_.begin()->first);
  for (int i = 0; i < count; ++i) {
    const bool known_one = ids[i] == NC_REQ_NULL || drop(ids[i]);
    if (statuses != nullptr) statuses[i] = known_one ? NC_NOERR : NC_EINVAL_REQUEST;
    if (known_one)
      ids[i] = NC_REQ_NULL;
    else
      code = NC_EINVAL_REQUEST;
  }
  if (dropped.empty()) return code;
  const auto settled = out_->settle({}, dropped);
  return settled.ok() || code != NC_NOERR ? code : code_of(settled.error());
}

void ParallelFile::drop_pending() {
  const auto n = puts_.size();
  if (n > 0)
    std::fprintf(stderr, "PnetCDF warning: %zu nonblocking put requests still pending on process %d. Cancelling ...\n",
                 n, rank_);
  (void)cancel(NC_REQ_ALL, nullptr, nullptr);
}

int ParallelFile::attach(MPI_Offset bytes) {
  if (bytes <= 0) return NC_ENULLBUF;
  if (attached_) return NC_EPREVATTACHBUF;
  attached_ = true;
  buffer_bytes_ = bytes;
  return NC_NOERR;
}

int ParallelFile::detach() {
  if (!attached_) return NC_ENULLABUF;
  MPI_Offset used = 0;
  usage(&used);
  if (used > 0) return NC_EPENDINGBPUT;
  attached_ = false;
  return NC_NOERR;
}

int ParallelFile::usage(MPI_Offset* bytes) const {
  if (!attached_) return NC_ENULLABUF;
  MPI_Offset used = 0;
  for (const auto& [id, p] : puts_) used += p.buffered;
  if (bytes != nullptr) *bytes = used;
  return NC_NOERR;
}

int ParallelFile::attached(MPI_Offset* bytes) const {
  if (!attached_) return NC_ENULLABUF;
  if (bytes != nullptr) *bytes = buffer_bytes_;
  return NC_NOERR;
}

}  // namespace advectio
