#include "core/placement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "core/cells.h"
#include "core/tile_ways.h"

namespace advectio {
namespace {

// ---- what only all tiles together say ----

/// Two neighbours may both hold the points of the edge between them. They do where intervals in this dimension begin at
/// the last point of the one before them, and none overlaps another by more than that.
bool edges_are_shared(const std::vector<Tile>& tiles, std::size_t dimension) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> intervals;  // first and last point
  for (const auto& t : tiles)
    if (const auto& span = t.placement.spans[dimension]; span && span->count > 0)
      intervals.insert({span->to, span->to + span->count - 1});
  bool any = false;
  const std::pair<std::uint64_t, std::uint64_t>* before = nullptr;
  for (const auto& interval : intervals) {
    if (before != nullptr) {
      if (interval.first < before->second || interval.first == before->first) return false;
      any = any || interval.first == before->second;
    }
    before = &interval;
  }
  return any;
}

/// The tile behind it has the edge.
void give_edge_away(std::vector<Tile>& tiles, std::size_t dimension) {
  std::set<std::uint64_t> begun;
  for (const auto& t : tiles)
    if (const auto& span = t.placement.spans[dimension]) begun.insert(span->to);
  for (auto& t : tiles)
    if (auto& span = t.placement.spans[dimension];
        span && span->count > 1 && begun.contains(span->to + span->count - 1))
      --span->count;
}

void reach_as_far_as_tiles(std::vector<Tile>& tiles, std::size_t dimension) {
  std::uint64_t end = 0;
  for (const auto& t : tiles)
    if (const auto& span = t.placement.spans[dimension]) end = std::max(end, span->to + span->count);
  for (auto& t : tiles)
    if (auto& span = t.placement.spans[dimension]) span->whole = end;
}

void settle(std::vector<Tile>& tiles) {
  const auto& first = tiles.front().placement;
  const auto alike = [&](const Tile& t) {
    return t.placement.kind == first.kind && t.placement.spans.size() == first.spans.size();
  };
  if (!std::all_of(tiles.begin(), tiles.end(), alike)) return;  // they are not of one dataset
  for (std::size_t d = 0; d < first.spans.size(); ++d) {
    if (first.whole_is_reached) reach_as_far_as_tiles(tiles, d);
    if (way_of(first.kind).shares_edges && edges_are_shared(tiles, d)) give_edge_away(tiles, d);
  }
}

// ---- tiles of one dataset ----

std::string show(const Attribute& a) {
  if (a.type == DataType::text) {
    std::string text(reinterpret_cast<const char*>(a.values.data()), a.values.size());
    return "\"" + text + "\"";
  }
  std::string out;
  for (const auto n : whole_numbers(&a)) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out.empty() ? std::to_string(a.count) + " × " + std::string(name_of(a.type)) : out;
}

/// `a` in the former, `b` in the latter of the two that an error names.
std::string unequal(const std::string& what, const std::string& a, const std::string& b) {
  return what + " is " + a + " in the former and " + b + " in the latter";
}

std::optional<std::string> difference(TileKind kind, bool global, const std::vector<Attribute>& a,
                                      const std::vector<Attribute>& b) {
  for (const auto& one : a) {
    const auto* other = attribute_named(b, one.name);
    if (other == nullptr) return "attribute " + one.name + " is missing in the latter";
    if (one == *other || way_of(kind).differs(global, one.name)) continue;
    return unequal("attribute " + one.name, show(one), show(*other));
  }
  for (const auto& one : b)
    if (attribute_named(a, one.name) == nullptr) return "attribute " + one.name + " is missing in the former";
  return std::nullopt;
}

std::optional<std::string> difference_of_dimensions(const Tile& a, const Tile& b) {
  const auto &s = a.schema.dimensions, &t = b.schema.dimensions;
  if (s.size() != t.size())
    return unequal("the number of dimensions", std::to_string(s.size()), std::to_string(t.size()));
  for (std::size_t i = 0; i < s.size(); ++i) {
    const auto &p = a.placement.spans[i], &q = b.placement.spans[i];
    if (s[i].name != t[i].name || s[i].unlimited != t[i].unlimited)
      return unequal("dimension " + std::to_string(i), s[i].name, t[i].name);
    const auto length = p ? p->whole : s[i].length, other = q ? q->whole : t[i].length;
    if (p.has_value() != q.has_value() || length != other)
      return unequal("dimension " + s[i].name, std::to_string(length), std::to_string(other));
  }
  return std::nullopt;
}

std::optional<std::string> difference_of_variables(const Tile& a, const Tile& b) {
  const auto &s = a.schema.variables, &t = b.schema.variables;
  if (s.size() != t.size())
    return unequal("the number of variables", std::to_string(s.size()), std::to_string(t.size()));
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i].name != t[i].name) return unequal("variable " + std::to_string(i), s[i].name, t[i].name);
    if (s[i].type != t[i].type || s[i].dimensions != t[i].dimensions) return s[i].name + " is not of one type or shape";
    if (auto what = difference(a.placement.kind, false, s[i].attributes, t[i].attributes))
      return s[i].name + ": " + *what;
  }
  return std::nullopt;
}

