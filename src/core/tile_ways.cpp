// The words by which tiles say their place, model by model. The table at the end has a row for each way.
#include "core/tile_ways.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace advectio {
const Attribute* attribute_named(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto it =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return it == attributes.end() ? nullptr : &*it;
}

std::string_view attribute_text(const Attribute* a) {
  if (a == nullptr || a->type != DataType::text) return {};
  return {reinterpret_cast<const char*>(a->values.data()), a->values.size()};
}

namespace {

using Numbers = std::vector<std::int64_t>;

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

}  // namespace

std::vector<std::int64_t> whole_numbers(const Attribute* a) {
  constexpr std::int64_t sane = std::int64_t{1} << 48;
  if (a == nullptr) return {};
  auto all = as_numbers(*a);
  const bool good = std::all_of(all.begin(), all.end(), [](std::int64_t n) { return n > -sane && n < sane; });
  return good ? all : Numbers();
}

namespace {

std::optional<std::int64_t> number(const Attribute* a) {
  const auto all = whole_numbers(a);
  return all.size() == 1 ? std::optional(all[0]) : std::nullopt;
}

/// In place, keeping type and count.
void set_numbers(Attribute& a, const Numbers& to) {
  if (a.count != to.size()) return;
  a.values.clear();
  Encoder e(a.values);
  for (const auto n : to) {
    if (a.type == DataType::int16)
      e.number(static_cast<std::int16_t>(n));
    else if (a.type == DataType::int32)
      e.number(static_cast<std::int32_t>(n));
    else
      e.number(n);
  }
}

void set_numbers(std::vector<Attribute>& attributes, std::string_view name, const Numbers& to) {
  for (auto& a : attributes)
    if (a.name == name) set_numbers(a, to);
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
  const auto start = number(attribute_named(s.attributes, prefix + "_PATCH_START" + ending)),
             end = number(attribute_named(s.attributes, prefix + "_PATCH_END" + ending)),
             grid = number(attribute_named(s.attributes, prefix + "_GRID_DIMENSION"));
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
  if (attribute_named(s.attributes, "WEST-EAST_PATCH_START_UNSTAG") == nullptr) return std::optional<Placement>();
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

bool wrf_differs(bool global, std::string_view name) {
  return global && (name.starts_with("WEST-EAST_PATCH_") || name.starts_with("SOUTH-NORTH_PATCH_"));
}

void wrf_become_whole(Schema& s, const Schema&) {
  for (const auto& axis : kWrfAxes) {
    const std::string prefix(axis.attribute);
    const auto grid = number(attribute_named(s.attributes, prefix + "_GRID_DIMENSION"));
    if (!grid) continue;
    set_numbers(s.attributes, prefix + "_PATCH_START_UNSTAG", {1});
    set_numbers(s.attributes, prefix + "_PATCH_END_UNSTAG", {*grid - 1});
    set_numbers(s.attributes, prefix + "_PATCH_START_STAG", {1});
    set_numbers(s.attributes, prefix + "_PATCH_END_STAG", {*grid});
  }
}

// ---- SCALE ----

/// The processes in one direction, by the global attributes.
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
        attribute_named(v.attributes, "size_global") != nullptr &&
        attribute_named(v.attributes, "start_global") != nullptr)
      return &v;
  return nullptr;
}

/// x, xh, y, yh. A file of a domain that is not periodic has the outer halo in its outermost tiles. Whether inner halos
/// are in the file differs between SCALE's kinds of file; the length of the dimension tells.
Result<Span> scale_span(const Dimension& d, const Variable& axis, const std::optional<ScaleDirection>& direction) {
  constexpr const char* said_by = "size_global, start_global and the halos";
  const auto size = number(attribute_named(axis.attributes, "size_global")),
             start = number(attribute_named(axis.attributes, "start_global"));
  auto local = whole_numbers(attribute_named(axis.attributes, "halo_local")),
       global = whole_numbers(attribute_named(axis.attributes, "halo_global"));
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
    const auto id = number(attribute_named(s.attributes, "rankid"));
    p.number = static_cast<std::uint64_t>(id && *id >= 0 ? *id : y->rank * x->processes + x->rank);
    p.total = static_cast<std::uint64_t>(x->processes * y->processes);
  }
  return std::optional(std::move(p));
}

bool is_scale_rank(std::string_view name) {
  return name == "rankid" || name.ends_with("prc_rank_x") || name.ends_with("prc_rank_y");
}

bool scale_differs(bool global, std::string_view name) {
  return global ? is_scale_rank(name) : name == "start_global" || name == "halo_local";
}

