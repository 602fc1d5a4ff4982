#include "server/relay.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "journal/hard_link.h"

namespace advectio {

using journal::DatasetPage;
using journal::DatasetState;
using journal::monotonic_ns;
using journal::WriterSlot;
using Lane = Neighbours::Lane;

namespace {

// What is said on the lane of journals, in the order of the records. Kinds from `first_writer` on are records
// themselves, as they are in the segment, of the writer of that number.
enum JournalKind : int { announce_kind = 1, tell_kind, writer_kind, gone_kind, quiet_kind, first_writer = 16 };
enum WordKind : int {
  progress_kind = 1,
  farewell_kind,
  plead_kind,
  drain_kind,
  final_kind,
  picture_kind,
  question_kind,
  answer_kind
};

constexpr auto journals = static_cast<std::size_t>(Lane::journals), words = static_cast<std::size_t>(Lane::words),
               help = static_cast<std::size_t>(Lane::help);
constexpr std::uint64_t under_way_max = 64ULL << 20;  // bytes to one node that are neither here nor there
constexpr std::uint64_t tell_every_ns = 2'000'000;
constexpr std::uint64_t plead_every_ns = 50'000'000;
constexpr std::uint64_t pleaded_recently_ns = 200'000'000;

void put(Encoder& out, const DatasetId& id) {
  out.text(id.page);
  out.number(id.journal);
  out.number(id.number);
}

DatasetId take_id(Decoder& in) {
  DatasetId id;
  id.page = in.text();
  id.journal = in.number<std::uint64_t>();
  id.number = in.number<std::uint32_t>();
  return id;
}

void put(Encoder& out, const SlotState& s) {
  out.raw(&s, sizeof s);
}

SlotState take_slot(Decoder& in) {
  SlotState s;
  s.journal = in.number<std::uint64_t>();
  s.turn = in.number<std::uint64_t>();
  s.owed = in.number<std::uint64_t>();
  s.steps = in.number<std::uint64_t>();
  s.number = in.number<std::uint32_t>();
  (void)in.number<std::uint32_t>();  // padding
  for (auto& t : s.step_turn) t = in.number<std::uint64_t>();
  for (auto& r : s.step_records) r = in.number<std::uint64_t>();
  return s;
}
static_assert(sizeof(SlotState) == 40 + 16 * WriterSlot::steps_kept);

/// Into the slot of a writer on another node. Its turn last: who sees that sees the rest.
void store(WriterSlot& slot, const SlotState& s) noexcept {
  slot.number = s.number;
  slot.journal.store(s.journal, std::memory_order_release);
  slot.owed.store(s.owed, std::memory_order_release);
  for (std::size_t i = 0; i < WriterSlot::steps_kept; ++i) {
    slot.step[i].turn.store(s.step_turn[i], std::memory_order_relaxed);
    slot.step[i].records.store(s.step_records[i], std::memory_order_relaxed);
  }
  slot.steps.store(s.steps, std::memory_order_release);
  slot.turn.store(s.turn, std::memory_order_release);
}

template <typename T>
void raise(std::atomic<T>& number, T value) noexcept {
  auto old = number.load(std::memory_order_relaxed);
  while (old < value && !number.compare_exchange_weak(old, value, std::memory_order_release)) {
  }
}

bool is_of(const DatasetPage& page, const DatasetId& id) noexcept {
  return page.journal == id.journal && page.number == id.number;
}

bool over(const DatasetPage& page) noexcept {
  const auto state = static_cast<DatasetState>(page.state.load(std::memory_order_acquire));
  return state == DatasetState::finished || state == DatasetState::dropped;
}

}  // namespace

SlotState state_of(const WriterSlot& slot) noexcept {
  SlotState s;
  // The turn first: what is older than it is known with it.
  s.turn = slot.turn.load(std::memory_order_acquire);
  s.owed = slot.owed.load(std::memory_order_acquire);
  s.journal = slot.journal.load(std::memory_order_acquire);
  s.number = slot.number;
  s.steps = slot.steps.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < WriterSlot::steps_kept; ++i) {
    s.step_turn[i] = slot.step[i].turn.load(std::memory_order_relaxed);
    s.step_records[i] = slot.step[i].records.load(std::memory_order_relaxed);
  }
  return s;
}

