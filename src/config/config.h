// `advectio.yaml` as immutable structs. Text is parsed once; every value knows where it comes from, and whatever cannot
// be right is refused with one line that names file, line and key. What needs the machine (is the directory writable,
// how much memory is there) is asked by the caller; the arithmetic for it is here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/couple.h"
#include "core/result.h"
#include "core/types.h"

namespace advectio {

/// Files that are copied before the program starts, or after it has ended.
struct Transfer {
  std::string from;  ///< shell pattern
  std::string to;    ///< directory
  bool operator==(const Transfer&) const = default;
};

struct StageConfig {
  std::string directory = "/dev/shm";
  std::optional<std::uint64_t> bytes_max;    ///< empty: auto, see `stage_bytes_max`
  std::uint64_t segment_bytes = 2ULL << 20;  ///< at least, see `stage_segment_bytes`
  std::uint64_t warm_bytes = 256ULL << 20;
  std::chrono::milliseconds wait_max = std::chrono::minutes(10);
  std::string spill;                       ///< directory on a disk; empty: none
  std::optional<std::uint64_t> spill_max;  ///< empty: auto, see `spill_bytes_max`
  bool drain_later = false;                ///< the run ends before what it has staged is written
  std::vector<Transfer> in, out;
  bool operator==(const StageConfig&) const = default;
};

struct ServerConfig {
  std::optional<unsigned> threads;  ///< empty: auto, the cores available
  bool sprint = true;               ///< as many as there are cores, once the programs have ended
  std::uint64_t memory_max = 512ULL << 20;
  unsigned restarts_max = 5;
  std::optional<std::uint64_t> drain_max;  ///< bytes a second; empty: none
  bool operator==(const ServerConfig&) const = default;
};

/// Live readers, and what reads the files.
struct ReadersConfig {
  std::vector<std::string> listen;                 ///< addresses for readers on other nodes
  std::string contact = "advectio.contact";        ///< file by which they find the run; written where it listens
  std::optional<std::uint64_t> memory_max;         ///< empty: auto, a quarter of the stage's cap
  std::vector<std::string> programs = {"netcdf"};  ///< who reads the files, see `codecs_not_read`
  bool operator==(const ReadersConfig&) const = default;
};

/// Programs whose files are each other's input (`couple`).
struct WorkflowConfig {
  std::string directory;                                             ///< empty: none
  std::string name;                                                  ///< of this program in it
  std::vector<std::string> listen;                                   ///< addresses for its other nodes
  std::chrono::milliseconds wait_max = std::chrono::minutes(10);     ///< of a program for a file
  std::chrono::milliseconds restart_max = std::chrono::seconds(10);  ///< after the death of who writes it
  bool operator==(const WorkflowConfig&) const = default;
};

/// Commands that the command line runs at events (server/events.h).
struct EventCommands {
  std::map<std::string, std::string> commands;  ///< event → words as on a shell, with {path}, {name} and {frame}
  unsigned at_once = 2;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  ///< of one, and of all that are left at the run's end
  bool operator==(const EventCommands&) const = default;
};

/// Keys for programs outside the run. They stand at the top of the config, in no section.
struct OutsideConfig {
  /// Patterns of names that a program makes when its files are complete; see capture/markers.h. Empty: none.
  std::vector<std::string> markers = {"*.done",      "*.ready",    "*.ok",      "*.complete", "*_done",
                                      "log.f[0-9]*", "rpointer.*", "*.trigger", "*.flag"};
  std::string events;  ///< file for a line of JSON at each event; empty: none
  EventCommands on;
  bool operator==(const OutsideConfig&) const = default;
};

/// Files that are complete together: one of each pattern, of one instant. The command line keeps them
/// (python/src/advectio/sets.py).
struct SetRule {
  std::string name;
  std::vector<std::string> match;    ///< as of `datasets`, each with {instant} for the part that names the instant
  std::string link;                  ///< symbolic link that leads to the newest whole set
  std::string pointer;               ///< file that lists its files; empty: none
  std::optional<unsigned> keep;      ///< sets; empty: all
  std::vector<std::string> members;  ///< programs that each write a part; empty: one does
  std::string origin;                ///< "advectio.yaml:12"
  bool operator==(const SetRule&) const = default;
};

/// A pattern of a set for fnmatch(3): any text in the place of {instant}.
std::string set_glob(const std::string& pattern);

enum class LogLevel : std::uint8_t { error, warning, info, debug };

struct LogConfig {
  LogLevel level = LogLevel::warning;
  std::string file;  ///< empty: none
  bool operator==(const LogConfig&) const = default;
};

enum class Codec : std::uint8_t { asked, none, deflate, zstd, lz4, blosc_lz4, blosc_zstd, szip };
enum class DeflateBy : std::uint8_t { isal, libdeflate };
enum class Shuffle : std::uint8_t { asked, none, byte, bit };
enum class CloseMode : std::uint8_t { async, wait };
/// When a file gets its name.
enum class Appear : std::uint8_t {
  frame,     ///< with its first frame
  complete,  ///< when it is complete
  create,    ///< when the program creates it
};
/// How far a frame has got.
enum class Promise : std::uint8_t { staged, visible, durable };
enum class Priority : std::uint8_t { normal, high };
/// The ends of frames, besides nc_close.
enum class Frames : std::uint8_t { automatic, sync, record };
enum class WhenFull : std::uint8_t { automatic, wait, spill, drop_frame };

std::string_view name_of(LogLevel) noexcept;
std::string_view name_of(Codec) noexcept;
std::string_view name_of(DeflateBy) noexcept;
std::string_view name_of(Shuffle) noexcept;
std::string_view name_of(CloseMode) noexcept;
std::string_view name_of(Promise) noexcept;

struct OutputRule;

/// A further output that operators make of the dataset's files, as `advectio process` does. Whoever makes it reads its
/// rule from the config again (`load_processed_rule`).
struct ProcessedOutput {
  std::size_t number = 0;  ///< in the list `outputs` of its rule, from 0
  std::string path;        ///< with {name} and {time}, see process_path
  std::string text;        ///< YAML, on one line
  std::string origin;      ///< "advectio.yaml:12"
  bool operator==(const ProcessedOutput& other) const { return text == other.text; }
};

/// Where the names of a policy are set ("advectio.yaml:12"). Policies that say the same are equal wherever they are
/// set.
struct NamesSetAt {
  std::string chunks, round;
  bool operator==(const NamesSetAt&) const { return true; }
};

/// What the rules say about one dataset, all of them applied. "Asked": as the program asked for it.
struct DatasetPolicy {
  bool capture = true;
  Codec codec = Codec::asked;
  std::optional<int> level;  ///< on the codec's own scale; empty: auto
  DeflateBy deflate = DeflateBy::isal;
  Shuffle shuffle = Shuffle::asked;
  std::vector<std::pair<std::string, std::uint64_t>> chunks;  ///< dimension, length; those not named: as asked
  std::optional<FileFormat> format;                           ///< empty: as asked
  std::vector<std::pair<std::string, unsigned>> round;        ///< variable name or pattern, significant bits
  std::vector<std::pair<std::string, std::string>> stream;    ///< parameters of ADIOS2's SST, by its names
  bool durable = true;
  CloseMode close = CloseMode::async;
  Promise promise = Promise::staged;
  WhenFull full = WhenFull::automatic;
  Priority priority = Priority::normal;  ///< high: its frames are written before those of others
  Appear appear = Appear::frame;
  Frames frames = Frames::automatic;
  bool join = false;
  std::vector<std::string> variables;  ///< of a coupled output: patterns of those that it has; empty: all
  std::vector<OutputRule> outputs;     ///< further ones, beside the file that the program asked for
  std::vector<ProcessedOutput> processed;
  NamesSetAt names_set_at;
  bool operator==(const DatasetPolicy&) const;
};

/// A further output of a dataset: another file, stored in its own way.
struct OutputRule {
  std::string path;      ///< with {name} for the name of the dataset's file; see output_path
  DatasetPolicy policy;  ///< of its keys only those that say how a file is stored
  bool operator==(const OutputRule& other) const { return path == other.path && policy == other.policy; }
};
inline bool DatasetPolicy::operator==(const DatasetPolicy&) const = default;

/// The file of an output: {name} filled in; a path that is not absolute begins where the dataset's file is.
std::string output_path(const OutputRule& output, const std::string& dataset);

/// Bits of mantissa that `round` leaves a variable: by its very name, else by the first pattern that matches. 0: all.
unsigned round_bits(const DatasetPolicy& policy, const std::string& variable);

/// One entry of `datasets`: the keys it sets, and those only.
struct DatasetRule {
  std::string match;
  std::string origin;                          ///< "advectio.yaml:12"
  DatasetPolicy values;                        ///< only the keys of `origins` mean anything
  std::map<std::string, std::string> origins;  ///< key → where it is set
  bool sets(const std::string& key) const { return origins.contains(key); }
};

struct Config {
  StageConfig stage;
  ServerConfig server;
  ReadersConfig readers;
  WorkflowConfig workflow;
  OutsideConfig outside;
  LogConfig log;
  std::vector<DatasetRule> datasets;
  std::vector<CoupleRule> couple;  ///< the first that matches a file holds
  std::vector<SetRule> sets;
  /// "stage.bytes_max" → "advectio.yaml:3", or "default". Holds every key of the plain sections.
  std::map<std::string, std::string> origins;
};

/// Everything at its default.
Config default_config();

/// `name` is what origins and errors call the text. Error Code::config, one line: "NAME:LINE: what is wrong".
Result<Config> parse_config(std::string_view text, const std::string& name);

/// Read and parse a file. Error Code::config when it cannot be read or is not right.
Result<Config> load_config(const std::string& path);

/// The rules that match `path` applied in order, a later one overriding key by key. A rule that sets `codec` or
/// `deflate` takes `level` back to auto unless it sets it too: the scale belongs to the codec. Files of a set are made
/// durable whatever rules say, and have a high priority unless a rule sets it. `path` must be absolute for patterns
/// with a `/`.
DatasetPolicy resolve(const Config& config, const std::string& path);

/// Some dataset is promised to be durable, and none becomes one with others: a stage on a disk can keep that promise
/// (docs/decisions/0010).
bool stage_keeps_promises(const Config& config) noexcept;

/// The cap of staged bytes: `stage.bytes_max`, or for auto min(25 % of memory, 80 % of what is free in the stage's
/// directory), rounded down to whole segments. `free_bytes` is what is free there before anything is staged. Error
/// Code::config when the auto cap would be under two segments: says the numbers and what to do.
Result<std::uint64_t> stage_bytes_max(const Config& config, std::uint64_t memory_bytes, std::uint64_t free_bytes);

/// Bytes of a segment of a stage with that cap: `stage.segment_bytes`, doubled until the cap is at most 32768 of them.
/// A process can have 65530 mappings (Linux, vm.max_map_count), and a server may hold all segments.
std::uint64_t stage_segment_bytes(const Config& config, std::uint64_t cap) noexcept;

/// The cap of what spills to a disk: `stage.spill_max`, or for auto 80 % of what is free there, rounded down to whole
/// segments. 0 where nothing may spill.
std::uint64_t spill_bytes_max(const Config& config, std::uint64_t free_bytes) noexcept;

/// One key as it stands: for `explain`, for the JSON dump, and for the reference page.
struct ExplainedValue {
  std::string key;               ///< "stage.bytes_max"
  std::string value;             ///< as one would write it in YAML
  std::string origin;            ///< "advectio.yaml:3", or "default"
  std::string type;              ///< "size or auto"
  std::string doc;               ///< one line
  std::optional<double> number;  ///< bytes, seconds or a count, where it is one
};
std::vector<ExplainedValue> explain(const Config& config);

/// {"values":[{"key","value","origin","type","doc","number"}…],"datasets":[{"match","origin","values":[…]}…]}
std::string to_json(const Config& config);

/// The config as YAML text that parses to the same config again.
std::string to_yaml(const Config& config);

/// A commented example with every key, the defaults filled in and the dataset rules as comments.
std::string example_yaml();

/// The tables of docs/configuration.md.
std::string reference_markdown();

/// "4GiB", "1.5GB", "64KB", "0". Error: what is wrong, without file and line.
Result<std::uint64_t> parse_size(std::string_view text);
/// Exactly, in the largest unit that divides it: "512MiB", "1500MB", "4097B".
std::string size_text(std::uint64_t bytes);
/// "500ms", "30s", "10min", "2h", "0".
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace advectio
