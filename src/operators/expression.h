// Expressions on variables: "hypot(destagger(U), destagger(V))", "T2 > 273.15 ? RAINNC : 0".
// docs/operators/expressions.md has the language. A name that no variable of the file has may be one
// of WRF's diagnostics (wrf_diagnostics.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "operators/quantity.h"

namespace advectio {

/// What an expression is, as far as the schema tells.
struct Typed {
  std::shared_ptr<const Quantity> quantity;
  std::vector<std::uint32_t> dimensions;  ///< of the schema, without time
  bool timed = false;                     ///< it changes from record to record
  std::string units;                      ///< empty: not known, or none
  bool single = true;                     ///< of float32 alone
  std::vector<std::uint32_t> variables;   ///< that it reads, in the order in which they stand there
};

/// A name that stands for an expression.
struct Definition {
  std::string name, formula;
  std::string units;  ///< empty: as far as the expression's are known
};

/// Missing values (NaN) make a result missing. Operands of different dimensions are repeated along those that they
/// lack, by name; the result has the dimensions of one of them, or of a variable of the file. Sums, differences,
/// comparisons, min, max, hypot and both branches of ?: take operands of one unit; what has no units fits all. Errors:
/// Code::config, without file and line: the text and what is wrong with it; an unknown variable or function with the
/// nearest name. A name that no variable of the file has may be one of `others`; `name` is that of the expression
/// itself, where it is one of them.
Result<Typed> compile_expression(const std::string& text, const Schema& schema, std::uint32_t time_dimension,
                                 const std::vector<Definition>& others = {}, const std::string& name = {});

/// A variable alone.
Typed typed_variable(const Schema& schema, std::uint32_t variable, std::uint32_t time_dimension);

/// Half-way values along every dimension whose name ends in "_stag": WRF's staggered grids. The result has the
/// dimension of the same name without it. Errors: Code::config where the schema has none such, or of another length.
Result<Typed> destaggered(Typed of, const Schema& schema);

/// The second of two neighbours less the first, in the same way.
Result<Typed> thickness(Typed of, const Schema& schema);

/// The same quantity along more dimensions: those of `to`, which has all of its own, in any order.
/// Errors: Code::config where it has not.
Result<Typed> repeated(Typed of, const std::vector<std::uint32_t>& to, const Schema& schema);

}  // namespace advectio
