#include "cluster/relay.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cluster/messages.h"
#include "cluster/shared_states.h"
#include "journal/hard_link.h"

namespace advectio {

using journal::DatasetState;
using journal::monotonic_ns;
using journal::SharedState;
using Lane = Transport::Lane;

namespace {

constexpr std::uint64_t tell_every_ns = 2'000'000;
constexpr std::uint64_t request_space_every_ns = 50'000'000;
constexpr std::uint64_t requested_recently_ns = 200'000'000;

}  // namespace

Relay::Relay(const journal::Stage& stage, Transport& transport, RemoteEncoder* remote_encoder, Log& log)
    : stage_(stage),
      transport_(transport),
      remote_encoder_(remote_encoder),
      log_(log),
      outbox_(transport),
      questions_(stage, outbox_, nodes() - 1, log) {
  quiet_.resize(nodes());
  final_.resize(nodes());
  clean_.resize(nodes());
  snapshots_.resize(nodes());
  if (remote_encoder_ != nullptr)
    remote_encoder_->connect([this](const RemoteEncoder::Letter& l) {
      outbox_.push({l.to, Lane::help, l.kind, {}, l.message->span(), 0, 0, l.message});
    });
  thread_ = std::thread([this] { work(); });
}

Relay::~Relay() {
  outbox_.close();
  thread_.join();
  if (remote_encoder_ != nullptr) remote_encoder_->disconnect();
}

void Relay::ring() const noexcept {
  journal::ring(stage_.control().work);
}

// ---- of datasets that another node owns ----

void Relay::announce(const DatasetId& id, const SharedState& shared_state) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(static_cast<std::uint32_t>(shared_state.format));
  out.number(shared_state.writers);
  out.number(shared_state.owner);
  out.number(shared_state.created_ns);
  out.text(shared_state.path);
  out.text(shared_state.link);
  if (auto own = stage_.open_state(id.shared_state); own && is_of(**own, id)) {
    Followed f{std::move(own).value(), {}};
    if (auto slots = stage_.open_slots(id.shared_state, shared_state.writers); slots && shared_state.writers > 0)
      f.slots = std::move(slots).value();
    const std::lock_guard guard(mutex_);
    followed_[id] = std::move(f);
  }
  outbox_.push({shared_state.owner - 1, Lane::journals, announce_kind, std::move(bytes), {}});
}

void Relay::send_slot(const DatasetId& id, const SharedState& shared_state, std::uint32_t writer,
                      const SlotState& slot) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(shared_state.synced.load(std::memory_order_acquire));
  out.number(shared_state.frames_synced.load(std::memory_order_acquire));
  out.number(shared_state.frames_dropped.load(std::memory_order_acquire));
  out.number(shared_state.closed.load(std::memory_order_acquire));
  out.number(writer);
  put(out, slot);
  auto& said = sent_states_[{id, writer}];
  if (said == bytes) return;
  said = bytes;
  outbox_.push({shared_state.owner - 1, Lane::journals, tell_kind, std::move(bytes), {}});
}

void Relay::send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
                 const journal::Record& record) {
  auto [at, fresh] = numbers_.try_emplace({owner, writer.journal}, 0);
  if (fresh) {
    auto& free = free_numbers_[owner];
    if (free.empty()) {
      at->second = first_writer_kind + next_number_[owner]++;
    } else {
      at->second = free.back();
      free.pop_back();
    }
    Bytes bytes;
    Encoder out(bytes);
    out.number(at->second);
    out.text(journal_name);
    out.raw(&writer, sizeof writer);
    outbox_.push({owner, Lane::journals, writer_kind, std::move(bytes), {}});
  }
  outbox_.push({owner, Lane::journals, at->second, {}, record.whole, writer.journal, record.sequence});
}

void Relay::farewell(const DatasetId& id, unsigned owner) {
  for (auto it = sent_states_.lower_bound({id, 0}); it != sent_states_.end() && it->first.first == id;)
    it = sent_states_.erase(it);
  {
    const std::lock_guard guard(mutex_);
    followed_.erase(id);
  }
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  outbox_.push({owner, Lane::words, farewell_kind, std::move(bytes), {}});
}

void Relay::writer_gone(std::uint64_t journal) {
  for (auto it = numbers_.begin(); it != numbers_.end();) {
    if (it->first.second != journal) {
      ++it;
      continue;
    }
    Bytes bytes;
    Encoder out(bytes);
    out.number(it->second);
    outbox_.push({it->first.first, Lane::journals, gone_kind, std::move(bytes), {}});
    free_numbers_[it->first.first].push_back(it->second);
    it = numbers_.erase(it);
  }
}

