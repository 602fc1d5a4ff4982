// The stage of one run on one node: a directory (in /dev/shm, or on a node-local disk) that holds everything a
// run has not yet brought to its files. All of its state is in files and names, so that it outlives any process:
//
//   control              what all share: doorbells, caps, heartbeat          (StageControl)
//   server.lock          locked (fcntl) by the living server
//   pool/<segment>       segments nobody uses, touched and warm
//   spill                where segments on a disk are, when there are any: a link (spill.h)
//   journals/<writer>/   one per process: `writer` (WriterState, locked by the living process), `<index>-<segment>`
//                        the chain, `ahead-<segment>` segments the process has mapped but not begun
//   datasets/<name>      one SharedState per dataset in flight; `<name>.schema` its latest schema; `<name>.writers`
//                        a WriterSlot for each process, where several write it together
//   markers/<hash>       a note of each marker that is held back (markers.h)
//   questions/<name>     on several nodes: a process waits for what other nodes have in flight of a file; its server
//                        puts their answer into `<name>.answer`
//
// To take a segment is to rename(2) it: whoever's rename succeeds has it, and a process that dies in between leaves
// the segment in exactly one place. Who makes one counts it first (segments.h), so that the cap holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/types.h"
#include "journal/format.h"
#include "platform/files.h"

namespace advectio::journal {

inline constexpr std::uint64_t control_magic = 0x314C5443564441;  // "ADVCTL1"
inline constexpr std::uint64_t writer_magic = 0x31545257564441;   // "ADVWRT1"
inline constexpr std::uint64_t dataset_magic = 0x31545344564441;  // "ADVDST1"

struct StageControl {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t server_pid;
  std::uint64_t segment_bytes;
  std::uint64_t segments_max;
  std::uint64_t wait_max_ns;
  std::atomic<std::uint64_t> segments_total;          ///< counted before each is made (segments.h)
  alignas(64) std::atomic<std::uint32_t> work;        ///< rung by writers: something new is published (futex)
  alignas(64) std::atomic<std::uint32_t> progress;    ///< rung by the server: segments freed, frames committed (futex)
  alignas(64) std::atomic<std::uint64_t> starved_ns;  ///< CLOCK_MONOTONIC when a writer last found the pool empty
  std::atomic<std::uint64_t> waits;                   ///< how often a writer had to wait for a segment
  std::atomic<std::uint64_t> wait_ns;                 ///< and how long in all
  std::atomic<std::int64_t> bursts;                   ///< datasets in the midst of a frame: a block put, not synced yet
  std::atomic<std::uint64_t> activity;  ///< counts any step of the server that brings bytes nearer to their file
  /// Where the run has a server on each of several nodes: this node's number, how many there are (0 and 1: this one
  /// alone), and how many of them, the last ones, are there for output only.
  std::uint32_t node, nodes, io_nodes;
  std::atomic<std::uint32_t> asked;           ///< counts what processes want to know of the other nodes (`questions`)
  std::atomic<std::uint64_t> segments_limit;  ///< as `segments_max`, or less where the file system has no more room
  // Segments that spill to a disk (spill.h): how many may, how many there are now and have been in all, and when a
  // writer last wanted one (CLOCK_MONOTONIC).
  std::atomic<std::uint64_t> spill_max, spill_total, spilled, spill_wanted_ns;
  /// The run of the kernel in which the stage was made (boot_id), with its zero; empty: not known.
  char boot[40];
  /// 1: what a program has made durable in its journal is kept until its file is durable (docs/decisions/0010).
  std::uint32_t survives_power;
  std::uint32_t left;  ///< 1: the run has ended, and all of the stage has been forced to the disk (make_durable)
  // Since version 4, in which writers make segments, too.
  std::atomic<std::uint64_t> next_segment;   ///< number of the next one that is made
  std::atomic<std::uint64_t> segments_peak;  ///< most that there were at one time
  std::atomic<std::uint64_t> input_bytes;    ///< of the largest netCDF file that a program has opened to read it
  std::atomic<std::uint64_t> relieved_ns;    ///< CLOCK_MONOTONIC when one that had found none last got a segment
  std::atomic<std::uint32_t> closed;         ///< 1: no program begins a journal here any more (Stage::close)
  // Notes in `markers/` (markers.h): of markers, and of renamed files.
  std::atomic<std::uint32_t> markers_held, files_held;
  std::atomic<std::uint32_t> ends;  ///< rung by a process that has come to its end (WriterState::ended, futex)
};

struct WriterState {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t pid;
  std::int64_t rank;  ///< -1: unknown
  std::uint64_t journal;
  std::uint64_t started_ns;
  char host[64];
  char command[256];
  /// 0: the process' own. Else a mirror (mirror.h), which has only some of the journal's records, and this is what its
  /// segments bear in place of `journal`: a segment may hold what an earlier mirror of the same journal has left.
  std::uint32_t mirror;
  /// 1: the process has come to its end, and only waits for its files.
  std::uint32_t ended;

