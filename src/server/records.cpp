#include "server/records.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "journal/mirror.h"
#include "server/coupled.h"
#include "server/events.h"
#include "server/space.h"

namespace advectio {

namespace {
constexpr std::uint64_t retry_after_ns = 5'000'000'000;
constexpr std::uint64_t slice_bytes = 64ULL << 20;  // of one journal before the next is looked at
/// One process writes it, and this server the file.
bool is_alone(const Output& d) {
  return !d.over() && !d.is_elsewhere() && !d.shared() && !d.is_tile() && d.shared_state;
}

EndAsked asked_of(const Output& d) {
  return static_cast<EndAsked>(d.shared_state->end_asked.load(std::memory_order_acquire));
}

bool speaks_of(const Journal& j, const Output& d) {
  return std::any_of(j.datasets.begin(), j.datasets.end(), [&d](const auto& x) { return x.second.get() == &d; });
}

/// No record with a smaller collective index comes from the writer of that slot.
std::uint64_t come_to(const SlotState& slot) {
  return slot.schema_pending != 0 ? std::min(slot.collective_index, slot.schema_pending) : slot.collective_index;
}

/// Without a `close` everything that was put counts, not only what was synced.
bool keeps_all(const Output& d) {
  if (!is_alone(d)) return false;
  const auto heir = static_cast<pid_t>(d.shared_state->heir.load(std::memory_order_acquire));
  return asked_of(d) != EndAsked::no || (heir > 0 && (::kill(heir, 0) == 0 || errno == EPERM));
}

}  // namespace

/// One record, to all outputs of its dataset. One that fails does not keep the others from it.
void Records::handle(Journal& j, const Record& r, bool verify) {
  Result<void> begun;
  if (r.type == RecordType::create) begun = on_create(j, r);
  if (r.type == RecordType::enter) begun = on_enter(j, r);
  // None: finished before this server began.
  const auto [from, end] = j.datasets.equal_range(r.dataset);
  if (!begun && from == end) {
    run_.report("journal " + j.name + ": " + begun.error().message);
  }
  for (auto it = from; it != end; ++it) {
    const auto d = it->second;
    const bool may_give_way = begun && is_alone(*d) && d->state == State::open && r.sequence > d->progress.seen &&
                              r.type != RecordType::create && r.type != RecordType::enter;
    if (may_give_way && (d->postponed || has_to_wait(*d)))
      postpone(d);
    else
      hand(j, r, d, begun, verify);
  }
}

/// To one of them.
void Records::hand(Journal& j, const Record& r, const std::shared_ptr<Output>& d, Result<void> begun, bool verify) {
  set_level(*d);
  auto done = begun ? give(j, r, d, verify) : std::move(begun);
  if (!done && !d->waiting.empty()) done = again_one_by_one(j, r.dataset, d);
  writer_.charge(d->is_tile() ? *d->tile.whole : *d);
  if (!done) writer_.fail(*d, std::move(done).error());
  if (d->commit) postpone(d);
}

void Records::set_level(const Output& d) {
  if (run_.options.encoders == nullptr) return;
  const bool any_urgent = urgencies_.most() != Urgency::normal;
  run_.options.encoders->set_level(any_urgent ? static_cast<unsigned>(urgencies_.of(d)) : 0);
}

/// Something more urgent is in the stage. Not while that is full: every segment counts then.
bool Records::gives_way(const Output& d) {
  if (run_.options.recover || d.is_tile() || d.join.sequencer || d.is_elsewhere()) return false;
  const auto most = urgencies_.most();
  return most != Urgency::normal && most > urgencies_.of(d) &&
         run_.stage.control().starved_ns.load() + starved_recently_ns < monotonic_ns();
}

bool Records::postpone(const std::shared_ptr<Output>& d) {
  if (!std::exchange(d->postponed, true) && std::find(postponed_.begin(), postponed_.end(), d) == postponed_.end())
    postponed_.push_back(d);
  return true;
}

bool Records::any_postponed(const Journal& j) const {
  return std::any_of(postponed_.begin(), postponed_.end(),
                     [&j](const auto& d) { return d->postponed && speaks_of(j, *d); });
}

bool Records::go_on_with_postponed(bool nothing_else) {
  // One that has failed is read again from its last commit.
  for (const auto& d : postponed_)
    if (d->over() || d->state == State::failed) d->postponed = false;
  std::erase_if(postponed_, [](const auto& d) { return !d->postponed; });
  if (postponed_.empty() || run_.in_debt()) return false;
  const bool any_over = advance_commits();
  std::stable_sort(postponed_.begin(), postponed_.end(),
                   [this](const auto& a, const auto& b) { return urgencies_.of(*a) > urgencies_.of(*b); });
  const auto next =
      std::find_if(postponed_.begin(), postponed_.end(), [](const auto& d) { return d->postponed && !d->commit; });
  if (next == postponed_.end() || (!nothing_else && gives_way(**next))) return any_over;
  go_on(std::shared_ptr(*next), nothing_else ? Until::frame : Until::urgent);
  run_.forward(false);
  return true;
}

void Records::advance_sinks() {
  const auto rings = run_.own_rings.load();
  if (run_.in_debt() || std::exchange(rings_seen_, rings) == rings) return;
  for (std::size_t i = 0; i < ledger_.outputs.size(); ++i) {
    const auto d = ledger_.outputs[i];  // a failure may add to them
    // Tiles do that with their next block.
    if (!d->sink || !d->frame.begun() || d->commit || d->state != State::open || d->join.sequencer) continue;
    set_level(*d);
    auto done = d->sink->advance();
    if (done)
      writer_.charge(*d);
    else
      handle_failure(d, std::move(done).error());
  }
}

/// True when one is over.
bool Records::advance_commits() {
  bool any = false;
  const auto all = postponed_;
  for (const auto& d : all) {
    if (run_.in_debt()) break;
    if (!d->commit) continue;
    set_level(*d);
    auto over = writer_.advance_commit(d);
    if (over && !*over) continue;
    any = true;
    if (!over) handle_failure(d, std::move(over).error());
    run_.answer();
  }
  return any;
}

/// Of a commit that was under way.
void Records::handle_failure(const std::shared_ptr<Output>& d, Error error) {
  d->postponed = false;
  Result<void> done = std::move(error);
  if (const auto [j, number] = place_of(*d); j != nullptr && !d->shared() && !d->waiting.empty())
    done = again_one_by_one(*j, number, d);
  if (!done) writer_.fail(*d, std::move(done).error());
}

/// The journal of an output that one process writes, and its number there.
std::pair<Journal*, std::uint32_t> Records::place_of(const Output& d) const {
  for (const auto& [name, j] : ledger_.journals)
    for (const auto& [number, own] : j->datasets)
      if (own.get() == &d && j->reader) return {j.get(), number};
  return {nullptr, 0};
}

void Records::go_on(const std::shared_ptr<Output>& d, Until until) {
  d->postponed = false;
  std::erase(postponed_, d);
  if (auto done = writer_.end_commit(d); !done) {
    handle_failure(d, std::move(done).error());
  } else if (d->shared()) {
    done = shared_.advance(d, run_.verify, [&] {
      const auto now = std::exchange(until, until == Until::frame ? Until::urgent : until);
      return now != Until::end && has_to_wait(*d) && postpone(d);
    });
    if (done) done = shared_.end_if_all_over(d);
    if (!done) writer_.fail(*d, std::move(done).error());
  } else if (const auto [j, number] = place_of(*d); j != nullptr) {
    go_on_alone(*j, number, d, until);
  }
  if (until == Until::end && d->commit) {
    if (auto done = writer_.end_commit(d); !done) handle_failure(d, std::move(done).error());
    d->postponed = false;
    std::erase(postponed_, d);
  }
  // One that gives way again keeps its turn.
  if (d->postponed) std::rotate(postponed_.begin(), postponed_.end() - 1, postponed_.end());
  for (auto& [name, j] : ledger_.journals)
    if (speaks_of(*j, *d)) {
      journal_set_.release(*j);
      if (run_.has_other_nodes()) nodes_.send_progress_of(*j);
    }
}

void Records::go_on_alone(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d, Until until) {
  std::uint64_t bytes = 0;
  j.reader->again(d->progress.seen, d->cursor, [&](const Record& r) {
    if (r.dataset != number || r.sequence <= d->progress.seen) return true;
    if (d->over() || d->state == State::failed) return false;
    const bool enough = bytes > slice_bytes || run_.in_debt() || (until == Until::urgent && gives_way(*d));
    if (enough && until != Until::end) return !postpone(d);
    bytes += r.payload.size() + 4096;
    if (until == Until::frame && r.type != RecordType::put) until = Until::urgent;
    hand(j, r, d, {}, run_.verify);
    return until == Until::end || !d->commit;
  });
}

Result<void> Records::advance(const std::shared_ptr<Output>& d, bool verify) {
  if (d->postponed || (has_to_wait(*d) && postpone(d))) return {};
  return shared_.advance(d, verify, [&] { return has_to_wait(*d) && postpone(d); });
}

Result<void> Records::give(Journal& j, const Record& r, const std::shared_ptr<Output>& d, bool verify) {
  if (d->over() || d->state == State::failed) return {};
  if (d->is_elsewhere()) {
    nodes_.pass_on(j, r, *d);
    return {};
  }
  if (r.type == RecordType::create || r.type == RecordType::enter) return {};
  if (d->is_tile()) return tiles_.on_tile(d, r, verify);
  const Busy busy(d->figures.busy_ns);
  if (d->shared()) {
    const auto writer = d->writers.number_of(j.reader->journal());
    d->writers.shares[writer].note(r.type);
    ADVECTIO_TRY(d->writers.sequencer->take(writer, r));
    ADVECTIO_TRY(advance(d, verify));
    return d->writers.shares[writer].over() ? shared_.end_if_all_over(d) : Result<void>{};
  }
  // What it makes void is in the sink together with frames that wait.
  if (r.type == RecordType::abort && !d->waiting.empty()) return again_one_by_one(j, r.dataset, d);
  if (r.sequence <= d->progress.visible) {
    // The last commit was done before, but not what follows it: the sink failed there, or the server died.
    if (r.type == RecordType::close && !writer_.goes_on(*d, r.sequence)) return writer_.finish(d);
    return {};
  }
  return writer_.act(d, r, verify);
}

Result<void> Records::on_create(Journal& j, const Record& r) {
  if (j.datasets.count(r.dataset) > 0) return {};  // taken up already
  auto create = journal::decode_create(r.meta);
  if (!create) return std::move(create).error();
  auto shared_state = run_.stage.open_state(create->shared_state);
  // No shared state, or another's: it was finished by an earlier server.
  if (!shared_state || (*shared_state)->journal != j.reader->journal() || (*shared_state)->number != r.dataset ||
      ledger_.is_over(**shared_state))
    return {};
  if (create->writers > 0) {
    const auto d = shared_dataset(create->shared_state);
    if (!d) return {};
    d->writer = j.name;
    d->writers.shares[0].journal = j.reader->journal();
    if (!d->is_elsewhere()) d->writers.begin_behind(0, r.sequence);
    journal_set_.attach(j, r.dataset, d);
    for (const auto& o : ledger_.outputs_of(*d)) {
      o->writer = j.name;
      o->writers.enter(0, j.reader->journal(), r.dataset);
      o->writers.begin_behind(0, r.sequence);
      journal_set_.attach(j, r.dataset, o);
    }
    run_.log.debug("create " + d->path + " by " + std::to_string(create->writers) + " writers");
    return {};
  }
  auto d = std::make_shared<Output>();
  d->path = create->path;
  d->file.link = create->link;
  d->state_name = create->shared_state;
  d->writer = j.name;
  d->number = r.dataset;
  d->format = create->format;
  d->shared_state = std::move(shared_state).value();
  d->policy = run_.coupled->policy(d->path);
  ledger_.place(*d);
  if (d->is_elsewhere())
    ledger_.elsewhere.push_back(d);
  else
    d->progress.begin_behind(r.sequence);
  journal_set_.attach(j, r.dataset, d);
  ledger_.outputs.push_back(d);
  run_.log.debug((d->continues_file() ? "go on with " : "create ") + d->path);
  if (d->continues_file()) continue_file(*d);
  run_.events->look(*d);
  further_.make(d);
  for (const auto& o : ledger_.outputs_of(*d)) journal_set_.attach(j, r.dataset, o);
  return {};
}

void Records::continue_file(Output& d) {
  d.file.note_commits();
  d.progress.take_up_frames(d.shared_state->frames_before);
  d.hidden = d.waits_for_answer();
  if (!d.hidden) ledger_.take_place_of_former(d);
  ledger_.forget_formers(d);
}

Result<void> Records::on_enter(Journal& j, const Record& r) {
  if (j.datasets.count(r.dataset) > 0) return {};  // taken up already
  auto enter = journal::decode_enter(r.meta);
  if (!enter) return std::move(enter).error();
  const auto d = shared_dataset(enter->shared_state);
  // None, or another's: it was finished by an earlier server.
  if (!d || enter->writer >= d->writers.shares.size()) return {};
  auto& slot = d->writers.slots[enter->writer];
  if (slot.journal.load(std::memory_order_acquire) != j.reader->journal() || slot.number != r.dataset) return {};
  d->writers.shares[enter->writer].journal = j.reader->journal();
  if (!d->is_elsewhere()) d->writers.begin_behind(enter->writer, r.sequence);
  journal_set_.attach(j, r.dataset, d);
  for (const auto& o : ledger_.outputs_of(*d)) {
    o->writers.enter(enter->writer, j.reader->journal(), r.dataset);
    o->writers.begin_behind(enter->writer, r.sequence);
    journal_set_.attach(j, r.dataset, o);
  }
  return {};
}

/// The dataset of that shared state, which the journals of all its writers name. Whichever is read first makes it.
std::shared_ptr<Output> Records::shared_dataset(const std::string& state_name) {
  for (const auto& d : ledger_.outputs)
    if (d->shared() && !d->over() && d->state_name == state_name) return d;
  auto shared_state = run_.stage.open_state(state_name);
  if (!shared_state || (*shared_state)->writers == 0 || ledger_.is_over(**shared_state)) return nullptr;
  auto d = ledger_.entry_of(state_name, std::move(shared_state).value());
  if (!shared_.share(*d)) return nullptr;
  if (d->is_elsewhere()) ledger_.elsewhere.push_back(d);
  ledger_.outputs.push_back(d);
  if (d->continues_file()) continue_file(*d);
  run_.events->look(*d);
  further_.make(d);
  return d;
}

void Records::writer_gone(Journal& j) {
  j.alive = false;
  for (auto& [number, d] : j.datasets)
    if (!d->over() && d->state != State::failed) writer_gone(j, *d);
  if (!journal::is_mirror(j.name)) run_.peers->writer_gone(j.reader->journal());
}

void Records::writer_gone(Journal& j, Output& d) {
  if (d.is_elsewhere()) return;
  const auto own =
      std::find_if(j.datasets.begin(), j.datasets.end(), [&d](const auto& x) { return x.second.get() == &d; });
  if (own == j.datasets.end()) return;
  if (d.is_tile()) {
    d.tile.whole->join.sequencer->gone(d.tile.number);
    tiles_.move_on(*d.tile.whole);
    return;
  }
  if (keeps_all(d)) return end_with_all(j, own->first);
  if (d.shared()) d.writers.shares[d.writers.number_of(j.reader->journal())].lose();
  if (shared_.all_writers_over(d)) writer_.drop_rest(d, j.name);
}

void Records::look_for_ends(Journal& j) {
  if (!j.reader || !j.at_end()) return;
  std::set<std::uint32_t> numbers;
  for (const auto& [number, d] : j.datasets)
    if (!d->is_further() && is_alone(*d) && d->state != State::failed && asked_of(*d) == EndAsked::now)
      numbers.insert(number);
  if (numbers.empty()) return;
  // The question comes behind the puts, which may have come after the last look at the journal.
  (void)follow(j);
  if (!j.at_end()) return;
  for (const auto number : numbers) end_with_all(j, number);
}

void Records::end_with_all(Journal& j, std::uint32_t number) {
  const auto [from, end] = j.datasets.equal_range(number);
  const auto all = std::vector(from, end);
  for (const auto& [n, d] : all) {
    if (d->over() || d->state == State::failed) continue;
    journal::Sync sync;
    if (d->frame.begun() || d->progress.partial || !d->frame.empty()) sync.frame = d->progress.frames_ended + 1;
    const auto meta = journal::encode(sync);
    Record r;
    r.type = RecordType::close;
    r.dataset = number;
    r.sequence = j.reader->sequence();
    r.time_ns = journal::realtime_ns();
    r.meta = meta;
    run_.log.info(
        d->path + ": ended with everything that was put, as " +
        (j.alive ? "a process asks that was forked from its writer" : "its writer has gone and asked for that"));
    auto done = give(j, r, d, false);
    if (done) done = writer_.end_commit(d);
    if (!done) writer_.fail(*d, std::move(done).error());
  }
}

bool Records::follow(Journal& j) {
  if (j.broken()) return false;
  std::uint64_t bytes = 0;
  bool any = false;
  j.look_again();
  // What a writer has passed before its journal was read to the end, it has passed for us too.
  std::erase_if(j.shared, [](const auto& d) { return d->over(); });
  std::vector<SlotState> slots;
  for (const auto& d : j.shared)
    slots.push_back(state_of(shared_.slot_of(*d, d->writers.number_of(j.reader->journal()))));
  const auto shared = j.shared;
  bool read_to_end = false;
  while (bytes < slice_bytes && !run_.in_debt()) {
    auto next = j.reader->next();
    // Of a writer that has gone more can be read than what its segments say.
    if (!next && !j.reader->writer_alive()) {
      j.reader->set_writer_gone();
      next = j.reader->next();
    }
    if (!next) {
      const auto waiting = postponed_;
      for (const auto& d : waiting)
        if (d->postponed && speaks_of(j, *d)) go_on(d, Until::end);
      j.break_off();
      const std::string text = "journal " + j.name + ": " + next.error().message;
      run_.report(text);
      for (auto& [number, d] : j.datasets) {
        if (d->over() || (d->state == State::failed && !d->is_tile())) continue;
        if (d->is_tile()) tiles_.split_at(*d, text);
        if (!d->waiting.empty()) (void)again_one_by_one(j, number, d);
        if (d->over()) continue;
        writer_.fail(*d, Error{Code::corrupt, text, EIO});
      }
      return any;
    }
    if (!next->has_value()) {
      read_to_end = true;
      break;
    }
    j.note_record();
    const Record& r = **next;
    any = true;
    bytes += r.payload.size() + 4096;
    const auto index = j.reader->held().back().index;
    if (j.loads.empty() || j.loads.back().index != index) j.loads.push_back({index, {}, 0});
    j.loads.back().last[r.dataset] = r.sequence;
    j.loads.back().bytes += r.payload.size();
    if (r.type != RecordType::put) {
      const auto backlog = ledger_.backlog();
      run_.backlog.store(backlog, std::memory_order_relaxed);
      run_.backlog_peak = std::max(run_.backlog_peak, backlog);
    }
    handle(j, r, run_.verify);
    if (r.type != RecordType::put) journal_set_.release(j);
  }
  for (std::size_t i = 0; read_to_end && i < shared.size(); ++i) {
    const auto& d = shared[i];
    if (d->over() || d->state == State::failed) continue;
    const auto writer = d->writers.number_of(j.reader->journal());
    if (d->is_elsewhere()) {
      if (d->ownership.is_introduced(j.reader->journal()))
        run_.peers->send_slot(d->id, *d->shared_state, static_cast<std::uint32_t>(writer), slots[i]);
      continue;
    }
    if (!d->writers.sequencer->passed(writer, come_to(slots[i]))) continue;
    if (auto done = advance(d, run_.verify); !done) writer_.fail(*d, std::move(done).error());
  }
  if (read_to_end && !any_postponed(j)) j.reach_end();
  if (any && run_.has_other_nodes()) nodes_.send_progress_of(j);
  if (any) run_.forward(false);
  return any;
}

void Records::retry_failed(bool now) {
  for (auto& [name, j] : ledger_.journals) {
    if (!j->reader || j->broken()) continue;
    for (auto& [number, d] : j->datasets) {
      if (d->state != State::failed || (!now && monotonic_ns() - d->trouble.failed_at_ns < retry_after_ns)) continue;
      if (d->is_tile()) {
        if (d->tile.number == 0) tiles_.retry_whole(*d->tile.whole);  // and with it all the others
        continue;
      }
      d->become(State::open);
      d->postponed = false;
      if (auto done = d->shared() ? replay_shared(d) : replay(*j, number, d); !done) {
        writer_.fail(*d, std::move(done).error());
        continue;
      }
      run_.log.warning(d->path + ": could be written after all");
      d->trouble.error = Error{};
      if (!d->over()) {
        tell_state(*d->shared_state, DatasetState::in_flight);
        for (auto& [other, k] : ledger_.journals)
          if (!k->alive && !d->over()) writer_gone(*k, *d);
      }
      run_.forward(true);
      journal_set_.release(*j);
    }
  }
}

/// Everything that the writer has said since the last commit, once more.
Result<void> Records::replay(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d) {
  auto again = journal_set_.read_again(j);
  if (!again) return std::move(again).error();
  return replay_from(**again, j, number, d);
}

Result<void> Records::replay_from(Reader& again, Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d) {
  const auto until = j.reader->sequence();
  while (!d->over() && again.sequence() < until) {
    auto next = again.next();
    if (!next) return std::move(next).error();
    if (!next->has_value()) break;
    if ((*next)->dataset == number) ADVECTIO_TRY(give(j, **next, d, true));
  }
  ADVECTIO_TRY(writer_.end_commit(d));
  if (d->over() || !d->progress.uncommitted) return {};
  if (!j.alive && !keeps_all(*d)) return writer_.take_back(*d);  // nobody will sync it
  ADVECTIO_TRY(writer_.commit_part(d));
  return {};
}

/// Frames waited to be committed with one that has failed, and are not to blame.
Result<void> Records::again_one_by_one(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d) {
  writer_.begin_anew(*d);
  d->waiting.allow(false);
  auto done = replay(j, number, d);
  d->waiting.allow(true);
  return done;
}

/// The same where there are several.
Result<void> Records::replay_shared(const std::shared_ptr<Output>& d) {
  d->writers.begin_again();
  bool any_alive = false;
  for (std::size_t w = 0; w < d->writers.shares.size(); ++w) {
    const auto* there = ledger_.journal_of(d->writers.shares[w].journal);
    any_alive = any_alive || there == nullptr || there->alive;
    if (there == nullptr) continue;
    const Journal& j = *there;
    if (j.broken()) return Error{Code::corrupt, "journal " + j.name + " cannot be read", EIO};
    auto again = journal_set_.read_again(j);
    if (!again) return std::move(again).error();
    const auto until = j.reader->sequence();
    while ((*again)->sequence() < until) {
      auto next = (*again)->next();
      if (!next) return std::move(next).error();
      if (!next->has_value()) break;
      const auto [from, end] = j.datasets.equal_range((*next)->dataset);
      const auto type = (*next)->type;
      if (std::none_of(from, end, [&d](const auto& own) { return own.second == d; }) || type == RecordType::create ||
          type == RecordType::enter)
        continue;
      d->writers.shares[w].note(type);
      ADVECTIO_TRY(d->writers.sequencer->take(w, **next));
    }
    // Nobody else says it any more.
    if (j.over()) (void)d->writers.sequencer->passed(w, come_to(state_of(shared_.slot_of(*d, w))));
  }
  ADVECTIO_TRY(shared_.advance(d, true, [] { return false; }));
  ADVECTIO_TRY(writer_.end_commit(d));
  ADVECTIO_TRY(shared_.end_if_all_over(d));
  if (d->over() || !d->progress.uncommitted) return {};
  if (!any_alive) return writer_.take_back(*d);  // nobody will sync it
  ADVECTIO_TRY(writer_.commit_part(d));
  return {};
}

}  // namespace advectio
