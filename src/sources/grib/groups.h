// Fields of a file → groups that become a variable each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/files.h"
#include "sources/grib/field.h"
#include "sources/grib/grid.h"

namespace advectio::grib {

/// All headers of a file.
struct Contents {
  std::vector<Field> fields;  ///< in the order of the file
  std::vector<Quantity> quantities;
  std::vector<std::shared_ptr<const Grid>> grids;
  Origin origin;
  bool one_edition = true;
};

/// Reads headers, and of each grid one field. Errors: as `find_fields` and `read_header` have them.
Result<Contents> scan(File& file);

/// Fields of one quantity, of which no two have the same time, level and member.
struct Group {
  std::uint32_t quantity = 0;
  std::vector<std::uint32_t> fields;  ///< indices into Contents::fields
  std::string part;                   ///< what tells it from others of the quantity: "_an"; empty: nothing
  std::string name;                   ///< of the variable; no two have the same
};

/// In the order in which quantities appear. Where two fields have the same time, level and member, other keys
/// of theirs make groups of their own. Errors: Code::invalid where no key does, with both messages.
Result<std::vector<Group>> grouped(File& file, const Contents& contents);

}  // namespace advectio::grib
