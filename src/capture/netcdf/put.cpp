// Data on its way out: the checks of the real library, then straight from the program's memory into
// the dataset.
#include <algorithm>

#include "capture/gather.h"
#include "capture/netcdf/captured_file.h"

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

PutAnswer CapturedFile::put(const PutCall& call) {
  const shadow::Stall stall(stall_);
  const Collective in_call(collective(call.variable) ? collective_out() : nullptr);
  const bool forbidden = explicit_modes() && defining();
  const auto* v = shapes_.of(call.variable);
  // In define mode the shadow has the whole answer, unless it depends on lengths: they are zero
  // there.
  if (forbidden && call.form != PutCall::Form::varm)
    return {call.count == nullptr && v != nullptr && has_grown(*v) ? NC_EINDEFINE : NC_NOERR, true};
  if (v == nullptr) {
    // The shadow of a classic format is always in define mode, where its program is not.
    // The other forms ask for the variable's rank or type first.
    const bool complete = call.start != nullptr && (call.count != nullptr || call.form == PutCall::Form::var1);
    const bool one_step =
        complete && (call.form == PutCall::Form::var1 || (call.form == PutCall::Form::vara && call.memory != NC_NAT));
    const bool global = call.variable == NC_GLOBAL && one_step && classic_format();
    return {global ? NC_EGLOBAL : NC_ENOTVAR, !classic_format()};
  }
  const nc_type memory = call.memory == NC_NAT ? v->type : call.memory;

  PutAnswer answer;
  shapes_.load();
  if (call.form == PutCall::Form::var || call.count == nullptr) learn_lengths();
  answer.code = place_.of(call, *v, memory, answer.ask_shadow);
  if (forbidden && (answer.code == NC_NOERR || answer.code == NC_EBADTYPE || place_.clipped())) {
    const bool nothing = place_.box().empty() && call.map != nullptr;
    return {nothing ? NC_NOERR : NC_EINDEFINE, false};
  }
  // Strings for numbers are refused when define mode has ended. The mapped form is taken apart into
  // others, which do so.
  const bool mapped = call.form == PutCall::Form::varm && call.map != nullptr;
  if (!forbidden && (answer.code == NC_EBADTYPE || (mapped && place_.clipped()))) leave_define_mode();
  if (answer.code != NC_NOERR) return answer;
  answer.ask_shadow = false;
  if (mapped && place_.box().empty()) return answer;
  answer.code = leave_define_mode();
  if (answer.code != NC_NOERR) return answer;
  const bool first = !classic_format() && !written(call.variable);
  if (together_ != nullptr) answer.code = put_together(call.variable, *v);
  if (answer.code == NC_NOERR && place_.box().empty()) {
    if (classic_format()) answer.code = grow(call, *v);
    if (first) note_written(call.variable);
    return answer;
  }
  if (answer.code == NC_NOERR) answer.code = flush_schema();
  if (answer.code != NC_NOERR) return answer;

  if (!reads_copy_) close_reader();
  PutCall inside(call);
  if (place_.clipped()) inside.map = place_.map();
  answer.code = send(inside, *v, memory);
  if (answer.code == NC_NOERR || answer.code == NC_ERANGE) {
    note_put(call.variable);
    if (first) note_written(call.variable);
    for (std::size_t i = 0; i < place_.box().rank(); ++i) {
      auto& extent = shapes_.extent(v->dimensions[i]);
      if (extent.unlimited) extent.length = std::max(extent.length, place_.end(i));
    }
    if (place_.clipped()) answer.code = NC_EINVALCOORDS;
  }
  return answer;
}

void CapturedFile::note_put(int variable) {
  put_anything_ = true;
  const auto at = static_cast<std::size_t>(variable);
  if (put_.size() <= at) put_.resize(at + 1);
  if (!put_[at]) put_[at].emplace(place_.box().rank(), 0);
  auto& end = *put_[at];
  for (std::size_t i = 0; i < end.size(); ++i) end[i] = std::max<std::size_t>(end[i], place_.end(i));
}

