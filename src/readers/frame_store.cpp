#include "readers/frame_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "config/glob.h"

namespace advectio::readers {

using nlohmann::json;

namespace {

/// Fields without an unlimited dimension are put once, and belong to every frame. They are copied: a
/// lease would keep a whole segment for each.
constexpr std::uint64_t static_bytes_max = 64ULL << 20;

void wake(Waker waker) {
  const std::uint64_t one = 1;
  (void)!::write(waker, &one, sizeof one);
}

bool has_records(const Schema& schema, const Variable& v) {
  return std::any_of(v.dimensions.begin(), v.dimensions.end(),
                     [&](std::uint32_t d) { return schema.dimensions[d].unlimited; });
}

}  // namespace

struct FrameStore::Dataset {
  DatasetKey key;
  std::string path;
  std::uint64_t inode = 0;
  FileFormat format = FileFormat::netcdf4;
  std::map<std::uint64_t, std::uint64_t> orders;  ///< by the frame's number
  std::uint64_t visible = 0;
  std::uint64_t commit = 0;  ///< counts beginnings and ends of changes of the file
  bool over = false;
  std::uint64_t durable = 0;  ///< frames that are on the disk
  bool all_durable = false;
  std::shared_ptr<const Schema> schema;
  std::uint64_t schema_id = 0;
  std::map<std::string, std::shared_ptr<const AssembledField>> statics;  ///< by name
  std::uint64_t static_bytes = 0;
  // A file that was renamed is a dataset under each of its names.
  static constexpr std::size_t none = SIZE_MAX;
  std::size_t named_before = none, named_later = none;
};

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  const auto matches = [&patterns](const std::string& name) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return dataset_matches(p, name); });
  };
  if (matches(path)) return true;
  if (std::none_of(patterns.begin(), patterns.end(), [](const auto& p) { return p.find('/') != std::string::npos; }))
    return false;
  std::error_code gone;
  const std::filesystem::path said(path);
  const auto directory = std::filesystem::canonical(said.parent_path(), gone);
  return !gone && matches(directory / said.filename());
}

std::uint64_t LiveFrame::length(std::uint32_t dimension) const {
  std::uint64_t out = 0;
  for (const auto& [v, field] : fields) {
    const auto& dimensions = schema->variables[v].dimensions;
    const auto all = field->bounds();
    for (std::size_t i = 0; i < dimensions.size(); ++i)
      if (dimensions[i] == dimension) out = std::max(out, all.start[i] + all.count[i]);
  }
  return out;
}

const Region* LiveFrame::region_of(const std::byte* data, std::uint64_t size) const {
  auto it = std::upper_bound(regions.begin(), regions.end(), data,
                             [](const std::byte* at, const auto& region) { return at < region->begin; });
  if (it == regions.begin()) return nullptr;
  const auto& r = **--it;
  return data + size <= r.begin + r.bytes ? &r : nullptr;
}

Result<std::unique_ptr<FrameStore>> FrameStore::open(const std::string& log, std::uint64_t memory_max) {
  std::unique_ptr<FrameStore> store(new FrameStore);
  store->memory_max_ = memory_max;
  if (log.empty()) return store;
  {
    std::ifstream in(log, std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    store->take_log(all.str());
  }
  store->log_ = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (store->log_ < 0) return system_error("open " + log, errno);
  // What a server has begun to write when it died ends here.
  (void)!::write(store->log_, "\n", 1);
  return store;
}

FrameStore::~FrameStore() {
  if (log_ >= 0) ::close(log_);
}

void FrameStore::take_log(const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto x = json::parse(line, nullptr, false);
    if (!x.is_object()) continue;
    const auto number = [&x](const char* key) -> std::uint64_t {
      return x.contains(key) && x[key].is_number_unsigned() ? x[key].get<std::uint64_t>() : 0;
    };
    if (x.contains("reader") && x["reader"].is_string() && x.contains("comes") && x["comes"].is_boolean())
      count_away(x["reader"].get<std::string>(), x["comes"].get<bool>() ? 1 : -1);
    if (!x.contains("path") || !x["path"].is_string()) continue;
    const auto path = x["path"].get<std::string>();
    const DatasetKey key{number("journal"), static_cast<std::uint32_t>(number("number"))};
    const bool is_later_name = x.contains("renamed") && x["renamed"] == true;
    if (is_later_name && !by_key_.contains(key)) continue;
    auto d = is_later_name ? latest_name(by_key_.at(key)) : dataset_of(key, path, FileFormat::netcdf4);
    if (is_later_name && datasets_[d].path != path) d = add_name(d, path);
    const auto frame = number("frame");
    datasets_[d].over = false;
    datasets_[d].inode = number("inode");
    if (!datasets_[d].orders.insert({frame, places_.size() + 1}).second) continue;
    Records records;
    if (const auto r = x.find("records");
        r != x.end() && r->is_array() && r->size() == 2 && (*r)[0].is_number_unsigned() && (*r)[1].is_number_unsigned())
      records.emplace((*r)[0].get<std::uint64_t>(), (*r)[1].get<std::uint64_t>());
    places_.push_back({d, frame, records, {}});
    datasets_[d].visible = frame + 1;
  }
  // All are finished, but for those that the server takes up.
  for (auto& d : datasets_) d.over = true;
  std::erase_if(away_, [](const auto& one) { return one.second <= 0; });
  had_readers_ = !away_.empty();
}

