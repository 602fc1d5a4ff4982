#include "sources/grib/groups.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace advectio::grib {
namespace {

/// By which fields of one quantity may differ, beside time, level and member.
constexpr std::array further_keys = {"dataType",
                                     "stream",
                                     "startStep",
                                     "experimentVersionNumber",
                                     "typeOfGeneratingProcess",
                                     "generatingProcessIdentifier",
                                     "typeOfStatisticalProcessing",
                                     "lengthOfTimeRange",
                                     "probabilityType",
                                     "scaledValueOfLowerLimit",
                                     "scaledValueOfUpperLimit",
                                     "derivedForecast",
                                     "quantileNumber",
                                     "constituentType",
                                     "aerosolType",
                                     "scaledValueOfFirstSize",
                                     "scaledValueOfFirstWavelength",
                                     "scaledValueOfCentralWaveNumber",
                                     "channel",
                                     "instrumentType",
                                     "iterationNumber",
                                     "productDefinitionTemplateNumber",
                                     "centre",
                                     "subCentre"};

auto identity(const Field& f) {
  return std::tie(f.when, f.level, f.members);
}

/// Two fields that nothing tells apart, if there are any.
using Pair = std::pair<std::uint32_t, std::uint32_t>;
std::optional<Pair> twice(const Contents& contents, std::vector<std::uint32_t> fields) {
  const auto& all = contents.fields;
  std::stable_sort(fields.begin(), fields.end(), [&](auto a, auto b) { return identity(all[a]) < identity(all[b]); });
  for (std::size_t i = 1; i < fields.size(); ++i)
    if (identity(all[fields[i - 1]]) == identity(all[fields[i]])) return Pair(fields[i - 1], fields[i]);
  return std::nullopt;
}

std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ? c : '_';
  return out;
}

std::string part_named(const char* key, const std::string& value) {
  const bool number = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isdigit(c) != 0 || c == '-' || c == '.';
  });
  return "_" + (number || value.empty() ? std::string(key) : std::string()) + plain(value);
}

/// Groups by as few further keys as tell all fields apart.
Result<std::vector<Group>> split(File& file, const Contents& contents, const Group& whole) {
  std::map<std::uint32_t, std::vector<std::string>> keys;
  for (const auto f : whole.fields) {
    auto found = keys_of(file, contents.fields[f].place, further_keys);
    if (!found) return std::move(found).error();
    keys[f] = std::move(found).value();
  }
  std::map<std::string, std::vector<std::uint32_t>> parts = {{"", whole.fields}};
  const auto repeated = [&](const auto& groups) {
    std::optional<Pair> pair;
    for (const auto& [part, fields] : groups)
      if (!pair) pair = twice(contents, fields);
    return pair;
  };
  auto pair = repeated(parts);
  while (pair) {
    const auto &one = keys[pair->first], &other = keys[pair->second];
    const auto k = static_cast<std::size_t>(std::mismatch(one.begin(), one.end(), other.begin()).first - one.begin());
    if (k == further_keys.size()) break;
    std::map<std::string, std::vector<std::uint32_t>> finer;
    for (const auto& [part, fields] : parts)
      for (const auto f : fields) finer[part + part_named(further_keys[k], keys[f][k])].push_back(f);
    parts = std::move(finer);
    pair = repeated(parts);
  }
  if (pair) {
    const auto &a = contents.fields[pair->first], &b = contents.fields[pair->second];
    return Error{Code::invalid,
                 text_of(a.place) + " and " + text_of(b.place) + " are both " +
                     text_of(a, contents.quantities[a.quantity]) +
                     ", and no key tells them apart: leave one of them out (grib_copy -w count=… of ecCodes)",
                 0};
  }
  std::vector<Group> out;
  out.reserve(parts.size());
  for (auto& [part, fields] : parts) out.push_back({whole.quantity, std::move(fields), part, {}});
  return out;
}

std::string base_name(const Quantity& q) {
  const auto known = [](const std::string& name) { return !name.empty() && name != "unknown" && name != "~"; };
  if (known(q.variable_name)) return plain(q.variable_name);
  if (known(q.short_name)) return plain(q.short_name);
  return "unknown_" + plain(q.parameter != 0 ? std::to_string(q.parameter) : q.code);
}

std::string members_of(const Quantity& q) {
  std::string out;
  for (std::size_t i = 0; i < member_axes.size(); ++i)
    if ((q.members >> i & 1U) != 0) out += (out.empty() ? "" : "_") + std::string(member_axes[i].name);
  return out.empty() ? "one" : out;
}

