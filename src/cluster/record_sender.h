// The records of this node's processes, to the nodes that own their datasets. Each process has a number at each owner:
// it stands for the process in the messages that follow.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/outbox.h"
#include "journal/reader.h"

namespace advectio {

/// The server's loop only.
class RecordSender {
 public:
  explicit RecordSender(Outbox& outbox) : outbox_(outbox) {}

  /// As in `Peers`.
  void send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
            const journal::Record& record);
  void writer_gone(std::uint64_t journal);

 private:
  Outbox& outbox_;
  std::map<std::pair<unsigned, std::uint64_t>, int> numbers_;  ///< of writers, by owner and journal
  std::map<unsigned, std::vector<int>> free_numbers_;
  std::map<unsigned, int> next_number_;
};

}  // namespace advectio