std::size_t FrameStore::dataset_of(DatasetKey key, const std::string& path, FileFormat format) {
  auto [it, is_new] = by_key_.insert({key, datasets_.size()});
  // A dataset that is over gets no more frames: this is another one.
  if (!is_new && (datasets_[it->second].over || datasets_[it->second].path != path)) {
    it->second = datasets_.size();
    is_new = true;
  }
  if (is_new) {
    datasets_.emplace_back();
    datasets_.back().key = key;
    datasets_.back().path = path;
  }
  datasets_[it->second].format = format;
  return it->second;
}

/// The dataset under a later name. Its frames have yet to come.
std::size_t FrameStore::add_name(std::size_t dataset, const std::string& path) {
  const auto index = datasets_.size();
  auto later = datasets_[dataset];
  later.path = path;
  later.orders.clear();
  later.named_before = dataset;
  later.named_later = Dataset::none;
  datasets_.push_back(std::move(later));
  datasets_[dataset].named_later = index;
  return index;
}

std::size_t FrameStore::latest_name(std::size_t dataset) const {
  while (datasets_[dataset].named_later != Dataset::none) dataset = datasets_[dataset].named_later;
  return dataset;
}

/// A later name counts where none of those before it has matched: a reader gets a frame once.
bool FrameStore::wants(const std::vector<std::string>& match, std::size_t dataset) const {
  if (!matches_any(match, datasets_[dataset].path)) return false;
  for (auto before = datasets_[dataset].named_before; before != Dataset::none; before = datasets_[before].named_before)
    if (matches_any(match, datasets_[before].path)) return false;
  return true;
}

bool FrameStore::wants(const Subscription& s, std::size_t dataset) const {
  return wants(s.match, dataset);
}

template <typename Do>
void FrameStore::under_each_name(DatasetKey key, Do&& act) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  for (auto i = it->second; i != Dataset::none; i = datasets_[i].named_later) act(i);
}

void FrameStore::rename(DatasetKey key, const std::string& path) {
  const std::lock_guard guard(mutex_);
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;  // no frame of it is there
  const auto before = latest_name(it->second);
  for (auto i = it->second; i != Dataset::none; i = datasets_[i].named_later)
    if (datasets_[i].path == path) return;
  const auto later = add_name(before, path);
  const auto orders = datasets_[before].orders;
  for (const auto& [number, order] : orders) {
    const auto place = places_[order - 1];
    add_frame(later, number, place.records, place.live.lock());
  }
}

bool FrameStore::is_wanted(DatasetKey key) {
  const std::lock_guard guard(mutex_);
  bool wanted = false;
  under_each_name(key, [&](std::size_t i) {
    wanted = wanted || std::any_of(subscriptions_.begin(), subscriptions_.end(),
                                   [&](const auto& s) { return matches_any(s->match, datasets_[i].path); });
  });
  return wanted;
}

bool FrameStore::is_wanted(const std::string& path) {
  const std::lock_guard guard(mutex_);
  return std::any_of(subscriptions_.begin(), subscriptions_.end(),
                     [&](const auto& s) { return matches_any(s->match, path); });
}

