#include "server/merge.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace advectio {

using journal::Record;
using journal::RecordType;

namespace {

/// The elements of a dense array of strings, each with its length, as blocks carry them.
std::vector<std::span<const std::byte>> strings_of(std::span<const std::byte> data) {
  std::vector<std::span<const std::byte>> all;
  while (data.size() >= 4) {
    std::uint32_t length = 0;
    std::memcpy(&length, data.data(), sizeof length);
    if (length == null_string) length = 0;
    const auto size = std::min<std::size_t>(sizeof length + length, data.size());
    all.push_back(data.first(size));
    data = data.subspan(size);
  }
  return all;
}

/// Calls `visit(coordinates, offset)` for each element of `part` of an array that holds `whole`, in order.
template <typename Visit>
void for_each_element(const Box& part, const Box& whole, Visit&& visit) {
  Box at{part.start, std::vector<std::uint64_t>(part.rank(), 1)};
  for (std::uint64_t n = part.volume(); n > 0; --n) {
    visit(at.start, static_cast<std::size_t>(offset_in(at, whole)));
    for (std::size_t i = part.rank(); i-- > 0;) {
      if (++at.start[i] < part.start[i] + part.count[i]) break;
      at.start[i] = part.start[i];
    }
  }
}

Box own_box(const Box& block) {
  return {std::vector<std::uint64_t>(block.rank()), block.count};
}

}  // namespace

bool Merge::ends_round(const Record& r) noexcept {
  return r.type == RecordType::close || (r.type == RecordType::sync && (r.flags & journal::flag_implicit) == 0);
}

// ---- records in ----

std::size_t Merge::add(std::string path) {
  strands_.emplace_back().path = std::move(path);
  return strands_.size() - 1;
}

bool Merge::has(const std::string& path) const {
  return std::any_of(strands_.begin(), strands_.end(), [&](const Strand& s) { return s.path == path; });
}

void Merge::resume(std::uint64_t round, bool partly) {
  round_ = round;
  begun_ = stale_ = true;
  resumed_ = partly;
}

void Merge::resume(std::size_t tile, std::uint64_t sequence, std::uint64_t syncs, std::optional<Schema> schema,
                   bool closed) {
  auto& s = strands_[tile];
  s.seen = sequence;
  s.base = s.ended = syncs;
  resumed_until_ = std::max(resumed_until_, syncs);
  s.schema = std::move(schema);
  s.closed = closed;
}

Result<void> Merge::take(std::size_t tile, const Record& record) {
  auto& s = strands_[tile];
  if (record.sequence <= s.seen) return {};
  s.seen = record.sequence;
  Entry entry;
  entry.record = record;
  switch (record.type) {
    case RecordType::put: {
      auto put = journal::decode_put(record.meta);
      if (!put) return std::move(put).error();
      entry.put = std::move(put).value();
      break;
    }
    case RecordType::sync:
    case RecordType::close: {
      if (!ends_round(record)) return {};  // a reader's
      auto sync = journal::decode_sync(record.meta);
      if (!sync) return std::move(sync).error();
      entry.sync = *sync;
      break;
    }
    case RecordType::abort: s.gone = true; break;
    case RecordType::schema: break;
    default: return {};
  }
  s.entries.push_back(std::move(entry));
  if (ends_round(record)) {
    ++s.ended;
    s.closed = s.closed || record.type == RecordType::close;
    if (s.base < round_) ADVECTIO_TRY(apply_schemas(false));
    shed(s);
  }
  return {};
}

void Merge::gone(std::size_t tile) {
  strands_[tile].gone = true;
}

/// What belongs to rounds that are committed.
void Merge::shed(Strand& s) {
  while (s.base < round_) {
    const auto end =
        std::find_if(s.entries.begin(), s.entries.end(), [](const Entry& e) { return ends_round(e.record); });
    if (end == s.entries.end()) return;
    const auto count = static_cast<std::size_t>(end - s.entries.begin()) + 1;
    if (s.given >= count && s.ends_given > 0) --s.ends_given;
    s.given -= std::min(s.given, count);
    s.entries.erase(s.entries.begin(), end + 1);
    ++s.base;
  }
}

