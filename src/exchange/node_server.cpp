#include "exchange/node_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "exchange/registry.h"
#include "exchange/transfer.h"
#include "platform/files.h"
#include "readers/listening.h"
#include "readers/message.h"
#include "workflow/versions.h"
#include "workflow/workflow.h"

namespace advectio::exchange {

namespace fs = std::filesystem;
using nlohmann::json;
using readers::Descriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto silent_max = seconds(10);  ///< then a node is taken for gone
constexpr auto beat_each = seconds(1);
constexpr auto look_each = milliseconds(100);
constexpr auto try_again = milliseconds(200);
constexpr auto alone_min = milliseconds(500);  ///< without a program, before the workflow ends
constexpr auto stranger_max = seconds(5);
constexpr std::size_t connections_max = 4096;
constexpr std::size_t untold_max = 1U << 20;
constexpr std::uint32_t events_head_max = 1U << 28;
constexpr int checksums_wrong_max = 3;
constexpr int not_there_max = 50;

std::string hex(unsigned words) {
  std::random_device random;
  std::string out;
  char text[9];
  for (unsigned i = 0; i < words; ++i) {
    std::snprintf(text, sizeof text, "%08x", random());
    out += text;
  }
  return out;
}

/// A connection between nodes must not last longer than its other end.
void prepare(int socket) {
  const int on = 1;
  const unsigned ms = std::chrono::duration_cast<milliseconds>(silent_max).count();
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) * 1e-6);
  return text;
}

class NodeServer {
 public:
  NodeServer(const NodeOptions& options, Log& log) : options_(options), log_(log) {}
  ~NodeServer();
  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;
  Result<void> begin(Descriptor lock);
  void run();

 private:
  /// Another node.
  struct Peer {
    std::string node, host;
    json contact;
    bool connected = false, lost = false, over = false;
    Clock::time_point heard = Clock::now();
    std::uint64_t applied = 0;  ///< of its events
    std::uint64_t fetched = 0, sent = 0;
    std::set<int> sockets;  ///< connections to it
    std::thread follower;
  };
  /// Somebody who has connected.
  struct Guest {
    Descriptor socket;
    Clock::time_point since = Clock::now();
    bool known = false, watches = false, over = false;
    std::deque<json> untold;
    std::thread thread;
  };
  struct Fetch {
    std::set<std::string> entries;  ///< `wanted.…`
    bool over = false;
    std::thread thread;
  };
  /// A connection to a peer, which is shut down when the peer is lost.
  class Link;

  Result<void> find_identity();
  Result<void> write_contact() const;
  [[nodiscard]] std::string contact_path(const std::string& node) const {
    return options_.directory + nodes_directory + "/" + node;
  }
  void tell(json event);
  void want(const std::string& path, const std::string& version, const std::string& entry);

  void find_nodes();
  void meet(const json& contact);
  void follow(Peer& peer);
  bool watch(Peer& peer, const json& contact);
  Result<Descriptor> connect(const json& contact) const;
  void wait_for_causes(std::unique_lock<std::mutex>& held, const json& after);
  void lose(Peer& peer, const std::string& why);

  void accept_guests();
  void serve(Guest& guest);
  void tell_guest(Guest& guest);

  void fetch(const std::string& path, const std::string& version, Fetch& fetch);
  Result<std::uint64_t> fetch_once(Peer& peer, const std::string& path, const std::string& version,
                                   const std::string& to);

  void look_around();
  void write_state();
  bool may_end();
  bool end();

  const NodeOptions options_;
  Log& log_;
  Descriptor lock_, wake_;
  std::string node_, secret_;
  std::vector<std::string> addresses_;
  std::vector<Descriptor> listeners_;
  std::unique_ptr<Registry> registry_;

  std::mutex mutex_;  ///< of all below, and of the registry
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::list<std::unique_ptr<Guest>> guests_;
  std::map<std::string, std::unique_ptr<Fetch>> fetches_;
  std::uint64_t told_ = 0;  ///< number of the last event; a later server of this node goes on above it
  std::uint64_t fetched_ = 0, sent_ = 0;
  bool stopping_ = false, end_asked_ = false;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point alone_since_ = Clock::now();
  std::string state_;
  std::thread accepting_, finding_;
};