void FrameStore::publish(DatasetKey key, const std::string& path, FileFormat format, std::uint64_t number,
                         Records records, std::shared_ptr<LiveFrame> live, std::uint64_t inode) {
  const std::lock_guard guard(mutex_);
  const auto index = dataset_of(key, path, format);
  auto& d = datasets_[index];
  d.inode = inode;
  if (live) {
    if (!d.schema || *d.schema != *live->schema) {
      schemas_.push_back(live->schema);
      d.schema = live->schema;
      d.schema_id = schemas_.size();
    }
    live->schema = d.schema;
    live->schema_id = d.schema_id;
    for (const auto& [v, field] : live->fields) {
      const auto& variable = d.schema->variables[v];
      if (has_records(*d.schema, variable) || variable.type == DataType::string) continue;
      Box all;
      for (const auto i : variable.dimensions) {
        all.start.push_back(0);
        all.count.push_back(d.schema->dimensions[i].length);
      }
      const auto bytes = all.volume() * size_of(variable.type);
      if (bytes == 0 || d.static_bytes + bytes > static_bytes_max) continue;
      auto copy = std::make_shared<Bytes>(bytes);
      const auto fill = variable.fill.size() == size_of(variable.type) ? variable.fill : default_fill(variable.type);
      for (std::uint64_t i = 0; i < bytes; i += fill.size())
        std::copy(fill.begin(), fill.end(), copy->begin() + static_cast<std::ptrdiff_t>(i));
      if (const auto before = d.statics.find(variable.name); before != d.statics.end())
        before->second->read({all}, copy->data());
      else
        d.static_bytes += bytes;
      field->read({all}, copy->data());
      auto kept = std::make_shared<AssembledField>(v, variable.type, all.rank());
      Block block;
      block.variable = v;
      block.box = all;
      block.data = copy->data();
      block.bytes = bytes;
      block.lease = copy;
      (void)kept->add(block);
      d.statics[variable.name] = std::move(kept);
    }
    for (std::uint32_t v = 0; v < d.schema->variables.size(); ++v)
      if (const auto it = d.statics.find(d.schema->variables[v].name); it != d.statics.end())
        live->fields.insert({v, it->second});
  }
  for (auto i = index; i != Dataset::none; i = datasets_[i].named_later) {
    datasets_[i].inode = inode;
    datasets_[i].schema = d.schema;
    datasets_[i].schema_id = d.schema_id;
    add_frame(i, number, records, live);
  }
  limit_memory();
}

/// A frame of the dataset under that name, and to those who have subscribed to it. Again: it has the order of before.
void FrameStore::add_frame(std::size_t dataset, std::uint64_t number, Records records,
                           const std::shared_ptr<const LiveFrame>& live) {
  auto& d = datasets_[dataset];
  const auto [it, is_new] = d.orders.insert({number, places_.size() + 1});
  const auto order = it->second;
  if (is_new) {
    append({{"order", order},
            {"frame", number},
            {"journal", d.key.journal},
            {"number", d.key.number},
            {"path", d.path},
            {"renamed", d.named_before != Dataset::none},
            {"inode", d.inode},
            {"records", records ? json{records->first, records->second} : json()}});
    places_.push_back({dataset, number, records, live});
  } else if (live) {
    places_[order - 1].live = live;
  }
  if (live) live_orders_.insert(order);
  for (const auto& s : subscriptions_) {
    if (!wants(*s, dataset)) continue;
    if (is_new) {
      enter(*s, {order, live});
    } else {
      for (auto& e : s->queue_)
        if (e.order == order && !e.live) e.live = live;
    }
    for (const auto w : s->wakers_) wake(w);
  }
}

void FrameStore::append(const json& line) {
  if (log_ < 0) return;
  const auto text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  (void)!::write(log_, text.data(), text.size());
}

void FrameStore::enter(Subscription& s, Entry entry) {
  s.queue_.push_back(std::move(entry));
  const auto most = s.policy == Policy::latest ? 1 : s.policy == Policy::drop_oldest ? s.depth : SIZE_MAX;
  while (s.queue_.size() > most) {
    s.queue_.pop_front();
    ++s.left_out_;
  }
}

void FrameStore::note_commit(DatasetKey key, bool begins) {
  const std::lock_guard guard(mutex_);
  under_each_name(key, [&](std::size_t i) {
    auto& count = datasets_[i].commit;
    count += begins == (count % 2 == 0) ? 1 : 0;
  });
}

