// How the schema of an output is made, step by step; processed.h says what comes of it. Private to processed*.cpp and
// process_plan*.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operators/cells.h"
#include "operators/expression.h"
#include "operators/processed.h"

namespace advectio {

std::optional<std::uint32_t> find_variable(const Schema& schema, std::string_view name);
/// What the pipeline of a variable's filters says of its elements and chunks, after those have changed.
void fit_filters(Variable& v);
/// The distance of records, where it is the same between all of them.
std::optional<Time> interval_of(std::span<const Moment> records);

class Plan {
 public:
  Plan(const Schema& input, const TimeAxis& axis, const ProcessRule& rule, const std::vector<bool>& packed_alike,
       std::shared_ptr<const RegridWeights> weights, const Selection& selection, std::shared_ptr<const FileParts> parts)
      : input_(input),
        axis_(axis),
        rule_(rule),
        packed_alike_(packed_alike),
        selection_(selection),
        parts_(std::move(parts)),
        weights_(std::move(weights)) {}

  /// `whole`: see process_schema.
  Result<Processed> make(const std::vector<Moment>& series, const TimePlan* whole);

 private:
  [[nodiscard]] Error refuse(const std::string& origin, const std::string& what) const {
    return Error{Code::config, origin + ": " + what, 0};
  }
  [[nodiscard]] bool timed(const Variable& v) const {
    return std::find(v.dimensions.begin(), v.dimensions.end(), axis_.dimension) != v.dimensions.end();
  }
  /// Variables that say the time, and make room for ours.
  [[nodiscard]] bool says_time(std::uint32_t i) const {
    const auto& v = input_.variables[i];
    if (!axis_.dated()) return false;  // and nothing of ours takes their place
    return i == axis_.variable || i == axis_.bounds || (v.name == "Times" && v.type == DataType::text && timed(v)) ||
           time_bounds_.contains(i) || (v.dimensions.size() == 1 && timed(v) && has_since(v));
  }
  [[nodiscard]] std::vector<std::string> named_by(const Variable& v) const;
  Result<void> select();
  void take_along();
  void take_formula(const Variable& levels);
  void add_time(const std::vector<Moment>& series);
  /// A variable that is made, on its way to the schema.
  struct Item {
    Variable variable;  ///< name, attributes
    Typed made;
    std::string origin;
    bool named = false;       ///< by the rule
    bool from_file = false;   ///< and nothing has been done to it yet
    bool statistics = false;  ///< it has those of the rule; else single samples
    bool to_levels = false;   ///< of the rule, where it has columns
    Packing packing;          ///< of what is from the file
    std::optional<std::size_t> whole;
  };
  Result<void> make_expressions();
  Result<void> find_levels();
  Result<void> add_file_variable(std::uint32_t number);
  Result<void> add(Item item);
  /// Pressure or height of model levels, of one dimension of levels.
  struct LevelCoordinate {
    Typed typed;
    std::uint32_t dimension = 0;
    std::string text;
    std::vector<double> levels;  ///< of the rule, in its units
  };
  Result<void> add_level_coordinate(Typed typed, const std::string& text, const std::string& given_units,
                                    std::uint32_t dimension);
  [[nodiscard]] std::uint32_t vertical_of(const Typed& typed) const;
  Result<void> to_levels(Item& item);
  /// False: it has no columns there.
  Result<bool> to_levels(Item& item, const LevelCoordinate& levels);
  [[nodiscard]] std::string height_name() const;
  void add_levels();
  Result<void> find_grid();
  [[nodiscard]] bool on_grid(const std::vector<std::uint32_t>& dimensions) const;
  [[nodiscard]] bool of_grid(const Variable& v) const;
  [[nodiscard]] std::string grid_key() const { return rule_.regrid ? "regrid" : "points"; }
  [[nodiscard]] std::string grid_origin() const { return rule_.origins.at(grid_key()); }
  [[nodiscard]] bool has_a_place(std::uint32_t number) const;
  Result<void> to_grid(Item& item);
  void add_grid();
  void say_feature_type();
  void add_coordinate(const std::string& name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                      const std::vector<std::pair<std::string, std::string>>& attributes);
  [[nodiscard]] const Variable* like(const Typed& made) const;
  void fit_coordinates(Variable& v) const;
  [[nodiscard]] std::string cell_methods(const std::string& before) const;
  Result<void> check_cells() const;
  void drop_lost_cells();
  void drop_lost_coordinates();
  [[nodiscard]] bool is_coordinate(const Variable& v) const;
  [[nodiscard]] bool has_along(const std::vector<std::uint32_t>& dimensions,
                               bool (Selection::Along::*is)() const) const;
  void to_blocks(Item& item) const;
  void fit_to_cells(Variable& v) const;
  [[nodiscard]] const UnitsRule* units_rule(const std::string& name) const;
  Result<void> to_units(Item& item, ProcessedVariable& p) const;
  Result<void> check_units() const;

  const Schema& input_;
  const TimeAxis& axis_;
  const ProcessRule& rule_;
  const std::vector<bool>& packed_alike_;
  const Selection& selection_;
  std::shared_ptr<const FileParts> parts_;
  std::set<std::uint32_t> time_bounds_;
  std::set<std::uint32_t> selected_, along_;
  std::vector<ExpressionRule> to_make_;  ///< WRF's diagnostics among the rule's variables, then its expressions
  std::vector<Item> expressions_;
  std::vector<Definition> definitions_;  ///< the rule's expressions, as others name them
  std::vector<LevelCoordinate> coordinates_;
  std::uint32_t level_dimension_ = 0;
  std::shared_ptr<const RegridWeights> weights_;
  std::vector<std::uint32_t> grid_;      ///< dimensions that go
  std::vector<std::uint32_t> new_grid_;  ///< dimensions that come
  std::string time_name_;
  std::shared_ptr<const TimePlan> plan_, points_;
  std::vector<std::optional<Time>> intervals_;  // of the records that each step takes
  Processed out_;
};

}  // namespace advectio