  [[nodiscard]] std::uint64_t in_segments() const noexcept { return mirror != 0 ? mirror : journal; }
  [[nodiscard]] bool has_ended() const noexcept { return __atomic_load_n(&ended, __ATOMIC_ACQUIRE) != 0; }
  void note_end() noexcept { __atomic_store_n(&ended, 1U, __ATOMIC_RELEASE); }
};

enum class DatasetState : std::uint32_t {
  in_flight = 0,
  // Far from each other, so that a damaged shared state is not taken for that of a dataset which is done.
  finished = 0x46494E31,  ///< complete and visible; the server has let go of the file
  failed = 0x9A17C6D2,    ///< the sink met an error; what is staged stays staged
  dropped = 0xC5E8304B,   ///< nothing of it had been synced when its writer died, or it was aborted
};

struct SharedState {
  std::uint64_t magic;
  std::uint32_t version;
  FileFormat format;
  std::uint64_t journal;
  std::uint32_t number;  ///< of the dataset in that journal
  std::uint32_t writer_pid;
  char path[4096];
  char link[4096];  ///< the server's own name of the file (hard_link.h)
  // written by the program
  alignas(64) std::atomic<std::uint64_t> synced;  ///< sequence of the last sync or close record
  std::atomic<std::uint32_t> closed;
  std::atomic<std::uint64_t> frames_synced;
  std::atomic<std::uint64_t> bytes_put;
  /// Frames that are durable (upper half) and the lower half of `durable_forced`, which the server writes in one store:
  /// a loss of power may leave pages of different ages (set_forced).
  std::atomic<std::uint64_t> forced;
  // written by the server
  alignas(64)
      std::atomic<std::uint64_t> visible;  ///< everything of the dataset up to this sequence is in the readable file
  std::atomic<std::uint64_t> durable;
  std::atomic<std::uint64_t> frames_visible;
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> errors;  ///< counts errors; `error_*` hold the latest
  std::atomic<std::int32_t> error_sys;
  char error_text[1024];
  /// Since version 2. Processes that write the dataset together, each with a slot; `synced` and `visible` then count
  /// syncs (syncs of all of them), not records, and `journal` and `number` are those of writer 0. 0: one process.
  std::uint32_t writers;
  /// Not 0 where servers of several nodes may have to do with it: the owner's number + 1. Only the owner writes the
  /// file; each of the others has a shared state like this one, which the owner keeps true through that node's server.
  std::uint32_t owner;
  std::uint64_t created_ns;  ///< CLOCK_REALTIME; tells datasets of one name apart, where another node is slow to forget
  // Also since version 2, where tiles of split output become one file (the config's `join`); written by the server.
  /// In the shared state of that file, of which the server is the writer: how many tiles. `synced` and `visible` count
  /// syncs then, the syncs of all tiles, and there is no journal.
  std::uint32_t tiles;
  /// In the shared state of a tile: name of that shared state; `alone` where it is written to a file of its own after
  /// all. See set_whole.
  char whole[56];
  /// Of a tile: how many of its syncs are among its records up to `visible`. Of that file: how often a part of the
  /// sync under way has been committed.
  std::atomic<std::uint64_t> sync_index;
  std::atomic<std::uint64_t> waits;  ///< of a tile: its records up to this sequence have been read, and wait for others
  std::atomic<std::uint64_t> frames_dropped;  ///< written by the program: left out, as the stage was full
  /// CRC-32C of what is known from the beginning and never changes (seal_of).
  std::uint32_t seal;
  /// Stored before `visible`. Where the two differ after a crash the smaller one is right, or as good.
  std::atomic<std::uint64_t> visible_next;
  /// Written by the program: its records up to this sequence are on the disk of the stage (where it `survives_power`).
  std::atomic<std::uint64_t> kept;
  /// As `durable`, but for the disk of the stage: forced there before `durable` tells programs, who would believe what
  /// is only in memory.
  std::atomic<std::uint64_t> durable_forced;
  std::uint32_t whole_seal;  ///< CRC-32C of `whole`, where that is not empty
  /// Of several writers: the sync in which all of them have closed it, as its complement (~); 0: not yet. Stored
  /// before `visible`. That all have closed is known from their records, which go once they are visible.
  std::atomic<std::uint64_t> closed_sync;
  // Since version 4: a dataset may have further outputs. The server makes a shared state for each.
  std::uint32_t output;  ///< 0: the file that the program asked for; else the number of the output, from 1
  char source[4096];     ///< of such an output: path of the file that the program asked for
  std::atomic<std::uint32_t>
      outputs_made;  ///< in the shared state of that file: 1 when all outputs have their shared states
  /// Frames up to `durable_forced`. They count where `forced` is 0: an older server wrote the shared state.
  std::atomic<std::uint64_t> frames_forced;
  /// `frames_visible` (upper half) and the `visible` of its last frame (lower half), in one store before `visible` and
  /// the slots. After a death between the two that frame does not count. With `counted_by_record` the lower half is
  /// the sequence of writer 0's sync that ended it.
  std::atomic<std::uint64_t> frames_counted;
  // Written by programs that can append nothing, one process writing the dataset: a process that was forked from the
  // writer, a signal handler within a call.
  std::atomic<std::uint32_t> end_asked;  ///< EndAsked; only ever raised
  std::atomic<std::uint32_t> heir;       ///< process that was last forked from the writer and has it open, too
  /// st_dev and st_ino of the directory that held the file when it was made; 0: not known (hard_link.h, FileNames).
  std::uint64_t directory_device, directory_inode;
  /// CLOCK_MONOTONIC when a process last waited for a frame of it, or its end. It stores that again and again.
  std::atomic<std::uint64_t> waited_ns;
  // A file that a program opens again for writing (docs/decisions/0029).
  /// Raised by the program: it has opened the dataset again, so its close records up to this sequence end nothing.
  /// `is_ending`, set by the server: it can no longer be opened again.
  std::atomic<std::uint64_t> reopened;
  std::uint32_t continues;             ///< Continues; else the file was there, and complete, and had the next three
  std::atomic<std::uint32_t> changed;  ///< 1: the server has begun to change such a file
  std::uint64_t bytes_before, changed_before_ns, frames_before;
  /// Written by the server before `state` says finished: the file as it leaves it. 0: not known.
  std::atomic<std::uint64_t> bytes_at_end, changed_at_end_ns;
  /// TakenUp: the server's answer to the first schema of a file of others.
  std::atomic<std::uint32_t> taken_up;
};
/// A value of `SharedState::continues`.
enum class Continues : std::uint32_t {
  nothing = 0,         ///< the program has created the file
  own_file = 1,        ///< Advectio has made it, in this run
  file_of_others = 2,  ///< an earlier run has made it, another process, or somebody without Advectio
};
enum class TakenUp : std::uint32_t { not_yet = 0, yes = 1, no = 2 };
inline bool continues_file_of_others(const SharedState& shared_state) noexcept {
  return shared_state.continues == static_cast<std::uint32_t>(Continues::file_of_others);
}
inline TakenUp answer_of(const SharedState& shared_state) noexcept {
  return static_cast<TakenUp>(shared_state.taken_up.load(std::memory_order_acquire));
}
inline void set_answer(SharedState& shared_state, TakenUp answer) noexcept {
  shared_state.taken_up.store(static_cast<std::uint32_t>(answer), std::memory_order_release);
}
/// Of `frames_counted`: the frame ended with a record, and not with a sync of all writers.
inline constexpr std::uint64_t counted_by_record = 1ULL << 63U;
/// Something of the dataset is committed, as far as this server and earlier ones know.
inline bool has_commits(const SharedState& shared_state) noexcept {
  return shared_state.visible.load() > 0 || shared_state.frames_visible.load() > shared_state.frames_before;
}
/// By this a file is known to be as it was.
struct Imprint {
  std::uint64_t bytes = 0, changed_ns = 0;
  static Result<Imprint> of(const std::string& path);
  bool operator==(const Imprint&) const = default;
};
/// Of `SharedState::reopened`.
inline constexpr std::uint64_t is_ending = 1ULL << 63U;
/// Close records of the dataset up to this sequence end nothing: the program has opened it again since.
inline std::uint64_t reopened_behind(const SharedState& shared_state) noexcept {
  return shared_state.reopened.load(std::memory_order_acquire) & ~is_ending;
}
/// The program opens it again behind the close record of that sequence. False: it is ending.
bool reopen(SharedState& shared_state, std::uint64_t closed_at) noexcept;
/// The server has come to that close record. False: the program has opened the dataset again behind it, and goes on.
/// True: from here on it cannot.
bool end_at(SharedState& shared_state, std::uint64_t closed_at) noexcept;
/// How a dataset ends for which there is no close or abort in the journal.
enum class EndAsked : std::uint32_t {
  no = 0,    ///< by its writer's death, with what was synced
  last = 1,  ///< by its writer's death, with everything that was put
  now = 2,   ///< at once, with everything that was put
};
std::uint32_t seal_of(const SharedState& shared_state) noexcept;
void set_visible(SharedState& shared_state, std::uint64_t sequence) noexcept;
/// The records up to `sequence`, which are so many frames, are durable in the file.
struct Forced {
  std::uint64_t sequence = 0, frames = 0;
};
void set_forced(SharedState& shared_state, const Forced& forced) noexcept;
/// Sequence and frames belong to one moment, whichever of the changed pages have reached the disk.
Forced forced_of(const SharedState& shared_state) noexcept;
inline constexpr const char* alone = "-";
/// Say that name (of fewer than 56 bytes) in a tile's shared state. Who dies meanwhile leaves none.
void set_whole(SharedState& shared_state, const std::string& name) noexcept;
/// Is it what was said?
bool whole_is_right(const SharedState& shared_state) noexcept;

/// Names in the pool: of segments in the stage itself, and of those on a disk (spill.h).
inline constexpr char segment_letter = 's', spilled_letter = 'd';
inline bool is_spilled(std::string_view segment) noexcept {
  return !segment.empty() && segment[0] == spilled_letter;
}

inline DatasetState state_of(const SharedState& shared_state) noexcept {
  return static_cast<DatasetState>(shared_state.state.load(std::memory_order_acquire));
}
/// Finished or dropped: the server has let go of the dataset.
inline bool has_ended(const SharedState& shared_state) noexcept {
  const auto state = state_of(shared_state);
  return state == DatasetState::finished || state == DatasetState::dropped;
}

/// What one of the writers of a shared dataset and the others, and the server, know of each other.
struct WriterSlot {
  // written by that writer
  std::atomic<std::uint64_t> journal;                       ///< 0: has not entered yet
  std::uint32_t number;                                     ///< of the dataset in that journal
  std::uint32_t pid;                                        ///< 0: on another node
  alignas(64) std::atomic<std::uint64_t> collective_index;  ///< nothing with a smaller collective index will come from
                                                            ///< it any more
  std::atomic<std::uint64_t>
      schema_pending;  ///< not 0: it has yet to tell the schema as it was changed from that collective index on
  /// Lengths of the record dimension after its own puts: the latest, each with the collective index at which all learn
  /// of it.
  struct Step {
    std::atomic<std::uint64_t> collective_index;
    std::atomic<std::uint64_t> records;
  };
  static constexpr std::uint64_t steps_kept = 8;
  std::atomic<std::uint64_t> steps;
  Step step[steps_kept];
  // written by the server
  alignas(64) std::atomic<std::uint64_t> visible;  ///< its records up to this sequence are in the file, or dropped
  std::atomic<std::uint64_t> sync_index;           ///< its last sync that has been committed
  std::atomic<std::uint64_t> read;                 ///< its last implicit sync that has been; something before may pend
};
static_assert(sizeof(WriterSlot) == 320);
inline constexpr const char* slots_suffix = ".writers";
/// Behind the name of a shared state: where records end whose `sync` is in no journal any more (SPEC.md).
inline constexpr const char* ends_suffix = ".ends";
inline constexpr const char* answer_suffix = ".answer";

inline constexpr std::uint64_t control_bytes = 4096;
inline constexpr std::uint64_t writer_bytes = 4096;
inline constexpr std::uint64_t shared_state_bytes = 16384;
static_assert(sizeof(StageControl) <= control_bytes);
static_assert(sizeof(WriterState) <= writer_bytes);
static_assert(sizeof(SharedState) <= shared_state_bytes);

/// A mapped shared state of one of the types above.
template <typename T>
class MappedState {
 public:
  MappedState() = default;
  explicit MappedState(Mapping mapping) : mapping_(std::move(mapping)) {}
  T* operator->() const noexcept { return reinterpret_cast<T*>(mapping_.data()); }
  T& operator*() const noexcept { return *reinterpret_cast<T*>(mapping_.data()); }
  T& operator[](std::size_t i) const noexcept { return reinterpret_cast<T*>(mapping_.data())[i]; }
  explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }

