// A file is opened for writing that is there: one that this process has created and closed (docs/decisions/0029), or
// one of others.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "capture/dataset_state.h"
#include "capture/journalled_dataset.h"
#include "capture/registered.h"
#include "capture/session.h"
#include "platform/open_for_writing.h"

namespace advectio::capture {

using journal::Continues;
using journal::Imprint;
using journal::MappedState;
using journal::RecordType;
using journal::SharedState;
using journal::Stage;

namespace {

/// A file that is open to read.
struct OpenFile {
  explicit OpenFile(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  [[nodiscard]] int release() noexcept { return std::exchange(fd, -1); }
  int fd;
};

Error not_carried(const std::string& path, const std::string& why) {
  return Error{Code::unsupported, path + " is opened again, and the library writes it from here on: " + why, 0};
}

}  // namespace

std::string ProcessSession::identity_of(const std::string& path) const {
  auto name = Stage::state_name_of(waiting_.present_path(path));
  return name ? std::move(name).value() : std::string();
}

void ProcessSession::keep_closed(const JournalledDataset& dataset, const Bytes& schema) {
  const auto& p = dataset.shared_state();
  if (foreign_ || p.writers > 0 || p.owner != 0) return;
  const auto mapped = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Mapped& m) {
    return (*m)->journal == p.journal && (*m)->number == dataset.number();
  });
  auto name = dataset.identity();
  if (mapped == in_flight_.end() || name.empty()) return;
  std::erase_if(closed_, [&name](const Closed& c) { return c.state_name == name; });
  if (closed_.size() == closed_kept) closed_.erase(closed_.begin());
  closed_.push_back({std::move(name), *mapped, schema});
}

ProcessSession::Closed* ProcessSession::closed_at(const std::string& state_name) noexcept {
  const auto it =
      std::find_if(closed_.begin(), closed_.end(), [&](const Closed& c) { return c.state_name == state_name; });
  return it != closed_.end() ? &*it : nullptr;
}

Result<void> ProcessSession::may_reopen(const std::string& path) const {
  const auto rule = rules_.of(path);
  if (foreign_ || !rule.captures()) return not_carried(path, "it is not carried");
  if (rule.joins_tiles()) return not_carried(path, "it may be a tile (join)");
  if (rule.drops_frames()) return not_carried(path, "frames may be left out (full: drop-frame)");
  if (rules_.in_set(path)) return not_carried(path, "it belongs to a set");
  if (stage_.control().nodes > 1) return not_carried(path, "the run has several nodes");
  return {};
}

Result<std::unique_ptr<CapturedDataset>> ProcessSession::reopen(const std::string& given) {
  const auto path = absolute(given);
  ADVECTIO_TRY(may_reopen(path));
  if (::access(waiting_.present_path(path).c_str(), R_OK | W_OK) != 0) return system_error("open " + path, errno);
  const auto state_name = identity_of(path);
  const auto known = [&]() -> Closed* {
    auto* closed = closed_at(state_name);
    return closed != nullptr && path == (*closed->shared_state)->path ? closed : nullptr;
  };
  {
    const std::lock_guard guard(mutex_);
    auto* closed = known();
    if (closed == nullptr) return not_carried(path, "this process has not made it");
    if (auto dataset = go_on(*closed, path); dataset)
      return std::unique_ptr<CapturedDataset>(std::move(dataset).value());
  }
  ADVECTIO_TRY(waiting_.for_file(path, true, own_journal_.load(std::memory_order_acquire), say_));
  const auto turn = turn_to_open(path, Opening::to_carry);
  if (!turn) return turn.error();
  const bool is_open = is_open_for_writing_by_lease(path).value_or(false);
  const std::lock_guard guard(mutex_);
  auto* closed = known();
  if (closed == nullptr) return not_carried(path, "this process has not made it");
  auto dataset = go_on_in_file(*closed, path, is_open);
  if (!dataset) return std::move(dataset).error();
  return std::unique_ptr<CapturedDataset>(std::move(dataset).value());
}

