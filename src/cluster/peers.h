// The servers of the run's other nodes, as this one sees them. Each dataset has one owner, the server that writes its
// file. On one node there are none (NoPeers).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "journal/reader.h"

namespace advectio {

/// A dataset as all nodes know it. Shared states of the same name may follow each other.
struct DatasetId {
  std::string shared_state;
  std::uint64_t journal = 0;
  std::uint32_t number = 0;
  auto operator<=>(const DatasetId&) const = default;
};

/// A writer's slot (journal::WriterSlot) at one moment, as servers send it to each other.
struct SlotState {
  std::uint64_t journal = 0, collective_index = 0, schema_pending = 0, steps = 0;
  std::uint32_t number = 0;
  std::uint64_t step_index[journal::WriterSlot::steps_kept] = {};
  std::uint64_t step_records[journal::WriterSlot::steps_kept] = {};
  bool operator==(const SlotState&) const = default;
};
SlotState state_of(const journal::WriterSlot& slot) noexcept;

/// The server's loop calls these functions. None of them waits for another node.
class Peers {
 public:
  virtual ~Peers() = default;

  [[nodiscard]] virtual unsigned node() const noexcept = 0;  ///< this one's number
  [[nodiscard]] virtual const std::string& name(unsigned node) const noexcept = 0;
  /// Of a shared state: another node owns that dataset.
  [[nodiscard]] virtual bool own(const journal::SharedState& shared_state) const noexcept = 0;

  // ---- of datasets that another node owns ----

  /// The owner is told that this node has part in it.
  virtual void announce(const DatasetId& id, const journal::SharedState& shared_state) = 0;
  /// The owner is told, with all records before: how far the dataset has been synced here, and what one of several
  /// writers (of this node) has in its slot.
  virtual void send_slot(const DatasetId& id, const journal::SharedState& shared_state, std::uint32_t writer,
                         const SlotState& slot) = 0;
  /// The record's bytes must stay as long as it is of `unsent`.
  virtual void send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
                    const journal::Record& record) = 0;
  /// Sequence of the first record of that journal that has not left yet, else the largest number there is.
  [[nodiscard]] virtual std::uint64_t unsent(std::uint64_t journal) const = 0;
  /// The owner has finished with it, and this node has forgotten it.
  virtual void farewell(const DatasetId& id, unsigned owner) = 0;
  /// A process of this node has gone, after all its records were sent.
  virtual void writer_gone(std::uint64_t journal) = 0;
  /// This node's stage is full, and what is in it waits for owners.
  virtual void request_space() = 0;

  // ---- of files that are not known here ----

  /// A process of this node waits for what others have of that shared state; `question` is the name of its file. The
  /// answer is put beside it.
  virtual void ask(const std::string& question) = 0;

  // ---- of datasets that this node owns ----

  /// It is over. Removes its shared state once the other nodes know.
  virtual void ended(const DatasetId& id, journal::DatasetState state) = 0;
  /// Another node has no room: commit in the midst of a frame.
  [[nodiscard]] virtual bool space_requested() const noexcept = 0;
  /// There is no room here for what another node has sent.
  [[nodiscard]] virtual bool held_up() const noexcept = 0;

  // ---- the end ----

  virtual void drain() = 0;  ///< told to all
  [[nodiscard]] virtual bool drain_wanted() const noexcept = 0;
  /// No process of this node writes any more, and all records have been sent.
  virtual void quiet() = 0;
  [[nodiscard]] virtual bool is_quiet() const = 0;
  [[nodiscard]] virtual bool all_quiet() const = 0;
  /// Something that another node has said could not be taken, for want of room in the stage. It is still there.
  [[nodiscard]] virtual bool missed_any() const noexcept = 0;
  /// This node can do no more for what it owns. `clean`: all of it is in its file.
  virtual void final(bool clean, const std::string& status) = 0;
  [[nodiscard]] virtual bool all_final() const = 0;
  [[nodiscard]] virtual bool all_clean() const = 0;
  /// The process ends without the others having agreed.
  virtual void cut_short() noexcept = 0;

  // ---- status ----

  virtual void snapshot(const std::string& status) = 0;  ///< for node 0
  /// By node; empty: none has come yet.
  [[nodiscard]] virtual std::vector<std::string> snapshots() const = 0;
};

/// This node is the only one: nobody is told, nobody has said anything, and all others agree.
class NoPeers final : public Peers {
 public:
  [[nodiscard]] unsigned node() const noexcept override { return 0; }
  [[nodiscard]] const std::string& name(unsigned) const noexcept override { return name_; }
  [[nodiscard]] bool own(const journal::SharedState&) const noexcept override { return false; }
  void announce(const DatasetId&, const journal::SharedState&) override {}
  void send_slot(const DatasetId&, const journal::SharedState&, std::uint32_t, const SlotState&) override {}
  void send(unsigned, const std::string&, const journal::WriterState&, const journal::Record&) override {}
  [[nodiscard]] std::uint64_t unsent(std::uint64_t) const override { return std::numeric_limits<std::uint64_t>::max(); }
  void farewell(const DatasetId&, unsigned) override {}
  void writer_gone(std::uint64_t) override {}
  void request_space() override {}
  void ask(const std::string&) override {}
  void ended(const DatasetId&, journal::DatasetState) override {}
  [[nodiscard]] bool space_requested() const noexcept override { return false; }
  [[nodiscard]] bool held_up() const noexcept override { return false; }
  void drain() override {}
  [[nodiscard]] bool drain_wanted() const noexcept override { return false; }
  void quiet() override {}
  [[nodiscard]] bool is_quiet() const override { return true; }
  [[nodiscard]] bool all_quiet() const override { return true; }
  [[nodiscard]] bool missed_any() const noexcept override { return false; }
  void final(bool, const std::string&) override {}
  [[nodiscard]] bool all_final() const override { return true; }
  [[nodiscard]] bool all_clean() const override { return true; }
  void cut_short() noexcept override {}
  void snapshot(const std::string&) override {}
  [[nodiscard]] std::vector<std::string> snapshots() const override { return {std::string()}; }

 private:
  std::string name_;
};

}  // namespace advectio