 private:
  Mapping mapping_;
};

struct DatasetFiles {
  MappedState<SharedState> shared_state;
  MappedState<WriterSlot> slots;  ///< one for each writer of a shared dataset
};

enum class Access : std::uint8_t {
  use,   ///< mapped to be written, too
  look,  ///< nothing can be changed, not even by mistake: who only inspects may not disturb a living server
};

/// Whoever can write in the directory of a stage decides what is written, and where. Errors: Code::permission where
/// that is not this user alone; Code::not_found.
Result<void> is_private(const std::string& directory);

/// Of a stage that is made: the present boot (boot_id), and whether it is to survive a loss of power with what programs
/// make durable in it.
struct Power {
  std::string boot;
  bool survives = false;
};

/// An advisory lock that dies with its process (an open-file-description lock, fcntl(2)). A forked
/// child shares it until its copy is destroyed.
class ProcessLock {
 public:
  /// Take the lock of `path` (created when it is not there). Code::exists when somebody has it.
  static Result<ProcessLock> take(const std::string& path);
  /// The same of one byte of it. `shared`: several may have such a one.
  static Result<ProcessLock> take(const std::string& path, std::uint64_t byte, bool shared);
  /// True when somebody holds it.
  static bool held(const std::string& path) noexcept;
  ProcessLock() = default;
  ProcessLock(ProcessLock&& other) noexcept;
  ProcessLock& operator=(ProcessLock&& other) noexcept;
  ~ProcessLock();
  /// False where the program has closed our descriptor (a daemon closes all that it does not know),
  /// or none was taken. Its number may be another file's since.
  [[nodiscard]] bool is_kept() const noexcept;
  /// Now, also where a child has the descriptor, too.
  void unlock() noexcept;

