// Further outputs of a dataset (the config's `outputs`). Each is an entry of the ledger with a shared state of its own:
// it reads the dataset's records through its own sequencer, at its own watermark, and fails, is retried and taken up
// again by itself. Segments are given back when all outputs are done with them.
#pragma once

#include "server/shared_outputs.h"

namespace advectio {

class FurtherOutputs {
 public:
  FurtherOutputs(Run& run, Ledger& ledger, OutputWriter& writer, SharedOutputs& shared)
      : run_(run), ledger_(ledger), writer_(writer), shared_(shared) {}

  /// Before anything of the dataset is handled. One that cannot be made is told of, and the others go on.
  void make(const std::shared_ptr<Output>& d);
  /// The stage is full. An output that cannot be written must not stop the model and the other outputs.
  bool give_up_failed();

 private:
  Result<void> make_file(Output& output, const Output& of);

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  SharedOutputs& shared_;
};

}  // namespace advectio
