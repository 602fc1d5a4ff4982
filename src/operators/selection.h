// Which cells of a file an output has: a part of it (region, subset), every n-th cell, or blocks of cells. Dimensions
// that are staggered to another one (west_east_stag) go with it, with one point more: a C grid stays one.
// docs/operators/cells.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "core/schema.h"
#include "operators/regrid.h"

namespace advectio {

struct Selection {
  enum class Kind : std::uint8_t {
    all,     ///< each cell of the part
    every,   ///< cells 0, n, 2n, …
    blocks,  ///< n cells become one; the last block may have fewer
    faces,   ///< points between such blocks: 0, n, 2n, …, and the last one of all
  };
  /// Of one dimension of the file.
  struct Along {
    std::uint64_t length = 0;            ///< in the file
    std::uint64_t start = 0, count = 0;  ///< the part; beyond `length` it goes on at 0
    Kind kind = Kind::all;
    std::uint64_t step = 1;
    [[nodiscard]] bool cut() const noexcept { return start != 0 || count != length; }
    [[nodiscard]] bool wraps() const noexcept { return start + count > length; }
    [[nodiscard]] bool thinned() const noexcept { return kind != Kind::all; }
    /// Cells of the output.
    [[nodiscard]] std::uint64_t cells() const noexcept;
    bool operator==(const Along&) const = default;
  };
  std::vector<Along> along;  ///< one each of the schema's dimensions
  CoarsenRule::Method method = CoarsenRule::Method::mean;
  /// Longitudes of a part that crosses the seam of a global grid: they grow from `west` on.
  std::optional<std::uint32_t> longitudes;
  double west = 0;

  [[nodiscard]] bool empty() const noexcept;
};

/// `first` reads coordinates where the rule has a region, else it may be null. Errors: Code::config with the rule's
/// file and line: an unknown dimension, with the nearest name; no cell; two keys for one dimension.
Result<Selection> select_cells(const ProcessRule& rule, const Schema& input, std::uint32_t time_dimension,
                               const SmallFile* first);

/// The schema of files that have the part alone: lengths, chunks, and what WRF's global attributes say of them (of
/// blocks and of every n-th cell, too).
Schema cut_schema(Schema schema, const Selection& selection);

/// The same of a horizontal grid.
GridPoints cut_points(const GridPoints& points, const Schema& input, const Selection& selection);

}  // namespace advectio
