// The checks of the real library, before data are put.
#include <algorithm>
#include <climits>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio::pnetcdf {
/// Blocking calls belong to data mode, and to its half that they are made for; posted ones may be
/// made at any time.
bool ParallelFile::right_mode(Mode mode) const noexcept {
  if (mode == Mode::posted || mode == Mode::buffered) return true;
  return !define_mode_.defining() && independent_ == (mode == Mode::independent);
}

Answer ParallelFile::put(Mode mode, const std::vector<Request>& requests, int* request) {
  if (request != nullptr) *request = NC_REQ_NULL;
  const auto wrong = [](int code, bool nothing = false) { return Answer{code, true, nothing}; };
  if (!right_mode(mode)) return wrong(NC_EINDEFINE);
  std::vector<Place> places(requests.size());
  std::vector<nc_type> types(requests.size(), NC_NAT);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& r = requests[i];
    const auto* v = variables_.of(r.variable);
    if (v == nullptr) return wrong(NC_ENOTVAR);
    if (mode == Mode::buffered && !requests_.buffer.attached()) return wrong(NC_ENULLABUF);
    const bool nothing = requests.size() == 1 && names_nothing(r, v->lengths.size());
    if (r.memory.type != NC_NAT && (r.memory.type == NC_CHAR) != (v->type == NC_CHAR)) return wrong(NC_ECHAR);
    if (!find_place(r, *v, format_, *out_, places[i])) return wrong(NC_EINVALCOORDS, nothing);
    if (mode != Mode::collective && requests.size() == 1 && says_nothing(lib.mpi, r.memory)) return {};
    // Nothing at all is right in any memory.
    if (places[i].box.empty() && (r.memory.type != NC_NAT || r.memory.datatype == lib.mpi.null_type)) continue;
    if (!memory_fits(lib.mpi, r.memory, *v, places[i].box.volume(), types[i])) return wrong(NC_EIOMISMATCH, nothing);
  }
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].one_of_many && !places[i].box.empty()) (void)requests_.number_of_put();
  MPI_Offset bytes = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    bytes += static_cast<MPI_Offset>(places[i].box.volume() * variables_.of(requests[i].variable)->element);
  const bool waits = mode == Mode::posted || mode == Mode::buffered;
  return put_placed(mode, bytes, request, [&](PostedPut& posted) {
    int worst = NC_NOERR;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (places[i].box.empty()) continue;
      const int code = puts_.send(requests[i], *variables_.of(requests[i].variable), places[i], types[i]);
      if (code != NC_NOERR) worst = code;
      if (code != NC_NOERR && code != NC_ERANGE) break;
      if (!waits) out_->grow(places[i].records);
      posted.records = std::max(posted.records, places[i].records);
    }
    return worst;
  });
}

