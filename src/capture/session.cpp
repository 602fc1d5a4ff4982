#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "capture/dataset.h"
#include "core/placement.h"
#include "journal/hard_link.h"
#include "journal/nodes.h"
#include "journal/writer.h"

namespace advectio {

namespace {

using journal::DatasetFiles;
using journal::DatasetPage;
using journal::DatasetState;
using journal::monotonic_ns;
using journal::Page;
using journal::RecordType;
using journal::Stage;
using journal::Writer;
using journal::WriterSlot;

constexpr std::uint64_t wait_slice_ns = 20'000'000;
constexpr std::uint64_t small_put = 1U << 20U;            // what may be left unused at the end of a segment
constexpr std::uint64_t room_again_max_ns = 100'000'000;  // for room, where it has been waited for in vain before

/// A wait for the server. It is over when nothing has moved for stage.wait_max; a program that goes on after that, and
/// meets the same again, does not wait so long for each of its calls.
class Patience {
 public:
  static constexpr std::uint64_t never = UINT64_MAX;
  /// `gave_up_at`: where the server stood when its process last gave up; `again_max_ns`: how long then.
  Patience(const journal::StageControl& control, std::atomic<std::uint64_t>& gave_up_at, std::uint64_t again_max_ns)
      : control_(control),
        gave_up_at_(gave_up_at),
        again_max_ns_(again_max_ns),
        since_(monotonic_ns()),
        activity_(control.activity.load()) {}
  enum class State : std::uint8_t { moves, stands, over };
  State look() {
    const auto now = monotonic_ns();
    if (const auto activity = control_.activity.load(std::memory_order_relaxed); activity != activity_) {
      activity_ = activity;
      since_ = now;
      return State::moves;
    }
    const auto max = activity_ == gave_up_at_ ? std::min(again_max_ns_, control_.wait_max_ns) : control_.wait_max_ns;
    if (now - since_ < max) return State::stands;
    gave_up_at_ = activity_;
    return State::over;
  }

 private:
  const journal::StageControl& control_;
  std::atomic<std::uint64_t>& gave_up_at_;
  std::uint64_t again_max_ns_;
  std::uint64_t since_, activity_;
};

std::string base_name(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string absolute(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char here[PATH_MAX];
  if (::getcwd(here, sizeof here) == nullptr) return path;
  return std::string(here) + "/" + path;
}

/// The path without links, for one that exists; else as given.
std::string real_path(const std::string& path) {
  char real[PATH_MAX];
  return ::realpath(path.c_str(), real) != nullptr ? std::string(real) : path;
}

std::int64_t rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return std::atoll(value);
  }
  return -1;
}

std::string own_command() {
  std::ifstream in("/proc/self/comm");
  std::string name;
  std::getline(in, name);
  return name;
}

/// The largest value that any of several processes has stored.
void raise(std::atomic<std::uint64_t>& number, std::uint64_t value) noexcept {
  auto old = number.load(std::memory_order_relaxed);
  while (old < value && !number.compare_exchange_weak(old, value, std::memory_order_release)) {
  }
}

/// What the server has told the ranks of the config (capture.conf in the run directory, journal/SPEC.md).
struct Rule {
  char capture = '1', close = '0', join = '0', promise = 's', full = 'a';  // '-': the rule does not say
  std::string match;
  [[nodiscard]] bool spills() const noexcept { return full == 'a' || full == 's'; }
  [[nodiscard]] bool drops_frames() const noexcept { return full == 'd'; }
};

struct Told {
  std::vector<Rule> rules;
  bool later = false;     ///< the run does not wait for its files
  std::string directory;  ///< where the run was started; empty: not told
};

class SessionImpl;

/// The server has read a tile up to there, and waits for tiles of other processes (the config's `join`). Whoever waited
/// for it here could be whom those wait for.
bool waits_for_others(const DatasetPage& page, std::uint64_t sequence) noexcept {
  return sequence > 0 && page.waits.load(std::memory_order_acquire) >= sequence;
}

/// It has no file of its own, or may turn out to have none.
bool belongs_to_another(const DatasetPage& page, std::uint64_t sequence) noexcept {
  const bool named = page.whole[0] != '\0' && std::strcmp(page.whole, journal::alone) != 0;
  return named || waits_for_others(page, sequence);
}

Error goes_into_another(const DatasetPage& page) {
  return Error{
      Code::unsupported,
      std::string(page.path) +
          " is a tile that becomes one file with others (join: true in the config): it cannot be opened, read or"
          " gone on with by itself",
      EBUSY};
}

bool in_flight(const DatasetPage& page) noexcept {
  return page.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(DatasetState::in_flight);
}

class Dataset final : public SharedDataset {
 public:
  Dataset(SessionImpl& session, std::uint32_t number, Page<DatasetPage> page, const Rule& rule)
      : session_(session), number_(number), page_(std::move(page)), link_(page_->link), rule_(rule) {}
  /// This process is one of several that write it.
  void share(Page<WriterSlot> slots, std::uint32_t writer, std::uint32_t writers) noexcept {
    slots_ = std::move(slots);
    writer_ = writer;
    writers_ = writers;
    turn_ = 1;
    slots_[writer].turn.store(turn_, std::memory_order_release);
  }
  ~Dataset() override;

  Result<void> schema(const Schema& schema) override;
  Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                   const Memory& memory, std::size_t element) override;
  Result<void> put_strings(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                           const char* const* strings) override;
  Result<void> sync() override;
  Result<void> close() override;
  Result<void> abort() override;
  Result<void> wait_visible() override;
  Result<void> hand_over() override;
  [[nodiscard]] const std::string& file_path() const noexcept override { return link_; }
  void add_stall(std::uint64_t nanoseconds) noexcept override { stall_ns_ += nanoseconds; }

