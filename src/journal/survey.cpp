#include "journal/survey.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>

#include "journal/markers.h"
#include "journal/mirror.h"

namespace advectio::journal {

namespace {

/// Of a shared state that may be damaged: not beyond its end.
template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

using Key = std::pair<std::uint64_t, std::uint32_t>;  // journal, number in it

/// Goes through the stage once.
class Surveyor {
 public:
  Surveyor(const Stage& stage, const SurveyOptions& options) : stage_(stage), options_(options) {}

  Result<Survey> go() {
    const auto& control = stage_.control();
    found_.served = stage_.server_alive();
    found_.power_lost = stage_.survives_power() && stage_.has_lost_power(options_.boot);
    found_.server_pid = control.server_pid;
    found_.node = control.node;
    found_.nodes = control.nodes;
    found_.io_nodes = control.io_nodes;
    found_.segment_bytes = control.segment_bytes;
    found_.segments_max = control.segments_max;
    found_.segments_free = stage_.free_segments();
    look_at_datasets();
    if (auto markers = markers_in(stage_))
      for (const auto& marker : *markers) found_.markers.push_back(marker.path);
    else
      found_.problems.push_back(markers.error().message);
    auto names = stage_.files().list(stage_.journals());
    // A server that has written everything removes the stage, and may die in the midst of that.
    if (!names && names.error().code == Code::not_found) names = std::vector<std::string>();
    if (!names) return std::move(names).error();
    std::erase_if(*names, [](const auto& name) { return name[0] == '.'; });
    for (const auto& name : *names) expected_ += bytes_of(name).second;
    for (const auto& name : *names) look_at_journal(name);
    progress(true);
    return std::move(found_);
  }

 private:
  /// The shared state's `visible` counts records of its one writer; each of several has its own in its slot.
  struct Part {
    std::size_t dataset = 0;
    std::uint64_t visible = 0;
    std::uint64_t since_sync = 0;
    bool first = true;  ///< whose frames count
  };

  void look_at_datasets() {
    auto names = stage_.files().list(stage_.datasets());
    if (!names) {
      found_.problems.push_back(names.error().message);
      return;
    }
    for (const auto& name : *names) {
      if (name.find('.') != std::string::npos) continue;
      auto shared_state = stage_.open_state(name);
      if (shared_state)
        look_at_dataset(name, **shared_state);
      else if (shared_state.error().code != Code::not_found)  // finished meanwhile
        found_.problems.push_back(shared_state.error().message);
    }
  }

  void look_at_dataset(const std::string& name, const SharedState& shared_state) {
    SurveyedDataset d;
    d.shared_state = name;
    d.path = text_of(shared_state.path);
    d.link = text_of(shared_state.link);
    d.whole = text_of(shared_state.whole);
    d.error = text_of(shared_state.error_text);
    d.format = shared_state.format;
    d.state = state_of(shared_state);
    d.closed = shared_state.closed.load() != 0;
    d.frames_synced = shared_state.frames_synced.load();
    d.frames_visible = shared_state.frames_visible.load();
    // Of a shared state that was damaged by a crash the smaller one, as a server takes it up.
    auto visible = std::min(shared_state.visible.load(std::memory_order_acquire), shared_state.visible_next.load());
    if (found_.power_lost) visible = forced_of(shared_state).sequence;
    if (const auto durable = shared_state.durable.load(); durable >= visible)
      d.frames_durable = d.frames_visible;
    else if (durable == 0)
      d.frames_durable = 0;
    d.bytes_put = shared_state.bytes_put.load();
    d.frames_dropped = shared_state.frames_dropped.load();
    d.writers = shared_state.writers;
    d.tiles = shared_state.tiles;
    if (shared_state.owner != 0) d.owner = shared_state.owner - 1;
    const bool ended = d.state == DatasetState::finished || d.state == DatasetState::dropped;
    const bool own_file = d.tiles == 0 && (d.whole.empty() || d.whole == alone);
    if (!ended && own_file && !found_.power_lost) d.file = look_for_file(shared_state, name);
    const auto index = found_.datasets.size();
    if (shared_state.writers == 0) {
      parts_.insert({{shared_state.journal, shared_state.number}, {index, visible, 0, true}});
    } else if (auto slots = stage_.open_slots(name, shared_state.writers)) {
      for (std::uint32_t w = 0; w < shared_state.writers; ++w) {
        const auto& slot = (*slots)[w];
        if (const auto journal = slot.journal.load(std::memory_order_acquire); journal != 0)
          parts_.insert({{journal, slot.number}, {index, slot.visible.load(), 0, w == 0}});
      }
    } else {
      found_.problems.push_back(slots.error().message);
    }
    found_.datasets.push_back(std::move(d));
  }

  /// Segments of a journal, and their bytes.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> bytes_of(const std::string& name) const {
    std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
    const auto directory = stage_.journals() + "/" + name;
    const auto files = stage_.files().list(directory);
    if (!files) return sum;
    for (const auto& file : *files) {
      if (!parse_chain_name(file)) continue;
      auto opened = stage_.files().open(directory + "/" + file, OpenMode::read);
      const auto size = opened ? (*opened)->size() : Result<std::uint64_t>(0);
      ++sum.first;
      sum.second += size ? *size : 0;
    }
    return sum;
  }

