// Values of a file as numbers to reckon with: unpacked, in double, NaN where they are missing
// (CF-1.11, sections 2.5.1 and 8.1); and the way back.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/schema.h"

namespace advectio {

/// What an attribute holds; null and empty where it is not there, or of another kind.
const Attribute* find_attribute(const std::vector<Attribute>& attributes, std::string_view name);
std::string text_of(const std::vector<Attribute>& attributes, std::string_view name);
std::vector<double> numbers_of(const std::vector<Attribute>& attributes, std::string_view name);
/// Of a text like "lon lat".
std::vector<std::string> words_of(const std::string& text);

/// Adds the attribute, or puts it in the place of the one of that name.
void set_text(std::vector<Attribute>& attributes, const std::string& name, const std::string& text);
void remove_attribute(std::vector<Attribute>& attributes, std::string_view name);

/// Numbers, not text and not strings.
bool is_numeric(DataType type) noexcept;

/// How a variable of one file holds its values.
struct Packing {
  DataType stored = DataType::none;
  DataType type = DataType::none;  ///< of the values: `_Unsigned` may say another one
  double scale = 1, offset = 0;
  std::vector<double> missing;            ///< as they are in the file, before scale and offset
  DataType unpacked = DataType::float64;  ///< float32 stays float32, all else becomes float64
  [[nodiscard]] bool packed() const noexcept { return scale != 1 || offset != 0; }
  bool operator==(const Packing&) const = default;
};

/// Missing are _FillValue, missing_value (all of them), and netCDF's default fill value where there
/// is no _FillValue and the type is no byte.
Packing packing_of(const Variable& variable);

/// `raw` has as many values as `out`, in native byte order. 64-bit integers beyond 2^53 are rounded.
void unpack(const Packing& packing, const std::byte* raw, std::span<double> out) noexcept;
/// The same without a look at scale, offset and missing values.
void widen(DataType type, const std::byte* raw, std::span<double> out) noexcept;

/// To float32 or float64, missing values as `fill`; any other type gets whole numbers cast, as
/// `widen` gave them.
void narrow(DataType type, double fill, std::span<const double> values, std::byte* out) noexcept;

}  // namespace advectio