Relay::Relay(const journal::Stage& stage, Neighbours& neighbours, Helping* helping, Log& log)
    : stage_(stage), neighbours_(neighbours), helping_(helping), log_(log) {
  quiet_.resize(nodes());
  final_.resize(nodes());
  clean_.resize(nodes());
  pictures_.resize(nodes());
  if (helping_ != nullptr)
    helping_->connect([this](const Helping::Letter& l) {
      push({l.to, Lane::help, l.kind, {}, l.message->span(), 0, 0, l.message});
    });
  thread_ = std::thread([this] { work(); });
}

Relay::~Relay() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (helping_ != nullptr) helping_->disconnect();
}

void Relay::ring() const noexcept {
  journal::ring(stage_.control().work);
}

void Relay::push(Outgoing message) {
  {
    const std::lock_guard guard(mutex_);
    if (message.journal != 0) unsent_[message.journal].insert(message.sequence);
    waiting_[static_cast<std::size_t>(message.lane)].push_back(std::move(message));
  }
  wake_.notify_one();
}

void Relay::to_all(Lane lane, int kind, const Bytes& bytes) {
  for (unsigned n = 0; n < nodes(); ++n)
    if (n != node()) push({n, lane, kind, bytes, {}});
}

// ---- of datasets that another node owns ----

void Relay::announce(const DatasetId& id, const DatasetPage& page) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(static_cast<std::uint32_t>(page.format));
  out.number(page.writers);
  out.number(page.owner);
  out.number(page.created_ns);
  out.text(page.path);
  out.text(page.link);
  if (auto own = stage_.open_page(id.page); own && is_of(**own, id)) {
    Followed f{std::move(own).value(), {}};
    if (auto slots = stage_.open_slots(id.page, page.writers); slots && page.writers > 0)
      f.slots = std::move(slots).value();
    const std::lock_guard guard(mutex_);
    followed_[id] = std::move(f);
  }
  push({page.owner - 1, Lane::journals, announce_kind, std::move(bytes), {}});
}

void Relay::tell(const DatasetId& id, const DatasetPage& page, std::uint32_t writer, const SlotState& slot) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(page.synced.load(std::memory_order_acquire));
  out.number(page.frames_synced.load(std::memory_order_acquire));
  out.number(page.frames_dropped.load(std::memory_order_acquire));
  out.number(page.closed.load(std::memory_order_acquire));
  out.number(writer);
  put(out, slot);
  auto& said = said_[{id, writer}];
  if (said == bytes) return;
  said = bytes;
  push({page.owner - 1, Lane::journals, tell_kind, std::move(bytes), {}});
}

void Relay::send(unsigned owner, const std::string& journal_name, const journal::WriterPage& writer,
                 const journal::Record& record) {
  auto [at, fresh] = numbers_.try_emplace({owner, writer.journal}, 0);
  if (fresh) {
    auto& free = free_numbers_[owner];
    if (free.empty()) {
      at->second = first_writer + next_number_[owner]++;
    } else {
      at->second = free.back();
      free.pop_back();
    }
    Bytes bytes;
    Encoder out(bytes);
    out.number(at->second);
    out.text(journal_name);
    out.raw(&writer, sizeof writer);
    push({owner, Lane::journals, writer_kind, std::move(bytes), {}});
  }
  push({owner, Lane::journals, at->second, {}, record.whole, writer.journal, record.sequence});
}

std::uint64_t Relay::unsent(std::uint64_t journal) const {
  const std::lock_guard guard(mutex_);
  const auto it = unsent_.find(journal);
  return it == unsent_.end() ? std::numeric_limits<std::uint64_t>::max() : *it->second.begin();
}

void Relay::farewell(const DatasetId& id, unsigned owner) {
  for (auto it = said_.lower_bound({id, 0}); it != said_.end() && it->first.first == id;) it = said_.erase(it);
  {
    const std::lock_guard guard(mutex_);
    followed_.erase(id);
  }
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  push({owner, Lane::words, farewell_kind, std::move(bytes), {}});
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
    push({it->first.first, Lane::journals, gone_kind, std::move(bytes), {}});
    free_numbers_[it->first.first].push_back(it->second);
    it = numbers_.erase(it);
  }
}

void Relay::plead() {
  const auto now = monotonic_ns();
  if (now - plead_ns_ < plead_every_ns) return;
  plead_ns_ = now;
  to_all(Lane::words, plead_kind, {});
}

// ---- of files that are not known here ----

void Relay::ask(const std::string& question) {
  {
    const std::lock_guard guard(mutex_);
    if (!asked_.try_emplace(question, nodes() - 1, "").second) return;
  }
  Bytes bytes;
  Encoder(bytes).text(question);
  to_all(Lane::words, question_kind, bytes);
}

