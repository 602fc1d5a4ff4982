#include <array>
#include <cstring>

#include "operators/process_plan.h"

namespace advectio {
namespace {

// Of a chunk of places: 256 KiB of float32.
constexpr std::uint64_t chunk_cells = 1U << 16U;

double fill_of(DataType type, const Variable& input) {
  const auto own = numbers_of(input.attributes, "_FillValue");
  if (!own.empty() && input.type == type) return own.front();
  double fill = 0;
  const auto bytes = default_fill(type);
  if (type == DataType::float32) {
    float f = 0;
    std::memcpy(&f, bytes.data(), sizeof f);
    fill = f;
  } else {
    std::memcpy(&fill, bytes.data(), sizeof fill);
  }
  return fill;
}

void set_fill(Variable& v, double fill) {
  remove_attribute(v.attributes, "_FillValue");
  remove_attribute(v.attributes, "missing_value");
  Attribute a;
  a.name = "_FillValue";
  a.type = v.type;
  a.count = 1;
  a.values.resize(size_of(v.type));
  narrow(v.type, fill, {&fill, 1}, a.values.data());
  v.no_fill = false;
  v.has_fill = true;
  v.fill = a.values == default_fill(v.type) ? Bytes() : a.values;
  v.attributes.insert(v.attributes.begin(), std::move(a));
}

}  // namespace

void fit_filters(Variable& v) {
  std::erase_if(v.filters, [](const Filter& f) {
    static constexpr std::array known = {filter_id::deflate,    filter_id::shuffle, filter_id::fletcher32,
                                         filter_id::szip,       filter_id::blosc,   filter_id::lz4,
                                         filter_id::bitshuffle, filter_id::zstd};
    return std::find(known.begin(), known.end(), f.id) == known.end();
  });
  const auto element = static_cast<std::uint32_t>(size_of(v.type));
  std::uint64_t chunk = element;
  for (const auto c : v.chunks) chunk *= c;
  for (auto& f : v.filters) {
    if (f.id == filter_id::blosc && f.parameters.size() > 3) {
      f.parameters[2] = element;
      f.parameters[3] = static_cast<std::uint32_t>(chunk);
    }
    if (f.id == filter_id::bitshuffle && f.parameters.size() > 2) f.parameters[2] = element;
  }
}

Result<void> Plan::make_expressions() {
  to_make_.insert(to_make_.end(), rule_.expressions.begin(), rule_.expressions.end());
  for (const auto& rule : rule_.expressions) definitions_.push_back({rule.name, rule.formula, rule.units});
  for (const auto& rule : to_make_) {
    const auto where = rule.name + " = ";
    auto made = compile_expression(rule.formula, input_, axis_.dimension, definitions_, rule.name);
    if (!made) return refuse(rule.origin, where + made.error().message);
    if (made->variables.empty())
      return refuse(rule.origin, where + "'" + rule.formula + "' is a number; a variable's formula names variables");
    Item item;
    item.variable.name = rule.name;
    item.origin = rule.origin;
    item.named = item.to_levels = true;
    item.statistics = made->timed;
    const auto units = rule.units.empty() ? made->units : rule.units;
    if (!units.empty()) set_text(item.variable.attributes, "units", units);
    if (!rule.long_name.empty()) set_text(item.variable.attributes, "long_name", rule.long_name);
    if (!rule.standard_name.empty()) set_text(item.variable.attributes, "standard_name", rule.standard_name);
    set_text(item.variable.attributes, "expression", rule.formula);
    if (const auto* const other = like(*made)) {
      for (const char* name : {"coordinates", "grid_mapping"})
        if (const auto text = text_of(other->attributes, name); !text.empty())
          set_text(item.variable.attributes, name, text);
    }
    item.made = std::move(made).value();
    expressions_.push_back(std::move(item));
  }
  return {};
}

Result<void> Plan::add_file_variable(std::uint32_t number) {
  const auto& v = input_.variables[number];
  const bool other_cells =
      has_along(v.dimensions, &Selection::Along::thinned) || has_along(v.dimensions, &Selection::Along::wraps);
  if (!timed(v) && other_cells && !is_numeric(v.type)) {
    out_.left_out.push_back(v.name);
    return {};
  }
  const bool has_columns =
      selected_.contains(number) && std::any_of(coordinates_.begin(), coordinates_.end(), [&](const auto& c) {
        return !c.typed.timed && std::find(v.dimensions.begin(), v.dimensions.end(), c.dimension) != v.dimensions.end();
      });
  if (!timed(v) && !other_cells &&
      !(is_numeric(v.type) && (on_grid(v.dimensions) || has_columns || units_rule(v.name) != nullptr))) {
    ProcessedVariable p;
    p.kind = ProcessedVariable::Kind::copied;
    p.from = number;
    if (has_along(v.dimensions, &Selection::Along::cut))
      for (const auto d : v.dimensions) p.start.push_back(selection_.along[d].start);
    out_.schema.variables.push_back(v);
    fit_coordinates(out_.schema.variables.back());
    out_.variables.push_back(std::move(p));
    return {};
  }
  Item item;
  item.variable = v;
  item.made = typed_variable(input_, number, axis_.dimension);
  item.from_file = true;
  item.statistics = selected_.contains(number) && timed(v);
  item.to_levels = selected_.contains(number);
  item.named = item.to_levels && (item.statistics || !axis_.has_dimension()) && !rule_.variables.empty();
  item.origin = item.named ? rule_.origins.at("variables") : rule_.origin;
  item.packing = packing_of(v);
  return add(std::move(item));
}

/// Names of variables that have made room for the time coordinate go.
void Plan::fit_coordinates(Variable& v) const {
  const auto coordinates = text_of(v.attributes, "coordinates");
  if (coordinates.empty()) return;
  std::string kept;
  for (const auto& word : words_of(coordinates))
    if (const auto other = find_variable(input_, word); !other || !says_time(*other))
      kept += (kept.empty() ? "" : " ") + word;
  if (kept.empty())
    remove_attribute(v.attributes, "coordinates");
  else if (kept != coordinates)
    set_text(v.attributes, "coordinates", kept);
}

Result<void> Plan::add(Item item) {
  auto& v = item.variable;
  const auto number = item.made.variables.front();
  if (!item.from_file) {
    item.made.quantity = std::make_shared<ReadOnce>(item.made.quantity);
    const auto* const other = like(item.made);
    const auto& stored = other != nullptr ? *other : input_.variables[number];
    v.contiguous = stored.contiguous;
    v.filters = stored.filters;
    v.endian = stored.endian;
    if (other != nullptr) {
      v.chunks = other->chunks;
    } else if (!v.contiguous) {  // of no variable's shape: a record is a chunk
      v.chunks.clear();
      if (item.made.timed) v.chunks.push_back(1);
      for (const auto d : item.made.dimensions)
        v.chunks.push_back(std::max<std::uint64_t>(1, input_.dimensions[d].length));
    }
  }
  if (item.to_levels) ADVECTIO_TRY(to_levels(item));
  to_blocks(item);
  if (weights_) ADVECTIO_TRY(to_grid(item));
  if (parts_) item.made.quantity = std::make_shared<FromFile>(item.made.quantity, parts_);
  ProcessedVariable p;
  p.kind = item.made.timed ? ProcessedVariable::Kind::made : ProcessedVariable::Kind::made_once;
  p.from = number;
  p.quantity = item.made.quantity;
  p.whole = item.whole;
  p.plan = item.statistics ? plan_ : points_;
  ADVECTIO_TRY(to_units(item, p));
  const auto& steps = p.plan->steps();
  p.as_it_is =
      item.from_file && packed_alike_[number] &&
      std::all_of(steps.begin(), steps.end(), [](const TimeStep& s) { return s.statistic == Statistic::point; });
  if (!v.contiguous && !steps.empty() && item.made.timed) v.chunks.front() = 1;
  // Of a few places many records are a chunk.
  if (weights_ && !weights_->destination.names.empty() && !v.contiguous && item.made.timed && !item.from_file) {
    std::uint64_t cells = 1;
    for (std::size_t d = 1; d < v.chunks.size(); ++d) cells *= v.chunks[d];
    v.chunks.front() = std::clamp<std::uint64_t>(chunk_cells / std::max<std::uint64_t>(1, cells), 1, out_.records);
  }
  if (!p.as_it_is) {
    const auto type = item.made.single ? DataType::float32 : DataType::float64;
    const bool changed = type != v.type || item.packing.packed();
    const bool accumulates = std::any_of(steps.begin(), steps.end(), [](const TimeStep& s) {
      return s.statistic == Statistic::sum || s.statistic == Statistic::difference;
    });
    p.fill = fill_of(type, v);
    if (accumulates || changed)
      for (const char* name : {"valid_range", "valid_min", "valid_max"}) remove_attribute(v.attributes, name);
    for (const char* name : {"scale_factor", "add_offset", "actual_range", "_Unsigned"})
      remove_attribute(v.attributes, name);
    v.type = type;
    set_fill(v, p.fill);
  }
  v.dimensions.clear();
  if (item.made.timed) v.dimensions.push_back(axis_.dimension);
  v.dimensions.insert(v.dimensions.end(), item.made.dimensions.begin(), item.made.dimensions.end());
  fit_filters(v);
  if (item.statistics && !rule_.time.empty())
    set_text(v.attributes, "cell_methods", cell_methods(text_of(v.attributes, "cell_methods")));
  fit_coordinates(v);
  out_.schema.variables.push_back(std::move(v));
  out_.variables.push_back(std::move(p));
  return {};
}

}  // namespace advectio
