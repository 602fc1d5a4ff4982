#include "capture/netcdf/description.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "capture/netcdf/shadow_schema.h"

namespace advectio::netcdf {

Description::Description(const RealLibrary& lib, int ncid, FileFormat format) : lib_(lib), ncid_(ncid) {
  schema_.format = format;
  note_variable(NC_GLOBAL);
}

void Description::touch(Touched what, int variable) {
  switch (what) {
    case Touched::dimensions: dirty_dimensions_ = true; break;
    case Touched::globals: dirty_globals_ = true; break;
    case Touched::variable:
    case Touched::all_but_attributes:
      if (what == Touched::variable) forget_attributes(variable);
      if (variable == NC_GLOBAL) {
        dirty_globals_ = true;
      } else if (variable >= 0 && static_cast<std::size_t>(variable) < dirty_variables_.size()) {
        dirty_variables_[static_cast<std::size_t>(variable)] = true;
      }
      break;
    case Touched::everything:
      noted_.clear();
      dirty_dimensions_ = dirty_globals_ = true;
      dirty_variables_.assign(dirty_variables_.size(), true);
      break;
  }
}

void Description::note_nothing() noexcept {
  noted_.clear();
  notes_ = false;
}

void Description::end_define_mode() {
  for (auto& q : quantized_)
    if (q.attributes_before < 0) lib_.nc_inq_varnatts(ncid_, q.variable, &q.attributes_before);
}

std::optional<std::vector<Attribute>>* Description::noted(int variable) {
  const auto at = static_cast<std::size_t>(variable - NC_GLOBAL);
  return variable >= NC_GLOBAL && at < noted_.size() && noted_[at] ? &noted_[at] : nullptr;
}

void Description::forget_attributes(int variable) {
  if (auto* known = noted(variable); known != nullptr) known->reset();
}

void Description::note_variable(int variable) {
  if (!notes_) return;
  const auto at = static_cast<std::size_t>(variable - NC_GLOBAL);
  try {
    if (noted_.size() <= at) noted_.resize(at + 1);
  } catch (const std::bad_alloc&) {  // they are read back
    return;
  }
  noted_[at].emplace();
}

void Description::note_attribute(int variable, const char* name, nc_type type, std::size_t count, const void* values) {
  auto* known = noted(variable);
  if (known == nullptr) return;
  // The library has names in a normal form of UTF-8, gives the fill value a meaning, and leaves one
  // that is put again where it was.
  const std::string_view n = name != nullptr ? name : "";
  const bool ascii = std::all_of(n.begin(), n.end(), [](char c) { return static_cast<signed char>(c) > 0; });
  const bool again = std::any_of((*known)->begin(), (*known)->end(), [n](const Attribute& a) { return a.name == n; });
  const auto data_type = static_cast<DataType>(type);
  if (n.empty() || n == "_FillValue" || !ascii || again || (values == nullptr && count > 0) || !is_known(data_type) ||
      data_type == DataType::string) {
    known->reset();
    return;
  }
  try {
    Attribute& a = (*known)->emplace_back();
    a.name = n;
    a.type = data_type;
    a.count = count;
    const auto* bytes = static_cast<const std::byte*>(values);
    a.values.assign(bytes, bytes + count * size_of(data_type));
  } catch (const std::bad_alloc&) {
    known->reset();
  }
}

int Description::read_globals() {
  const auto* known = noted(NC_GLOBAL);
  if (known == nullptr) return read_attributes(lib_, ncid_, NC_GLOBAL, schema_.attributes);
  const int code = lib_.nc_inq(ncid_, nullptr, nullptr, nullptr, nullptr);
  if (code == NC_NOERR) schema_.attributes = **known;
  return code;
}

void Description::mark_rounding(Variable& v, int variable) const {
  const auto q = std::find_if(quantized_.begin(), quantized_.end(),
                              [variable](const Quantized& of) { return of.variable == variable; });
  if (q == quantized_.end() || q->attributes_before < 0) return;
  Attribute mark{rounding_mark, DataType::int32, 1, {}, {}};
  if (std::any_of(v.attributes.begin(), v.attributes.end(), [&](const Attribute& a) { return a.name == mark.name; }))
    return;
  Encoder(mark.values).number(static_cast<std::int32_t>(v.round_bits));
  const auto before = std::min<std::size_t>(static_cast<std::size_t>(q->attributes_before), v.attributes.size());
  v.attributes.insert(v.attributes.begin() + static_cast<std::ptrdiff_t>(before), std::move(mark));
}

const Schema& Description::read(int fill_mode) {
  // A shadow cannot be read while its library ends. The schema then stays as it was read before.
  if (dirty_dimensions_ && read_dimensions(lib_, ncid_, schema_.dimensions) == NC_NOERR) dirty_dimensions_ = false;
  if (dirty_globals_ && read_globals() == NC_NOERR) dirty_globals_ = false;
  int count = 0;
  if (lib_.nc_inq(ncid_, nullptr, &count, nullptr, nullptr) == NC_NOERR) {
    schema_.variables.resize(static_cast<std::size_t>(count));
    dirty_variables_.resize(static_cast<std::size_t>(count), true);
  }
  bool any_with_records = false;
  const auto has_records = [this](const Variable& v) {
    return !v.dimensions.empty() && v.dimensions[0] < schema_.dimensions.size() &&
           schema_.dimensions[v.dimensions[0]].unlimited;
  };
  for (std::size_t i = 0; i < dirty_variables_.size(); ++i) {
    auto& v = schema_.variables[i];
    if (!dirty_variables_[i]) {
      any_with_records = any_with_records || has_records(v);
      continue;
    }
    const auto* known = noted(static_cast<int>(i));
    if (read_variable(lib_, ncid_, static_cast<int>(i), is_hdf5(schema_.format), known != nullptr ? &**known : nullptr,
                      v) != NC_NOERR)
      continue;
    if (!is_hdf5(schema_.format)) {
      // The library fills the records of all variables, or of none: the flag of the first one
      // decides.
      const bool first_with_records = has_records(v) && !any_with_records;
      any_with_records = any_with_records || first_with_records;
      v.no_fill = (v.no_fill && !first_with_records) || fill_mode == NC_NOFILL;
    }
    if (v.round_bits > 0) mark_rounding(v, static_cast<int>(i));
    dirty_variables_[i] = false;
  }
  return schema_;
}

}  // namespace advectio::netcdf
