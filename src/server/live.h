// Frames for live readers: what the loop tells the store of frames, and the store's service.
#pragma once

#include <sys/types.h>

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "readers/service.h"
#include "server/ledger.h"
#include "server/renamed_files.h"

namespace advectio {

class Live {
 public:
  /// Readers may connect from here on. Errors: an address of `readers.listen` that cannot be had.
  static Result<std::unique_ptr<Live>> open(Run& run, const std::string& secret);

  /// Somebody has subscribed to its frames.
  [[nodiscard]] bool is_wanted(const Output& d) {
    return store_->is_wanted(d.path) || (d.shared_state && store_->is_wanted(key_of(d)));
  }
  [[nodiscard]] bool is_wanted(const std::string& path) { return store_->is_wanted(path); }
  /// Its frame `number` (from 0) has been synced, and is what `d.frame` holds. Before it is committed.
  void publish(const Output& d, std::uint64_t number, std::uint64_t synced_ns, Ledger& ledger);
  /// Its file is being changed from here on, or has been.
  void note_commit(const Output& d, bool begins);
  /// What has been committed.
  void note_visible(const Output& d);
  void note_taken_up(const Output& d);
  void note_durable(const Output& d, std::uint64_t frames, bool all);
  void note_over(const Output& d);
  /// Files that their programs have renamed, within their directories: readers find them under the new names, too. Of
  /// many files the latest are looked at, by threads of their file systems. `waits`: it takes what they find before it
  /// returns.
  void look_for_new_names(bool waits);

  /// A segment of before this server began, and there were readers then: they may look at it still.
  [[nodiscard]] bool may_be_mapped(const std::string& segment) const;

  /// What readers on other nodes must know of this server; null: it does not listen for them.
  [[nodiscard]] nlohmann::json contact() const { return service_->contact(); }
  /// Of all nodes, by node.
  Result<void> write_contact(const nlohmann::json& nodes);
  void keep_contact() { service_->keep_contact(); }

  /// The run has ended: readers are told.
  void finish() { service_->finish(); }
  nlohmann::json status();

 private:
  explicit Live(Run& run) : run_(run) {}
  [[nodiscard]] static readers::DatasetKey key_of(const Output& d);
  void find_regions(readers::LiveFrame& frame, Ledger& ledger);
  void collect_names(bool waits);

  Run& run_;
  std::unique_ptr<readers::FrameStore> store_;
  std::unique_ptr<readers::Service> service_;
  std::map<const void*, std::weak_ptr<const readers::Region>> regions_;  ///< by the mapping
  std::uint64_t next_region_ = 1;
  std::map<readers::DatasetKey, NamedFile> names_;              ///< of datasets that have had a frame
  std::deque<readers::DatasetKey> latest_;                      ///< those that are looked at
  std::map<dev_t, std::future<std::vector<NamedFile>>> looks_;  ///< under way
  std::uint64_t first_segment_ = 0;                             ///< of this server, where the one before had readers
};

}  // namespace advectio