class NodeServer::Link {
 public:
  Link(NodeServer& server, Peer& peer, Descriptor socket) : server_(server), peer_(peer), socket_(std::move(socket)) {
    const std::lock_guard guard(server_.mutex_);
    peer_.sockets.insert(socket_.get());
  }
  ~Link() {
    const std::lock_guard guard(server_.mutex_);
    peer_.sockets.erase(socket_.get());
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  [[nodiscard]] int get() const { return socket_.get(); }

 private:
  NodeServer& server_;
  Peer& peer_;
  Descriptor socket_;
};

Result<void> NodeServer::find_identity() {
  const auto path = options_.memory + "/node";
  if (auto there = text_of(path); there && !there->empty()) {
    node_ = *there;
    return {};
  }
  node_ = readers::host_name() + "-" + hex(1);
  // It stands in the names of files.
  std::replace_if(
      node_.begin(), node_.end(), [](char c) { return c == '/' || c == workflow::of_node; }, '_');
  return replace_file(system_files(), path, std::as_bytes(std::span(node_)));
}

Result<void> NodeServer::begin(Descriptor lock) {
  lock_ = std::move(lock);
  ADVECTIO_TRY(find_identity());
  secret_ = hex(4);
  told_ = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  for (const auto& text : options_.listen) {
    auto listening = readers::listen_at(text);
    if (!listening) return std::move(listening).error().with("workflow.listen");
    addresses_.push_back(std::move(listening->address));
    listeners_.push_back(std::move(listening->socket));
  }
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return system_error("eventfd", errno);
  registry_ = std::make_unique<Registry>(
      options_.memory, node_, [this](json event) { tell(std::move(event)); },
      [this](const auto& path, const auto& version, const auto& entry) { want(path, version, entry); }, log_);
  {
    const std::lock_guard guard(mutex_);
    ADVECTIO_TRY(registry_->begin());
  }
  ADVECTIO_TRY_WITH(write_contact(), "tell other nodes where this one listens");
  accepting_ = std::thread([this] { accept_guests(); });
  // A file system of many nodes may let us wait: on a thread of its own.
  finding_ = std::thread([this] {
    std::unique_lock held(mutex_);
    while (!stopping_) {
      held.unlock();
      find_nodes();
      held.lock();
      changed_.wait_for(held, seconds(1), [this] { return stopping_; });
    }
  });
  return {};
}

Result<void> NodeServer::write_contact() const {
  const json contact = {{"advectio", "workflow"},
                        {"protocol", 1},
                        {"workflow", fs::path(options_.memory).filename().string()},
                        {"node", node_},
                        {"host", readers::host_name()},
                        {"addresses", addresses_},
                        {"secret", secret_},
                        {"pid", ::getpid()}};
  ADVECTIO_TRY(system_files().make_directory(options_.directory + nodes_directory, 0700));
  const auto text = contact.dump(1) + "\n";
  const auto next = contact_path("." + node_);
  {
    auto file = system_files().open(next, OpenMode::create, 0600);
    if (!file) return std::move(file).error();
    ADVECTIO_TRY((*file)->write(0, std::as_bytes(std::span(text))));
    ADVECTIO_TRY((*file)->sync());
  }
  return system_files().rename(next, contact_path(node_));
}

NodeServer::~NodeServer() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
    changed_.notify_all();
    for (const auto& [name, peer] : peers_)
      for (const int socket : peer->sockets) (void)::shutdown(socket, SHUT_RDWR);
    for (const auto& guest : guests_) (void)::shutdown(guest->socket.get(), SHUT_RDWR);
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (accepting_.joinable()) accepting_.join();
  if (finding_.joinable()) finding_.join();
  for (const auto& [name, fetch] : fetches_)
    if (fetch->thread.joinable()) fetch->thread.join();
  for (const auto& [name, peer] : peers_)
    if (peer->follower.joinable()) peer->follower.join();
  for (const auto& guest : guests_)
    if (guest->thread.joinable()) guest->thread.join();
}

// --- what this node tells the others
// -------------------------------------------------------------------------------------

void NodeServer::tell(json event) {
  ++told_;
  for (const auto& guest : guests_) {
    if (!guest->watches || guest->over) continue;
    guest->untold.push_back(event);
    // It does not listen; when it does again, it begins anew.
    if (guest->untold.size() > untold_max) (void)::shutdown(guest->socket.get(), SHUT_RDWR);
  }
  changed_.notify_all();
}

