// Data on its way out: the checks of the real library, then straight from the program's memory into
// the dataset.
#include <algorithm>
#include <climits>

#include "capture/gather.h"
#include "capture/pnetcdf/parallel_file.h"

namespace advectio::pnetcdf {
namespace {

/// Elements of a block, as its place in memory is to be walked: dense, or by a map.
std::vector<std::ptrdiff_t> steps(const Box& box, const std::vector<MPI_Offset>& map, std::size_t element) {
  std::vector<std::ptrdiff_t> bytes(box.rank());
  for (std::size_t i = 0; i < box.rank(); ++i) bytes[i] = map[i] * static_cast<std::ptrdiff_t>(element);
  return bytes;
}

}  // namespace

/// Blocking calls belong to data mode, and to its half that they are made for; posted ones may be
/// made at any time.
bool ParallelFile::right_mode(Mode mode) const noexcept {
  if (mode == Mode::posted || mode == Mode::buffered) return true;
  return !define_mode_.defining() && independent_ == (mode == Mode::independent);
}

/// Find the place of a block. False: the call may not be right.
bool ParallelFile::place(const Request& r, const Known& v, Place& to, bool read) {
  const std::size_t rank = v.lengths.size();
  to.box.start.assign(rank, 0);
  to.box.count.assign(rank, 1);
  to.stride.clear();
  to.map.clear();
  to.records = 0;
  if (rank == 0) return true;
  if (r.form == Form::var) {
    to.box.count = v.lengths;
    if (v.record) to.box.count[0] = out_->records();
  } else {
    if (r.start == nullptr || (r.form != Form::var1 && r.count == nullptr)) return false;
    for (std::size_t i = 0; i < rank; ++i) {
      const MPI_Offset start = r.start[i], count = r.form == Form::var1 ? 1 : r.count[i];
      const MPI_Offset stride = r.stride != nullptr ? r.stride[i] : 1;
      if (start < 0 || count < 0 || stride <= 0) return false;
      if (i == 0 && v.record) {
        if (format_ != FileFormat::cdf5 && start > static_cast<MPI_Offset>(UINT_MAX)) return false;
      }
      if (i > 0 || !v.record || read) {
        const auto length = static_cast<MPI_Offset>(i == 0 && v.record ? out_->records() : v.lengths[i]);
        if (start >= length || count > length - start) return false;
        if (count > 0 && (length - 1 - start) / stride < count - 1) return false;
      }
      to.box.start[i] = static_cast<std::uint64_t>(start);
      to.box.count[i] = static_cast<std::uint64_t>(count);
      if (stride != 1) to.stride.resize(rank, 1);
      if (stride != 1) to.stride[i] = static_cast<std::uint64_t>(stride);
    }
    if (r.map != nullptr) to.map.assign(r.map, r.map + rank);
  }
  if (v.record && to.box.count[0] > 0)
    to.records = to.box.start[0] + (to.box.count[0] - 1) * (to.stride.empty() ? 1 : to.stride[0]) + 1;
  return true;
}

/// The one type that a datatype is made of. False: it is made of several, or of one that netCDF
/// does not have.
bool ParallelFile::element_type(MPI_Datatype datatype, nc_type& type) const {
  const auto& mpi = lib.mpi;
#define ADVECTIO_IS(NAME, MPI_NAME, SYMBOL, TYPE)           \
  if (datatype == mpi.NAME && datatype != MPI_Datatype{}) { \
    type = TYPE;                                            \
    return true;                                            \
  }
  ADVECTIO_MPI_TYPES(ADVECTIO_IS)
#undef ADVECTIO_IS
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (mpi.MPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner) != MPI_SUCCESS) return false;
  if (datatypes == 0) return false;  // a predefined one that is none of ours
  std::vector<int> i(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> a(static_cast<std::size_t>(addresses));
  std::vector<MPI_Datatype> parts(static_cast<std::size_t>(datatypes));
  if (mpi.MPI_Type_get_contents(datatype, integers, addresses, datatypes, i.data(), a.data(), parts.data()) !=
      MPI_SUCCESS)
    return false;
  bool one = true;
  nc_type first = NC_NAT;
  for (auto part : parts) {
    nc_type found = NC_NAT;
    one = one && element_type(part, found) && (first == NC_NAT || found == first);
    first = found;
    int n[3] = {0, 0, 0};
    if (mpi.MPI_Type_get_envelope(part, &n[0], &n[1], &n[2], &combiner) == MPI_SUCCESS && n[2] > 0)
      mpi.MPI_Type_free(&part);  // a handle of our own
  }
  type = first;
  return one;
}

/// The memory of a call holds as many elements as its place, of a type that can go there.
bool ParallelFile::memory_fits(const MemoryType& memory, const Known& v, std::uint64_t elements, nc_type& type) const {
  type = memory.type;
  if (type == NC_NAT && memory.datatype == lib.mpi.null_type) type = v.type;
  if (type == NC_NAT) {
    if (!element_type(memory.datatype, type)) return false;
    int bytes = 0;
    // -1: whatever fills the block. No other number is negative.
    if (memory.count != -1) {
      if (memory.count < 0 || memory.count > INT_MAX || lib.mpi.MPI_Type_size(memory.datatype, &bytes) != MPI_SUCCESS)
        return false;
      if (static_cast<std::uint64_t>(bytes) * static_cast<std::uint64_t>(memory.count) != elements * memory_size(type))
        return false;
    }
  }
  return (type == NC_CHAR) == (v.type == NC_CHAR);
}

int ParallelFile::send_converted(int variable, const Known& v, const Place& place, const std::byte* data,
                                 nc_type type) {
  Bytes fill;
  if (fill_value(variable, fill); fill == default_fill(static_cast<DataType>(v.type))) fill.clear();
  const auto total = place.box.volume();
  std::vector<std::byte> converted(total * v.element);
  int worst = NC_NOERR;
  for (std::uint64_t at = 0; at < total; at += Converter::elements_max) {
    const auto n = std::min<std::uint64_t>(total - at, Converter::elements_max);
    const int code =
        converter_.convert(data + at * memory_size(type), type, converted.data() + at * v.element, v.type, n, fill);
    if (code != NC_NOERR) worst = code;
    if (code != NC_NOERR && code != NC_ERANGE) return code;
  }
  const auto put = stall_.timed([&] {
    return out_->put(static_cast<std::uint32_t>(variable), place.box, place.stride, Memory{converted.data(), {}},
                     v.element);
  });
  return put.ok() ? worst : code_of(put.error());
}

int ParallelFile::send(const Request& r, const Known& v, const Place& place, nc_type type) {
  const auto element = memory_size(type);
  const auto* data = static_cast<const std::byte*>(r.data);
  // A datatype with gaps is packed first, as the library does it; the map, if there is one, counts
  // what is packed.
  std::vector<std::byte> packed;
  const bool derived = r.memory.type == NC_NAT && r.memory.datatype != lib.mpi.null_type && r.memory.count >= 0;
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (derived &&
      lib.mpi.MPI_Type_get_envelope(r.memory.datatype, &integers, &addresses, &datatypes, &combiner) == MPI_SUCCESS &&
      datatypes > 0) {
    packed.resize(place.box.volume() * element);
    int position = 0;
    if (packed.size() > INT_MAX ||
        lib.mpi.MPI_Pack(data, static_cast<int>(r.memory.count), r.memory.datatype, packed.data(),
                         static_cast<int>(packed.size()), &position, lib.mpi.self) != MPI_SUCCESS)
      return NC_EINTOVERFLOW;
    data = packed.data();
  }
  if (type != v.type) {
    if (place.map.empty()) return send_converted(r.variable, v, place, data, type);
    std::vector<std::byte> dense(place.box.volume() * element);
    gather(data, place.box.count, steps(place.box, place.map, element), element, dense.data());
    return send_converted(r.variable, v, place, dense.data(), type);
  }
  Memory from{data, {}};
  if (!place.map.empty()) from.step = steps(place.box, place.map, element);
  const auto put = stall_.timed(
      [&] { return out_->put(static_cast<std::uint32_t>(r.variable), place.box, place.stride, from, element); });
  return put.ok() ? NC_NOERR : code_of(put.error());
}

namespace {
/// A flexible call with no elements of memory. Calls that are not collective then do nothing.
bool says_nothing(const RealLibrary& lib, const MemoryType& memory) {
  return memory.type == NC_NAT && memory.datatype != lib.mpi.null_type && memory.count == 0;
}

}  // namespace

/// There are none along some dimension.
bool names_nothing(const Request& r, std::size_t rank) noexcept {
  if (r.form == Form::var || r.form == Form::var1 || r.count == nullptr) return false;
  return std::any_of(r.count, r.count + rank, [](MPI_Offset n) { return n == 0; });
}

Answer ParallelFile::put(Mode mode, const std::vector<Request>& requests, int* request) {
  if (request != nullptr) *request = NC_REQ_NULL;
  const auto wrong = [](int code, bool nothing = false) { return Answer{code, true, nothing}; };
  if (!right_mode(mode)) return wrong(NC_EINDEFINE);
  std::vector<Place> places(requests.size());
  std::vector<nc_type> types(requests.size(), NC_NAT);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& r = requests[i];
    const auto* v = known(r.variable);
    if (v == nullptr) return wrong(NC_ENOTVAR);
    if (mode == Mode::buffered && !requests_.buffer.attached()) return wrong(NC_ENULLABUF);
    const bool nothing = requests.size() == 1 && names_nothing(r, v->lengths.size());
    if (r.memory.type != NC_NAT && (r.memory.type == NC_CHAR) != (v->type == NC_CHAR)) return wrong(NC_ECHAR);
    if (!place(r, *v, places[i])) return wrong(NC_EINVALCOORDS, nothing);
    if (mode != Mode::collective && requests.size() == 1 && says_nothing(lib, r.memory)) return {};
    // Nothing at all is right in any memory.
    if (places[i].box.empty() && (r.memory.type != NC_NAT || r.memory.datatype == lib.mpi.null_type)) continue;
    if (!memory_fits(r.memory, *v, places[i].box.volume(), types[i])) return wrong(NC_EIOMISMATCH, nothing);
  }
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].one_of_many && !places[i].box.empty()) (void)requests_.number_of_put();
  return put_placed(mode, requests, places, types, request);
}