  void end_turn(bool read) noexcept override {
    if (!read) ++generation_;
    slots_[writer_].turn.store(++turn_, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t generation() const noexcept override { return generation_; }
  void owe_schema() noexcept override {
    // The first turn since which it is owed: the others' blocks of later ones may need it.
    auto& owed = slots_[writer_].owed;
    if (owed.load(std::memory_order_relaxed) == 0) owed.store(turn_, std::memory_order_release);
  }
  void put_pending(std::vector<std::uint64_t>* sequences) noexcept override { pending_ = sequences; }
  Result<void> settle(const std::vector<std::uint64_t>& written, const std::vector<std::uint64_t>& dropped) override;
  void grow(std::uint64_t records) noexcept override;
  [[nodiscard]] std::uint64_t turn() const noexcept override { return turn_; }
  std::uint64_t records(std::uint64_t turn) noexcept override;
  using SharedDataset::records;

  [[nodiscard]] bool closed() const noexcept { return closed_; }
  [[nodiscard]] DatasetPage& page() const noexcept { return *page_; }

 private:
  struct Timer {
    explicit Timer(std::uint64_t& sum) : sum_(sum), from_(monotonic_ns()) {}
    ~Timer() { sum_ += monotonic_ns() - from_; }
    std::uint64_t& sum_;
    std::uint64_t from_;
  };

  /// `turn`: that the record belongs to; 0: the present one.
  Result<std::uint64_t> append(RecordType type, std::uint16_t flags, std::span<const std::byte> meta,
                               std::uint64_t payload, const std::function<std::uint32_t(std::byte*)>& fill,
                               std::uint64_t turn = 0);
  Result<void> put_dense(journal::Put& put, const std::byte* data, std::size_t element);
  Result<void> put_whole(const journal::Put& put, std::uint64_t bytes,
                         const std::function<std::uint32_t(std::byte*)>& fill);
  Result<void> sync_record(RecordType type, std::uint16_t flags);
  bool leaves_out(std::uint32_t variable, const Box& box);
  /// Whatever was put into it: it becomes no file.
  [[nodiscard]] bool all_left_out() const noexcept { return !put_ever_ && page_->frames_dropped.load() > 0; }
  bool await_turn(std::uint32_t writer, std::uint64_t turn) const noexcept;
  Result<void> await_promise(std::uint64_t target);
  [[nodiscard]] bool kept_in_stage() const;
  Result<void> keep_in_stage(std::uint64_t target);
  Result<void> sink_error();
  Result<void> while_waiting(Patience& patience);

  SessionImpl& session_;
  std::uint32_t number_;
  Page<DatasetPage> page_;
  std::string link_;
  Rule rule_;
  bool closed_ = false;
  Bytes schema_;
  std::uint64_t frame_ = 0;
  std::uint64_t frame_put_bytes_ = 0;
  std::uint64_t last_frame_bytes_ = 0, expected_bytes_ = 0;
  std::vector<bool> along_records_;                // by variable
  std::map<std::uint64_t, bool> frames_left_out_;  // by index: what was decided (full: drop-frame)
  bool put_ever_ = false;
  bool names_kept_ = false;           // its page and the names of its file are on their disks
  std::uint64_t frame_began_at_ = 0;  // bytes of the journal before its first put
  std::uint64_t puts_since_sync_ = 0;
  bool said_since_sync_ = false;  // anything journalled since the last sync
  std::uint64_t stall_ns_ = 0;
  std::uint32_t errors_seen_ = 0;

  // Of a dataset that several processes write.
  Page<WriterSlot> slots_;
  std::uint32_t writer_ = 0, writers_ = 0;
  std::uint64_t turn_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t synced_ = 0;  // sequence of the last sync record
  bool put_in_round_ = false;
  std::vector<std::uint64_t>* pending_ = nullptr;
};

class SessionImpl final : public Session {
 public:
  SessionImpl(Stage stage, Told told)
      : stage_(std::move(stage)),
        rules_(std::move(told.rules)),
        later_(told.later),
        run_directory_(std::move(told.directory)),
        pid_(::getpid()) {}

  bool wants(const std::string& path) override;
  Result<std::unique_ptr<CapturedDataset>> create(const CreateRequest& request) override;
  Result<std::unique_ptr<SharedDataset>> create_shared(const CreateRequest& request, std::uint32_t writers,
                                                       Invitation& invitation) override;
  Result<std::unique_ptr<SharedDataset>> join(const Invitation& invitation, std::uint32_t writer) override;
  [[nodiscard]] const std::string& directory() const noexcept override { return stage_.directory(); }
  Result<void> wait_for_file(const std::string& path, bool for_writing) override;
  Result<void> wait_for_plain_use(const std::string& path, Until until) override;
  void finish() noexcept override;
  void say_once(const std::string& text) noexcept override;

  Result<Writer*> writer();
  [[nodiscard]] Stage& stage() noexcept { return stage_; }
  std::mutex& mutex() noexcept { return mutex_; }
  void forget(Dataset* dataset) noexcept;
  /// A process that has closed its last dataset holds no segment, unless it would have to wait for the next
  /// (`keeps`). Called with the mutex held.
  void seal_if_last(Dataset* dataset, bool keeps) noexcept {
    open_.erase(dataset);
    if (!open_.empty() || !writer_ || (keeps && writer_->room_segments() == 0)) return;
    writer_->seal();
  }
  [[nodiscard]] bool foreign() const noexcept { return foreign_; }
  void become_foreign() noexcept {
    foreign_ = true;
    if (writer_) writer_->forget_in_child();
    (void)writer_.release();  // its thread lives in the parent: leaked on purpose
  }
  /// Wait until `done()`; gives up when nothing moves for stage.wait_max.
  template <typename Done>
  Result<void> wait_until(Done done, const std::string& what);
  /// Have the writer hold segments ready for as many bytes, but no more than its share of the stage.
  void keep_ahead(journal::Writer& writer, std::uint64_t bytes);
  [[nodiscard]] std::atomic<std::uint64_t>& gave_up_at() noexcept { return gave_up_at_; }
  /// What this process has said is durable once its journal is (the stage survives a loss of power).
  [[nodiscard]] bool keeps_durable() const noexcept { return stage_.survives_power() && !journal_not_durable_; }
  Result<void> make_journal_durable();

 private:
  [[nodiscard]] Rule rule_for(const std::string& path) const;
  Result<void> ask_other_nodes(const std::string& path, const std::string& page, bool for_writing, std::time_t changed);
  void take_slot(WriterSlot& slot, std::uint32_t number) noexcept;
  [[nodiscard]] std::uint32_t owner_of_next(const std::string& path, bool shared) const;
  Result<std::unique_ptr<Dataset>> make(const CreateRequest& request, std::uint32_t writers);
  Result<std::unique_ptr<Dataset>> begin(RecordType type, std::uint32_t number, const Bytes& meta,
                                         Page<DatasetPage> page, const std::string& page_name);

  Stage stage_;
  std::vector<Rule> rules_;
  bool later_;
  std::string run_directory_;
  pid_t pid_;
  bool foreign_ = false;
  std::mutex mutex_;  // guards the writer and the lists below
  std::unique_ptr<Writer> writer_;
  std::atomic<std::uint64_t> gave_up_at_{Patience::never};
  std::mutex durable_mutex_;  // held while the journal is forced to its disk; before the other
  std::atomic<bool> journal_not_durable_{false};
  std::uint32_t datasets_made_ = 0;
  std::map<std::string, std::vector<std::string>> link_directories_;  // by directory of the file
  std::set<Dataset*> open_;
  std::vector<Page<DatasetPage>> closing_;  // closed by the program, perhaps not complete yet
  std::set<std::string> said_;
};

Error error_of_page(const DatasetPage& page) {
  const int sys = page.error_sys.load(std::memory_order_acquire);
  return Error{sys != 0 ? system_error("", sys).code : Code::io, page.error_text, sys};
}

// ---- Dataset ----

Dataset::~Dataset() {
  if (!session_.foreign()) session_.forget(this);
}

Result<void> Dataset::while_waiting(Patience& patience) {
  const auto state = patience.look();
  if (state == Patience::State::moves) return {};
  const auto& control = session_.stage().control();
  // The server may only not have made the next segment yet.
  const bool grows = control.segments_total.load() < control.segments_limit.load() ||
                     (rule_.spills() && control.spill_total.load() < control.spill_max.load());
  if (!grows && page_->state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(DatasetState::failed))
    return error_of_page(*page_).with("the stage is full and this dataset cannot be written");
  if (!session_.stage().there()) return Error{Code::gone, "the stage has been removed", EIO};
  if (state != Patience::State::over) return {};
  return Error{session_.stage().server_alive() ? Code::timeout : Code::gone,
               "the stage is full and nothing has left it for " + std::to_string(control.wait_max_ns / 1'000'000'000U) +
                   " s (stage.wait_max)",
               ETIMEDOUT};
}

Result<std::uint64_t> Dataset::append(RecordType type, std::uint16_t flags, std::span<const std::byte> meta,
                                      std::uint64_t payload, const std::function<std::uint32_t(std::byte*)>& fill,
                                      std::uint64_t turn) {
  if (session_.foreign()) return Error{Code::gone, "the dataset belongs to the parent process", 0};
  if (closed_) return Error{Code::invalid, "the dataset is closed", 0};
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  said_since_sync_ = true;
  // That a reader asks what there is changes nothing.
  if ((flags & journal::flag_implicit) == 0) ++generation_;
  (*writer)->spills(rule_.spills());
  Patience patience(session_.stage().control(), session_.gave_up_at(), room_again_max_ns);
  return (*writer)->append(
      type, flags, number_, meta, payload, fill, [&] { return while_waiting(patience); },
      static_cast<std::uint32_t>(turn != 0 ? turn : turn_));
}

Result<void> Dataset::schema(const Schema& schema) {
  const Timer timer(stall_ns_);
  const std::lock_guard guard(session_.mutex());
  auto bytes = encode(schema);
  const auto told = [this] {
    if (writers_ > 0) slots_[writer_].owed.store(0, std::memory_order_release);
  };
  if (bytes == schema_) {
    told();
    return {};
  }
  const auto turn = writers_ > 0 ? slots_[writer_].owed.load(std::memory_order_relaxed) : 0;
  auto sequence = append(
      RecordType::schema, 0, {}, bytes.size(),
      [&bytes](std::byte* to) { return journal::copy_crc32c(to, bytes.data(), bytes.size()); }, turn);
  if (!sequence) return std::move(sequence).error().with("journal the schema");
  schema_ = std::move(bytes);
  told();
  along_records_.clear();
  for (const auto& v : schema.variables)
    along_records_.push_back(!v.dimensions.empty() && schema.dimensions[v.dimensions[0]].unlimited);
  if (last_frame_bytes_ == 0) expected_bytes_ = frame_bytes(schema);
  auto writer = session_.writer();
  if (writer) session_.keep_ahead(**writer, frame_bytes(schema) / std::max(writers_, 1U));
  return {};
}

Result<void> Dataset::put_whole(const journal::Put& put, std::uint64_t bytes,
                                const std::function<std::uint32_t(std::byte*)>& fill) {
  const std::uint16_t flags = pending_ != nullptr ? journal::flag_pending : 0;
  if (auto writer = session_.writer(); writer && puts_since_sync_ == 0) frame_began_at_ = (*writer)->appended();
  auto sequence = append(RecordType::put, flags, journal::encode(put), bytes, fill);
  if (!sequence) return std::move(sequence).error().with("journal a block");
  if (pending_ != nullptr) pending_->push_back(*sequence);
  frame_put_bytes_ += bytes;
  put_ever_ = true;
  if (puts_since_sync_++ == 0) session_.stage().control().bursts.fetch_add(1, std::memory_order_relaxed);
  page_->bytes_put.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

Result<void> Dataset::put_dense(journal::Put& put, const std::byte* data, std::size_t element) {
  const auto bytes = put.box.volume() * element;
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  const auto meta = 16 + 24 * put.box.rank();  // of the encoded Put, or a little more
  const auto now = (*writer)->payload_now(meta);
  const auto max = (*writer)->payload_max(meta);
  if (bytes <= now || (bytes <= max && now <= small_put))
    return put_whole(put, bytes, [&](std::byte* to) { return journal::copy_crc32c(to, data, bytes); });

  // Cut along the slowest dimension that can be cut, so that every piece is dense in the program's memory.
  std::size_t d = 0;
  while (d < put.box.rank() && put.box.count[d] <= 1) ++d;
  if (d == put.box.rank()) return Error{Code::bug, "one element does not fit a segment", 0};
  const auto rows = put.box.count[d];
  const auto row_bytes = bytes / rows;
  const auto start = put.box.start[d];
  const auto step = put.stride.empty() ? 1 : put.stride[d];
  for (std::uint64_t row = 0; row < rows;) {
    const auto room_now = (*writer)->payload_now(meta);
    const auto room = room_now >= row_bytes && room_now > small_put ? room_now : max;
    const auto n = std::max<std::uint64_t>(1, std::min(rows - row, room / row_bytes));
    journal::Put piece = put;
    piece.box.start[d] = start + row * step;
    piece.box.count[d] = n;
    const auto* from = data + row * row_bytes;
    if (n * row_bytes <= max) {
      ADVECTIO_TRY(put_whole(piece, n * row_bytes,
                             [&](std::byte* to) { return journal::copy_crc32c(to, from, n * row_bytes); }));
    } else {
      ADVECTIO_TRY(put_dense(piece, from, element));
    }
    row += n;
  }
  return {};
}

Result<void> Dataset::put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                          const Memory& memory, std::size_t element) {
  const Timer timer(stall_ns_);
  if (box.empty()) return {};
  const std::lock_guard guard(session_.mutex());
  if (leaves_out(variable, box)) return {};
  journal::Put put{variable, box, stride};
  const auto* data = static_cast<const std::byte*>(memory.data);
  if (memory.step.empty()) return put_dense(put, data, element);

  // Scattered memory: gather the innermost dimensions that fit a megabyte, walk the others.
  std::size_t inner = box.rank();
  std::uint64_t inner_count = 1;
  while (inner > 0 && inner_count * box.count[inner - 1] * element <= small_put) inner_count *= box.count[--inner];
  std::vector<std::byte> gathered(inner_count * element);
  std::vector<std::uint64_t> at(box.rank(), 0);
  const auto address = [&] {
    std::ptrdiff_t offset = 0;
    for (std::size_t k = 0; k < box.rank(); ++k) offset += static_cast<std::ptrdiff_t>(at[k]) * memory.step[k];
    return data + offset;
  };
  const auto advance = [&](std::size_t from, std::size_t to) {  // odometer over dimensions [from, to)
    for (std::size_t k = to; k-- > from;) {
      if (++at[k] < box.count[k]) return true;
      at[k] = 0;
    }
    return false;
  };
  journal::Put piece = put;
  for (std::size_t k = 0; k < inner; ++k) piece.box.count[k] = 1;
  for (;;) {
    std::byte* to = gathered.data();
    for (;;) {
      std::memcpy(to, address(), element);
      to += element;
      if (!advance(inner, box.rank())) break;
    }
    for (std::size_t k = 0; k < inner; ++k)
      piece.box.start[k] = box.start[k] + at[k] * (stride.empty() ? 1 : stride[k]);
    ADVECTIO_TRY(put_dense(piece, gathered.data(), element));
    if (!advance(0, inner)) return {};
  }
}

Result<void> Dataset::put_strings(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                                  const char* const* strings) {
  const Timer timer(stall_ns_);
  if (box.empty()) return {};
  const std::lock_guard guard(session_.mutex());
  if (leaves_out(variable, box)) return {};
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  const auto meta = 16 + 24 * box.rank();
  const auto max = (*writer)->payload_max(meta);

  // As many rows of the fastest dimension as fit a record; pieces of one row where the whole does not fit.
  const auto piece_bytes = [&](std::uint64_t first, std::uint64_t n) {
    std::uint64_t bytes = 0;
    for (std::uint64_t i = first; i < first + n; ++i)
      bytes += 4 + (strings[i] != nullptr ? std::strlen(strings[i]) : 0);
    return bytes;
  };
  const auto fill = [&](std::uint64_t first, std::uint64_t n) {
    return [&strings, first, n](std::byte* to) {
      const std::byte* begin = to;
      for (std::uint64_t i = first; i < first + n; ++i) {
        const auto length = strings[i] != nullptr ? static_cast<std::uint32_t>(std::strlen(strings[i])) : null_string;
        std::memcpy(to, &length, sizeof length);
        to += sizeof length;
        if (strings[i] == nullptr) continue;
        std::memcpy(to, strings[i], length);
        to += length;
      }
      return journal::crc32c(begin, static_cast<std::size_t>(to - begin));
    };
  };
  const auto total = box.volume();
  if (const auto bytes = piece_bytes(0, total); bytes <= max)
    return put_whole(journal::Put{variable, box, stride}, bytes, fill(0, total));
  std::vector<std::uint64_t> at(box.rank(), 0);
  for (std::uint64_t i = 0; i < total; ++i) {
    journal::Put one{variable, box, stride};
    for (std::size_t k = 0; k < box.rank(); ++k) {
      one.box.start[k] = box.start[k] + at[k] * (stride.empty() ? 1 : stride[k]);
      one.box.count[k] = 1;
    }
    ADVECTIO_TRY(put_whole(one, piece_bytes(i, 1), fill(i, 1)));
    for (std::size_t k = box.rank(); k-- > 0;) {
      if (++at[k] < box.count[k]) break;
      at[k] = 0;
    }
  }
  return {};
}

/// Whether this is of a frame that is left out because the stage was full when it began. A frame is what has one index
/// along the record dimension; what lies along none is never left out.
bool Dataset::leaves_out(std::uint32_t variable, const Box& box) {
  if (!rule_.drops_frames() || variable >= along_records_.size() || !along_records_[variable]) return false;
  const auto [frame, fresh] = frames_left_out_.try_emplace(box.start[0], false);
  if (!fresh) return frame->second;
  auto writer = session_.writer();
  if (!writer) return false;
  // Room for as much as the last one took; one that is larger than half of the stage begins when half of it is free.
  auto& control = session_.stage().control();
  const auto bytes = last_frame_bytes_ > 0 ? last_frame_bytes_ : expected_bytes_;
  const auto needed = std::min(bytes / (*writer)->segment_bytes() + 1, control.segments_limit.load() / 2);
  // One is left for what is not left out: that a file is created, its schema, its end.
  if ((*writer)->room_segments() > needed) return false;
  frame->second = true;
  page_->frames_dropped.fetch_add(1, std::memory_order_relaxed);
  session_.say_once(std::string(page_->path) + ": frame " + std::to_string(box.start[0] + 1) +
                    " is left out: the stage is full (full: drop-frame)");
  return true;
}

Result<void> Dataset::sink_error() {
  const auto errors = page_->errors.load(std::memory_order_acquire);
  if (errors == errors_seen_) return {};
  errors_seen_ = errors;
  return error_of_page(*page_);
}

Result<void> Dataset::sync_record(RecordType type, std::uint16_t flags) {
  journal::Sync sync;
  put_in_round_ = put_in_round_ || puts_since_sync_ > 0;
  // A reader of a shared dataset ends no frame: that takes all its writers.
  const bool ends = writers_ == 0 || (flags & journal::flag_implicit) == 0;
  if (ends && std::exchange(put_in_round_, false)) {
    sync.frame = ++frame_;
    sync.bytes = frame_put_bytes_;
  }
  if (writers_ > 0 && ends) sync.round = ++round_;
  sync.stall_ns = std::exchange(stall_ns_, 0);
  const Timer timer(stall_ns_);
  auto sequence = append(type, flags, journal::encode(sync), 0, nullptr);
  if (!sequence) return std::move(sequence).error().with(std::string("journal the ") + journal::name_of(type));
  if (sync.frame > 0) raise(page_->frames_synced, frame_);
  // The next frame is taken to be as large.
  if (auto writer = session_.writer(); writer && puts_since_sync_ > 0)
    session_.keep_ahead(**writer, (*writer)->appended() - frame_began_at_);
  if (frame_put_bytes_ > 0) last_frame_bytes_ = frame_put_bytes_;
  frame_put_bytes_ = 0;
  if (std::exchange(puts_since_sync_, 0) > 0) session_.stage().control().bursts.fetch_sub(1, std::memory_order_relaxed);
  said_since_sync_ = false;
  if (writers_ > 0) {
    synced_ = *sequence;
    raise(page_->synced, round_);
  } else {
    page_->synced.store(*sequence, std::memory_order_release);
  }
  return {};
}

Result<void> Dataset::sync() {
  std::uint64_t target = 0;
  {
    const std::lock_guard guard(session_.mutex());
    if (all_left_out()) return {};
    ADVECTIO_TRY(sync_record(RecordType::sync, 0));
    target = writers_ > 0 ? round_ : page_->synced.load(std::memory_order_acquire);
  }
  ADVECTIO_TRY(kept_in_stage() ? keep_in_stage(target) : await_promise(target));
  return sink_error();
}

/// Whether what is promised to be durable is so as soon as the stage is. Where several write a file together, or it
/// becomes one with others, a loss of power may leave each with another part of a frame: those wait for the file.
bool Dataset::kept_in_stage() const {
  return rule_.promise == 'd' && writers_ == 0 && rule_.join != '1' && session_.keeps_durable();
}

/// Everything up to that record, and what is needed to bring it to its file, on the disk of the stage.
Result<void> Dataset::keep_in_stage(std::uint64_t target) {
  const Timer timer(stall_ns_);
  auto& stage = session_.stage();
  if (!names_kept_) {
    const auto page = Stage::page_name_of(link_);
    if (!page) return page.error();
    for (const auto& path : {stage.datasets() + "/" + *page, stage.datasets()})
      ADVECTIO_TRY_WITH(make_durable(stage.files(), path), std::string("make durable ") + page_->path);
    ADVECTIO_TRY_WITH(journal::make_file_names_durable(stage.files(), page_->path, link_),
                      std::string("make durable ") + page_->path);
    names_kept_ = true;
  }
  ADVECTIO_TRY_WITH(session_.make_journal_durable(), std::string("make durable ") + page_->path);
  raise(page_->kept, target);
  return {};
}

/// Until what has been synced is as far as the config promises. Not for what becomes one file with others: those may
/// wait for this process.
Result<void> Dataset::await_promise(std::uint64_t target) {
  if (rule_.promise == 's') return {};
  const Timer timer(stall_ns_);
  const auto& reached = rule_.promise == 'd' ? page_->durable : page_->visible;
  ADVECTIO_TRY(session_.wait_until(
      [&] {
        return reached.load(std::memory_order_acquire) >= target || !in_flight(*page_) ||
               page_->errors.load(std::memory_order_acquire) != errors_seen_ || belongs_to_another(*page_, target);
      },
      std::string("wait for ") + page_->path + " to be " + (rule_.promise == 'd' ? "durable" : "visible")));
  // Known before, and still so.
  if (errors_seen_ == page_->errors.load(std::memory_order_acquire) &&
      page_->state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(DatasetState::failed))
    return error_of_page(*page_);
  return {};
}

Result<void> Dataset::close() {
  if (closed_) return {};
  if (all_left_out()) return abort();
  {
    const std::lock_guard guard(session_.mutex());
    auto r = sync_record(RecordType::close, 0);
    closed_ = true;
    if (!r) return r;
    page_->closed.store(1, std::memory_order_release);
    session_.seal_if_last(this, rule_.drops_frames());
  }
  const auto target = page_->synced.load(std::memory_order_acquire);
  const bool kept = kept_in_stage();
  if (kept) ADVECTIO_TRY(keep_in_stage(target));
  if (rule_.close == '1' || (rule_.promise != 's' && !kept)) {
    auto r = session_.wait_until([&] { return !in_flight(*page_) || waits_for_others(*page_, target); },
                                 std::string("wait for ") + page_->path);
    if (!r) return r;
  }
  return sink_error();
}

Result<void> Dataset::abort() {
  if (closed_) return {};
  const std::lock_guard guard(session_.mutex());
  auto sequence = append(RecordType::abort, 0, {}, 0, nullptr);
  if (std::exchange(puts_since_sync_, 0) > 0) session_.stage().control().bursts.fetch_sub(1, std::memory_order_relaxed);
  closed_ = true;
  if (!sequence) return std::move(sequence).error();
  if (writers_ == 0) page_->synced.store(*sequence, std::memory_order_release);
  page_->closed.store(1, std::memory_order_release);
  return {};
}

Result<void> Dataset::wait_visible() {
  if (all_left_out()) return {};
  // Where there may be several writers the others may have said something, and where there may be pending blocks the
  // last sync is not complete before these are settled.
  if (said_since_sync_ || writers_ > 0) {
    const std::lock_guard guard(session_.mutex());
    ADVECTIO_TRY(sync_record(RecordType::sync, journal::flag_implicit));
  }
  const auto target = writers_ > 0 ? synced_ : page_->synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(session_.wait_until(
      [this, target] {
        const bool seen = writers_ > 0 ? std::max(slots_[writer_].read.load(std::memory_order_acquire),
                                                  slots_[writer_].visible.load(std::memory_order_acquire)) >= target
                                       : page_->visible.load(std::memory_order_acquire) >= target;
        return seen || waits_for_others(*page_, target) || !in_flight(*page_);
      },
      std::string("wait for ") + page_->path));
  if (belongs_to_another(*page_, target)) return goes_into_another(*page_);
  return sink_error();
}

Result<void> Dataset::hand_over() {
  if (all_left_out())
    return Error{Code::unsupported, std::string(page_->path) + ": its frames were left out (full: drop-frame)", 0};
  ADVECTIO_TRY(close());
  const auto target = page_->synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(session_.wait_until([&] { return !in_flight(*page_) || waits_for_others(*page_, target); },
                                   std::string("wait for ") + page_->path));
  if (belongs_to_another(*page_, target)) return goes_into_another(*page_);
  return sink_error();
}

// ---- Dataset of several processes ----

Result<void> Dataset::settle(const std::vector<std::uint64_t>& written, const std::vector<std::uint64_t>& dropped) {
  const Timer timer(stall_ns_);
  const std::lock_guard guard(session_.mutex());
  // As many at a time as fit the smallest segment there can be.
  constexpr std::size_t at_once = 1024;
  for (std::size_t i = 0; i < std::max(written.size(), dropped.size()); i += at_once) {
    const auto part = [i](const std::vector<std::uint64_t>& all) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(std::min(i, all.size()));
      return std::vector(from, from + std::min<std::ptrdiff_t>(at_once, all.end() - from));
    };
    auto sequence =
        append(RecordType::settle, 0, journal::encode(journal::Settle{part(written), part(dropped)}), 0, nullptr);
    if (!sequence) return std::move(sequence).error().with("journal the end of requests");
  }
  return {};
}

/// Wait until a writer has ended all turns before this one. False when it has died instead.
bool Dataset::await_turn(std::uint32_t writer, std::uint64_t turn) const noexcept {
  const auto& slot = slots_[writer];
  for (unsigned tries = 0; slot.turn.load(std::memory_order_acquire) < turn; ++tries) {
    if (tries < 64) {
      ::sched_yield();
      continue;
    }
    const auto pid = slot.journal.load(std::memory_order_acquire) != 0 ? static_cast<pid_t>(slot.pid) : 0;
    if (pid != 0 && ::kill(pid, 0) != 0 && errno == ESRCH) return false;
    ::usleep(200);
  }
  return true;
}

void Dataset::grow(std::uint64_t records) noexcept {
  if (records <= records_) return;
  records_ = records;
  auto& slot = slots_[writer_];
  const auto n = slot.steps.load(std::memory_order_relaxed);
  // The oldest step is overwritten: everybody must be where the next one is known.
  if (n >= WriterSlot::steps_kept) {
    const auto needed = slot.step[(n + 1) % WriterSlot::steps_kept].turn.load(std::memory_order_relaxed);
    for (std::uint32_t w = 0; w < writers_; ++w)
      if (w != writer_) await_turn(w, needed);
  }
  auto& step = slot.step[n % WriterSlot::steps_kept];
  step.turn.store(turn_ + 1, std::memory_order_relaxed);
  step.records.store(records, std::memory_order_relaxed);
  slot.steps.store(n + 1, std::memory_order_release);
}

std::uint64_t Dataset::records(std::uint64_t turn) noexcept {
  for (std::uint32_t w = 0; w < writers_; ++w) {
    if (w == writer_ || !await_turn(w, turn)) continue;
    const auto& slot = slots_[w];
    for (auto n = slot.steps.load(std::memory_order_acquire), i = n; i > 0 && n - i < WriterSlot::steps_kept; --i) {
      const auto& step = slot.step[(i - 1) % WriterSlot::steps_kept];
      if (step.turn.load(std::memory_order_relaxed) > turn) continue;
      records_ = std::max(records_, step.records.load(std::memory_order_relaxed));
      break;
    }
  }
  return records_;
}

// ---- Session ----

Rule SessionImpl::rule_for(const std::string& path) const {
  Rule all;
  const std::string whole = absolute(path);
  const std::string name = base_name(path);
  for (const auto& r : rules_) {
    const bool by_path = r.match.find('/') != std::string::npos;
    if (::fnmatch(r.match.c_str(), by_path ? whole.c_str() : name.c_str(), 0) != 0) continue;
    for (const auto flag : {&Rule::capture, &Rule::close, &Rule::join, &Rule::promise, &Rule::full})
      if (r.*flag != '-') all.*flag = r.*flag;
  }
  return all;
}

bool SessionImpl::wants(const std::string& path) {
  return rule_for(path).capture == '1';
}

Result<Writer*> SessionImpl::writer() {
  if (writer_) return writer_.get();
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  auto opened =
      Writer::open(stage_, {rank_from_environment(), static_cast<std::uint32_t>(::getpid()), host, own_command()});
  if (!opened) return std::move(opened).error().with("begin a journal");
  writer_ = std::move(opened).value();
  return writer_.get();
}

/// All that has been appended before, by whichever thread.
Result<void> SessionImpl::make_journal_durable() {
  const std::lock_guard one_at_a_time(durable_mutex_);
  Writer::Unsynced unsynced;
  {
    const std::lock_guard guard(mutex_);
    unsynced = writer_->take_unsynced();
  }
  auto done = writer_->make_durable(unsynced);
  // The system tells an error once: who asks again hears that all is well. From here on only files are believed.
  if (!done) journal_not_durable_ = true;
  return done;
}

void SessionImpl::keep_ahead(journal::Writer& writer, std::uint64_t bytes) {
  const auto names = stage_.files().list(stage_.journals());
  const auto writers = names && !names->empty() ? names->size() : 1;
  const auto share = stage_.control().segments_max / writers / 2;
  writer.keep_ahead(std::max<std::uint64_t>(1, std::min(writer.segments_for(bytes), share)));
}

template <typename Done>
Result<void> SessionImpl::wait_until(Done done, const std::string& what) {
  auto& control = stage_.control();
  // What was waited for in vain before says less of this: the server may have heard of something new.
  Patience patience(control, gave_up_at_, std::max(room_again_max_ns, control.wait_max_ns / 16));
  for (;;) {
    const auto seen = control.progress.load(std::memory_order_acquire);
    if (done()) return {};
    const auto state = patience.look();
    if (state != Patience::State::moves && !stage_.there()) {
      return Error{Code::gone, what + ": the stage has been removed", EIO};
    } else if (state == Patience::State::over) {
      const bool alive = stage_.server_alive();
      return Error{alive ? Code::timeout : Code::gone,
                   what + (alive ? ": the server makes no progress" : ": the server has gone"), ETIMEDOUT};
    }
    journal::await_ring(control.progress, seen, wait_slice_ns);
  }
}

/// The first record of a dataset in this process's journal. Called with the mutex held.
Result<std::unique_ptr<Dataset>> SessionImpl::begin(RecordType type, std::uint32_t number, const Bytes& meta,
                                                    Page<DatasetPage> page, const std::string& page_name) {
  auto w = writer();
  if (!w) return std::move(w).error();
  auto rule = rule_for(page->path);
  if (const char* why = !rule.drops_frames()  ? nullptr
                        : rule.promise == 'd' ? "what is promised to be durable is never left out"
                        : page->writers > 0   ? "it cannot be done where several processes write a file"
                                              : nullptr) {
    rule.full = 'w';
    say_once(std::string(page->path) + ": full: drop-frame does not hold, the program waits: " + why);
  }
  (*w)->spills(rule.spills());
  Patience patience(stage_.control(), gave_up_at_, room_again_max_ns);
  auto sequence = (*w)->append(type, 0, number, meta, 0, nullptr, [&]() -> Result<void> {
    if (!stage_.there()) return Error{Code::gone, "the stage has been removed", EIO};
    if (patience.look() != Patience::State::over) return {};
    return Error{Code::timeout, "the stage is full and nothing leaves it", ETIMEDOUT};
  });
  if (!sequence) return std::move(sequence).error();
  datasets_made_ = number;
  auto dataset = std::make_unique<Dataset>(*this, number, std::move(page), rule);
  open_.insert(dataset.get());
  // A second mapping, to ask after the dataset when the program has closed and forgotten it.
  if (auto again = stage_.open_page(page_name); again) closing_.push_back(std::move(again).value());
  std::erase_if(closing_, [](const Page<DatasetPage>& q) {
    const auto state = static_cast<DatasetState>(q->state.load(std::memory_order_acquire));
    return state == DatasetState::finished || state == DatasetState::dropped;
  });
  return dataset;
}

Result<std::unique_ptr<Dataset>> SessionImpl::make(const CreateRequest& request, std::uint32_t writers) {
  const auto begun = monotonic_ns();
  const std::string path = absolute(request.path);
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) {
    if (!S_ISREG(st.st_mode)) return Error{Code::unsupported, path + " is not an ordinary file", 0};
    if (request.no_clobber) return system_error("create " + path, EEXIST);
    if (auto free = wait_for_file(path, true); !free) {
      if (free.error().code != Code::unsupported || st.st_nlink < 2) return std::move(free).error();
      // A tile that is still to go into its whole keeps its file, by its other name; this is another one.
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("create " + path, errno);
    }
  }
  const int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | (request.no_clobber ? O_EXCL : 0);
  const int fd = ::open(path.c_str(), flags, 0666);
  if (fd < 0) return system_error("create " + path, errno);
  const int failed = ::fstat(fd, &st) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) return system_error("create " + path, failed);