/// Variables of one name get all of them what they differ in behind it.
void name_all(const Contents& contents, std::vector<Group>& groups) {
  using Part = std::function<std::string(const Quantity&)>;
  const std::array<Part, 7> parts = {
      Part([](const Quantity& q) { return q.level_type + (q.surfaces.empty() ? "" : "_" + q.surfaces); }),
      Part([](const Quantity& q) { return q.step_type; }),
      Part([](const Quantity& q) { return q.grid_type; }),
      Part([](const Quantity& q) { return "grid" + std::to_string(q.grid + 1); }),
      Part(members_of),
      Part([](const Quantity& q) { return "param" + std::to_string(q.parameter) + q.code; }),
      Part([](const Quantity& q) { return q.units; })};
  const auto same_name = [&] {
    std::map<std::string, std::vector<Group*>> names;
    for (auto& g : groups) names[g.name].push_back(&g);
    std::erase_if(names, [](const auto& n) { return n.second.size() < 2; });
    return names;
  };
  for (auto& g : groups) g.name = base_name(contents.quantities[g.quantity]) + g.part;
  for (const auto& part : parts)
    for (auto& [name, those] : same_name()) {
      std::set<std::string> values;
      for (const auto* g : those) values.insert(part(contents.quantities[g->quantity]));
      if (values.size() < 2) continue;
      for (auto* g : those) g->name += "_" + plain(part(contents.quantities[g->quantity]));
    }
  for (auto& [name, those] : same_name())
    for (std::size_t i = 0; i < those.size(); ++i) those[i]->name += "_" + std::to_string(i + 1);
}

/// The grid that this process has already, where another file that is open has it. Under `eccodes_mutex`.
Result<std::shared_ptr<const Grid>> grid_of(File& file, const FieldPlace& place, std::uint64_t points,
                                            const std::string& key) {
  static std::map<std::string, std::weak_ptr<const Grid>> known;
  auto& there = known[key];
  if (auto grid = there.lock()) return grid;
  auto read = read_grid(file, place, points);
  if (!read) return std::move(read).error();
  auto grid = std::make_shared<const Grid>(std::move(read).value());
  there = grid;
  return grid;
}

}  // namespace

Result<Contents> scan(File& file) {
  auto places = find_fields(file);
  if (!places) return std::move(places).error();
  Contents out;
  KnownNames names;
  std::map<Quantity, std::uint32_t> quantities;
  std::map<std::string, std::uint32_t> grids;
  for (const auto& place : *places) {
    auto header = read_header(file, place, names);
    if (!header) return std::move(header).error();
    auto& q = header->quantity;
    const auto key = std::to_string(header->origin.edition) + '/' + q.grid_type + '/' + std::to_string(q.points) + '/' +
                     header->grid_section;
    auto grid = grids.find(key);
    if (grid == grids.end()) {
      auto read = grid_of(file, place, q.points, key);
      if (!read) return std::move(read).error();
      const auto same = std::find_if(out.grids.begin(), out.grids.end(),
                                     [&](const auto& other) { return other->same_places(**read); });
      grid = grids.emplace(key, static_cast<std::uint32_t>(same - out.grids.begin())).first;
      if (same == out.grids.end()) out.grids.push_back(std::move(read).value());
    }
    q.grid = grid->second;
    const auto [quantity, added] = quantities.try_emplace(q, static_cast<std::uint32_t>(out.quantities.size()));
    if (added) out.quantities.push_back(q);
    header->field.quantity = quantity->second;
    if (out.fields.empty()) out.origin = header->origin;
    out.one_edition = out.one_edition && out.origin.edition == header->origin.edition;
    out.fields.push_back(header->field);
  }
  return out;
}

Result<std::vector<Group>> grouped(File& file, const Contents& contents) {
  std::vector<Group> wholes(contents.quantities.size());
  for (std::uint32_t q = 0; q < wholes.size(); ++q) wholes[q].quantity = q;
  for (std::uint32_t f = 0; f < contents.fields.size(); ++f) wholes[contents.fields[f].quantity].fields.push_back(f);
  std::vector<Group> out;
  for (auto& whole : wholes) {
    if (!twice(contents, whole.fields)) {
      out.push_back(std::move(whole));
      continue;
    }
    auto parts = split(file, contents, whole);
    if (!parts) return std::move(parts).error();
    for (auto& part : *parts) out.push_back(std::move(part));
  }
  name_all(contents, out);
  return out;
}

}  // namespace advectio::grib
