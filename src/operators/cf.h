// What the CF conventions (1.11) want of a file beyond what its variables hold: standard names, units
// of UDUNITS, coordinates that belong to their variables, and the projection of WRF's grids.
// docs/operators/cf.md has the tables.
#pragma once

#include <optional>

#include "operators/processed.h"

namespace advectio {

/// Metres on the plane of a WRF projection, on a sphere of 6370 km. Forward formulas of J. P. Snyder, "Map Projections:
/// A Working Manual" (USGS 1395, 1987), for the sphere.
class WrfProjection {
 public:
  /// Of the attributes MAP_PROJ, TRUELAT1, TRUELAT2, STAND_LON and MOAD_CEN_LAT. Empty where there is none of: Lambert
  /// conformal (1), polar stereographic (2), Mercator (3).
  static std::optional<WrfProjection> of(const std::vector<Attribute>& attributes);

  struct Place {
    double x = 0, y = 0;
  };
  [[nodiscard]] Place project(double lat, double lon) const;
  /// Of a CF grid mapping variable.
  [[nodiscard]] std::vector<Attribute> attributes() const;

 private:
  int kind_ = 0;
  double first_ = 0, second_ = 0, meridian_ = 0, origin_ = 0;  ///< degrees
};

/// What UDUNITS reads, of what stands in a file: WRF's "-" is "1".
std::string cf_units(const std::string& units);

/// The name of a mass on an area, of that of a depth of water; empty where CF has none.
std::string cf_name_of_mass(const std::string& standard_name);

/// Makes CF of the schema; coordinates of the projection are added, and those that belong to no variable of the output
/// go unless the rule names them. `points`: the grid of the first file, null where it has none. `is_wrf`: the files are
/// WRF's (they have Times).
void make_cf(Processed& processed, const Schema& input, const ProcessRule& rule, bool is_wrf, const GridPoints* points);

}  // namespace advectio