void Relay::request_space() {
  const auto now = monotonic_ns();
  if (now - request_space_ns_ < request_space_every_ns) return;
  request_space_ns_ = now;
  outbox_.push_to_all(Lane::words, request_space_kind, {});
}

// ---- of files that are not known here ----

void Relay::ask(const std::string& question) {
  questions_.ask(question);
}

// ---- of datasets that this node owns ----

void Relay::ended(const DatasetId& id, DatasetState state) {
  const std::lock_guard guard(mutex_);
  ended_[id] = state;
  if (const auto it = owned_.find(id); it == owned_.end() || it->second.nodes.empty()) forget(id);
}

/// Called with the mutex held.
void Relay::forget(const DatasetId& id) {
  owned_.erase(id);
  const auto shared_state = stage_.open_state(id.shared_state);
  if (ended_.find(id) == ended_.end()) {
    // It ended before this server began, and which nodes have not been told yet nobody remembers. One of them may still
    // announce it, now or after another restart: without a shared state it would be taken for a new one, of which
    // nothing is in its file.
    ended_[id] = shared_state && is_of(**shared_state, id) ? static_cast<DatasetState>((*shared_state)->state.load())
                                                           : DatasetState::finished;
    journal::ring(stage_.control().progress);
    return;
  }
  // Where its hard link could not be removed the shared state is what the next server knows it by.
  if (!shared_state || !journal::is_hard_link((*shared_state)->link) || !stage_.files().exists((*shared_state)->link))
    stage_.remove_dataset(id.shared_state, id.journal, id.number);
  journal::ring(stage_.control().progress);
}

bool Relay::space_requested() const noexcept {
  return space_requested_ns_.load() + requested_recently_ns > monotonic_ns();
}

// ---- the end ----

void Relay::drain() {
  if (!drain_wanted_.exchange(true)) outbox_.push_to_all(Lane::words, drain_kind, {});
}

void Relay::quiet() {
  {
    const std::lock_guard guard(mutex_);
    if (quiet_[node()]) return;
    quiet_[node()] = true;
  }
  outbox_.push_to_all(Lane::journals, quiet_kind, {});
}

bool Relay::is_quiet() const {
  const std::lock_guard guard(mutex_);
  return quiet_[node()];
}

bool Relay::all_quiet() const {
  const std::lock_guard guard(mutex_);
  return std::find(quiet_.begin(), quiet_.end(), false) == quiet_.end();
}

void Relay::final(bool clean, const std::string& status) {
  {
    const std::lock_guard guard(mutex_);
    if (final_[node()]) return;
    final_[node()] = true;
    clean_[node()] = clean;
    // It may try again what has failed, and the others may end meanwhile.
    if (remote_encoder_ != nullptr) remote_encoder_->ask_no_more();
    (void)send_news();
  }
  Bytes bytes;
  Encoder out(bytes);
  out.number(static_cast<std::uint8_t>(clean));
  out.text(status);
  outbox_.push_to_all(Lane::words, final_kind, bytes);
}

bool Relay::all_final() const {
  const std::lock_guard guard(mutex_);
  return std::find(final_.begin(), final_.end(), false) == final_.end();
}

bool Relay::all_clean() const {
  const std::lock_guard guard(mutex_);
  return std::find(clean_.begin(), clean_.end(), false) == clean_.end();
}

// ---- status ----

void Relay::snapshot(const std::string& status) {
  Bytes bytes;
  Encoder(bytes).text(status);
  outbox_.push({0, Lane::words, snapshot_kind, std::move(bytes), {}});
}

std::vector<std::string> Relay::snapshots() const {
  const std::lock_guard guard(mutex_);
  return snapshots_;
}

// ---- the thread ----

void Relay::work() {
  unsigned idle_passes = 0;
  for (;;) {
    bool moved = outbox_.send();
    moved = take_arrivals() || moved;
    moved = send_progress() || moved;
    questions_.answer();
    idle_passes = moved ? 0 : idle_passes + 1;
    // Messages from others ring no bell: look for them, less and less often.
    if (!outbox_.wait(std::chrono::microseconds(moved ? 0 : idle_passes < 50 ? 50 : 1000))) break;
  }
  // Whoever waits for what it has asked this node does it itself. Too short to wait for anybody.
  if (remote_encoder_ != nullptr)
    for (const auto& l : remote_encoder_->goodbye()) transport_.send(l.to, Lane::help, l.kind, l.message->span(), 0);
}

