// Data on its way out: the checks of the real library, then straight from the program's memory into the dataset.
#include <algorithm>
#include <climits>
#include <cstring>

#include "capture/netcdf/captured_file.h"

namespace advectio {
namespace {

/// Visit a block of `count` elements in row-major pieces of at most `elements_max` elements: visit(offset, piece) with
/// the place of the piece in the block. Stops at the first answer that is not true.
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

/// Gather the elements of a piece of a mapped block into dense memory.
void gather(const std::byte* from, const std::ptrdiff_t* map, const std::vector<std::uint64_t>& offset,
            const std::vector<std::uint64_t>& piece, std::size_t element, std::byte* to) {
  const std::size_t rank = piece.size();
  std::vector<std::uint64_t> at(rank, 0);
  const auto bytes = static_cast<std::ptrdiff_t>(element);
  for (;;) {
    std::ptrdiff_t place = 0;
    for (std::size_t i = 0; i < rank; ++i) place += static_cast<std::ptrdiff_t>(offset[i] + at[i]) * map[i] * bytes;
    std::memcpy(to, from + place, element);
    to += element;
    std::size_t i = rank;
    for (;;) {
      if (i-- == 0) return;
      if (++at[i] < piece[i]) break;
      at[i] = 0;
    }
  }
}

bool is_text(nc_type type) {
  return type == NC_CHAR;
}
bool is_string(nc_type type) {
  return type == NC_STRING;
}

}  // namespace

// The order of these checks is the library's, for a call may be wrong in several ways. The place (box_, stride_) has
// been filled in.

int CapturedFile::vara_refusal_hdf5(const Known& v) const {
  const std::size_t rank = v.dimensions.size();
  bool nothing = false;
  for (std::size_t i = 0; i < rank; ++i) nothing |= box_.count[i] == 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    if (extent.unlimited) continue;
    if (box_.start[i] > extent.length || (box_.start[i] == extent.length && box_.count[i] > 0)) return NC_EINVALCOORDS;
    // In this form no product can wrap.
    if (!nothing && (extent.length - 1 - box_.start[i]) / stride_[i] < box_.count[i] - 1) return NC_EEDGE;
  }
  return NC_NOERR;
}

int CapturedFile::vara_refusal_classic(const Known& v) const {
  const std::size_t rank = v.dimensions.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    if (extent.unlimited) {
      if (box_.start[i] > UINT_MAX) return NC_EINVALCOORDS;
    } else if (box_.start[i] > extent.length) {
      return NC_EINVALCOORDS;
    }
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    if (extent.unlimited) continue;
    if (box_.start[i] == extent.length && box_.count[i] > 0) return NC_EINVALCOORDS;
    if (box_.count[i] > extent.length || box_.start[i] + box_.count[i] > extent.length) return NC_EEDGE;
  }
  return NC_NOERR;
}

/// Where the library takes a call apart into single elements, those inside are written although others are not and the
/// call fails. box_ becomes what is inside, and map_ keeps where it lies in the program's memory.
void CapturedFile::clip(const Known& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  map_.assign(rank, 1);
  for (std::size_t i = rank; i-- > 0;) {
    if (call.map != nullptr)
      map_[i] = call.map[i];
    else if (i + 1 < rank)
      map_[i] = map_[i + 1] * static_cast<std::ptrdiff_t>(box_.count[i + 1]);
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    if (extent.unlimited) continue;
    const auto inside = (extent.length - 1 - box_.start[i]) / stride_[i] + 1;
    clipped_ |= inside < box_.count[i];
    box_.count[i] = std::min(box_.count[i], inside);
  }
}

int CapturedFile::vars_refusal_classic(const Known& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  bool ones = true, nothing = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    if (!extent.unlimited) {
      if (box_.start[i] > extent.length || (box_.start[i] == extent.length && box_.count[i] > 0))
        return NC_EINVALCOORDS;
      if (box_.start[i] + box_.count[i] > extent.length) return NC_EEDGE;
    }
    const auto stride = call.stride != nullptr ? call.stride[i] : 1;
    if (stride <= 0 || stride >= INT_MAX) return NC_ESTRIDE;
    ones &= stride == 1;
    nothing |= box_.count[i] == 0;
  }
  if (ones) return vara_refusal_classic(v);
  if (nothing) return NC_NOERR;
  clip(v, call);
  return NC_NOERR;
}

int CapturedFile::varm_refusal(const Known& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  bool ones = true;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto stride = call.stride != nullptr ? call.stride[i] : 1;
    if (stride <= 0 || stride >= INT_MAX) return NC_ESTRIDE;
    ones &= stride == 1;
  }
  if (ones && call.map == nullptr) return classic_format() ? vara_refusal_classic(v) : vara_refusal_hdf5(v);
  // Only the first unlimited dimension of the dataset, in the first place, may be exceeded in this form of the call.
  const auto record = std::find_if(extents_.begin(), extents_.end(), [](const Extent& e) { return e.unlimited; });
  const bool grows = rank > 0 && v.dimensions[0] == record - extents_.begin();
  for (std::size_t i = grows ? 1 : 0; i < rank; ++i) {
    const auto length = extents_[static_cast<std::size_t>(v.dimensions[i])].length;
    if (box_.start[i] > length || (box_.start[i] == length && box_.count[i] > 0)) return NC_EINVALCOORDS;
    if (box_.start[i] + box_.count[i] > length) return NC_EEDGE;
  }
  for (std::size_t i = 0; i < rank; ++i)
    if (box_.count[i] == 0) return NC_NOERR;
  clip(v, call);
  return NC_NOERR;
}

