#include "server/live.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <utility>

#include "journal/markers.h"
#include "workflow/workflow.h"

namespace advectio {

using readers::LiveFrame;
using readers::Region;

Result<std::unique_ptr<Live>> Live::open(Run& run, const std::string& secret) {
  std::unique_ptr<Live> live(new Live(run));
  const auto& control = run.stage.control();
  const auto memory = run.config.readers.memory_max.value_or(control.segments_max * control.segment_bytes / 4);
  auto store = readers::FrameStore::open(run.options.run_dir + "/frames", memory);
  if (!store) return std::move(store).error();
  live->store_ = std::move(store).value();
  if (live->store_->had_readers()) live->first_segment_ = control.next_segment.load();
  readers::ServiceOptions options;
  options.socket = run.options.run_dir + "/readers";
  options.secret = secret;
  options.run_dir = run.options.run_dir;
  options.directory = run.directory;
  options.listen = run.config.readers.listen;
  auto service = readers::Service::open(*live->store_, std::move(options), run.log);
  if (!service) return std::move(service).error();
  live->service_ = std::move(service).value();
  // Of several nodes one writes it when it has heard of all.
  if (auto own = live->contact(); !own.is_null() && !run.has_other_nodes())
    ADVECTIO_TRY(live->write_contact(nlohmann::json::array({std::move(own)})));
  return live;
}

Result<void> Live::write_contact(const nlohmann::json& nodes) {
  auto file = run_.config.readers.contact;
  if (file.empty()) return {};
  if (file.front() != '/') file = run_.directory + "/" + file;
  ADVECTIO_TRY_WITH(service_->write_contact(file, nodes), "readers.contact");
  return {};
}

readers::DatasetKey Live::key_of(const Output& d) {
  // A whole has no journal. Its file has a number of its own.
  const auto journal = d.shared_state ? d.shared_state->journal : d.id.journal;
  if (journal == 0) return {std::hash<std::string>{}(d.state_name), UINT32_MAX};
  return {journal, d.shared_state ? d.shared_state->number : d.id.number};
}

void Live::publish(const Output& d, std::uint64_t number, std::uint64_t synced_ns, Ledger& ledger) {
  std::shared_ptr<LiveFrame> frame;
  const bool whole =
      is_wanted(d) && !d.frame.in_parts() && d.waiting.empty() && d.schema.written &&
      std::all_of(d.frame.fields().begin(), d.frame.fields().end(), [](const auto& f) {
        // Memory that nobody holds a lease on is gone with the commit.
        const auto blocks = f.second->blocks();
        return std::all_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.lease != nullptr; });
      });
  if (whole) {
    frame = std::make_shared<LiveFrame>();
    frame->schema = std::make_shared<const Schema>(*d.schema.asked);  // values are as put: no mark of operators
    frame->synced_ns = synced_ns;
    for (const auto& [variable, field] : d.frame.fields()) {
      frame->fields[variable] = field;
      for (const auto& b : field->blocks()) frame->bytes += b.bytes;
    }
    find_regions(*frame, ledger);
  }
  store_->publish(key_of(d), d.path, d.policy.format.value_or(d.format), number,
                  d.frame.in_parts() ? readers::Records() : d.frame.records(), std::move(frame),
                  Stage::inode_in(d.state_name));
  if (d.is_further() || d.hidden) return;
  const NamedFile named{key_of(d), d.path, Stage::inode_in(d.state_name), d.file.system};
  if (!names_.insert({named.key, named}).second) return;
  latest_.push_back(key_of(d));
  constexpr std::size_t looked_at_most = 1000;
  if (latest_.size() > looked_at_most) {
    names_.erase(latest_.front());
    latest_.pop_front();
  }
}