  const std::lock_guard guard(mutex_);
  auto w = writer();
  if (!w) return std::move(w).error();

  const std::string real = real_path(path);
  const std::uint32_t number = datasets_made_ + 1;
  const auto link_name = journal::hard_link_name(real, (*w)->journal(), std::to_string(number));
  auto& link_directories = link_directories_[directory_of(real)];
  if (link_directories.empty()) link_directories = journal::hard_link_directories(real, run_directory_);
  std::string link = link_directories.front() + link_name;
  if (link.size() >= sizeof(DatasetPage::link) || path.size() >= sizeof(DatasetPage::path))
    return system_error("create " + path, ENAMETOOLONG);

  const std::string page_name = Stage::page_name(st.st_dev, st.st_ino);
  auto made = stage_.make_dataset(page_name, [&](DatasetPage& p) {
    p.format = request.format;
    p.journal = (*w)->journal();
    p.number = number;
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.writers = writers;
    p.owner = owner_of_next(path, writers > 0);
    p.created_ns = journal::realtime_ns();
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, link.c_str(), link.size() + 1);
  });
  if (!made) return std::move(made).error().with("register " + path);
  // On a file system without hard links the server goes by the name, and the program must not rename the file.
  link = journal::give_hard_link(*made->page, real, link_name, link_directories);
  // What has failed once is not tried for the next file there.
  if (link != real)
    while (link_directories.size() > 1 && directory_of(link) != link_directories.front())
      link_directories.erase(link_directories.begin());
  if (writers > 0) take_slot(made->slots[0], number);

  const auto meta = journal::encode(journal::Create{request.format, path, link, page_name, writers});
  auto dataset = begin(RecordType::create, number, meta, std::move(made->page), page_name);
  if (!dataset) {
    // Where its hard link stays the server is to know of it.
    if (link == real || journal::remove_hard_link(stage_.files(), link).ok())
      stage_.remove_dataset(page_name, (*w)->journal(), number);
    return std::move(dataset).error().with("create " + path);
  }
  if (writers > 0) (*dataset)->share(std::move(made->slots), 0, writers);
  (*dataset)->add_stall(monotonic_ns() - begun);
  return dataset;
}

