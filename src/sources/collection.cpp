#include "sources/collection.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "operators/values.h"

namespace advectio {

namespace {

Error invalid(std::string what) {
  return Error{Code::invalid, std::move(what), 0};
}

std::optional<std::uint32_t> number_of(const Schema& schema, const std::string& dimension) {
  for (std::uint32_t d = 0; d < schema.dimensions.size(); ++d)
    if (schema.dimensions[d].name == dimension) return d;
  return std::nullopt;
}

/// A tile that is the whole needs no others. A file that somebody has cut from a model's contradicts itself, and is
/// none.
bool is_a_tile(const Schema& schema) {
  const auto placement = placement_of(schema);
  if (!placement || !*placement) return false;
  const auto share = share_of(schema, **placement);
  return share.own != share.whole || (*placement)->total.value_or(1) > 1;
}

/// Pieces have one record along unlimited dimensions.
Box with_all_records(Box box, const Schema& schema, const Variable& v, const std::vector<std::uint64_t>& lengths) {
  for (std::size_t i = 0; i < v.dimensions.size(); ++i) {
    if (!schema.dimensions[v.dimensions[i]].unlimited) continue;
    box.start[i] = 0;
    box.count[i] = lengths[v.dimensions[i]];
  }
  return box;
}

}  // namespace

Result<Collection> Collection::look_at(const std::vector<std::string>& paths, const std::string& along,
                                       const OpenSource& open, const std::atomic<bool>& stop, Overlap overlap) {
  Collection c;
  std::vector<SourceHead> heads;
  std::map<std::string, std::vector<std::size_t>> families;  // tiles, by the name of the whole
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& path : paths) {
    if (std::find(c.paths_.begin(), c.paths_.end(), path) != c.paths_.end()) continue;
    if (stop) return Error{Code::gone, "interrupted", 0};
    auto source = open(path);
    if (!source) return std::move(source).error();
    auto head = (*source)->head();
    if (!head) return std::move(head).error();
    const auto number = c.paths_.size();
    if (is_a_tile(head->schema)) {
      const auto whole = whole_path(path);
      families[whole.empty() ? std::filesystem::path(path).parent_path().string() + "/" : whole].push_back(number);
    } else {
      groups.push_back({number});
    }
    c.paths_.push_back(path);
    heads.push_back(std::move(head).value());
  }
  if (c.paths_.empty()) return invalid("no files are named");
  // A family stands where its first tile is named.
  for (auto& [name, family] : families) groups.push_back(std::move(family));
  std::sort(groups.begin(), groups.end());
  for (auto& group : groups) {
    if (is_a_tile(heads[group.front()].schema)) {
      ADVECTIO_TRY(c.add_tiles(std::move(group), heads));
      continue;
    }
    Part part;
    part.schema = std::move(heads[group.front()].schema);
    part.lengths = std::move(heads[group.front()].lengths);
    part.sources = std::move(group);
    c.parts_.push_back(std::move(part));
  }
  ADVECTIO_TRY(c.find_along(along));
  ADVECTIO_TRY(c.read_times(open));
  ADVECTIO_TRY(c.put_in_order(overlap));
  ADVECTIO_TRY(c.count_again(open));
  return c;
}

Result<void> Collection::add_tiles(std::vector<std::size_t> sources, std::vector<SourceHead>& heads) {
  std::vector<Tile> tiles;
  std::map<std::string, std::size_t> numbers;
  for (const auto s : sources) {
    auto placement = placement_of(heads[s].schema);
    if (!placement) return std::move(placement).error().with(paths_[s]);
    if (!*placement) return invalid(paths_[s] + " is not a tile, and " + paths_[sources.front()] + " is one");
    tiles.push_back({paths_[s], std::move(heads[s].schema), std::move(**placement)});
    numbers[paths_[s]] = s;
  }
  auto whole = join_tiles(tiles);
  if (!whole && sources.size() == 1)
    return std::move(whole).error().with(paths_[sources[0]] + " is one tile of a split file: name all of them");
  if (!whole) return std::move(whole).error();
  Part part;
  for (const auto& t : tiles) part.sources.push_back(numbers.at(t.name));
  model_ = advectio::name_of(tiles.front().placement.kind);
  part.schema = std::move(whole->schema);
  part.pieces = std::move(whole->pieces);
  land_points_ = std::max(land_points_, whole->land_points);
  tiles_ += tiles.size();
  const auto& first = heads[part.sources.front()].lengths;
  for (std::size_t d = 0; d < part.schema.dimensions.size(); ++d) {
    const auto& dimension = part.schema.dimensions[d];
    part.lengths.push_back(dimension.unlimited ? first[d] : dimension.length);
    for (const auto s : part.sources)
      if (dimension.unlimited && heads[s].lengths[d] != first[d])
        return invalid(paths_[s] + " has " + std::to_string(heads[s].lengths[d]) + " records of " + dimension.name +
                       ", " + paths_[part.sources.front()] + " has " + std::to_string(first[d]));
  }
  parts_.push_back(std::move(part));
  return {};
}

