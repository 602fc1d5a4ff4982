// The grid of a field: where its points are, and which dimensions they have.
//
//  * Points whose latitudes depend on the row alone, and longitudes on the column, have two dimensions
//    with a coordinate each.
//  * Other points in rows and columns (Lambert, rotated) have dimensions y and x.
//  * What has no rows of one length (reduced Gaussian, unstructured) has one dimension, `values`.
//  * Spectral coefficients, and grids whose places are in a file of their own, have no coordinates.
//    Neither have two orders of points for which ecCodes does not give the places in the order of the
//    values: rows that run to and fro, and rows of a projected grid that do not begin in the south-west.
// This is found by the places of the points, not by the name of the grid.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "platform/files.h"
#include "sources/grib/field.h"

namespace advectio::grib {

/// Places may be many, and all files of a series have the same.
using Numbers = std::shared_ptr<const std::vector<double>>;

struct Grid {
  enum class Kind : std::uint8_t {
    rows,                 ///< latitude, longitude
    columns,              ///< longitude, latitude
    curvilinear,          ///< y, x
    curvilinear_columns,  ///< x, y
    points,               ///< values
    unplaced,             ///< values, whose places ecCodes does not know
  };
  Kind kind = Kind::unplaced;
  std::string type;                    ///< gridType
  std::vector<std::uint64_t> lengths;  ///< of its dimensions, slowest first
  /// Degrees. Of `rows` and `columns` one value for each row and column, else for each point.
  Numbers latitudes, longitudes;
  std::vector<Attribute> attributes;  ///< GRIB_gridType and what else describes it

  [[nodiscard]] bool same_places(const Grid& other) const {
    return kind == other.kind && kind != Kind::unplaced && type == other.type && lengths == other.lengths &&
           *latitudes == *other.latitudes && *longitudes == *other.longitudes;
  }
};

/// Decodes the field. Errors: Code::corrupt, with the message.
Result<Grid> read_grid(File& file, const FieldPlace& place, std::uint64_t points);

}  // namespace advectio::grib
