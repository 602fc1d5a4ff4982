// The times of a dataset's records.
#pragma once

#include <vector>

#include "core/result.h"
#include "operators/processed.h"
#include "sources/source.h"

namespace advectio {

struct SourceTimes {
  TimeAxis axis;
  std::vector<Moment> moments;  ///< one each of the records
};

/// Errors: as `find_time_axis`, `moments_of_numbers` and `Source::read` have them, without the path.
Result<SourceTimes> times_of(const Source& source, const SourceHead& head);

}  // namespace advectio