Result<std::unique_ptr<CapturedDataset>> SessionImpl::create(const CreateRequest& request) {
  auto made = make(request, 0);
  if (!made) return std::move(made).error();
  return std::unique_ptr<CapturedDataset>(std::move(made).value());
}

Result<std::unique_ptr<SharedDataset>> SessionImpl::create_shared(const CreateRequest& request, std::uint32_t writers,
                                                                  Invitation& invitation) {
  auto made = make(request, writers);
  if (!made) return std::move(made).error();
  struct stat st {};
  if (::stat((*made)->file_path().c_str(), &st) != 0) return system_error("create " + request.path, errno);
  const auto& p = (*made)->page();
  invitation = {Stage::page_name(st.st_dev, st.st_ino),
                p.path,
                p.link,
                p.format,
                p.journal,
                p.number,
                p.writers,
                p.owner,
                p.created_ns};
  return std::unique_ptr<SharedDataset>(std::move(made).value());
}

Result<std::unique_ptr<SharedDataset>> SessionImpl::join(const Invitation& invitation, std::uint32_t writer_number) {
  const auto begun = monotonic_ns();
  if (writer_number >= invitation.writers)
    return Error{Code::bug, "there is no place for writer " + std::to_string(writer_number), 0};
  DatasetFiles files;
  if (invitation.owner == 0) {
    // The rank that has created it is on this node, or there is no way to it.
    auto page = stage_.open_page(invitation.page);
    if (!page) return std::move(page).error().with("join");
    auto slots = stage_.open_slots(invitation.page, invitation.writers);
    if (!slots) return std::move(slots).error().with("join");
    files = {std::move(page).value(), std::move(slots).value()};
  } else {
    auto made = stage_.make_dataset(invitation.page, [&invitation](DatasetPage& p) {
      p.format = invitation.format;
      p.journal = invitation.journal;
      p.number = invitation.number;
      p.writers = invitation.writers;
      p.owner = invitation.owner;
      p.created_ns = invitation.created_ns;
      std::memcpy(p.path, invitation.path.c_str(), invitation.path.size() + 1);
      std::memcpy(p.link, invitation.link.c_str(), invitation.link.size() + 1);
    });
    if (!made) return std::move(made).error().with("join");
    files = std::move(made).value();
  }
  const std::lock_guard guard(mutex_);
  auto w = writer();
  if (!w) return std::move(w).error();
  const auto number = datasets_made_ + 1;
  take_slot(files.slots[writer_number], number);
  // Where the others did not wait for this one it may have ended without it. Nobody would read what is put here.
  const auto state = static_cast<DatasetState>(files.page->state.load());
  if (state == DatasetState::finished || state == DatasetState::dropped)
    return Error{Code::not_found, "join " + invitation.path + ": the others have ended it", ENOENT};
  const auto meta = journal::encode(journal::Join{invitation.page, writer_number});
  auto dataset = begin(RecordType::join, number, meta, std::move(files.page), invitation.page);
  if (!dataset) return std::move(dataset).error().with("join");
  (*dataset)->share(std::move(files.slots), writer_number, invitation.writers);
  (*dataset)->add_stall(monotonic_ns() - begun);
  return std::unique_ptr<SharedDataset>(std::move(dataset).value());
}

