// A schema out of a shadow. netCDF-C and PnetCDF have the same calls for it, with other names and
// types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/schema.h"

namespace advectio::shadow {

/// As in netcdf.h and pnetcdf.h.
constexpr int name_max = 256, bad_type = -45;

// `Calls` are one library's calls for one open dataset. Each returns its code; 0 is success.
//   int dimension(int id, char* name, std::uint64_t& length)
//   int variable(int id, char* name, int& type, std::vector<std::uint32_t>& dimensions)
//   int attribute_count(int variable, int& count)
//   int attribute_name(int variable, int number, char* name)
//   int attribute(int variable, const char* name, int& type, std::uint64_t& count)
//   int attribute_values(int variable, const char* name, void* values)
//   int attribute_strings(int variable, const char* name, std::uint64_t count,
//                         std::vector<String>& strings)
// The last one only where the library has strings.

template <typename Calls>
int read_dimension(const Calls& calls, int id, bool unlimited, Dimension& to) {
  char name[name_max + 1] = {};
  std::uint64_t length = 0;
  if (const int code = calls.dimension(id, name, length); code != 0) return code;
  to = {name, unlimited ? 0 : length, unlimited};
  return 0;
}

/// `variable`: -1 for an attribute of the dataset.
template <typename Calls>
int read_attribute(const Calls& calls, int variable, const char* name, Attribute& to) {
  int type = 0;
  if (const int code = calls.attribute(variable, name, type, to.count); code != 0) return code;
  to.name = name;
  to.type = static_cast<DataType>(type);
  if (!is_known(to.type)) return bad_type;
  if constexpr (requires { &Calls::attribute_strings; }) {
    if (to.type == DataType::string) return calls.attribute_strings(variable, name, to.count, to.strings);
  }
  to.values.resize(to.count * size_of(to.type));
  return to.count == 0 ? 0 : calls.attribute_values(variable, name, to.values.data());
}

template <typename Calls>
int read_attributes(const Calls& calls, int variable, std::vector<Attribute>& to) {
  int count = 0;
  if (const int code = calls.attribute_count(variable, count); code != 0) return code;
  to.clear();
  for (int i = 0; i < count; ++i) {
    char name[name_max + 1] = {};
    if (const int code = calls.attribute_name(variable, i, name); code != 0) return code;
    Attribute a;
    if (const int code = read_attribute(calls, variable, name, a); code != 0) return code;
    to.push_back(std::move(a));
  }
  return 0;
}

/// Name, type and dimensions.
template <typename Calls>
int read_shape(const Calls& calls, int id, Variable& to) {
  char name[name_max + 1] = {};
  int type = 0;
  if (const int code = calls.variable(id, name, type, to.dimensions); code != 0) return code;
  to.name = name;
  to.type = static_cast<DataType>(type);
  return is_known(to.type) ? 0 : bad_type;
}

/// The attribute with the variable's fill value, or null.
inline const Attribute* fill_attribute(const Variable& v) {
  const auto found = std::find_if(v.attributes.begin(), v.attributes.end(), [&v](const Attribute& a) {
    return a.name == "_FillValue" && a.type == v.type && a.count == 1;
  });
  return found != v.attributes.end() ? &*found : nullptr;
}

}  // namespace advectio::shadow
