// Units of UDUNITS-2, and the way from one to another. The library is loaded when a rule asks for it
// (docs/decisions/0023-udunits-is-loaded-when-asked-for.md).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/result.h"

namespace advectio {

/// Values in one unit as values in another. Immutable; any thread may use it.
class UnitConversion {
 public:
  virtual ~UnitConversion() = default;
  /// In place; what is missing (NaN) stays so.
  virtual void convert(std::span<double> values) const = 0;
  /// The zeros of both are not the same: K and degC. Sums and differences cannot be converted then.
  [[nodiscard]] virtual bool shifts() const = 0;
  /// A depth of liquid water as its mass on an area: 1 mm is 1 kg m-2.
  [[nodiscard]] virtual bool of_water() const = 0;
};

/// Errors: Code::config, a unit that is not known, with the nearest one; two that do not fit. Code::unsupported where
/// there is no UDUNITS. Not for several threads at once.
Result<std::shared_ptr<const UnitConversion>> unit_conversion(const std::string& from, const std::string& to);

}  // namespace advectio
