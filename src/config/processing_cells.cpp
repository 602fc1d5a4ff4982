#include "config/processing_cells.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace advectio::config {
namespace {

using Maybe = std::optional<Fault>;

std::string origin(const YAML::Node& node, const std::string& name) {
  return name + ":" + std::to_string(line_of(node));
}

std::string text_of(const YAML::Node& node) {
  return node.IsScalar() ? node.Scalar() : "";
}

template <typename Number>
bool read_number(std::string_view text, Number& to) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), to);
  return ec == std::errc() && end == text.data() + text.size();
}

/// [least, most].
Maybe read_range(const std::string& key, const YAML::Node& node, double limit, DegreeRange& range) {
  if (!node.IsSequence() || node.size() != 2 || !read_number(text_of(node[0]), range.least) ||
      !read_number(text_of(node[1]), range.most) || !(std::abs(range.least) <= limit) ||
      !(std::abs(range.most) <= limit))
    return Fault{line_of(node), key + ": two numbers of degrees are wanted, like " +
                                    (key == "lon" ? "[-95, -85] (from west eastwards)" : "[25, 35]")};
  return std::nullopt;
}

/// "10:60:2" and what is left out of it; "5" is one cell.
bool read_slice(std::string_view text, SubsetRule& rule) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(':');
    auto part = text.substr(0, at);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  const auto index = [](std::string_view part, std::optional<std::int64_t>& to) {
    return part.empty() || read_number(part, to.emplace());
  };
  if (parts.size() > 3 || !index(parts[0], rule.start)) return false;
  if (parts.size() == 1) {
    if (!rule.start) return false;
    // -1 alone is the last cell: what stops at 0 would hold none.
    if (*rule.start != -1) rule.stop = *rule.start + 1;
    return true;
  }
  if (!index(parts[1], rule.stop)) return false;
  if (parts.size() < 3 || parts[2].empty()) return true;
  std::int64_t step = 0;
  if (!read_number(parts[2], step)) return false;
  rule.step = step < 1 ? 0 : static_cast<std::uint64_t>(step);
  return true;
}

}  // namespace

std::string shown(const YAML::Node& node) {
  return node.IsSequence() ? "a list" : node.IsMap() ? "a map" : node.IsNull() ? "nothing" : "'" + node.Scalar() + "'";
}

Maybe read_region(const YAML::Node& node, const std::string& name, RegionRule& rule) {
  const std::string example = "a map is wanted, like {lon: [-95, -85], lat: [25, 35]}";
  if (!node.IsMap() || node.size() == 0) return Fault{line_of(node), example + ", this is " + shown(node)};
  rule.origin = origin(node, name);
  for (const auto& entry : node) {
    const auto key = text_of(entry.first);
    const auto line = line_of(entry.first);
    if (key != "lon" && key != "lat") return Fault{line, "unknown key " + key + "; known: lon, lat"};
    auto& range = key == "lon" ? rule.lon : rule.lat;
    if (range) return Fault{line, key + " stands there twice"};
    if (auto fault = read_range(key, entry.second, key == "lon" ? 360 : 90, range.emplace())) return fault;
    if (key == "lat" && range->least > range->most)
      return Fault{line_of(entry.second), "lat: the southern one stands first, like [25, 35]"};
    if (key != "lon") continue;
    if (range->most < range->least) range->most += 360;
    if (range->most < range->least || range->most - range->least > 360)
      return Fault{line_of(entry.second), "lon: from west eastwards, and no more than once around"};
  }
  return std::nullopt;
}

Maybe read_subset(const YAML::Node& node, const std::string& name, std::vector<SubsetRule>& rules) {
  const std::string example = "a map is wanted, like {south_north: 10:60, bottom_top: \"0:20:2\"}";
  if (!node.IsMap() || node.size() == 0) return Fault{line_of(node), example + ", this is " + shown(node)};
  for (const auto& entry : node) {
    SubsetRule rule;
    rule.dimension = text_of(entry.first);
    rule.origin = origin(entry.first, name);
    if (rule.dimension.empty()) return Fault{line_of(entry.first), example};
    if (std::any_of(rules.begin(), rules.end(), [&](const auto& other) { return other.dimension == rule.dimension; }))
      return Fault{line_of(entry.first), rule.dimension + " stands there twice"};
    if (!read_slice(text_of(entry.second), rule))
      return Fault{
          line_of(entry.second),
          rule.dimension + ": start:stop or start:stop:step is wanted, like 10:60, this is " + shown(entry.second)};
    if (rule.step == 0)
      return Fault{line_of(entry.second), rule.dimension + ": a step from 1 is wanted, this is " + shown(entry.second)};
    rules.push_back(std::move(rule));
  }
  return std::nullopt;
}

Maybe read_coarsen(const YAML::Node& node, const std::string& name, CoarsenRule& rule) {
  using Method = CoarsenRule::Method;
  const std::string example = "a map is wanted, like {south_north: 2, west_east: 2, method: mean}";
  if (!node.IsMap()) return Fault{line_of(node), example + ", this is " + shown(node)};
  bool method = false;
  for (const auto& entry : node) {
    const auto key = text_of(entry.first);
    const auto text = text_of(entry.second);
    if (key.empty()) return Fault{line_of(entry.first), example};
    const bool again =
        std::any_of(rule.along.begin(), rule.along.end(), [&](const auto& a) { return a.dimension == key; });
    if (again || (method && key == "method")) return Fault{line_of(entry.first), key + " stands there twice"};
    if (key == "method") {
      method = true;
      if (text == "mean")
        rule.method = Method::mean;
      else if (text == "max" || text == "maximum")
        rule.method = Method::maximum;
      else if (text == "min" || text == "minimum")
        rule.method = Method::minimum;
      else if (text == "sum")
        rule.method = Method::sum;
      else if (text == "first")
        rule.method = Method::first;
      else
        return Fault{line_of(entry.second),
                     "method: " + shown(entry.second) + " is none of: mean, max, min, sum, first"};
      continue;
    }
    std::uint64_t cells = 0;
    if (!read_number(text, cells) || cells < 2 || cells > UINT32_MAX)
      return Fault{line_of(entry.second),
                   key + ": how many cells become one, from 2, is wanted, this is " + shown(entry.second)};
    rule.along.push_back({key, cells, origin(entry.first, name)});
  }
  if (rule.along.empty()) return Fault{line_of(node), example};
  return std::nullopt;
}

}  // namespace advectio::config
