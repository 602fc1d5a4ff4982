#include "capture/netcdf/classic_layout.h"

#include <algorithm>
#include <climits>

#include "capture/netcdf/netcdf_api.h"

namespace advectio::netcdf {
namespace {

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) {
  return to <= 1 ? n : (n + to - 1) / to * to;
}

bool is_record(const Schema& schema, const Variable& v) {
  return !v.dimensions.empty() && schema.dimensions[v.dimensions[0]].unlimited;
}

/// Of the variable, or of one record of it.
std::uint64_t padded_bytes(const Schema& schema, const Variable& v) {
  std::uint64_t bytes = size_of(v.type);
  for (const auto d : v.dimensions)
    if (!schema.dimensions[d].unlimited) bytes *= schema.dimensions[d].length;
  return round_up(bytes, 4);
}

/// Whether no more than `bytes_max`; a dimension of no length does not count.
bool fits(const Schema& schema, const Variable& v, std::uint64_t bytes_max) {
  std::uint64_t bytes = size_of(v.type);
  for (const auto d : v.dimensions) {
    const auto& dimension = schema.dimensions[d];
    if (dimension.unlimited) continue;
    if (dimension.length > bytes_max / bytes) return false;
    bytes *= std::max<std::uint64_t>(dimension.length, 1);
  }
  return true;
}

/// One too large is allowed where nothing comes after it, for only beginnings are stored.
bool sizes_fit(const Schema& schema) {
  const bool cdf5 = schema.format == FileFormat::cdf5;
  const std::uint64_t bytes_max = (cdf5                                    ? std::uint64_t{INT64_MAX}
                                   : schema.format == FileFormat::offset64 ? std::uint64_t{UINT_MAX}
                                                                           : INT_MAX) -
                                  3;
  for (const bool records : {false, true}) {
    unsigned large = 0;
    bool last_is_large = false, any_records = false;
    for (const auto& v : schema.variables) {
      any_records |= is_record(schema, v);
      if (is_record(schema, v) != records) continue;
      last_is_large = !fits(schema, v, bytes_max);
      large += last_is_large ? 1U : 0U;
    }
    if (large > 1 || (large == 1 && (cdf5 || !last_is_large || (!records && any_records)))) return false;
  }
  return true;
}

}  // namespace

std::uint64_t classic_header_bytes(const Schema& schema) {
  const std::uint64_t number = schema.format == FileFormat::cdf5 ? 8 : 4;
  const std::uint64_t offset = schema.format == FileFormat::classic ? 4 : 8;
  const auto name = [&](const std::string& s) { return number + round_up(s.size(), 4); };
  const auto attributes = [&](const std::vector<Attribute>& all) {
    std::uint64_t bytes = 4 + number;
    for (const auto& a : all) bytes += name(a.name) + 4 + number + round_up(a.values.size(), 4);
    return bytes;
  };
  std::uint64_t bytes = 4 + number + attributes(schema.attributes);
  bytes += 4 + number;
  for (const auto& d : schema.dimensions) bytes += name(d.name) + number;
  bytes += 4 + number;
  for (const auto& v : schema.variables)
    bytes += name(v.name) + number + v.dimensions.size() * number + attributes(v.attributes) + 4 + number + offset;
  return bytes;
}

int ClassicLayout::end_define_mode(const Schema& schema, ClassicPadding padding) {
  if (schema.variables.empty()) return NC_NOERR;
  if (!sizes_fit(schema)) return NC_EVARSIZE;
  // CDF-1 keeps beginnings in 31 bits.
  const std::uint64_t begin_max = schema.format == FileFormat::classic ? INT_MAX : INT64_MAX;
  const auto header = classic_header_bytes(schema);
  auto begin = begin_data;
  if (begin < header + padding.header || begin != round_up(begin, padding.data_align)) {
    begin = round_up(header, padding.data_align);
    if (begin < header + padding.header) begin = round_up(header + padding.header, padding.data_align);
  }
  begin = std::max(begin, begin_data);
  bool any_fixed = false;
  auto index = begin;
  for (const auto& v : schema.variables) {
    if (is_record(schema, v)) continue;
    if (index > begin_max) return NC_EVARSIZE;
    any_fixed = true;
    index += padded_bytes(schema, v);
  }
  end_data = index;
  if (begin_records < index + padding.data || begin_records != round_up(begin_records, padding.record_align)) {
    begin_records = round_up(index, padding.record_align);
    if (begin_records < index + padding.data) begin_records = round_up(index + padding.data, padding.record_align);
  }
  begin_records = std::max(begin_records, records_there);
  index = begin_records;
  for (const auto& v : schema.variables) {
    if (!is_record(schema, v)) continue;
    if (index > begin_max) return NC_EVARSIZE;
    index += padded_bytes(schema, v);
  }
  begin_data = any_fixed ? begin : begin_records;
  records_there = begin_records;
  return NC_NOERR;
}

void ClassicLayout::reopen(const Schema& schema) {
  const auto& variables = schema.variables;
  if (variables.empty()) *this = {};
  if (std::any_of(variables.begin(), variables.end(), [&](const Variable& v) { return is_record(schema, v); })) return;
  begin_records = records_there = end_data;
}

void ClassicLayout::pad(Schema& schema) const {
  schema.header_pad = schema.data_align = schema.data_pad = schema.record_align = 0;
  const auto header = classic_header_bytes(schema);
  if (schema.variables.empty() || begin_data == 0) return;
  schema.header_pad = begin_data - std::min(header, begin_data);
  // Without variables of fixed size the records begin where these would.
  schema.data_pad = begin_data == begin_records ? 0 : begin_records - end_data;
  if (schema.header_pad != 0 || schema.data_pad != 0) schema.data_align = schema.record_align = 1;
}

}  // namespace advectio::netcdf