/// The name of a question is <page>+<r or w>+<who asks>.
void Relay::on_question(unsigned from, Decoder& in) {
  Question q;
  q.from = from;
  q.name = in.text();
  const auto plus = q.name.find('+');
  q.page_name = q.name.substr(0, plus);
  q.for_writing = plus != std::string::npos && q.name.compare(plus, 2, "+w") == 0;
  if (auto page = stage_.open_page(q.page_name)) {
    q.page = std::move(page).value();
    q.target = q.page->synced.load(std::memory_order_acquire);
  }
  questions_.push_back(std::move(q));
}

void Relay::answer_questions() {
  std::erase_if(questions_, [this](const Question& q) {
    std::string text;
    if (q.page) {
      const auto state = static_cast<DatasetState>(q.page->state.load(std::memory_order_acquire));
      const bool there = stage_.files().exists(stage_.datasets() + "/" + q.page_name);
      if (state == DatasetState::failed) {
        text = std::string(q.page->path) + ": " + q.page->error_text;
      } else if (q.target > 0 && q.page->waits.load(std::memory_order_acquire) >= q.target) {
        text = std::string(q.page->path) + " is a tile that becomes one file with others (join: true in the config)";
      } else if (q.for_writing ? there : !over(*q.page) && q.page->visible.load(std::memory_order_acquire) < q.target) {
        return false;
      }
    }
    Bytes bytes;
    Encoder out(bytes);
    out.text(q.name);
    out.text(text);
    push({q.from, Lane::words, answer_kind, std::move(bytes), {}});
    return true;
  });
}

void Relay::on_answer(Decoder& in) {
  const auto question = in.text();
  const auto text = in.text();
  const std::lock_guard guard(mutex_);
  const auto it = asked_.find(question);
  if (it == asked_.end()) return;
  auto& [missing, said] = it->second;
  if (!text.empty()) said = text;
  if (--missing > 0) return;
  const auto answer = stage_.questions() + "/" + question + journal::answer_suffix;
  if (auto put = replace_whole(stage_.files(), answer, std::as_bytes(std::span(said))); !put)
    log_.error(answer + ": " + put.error().message);
  asked_.erase(it);
  journal::ring(stage_.control().progress);
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
  const auto page = stage_.open_page(id.page);
  if (ended_.find(id) == ended_.end()) {
    // It ended before this server began, and which nodes have not been told yet nobody remembers. One of them may still
    // announce it, now or after another restart: without a page it would be taken for a new one, of which nothing is in
    // its file.
    ended_[id] = page && is_of(**page, id) ? static_cast<DatasetState>((*page)->state.load()) : DatasetState::finished;
    journal::ring(stage_.control().progress);
    return;
  }
  // Where its hard link could not be removed the page is what the next server knows it by.
  if (!page || !journal::is_hard_link((*page)->link) || !stage_.files().exists((*page)->link))
    stage_.remove_dataset(id.page, id.journal, id.number);
  journal::ring(stage_.control().progress);
}

bool Relay::pleaded() const noexcept {
  return pleaded_ns_.load() + pleaded_recently_ns > monotonic_ns();
}

// ---- the end ----

void Relay::drain() {
  if (!drain_wanted_.exchange(true)) to_all(Lane::words, drain_kind, {});
}

void Relay::quiet() {
  {
    const std::lock_guard guard(mutex_);
    if (quiet_[node()]) return;
    quiet_[node()] = true;
  }
  to_all(Lane::journals, quiet_kind, {});
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
    if (helping_ != nullptr) helping_->ask_no_more();
    (void)tell_what_is_new();
  }
  Bytes bytes;
  Encoder out(bytes);
  out.number(static_cast<std::uint8_t>(clean));
  out.text(status);
  to_all(Lane::words, final_kind, bytes);
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

void Relay::picture(const std::string& status) {
  Bytes bytes;
  Encoder(bytes).text(status);
  push({0, Lane::words, picture_kind, std::move(bytes), {}});
}

std::vector<std::string> Relay::pictures() const {
  const std::lock_guard guard(mutex_);
  return pictures_;
}

// ---- the thread ----

