#include "server/ledger.h"

#include <algorithm>
#include <utility>

#include "server/coupled.h"
#include "server/output_file.h"

namespace advectio {

std::shared_ptr<Output> Ledger::entry_of(const std::string& name, MappedState<SharedState> shared_state) const {
  auto d = std::make_shared<Output>();
  d->shared_state = std::move(shared_state);
  d->state_name = name;
  d->path = d->shared_state->path;
  d->file.link = d->shared_state->link;
  d->file.made_in = journal::DirectoryId::in(*d->shared_state);
  d->number = d->shared_state->number;
  d->format = d->shared_state->format;
  d->policy = run_.coupled->policy(d->path);
  d->further.number = d->shared_state->output;
  if (d->is_further()) {
    d->further.source = d->shared_state->source;
    const auto of = run_.coupled->policy(d->further.source).outputs;
    const bool known =
        d->further.number <= of.size() && file_of_output(of[d->further.number - 1], d->further.source) == d->path;
    d->policy = known ? of[d->further.number - 1].policy : DatasetPolicy{};
  }
  place(*d);
  return d;
}

bool Ledger::is_over(const SharedState& shared_state) const {
  const bool by_another = shared_state.owner != 0 && run_.options.transport != nullptr &&
                          shared_state.owner - 1 != run_.options.transport->node();
  return !by_another && end_of(shared_state);
}

std::vector<std::shared_ptr<Output>> Ledger::outputs_of(const Output& d) const {
  std::vector<std::shared_ptr<Output>> all;
  if (!d.shared_state) return all;
  for (const auto& o : outputs)
    if (o->is_further() && o->shared_state && o->shared_state->journal == d.shared_state->journal &&
        o->shared_state->number == d.shared_state->number)
      all.push_back(o);
  return all;
}

void Ledger::place(Output& d) const {
  d.id = {d.state_name, d.shared_state->journal, d.shared_state->number};
  const auto owner = d.shared_state->owner;
  if (owner == 0) return;
  if (run_.options.transport != nullptr && owner - 1 != run_.options.transport->node())
    d.ownership.leave_to(owner - 1);
  else
    d.ownership.set_owned();
}

Journal* Ledger::journal_of(std::uint64_t uid) const {
  const auto it = std::find_if(journals.begin(), journals.end(),
                               [uid](const auto& j) { return j.second->reader && j.second->reader->journal() == uid; });
  return it != journals.end() ? it->second.get() : nullptr;
}

std::uint64_t Ledger::backlog() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, j] : journals) {
    for (const auto& load : j->loads) bytes += load.bytes;
    if (j->reader) bytes += j->reader->bytes_ahead();
  }
  return bytes;
}

namespace {
bool had_the_file_before(const Output& former, const Output& d) {
  return &former != &d && former.state == State::finished && !former.is_further() && former.path == d.path &&
         former.state_name == d.state_name;
}
}  // namespace

void Ledger::take_place_of_former(Output& d) const {
  const auto former = std::find_if(outputs.begin(), outputs.end(),
                                   [&d](const auto& o) { return !o->hidden && had_the_file_before(*o, d); });
  if (former == outputs.end()) return;
  auto& was = **former;
  was.hidden = true;
  d.figures = was.figures;
  d.progress.frames_of_former = was.progress.frames_of_former;
  if (journal::continues_file_of_others(*d.shared_state))
    d.progress.frames_of_former += was.progress.frames_visible;
  else
    d.progress.frames_durable = was.progress.frames_durable;  // its frames are counted on
}

void Ledger::forget_formers(const Output& d) {
  std::erase_if(outputs, [&d](const auto& o) { return o->hidden && had_the_file_before(*o, d); });
}

}  // namespace advectio
