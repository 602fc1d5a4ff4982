// What the header of one field says: which quantity it is, on which level, at which time, of which
// member of an ensemble, and on which grid.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/files.h"
#include "sources/grib/library.h"
#include "sources/grib/messages.h"

namespace advectio::grib {

/// Axes beside time and level along which fields of one quantity may lie.
struct MemberAxis {
  const char *name, *key, *long_name, *standard_name;
};
inline constexpr std::array member_axes = {
    MemberAxis{"number", "number", "ensemble member numerical id", "realization"},
    MemberAxis{"percentile", "percentileValue", "percentile of the ensemble", nullptr},
    MemberAxis{"directionNumber", "directionNumber", "number of the direction of waves", nullptr},
    MemberAxis{"frequencyNumber", "frequencyNumber", "number of the frequency of waves", nullptr},
};

/// What fields of one variable have in common. Texts are ecCodes' keys.
struct Quantity {
  std::string short_name, name, units, standard_name, variable_name;
  long parameter = 0;        ///< paramId
  std::string code;          ///< where ecCodes does not know it: its numbers in the message, "0.1.8"
  std::string level_type;    ///< typeOfLevel
  std::string surfaces;      ///< where ecCodes does not know that: numbers of the types of surfaces
  std::string level_units;   ///< empty: not known
  std::string step_type;     ///< "instant", "accum", "avg", …
  std::string grid_type;     ///< gridType
  std::uint32_t grid = 0;    ///< number of the grid in the file
  std::uint64_t points = 0;  ///< of the grid
  unsigned members = 0;      ///< bit i: fields have the axis member_axes[i]
  auto operator<=>(const Quantity&) const = default;
};

struct Level {
  double at = 0, top = 0, bottom = 0;  ///< in the units of the level's type
  auto operator<=>(const Level&) const = default;
};

/// When: seconds since 1970-01-01, and seconds after that.
struct When {
  std::int64_t reference_s = 0, step_s = 0;
  [[nodiscard]] std::int64_t valid_s() const { return reference_s + step_s; }
  auto operator<=>(const When&) const = default;
};

struct Field {
  FieldPlace place;
  std::uint32_t quantity = 0;  ///< index into the file's quantities
  When when;
  std::int64_t begin_s = 0;  ///< step at which the interval of a sum, mean or extreme begins
  Level level;
  std::array<std::optional<long>, member_axes.size()> members;
  bool of_ensemble = false;  ///< its number is more than a 0 of a forecast that has no members
  bool wide = false;         ///< its values need float64
};

/// Of the file `centre` and the like: the first field's.
struct Origin {
  long edition = 0;
  std::string centre, centre_name;
  long sub_centre = 0;
};

struct Header {
  Field field;
  Quantity quantity;
  Origin origin;
  std::string grid_section;  ///< see messages.h
};

/// What ecCodes has looked up for a parameter: its tables are long.
struct Names {
  std::string name, units, standard_name, variable_name;
};
using KnownNames = std::map<std::string, Names>;

/// Errors: Code::corrupt, unsupported, with the message.
Result<Header> read_header(File& file, const FieldPlace& place, KnownNames& known);

/// Keys of a field as text; empty: it does not have it.
Result<std::vector<std::string>> keys_of(File& file, const FieldPlace& place, std::span<const char* const> keys);

/// The coefficients of the vertical coordinate (`pv`); empty: the field has none.
Result<std::vector<double>> coefficients_of(File& file, const FieldPlace& place);

/// CF's attributes of a type of level that we know; null: another one.
struct LevelType {
  const char *type, *units, *units_1, *standard_name, *long_name, *positive;  ///< units_1: in edition 1
};
const LevelType* level_type_named(const std::string& type);

/// "t at isobaricInhPa 500, 2026-11-26 12:00:00 (step 12 h)".
std::string text_of(const Field& field, const Quantity& quantity);

}  // namespace advectio::grib
