#include "journal/mirror.h"

#include <filesystem>
#include <random>
#include <utility>

#include "journal/reader.h"
#include "journal/segments.h"
#include "journal/spill.h"
#include "journal/writer.h"

namespace advectio::journal {

namespace {

std::byte* map_segment(const Stage& stage, const std::string& segment, const std::string& path, Mapping& to) {
  auto file = stage.files().open(path, OpenMode::read_write, 0600);
  if (!file) return nullptr;
  auto mapping = stage.files().map(**file, bytes_of_segment(stage.control(), segment), true);
  if (!mapping) return nullptr;
  to = std::move(mapping).value();
  return to.data();
}

}  // namespace

std::byte* SegmentMappings::of(const Stage& stage, const std::string& segment, const std::string& path) {
  if (const auto it = mappings_.find(segment); it != mappings_.end()) return it->second.data();
  Mapping mapping;
  if (map_segment(stage, segment, path, mapping) == nullptr) return nullptr;
  return mappings_.emplace(segment, std::move(mapping)).first->second.data();
}

Result<std::unique_ptr<Mirror>> Mirror::open(const Stage& stage, const std::string& node, const std::string& name,
                                             const WriterState& of) {
  const std::string here = node + "@" + name;
  const std::uint32_t own = std::random_device()() | 1U;
  auto made = make_journal(stage, here, [&of, own](WriterState& shared_state) {
    shared_state = of;
    shared_state.mirror = own;
  });
  if (!made) return std::move(made).error();
  return std::unique_ptr<Mirror>(new Mirror(stage, stage.journals() + "/" + here, own, std::move(made->lock)));
}

Mirror::~Mirror() {
  seal();
}

std::byte* Mirror::room(std::uint64_t bytes, SegmentMappings& mappings) {
  if (segment_ != nullptr && at_ + bytes <= segment_bytes_) return segment_ + at_;
  const auto& control = stage_.control();
  if (const auto wanted = long_segment_bytes(control, bytes); wanted > control.segment_bytes)
    return begin(make_long_segment(stage_, directory_, wanted), mappings);
  auto free = stage_.files().list(stage_.pool());
  if (!free) return nullptr;
  for (const auto& name : *free) {
    if (name[0] != segment_letter) continue;
    const auto path = directory_ + "/" + chain_name(next_index_, name);
    if (!stage_.files().rename(stage_.pool() + "/" + name, path)) continue;  // somebody was faster
    return begin(name, path, mappings);
  }
  return begin(make_segment(stage_, directory_, Pages::reserved), mappings);
}

std::byte* Mirror::begin(Result<std::optional<NewSegment>> made, SegmentMappings& mappings) {
  if (!made || !made->has_value()) return nullptr;
  const auto& [name, hidden] = **made;
  const auto path = directory_ + "/" + chain_name(next_index_, name);
  if (!stage_.files().rename(hidden, path)) return nullptr;
  return begin(name, path, mappings);
}

std::byte* Mirror::begin(const std::string& name, const std::string& path, SegmentMappings& mappings) {
  Mapping own;  // a long segment never comes back
  auto* data = is_long(name) ? map_segment(stage_, name, path, own) : mappings.of(stage_, name, path);
  if (data == nullptr) {
    (void)give_back(stage_, path, name);
    return nullptr;
  }
  // Its header is written with the first record.
  reinterpret_cast<SegmentHeader*>(data)->committed.store(0, std::memory_order_release);
  ++next_index_;
  full_ = std::exchange(segment_, data);
  full_long_ = std::exchange(long_, std::move(own));
  segment_bytes_ = bytes_of_segment(stage_.control(), name);
  at_ = segment_header_bytes;
  return segment_ + at_;
}

void Mirror::publish(std::uint64_t bytes, std::uint64_t sequence) noexcept {
  if (at_ == segment_header_bytes) begin_segment(segment_, segment_bytes_, in_segments_, next_index_ - 1, sequence);
  at_ += bytes;
  reinterpret_cast<SegmentHeader*>(segment_)->committed.store(at_, std::memory_order_release);
  // A reader that sees the seal finds the next one ready.
  if (auto* full = std::exchange(full_, nullptr); full != nullptr)
    reinterpret_cast<SegmentHeader*>(full)->sealed.store(1, std::memory_order_release);
  full_long_ = Mapping();
}

void Mirror::seal() noexcept {
  // One with nothing in it has no header yet: it stays for the next record.
  if (segment_ == nullptr || at_ == segment_header_bytes) return;
  reinterpret_cast<SegmentHeader*>(segment_)->sealed.store(1, std::memory_order_release);
  segment_ = nullptr;
  long_ = Mapping();
}

bool is_mirror(const std::string& journal) {
  return journal.find('@') != std::string::npos;
}

Result<void> remove_mirrors(const Stage& stage) {
  auto names = stage.files().list(stage.journals());
  if (!names) return std::move(names).error();
  for (const auto& name : *names)
    if (is_mirror(name)) free_journal(stage, name);
  return {};
}

void free_journal(const Stage& stage, const std::string& journal) {
  const std::string directory = stage.journals() + "/" + journal;
  auto names = stage.files().list(directory);
  if (!names) return;
  for (const auto& file : *names) {
    if (file.rfind("ahead-", 0) == 0)
      (void)give_back(stage, directory + "/" + file, file.substr(6));
    else if (const auto parsed = parse_chain_name(file))
      (void)give_back(stage, directory + "/" + file, parsed->second);
    else if (file[0] == '.')
      uncount_segments(stage.control(), count_of_segment(file.substr(1)));  // in the making when the process died
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace advectio::journal