/// This process writes the dataset, as that number of its journal.
void SessionImpl::take_slot(WriterSlot& slot, std::uint32_t number) noexcept {
  slot.number = number;
  slot.pid = static_cast<std::uint32_t>(::getpid());
  slot.journal.store(writer_->journal(), std::memory_order_release);
}

/// Which node's server is to write the next dataset: those that are there for output in turn, else what one process
/// writes alone is written where it is, and what several write by each node in turn. 0: nobody else is concerned.
std::uint32_t SessionImpl::owner_of_next(const std::string& path, bool shared) const {
  const auto& c = stage_.control();
  if (c.nodes < 2) return 0;
  auto turn = datasets_made_ + static_cast<std::uint32_t>(std::max<std::int64_t>(0, rank_from_environment()));
  const auto name = base_name(path);
  const auto whole = shared || rule_for(path).join != '1' ? std::string() : whole_name(name);
  if (!whole.empty()) {
    // Tiles that become one file have one owner, which every rank knows by the file's name.
    const auto hash = std::hash<std::string>()(path.substr(0, path.size() - name.size()) + whole);
    const auto among = c.io_nodes > 0 ? c.io_nodes : c.nodes;
    return c.nodes - among + static_cast<std::uint32_t>(hash % among) + 1;
  }
  if (!shared && c.io_nodes == 0) return 0;
  if (c.io_nodes > 0) return c.nodes - c.io_nodes + turn % c.io_nodes + 1;
  return (c.node + turn) % c.nodes + 1;
}

