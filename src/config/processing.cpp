#include "config/processing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "config/fields.h"
#include "config/glob.h"
#include "config/nearest.h"
#include "config/processing_cells.h"
#include "config/processing_rule.h"
#include "config/yaml_text.h"

namespace advectio {
namespace {

using config::Fault;
using config::line_of;
using config::shown;

struct WindowUnit {
  std::string_view name;
  std::int64_t milliseconds;
  unsigned months;
};

// From the largest to the smallest of each kind.
constexpr std::array window_units = {
    WindowUnit{"y", 0, 12},         WindowUnit{"mo", 0, 1},        WindowUnit{"w", 604'800'000, 0},
    WindowUnit{"d", 86'400'000, 0}, WindowUnit{"h", 3'600'000, 0}, WindowUnit{"min", 60'000, 0},
    WindowUnit{"s", 1000, 0},
};
constexpr std::string_view units_text = "s, min, h, d, w, mo, y";
// Longer than any series, and far from overflow.
constexpr std::int64_t count_max = 1'000'000;

constexpr std::array<std::pair<std::string_view, Statistic>, 8> statistics = {{
    {"mean", Statistic::mean},
    {"min", Statistic::minimum},
    {"minimum", Statistic::minimum},
    {"max", Statistic::maximum},
    {"maximum", Statistic::maximum},
    {"sum", Statistic::sum},
    {"difference", Statistic::difference},
    {"point", Statistic::point},
}};

std::optional<Statistic> statistic_of(std::string_view key) {
  for (const auto& [name, statistic] : statistics)
    if (name == key) return statistic;
  return std::nullopt;
}

class RulesParser {
 public:
  using Maybe = std::optional<Fault>;

  explicit RulesParser(const std::string& name, bool with_files = true) : name_(name), with_files_(with_files) {}

  Result<ProcessRules> parse(std::string_view text) {
    ProcessRules rules;
    if (auto fault = read(text, rules)) return error_of(*fault);
    return rules;
  }

  /// Of a config: `datasets[dataset].outputs[output]`.
  Result<ProcessRules> parse(std::string_view text, std::size_t dataset, std::size_t output) {
    YAML::Node root;
    if (auto fault = config::load_yaml(text, root)) return error_of(*fault);
    const auto where = "datasets[" + std::to_string(dataset) + "].outputs[" + std::to_string(output) + "]";
    const auto within = [](const YAML::Node& list, std::size_t i) { return list.IsSequence() && i < list.size(); };
    const auto datasets = root.IsMap() ? root["datasets"] : YAML::Node();
    const auto outputs =
        within(datasets, dataset) && datasets[dataset].IsMap() ? datasets[dataset]["outputs"] : YAML::Node();
    if (!outputs.IsDefined() || !within(outputs, output)) return error_of({1, "there is no " + where});
    ProcessRules rules;
    auto& rule = rules.outputs.emplace_back();
    if (auto fault = read_output(where, outputs[output], rule)) return error_of(*fault);
    if (!config::has_operators(rule)) return error_of({line_of(outputs[output]), where + " has no operator"});
    return rules;
  }

  Maybe read_output(const std::string& where, const YAML::Node& item, ProcessRule& rule) {
    if (!item.IsMap())
      return Fault{line_of(item), where + ": an output is wanted, like {path: \"daily/{name}\", mean: 1d}"};
    rule.origin = origin(item);
    for (const auto& entry : item) {
      if (!entry.first.IsScalar()) return Fault{line_of(entry.first), where + ": a key is wanted here"};
      const auto& key = entry.first.Scalar();
      const auto full = where + "." + key;
      if (rule.origins.contains(key)) return Fault{line_of(entry.first), full + " stands there twice"};
      rule.origins[key] = origin(entry.first);
      if (auto fault = read_key(key, entry.second, rule))
        return Fault{
            entry.second.IsNull() ? line_of(entry.first) : fault->line,
            fault->text.rfind("unknown key " + key, 0) == 0 ? where + ": " + fault->text : full + ": " + fault->text};
    }
    if (rule.path.empty()) return Fault{line_of(item), where + ": path is missing"};
    if (rule.regrid && rule.origins.contains("points"))
      return Fault{config::line_of_key(item, "points"), where + ": regrid and points: one of them an output"};
    for (const std::string key : {"regrid", "points"})
      if (rule.region && rule.origins.contains(key))
        return Fault{config::line_of_key(item, "region"),
                     where + ": region and " + key + ": one of them an output; " + key + " begins at the whole grid"};
    if (auto fault = read_time(where, item, rule)) return fault;
    const bool has_time = rule.path.find("{time}") != std::string::npos;
    if (rule.split && !has_time && rule.path.find("{name}") == std::string::npos)
      return Fault{config::line_of_key(item, "split"),
                   where + ": split makes a file for each " + window_text(*rule.split) +
                       ", and path gives all of them one name; add {time} to it, like \"daily/{time}.nc\""};
    if (!rule.split && has_time)
      return Fault{config::line_of_key(item, "path"),
                   where + ": {time} in path is the period of split, which is missing"};
    if (rule.split)
      for (const auto& step : rule.time)
        if (step.window.whole())
          return Fault{config::line_of_key(item, "split"),
                       where + ": split and " + std::string(name_of(step.statistic)) + ": all; one of them an output"};
    DatasetRule stored;
    stored.values = rule.stored;
    stored.origins = rule.origins;
    return config::check_storage(where, item, stored);
  }

 private:
  [[nodiscard]] Error error_of(const Fault& fault) const {
    Error error{Code::config, name_ + ":" + std::to_string(fault.line) + ": " + fault.text, 0};
    // What is quoted of the file must not make a second line of it.
    std::replace_if(
        error.message.begin(), error.message.end(), [](unsigned char c) { return c < ' '; }, ' ');
    return error;
  }

  [[nodiscard]] std::string origin(const YAML::Node& node) const { return name_ + ":" + std::to_string(line_of(node)); }

  Maybe read(std::string_view text, ProcessRules& rules) {
    YAML::Node root;
    if (auto fault = config::load_yaml(text, root)) return fault;
    const std::string wanted = "outputs: a list is wanted, like - {path: \"daily/{name}\", mean: 1d}";
    if (!root.IsMap()) return Fault{std::max(1, line_of(root)), wanted};
    for (const auto& entry : root) {
      const auto key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (key == "overlap") {
        const auto overlap = overlap_named(entry.second.IsScalar() ? entry.second.Scalar() : "");
        if (!overlap)
          return Fault{line_of(entry.second), "overlap: " + shown(entry.second) + " is none of: first, last"};
        rules.overlap = *overlap;
        continue;
      }
      if (key != "outputs") {
        const std::vector<std::string> known = {"outputs", "overlap"};
        const auto meant = nearest(key, known);
        return Fault{line_of(entry.first), "unknown key " + key +
                                               (meant.empty() ? "" : "; did you mean " + meant + "?") +
                                               "; rules of advectio process have outputs, and may have overlap"};
      }
      if (!rules.outputs.empty()) return Fault{line_of(entry.first), "outputs stands there twice"};
      if (!entry.second.IsSequence() || entry.second.size() == 0) return Fault{line_of(entry.first), wanted};
      std::size_t number = 0;
      for (const auto& item : entry.second) {
        const auto where = "outputs[" + std::to_string(number++) + "]";
        if (auto fault = read_output(where, item, rules.outputs.emplace_back())) return fault;
      }
    }
    if (rules.outputs.empty()) return Fault{1, wanted};
    return std::nullopt;
  }

  Maybe read_key(const std::string& key, const YAML::Node& value, ProcessRule& rule) {
    if (key == "path") {
      if (!value.IsScalar() || value.Scalar().empty() || value.Scalar().ends_with('/'))
        return Fault{line_of(value), "the path of a file is wanted, this is " + shown(value)};
      rule.path = value.Scalar();
      return std::nullopt;
    }
    if (key == "variables") return read_names(value, rule.variables);
    if (key == "expressions") return read_expressions(value, rule.expressions);
    if (key == "region") return config::read_region(value, name_, rule.region.emplace());
    if (key == "subset") return config::read_subset(value, name_, rule.subset);
    if (key == "coarsen") return config::read_coarsen(value, name_, rule.coarsen.emplace());
    if (key == "levels") return read_levels(value, rule.levels.emplace());
    if (key == "regrid") return read_regrid(value, rule.regrid.emplace());
    if (key == "points") return read_points(value, rule.points);
    if (key == "units") return read_units(value, rule.units);
    if (key == "split") {
      const auto window = value.IsScalar()
                              ? parse_window(value.Scalar())
                              : Result<Window>(Error{Code::config, "a length of model time is wanted, like 1mo", 0});
      if (!window) return Fault{line_of(value), window.error().message};
      if (window->whole()) return Fault{line_of(value), "all is one file, which is what an output has without split"};
      rule.split = *window;
      return std::nullopt;
    }
    if (key == "cf") {
      if (!value.IsScalar() || (value.Scalar() != "true" && value.Scalar() != "false"))
        return Fault{line_of(value), "true or false is wanted, this is " + shown(value)};
      rule.cf = value.Scalar() == "true";
      return std::nullopt;
    }
    // Of the whole rule, see read_time.
    if (statistic_of(key) || key == "time" || key == "min_count" || key == "closed") return std::nullopt;
    const auto& fields = config::dataset_fields();
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const auto& f) { return f.key == key && config::is_of_storage(key); });
    if (field != fields.end()) return field->read(value, rule.stored);
    std::vector<std::string> known = {"path",    "variables", "expressions", "region", "subset",
                                      "coarsen", "levels",    "regrid",      "points", "units",
                                      "cf",      "time",      "min_count",   "closed", "split"};
    for (const auto& [name, statistic] : statistics) known.emplace_back(name);
    for (const auto& f : fields)
      if (config::is_of_storage(f.key)) known.emplace_back(f.key);
    const auto meant = nearest(key, known);
    std::string all;
    for (const auto& name : known) all += (all.empty() ? "" : ", ") + name;
    return Fault{line_of(value),
                 "unknown key " + key + (meant.empty() ? "; known: " + all : "; did you mean " + meant + "?")};
  }