Answer ParallelFile::put_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                               const void* data, const MemoryType& memory, int* request) {
  if (request != nullptr) *request = NC_REQ_NULL;
  const auto wrong = [](int code, bool nothing = false) { return Answer{code, true, nothing}; };
  if (!right_mode(mode)) return wrong(NC_EINDEFINE);
  const auto* v = variables_.of(variable);
  if (v == nullptr) return wrong(NC_ENOTVAR);
  if (memory.type != NC_NAT && (memory.type == NC_CHAR) != (v->type == NC_CHAR)) return wrong(NC_ECHAR);
  if (boxes == 0) return {};
  if (mode == Mode::buffered && !requests_.buffer.attached()) return wrong(NC_ENULLABUF);
  if ((mode == Mode::posted || mode == Mode::buffered) && says_nothing(lib.mpi, memory)) return {};
  if (boxes < 0) return wrong(NC_EINVAL, true);
  if ((v->lengths.empty() && boxes != 1) || (!v->lengths.empty() && starts == nullptr)) return wrong(NC_ENULLSTART);

  // In one list, and with one place for all: a box costs no memory of its own.
  const auto rank = v->lengths.size();
  const auto request_of = [&](int i) {
    Request r;
    r.variable = variable;
    r.start = starts != nullptr ? starts[i] : nullptr;
    r.count = counts != nullptr ? counts[i] : nullptr;
    r.form = r.count != nullptr ? Form::vara : Form::var1;
    return r;
  };
  const auto names_no_box = [&] {
    for (int i = 0; i < boxes; ++i)
      if (!names_nothing(request_of(i), rank)) return false;
    return true;
  };
  BoxList list(rank);
  list.reserve(static_cast<std::size_t>(boxes));
  Place place;
  std::uint64_t elements = 0, records = 0;
  for (int i = 0; i < boxes; ++i) {
    if (!find_place(request_of(i), *v, format_, *out_, place)) return wrong(NC_EINVALCOORDS, names_no_box());
    if (place.box.empty()) continue;
    list.add(place.box.start, place.box.count);
    elements += place.box.volume();
    records = std::max(records, place.records);
  }
  nc_type type = NC_NAT;
  if (elements == 0 && (memory.type != NC_NAT || memory.datatype == lib.mpi.null_type)) return {};
  if (!memory_fits(lib.mpi, memory, *v, elements, type)) return wrong(NC_EIOMISMATCH, names_no_box());
  if (elements == 0) return {};

  // One run of memory: packed as a whole, then taken piece by piece.
  const auto* at = static_cast<const std::byte*>(data);
  std::vector<std::byte> packed;
  if (memory.type == NC_NAT && memory.datatype != lib.mpi.null_type && memory.count >= 0) {
    packed.resize(elements * memory_size(type));
    int position = 0;
    if (packed.size() > INT_MAX ||
        lib.mpi.MPI_Pack(data, static_cast<int>(memory.count), memory.datatype, packed.data(),
                         static_cast<int>(packed.size()), &position, lib.mpi.self) != MPI_SUCCESS)
      return {NC_EINTOVERFLOW};
    at = packed.data();
  }
  // The library posts it, and waits.
  if (!v->lengths.empty() && (mode == Mode::independent || mode == Mode::collective)) (void)requests_.number_of_put();
  const auto bytes = elements * v->element;
  return put_placed(mode, static_cast<MPI_Offset>(bytes), request, [&](PostedPut& posted) {
    posted.records = records;
    const int code = puts_.send_boxes(variable, *v, list, at, type);
    if (mode != Mode::posted && mode != Mode::buffered && (code == NC_NOERR || code == NC_ERANGE)) out_->grow(records);
    return code;
  });
}

/// The blocks of a posted call are pending in the journal: `sequences` gets their numbers.
class ParallelFile::PendingPuts {
 public:
  PendingPuts(SharedDataset& out, std::vector<std::uint64_t>* sequences) noexcept : out_(out) {
    out_.put_pending(sequences);
  }
  ~PendingPuts() { out_.put_pending(nullptr); }
  PendingPuts(const PendingPuts&) = delete;
  PendingPuts& operator=(const PendingPuts&) = delete;

 private:
  SharedDataset& out_;
};

/// Everything has been found right. `send` gives it to the dataset.
Answer ParallelFile::put_placed(Mode mode, MPI_Offset bytes, int* request, const std::function<int(PostedPut&)>& send) {
  const shadow::Stall stall(stall_);
  PostedPut posted;
  const bool waits = mode == Mode::posted || mode == Mode::buffered;
  if (waits && bytes == 0) return {};
  if (mode == Mode::buffered && bytes > requests_.buffer.free()) return {NC_EINSUFFBUF};
  if (const int code = schema_.flush(); code != NC_NOERR) return {code};
  if (waits) requests_.make_room();
  Answer answer;
  try {
    const PendingPuts pending(*out_, waits ? &posted.sequences : nullptr);
    answer.code = send(posted);
  } catch (...) {
    answer.code = shadow::answer_to_exception("a put");
  }
  bytes_put += static_cast<std::uint64_t>(bytes);
  if (!waits) return answer;
  if (answer.code != NC_NOERR && answer.code != NC_ERANGE) {
    (void)stall_.timed([&] { return out_->settle({}, posted.sequences); });
    return answer;
  }
  if (mode == Mode::buffered) posted.buffered = requests_.buffer.take(bytes);
  posted.id = requests_.number_of_put();
  if (request != nullptr) *request = posted.id;
  requests_.puts.push_back(std::move(posted));
  return answer;
}

}  // namespace advectio::pnetcdf