Result<void> Collection::find_along(const std::string& named) {
  const auto& first = parts_.front().schema;
  if (!named.empty()) {
    along_ = number_of(first, named);
    if (!along_) return invalid(name_of(parts_.front()) + " has no dimension " + named + " (--along)");
    return {};
  }
  if (const auto axis = find_time_axis(first)) along_ = axis->dimension;
  for (std::uint32_t d = 0; d < first.dimensions.size() && !along_; ++d)
    if (first.dimensions[d].unlimited) along_ = d;
  if (!along_ && parts_.size() > 1)
    return invalid(name_of(parts_.front()) +
                   " has no time and no unlimited dimension; --along names the dimension along which the files follow "
                   "each other");
  return {};
}

Result<void> Collection::read_times(const OpenSource& open) {
  if (!along_) {
    moments_ = Error{Code::invalid, name_of(parts_.front()) + " has no times", 0};
    return {};
  }
  const auto& dimension = parts_.front().schema.dimensions[*along_].name;
  std::optional<Error> unknown;
  for (auto& part : parts_) {
    auto source = open(name_of(part));
    if (!source) return std::move(source).error();
    auto head = (*source)->head();
    if (!head) return std::move(head).error();
    auto times = times_of(**source, *head);
    if (!times || head->schema.dimensions[times->axis.dimension].name != dimension) {
      if (!unknown)
        unknown =
            times
                ? Error{Code::invalid, "its times are along another dimension than " + dimension, 0}.with(name_of(part))
                : std::move(times).error().with(name_of(part));
      continue;
    }
    if (&part == &parts_.front()) calendar_ = times->axis.units.calendar;
    part.calendar = times->axis.units.calendar;
    part.moments = std::move(times->moments);
  }
  if (unknown) {
    moments_ = std::move(*unknown);
    for (auto& part : parts_) part.moments.clear();
    return {};
  }
  moments_ = std::vector<Moment>();
  return {};
}

Result<void> Collection::put_in_order(Overlap overlap) {
  const bool dated = moments_.ok();
  if (dated && (parts_.size() > 1 || overlap != Overlap::refused)) {
    std::vector<SeriesPart> series;
    for (auto& part : parts_) series.push_back({name_of(part), part.calendar, part.moments});
    const auto order = order_of(series);
    parts_ = in_order(std::move(parts_), order);
    auto made = series_of(in_order(std::move(series), order), overlap, "--overlap first or --overlap last");
    if (!made) return std::move(made).error();
    runs_ = std::move(made->runs);
    *moments_ = std::move(made->moments);
    notes_ = std::move(made->notes);
    calendar_ = parts_.front().calendar;
  } else if (dated) {
    *moments_ = parts_.front().moments;  // one source: as it is
  } else if (overlap != Overlap::refused) {
    return Error(moments_.error()).with("--overlap takes the times of records");
  }
  const auto dimension = along_ ? parts_.front().schema.dimensions[*along_].name : std::string();
  if (along_) along_ = number_of(parts_.front().schema, dimension);
  schema_ = parts_.front().schema;
  lengths_ = parts_.front().lengths;
  const bool in_source_order = runs_.empty();
  std::uint64_t records = in_source_order ? 0 : runs_.back().end();
  for (auto& part : parts_) {
    if (along_) {
      const auto its = number_of(part.schema, dimension);
      if (!its)
        return invalid(name_of(part) + " has no dimension " + dimension + ", which " + name_of(parts_.front()) +
                       " has");
      part.records = part.lengths[*its];
      if (in_source_order) {
        if (part.records > 0)
          runs_.push_back({static_cast<std::size_t>(&part - parts_.data()), records, 0, part.records});
        records += part.records;
      }
    }
    for (const auto& v : schema_.variables) {
      const auto same = std::find_if(part.schema.variables.begin(), part.schema.variables.end(),
                                     [&](const Variable& other) { return other.name == v.name; });
      if (same == part.schema.variables.end())
        part.variables.emplace_back();
      else
        part.variables.emplace_back(static_cast<std::uint32_t>(same - part.schema.variables.begin()));
    }
  }
  if (along_) {
    lengths_[*along_] = records;
    if (!schema_.dimensions[*along_].unlimited) schema_.dimensions[*along_].length = records;
  }
  return {};
}