// ---- the plan ----

bool Merge::complete() const {
  bool any = false;
  for (const auto& s : strands_) {
    if (s.ended <= round_ && !s.closed) return false;
    any = any || s.ended > round_;
  }
  return any;
}

/// Schemas count from the round in which they were told.
Result<void> Merge::apply_schemas(bool now) {
  for (auto& s : strands_) {
    auto round = s.base;
    for (auto& e : s.entries) {
      if (round > round_ && !now) break;
      if (ends_round(e.record)) ++round;
      if (e.record.type != RecordType::schema || e.applied) continue;
      ADVECTIO_TRY(journal::verify_payload(e.record));
      auto schema = decode_schema(e.record.payload);
      if (!schema) return std::move(schema).error();
      if (s.schema != *schema) {
        stale_ = s.told_anew = true;
        s.placement.reset();
        s.schema = std::move(schema).value();
      }
      e.applied = true;
    }
  }
  return {};
}

bool Merge::covers() const {
  std::uint64_t own = 0, whole = 1;
  std::optional<std::uint64_t> total;
  for (const auto& s : strands_) {
    own += s.share.own;
    whole = s.share.whole;
    total = s.placement->total;
  }
  return own >= whole || total == strands_.size();
}

Result<void> Merge::make_plan() {
  std::vector<Tile> tiles;
  for (const auto& s : strands_) tiles.push_back({s.path, *s.schema, *s.placement});
  auto joined = join_tiles(tiles);
  if (!joined) return std::move(joined).error();
  std::map<std::string, std::size_t> numbers;
  for (std::size_t t = 0; t < strands_.size(); ++t) numbers[strands_[t].path] = t;
  whole_ = std::move(joined).value();
  first_ = numbers.at(tiles.front().name);
  roles_.assign(whole_.pieces.size(), std::vector<Role>(strands_.size(), Role::none));
  parts_.assign(whole_.pieces.size(), {});
  for (std::size_t v = 0; v < whole_.pieces.size(); ++v) {
    bool repeated = false;
    for (const auto& piece : whole_.pieces[v]) {
      const auto tile = numbers.at(tiles[piece.tile].name);
      roles_[v][tile] = piece.repeated ? Role::repeated : Role::owner;
      parts_[v].emplace_back(tile, roles_[v][tile]);
      repeated = repeated || piece.repeated;
    }
    if (!repeated) parts_[v].clear();
  }
  whole_.pieces.clear();
  begun_ = planned_ = true;
  stale_ = told_ = false;
  return {};
}

Result<bool> Merge::plan(bool now) {
  if (!now && !complete()) return planned_;
  ADVECTIO_TRY(apply_schemas(now));
  if (planned_ && !stale_) return true;
  for (auto& s : strands_) {
    if (s.placement) continue;
    if (!s.schema) {
      if (now) return false;  // it may only not have been read
      return Error{Code::invalid, s.path + " was closed before anything was defined in it", 0};
    }
    auto placement = placement_of(*s.schema);
    if (!placement) return std::move(placement).error().with(s.path);
    if (!*placement) return Error{Code::invalid, s.path + " does not say where in the domain it lies", 0};
    s.placement = std::move(**placement);
    s.share = share_of(*s.schema, *s.placement);
  }
  if (!begun_ && !covers()) return false;
  ADVECTIO_TRY(make_plan());
  return true;
}

