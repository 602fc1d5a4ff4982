// Nodes that help each other: what one has too much of to do (chunks to compress), another does in its own threads.
// The relay carries it, on a lane of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cluster/transport.h"
#include "core/executor.h"
#include "core/helpers.h"

namespace advectio {

/// Who writes files helps: all nodes, or, where there are nodes for output only, these. Others have their cores for
/// the model.
class RemoteEncoder final : public Helpers {
 public:
  /// What another node has asked for; null: it cannot be done here. On a thread of the executor.
  using Work = std::function<std::shared_ptr<const Message>(std::span<const std::byte> request)>;
  /// Less is done sooner than sent, and more is not sent as one message.
  static constexpr std::size_t worth_sending = std::size_t{256} << 10, bytes_max = std::size_t{512} << 20;

  /// The executor must outlive this.
  RemoteEncoder(const Transport& transport, Executor& executor, Work work, std::size_t least_bytes = worth_sending);
  /// Waits for work that has begun. Whoever may ask or be connected must have gone.
  ~RemoteEncoder() override;
  RemoteEncoder(const RemoteEncoder&) = delete;
  RemoteEncoder& operator=(const RemoteEncoder&) = delete;

  std::optional<unsigned> place(std::size_t bytes) override;
  void let_go(unsigned place) override;
  void ask(unsigned place, std::shared_ptr<const Message> request, Answer answer) override;

  [[nodiscard]] std::uint64_t by_others() const noexcept { return by_others_; }    ///< and answered
  [[nodiscard]] std::uint64_t for_others() const noexcept { return for_others_; }  ///< for others

  // ---- for who carries it ----

  struct Letter {
    unsigned to = 0;
    int kind = 0;
    std::shared_ptr<const Message> message;
  };
  /// `send` is called by any thread, and may keep the letter until it has gone.
  void connect(std::function<void(Letter)> send);
  void take(unsigned from, int kind, Message message);
  /// Nobody is asked any more: the others may end. They still get their answers.
  void ask_no_more();
  /// This node ends, whoever waits for its answers. For each of the others, to be sent behind all answers.
  [[nodiscard]] std::vector<Letter> goodbye() const;
  /// Nothing comes any more: who has asked gets no answer, and nobody is asked again.
  void disconnect();

 private:
  struct Place {
    bool taken = false;
    Answer answer;
  };
  struct Node {
    std::vector<Place> places;  ///< as many as it has said
    std::size_t taken = 0;
    std::uint64_t busy_until_ns = 0;
  };

  [[nodiscard]] bool helps(unsigned node) const noexcept;
  void help(unsigned from, unsigned place, std::shared_ptr<const Message> request);
  Place& at(unsigned place) { return nodes_[place / places_max].places[place % places_max]; }
  void free(unsigned place);
  void give_up(unsigned node, std::vector<Answer>& answers);

  static constexpr unsigned places_max = 64;  // at one node

  const unsigned own_, count_, io_nodes_;
  Executor& executor_;
  const Work work_;
  const std::size_t least_bytes_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable idle_;
  std::function<void(Letter)> send_;
  std::vector<Node> nodes_;
  unsigned remote_encoder_ = 0;  // pieces of work for others
  bool asks_no_more_ = false;

  std::atomic<std::uint64_t> by_others_{0}, for_others_{0};
};

}  // namespace advectio
