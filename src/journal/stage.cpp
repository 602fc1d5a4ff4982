#include "journal/stage.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "journal/hard_link.h"

namespace advectio::journal {

namespace {

template <typename T>
Result<MappedState<T>> map_state(Files& files, const std::string& path, std::uint64_t bytes, bool create,
                                 Access access = Access::use) {
  const auto existing = access == Access::look ? OpenMode::read : OpenMode::read_write;
  auto file = files.open(path, create ? OpenMode::create_new : existing, 0600);
  if (!file) return std::move(file).error();
  if (create) {
    ADVECTIO_TRY((*file)->reserve(bytes));
  } else {
    auto size = (*file)->size();
    if (!size) return std::move(size).error();
    if (*size < bytes)
      return Error{Code::corrupt, path + " is " + std::to_string(*size) + " bytes long, not " + std::to_string(bytes),
                   0};
  }
  auto mapping = files.map(**file, bytes, access == Access::use);
  if (!mapping) return std::move(mapping).error();
  return MappedState<T>(std::move(mapping).value());
}

std::uint64_t clock_ns(clockid_t id) noexcept {
  timespec t{};
  ::clock_gettime(id, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() noexcept {
  return clock_ns(CLOCK_MONOTONIC);
}
std::uint64_t realtime_ns() noexcept {
  return clock_ns(CLOCK_REALTIME);
}

namespace {

/// The names of a new stage, up to the root: who has made which of them is not known, nor can all be opened.
Result<void> make_stage_names_durable(Files& files, const Stage& stage) {
  for (const auto& path : {stage.journals(), stage.datasets(), stage.pool(), stage.directory()})
    ADVECTIO_TRY(make_durable(files, path));
  for (auto path = directory_of(stage.directory()); path.size() > 1;
       path = directory_of(path.substr(0, path.size() - 1)))
    if (!make_durable(files, path)) break;
  return {};
}

}  // namespace

Result<Stage> Stage::make(Files& files, const std::string& directory, std::uint64_t segment_bytes,
                          std::uint64_t segments_max, std::uint64_t wait_max_ns, const Power& power) {
  Stage stage;
  stage.files_ = &files;
  stage.directory_ = directory;
  for (const auto& d : {stage.directory_, stage.pool(), stage.journals(), stage.datasets()})
    ADVECTIO_TRY(files.make_directory(d, 0700));
  const std::string path = directory + "/control";
  if (!files.exists(path)) {
    // Made complete under another name first: whoever sees `control` sees all of it.
    ADVECTIO_TRY(files.remove(path + ".next"));
    {
      auto shared_state = map_state<StageControl>(files, path + ".next", control_bytes, true);
      if (!shared_state) return std::move(shared_state).error();
      auto& c = **shared_state;
      c.magic = control_magic;
      c.version = format_version;
      c.segment_bytes = segment_bytes;
      c.segments_max = segments_max;
      c.wait_max_ns = wait_max_ns;
      std::memcpy(c.boot, power.boot.c_str(), std::min(power.boot.size() + 1, sizeof c.boot - 1));
      c.survives_power = power.survives ? 1 : 0;
    }
    if (power.survives) ADVECTIO_TRY(advectio::make_durable(files, path + ".next"));
    ADVECTIO_TRY(files.rename(path + ".next", path));
  }
  auto opened = open(files, directory);
  if (!opened) return opened;
  if (opened->survives_power()) ADVECTIO_TRY(make_stage_names_durable(files, *opened));
  // A restarted server keeps the segment size of the segments that exist; the caps may change.
  opened->control().segments_max = segments_max;
  opened->control().segments_limit.store(segments_max);
  opened->control().wait_max_ns = wait_max_ns;
  opened->control().server_pid = static_cast<std::uint32_t>(::getpid());
  return opened;
}

Result<void> is_private(const std::string& directory) {
  struct stat st {};
  if (::stat(directory.c_str(), &st) != 0) return system_error("open " + directory, errno);
  if (!S_ISDIR(st.st_mode)) return Error{Code::invalid, directory + " is not a directory", 0};
  if (st.st_uid != ::geteuid())
    return Error{Code::permission,
                 directory + " belongs to another user (uid " + std::to_string(st.st_uid) + "), and is left alone",
                 EACCES};
  if ((st.st_mode & 022U) != 0)
    return Error{Code::permission, directory + " can be written by others, and is left alone", EACCES};
  return {};
}

Result<Stage> Stage::open(Files& files, const std::string& directory, Access access) {
  if (auto ours = is_private(directory); !ours) {
    // Like /tmp, which many may write: that is not what is wrong.
    if (!files.exists(directory + "/control"))
      return Error{Code::invalid, "no stage at " + directory + " (there is no control page)", 0};
    return std::move(ours).error();
  }
  Stage stage;
  stage.files_ = &files;
  stage.directory_ = directory;
  stage.access_ = access;
  auto shared_state = map_state<StageControl>(files, directory + "/control", control_bytes, false, access);
  if (!shared_state) return std::move(shared_state).error().with("no stage at " + directory);
  stage.control_ = std::move(shared_state).value();
  const auto& c = stage.control();
  if (c.magic != control_magic) return Error{Code::corrupt, directory + "/control is not a stage's control page", 0};
  if (!is_read(c.version))
    return Error{Code::unsupported,
                 "the stage " + directory + " is of format version " + std::to_string(c.version) +
                     ", this program reads " + std::to_string(format_version),
                 0};
  return stage;
}

std::uint64_t Stage::free_segments() const {
  const auto names = files_->list(pool());
  if (!names) return 0;
  return static_cast<std::uint64_t>(
      std::count_if(names->begin(), names->end(), [](const std::string& name) { return name[0] == segment_letter; }));
}

std::uint64_t Stage::segments_ahead() const {
  const auto writers = files_->list(journals());
  if (!writers) return 0;
  std::uint64_t n = 0;
  for (const auto& w : *writers) {
    if (const auto names = files_->list(journals() + "/" + w))
      n += static_cast<std::uint64_t>(std::count_if(
          names->begin(), names->end(), [](const std::string& name) { return name.rfind("ahead-", 0) == 0; }));
  }
  return n;
}

std::string Stage::state_name(std::uint64_t device, std::uint64_t inode) {
  return std::to_string(device) + "-" + std::to_string(inode);
}

Result<std::string> Stage::state_name_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return system_error("look at " + path, errno);
  return state_name(st.st_dev, st.st_ino);
}

std::uint64_t Stage::inode_in(const std::string& state_name) noexcept {
  std::uint64_t inode = 0;
  if (const auto at = state_name.find('-'); at != std::string::npos)
    (void)std::from_chars(state_name.data() + at + 1, state_name.data() + state_name.size(), inode);
  return inode;
}

std::uint32_t seal_of(const SharedState& shared_state) noexcept {
  const auto from = offsetof(SharedState, format);
  auto crc = crc32c(reinterpret_cast<const std::byte*>(&shared_state) + from, offsetof(SharedState, synced) - from);
  crc = crc32c(&shared_state.writers, sizeof shared_state.writers, crc);
  crc = crc32c(&shared_state.owner, sizeof shared_state.owner, crc);
  crc = crc32c(&shared_state.created_ns, sizeof shared_state.created_ns, crc);
  crc = crc32c(&shared_state.tiles, sizeof shared_state.tiles, crc);
  if (shared_state.continues != 0)
    crc = crc32c(&shared_state.bytes_before, offsetof(SharedState, bytes_at_end) - offsetof(SharedState, bytes_before),
                 crc);
  return shared_state.output == 0
             ? crc
             : crc32c(&shared_state.output, sizeof shared_state.output + sizeof shared_state.source, crc);
}

Result<Imprint> Imprint::of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return system_error("look at " + path, errno);
  return Imprint{
      static_cast<std::uint64_t>(st.st_size),
      static_cast<std::uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(st.st_mtim.tv_nsec)};
}

bool reopen(SharedState& shared_state, std::uint64_t closed_at) noexcept {
  auto now = shared_state.reopened.load(std::memory_order_acquire);
  while ((now & is_ending) == 0)
    if (shared_state.reopened.compare_exchange_weak(now, std::max(now, closed_at), std::memory_order_acq_rel))
      return true;
  return false;
}

bool end_at(SharedState& shared_state, std::uint64_t closed_at) noexcept {
  auto now = shared_state.reopened.load(std::memory_order_acquire);
  while ((now & ~is_ending) < closed_at)
    if ((now & is_ending) != 0 ||
        shared_state.reopened.compare_exchange_weak(now, now | is_ending, std::memory_order_acq_rel))
      return true;
  return false;
}

void set_visible(SharedState& shared_state, std::uint64_t sequence) noexcept {
  shared_state.visible_next.store(sequence, std::memory_order_relaxed);
  shared_state.visible.store(sequence, std::memory_order_release);
}

void set_forced(SharedState& shared_state, const Forced& forced) noexcept {
  shared_state.frames_forced.store(forced.frames, std::memory_order_relaxed);
  shared_state.forced.store(forced.frames << 32U | (forced.sequence & 0xFFFFFFFFU), std::memory_order_relaxed);
  shared_state.durable_forced.store(forced.sequence, std::memory_order_release);
}

Forced forced_of(const SharedState& shared_state) noexcept {
  const auto sequence = shared_state.durable_forced.load(std::memory_order_acquire);
  const auto forced = shared_state.forced.load(std::memory_order_relaxed);
  if (forced == 0) return {sequence, shared_state.frames_forced.load(std::memory_order_relaxed)};
  // `durable_forced` may be older or newer; its upper half tells which sequence the lower half belongs to.
  const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(forced - sequence));
  return {sequence + static_cast<std::uint64_t>(static_cast<std::int64_t>(ahead)), forced >> 32U};
}

void set_whole(SharedState& shared_state, const std::string& name) noexcept {
  const std::atomic_ref first(shared_state.whole[0]);
  first.store('\0', std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  shared_state.whole_seal = crc32c(reinterpret_cast<const std::byte*>(name.data()), name.size());
  if (!name.empty()) std::memcpy(shared_state.whole + 1, name.c_str() + 1, name.size());
  first.store(name.empty() ? '\0' : name[0], std::memory_order_release);
}

bool whole_is_right(const SharedState& shared_state) noexcept {
  const auto bytes = ::strnlen(shared_state.whole, sizeof shared_state.whole);
  return bytes == 0 || shared_state.whole_seal == crc32c(reinterpret_cast<const std::byte*>(shared_state.whole), bytes);
}

Result<MappedState<SharedState>> Stage::open_damaged_state(const std::string& name) const {
  return map_state<SharedState>(*files_, datasets() + "/" + name, shared_state_bytes, false, access_);
}

Result<MappedState<SharedState>> Stage::open_state(const std::string& name) const {
  auto shared_state = open_damaged_state(name);
  if (!shared_state) return shared_state;
  if ((*shared_state)->magic != dataset_magic || !is_read((*shared_state)->version))
    return Error{Code::corrupt, datasets() + "/" + name + " is not a dataset's page", 0};
  if ((*shared_state)->seal != seal_of(**shared_state))
    return Error{Code::corrupt, datasets() + "/" + name + " is a dataset's page and damaged (CRC)", 0};
  return shared_state;
}

Result<MappedState<WriterSlot>> Stage::open_slots(const std::string& shared_state, std::uint32_t writers) const {
  return map_state<WriterSlot>(*files_, datasets() + "/" + shared_state + slots_suffix, writers * sizeof(WriterSlot),
                               false, access_);
}

namespace {

/// Ranks of a node come here at the same time.
Result<ProcessLock> await_lock(const std::string& path) {
  for (unsigned tries = 0;; ++tries) {
    auto taken = ProcessLock::take(path);
    if (taken || taken.error().code != Code::exists || tries > 100'000) return taken;
    ::usleep(100);
  }
}

}  // namespace

bool Stage::close(const std::function<bool()>& nobody_is_new) const {
  // Never waits: whoever holds the lock may have been stopped.
  const auto lock = ProcessLock::take(directory_ + "/journals.lock");
  if (!lock && lock.error().code == Code::exists) return false;
  if (!nobody_is_new()) return false;
  control_->closed.store(1, std::memory_order_release);
  return true;
}

Result<void> Stage::enter(const std::function<Result<void>()>& publish) const {
  const auto ended = [this] { return Error{Code::gone, "the run " + directory_ + " has ended", 0}; };
  if (closed()) return ended();  // its directory may be on its way out: nothing is made there
  auto lock = await_lock(directory_ + "/journals.lock");
  if (!lock) return std::move(lock).error();
  if (closed()) return ended();
  return publish();
}

void Stage::remove_rest() const noexcept {
  if (there()) return;
  (void)files_->remove(directory_ + "/journals.lock");
  ::rmdir(journals().c_str());
  ::rmdir(directory_.c_str());
}

Result<DatasetFiles> Stage::make_dataset(const std::string& name, const std::function<void(SharedState&)>& fill) const {
  auto lock = await_lock(directory_ + "/datasets.lock");
  if (!lock) return std::move(lock).error();
  const std::string hidden = "." + name;
  ADVECTIO_TRY(files_->remove(datasets() + "/" + hidden));
  DatasetFiles made;
  auto shared_state = map_state<SharedState>(*files_, datasets() + "/" + hidden, shared_state_bytes, true);
  if (!shared_state) return std::move(shared_state).error();
  made.shared_state = std::move(shared_state).value();
  fill(*made.shared_state);
  made.shared_state->magic = dataset_magic;
  made.shared_state->version = format_version;
  made.shared_state->seal = seal_of(*made.shared_state);
  const auto writers = made.shared_state->writers;
  auto there = open_state(name);
  if (there && (*there)->journal == made.shared_state->journal && (*there)->number == made.shared_state->number) {
    ADVECTIO_TRY(files_->remove(datasets() + "/" + hidden));
    made.shared_state = std::move(there).value();
    if (writers == 0) return made;
    auto slots = open_slots(name, writers);
    if (!slots) return std::move(slots).error();
    made.slots = std::move(slots).value();
    return made;
  }
  // This one goes on with the file, and another process of the run has begun to do so.
  if (there && made.shared_state->continues != 0 && !has_ended(**there)) {
    ADVECTIO_TRY(files_->remove(datasets() + "/" + hidden));
    return Error{Code::exists, "another process of the run has it open", 0};
  }
  // The inode has come to another file: that of the earlier dataset is gone. Whoever waits for it has its shared state
  // mapped.
  if (there && (*there)->owner == 0 && made.shared_state->owner == 0)
    (*there)->state.store(static_cast<std::uint32_t>(DatasetState::dropped), std::memory_order_release);
  ADVECTIO_TRY(files_->remove(datasets() + "/" + name + ".schema"));
  ADVECTIO_TRY(files_->remove(datasets() + "/" + name + ends_suffix));
  if (writers > 0) {
    const auto at = datasets() + "/" + name + slots_suffix;
    ADVECTIO_TRY(files_->remove(at));
    auto slots = map_state<WriterSlot>(*files_, at, writers * sizeof(WriterSlot), true);
    if (!slots) return std::move(slots).error();
    made.slots = std::move(slots).value();
  }
  ADVECTIO_TRY(files_->rename(datasets() + "/" + hidden, datasets() + "/" + name));
  return made;
}

void Stage::remove_dataset(const std::string& name, std::uint64_t journal, std::uint32_t number) const {
  const auto lock = await_lock(directory_ + "/datasets.lock");
  const auto shared_state = open_state(name);
  if (!shared_state || (*shared_state)->journal != journal || (*shared_state)->number != number) return;
  (void)files_->remove(datasets() + "/" + name);
  (void)files_->remove(datasets() + "/" + name + slots_suffix);
  (void)files_->remove(datasets() + "/" + name + ends_suffix);
}

Result<ProcessLock> Stage::take_turn_to_open(const std::string& name, bool shared) const {
  return ProcessLock::take(directory_ + "/opening.lock", inode_in(name), shared);
}

bool Stage::has_lost_power(const std::string& boot) const {
  const std::string made(control_->boot, ::strnlen(control_->boot, sizeof control_->boot));
  return !made.empty() && !boot.empty() && made != boot && control_->left == 0;
}

Result<void> Stage::make_durable() const {
  const auto sync = [this](const std::string& path) { return advectio::make_durable(*files_, path); };
  // Files before the directories that name them.
  const auto sync_all = [&](const std::string& directory) -> Result<std::vector<std::string>> {
    auto names = files_->list(directory);
    if (!names) return names;
    for (const auto& name : *names) ADVECTIO_TRY(sync(directory + "/" + name));
    ADVECTIO_TRY(sync(directory));
    return names;
  };
  auto written = files_->list(journals());
  if (!written) return std::move(written).error();
  for (const auto& name : *written) {
    auto done = sync_all(journals() + "/" + name);
    if (!done) return std::move(done).error();
  }
  auto names = sync_all(datasets());
  if (!names) return std::move(names).error();
  for (const auto& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    auto shared_state = open_state(name);
    if (!shared_state) return std::move(shared_state).error();
    ADVECTIO_TRY(make_file_names_durable(*files_, (*shared_state)->path, (*shared_state)->link));
  }
  if (files_->exists(directory_ + "/markers"))
    if (auto notes = sync_all(directory_ + "/markers"); !notes) return std::move(notes).error();
  if (files_->exists(directory_ + "/spill")) ADVECTIO_TRY(sync(directory_ + "/spill"));
  for (const char* name : {"/journals", ""}) ADVECTIO_TRY(sync(directory_ + name));
  control_->left = 1;
  return sync(directory_ + "/control");
}

bool Stage::server_alive() const {
  return ProcessLock::held(directory_ + "/server.lock");
}

Result<ProcessLock> ProcessLock::take(const std::string& path) {
  return take(path, F_WRLCK, 0, 0);
}

Result<ProcessLock> ProcessLock::take(const std::string& path, std::uint64_t byte, bool shared) {
  return take(path, shared ? F_RDLCK : F_WRLCK, static_cast<off_t>(byte & (INT64_MAX >> 1U)), 1);
}

Result<ProcessLock> ProcessLock::take(const std::string& path, short type, off_t begin, off_t length) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return system_error("open " + path, errno);
  struct flock part {};
  part.l_type = type;
  part.l_whence = SEEK_SET;
  part.l_start = begin;
  part.l_len = length;
  if (::fcntl(fd, F_OFD_SETLK, &part) != 0) {
    const int e = errno;
    ::close(fd);
    if (e == EACCES || e == EAGAIN) return Error{Code::exists, path + " is locked by another process", e};
    return system_error("lock " + path, e);
  }
  ProcessLock lock;
  lock.fd_ = fd;
  struct stat st {};
  if (::fstat(fd, &st) == 0) {
    lock.device_ = st.st_dev;
    lock.inode_ = st.st_ino;
  }
  return lock;
}

bool ProcessLock::is_kept() const noexcept {
  struct stat st {};
  return fd_ >= 0 && ::fstat(fd_, &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
}

void ProcessLock::unlock() noexcept {
  if (!is_kept()) return;
  struct flock whole {};
  whole.l_type = F_UNLCK;
  whole.l_whence = SEEK_SET;
  (void)::fcntl(fd_, F_OFD_SETLK, &whole);
}

bool ProcessLock::held(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == EMFILE || errno == ENFILE;  // not known: nobody is taken for dead
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool held = ::fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

ProcessLock::ProcessLock(ProcessLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}
ProcessLock& ProcessLock::operator=(ProcessLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}
ProcessLock::~ProcessLock() {
  if (is_kept()) ::close(fd_);
}

void ring(std::atomic<std::uint32_t>& bell) noexcept {
  bell.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void await_ring(std::atomic<std::uint32_t>& bell, std::uint32_t seen, std::uint64_t timeout_ns) noexcept {
  timespec t{static_cast<time_t>(timeout_ns / 1'000'000'000U), static_cast<long>(timeout_ns % 1'000'000'000U)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell), FUTEX_WAIT, seen, &t, nullptr, 0);
}

}  // namespace advectio::journal
