#include "sources/series.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "operators/processed.h"
#include "operators/units.h"
#include "operators/values.h"

namespace advectio {
namespace {

Error no_series(std::string what) {
  return Error{Code::invalid, std::move(what), 0};
}

struct Reach {
  Time first = 0, last = 0;
};

Reach reach_of(const SeriesPart& part) {
  Reach out{part.moments.front().at, part.moments.front().at};
  for (const auto& m : part.moments) {
    out.first = std::min(out.first, m.at);
    out.last = std::max(out.last, m.at);
  }
  return out;
}

std::string counted(std::uint64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Two calendars have the same dates from here on.
const Time reform = days_of({1582, 10, 15}, Calendar::proleptic_gregorian) * day_ms;

bool have_reform(Calendar a, Calendar b) {
  const auto either = [](Calendar c) { return c == Calendar::standard || c == Calendar::proleptic_gregorian; };
  return either(a) && either(b);
}

/// A record of one of the files.
struct Record {
  Time at = 0;
  std::size_t part = 0;
  std::uint64_t number = 0;
};

/// Text for people, and names of variables that are compared themselves: it has no bearing on values.
bool is_prose(const std::string& attribute) {
  static constexpr std::array names = {"long_name",   "description", "comment",       "comments",       "history",
                                       "title",       "source",      "references",    "note",           "notes",
                                       "institution", "coordinates", "original_name", "original_units", "processing"};
  return std::find(names.begin(), names.end(), attribute) != names.end();
}

/// Of one file's values alone.
bool is_of_values(const std::string& attribute) {
  static constexpr std::array names = {"actual_range", "actual_min", "actual_max", "data_range"};
  return std::find(names.begin(), names.end(), attribute) != names.end();
}

bool is_packing(const std::string& attribute) {
  static constexpr std::array names = {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"};
  return std::find(names.begin(), names.end(), attribute) != names.end();
}

/// Another spelling of the same unit: m/s and m s-1.
bool same_unit(const std::string& a, const std::string& b) {
  const auto conversion = unit_conversion(a, b);
  if (!conversion) return false;
  const std::array<double, 3> given = {0, 1, 1234567};
  auto values = given;
  (*conversion)->convert(values);
  return values == given && !(*conversion)->of_water();
}

std::string shown(const Attribute* a) {
  if (a == nullptr) return "missing";
  if (a->type != DataType::text) return "another one";
  return "'" + std::string(reinterpret_cast<const char*>(a->values.data()), a->values.size()) + "'";
}

}  // namespace

std::vector<std::size_t> order_of(std::span<const SeriesPart> parts) {
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<Time> begins;
  for (const auto& part : parts) begins.push_back(part.moments.empty() ? 0 : reach_of(part).first);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool none_a = parts[a].moments.empty(), none_b = parts[b].moments.empty();
    return none_a != none_b ? none_b : !none_a && begins[a] < begins[b];
  });
  return order;
}

Result<Series> series_of(std::span<const SeriesPart> parts, Overlap overlap, const std::string& how) {
  Series out;
  std::vector<std::vector<Record>> records(parts.size());
  const auto calendar = parts.empty() ? Calendar::standard : parts.front().calendar;
  const auto text = [&](Time t) { return time_text(t, calendar); };
  std::set<std::string> others, sorted;
  std::uint64_t repeated = 0;
  std::string repeats;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto& part = parts[p];
    auto& mine = records[p];
    for (std::uint64_t i = 0; i < part.moments.size(); ++i) mine.push_back({part.moments[i].at, p, i});
    if (mine.empty()) continue;
    if (part.calendar != calendar) {
      const auto earliest = std::min(reach_of(part).first, reach_of(parts.front()).first);
      if (!have_reform(part.calendar, calendar) || earliest < reform)
        return no_series(part.name + " has another calendar (" + std::string(name_of(part.calendar)) + ") than " +
                         parts.front().name + " (" + std::string(name_of(calendar)) +
                         "), and their dates are not the same: leave one of them out");
      others.insert(std::string(name_of(part.calendar)));
    }
    const auto earlier = [](const Record& a, const Record& b) { return a.at < b.at; };
    if (!std::is_sorted(mine.begin(), mine.end(), earlier)) {
      std::stable_sort(mine.begin(), mine.end(), earlier);
      sorted.insert(part.name);
    }
    std::vector<Record> once;
    for (const auto& r : mine) {
      if (once.empty() || once.back().at != r.at) {
        once.push_back(r);
        continue;
      }
      if (overlap == Overlap::refused)
        return no_series(part.name + ": records " + std::to_string(once.back().number) + " and " +
                         std::to_string(r.number) + " have the same time, " + text(r.at) + "; " + how + " takes one");
      ++repeated;
      repeats = part.name;
      if (overlap == Overlap::last) once.back() = r;
    }
    mine = std::move(once);
  }
  // Files whose times lie among each other. Where they have one in common, one of them counts in its span.
  std::vector<Reach> spans(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p)
    if (!records[p].empty()) spans[p] = {records[p].front().at, records[p].back().at};
  const auto whole = records;
  std::vector<std::size_t> open;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> left;
  bool mixed = false;
  std::string mixed_files;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (records[p].empty()) continue;
    std::erase_if(open, [&](std::size_t o) { return spans[o].last < spans[p].first; });
    for (const auto o : open) {
      const auto before = [](const Record& a, const Record& b) { return a.at < b.at; };
      std::vector<Record> common;
      std::set_intersection(whole[o].begin(), whole[o].end(), whole[p].begin(), whole[p].end(),
                            std::back_inserter(common), before);
      if (common.empty()) {
        if (!mixed) mixed_files = parts[o].name + " and " + parts[p].name;
        mixed = true;
        continue;
      }
      if (overlap == Overlap::refused)
        return no_series(parts[p].name + " begins at " + text(spans[p].first) + ", and " + parts[o].name +
                         " has records until " + text(spans[o].last) +
                         "; a series has each time once: leave one of them "
                         "out, or " +
                         how + " says whose count");
      const auto loser = overlap == Overlap::first ? p : o, winner = overlap == Overlap::first ? o : p;
      left[{loser, winner}] += std::erase_if(
          records[loser], [&](const Record& r) { return r.at >= spans[winner].first && r.at <= spans[winner].last; });
    }
    open.push_back(p);
  }
  std::vector<Record> all;
  for (const auto& mine : records) all.insert(all.end(), mine.begin(), mine.end());
  std::stable_sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.at < b.at; });
  for (const auto& r : all) {
    if (!out.runs.empty() && out.runs.back().part == r.part &&
        out.runs.back().record + out.runs.back().count == r.number)
      ++out.runs.back().count;
    else
      out.runs.push_back({r.part, out.moments.size(), r.number, 1});
    out.moments.push_back(parts[r.part].moments[r.number]);
  }
  const std::string word = overlap == Overlap::first ? "first" : "last";
  std::erase_if(left, [](const auto& one) { return one.second == 0; });
  if (!left.empty()) {
    const auto& [pair, count] = *left.begin();
    std::uint64_t sum = 0;
    for (const auto& one : left) sum += one.second;
    const auto files = parts[pair.first].name + " are left out for those of " + parts[pair.second].name;
    out.notes.push_back(
        "overlap: " + word + ": " + counted(count, "record") + " of " +
        (count == 1 ? parts[pair.first].name + " is left out for those of " + parts[pair.second].name : files) +
        (left.size() == 1
             ? ""
             : "; " + counted(sum, "record") + " of " + std::to_string(left.size()) + " such pairs of files in all"));
  }
  if (repeated > 0)
    out.notes.push_back("overlap: " + word + ": " + counted(repeated, "record") + " with the time of another " +
                        (repeated == 1 ? "is" : "are") + " left out, in " + repeats);
  if (!sorted.empty())
    out.notes.push_back(*sorted.begin() +
                        (sorted.size() == 1
                             ? ": its records are taken"
                             : " and " + std::to_string(sorted.size() - 1) + " more: their records are taken") +
                        " in the order of their times");
  if (mixed) out.notes.push_back("the times of " + mixed_files + " lie among each other, and are put in order");
  for (const auto& name : others)
    out.notes.push_back("the calendar " + name + " has the same dates here as " + std::string(name_of(calendar)) +
                        ", which is taken");
  return out;
}