Answer ParallelFile::put_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                               const void* data, const MemoryType& memory, int* request) {
  if (request != nullptr) *request = NC_REQ_NULL;
  const auto wrong = [](int code, bool nothing = false) { return Answer{code, true, nothing}; };
  if (!right_mode(mode)) return wrong(NC_EINDEFINE);
  const auto* v = known(variable);
  if (v == nullptr) return wrong(NC_ENOTVAR);
  if (memory.type != NC_NAT && (memory.type == NC_CHAR) != (v->type == NC_CHAR)) return wrong(NC_ECHAR);
  if (boxes == 0) return {};
  if (mode == Mode::buffered && !requests_.buffer.attached()) return wrong(NC_ENULLABUF);
  if ((mode == Mode::posted || mode == Mode::buffered) && says_nothing(lib, memory)) return {};
  if (boxes < 0) return wrong(NC_EINVAL, true);
  if ((v->lengths.empty() && boxes != 1) || (!v->lengths.empty() && starts == nullptr)) return wrong(NC_ENULLSTART);

  std::vector<Request> requests(static_cast<std::size_t>(boxes));
  std::vector<Place> places(requests.size());
  std::uint64_t elements = 0;
  bool nothing = true;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto& r = requests[i];
    r.variable = variable;
    r.start = starts != nullptr ? starts[i] : nullptr;
    r.count = counts != nullptr ? counts[i] : nullptr;
    r.form = r.count != nullptr ? Form::vara : Form::var1;
    nothing = nothing && names_nothing(r, v->lengths.size());
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!place(requests[i], *v, places[i])) return wrong(NC_EINVALCOORDS, nothing);
    elements += places[i].box.volume();
  }
  nc_type type = NC_NAT;
  if (elements == 0 && (memory.type != NC_NAT || memory.datatype == lib.mpi.null_type)) return {};
  if (!memory_fits(memory, *v, elements, type)) return wrong(NC_EIOMISMATCH, nothing);
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
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].data = at;
    requests[i].memory.type = type;
    at += places[i].box.volume() * memory_size(type);
  }
  // The library posts it, and waits.
  if (!v->lengths.empty() && (mode == Mode::independent || mode == Mode::collective)) (void)requests_.number_of_put();
  return put_placed(mode, requests, places, std::vector<nc_type>(requests.size(), type), request);
}

/// Everything has been found right.
Answer ParallelFile::put_placed(Mode mode, const std::vector<Request>& requests, const std::vector<Place>& places,
                                const std::vector<nc_type>& types, int* request) {
  const shadow::Stall stall(stall_);
  PostedPut posted;
  const bool waits = mode == Mode::posted || mode == Mode::buffered;
  MPI_Offset bytes = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    bytes += static_cast<MPI_Offset>(places[i].box.volume() * known(requests[i].variable)->element);
  if (waits && bytes == 0) return {};
  if (mode == Mode::buffered && bytes > requests_.buffer.free()) return {NC_EINSUFFBUF};
  if (const int code = flush_schema(); code != NC_NOERR) return {code};
  if (waits) out_->put_pending(&posted.sequences);
  Answer answer;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (places[i].box.empty()) continue;
    const auto& v = *known(requests[i].variable);
    const int code = send(requests[i], v, places[i], types[i]);
    if (code != NC_NOERR) answer.code = code;
    if (code != NC_NOERR && code != NC_ERANGE) break;
    if (!waits) out_->grow(places[i].records);
    posted.records = std::max(posted.records, places[i].records);
  }
  out_->put_pending(nullptr);
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
