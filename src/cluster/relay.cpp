#include "cluster/relay.h"

#include <chrono>

#include "cluster/messages.h"

namespace advectio {

using journal::monotonic_ns;
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
      questions_(stage, outbox_, transport.nodes() - 1, log),
      followed_(stage, outbox_),
      owned_(stage, outbox_),
      records_(outbox_),
      journals_(stage, transport),
      states_(transport.nodes()) {
  if (remote_encoder_ != nullptr)
    remote_encoder_->connect([this](const RemoteEncoder::Letter& l) {
      outbox_.push({l.to, Lane::help, l.kind, {}, l.message->span(), 0, 0, l.message});
    });
  thread_ = std::thread([this] { work(); });
}

Relay::~Relay() {
  // Two servers whose stages are full would wait for each other.
  journals_.end();
  outbox_.close();
  thread_.join();
  if (remote_encoder_ != nullptr) remote_encoder_->disconnect();
}

void Relay::ring() const noexcept {
  journal::ring(stage_.control().work);
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
  if (states_.set_quiet(node())) outbox_.push_to_all(Lane::journals, quiet_kind, {});
}

void Relay::final(bool clean, const std::string& status) {
  // Another node may end when it hears the word, and what it has asked must come before.
  questions_.answer();
  if (!states_.set_final(node(), clean)) return;
  // It may try again what has failed, and the others may end meanwhile.
  if (remote_encoder_ != nullptr) remote_encoder_->ask_no_more();
  (void)owned_.send_news();
  Bytes bytes;
  Encoder out(bytes);
  out.number(static_cast<std::uint8_t>(clean));
  out.text(status);
  outbox_.push_to_all(Lane::words, final_kind, bytes);
}

// ---- status ----

void Relay::snapshot(const std::string& status) {
  Bytes bytes;
  Encoder(bytes).text(status);
  outbox_.push({0, Lane::words, snapshot_kind, std::move(bytes), {}});
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
  return journals_.take([this](const auto& arrival) { take_from_journals(arrival); }) || moved;
}

void Relay::take_from_journals(const Transport::Arrival& arrival) {
  Bytes bytes(arrival.bytes);
  transport_.receive(arrival, bytes.data());
  Decoder in(bytes);
  switch (arrival.kind) {
    case announce_kind:
      if (auto taken = owned_.on_announce(arrival.from, in); !taken) miss(taken.error());
      break;
    case tell_kind: owned_.on_tell(in); break;
    case writer_kind:
      if (auto taken = journals_.on_writer(arrival.from, bytes); !taken) miss(taken.error());
      break;
    case gone_kind: journals_.on_gone(arrival.from, in); break;
    case quiet_kind: (void)states_.set_quiet(arrival.from); break;
    default: log_.error("a message of unknown kind from " + transport_.name(arrival.from));
  }
  ring();
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
      // Who hears that all are final asks for their snapshots.
      states_.set_snapshot(word.from, in.text());
      (void)states_.set_final(word.from, clean);
      break;
    }
    case snapshot_kind: states_.set_snapshot(word.from, in.text()); return;  // nobody waits for it
    default: log_.error("a word of unknown kind from " + transport_.name(word.from));
  }
  ring();
}

void Relay::miss(const Error& why) {
  missed_ = true;
  log_.error(why.message + "; what is staged of it on the other node stays there");
}

}  // namespace advectio