void NodeServer::accept_guests() {
  for (;;) {
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
    for (const auto& l : listeners_) polls.push_back({l.get(), POLLIN, 0});
    if (::poll(polls.data(), polls.size(), 1000) < 0 && errno != EINTR) return;
    std::unique_lock held(mutex_);
    if (stopping_) return;
    for (auto it = guests_.begin(); it != guests_.end();) {
      auto& guest = **it;
      if (!guest.known && Clock::now() - guest.since > stranger_max) (void)::shutdown(guest.socket.get(), SHUT_RDWR);
      if (!guest.over) {
        ++it;
        continue;
      }
      guest.thread.join();
      it = guests_.erase(it);
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if ((polls[i + 1].revents & POLLIN) == 0) continue;
      Descriptor fd(::accept4(listeners_[i].get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd || guests_.size() >= connections_max) continue;
      prepare(fd.get());
      auto& guest = *guests_.emplace_back(std::make_unique<Guest>());
      guest.socket = std::move(fd);
      guest.thread = std::thread([this, &guest] {
        serve(guest);
        (void)::shutdown(guest.socket.get(), SHUT_RDWR);
        const std::lock_guard guard(mutex_);
        guest.over = true;
      });
    }
  }
}

void NodeServer::serve(Guest& guest) {
  const int socket = guest.socket.get();
  auto head = readers::receive_head(socket, 1U << 16);
  if (!head || !*head || (**head).data_bytes > 0) return;
  const auto& request = (**head).object;
  const auto text = [&request](const char* key) {
    return request.contains(key) && request[key].is_string() ? request[key].get<std::string>() : std::string();
  };
  if (!readers::same_secret(text("secret"), secret_)) {
    (void)readers::send_head(socket,
                             {{"error", "show the secret of this node's contact file"}, {"code", "permission"}});
    return;
  }
  {
    const std::lock_guard guard(mutex_);
    guest.known = true;
  }
  if (text("do") == "watch") {
    if (request.contains("contact")) meet(request["contact"]);
    tell_guest(guest);
  } else if (text("do") == "fetch") {
    std::string version;
    {
      const std::lock_guard guard(mutex_);
      const auto newest = registry_->newest(text("path"));
      if (!newest.name.empty() && newest.name == text("version") && newest.link.empty())
        version = registry_->directory_of(text("path")) + "/" + newest.name;
    }
    auto sent = send_version(socket, version);
    const std::lock_guard guard(mutex_);
    if (sent) sent_ += *sent;
  } else {
    (void)readers::send_head(socket, {{"error", "there are watch and fetch"}, {"code", "invalid"}});
  }
}

void NodeServer::tell_guest(Guest& guest) {
  json message;
  {
    const std::lock_guard guard(mutex_);
    message = {{"whole", registry_->whole()}, {"number", told_}};
    guest.watches = true;
  }
  for (;;) {
    if (!readers::send_head(guest.socket.get(), message) || message.contains("bye")) return;
    std::unique_lock held(mutex_);
    changed_.wait_for(held, beat_each, [&] { return stopping_ || !guest.untold.empty(); });
    if (guest.untold.empty()) {
      message = {{"beat", true}, {"fetched", fetched_}, {"sent", sent_}};
      if (stopping_) message["bye"] = true;
      continue;
    }
    json after = json::object();
    for (const auto& [name, peer] : peers_)
      if (!peer->lost) after[name] = peer->applied;
    message = {{"events", guest.untold}, {"number", told_}, {"after", std::move(after)}};
    guest.untold.clear();
  }
}

// --- what the others tell
// -----------------------------------------------------------------------------------------------

void NodeServer::find_nodes() {
  auto names = system_files().list(options_.directory + nodes_directory);
  if (!names) return;
  for (const auto& name : *names) {
    if (name == node_ || name.starts_with(".")) continue;
    const auto text = text_of(contact_path(name));
    if (!text) continue;
    const auto contact = json::parse(*text, nullptr, false);
    if (contact.is_object() && contact.value("node", "") == name) meet(contact);
  }
}

void NodeServer::meet(const json& contact) {
  if (!contact.is_object()) return;
  const auto text = [&contact](const char* key) {
    return contact.contains(key) && contact[key].is_string() ? contact[key].get<std::string>() : std::string();
  };
  const auto name = text("node");
  if (name.empty() || name == node_ || name.find_first_of("/@") != std::string::npos || name[0] == '.' ||
      text("workflow") != fs::path(options_.memory).filename().string())
    return;
  const std::lock_guard guard(mutex_);
  if (stopping_) return;
  auto& peer = peers_[name];
  if (peer && peer->over && peer->contact != contact) {  // it has ended, and begun again
    peer->follower.join();
    peer.reset();
  }
  if (!peer) {
    peer = std::make_unique<Peer>();
    peer->node = name;
    peer->host = text("host");
    peer->contact = contact;
    peer->follower = std::thread([this, &its = *peer] { follow(its); });
  }
  peer->contact = contact;
}

Result<Descriptor> NodeServer::connect(const json& contact) const {
  Result<Descriptor> out = Error{Code::gone, "it has no address", 0};
  for (const auto& text : contact.value("addresses", json::array())) {
    if (!text.is_string()) continue;
    auto address = readers::parse_address(text.get<std::string>());
    if (!address || address->local) continue;
    if (address->host == "0.0.0.0" || address->host == "::") address->host = contact.value("host", "");
    out = readers::connect_to(*address, seconds(2));
    if (!out) continue;
    prepare(out->get());
    break;
  }
  return out;
}

void NodeServer::follow(Peer& peer) {
  std::unique_lock held(mutex_);
  while (!stopping_) {
    const auto contact = peer.contact;
    held.unlock();
    const bool bye = watch(peer, contact);
    held.lock();
    peer.connected = false;
    changed_.notify_all();
    if (bye && !stopping_) {
      lose(peer, "");
      peer.over = true;
      return;
    }
    if (!peer.lost && Clock::now() - peer.heard > silent_max) lose(peer, "has not been heard of for 10 s");
    changed_.wait_for(held, peer.lost ? milliseconds(beat_each) : try_again, [this] { return stopping_; });
  }
}

/// True: it has said that it ends.
bool NodeServer::watch(Peer& peer, const json& contact) {
  auto connected = connect(contact);
  if (!connected) return false;
  const Link link(*this, peer, std::move(connected).value());
  json own;
  if (const auto text = text_of(contact_path(node_)); text) own = json::parse(*text, nullptr, false);
  if (!readers::send_head(link.get(), {{"do", "watch"}, {"secret", contact.value("secret", "")}, {"contact", own}}))
    return false;
  {
    const std::lock_guard guard(mutex_);
    peer.connected = true;  // so that it is looked after
    if (peer.lost) peer.heard = Clock::now();
  }
  for (bool first = true;; first = false) {
    auto head = readers::receive_head(link.get(), events_head_max);
    if (!head || !*head) return false;
    const auto& message = (**head).object;
    std::unique_lock held(mutex_);
    peer.heard = Clock::now();
    if (stopping_ || message.contains("error")) return false;
    if (first != message.contains("whole")) return false;
    if (message.contains("bye")) return true;
    peer.fetched = message.value("fetched", peer.fetched);
    peer.sent = message.value("sent", peer.sent);
    if (message.contains("whole")) {
      if (std::exchange(peer.lost, false)) log_.warning("node " + peer.host + " is there again");
      registry_->take_whole(peer.node, message["whole"].get<std::vector<json>>());
    } else if (message.contains("events")) {
      wait_for_causes(held, message.value("after", json::object()));
      for (const auto& event : message["events"]) {
        if (event.contains("over"))
          end_asked_ = true;
        else
          registry_->take(peer.node, event);
      }
    } else {
      continue;
    }
    peer.applied = message.value("number", peer.applied);
    changed_.notify_all();
  }
}

/// What the other node knew of further ones before it said this, we know, too: so that nobody here sees the effect
/// without the cause.
void NodeServer::wait_for_causes(std::unique_lock<std::mutex>& held, const json& after) {
  const auto until = Clock::now() + silent_max / 2;
  for (const auto& [name, number] : after.items()) {
    if (name == node_ || !number.is_number_unsigned()) continue;
    changed_.wait_until(held, until, [&, &key = name, wanted = number.get<std::uint64_t>()] {
      const auto found = peers_.find(key);
      return stopping_ || found == peers_.end() || found->second->lost || found->second->over ||
             found->second->applied >= wanted;
    });
  }
}

void NodeServer::lose(Peer& peer, const std::string& why) {
  if (std::exchange(peer.lost, true)) return;
  if (!why.empty()) log_.warning("node " + peer.host + " " + why + ": its programs are taken for dead");
  registry_->lose(peer.node);
  for (const int socket : peer.sockets) (void)::shutdown(socket, SHUT_RDWR);
  changed_.notify_all();
}

// --- versions of others
// -------------------------------------------------------------------------------------------------

void NodeServer::want(const std::string& path, const std::string& version, const std::string& entry) {
  const auto key = path + "/" + version;
  auto& fetching = fetches_[key];
  if (fetching && fetching->over) {
    fetching->thread.join();
    fetching.reset();
  }
  if (fetching) {
    fetching->entries.insert(entry);
    return;
  }
  fetching = std::make_unique<Fetch>();
  fetching->entries.insert(entry);
  fetching->thread = std::thread([this, path, version, &its = *fetching] { fetch(path, version, its); });
}

void NodeServer::fetch(const std::string& path, const std::string& version, Fetch& fetching) {
  std::unique_lock held(mutex_);
  const auto directory = registry_->directory_of(path);
  const auto to = directory + "/coming." + version;
  const auto refuse = [&](int sys, const std::string& why) {
    for (const auto& entry : fetching.entries) {
      const auto text = std::to_string(sys) + " " + why;
      (void)replace_file(system_files(), directory + "/refused." + entry.substr(entry.find('.') + 1),
                         std::as_bytes(std::span(text)));
    }
    log_.warning(path + ": version " + version + " " + why);
  };
  int wrong = 0, not_there = 0;
  for (;;) {
    const auto newest = registry_->newest(path);
    const bool is_wanted = std::any_of(fetching.entries.begin(), fetching.entries.end(), [&](const auto& e) {
      return fs::is_symlink(fs::symlink_status(directory + "/" + e));
    });
    if (stopping_ || !is_wanted || newest.name != version || !workflow::elsewhere(directory + "/" + version)) break;
    const auto found = peers_.find(newest.node);
    if (found == peers_.end() && Clock::now() - begun_ < silent_max) {  // it has not been found yet
      changed_.wait_for(held, try_again, [this] { return stopping_; });
      continue;
    }
    if (found == peers_.end() || found->second->lost) {
      const auto host = found == peers_.end() ? newest.node : found->second->host;
      refuse(EOWNERDEAD, "is in the memory of node " + host + ", which is not there any more; node " +
                             readers::host_name() + " cannot fetch it");
      break;
    }
    auto& peer = *found->second;
    held.unlock();
    (void)::unlink(to.c_str());  // of a server that has died
    auto got = fetch_once(peer, path, version, to);
    held.lock();
    if (got) {
      fetched_ += *got;
      log_.info("fetched " + path + " version " + version + " from " + peer.host + ": " + std::to_string(*got) +
                " bytes");
      if (auto taken = workflow::take_in(to, directory + "/" + version); !taken)
        refuse(taken.error().sys, taken.error().message);
      break;
    }
    const auto& error = got.error();
    if (error.code == Code::full) {
      refuse(ENOSPC, "is in the memory of node " + peer.host + ", and that of node " + readers::host_name() +
                         " has no room for its " + megabytes(newest.bytes) + " (" +
                         fs::path(options_.memory).parent_path().string() + ")");
      break;
    }
    if (error.code == Code::corrupt && ++wrong >= checksums_wrong_max) {
      refuse(EIO, "from node " + peer.host + " to node " + readers::host_name() + ": " + error.message);
      break;
    }
    if (error.code == Code::not_found && ++not_there >= not_there_max) {
      refuse(ENOENT, "is not on node " + peer.host + " any more");
      break;
    }
    log_.debug(path + " version " + version + " from " + peer.host + ": " + error.message);
    // A newer one, or none, is about to be told; or its server is about to be there again.
    changed_.wait_for(held, try_again, [this] { return stopping_; });
  }
  (void)::unlink(to.c_str());
  fetching.over = true;
}

Result<std::uint64_t> NodeServer::fetch_once(Peer& peer, const std::string& path, const std::string& version,
                                             const std::string& to) {
  json contact;
  {
    const std::lock_guard guard(mutex_);
    contact = peer.contact;
  }
  auto connected = connect(contact);
  if (!connected) return std::move(connected).error();
  const Link link(*this, peer, std::move(connected).value());
  ADVECTIO_TRY(readers::send_head(
      link.get(), {{"do", "fetch"}, {"secret", contact.value("secret", "")}, {"path", path}, {"version", version}}));
  return receive_version(link.get(), to);
}

// --- the loop
// -----------------------------------------------------------------------------------------------------------

void NodeServer::run() {
  for (;;) {
    pollfd poll_for{registry_->descriptor(), POLLIN, 0};
    (void)::poll(&poll_for, 1, static_cast<int>(look_each.count()));
    const std::lock_guard guard(mutex_);
    registry_->look();
    look_around();
    if (may_end() && end()) break;
  }
}

void NodeServer::look_around() {
  const auto now = Clock::now();
  for (const auto& [name, peer] : peers_)
    if (peer->connected && !peer->lost && now - peer->heard > silent_max)
      for (const int socket : peer->sockets) (void)::shutdown(socket, SHUT_RDWR);  // its follower looks after the rest
  std::erase_if(fetches_, [](auto& f) {
    if (f.second->over) f.second->thread.join();
    return f.second->over;
  });
  if (!end_asked_ && system_files().exists(options_.memory + "/end")) {
    end_asked_ = true;
    tell({{"over", true}});
  }
  write_state();
}

/// For `advectio status`.
void NodeServer::write_state() {
  json nodes = json::array();
  nodes.push_back({{"node", node_},
                   {"host", readers::host_name()},
                   {"state", "here"},
                   {"bytes_fetched", fetched_},
                   {"bytes_sent", sent_}});
  for (const auto& [name, peer] : peers_)
    nodes.push_back({{"node", name},
                     {"host", peer->host},
                     {"state", peer->over                             ? "ended"
                               : peer->lost                           ? "lost"
                               : peer->connected && peer->applied > 0 ? "connected"
                                                                      : "connecting"},
                     {"bytes_fetched", peer->fetched},
                     {"bytes_sent", peer->sent}});
  auto text = nodes.dump();
  if (text == state_) return;
  state_ = std::move(text);
  (void)replace_file(system_files(), options_.memory + "/nodes", std::as_bytes(std::span(state_)));
}

bool NodeServer::may_end() {
  const auto now = Clock::now();
  if (registry_->anybody_alive(end_asked_) || (!end_asked_ && registry_->anything_unread())) {
    alone_since_ = now;
    return false;
  }
  return now - alone_since_ > alone_min;
}

/// False: a program has just come.
bool NodeServer::end() {
  // Who comes to the workflow on this node holds this lock meanwhile (python/src/advectio/workflow.py).
  const auto above = fs::path(options_.memory).parent_path().string();
  const Descriptor turn(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (turn && ::flock(turn.get(), LOCK_EX | LOCK_NB) != 0) return false;
  registry_->look();
  if (registry_->anybody_alive(end_asked_)) return false;
  stopping_ = true;
  changed_.notify_all();
  for (const auto& [name, peer] : peers_)
    if (peer->lost) (void)::unlink(contact_path(name).c_str());
  (void)::unlink(contact_path(node_).c_str());
  const auto file = options_.directory + "/advectio.workflow";
  const auto text = text_of(file);
  const auto identity = text ? json::parse(*text, nullptr, false) : json();
  const bool ours =
      identity.is_object() && ".workflow-" + identity.value("id", "") == fs::path(options_.memory).filename().string();
  // The last node takes it away.
  if (::rmdir((options_.directory + nodes_directory).c_str()) == 0 && ours) (void)::unlink(file.c_str());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options_.memory, ignored))
    if (entry.path().filename() != fs::path(workflow::node_server).filename()) fs::remove_all(entry.path(), ignored);
  fs::remove_all(options_.memory, ignored);
  return true;
}

}  // namespace

Result<void> serve_node(const NodeOptions& options, Log& log, void (*ready)()) {
  const auto path = options.memory + workflow::node_server;
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return system_error("open " + path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error("lock " + path, errno);
    ready();
    return {};
  }
  NodeServer server(options, log);
  ADVECTIO_TRY(server.begin(std::move(lock)));
  ready();
  server.run();
  return {};
}

}  // namespace advectio::exchange
