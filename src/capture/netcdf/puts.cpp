#include "capture/netcdf/puts.h"

#include <algorithm>

#include "capture/gather.h"
#include "capture/netcdf/codes.h"

namespace advectio::netcdf {
namespace {

/// Visit a block of `count` elements in row-major pieces of at most `elements_max` elements:
/// visit(offset, piece) with the place of the piece in the block. Stops at the first answer that is
/// not true.
template <typename Visit>
void for_each_piece(const std::vector<std::uint64_t>& count, std::uint64_t elements_max, Visit&& visit) {
  const std::size_t rank = count.size();
  std::vector<std::uint64_t> offset(rank, 0), piece(count);
  // The slowest dimension whose single steps still fit; slower ones are walked one by one.
  std::size_t split = 0;
  std::uint64_t inner = 1;
  for (std::size_t i = rank; i-- > 0;) {
    if (inner * count[i] > elements_max) {
      split = i;
      break;
    }
    inner *= count[i];
  }
  if (rank == 0) {
    visit(offset, piece);
    return;
  }
  std::uint64_t below = 1;
  for (std::size_t i = split + 1; i < rank; ++i) below *= count[i];
  const std::uint64_t steps = std::max<std::uint64_t>(1, elements_max / std::max<std::uint64_t>(1, below));
  for (std::size_t i = 0; i < split; ++i) piece[i] = 1;
  for (;;) {
    piece[split] = std::min(steps, count[split] - offset[split]);
    if (!visit(offset, piece)) return;
    offset[split] += piece[split];
    std::size_t i = split;
    while (offset[i] >= count[i]) {
      if (i == 0) return;
      offset[i] = 0;
      ++offset[--i];
    }
  }
}

std::uint64_t volume(const std::vector<std::uint64_t>& count) {
  std::uint64_t n = 1;
  for (const auto c : count) n *= c;
  return n;
}

/// Bytes from one element to the next along each dimension, by a map in elements.
std::vector<std::ptrdiff_t> steps(const std::ptrdiff_t* map, std::size_t rank, std::size_t element) {
  std::vector<std::ptrdiff_t> bytes(map, map + rank);
  for (auto& b : bytes) b *= static_cast<std::ptrdiff_t>(element);
  return bytes;
}

}  // namespace

int Puts::send(const PutCall& call, const Shape& v, nc_type memory, const Placement& place, const Bytes* fill) {
  static const std::vector<std::uint64_t> all_ones;
  const auto& stride = place.strides_are_ones() ? all_ones : place.stride();
  if (v.type == NC_STRING) return send_strings(call, place.box(), stride);
  if (converts(v, memory)) return send_converted(call, v, memory, place, stride, *fill);

  Memory from;
  from.data = call.data;
  if (call.map != nullptr) from.step = steps(call.map, place.box().rank(), v.element);
  const auto put = stall_.timed(
      [&] { return out_.put(static_cast<std::uint32_t>(call.variable), place.box(), stride, from, v.element); });
  if (!put.ok()) return code_of(put.error());
  if (!reader_.reads_copy()) return NC_NOERR;
  std::vector<std::byte> dense;
  if (call.map != nullptr && place.box().rank() > 0) {
    dense.resize(place.box().volume() * v.element);
    gather(static_cast<const std::byte*>(call.data), place.box().count, from.step, v.element, dense.data());
  }
  reader_.put_into_copy(call.variable, place.box(), stride, dense.empty() ? call.data : dense.data(), v.element);
  return NC_NOERR;
}

int Puts::send_strings(const PutCall& call, const Box& box, const std::vector<std::uint64_t>& stride) {
  const auto* strings = static_cast<const char* const*>(call.data);
  std::vector<const char*> gathered;
  if (call.map != nullptr && box.rank() > 0) {
    gathered.resize(box.volume());
    gather(static_cast<const std::byte*>(call.data), box.count, steps(call.map, box.rank(), sizeof(char*)),
           sizeof(char*), reinterpret_cast<std::byte*>(gathered.data()));
    strings = gathered.data();
  }
  const auto put =
      stall_.timed([&] { return out_.put_strings(static_cast<std::uint32_t>(call.variable), box, stride, strings); });
  if (!put.ok()) return code_of(put.error());
  reader_.put_into_copy(call.variable, box, stride, strings, sizeof(char*));
  return NC_NOERR;
}

int Puts::send_converted(const PutCall& call, const Shape& v, nc_type memory, const Placement& place,
                         const std::vector<std::uint64_t>& stride, const Bytes& fill) {
  const std::size_t element = memory_size(memory);
  const auto elements =
      static_cast<std::size_t>(std::min<std::uint64_t>(place.box().volume(), Converter::elements_max));
  std::vector<std::byte> dense(call.map != nullptr ? elements * element : 0), converted(elements * v.element);
  std::vector<std::ptrdiff_t> step;
  if (call.map != nullptr) step = steps(call.map, place.box().rank(), element);
  const auto* from = static_cast<const std::byte*>(call.data);

  Box part{place.box()};
  int worst = NC_NOERR;
  for_each_piece(place.box().count, elements, [&](const auto& offset, const auto& piece) {
    const std::uint64_t n = volume(piece);
    const std::byte* in = from;
    if (call.map != nullptr && !piece.empty()) {
      std::ptrdiff_t first = 0;
      for (std::size_t i = 0; i < piece.size(); ++i) first += static_cast<std::ptrdiff_t>(offset[i]) * step[i];
      gather(from + first, piece, step, element, dense.data());
      in = dense.data();
    } else {
      from += n * element;
    }
    const int code = converter_.convert(in, memory, converted.data(), v.type, n, fill);
    if (code != NC_NOERR) worst = code;
    if (code != NC_NOERR && code != NC_ERANGE) return false;

    for (std::size_t i = 0; i < piece.size(); ++i) part.start[i] = place.box().start[i] + offset[i] * place.stride()[i];
    part.count = piece;
    const auto put = stall_.timed([&] {
      return out_.put(static_cast<std::uint32_t>(call.variable), part, stride, Memory{converted.data(), {}}, v.element);
    });
    if (put.ok()) {
      reader_.put_into_copy(call.variable, part, stride, converted.data(), v.element);
      return true;
    }
    worst = code_of(put.error());
    return false;
  });
  return worst;
}

int Puts::send_fill(int variable, const Variable& v, const Box& box) {
  const Bytes fill = v.fill.empty() ? default_fill(v.type) : v.fill;
  reader_.close_unless_copy();
  const auto put = stall_.timed([&] {
    return out_.put(static_cast<std::uint32_t>(variable), box, {}, Memory{fill.data(), {}}, size_of(v.type));
  });
  if (put.ok()) {
    any_ = true;
    reader_.put_into_copy(variable, box, {}, fill.data(), size_of(v.type));
  }
  return code_of(put);
}

void Puts::note(int variable, const Placement& place, std::size_t least) {
  any_ = true;
  const auto at = static_cast<std::size_t>(variable);
  if (ends_.size() <= at) ends_.resize(at + 1);
  if (!ends_[at]) ends_[at].emplace(place.box().rank(), 0);
  auto& end = *ends_[at];
  for (std::size_t i = 0; i < end.size(); ++i) end[i] = std::max({end[i], std::size_t{place.end(i)}, least});
}

}  // namespace advectio::netcdf
