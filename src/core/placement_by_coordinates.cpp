#include "core/placement_by_coordinates.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>

#include "core/tile_ways.h"

namespace advectio {
namespace {

Error invalid(std::string what) {
  return Error{Code::invalid, std::move(what), 0};
}

std::string show(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

/// One part of an axis, and the tiles that hold it.
struct Part {
  std::vector<double> values;  ///< rising
  std::vector<std::size_t> tiles;
  [[nodiscard]] double first() const { return values.front(); }
  [[nodiscard]] double last() const { return values.back(); }
};

/// The steps beside the gap between two parts; 0: neither has a second value.
double steps_beside(const Part& before, const Part& behind) {
  double step = 0;
  if (before.values.size() > 1) step = before.last() - before.values[before.values.size() - 2];
  if (behind.values.size() > 1) step = std::max(step, behind.values[1] - behind.first());
  return step;
}

/// The parts of one axis in their order.
class Axis {
 public:
  Axis(const std::vector<UnplacedTile>& tiles, std::size_t dimension)
      : tiles_(tiles), dimension_(dimension), name_(tiles.front().schema.dimensions[dimension].name) {}

  /// Empty: every tile has all of it.
  Result<std::vector<std::optional<Span>>> spans() {
    if (!is_cut()) return std::vector<std::optional<Span>>(tiles_.size());
    ADVECTIO_TRY(find_direction());
    find_parts();
    double narrowest = 0;
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      const auto gap = parts_[i].first() - parts_[i - 1].last();
      if (gap > 0 && (narrowest == 0 || gap < narrowest)) narrowest = gap;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // of each part: where it begins, how many points
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      auto shared = i + 1 < parts_.size() ? edge(parts_[i], parts_[i + 1], narrowest) : Result<bool>(false);
      if (!shared) return std::move(shared).error();
      const auto count = parts_[i].values.size() - (*shared ? 1 : 0);
      places.emplace_back(length, count);
      length += count;
    }
    std::vector<std::optional<Span>> out(tiles_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i)
      for (const auto t : parts_[i].tiles) out[t] = Span{0, places[i].first, places[i].second, length};
    return out;
  }

 private:
  [[nodiscard]] const std::vector<double>& values(std::size_t tile) const {
    return tiles_[tile].coordinates[dimension_];
  }

  [[nodiscard]] bool is_cut() const {
    bool differ = false;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      if (values(t).empty()) return false;
      differ = differ || values(t) != values(0);
    }
    return differ;
  }

  Result<void> find_direction() {
    for (std::size_t t = 0; t < tiles_.size(); ++t)
      if (values(t).size() > 1 && values(t)[1] < values(t)[0]) direction_ = -1;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      const auto& v = values(t);
      for (std::size_t i = 0; i < v.size(); ++i)
        if (!std::isfinite(v[i]) || (i > 0 && (v[i] - v[i - 1]) * direction_ <= 0))
          return invalid(tiles_[t].name + ": its coordinate " + name_ + " does not " +
                         (direction_ > 0 ? "rise" : "fall") + " from " + show(v[i > 0 ? i - 1 : i]) + " to " +
                         show(v[i]) + ": it does not say where the tile lies");
    }
    return {};
  }

  void find_parts() {
    std::map<std::vector<double>, std::size_t> known;
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      auto v = values(t);
      for (auto& value : v) value *= direction_;
      const auto [it, fresh] = known.try_emplace(v, parts_.size());
      if (fresh) parts_.push_back({std::move(v), {}});
      parts_[it->second].tiles.push_back(t);
    }
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.values < b.values; });
  }

  [[nodiscard]] std::string says(const Part& p) const {
    return tiles_[p.tiles.front()].name + " has " + show(p.first() * direction_) + " to " + show(p.last() * direction_);
  }

  /// Do the two share the point between them? Errors: they share more, or another part lies between them.
  Result<bool> edge(const Part& before, const Part& behind, double narrowest) const {
    const auto gap = behind.first() - before.last();
    const auto step = steps_beside(before, behind);
    if (std::abs(gap) <= 1e-3 * step && before.values.size() > 1) return true;
    if (gap <= 0)
      return invalid("tiles overlap in the coordinate " + name_ + ": " + says(before) + ", " + says(behind));
    if (gap > 1.5 * (step > 0 ? step : narrowest))
      return invalid("a part of the coordinate " + name_ + " is in no tile: " + says(before) + ", " + says(behind) +
                     ", and none lies between them");
    return false;
  }

  const std::vector<UnplacedTile>& tiles_;
  std::size_t dimension_;
  std::string name_;
  double direction_ = 1;
  std::vector<Part> parts_;
};