  Maybe read_names(const YAML::Node& node, std::vector<NameAt>& names) {
    const std::string wanted = "a list of names is wanted, like [T2, U10], this is " + shown(node);
    if (!node.IsSequence() || node.size() == 0) return Fault{line_of(node), wanted};
    for (const auto& one : node) {
      if (!one.IsScalar() || one.Scalar().empty())
        return Fault{line_of(one), "a name is wanted, this is " + shown(one)};
      if (auto good = check_glob(one.Scalar()); !good)
        return Fault{line_of(one), "'" + one.Scalar() + "': " + good.error().message};
      names.push_back({one.Scalar(), origin(one)});
    }
    return std::nullopt;
  }

  Maybe read_units(const YAML::Node& node, std::vector<UnitsRule>& rules) {
    const std::string example = "a map is wanted, like {T2: degC, RAINNC: \"kg m-2\"}";
    if (!node.IsMap() || node.size() == 0) return Fault{line_of(node), example + ", this is " + shown(node)};
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || entry.first.Scalar().empty()) return Fault{line_of(entry.first), example};
      const auto& name = entry.first.Scalar();
      if (!entry.second.IsScalar() || entry.second.Scalar().empty())
        return Fault{line_of(entry.first), name + ": a unit is wanted, like degC, this is " + shown(entry.second)};
      if (std::any_of(rules.begin(), rules.end(), [&](const auto& other) { return other.variable == name; }))
        return Fault{line_of(entry.first), name + " stands there twice"};
      rules.push_back({name, entry.second.Scalar(), origin(entry.first)});
    }
    return std::nullopt;
  }

  Maybe read_expressions(const YAML::Node& node, std::vector<ExpressionRule>& all) {
    const std::string example = "a map is wanted, like {speed: \"hypot(U10, V10)\"}";
    if (!node.IsMap() || node.size() == 0) return Fault{line_of(node), example};
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || entry.first.Scalar().empty()) return Fault{line_of(entry.first), example};
      ExpressionRule rule;
      rule.name = entry.first.Scalar();
      rule.origin = origin(entry.first);
      if (rule.name.find('/') != std::string::npos)
        return Fault{line_of(entry.first), rule.name + ": a variable's name has no /"};
      for (const auto& other : all)
        if (other.name == rule.name) return Fault{line_of(entry.first), rule.name + " stands there twice"};
      if (entry.second.IsScalar()) {
        rule.formula = entry.second.Scalar();
      } else if (entry.second.IsMap()) {
        for (const auto& part : entry.second) {
          const auto key = part.first.IsScalar() ? part.first.Scalar() : "";
          auto* const to = key == "formula"         ? &rule.formula
                           : key == "units"         ? &rule.units
                           : key == "long_name"     ? &rule.long_name
                           : key == "standard_name" ? &rule.standard_name
                                                    : nullptr;
          if (to == nullptr)
            return Fault{line_of(part.first),
                         rule.name + ": unknown key " + key + "; known: formula, units, long_name, standard_name"};
          if (!part.second.IsScalar()) return Fault{line_of(part.second), rule.name + "." + key + ": a text is wanted"};
          *to = part.second.Scalar();
        }
      }
      if (rule.formula.empty())
        return Fault{line_of(entry.first), rule.name + ": an expression is wanted, like \"hypot(U10, V10)\""};
      all.push_back(std::move(rule));
    }
    return std::nullopt;
  }

  Maybe read_levels(const YAML::Node& node, LevelsRule& rule) {
    const std::string example = "a map is wanted, like {pressure: [850, 500, 250 hPa], preset: wrf}";
    if (!node.IsMap()) return Fault{line_of(node), example};
    rule.origin = origin(node);
    std::string of;
    std::set<std::string> seen;
    std::optional<LevelsRule::Method> method;
    for (const auto& entry : node) {
      const auto key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto line = line_of(entry.first);
      if (!seen.insert(key).second) return Fault{line, key + " stands there twice"};
      const std::string text = entry.second.IsScalar() ? entry.second.Scalar() : "";
      const auto is_none_of = [&](const std::string& words) {
        return Fault{line_of(entry.second), key + ": " + shown(entry.second) + " is none of: " + words};
      };
      if (key == "pressure" || key == "height") {
        if (!of.empty()) return Fault{line, "pressure and height: one of them an output"};
        of = key;
        rule.kind = key == "pressure" ? LevelsRule::Kind::pressure : LevelsRule::Kind::height;
        if (auto fault = read_level_list(entry.second, rule)) return Fault{fault->line, key + ": " + fault->text};
      } else if (key == "method") {
        if (text == "linear")
          method = LevelsRule::Method::linear;
        else if (text == "log")
          method = LevelsRule::Method::log;
        else
          return is_none_of("linear, log");
      } else if (key == "preset") {
        if (text != "wrf" && text != "hybrid") return is_none_of("wrf, hybrid");
        rule.wrf = text == "wrf";
        rule.hybrid = text == "hybrid";
      } else if (key == "below") {
        if (text != "missing" && text != "nearest") return is_none_of("missing, nearest");
        rule.below = text == "missing" ? LevelsRule::Below::missing : LevelsRule::Below::nearest;
      } else if (key == "coordinate") {
        if (auto fault = read_level_coordinate(entry.second, rule)) return fault;
      } else {
        const std::vector<std::string> known = {"pressure", "height", "coordinate", "preset", "method", "below"};
        const auto meant = nearest(key, known);
        return Fault{line, "unknown key " + key + (meant.empty() ? "" : "; did you mean " + meant + "?") +
                               "; known: pressure, height, coordinate, preset, method, below"};
      }
    }
    if (of.empty()) return Fault{line_of(node), example};
    if (rule.hybrid && !rule.coordinate.empty())
      return Fault{config::line_of_key(node, "coordinate"),
                   "preset: hybrid takes the " + of + " of the files' formula_terms; leave coordinate or preset out"};
    if (rule.coordinate.empty() && !rule.wrf && !rule.hybrid)
      return Fault{line_of(node),
                   "coordinate is missing: what has the " + of +
                       " at model levels, like coordinate: \"P + PB\"; or preset: wrf, or preset: hybrid"};
    rule.of_preset = rule.wrf && rule.coordinate.empty();
    if (rule.hybrid) {
      // Each of the files' level coordinates has a formula of its own.
    } else if (rule.coordinate.empty() && rule.kind == LevelsRule::Kind::pressure) {
      rule.coordinate = "P + PB";
    } else if (rule.coordinate.empty()) {
      rule.coordinate = "destagger((PH + PHB) / 9.81)";
      rule.coordinate_units = "m";
    }
    // WRF's own levels are linear in pressure; elsewhere the logarithm is usual.
    rule.method = method.value_or(rule.kind == LevelsRule::Kind::pressure && !rule.wrf ? LevelsRule::Method::log
                                                                                       : LevelsRule::Method::linear);
    if (rule.kind == LevelsRule::Kind::height && rule.method == LevelsRule::Method::log)
      return Fault{config::line_of_key(node, "method"), "method: log is for pressure; heights may be 0"};
    return std::nullopt;
  }

  /// "P + PB", or {formula: "hyam * P0 + hybm * PS", units: Pa}.
  Maybe read_level_coordinate(const YAML::Node& node, LevelsRule& rule) {
    const std::string example =
        "coordinate: an expression is wanted, like \"P + PB\" or {formula: \"P + PB\", units: Pa}";
    if (node.IsScalar()) rule.coordinate = node.Scalar();
    if (node.IsMap())
      for (const auto& part : node) {
        const auto key = part.first.IsScalar() ? part.first.Scalar() : "";
        if (key != "formula" && key != "units")
          return Fault{line_of(part.first), "coordinate: unknown key " + key + "; known: formula, units"};
        if (!part.second.IsScalar() || part.second.Scalar().empty())
          return Fault{line_of(part.second), "coordinate: " + key + ": a text is wanted"};
        (key == "formula" ? rule.coordinate : rule.coordinate_units) = part.second.Scalar();
      }
    if (rule.coordinate.empty()) return Fault{line_of(node), example};
    return std::nullopt;
  }

  /// [850, 500, 250 hPa]: the unit of the last is that of all.
  Maybe read_level_list(const YAML::Node& node, LevelsRule& rule) {
    const std::string example = rule.kind == LevelsRule::Kind::pressure ? "[850, 500, 250 hPa]" : "[100, 1000 m]";
    if (!node.IsSequence() || node.size() == 0)
      return Fault{line_of(node), "a list like " + example + " is wanted, this is " + shown(node)};
    for (std::size_t i = 0; i < node.size(); ++i) {
      const std::string text = node[i].IsScalar() ? node[i].Scalar() : "";
      double value = 0;
      const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (ec != std::errc()) return Fault{line_of(node[i]), shown(node[i]) + " is no level; write e.g. " + example};
      std::string unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
      unit.erase(0, unit.find_first_not_of(' '));
      if (!unit.empty() && i + 1 < node.size())
        return Fault{line_of(node[i]), "the unit stands behind the last level, as in " + example};
      if (std::find(rule.levels.begin(), rule.levels.end(), value) != rule.levels.end())
        return Fault{line_of(node[i]), shown(node[i]) + " stands there twice"};
      rule.levels.push_back(value);
      rule.units = unit;
    }
    const bool pressure = rule.kind == LevelsRule::Kind::pressure;
    const double unit = pressure             ? rule.units == "hPa"  ? 100
                                               : rule.units == "Pa" ? 1
                                                                    : 0
                        : rule.units == "m"  ? 1
                        : rule.units == "km" ? 1000
                                             : 0;
    if (unit == 0)
      return Fault{line_of(node),
                   (rule.units.empty() ? "the levels have no unit" : "unknown unit '" + rule.units + "'") +
                       "; write e.g. " + example + (pressure ? " (units: Pa, hPa)" : " (units: m, km)")};
    const double least = pressure ? 0 : -1000, most = pressure ? 120'000 : 200'000;
    for (const auto level : rule.levels)
      if (!(level * unit > least && level * unit <= most))
        return Fault{line_of(node), "a level lies outside of any atmosphere; " +
                                        std::string(pressure ? "0 to 1200 hPa" : "-1 to 200 km") + " can be"};
    return std::nullopt;
  }

  /// {Zurich: [47.38, 8.54]}, or the path of a file with lines "name, latitude, longitude".
  Maybe read_points(const YAML::Node& node, std::vector<PointRule>& points) {
    const std::string example =
        "places are wanted, like {Zurich: [47.38, 8.54]}, or a file with lines like Zurich, 47.38, 8.54";
    const auto add = [&](int line, const std::string& name, const std::string& lat, const std::string& lon) -> Maybe {
      PointRule point;
      point.name = name;
      const auto number = [](const std::string& text, double& to) {
        const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), to);
        return ec == std::errc() && end == text.data() + text.size();
      };
      if (!number(lat, point.lat) || !number(lon, point.lon) || !(std::abs(point.lat) <= 90) ||
          !(std::abs(point.lon) <= 360))
        return Fault{line,
                     name + ": latitude (-90 to 90) and longitude in degrees are wanted, this is " + lat + ", " + lon};
      for (const auto& other : points)
        if (other.name == name) return Fault{line, name + " stands there twice"};
      points.push_back(std::move(point));
      return std::nullopt;
    };
    if (node.IsScalar() && !node.Scalar().empty()) {
      if (!with_files_) return std::nullopt;
      auto text = config::read_text(node.Scalar());
      if (!text) return Fault{line_of(node), text.error().message};
      std::istringstream lines(*text);
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        line = line.substr(0, line.find('#'));
        std::vector<std::string> parts;
        std::istringstream in(line);
        for (std::string part; std::getline(in, part, ',');) {
          const auto first = part.find_first_not_of(" \t\r"), last = part.find_last_not_of(" \t\r");
          parts.push_back(first == std::string::npos ? "" : part.substr(first, last - first + 1));
        }
        if (parts.empty() || (parts.size() == 1 && parts[0].empty())) continue;
        if (number == 1 && parts.size() == 3 && parts[1].starts_with("lat")) continue;  // a heading
        const auto at = node.Scalar() + ", line " + std::to_string(number) + ": ";
        if (parts.size() != 3 || parts[0].empty())
          return Fault{line_of(node), at + "name, latitude and longitude are wanted"};
        if (auto fault = add(line_of(node), parts[0], parts[1], parts[2])) return Fault{fault->line, at + fault->text};
      }
      if (points.empty()) return Fault{line_of(node), node.Scalar() + " has no places"};
      return std::nullopt;
    }
    if (!node.IsMap() || node.size() == 0) return Fault{line_of(node), example};
    for (const auto& entry : node) {
      const auto& at = entry.second;
      if (!entry.first.IsScalar() || entry.first.Scalar().empty() || !at.IsSequence() || at.size() != 2 ||
          !at[0].IsScalar() || !at[1].IsScalar())
        return Fault{line_of(entry.first), example};
      if (auto fault = add(line_of(entry.first), entry.first.Scalar(), at[0].Scalar(), at[1].Scalar())) return fault;
    }
    return std::nullopt;
  }

  Maybe read_regrid(const YAML::Node& node, RegridRule& rule) {
    const std::string example =
        "a file of weights is wanted, like weights.nc or {weights: weights.nc, missing_max: 0.5}";
    rule.origin = origin(node);
    if (node.IsScalar() && !node.Scalar().empty()) {
      rule.weights = node.Scalar();
      return std::nullopt;
    }
    if (!node.IsMap()) return Fault{line_of(node), example + ", this is " + shown(node)};
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const auto key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto line = line_of(entry.first);
      if (!seen.insert(key).second) return Fault{line, key + " stands there twice"};
      const std::string text = entry.second.IsScalar() ? entry.second.Scalar() : "";
      if (key == "weights" || key == "grid") {
        if (text.empty()) return Fault{line, key + ": the path of a file is wanted, this is " + shown(entry.second)};
        (key == "grid" ? rule.grid : rule.weights) = text;
      } else if (key == "missing_max") {
        const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), rule.missing_max);
        if (ec != std::errc() || end != text.data() + text.size() || !(rule.missing_max >= 0 && rule.missing_max < 1))
          return Fault{line_of(entry.second),
                       "missing_max: a share from 0 to less than 1 is wanted, this is " + shown(entry.second)};
      } else {
        return Fault{line, "unknown key " + key + "; known: weights, grid, missing_max"};
      }
    }
    if (rule.weights.empty()) return Fault{line_of(node), example};
    return std::nullopt;
  }

  /// `mean: 1d` is short for `time: [{mean: 1d}]`.
  Maybe read_time(const std::string& where, const YAML::Node& item, ProcessRule& rule) {
    const YAML::Node chain = item["time"];
    const bool is_short = std::any_of(rule.origins.begin(), rule.origins.end(), [](const auto& o) {
      return statistic_of(o.first) || o.first == "min_count" || o.first == "closed";
    });
    if (!chain.IsDefined()) return is_short ? read_step(where, item, rule.time.emplace_back()) : std::nullopt;
    const auto line = config::line_of_key(item, "time");
    const std::string example = "a list of steps is wanted, like [{mean: 1d}, {minimum: 1w}]";
    if (is_short)
      return Fault{line, where + ".time: the statistics of this output stand in its list, and not beside it"};
    if (!chain.IsSequence() || chain.size() == 0) return Fault{line, where + ".time: " + example};
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const auto in = where + ".time[" + std::to_string(i) + "]";
      if (!chain[i].IsMap()) return Fault{line_of(chain[i]), in + ": a step is wanted, like {mean: 1d}"};
      std::set<std::string> seen;
      for (const auto& entry : chain[i]) {
        const auto key = entry.first.IsScalar() ? entry.first.Scalar() : "";
        if (!statistic_of(key) && key != "min_count" && key != "closed")
          return Fault{line_of(entry.first),
                       in + ": unknown key " + key +
                           "; known: mean, minimum, maximum, sum, difference, point, min_count, closed"};
        if (!seen.insert(key).second) return Fault{line_of(entry.first), in + "." + key + " stands there twice"};
      }
      if (auto fault = read_step(in, chain[i], rule.time.emplace_back())) return fault;
    }
    return std::nullopt;
  }

  Maybe read_step(const std::string& where, const YAML::Node& map, TimeStep& step) {
    std::string named;
    for (const auto& entry : map) {
      const auto& key = entry.first.Scalar();
      const auto statistic = statistic_of(key);
      if (!statistic) continue;
      if (!named.empty())
        return Fault{line_of(entry.first),
                     where + " has " + named + " and " + key +
                         "; one statistic an output, or a chain: time: [{mean: 1d}, {minimum: 1w}]"};
      named = key;
      step.statistic = *statistic;
      step.origin = origin(entry.first);
      if (!entry.second.IsScalar())
        return Fault{line_of(entry.first),
                     where + "." + key + ": a window like 6h is wanted, this is " + shown(entry.second)};
      auto window = parse_window(entry.second.Scalar());
      if (!window) return Fault{line_of(entry.second), where + "." + key + ": " + window.error().message};
      step.window = *window;
    }
    if (named.empty())
      return Fault{line_of(map), where + ": min_count and closed are of a statistic, like mean: 1d, and there is none"};
    if (const auto count = map["min_count"]; count.IsDefined()) {
      const std::string text = count.IsScalar() ? count.Scalar() : "";
      const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), step.min_count);
      if (ec != std::errc() || end != text.data() + text.size() || step.min_count == 0 || step.min_count > UINT32_MAX)
        return Fault{line_of(count), where + ".min_count: a whole number from 1 is wanted, this is " + shown(count)};
      if (step.statistic == Statistic::difference || step.statistic == Statistic::point)
        return Fault{line_of(count), where + ".min_count: " + named + " looks at single samples, and counts none"};
    }
    if (const auto closed = map["closed"]; closed.IsDefined()) {
      const std::string text = closed.IsScalar() ? closed.Scalar() : "";
      if (text != "left" && text != "right")
        return Fault{line_of(closed), where + ".closed: left or right is wanted, this is " + shown(closed)};
      step.closed_left = text == "left";
      if (step.closed_left && step.statistic == Statistic::difference && !step.window.whole())
        return Fault{line_of(closed), where + ".closed: the difference is that of a window's ends: right only"};
    }
    return std::nullopt;
  }

  const std::string& name_;
  const bool with_files_;
};

}  // namespace

