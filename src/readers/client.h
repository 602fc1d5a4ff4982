// The reading end: takes frames from a server, and reads boxes of their fields. On the node of the run
// it maps the stage, and copies nothing that lies in one piece; from elsewhere values come over the
// connection. No MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/field.h"
#include "platform/files.h"
#include "readers/message.h"
#include "readers/schema_json.h"
#include "readers/ucx.h"

namespace advectio::readers {

/// One connection. Any thread may call any function; a thread of its own receives.
class Client {
 public:
  /// Blocks for at most twice the timeout: to connect, and for the server's first answer.
  /// Errors: Code::gone where nobody listens, Code::timeout, Code::permission for a wrong secret.
  /// `by_ucx`: values come over UCX. Code::unsupported where one of the two ends has none.
  static Result<std::unique_ptr<Client>> connect(const Address& address, const std::string& secret,
                                                 const std::string& name, std::chrono::milliseconds timeout,
                                                 bool by_ucx = false);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// What the server has said in answer to `hello`.
  [[nodiscard]] const nlohmann::json& server() const noexcept { return server_; }

  /// Any request of PROTOCOL.md that gets no data. Blocks until the answer is there.
  /// Errors: what the server says; Code::gone where it has gone.
  Result<nlohmann::json> ask(nlohmann::json request);

  /// Values of a frame that this reader has taken, and is not done with: dense, row-major, native byte
  /// order. Elements that nobody has put hold the fill value. `destination`: volume × size bytes.
  /// Errors: Code::not_found, Code::invalid, Code::gone.
  Result<void> read(std::uint64_t frame, std::uint32_t variable, const Part& part, std::span<std::byte> destination);
  /// The same of strings: for each its length (u32, or `null_string`) and bytes.
  Result<Bytes> read_strings(std::uint64_t frame, std::uint32_t variable, const Part& part);
  /// The memory where the values lie as `read` would copy them, in the stage; empty where there is
  /// none. It stays as long as the lease.
  Result<std::pair<std::span<const std::byte>, Lease>> view(std::uint64_t frame, std::uint32_t variable,
                                                            const Part& part);
  /// The frame is not read any more. Views of it stay as long as their leases.
  void done(std::uint64_t frame);

  /// The server's last word, once it is there: {"end": true, "frames": […]}. Null: it has not ended.
  /// `wait`: blocks until it has ended or gone.
  nlohmann::json end(bool wait);
  /// Nothing can be asked any more.
  [[nodiscard]] bool gone();

 private:
  Client() = default;
  struct Reply {
    nlohmann::json object;
    Bytes data;
    std::vector<Descriptor> descriptors;
  };
  struct Pending {
    std::promise<Result<Reply>> promise;
    std::span<std::byte> destination;
  };
  void receive();
  /// With a timeout: Code::timeout where no answer comes, and the connection has ended.
  Result<Reply> request(nlohmann::json object, std::span<std::byte> destination = {},
                        std::optional<std::chrono::milliseconds> timeout = {});
  Result<std::shared_ptr<const AssembledField>> mapped(std::uint64_t frame, std::uint32_t variable);
  Result<ReadVariable> variable_of(std::uint64_t frame, std::uint32_t variable);
  void note_frame(const nlohmann::json& reply);

  Descriptor socket_;
  nlohmann::json server_;
  bool maps_ = false;
  std::unique_ptr<Ucx> ucx_;
  std::mutex receiving_by_ucx_;

  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Pending> pending_;
  nlohmann::json end_;
  std::optional<Error> broken_;
  std::map<std::uint64_t, std::uint64_t> schema_of_frame_;
  std::map<std::uint64_t, std::vector<ReadVariable>> schemas_;

  // Held while fields are mapped, over requests. The receiving thread never takes it.
  std::mutex mapping_;
  struct Frame {
    std::map<std::uint32_t, std::shared_ptr<const AssembledField>> fields;  ///< null: it cannot be mapped
    std::set<std::uint64_t> segments;
  };
  std::map<std::uint64_t, Frame> frames_;
  std::map<std::uint64_t, std::shared_ptr<const Mapping>> segments_;

  std::thread thread_;
};

}  // namespace advectio::readers
