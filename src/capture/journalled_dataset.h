// One dataset of this process: every call becomes a record in the process' journal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/collective_calls.h"
#include "capture/dataset.h"
#include "capture/left_out_frames.h"
#include "capture/record_frames.h"
#include "capture/rules.h"
#include "capture/waiting.h"
#include "journal/format.h"
#include "journal/run_mark.h"
#include "journal/stage.h"

namespace advectio::capture {

class ProcessSession;

/// `number`: of the dataset in the journal.
class JournalledDataset final : public SharedDataset {
 public:
  JournalledDataset(ProcessSession& session, std::uint32_t number,
                    journal::MappedState<journal::SharedState> shared_state, std::string state_name, const Rule& rule)
      : session_(session),
        number_(number),
        state_name_(std::move(state_name)),
        shared_state_(std::move(shared_state)),
        link_(shared_state_->link),
        rule_(rule),
        record_frames_(rule.ends_frames_by_any_record()) {}
  ~JournalledDataset() override;
  /// This process is one of several writers.
  void share(journal::MappedState<journal::WriterSlot> slots, std::uint32_t writer, std::uint32_t writers) noexcept {
    collective_calls_.begin(std::move(slots), writer, writers);
  }
  /// It goes on where it had been closed. `schema`: as it was journalled last; empty: nothing is in this dataset yet.
  void go_on(Bytes schema) {
    schema_ = std::move(schema);
    frame_ = shared_state_->frames_synced.load(std::memory_order_relaxed);
    errors_seen_ = shared_state_->errors.load(std::memory_order_acquire);
    put_ever_ = true;
  }
  [[nodiscard]] std::string identity() const override;
  /// The session lists it, until it is destroyed.
  void note_listed() noexcept { listed_ = true; }
  /// A call has not come to the dataset's end, for want of memory: the server hears of it here, so far as the present
  /// memory does. Nothing to do after `close` and `abort`.
  void end_anyway() noexcept;
  /// Until this process has closed the dataset.
  void set_mark(journal::RunMark mark) noexcept { mark_ = std::move(mark); }
  /// This process was forked from the one that writes the dataset.
  void leave_mark_to_parent() noexcept { mark_.leave_to_parent(); }
  [[nodiscard]] journal::SharedState& shared_state() const noexcept { return *shared_state_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  Result<void> schema(const Schema& schema) override;
  Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                   const Memory& memory, std::size_t element) override;
  Result<void> put_boxes(std::uint32_t variable, const BoxList& boxes, bool records, const void* data,
                         std::size_t element) override;
  Result<void> put_strings(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                           const char* const* strings) override;
  Result<void> sync() override;
  Result<void> close() override;
  Result<void> abort() override;
  Result<void> wait_visible() override;
  Result<void> hand_over() override;
  Result<void> await_answer() override;
  [[nodiscard]] const std::string& file_path() const noexcept override { return link_; }
  [[nodiscard]] bool inherited() const noexcept override;
  [[nodiscard]] bool inherited_unsynced() const noexcept override;
  void note_heir() noexcept override;
  void keep_all() noexcept override;
  [[nodiscard]] bool can_close_late() const noexcept override { return true; }
  void add_stall(std::uint64_t nanoseconds) noexcept override { stall_ns_ += nanoseconds; }

  void begin_collective_call() noexcept override { in_collective_call_ = true; }
  void end_collective_call(bool read) noexcept override {
    if (!read) ++generation_;
    in_collective_call_ = false;
    collective_calls_.end_collective_call();
  }
  [[nodiscard]] std::uint64_t generation() const noexcept override { return generation_; }
  [[nodiscard]] std::uint64_t collective_index() const noexcept override {
    return collective_calls_.collective_index();
  }
  void hold_schema() noexcept override { collective_calls_.hold_schema(); }
  void put_pending(std::vector<std::uint64_t>* sequences) noexcept override { pending_ = sequences; }
  Result<void> settle(const std::vector<std::uint64_t>& written, const std::vector<std::uint64_t>& dropped) override;
  void grow(std::uint64_t records) noexcept override { collective_calls_.grow(records); }
  std::uint64_t records(std::uint64_t collective_index) noexcept override {
    return collective_calls_.records(collective_index);
  }
  using SharedDataset::records;

