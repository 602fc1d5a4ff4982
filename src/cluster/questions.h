// Questions about files that are not known on a node: those that processes of this node ask the servers of the others,
// and those that come from them.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/outbox.h"
#include "core/bytes.h"
#include "journal/markers.h"
#include "journal/reader.h"
#include "platform/log.h"

namespace advectio {

class Questions {
 public:
  /// `others`: how many nodes answer.
  Questions(const journal::Stage& stage, Outbox& outbox, unsigned others, Log& log)
      : stage_(stage), outbox_(outbox), others_(others), log_(log) {}

  // ---- the server's loop ----

  /// `question` is the name of its file: <shared state>+<r or w>+<who asks>, or that of a marker (journal/markers.h).
  void ask(const std::string& question);

  /// Those that can be answered by now. Also the relay's thread.
  void answer();

  // ---- the relay's thread ----

  void on_question(unsigned from, Decoder& in);
  /// Puts the answer beside the question's file, once all nodes have given theirs.
  void on_answer(Decoder& in);

 private:
  /// Asked by a process of another node.
  struct Question {
    unsigned from = 0;
    std::string name;
    std::string state_name;
    journal::MappedState<journal::SharedState> shared_state;
    std::uint64_t target = 0;
    bool for_writing = false;
    /// That of a marker: what it waits for here; nothing: that could not be listed yet.
    std::optional<std::vector<journal::Awaited>> files;
  };
  /// Asked by a process of this one.
  struct Asked {
    unsigned missing = 0;  ///< answers
    std::string said;
  };

  const journal::Stage& stage_;
  Outbox& outbox_;
  const unsigned others_;
  Log& log_;

  std::mutex mutex_;  // of what follows
  std::map<std::string, Asked> asked_;

  std::vector<Question> questions_;
};

}  // namespace advectio
