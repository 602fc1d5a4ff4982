#include "sources/collection.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

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

/// The first attribute that differs; empty: none.
std::string different_attribute(const Variable& a, const Variable& b) {
  const auto lacks = [](const Variable& v, const Attribute& wanted) {
    return std::find(v.attributes.begin(), v.attributes.end(), wanted) == v.attributes.end();
  };
  for (const auto& x : a.attributes)
    if (lacks(b, x)) return x.name;
  for (const auto& x : b.attributes)
    if (lacks(a, x)) return x.name;
  return {};
}

}  // namespace

Result<Collection> Collection::look_at(const std::vector<std::string>& paths, const std::string& along,
                                       const OpenSource& open, const std::atomic<bool>& stop) {
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
  ADVECTIO_TRY(c.put_in_order());
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
    if (times->axis.units.calendar != calendar_)
      return invalid(name_of(part) + " has another calendar than " + name_of(parts_.front()));
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

Result<void> Collection::put_in_order() {
  if (moments_) {
    std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return !b.moments.empty() && (a.moments.empty() || a.moments.front().at < b.moments.front().at);
    });
    const Part* before = nullptr;
    for (const auto& part : parts_) {
      if (part.moments.empty()) continue;
      if (before != nullptr && part.moments.front().at <= before->moments.back().at)
        return invalid(name_of(part) + " begins at " + time_text(part.moments.front().at, calendar_) + ", and " +
                       name_of(*before) + " has records until " + time_text(before->moments.back().at, calendar_) +
                       "; a series has each time once: leave one of them out");
      before = &part;
      moments_->insert(moments_->end(), part.moments.begin(), part.moments.end());
    }
  }
  const auto dimension = along_ ? parts_.front().schema.dimensions[*along_].name : std::string();
  if (along_) along_ = number_of(parts_.front().schema, dimension);
  schema_ = parts_.front().schema;
  lengths_ = parts_.front().lengths;
  std::uint64_t records = 0;
  for (auto& part : parts_) {
    if (along_) {
      const auto its = number_of(part.schema, dimension);
      if (!its)
        return invalid(name_of(part) + " has no dimension " + dimension + ", which " + name_of(parts_.front()) +
                       " has");
      part.first = records;
      part.records = part.lengths[*its];
      records += part.records;
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

Result<void> Collection::check(const std::vector<bool>& wanted) const {
  const auto& first = parts_.front();
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
      const auto& its = part.schema.variables[*part.variables[v]];
      bool same = its.type == mine.type && its.dimensions.size() == mine.dimensions.size();
      for (std::size_t i = 0; same && i < mine.dimensions.size(); ++i) {
        const auto a = mine.dimensions[i], b = its.dimensions[i];
        same = schema_.dimensions[a].name == part.schema.dimensions[b].name &&
               (a == along_ || lengths_[a] == part.lengths[b]);
      }
      if (!same)
        return invalid(name_of(part) + ": variable " + mine.name + " has not the type and shape that it has in " +
                       name_of(first) + "; files of one grid are a series");
      if (const auto attribute = different_attribute(mine, its); !attribute.empty())
        return invalid(name_of(part) + ": attribute " + attribute + " of " + mine.name + " is not that of " +
                       name_of(first) + ", so that values may mean another thing");
    }
  }
  if (parts_.size() == 1) return {};
  for (const auto& part : parts_)
    for (const auto& v : part.schema.variables)
      if (std::none_of(schema_.variables.begin(), schema_.variables.end(),
                       [&](const Variable& other) { return other.name == v.name; }) &&
          std::find(wanted.begin(), wanted.end(), false) == wanted.end())
        return invalid(name_of(part) + " has a variable " + v.name + ", which " + name_of(first) +
                       " has not; --variables chooses what all have");
  return {};
}

std::vector<Extract> Collection::extracts(std::uint32_t variable, const Box& box) const {
  std::vector<Extract> out, repeated;
  const bool timed = has_records(variable);
  for (const auto& part : parts_) {
    const auto number = *part.variables[variable];
    const auto& v = part.schema.variables[number];
    auto local = box;
    std::uint64_t shift = 0;
    if (timed) {
      const auto begin = std::max(box.start[0], part.first);
      const auto end = std::min(box.start[0] + box.count[0], part.first + part.records);
      if (begin >= end) continue;
      shift = part.first;
      local.start[0] = begin - shift;
      local.count[0] = end - begin;
    }
    const bool again = !timed && &part != &parts_.front();
    const auto add = [&](std::size_t source, Box from, Box to, bool is_repeated) {
      if (timed) to.start[0] += shift;
      (is_repeated ? repeated : out).push_back({source, number, std::move(from), std::move(to), is_repeated});
    };
    if (part.pieces.empty()) {
      add(part.sources.front(), local, local, again);
      continue;
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
  out.insert(out.end(), std::make_move_iterator(repeated.begin()), std::make_move_iterator(repeated.end()));
  return out;
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
