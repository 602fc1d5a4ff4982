#include "sinks/cdf5/fill_values.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "sinks/cdf5/values.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {

namespace {

/// Writes fill values into gaps that come in the order of the file. Those that lie together are written at once.
class FillWriter {
 public:
  FillWriter(File& file, SinkCounters& counters) : file_(file), counters_(counters) {}

  /// All of [begin, end) that is not in `put`, which are whole elements: each gap begins with one.
  Result<void> fill(const Extents& put, std::uint64_t begin, std::uint64_t end, const Bytes& value) {
    return put.for_each_gap(begin, end, [&](std::uint64_t from, std::uint64_t to) { return fill(from, to, value); });
  }

  Result<void> flush() {
    const auto bytes = std::exchange(bytes_, 0);
    return bytes == 0 ? Result<void>{} : write(at_, bytes);
  }

 private:
  Result<void> fill(std::uint64_t from, std::uint64_t to, const Bytes& value) {
    if (bytes_ > 0 && (at_ + bytes_ != from || bytes_ + (to - from) > write_bytes)) ADVECTIO_TRY(flush());
    if (bytes_ == 0) at_ = from;
    const auto n = std::min(to - from, write_bytes);
    buffer_.resize(std::max(buffer_.size(), bytes_ + n));
    fill_with(buffer_.data() + bytes_, n, value);
    bytes_ += n;
    // The values in `buffer_` are all the same, and serve several times.
    while (to - from > write_bytes) {
      const auto piece = next_piece(from, write_bytes, value.size());
      ADVECTIO_TRY(write(from, piece));
      from += piece;
      at_ = from;
      bytes_ = std::min(to - from, write_bytes);
    }
    return {};
  }

  Result<void> write(std::uint64_t at, std::uint64_t bytes) {
    counters_.bytes_out += bytes;
    return file_.write(at, std::span(buffer_).first(bytes));
  }

  File& file_;
  SinkCounters& counters_;
  std::vector<std::byte> buffer_;
  std::uint64_t at_ = 0, bytes_ = 0;  // of what is in `buffer_` and not written
};

}  // namespace

void FillValues::reset(std::uint64_t records, bool fixed) {
  records_filled_ = records;
  fixed_filled_ = fixed;
  put_.clear();
}

/// As netCDF-C does: in records all variables or, where none of those is to be filled, none of
/// them.
bool FillValues::has_fill(std::size_t variable) const {
  if (!layout_.variables[variable].has_records) return !schema_.variables[variable].no_fill;
  for (std::size_t v = 0; v < layout_.variables.size(); ++v)
    if (layout_.variables[v].has_records && !schema_.variables[v].no_fill) return true;
  return false;
}

Bytes FillValues::value_of(std::size_t variable) const {
  const auto& v = schema_.variables[variable];
  const auto value = v.fill.empty() ? default_fill(v.type) : v.fill;
  Bytes out(value.size());
  swap_to(out.data(), value.data(), value.size(), value.size());
  return out;
}

bool FillValues::are_due(std::size_t variable, std::uint64_t record) const {
  if (!has_fill(variable)) return false;
  return layout_.variables[variable].has_records ? record >= records_filled_ : !fixed_filled_;
}

Result<void> FillValues::write(File& file, std::uint64_t records) {
  FillWriter writer(file, counters_);
  std::vector<std::pair<std::size_t, Bytes>> with_records;
  for (std::size_t v = 0; v < layout_.variables.size(); ++v) {
    const auto& place = layout_.variables[v];
    if (!has_fill(v)) continue;
    auto value = value_of(v);
    if (place.has_records)
      with_records.emplace_back(v, std::move(value));
    else if (!fixed_filled_)
      ADVECTIO_TRY_WITH(writer.fill(put_, place.begin, place.begin + place.bytes, value),
                        "fill " + schema_.variables[v].name);
  }
  for (auto r = records_filled_; r < records; ++r)
    for (const auto& [v, value] : with_records) {
      const auto begin = layout_.variables[v].begin + r * layout_.record_bytes;
      const auto bytes = std::min(layout_.variables[v].bytes, layout_.record_bytes);
      ADVECTIO_TRY_WITH(writer.fill(put_, begin, begin + bytes, value), "fill " + schema_.variables[v].name);
    }
  ADVECTIO_TRY(writer.flush());
  reset(records, true);
  return {};
}

/// As netCDF-C does for variables that come later, in all records that there are.
Result<void> FillValues::write_added(File& file, std::size_t first, std::uint64_t records) {
  FillWriter writer(file, counters_);
  const Extents nothing;
  for (auto v = first; v < layout_.variables.size(); ++v)
    if (const auto& place = layout_.variables[v]; !place.has_records && !schema_.variables[v].no_fill)
      ADVECTIO_TRY(writer.fill(nothing, place.begin, place.begin + place.bytes, value_of(v)));
  for (std::uint64_t r = 0; r < records; ++r)
    for (auto v = first; v < layout_.variables.size(); ++v)
      if (const auto& place = layout_.variables[v]; place.has_records && !schema_.variables[v].no_fill) {
        const auto begin = place.begin + r * layout_.record_bytes;
        ADVECTIO_TRY(writer.fill(nothing, begin, begin + std::min(place.bytes, layout_.record_bytes), value_of(v)));
      }
  return writer.flush();
}

}  // namespace advectio
