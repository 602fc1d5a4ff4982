// Which datasets there are, what of each is in which output, and the journals that say it.
#pragma once

#include "server/journal_followed.h"
#include "server/output.h"
#include "server/run.h"

namespace advectio {

class Ledger {
 public:
  explicit Ledger(Run& run) : run_(run) {}

  std::map<std::string, std::unique_ptr<Journal>> journals;
  std::vector<std::shared_ptr<Output>> outputs;  ///< of all datasets
  /// What an earlier server has left, by journal uid and number of the dataset in it.
  std::multimap<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<Output>> taken_up;
  std::vector<std::shared_ptr<Output>> elsewhere;  ///< in flight, and written by other nodes
  std::vector<std::shared_ptr<Output>> wholes;     ///< of tiles, in the order in which they were begun
  std::set<std::string> split;                     ///< names of wholes whose tiles stay files of their own
  /// Of outputs that are over: a hard link that could not be removed. Their shared states stay, so that the next
  /// server, too, knows of it.
  struct LeftBehind {
    std::shared_ptr<Output> dataset;
    std::uint64_t journal = 0;  ///< of its shared state
    std::uint32_t number = 0;
    bool is_as_it_was = false;  ///< the file was there before the dataset, which has not changed it
  };
  std::vector<LeftBehind> left_behind;

  /// In flight.
  /// One row of the status for one file, however often programs open it: the finished output that had the file before
  /// is hidden, and its figures go on.
  void take_place_of_former(Output& d) const;
  /// Those that are hidden so are forgotten. Not while somebody goes through `outputs`.
  void forget_formers(const Output& d);
  [[nodiscard]] std::vector<std::shared_ptr<Output>> outputs_of(const Output& d) const;
  /// What the ledger says of a dataset by its shared state alone.
  std::shared_ptr<Output> entry_of(const std::string& name, MappedState<SharedState> shared_state) const;
  /// Its file is as it will be, though something of it may have stayed (LeftBehind), or other nodes do not know it yet.
  /// A shared state of what another node writes is not over before that has been told from here.
  [[nodiscard]] bool is_over(const SharedState& shared_state) const;
  /// By its uid; null: it is not followed.
  [[nodiscard]] Journal* journal_of(std::uint64_t uid) const;
  /// Whose dataset it is.
  void place(Output& d) const;

  /// Bytes staged and not committed.
  [[nodiscard]] std::uint64_t backlog() const;

 private:
  Run& run_;
};

}  // namespace advectio
