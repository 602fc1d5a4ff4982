#include "capture/pnetcdf/requests.h"

#include <algorithm>
#include <utility>

#include "capture/pnetcdf/convert.h"

namespace advectio::pnetcdf {

namespace {
/// So that `push_back` does not fail. As it grows by itself: to twice its size.
template <typename Element>
void make_room_in(std::vector<Element>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<std::size_t>(8, 2 * list.size()));
}
}  // namespace

// --- the attached buffer ------------------------------------------------------------------------

void AttachedBuffer::attach(MPI_Offset bytes) {
  attached_ = true;
  bytes_ = bytes;
  used_ = 0;
  taken_.clear();
}

void AttachedBuffer::make_room() {
  make_room_in(taken_);
}

int AttachedBuffer::take(MPI_Offset bytes) {
  taken_.push_back({bytes, true});
  used_ += bytes;
  return static_cast<int>(taken_.size()) - 1;
}

void AttachedBuffer::release(int place) noexcept {
  if (place >= 0) taken_[static_cast<std::size_t>(place)].used = false;
}

void AttachedBuffer::give_back() noexcept {
  while (!taken_.empty() && !taken_.back().used) {
    used_ -= taken_.back().bytes;
    taken_.pop_back();
  }
}

void AttachedBuffer::give_back_all() noexcept {
  taken_.clear();
  used_ = 0;
}

// --- requests -----------------------------------------------------------------------------------

void Requests::make_room() {
  make_room_in(puts);
  buffer.make_room();
}

int Requests::choose(int count, int* ids, int* statuses) {
  const auto all = [](auto& posted, int* status) {
    for (auto& p : posted) {
      p.chosen = true;
      if (status != nullptr) *(p.status = status++) = NC_NOERR;
    }
  };
  const int put_count = static_cast<int>(puts.size()), get_count = static_cast<int>(gets.size());
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL) all(puts, nullptr);
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL) all(gets, nullptr);
  if (count < 0) return NC_NOERR;
  const bool only_puts = get_count == 0 && count == put_count, only_gets = put_count == 0 && count == get_count;
  if (only_puts || only_gets || (count == put_count + get_count && statuses == nullptr)) {
    std::fill(ids, ids + count, NC_REQ_NULL);
    all(puts, only_puts ? statuses : nullptr);
    all(gets, only_puts ? nullptr : statuses);
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
    take(puts);
    take(gets);
    if (statuses != nullptr) statuses[i] = found ? NC_NOERR : NC_EINVAL_REQUEST;
    if (!found) code = NC_EINVAL_REQUEST;
  }
  if (code == NC_NOERR) std::fill(ids, ids + count, NC_REQ_NULL);
  return code;
}

Requests::Done Requests::take_chosen_puts() {
  Done done;
  bool any = false;
  for (const auto& p : puts) {
    if (!p.chosen) continue;
    any = true;
    done.sequences.insert(done.sequences.end(), p.sequences.begin(), p.sequences.end());
    done.records = std::max(done.records, p.records);
    buffer.release(p.buffered);
  }
  std::erase_if(puts, [](const PostedPut& p) { return p.chosen; });
  if (any) buffer.give_back();
  return done;
}

void Requests::drop(const PostedPut& put, std::vector<std::uint64_t>& dropped) {
  dropped.insert(dropped.end(), put.sequences.begin(), put.sequences.end());
  buffer.release(put.buffered);
}

void Requests::forget(PostedGet& get) const {
  if (get.own_type) lib_.mpi.MPI_Type_free(&get.datatype);
}

int Requests::cancel(int count, int* ids, int* statuses, std::vector<std::uint64_t>& dropped) {
  if (count == NC_REQ_ALL || count == NC_PUT_REQ_ALL) {
    for (const auto& p : puts) drop(p, dropped);
    puts.clear();
    buffer.give_back_all();
  }
  if (count == NC_REQ_ALL || count == NC_GET_REQ_ALL) {
    for (auto& g : gets) forget(g);
    gets.clear();
  }
  int code = NC_NOERR;
  for (int i = 0; i < count; ++i) {
    if (statuses != nullptr) statuses[i] = NC_NOERR;
    if (ids[i] == NC_REQ_NULL) continue;
    const auto named = [&](const Posted& p) { return p.id == ids[i]; };
    const auto put = std::find_if(puts.begin(), puts.end(), named);
    const auto get = std::find_if(gets.begin(), gets.end(), named);
    if (put != puts.end()) {
      drop(*put, dropped);
      puts.erase(put);
    } else if (get != gets.end()) {
      forget(*get);
      gets.erase(get);
    } else {
      code = NC_EINVAL_REQUEST;
      if (statuses != nullptr) statuses[i] = code;
      continue;
    }
    ids[i] = NC_REQ_NULL;
  }
  if (count > 0) buffer.give_back();
  return code;
}

void Requests::post(PostedGet get, const MemoryType& memory, int* id) {
  get.datatype = memory.type != NC_NAT ? mpi_type(lib_.mpi, memory.type) : memory.datatype;
  get.elements = memory.count;
  if (memory.type == NC_NAT && memory.datatype != lib_.mpi.null_type)
    get.own_type = lib_.mpi.MPI_Type_dup(get.datatype, &get.datatype) == MPI_SUCCESS;
  get.id = number_of_get();
  if (id != nullptr) *id = get.id;
  gets.push_back(std::move(get));
}

int Requests::attach(MPI_Offset bytes) {
  // In the shadow, too, which is asked about buffered calls. Its memory is not touched.
  if (const int code = lib_.ncmpi_buffer_attach(ncid_, bytes); code != NC_NOERR) return code;
  buffer.attach(bytes);
  return NC_NOERR;
}

int Requests::detach() {
  if (std::any_of(puts.begin(), puts.end(), [](const PostedPut& p) { return p.buffered >= 0; })) return NC_EPENDINGBPUT;
  buffer.detach();
  return lib_.ncmpi_buffer_detach(ncid_);
}

int Requests::usage(MPI_Offset* bytes) const {
  if (!buffer.attached()) return NC_ENULLABUF;
  if (bytes != nullptr) *bytes = buffer.used();
  return NC_NOERR;
}

}  // namespace advectio::pnetcdf
