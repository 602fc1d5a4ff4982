// What an earlier server has left in flight.
#pragma once

#include "server/further_outputs.h"
#include "server/tiles.h"

namespace advectio {

class Recovery {
 public:
  Recovery(Run& run, Ledger& ledger, OutputWriter& writer, SharedOutputs& shared, FurtherOutputs& further, Tiles& tiles)
      : run_(run), ledger_(ledger), writer_(writer), shared_(shared), further_(further), tiles_(tiles) {}

  /// After a loss of power: removes the journals that cannot be opened. Nothing of them was durable.
  void forget_unforced_journals();
  /// After a loss of power: removes notes of held names that cannot be read. `take_up_datasets` makes those of files
  /// anew.
  void forget_unforced_notes() const;
  /// Datasets that an earlier server has left in flight become outputs of the ledger.
  void take_up_datasets();

 private:
  [[nodiscard]] std::string find_hard_link(const std::string& state_name, const SharedState& shared_state) const;
  [[nodiscard]] Result<Schema> stored_schema(const std::string& state_name) const;
  void take_up_frames(Output& d) const;
  [[nodiscard]] std::uint64_t frames_of(const Output& d) const;
  [[nodiscard]] std::uint64_t frames_noted(const Output& d) const;
  void leave_at_last_commit(const std::string& state_name, const Error& why);
  void give_name_to_what_is_there(const std::string& state_name) const;
  void forget_unforced_state(const std::string& state_name, const Error& why);
  void note_held_name(const Output& d) const;
  bool take_up_after_power_loss(const std::shared_ptr<Output>& d);
  void keep_promise(const std::shared_ptr<Output>& d);
  void take_up_wholes(const std::vector<std::string>& shared_states);
  bool take_up_tile(const std::shared_ptr<Output>& d);

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  SharedOutputs& shared_;
  FurtherOutputs& further_;
  Tiles& tiles_;
};

}  // namespace advectio