/// The first tile of a direction begins where the whole begins: its start_global is right already.
void scale_become_whole(Schema& s, const Schema&) {
  for (auto& a : s.attributes) {
    if (is_scale_rank(a.name)) set_numbers(a, {0});
    if (a.name.ends_with("prc_num_x") || a.name.ends_with("prc_num_y")) set_numbers(a, {1});
  }
  for (auto& v : s.variables)
    if (attribute_named(v.attributes, "size_global") != nullptr) set_numbers(v.attributes, "halo_local", {0, 0});
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
  if (attribute_named(s.attributes, kNemoFirst) == nullptr) return std::optional<Placement>();
  const auto all = [&](const char* name) { return whole_numbers(attribute_named(s.attributes, name)); };
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
  const auto own = number(attribute_named(s.attributes, "DOMAIN_number")),
             total = number(attribute_named(s.attributes, "DOMAIN_number_total"));
  if (own && total && *own >= 0 && *total > 0) {
    p.number = static_cast<std::uint64_t>(*own);
    p.total = static_cast<std::uint64_t>(*total);
  }
  return std::optional(std::move(p));
}

bool nemo_differs(bool global, std::string_view name) {
  return global && (name == "DOMAIN_number" || name == "DOMAIN_size_local" || name.starts_with("DOMAIN_position_") ||
                    name.starts_with("DOMAIN_halo_size_") || name == "file_name" || name == "TimeStamp");
}

void nemo_become_whole(Schema& s, const Schema&) {
  const auto global = whole_numbers(attribute_named(s.attributes, "DOMAIN_size_global"));
  set_numbers(s.attributes, "DOMAIN_number_total", {1});
  set_numbers(s.attributes, "DOMAIN_number", {0});
  set_numbers(s.attributes, "DOMAIN_size_local", global);
  set_numbers(s.attributes, kNemoFirst, Numbers(global.size(), 1));
  set_numbers(s.attributes, "DOMAIN_position_last", global);
  set_numbers(s.attributes, "DOMAIN_halo_size_start", Numbers(global.size(), 0));
  set_numbers(s.attributes, "DOMAIN_halo_size_end", Numbers(global.size(), 0));
}

// ---- FMS ----

constexpr const char* kFmsFiles = "NumFilesInSet";
constexpr const char* kFmsDecomposition = "domain_decomposition";

/// The coordinate variable of a dimension: it has its name.
const Variable* coordinate_variable(const Schema& s, std::size_t dimension) {
  for (const auto& v : s.variables)
    if (v.name == s.dimensions[dimension].name && v.dimensions.size() == 1 && v.dimensions[0] == dimension) return &v;
  return nullptr;
}

/// first and last point of the whole, first and last point here; counted from 1, or from 0 where the whole is.
Result<Span> fms_span(const Dimension& d, const Attribute& decomposition) {
  const auto n = whole_numbers(&decomposition);
  if (n.size() != 4)
    return Error{Code::corrupt, std::string(kFmsDecomposition) + " of " + d.name + " has not four whole numbers", 0};
  // mppncscatter writes a length where the others write the last point.
  const auto length = static_cast<std::int64_t>(d.length);
  if (n[3] - n[2] + 1 != length && n[3] != length)
    return contradiction(
        d, std::string(kFmsDecomposition) + " says " + std::to_string(n[2]) + " to " + std::to_string(n[3]));
  return checked(d, 0, n[2] - n[0], length, n[1] - n[0] + 1, kFmsDecomposition);
}

Result<std::optional<Placement>> fms_placement(const Schema& s) {
  Placement p{TileKind::fms, std::vector<std::optional<Span>>(s.dimensions.size()), {}, {}};
  bool any = false;
  for (std::size_t i = 0; i < s.dimensions.size(); ++i) {
    const auto* axis = coordinate_variable(s, i);
    const auto* said = axis == nullptr ? nullptr : attribute_named(axis->attributes, kFmsDecomposition);
    if (said == nullptr) continue;
    any = true;
    auto span = fms_span(s.dimensions[i], *said);
    if (!span) return std::move(span).error();
    p.spans[i] = *span;
  }
  const auto files = number(attribute_named(s.attributes, kFmsFiles));
  if (!any && files.value_or(1) > 1)
    return Error{Code::corrupt,
                 std::string(kFmsFiles) + " is " + std::to_string(*files) + ", but no coordinate variable has " +
                     kFmsDecomposition,
                 0};
  if (!any) return std::optional<Placement>();
  if (files && *files > 0) p.total = static_cast<std::uint64_t>(*files);
  return std::optional(std::move(p));
}

