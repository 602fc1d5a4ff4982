// Between the servers of a run on several nodes. Each dataset has one owner, the server that writes its file. The
// others send it what the journals of their node say of the dataset, record by record, and the owner's server follows
// those as mirrors (journal/mirror.h), like any journal. Back come the dataset's progress, and what the writers on the
// other nodes have told of themselves in their slots.
//
// A node keeps its records until the owner has committed them: the death of any server loses nothing, for all of them
// begin again together and say again what is not visible.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cluster/followed_datasets.h"
#include "cluster/journal_arrivals.h"
#include "cluster/node_states.h"
#include "cluster/outbox.h"
#include "cluster/owned_datasets.h"
#include "cluster/peers.h"
#include "cluster/questions.h"
#include "cluster/record_sender.h"
#include "cluster/remote_encoder.h"
#include "cluster/transport.h"
#include "core/bytes.h"
#include "journal/reader.h"
#include "platform/log.h"

namespace advectio {

/// Gives the loop's calls to its parts. Runs the thread that sends messages and gives arrivals to the parts. Each part
/// says which of its calls are the loop's and which the thread's, and has its own mutex where both call it. Only
/// `Outbox` is called under another's mutex: that of `OwnedDatasets` or of `RemoteEncoder`.
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

  void announce(const DatasetId& id, const journal::SharedState& shared_state) override {
    followed_.announce(id, shared_state);
  }
  void send_slot(const DatasetId& id, const journal::SharedState& shared_state, std::uint32_t writer,
                 const SlotState& slot) override {
    followed_.send_slot(id, shared_state, writer, slot);
  }
  void send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
            const journal::Record& record) override {
    records_.send(owner, journal_name, writer, record);
  }
  [[nodiscard]] std::uint64_t unsent(std::uint64_t journal) const override { return outbox_.unsent(journal); }
  void farewell(const DatasetId& id, unsigned owner) override { followed_.farewell(id, owner); }
  void writer_gone(std::uint64_t journal) override { records_.writer_gone(journal); }
  void request_space() override;

  void ask(const std::string& question) override { questions_.ask(question); }

  void ended(const DatasetId& id, journal::DatasetState state) override { owned_.ended(id, state); }
  [[nodiscard]] bool space_requested() const noexcept override;
  [[nodiscard]] bool held_up() const noexcept override { return journals_.held_up(); }

  void drain() override;
  [[nodiscard]] bool drain_wanted() const noexcept override { return drain_wanted_.load(); }
  void quiet() override;
  [[nodiscard]] bool is_quiet() const override { return states_.is_quiet(node()); }
  [[nodiscard]] bool all_quiet() const override { return states_.all_quiet(); }
  [[nodiscard]] bool missed_any() const noexcept override { return missed_.load(); }
  void final(bool clean, const std::string& status) override;
  [[nodiscard]] bool all_final() const override { return states_.all_final(); }
  [[nodiscard]] bool all_clean() const override { return states_.all_clean(); }
  void cut_short() noexcept override { outbox_.cut_short(); }

  void snapshot(const std::string& status) override;
  [[nodiscard]] std::vector<std::string> snapshots() const override { return states_.snapshots(); }

 private:
  void work();
  bool take_arrivals();
  void take_from_journals(const Transport::Arrival& arrival);
  void take_word(const Transport::Arrival& arrival, const Bytes& bytes);
  void miss(const Error& why);
  void ring() const noexcept;

  const journal::Stage& stage_;
  Transport& transport_;
  RemoteEncoder* const remote_encoder_;
  Log& log_;
  Outbox outbox_;
  Questions questions_;
  FollowedDatasets followed_;
  OwnedDatasets owned_;
  RecordSender records_;
  JournalArrivals journals_;
  NodeStates states_;

  std::atomic<bool> drain_wanted_{false}, missed_{false};
  std::atomic<std::uint64_t> space_requested_ns_{0};
  std::uint64_t request_space_ns_ = 0;  // the server's loop only
  std::thread thread_;
};

}  // namespace advectio
