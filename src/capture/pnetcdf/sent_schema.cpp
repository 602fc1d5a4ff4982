#include "capture/pnetcdf/sent_schema.h"

#include <algorithm>
#include <utility>

#include "capture/pnetcdf/reader.h"
#include "capture/pnetcdf/shadow_calls.h"
#include "capture/shadow/guard.h"

namespace advectio::pnetcdf {

std::array<std::uint64_t, 4> SentSchema::pad(const MPI_Offset* pads) {
  std::uint64_t* const to[4] = {&schema_.header_pad, &schema_.data_align, &schema_.data_pad, &schema_.record_align};
  for (int i = 0; i < 4; ++i) {
    *to[i] = static_cast<std::uint64_t>(pads[i]);
    // Whatever the pads, PnetCDF aligns data to four bytes; netCDF-C would not, and then refuses
    // its own file.
    if (to[i] == &schema_.data_align || to[i] == &schema_.record_align)
      *to[i] = std::max<std::uint64_t>((*to[i] + 3) / 4 * 4, 4);
  }
  return {*to[0], *to[1], *to[2], *to[3]};
}

void SentSchema::touch(int variable) {
  if (variable == NC_GLOBAL)
    stale_globals_ = true;
  else if (variable >= 0)
    stale_.push_back(variable);
  changed();
}

void SentSchema::touch_dimensions() {
  stale_dimensions_ = true;
  changed();
}

/// In define mode that counts when it ends.
void SentSchema::changed() {
  if (!define_mode_.defining()) must_send();
}

void SentSchema::must_send() {
  unsent_ = true;
  if (sends_) out_.hold_schema();
}

const Schema& SentSchema::read() {
  if (define_mode_.defining()) return schema_;
  try {
    return read_changes();
  } catch (...) {  // half of it is read: all of it the next time
    schema_.dimensions.clear();
    schema_.variables.clear();
    stale_.clear();
    stale_globals_ = true;
    throw;
  }
}

const Schema& SentSchema::read_changes() {
  int dimensions = 0, variables = 0, record = -1;
  if (lib_.ncmpi_inq(ncid_, &dimensions, &variables, nullptr, &record) != NC_NOERR) return schema_;
  if (std::exchange(stale_dimensions_, false)) schema_.dimensions.clear();
  for (int i = static_cast<int>(schema_.dimensions.size()); i < dimensions; ++i) {
    shadow::read_dimension(Calls{lib_, ncid_}, i, i == record, schema_.dimensions.emplace_back());
  }
  if (std::exchange(stale_globals_, false)) shadow::read_attributes(Calls{lib_, ncid_}, NC_GLOBAL, schema_.attributes);
  const int before = static_cast<int>(schema_.variables.size());
  schema_.variables.resize(static_cast<std::size_t>(variables));
  std::sort(stale_.begin(), stale_.end());
  stale_.erase(std::unique(stale_.begin(), stale_.end()), stale_.end());
  for (const int v : stale_)
    if (v < before) read_variable(v, record);
  stale_.clear();
  for (int v = before; v < variables; ++v) read_variable(v, record);
  return schema_;
}

void SentSchema::read_variable(int variable, int record) {
  auto& v = schema_.variables[static_cast<std::size_t>(variable)];
  shadow::read_shape(Calls{lib_, ncid_}, variable, v);
  shadow::read_attributes(Calls{lib_, ncid_}, variable, v.attributes);
  const auto* fill = shadow::fill_attribute(v);
  v.has_fill = fill != nullptr;
  v.fill = v.has_fill && fill->values != default_fill(v.type) ? fill->values : Bytes{};
  // Records are filled by the program (ncmpi_fill_var_rec), and in ParallelFile::fill_added_records.
  v.no_fill = !fill_modes_.filled(variable) || (!v.dimensions.empty() && static_cast<int>(v.dimensions[0]) == record);
}

int SentSchema::flush() noexcept {
  if (!sends_ || !unsent_ || define_mode_.fresh()) return NC_NOERR;
  return shadow::answered("the schema", [&] {
    const Schema& schema = read();
    const auto sent = stall_.timed([&] { return out_.schema(schema); });
    if (sent.ok()) unsent_ = false;
    return code_of(sent);
  });
}

}  // namespace advectio::pnetcdf