void SessionImpl::forget(Dataset* dataset) noexcept {
  const std::lock_guard guard(mutex_);
  open_.erase(dataset);
}

Result<void> SessionImpl::wait_for_file(const std::string& path, bool for_writing) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return {};
  const auto name = Stage::page_name(st.st_dev, st.st_ino);
  if (!stage_.files().exists(stage_.datasets() + "/" + name))
    return ask_other_nodes(path, name, for_writing, st.st_mtime);
  auto page = stage_.open_page(name);
  if (!page) {
    if (page.error().code == Code::not_found) return {};  // finished meanwhile
    return std::move(page).error();
  }
  const DatasetPage& p = **page;
  const bool closed = p.closed.load(std::memory_order_acquire) != 0;
  const auto target = p.synced.load(std::memory_order_acquire);
  const auto state = [&p] { return static_cast<DatasetState>(p.state.load(std::memory_order_acquire)); };
  if (for_writing && !closed && p.writer_pid == static_cast<std::uint32_t>(::getpid()))
    return Error{Code::exists, path + " is open for writing in this process", EBUSY};
  ADVECTIO_TRY(wait_until(
      [&] {
        if (state() != DatasetState::in_flight || waits_for_others(p, target)) return true;
        if (for_writing) return !stage_.files().exists(stage_.datasets() + "/" + name);
        return p.visible.load(std::memory_order_acquire) >= target;
      },
      "wait for " + path));
  if (state() == DatasetState::failed) return error_of_page(p);
  if (belongs_to_another(p, target)) return goes_into_another(p);
  return {};
}

