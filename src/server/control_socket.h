// The server's unix socket: one JSON object a line in, one a line out.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "platform/files.h"

namespace advectio {

enum class Request : std::uint8_t { status, drain, leave };

/// One line of a client. The error's text is for it. Code::permission where it does not show the secret.
Result<Request> parse_request(const std::string& line, const std::string& secret);

/// The secret of the run: in a file of the run directory that only its user can read, made where it is not there.
Result<std::string> secret_of_run(Files& files, const std::string& run_dir);

class ControlSocket {
 public:
  struct Handlers {
    std::function<std::string()> status;  ///< the answer to {"do":"status"}
    std::function<void()> drain;          ///< {"do":"drain"} was asked; the answer comes from `finish`
    std::function<void()> leave;          ///< {"do":"leave"}: the same without what can be written later
  };
  /// Listens at `path` (mode 0600; a stale socket of a dead server is replaced). Only processes of this user (or root)
  /// are heard, and of their requests those that show the run's secret: {"do":"status","secret":"…"}.
  static Result<std::unique_ptr<ControlSocket>> open(const std::string& path, std::string secret, Handlers handlers);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  /// Answer everyone who waits for the drain, then stop listening.
  void finish(const std::string& answer);

 private:
  ControlSocket(int listener, std::string path, std::string secret, Handlers handlers);
  void serve();

  struct Client {
    int fd = -1;
    std::string in;
    bool waits_for_drain = false;
  };
  bool handle(Client& client, const std::string& line);

  int listener_;
  int wake_[2] = {-1, -1};
  std::string path_, secret_;
  Handlers handlers_;
  std::mutex mutex_;
  std::vector<Client> clients_;
  std::string final_answer_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace advectio