std::optional<Fault> config::read_process_rule(const std::string& where, const YAML::Node& item,
                                               const std::string& name, bool with_files, ProcessRule& rule) {
  return RulesParser(name, with_files).read_output(where, item, rule);
}

bool config::has_operators(const ProcessRule& rule) {
  return std::any_of(rule.origins.begin(), rule.origins.end(),
                     [](const auto& key) { return key.first != "path" && !is_of_storage(key.first); });
}

std::string_view name_of(Statistic s) noexcept {
  switch (s) {
    case Statistic::mean: return "mean";
    case Statistic::minimum: return "minimum";
    case Statistic::maximum: return "maximum";
    case Statistic::sum: return "sum";
    case Statistic::difference: return "difference";
    case Statistic::point: return "point";
  }
  return "?";
}

std::optional<Overlap> overlap_named(std::string_view name) noexcept {
  if (name == "first") return Overlap::first;
  if (name == "last") return Overlap::last;
  return std::nullopt;
}

Result<Window> parse_window(std::string_view text) {
  if (text == "all") return Window{};
  const auto refuse = [&](const std::string& why) {
    return Error{Code::config, "'" + std::string(text) + "' " + why, 0};
  };
  std::int64_t count = 0;
  const auto [rest, ec] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (ec != std::errc() || text.empty()) return refuse("is no window; write e.g. 6h, 1d, 1mo, or all");
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return refuse("has no unit; write e.g. 6h (units: " + std::string(units_text) + ")");
  for (const auto& u : window_units) {
    if (u.name != unit) continue;
    if (count < 1 || count > count_max) return refuse("is no length of a window");
    return Window{count * u.milliseconds, static_cast<unsigned>(count) * u.months};
  }
  return refuse("has the unknown unit '" + std::string(unit) + "'; write e.g. 6h (units: " + std::string(units_text) +
                ")");
}

