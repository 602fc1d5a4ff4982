#include "operators/process_plan.h"

namespace advectio {

/// A variable of the files along these dimensions, those of `first` before all others.
const Variable* Plan::like(const Typed& made) const {
  const auto fits = [&](const Variable& v) {
    const std::size_t leading = made.timed ? 1 : 0;
    return timed(v) == made.timed && v.dimensions.size() == made.dimensions.size() + leading &&
           std::equal(made.dimensions.begin(), made.dimensions.end(), v.dimensions.begin() + (made.timed ? 1 : 0));
  };
  for (const auto i : made.variables)
    if (fits(input_.variables[i])) return &input_.variables[i];
  for (const auto& v : input_.variables)
    if (fits(v) && find_attribute(v.attributes, "coordinates") != nullptr) return &v;
  return nullptr;
}

void Plan::add_coordinate(const std::string& name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                          const std::vector<std::pair<std::string, std::string>>& attributes) {
  Variable v;
  v.name = name;
  v.type = DataType::float64;
  v.dimensions = std::move(dimensions);
  for (const auto& [key, text] : attributes) set_text(v.attributes, key, text);
  out_.schema.variables.push_back(std::move(v));
  ProcessedVariable p;
  p.kind = ProcessedVariable::Kind::coordinate;
  p.values = std::move(values);
  out_.variables.push_back(std::move(p));
}

/// The dimensions of the weights' source: the last ones of the first variable that has as many cells.
Result<void> Plan::find_grid() {
  if (!weights_) return {};
  const auto& wanted = weights_->source_lengths;
  const auto length = [&](std::uint32_t d) { return input_.dimensions[d].length; };
  const auto look_at = [&](const std::vector<std::uint32_t>& dimensions) {
    const auto rank = dimensions.size();
    if (!grid_.empty() || rank == 0) return;
    const std::vector<std::uint32_t> one = {dimensions.back()};
    const auto two = rank < 2 ? std::vector<std::uint32_t>() : std::vector(dimensions.end() - 2, dimensions.end());
    const auto cells = two.empty() ? 0 : length(two[0]) * length(two[1]);
    if (wanted.size() == 2 && !two.empty() && length(two[0]) == wanted[0] && length(two[1]) == wanted[1]) {
      grid_ = two;
    } else if (wanted.size() == 1 && length(one[0]) == wanted[0]) {
      grid_ = one;
    } else if (wanted.size() == 1 && cells == wanted[0]) {
      grid_ = two;
    } else if (wanted.empty() && cells > *std::max_element(weights_->source.begin(), weights_->source.end())) {
      grid_ = two;  // the file does not say how many
    }
  };
  for (const auto& item : expressions_) look_at(item.made.dimensions);
  for (const auto i : selected_) {
    const auto& v = input_.variables[i];
    if (!is_numeric(v.type) || (axis_.has_dimension() && !timed(v))) continue;
    auto dimensions = v.dimensions;
    std::erase(dimensions, axis_.dimension);
    if (rule_.levels && rule_.levels->wrf && !coordinates_.empty())
      if (auto mass = destaggered(typed_variable(input_, i, axis_.dimension), input_)) dimensions = mass->dimensions;
    look_at(dimensions);
  }
  if (grid_.empty()) {
    std::string text;
    for (const auto n : wanted) text += (text.empty() ? "" : " x ") + std::to_string(n);
    return refuse(grid_origin(), grid_key() + ": no variable of this output is on the grid of the weights" +
                                     (text.empty() ? "" : " (" + text + " cells)") +
                                     (selection_.empty() ? "" : ", of which subset leaves a part"));
  }
  for (const auto& [name, origin] : rule_.variables) {
    const auto i = find_variable(input_, name);
    if (!i || !selected_.contains(*i) || has_a_place(*i)) continue;
    return refuse(origin, grid_key() + ": variable " + name + " has only a part of the grid's dimensions");
  }
  const auto& to = weights_->destination;
  const bool rows = to.lengths.size() == 2 && to.rectilinear;
  const std::vector<std::string> names = !to.names.empty()        ? std::vector<std::string>{"station"}
                                         : to.lengths.size() == 1 ? std::vector<std::string>{"cell"}
                                         : rows                   ? std::vector<std::string>{"lat", "lon"}
                                                                  : std::vector<std::string>{"y", "x"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    new_grid_.push_back(static_cast<std::uint32_t>(out_.schema.dimensions.size()));
    out_.schema.dimensions.push_back({names[i], to.lengths[i], false});
  }
  return {};
}

bool Plan::on_grid(const std::vector<std::uint32_t>& dimensions) const {
  return !grid_.empty() && dimensions.size() >= grid_.size() &&
         std::equal(grid_.begin(), grid_.end(), dimensions.end() - static_cast<std::ptrdiff_t>(grid_.size()));
}

/// It says something of the grid that goes, and is no field: a coordinate, or a part of one.
bool Plan::of_grid(const Variable& v) const {
  const auto of_it = [&](std::uint32_t d) { return std::find(grid_.begin(), grid_.end(), d) != grid_.end(); };
  return !grid_.empty() && std::any_of(v.dimensions.begin(), v.dimensions.end(), of_it);
}

/// It has nothing of the grid that goes, or can come to the one that comes.
bool Plan::has_a_place(std::uint32_t number) const {
  const auto& v = input_.variables[number];
  // What is staggered is taken to mass points first.
  return !of_grid(v) ||
         (is_numeric(v.type) && (on_grid(v.dimensions) || (rule_.levels && rule_.levels->wrf && timed(v))));
}

void Plan::add_grid() {
  const auto& to = weights_->destination;
  const bool rows = to.rectilinear;
  std::vector<std::pair<std::string, std::string>> lat = {{"standard_name", "latitude"}, {"units", "degrees_north"}},
                                                   lon = {{"standard_name", "longitude"}, {"units", "degrees_east"}};
  if (rows) {
    lat.emplace_back("axis", "Y");
    lon.emplace_back("axis", "X");
  }
  add_coordinate("lat", rows ? std::vector{new_grid_[0]} : new_grid_, to.lat, lat);
  add_coordinate("lon", rows ? std::vector{new_grid_[1]} : new_grid_, to.lon, lon);
  if (to.names.empty()) return;
  // CF-1.11, appendix H: places as discrete sampling geometries.
  std::size_t length = 1;
  for (const auto& name : to.names) length = std::max(length, name.size());
  const auto characters = static_cast<std::uint32_t>(out_.schema.dimensions.size());
  out_.schema.dimensions.push_back({"station_name_length", length, false});
  add_coordinate("station_name", {new_grid_[0], characters}, {},
                 {{"cf_role", "timeseries_id"}, {"long_name", "name of the station"}, {"_Encoding", "utf-8"}});
  out_.schema.variables.back().type = DataType::text;
  for (auto name : to.names) {
    name.resize(length, '\0');
    out_.variables.back().text += name;
  }
}

/// CF-1.11, section 9.4: of series at places, where all of them are of one kind.
void Plan::say_feature_type() {
  std::set<std::size_t> ranks;
  for (std::size_t i = 0; i < out_.variables.size(); ++i)
    if (const auto& d = out_.schema.variables[i].dimensions;
        out_.variables[i].kind == ProcessedVariable::Kind::made && d.back() == new_grid_.front())
      ranks.insert(d.size());
  if (ranks == std::set<std::size_t>{2}) set_text(out_.schema.attributes, "featureType", "timeSeries");
  if (ranks == std::set<std::size_t>{3}) set_text(out_.schema.attributes, "featureType", "timeSeriesProfile");
}

/// What is on the source's grid comes to the destination's.
Result<void> Plan::to_grid(Item& item) {
  auto& v = item.variable;
  auto& made = item.made;
  if (!on_grid(made.dimensions)) {
    if (!item.named || made.dimensions.size() < grid_.size()) return {};
    const auto text = [&](const std::vector<std::uint32_t>& dimensions) {
      std::string out;
      for (const auto d : dimensions)
        out += (out.empty() ? "" : ", ") + out_.schema.dimensions[d].name + " = " +
               std::to_string(out_.schema.dimensions[d].length);
      return "(" + out + ")";
    };
    return refuse(item.origin, grid_key() + ": variable " + v.name + " has " + text(made.dimensions) +
                                   ", and the weights are of " + text(grid_) +
                                   "; destagger(…) takes a staggered variable to the others' points");
  }
  std::vector<std::uint64_t> source;
  for (const auto d : grid_) source.push_back(input_.dimensions[d].length);
  made.quantity = std::make_shared<Regridded>(made.quantity, weights_, std::move(source),
                                              rule_.regrid ? rule_.regrid->missing_max : 0);
  const auto leading = made.dimensions.size() - grid_.size();
  made.dimensions.resize(leading);
  made.dimensions.insert(made.dimensions.end(), new_grid_.begin(), new_grid_.end());
  if (!v.contiguous) {
    v.chunks.resize((made.timed ? 1 : 0) + leading);
    v.chunks.insert(v.chunks.end(), weights_->destination.lengths.begin(), weights_->destination.lengths.end());
  }
  for (const char* name : {"coordinates", "grid_mapping", "cell_measures", "MemoryOrder", "stagger"})
    remove_attribute(v.attributes, name);
  const auto& to = weights_->destination;
  if (!to.rectilinear) set_text(v.attributes, "coordinates", to.names.empty() ? "lat lon" : "lat lon station_name");
  const auto method = weights_->method.empty() ? "" : " (" + weights_->method + ")";
  set_text(v.attributes, "regridding",
           rule_.regrid ? "weights of " + rule_.regrid->weights + method : weights_->method);
  item.from_file = false;
  return {};
}

}  // namespace advectio