void Relay::work() {
  unsigned idle_turns = 0;
  for (;;) {
    bool moved = send_some();
    moved = take_arrivals() || moved;
    moved = tell_progress() || moved;
    answer_questions();
    idle_turns = moved ? 0 : idle_turns + 1;
    std::unique_lock guard(mutex_);
    const bool all_said =
        std::all_of(std::begin(waiting_), std::end(waiting_), [](const auto& w) { return w.empty(); });
    if (ending_ && (cut_short_ || (all_said && under_way_.empty()))) break;
    if (moved) continue;
    // Messages from others ring no bell: look for them, less and less often.
    wake_.wait_for(guard, std::chrono::microseconds(idle_turns < 50 ? 50 : 1000));
  }
  // Whoever waits for what it has asked this node does it itself. Too short to wait for anybody.
  if (helping_ != nullptr)
    for (const auto& l : helping_->goodbye()) neighbours_.send(l.to, Lane::help, l.kind, l.message->span(), 0);
}

bool Relay::send_some() {
  bool moved = false;
  std::vector<std::uint64_t> tickets;
  neighbours_.sent(tickets);
  for (const auto ticket : tickets) {
    const auto it = under_way_.find(ticket);
    moved = true;
    under_way_bytes_[it->second.to] -= it->second.bytes.size();
    if (it->second.journal != 0) {
      const std::lock_guard guard(mutex_);
      const auto unsent = unsent_.find(it->second.journal);
      unsent->second.erase(it->second.sequence);
      if (unsent->second.empty()) unsent_.erase(unsent);
    }
    under_way_.erase(it);
  }
  std::unique_lock guard(mutex_);
  for (const auto lane : {words, help})
    for (; !waiting_[lane].empty(); moved = true) {
      auto message = std::move(waiting_[lane].front());
      waiting_[lane].pop_front();
      send_now(guard, std::move(message));
    }
  // A node that takes nothing holds back only what is for it.
  auto& records = waiting_[journals];
  for (std::size_t i = 0; i < records.size();) {
    if (under_way_bytes_[records[i].to] >= under_way_max) {
      ++i;
      continue;
    }
    auto record = std::move(records[i]);
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(i));
    send_now(guard, std::move(record));
    moved = true;
  }
  return moved;
}

void Relay::send_now(std::unique_lock<std::mutex>& guard, Outgoing message) {
  const auto ticket = next_ticket_++;
  auto& m = under_way_.emplace(ticket, std::move(message)).first->second;
  if (m.bytes.empty()) m.bytes = m.own;
  under_way_bytes_[m.to] += m.bytes.size();
  guard.unlock();
  neighbours_.send(m.to, m.lane, m.kind, m.bytes, ticket);
  guard.lock();
}

