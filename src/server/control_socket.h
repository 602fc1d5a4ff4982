// The server's unix socket: one JSON object a line in, one a line out.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"

namespace advectio {

enum class Request : std::uint8_t { status, drain, leave };

/// One line of a client. The error's text is for it.
Result<Request> parse_request(const std::string& line);

class ControlSocket {
 public:
  struct Handlers {
    std::function<std::string()> status;  ///< the answer to {"do":"status"}
    std::function<void()> drain;          ///< {"do":"drain"} was asked; the answer comes from `finish`
    std::function<void()> leave;          ///< {"do":"leave"}: the same without what can be written later
  };
  /// Listens at `path` (mode 0600; a stale socket of a dead server is replaced).
  static Result<std::unique_ptr<ControlSocket>> open(const std::string& path, Handlers handlers);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  /// Answer everyone who waits for the drain, then stop listening.
  void finish(const std::string& answer);

 private:
  ControlSocket(int listener, std::string path, Handlers handlers);
  void serve();

  struct Client {
    int fd = -1;
    std::string in;
    bool waits_for_drain = false;
  };
  bool handle(Client& client, const std::string& line);

  int listener_;
  int wake_[2] = {-1, -1};
  std::string path_;
  Handlers handlers_;
  std::mutex mutex_;
  std::vector<Client> clients_;
  std::string final_answer_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace advectio