std::string Merge::why_not() {
  std::vector<Tile> tiles;
  if (auto applied = apply_schemas(true); !applied) return applied.error().message;
  for (const auto& s : strands_) {
    if (s.ended == 0 && s.gone) return s.path + " was never synced or closed";
    if (!s.schema) return s.path + " has no definitions yet";
    auto placement = placement_of(*s.schema);
    if (placement && *placement) tiles.push_back({s.path, *s.schema, std::move(**placement)});
  }
  const auto joined = join_tiles(tiles);
  return joined ? "not all tiles have been synced" : joined.error().message;
}

const Schema* Merge::new_schema(std::size_t tile) {
  auto& s = strands_[tile];
  return std::exchange(s.told_anew, false) ? &*s.schema : nullptr;
}

const Schema* Merge::changed() {
  if (told_) return nullptr;
  told_ = true;
  return &whole_.schema;
}

// ---- blocks out ----

Result<void> Merge::fits(const Entry& e) const {
  const auto& put = e.put;
  const auto& all = whole_.schema.variables;
  if (put.variable >= all.size() || put.box.rank() != all[put.variable].dimensions.size())
    return Error{Code::corrupt, "put record " + std::to_string(e.record.sequence) + " does not fit the schema", 0};
  const auto element = size_of(all[put.variable].type);
  if (element > 0 && put.box.volume() * element != e.record.payload.size())
    return Error{Code::corrupt, "put record " + std::to_string(e.record.sequence) + " has not the bytes its box takes",
                 0};
  return {};
}

std::optional<Merge::Cut> Merge::cut(const Strand& s, const Entry& e) const {
  const auto& box = e.put.box;
  const auto& dimensions = whole_.schema.variables[e.put.variable].dimensions;
  Cut c{own_box(box), box};
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto& span = s.placement->spans[dimensions[i]];
    if (!span) continue;
    const auto step = e.put.stride.empty() ? 1 : std::max<std::uint64_t>(1, e.put.stride[i]);
    const auto start = box.start[i], end = span->from + span->count;
    if (start >= end) return std::nullopt;
    const auto first = start >= span->from ? 0 : (span->from - start + step - 1) / step;
    const auto last = std::min(box.count[i], (end - 1 - start) / step + 1);
    if (first >= last) return std::nullopt;
    c.part.start[i] = first;
    c.part.count[i] = c.to.count[i] = last - first;
    c.to.start[i] = start + first * step - span->from + span->to;
  }
  return c;
}

std::span<const std::byte> Merge::bytes_of(const Entry& e, const Cut& c, std::deque<Bytes>& copies) const {
  const auto payload = e.record.payload;
  const auto whole = own_box(e.put.box);
  if (c.part == whole) return payload;
  const auto element = size_of(whole_.schema.variables[e.put.variable].type);
  if (element > 0 && is_contiguous(c.part, whole))
    return payload.subspan(offset_in(c.part, whole) * element, c.part.volume() * element);
  auto& copy = copies.emplace_back();
  if (element > 0) {
    copy.resize(c.part.volume() * element);
    copy_part(c.part, payload.data(), whole, copy.data(), c.part, element);
  } else {
    const auto strings = strings_of(payload);
    for_each_element(c.part, whole, [&](const auto&, std::size_t at) {
      if (at < strings.size()) copy.insert(copy.end(), strings[at].begin(), strings[at].end());
    });
  }
  return copy;
}

Result<std::optional<Block>> Merge::next_block(std::size_t tile, bool now) {
  auto& s = strands_[tile];
  if (!planned_ || stale_) return std::optional<Block>();
  for (; s.given < s.entries.size(); ++s.given) {
    const auto& e = s.entries[s.given];
    if (!now && s.past() > round_) break;
    if (ends_round(e.record)) {
      if (!now) break;
      ++s.ends_given;
    }
    // What follows may be of variables that the plan does not know.
    if (e.record.type == RecordType::schema && !e.applied) break;
    if (e.record.type != RecordType::put) continue;
    ADVECTIO_TRY(fits(e));
    if (roles_[e.put.variable][tile] != Role::owner) continue;
    const auto c = cut(s, e);
    if (!c) continue;
    const auto copies = copies_.size();
    const auto bytes = bytes_of(e, *c, copies_);
    if (copies_.size() > copies) copied_bytes_ += bytes.size();
    ++s.given;
    return std::optional(Block{e.put.variable, c->to, e.put.stride, bytes.data(), bytes.size()});
  }
  return std::optional<Block>();
}

