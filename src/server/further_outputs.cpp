#include "server/further_outputs.h"

#include <cstring>
#include <utility>

#include "journal/hard_link.h"
#include "server/events.h"
#include "server/output_file.h"

namespace advectio {

void FurtherOutputs::make(const std::shared_ptr<Output>& d) {
  const auto rules = d->policy.outputs;
  // Of a file that was there they hold what it held, and stay as they are.
  if (rules.empty() || d->is_elsewhere() || d->is_further() || d->continues_file()) return;
  if (run_.options.recover && writer_.is_away(*d)) return;  // it fails, and they are made next time
  if (d->policy.join) {
    run_.log.warning(d->path + ": outputs are not made of tiles that become one file (join: true)");
    return;
  }
  for (std::size_t k = 0; k < rules.size(); ++k) {
    auto o = std::make_shared<Output>();
    o->further.number = static_cast<std::uint32_t>(k) + 1;
    o->further.source = d->path;
    o->path = file_of_output(rules[k], d->path);
    o->number = d->number;
    o->writer = d->writer;
    o->format = d->format;
    o->policy = rules[k].policy;
    auto made = make_file(*o, *d);
    if (made && d->shared()) made = shared_.share(*o);
    if (!made) {
      const auto text = o->path + ": this output of " + d->path + " is not made: " + made.error().message;
      run_.report(text);
      run_.output_lost = true;
      continue;
    }
    ledger_.place(*o);
    o->progress.begin_behind(d->progress.visible);
    for (std::size_t w = 0; w < o->writers.shares.size(); ++w) {
      o->writers.shares[w] = d->writers.shares[w];
      if (d->writers.shares[w].journal != 0)
        o->writers.enter(w, d->writers.shares[w].journal, shared_.slot_of(*d, w).number);
      o->writers.begin_behind(w, d->writers.shares[w].visible);
    }
    ledger_.outputs.push_back(o);
    run_.events->look(*o);
    run_.log.debug("create " + o->path + ", an output of " + d->path);
  }
  d->shared_state->outputs_made.store(1, std::memory_order_release);
}

Result<void> FurtherOutputs::make_file(Output& output, const Output& of) {
  const auto& said = *of.shared_state;
  const auto link_name = journal::hard_link_name(
      output.path, said.journal, std::to_string(of.number) + "." + std::to_string(output.further.number));
  return make_output_file(run_, output, link_name, [&](SharedState& p) {
    p.journal = said.journal;
    p.number = said.number;
    p.writer_pid = said.writer_pid;
    p.writers = said.writers;
    p.created_ns = said.created_ns;
    p.output = output.further.number;
    std::memcpy(p.source, of.path.c_str(), of.path.size() + 1);
  });
}

bool FurtherOutputs::give_up_failed() {
  bool any = false;
  const auto datasets = ledger_.outputs;
  for (const auto& d : datasets) {
    if (!d->is_further() || d->state != State::failed) continue;
    const auto text = d->path + ": this output is given up, as the stage is full and it cannot be written (" +
                      d->trouble.error.message + "); it holds " + std::to_string(d->progress.frames_visible) +
                      " frames";
    run_.report(text);
    run_.output_lost = any = true;
    auto brought = writer_.bring_to_last_commit(*d);
    writer_.end(*d, journal::has_commits(*d->shared_state) ? State::finished : State::dropped, std::move(brought));
  }
  return any;
}

}  // namespace advectio