int CapturedFile::refusal(const PutCall& call, const Known& v, nc_type memory, bool& ask_shadow) {
  using Form = PutCall::Form;
  const std::size_t rank = v.dimensions.size();
  ask_shadow = !classic_format();
  clipped_ = false;
  load_dimensions();
  if (call.form == Form::var || call.count == nullptr) learn_lengths();

  const bool needs_start = call.form != Form::var;
  if (needs_start && rank > 0 && call.start == nullptr) return NC_EINVALCOORDS;
  if (is_text(memory) != is_text(v.type)) return NC_ECHAR;

  box_.start.resize(rank);
  box_.count.resize(rank);
  stride_.assign(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    auto& extent = extents_[static_cast<std::size_t>(v.dimensions[i])];
    const auto length = extent.length;
    if (call.form == Form::var || (call.count == nullptr && call.form != Form::var1)) extent.asked = length;
    box_.start[i] = needs_start ? call.start[i] : 0;
    box_.count[i] = call.form == Form::var1 ? 1
                    // Without a count the library takes the whole length, wherever the start.
                    : call.form == Form::var || call.count == nullptr ? length
                                                                      : call.count[i];
    if (call.stride == nullptr) continue;
    if (call.stride[i] <= 0) {
      if (!classic_format()) return NC_ESTRIDE;
    } else {
      stride_[i] = static_cast<std::uint64_t>(call.stride[i]);
    }
  }

  int code = NC_NOERR;
  if (call.form == Form::varm && rank > 0) {
    ask_shadow = false;
    code = varm_refusal(v, call);
  } else if (classic_format()) {
    code = call.form == Form::vars ? vars_refusal_classic(v, call) : vara_refusal_classic(v);
  } else {
    code = vara_refusal_hdf5(v);
  }
  if (code != NC_NOERR || is_string(memory) == is_string(v.type)) return code;
  // Found out while converting, which HDF5 datasets do even where there is nothing to convert.
  const bool converts = !box_.empty() || (!classic_format() && (call.form != Form::varm || call.map == nullptr));
  return clipped_ ? NC_EINVALCOORDS : converts ? NC_EBADTYPE : NC_NOERR;
}

PutAnswer CapturedFile::put(const PutCall& call) {
  const Stall stall(*this);
  const Collective turn(collective(call.variable) ? turns() : nullptr);
  const bool forbidden = explicit_modes() && defining_;
  const auto* v = known(call.variable);
  // In define mode the shadow knows everything there is to say, even that a call of no elements is none; except where
  // that depends on lengths, which are zero there.
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
  answer.code = refusal(call, *v, memory, answer.ask_shadow);
  if (forbidden && (answer.code == NC_NOERR || answer.code == NC_EBADTYPE || clipped_)) {
    const bool nothing = box_.empty() && call.map != nullptr;
    return {nothing ? NC_NOERR : NC_EINDEFINE, false};
  }
  // Strings for numbers are refused when define mode has ended. The mapped form is taken apart into others, which do
  // so.
  const bool mapped = call.form == PutCall::Form::varm && call.map != nullptr;
  if (!forbidden && (answer.code == NC_EBADTYPE || (mapped && clipped_))) leave_define_mode();
  if (answer.code != NC_NOERR) return answer;
  answer.ask_shadow = false;
  if (mapped && box_.empty()) return answer;
  answer.code = leave_define_mode();
  if (answer.code != NC_NOERR) return answer;
  const bool first = !classic_format() && !written(call.variable);
  if (together_ != nullptr) answer.code = put_together(call.variable, *v);
  if (answer.code == NC_NOERR && box_.empty()) {
    if (classic_format()) answer.code = grow(call, *v);
    if (first) note_written(call.variable);
    return answer;
  }
  if (answer.code == NC_NOERR) answer.code = flush_schema();
  if (answer.code != NC_NOERR) return answer;

  close_reader();
  PutCall inside(call);
  if (clipped_) inside.map = map_.data();
  answer.code = send(inside, *v, memory);
  if (answer.code == NC_NOERR || answer.code == NC_ERANGE) {
    note_put(call.variable);
    if (first) note_written(call.variable);
    for (std::size_t i = 0; i < box_.rank(); ++i) {
      auto& extent = extents_[static_cast<std::size_t>(v->dimensions[i])];
      if (extent.unlimited)
        extent.length = std::max(extent.length, box_.start[i] + (box_.count[i] - 1) * stride_[i] + 1);
    }
    if (clipped_) answer.code = NC_EINVALCOORDS;
  }
  return answer;
}

