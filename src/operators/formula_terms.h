// The pressure or height of model levels by the formula that the file itself has for them (CF-1.11, appendix D), and by
// the names that ECHAM, CAM and cdo give its terms where no attribute says so. docs/operators/levels.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// Of one dimension of levels.
struct LevelFormula {
  std::uint32_t dimension = 0;
  std::string formula;  ///< an expression (expression.h)
  std::string units;    ///< of its result
  /// Terms along another dimension of the same length, which are of `dimension`: cdo's hyam(nhym) beside lev.
  std::vector<std::uint32_t> profiles;
};

/// All that the file has, in the order of its variables: pressure of levels of hybrid sigma, sigma and logarithm of
/// pressure; height of hybrid height. Errors: Code::config without file and line: the file has none, or one that lacks
/// a term.
Result<std::vector<LevelFormula>> level_formulas(const Schema& schema, LevelsRule::Kind kind);

}  // namespace advectio