/// What says that two tiles are not of one dataset.
std::optional<std::string> difference(const Tile& a, const Tile& b) {
  const auto &p = a.placement, &q = b.placement;
  if (p.kind != q.kind)
    return unequal("the way to say the place", std::string(name_of(p.kind)), std::string(name_of(q.kind)));
  if (a.schema.format != b.schema.format)
    return unequal("the format", std::string(name_of(a.schema.format)), std::string(name_of(b.schema.format)));
  if (p.total != q.total)
    return unequal("the number of tiles", std::to_string(p.total.value_or(0)), std::to_string(q.total.value_or(0)));
  if (auto what = difference_of_dimensions(a, b)) return what;
  if (auto what = difference_of_variables(a, b)) return what;
  return difference(p.kind, true, a.schema.attributes, b.schema.attributes);
}

// ---- covering the domain ----

/// The distinct boxes that tiles fill in one set of placed dimensions, and what they leave open.
struct Cover {
  std::vector<std::vector<std::size_t>> places;  ///< tiles that go to the same place; none that owns nothing
  std::uint64_t open_points = 0;
  std::string open;  ///< the first open part, in words
};

Box box_of(const Tile& tile, const std::vector<std::uint32_t>& dimensions) {
  Box box;
  for (const auto d : dimensions) {
    box.start.push_back(tile.placement.spans[d]->to);
    box.count.push_back(tile.placement.spans[d]->count);
  }
  return box;
}

std::string in_words(const Box& box, const Schema& s, const std::vector<std::uint32_t>& dimensions) {
  std::string out;
  for (std::size_t i = 0; i < dimensions.size(); ++i)
    out += (i == 0 ? "" : ", ") + s.dimensions[dimensions[i]].name + " " + std::to_string(box.start[i] + 1) + " to " +
           std::to_string(box.start[i] + box.count[i]);
  return out + " (counted from 1)";
}

Result<Cover> cover(const std::vector<Tile>& tiles, const std::vector<std::uint32_t>& dimensions) {
  Cover c;
  std::vector<Box> boxes;
  std::map<std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>, std::size_t> known;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    auto box = box_of(tiles[t], dimensions);
    if (box.empty()) continue;
    const auto [it, fresh] = known.try_emplace({box.start, box.count}, c.places.size());
    if (fresh) {
      c.places.emplace_back();
      boxes.push_back(std::move(box));
    }
    c.places[it->second].push_back(t);
  }
  std::vector<std::uint64_t> whole;
  whole.reserve(dimensions.size());
  for (const auto d : dimensions) whole.push_back(tiles.front().placement.spans[d]->whole);
  Cells cells(boxes, whole);
  if (!cells.made())
    return Error{Code::unsupported, "the tiles are cut too irregularly to be held against each other", 0};
  for (std::size_t i = 0; i < boxes.size(); ++i)
    if (const auto before = cells.take(boxes[i], i))
      return Error{Code::invalid,
                   tiles[c.places[*before].front()].name + " and " + tiles[c.places[i].front()].name +
                       " overlap but are not the same: " +
                       in_words(intersect(boxes[*before], boxes[i]), tiles.front().schema, dimensions) + " is in both",
                   0};
  c.open_points = cells.open_points();
  if (c.open_points > 0) c.open = in_words(cells.open_box(), tiles.front().schema, dimensions);
  return c;
}

std::vector<std::uint64_t> place_of(const Tile& tile) {
  std::vector<std::uint64_t> at;
  for (const auto& span : tile.placement.spans)
    if (span) at.push_back(span->to);
  return at;
}

/// The places that tiles fill, where they do not say their numbers.
std::size_t count_of(const std::vector<Tile>& tiles) {
  std::set<std::uint64_t> numbers;
  std::set<std::vector<std::uint64_t>> places;
  for (const auto& t : tiles) {
    if (t.placement.number) numbers.insert(*t.placement.number);
    places.insert(place_of(t));
  }
  return numbers.empty() ? places.size() : numbers.size();
}

/// Every tile there is, so that what is open is open for good.
bool all_there(const std::vector<Tile>& tiles) {
  return tiles.front().placement.total && count_of(tiles) == *tiles.front().placement.total;
}