void CapturedFile::note_put(int variable) {
  put_anything_ = true;
  const auto at = static_cast<std::size_t>(variable);
  if (classic_format()) return;
  if (put_.size() <= at) put_.resize(at + 1);
  if (!put_[at]) put_[at].emplace(box_.rank(), 0);
  auto& end = *put_[at];
  for (std::size_t i = 0; i < end.size(); ++i)
    end[i] = std::max<std::size_t>(end[i], box_.start[i] + (box_.count[i] - 1) * stride_[i] + 1);
}

/// In the classic formats even a put of nothing makes the records up to its end, filled. We put one of the fill values.
int CapturedFile::grow(const PutCall& call, const Known& v) {
  if (box_.rank() == 0) return NC_NOERR;
  auto& extent = extents_[static_cast<std::size_t>(v.dimensions[0])];
  const bool ones = std::all_of(stride_.begin(), stride_.end(), [](std::uint64_t s) { return s == 1; });
  const auto length = box_.start[0] + box_.count[0];
  if (!extent.unlimited || length <= extent.length || !ones || call.map != nullptr) return NC_NOERR;
  if (const int code = flush_schema(); code != NC_NOERR) return code;
  Box one{std::vector<std::uint64_t>(box_.rank(), 0), std::vector<std::uint64_t>(box_.rank(), 1)};
  one.start[0] = length - 1;
  if (const int code = put_fill(call.variable, one); code != NC_NOERR) return code;
  extent.length = length;
  return NC_NOERR;
}

int CapturedFile::send(const PutCall& call, const Known& v, nc_type memory) {
  static const std::vector<std::uint64_t> all_ones;
  const bool ones = std::all_of(stride_.begin(), stride_.end(), [](std::uint64_t s) { return s == 1; });
  const auto& stride = ones ? all_ones : stride_;
  if (is_string(v.type)) return send_strings(call, stride);
  if (memory != v.type) return send_converted(call, v, memory, stride);

  Memory from;
  from.data = call.data;
  if (call.map != nullptr)
    for (std::size_t i = 0; i < box_.rank(); ++i)
      from.step.push_back(call.map[i] * static_cast<std::ptrdiff_t>(v.element));
  const auto put =
      timed([&] { return out_->put(static_cast<std::uint32_t>(call.variable), box_, stride, from, v.element); });
  return put.ok() ? NC_NOERR : code_of(put.error());
}

int CapturedFile::send_strings(const PutCall& call, const std::vector<std::uint64_t>& stride) {
  const auto* strings = static_cast<const char* const*>(call.data);
  std::vector<const char*> gathered;
  if (call.map != nullptr && box_.rank() > 0) {
    gathered.resize(box_.volume());
    const std::vector<std::uint64_t> none(box_.rank(), 0);
    gather(static_cast<const std::byte*>(call.data), call.map, none, box_.count, sizeof(char*),
           reinterpret_cast<std::byte*>(gathered.data()));
    strings = gathered.data();
  }
  const auto put =
      timed([&] { return out_->put_strings(static_cast<std::uint32_t>(call.variable), box_, stride, strings); });
  return put.ok() ? NC_NOERR : code_of(put.error());
}

int CapturedFile::send_converted(const PutCall& call, const Known& v, nc_type memory,
                                 const std::vector<std::uint64_t>& stride) {
  const std::size_t element = memory_size(memory);
  const auto elements = static_cast<std::size_t>(std::min<std::uint64_t>(box_.volume(), Converter::elements_max));
  std::vector<std::byte> dense(call.map != nullptr ? elements * element : 0), converted(elements * v.element);
  const Bytes& fill = read_schema().variables[static_cast<std::size_t>(call.variable)].fill;
  const auto* from = static_cast<const std::byte*>(call.data);

  Box part{box_};
  int worst = NC_NOERR;
  for_each_piece(box_.count, elements, [&](const auto& offset, const auto& piece) {
    const std::uint64_t n = volume(piece);
    const std::byte* in = from;
    if (call.map != nullptr && !piece.empty()) {
      gather(from, call.map, offset, piece, element, dense.data());
      in = dense.data();
    } else {
      from += n * element;
    }
    const int code = converter_.convert(in, memory, converted.data(), v.type, n, fill);
    if (code != NC_NOERR) worst = code;
    if (code != NC_NOERR && code != NC_ERANGE) return false;

    for (std::size_t i = 0; i < piece.size(); ++i) part.start[i] = box_.start[i] + offset[i] * stride_[i];
    part.count = piece;
    const auto put = timed([&] {
      return out_->put(static_cast<std::uint32_t>(call.variable), part, stride, Memory{converted.data(), {}},
                       v.element);
    });
    if (put.ok()) return true;
    worst = code_of(put.error());
    return false;
  });
  return worst;
}

}  // namespace advectio