Result<void> Collection::check(const std::vector<bool>& wanted) {
  const auto& first = parts_.front();
  const auto file_of = [&](const Part& part) { return SeriesFile{name_of(part), &part.schema, &part.lengths}; };
  Agreement agreement(file_of(first), along_.value_or(UINT32_MAX), false);
  for (std::uint32_t v = 0; v < wanted.size(); ++v) {
    if (!wanted[v]) continue;
    const auto& mine = schema_.variables[v];
    const auto place = std::find(mine.dimensions.begin(), mine.dimensions.end(), along_.value_or(UINT32_MAX));
    if (parts_.size() > 1 && place != mine.dimensions.end() && place != mine.dimensions.begin())
      return Error{Code::unsupported,
                   "variable " + mine.name + ": " + schema_.dimensions[*along_].name +
                       " is not its first dimension, and files cannot follow each other along it",
                   0};
    for (const auto& part : parts_) {
      if (&part == &first) continue;
      if (!part.variables[v])
        return invalid(name_of(part) + " has no variable " + mine.name + ", which " + name_of(first) + " has");
      ADVECTIO_TRY(agreement.check(v, file_of(part), *part.variables[v]));
    }
  }
  if (parts_.size() == 1) return {};
  for (auto& note : agreement.notes()) notes_.push_back(std::move(note));
  for (const auto& [variable, names] : agreement.dropped())
    for (auto& v : schema_.variables)
      if (v.name == variable)
        for (const auto& name : names) remove_attribute(v.attributes, name);
  for (const auto& part : parts_)
    for (const auto& v : part.schema.variables)
      if (std::none_of(schema_.variables.begin(), schema_.variables.end(),
                       [&](const Variable& other) { return other.name == v.name; }) &&
          std::find(wanted.begin(), wanted.end(), false) == wanted.end())
        return invalid(name_of(part) + " has a variable " + v.name + ", which " + name_of(first) +
                       " has not; --variables chooses what all have");
  return {};
}

std::vector<std::string> Collection::notes() const {
  return notes_;
}

/// Times of parts that count from another date than the first. What cannot be read as a time stays; `check` says that
/// its units differ.
Result<void> Collection::count_again(const OpenSource& open) {
  if (!moments_ || parts_.size() < 2) return {};
  for (std::uint32_t v = 0; v < schema_.variables.size(); ++v) {
    const auto& time = schema_.variables[v];
    if (!has_records(v) || time.dimensions.size() != 1 || !is_numeric(time.type) || !has_since(time)) continue;
    ADVECTIO_TRY(count_again(open, v, time));
    for (const char* name : {"bounds", "climatology"})
      for (std::uint32_t b = 0; b < schema_.variables.size(); ++b)
        if (schema_.variables[b].name == text_of(time.attributes, name) && has_records(b) &&
            is_numeric(schema_.variables[b].type))
          ADVECTIO_TRY(count_again(open, b, time));
  }
  return {};
}