Result<void> Agreement::check(std::uint32_t variable, const SeriesFile& other, std::uint32_t its_number) {
  const auto& mine = first_.schema->variables[variable];
  const auto& its = other.schema->variables[its_number];
  bool same = its.type == mine.type && its.dimensions.size() == mine.dimensions.size();
  for (std::size_t i = 0; same && i < mine.dimensions.size(); ++i) {
    const auto a = mine.dimensions[i], b = its.dimensions[i];
    same = first_.schema->dimensions[a].name == other.schema->dimensions[b].name &&
           (a == along_ || (*first_.lengths)[a] == (*other.lengths)[b]);
  }
  if (!same)
    return no_series(other.name + ": variable " + mine.name + " has not the type and shape that it has in " +
                     first_.name + "; files of one grid are a series");
  if (mine.attributes == its.attributes) return {};
  std::set<std::string> names;
  for (const auto& a : mine.attributes) names.insert(a.name);
  for (const auto& a : its.attributes) names.insert(a.name);
  const bool is_time = has_since(mine) && has_since(its);
  for (const auto& name : names) {
    const auto *const a = find_attribute(mine.attributes, name), *const b = find_attribute(its.attributes, name);
    if (a != nullptr && b != nullptr && *a == *b) continue;
    if (is_time && (name == "units" || name == "calendar")) continue;
    if (is_of_values(name) || (unpacked_ && name.starts_with("valid_"))) {
      dropped_[mine.name].insert(name);
      continue;
    }
    if (unpacked_ && is_packing(name)) continue;
    const auto words_a = text_of(mine.attributes, name), words_b = text_of(its.attributes, name);
    const bool is_units = name == "units" && a != nullptr && b != nullptr;
    if (is_prose(name) || (is_units && same_unit(words_a, words_b))) {
      taken_[mine.name].insert(name);
      continue;
    }
    return no_series(other.name + ": attribute " + name + " of " + mine.name + " is not that of " + first_.name + ": " +
                     shown(b) + " in place of " + shown(a) +
                     ", so that values may mean another thing; leave the file "
                     "out, or change " +
                     (is_units ? "its values and units first" : "the attribute first if it is wrong"));
  }
  return {};
}

std::vector<std::string> Agreement::notes() const {
  const auto line = [](const std::map<std::string, std::set<std::string>>& of) {
    // Of many variables the first ones.
    constexpr std::size_t most = 6;
    std::string out;
    std::size_t n = 0;
    for (const auto& [variable, names] : of) {
      if (++n > most) continue;
      out += (out.empty() ? "" : ", ") + variable + " (";
      std::string inner;
      for (const auto& name : names) inner += (inner.empty() ? "" : ", ") + name;
      out += inner + ")";
    }
    if (n > most) out += " and " + std::to_string(n - most) + " more";
    return out;
  };
  std::vector<std::string> out;
  if (!taken_.empty()) out.push_back("attributes differ, those of " + first_.name + " are taken: " + line(taken_));
  if (!dropped_.empty()) out.push_back("attributes differ, and are left out: " + line(dropped_));
  return out;
}

}  // namespace advectio
