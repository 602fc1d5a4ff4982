// What is in a GRIB file as one dataset: groups of fields as variables, and their coordinates.
//
//  * Time is the first dimension of every variable, and unlimited: the time for which a field is valid.
//    Where fields of one variable with different reference times are valid at the same time (several
//    forecasts in one file), the dimensions are `time`, the reference time, and `step`.
//  * Members of an ensemble and levels are dimensions of the variables that have several. Of one alone
//    there is a scalar coordinate. Variables with other levels of the same type have another dimension
//    (isobaricInhPa_2).
//  * A place in a variable for which the file has no field holds the fill value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "platform/files.h"
#include "sources/grib/groups.h"
#include "sources/source.h"

namespace advectio::grib {

inline constexpr std::uint32_t no_field = UINT32_MAX;

/// Where the values of a variable come from.
struct Stored {
  Numbers values;                     ///< all of a coordinate's
  std::vector<std::uint32_t> fields;  ///< else: by the leading dimensions, row-major; no_field: the fill value
  std::size_t leading = 0;            ///< how many leading dimensions there are
};

struct Dataset {
  Contents contents;
  SourceHead head;
  std::vector<Stored> stored;  ///< one each of the schema's variables
};

/// Errors: as `scan` and `grouped` have them; Code::unsupported for fields that are spread too thinly.
Result<std::shared_ptr<const Dataset>> read_dataset(File& file);

}  // namespace advectio::grib
