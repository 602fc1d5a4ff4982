// Answers readers: on the run directory's socket, and on the addresses of the config's `readers.listen`.
// The contact file names the servers of all nodes that listen; one of them writes it.
// A thread for each reader: one that is slow, stopped or lying holds up nobody else.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "platform/log.h"
#include "readers/frame_store.h"

namespace advectio::readers {

struct ServiceOptions {
  std::string socket;               ///< path of the local one
  std::vector<std::string> listen;  ///< "tcp:HOST:PORT", or "tcp:NETWORK/BITS:PORT"; port 0: any
  std::string secret;
  std::string run_dir, directory;
  std::chrono::milliseconds message_max{3000};  ///< at the end, within a message of a reader of this node
  std::chrono::milliseconds group_max{1000};    ///< at the end, until a member of a group asks for what is left of it
};

class Service {
 public:
  /// Listens from here on. Errors: Code::invalid for an address that is none; others of the system.
  static Result<std::unique_ptr<Service>> open(FrameStore& store, ServiceOptions options, Log& log);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// The run has ended. Readers of this node find the rest in the files; readers elsewhere get what
  /// waits for them, as long as they ask. Blocks for that, at most a minute. A server that has taken over
  /// waits before for the readers of the one before, until some seconds after `open`. A reader that stops
  /// in the midst of a message is cut off after some seconds.
  void finish();
  /// This server's part of the contact file (PROTOCOL.md); null: it listens nowhere else than on its node.
  [[nodiscard]] nlohmann::json contact() const;
  /// Writes the file for readers on other nodes, which only its user can read. It is removed with the service.
  Result<void> write_contact(const std::string& file, const nlohmann::json& nodes);
  /// The file stays: another server takes the place of this one, and readers must not think that the run is over.
  void keep_contact() { contact_.clear(); }
  /// Of each reader: who it is, what it wants, what it holds.
  nlohmann::json status();

 private:
  struct Connection;
  Service(FrameStore& store, ServiceOptions options, Log& log);
  Result<void> listen_at(const std::string& address);
  void accept_readers();
  void serve(Connection& c);
  bool answer(Connection& c, Head head);
  nlohmann::json reply_to(Connection& c, const Request& request, bool& sent);
  Result<void> send_values(Connection& c, const Request& request);
  nlohmann::json blocks_of(Connection& c, const Request& request, std::vector<int>& descriptors);
  void answer_next(Connection& c);
  bool say_end(Connection& c);
  /// Who gets what a group has not taken when the run ends?
  enum class Rest : std::uint8_t { mine, others, not_known_yet };
  Rest rest_of(const Connection& c, const FrameStore::Subscription& s);

  FrameStore& store_;
  const ServiceOptions options_;
  Log& log_;
  std::vector<Descriptor> listeners_;
  std::vector<std::string> addresses_;  ///< as they are, of those that are not local
  std::string contact_;                 ///< the file, once it is written
  Descriptor wake_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::chrono::steady_clock::time_point> ended_{std::chrono::steady_clock::time_point::max()};
  const std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace advectio::readers
