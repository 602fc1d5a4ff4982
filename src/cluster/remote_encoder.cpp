#include "cluster/remote_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "journal/stage.h"

namespace advectio {

namespace {

// Kinds of messages. From `first_place` on there are four for each place: what is asked, and the answers.
constexpr int hello = 1, bye = 2, first_place = 16;
enum Said : int { asks = 0, done = 1, done_and_busy = 2, not_done = 3 };

/// Who has more to do than threads for it is not asked again for so long.
constexpr std::uint64_t busy_for_ns = 50'000'000;
constexpr std::uint64_t gone = ~std::uint64_t{0};  // busy until then

int kind_of(unsigned place, Said said) noexcept {
  return first_place + static_cast<int>(place) * 4 + said;
}

}  // namespace

RemoteEncoder::RemoteEncoder(const Transport& transport, Executor& executor, Work work, std::size_t least_bytes)
    : own_(transport.node()),
      count_(transport.nodes()),
      io_nodes_(transport.io_nodes()),
      executor_(executor),
      work_(std::move(work)),
      least_bytes_(least_bytes),
      nodes_(count_) {}

RemoteEncoder::~RemoteEncoder() {
  std::unique_lock guard(mutex_);
  idle_.wait(guard, [this] { return remote_encoder_ == 0; });
}

bool RemoteEncoder::helps(unsigned node) const noexcept {
  return io_nodes_ == 0 || node >= count_ - io_nodes_;
}

// ---- who asks ----

std::optional<unsigned> RemoteEncoder::place(std::size_t bytes) {
  if (bytes < least_bytes_ || bytes > bytes_max) return std::nullopt;
  const std::lock_guard guard(mutex_);
  if (asks_no_more_) return std::nullopt;
  const auto now = journal::monotonic_ns();
  // The one that has the most room, of those that have any; not all nodes begin with the same one.
  unsigned best = count_;
  const auto room = [this](unsigned n) { return nodes_[n].places.size() - nodes_[n].taken; };
  for (unsigned i = 1; i < count_; ++i) {
    const auto n = (own_ + i) % count_;
    if (room(n) > 0 && nodes_[n].busy_until_ns <= now && (best == count_ || room(n) > room(best))) best = n;
  }
  if (best == count_) return std::nullopt;
  auto& node = nodes_[best];
  const auto free = std::find_if(node.places.begin(), node.places.end(), [](const Place& p) { return !p.taken; });
  free->taken = true;
  ++node.taken;
  return best * places_max + static_cast<unsigned>(free - node.places.begin());
}

/// Called with the mutex held.
void RemoteEncoder::free(unsigned place) {
  at(place) = {};
  --nodes_[place / places_max].taken;
}

void RemoteEncoder::let_go(unsigned place) {
  const std::lock_guard guard(mutex_);
  free(place);
}

void RemoteEncoder::ask(unsigned place, std::shared_ptr<const Message> request, Answer answer) {
  {
    const std::lock_guard guard(mutex_);
    if (send_ && nodes_[place / places_max].busy_until_ns != gone) {
      at(place).answer = std::move(answer);
      send_(Letter{place / places_max, kind_of(place % places_max, asks), std::move(request)});
      return;
    }
    free(place);
  }
  answer(std::nullopt);
}

// ---- who is asked ----

void RemoteEncoder::help(unsigned from, unsigned place, std::shared_ptr<const Message> request) {
  {
    const std::lock_guard guard(mutex_);
    // Each of many may ask for one: what they have sent is memory.
    if (remote_encoder_ > 2 * executor_.threads() + 1) {
      if (send_) send_(Letter{from, kind_of(place, not_done), std::make_shared<Message>()});
      return;
    }
    ++remote_encoder_;
  }
  // Before what this node has to do: the other waits, and asks for no more than there are threads.
  executor_.run_first([this, from, place, request = std::move(request)] {
    auto reply = work_(request->span());
    const auto said = reply == nullptr ? not_done : executor_.backlog() > 0 ? done_and_busy : done;
    if (reply == nullptr) reply = std::make_shared<Message>();
    const std::lock_guard guard(mutex_);
    if (said != not_done) ++for_others_;
    if (send_) send_(Letter{from, kind_of(place, said), std::move(reply)});
    if (--remote_encoder_ == 0) idle_.notify_all();
  });
}

// ---- who carries it ----

void RemoteEncoder::connect(std::function<void(Letter)> send) {
  const std::lock_guard guard(mutex_);
  send_ = std::move(send);
  if (!helps(own_)) return;
  // One more than there are threads, as it is on its way meanwhile; for all that may ask together, but one for each.
  const auto askers = (io_nodes_ == 0 ? count_ : io_nodes_) - 1;
  const std::uint32_t places = std::clamp((executor_.threads() + 1) / std::max(askers, 1U), 1U, places_max);
  for (unsigned n = 0; n < count_; ++n) {
    if (n == own_ || !helps(n)) continue;
    auto message = std::make_shared<Message>();
    message->buffer.reserve(sizeof places);
    std::memcpy(message->buffer.data(), &places, sizeof places);
    message->bytes = sizeof places;
    send_(Letter{n, hello, std::move(message)});
  }
}

void RemoteEncoder::take(unsigned from, int kind, Message message) {
  if (kind == hello) {
    std::uint32_t places = 0;
    if (message.bytes == sizeof places) std::memcpy(&places, message.buffer.data(), sizeof places);
    const std::lock_guard guard(mutex_);
    nodes_[from].places.resize(std::min(places, places_max));
    return;
  }
  if (kind == bye) {
    std::vector<Answer> answers;
    {
      const std::lock_guard guard(mutex_);
      give_up(from, answers);
    }
    for (const auto& answer : answers) answer(std::nullopt);
    return;
  }
  if (kind < first_place) return;
  const auto number = static_cast<unsigned>(kind - first_place) / 4;
  const auto said = static_cast<Said>((kind - first_place) % 4);
  if (said == asks) return help(from, number, std::make_shared<const Message>(std::move(message)));
  Answer answer;
  {
    const std::lock_guard guard(mutex_);
    if (number >= nodes_[from].places.size()) return;
    const auto place = from * places_max + number;
    answer = std::move(at(place).answer);
    if (!answer) return;
    free(place);
    if (said != done) nodes_[from].busy_until_ns = journal::monotonic_ns() + busy_for_ns;
    if (said != not_done) ++by_others_;
  }
  answer(said == not_done ? std::nullopt : std::optional(std::move(message)));
}

void RemoteEncoder::ask_no_more() {
  const std::lock_guard guard(mutex_);
  asks_no_more_ = true;
}

std::vector<RemoteEncoder::Letter> RemoteEncoder::goodbye() const {
  std::vector<Letter> all;
  const auto nothing = std::make_shared<const Message>();
  for (unsigned n = 0; n < count_; ++n)
    if (n != own_ && helps(n) && helps(own_)) all.push_back({n, bye, nothing});
  return all;
}

/// Called with the mutex held. Places that have been given and not used yet are still counted, until they are let go.
void RemoteEncoder::give_up(unsigned node, std::vector<Answer>& answers) {
  nodes_[node].busy_until_ns = gone;
  for (unsigned p = 0; p < nodes_[node].places.size(); ++p) {
    auto& place = nodes_[node].places[p];
    if (!place.answer) continue;
    answers.push_back(std::move(place.answer));
    free(node * places_max + p);
  }
}

void RemoteEncoder::disconnect() {
  std::vector<Answer> answers;
  {
    const std::lock_guard guard(mutex_);
    send_ = nullptr;
    for (unsigned n = 0; n < count_; ++n) give_up(n, answers);
  }
  for (const auto& answer : answers) answer(std::nullopt);
}

}  // namespace advectio