/// `filename` has the number of the process at its end.
bool fms_differs(bool global, std::string_view name) {
  return global ? name == "filename" : name == kFmsDecomposition;
}

void fms_become_whole(Schema& s, const Schema&) {
  set_numbers(s.attributes, kFmsFiles, {1});
  for (auto& a : s.attributes) {
    if (a.name != "filename" || a.type != DataType::text) continue;
    const auto name = whole_name(std::string(attribute_text(&a)));
    if (name.empty()) continue;
    a.values.clear();
    Encoder(a.values).raw(name.data(), name.size());
    a.count = name.size();
  }
  for (auto& v : s.variables) {
    const auto n = whole_numbers(attribute_named(v.attributes, kFmsDecomposition));
    if (n.size() == 4) set_numbers(v.attributes, kFmsDecomposition, {n[0], n[1], n[0], n[1]});
  }
}

// ---- MITgcm ----

/// The place of a tile in one direction.
struct MitgcmDirection {
  std::int64_t first = 0;  ///< its first cell, counted from 0
  std::int64_t cells = 0, halo = 0;
  std::optional<std::int64_t> whole;  ///< cells; empty: as many as the tiles reach (exch2 says no sizes)
};

/// Sums and products of what is allowed fit 64 bits.
Result<std::int64_t> mitgcm_number(const Schema& s, const char* name) {
  const auto n = number(attribute_named(s.attributes, name));
  const std::string_view kind(name);
  const std::int64_t most = std::int64_t{1} << (kind.starts_with("nS") || kind.starts_with("nP") ? 15 : 30);
  if (!n || *n < 1 || *n > most)
    return Error{Code::corrupt, std::string("attribute ") + name + " is missing or no number that it can be", 0};
  return *n;
}

/// exch2 says the first cell of the tile, in one of two spellings; else the number of the tile does.
Result<std::optional<std::int64_t>> exch2_first(const Schema& s, char axis) {
  for (const char* end : {"Globalo", "globalo"}) {
    const auto name = std::string("exch2_t") + axis + end;
    if (attribute_named(s.attributes, name) == nullptr) continue;
    auto first = mitgcm_number(s, name.c_str());
    if (!first) return std::move(first).error();
    return std::optional(*first - 1);
  }
  return std::optional<std::int64_t>();
}

/// X and Y, Xp1 and Yp1 with the edge that is the next tile's first too, Xwh and Ywh with halos. Empty: another one.
Result<std::optional<Span>> mitgcm_span(const Dimension& d, const MitgcmDirection& at) {
  const auto length = static_cast<std::int64_t>(d.length), end = at.first + at.cells;
  const std::string_view kind = std::string_view(d.name).substr(1);
  const auto placed = [&](std::int64_t from, std::int64_t to, std::int64_t count, std::int64_t whole) {
    auto span = checked(d, from, to, count, whole, "tile_number, sNx and sNy (or exch2's attributes)");
    return span ? Result<std::optional<Span>>(std::optional(*span)) : std::move(span).error();
  };
  if (kind == "wh" && length == at.cells + 2 * at.halo) {
    if (!at.whole) return placed(at.halo, at.first, at.cells, end);
    // The outer halos stay, as in the file of one process.
    const auto before = at.first == 0 ? at.halo : 0, behind = end == *at.whole ? at.halo : 0;
    return placed(at.halo - before, at.first + at.halo - before, before + at.cells + behind, *at.whole + 2 * at.halo);
  }
  if (kind.empty() && length == at.cells) return placed(0, at.first, length, at.whole.value_or(end));
  if (kind == "p1" && length == at.cells + 1) return placed(0, at.first, length, at.whole.value_or(end) + 1);
  if (!kind.empty() && kind != "p1" && kind != "wh") return std::optional<Span>();
  return contradiction(d,
                       "the tile has " + std::to_string(at.cells) + " cells and a halo of " + std::to_string(at.halo));
}