Result<void> Collection::count_again(const OpenSource& open, std::uint32_t variable, const Variable& time) {
  const auto units_of = [&](const Part& part, bool& known) {
    const auto& all = part.schema.variables;
    const auto it = std::find_if(all.begin(), all.end(), [&](const Variable& v) { return v.name == time.name; });
    known = it != all.end() && part.variables[variable];
    if (!known) return Result<TimeUnits>(Error{Code::invalid, "", 0});
    const auto calendar = text_of(it->attributes, "calendar");
    return parse_time_units(text_of(it->attributes, "units"),
                            calendar.empty() ? Calendar::standard : calendar_named(calendar).value_or(calendar_));
  };
  bool known = false;
  const auto mine = units_of(parts_.front(), known);
  if (!mine) return {};
  std::vector<TimeUnits> all;
  std::size_t others = 0;
  const std::string* first_other = nullptr;
  for (const auto& part : parts_) {
    const auto its = units_of(part, known);
    if (!known || !its) return {};
    if (its->since != mine->since || its->unit_ms != mine->unit_ms) {
      if (others++ == 0) first_other = &name_of(part);
    }
    all.push_back(*its);
  }
  if (others == 0) return {};
  const auto& v = schema_.variables[variable];
  const auto packing = packing_of(v);
  if (packing.packed()) return {};
  std::uint64_t each = 1;
  for (std::size_t i = 1; i < v.dimensions.size(); ++i) each *= lengths_[v.dimensions[i]];
  const auto element = size_of(v.type);
  Bytes out(records() * each * element);
  for (const auto& run : runs_) {
    const auto& part = parts_[run.part];
    auto source = open(name_of(part));
    if (!source) return std::move(source).error();
    Box box;
    for (const auto d : v.dimensions) box.count.push_back(lengths_[d]);
    box.start.assign(box.count.size(), 0);
    box.start[0] = run.record;
    box.count[0] = run.count;
    auto* const to = out.data() + run.first * each * element;
    ADVECTIO_TRY((*source)->read(*part.variables[variable], box, to));
    const auto& units = all[run.part];
    if (units.since == mine->since && units.unit_ms == mine->unit_ms) continue;
    std::vector<double> values(run.count * each), back(values.size());
    unpack(packing_of(part.schema.variables[*part.variables[variable]]), to, values);
    std::vector<Time> times;
    for (auto& value : values) {
      if (!(std::abs(value * units.unit_ms) < 1e17))
        return invalid(name_of(part) + ": " + v.name + " has no time in a record");
      times.push_back(units.time_of(value));
      value = mine->value_of(times.back());
    }
    narrow(v.type, 0, values, to);
    widen(v.type, to, back);
    for (std::size_t i = 0; i < back.size(); ++i)
      if (mine->time_of(back[i]) != times[i])
        return invalid(name_of(part) + ": its " + v.name + " " + time_text(times[i], calendar_) + " has no value in '" +
                       mine->text + "', as " + name_of(parts_.front()) +
                       " counts, that its type can hold; leave one of "
                       "them out, or put times into double first");
  }
  again_[variable] = std::move(out);
  if (v.name == time.name)
    notes_.push_back(v.name + " of " + *first_other +
                     (others > 1 ? " and " + std::to_string(others - 1) + " more" : std::string()) +
                     " is counted again in '" + text_of(time.attributes, "units") + "'");
  return {};
}

std::vector<Extract> Collection::extracts(std::uint32_t variable, const Box& box) const {
  std::vector<Extract> out, repeated;
  const bool timed = has_records(variable);
  if (timed) {
    const auto end = box.start[0] + box.count[0];
    for (auto run = std::upper_bound(runs_.begin(), runs_.end(), box.start[0],
                                     [](std::uint64_t r, const RecordRun&one) { return r < one.end(); });
         run != runs_.end() && run->first < end; ++run) {
      const auto begin = std::max(box.start[0], run->first);
      auto local = box;
      local.start[0] = run->record + (begin - run->first);
      local.count[0] = std::min(end, run->end()) - begin;
      add_extracts(variable, parts_[run->part], local, begin, out, repeated);
    }
  } else {
    for (const auto& part : parts_) add_extracts(variable, part, box, 0, out, repeated);
  }
  out.insert(out.end(), std::make_move_iterator(repeated.begin()), std::make_move_iterator(repeated.end()));
  return out;
}

/// Of one part. `local` is the box in it, `first` the number in the collection of its first record.
void Collection::add_extracts(std::uint32_t variable, const Part& part, const Box& local, std::uint64_t first,
                              std::vector<Extract>& out, std::vector<Extract>& repeated) const {
  const bool timed = has_records(variable);
  const auto number = *part.variables[variable];
  const auto& v = part.schema.variables[number];
  const bool again = !timed && &part != &parts_.front();
  const auto add = [&](std::size_t source, Box from, Box to, bool is_repeated) {
    if (timed) to.start[0] = to.start[0] - local.start[0] + first;
    (is_repeated ? repeated : out).push_back({source, number, std::move(from), std::move(to), is_repeated});
  };
  if (part.pieces.empty()) {
    add(part.sources.front(), local, local, again);
    return;
  }
  for (const auto& piece : part.pieces[number]) {
    const auto to = with_all_records(piece.to, part.schema, v, part.lengths);
    auto from = with_all_records(piece.from, part.schema, v, part.lengths);
    auto shared = intersect(local, to);
    if (shared.empty()) continue;
    for (std::size_t i = 0; i < from.rank(); ++i) from.start[i] += shared.start[i] - to.start[i];
    from.count = shared.count;
    add(part.sources[piece.tile], std::move(from), std::move(shared), again || piece.repeated);
  }
}

std::uint64_t Collection::copies(std::uint32_t variable) const {
  std::uint64_t sum = 0;
  for (const auto& part : parts_) {
    std::uint64_t its = 1;
    if (!part.pieces.empty()) {
      const auto number = *part.variables[variable];
      its = static_cast<std::uint64_t>(std::count_if(part.pieces[number].begin(), part.pieces[number].end(),
                                                     [](const Piece& p) { return p.repeated; })) +
            1;
    }
    sum = has_records(variable) ? std::max(sum, its) : sum + its;
  }
  return sum;
}

}  // namespace advectio
