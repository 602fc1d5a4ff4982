#include "server/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "operators/calendar.h"
#include "server/coupled.h"
#include "server/live.h"
#include "server/run.h"

namespace advectio {

/// A file to which whole lines are appended. An error to write is reported once, and is no error of the run.
class Events::Target {
 public:
  Target(std::string path, unsigned permissions, Log& log) : path_(std::move(path)), log_(log) {
    // Not blocking: a pipe without a reader must not stop the server.
    fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, permissions);
    if (fd_ < 0) warn(errno);
    struct stat st {};
    if (fd_ < 0 || ::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return;
    const int read = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    char last = '\n';
    if (read >= 0 && ::pread(read, &last, 1, st.st_size - 1) == 1) is_torn_ = last != '\n';
    if (read >= 0) ::close(read);
  }
  ~Target() {
    if (fd_ >= 0) ::close(fd_);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  /// In one call, so that lines of several servers do not mix.
  void append(const std::string& line) {
    if (fd_ < 0) return;
    const std::string text = (is_torn_ ? "\n" : "") + line + '\n';
    ssize_t n = 0;
    do n = ::write(fd_, text.data(), text.size());
    while (n < 0 && errno == EINTR);
    if (n < 0) return warn(errno);
    is_torn_ = static_cast<std::size_t>(n) < text.size();
    if (is_torn_) warn(ENOSPC);
  }

 private:
  void warn(int error) {
    if (std::exchange(warned_, true)) return;
    log_.warning("events: " + path_ + ": " + std::strerror(error) + "; events are missing there from now on");
  }

  const std::string path_;
  Log& log_;
  int fd_ = -1;
  bool is_torn_ = false;  ///< ends in the midst of a line
  bool warned_ = false;
};

namespace {

/// `digits`: of the fraction of a second.
std::string utc_text(std::uint64_t time_ns, std::size_t digits) {
  const auto second = static_cast<std::time_t>(time_ns / 1'000'000'000);
  std::tm utc{};
  ::gmtime_r(&second, &utc);
  std::array<char, 24> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  const auto fraction = std::to_string(1'000'000'000 + time_ns % 1'000'000'000);
  return std::string(text.data()) + "." + fraction.substr(1, digits) + "Z";
}

std::string id_of(const SharedState& shared_state) {
  std::array<char, 64> text{};
  if (shared_state.journal == 0)  // of tiles: the server has made it
    std::snprintf(text.data(), text.size(), "whole-%" PRIx64, shared_state.created_ns);
  else
    std::snprintf(text.data(), text.size(), "%" PRIx64 "-%" PRIu32 ".%" PRIu32, shared_state.journal,
                  static_cast<std::uint32_t>(shared_state.number), static_cast<std::uint32_t>(shared_state.output));
  return text.data();
}

std::string as_iso(std::string text) {
  if (const auto blank = text.find(' '); blank != std::string::npos) text[blank] = 'T';
  return text;
}

std::string until_null(std::string text) {
  return text.substr(0, text.find('\0'));
}

/// An attribute that is text; empty: there is none.
std::string text_of(const Variable& v, std::string_view name) {
  for (const auto& a : v.attributes)
    if (a.name == name && a.type == DataType::text)
      return until_null({reinterpret_cast<const char*>(a.values.data()), a.values.size()});
  return {};
}

template <typename T>
double value_at(const std::byte* data) {
  T value{};
  std::memcpy(&value, data, sizeof value);
  return static_cast<double>(value);
}

/// The last value of the block.
std::optional<double> last_value(DataType type, const Block& block) {
  const auto size = size_of(type);
  if (size == 0 || block.bytes < size) return std::nullopt;
  const auto* data = block.data + block.bytes - size;
  switch (type) {
    case DataType::float64: return value_at<double>(data);
    case DataType::float32: return value_at<float>(data);
    case DataType::int32: return value_at<std::int32_t>(data);
    case DataType::int64: return value_at<std::int64_t>(data);
    default: return std::nullopt;
  }
}

/// Of WRF's `Times`, or of a coordinate variable of time as the CF conventions have it. Empty: it is neither.
std::string time_of(const Schema& schema, const Variable& v, const Block& block) {
  if (v.name == "Times" && v.type == DataType::text && v.dimensions.size() == 2) {
    const auto length = block.box.count[1];
    if (length == 0 || block.box.start[1] != 0 || block.bytes < length) return {};
    const auto text = until_null({reinterpret_cast<const char*>(block.data + block.bytes - length), length});
    const auto time = parse_time(text, Calendar::proleptic_gregorian);
    return time ? as_iso(time_text(*time, Calendar::proleptic_gregorian)) : std::string();
  }
  if (v.dimensions.size() != 1) return {};
  const auto& dimension = schema.dimensions[v.dimensions[0]];
  if (!dimension.unlimited || dimension.name != v.name) return {};
  const auto named = text_of(v, "calendar");
  const auto calendar = named.empty() ? Calendar::standard : calendar_named(named);
  if (!calendar) return {};
  const auto units = parse_time_units(text_of(v, "units"), *calendar);
  const auto value = last_value(v.type, block);
  return units && value ? as_iso(time_text(units->time_of(*value), *calendar)) : std::string();
}

}  // namespace

Events::Events(Run& run) : run_(run) {}
Events::~Events() = default;

Result<void> Events::open() {
  const auto path = run_.options.run_dir + "/" + file_name;
  if (run_.has_other_nodes()) node_ = run_.options.transport->name(run_.options.transport->node());
  directory_ = run_.directory;
  ADVECTIO_TRY_WITH(read_back(), "what had been said");
  kept_ = std::make_unique<Target>(path, 0600, run_.log);
  if (const auto& file = run_.config.outside.events; !file.empty())
    told_ = std::make_unique<Target>((std::filesystem::path(directory_) / file).string(), 0666, run_.log);
  if (begun_) return {};
  Line line{{"event", "run_begun"}, {"directory", directory_}};
  say(std::move(line));
  return {};
}

/// Of the run directory: what an earlier server has said. A line that it could not end is none.
Result<void> Events::read_back() {
  const auto path = run_.options.run_dir + "/" + file_name;
  if (!run_.files.exists(path)) return {};
  const auto bytes = read_file(run_.files, path);
  if (!bytes) return bytes.error();
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    if (const auto line = Line::parse(text.substr(at, end - at), nullptr, false); line.is_object()) take_back(line);
    at = end + 1;
  }
  return {};
}

void Events::take_back(const Line& line) {
  const std::string event = line.value("event", "");
  if (event == "run_begun") {
    begun_ = true;
    directory_ = line.value("directory", directory_);
  }
  if (!line.contains("id")) return;
  auto& said = before_[line.value("id", "")];
  if (event == "begun") said.begun = true;
  if (event == "frame") said.frames = std::max(said.frames, line.value("frame", std::uint64_t{0}) + 1);
  if (event == "left_out") said.left_out += line.value("frames", std::uint64_t{0});
  if (event == "durable") said.frames_durable = std::max(said.frames_durable, line.value("frames", std::uint64_t{0}));
  if (event == "durable") said.durable = line.value("complete", false);
  if (event == "complete" || event == "removed" || event == "dropped") said.over = true;
  said.error = event == "failed" ? line.value("error", "") : std::string();
}

/// Events name the joined file, not its tiles. Of a coupled file (mode: memory+file) they name the one on the disk.
bool Events::is_told(const Output& d) const {
  if (d.is_elsewhere() || d.hidden || d.is_tile()) return false;
  if (d.is_further() && run_.coupled->name(d.path) != d.path) return false;
  const bool may_be_tile = d.policy.join && d.join.tiles_count == 0;
  return !may_be_tile || d.progress.frames_visible > 0 || d.over() || d.state == State::failed;
}

void Events::know(Output& d) {
  if (!d.said.id.empty() || !d.shared_state) return;
  auto times = std::move(d.said.times);
  const auto committed = d.said.committed;
  const auto id = id_of(*d.shared_state);
  if (const auto it = before_.find(id); it != before_.end()) {
    d.said = std::move(it->second);
    before_.erase(it);
  }
  d.said.id = id;
  // The dataset before has said the frames that the file held when it was opened again.
  d.said.frames = std::max(d.said.frames, d.shared_state->frames_before);
  d.said.frames_durable = std::max(d.said.frames_durable, d.shared_state->frames_before);
  d.said.times = std::move(times);
  d.said.committed = committed;
}

void Events::look(Output& d) {
  if (!kept_ || !is_told(d)) return;
  know(d);
  if (d.said.id.empty()) return;
  if (!std::exchange(d.said.begun, true)) {
    auto line = line_of("begun", d);
    line["inode"] = Stage::inode_in(d.state_name);
    line["created"] = utc_text(d.shared_state->created_ns, 9);
    say(std::move(line));
  }
  say_frames(d);
  if (d.state == State::failed && d.said.error != d.trouble.error.message) {
    auto line = line_of("failed", d);
    line["error"] = d.said.error = d.trouble.error.message;
    say(std::move(line));
  }
  if (d.over() && !d.said.over) say_end(d);
  say_durable(d);
}

void Events::say_frames(Output& d) {
  auto& said = d.said;
  for (; said.frames < d.progress.frames_visible; ++said.frames) {
    auto line = line_of("frame", d);
    line["frame"] = said.frames;
    if (const auto it = said.times.find(said.frames); it != said.times.end()) line["model_time"] = it->second;
    struct stat st {};
    if (!d.is_store() && ::stat(d.file.link.c_str(), &st) == 0) line["bytes"] = st.st_size;
    said.error.clear();
    say(std::move(line));
  }
  said.times.erase(said.times.begin(), said.times.lower_bound(d.progress.frames_visible));
  const auto dropped = d.shared_state ? d.shared_state->frames_dropped.load() : d.figures.frames_dropped;
  if (dropped <= said.left_out) return;
  auto line = line_of("left_out", d);
  line["frames"] = dropped - said.left_out;
  said.left_out = dropped;
  say(std::move(line));
}

void Events::say_end(Output& d) {
  d.said.over = true;
  auto line = line_of(d.state == State::finished ? "complete" : name_of(d.state), d);
  line["frames"] = d.progress.frames_visible;
  auto bytes = d.figures.bytes_written;
  struct stat st {};
  // An earlier server has removed its hard link, by which they are counted.
  if (bytes == 0 && !d.is_store() && ::stat(d.path.c_str(), &st) == 0) bytes = static_cast<std::uint64_t>(st.st_size);
  if (d.state == State::finished) line["bytes"] = bytes;
  // `false`: its program was killed before it had closed it.
  if (d.state == State::finished) line["closed"] = d.whole;
  say(std::move(line));
}

void Events::say_durable(Output& d) {
  auto& said = d.said;
  const bool all = d.state == State::finished && said.over && said.committed > 0 &&
                   d.progress.durable >= said.committed && d.progress.frames_durable >= d.progress.frames_visible;
  if (d.progress.frames_durable <= said.frames_durable && (!all || said.durable)) return;
  said.frames_durable = std::max(said.frames_durable, d.progress.frames_durable);
  said.durable = all;
  auto line = line_of("durable", d);
  line["frames"] = said.frames_durable;
  line["complete"] = all;
  say(std::move(line));
  if (run_.live && !d.is_further()) run_.live->note_durable(d, said.frames_durable, all);
}

void Events::note_commit(Output& d, std::uint64_t sequence) {
  d.said.committed = std::max(d.said.committed, sequence);
}

void Events::note_block(Output& d, const Block& block) {
  const auto& schema = *d.schema.written;
  const auto& v = schema.variables[block.variable];
  if (v.dimensions.empty() || v.dimensions.size() > 2 || block.layout) return;
  if (auto time = time_of(schema, v, block); !time.empty()) d.said.times[d.progress.frames_ended] = std::move(time);
}

void Events::say_not_durable(const Output& d, const std::string& error) {
  if (!kept_ || d.said.id.empty()) return;
  auto line = line_of("failed", d);
  line["error"] = error;
  say(std::move(line));
}

void Events::end(bool complete) {
  if (kept_) say({{"event", "run_ended"}, {"complete", complete}});
}

Events::Line Events::line_of(const char* event, const Output& d) const {
  Line line{{"event", event}, {"path", run_.coupled->name(d.destination())}};
  if (d.is_store() && !d.is_further()) line["in_place_of"] = d.path;
  line["id"] = d.said.id;
  return line;
}

void Events::say(Line line) {
  line["time"] = utc_text(realtime_ns(), 3);
  line["run"] = run_.options.run_dir;
  if (!node_.empty()) line["node"] = node_;
  const auto text = line.dump(-1, ' ', false, Line::error_handler_t::replace);
  // Of these two the run directory says to a later server what has been said.
  if (told_) told_->append(text);
  kept_->append(text);
}

}  // namespace advectio
