// What region, subset and coarsen do to the variables of an output.
#include <numbers>

#include "operators/process_plan.h"

namespace advectio {
namespace {

/// 360 or 2π; 0 of what is no longitude.
double period_of(const Variable& v) {
  const auto unit = text_of(v.attributes, "units");
  const bool is = text_of(v.attributes, "standard_name") == "longitude" || unit.starts_with("degree_east") ||
                  unit.starts_with("degrees_east") || unit.starts_with("degrees east") || v.name == "lon" ||
                  v.name == "longitude" || v.name == "nav_lon" || v.name.starts_with("XLONG");
  return !is ? 0 : unit.starts_with("rad") ? 2 * std::numbers::pi : 360;
}

/// CF's word (CF-1.11, appendix E).
std::string cell_method(CoarsenRule::Method method) {
  switch (method) {
    case CoarsenRule::Method::mean: return "mean";
    case CoarsenRule::Method::maximum: return "maximum";
    case CoarsenRule::Method::minimum: return "minimum";
    case CoarsenRule::Method::sum: return "sum";
    case CoarsenRule::Method::first: return "point";
  }
  return "";
}

}  // namespace

/// A dimension of this output whose cells are chosen in that way.
bool Plan::has_along(const std::vector<std::uint32_t>& dimensions, bool (Selection::Along::*is)() const) const {
  return std::any_of(dimensions.begin(), dimensions.end(),
                     [&](std::uint32_t d) { return d < selection_.along.size() && (selection_.along[d].*is)(); });
}

/// Blocks come after levels and before another grid: of dimensions that these take away there are none.
Result<void> Plan::check_cells() const {
  const auto origin = [&](std::uint32_t d) {
    const auto key = selection_.along[d].kind == Selection::Kind::every ? "subset" : "coarsen";
    return std::pair<std::string, std::string>(rule_.origins.at(key), key);
  };
  for (const auto d : grid_) {
    if (d >= selection_.along.size()) continue;
    if (selection_.along[d].thinned())
      return refuse(origin(d).first, origin(d).second + ": " + grid_key() + " takes " + input_.dimensions[d].name +
                                         " away; one of them an output");
    if (!rule_.points.empty() && selection_.along[d].cut())
      return refuse(rule_.origins.at("subset"),
                    "subset: points takes " + input_.dimensions[d].name + " away; one of them an output");
  }
  if (selection_.along.empty()) return {};
  for (const auto& coordinate : coordinates_)
    if (const auto d = coordinate.dimension; selection_.along[d].thinned())
      return refuse(origin(d).first,
                    origin(d).second + ": levels takes " + input_.dimensions[d].name + " away; one of them an output");
  return {};
}

/// Bounds and areas of cells that become others, and of longitudes that are counted in another way.
void Plan::drop_lost_cells() {
  if (selection_.along.empty()) return;
  std::set<std::string> names;
  for (const auto& v : input_.variables)
    for (const char* attribute : {"bounds", "climatology", "cell_measures"})
      for (const auto& word : words_of(text_of(v.attributes, attribute))) names.insert(word);
  const auto blocks = [&](std::uint32_t d) { return selection_.along[d].kind == Selection::Kind::blocks; };
  const auto lost = [&](std::uint32_t i) {
    const auto& v = input_.variables[i];
    if (!names.contains(v.name)) return false;
    return std::any_of(v.dimensions.begin(), v.dimensions.end(), blocks) ||
           has_along(v.dimensions, &Selection::Along::wraps);
  };
  for (auto* const set : {&selected_, &along_})
    std::erase_if(*set, [&](std::uint32_t i) {
      if (!lost(i)) return false;
      out_.left_out.push_back(input_.variables[i].name);
      return true;
    });
}

/// It says where cells lie: whatever becomes of fields, this has the mean.
bool Plan::is_coordinate(const Variable& v) const {
  for (const auto d : v.dimensions)
    if (input_.dimensions[d].name == v.name) return true;
  return std::any_of(input_.variables.begin(), input_.variables.end(), [&](const Variable& other) {
    const auto words = words_of(text_of(other.attributes, "coordinates"));
    return std::find(words.begin(), words.end(), v.name) != words.end();
  });
}

void Plan::to_blocks(Item& item) const {
  auto& v = item.variable;
  auto& made = item.made;
  const bool is_from_file = item.from_file;
  if (item.from_file && selection_.longitudes == made.variables.front()) {
    const auto radians = text_of(v.attributes, "units").starts_with("rad");
    made.quantity = std::make_shared<Eastward>(made.quantity, selection_.west * (radians ? std::numbers::pi / 180 : 1),
                                               radians ? 2 * std::numbers::pi : 360);
    if (item.packing.packed()) item.from_file = false;
    for (const char* name : {"valid_range", "valid_min", "valid_max", "actual_range"})
      remove_attribute(v.attributes, name);
  }
  if (!has_along(made.dimensions, &Selection::Along::thinned)) return;
  std::vector<Selection::Along> along;
  std::string methods;
  for (const auto d : made.dimensions) {
    const bool is_ours = d < selection_.along.size();
    along.push_back(is_ours ? selection_.along[d] : Selection::Along());
    if (is_ours && along.back().kind == Selection::Kind::blocks) methods += input_.dimensions[d].name + ": ";
  }
  const bool coordinate = is_from_file && is_coordinate(v);
  const auto method =
      coordinate && selection_.method != CoarsenRule::Method::first ? CoarsenRule::Method::mean : selection_.method;
  made.quantity = std::make_shared<Blocks>(made.quantity, std::move(along), method, coordinate ? period_of(v) : 0);
  if (methods.empty()) return;
  if (method != CoarsenRule::Method::first) item.from_file = false;
  if (coordinate) return;
  const auto before = text_of(v.attributes, "cell_methods");
  set_text(v.attributes, "cell_methods", before + (before.empty() ? "" : " ") + methods + cell_method(method));
}

/// Chunks that are no longer than their dimensions, and are not made of more cells than fit into memory; no names of
/// variables that are not there.
void Plan::fit_to_cells(Variable& v) const {
  if (selection_.along.empty()) return;
  // Of the file, as double 32 MiB.
  constexpr std::uint64_t cells_max = 1U << 22U;
  for (std::size_t i = 0; i < v.chunks.size(); ++i)
    if (const auto& d = out_.schema.dimensions[v.dimensions[i]]; !d.unlimited)
      v.chunks[i] = std::clamp<std::uint64_t>(v.chunks[i], 1, std::max<std::uint64_t>(1, d.length));
  const auto step = [&](std::size_t i) {
    const auto d = v.dimensions[i];
    return d < selection_.along.size() ? selection_.along[d].step : 1;
  };
  std::uint64_t cells = 1;
  for (std::size_t i = 0; i < v.chunks.size(); ++i)
    if (__builtin_mul_overflow(cells, v.chunks[i] * step(i), &cells)) cells = UINT64_MAX;
  for (std::size_t i = 0; i < v.chunks.size() && cells > cells_max; ++i) {
    if (step(i) == 1) continue;
    cells /= v.chunks[i];
    v.chunks[i] = (v.chunks[i] - 1) / step(i) + 1;
    cells *= v.chunks[i];
  }
  if (!v.contiguous &&
      (has_along(v.dimensions, &Selection::Along::cut) || has_along(v.dimensions, &Selection::Along::thinned)))
    fit_filters(v);
  for (const char* name : {"bounds", "climatology", "cell_measures"}) {
    const auto words = words_of(text_of(v.attributes, name));
    const bool lost = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return std::find(out_.left_out.begin(), out_.left_out.end(), word) != out_.left_out.end();
    });
    if (lost) remove_attribute(v.attributes, name);
  }
}

}  // namespace advectio
