#include "core/placement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "core/cells.h"

namespace advectio {
namespace {

using Numbers = std::vector<std::int64_t>;

const Attribute* find(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto it =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return it == attributes.end() ? nullptr : &*it;
}

const Attribute* find_ending(const std::vector<Attribute>& attributes, std::string_view end) {
  const auto it = std::find_if(attributes.begin(), attributes.end(),
                               [&](const Attribute& a) { return std::string_view(a.name).ends_with(end); });
  return it == attributes.end() ? nullptr : &*it;
}

template <typename T>
Numbers as_numbers(const Attribute& a) {
  Numbers out;
  for (std::uint64_t i = 0; i < a.count; ++i) {
    T value{};
    std::memcpy(&value, a.values.data() + i * sizeof value, sizeof value);
    out.push_back(static_cast<std::int64_t>(value));
  }
  return out;
}

Numbers as_numbers(const Attribute& a) {
  switch (a.type) {
    case DataType::int16: return as_numbers<std::int16_t>(a);
    case DataType::int32: return as_numbers<std::int32_t>(a);
    case DataType::int64: return as_numbers<std::int64_t>(a);
    default: return {};
  }
}

/// Empty for what is not there, no whole numbers, or so large that no grid can mean it (and sums of it would wrap).
Numbers numbers(const Attribute* a) {
  constexpr std::int64_t sane = std::int64_t{1} << 48;
  if (a == nullptr) return {};
  auto all = as_numbers(*a);
  const bool good = std::all_of(all.begin(), all.end(), [](std::int64_t n) { return n > -sane && n < sane; });
  return good ? all : Numbers();
}

std::optional<std::int64_t> number(const Attribute* a) {
  const auto all = numbers(a);
  return all.size() == 1 ? std::optional(all[0]) : std::nullopt;
}

/// In place, keeping type and count.
void set_numbers(Attribute* a, const Numbers& to) {
  if (a == nullptr || a->count != to.size()) return;
  a->values.clear();
  Encoder e(a->values);
  for (const auto n : to) {
    if (a->type == DataType::int16)
      e.number(static_cast<std::int16_t>(n));
    else if (a->type == DataType::int32)
      e.number(static_cast<std::int32_t>(n));
    else
      e.number(n);
  }
}

Attribute* find(std::vector<Attribute>& attributes, std::string_view name) {
  return const_cast<Attribute*>(find(std::as_const(attributes), name));
}

Error contradiction(const Dimension& d, const std::string& what) {
  return Error{Code::corrupt, "dimension " + d.name + " has " + std::to_string(d.length) + " points, but " + what, 0};
}

/// The last test of every kind: the span lies in the tile and in the whole.
Result<Span> checked(const Dimension& d, std::int64_t from, std::int64_t to, std::int64_t count, std::int64_t whole,
                     const char* said_by) {
  if (from < 0 || to < 0 || count < 0 || from + count > static_cast<std::int64_t>(d.length) || to + count > whole)
    return contradiction(d, std::string(said_by) + " place " + std::to_string(count) + " of them at " +
                                std::to_string(to + 1) + " of " + std::to_string(whole));
  return Span{static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), static_cast<std::uint64_t>(count),
              static_cast<std::uint64_t>(whole)};
}

// ---- WRF ----

struct WrfAxis {
  std::string_view dimension, attribute;
};
constexpr std::array<WrfAxis, 2> kWrfAxes{{{"west_east", "WEST-EAST"}, {"south_north", "SOUTH-NORTH"}}};

/// Empty: a dimension that only sounds like one of the axis.
Result<std::optional<Span>> wrf_span(const Schema& s, const Dimension& d, const WrfAxis& axis) {
  const auto kind = d.name.substr(axis.dimension.size());
  if (!kind.empty() && kind != "_stag" && kind != "_subgrid") return std::optional<Span>();
  const std::string prefix(axis.attribute), ending = kind.empty() ? "_UNSTAG" : "_STAG";
  const auto start = number(find(s.attributes, prefix + "_PATCH_START" + ending)),
             end = number(find(s.attributes, prefix + "_PATCH_END" + ending)),
             grid = number(find(s.attributes, prefix + "_GRID_DIMENSION"));
  if (!start || !end || !grid)
    return Error{Code::corrupt, prefix + "_PATCH_… or " + prefix + "_GRID_DIMENSION is missing or no number", 0};
  const auto points = *end - *start + 1, length = static_cast<std::int64_t>(d.length);
  // The grid of WRF-Fire has so many points to each of the staggered one.
  const auto finer = kind == "_subgrid" && points > 0 ? length / points : 1;
  if (points * finer != length)
    return contradiction(d, prefix + "_PATCH_… say " + std::to_string(*start) + " to " + std::to_string(*end) + " (" +
                                ending.substr(1) + ")");
  auto span =
      checked(d, 0, (*start - 1) * finer, length, (kind.empty() ? *grid - 1 : *grid) * finer, "the PATCH attributes");
  if (!span) return std::move(span).error();
  return std::optional(*span);
}

Result<std::optional<Placement>> wrf_placement(const Schema& s) {
  if (find(s.attributes, "WEST-EAST_PATCH_START_UNSTAG") == nullptr) return std::optional<Placement>();
  Placement p{TileKind::wrf, std::vector<std::optional<Span>>(s.dimensions.size()), {}, {}};
  for (std::size_t i = 0; i < s.dimensions.size(); ++i) {
    for (const auto& axis : kWrfAxes) {
      if (!s.dimensions[i].name.starts_with(axis.dimension)) continue;
      auto span = wrf_span(s, s.dimensions[i], axis);
      if (!span) return std::move(span).error();
      p.spans[i] = *span;
    }
  }
  return std::optional(std::move(p));
}

// ---- SCALE ----

/// What the global attributes say of the processes in one direction.
struct ScaleDirection {
  std::int64_t rank = 0, processes = 1, cells = 0, halo = 0;  // cells: of the whole, without halos
  [[nodiscard]] std::int64_t own() const { return cells / processes; }
  [[nodiscard]] bool first() const { return rank == 0; }
  [[nodiscard]] bool last() const { return rank + 1 == processes; }
};

std::optional<ScaleDirection> scale_direction(const Schema& s, bool x) {
  const auto rank = number(find_ending(s.attributes, x ? "prc_rank_x" : "prc_rank_y")),
             processes = number(find_ending(s.attributes, x ? "prc_num_x" : "prc_num_y")),
             cells = number(find_ending(s.attributes, x ? "index_imaxg" : "index_jmaxg")),
             halo = number(find_ending(s.attributes, x ? "index_ihalo" : "index_jhalo"));
  if (!rank || !processes || !cells || !halo || *processes < 1 || *rank < 0 || *rank >= *processes ||
      *cells % *processes != 0)
    return std::nullopt;
  return ScaleDirection{*rank, *processes, *cells, *halo};
}

const Variable* axis_of(const Schema& s, std::size_t dimension) {
  for (const auto& v : s.variables)
    if (v.name == s.dimensions[dimension].name && v.dimensions.size() == 1 && v.dimensions[0] == dimension &&
        find(v.attributes, "size_global") != nullptr && find(v.attributes, "start_global") != nullptr)
      return &v;
  return nullptr;
}

/// x, xh, y, yh. A file of a domain that is not periodic has the outer halo in its outermost tiles. Whether inner halos
/// are in the file differs between SCALE's kinds of file; the length of the dimension tells.
Result<Span> scale_span(const Dimension& d, const Variable& axis, const std::optional<ScaleDirection>& direction) {
  constexpr const char* said_by = "size_global, start_global and the halos";
  const auto size = number(find(axis.attributes, "size_global")), start = number(find(axis.attributes, "start_global"));
  auto local = numbers(find(axis.attributes, "halo_local")), global = numbers(find(axis.attributes, "halo_global"));
  if (!size || !start) return Error{Code::corrupt, "size_global or start_global of " + d.name + " is no number", 0};
  if (local.size() != 2) local = {0, 0};
  if (global.size() != 2) global = {0, 0};
  const auto length = static_cast<std::int64_t>(d.length);
  if (!direction) return checked(d, local[0], *start - 1 + local[0], length - local[0] - local[1], *size, said_by);
  const auto count = direction->own() + (direction->first() ? global[0] : 0) + (direction->last() ? global[1] : 0);
  const auto to = direction->first() ? 0 : direction->rank * direction->own() + global[0];
  const bool inner_halos = length != count && length == count + local[0] + local[1];
  if ((length != count && !inner_halos) || (!direction->first() && to != *start - 1 + local[0]))
    return contradiction(d, std::string(said_by) + " say " + std::to_string(count) + " at " + std::to_string(to + 1));
  return checked(d, inner_halos ? local[0] : 0, to, count, *size, said_by);
}

/// CX, FX, FDX and the like: the model's own grid with all halos, which only a file of one process has as a whole.
std::optional<Span> scale_grid_span(const Dimension& d, const std::optional<ScaleDirection>& x,
                                    const std::optional<ScaleDirection>& y) {
  if (d.name != "CX" && d.name != "CY" && d.name != "FX" && d.name != "FY" && d.name != "FDX" && d.name != "FDY")
    return std::nullopt;
  const auto& direction = d.name.back() == 'X' ? x : y;
  if (!direction) return std::nullopt;
  const auto halos = 2 * direction->halo, length = static_cast<std::int64_t>(d.length);
  const auto more = length - direction->own() - halos;  // faces are one more than cells, distances one fewer
  if (more < -1 || more > 1) return std::nullopt;
  const auto from = direction->first() ? 0 : direction->halo;
  const auto end = direction->last() ? length : direction->halo + direction->own();
  return Span{static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(direction->rank * direction->own() + from),
              static_cast<std::uint64_t>(end - from), static_cast<std::uint64_t>(direction->cells + halos + more)};
}

Result<std::optional<Placement>> scale_placement(const Schema& s) {
  Placement p{TileKind::scale, std::vector<std::optional<Span>>(s.dimensions.size()), {}, {}};
  const auto x = scale_direction(s, true), y = scale_direction(s, false);
  bool any = false;
  for (std::size_t i = 0; i < s.dimensions.size(); ++i) {
    const auto* axis = axis_of(s, i);
    if (axis == nullptr) continue;
    any = true;
    auto span = scale_span(s.dimensions[i], *axis, s.dimensions[i].name.starts_with('x') ? x : y);
    if (!span) return std::move(span).error();
    p.spans[i] = *span;
  }
  if (!any) return std::optional<Placement>();
  for (std::size_t i = 0; i < s.dimensions.size(); ++i)
    if (!p.spans[i]) p.spans[i] = scale_grid_span(s.dimensions[i], x, y);
  if (x && y) {
    const auto id = number(find(s.attributes, "rankid"));
    p.number = static_cast<std::uint64_t>(id && *id >= 0 ? *id : y->rank * x->processes + x->rank);
    p.total = static_cast<std::uint64_t>(x->processes * y->processes);
  }
  return std::optional(std::move(p));
}

// ---- NEMO ----

constexpr const char* kNemoFirst = "DOMAIN_position_first";

/// The dimension that DOMAIN_dimensions_ids means (Fortran counts from 1); XIOS numbers them without regard to the
/// file, where the names are right.
const Dimension* nemo_dimension(const Schema& s, std::size_t k, const Numbers& ids, std::int64_t local) {
  const auto fits = [&](const Dimension& d) { return !d.unlimited && static_cast<std::int64_t>(d.length) == local; };
  if (k < ids.size() && ids[k] >= 1 && static_cast<std::size_t>(ids[k]) <= s.dimensions.size()) {
    const auto& d = s.dimensions[static_cast<std::size_t>(ids[k] - 1)];
    if (fits(d)) return &d;
  }
  for (const auto& d : s.dimensions)
    if (d.name == (k == 0 ? "x" : "y") && fits(d)) return &d;
  return nullptr;
}

Result<std::optional<Placement>> nemo_placement(const Schema& s) {
  if (find(s.attributes, kNemoFirst) == nullptr) return std::optional<Placement>();
  const auto all = [&](const char* name) { return numbers(find(s.attributes, name)); };
  const auto ids = all("DOMAIN_dimensions_ids"), global = all("DOMAIN_size_global"), local = all("DOMAIN_size_local"),
             first = all(kNemoFirst), last = all("DOMAIN_position_last");
  auto before = all("DOMAIN_halo_size_start"), behind = all("DOMAIN_halo_size_end");
  const auto n = first.size();
  if (before.empty()) before.assign(n, 0);
  if (behind.empty()) behind.assign(n, 0);
  if (n == 0 || n > 2 || global.size() != n || local.size() != n || last.size() != n || before.size() != n ||
      behind.size() != n)
    return Error{Code::corrupt, "the DOMAIN_… attributes are not all there, or not of one length", 0};
  Placement p{TileKind::nemo, std::vector<std::optional<Span>>(s.dimensions.size()), {}, {}};
  for (std::size_t k = 0; k < n; ++k) {
    const auto* d = nemo_dimension(s, k, ids, local[k]);
    if (d == nullptr)
      return Error{Code::corrupt, "no dimension has the " + std::to_string(local[k]) + " points of DOMAIN_size_local",
                   0};
    if (last[k] - first[k] + 1 != local[k])
      return contradiction(*d, "DOMAIN_position_… say " + std::to_string(first[k]) + " to " + std::to_string(last[k]));
    auto span = checked(*d, before[k], first[k] - 1 + before[k], local[k] - before[k] - behind[k], global[k],
                        "the DOMAIN_… attributes");
    if (!span) return std::move(span).error();
    p.spans[static_cast<std::size_t>(d - s.dimensions.data())] = *span;
  }
  const auto own = number(find(s.attributes, "DOMAIN_number")),
             total = number(find(s.attributes, "DOMAIN_number_total"));
  if (own && total && *own >= 0 && *total > 0) {
    p.number = static_cast<std::uint64_t>(*own);
    p.total = static_cast<std::uint64_t>(*total);
  }
  return std::optional(std::move(p));
}

// ---- attributes of place ----

bool is_scale_rank(std::string_view name) {
  return name == "rankid" || name.ends_with("prc_rank_x") || name.ends_with("prc_rank_y");
}

/// Differs from tile to tile of one dataset.
bool differs_by_tile(TileKind kind, bool global, std::string_view name) {
  switch (kind) {
    case TileKind::wrf:
      return global && (name.starts_with("WEST-EAST_PATCH_") || name.starts_with("SOUTH-NORTH_PATCH_"));
    case TileKind::scale: return global ? is_scale_rank(name) : name == "start_global" || name == "halo_local";
    case TileKind::nemo:
      return global &&
             (name == "DOMAIN_number" || name == "DOMAIN_size_local" || name.starts_with("DOMAIN_position_") ||
              name.starts_with("DOMAIN_halo_size_") || name == "file_name" || name == "TimeStamp");
  }
  return false;
}

void become_whole_wrf(Schema& s) {
  for (const auto& axis : kWrfAxes) {
    const std::string prefix(axis.attribute);
    const auto grid = number(find(std::as_const(s.attributes), prefix + "_GRID_DIMENSION"));
    if (!grid) continue;
    set_numbers(find(s.attributes, prefix + "_PATCH_START_UNSTAG"), {1});
    set_numbers(find(s.attributes, prefix + "_PATCH_END_UNSTAG"), {*grid - 1});
    set_numbers(find(s.attributes, prefix + "_PATCH_START_STAG"), {1});
    set_numbers(find(s.attributes, prefix + "_PATCH_END_STAG"), {*grid});
  }
}

/// The first tile of a direction begins where the whole begins: its start_global is right already.
void become_whole_scale(Schema& s) {
  for (auto& a : s.attributes) {
    if (is_scale_rank(a.name)) set_numbers(&a, {0});
    if (a.name.ends_with("prc_num_x") || a.name.ends_with("prc_num_y")) set_numbers(&a, {1});
  }
  for (auto& v : s.variables)
    if (find(std::as_const(v.attributes), "size_global") != nullptr)
      set_numbers(find(v.attributes, "halo_local"), {0, 0});
}

void become_whole_nemo(Schema& s) {
  const auto global = numbers(find(std::as_const(s.attributes), "DOMAIN_size_global"));
  set_numbers(find(s.attributes, "DOMAIN_number_total"), {1});
  set_numbers(find(s.attributes, "DOMAIN_number"), {0});
  set_numbers(find(s.attributes, "DOMAIN_size_local"), global);
  set_numbers(find(s.attributes, kNemoFirst), Numbers(global.size(), 1));
  set_numbers(find(s.attributes, "DOMAIN_position_last"), global);
  set_numbers(find(s.attributes, "DOMAIN_halo_size_start"), Numbers(global.size(), 0));
  set_numbers(find(s.attributes, "DOMAIN_halo_size_end"), Numbers(global.size(), 0));
}

// ---- tiles of one dataset ----

std::string show(const Attribute& a) {
  if (a.type == DataType::text) {
    std::string text(reinterpret_cast<const char*>(a.values.data()), a.values.size());
    return "\"" + text + "\"";
  }
  std::string out;
  for (const auto n : numbers(&a)) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out.empty() ? std::to_string(a.count) + " × " + std::string(name_of(a.type)) : out;
}

/// `a` in the former, `b` in the latter of the two that an error names.
std::string unequal(const std::string& what, const std::string& a, const std::string& b) {
  return what + " is " + a + " in the former and " + b + " in the latter";
}

std::optional<std::string> difference(TileKind kind, bool global, const std::vector<Attribute>& a,
                                      const std::vector<Attribute>& b) {
  for (const auto& one : a) {
    const auto* other = find(b, one.name);
    if (other == nullptr) return "attribute " + one.name + " is missing in the latter";
    if (one == *other || differs_by_tile(kind, global, one.name)) continue;
    return unequal("attribute " + one.name, show(one), show(*other));
  }
  for (const auto& one : b)
    if (find(a, one.name) == nullptr) return "attribute " + one.name + " is missing in the former";
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

/// Every tile there is, so that what is open is open for good.
bool all_there(const std::vector<Tile>& tiles) {
  std::set<std::uint64_t> numbers;
  for (const auto& t : tiles)
    if (t.placement.number) numbers.insert(*t.placement.number);
  return tiles.front().placement.total && numbers.size() == *tiles.front().placement.total;
}

std::string missing_numbers(const std::vector<Tile>& tiles) {
  const auto total = tiles.front().placement.total;
  if (!total) return {};
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
  const auto* order = find(v.attributes, "MemoryOrder");
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

std::vector<std::uint64_t> place_of(const Tile& tile) {
  std::vector<std::uint64_t> at;
  for (const auto& span : tile.placement.spans)
    if (span) at.push_back(span->to);
  return at;
}

Schema schema_of_whole(const Tile& tile) {
  Schema s = tile.schema;
  for (std::size_t i = 0; i < s.dimensions.size(); ++i)
    if (const auto& span = tile.placement.spans[i]) s.dimensions[i].length = span->whole;
  for (auto& v : s.variables) widen_chunks(v, tile.schema, s);
  switch (tile.placement.kind) {
    case TileKind::wrf: become_whole_wrf(s); break;
    case TileKind::scale: become_whole_scale(s); break;
    case TileKind::nemo: become_whole_nemo(s); break;
  }
  return s;
}

}  // namespace

std::string_view name_of(TileKind kind) noexcept {
  switch (kind) {
    case TileKind::wrf: return "WRF";
    case TileKind::scale: return "SCALE";
    case TileKind::nemo: return "NEMO";
  }
  return "unknown";
}

Result<std::optional<Placement>> placement_of(const Schema& schema) {
  for (const auto& attempt : {wrf_placement, scale_placement, nemo_placement}) {
    auto found = attempt(schema);
    if (!found || *found) return found;
  }
  return std::optional<Placement>();
}

std::string whole_name(const std::string& tile) {
  // The same stand in python/src/advectio/joining.py.
  struct Way {
    std::string_view mark, ending;
    std::size_t digits_min, digits_max;
  };
  static constexpr std::array<Way, 3> ways{{{"_", "", 4, 5}, {".pe", ".nc", 6, SIZE_MAX}, {"_", ".nc", 4, SIZE_MAX}}};
  for (const auto& way : ways) {
    if (!tile.ends_with(way.ending)) continue;
    const auto name = std::string_view(tile).substr(0, tile.size() - way.ending.size());
    const auto number = name.find_last_not_of("0123456789") + 1;
    const auto digits = name.size() - number;
    const auto before = name.substr(0, number);
    if (digits < way.digits_min || digits > way.digits_max || !before.ends_with(way.mark)) continue;
    if (const auto stem = before.substr(0, before.size() - way.mark.size()); !stem.empty())
      return std::string(stem) += way.ending;
  }
  return {};
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
  std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return place_of(a) < place_of(b); });
  const auto* const first = &tiles.front();
  for (const auto& t : tiles)
    if (const auto what = difference(t, *first))
      return Error{Code::invalid, t.name + " and " + first->name + " are not tiles of one dataset: " + *what, 0};
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
      if (first->placement.kind != TileKind::nemo || !all_there(tiles))
        return Error{Code::invalid, "a part of the domain is in no tile: " + c.open + missing_numbers(tiles), 0};
      whole.land_points = std::max(whole.land_points, c.open_points);
      v.no_fill = false;
    }
    add_pieces(whole.pieces.emplace_back(), tiles, c, v);
  }
  return whole;
}

}  // namespace advectio