bool Relay::take_arrivals() {
  bool moved = false;
  while (const auto word = neighbours_.arrived(Lane::words)) {
    Bytes bytes(word->bytes);
    neighbours_.receive(*word, bytes.data());
    take_word(*word, bytes);
    moved = true;
  }
  while (const auto arrival = neighbours_.arrived(Lane::help)) {
    Message message;
    message.buffer.reserve(arrival->bytes);
    message.bytes = arrival->bytes;
    neighbours_.receive(*arrival, message.buffer.data());
    if (helping_ != nullptr) helping_->take(arrival->from, arrival->kind, std::move(message));
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
    const auto arrival = neighbours_.arrived(Lane::journals);
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
bool Relay::take_from_journals(const Neighbours::Arrival& arrival) {
  if (arrival.kind >= first_writer) {
    const auto& mirror = mirrors_[{arrival.from, arrival.kind}];
    if (!mirror) {
      // Its journal could not be made, which has been said. The records stay where they come from.
      Bytes thrown_away(arrival.bytes);
      neighbours_.receive(arrival, thrown_away.data());
      return true;
    }
    auto* const to = mirror->room(arrival.bytes, mappings_);
    if (to == nullptr) {
      // What others hold half used can be given back sooner.
      for (auto& [key, other] : mirrors_)
        if (other) other->seal();
      stage_.control().starved_ns.store(monotonic_ns(), std::memory_order_relaxed);
      ring();
      return false;
    }
    neighbours_.receive(arrival, to);
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
  neighbours_.receive(arrival, bytes.data());
  Decoder in(bytes);
  switch (arrival.kind) {
    case announce_kind: on_announce(arrival.from, in); break;
    case tell_kind: on_tell(in); break;
    case writer_kind: {
      const auto number = in.number<int>();
      const auto name = in.text();
      journal::WriterPage page;
      if (bytes.size() - in.position() != sizeof page) break;
      std::memcpy(&page, bytes.data() + in.position(), sizeof page);
      auto mirror = journal::Mirror::open(stage_, neighbours_.name(arrival.from), name, page);
      if (mirror)
        mirrors_[{arrival.from, number}] = std::move(mirror).value();
      else
        miss("a mirror of " + name + " on " + neighbours_.name(arrival.from), mirror.error());
      break;
    }
    case gone_kind: mirrors_.erase({arrival.from, in.number<int>()}); break;
    case quiet_kind: {
      const std::lock_guard guard(mutex_);
      quiet_[arrival.from] = true;
      break;
    }
    default: log_.error("a message of unknown kind from " + neighbours_.name(arrival.from));
  }
  ring();
  return true;
}

void Relay::take_word(const Neighbours::Arrival& word, const Bytes& bytes) {
  Decoder in(bytes);
  switch (word.kind) {
    case progress_kind: on_progress(in); break;
    case farewell_kind: on_farewell(word.from, take_id(in)); break;
    case plead_kind: pleaded_ns_ = monotonic_ns(); break;
    case drain_kind: drain_wanted_ = true; break;
    case question_kind: on_question(word.from, in); break;
    case answer_kind: on_answer(in); break;
    case final_kind: {
      const bool clean = in.number<std::uint8_t>() != 0;
      auto status = in.text();
      const std::lock_guard guard(mutex_);
      final_[word.from] = true;
      clean_[word.from] = clean;
      pictures_[word.from] = std::move(status);
      break;
    }
    case picture_kind: {
      auto status = in.text();
      const std::lock_guard guard(mutex_);
      pictures_[word.from] = std::move(status);
      return;  // nobody waits for it
    }
    default: log_.error("a word of unknown kind from " + neighbours_.name(word.from));
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
  if (auto page = stage_.open_page(id.page);
      ended == ended_.end() && page && !is_of(**page, id) && (*page)->created_ns > created_ns)
    ended = ended_.emplace(id, DatasetState::finished).first;
  if (ended != ended_.end()) {
    // It was over before that node came: an abort.
    Bytes answer;
    Encoder out(answer);
    put(out, id);
    out.number(static_cast<std::uint32_t>(ended->second));
    waiting_[words].push_back({from, Lane::words, progress_kind, std::move(answer), {}});
    return;
  }
  Owned& o = owned_[id];
  o.nodes.insert(from);
  o.told.clear();
  o.writers = writers;
  if (auto page = stage_.open_page(id.page); page && is_of(**page, id)) {
    o.page = std::move(page).value();  // what it takes to make another there may be no room for
    if (auto slots = stage_.open_slots(id.page, writers); slots && writers > 0) o.slots = std::move(slots).value();
    return;
  }
  auto made = stage_.make_dataset(id.page, [&](DatasetPage& p) {
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
  o.page = std::move(made->page);
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
  if (it == owned_.end() || !it->second.page) return;
  auto& page = *it->second.page;
  raise(page.synced, synced);
  raise(page.frames_synced, frames);
  raise(page.frames_dropped, dropped);
  // Of several writers each says it for itself.
  if (it->second.writers == 0) raise(page.closed, closed);
  if (writer < it->second.writers) store(it->second.slots[writer], slot);
}

bool Relay::tell_progress() {
  const auto now = monotonic_ns();
  if (now - told_ns_ < tell_every_ns) return false;
  told_ns_ = now;
  const std::lock_guard guard(mutex_);
  return tell_what_is_new();
}

/// Called with the mutex held.
bool Relay::tell_what_is_new() {
  bool moved = false;
  for (auto& [id, o] : owned_) {
    if (!o.page) continue;
    Bytes bytes;
    Encoder out(bytes);
    put(out, id);
    const auto& p = *o.page;
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
      out.number(o.slots[w].round.load(std::memory_order_acquire));
      out.number(o.slots[w].read.load(std::memory_order_acquire));
    }
    if (bytes == o.told) continue;
    o.told = bytes;
    for (const auto n : o.nodes) waiting_[words].push_back({n, Lane::words, progress_kind, bytes, {}});
    moved = true;
  }
  return moved;
}

/// The owner's news of a dataset that this node has part in: into its page here, for the ranks and for the server.
void Relay::on_progress(Decoder& in) {
  const auto id = take_id(in);
  const std::lock_guard guard(mutex_);
  const auto it = followed_.find(id);
  if (it == followed_.end() || over(*it->second.page)) return;
  DatasetPage& p = *it->second.page;
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
      const auto told = take_slot(in);
      const auto visible_w = in.number<std::uint64_t>();
      const auto round = in.number<std::uint64_t>();
      const auto read = in.number<std::uint64_t>();
      if (!in.ok()) return;
      if (slot.pid == 0 && told.journal != 0) store(slot, told);
      slot.round.store(round, std::memory_order_relaxed);
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
