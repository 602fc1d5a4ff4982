#include "apps/advectiod/selection.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "config/glob.h"
#include "config/nearest.h"
#include "operators/references.h"

namespace advectio {
namespace {

Error invalid(std::string what) {
  return Error{Code::invalid, std::move(what), 0};
}

std::optional<std::uint32_t> find(const Schema& schema, const std::string& name) {
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
    if (schema.variables[i].name == name) return i;
  return std::nullopt;
}

std::string text_of(const Variable& v, const char* name) {
  for (const auto& a : v.attributes) {
    if (a.name != name) continue;
    if (a.type == DataType::text) return {reinterpret_cast<const char*>(a.values.data()), a.values.size()};
    if (a.type == DataType::string && a.count == 1) return a.strings[0].value_or("");
  }
  return {};
}

/// What the attributes of a variable name (CF-1.11, chapters 5 and 7).
std::vector<std::uint32_t> named_by(const Schema& schema, std::uint32_t variable) {
  std::vector<std::uint32_t> out;
  for (const char* attribute : {"coordinates", "grid_mapping", "bounds", "climatology", "cell_measures"}) {
    auto text = text_of(schema.variables[variable], attribute);
    std::replace(text.begin(), text.end(), '\0', ' ');
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (word.ends_with(':')) word.pop_back();
      if (const auto other = find(schema, word); other && *other != variable) out.push_back(*other);
    }
  }
  return out;
}

/// What tells the time along a dimension, beside a variable of its name.
std::vector<std::uint32_t> time_variables(const Schema& schema) {
  std::vector<std::uint32_t> out;
  if (const auto axis = find_time_axis(schema)) {
    out.push_back(axis->variable);
    if (axis->bounds) out.push_back(*axis->bounds);
  }
  if (const auto times = find(schema, "Times"); times && schema.variables[*times].type == DataType::text)
    out.push_back(*times);
  return out;
}

}  // namespace