void FrameStore::wake_who_waits_for(std::size_t dataset) {
  for (const auto& s : subscriptions_)
    if (!s->queue_.empty() && wants(*s, dataset))
      for (const auto w : s->wakers_) wake(w);
}

void FrameStore::set_visible(DatasetKey key, std::uint64_t frames) {
  const std::lock_guard guard(mutex_);
  bool changed = false;
  under_each_name(key, [&](std::size_t i) {
    if (std::exchange(datasets_[i].visible, frames) == frames) return;
    changed = true;
    wake_who_waits_for(i);
  });
  if (changed) limit_memory();
}

void FrameStore::set_durable(DatasetKey key, std::uint64_t frames, bool all) {
  const std::lock_guard guard(mutex_);
  under_each_name(key, [&](std::size_t i) {
    datasets_[i].durable = frames;
    datasets_[i].all_durable = all;
  });
}

void FrameStore::take_up(DatasetKey key, std::uint64_t visible) {
  const std::lock_guard guard(mutex_);
  under_each_name(key, [&](std::size_t i) {
    datasets_[i].over = false;
    datasets_[i].visible = visible;
  });
}

void FrameStore::set_over(DatasetKey key, std::uint64_t visible) {
  const std::lock_guard guard(mutex_);
  under_each_name(key, [&](std::size_t i) {
    auto& d = datasets_[i];
    d.over = true;
    d.visible = visible;
    d.statics.clear();
    d.static_bytes = 0;
    wake_who_waits_for(i);
  });
}

void FrameStore::end() {
  const std::lock_guard guard(mutex_);
  ended_ = true;
  for (const auto& s : subscriptions_)
    for (const auto w : s->wakers_) wake(w);
}

bool FrameStore::ended() {
  const std::lock_guard guard(mutex_);
  return ended_;
}

bool FrameStore::is_committed(std::uint64_t order) const {
  const auto& place = places_[order - 1];
  const auto& d = datasets_[place.dataset];
  return d.visible > place.number;
}

std::shared_ptr<FrameStore::Subscription> FrameStore::subscribe(const Request& request, Waker waker) {
  const std::lock_guard guard(mutex_);
  if (!request.group.empty())
    for (const auto& s : subscriptions_)
      if (s->group == request.group && s->match == request.match) {
        s->wakers_.insert(waker);
        return s;
      }
  auto s = std::make_shared<Subscription>();
  s->match = request.match;
  s->policy = request.policy;
  s->depth = request.depth;
  s->group = request.group;
  s->wakers_.insert(waker);
  std::vector<std::uint64_t> orders;
  const auto wanted = [&](std::uint64_t order) { return wants(*s, places_[order - 1].dataset); };
  if (request.after) {
    for (auto order = std::min<std::uint64_t>(*request.after, places_.size()) + 1; order <= places_.size(); ++order)
      if (wanted(order)) orders.push_back(order);
  } else {
    for (auto order = places_.size(); order > 0 && orders.size() < request.history; --order)
      if (wanted(order)) orders.push_back(order);
    std::reverse(orders.begin(), orders.end());
  }
  for (const auto order : orders) enter(*s, {order, places_[order - 1].live.lock()});
  s->left_out_ = 0;
  subscriptions_.insert(s);
  return s;
}

void FrameStore::unsubscribe(const std::shared_ptr<Subscription>& s, Waker waker) {
  const std::lock_guard guard(mutex_);
  if (const auto it = s->wakers_.find(waker); it != s->wakers_.end()) s->wakers_.erase(it);
  if (s->wakers_.empty()) subscriptions_.erase(s);
}

std::uint64_t FrameStore::before(Subscription& s) {
  const std::lock_guard guard(mutex_);
  return s.queue_.empty() ? places_.size() : s.queue_.front().order - 1;
}

TakenFrame FrameStore::taken(const Entry& entry) const {
  const auto& place = places_[entry.order - 1];
  const auto& d = datasets_[place.dataset];
  return {entry.order, place.dataset + 1, place.number, d.path, d.inode, place.records, 0, entry.live};
}