 private:
  static Result<ProcessLock> take(const std::string& path, short type, off_t begin, off_t length);

  int fd_ = -1;
  std::uint64_t device_ = 0, inode_ = 0;
};

/// The names of the directory, and the shared states in it.
class Stage {
 public:
  /// The server's side: make the directory and its control file, or take up what is there. Where it survives a
  /// loss of power its names do so on return.
  static Result<Stage> make(Files& files, const std::string& directory, std::uint64_t segment_bytes,
                            std::uint64_t segments_max, std::uint64_t wait_max_ns, const Power& power = {});
  /// Everyone else's. Errors: those of is_private; Code::not_found where there is no stage, Code::unsupported for
  /// another version's.
  static Result<Stage> open(Files& files, const std::string& directory, Access access = Access::use);

  [[nodiscard]] Files& files() const noexcept { return *files_; }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  [[nodiscard]] StageControl& control() const noexcept { return *control_; }
  [[nodiscard]] std::string pool() const { return directory_ + "/pool"; }
  [[nodiscard]] std::string journals() const { return directory_ + "/journals"; }
  [[nodiscard]] std::string datasets() const { return directory_ + "/datasets"; }
  [[nodiscard]] std::string questions() const { return directory_ + "/questions"; }

  /// Segments that nobody uses, without those on a disk.
  [[nodiscard]] std::uint64_t free_segments() const;
  /// Segments that writers have mapped and not begun: as good as free.
  [[nodiscard]] std::uint64_t segments_ahead() const;

