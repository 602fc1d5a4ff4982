#include "capture/pnetcdf/puts.h"

#include <algorithm>
#include <climits>
#include <vector>

#include "capture/gather.h"
#include "capture/pnetcdf/reader.h"

namespace advectio::pnetcdf {
namespace {

/// Elements of a block, as its place in memory is to be walked: dense, or by a map.
std::vector<std::ptrdiff_t> steps(const Box& box, const std::vector<MPI_Offset>& map, std::size_t element) {
  std::vector<std::ptrdiff_t> bytes(box.rank());
  for (std::size_t i = 0; i < box.rank(); ++i) bytes[i] = map[i] * static_cast<std::ptrdiff_t>(element);
  return bytes;
}

}  // namespace

std::vector<std::byte> Puts::converted(int variable, const Shape& v, std::uint64_t elements, const std::byte* data,
                                       nc_type type, int& code) {
  Bytes fill;
  if (variables_.fill_value(variable, fill); fill == default_fill(static_cast<DataType>(v.type))) fill.clear();
  std::vector<std::byte> out(elements * v.element);
  code = NC_NOERR;
  for (std::uint64_t at = 0; at < elements; at += Converter::elements_max) {
    const auto n = std::min<std::uint64_t>(elements - at, Converter::elements_max);
    const int done =
        converter_.convert(data + at * memory_size(type), type, out.data() + at * v.element, v.type, n, fill);
    if (done != NC_NOERR) code = done;
    if (done != NC_NOERR && done != NC_ERANGE) break;
  }
  return out;
}

int Puts::send_converted(int variable, const Shape& v, const Place& place, const std::byte* data, nc_type type) {
  int code = NC_NOERR;
  const auto values = converted(variable, v, place.box.volume(), data, type, code);
  if (code != NC_NOERR && code != NC_ERANGE) return code;
  const auto put = stall_.timed([&] {
    return out_.put(static_cast<std::uint32_t>(variable), place.box, place.stride, Memory{values.data(), {}},
                    v.element);
  });
  return put.ok() ? code : code_of(put.error());
}

int Puts::send_boxes(int variable, const Shape& v, const BoxList& boxes, const std::byte* data, nc_type type) {
  int code = NC_NOERR;
  std::vector<std::byte> values;
  if (type != v.type) {
    std::uint64_t elements = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i) elements += boxes.volume(i);
    values = converted(variable, v, elements, data, type, code);
    if (code != NC_NOERR && code != NC_ERANGE) return code;
    data = values.data();
  }
  const auto put = stall_.timed(
      [&] { return out_.put_boxes(static_cast<std::uint32_t>(variable), boxes, v.record, data, v.element); });
  return put.ok() ? code : code_of(put.error());
}

int Puts::send(const Request& r, const Shape& v, const Place& place, nc_type type) {
  const auto element = memory_size(type);
  const auto* data = static_cast<const std::byte*>(r.data);
  // A datatype with gaps is packed first, as the library does it; the map, if there is one, counts
  // what is packed.
  std::vector<std::byte> packed;
  const bool derived = r.memory.type == NC_NAT && r.memory.datatype != lib_.mpi.null_type && r.memory.count >= 0;
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (derived &&
      lib_.mpi.MPI_Type_get_envelope(r.memory.datatype, &integers, &addresses, &datatypes, &combiner) == MPI_SUCCESS &&
      datatypes > 0) {
    packed.resize(place.box.volume() * element);
    int position = 0;
    if (packed.size() > INT_MAX ||
        lib_.mpi.MPI_Pack(data, static_cast<int>(r.memory.count), r.memory.datatype, packed.data(),
                          static_cast<int>(packed.size()), &position, lib_.mpi.self) != MPI_SUCCESS)
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
      [&] { return out_.put(static_cast<std::uint32_t>(r.variable), place.box, place.stride, from, element); });
  return put.ok() ? NC_NOERR : code_of(put.error());
}

int Puts::send_fill(int variable, std::uint64_t record, int rank_of, int ranks_of) {
  const auto& v = *variables_.of(variable);
  Bytes fill;
  if (!variables_.fill_value(variable, fill)) return NC_EBADTYPE;
  std::uint64_t elements = 1;
  for (std::size_t d = 1; d < v.lengths.size(); ++d) elements *= v.lengths[d];
  const auto ranks = static_cast<std::uint64_t>(ranks_of), rank = static_cast<std::uint64_t>(rank_of);
  auto at = elements / ranks * rank + std::min(rank, elements % ranks);
  const auto end = at + elements / ranks + (rank < elements % ranks ? 1 : 0);
  out_.grow(record + 1);
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
      return out_.put(static_cast<std::uint32_t>(variable), box, {}, Memory{values.data(), {}}, v.element);
    });
    if (!put.ok()) return code_of(put);
    at += box.volume();
  }
  return NC_NOERR;
}

}  // namespace advectio::pnetcdf
