// Quantities that WRF does not write and that its users ask for. docs/operators/wrf.md has the table
// with sources.
#pragma once

#include <span>
#include <string_view>

namespace advectio {

/// A named expression on variables of WRF's files, and on other diagnostics.
struct WrfDiagnostic {
  std::string_view name;  ///< that of wrf-python's getvar, where it has one
  std::string_view formula;
  std::string_view units;
  std::string_view long_name;
  std::string_view standard_name;  ///< CF's; empty where it has none
};

std::span<const WrfDiagnostic> wrf_diagnostics() noexcept;
/// Null where there is none of that name.
const WrfDiagnostic* find_wrf_diagnostic(std::string_view name) noexcept;

}  // namespace advectio