 private:
  /// Writes the payload and returns its CRC.
  using FillPayload = std::function<std::uint32_t(std::byte*)>;

  struct Timer {
    explicit Timer(std::uint64_t& sum) : sum_(sum), from_(journal::monotonic_ns()) {}
    ~Timer() { sum_ += journal::monotonic_ns() - from_; }
    std::uint64_t& sum_;
    std::uint64_t from_;
  };

  // All of these need the session's mutex, as far as they append.
  /// `collective_index`: the one that the record belongs to; 0: the present one.
  Result<std::uint64_t> append(journal::RecordType type, std::uint16_t flags, std::span<const std::byte> meta,
                               std::uint64_t payload, const FillPayload& fill, std::uint64_t collective_index = 0);
  Result<void> put_dense(journal::Put& put, const std::byte* data, std::size_t element);
  Result<void> put_box(const journal::Put& put, const std::byte* data, std::size_t element);
  Result<void> put_whole(const journal::Put& put, std::uint64_t bytes, const FillPayload& fill);
  void give_up() noexcept;
  Result<void> pay_syncs();
  Result<void> await_removal(const std::string& state_name);
  Result<void> sync_record(journal::RecordType type, std::uint16_t flags);
  void end_burst() noexcept;
  Result<void> close_here();

  /// A child has taken it over.
  [[nodiscard]] bool taken_over() const noexcept;
  Result<void> take_over();
  bool leaves_out(std::uint32_t variable, const Box& box);
  [[nodiscard]] bool may_end_record() const;
  Result<void> end_record_before(std::uint32_t variable, const Box& box);
  /// All blocks so far were left out: the dataset becomes no file.
  [[nodiscard]] bool all_left_out() const noexcept { return !put_ever_ && shared_state_->frames_dropped.load() > 0; }

  Result<void> await_promise(std::uint64_t target);
  Result<void> await_end(std::uint64_t target);
  [[nodiscard]] bool kept_in_stage() const;
  Result<void> keep_in_stage(std::uint64_t target);
  Result<void> sink_error();
  Result<void> while_waiting(Patience& patience);

  ProcessSession& session_;
  const std::uint32_t number_;
  const std::string state_name_;
  journal::MappedState<journal::SharedState> shared_state_;
  const std::string link_;
  journal::RunMark mark_;
  const Rule rule_;
  bool closed_ = false;
  bool ends_ = false;  ///< the program has called close or abort
  bool listed_ = false;
  bool put_ever_ = false;
  bool names_kept_ = false;  ///< the shared state and the names of the file are on their disks
  std::uint32_t errors_seen_ = 0;
  Bytes schema_;  ///< as it was journalled last
  LeftOutFrames left_out_;
  RecordFrames record_frames_;

  /// Since the last sync.
  struct UnderWay {
    bool any_record = false;
    std::uint64_t puts = 0, bytes = 0;
    std::uint64_t began_at = 0;  ///< bytes of the journal before the first put
  };
  UnderWay under_way_;
  std::uint64_t frame_ = 0;
  std::uint64_t stall_ns_ = 0;

  // Of several writers.
  CollectiveCalls collective_calls_;
  bool in_collective_call_ = false;
  std::uint64_t posted_ = 0;  ///< pending blocks that are not settled
  std::uint64_t generation_ = 0;
  std::uint64_t sync_index_ = 0;
  std::uint64_t synced_ = 0;      ///< sequence of the last sync record
  std::uint32_t syncs_owed_ = 0;  ///< of a shared dataset: those of the program that are not in the journal
  bool put_since_sync_ = false;
  std::vector<std::uint64_t>* pending_ = nullptr;
};

}  // namespace advectio::capture