/// DALES names its processor in x and y in the title, NAME.001.002.EXPERIMENT.nc or NAME.x001y002.EXPERIMENT.nc.
std::optional<std::array<int, 2>> processors_of(const Schema& s) {
  auto title = attribute_text(attribute_named(s.attributes, "title"));
  while (!title.empty() && (title.back() == ' ' || title.back() == '\0')) title.remove_suffix(1);
  if (!title.ends_with(".nc")) return std::nullopt;
  title.remove_suffix(3);
  const auto word = [&]() -> std::string_view {
    const auto dot = title.rfind('.');
    if (dot == std::string_view::npos) return {};
    const auto last = title.substr(dot + 1);
    title = title.substr(0, dot);
    return last;
  };
  const auto number_of = [](std::string_view digits) -> int {
    int n = -1;
    const auto end = digits.data() + digits.size();
    return digits.size() == 3 && std::from_chars(digits.data(), end, n).ptr == end ? n : -1;
  };
  (void)word();  // of the experiment
  const auto last = word();
  int x = -1, y = -1;
  if (last.size() == 8 && last[0] == 'x' && last[4] == 'y') {
    x = number_of(last.substr(1, 3));
    y = number_of(last.substr(5, 3));
  } else {
    y = number_of(last);
    x = number_of(word());
  }
  if (x < 0 || y < 0) return std::nullopt;
  return std::array<int, 2>{x, y};
}

/// Some versions of DALES write coordinates that count from the processor's own corner, or from another's. What they
/// say is then not the order of the processors.
Result<void> check_processors(const std::vector<UnplacedTile>& tiles, const std::vector<Placement>& placements) {
  std::vector<std::array<int, 2>> processors;
  for (const auto& t : tiles) {
    const auto p = processors_of(t.schema);
    if (!p) return {};
    processors.push_back(*p);
  }
  const auto& dimensions = tiles.front().schema.dimensions;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const std::size_t axis = dimensions[d].name.starts_with('x') ? 0 : 1;
    if (tiles.front().coordinates[d].empty() || (axis == 1 && !dimensions[d].name.starts_with('y'))) continue;
    std::map<int, std::uint64_t> at;  // processor, where its tiles begin
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const auto& span = placements[t].spans[d];
      const auto [it, fresh] = at.try_emplace(processors[t][axis], span ? span->to : 0);
      if (!fresh && it->second != (span ? span->to : 0)) it->second = UINT64_MAX;
    }
    std::optional<std::uint64_t> before;
    for (const auto& [processor, to] : at) {
      if (to == UINT64_MAX || (before && to <= *before))
        return invalid(tiles.front().name + " and others: the coordinate " + dimensions[d].name +
                       " is not in the order of the processors that their titles name; some versions of DALES write "
                       "it wrongly, so it does not say where the tiles lie");
      before = to;
    }
  }
  return {};
}

Result<void> check_places(const std::vector<UnplacedTile>& tiles, const std::vector<Placement>& placements) {
  std::map<std::vector<std::uint64_t>, std::size_t> at;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    std::vector<std::uint64_t> place;
    for (const auto& span : placements[t].spans)
      if (span) place.push_back(span->to);
    const auto [it, fresh] = at.try_emplace(std::move(place), t);
    if (!fresh)
      return invalid(tiles[it->second].name + " and " + tiles[t].name +
                     " say by no attribute where they lie, and have the same coordinates: they are not parts of one "
                     "domain, or one tile is there twice");
  }
  return {};
}

}  // namespace

std::optional<std::uint32_t> coordinate_of(const Schema& schema, std::size_t dimension) {
  const auto& d = schema.dimensions[dimension];
  for (std::uint32_t v = 0; v < schema.variables.size(); ++v) {
    const auto& variable = schema.variables[v];
    if (variable.name == d.name && variable.dimensions == std::vector<std::uint32_t>{std::uint32_t(dimension)} &&
        !d.unlimited && variable.type != DataType::text && variable.type != DataType::string)
      return v;
  }
  return std::nullopt;
}

Result<std::vector<Placement>> place_by_coordinates(const std::vector<UnplacedTile>& tiles) {
  std::vector<Placement> placements(tiles.size());
  if (tiles.empty()) return placements;
  const auto& first = tiles.front();
  for (auto& p : placements) {
    p.kind = TileKind::coordinates;
    p.spans.resize(first.schema.dimensions.size());
  }
  for (const auto& t : tiles) {
    bool alike = t.schema.dimensions.size() == first.schema.dimensions.size();
    for (std::size_t d = 0; alike && d < t.schema.dimensions.size(); ++d)
      alike = t.schema.dimensions[d].name == first.schema.dimensions[d].name;
    if (!alike) return invalid(t.name + " and " + first.name + " do not have the same dimensions");
  }
  for (std::size_t d = 0; d < first.schema.dimensions.size(); ++d) {
    auto spans = Axis(tiles, d).spans();
    if (!spans) return std::move(spans).error();
    for (std::size_t t = 0; t < tiles.size(); ++t) placements[t].spans[d] = (*spans)[t];
  }
  ADVECTIO_TRY(check_processors(tiles, placements));
  ADVECTIO_TRY(check_places(tiles, placements));
  return placements;
}

}  // namespace advectio
