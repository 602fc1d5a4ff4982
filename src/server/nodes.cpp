#include <algorithm>

#include "journal/mirror.h"
#include "server/server_impl.h"

namespace advectio {

/// Whose dataset it is.
void ServerImpl::place(Dataset& d) const {
  d.id = {d.page_name, d.page->journal, d.page->number};
  d.spread = d.page->owner != 0;
  if (options_.neighbours != nullptr && d.spread && d.page->owner - 1 != options_.neighbours->node())
    d.owner = d.page->owner - 1;
}

/// A record of a dataset that another node writes.
void ServerImpl::pass_on(Journal& j, const Record& r, Dataset& d) {
  const auto uid = j.reader->journal();
  // What the owner has committed was sent before. The end is said again: the owner may have died between the two.
  if (r.type != RecordType::close && r.sequence <= d.visible_of(uid)) return;
  if (!d.announced) relay_->announce(d.id, *d.page);
  d.announced = true;
  if (d.shared() && d.introduced.insert(uid).second) {
    const auto writer = d.share_of(uid);
    SlotState slot;  // without a turn: what is before it has not been sent yet
    slot.journal = uid;
    slot.number = d.slots[writer].number;
    relay_->tell(d.id, *d.page, static_cast<std::uint32_t>(writer), slot);
  }
  relay_->send(*d.owner, j.name, j.reader->writer(), r);
  if (d.shared() && r.type == RecordType::schema) {
    // Nothing is owed any more. To be known before all that this node has still to send.
    const auto writer = d.share_of(uid);
    auto slot = state_of(d.slots[writer]);
    slot.turn = r.turn;
    slot.owed = 0;
    relay_->tell(d.id, *d.page, static_cast<std::uint32_t>(writer), slot);
  }
  d.bytes_put += r.payload.size();
}

/// What is known of the datasets of one process that another node writes.
void ServerImpl::tell_of(Journal& j) {
  for (const auto& [number, d] : j.datasets)
    if (d->owner && !d->shared() && !d->over() && d->announced) relay_->tell(d->id, *d->page, 0, {});
}

/// How far the owners of what other nodes write have come.
void ServerImpl::look_at_owners() {
  for (const auto& d : elsewhere_) {
    const auto state = static_cast<DatasetState>(d->page->state.load(std::memory_order_acquire));
    d->visible = d->page->visible.load(std::memory_order_acquire);
    for (std::size_t w = 0; w < d->shares.size(); ++w)
      d->shares[w].visible = d->slots[w].visible.load(std::memory_order_acquire);
    if (state == DatasetState::finished || state == DatasetState::dropped)
      end_dataset(*d, state == DatasetState::finished ? State::finished : State::dropped);
  }
  std::erase_if(elsewhere_, [](const auto& d) { return d->over(); });
  if (const auto asked = stage_.control().asked.load(std::memory_order_acquire); asked != asked_) {
    asked_ = asked;
    if (auto names = files_.list(stage_.questions()))
      for (const auto& name : *names)
        if (name.find('+') != std::string::npos && name.find('.') == std::string::npos &&
            !files_.exists(stage_.questions() + "/" + name + journal::answer_suffix))
          relay_->ask(name);
  }
  if (relay_->drain_wanted()) draining_ = true;
  if (draining_) relay_->drain();
  if (const auto now = monotonic_ns(); relay_->node() != 0 && now - pictured_ns_ > 500'000'000) {
    pictured_ns_ = now;
    relay_->picture(status_json(false).dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

/// No process writes on the other nodes, as far as node 0 has heard. Only it ends a run by itself.
bool ServerImpl::others_idle() {
  if (!relay_) return true;
  if (relay_->node() != 0) return false;
  const auto pictures = relay_->pictures();
  return std::all_of(pictures.begin() + 1, pictures.end(), [](const std::string& text) {
    const auto status = json::parse(text, nullptr, false);
    if (!status.is_object()) return false;
    const auto& writers = status["writers"];
    return std::none_of(writers.begin(), writers.end(), [](const json& w) { return w.value("alive", false); });
  });
}

/// Nobody writes any more, and everything has been heard: a writer that has not been heard of never was, or all that it
/// has said is in the file.
void ServerImpl::settle_spread() {
  const auto datasets = datasets_;
  for (const auto& d : datasets) {
    if (!d->spread || d->owner || d->over() || d->state == State::failed || !d->shared()) continue;
    for (std::size_t w = 0; w < d->shares.size() && !relay_->missed_any(); ++w) {
      auto& share = d->shares[w];
      const auto uid = share.journal != 0 ? share.journal : d->slots[w].journal.load();
      share.over = share.over || std::none_of(journals_.begin(), journals_.end(), [uid](const auto& j) {
                     return j.second->reader && j.second->reader->journal() == uid;
                   });
    }
    if (auto done = end_if_all_over(d); !done) fail(*d, std::move(done).error());
  }
}

/// What processes of this node have begun, and nobody has said anything of since this server began: they have died, and
/// its owner may not know of it.
void ServerImpl::announce_rest() {
  auto names = files_.list(stage_.datasets());
  if (!names) return;
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto page = stage_.open_page(name);
    if (!page || (*page)->owner == 0 || (*page)->owner - 1 == relay_->node()) continue;
    const DatasetId id{name, (*page)->journal, (*page)->number};
    const auto it = std::find_if(elsewhere_.begin(), elsewhere_.end(), [&id](const auto& d) { return d->id == id; });
    if (it != elsewhere_.end() && (*it)->announced) continue;
    relay_->announce(id, **page);
    if (it != elsewhere_.end()) {
      (*it)->announced = true;
      continue;
    }
    auto d = entry_of(name, std::move(page).value());
    d->announced = true;
    datasets_.push_back(d);
    elsewhere_.push_back(d);
  }
}

/// This node can do no more. True when that holds for all of them; what they own and could not finish stays here too.
bool ServerImpl::agreed_on_end() {
  const bool own = std::all_of(datasets_.begin(), datasets_.end(), [](const auto& d) { return d->over() || d->owner; });
  relay_->final(own && !not_durable_, status_json(true).dump(-1, ' ', false, json::error_handler_t::replace));
  if (!relay_->all_final()) return false;
  look_at_owners();  // what they have told before that
  return true;
}

/// The status of all nodes, for node 0 to tell: sums of the stages, everybody's datasets.
json ServerImpl::with_others(json own) const {
  const auto describe = [this](unsigned node, const json& status) -> json {
    return {{"node", node},
            {"name", relay_->name(node)},
            {"pid", status["pid"]},
            {"backlog_bytes", status["stage"]["backlog_bytes"]},
            {"bytes_max", status["stage"]["bytes_max"]},
            {"memory_peak_bytes", status["server"]["memory_peak_bytes"]}};
  };
  for (auto& d : own["datasets"]) d["node"] = relay_->name(relay_->node());
  if (relay_->node() != 0) return own;
  own["nodes"] = json::array({describe(0, own)});
  const auto pictures = relay_->pictures();
  for (unsigned n = 1; n < pictures.size(); ++n) {
    const auto other = json::parse(pictures[n], nullptr, false);
    if (!other.is_object()) continue;
    own["nodes"].push_back(describe(n, other));
    for (const char* list : {"writers", "datasets", "errors"})
      for (const auto& x : other[list]) own[list].push_back(x);
    for (const char* group : {"server", "stage"})
      for (auto& [key, value] : own[group].items())
        if (value.is_number() && other[group].contains(key)) {
          if (value.is_number_float())
            value = value.get<double>() + other[group][key].get<double>();
          else
            value = value.get<std::uint64_t>() + other[group][key].get<std::uint64_t>();
        }
  }
  return own;
}

}  // namespace advectio
