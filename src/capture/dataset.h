// The model's side as its faces (netcdf/, pnetcdf/) see it: one session per process, and one
// CapturedDataset per dataset that the program has created. Every call copies its data and returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/box.h"
#include "core/box_layout.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// Rows to gather from the program's memory: element (i0,i1,…) of the block lies at data + Σ ik ×
/// step[k] bytes. Dense row-major memory is the common case and is copied in one go.
struct Memory {
  const void* data = nullptr;
  std::vector<std::ptrdiff_t> step;  ///< bytes, one per dimension; empty: dense row-major
};

/// One dataset of this process on its way out. One caller at a time. Destroying it without `close`
/// abandons the frame under way, as when the program had died.
class CapturedDataset {
 public:
  virtual ~CapturedDataset() = default;

  /// Send the schema as it is now. Does nothing when it has not changed since the last call (the
  /// bytes are compared).
  virtual Result<void> schema(const Schema& schema) = 0;

  /// Copy one block into the journal. `stride` is empty or one per dimension (distance in the
  /// variable's index space). Memory is of the variable's own type; `element` is its size in bytes.
  /// Blocks while the stage is full and the server drains it.
  /// Errors: Code::gone (no server for longer than `stage.wait_max`), Code::full (this dataset's
  /// sink has failed and the stage is full).
  virtual Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                           const Memory& memory, std::size_t element) = 0;

  /// Many boxes of one variable, whose dense values lie one behind the other. None is empty. With `records` the first
  /// dimension is the unlimited one.
  virtual Result<void> put_boxes(std::uint32_t variable, const BoxList& boxes, bool /*records*/, const void* data,
                                 std::size_t element) {
    const auto* at = static_cast<const std::byte*>(data);
    for (std::size_t i = 0; i < boxes.size(); at += boxes.volume(i++) * element)
      ADVECTIO_TRY(put(variable, boxes[i], {}, Memory{at, {}}, element));
    return {};
  }

  /// The same as `put` for a string variable: box.volume() pointers, row-major, which may be null.
  virtual Result<void> put_strings(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                                   const char* const* strings) = 0;

  /// End of a frame. Does not wait for the file. Returns the error that the sink has met since the
  /// last call, if any: Error::sys holds the system's errno where there was one.
  virtual Result<void> sync() = 0;

  /// The program is done with the dataset. Does not wait. Errors as `sync`. The object is only good
  /// for destruction then.
  virtual Result<void> close() = 0;

  /// Throw away everything since the last sync; where there was none the file is removed.
  virtual Result<void> abort() = 0;

  /// sync, then wait until everything put so far can be read from the file at `file_path()`.
  virtual Result<void> wait_visible() = 0;

  /// Close, wait until the file is complete and the server has let go of it. The real library may
  /// then open it for writing.
  virtual Result<void> hand_over() = 0;

  /// Waits for the server's answer once the schema of a file of others was sent (Session::open_file_of_others). Errors:
  /// Code::unsupported where it cannot go on with the file. Then only `abort` is left, and the file stays as it was.
  virtual Result<void> await_answer() { return {}; }

  /// A path by which this process can open the file even when the program has renamed or removed it
  /// since.
  [[nodiscard]] virtual const std::string& file_path() const noexcept = 0;

  /// Names the file while it is there (Session::identity_of). Empty: not known.
  [[nodiscard]] virtual std::string identity() const { return {}; }

  /// This process was forked from the one that writes it, and cannot put into it. `hand_over` ends it, for the other
  /// process too, with all that that had put before the fork; `close` and `abort` do nothing.
  [[nodiscard]] virtual bool inherited() const noexcept { return false; }
  /// Something was put before the fork that was not synced: it cannot be read here.
  [[nodiscard]] virtual bool inherited_unsynced() const noexcept { return false; }
  /// In the child after a fork: it may take the dataset over, so what was put is kept though the parent may end.
  virtual void note_heir() noexcept {}
  /// `close` needs nothing but memory, so that it may be called when the process has ended its libraries.
  [[nodiscard]] virtual bool can_close_late() const noexcept { return false; }
  /// When this process dies everything that was put counts, not only what was synced. Safe in a signal handler.
  virtual void keep_all() noexcept {}

  /// Bytes and time of the frame under way are kept by the dataset; faces report what they spent in
  /// our code outside these calls here (nanoseconds), so that `stall` is the whole of it.
  virtual void add_stall(std::uint64_t nanoseconds) noexcept = 0;
};

