// Datasets that servers of several nodes have part in.
#pragma once

#include "server/shared_outputs.h"
#include "server/status.h"

namespace advectio {

class OtherNodes {
 public:
  OtherNodes(Run& run, Ledger& ledger, OutputWriter& writer, SharedOutputs& shared, Status& status)
      : run_(run), ledger_(ledger), writer_(writer), shared_(shared), status_(status) {}

  /// Behind the questions that an earlier server has heard.
  void begin() { asked_ = run_.stage.control().asked.load() - 1; }
  /// A record of a dataset that another node writes.
  void pass_on(Journal& j, const Record& r, Output& d);
  /// What is known of the datasets of one process that another node writes.
  void send_progress_of(Journal& j);
  /// How far the owners of what other nodes write have come.
  void look_at_owners();
  /// No process writes on the other nodes, as far as node 0 has heard. Only it ends a run by itself.
  bool others_idle();
  /// Call when all nodes are quiet. A writer of which no journal exists here counts as finished. Ends the shared
  /// outputs that are complete.
  void end_spread();
  /// What processes of this node have begun, and nobody has said anything of since this server began: they have died,
  /// and its owner may not know of it.
  void announce_rest();
  /// This node can do no more. True when that holds for all of them; what they own and could not finish stays here too.
  bool agreed_on_end();
  /// The stage is full for good: ends this server. What other nodes still have to send stays in their stages.
  void leave_to_others();

 private:
  std::string snapshot(bool final);
  void write_contact();

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  SharedOutputs& shared_;
  Status& status_;
  std::uint32_t asked_ = 0;
  std::uint64_t snapshot_ns_ = 0;
  bool contact_written_ = false;
};

}  // namespace advectio