/// The server has not come to its end yet, and never will: the dataset is open again.
Result<std::unique_ptr<JournalledDataset>> ProcessSession::go_on(Closed& closed, const std::string& path) {
  auto mapping = stage_.open_state(closed.state_name);
  if (!mapping) return std::move(mapping).error();
  auto& p = **mapping;
  const auto& was = **closed.shared_state;
  if (p.journal != was.journal || p.number != was.number || !in_flight(p) || p.closed.load() == 0 || p.output != 0 ||
      p.whole[0] != '\0' || p.end_asked.load() != 0)
    return not_carried(path, "it is no longer in flight");
  const auto rule = rule_of(p);
  std::set<JournalledDataset*> one{nullptr};
  auto listed = one.extract(one.begin());
  auto schema = closed.schema;
  auto mark = journal::RunMark::on(p.link);
  auto dataset =
      std::make_unique<JournalledDataset>(*this, p.number, std::move(mapping).value(), closed.state_name, rule);
  auto& state = dataset->shared_state();
  if (!journal::reopen(state, state.synced.load(std::memory_order_acquire)))
    return not_carried(path, "the server is ending it");
  // From here on nothing can fail.
  state.closed.store(0, std::memory_order_release);
  dataset->go_on(std::move(schema));
  dataset->set_mark(std::move(mark));
  listed.value() = dataset.get();
  open_.insert(std::move(listed));
  dataset->note_listed();
  return dataset;
}

/// The file is complete: another dataset changes it.
Result<std::unique_ptr<JournalledDataset>> ProcessSession::go_on_in_file(Closed& closed, const std::string& path,
                                                                         bool is_open_for_writing) {
  const auto& was = **closed.shared_state;
  const Imprint left{was.bytes_at_end.load(std::memory_order_acquire), was.changed_at_end_ns.load()};
  if (journal::state_of(was) != journal::DatasetState::finished || left.bytes == 0)
    return not_carried(path, "it is not known as the server has left it");
  // HDF5 would have locked it.
  return begin_in_file({Continues::own_file, was.format, was.created_ns, was.frames_visible.load(), left,
                        closed.state_name, !is_hdf5(was.format) && is_open_for_writing},
                       path);
}

Result<std::unique_ptr<CapturedDataset>> ProcessSession::open_file_of_others(const FileToOpen& file) {
  // Ranks of a job may have a classic file open together, each by itself.
  if (!is_hdf5(file.format) && is_rank_of_several()) return not_carried(file.path, "others may write it, too");
  auto dataset = open_there(file, 0);
  if (!dataset) return std::move(dataset).error();
  return std::unique_ptr<CapturedDataset>(std::move(dataset).value());
}

Result<std::unique_ptr<SharedDataset>> ProcessSession::open_shared(const FileToOpen& file, std::uint32_t writers,
                                                                   Invitation& invitation) {
  auto dataset = open_there(file, writers);
  if (!dataset) return std::move(dataset).error();
  ADVECTIO_TRY(invite(**dataset, invitation));
  return std::unique_ptr<SharedDataset>(std::move(dataset).value());
}

/// `writers`: as in the shared state; 0: this process alone.
Result<std::unique_ptr<JournalledDataset>> ProcessSession::open_there(const FileToOpen& file, std::uint32_t writers) {
  const auto path = absolute(file.path);
  ADVECTIO_TRY(may_reopen(path));
  if (::access(path.c_str(), R_OK | W_OK) != 0) return system_error("open " + path, errno);
  // HDF5's lock says that nobody else writes it.
  const bool classic = !is_hdf5(file.format);
  if (!classic && !hdf5_locks()) return not_carried(path, "others may write it, too");
  const auto turn = turn_to_open(path, Opening::to_carry);
  if (!turn) return turn.error();
  if (classic && !*turn) return not_carried(path, "the stage is another user's");
  const bool is_open = classic && is_open_for_writing(path);
  const std::lock_guard guard(mutex_);
  const Imprint now{file.length, file.changed_ns};
  return begin_in_file(
      {Continues::file_of_others, file.format, journal::realtime_ns(), 0, now, identity_of(path), is_open, writers},
      path);
}