  /// Name of the shared state of the dataset whose file is this inode.
  static std::string state_name(std::uint64_t device, std::uint64_t inode);
  static Result<std::string> state_name_of(const std::string& path);
  /// The inode in such a name; 0: it has none. Another node, and a later mount, may know its device by another number.
  static std::uint64_t inode_in(const std::string& state_name) noexcept;
  /// Errors: Code::corrupt where it is not what was made.
  [[nodiscard]] Result<MappedState<SharedState>> open_state(const std::string& name) const;
  /// The same, whatever is in it.
  [[nodiscard]] Result<MappedState<SharedState>> open_damaged_state(const std::string& name) const;
  /// The slots beside that shared state, one for each writer of a shared dataset.
  [[nodiscard]] Result<MappedState<WriterSlot>> open_slots(const std::string& shared_state,
                                                           std::uint32_t writers) const;
  /// The shared state, and the slots where there are several writers: made, or those that another
  /// process of this node has made for the same dataset meanwhile. What an earlier dataset has left
  /// under the name goes. `fill` writes all that is known from the beginning, but for magic and
  /// version. Errors: Code::exists where it goes on with a file that another dataset of the run
  /// still has.
  [[nodiscard]] Result<DatasetFiles> make_dataset(const std::string& name,
                                                  const std::function<void(SharedState&)>& fill) const;
  /// Remove them, unless another dataset has come to the name since: a file that goes leaves its inode to the next.
  void remove_dataset(const std::string& name, std::uint64_t journal, std::uint32_t number) const;
  /// The turn to open that dataset's file for writing: among the processes of this node that open
  /// it, one has it. It says who writes the file from then on, a sink or the library. `shared`:
  /// several may have such a one. Errors: Code::exists where another one has it.
  [[nodiscard]] Result<ProcessLock> take_turn_to_open(const std::string& name, bool shared) const;