/// In the classic formats even a put of nothing makes the records up to its end, filled. We put one
/// of the fill values.
int CapturedFile::grow(const PutCall& call, const Shape& v) {
  if (place_.box().rank() == 0) return NC_NOERR;
  auto& extent = shapes_.extent(v.dimensions[0]);
  const auto length = place_.box().start[0] + place_.box().count[0];
  if (!extent.unlimited || length <= extent.length || !place_.strides_are_ones() || call.map != nullptr)
    return NC_NOERR;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  Box one{std::vector<std::uint64_t>(place_.box().rank(), 0), std::vector<std::uint64_t>(place_.box().rank(), 1)};
  one.start[0] = length - 1;
  if (const int code = put_fill(call.variable, one); code != NC_NOERR) return code;
  note_put(call.variable);
  // At the least the element that was filled.
  for (auto& end : *put_[static_cast<std::size_t>(call.variable)]) end = std::max<std::size_t>(end, 1);
  extent.length = length;
  return NC_NOERR;
}

int CapturedFile::send(const PutCall& call, const Shape& v, nc_type memory) {
  static const std::vector<std::uint64_t> all_ones;
  const auto& stride = place_.strides_are_ones() ? all_ones : place_.stride();
  if (v.type == NC_STRING) return send_strings(call, stride);
  if (memory != v.type) return send_converted(call, v, memory, stride);

  Memory from;
  from.data = call.data;
  if (call.map != nullptr) from.step = steps(call.map, place_.box().rank(), v.element);
  const auto put = stall_.timed(
      [&] { return out_->put(static_cast<std::uint32_t>(call.variable), place_.box(), stride, from, v.element); });
  if (!put.ok()) return code_of(put.error());
  if (!reads_copy_) return NC_NOERR;
  std::vector<std::byte> dense;
  if (call.map != nullptr && place_.box().rank() > 0) {
    dense.resize(place_.box().volume() * v.element);
    gather(static_cast<const std::byte*>(call.data), place_.box().count, from.step, v.element, dense.data());
  }
  put_into_copy(call.variable, place_.box(), stride, dense.empty() ? call.data : dense.data(), v.element);
  return NC_NOERR;
}

int CapturedFile::send_strings(const PutCall& call, const std::vector<std::uint64_t>& stride) {
  const auto* strings = static_cast<const char* const*>(call.data);
  std::vector<const char*> gathered;
  if (call.map != nullptr && place_.box().rank() > 0) {
    gathered.resize(place_.box().volume());
    gather(static_cast<const std::byte*>(call.data), place_.box().count,
           steps(call.map, place_.box().rank(), sizeof(char*)), sizeof(char*),
           reinterpret_cast<std::byte*>(gathered.data()));
    strings = gathered.data();
  }
  const auto put = stall_.timed(
      [&] { return out_->put_strings(static_cast<std::uint32_t>(call.variable), place_.box(), stride, strings); });
  if (!put.ok()) return code_of(put.error());
  put_into_copy(call.variable, place_.box(), stride, strings, sizeof(char*));
  return NC_NOERR;
}

int CapturedFile::send_converted(const PutCall& call, const Shape& v, nc_type memory,
                                 const std::vector<std::uint64_t>& stride) {
  const std::size_t element = memory_size(memory);
  const auto elements =
      static_cast<std::size_t>(std::min<std::uint64_t>(place_.box().volume(), Converter::elements_max));
  std::vector<std::byte> dense(call.map != nullptr ? elements * element : 0), converted(elements * v.element);
  std::vector<std::ptrdiff_t> step;
  if (call.map != nullptr) step = steps(call.map, place_.box().rank(), element);
  const Bytes& fill = read_schema().variables[static_cast<std::size_t>(call.variable)].fill;
  const auto* from = static_cast<const std::byte*>(call.data);

  Box part{place_.box()};
  int worst = NC_NOERR;
  for_each_piece(place_.box().count, elements, [&](const auto& offset, const auto& piece) {
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

    for (std::size_t i = 0; i < piece.size(); ++i)
      part.start[i] = place_.box().start[i] + offset[i] * place_.stride()[i];
    part.count = piece;
    const auto put = stall_.timed([&] {
      return out_->put(static_cast<std::uint32_t>(call.variable), part, stride, Memory{converted.data(), {}},
                       v.element);
    });
    if (put.ok()) {
      put_into_copy(call.variable, part, stride, converted.data(), v.element);
      return true;
    }
    worst = code_of(put.error());
    return false;
  });
  return worst;
}

}  // namespace advectio::netcdf
