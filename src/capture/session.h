// The session of this process: its journal, its datasets, and the rules of the config.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "capture/dataset.h"
#include "capture/launcher.h"
#include "capture/rules.h"
#include "capture/waiting.h"
#include "journal/stage.h"
#include "journal/writer.h"

namespace advectio::capture {

class HeldFile;
class JournalledDataset;
class NewFile;

class ProcessSession final : public Session {
 public:
  ProcessSession(journal::Stage stage, Rules rules) : stage_(std::move(stage)), rules_(std::move(rules)) {}

  bool wants(const std::string& path) override { return rules_.of(path).captures(); }
  Result<std::unique_ptr<CapturedDataset>> create(const CreateRequest& request) override;
  Result<std::unique_ptr<SharedDataset>> create_shared(const CreateRequest& request, std::uint32_t writers,
                                                       Invitation& invitation) override;
  Result<std::unique_ptr<SharedDataset>> join(const Invitation& invitation, std::uint32_t writer) override;
  Result<std::unique_ptr<CapturedDataset>> reopen(const std::string& path) override;
  Result<std::unique_ptr<CapturedDataset>> open_file_of_others(const FileToOpen& file) override;
  Result<std::unique_ptr<SharedDataset>> open_shared(const FileToOpen& file, std::uint32_t writers,
                                                     Invitation& invitation) override;
  [[nodiscard]] std::string identity_of(const std::string& path) const override;
  Result<void> wait_for_file(const std::string& path, bool for_writing) override {
    return waiting_.for_file(path, for_writing, own_journal_.load(std::memory_order_acquire), say_);
  }
  Result<std::shared_ptr<void>> turn_to_open(const std::string& path, Opening opening) override {
    return waiting_.for_turn(path, opening);
  }
  [[nodiscard]] bool is_in_flight(const std::string& path) const override {
    const auto name = journal::Stage::state_name_of(waiting_.present_path(path));
    const auto state =
        name ? stage_.open_state(*name) : Result<journal::MappedState<journal::SharedState>>(name.error());
    return state ? !journal::has_ended(**state) : name && state.error().code != Code::not_found;
  }
  [[nodiscard]] bool is_open_in_flight(const std::string& path) const override {
    const auto name = journal::Stage::state_name_of(waiting_.present_path(path));
    const auto state =
        name ? stage_.open_state(*name) : Result<journal::MappedState<journal::SharedState>>(name.error());
    return state && (*state)->closed.load(std::memory_order_acquire) == 0;
  }
  [[nodiscard]] std::string present_path(const std::string& path) const override { return waiting_.present_path(path); }
  void name_now(const std::string& path) override {
    if (const auto named = waiting_.name_now(path); !named)
      say_once(path + " keeps its hidden name: " + named.error().message);
  }
  Result<void> wait_for_plain_use(const std::string& path, Until until) override {
    return rules_.later || foreign_ ? Result<void>{} : waiting_.for_plain_use(path, until);
  }
  void finish() noexcept override;
  [[nodiscard]] const std::string& directory() const noexcept override { return stage_.directory(); }
  void say_once(const std::string& text) noexcept override;

  // --- for the datasets of this process ---------------------------------------------------------
  /// Guards the writer and the lists of datasets.
  std::mutex& mutex() noexcept { return mutex_; }
  [[nodiscard]] const journal::Stage& stage() const noexcept { return stage_; }
  Waiting& waiting() noexcept { return waiting_; }
  /// The journal of this process; the first call makes it. With the mutex.
  Result<journal::Writer*> writer() {
    if (writer_ != nullptr) return writer_.get();
    return open_writer();
  }
  /// Have the writer hold segments ready for so many bytes, but no more than its share of the
  /// stage.
  void keep_ahead(journal::Writer& writer, std::uint64_t bytes) noexcept;
  /// The dataset is closed. With the mutex. A process without open datasets holds no segment, unless little of it is
  /// used (so that many small files share one), or `keeps` is true and it would have to wait for the next one.
  void closed(JournalledDataset* dataset, bool keeps) noexcept;
  /// Its program may open it again. With the mutex.
  void keep_closed(const JournalledDataset& dataset, const Bytes& schema);
  /// Called by the dataset's destructor.
  void forget(JournalledDataset* dataset) noexcept;
  /// The server does not hear that this dataset is over before the process ends: `finish` does not wait for it. With
  /// the mutex.
  void give_up(std::uint32_t number) noexcept;

