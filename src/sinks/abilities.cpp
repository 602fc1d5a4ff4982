#include <algorithm>

#include "sinks/sink.h"

namespace advectio {

Result<void> can_carry(const Abilities& abilities, const Schema& schema) {
  const auto no = [](std::string what) { return Error{Code::unsupported, std::move(what), 0}; };
  const std::string file = "a " + std::string(name_of(schema.format)) + " file";
  const auto form = std::find_if(abilities.forms.begin(), abilities.forms.end(),
                                 [&](const Abilities::Form& f) { return f.format == schema.format; });
  if (form == abilities.forms.end()) return no(file + " is not for this sink");
  const auto has = [&](DataType type) {
    return std::find(form->types.begin(), form->types.end(), type) != form->types.end();
  };
  const auto beyond = [&](const std::string& what, DataType type) {
    return no(what + " is of type " + std::string(name_of(type)) + ", which " + file + " cannot hold");
  };
  const auto unlimited =
      std::count_if(schema.dimensions.begin(), schema.dimensions.end(), [](const Dimension& d) { return d.unlimited; });
  if (static_cast<std::size_t>(unlimited) > form->unlimited_max)
    return no("there are " + std::to_string(unlimited) + " unlimited dimensions, and " + file + " holds " +
              std::to_string(form->unlimited_max));
  for (const auto& a : schema.attributes)
    if (!has(a.type)) return beyond("attribute " + a.name, a.type);
  for (const auto& v : schema.variables) {
    if (!has(v.type)) return beyond("variable " + v.name, v.type);
    for (const auto& a : v.attributes)
      if (!has(a.type)) return beyond("attribute " + v.name + ":" + a.name, a.type);
  }
  return {};
}

}  // namespace advectio