bool Relay::take_arrivals() {
  bool moved = false;
  while (const auto word = transport_.arrived(Lane::words)) {
    Bytes bytes(word->bytes);
    transport_.receive(*word, bytes.data());
    take_word(*word, bytes);
    moved = true;
  }
  while (const auto arrival = transport_.arrived(Lane::help)) {
    Message message;
    message.buffer.reserve(arrival->bytes);
    message.bytes = arrival->bytes;
    transport_.receive(*arrival, message.buffer.data());
    if (remote_encoder_ != nullptr) remote_encoder_->take(arrival->from, arrival->kind, std::move(message));
    moved = true;
  }
  // Who had room last has it last.
  for (unsigned n = 1, last = served_; n <= nodes(); ++n) {
    const auto from = (last + n) % nodes();
    auto& held = held_back_[from];
    while (!held.empty() && take_from_journals(held.front())) {
      held.pop_front();
      served_ = from;
      moved = true;
    }
  }
  for (int n = 0; n < 256; ++n) {
    const auto arrival = transport_.arrived(Lane::journals);
    if (!arrival) break;
    auto& held = held_back_[arrival->from];
    if (held.empty() && take_from_journals(*arrival)) {
      moved = true;
      continue;
    }
    held.push_back(*arrival);
  }
  held_up_ = std::any_of(held_back_.begin(), held_back_.end(), [](const auto& held) { return !held.second.empty(); });
  return moved;
}

/// False: there is no room for it yet.
bool Relay::take_from_journals(const Transport::Arrival& arrival) {
  if (arrival.kind >= first_writer_kind) {
    const auto& mirror = mirrors_[{arrival.from, arrival.kind}];
    if (!mirror) {
      // Its journal could not be made, which has been said. The records stay where they come from.
      Bytes thrown_away(arrival.bytes);
      transport_.receive(arrival, thrown_away.data());
      return true;
    }
    auto* const to = mirror->room(arrival.bytes, mappings_);
    if (to == nullptr) {
      // What others hold half used can be given back sooner.
      for (auto& [key, other] : mirrors_)
        if (other) other->seal();
      // Before the server's loop can hear of it: it takes other measures where nothing is held up.
      held_up_ = true;
      stage_.control().starved_ns.store(monotonic_ns(), std::memory_order_relaxed);
      ring();
      return false;
    }
    if (held_up_) stage_.control().relieved_ns.store(monotonic_ns(), std::memory_order_relaxed);
    transport_.receive(arrival, to);
    journal::RecordHeader header;
    std::memcpy(&header, to, sizeof header);
    mirror->publish(arrival.bytes, header.sequence);
    // Its process may have nothing more to say for long.
    const auto type = static_cast<journal::RecordType>(header.type);
    if (type == journal::RecordType::close) mirror->seal();
    if (type != journal::RecordType::put || arrival.bytes >= (1U << 20U)) ring();
    return true;
  }
  Bytes bytes(arrival.bytes);
  transport_.receive(arrival, bytes.data());
  Decoder in(bytes);
  switch (arrival.kind) {
    case announce_kind: on_announce(arrival.from, in); break;
    case tell_kind: on_tell(in); break;
    case writer_kind: {
      const auto number = in.number<int>();
      const auto name = in.text();
      journal::WriterState shared_state;
      if (bytes.size() - in.position() != sizeof shared_state) break;
      std::memcpy(&shared_state, bytes.data() + in.position(), sizeof shared_state);
      auto mirror = journal::Mirror::open(stage_, transport_.name(arrival.from), name, shared_state);
      if (mirror)
        mirrors_[{arrival.from, number}] = std::move(mirror).value();
      else
        miss("a mirror of " + name + " on " + transport_.name(arrival.from), mirror.error());
      break;
    }
    case gone_kind: mirrors_.erase({arrival.from, in.number<int>()}); break;
    case quiet_kind: {
      const std::lock_guard guard(mutex_);
      quiet_[arrival.from] = true;
      break;
    }
    default: log_.error("a message of unknown kind from " + transport_.name(arrival.from));
  }
  ring();
  return true;
}