  /// What this process has journalled is durable once its journal is: the stage survives a loss of
  /// power.
  [[nodiscard]] bool keeps_durable() const noexcept { return stage_.survives_power() && !journal_not_durable_; }
  /// Force to the disk what any thread has appended before.
  Result<void> make_journal_durable();

  // --- after fork(2), in the child --------------------------------------------------------------
  /// The session is the parent's. Only the datasets that the child has inherited keep it.
  void become_foreign() noexcept;
  [[nodiscard]] bool foreign() const noexcept { return foreign_; }

 private:
  Result<journal::Writer*> open_writer();
  Result<NewFile> make_file(const HeldFile& name, const std::string& path, bool no_clobber, bool in_set) const;
  Result<std::unique_ptr<JournalledDataset>> make(const CreateRequest& request, std::uint32_t writers);
  Result<std::unique_ptr<JournalledDataset>> begin(journal::RecordType type, std::uint32_t number, const Bytes& meta,
                                                   journal::MappedState<journal::SharedState> shared_state,
                                                   const std::string& state_name);
  Result<journal::DatasetFiles> files_of(const Invitation& invitation) const;
  Rule rule_of(const journal::SharedState& shared_state);
  using Mapped = std::shared_ptr<const journal::MappedState<journal::SharedState>>;
  /// A dataset that this process has created, and has closed.
  struct Closed {
    std::string state_name;
    Mapped shared_state;
    Bytes schema;  ///< as it was journalled last
  };
  Closed* closed_at(const std::string& state_name) noexcept;
  [[nodiscard]] Result<void> may_reopen(const std::string& path) const;
  Result<std::unique_ptr<JournalledDataset>> go_on(Closed& closed, const std::string& path);
  Result<std::unique_ptr<JournalledDataset>> go_on_in_file(Closed& closed, const std::string& path,
                                                           bool is_open_for_writing);
  /// A file as somebody has left it.
  struct Left {
    journal::Continues by = journal::Continues::nothing;
    FileFormat format = FileFormat::netcdf4;
    std::uint64_t created_ns = 0, frames = 0;
    journal::Imprint imprint;
    std::string state_name;
    bool is_open_for_writing = false;  ///< of a classic file: in some process
    std::uint32_t writers = 0;         ///< processes that open it together; 0: this one alone
  };
  Result<std::unique_ptr<JournalledDataset>> open_there(const FileToOpen& file, std::uint32_t writers);
  Result<std::unique_ptr<JournalledDataset>> begin_in_file(const Left& left, const std::string& path);
  static Result<void> invite(JournalledDataset& dataset, Invitation& invitation);
  std::vector<std::string>& link_directories_of(const std::string& real);
  void note_link(const std::string& link, const std::string& real);
  void take_slot(journal::WriterSlot& slot, std::uint32_t number) const noexcept;
  [[nodiscard]] std::uint32_t owner_of_next(const std::string& path, bool shared) const;

  journal::Stage stage_;
  const Rules rules_;
  Waiting waiting_{stage_};
  const Waiting::Say say_ = [this](const std::string& text) { say_once(text); };
  bool foreign_ = false;
  std::mutex mutex_;
  std::unique_ptr<journal::Writer> writer_;
  std::atomic<std::uint64_t> own_journal_{0};  ///< of `writer_`
  std::mutex durable_mutex_;                   ///< held while the journal is forced to disk; before `mutex_`
  std::atomic<bool> journal_not_durable_{false};
  std::uint32_t datasets_begun_ = 0;
  std::map<std::string, std::vector<std::string>> link_directories_;  ///< by directory of the file
  std::set<JournalledDataset*> open_;
  /// Of all datasets that may not have ended yet, those closed by the program among them.
  std::vector<Mapped> in_flight_;
  static constexpr std::size_t closed_kept = 256;
  std::vector<Closed> closed_;  ///< the latest last
  std::set<std::string> logged_;
};

}  // namespace advectio::capture