void Live::look_for_new_names(bool waits) {
  constexpr unsigned looks_most = 20;
  // One that is under way may have looked before the last renaming.
  if (waits) collect_names(true);
  std::map<dev_t, std::vector<NamedFile>> by_system;
  for (const auto& [key, named] : names_)
    if (named.inode != 0 && (named.missed < looks_most || !named.over) && !looks_.contains(named.system))
      by_system[named.system].push_back(named);
  for (auto& [system, names] : by_system) {
    auto found = std::make_shared<std::promise<std::vector<NamedFile>>>();
    looks_[system] = found->get_future();
    run_.disk_threads.of(system).run(
        [found, names = std::move(names)]() mutable { found->set_value(not_in_place(std::move(names))); });
  }
  collect_names(waits);
}

void Live::collect_names(bool waits) {
  for (auto look = looks_.begin(); look != looks_.end();) {
    if (!waits && look->second.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      ++look;
      continue;
    }
    for (const auto& file : in_their_turn(look->second.get())) {
      const auto named = names_.find(file.key);
      if (named == names_.end()) continue;
      if (named->second.path != file.path) store_->rename(file.key, file.path);
      named->second.path = file.path;
      named->second.missed = file.missed;
    }
    look = looks_.erase(look);
  }
}

void Live::note_commit(const Output& d, bool begins) {
  store_->note_commit(key_of(d), begins);
}

/// The segments in which the blocks of the frame lie, with descriptors by which readers map them.
void Live::find_regions(LiveFrame& frame, Ledger& ledger) {
  struct There {
    const std::byte* begin;
    const journal::Reader::Held* held;
    const std::string* journal;
  };
  std::vector<There> there;
  for (const auto& [name, j] : ledger.journals)
    if (j->reader)
      for (const auto& h : j->reader->held()) there.push_back({h.mapping->data(), &h, &name});
  std::sort(there.begin(), there.end(), [](const There& a, const There& b) { return a.begin < b.begin; });
  std::erase_if(regions_, [](const auto& r) { return r.second.expired(); });
  std::map<const std::byte*, std::shared_ptr<const Region>> found;
  for (const auto& [variable, field] : frame.fields) {
    for (const auto& b : field->blocks()) {
      auto it = std::upper_bound(there.begin(), there.end(), b.data,
                                 [](const std::byte* at, const There& t) { return at < t.begin; });
      if (it == there.begin()) continue;
      --it;
      const auto& mapping = it->held->mapping;
      if (b.data + b.bytes > it->begin + mapping->bytes() || found.contains(it->begin)) continue;
      auto region = regions_[mapping.get()].lock();
      if (!region) {
        auto made = std::make_shared<Region>();
        made->id = next_region_++;
        made->begin = it->begin;
        made->bytes = mapping->bytes();
        made->lease = mapping;
        const auto path = run_.stage.journals() + "/" + *it->journal + "/" + it->held->file;
        made->descriptor = readers::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!made->descriptor) continue;  // its values go over the connection
        region = std::move(made);
        regions_[mapping.get()] = region;
      }
      found[it->begin] = std::move(region);
    }
  }
  for (auto& [begin, region] : found) frame.regions.push_back(std::move(region));
}

bool Live::may_be_mapped(const std::string& segment) const {
  return std::strtoull(segment.c_str() + 1, nullptr, 10) < first_segment_;
}

void Live::note_visible(const Output& d) {
  store_->set_visible(key_of(d), d.progress.frames_visible);
}

void Live::note_taken_up(const Output& d) {
  store_->take_up(key_of(d), d.progress.frames_visible);
}

void Live::note_durable(const Output& d, std::uint64_t frames, bool all) {
  store_->set_durable(key_of(d), frames, all);
}

void Live::note_over(const Output& d) {
  store_->set_over(key_of(d), d.has_no_file() ? 0 : d.progress.frames_visible);
  if (const auto named = names_.find(key_of(d)); named != names_.end()) named->second.over = true;
}

nlohmann::json Live::status() {
  return {{"connected", service_->status()}, {"bytes_held", store_->held_bytes()}};
}

}  // namespace advectio