void Relay::take_word(const Transport::Arrival& word, const Bytes& bytes) {
  Decoder in(bytes);
  switch (word.kind) {
    case progress_kind: on_progress(in); break;
    case farewell_kind: on_farewell(word.from, take_id(in)); break;
    case request_space_kind: space_requested_ns_ = monotonic_ns(); break;
    case drain_kind: drain_wanted_ = true; break;
    case question_kind: questions_.on_question(word.from, in); break;
    case answer_kind: questions_.on_answer(in); break;
    case final_kind: {
      const bool clean = in.number<std::uint8_t>() != 0;
      auto status = in.text();
      const std::lock_guard guard(mutex_);
      final_[word.from] = true;
      clean_[word.from] = clean;
      snapshots_[word.from] = std::move(status);
      break;
    }
    case snapshot_kind: {
      auto status = in.text();
      const std::lock_guard guard(mutex_);
      snapshots_[word.from] = std::move(status);
      return;  // nobody waits for it
    }
    default: log_.error("a word of unknown kind from " + transport_.name(word.from));
  }
  ring();
}

/// Another node has part in a dataset that is to be written here.
void Relay::on_announce(unsigned from, Decoder& in) {
  const auto id = take_id(in);
  const auto format = static_cast<FileFormat>(in.number<std::uint32_t>());
  const auto writers = in.number<std::uint32_t>();
  const auto owner = in.number<std::uint32_t>();
  const auto created_ns = in.number<std::uint64_t>();
  const auto path = in.text();
  const auto link = in.text();
  const std::lock_guard guard(mutex_);
  auto ended = ended_.find(id);
  // One that came later has the name: this one is over, and has been for longer than this server lives.
  if (auto shared_state = stage_.open_state(id.shared_state);
      ended == ended_.end() && shared_state && !is_of(**shared_state, id) && (*shared_state)->created_ns > created_ns)
    ended = ended_.emplace(id, DatasetState::finished).first;
  if (ended != ended_.end()) {
    // It was over before that node came: an abort.
    Bytes answer;
    Encoder out(answer);
    put(out, id);
    out.number(static_cast<std::uint32_t>(ended->second));
    outbox_.push({from, Lane::words, progress_kind, std::move(answer), {}});
    return;
  }
  Owned& o = owned_[id];
  o.nodes.insert(from);
  o.sent_state.clear();
  o.writers = writers;
  if (auto shared_state = stage_.open_state(id.shared_state); shared_state && is_of(**shared_state, id)) {
    o.shared_state = std::move(shared_state).value();  // what it takes to make another there may be no room for
    if (auto slots = stage_.open_slots(id.shared_state, writers); slots && writers > 0)
      o.slots = std::move(slots).value();
    return;
  }
  auto made = stage_.make_dataset(id.shared_state, [&](SharedState& p) {
    p.format = format;
    p.journal = id.journal;
    p.number = id.number;
    p.writers = writers;
    p.owner = owner;
    p.created_ns = created_ns;
    std::memcpy(p.path, path.c_str(), std::min(path.size() + 1, sizeof p.path));
    std::memcpy(p.link, link.c_str(), std::min(link.size() + 1, sizeof p.link));
  });
  if (!made) return miss(path + ": a page for it", made.error());
  o.shared_state = std::move(made->shared_state);
  o.slots = std::move(made->slots);
}

void Relay::miss(const std::string& what, const Error& why) {
  missed_ = true;
  log_.error(what + ": " + why.message + "; what is staged of it on the other node stays there");
}

void Relay::on_tell(Decoder& in) {
  const auto id = take_id(in);
  const auto synced = in.number<std::uint64_t>();
  const auto frames = in.number<std::uint64_t>();
  const auto dropped = in.number<std::uint64_t>();
  const auto closed = in.number<std::uint32_t>();
  const auto writer = in.number<std::uint32_t>();
  const auto slot = take_slot(in);
  const std::lock_guard guard(mutex_);
  const auto it = owned_.find(id);
  if (it == owned_.end() || !it->second.shared_state) return;
  auto& shared_state = *it->second.shared_state;
  raise(shared_state.synced, synced);
  raise(shared_state.frames_synced, frames);
  raise(shared_state.frames_dropped, dropped);
  // Of several writers each says it for itself.
  if (it->second.writers == 0) raise(shared_state.closed, closed);
  if (writer < it->second.writers) store(it->second.slots[writer], slot);
}

bool Relay::send_progress() {
  const auto now = monotonic_ns();
  if (now - sent_ns_ < tell_every_ns) return false;
  sent_ns_ = now;
  const std::lock_guard guard(mutex_);
  return send_news();
}