// ---- rounds ----

/// The sync (or close) by which a tile ends the round under way.
const Merge::Entry* Merge::end_of_round(const Strand& s) const {
  if (s.base > round_) return nullptr;
  const auto end =
      std::find_if(s.entries.begin(), s.entries.end(), [](const Entry& e) { return ends_round(e.record); });
  return end == s.entries.end() ? nullptr : &*end;
}

/// A tile that was closed before: the others may close now, but not put.
Result<void> Merge::same_rounds() const {
  for (const auto& s : strands_) {
    if (s.ended > round_) continue;
    for (const auto& other : strands_) {
      const auto* end = end_of_round(other);
      if (end != nullptr && end->sync.frame > 0)
        return Error{
            Code::invalid,
            s.path + " was closed after " + std::to_string(s.ended) + " syncs, and " + other.path + " has put more", 0};
    }
  }
  return {};
}

Merge::OfVariable Merge::compared_entries(const Strand& s) const {
  OfVariable found;
  if (s.base > round_) return found;
  for (const auto& e : s.entries) {
    if (ends_round(e.record)) break;
    if (e.record.type == RecordType::put && !parts_[e.put.variable].empty()) found[e.put.variable].push_back(&e);
  }
  return found;
}

/// Have two tiles put the same? As a rule by the same calls; where not, element by element, of each the last value.
bool Merge::agree(std::size_t a, std::size_t b, const std::vector<const Entry*>& of_a,
                  const std::vector<const Entry*>& of_b) const {
  std::deque<Bytes> copies;
  const auto same = [&](const Entry* x, const Entry* y) {
    const auto p = cut(strands_[a], *x), q = cut(strands_[b], *y);
    if (!p || !q) return !p && !q;
    return p->to == q->to && x->put.stride == y->put.stride &&
           std::ranges::equal(bytes_of(*x, *p, copies), bytes_of(*y, *q, copies));
  };
  if (std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), same)) return true;
  using Image = std::map<std::vector<std::uint64_t>, std::span<const std::byte>>;
  const auto image = [&](std::size_t tile, const std::vector<const Entry*>& entries) {
    Image values;
    for (const auto* e : entries) {
      const auto c = cut(strands_[tile], *e);
      if (!c) continue;
      const auto bytes = bytes_of(*e, *c, copies);
      const auto element = size_of(whole_.schema.variables[e->put.variable].type);
      const auto strings = element == 0 ? strings_of(bytes) : std::vector<std::span<const std::byte>>();
      const auto own = own_box(c->to);
      for_each_element(own, own, [&](std::vector<std::uint64_t> at, std::size_t offset) {
        for (std::size_t i = 0; i < at.size(); ++i)
          at[i] = c->to.start[i] + at[i] * (e->put.stride.empty() ? 1 : e->put.stride[i]);
        values[at] = element > 0               ? bytes.subspan(offset * element, element)
                     : offset < strings.size() ? strings[offset]
                                               : std::span<const std::byte>();
      });
    }
    return values;
  };
  const auto values = image(a, of_a), others = image(b, of_b);
  if (values.size() != others.size() && !resumed_) return false;
  std::size_t met = 0;
  for (const auto& [at, value] : values) {
    const auto it = others.find(at);
    if (it == others.end()) continue;
    ++met;
    if (!std::ranges::equal(value, it->second)) return false;
  }
  return resumed_ || met == values.size();
}