std::string missing_numbers(const std::vector<Tile>& tiles) {
  const auto total = tiles.front().placement.total;
  if (!total || count_of(tiles) >= *total) return {};
  // exch2 numbers the tiles that it leaves out, too.
  if (!tiles.front().placement.number || tiles.front().placement.whole_is_reached)
    return "; " + std::to_string(count_of(tiles)) + " of " + std::to_string(*total) + " tiles are there";
  std::set<std::uint64_t> there;
  for (const auto& t : tiles) there.insert(t.placement.number.value_or(0));
  std::string out;
  int said = 0;
  for (std::uint64_t n = 0; n < *total; ++n) {
    if (there.contains(n)) continue;
    if (++said > 5) return out + ", …";
    out += (out.empty() ? "; missing of " + std::to_string(*total) + " tiles: number " : ", ") + std::to_string(n);
  }
  return out;
}

/// WRF keeps lateral boundaries in variables without the dimension that they bound: the tile at that edge has them.
enum class Edge : std::uint8_t { none, first, last };
Edge edge_of(const Variable& v) {
  const auto* order = attribute_named(v.attributes, "MemoryOrder");
  if (order == nullptr || order->type != DataType::text) return Edge::none;
  const std::string_view text(reinterpret_cast<const char*>(order->values.data()), order->values.size());
  if (text.starts_with("XS") || text.starts_with("YS")) return Edge::first;
  return text.starts_with("XE") || text.starts_with("YE") ? Edge::last : Edge::none;
}

Piece piece_of(const std::vector<Tile>& tiles, std::size_t tile, const Variable& v) {
  Piece p{tile, {}, {}, false};
  for (const auto d : v.dimensions) {
    const auto& dimension = tiles[tile].schema.dimensions[d];
    const auto length = dimension.unlimited ? 1 : dimension.length;
    const auto span = tiles[tile].placement.spans[d].value_or(Span{0, 0, length, length});
    p.from.start.push_back(span.from);
    p.to.start.push_back(span.to);
    p.from.count.push_back(span.count);
    p.to.count.push_back(span.count);
  }
  return p;
}

void add_pieces(std::vector<Piece>& pieces, const std::vector<Tile>& tiles, const Cover& c, const Variable& v) {
  const auto edge = edge_of(v);
  for (const auto& place : c.places) {
    if (edge != Edge::none) {
      pieces.push_back(piece_of(tiles, edge == Edge::first ? place.front() : place.back(), v));
      continue;
    }
    for (const auto t : place) {
      pieces.push_back(piece_of(tiles, t, v));
      pieces.back().repeated = t != place.front();
    }
  }
}

/// As many chunks along a dimension as the tile has: that is what makes WRF's halves halves of the whole. Nor more
/// elements than WRF allows in one, which halves them again.
void widen_chunks(Variable& v, const Schema& tile, const Schema& whole) {
  constexpr std::uint64_t elements_max = std::uint64_t{32} << 20;
  if (v.contiguous || v.chunks.size() != v.dimensions.size()) return;
  std::vector<std::size_t> wider;
  for (std::size_t i = 0; i < v.chunks.size(); ++i) {
    const auto local = tile.dimensions[v.dimensions[i]].length, length = whole.dimensions[v.dimensions[i]].length;
    if (local == length || local == 0) continue;
    const auto parts = (local + v.chunks[i] - 1) / v.chunks[i];
    v.chunks[i] = (length + parts - 1) / parts;
    wider.push_back(i);
  }
  const auto elements = [&] { return Box{std::vector<std::uint64_t>(v.chunks.size()), v.chunks}.volume(); };
  const auto divisible = [&] {
    return std::any_of(wider.begin(), wider.end(), [&](std::size_t i) { return v.chunks[i] > 1; });
  };
  while (divisible() && elements() > elements_max)
    for (const auto i : wider) v.chunks[i] = (v.chunks[i] + 1) / 2;
}

Schema schema_of_whole(const Tile& tile) {
  Schema s = tile.schema;
  for (std::size_t i = 0; i < s.dimensions.size(); ++i)
    if (const auto& span = tile.placement.spans[i]) s.dimensions[i].length = span->whole;
  for (auto& v : s.variables) widen_chunks(v, tile.schema, s);
  way_of(tile.placement.kind).become_whole(s, tile.schema);
  return s;
}

}  // namespace

std::string_view name_of(TileKind kind) noexcept {
  return way_of(kind).name;
}

Result<std::optional<Placement>> placement_of(const Schema& schema) {
  for (const auto& way : tile_ways()) {
    if (way.place == nullptr) continue;
    auto found = way.place(schema);
    if (!found || *found) return found;
  }
  return std::optional<Placement>();
}

