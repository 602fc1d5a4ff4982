// Names of variables in the attributes of others (CF-1.11, sections 3.4, 4.3.3, 5.6, 7.1 and 7.2).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/schema.h"

namespace advectio {

/// What `formula_terms` names: coefficients of the levels, and fields such as the surface's pressure.
std::vector<std::string> formula_terms_of(const Variable& v);
/// The same by the terms that they are: "a: hyam b: hybm" is a → hyam, b → hybm.
std::map<std::string, std::string> named_terms_of(const Variable& v);

/// Takes away what names a variable that the schema does not have. In lists (coordinates, ancillary_variables) and
/// pairs (cell_measures) the other names stay. bounds, climatology, grid_mapping and formula_terms go as a whole: a
/// part of them means nothing. Cells' areas may be in another file, if the global `external_variables` says so.
void drop_dangling_names(Schema& schema);

}  // namespace advectio