  /// The server's end: from here on no program begins a journal in this stage. False, and nothing
  /// has changed: a program is about to begin one, or `nobody_is_new`, which is asked while none can,
  /// has found one.
  [[nodiscard]] bool close(const std::function<bool()>& nobody_is_new) const;
  /// `publish` makes a journal's name. Errors: Code::gone where the stage is closed.
  [[nodiscard]] Result<void> enter(const std::function<Result<void>()>& publish) const;
  [[nodiscard]] bool closed() const noexcept { return control_->closed.load(std::memory_order_acquire) != 0; }
  void reopen() const noexcept { control_->closed.store(0, std::memory_order_release); }

  /// False when somebody has removed the directory.
  [[nodiscard]] bool there() const { return files_->exists(directory_ + "/control"); }
  /// Removes what this process, which came too late, has kept the server from removing with the run. No effect while
  /// the run's control file is there.
  void remove_rest() const noexcept;
  [[nodiscard]] bool survives_power() const noexcept { return control_->survives_power != 0; }
  /// True when it is of an earlier boot than that one, and its run was under way then: what was not forced to the disk
  /// may be older, or newer, than the rest.
  [[nodiscard]] bool has_lost_power(const std::string& boot) const;

  /// Everything that a later server needs survives a loss of power on return: journals, shared states, and the hard
  /// links of the files in flight. Free segments are nobody's.
  [[nodiscard]] Result<void> make_durable() const;

  /// True while a server holds the lock.
  [[nodiscard]] bool server_alive() const;

 private:
  Files* files_ = nullptr;
  std::string directory_;
  Access access_ = Access::use;
  MappedState<StageControl> control_;
};

/// Ring a doorbell of the control file / wait until it has been rung since `seen`, at most `timeout_ns`.
void ring(std::atomic<std::uint32_t>& bell) noexcept;
void await_ring(std::atomic<std::uint32_t>& bell, std::uint32_t seen, std::uint64_t timeout_ns) noexcept;

std::uint64_t monotonic_ns() noexcept;
std::uint64_t realtime_ns() noexcept;

}  // namespace advectio::journal
