// The rules of `advectio process`: what becomes of the variables of a series of files. `outputs` of a
// dataset has the same keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/result.h"

namespace advectio {

/// What a window of time becomes. The words are those of the CF conventions' cell methods, where
/// CF has one.
enum class Statistic : std::uint8_t { mean, minimum, maximum, sum, difference, point };
std::string_view name_of(Statistic) noexcept;

/// A length of model time. All three empty: the whole series.
struct Window {
  std::int64_t milliseconds = 0;
  unsigned months = 0;  ///< of the calendar
  [[nodiscard]] bool whole() const noexcept { return milliseconds == 0 && months == 0; }
  bool operator==(const Window&) const = default;
};

/// "30min", "6h", "1d", "1w", "1mo", "1y", "all". Error: what is wrong, without file and line.
Result<Window> parse_window(std::string_view text);
/// As one writes it, in the largest unit that divides it.
std::string window_text(Window window);

/// Whose record counts where several have one time.
enum class Overlap : std::uint8_t { refused, first, last };
/// "first", "last"; nothing else.
std::optional<Overlap> overlap_named(std::string_view name) noexcept;

/// One step of a chain along time.
struct TimeStep {
  Statistic statistic = Statistic::mean;
  Window window;
  std::uint64_t min_count = 1;  ///< values that a cell needs in a window; with fewer it is missing
  bool closed_left = false;     ///< a sample on a border belongs to the window that begins there
  std::string origin;           ///< "rules.yaml:3"
};

/// A name of a rule, and where it stands.
struct NameAt {
  std::string name;
  std::string origin;
};

/// A variable that is made of others.
struct ExpressionRule {
  std::string name, formula;
  std::string units;                     ///< empty: as far as they are known
  std::string long_name, standard_name;  ///< empty: none
  std::string origin;
};

/// Levels of pressure or height in place of model levels.
struct LevelsRule {
  enum class Kind : std::uint8_t { pressure, height };
  enum class Method : std::uint8_t { linear, log };  ///< in the coordinate, or in its logarithm
  enum class Below : std::uint8_t { missing, nearest };
  Kind kind = Kind::pressure;
  std::vector<double> levels;  ///< as they stand there, at least one, each once
  std::string units;           ///< of them
  Method method = Method::linear;
  Below below = Below::missing;
  std::string coordinate;        ///< an expression: pressure or height at model levels
  std::string coordinate_units;  ///< where its variables do not tell; else empty
  bool wrf = false;              ///< the preset: staggered variables are taken to mass points first
  bool of_preset = false;        ///< the coordinate is the one of `preset: wrf`
  bool hybrid = false;           ///< the preset: the coordinate is that of the files' formula_terms
  std::string origin;
};

/// A place of which an output has the values.
struct PointRule {
  std::string name;
  double lat = 0, lon = 0;  ///< degrees
};

/// Another horizontal grid, by a file of weights.
struct RegridRule {
  std::string weights;     ///< path
  std::string grid;        ///< path of a file with the destination's points; empty: the weights' file has them
  double missing_max = 0;  ///< share of a cell's weights that missing values may have; with more it is missing
  std::string origin;
};

/// In degrees; of longitudes from west eastwards: most >= least, and at most 360 more.
struct DegreeRange {
  double least = 0, most = 0;
};

/// Cells whose points lie within; a range that is not there leaves that direction whole.
struct RegionRule {
  std::optional<DegreeRange> lon, lat;
  std::string origin;
};

/// Cells of one dimension by their numbers, as Python's slices have them: from 0, negative ones from the end.
struct SubsetRule {
  std::string dimension;
  std::optional<std::int64_t> start, stop;
  std::uint64_t step = 1;
  std::string origin;
};

/// Blocks of cells in place of cells.
struct CoarsenRule {
  enum class Method : std::uint8_t { mean, maximum, minimum, sum, first };
  struct Along {
    std::string dimension;
    std::uint64_t cells = 1;  ///< of a block, at least 2
    std::string origin;
  };
  std::vector<Along> along;
  Method method = Method::mean;
};

/// The units that a variable of the output has in the end.
struct UnitsRule {
  std::string variable, units;
  std::string origin;
};

/// One output.
struct ProcessRule {
  std::string path;                         ///< with {name} and {time}; see process_path
  std::string origin;                       ///< "rules.yaml:2"
  DatasetPolicy stored;                     ///< of its keys only those that say how a file is stored
  std::vector<NameAt> variables;            ///< names or patterns, or WRF's diagnostics; empty: all
  std::vector<ExpressionRule> expressions;  ///< further variables; without `variables` these alone
  std::optional<RegionRule> region;
  std::vector<SubsetRule> subset;  ///< each dimension once
  std::optional<CoarsenRule> coarsen;
  std::optional<LevelsRule> levels;
  std::optional<RegridRule> regrid;
  std::vector<UnitsRule> units;                ///< each variable once
  bool cf = false;                             ///< standard names, units and projection as CF-1.11 has them
  std::vector<PointRule> points;               ///< in place of the horizontal grid; never with `regrid`
  std::vector<TimeStep> time;                  ///< in the order in which they are applied
  std::optional<Window> split;                 ///< a file for each such length of model time; never the whole series
  std::map<std::string, std::string> origins;  ///< key → where it is set
};

struct ProcessRules {
  Overlap overlap = Overlap::refused;  ///< of all files
  std::vector<ProcessRule> outputs;    ///< at least one
};

/// `name` is what errors call the text. Error Code::config, one line: "NAME:LINE: what is wrong".
Result<ProcessRules> parse_process_rules(std::string_view text, const std::string& name);
/// Read and parse a file. Error Code::config when it cannot be read or is not right.
Result<ProcessRules> load_process_rules(const std::string& path);

/// The rule `datasets[dataset].outputs[output]` of a config. `name` is what errors call the file at `path`. Error
/// Code::config as of `load_process_rules`, also where that output has no operator.
Result<ProcessRules> load_processed_rule(const std::string& path, const std::string& name, std::size_t dataset,
                                         std::size_t output);

/// The file of a rule, below `directory` where it is not absolute: {name} filled in with the name of `first_input`,
/// {time} with the period of `split`.
std::string process_path(const ProcessRule& rule, const std::string& directory, const std::string& first_input,
                         const std::string& period = {});

}  // namespace advectio