Result<void> SessionImpl::wait_for_plain_use(const std::string& path, Until until) {
  const auto name = Stage::page_name_of(path);
  if (later_ || foreign_ || !name) return {};
  auto page = stage_.open_page(*name);
  if (!page) return {};  // finished meanwhile
  const DatasetPage& p = **page;
  const bool closed = p.closed.load(std::memory_order_acquire) != 0;
  if (until == Until::complete_if_closed && !closed) return {};
  const bool complete = until != Until::synced && closed;
  // The link goes right after the end, and with it the second name of the file that stat(2) counts. A disk may refuse
  // that.
  const bool linked = journal::is_hard_link(p.link);
  std::uint64_t over_ns = 0;
  const auto is_alone = [&] {
    if (!linked || !stage_.files().exists(p.link)) return true;
    if (over_ns == 0) over_ns = monotonic_ns();
    return monotonic_ns() - over_ns > 1'000'000'000;
  };
  const auto target = p.synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(wait_until(
      [&] {
        if (waits_for_others(p, target)) return true;
        if (!in_flight(p)) return !complete || is_alone();
        return !complete && p.visible.load(std::memory_order_acquire) >= target;
      },
      "wait for " + path));
  // A tile that becomes one file with others stays empty under its own name.
  if (belongs_to_another(p, target)) return {};
  if (p.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(DatasetState::failed))
    return error_of_page(p);
  return {};
}

