#include "readers/service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "readers/listening.h"
#include "readers/schema_json.h"
#include "readers/ucx.h"

namespace advectio::readers {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t connections_max = 256;
constexpr std::size_t subscriptions_max = 64;  ///< of one reader
constexpr std::size_t frames_held_max = 8;     ///< in memory, by one reader
constexpr std::uint64_t slice_bytes = 4ULL << 20;
constexpr auto linger_idle = std::chrono::seconds(10), linger_all = std::chrono::seconds(60);
constexpr auto return_max = std::chrono::seconds(15);  ///< until readers of the server before have come

json error_reply(const Error& error) {
  return {{"error", error.message}, {"code", std::string(name_of(error.code))}};
}

bool is_ours(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

/// One reader.
struct Service::Connection {
  Descriptor socket;
  Descriptor waker;
  bool local = false;
  bool known = false;  ///< it has shown the secret
  std::string name, peer, reader;
  std::uint64_t servers = 1;
  std::map<std::uint64_t, std::shared_ptr<FrameStore::Subscription>> subscriptions;
  std::uint64_t next_subscription = 1;
  struct Held {
    TakenFrame frame;
    std::uint64_t subscription = 0;
  };
  std::map<std::uint64_t, Held> held;  ///< by order: taken, and not done with
  std::map<std::uint64_t, std::set<std::uint64_t>>
      regions;  ///< that it has been given, and the frames it has mapped of each
  struct Waiting {
    std::uint64_t id = 0, subscription = 0;
    Clock::time_point until;
  };
  std::vector<Waiting> waiting;                        ///< requests `next` that have no answer yet
  std::unique_ptr<Ucx> ucx;                            ///< null: values go over the socket
  Clock::time_point heard = Clock::now();              ///< a whole request has come
  std::atomic<Clock::time_point> moved{Clock::now()};  ///< a whole request has come, or values have gone
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> delivered{0}, left_out{0}, bytes_sent{0};
  std::mutex mutex;  ///< of what the status reads: name, subscriptions, held
  std::thread thread;
};

Service::Service(FrameStore& store, ServiceOptions options, Log& log)
    : store_(store), options_(std::move(options)), log_(log) {}

Result<std::unique_ptr<Service>> Service::open(FrameStore& store, ServiceOptions options, Log& log) {
  std::unique_ptr<Service> s(new Service(store, std::move(options), log));
  s->wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!s->wake_) return system_error("eventfd", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto& path = s->options_.socket;
  const auto next = path + "~";
  if (next.size() >= sizeof address.sun_path) return Error{Code::invalid, "the socket's path is too long: " + path, 0};
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("socket", errno);
  ::unlink(next.c_str());
  std::memcpy(address.sun_path, next.c_str(), next.size() + 1);
  // Under another name until it listens, so that whoever finds it can connect.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(next.c_str(), 0600) != 0 || ::listen(fd.get(), 64) != 0 || ::rename(next.c_str(), path.c_str()) != 0)
    return system_error("listen on " + path, errno);
  s->listeners_.push_back(std::move(fd));
  for (const auto& a : s->options_.listen) ADVECTIO_TRY_WITH(s->listen_at(a), "readers.listen");
  s->thread_ = std::thread([raw = s.get()] { raw->accept_readers(); });
  return s;
}

Result<void> Service::listen_at(const std::string& text) {
  auto listening = readers::listen_at(text);
  if (!listening) return std::move(listening).error();
  addresses_.push_back(std::move(listening->address));
  listeners_.push_back(std::move(listening->socket));
  return {};
}

json Service::contact() const {
  if (addresses_.empty()) return {};
  return {{"addresses", addresses_},
          {"secret", options_.secret},
          {"run_dir", options_.run_dir},
          {"host", host_name()},
          {"pid", ::getpid()}};
}

Result<void> Service::write_contact(const std::string& file, const json& nodes) {
  const json contact = {
      {"advectio", "readers"}, {"protocol", protocol_version}, {"directory", options_.directory}, {"nodes", nodes}};
  const auto text = contact.dump(1) + "\n";
  const auto next = file + "~";
  ::unlink(next.c_str());
  Descriptor fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return system_error("create " + next, errno);
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return system_error("write " + next, errno);
  if (::rename(next.c_str(), file.c_str()) != 0) return system_error("rename " + next, errno);
  contact_ = file;
  return {};
}

Service::~Service() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
    for (const auto& c : connections_) (void)::shutdown(c->socket.get(), SHUT_RDWR);
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  for (const auto& c : connections_)
    if (c->thread.joinable()) c->thread.join();
  ::unlink(options_.socket.c_str());
  if (!contact_.empty()) ::unlink(contact_.c_str());
}

void Service::finish() {
  while (!store_.readers_are_back() && Clock::now() < opened_ + return_max)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto ended = Clock::now();
  ended_ = ended;
  store_.end();
  for (;;) {
    const auto now = Clock::now();
    {
      const std::lock_guard guard(mutex_);
      bool all_over = true;
      for (const auto& c : connections_) {
        if (c->over.load()) continue;
        all_over = false;
        // Its thread waits for the rest of a message, or for room to send one.
        if (now - std::max(c->moved.load(), ended) > (c->local ? Clock::duration(options_.message_max) : linger_idle))
          (void)::shutdown(c->socket.get(), SHUT_RDWR);
      }
      if (all_over) return;
    }
    if (now > ended + linger_all) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

json Service::status() {
  static constexpr const char* policies[] = {"wait", "drop-oldest", "latest"};
  json out = json::array();
  const std::lock_guard guard(mutex_);
  for (const auto& c : connections_) {
    if (c->over.load()) continue;
    const std::lock_guard its(c->mutex);
    if (!c->known) continue;
    std::uint64_t bytes = 0;
    for (const auto& [order, h] : c->held)
      if (h.frame.live) bytes += h.frame.live->bytes;
    json wants = json::array();
    for (const auto& [id, s] : c->subscriptions)
      wants.push_back({{"match", s->match},
                       {"policy", policies[static_cast<int>(s->policy)]},
                       {"group", s->group.empty() ? json() : json(s->group)},
                       {"waiting", store_.waiting(*s)}});
    out.push_back({{"name", c->name},
                   {"address", c->peer},
                   {"reader", c->reader.empty() ? json() : json(c->reader)},
                   {"servers", c->servers},
                   {"subscriptions", wants},
                   {"frames_held", c->held.size()},
                   {"bytes_held", bytes},
                   {"frames_taken", c->delivered.load()},
                   {"frames_left_out", c->left_out.load()},
                   {"bytes_sent", c->bytes_sent.load()}});
  }
  return out;
}

void Service::accept_readers() {
  for (;;) {
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
    for (const auto& l : listeners_) polls.push_back({l.get(), POLLIN, 0});
    if (::poll(polls.data(), polls.size(), 1000) < 0 && errno != EINTR) return;
    const std::lock_guard guard(mutex_);
    if (stopping_) return;
    for (auto it = connections_.begin(); it != connections_.end();) {
      if ((*it)->over.load()) {
        (*it)->thread.join();
        it = connections_.erase(it);
      } else {
        ++it;
      }
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if ((polls[i + 1].revents & POLLIN) == 0) continue;
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      Descriptor fd(::accept4(listeners_[i].get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
      if (!fd || connections_.size() >= connections_max || (i == 0 && !is_ours(fd.get()))) continue;
      auto c = std::make_unique<Connection>();
      c->local = i == 0;
      if (!c->local) {
        const int on = 1;
        (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        c->peer = address_of(from, size);
      } else {
        ucred peer{};
        socklen_t n = sizeof peer;
        (void)::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &n);
        c->peer = "pid " + std::to_string(peer.pid);
      }
      c->waker = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!c->waker) continue;
      c->socket = std::move(fd);
      auto& connection = *connections_.emplace_back(std::move(c));
      connection.thread = std::thread([this, &connection] { serve(connection); });
    }
  }
}

void Service::serve(Connection& c) {
  bool end_said = false;
  for (;;) {
    int timeout = store_.ended() ? 10 : 1000;
    for (const auto& w : c.waiting) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(w.until - Clock::now()).count();
      timeout = std::clamp<int>(static_cast<int>(left) + 1, 0, timeout);
    }
    pollfd polls[2] = {{c.socket.get(), POLLIN, 0}, {c.waker.get(), POLLIN, 0}};
    if (::poll(polls, 2, timeout) < 0 && errno != EINTR) break;
    if ((polls[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      (void)!::read(c.waker.get(), &count, sizeof count);
    }
    if ((polls[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      auto head = receive_head(c.socket.get(), request_head_max);
      if (!head || !*head) break;
      c.heard = Clock::now();
      c.moved = c.heard;
      if (!answer(c, std::move(**head))) break;
    }
    answer_next(c);
    if (store_.ended() && !end_said) end_said = say_end(c);
    if (end_said) break;
  }
  // At the end of the run the reader is still at work on them.
  for (auto& [order, h] : c.held)
    if (const auto s = c.subscriptions.find(h.subscription);
        s != c.subscriptions.end() && !s->second->group.empty() && !end_said)
      store_.put_back(*s->second, h.frame);
  for (auto& [id, s] : c.subscriptions) store_.unsubscribe(s, c.waker.get());
  // Those that are cut off because this server stops will come to the next one.
  if (!c.subscriptions.empty() && !stopping_) store_.note_reader(c.reader, false);
  {
    const std::lock_guard its(c.mutex);
    c.held.clear();
    c.subscriptions.clear();
  }
  (void)::shutdown(c.socket.get(), SHUT_WR);
  c.over.store(true);
}

/// False: the connection ends.
bool Service::answer(Connection& c, Head head) {
  if (head.data_bytes > 0) return false;  // a request has none
  const auto id = head.object.contains("id") ? head.object["id"] : json(0);
  auto request = parse_request(head.object);
  const auto say = [&](json reply, std::span<const int> descriptors = {}) {
    reply["id"] = id;
    return static_cast<bool>(send_head(c.socket.get(), reply, 0, descriptors));
  };
  if (!request) return say(error_reply(request.error()));
  if (!c.known && (request->kind != Request::Kind::hello || !same_secret(request->secret, options_.secret))) {
    (void)say(error_reply({Code::permission, "a reader shows the secret of the run first (hello)", EACCES}));
    return false;
  }
  if (request->kind == Request::Kind::read) {
    if (auto sent = send_values(c, *request); !sent)
      return sent.error().code != Code::gone && sent.error().code != Code::io && say(error_reply(sent.error()));
    return true;
  }
  if (request->kind == Request::Kind::map) {
    std::vector<int> descriptors;
    auto reply = blocks_of(c, *request, descriptors);
    return say(std::move(reply), descriptors);
  }
  bool sent = false;
  auto reply = reply_to(c, *request, sent);
  return sent || say(std::move(reply));
}

json Service::reply_to(Connection& c, const Request& r, bool& sent) {
  switch (r.kind) {
    case Request::Kind::hello: {
      json reply = {{"protocol", protocol_version}, {"run_dir", options_.run_dir}, {"directory", options_.directory},
                    {"host", host_name()},          {"pid", ::getpid()},           {"maps", c.local}};
      if (!r.ucx.empty()) {
        auto ucx = Ucx::open();
        auto connected = ucx ? (*ucx)->connect(r.ucx) : Result<void>(ucx.error());
        if (connected)
          c.ucx = std::move(ucx).value();
        else
          reply["ucx_error"] = connected.error().message;
        reply["ucx"] = c.ucx != nullptr;
      }
      const std::lock_guard its(c.mutex);
      c.known = true;
      c.name = r.name;
      return reply;
    }
    case Request::Kind::list: return {{"datasets", store_.list(r.match)}};
    case Request::Kind::subscribe: {
      if (c.subscriptions.size() >= subscriptions_max)
        return error_reply(
            {Code::invalid, "a reader has at most " + std::to_string(subscriptions_max) + " subscriptions", 0});
      auto s = store_.subscribe(r, c.waker.get());
      const auto after = store_.before(*s);
      const bool is_first = c.subscriptions.empty();
      if (is_first) store_.note_reader(r.reader, true);
      const std::lock_guard its(c.mutex);
      c.subscriptions[c.next_subscription] = std::move(s);
      if (is_first) {
        c.reader = r.reader;
        c.servers = r.servers;
      }
      return {{"subscription", c.next_subscription++}, {"after", after}};
    }
    case Request::Kind::unsubscribe: {
      const auto it = c.subscriptions.find(r.subscription);
      if (it == c.subscriptions.end())
        return error_reply({Code::invalid, "there is no subscription " + std::to_string(r.subscription), 0});
      if (std::any_of(c.waiting.begin(), c.waiting.end(),
                      [&r](const auto& w) { return w.subscription == r.subscription; }))
        return error_reply({Code::invalid, "a request 'next' of that subscription still waits", 0});
      store_.unsubscribe(it->second, c.waker.get());
      const std::lock_guard its(c.mutex);
      c.subscriptions.erase(it);
      if (c.subscriptions.empty()) store_.note_reader(c.reader, false);
      return json::object();
    }
    case Request::Kind::next: {
      if (!c.subscriptions.contains(r.subscription))
        return error_reply({Code::invalid, "there is no subscription " + std::to_string(r.subscription), 0});
      if (c.waiting.size() >= subscriptions_max) return error_reply({Code::invalid, "too many requests wait", 0});
      c.waiting.push_back({r.id, r.subscription, Clock::now() + std::chrono::milliseconds(r.wait_ms)});
      sent = true;
      return {};
    }
    case Request::Kind::schema: {
      const auto schema = store_.schema(r.schema);
      if (!schema) return error_reply({Code::not_found, "there is no schema " + std::to_string(r.schema), 0});
      return {{"schema", to_json(*schema)}};
    }
    case Request::Kind::done: {
      const std::lock_guard its(c.mutex);
      c.held.erase(r.frame);
      for (auto it = c.regions.begin(); it != c.regions.end();) {
        it->second.erase(r.frame);
        it = it->second.empty() ? c.regions.erase(it) : std::next(it);
      }
      return json::object();
    }
    case Request::Kind::status: return {{"readers", status()}, {"held_bytes", store_.held_bytes()}};
    case Request::Kind::read:
    case Request::Kind::map: break;
  }
  return error_reply({Code::bug, "a request that nobody answers", 0});
}

/// Answers to `next`, as far as there are frames.
void Service::answer_next(Connection& c) {
  for (auto it = c.waiting.begin(); it != c.waiting.end();) {
    auto& s = *c.subscriptions.at(it->subscription);
    json reply;
    const auto in_memory = static_cast<std::size_t>(
        std::count_if(c.held.begin(), c.held.end(), [](const auto& h) { return h.second.frame.live != nullptr; }));
    if (auto frame = store_.take(s, in_memory < frames_held_max)) {
      json f = {{"frame", frame->order},   {"dataset", frame->dataset},   {"path", frame->path},
                {"number", frame->number}, {"left_out", frame->left_out}, {"in_memory", frame->live != nullptr}};
      if (frame->inode != 0) f["inode"] = frame->inode;
      if (frame->records) f["records"] = {frame->records->first, frame->records->second};
      if (frame->live) {
        const auto& live = *frame->live;
        f["schema"] = live.schema_id;
        f["bytes"] = live.bytes;
        f["synced_ns"] = live.synced_ns;
        json fields = json::array();
        for (const auto& [v, field] : live.fields) {
          const auto all = field->bounds();
          fields.push_back({{"variable", v}, {"start", all.start}, {"count", all.count}});
        }
        f["fields"] = std::move(fields);
      }
      c.left_out += frame->left_out;
      ++c.delivered;
      const std::lock_guard its(c.mutex);
      c.held[frame->order] = {std::move(*frame), it->subscription};
      reply = {{"frame", std::move(f)}};
    } else if (store_.is_at_end(s)) {
      reply = {{"end", true}};
      // What a member of a group is not done with when it goes comes to the others.
      if (s.group.empty()) reply["all_taken"] = true;
    } else if (Clock::now() >= it->until) {
      reply = {{"timeout", true}};
    } else {
      ++it;
      continue;
    }
    reply["id"] = it->id;
    it = c.waiting.erase(it);
    if (!send_head(c.socket.get(), reply)) return;
  }
}

/// The member that asks first. Where none asks in time, the one that was heard last: another may be stopped.
Service::Rest Service::rest_of(const Connection& c, const FrameStore::Subscription& s) {
  const auto ended = ended_.load();
  if (s.group.empty() || c.heard >= ended) return Rest::mine;
  bool alone = true, heard_last = true;
  const std::lock_guard guard(mutex_);
  for (const auto& other : connections_) {
    if (other.get() == &c || other->over.load()) continue;
    const std::lock_guard its(other->mutex);
    if (std::none_of(other->subscriptions.begin(), other->subscriptions.end(),
                     [&s](const auto& one) { return one.second.get() == &s; }))
      continue;
    alone = false;
    heard_last = heard_last && other->moved.load() <= c.moved.load();
  }
  if (!alone && Clock::now() < ended + options_.group_max) return Rest::not_known_yet;
  return heard_last ? Rest::mine : Rest::others;
}

/// The run has ended. False: it still wants frames that it cannot find elsewhere, or may get.
bool Service::say_end(Connection& c) {
  if (!c.local && Clock::now() - c.moved.load() < linger_idle) {
    const bool has_frames =
        std::any_of(c.held.begin(), c.held.end(), [](const auto& h) { return h.second.frame.live != nullptr; });
    const bool wants = std::any_of(c.subscriptions.begin(), c.subscriptions.end(), [&](const auto& s) {
      return s.second->policy == Policy::wait && !store_.is_at_end(*s.second);
    });
    if (has_frames || wants) return false;
  }
  std::map<std::uint64_t, std::shared_ptr<FrameStore::Subscription>> with_rest;
  for (const auto& [id, s] : c.subscriptions) {
    if (store_.is_at_end(*s)) continue;
    const auto rest = rest_of(c, *s);
    if (rest == Rest::not_known_yet) return false;
    if (rest == Rest::mine) with_rest.emplace(id, s);
  }
  for (const auto& w : c.waiting)
    if (!send_head(c.socket.get(), {{"id", w.id}, {"end", true}})) return true;
  c.waiting.clear();
  json rest = json::array();
  for (const auto& [id, s] : with_rest)
    for (const auto& f : store_.take_rest(*s)) {
      rest.push_back({{"subscription", id}, {"frame", f.order}, {"path", f.path}, {"number", f.number}});
      if (f.inode != 0) rest.back()["inode"] = f.inode;
      if (f.records) rest.back()["records"] = {f.records->first, f.records->second};
    }
  (void)send_head(c.socket.get(), {{"id", 0}, {"end", true}, {"frames", std::move(rest)}});
  return true;
}

namespace {

/// Calls `send(part)` for parts that one after the other are `part`, each of at most `slice_bytes` where that can be.
template <typename Send>
Result<void> in_slices(const Part& part, std::size_t dimension, std::size_t element, Send& send) {
  const auto bytes = part.box.volume() * element;
  if (bytes <= slice_bytes || dimension == part.box.rank()) return send(part);
  const auto n = part.box.count[dimension];
  const auto each = std::max<std::uint64_t>(1, n * slice_bytes / std::max<std::uint64_t>(bytes, 1));
  for (std::uint64_t i = 0; i < n; i += each) {
    auto slice = part;
    slice.box.start[dimension] += i * (part.stride.empty() ? 1 : part.stride[dimension]);
    slice.box.count[dimension] = std::min(each, n - i);
    ADVECTIO_TRY(in_slices(slice, dimension + 1, element, send));
  }
  return {};
}

}  // namespace

Result<void> Service::send_values(Connection& c, const Request& r) {
  const auto it = c.held.find(r.frame);
  if (it == c.held.end() || !it->second.frame.live)
    return Error{Code::not_found, "frame " + std::to_string(r.frame) + " is not held by this reader", 0};
  const auto live = it->second.frame.live;
  if (r.variable >= live->schema->variables.size())
    return Error{Code::not_found, "there is no variable " + std::to_string(r.variable), 0};
  const auto& v = live->schema->variables[r.variable];
  ADVECTIO_TRY(check(r.part, v, [&](std::uint32_t d) -> const Dimension& { return live->schema->dimensions[d]; }));
  for (std::size_t i = 0; i < v.dimensions.size(); ++i) {
    const auto& d = live->schema->dimensions[v.dimensions[i]];
    const auto count = r.part.box.count[i];
    if (!d.unlimited || count == 0) continue;
    const auto last = r.part.box.start[i] + (count - 1) * (r.part.stride.empty() ? 1 : r.part.stride[i]);
    if (last >= live->length(v.dimensions[i]))
      return Error{Code::invalid, v.name + ": the frame does not reach that far along " + d.name, 0};
  }
  const auto f = live->fields.find(r.variable);
  json head = {{"id", r.id}, {"type", std::string(name_of(v.type))}};
  if (v.type == DataType::string) {
    std::vector<String> strings(r.part.box.volume());
    if (f != live->fields.end()) f->second->read(r.part, std::span(strings));
    Bytes all;
    Encoder out(all);
    for (const auto& s : strings) out.string(s);
    ADVECTIO_TRY(send_head(c.socket.get(), head, all.size()));
    c.bytes_sent += all.size();
    return send_bytes(c.socket.get(), all);
  }
  const auto element = size_of(v.type);
  const auto bytes = r.part.box.volume() * element;
  const bool by_ucx = r.by_ucx && c.ucx && bytes > 0;
  if (by_ucx) head["ucx"] = true;
  ADVECTIO_TRY(send_head(c.socket.get(), head, by_ucx ? 0 : bytes));
  c.bytes_sent += bytes;
  Bytes buffer;
  const auto fill = fill_of(v);
  const auto pass = [&](std::span<const std::byte> values) -> Result<void> {
    if (!by_ucx) return send_bytes(c.socket.get(), values);
    // A reader that says something meanwhile has given up, or gone.
    return c.ucx->send(r.id, values, [&c] {
      pollfd p{c.socket.get(), POLLIN | POLLRDHUP, 0};
      return ::poll(&p, 1, 0) != 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    });
  };
  auto send = [&](const Part& part) -> Result<void> {
    c.moved = Clock::now();
    if (f != live->fields.end())
      if (const auto view = f->second->view(part); !view.empty()) return pass(view);
    buffer.resize(part.box.volume() * element);
    if (f == live->fields.end() || !part.dense() || !f->second->covers(part.box))
      for (std::size_t i = 0; i < buffer.size(); i += element) std::memcpy(buffer.data() + i, fill.data(), element);
    if (f != live->fields.end()) f->second->read(part, buffer.data());
    return pass(buffer);
  };
  if (bytes == 0) return {};
  auto done = in_slices(r.part, 0, element, send);
  // Half a message has gone out: there is no way back.
  if (!done) done.error().code = Code::gone;
  return done;
}

json Service::blocks_of(Connection& c, const Request& r, std::vector<int>& descriptors) {
  const auto it = c.held.find(r.frame);
  if (!c.local) return error_reply({Code::unsupported, "only readers on the node of the run can map its memory", 0});
  if (it == c.held.end() || !it->second.frame.live)
    return error_reply({Code::not_found, "frame " + std::to_string(r.frame) + " is not held by this reader", 0});
  const auto& live = *it->second.frame.live;
  json blocks = json::array(), segments = json::array(), unmapped = json::array();
  std::uint64_t at = 0;
  for (const auto variable : r.variables) {
    const auto f = live.fields.find(variable);
    if (f == live.fields.end()) continue;
    const auto all = f->second->blocks();
    if (f->second->type() == DataType::string || std::any_of(all.begin(), all.end(), [&](const Block& b) {
          return live.region_of(b.data, b.bytes) == nullptr;
        })) {
      unmapped.push_back(variable);
      continue;
    }
    for (const auto& b : all) {
      if (at++ < r.from) continue;
      const auto& region = *live.region_of(b.data, b.bytes);
      if (!c.regions.contains(region.id)) {
        if (descriptors.size() == descriptors_max)
          return {{"blocks", blocks}, {"segments", segments}, {"unmapped", unmapped}, {"rest", true}};
        descriptors.push_back(region.descriptor.get());
        segments.push_back({{"segment", region.id}, {"bytes", region.bytes}});
      }
      c.regions[region.id].insert(r.frame);
      json one = {{"variable", variable},
                  {"start", b.box.start},
                  {"count", b.box.count},
                  {"segment", region.id},
                  {"offset", b.data - region.begin}};
      if (!b.stride.empty()) one["stride"] = b.stride;
      blocks.push_back(std::move(one));
    }
  }
  return {{"blocks", blocks}, {"segments", segments}, {"unmapped", unmapped}, {"rest", false}};
}

}  // namespace advectio::readers