std::string whole_name(const std::string& tile) {
  // The same stand in python/src/advectio/joining.py.
  struct Way {
    std::string_view mark, ending, ending_of_whole;
    std::size_t digits_min, digits_max;
  };
  static constexpr std::array<Way, 5> ways{{{"_", "", "", 4, 5},                  // WRF
                                            {".pe", ".nc", ".nc", 6, SIZE_MAX},   // SCALE
                                            {"_", ".nc", ".nc", 4, SIZE_MAX},     // NEMO
                                            {".nc.", "", ".nc", 4, SIZE_MAX},     // FMS
                                            {".t", ".nc", ".nc", 3, SIZE_MAX}}};  // MITgcm
  for (const auto& way : ways) {
    if (!tile.ends_with(way.ending)) continue;
    const auto name = std::string_view(tile).substr(0, tile.size() - way.ending.size());
    const auto number = name.find_last_not_of("0123456789") + 1;
    const auto digits = name.size() - number;
    const auto before = name.substr(0, number);
    if (digits < way.digits_min || digits > way.digits_max || !before.ends_with(way.mark)) continue;
    if (const auto stem = before.substr(0, before.size() - way.mark.size()); !stem.empty())
      return std::string(stem) += way.ending_of_whole;
  }
  return {};
}

std::string whole_path(const std::string& tile) {
  const auto slash = tile.find_last_of('/') + 1;
  const auto whole = whole_name(tile.substr(slash));
  if (whole.empty()) return {};
  const std::string_view name = std::string_view(tile).substr(slash);
  auto directory = std::string_view(tile).substr(0, slash);
  const auto number =
      name.substr(0, name.size() - std::min<std::size_t>(name.size(), 3)).find_last_not_of("0123456789");
  const bool of_mitgcm =
      name.ends_with(".nc") && number != std::string_view::npos && number > 0 && name.substr(number - 1, 2) == ".t";
  if (of_mitgcm && directory.size() > 5) {
    const auto stem = directory.substr(0, directory.size() - 5);
    const auto digits = directory.substr(stem.size(), 4);
    const auto begin = stem.find_last_of('/') + 1;
    if (stem.substr(begin).starts_with("mnc") && stem.ends_with('_') &&
        digits.find_first_not_of("0123456789") == std::string_view::npos)
      directory = stem.substr(0, begin);
  }
  return std::string(directory) += whole;
}

Share share_of(const Schema& schema, const Placement& placement) {
  std::vector<const Span*> most;
  for (const auto& v : schema.variables) {
    std::vector<const Span*> placed;
    for (const auto d : v.dimensions)
      if (const auto& span = placement.spans[d]) placed.push_back(&*span);
    if (placed.size() > most.size()) most = std::move(placed);
  }
  Share share;
  for (const auto* span : most) {
    share.own *= span->count;
    share.whole *= span->whole;
  }
  return share;
}

Result<Whole> join_tiles(std::vector<Tile>& tiles) {
  if (tiles.empty()) return Error{Code::invalid, "no tiles", 0};
  settle(tiles);
  std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return place_of(a) < place_of(b); });
  const auto* const first = &tiles.front();
  for (const auto& t : tiles)
    if (const auto what = difference(t, *first))
      return Error{Code::invalid, t.name + " and " + first->name + " are not tiles of one dataset: " + *what, 0};
  if (first->placement.whole_is_reached && first->placement.total && !all_there(tiles))
    return Error{Code::invalid, "how far the domain reaches is not known" + missing_numbers(tiles), 0};
  Whole whole;
  whole.schema = schema_of_whole(*first);
  std::map<std::vector<std::uint32_t>, Cover> covers;
  for (auto& v : whole.schema.variables) {
    std::vector<std::uint32_t> placed;
    for (const auto d : v.dimensions)
      if (first->placement.spans[d]) placed.push_back(d);
    auto it = covers.find(placed);
    if (it == covers.end()) {
      auto c = cover(tiles, placed);
      if (!c) return std::move(c).error();
      it = covers.emplace(placed, std::move(c).value()).first;
    }
    const auto& c = it->second;
    if (c.open_points > 0) {
      if (!way_of(first->placement.kind).leaves_out_land || !all_there(tiles))
        return Error{Code::invalid, "a part of the domain is in no tile: " + c.open + missing_numbers(tiles), 0};
      whole.land_points = std::max(whole.land_points, c.open_points);
      v.no_fill = false;
    }
    add_pieces(whole.pieces.emplace_back(), tiles, c, v);
  }
  return whole;
}

}  // namespace advectio