/// What no process of this node writes one of another may: its server tells when the file is as far as it had been
/// synced (for_writing: when it is finished).
Result<void> SessionImpl::ask_other_nodes(const std::string& path, const std::string& page, bool for_writing,
                                          std::time_t changed) {
  // A file that is older than the run is an input. Clocks of file servers differ a little.
  constexpr std::time_t clocks_differ = 60;
  struct stat run {};
  if (stage_.control().nodes < 2 || ::stat((stage_.directory() + "/server.lock").c_str(), &run) != 0 ||
      changed + clocks_differ < run.st_ctime)
    return {};
  static std::atomic<unsigned> count{0};
  const std::string question = stage_.questions() + "/" + page + (for_writing ? "+w" : "+r") + "+" +
                               std::to_string(::getpid()) + "+" + std::to_string(count.fetch_add(1));
  ADVECTIO_TRY(replace_whole(stage_.files(), question, {}));
  stage_.control().asked.fetch_add(1, std::memory_order_release);
  journal::ring(stage_.control().work);
  const auto answer = question + journal::answer_suffix;
  auto waited = wait_until([&] { return stage_.files().exists(answer); }, "wait for " + path);
  (void)stage_.files().remove(question);
  if (!waited) return waited;
  auto text = read_whole(stage_.files(), answer);
  (void)stage_.files().remove(answer);
  if (!text) return std::move(text).error();
  if (text->empty()) return {};
  return Error{Code::io, std::string(reinterpret_cast<const char*>(text->data()), text->size()), EIO};
}

void SessionImpl::finish() noexcept {
  if (foreign_) return;
  try {
    for (;;) {
      Dataset* d = nullptr;
      {
        const std::lock_guard guard(mutex_);
        if (open_.empty()) break;
        d = *open_.begin();
        open_.erase(open_.begin());
      }
      (void)d->close();
    }
    if (later_) return;
    for (const auto& p : closing_) {
      auto r =
          wait_until([&p] { return !in_flight(*p) || waits_for_others(*p, p->synced.load(std::memory_order_acquire)); },
                     std::string("wait for ") + p->path);
      if (!r) {
        say_once(r.error().message);
        break;
      }
      if (static_cast<DatasetState>(p->state.load(std::memory_order_acquire)) == DatasetState::failed)
        say_once(std::string(p->path) + ": " + p->error_text);
    }
  } catch (...) {  // the process is ending: nothing to be done
  }
}

void SessionImpl::say_once(const std::string& text) noexcept {
  try {
    if (!said_.insert(text).second) return;
    const std::string line = "advectio: " + text + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
  }
}

// ---- the one session ----

struct Global {
  std::mutex mutex;
  bool tried = false;
  SessionImpl* session = nullptr;
};

Global& global() {
  static auto* g = new Global;  // never destroyed: the program may call us while it exits
  return *g;
}

void say(const std::string& text) {
  const std::string line = "advectio: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

Told read_told(const std::string& path) {
  Told told;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line == "later") told.later = true;
    if (line.rfind("directory ", 0) == 0) told.directory = line.substr(10);
    if (line.rfind("rule ", 0) != 0 || line.size() < 16) continue;
    told.rules.push_back({line[5], line[7], line[9], line[11], line[13], line.substr(15)});
  }
  return told;
}

void child_after_fork() {
  auto& g = global();
  new (&g.mutex) std::mutex;
  if (g.session != nullptr) g.session->become_foreign();  // left to the datasets the child has inherited
  g.session = nullptr;
  g.tried = false;
}

}  // namespace

std::string stage_directory_of_process() {
  const char* run = std::getenv("ADVECTIO_RUN");
  if (run == nullptr || *run == '\0') return {};
  const auto simulated = journal::simulated_nodes(std::getenv("ADVECTIO_NODES"));
  if (!simulated) return {};
  return journal::stage_directory(run, *simulated, journal::node_of_rank(*simulated, rank_from_environment()));
}

Session* Session::current() {
  auto& g = global();
  const std::lock_guard guard(g.mutex);
  if (g.tried) return g.session;
  g.tried = true;
  static const int handler = ::pthread_atfork(nullptr, nullptr, child_after_fork);
  (void)handler;

  const char* run = std::getenv("ADVECTIO_RUN");
  if (run == nullptr || *run == '\0') {
    say("no server (ADVECTIO_RUN is not set): output goes through the netCDF library as usual");
    return nullptr;
  }
  auto simulated = journal::simulated_nodes(std::getenv("ADVECTIO_NODES"));
  if (!simulated) {
    say("no server: output goes through the netCDF library as usual (" + simulated.error().message + ")");
    return nullptr;
  }
  const auto node = journal::node_of_rank(*simulated, rank_from_environment());
  const std::string directory = journal::stage_directory(run, *simulated, node);
  auto stage = Stage::open(system_files(), directory);
  if (!stage) {
    say("no server: output goes through the netCDF library as usual (" + stage.error().message + ")");
    return nullptr;
  }
  // A server that has died is being restarted: give it a moment before giving up on it.
  const auto until = monotonic_ns() + 10'000'000'000U;
  while (!stage->server_alive()) {
    if (monotonic_ns() > until) {
      say("no server (nobody serves " + directory + "): output goes through the netCDF library as usual");
      return nullptr;
    }
    ::usleep(20'000);
  }
  g.session = new SessionImpl(std::move(stage).value(), read_told(directory + "/capture.conf"));
  return g.session;
}

}  // namespace advectio
