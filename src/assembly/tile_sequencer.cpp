#include "assembly/tile_sequencer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/tile_ways.h"

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

bool TileSequencer::ends_sync(const Record& r) noexcept {
  return r.type == RecordType::close || (r.type == RecordType::sync && (r.flags & journal::flag_implicit) == 0);
}

// ---- records in ----

std::size_t TileSequencer::add(std::string path) {
  queues_.emplace_back().path = std::move(path);
  return queues_.size() - 1;
}

bool TileSequencer::has(const std::string& path) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const TileQueue& s) { return s.path == path; });
}

void TileSequencer::resume(journal::SyncIndex committed, bool partly) {
  sync_index_ = number(committed);
  begun_ = stale_ = true;
  resumed_ = partly;
}

void TileSequencer::resume(std::size_t tile, std::uint64_t sequence, journal::SyncIndex sync_index,
                           std::optional<Schema> schema, bool closed) {
  auto& s = queues_[tile];
  s.seen = sequence;
  s.base = s.ended = number(sync_index);
  resumed_until_ = std::max(resumed_until_, s.base);
  s.schema = std::move(schema);
  s.closed = closed;
}

Result<void> TileSequencer::take(std::size_t tile, const Record& record) {
  auto& s = queues_[tile];
  if (record.sequence <= s.seen) return {};
  s.seen = record.sequence;
  Entry entry;
  entry.record = record;
  switch (record.type) {
    case RecordType::put: {
      auto put = journal::decode_put(record.meta);
      if (!put) return std::move(put).error();
      if (put->boxes > 0) return Error{Code::unsupported, "a tile has put many boxes at once", 0};
      entry.put = std::move(put).value();
      break;
    }
    case RecordType::sync:
    case RecordType::close: {
      if (!ends_sync(record)) return {};  // a reader's
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
  if (ends_sync(record)) {
    ++s.ended;
    s.closed = s.closed || record.type == RecordType::close;
    if (s.base < sync_index_) ADVECTIO_TRY(apply_schemas(false));
    shed(s);
  }
  return {};
}

void TileSequencer::gone(std::size_t tile) {
  queues_[tile].gone = true;
}

/// What belongs to syncs that are committed.
void TileSequencer::shed(TileQueue& s) {
  while (s.base < sync_index_) {
    const auto end =
        std::find_if(s.entries.begin(), s.entries.end(), [](const Entry& e) { return ends_sync(e.record); });
    if (end == s.entries.end()) return;
    const auto count = static_cast<std::size_t>(end - s.entries.begin()) + 1;
    if (s.given >= count && s.ends_given > 0) --s.ends_given;
    s.given -= std::min(s.given, count);
    s.entries.erase(s.entries.begin(), end + 1);
    ++s.base;
  }
}

// ---- the plan ----

bool TileSequencer::complete() const {
  bool any = false;
  for (const auto& s : queues_) {
    if (s.ended <= sync_index_ && !s.closed) return false;
    any = any || s.ended > sync_index_;
  }
  return any;
}

/// Schemas count from the sync in which they were told.
Result<void> TileSequencer::apply_schemas(bool now) {
  for (auto& s : queues_) {
    auto sync_index = s.base;
    for (auto& e : s.entries) {
      if (sync_index > sync_index_ && !now) break;
      if (ends_sync(e.record)) ++sync_index;
      if (e.record.type != RecordType::schema || e.applied) continue;
      ADVECTIO_TRY(journal::verify_payload(e.record));
      auto schema = decode_schema(e.record.payload);
      if (!schema) return std::move(schema).error();
      if (s.schema != *schema) {
        stale_ = s.schema_changed = true;
        s.placement.reset();
        s.schema = std::move(schema).value();
      }
      e.applied = true;
    }
  }
  return {};
}

bool TileSequencer::covers() const {
  const auto& total = queues_.front().placement->total;
  if (total == queues_.size()) return true;
  // The sum of what tiles own says nothing if neighbours share edges, or no tile knows the whole.
  if (way_of(queues_.front().placement->kind).shares_edges) {
    auto tiles = tiles_of_all();
    return !total && join_tiles(tiles).ok();
  }
  std::uint64_t own = 0, whole = 1;
  for (const auto& s : queues_) {
    own += s.share.own;
    whole = s.share.whole;
  }
  return own >= whole;
}

std::vector<Tile> TileSequencer::tiles_of_all() const {
  std::vector<Tile> tiles;
  for (const auto& s : queues_) tiles.push_back({s.path, *s.schema, *s.placement});
  return tiles;
}

Result<void> TileSequencer::make_plan() {
  auto tiles = tiles_of_all();
  auto joined = join_tiles(tiles);
  if (!joined) return std::move(joined).error();
  std::map<std::string, std::size_t> numbers;
  for (std::size_t t = 0; t < queues_.size(); ++t) numbers[queues_[t].path] = t;
  for (auto& t : tiles) queues_[numbers.at(t.name)].settled = std::move(t.placement.spans);
  whole_ = std::move(joined).value();
  first_ = numbers.at(tiles.front().name);
  roles_.assign(whole_.pieces.size(), std::vector<Role>(queues_.size(), Role::none));
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
  stale_ = handed_out_ = false;
  return {};
}

Result<bool> TileSequencer::plan(bool now) {
  if (!now && !complete()) return planned_;
  ADVECTIO_TRY(apply_schemas(now));
  if (planned_ && !stale_) return true;
  for (auto& s : queues_) {
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

std::string TileSequencer::why_not() {
  std::vector<Tile> tiles;
  if (auto applied = apply_schemas(true); !applied) return applied.error().message;
  for (const auto& s : queues_) {
    if (s.ended == 0 && s.gone) return s.path + " was never synced or closed";
    if (!s.schema) return s.path + " has no definitions yet";
    auto placement = placement_of(*s.schema);
    if (placement && *placement) tiles.push_back({s.path, *s.schema, std::move(**placement)});
  }
  const auto joined = join_tiles(tiles);
  return joined ? "not all tiles have been synced" : joined.error().message;
}

const Schema* TileSequencer::new_schema(std::size_t tile) {
  auto& s = queues_[tile];
  return std::exchange(s.schema_changed, false) ? &*s.schema : nullptr;
}

const Schema* TileSequencer::changed() {
  if (handed_out_) return nullptr;
  handed_out_ = true;
  return &whole_.schema;
}

// ---- blocks out ----

Result<void> TileSequencer::fits(const Entry& e) const {
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

std::optional<TileSequencer::Cut> TileSequencer::cut(const TileQueue& s, const Entry& e) const {
  const auto& box = e.put.box;
  const auto& dimensions = whole_.schema.variables[e.put.variable].dimensions;
  Cut c{own_box(box), box};
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto& span = s.settled[dimensions[i]];
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

std::span<const std::byte> TileSequencer::bytes_of(const Entry& e, const Cut& c,
                                                   std::deque<std::shared_ptr<Bytes>>& copies) const {
  const auto payload = e.record.payload;
  const auto whole = own_box(e.put.box);
  if (c.part == whole) return payload;
  const auto element = size_of(whole_.schema.variables[e.put.variable].type);
  if (element > 0 && is_contiguous(c.part, whole))
    return payload.subspan(offset_in(c.part, whole) * element, c.part.volume() * element);
  auto& copy = *copies.emplace_back(std::make_shared<Bytes>());
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

Result<std::optional<Block>> TileSequencer::next_block(std::size_t tile, bool now) {
  auto& s = queues_[tile];
  if (!planned_ || stale_) return std::optional<Block>();
  for (; s.given < s.entries.size(); ++s.given) {
    const auto& e = s.entries[s.given];
    if (!now && s.past() > sync_index_) break;
    if (ends_sync(e.record)) {
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
    std::deque<std::shared_ptr<Bytes>> copies;
    const auto bytes = bytes_of(e, *c, copies);
    if (!copies.empty()) copied_bytes_ += bytes.size();
    ++s.given;
    const Lease lease = copies.empty() ? e.record.lease : Lease(copies.front());
    return std::optional(Block{e.put.variable, c->to, e.put.stride, bytes.data(), bytes.size(), lease});
  }
  return std::optional<Block>();
}

// ---- syncs ----

/// The sync (or close) by which a tile ends the sync under way.
const TileSequencer::Entry* TileSequencer::end_of_sync(const TileQueue& s) const {
  if (s.base > sync_index_) return nullptr;
  const auto end = std::find_if(s.entries.begin(), s.entries.end(), [](const Entry& e) { return ends_sync(e.record); });
  return end == s.entries.end() ? nullptr : &*end;
}

/// A tile that was closed before: the others may close now, but not put.
Result<void> TileSequencer::same_syncs() const {
  for (const auto& s : queues_) {
    if (s.ended > sync_index_) continue;
    for (const auto& other : queues_) {
      const auto* end = end_of_sync(other);
      if (end != nullptr && end->sync.frame > 0)
        return Error{
            Code::invalid,
            s.path + " was closed after " + std::to_string(s.ended) + " syncs, and " + other.path + " has put more", 0};
    }
  }
  return {};
}

TileSequencer::OfVariable TileSequencer::compared_entries(const TileQueue& s) const {
  OfVariable found;
  if (s.base > sync_index_) return found;
  for (const auto& e : s.entries) {
    if (ends_sync(e.record)) break;
    if (e.record.type == RecordType::put && !parts_[e.put.variable].empty()) found[e.put.variable].push_back(&e);
  }
  return found;
}

/// Have two tiles put the same? As a rule by the same calls; where not, element by element, of each the last value.
bool TileSequencer::agree(std::size_t a, std::size_t b, const std::vector<const Entry*>& of_a,
                          const std::vector<const Entry*>& of_b) const {
  std::deque<std::shared_ptr<Bytes>> copies;
  const auto same = [&](const Entry* x, const Entry* y) {
    const auto p = cut(queues_[a], *x), q = cut(queues_[b], *y);
    if (!p || !q) return !p && !q;
    return p->to == q->to && x->put.stride == y->put.stride &&
           std::ranges::equal(bytes_of(*x, *p, copies), bytes_of(*y, *q, copies));
  };
  if (std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), same)) return true;
  using Image = std::map<std::vector<std::uint64_t>, std::span<const std::byte>>;
  const auto image = [&](std::size_t tile, const std::vector<const Entry*>& entries) {
    Image values;
    for (const auto* e : entries) {
      const auto c = cut(queues_[tile], *e);
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

Result<void> TileSequencer::compare() const {
  std::vector<OfVariable> entries;
  for (const auto& s : queues_) entries.push_back(compared_entries(s));
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
                   queues_[owner].path + " and " + queues_[tile].path + " disagree about " +
                       whole_.schema.variables[v].name + ", which is neither's own",
                   0};
    }
  }
  return {};
}

Result<std::optional<TileSequencer::CommonSync>> TileSequencer::end_sync() {
  if (!planned_ || stale_ || !complete()) return std::optional<CommonSync>();
  ADVECTIO_TRY(same_syncs());
  ADVECTIO_TRY(compare());
  CommonSync end_of_all;
  end_of_all.index = journal::SyncIndex{sync_index_ + 1};
  for (const auto& s : queues_) {
    const auto* end = end_of_sync(s);
    if (end == nullptr) continue;
    end_of_all.frame = std::max(end_of_all.frame, end->sync.frame);
    end_of_all.stall_ns = std::max(end_of_all.stall_ns, end->sync.stall_ns);
    end_of_all.synced_ns = std::max(end_of_all.synced_ns, end->record.time_ns);
  }
  return std::optional(end_of_all);
}

void TileSequencer::committed() {
  ++sync_index_;
  resumed_ = resumed_ && sync_index_ <= resumed_until_;
  copied_bytes_ = 0;
  for (auto& s : queues_) shed(s);
}

/// Let it not depend on the segment any more.
void TileSequencer::keep(Entry& e) {
  if (e.kept) return;
  const auto copy = std::make_shared<Bytes>(e.record.meta.begin(), e.record.meta.end());
  copy->insert(copy->end(), e.record.payload.begin(), e.record.payload.end());
  const auto meta = e.record.meta.size();
  e.record.meta = std::span<const std::byte>(*copy).first(meta);
  e.record.payload = std::span<const std::byte>(*copy).subspan(meta);
  e.record.lease = copy;
  e.kept = true;
}

void TileSequencer::committed_part() {
  for (auto& s : queues_) {
    std::deque<Entry> left;
    for (; s.given > 0; --s.given) {
      auto& e = s.entries.front();
      // What is still to be compared with other tiles' is little, and stays.
      const bool compared = e.record.type == RecordType::put && !parts_[e.put.variable].empty();
      if (compared || ends_sync(e.record) || e.record.type == RecordType::abort) {
        keep(e);
        left.push_back(std::move(e));
      }
      s.entries.pop_front();
    }
    s.given = left.size();
    s.entries.insert(s.entries.begin(), std::move_iterator(left.begin()), std::move_iterator(left.end()));
  }
  copied_bytes_ = 0;
}

bool TileSequencer::is_ahead() const {
  return resumed_ || std::any_of(queues_.begin(), queues_.end(), [](const TileQueue& s) { return s.given > 0; });
}

bool TileSequencer::holds_any() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const TileQueue& s) {
    return std::any_of(s.entries.begin(), s.entries.end(),
                       [](const Entry& e) { return !e.kept && e.record.type == RecordType::put; });
  });
}

bool TileSequencer::all_over() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const TileQueue& s) { return s.over(); });
}

bool TileSequencer::all_closed() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [this](const TileQueue& s) { return s.closed && s.ended <= sync_index_; });
}

std::uint64_t TileSequencer::given(std::size_t tile) const {
  const auto& s = queues_[tile];
  return s.given < s.entries.size() ? s.entries[s.given].record.sequence - 1 : s.seen;
}

}  // namespace advectio