Result<std::vector<std::uint32_t>> variables_named(const Schema& schema, const std::vector<std::string>& names) {
  std::set<std::uint32_t> chosen;
  for (const auto& name : names) {
    bool found = false;
    for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
      if (schema.variables[i].name == name || glob_matches(name, schema.variables[i].name)) {
        chosen.insert(i);
        found = true;
      }
    if (found) continue;
    std::vector<std::string> known;
    for (const auto& v : schema.variables) known.push_back(v.name);
    const auto meant = nearest(name, known);
    return invalid("variable " + name + " is not in the files" +
                   (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  return std::vector<std::uint32_t>(chosen.begin(), chosen.end());
}

std::vector<std::uint32_t> with_coordinates(const Schema& schema, const std::vector<std::uint32_t>& chosen) {
  std::set<std::uint32_t> out;
  const auto times = time_variables(schema);
  std::vector<std::uint32_t> open = chosen;
  while (!open.empty()) {
    const auto variable = open.back();
    open.pop_back();
    if (!out.insert(variable).second) continue;
    const auto others = named_by(schema, variable);
    open.insert(open.end(), others.begin(), others.end());
    for (const auto& term : formula_terms_of(schema.variables[variable]))
      if (const auto other = find(schema, term)) open.push_back(*other);
    for (const auto d : schema.variables[variable].dimensions) {
      if (const auto same = find(schema, schema.dimensions[d].name)) open.push_back(*same);
      for (const auto t : times)
        if (schema.variables[t].dimensions.front() == d) open.push_back(t);
    }
  }
  return {out.begin(), out.end()};
}

std::vector<bool> are_coordinates(const Schema& schema) {
  std::vector<bool> out(schema.variables.size(), false);
  for (const auto t : time_variables(schema)) out[t] = true;
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i) {
    for (const auto other : named_by(schema, i)) out[other] = true;
    for (const auto& d : schema.dimensions) out[i] = out[i] || d.name == schema.variables[i].name;
  }
  return out;
}

Result<std::vector<std::uint64_t>> records_numbered(const std::string& slice, std::uint64_t records) {
  const auto refuse = [&](const std::string& why) { return invalid("--records: '" + slice + "' " + why); };
  std::vector<std::optional<std::int64_t>> parts(1);
  std::string word;
  for (const char c : slice + ":") {
    if (c != ':') {
      word += c;
      continue;
    }
    if (!word.empty()) {
      std::int64_t n = 0;
      const auto [end, ec] = std::from_chars(word.data(), word.data() + word.size(), n);
      if (ec != std::errc() || end != word.data() + word.size())
        return refuse("is no slice: FIRST:END:STEP, as Python has it, or one number");
      parts.back() = n;
    }
    word.clear();
    parts.emplace_back();
  }
  parts.pop_back();
  const auto count = static_cast<std::int64_t>(records);
  const auto place = [&](std::int64_t n) { return std::clamp<std::int64_t>(n < 0 ? n + count : n, 0, count); };
  std::vector<std::uint64_t> out;
  if (parts.size() == 1) {
    if (!parts[0]) return refuse("is empty");
    const auto n = *parts[0] < 0 ? *parts[0] + count : *parts[0];
    if (n < 0 || n >= count) return refuse("is not among the " + std::to_string(records) + " records");
    out.push_back(static_cast<std::uint64_t>(n));
    return out;
  }
  const auto step = parts.size() > 2 ? parts[2].value_or(1) : 1;
  if (parts.size() > 3 || step < 1) return refuse("is no slice: FIRST:END:STEP with a step of 1 or more");
  for (auto n = place(parts[0].value_or(0)), end = place(parts[1].value_or(count)); n < end; n += step)
    out.push_back(static_cast<std::uint64_t>(n));
  if (out.empty()) return refuse("leaves none of the " + std::to_string(records) + " records");
  return out;
}

Result<std::vector<std::uint64_t>> records_timed(const std::string& range, const std::vector<Moment>& moments,
                                                 Calendar calendar) {
  const auto dots = range.find("..");
  const auto first = range.substr(0, dots), last = dots == std::string::npos ? range : range.substr(dots + 2);
  std::optional<Time> from, to;
  if (!first.empty()) {
    auto t = parse_time(first, calendar);
    if (!t) return std::move(t).error().with("--times");
    from = *t;
  }
  if (!last.empty()) {
    auto t = parse_time(last, calendar);
    if (!t) return std::move(t).error().with("--times");
    to = *t + (last.find_first_of("T_ :") == std::string::npos ? day_ms - 1 : 0);
  }
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < moments.size(); ++i)
    if ((!from || moments[i].at >= *from) && (!to || moments[i].at <= *to)) out.push_back(i);
  if (out.empty() && !moments.empty())
    return invalid("--times: no record is in " + range + "; the files have " + time_text(moments.front().at, calendar) +
                   " to " + time_text(moments.back().at, calendar));
  if (out.empty()) return invalid("--times: the files have no record");
  return out;
}

Schema with_variables(const Schema& schema, const std::vector<std::uint32_t>& chosen, bool all_dimensions,
                      std::vector<std::optional<std::uint32_t>>& numbers) {
  Schema out = schema;
  out.variables.clear();
  out.dimensions.clear();
  std::vector<bool> used(schema.dimensions.size(), all_dimensions);
  for (const auto v : chosen)
    for (const auto d : schema.variables[v].dimensions) used[d] = true;
  numbers.assign(schema.dimensions.size(), std::nullopt);
  for (std::size_t d = 0; d < schema.dimensions.size(); ++d) {
    if (!used[d]) continue;
    numbers[d] = static_cast<std::uint32_t>(out.dimensions.size());
    out.dimensions.push_back(schema.dimensions[d]);
  }
  for (const auto v : chosen) {
    auto& variable = out.variables.emplace_back(schema.variables[v]);
    for (auto& d : variable.dimensions) d = *numbers[d];
  }
  return out;
}

}  // namespace advectio