Result<std::optional<Placement>> mitgcm_placement(const Schema& s) {
  if (attribute_named(s.attributes, "MITgcm_mnc_ver") == nullptr &&
      (attribute_named(s.attributes, "tile_number") == nullptr || attribute_named(s.attributes, "sNx") == nullptr))
    return std::optional<Placement>();
  std::array<std::int64_t, 7> n{};
  static constexpr std::array<const char*, 7> names{"tile_number", "sNx", "sNy", "nSx", "nSy", "nPx", "nPy"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto one = mitgcm_number(s, names[i]);
    if (!one) return std::move(one).error();
    n[i] = *one;
  }
  const auto [tile_number, sNx, sNy, nSx, nSy, nPx, nPy] = n;
  const auto tiles_x = nSx * nPx, tiles_y = nSy * nPy, tile = tile_number - 1;
  auto first_x = exch2_first(s, 'x'), first_y = exch2_first(s, 'y');
  if (!first_x) return std::move(first_x).error();
  if (!first_y) return std::move(first_y).error();
  if (first_x->has_value() != first_y->has_value())
    return Error{Code::corrupt, "of exch2_txGlobalo and exch2_tyGlobalo one is missing", 0};
  const bool exch2 = first_x->has_value();
  if (!exch2 && tile >= tiles_x * tiles_y)
    return Error{Code::corrupt,
                 "tile_number is " + std::to_string(tile_number) + " of " + std::to_string(tiles_x * tiles_y), 0};
  const auto halo = [&](const char* name) { return number(attribute_named(s.attributes, name)).value_or(0); };
  MitgcmDirection x{0, sNx, halo("OLx"), {}}, y{0, sNy, halo("OLy"), {}};
  x.first = exch2 ? **first_x : tile % tiles_x * sNx;
  y.first = exch2 ? **first_y : tile / tiles_x * sNy;
  if (!exch2) {
    x.whole = tiles_x * sNx;
    y.whole = tiles_y * sNy;
  }
  Placement p{TileKind::mitgcm, std::vector<std::optional<Span>>(s.dimensions.size()), {}, {}};
  for (std::size_t i = 0; i < s.dimensions.size(); ++i) {
    const auto& d = s.dimensions[i];
    if (d.unlimited || (!d.name.starts_with('X') && !d.name.starts_with('Y'))) continue;
    auto span = mitgcm_span(d, d.name[0] == 'X' ? x : y);
    if (!span) return std::move(span).error();
    p.spans[i] = *span;
  }
  p.number = static_cast<std::uint64_t>(tile);
  p.total = static_cast<std::uint64_t>(tiles_x * tiles_y);
  p.whole_is_reached = exch2;
  return std::optional(std::move(p));
}

bool mitgcm_differs(bool global, std::string_view name) {
  return global && (name == "tile_number" || name == "bi" || name == "bj" || name.starts_with("exch2_"));
}

void mitgcm_become_whole(Schema& s, const Schema& first) {
  for (std::size_t i = 0; i < s.dimensions.size(); ++i) {
    const auto& name = s.dimensions[i].name;
    const auto length = static_cast<std::int64_t>(s.dimensions[i].length),
               local = static_cast<std::int64_t>(first.dimensions[i].length);
    const bool along_x = name == "X" || name == "Xp1";
    if (!along_x && name != "Y" && name != "Yp1") continue;
    const auto cells = number(attribute_named(first.attributes, along_x ? "sNx" : "sNy"));
    if (cells) set_numbers(s.attributes, along_x ? "sNx" : "sNy", {*cells + length - local});
  }
  for (const char* name : {"tile_number", "bi", "bj", "nSx", "nSy", "nPx", "nPy", "exch2_txGlobalo", "exch2_tyGlobalo",
                           "exch2_txglobalo", "exch2_tyglobalo"})
    set_numbers(s.attributes, name, {1});
}

// ---- coordinates ----

/// Attributes that DALES and others write of a file's making.
bool coordinates_differ(bool global, std::string_view name) {
  return global && (name == "title" || name == "history" || name == "filename" || name == "file_name");
}

void coordinates_become_whole(Schema&, const Schema&) {}

// ---- the table ----

constexpr std::array<TileWay, 6> kWays{{
    {TileKind::wrf, "WRF", wrf_placement, wrf_differs, wrf_become_whole, false, false},
    {TileKind::scale, "SCALE", scale_placement, scale_differs, scale_become_whole, false, false},
    {TileKind::nemo, "NEMO", nemo_placement, nemo_differs, nemo_become_whole, true, false},
    {TileKind::fms, "FMS", fms_placement, fms_differs, fms_become_whole, true, true},
    {TileKind::mitgcm, "MITgcm", mitgcm_placement, mitgcm_differs, mitgcm_become_whole, true, true},
    {TileKind::coordinates, "coordinates", nullptr, coordinates_differ, coordinates_become_whole, false, false},
}};

static_assert([] {
  for (std::size_t i = 0; i < kWays.size(); ++i)
    if (static_cast<std::size_t>(kWays[i].kind) != i) return false;
  return true;
}());

}  // namespace

std::span<const TileWay> tile_ways() noexcept {
  return kWays;
}

}  // namespace advectio
