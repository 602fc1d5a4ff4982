// Between the servers of a run on several nodes. Each dataset has one owner, the server that writes its file. The
// others send it what the journals of their node say of the dataset, record by record, and the owner's server follows
// those as mirrors (journal/mirror.h), like any journal. Back come the dataset's progress, and what the writers on the
// other nodes have told of themselves in their slots.
//
// A node keeps its records until the owner has committed them: the death of any server loses nothing, for all of them
// begin again together and say again what is not visible.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cluster/peers.h"
#include "cluster/remote_encoder.h"
#include "cluster/transport.h"
#include "core/bytes.h"
#include "journal/mirror.h"
#include "journal/reader.h"
#include "platform/log.h"

namespace advectio {

class Relay final : public Peers {
 public:
  /// `remote_encoder`: null, or it lives longer than this.
  Relay(const journal::Stage& stage, Transport& transport, RemoteEncoder* remote_encoder, Log& log);
  /// Messages under way are waited for, unless `cut_short`.
  ~Relay() override;
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] unsigned node() const noexcept override { return transport_.node(); }
  [[nodiscard]] const std::string& name(unsigned node) const noexcept override { return transport_.name(node); }
  [[nodiscard]] bool own(const journal::SharedState& shared_state) const noexcept override {
    return shared_state.owner != 0 && shared_state.owner - 1 != node();
  }

  void announce(const DatasetId& id, const journal::SharedState& shared_state) override;
  void send_slot(const DatasetId& id, const journal::SharedState& shared_state, std::uint32_t writer,
                 const SlotState& slot) override;
  void send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
            const journal::Record& record) override;
  [[nodiscard]] std::uint64_t unsent(std::uint64_t journal) const override;
  void farewell(const DatasetId& id, unsigned owner) override;
  void writer_gone(std::uint64_t journal) override;
  void request_space() override;

  void ask(const std::string& question) override;

  void ended(const DatasetId& id, journal::DatasetState state) override;
  [[nodiscard]] bool space_requested() const noexcept override;
  [[nodiscard]] bool held_up() const noexcept override { return held_up_.load(); }

  void drain() override;
  [[nodiscard]] bool drain_wanted() const noexcept override { return drain_wanted_.load(); }
  void quiet() override;
  [[nodiscard]] bool is_quiet() const override;
  [[nodiscard]] bool all_quiet() const override;
  [[nodiscard]] bool missed_any() const noexcept override { return missed_.load(); }
  void final(bool clean, const std::string& status) override;
  [[nodiscard]] bool all_final() const override;
  [[nodiscard]] bool all_clean() const override;
  void cut_short() noexcept override { cut_short_ = true; }

  void snapshot(const std::string& status) override;
  [[nodiscard]] std::vector<std::string> snapshots() const override;

 private:
  [[nodiscard]] unsigned nodes() const noexcept { return transport_.nodes(); }

  struct Outgoing {
    unsigned to = 0;
    Transport::Lane lane = Transport::Lane::words;
    int kind = 0;
    Bytes own;
    std::span<const std::byte> bytes;  ///< where not `own`
    std::uint64_t journal = 0;         ///< of the record, where it is one
    std::uint64_t sequence = 0;
    std::shared_ptr<const Message> letter;  ///< of who helps, or is helped
  };
  /// Asked by a process of another node.
  struct Question {
    unsigned from = 0;
    std::string name;
    std::string state_name;
    journal::MappedState<journal::SharedState> shared_state;
    std::uint64_t target = 0;
    bool for_writing = false;
  };
  /// A dataset that another node owns. The shared states are those from its beginning: its name may be another's by
  /// now.
  struct Followed {
    journal::MappedState<journal::SharedState> shared_state;
    journal::MappedState<journal::WriterSlot> slots;
  };
  /// A dataset that this node owns and others have part in.
  struct Owned {
    journal::MappedState<journal::SharedState> shared_state;
    journal::MappedState<journal::WriterSlot> slots;
    std::uint32_t writers = 0;
    std::set<unsigned> nodes;
    Bytes sent_state;
  };

  void work();
  bool send_some();
  void send_now(std::unique_lock<std::mutex>& guard, Outgoing message);
  bool take_arrivals();
  bool take_from_journals(const Transport::Arrival& arrival);
  void take_word(const Transport::Arrival& arrival, const Bytes& bytes);
  bool send_progress();
  bool send_news();
  void on_announce(unsigned from, Decoder& in);
  void on_tell(Decoder& in);
  void miss(const std::string& what, const Error& why);
  void on_progress(Decoder& in);
  void on_farewell(unsigned from, const DatasetId& id);
  void forget(const DatasetId& id);
  void on_question(unsigned from, Decoder& in);
  void on_answer(Decoder& in);
  void answer_questions();
  void push(Outgoing message);
  void to_all(Transport::Lane lane, int kind, const Bytes& bytes);
  void ring() const noexcept;

  const journal::Stage& stage_;
  Transport& transport_;
  RemoteEncoder* const remote_encoder_;
  Log& log_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<Outgoing> waiting_[Transport::lanes];           ///< by lane
  std::map<std::uint64_t, std::set<std::uint64_t>> unsent_;  ///< sequences, by journal
  std::map<DatasetId, Owned> owned_;
  std::map<DatasetId, Followed> followed_;
  std::map<DatasetId, journal::DatasetState> ended_;
  std::vector<bool> quiet_, final_, clean_;
  std::vector<std::string> snapshots_;
  bool ending_ = false;
  std::map<std::string, std::pair<unsigned, std::string>> asked_;  ///< how many answers are missing, and what was said

  // The server's loop only.
  std::map<std::pair<unsigned, std::uint64_t>, int> numbers_;  ///< of writers, by owner and journal
  std::map<unsigned, std::vector<int>> free_numbers_;
  std::map<unsigned, int> next_number_;
  std::map<std::pair<DatasetId, std::uint32_t>, Bytes> sent_states_;  ///< the last `tell`, by writer

  // The thread only.
  std::map<std::uint64_t, Outgoing> under_way_;
  std::map<unsigned, std::uint64_t> under_way_bytes_;
  std::uint64_t next_ticket_ = 1;
  std::map<unsigned, std::deque<Transport::Arrival>> held_back_;
  unsigned served_ = 0;  ///< the node for which there was room last
  std::vector<Question> questions_;
  journal::SegmentMappings mappings_;
  std::map<std::pair<unsigned, int>, std::unique_ptr<journal::Mirror>> mirrors_;
  std::uint64_t sent_ns_ = 0;

  std::atomic<bool> drain_wanted_{false}, missed_{false};
  std::atomic<bool> cut_short_{false};
  std::atomic<bool> held_up_{false};
  std::atomic<std::uint64_t> space_requested_ns_{0};
  std::uint64_t request_space_ns_ = 0;
  std::thread thread_;
};

}  // namespace advectio