/// A dataset that the ranks of a parallel program write together. Every rank has one of these, puts
/// into its own journal and sends no message. The frame is complete when all of them have called
/// `sync`.
///
/// Order between ranks comes from the program's collective calls on the dataset, which all ranks
/// make in one order. Each call ends with `end_collective_call`, also one that fails. Only rank 0 sends the
/// schema.
class SharedDataset : public CapturedDataset {
 public:
  /// The program has begun a collective call on this dataset.
  virtual void begin_collective_call() noexcept {}
  /// A collective call of the program on this dataset is over. `read`: one in which no rank can
  /// have changed anything.
  virtual void end_collective_call(bool read = false) noexcept = 0;
  /// Another number whenever the file may hold something else for this rank than before: raised by
  /// everything that it journals, and by each collective call, in which the others may have done
  /// so.
  [[nodiscard]] virtual std::uint64_t generation() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t collective_index() const noexcept = 0;
  /// Rank 0, within such a call: it has changed the schema. It sends the schema later, before its
  /// next block or sync.
  virtual void hold_schema() noexcept = 0;

  /// While `sequences` is not null, blocks that are put count only once `settle` names the numbers
  /// which are added there.
  virtual void put_pending(std::vector<std::uint64_t>* sequences) noexcept = 0;
  virtual Result<void> settle(const std::vector<std::uint64_t>& written, const std::vector<std::uint64_t>& dropped) = 0;

  /// The record dimension has this length after the puts of this rank. The others see it when the
  /// present collective index ends.
  virtual void grow(std::uint64_t records) noexcept = 0;
  /// How long it is for this rank. Waits for ranks which have not yet made the collective calls
  /// that this one has made.
  std::uint64_t records() noexcept { return records(collective_index()); }
  /// The same after the collective calls that come before that collective index.
  virtual std::uint64_t records(std::uint64_t collective_index) noexcept = 0;

  // `wait_visible` waits for what this rank has put, and for what the others have put under
  // collective indexes before the present one.
};

/// A collective call of the program: the collective index ends with it, whatever becomes of it. Null: it is
/// none.
class Collective {
 public:
  explicit Collective(SharedDataset* dataset) noexcept : dataset_(dataset) {
    if (dataset_ != nullptr) dataset_->begin_collective_call();
  }
  ~Collective() { end(); }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  /// The library has refused the call on this rank, and then waits for no other: it was none.
  void refused() noexcept { dataset_ = nullptr; }
  /// Already here.
  void end() noexcept {
    if (auto* dataset = std::exchange(dataset_, nullptr); dataset != nullptr) dataset->end_collective_call();
  }

 private:
  SharedDataset* dataset_;
};

struct CreateRequest {
  std::string path;  ///< as the program gave it
  FileFormat format = FileFormat::netcdf4;
  bool no_clobber = false;  ///< fail with Code::exists when a file is there
  /// `created_ns` of its shared state, of a coupled file: the entry of its version has it too. 0: the time of day.
  std::uint64_t created_ns = 0;
};

/// A file that is there, as it was when the caller read its schema.
struct FileToOpen {
  std::string path;
  FileFormat format = FileFormat::netcdf4;
  std::uint64_t length = 0, changed_ns = 0;  ///< bytes; st_mtim
  std::uint64_t device = 0, inode = 0;
};

/// A rank needs this to write a dataset that another rank has created.
struct Invitation {
  std::string shared_state;  ///< its name in the stage
  std::string path, link;
  FileFormat format = FileFormat::netcdf4;
  std::uint64_t journal = 0;
  std::uint32_t number = 0, writers = 0, owner = 0;
  std::uint64_t created_ns = 0;
};

/// The directory of this node's stage, by the environment; empty: no run. Opens nothing.
std::string stage_directory_of_process();

/// The one session of this process. The first create opens it; a process that never creates never
/// touches the stage.
class Session {
 public:
  virtual ~Session() = default;

  /// The session of the run that the environment (ADVECTIO_RUN) names. Null: not under `advectio
  /// run`, the server is gone, or the run directory cannot be used. The first call writes the
  /// reason to stderr. Any thread may call. A forked child gets a session of its own.
  static Session* current();

  /// True when the config wants this path to be carried (datasets: match / capture).
  virtual bool wants(const std::string& path) = 0;

  /// Create the file itself (so that its name is there, and so that permission, existence and
  /// missing directories are answered now: Code::permission, exists, not_found with Error::sys),
  /// and journal the creation.
  virtual Result<std::unique_ptr<CapturedDataset>> create(const CreateRequest& request) = 0;