/// Called with the mutex held.
bool Relay::send_news() {
  bool moved = false;
  for (auto& [id, o] : owned_) {
    if (!o.shared_state) continue;
    Bytes bytes;
    Encoder out(bytes);
    put(out, id);
    const auto& p = *o.shared_state;
    // The state first: what was true before it is told with it or before it.
    out.number(p.state.load(std::memory_order_acquire));
    out.number(p.synced.load(std::memory_order_acquire));
    out.number(p.frames_synced.load(std::memory_order_acquire));
    out.number(p.closed.load(std::memory_order_acquire));
    out.number(p.visible.load(std::memory_order_acquire));
    out.number(p.durable.load(std::memory_order_acquire));
    out.number(p.waits.load(std::memory_order_acquire));
    out.number(p.frames_visible.load(std::memory_order_acquire));
    out.number(p.errors.load(std::memory_order_acquire));
    out.number(p.error_sys.load(std::memory_order_acquire));
    out.text({p.error_text, ::strnlen(p.error_text, sizeof p.error_text)});
    for (std::uint32_t w = 0; w < o.writers; ++w) {
      put(out, state_of(o.slots[w]));
      out.number(o.slots[w].visible.load(std::memory_order_acquire));
      out.number(o.slots[w].sync_index.load(std::memory_order_acquire));
      out.number(o.slots[w].read.load(std::memory_order_acquire));
    }
    if (bytes == o.sent_state) continue;
    o.sent_state = bytes;
    for (const auto n : o.nodes) outbox_.push({n, Lane::words, progress_kind, bytes, {}});
    moved = true;
  }
  return moved;
}

/// The owner's news of a dataset that this node has part in: into its shared state here, for the ranks and for the
/// server.
void Relay::on_progress(Decoder& in) {
  const auto id = take_id(in);
  const std::lock_guard guard(mutex_);
  const auto it = followed_.find(id);
  if (it == followed_.end() || over(*it->second.shared_state)) return;
  SharedState& p = *it->second.shared_state;
  const auto state = in.number<std::uint32_t>();
  const auto come_to = [&p, slots = &it->second.slots] {
    auto sum = p.visible.load() + p.durable.load() + p.waits.load();
    for (std::uint32_t w = 0; *slots && w < p.writers; ++w) sum += (*slots)[w].visible.load() + (*slots)[w].read.load();
    return sum;
  };
  const auto before = come_to();
  if (!in.at_end()) {
    raise(p.synced, in.number<std::uint64_t>());
    raise(p.frames_synced, in.number<std::uint64_t>());
    const auto closed = in.number<std::uint32_t>();
    if (p.writers == 0) raise(p.closed, closed);
    const auto visible = in.number<std::uint64_t>();
    const auto durable = in.number<std::uint64_t>();
    p.waits.store(in.number<std::uint64_t>(), std::memory_order_release);
    p.frames_visible.store(in.number<std::uint64_t>(), std::memory_order_relaxed);
    const auto errors = in.number<std::uint32_t>();
    const auto error_sys = in.number<std::int32_t>();
    const auto text = in.text();
    if (errors != p.errors.load()) {
      std::memcpy(p.error_text, text.c_str(), std::min(text.size() + 1, sizeof p.error_text));
      p.error_sys.store(error_sys, std::memory_order_release);
      p.errors.store(errors, std::memory_order_release);
    }
    auto& slots = it->second.slots;
    for (std::uint32_t w = 0; slots && w < p.writers && in.ok(); ++w) {
      auto& slot = slots[w];
      const auto sent_state = take_slot(in);
      const auto visible_w = in.number<std::uint64_t>();
      const auto sync_index = in.number<std::uint64_t>();
      const auto read = in.number<std::uint64_t>();
      if (!in.ok()) return;
      if (slot.pid == 0 && sent_state.journal != 0) store(slot, sent_state);
      slot.sync_index.store(sync_index, std::memory_order_relaxed);
      slot.read.store(read, std::memory_order_release);
      slot.visible.store(visible_w, std::memory_order_release);
    }
    p.visible.store(visible, std::memory_order_release);
    p.durable.store(durable, std::memory_order_release);
  }
  p.state.store(state, std::memory_order_release);
  // That it still cannot be written is no step forward.
  if (come_to() != before || over(p)) stage_.control().activity.fetch_add(1, std::memory_order_relaxed);
  journal::ring(stage_.control().progress);
}

void Relay::on_farewell(unsigned from, const DatasetId& id) {
  const std::lock_guard guard(mutex_);
  const auto it = owned_.find(id);
  if (it == owned_.end()) return;
  it->second.nodes.erase(from);
  if (it->second.nodes.empty()) forget(id);
}

}  // namespace advectio