Result<std::unique_ptr<JournalledDataset>> ProcessSession::begin_in_file(const Left& left, const std::string& path) {
  OpenFile file(path);
  struct stat st {};
  if (file.fd < 0 || ::fstat(file.fd, &st) != 0) return system_error("open " + path, errno);
  // Somebody reads it by HDF5, which then refuses to open it for writing.
  if (is_hdf5(left.format) && hdf5_locks() && ::flock(file.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return not_carried(path, "somebody has locked it");
  // Another process of this run may have opened it a moment ago. It has had its turn, and has
  // registered then.
  if (auto there = stage_.open_state(left.state_name); there && !journal::has_ended(**there))
    return not_carried(path, "another process has it open");
  const auto now = Imprint::of(path);
  if (!now || *now != left.imprint || Stage::state_name(st.st_dev, st.st_ino) != left.state_name)
    return not_carried(path, "somebody else has changed it");
  if (st.st_nlink > 1) return not_carried(path, "it has several names");
  if (left.is_open_for_writing) return not_carried(path, "somebody has it open for writing");

  auto w = writer();
  if (!w) return std::move(w).error();
  (*w)->keep_lock();
  const auto real = real_path(path);
  const std::uint32_t number = datasets_begun_ + 1;
  const auto link_name = journal::hard_link_name(real, (*w)->journal(), std::to_string(number));
  auto& directories = link_directories_of(real);
  std::string link = directories.front() + link_name;
  if (link.size() >= sizeof(SharedState::link)) return system_error("open " + path, ENAMETOOLONG);
  Registered registered(stage_, left.state_name, (*w)->journal(), number);
  auto made = stage_.make_dataset(left.state_name, [&](SharedState& p) {
    p.format = left.format;
    p.journal = (*w)->journal();
    p.number = number;
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.writers = left.writers;
    p.created_ns = left.created_ns;
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, link.c_str(), link.size() + 1);
    journal::DirectoryId::of(real).keep_in(p);
    p.continues = static_cast<std::uint32_t>(left.by);
    p.bytes_before = left.imprint.bytes;
    p.changed_before_ns = left.imprint.changed_ns;
    p.frames_before = left.frames;
    p.frames_synced.store(p.frames_before);
    p.frames_visible.store(p.frames_before);
  });
  if (!made && made.error().code == Code::exists) return not_carried(path, made.error().message);
  if (!made) return std::move(made).error().with("register " + path);
  registered.begin();
  link = journal::give_hard_link(*made->shared_state, real, link_name, directories);
  note_link(link, real);
  if (left.writers > 0) take_slot(made->slots[0], number);
  const auto meta = journal::encode(journal::Create{left.format, path, link, left.state_name, left.writers});
  auto dataset = begin(RecordType::create, number, meta, std::move(made->shared_state), left.state_name);
  if (!dataset) return std::move(dataset).error().with("open " + path);
  registered.keep();
  // The mark is there before the lock goes.
  const int fd = file.release();
  auto mark = journal::RunMark::on(fd);
  // While the program has a file of others open, HDF5 lets nobody else open it for writing.
  if (mark) (void)::flock(fd, left.by == Continues::file_of_others && is_hdf5(left.format) ? LOCK_SH : LOCK_UN);
  (*dataset)->set_mark(std::move(mark));
  if (left.writers > 0) (*dataset)->share(std::move(made->slots), 0, left.writers);
  (*dataset)->go_on({});
  return dataset;
}

}  // namespace advectio::capture