Result<void> Merge::compare() const {
  std::vector<OfVariable> entries;
  for (const auto& s : strands_) entries.push_back(compared_entries(s));
  static const std::vector<const Entry*> none;
  const auto of = [&](std::size_t tile, std::size_t variable) -> const std::vector<const Entry*>& {
    const auto it = entries[tile].find(static_cast<std::uint32_t>(variable));
    return it == entries[tile].end() ? none : it->second;
  };
  for (std::size_t v = 0; v < parts_.size(); ++v) {
    std::size_t owner = 0;
    for (const auto& [tile, role] : parts_[v]) {
      if (role == Role::owner) owner = tile;
      if (role == Role::owner || agree(owner, tile, of(owner, v), of(tile, v))) continue;
      return Error{Code::invalid,
                   strands_[owner].path + " and " + strands_[tile].path + " disagree about " +
                       whole_.schema.variables[v].name + ", which is neither's own",
                   0};
    }
  }
  return {};
}

Result<std::optional<Merge::Round>> Merge::end_round() {
  if (!planned_ || stale_ || !complete()) return std::optional<Round>();
  ADVECTIO_TRY(same_rounds());
  ADVECTIO_TRY(compare());
  Round round;
  round.number = round_ + 1;
  for (const auto& s : strands_) {
    const auto* end = end_of_round(s);
    if (end == nullptr) continue;
    round.frame = std::max(round.frame, end->sync.frame);
    round.stall_ns = std::max(round.stall_ns, end->sync.stall_ns);
    round.synced_ns = std::max(round.synced_ns, end->record.time_ns);
  }
  return std::optional(round);
}

void Merge::committed() {
  ++round_;
  resumed_ = resumed_ && round_ <= resumed_until_;
  copies_.clear();
  copied_bytes_ = 0;
  for (auto& s : strands_) shed(s);
}

/// Let it not depend on the segment any more.
void Merge::keep(Entry& e) {
  if (e.kept) return;
  e.copy.assign(e.record.meta.begin(), e.record.meta.end());
  e.copy.insert(e.copy.end(), e.record.payload.begin(), e.record.payload.end());
  const auto meta = e.record.meta.size();
  e.record.meta = std::span<const std::byte>(e.copy).first(meta);
  e.record.payload = std::span<const std::byte>(e.copy).subspan(meta);
  e.kept = true;
}

void Merge::committed_part() {
  for (auto& s : strands_) {
    std::deque<Entry> left;
    for (; s.given > 0; --s.given) {
      auto& e = s.entries.front();
      // What is still to be compared with other tiles' is little, and stays.
      const bool compared = e.record.type == RecordType::put && !parts_[e.put.variable].empty();
      if (compared || ends_round(e.record) || e.record.type == RecordType::abort) {
        keep(e);
        left.push_back(std::move(e));
      }
      s.entries.pop_front();
    }
    s.given = left.size();
    s.entries.insert(s.entries.begin(), std::move_iterator(left.begin()), std::move_iterator(left.end()));
  }
  copies_.clear();
  copied_bytes_ = 0;
}

bool Merge::is_ahead() const {
  return resumed_ || std::any_of(strands_.begin(), strands_.end(), [](const Strand& s) { return s.given > 0; });
}

bool Merge::holds_any() const {
  return std::any_of(strands_.begin(), strands_.end(), [](const Strand& s) {
    return std::any_of(s.entries.begin(), s.entries.end(),
                       [](const Entry& e) { return !e.kept && e.record.type == RecordType::put; });
  });
}

bool Merge::all_over() const {
  return std::all_of(strands_.begin(), strands_.end(), [](const Strand& s) { return s.over(); });
}

bool Merge::all_closed() const {
  return std::all_of(strands_.begin(), strands_.end(),
                     [this](const Strand& s) { return s.closed && s.ended <= round_; });
}

std::uint64_t Merge::visible(std::size_t tile) const {
  const auto& s = strands_[tile];
  return s.given < s.entries.size() ? s.entries[s.given].record.sequence - 1 : s.seen;
}

}  // namespace advectio