  /// The program opens a file for writing that this process has created and closed in this run. The
  /// dataset holds what was put before. It has no schema yet: that comes before anything is put. May
  /// wait until the server has finished the file. Errors: any; the library opens it then.
  virtual Result<std::unique_ptr<CapturedDataset>> reopen(const std::string& path) {
    return Error{Code::unsupported, path + " is not opened again here", 0};
  }
  /// The program opens a file for writing that somebody else has made, or another process of this
  /// run. The dataset holds what is in the file. Its schema is sent next, then `await_answer` is
  /// called. Errors: any; the library opens the file then.
  virtual Result<std::unique_ptr<CapturedDataset>> open_file_of_others(const FileToOpen& file) {
    return Error{Code::unsupported, file.path + " is not opened here", 0};
  }
  /// As above, for several processes that open it together. This one is number 0. No other process
  /// may write the file. Each of them has read the schema; this one sends it and calls
  /// `await_answer`.
  virtual Result<std::unique_ptr<SharedDataset>> open_shared(const FileToOpen& file, std::uint32_t /*writers*/,
                                                             Invitation& /*invitation*/) {
    return Error{Code::unsupported, file.path + " is not opened here", 0};
  }
  /// Another one for each file that there is; empty: there is none at `path`.
  [[nodiscard]] virtual std::string identity_of(const std::string& /*path*/) const { return {}; }

  /// The same for a dataset of several processes, of which this is number 0.
  virtual Result<std::unique_ptr<SharedDataset>> create_shared(const CreateRequest& request, std::uint32_t writers,
                                                               Invitation& invitation) = 0;
  /// Errors: Code::not_found where there is no such dataset here (that rank is on another node,
  /// which has no server), or no longer: the others must not put or close before all have entered.
  virtual Result<std::unique_ptr<SharedDataset>> join(const Invitation& invitation, std::uint32_t writer) = 0;

  /// Called before the real library opens `path`. Waits until everything synced so far can be read
  /// (`for_writing`: until the dataset is finished). Returns at once for a path that is not in
  /// flight in this run. Errors: the sink's error of that dataset; Code::timeout; Code::exists when
  /// `for_writing` and this process has it open.
  virtual Result<void> wait_for_file(const std::string& path, bool for_writing) = 0;
  /// Two ways to open a file for writing.
  enum class Opening : std::uint8_t {
    to_carry,    ///< Advectio carries it: one process at a time
    by_library,  ///< the library opens it: several at a time, while no process has a turn to carry it
  };
  /// A turn to open the file in that way. The caller has it until the pointer goes. In that time no
  /// other process of the run on this node begins to carry the file. Null: no other process of the
  /// run can be there. Waits for processes that have a turn. Errors: Code::timeout and Code::gone as
  /// `wait_for_file`; any of the stage's.
  virtual Result<std::shared_ptr<void>> turn_to_open(const std::string& /*path*/, Opening /*opening*/) {
    return std::shared_ptr<void>();
  }
  /// Somebody in this run on this node writes the file that is there.
  [[nodiscard]] virtual bool is_in_flight(const std::string& /*path*/) const { return false; }
  /// And has not closed it.
  [[nodiscard]] virtual bool is_open_in_flight(const std::string& /*path*/) const { return false; }
  /// Where the file is that programs call `path`: it may have a held name (journal/markers.h).
  [[nodiscard]] virtual std::string present_path(const std::string& path) const { return path; }
  /// Such a file gets its name at once, as the library is to write it. `path`: that name, or the held one.
  virtual void name_now(const std::string& /*path*/) {}

  enum class Until : std::uint8_t {
    synced,              ///< everything synced so far can be read
    complete,            ///< the file is complete; as `synced` while its program has it open
    complete_if_closed,  ///< the same; at once where its program still has it open
  };
  /// Called before a program uses `path` without netCDF (open(2), stat(2)). Returns at once where
  /// the path is not in flight on this node, and in a run that does not wait for its files. Errors:
  /// as `wait_for_file`.
  virtual Result<void> wait_for_plain_use(const std::string& path, Until until) = 0;

  /// Wait until all datasets of this process are visible. Called when the process ends by itself.
  virtual void finish() noexcept = 0;

  /// The directory of this node's stage.
  [[nodiscard]] virtual const std::string& directory() const noexcept = 0;

  /// Write one line of log to stderr. Each distinct `text` appears once.
  virtual void say_once(const std::string& text) noexcept = 0;
};

}  // namespace advectio
