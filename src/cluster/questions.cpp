#include "cluster/questions.h"

#include <algorithm>

#include "cluster/messages.h"
#include "cluster/shared_states.h"

namespace advectio {

using journal::DatasetState;
using Lane = Transport::Lane;

void Questions::ask(const std::string& question) {
  {
    const std::lock_guard guard(mutex_);
    if (!asked_.try_emplace(question, Asked{others_, {}}).second) return;
  }
  Bytes bytes;
  Encoder(bytes).text(question);
  outbox_.push_to_all(Lane::words, question_kind, bytes);
}

void Questions::on_question(unsigned from, Decoder& in) {
  Question q;
  q.from = from;
  q.name = in.text();
  const auto plus = q.name.find('+');
  q.state_name = q.name.substr(0, plus);
  q.for_writing = plus != std::string::npos && q.name.compare(plus, 2, "+w") == 0;
  if (auto shared_state = stage_.open_state(q.state_name)) {
    q.shared_state = std::move(shared_state).value();
    q.target = q.shared_state->synced.load(std::memory_order_acquire);
  }
  {
    const std::lock_guard guard(mutex_);
    questions_.push_back(std::move(q));
  }
  answer();  // so that a marker waits for what is there now
}

void Questions::answer() {
  const std::lock_guard guard(mutex_);
  std::erase_if(questions_, [this](Question& q) {
    std::string text;
    if (q.state_name == journal::all_files) {
      if (!q.files)
        if (auto files = journal::not_visible(stage_)) q.files = std::move(files).value();
      if (!q.files) return false;
      std::erase_if(*q.files, [this](const auto& awaited) { return journal::has_come(stage_, awaited); });
      // A renamed file has yet to get its final name.
      const bool any_file_held = stage_.control().files_held.load(std::memory_order_acquire) > 0;
      if (!q.files->empty() || any_file_held) return false;
    }
    if (q.shared_state) {
      const auto state = state_of(*q.shared_state);
      const bool there = stage_.files().exists(stage_.datasets() + "/" + q.state_name);
      if (state == DatasetState::failed) {
        text = std::string(q.shared_state->path) + ": " + q.shared_state->error_text;
      } else if (q.target > 0 && q.shared_state->waits.load(std::memory_order_acquire) >= q.target) {
        text = std::string(q.shared_state->path) +
               " is a tile that becomes one file with others (join: true in the config)";
      } else if (q.for_writing ? there
                               : !has_ended(*q.shared_state) &&
                                     q.shared_state->visible.load(std::memory_order_acquire) < q.target) {
        return false;
      }
    }
    Bytes bytes;
    Encoder out(bytes);
    out.text(q.name);
    out.text(text);
    outbox_.push({q.from, Lane::words, answer_kind, std::move(bytes), {}});
    return true;
  });
}

void Questions::on_answer(Decoder& in) {
  const auto question = in.text();
  const auto text = in.text();
  const std::lock_guard guard(mutex_);
  const auto it = asked_.find(question);
  if (it == asked_.end()) return;
  auto& asked = it->second;
  if (!text.empty()) asked.said = text;
  if (--asked.missing > 0) return;
  const auto answer = stage_.questions() + "/" + question + journal::answer_suffix;
  if (auto put = replace_file(stage_.files(), answer, std::as_bytes(std::span(asked.said))); !put)
    log_.error(answer + ": " + put.error().message);
  asked_.erase(it);
  journal::ring(stage_.control().progress);
}

}  // namespace advectio
