#include "operators/wrf_diagnostics.h"

#include <algorithm>
#include <array>

namespace advectio {
namespace {

// Constants are those of WRF (module_model_constants.F): T is potential temperature less 300 K;
// R_d = 287, c_p = 1004.5 J/(kg K), g = 9.81 m/s².
constexpr std::array<WrfDiagnostic, 27> all = {{
    {"p", "P + PB", "Pa", "pressure", "air_pressure"},
    {"pressure", "(P + PB) / 100", "hPa", "pressure", "air_pressure"},
    {"theta", "T + 300", "K", "potential temperature", "air_potential_temperature"},
    {"tk", "theta * (p / 100000) ^ (287 / 1004.5)", "K", "temperature", "air_temperature"},
    {"tc", "tk - 273.15", "degC", "temperature", "air_temperature"},
    {"geopt", "destagger(PH + PHB)", "m2 s-2", "geopotential", "geopotential"},
    {"z", "destagger(PH + PHB) / 9.81", "m", "geopotential height above sea level", "geopotential_height"},
    {"height_agl", "z - HGT", "m", "height above ground", "height"},
    {"rh", "relative_humidity(QVAPOR, p, tk)", "%", "relative humidity over water", "relative_humidity"},
    {"td", "dew_point(QVAPOR, p)", "degC", "dew point", "dew_point_temperature"},
    {"rh2", "relative_humidity(Q2, PSFC, T2)", "%", "relative humidity over water at 2 m", "relative_humidity"},
    {"td2", "dew_point(Q2, PSFC)", "degC", "dew point at 2 m", "dew_point_temperature"},
    {"ua", "destagger(U)", "m s-1", "wind along the grid's x at mass points", "x_wind"},
    {"va", "destagger(V)", "m s-1", "wind along the grid's y at mass points", "y_wind"},
    {"wa", "destagger(W)", "m s-1", "upward wind at mass points", "upward_air_velocity"},
    {"umet", "ua * COSALPHA - va * SINALPHA", "m s-1", "wind towards the east", "eastward_wind"},
    {"vmet", "va * COSALPHA + ua * SINALPHA", "m s-1", "wind towards the north", "northward_wind"},
    {"umet10", "U10 * COSALPHA - V10 * SINALPHA", "m s-1", "wind towards the east at 10 m", "eastward_wind"},
    {"vmet10", "V10 * COSALPHA + U10 * SINALPHA", "m s-1", "wind towards the north at 10 m", "northward_wind"},
    {"wspd", "hypot(ua, va)", "m s-1", "wind speed", "wind_speed"},
    {"wdir", "wind_direction(umet, vmet)", "degree", "direction from which the wind blows", "wind_from_direction"},
    {"wspd10", "hypot(U10, V10)", "m s-1", "wind speed at 10 m", "wind_speed"},
    {"wdir10", "wind_direction(umet10, vmet10)", "degree", "direction from which the wind blows at 10 m",
     "wind_from_direction"},
    {"slp", "sea_level_pressure(p, tk, max(QVAPOR, 0), z) / 100", "hPa", "pressure at sea level",
     "air_pressure_at_mean_sea_level"},
    {"mdbz", "maximum(REFL_10CM, bottom_top)", "dBZ", "maximum reflectivity of a column",
     "equivalent_reflectivity_factor"},
    {"tv", "tk * (0.622 + QVAPOR) / (0.622 * (1 + QVAPOR))", "K", "virtual temperature", "virtual_temperature"},
    {"pw", "sum(QVAPOR * p / (287 * tv) * thickness(PH + PHB) / 9.81, bottom_top)", "kg m-2",
     "water vapour of a column", "atmosphere_mass_content_of_water_vapor"},
}};

}  // namespace

std::span<const WrfDiagnostic> wrf_diagnostics() noexcept {
  return all;
}

const WrfDiagnostic* find_wrf_diagnostic(std::string_view name) noexcept {
  const auto* const it = std::find_if(all.begin(), all.end(), [&](const WrfDiagnostic& d) { return d.name == name; });
  return it == all.end() ? nullptr : it;
}

}  // namespace advectio
