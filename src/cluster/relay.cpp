#include "cluster/relay.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cluster/messages.h"

namespace advectio {

using journal::DatasetState;
using journal::monotonic_ns;
using journal::SharedState;
using Lane = Transport::Lane;

namespace {

constexpr std::uint64_t request_space_every_ns = 50'000'000;
constexpr std::uint64_t requested_recently_ns = 200'000'000;

}  // namespace

Relay::Relay(const journal::Stage& stage, Transport& transport, RemoteEncoder* remote_encoder, Log& log)
    : stage_(stage),
      transport_(transport),
      remote_encoder_(remote_encoder),
      log_(log),
      outbox_(transport),
      questions_(stage, outbox_, nodes() - 1, log),
      followed_(stage, outbox_),
      owned_(stage, outbox_) {
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

// ---- records of datasets that another node owns ----

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

// ---- space ----

void Relay::request_space() {
  const auto now = monotonic_ns();
  if (now - request_space_ns_ < request_space_every_ns) return;
  request_space_ns_ = now;
  outbox_.push_to_all(Lane::words, request_space_kind, {});
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
  }
  // It may try again what has failed, and the others may end meanwhile.
  if (remote_encoder_ != nullptr) remote_encoder_->ask_no_more();
  (void)owned_.send_news();
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
    moved = owned_.send_progress() || moved;
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
    case announce_kind:
      if (auto taken = owned_.on_announce(arrival.from, in); !taken) miss(taken.error());
      break;
    case tell_kind: owned_.on_tell(in); break;
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
        miss(std::move(mirror).error().with("a mirror of " + name + " on " + transport_.name(arrival.from)));
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
    case progress_kind: followed_.on_progress(in); break;
    case farewell_kind: owned_.on_farewell(word.from, take_id(in)); break;
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

void Relay::miss(const Error& why) {
  missed_ = true;
  log_.error(why.message + "; what is staged of it on the other node stays there");
}

}  // namespace advectio