std::optional<TakenFrame> FrameStore::take(Subscription& s, bool in_memory) {
  const std::lock_guard guard(mutex_);
  while (!s.queue_.empty()) {
    auto entry = s.queue_.front();
    const bool committed = is_committed(entry.order);
    if (!committed && datasets_[places_[entry.order - 1].dataset].over) {
      // It was synced, and its file will never have it.
      s.queue_.pop_front();
      ++s.left_out_;
      continue;
    }
    if (!committed && (!entry.live || !in_memory)) return std::nullopt;
    if (!in_memory) entry.live.reset();
    s.queue_.pop_front();
    auto out = taken(entry);
    out.left_out = std::exchange(s.left_out_, 0);
    return out;
  }
  return std::nullopt;
}

void FrameStore::put_back(Subscription& s, const TakenFrame& frame) {
  const std::lock_guard guard(mutex_);
  const auto at = std::find_if(s.queue_.begin(), s.queue_.end(), [&](const Entry& e) { return e.order > frame.order; });
  s.queue_.insert(at, {frame.order, frame.live});
  for (const auto w : s.wakers_) wake(w);
}

std::size_t FrameStore::waiting(Subscription& s) {
  const std::lock_guard guard(mutex_);
  return s.queue_.size();
}

bool FrameStore::is_at_end(Subscription& s) {
  const std::lock_guard guard(mutex_);
  return ended_ && s.queue_.empty();
}

std::vector<TakenFrame> FrameStore::take_rest(Subscription& s) {
  const std::lock_guard guard(mutex_);
  std::vector<TakenFrame> out;
  for (const auto& entry : s.queue_)
    if (is_committed(entry.order)) {
      out.push_back(taken(entry));
      out.back().live.reset();
    }
  s.queue_.clear();
  return out;
}

json FrameStore::list(const std::vector<std::string>& match) {
  const std::lock_guard guard(mutex_);
  json out = json::array();
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    const auto& d = datasets_[i];
    if (match.empty() ? d.named_before != Dataset::none : !wants(match, i)) continue;
    out.push_back({{"dataset", i + 1},
                   {"path", d.path},
                   {"format", std::string(name_of(d.format))},
                   {"frames", d.orders.empty() ? 0 : d.orders.rbegin()->first + 1},
                   {"visible", d.visible},
                   {"commit", d.commit},
                   {"over", d.over},
                   {"durable", d.durable},
                   {"all_durable", d.all_durable}});
  }
  return out;
}

std::shared_ptr<const Schema> FrameStore::schema(std::uint64_t id) {
  const std::lock_guard guard(mutex_);
  return id == 0 || id > schemas_.size() ? nullptr : schemas_[id - 1];
}

void FrameStore::count_away(const std::string& name, std::int64_t more) {
  const auto it = away_.insert({name, 0}).first;
  it->second += more;
  if (it->second == 0) away_.erase(it);
}

void FrameStore::note_reader(const std::string& name, bool comes) {
  const std::lock_guard guard(mutex_);
  // The log has one that comes again.
  if (comes && away_.contains(name)) return count_away(name, -1);
  append({{"reader", name}, {"comes", comes}});
}

bool FrameStore::readers_are_back() {
  const std::lock_guard guard(mutex_);
  return away_.empty();
}

std::uint64_t FrameStore::held_now() {
  // Each frame once, however many hold it. No more of them are looked at for each frame that comes.
  constexpr int frames_max = 4096;
  while (!live_orders_.empty() && places_[*live_orders_.begin() - 1].live.expired())
    live_orders_.erase(live_orders_.begin());
  std::uint64_t sum = 0;
  int n = 0;
  for (auto order = live_orders_.rbegin(); order != live_orders_.rend() && n < frames_max; ++order, ++n)
    if (const auto live = places_[*order - 1].live.lock(); live && is_committed(*order)) sum += live->bytes;
  return sum;
}

std::uint64_t FrameStore::held_bytes() {
  const std::lock_guard guard(mutex_);
  return held_now();
}

void FrameStore::limit_memory() {
  auto held = held_now();
  if (held <= memory_max_) return;
  std::map<std::uint64_t, std::vector<Entry*>> waiting;
  for (const auto& s : subscriptions_)
    for (auto& e : s->queue_)
      if (e.live && is_committed(e.order)) waiting[e.order].push_back(&e);
  for (auto& [order, entries] : waiting) {
    for (auto* e : entries) e->live.reset();
    held = held_now();
    if (held <= memory_max_) return;
  }
}

}  // namespace advectio::readers
