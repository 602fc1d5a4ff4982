#include "journal/segments.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

namespace advectio::journal {

namespace {

constexpr std::array<std::byte, 65536> zeros{};

/// False: the cap is reached.
bool count_segments(StageControl& control, std::uint64_t segments) noexcept {
  // Never more than the cap, not even for a moment: others read it.
  auto total = control.segments_total.load();
  do {
    if (total + segments > control.segments_limit.load()) return false;
  } while (!control.segments_total.compare_exchange_weak(total, total + segments));
  const auto now = total + segments;
  auto peak = control.segments_peak.load(std::memory_order_relaxed);
  while (peak < now && !control.segments_peak.compare_exchange_weak(peak, now)) {
  }
  return true;
}

/// Memory that has only been reserved is cleared when it is first touched. Written, it is in half the time of touching
/// a mapping of it.
Result<void> clear(File& file, std::uint64_t bytes, const std::function<bool()>& in_vain) {
  for (std::uint64_t at = 0; at < bytes && !(in_vain && in_vain()); at += zeros.size())
    ADVECTIO_TRY(file.write(at, std::span(zeros).first(std::min<std::uint64_t>(zeros.size(), bytes - at))));
  return {};
}

/// `segments` have been counted. They are given back where no segment is made, also when an exception leaves.
class Counted {
 public:
  Counted(StageControl& control, std::uint64_t segments) noexcept : control_(control), segments_(segments) {}
  ~Counted() { give_back(); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  void give_back() noexcept { uncount_segments(control_, std::exchange(segments_, 0)); }
  void keep() noexcept { segments_ = 0; }

 private:
  StageControl& control_;
  std::uint64_t segments_;
};

/// `segments` have been counted.
Result<std::optional<NewSegment>> make_counted(const Stage& stage, const std::string& directory, std::string name,
                                               std::uint64_t segments, Pages pages,
                                               const std::function<bool()>& in_vain) {
  auto& control = stage.control();
  auto& files = stage.files();
  Counted counted(control, segments);
  NewSegment made{std::move(name), ""};
  made.path = directory + "/." + made.name;
  const auto bytes = segments * control.segment_bytes;
  Result<void> reserved;
  if (auto file = files.open(made.path, OpenMode::create, 0600); !file) {
    reserved = std::move(file).error();
  } else {
    reserved = (*file)->reserve(bytes);
    if (reserved && pages == Pages::cleared) reserved = clear(**file, bytes, in_vain);
  }
  if (reserved && !(in_vain && in_vain())) {
    counted.keep();
    return std::optional(std::move(made));
  }
  (void)files.remove(made.path);
  counted.give_back();
  if (reserved) return std::optional<NewSegment>();
  if (reserved.error().code == Code::full) control.segments_limit.store(control.segments_total.load());
  return std::move(reserved).error();
}

std::string numbered(StageControl& control, char letter) {
  char name[32];
  std::snprintf(name, sizeof name, "%c%06llu", letter,
                static_cast<unsigned long long>(control.next_segment.fetch_add(1)));
  return name;
}

}  // namespace

void uncount_segments(StageControl& control, std::uint64_t segments) noexcept {
  auto total = control.segments_total.load();
  while (!control.segments_total.compare_exchange_weak(total, total - std::min(total, segments))) {
  }
}

std::uint64_t long_segment_bytes(const StageControl& control, std::uint64_t record) noexcept {
  const auto segment = control.segment_bytes;
  return (segment_header_bytes + record + segment - 1) / segment * segment;
}

std::uint64_t count_of_segment(const std::string& segment) noexcept {
  if (segment.empty() || segment[0] == spilled_letter) return 0;
  const auto plus = segment.find('+');
  return is_long(segment) && plus != std::string::npos ? std::strtoull(segment.c_str() + plus + 1, nullptr, 10) : 1;
}

std::uint64_t bytes_of_segment(const StageControl& control, const std::string& segment) noexcept {
  return std::max<std::uint64_t>(1, count_of_segment(segment)) * control.segment_bytes;
}

Result<std::optional<NewSegment>> make_segment(const Stage& stage, const std::string& directory, Pages pages,
                                               const std::function<bool()>& in_vain) {
  if (!count_segments(stage.control(), 1)) return std::optional<NewSegment>();
  return make_counted(stage, directory, numbered(stage.control(), segment_letter), 1, pages, in_vain);
}

Result<std::optional<NewSegment>> make_long_segment(const Stage& stage, const std::string& directory,
                                                    std::uint64_t bytes) {
  auto& control = stage.control();
  const auto segments = bytes / control.segment_bytes;
  while (!count_segments(control, segments)) {
    if (!remove_free_segment(stage)) return std::optional<NewSegment>();
  }
  return make_counted(stage, directory, numbered(control, long_letter) + '+' + std::to_string(segments), segments,
                      Pages::reserved, nullptr);
}

bool remove_free_segment(const Stage& stage) {
  auto& files = stage.files();
  const auto names = files.list(stage.pool());
  if (!names) return false;
  // Writers take the lowest number first: the highest has been idle for longest.
  for (auto name = names->rbegin(); name != names->rend(); ++name) {
    if ((*name)[0] != segment_letter) continue;
    // Out of the writers' sight first: one that takes it at the same moment has it, or has not.
    const std::string hidden = stage.pool() + "/." + *name;
    if (!files.rename(stage.pool() + "/" + *name, hidden)) continue;
    if (auto file = files.open(hidden, OpenMode::read_write))
      (void)::fallocate((*file)->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(stage.control().segment_bytes));
    (void)files.remove(hidden);
    uncount_segments(stage.control(), 1);
    return true;
  }
  return false;
}

}  // namespace advectio::journal