  void look_at_journal(const std::string& name) {
    SurveyedJournal j;
    j.name = name;
    j.mirror = is_mirror(name);
    std::tie(j.segments, j.segment_bytes) = bytes_of(name);
    auto reader = Reader::open(stage_.files(), stage_.journals() + "/" + name,
                               found_.power_lost ? Trust::scan : Trust::published);
    if (!reader && reader.error().code == Code::not_found && !stage_.files().exists(stage_.journals() + "/" + name))
      return;  // it has ended, and its server has let go of it
    if (reader) {
      const auto& w = (*reader)->writer();
      j.host = text_of(w.host);
      j.command = text_of(w.command);
      j.rank = w.rank;
      j.pid = w.pid;
      j.uid = w.journal;
      j.started_ns = w.started_ns;
      j.alive = (*reader)->writer_alive();
      if (!j.alive) (*reader)->set_writer_gone();
      read(**reader, j);
    } else {
      j.damage = {"", 0, reader.error().message};
    }
    done_ += j.segment_bytes;
    under_way_ = 0;
    found_.journals.push_back(std::move(j));
  }

  void read(Reader& reader, SurveyedJournal& j) {
    for (;;) {
      auto next = reader.next();
      const auto place = reader.place();
      if (!next) {
        if (!given_back(j.name, place)) j.damage = {place.file, place.byte, next.error().message};
        break;
      }
      if (!next->has_value()) {
        // After a loss of power segments are missing that were not forced to the disk.
        if (!j.alive && !found_.power_lost) look_behind(j);
        break;
      }
      const Record& r = **next;
      const bool whole = !options_.verify || verify_payload(r);
      if (!whole && given_back(j.name, place)) break;
      take(j, r, whole);
      while (reader.held().size() > 1) (void)reader.release_oldest(stage_, false);
      progress(false);
    }
    for (auto& [key, part] : parts_)
      if (key.first == j.uid) {
        found_.datasets[part.dataset].bytes_unsynced += part.since_sync;
        part.since_sync = 0;
      }
  }

  /// What follows a gap in the chain cannot be read, and looks like segments which have not been begun. Records in them
  /// tell them apart.
  void look_behind(SurveyedJournal& j) const {
    const auto directory = stage_.journals() + "/" + j.name;
    const auto names = stage_.files().list(directory);
    if (!names) return;
    for (const auto& name : *names) {
      if (!parse_chain_name(name)) continue;
      auto file = stage_.files().open(directory + "/" + name, OpenMode::read);
      std::array<std::byte, sizeof(RecordHeader)> bytes;
      if (!file || !(*file)->read(segment_header_bytes, bytes)) continue;
      const auto first = std::bit_cast<RecordHeader>(bytes);
      if (first.magic != record_magic || first.crc != crc32c(&first, offsetof(RecordHeader, crc)) ||
          first.journal != j.uid || first.sequence <= j.last)
        continue;
      j.damage = {name, 0, directory + "/" + name + ": its records do not follow those before it"};
      return;
    }
  }

  /// While we read, a living server may have brought a segment to its files, and somebody else may write in it.
  [[nodiscard]] bool given_back(const std::string& journal, const Reader::Place& place) const {
    return found_.served && !stage_.files().exists(stage_.journals() + "/" + journal + "/" + place.file);
  }

  void take(SurveyedJournal& j, const Record& r, bool whole) {
    if (j.first == 0) j.first = r.sequence;
    j.last = r.sequence;
    j.records_bytes += r.whole.size();
    under_way_ += r.whole.size();
    ++j.records[name_of(r.type)];
    if (options_.verify) ++j.payloads_checked;
    if (!whole) ++j.payloads_wrong;
    if (options_.on_record) options_.on_record(j, r, whole);
    const auto [from, end] = parts_.equal_range({j.uid, r.dataset});
    for (auto at = from; at != end; ++at) count(at->second, r);
  }

  /// In one output of the dataset.
  void count(Part& part, const Record& r) {
    if (r.sequence <= part.visible) return;
    auto& d = found_.datasets[part.dataset];
    if (r.type == RecordType::put) part.since_sync += r.payload.size();
    // A reader's sync ends a frame of one writer, and none of several.
    const bool ends = (r.flags & flag_implicit) == 0 || d.writers == 0;
    if ((r.type == RecordType::sync && ends) || r.type == RecordType::close) {
      d.bytes_staged += part.since_sync;
      part.since_sync = 0;
      if (auto sync = decode_sync(r.meta); sync && sync->frame > 0 && part.first) ++d.frames_staged;
    }
  }

  void progress(bool last) {
    if (!options_.on_progress) return;
    const auto now = monotonic_ns();
    if (!last && now - sent_ns_ < 100'000'000) return;
    sent_ns_ = now;
    options_.on_progress(last ? expected_ : std::min(done_ + under_way_, expected_), expected_);
  }

  const Stage& stage_;
  const SurveyOptions& options_;
  Survey found_;
  std::multimap<Key, Part> parts_;  // of each output of a dataset
  std::uint64_t expected_ = 0, done_ = 0, under_way_ = 0, sent_ns_ = 0;
};

}  // namespace

bool Survey::damaged() const {
  return !problems.empty() || std::any_of(journals.begin(), journals.end(),
                                          [](const auto& j) { return j.damage.has_value() || j.payloads_wrong > 0; });
}

Result<Survey> survey(const Stage& stage, const SurveyOptions& options) {
  return Surveyor(stage, options).go();
}

}  // namespace advectio::journal