std::string window_text(Window window) {
  for (const auto& u : window_units) {
    if (u.months != 0 && window.months != 0 && window.months % u.months == 0)
      return std::to_string(window.months / u.months) + std::string(u.name);
    if (u.milliseconds != 0 && window.milliseconds != 0 && window.milliseconds % u.milliseconds == 0)
      return std::to_string(window.milliseconds / u.milliseconds) + std::string(u.name);
  }
  return "all";
}

Result<ProcessRules> parse_process_rules(std::string_view text, const std::string& name) {
  return RulesParser(name).parse(text);
}

Result<ProcessRules> load_process_rules(const std::string& path) {
  auto text = config::read_text(path);
  if (!text) return std::move(text).error();
  return parse_process_rules(*text, path);
}

Result<ProcessRules> load_processed_rule(const std::string& path, const std::string& name, std::size_t dataset,
                                         std::size_t output) {
  auto text = config::read_text(path);
  if (!text) return std::move(text).error();
  return RulesParser(name).parse(*text, dataset, output);
}

std::string process_path(const ProcessRule& rule, const std::string& directory, const std::string& first_input,
                         const std::string& period) {
  auto path = rule.path;
  const auto name = std::filesystem::path(first_input).filename().string();
  if (const auto at = path.find("{name}"); at != std::string::npos) path.replace(at, 6, name);
  if (const auto at = path.find("{time}"); at != std::string::npos) path.replace(at, 6, period);
  return (std::filesystem::path(directory) / path).string();
}

}  // namespace advectio
