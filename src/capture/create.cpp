// How a dataset begins: its file, its hard link, its shared state in the stage, and its first record.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "capture/dataset_state.h"
#include "capture/held_file.h"
#include "capture/journalled_dataset.h"
#include "capture/new_file.h"
#include "capture/registered.h"
#include "capture/session.h"
#include "core/placement.h"
#include "journal/hard_link.h"

namespace advectio::capture {

using journal::DatasetFiles;
using journal::MappedState;
using journal::RecordType;
using journal::SharedState;
using journal::Stage;
using journal::WriterSlot;

namespace {

/// A writer's slot, free again unless `keep` is called: the server would wait for a writer that never enters.
class SlotUntilBegun {
 public:
  explicit SlotUntilBegun(WriterSlot& slot) noexcept : slot_(&slot) {}
  ~SlotUntilBegun() {
    if (slot_ != nullptr) slot_->journal.store(0, std::memory_order_release);
  }
  SlotUntilBegun(const SlotUntilBegun&) = delete;
  SlotUntilBegun& operator=(const SlotUntilBegun&) = delete;
  void keep() noexcept { slot_ = nullptr; }

 private:
  WriterSlot* slot_;
};

}  // namespace

/// The rule for a dataset that begins, without what cannot be done for it.
Rule ProcessSession::rule_of(const SharedState& shared_state) {
  auto rule = rules_.of(shared_state.path);
  if (const char* why = !rule.drops_frames()       ? nullptr
                        : rule.promises_durable()  ? "what is promised to be durable is never left out"
                        : shared_state.writers > 0 ? "it cannot be done where several processes write a file"
                                                   : nullptr) {
    rule.full = 'w';
    say_once(std::string(shared_state.path) + ": full: drop-frame does not hold, the program waits: " + why);
  }
  return rule;
}

/// Append the first record of a dataset. With the mutex.
Result<std::unique_ptr<JournalledDataset>> ProcessSession::begin(RecordType type, std::uint32_t number,
                                                                 const Bytes& meta,
                                                                 MappedState<SharedState> shared_state,
                                                                 const std::string& state_name) {
  auto w = writer();
  if (!w) return std::move(w).error();
  const auto rule = rule_of(*shared_state);
  (*w)->spills(rule.spills());
  auto patience = waiting_.for_room();
  // All that needs memory comes before the record. A second mapping outlives the object, which goes when the program
  // closes the dataset.
  auto mapping = stage_.open_state(state_name);
  const auto again = mapping ? std::make_shared<const MappedState<SharedState>>(std::move(mapping).value()) : Mapped();
  std::erase_if(in_flight_, [](const Mapped& p) { return has_ended(**p); });
  in_flight_.reserve(in_flight_.size() + 1);
  std::set<JournalledDataset*> one{nullptr};
  auto listed = one.extract(one.begin());
  auto dataset = std::make_unique<JournalledDataset>(*this, number, std::move(shared_state), state_name, rule);
  // Also when that fails: a server may have taken up the shared state, and would give it the records of the next
  // dataset.
  datasets_begun_ = number;
  auto sequence = (*w)->append(type, 0, number, meta, 0, nullptr, [&]() -> Result<void> {
    if (!stage_.there()) return Error{Code::gone, "the stage has been removed", EIO};
    if (patience.look() != Patience::State::over) return {};
    return Error{Code::timeout, "the stage is full and nothing leaves it", ETIMEDOUT};
  });
  if (!sequence) return std::move(sequence).error();
  // From here on nothing can fail: to destroy a listed dataset takes the mutex, which is held here.
  if (again) in_flight_.push_back(again);
  listed.value() = dataset.get();
  open_.insert(std::move(listed));
  dataset->note_listed();
  return dataset;
}

/// Those that may have the hard links of files beside that one.
std::vector<std::string>& ProcessSession::link_directories_of(const std::string& real) {
  auto& directories = link_directories_[directory_of(real)];
  if (directories.empty()) directories = journal::hard_link_directories(real, rules_.run_directory);
  return directories;
}

/// A directory that has refused the link is not tried again for the next file.
void ProcessSession::note_link(const std::string& link, const std::string& real) {
  auto& directories = link_directories_of(real);
  if (link == real) return;
  while (directories.size() > 1 && directory_of(link) != directories.front()) directories.erase(directories.begin());
}

/// Of several that create it at one time one is the first.
Result<NewFile> ProcessSession::make_file(const HeldFile& name, const std::string& path, bool no_clobber,
                                          bool in_set) const {
  if (!name.is_held())
    return NewFile::take(
        in_set ? real_path(path) : path, no_clobber, [&] { return waiting_.not_written_now(path); }, in_set);
  const auto is_free = [&]() -> Result<void> {
    ADVECTIO_TRY(waiting_.not_written_now(path));
    if (waiting_.present_path(path) == path) return {};
    return Error{Code::exists, path + " is being created by another process", EACCES};
  };
  // A run that has died may have left one. `recover` finds its file by another name.
  auto file = NewFile::take(name.made_as(), false, is_free, true);
  if (file) name.take_permissions();
  return file;
}

Result<std::unique_ptr<JournalledDataset>> ProcessSession::make(const CreateRequest& request, std::uint32_t writers) {
  const auto begun = journal::monotonic_ns();
  const std::string path = absolute(request.path);
  // Deeper than the system tells. The server would look for the file somewhere else.
  if (path.empty() || path[0] != '/') return system_error("create " + request.path, ENAMETOOLONG);
  // A file that was renamed to that name, and has yet to get it.
  if (waiting_.present_path(path) != path) {
    if (request.no_clobber) return system_error("create " + path, EEXIST);
    ADVECTIO_TRY(waiting_.for_creating(path, own_journal_.load(), say_));
    ADVECTIO_TRY(waiting_.for_name(path));
  }
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode)) return Error{Code::unsupported, path + " is not an ordinary file", 0};
    if (request.no_clobber) return system_error("create " + path, EEXIST);
    if (auto free = waiting_.for_creating(path, own_journal_.load(), say_); !free) {
      if (free.error().code != Code::unsupported || there.st_nlink < 2) return std::move(free).error();
      // The file is a tile that still goes into its whole. It keeps its other name; this becomes
      // another file.
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("create " + path, errno);
    }
  }
  const bool in_set = rules_.in_set(path);
  HeldFile name(stage_, rules_.of(path), path, in_set);
  auto file = make_file(name, path, request.no_clobber, in_set);
  if (!file) return std::move(file).error();
  // HDF5 does not create over a file that somebody has locked.
  if (!file->is_locked() && is_hdf5(request.format) && writers == 0 && hdf5_locks())
    return system_error("create " + path + ", which somebody has open", EACCES);
  ADVECTIO_TRY(file->empty());

  const std::lock_guard guard(mutex_);
  auto w = writer();
  if (!w) return std::move(w).error();
  (*w)->keep_lock();

  const std::string real = real_path(path);
  const std::uint32_t number = datasets_begun_ + 1;
  const auto link_name = journal::hard_link_name(real, (*w)->journal(), std::to_string(number));
  auto& link_directories = link_directories_of(real);
  std::string link = link_directories.front() + link_name;
  if (link.size() >= sizeof(SharedState::link) || path.size() >= sizeof(SharedState::path))
    return system_error("create " + path, ENAMETOOLONG);

  const std::string state_name = Stage::state_name(file->stat().st_dev, file->stat().st_ino);
  const auto directory = journal::DirectoryId::of(real);
  const auto owner = owner_of_next(path, writers > 0);
  Registered registered(stage_, state_name, (*w)->journal(), number);
  auto made = stage_.make_dataset(state_name, [&](SharedState& p) {
    p.format = request.format;
    p.journal = (*w)->journal();
    p.number = number;
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.writers = writers;
    p.owner = owner;
    p.created_ns = request.created_ns != 0 ? request.created_ns : journal::realtime_ns();
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, link.c_str(), link.size() + 1);
    directory.keep_in(p);
  });
  if (!made) return std::move(made).error().with("register " + path);
  registered.begin();
  // On a file system without hard links the server goes by the name, and the program must not
  // rename the file.
  link =
      journal::give_hard_link(*made->shared_state, name.is_held() ? name.made_as() : real, link_name, link_directories);
  if (name.is_held()) {
    // Without a hard link the server goes by the name, which must stay.
    Result<void> noted = name.made_as() == link ? Error{Code::unsupported, "the file system has no hard links", 0}
                                                : name.note({state_name, (*w)->journal(), number, 0, false});
    if (!noted) {
      say_once(path + " has its name before it has a frame: " + noted.error().message);
      ADVECTIO_TRY(name.name());
      file->moved_to(real);
      if (!journal::is_hard_link(link)) link = journal::give_hard_link(*made->shared_state, real, link_name, {});
    }
  }
  note_link(link, real);
  if (writers > 0) take_slot(made->slots[0], number);

  const auto meta = journal::encode(journal::Create{request.format, path, link, state_name, writers});
  auto dataset = begin(RecordType::create, number, meta, std::move(made->shared_state), state_name);
  if (!dataset) return std::move(dataset).error().with("create " + path);
  registered.keep();
  name.keep();
  (*dataset)->set_mark(file->keep());
  if (writers > 0) (*dataset)->share(std::move(made->slots), 0, writers);
  (*dataset)->add_stall(journal::monotonic_ns() - begun);
  return dataset;
}

Result<std::unique_ptr<CapturedDataset>> ProcessSession::create(const CreateRequest& request) {
  auto made = make(request, 0);
  if (!made) return std::move(made).error();
  return std::unique_ptr<CapturedDataset>(std::move(made).value());
}

Result<std::unique_ptr<SharedDataset>> ProcessSession::create_shared(const CreateRequest& request,
                                                                     std::uint32_t writers, Invitation& invitation) {
  auto made = make(request, writers);
  if (!made) return std::move(made).error();
  ADVECTIO_TRY(invite(**made, invitation));
  return std::unique_ptr<SharedDataset>(std::move(made).value());
}

/// Fills the invitation for the other writers. If that fails, the dataset is aborted.
Result<void> ProcessSession::invite(JournalledDataset& dataset, Invitation& invitation) {
  struct stat st {};
  const auto& p = dataset.shared_state();
  if (::stat(dataset.file_path().c_str(), &st) != 0) {
    auto error = system_error(std::string("look at ") + p.path, errno);
    (void)dataset.abort();  // nobody else would end it
    return error;
  }
  invitation = {Stage::state_name(st.st_dev, st.st_ino),
                p.path,
                p.link,
                p.format,
                p.journal,
                p.number,
                p.writers,
                p.owner,
                p.created_ns};
  return {};
}

/// The shared state and the slots of a dataset that another rank has created.
Result<DatasetFiles> ProcessSession::files_of(const Invitation& invitation) const {
  if (invitation.owner != 0)
    return stage_.make_dataset(invitation.shared_state, [&invitation](SharedState& p) {
      p.format = invitation.format;
      p.journal = invitation.journal;
      p.number = invitation.number;
      p.writers = invitation.writers;
      p.owner = invitation.owner;
      p.created_ns = invitation.created_ns;
      std::memcpy(p.path, invitation.path.c_str(), invitation.path.size() + 1);
      std::memcpy(p.link, invitation.link.c_str(), invitation.link.size() + 1);
    });
  // Without an owner, that rank is on this node, or nothing leads to it.
  auto shared_state = stage_.open_state(invitation.shared_state);
  if (!shared_state) return std::move(shared_state).error();
  auto slots = stage_.open_slots(invitation.shared_state, invitation.writers);
  if (!slots) return std::move(slots).error();
  return DatasetFiles{std::move(shared_state).value(), std::move(slots).value()};
}

Result<std::unique_ptr<SharedDataset>> ProcessSession::join(const Invitation& invitation, std::uint32_t writer_number) {
  const auto begun = journal::monotonic_ns();
  if (writer_number >= invitation.writers)
    return Error{Code::bug, "there is no place for writer " + std::to_string(writer_number), 0};
  auto files = files_of(invitation);
  if (!files) return std::move(files).error().with("join");
  const std::lock_guard guard(mutex_);
  auto w = writer();
  if (!w) return std::move(w).error();
  const auto number = datasets_begun_ + 1;
  take_slot(files->slots[writer_number], number);
  SlotUntilBegun slot(files->slots[writer_number]);
  // The others may have ended the dataset without this writer. Then nobody would read what it puts.
  if (has_ended(*files->shared_state))
    return Error{Code::not_found, "join " + invitation.path + ": the others have ended it", ENOENT};
  const auto meta = journal::encode(journal::Enter{invitation.shared_state, writer_number});
  auto dataset = begin(RecordType::enter, number, meta, std::move(files->shared_state), invitation.shared_state);
  if (!dataset) return std::move(dataset).error().with("join");
  slot.keep();
  (*dataset)->share(std::move(files->slots), writer_number, invitation.writers);
  (*dataset)->add_stall(journal::monotonic_ns() - begun);
  return std::unique_ptr<SharedDataset>(std::move(dataset).value());
}

/// This process becomes that writer; `number` is the dataset's in its journal.
void ProcessSession::take_slot(WriterSlot& slot, std::uint32_t number) const noexcept {
  slot.number = number;
  slot.pid = static_cast<std::uint32_t>(::getpid());
  slot.journal.store(writer_->journal(), std::memory_order_release);
}

/// The node whose server writes the next dataset, plus 1; 0: this one, and no other has to do with
/// it. Nodes for output take turns. Where there are none, a dataset of one process stays on its
/// node, and all nodes take turns with shared ones.
std::uint32_t ProcessSession::owner_of_next(const std::string& path, bool shared) const {
  const auto& c = stage_.control();
  if (c.nodes < 2) return 0;
  auto turn = datasets_begun_ + static_cast<std::uint32_t>(std::max<std::int64_t>(0, rank_from_environment()));
  const auto name = base_name(path);
  const auto whole = shared || !rules_.of(path).joins_tiles() ? std::string() : whole_name(name);
  if (!whole.empty()) {
    // Tiles that become one file have one owner. Every rank finds it by the file's name.
    const auto hash = std::hash<std::string>()(path.substr(0, path.size() - name.size()) + whole);
    const auto among = c.io_nodes > 0 ? c.io_nodes : c.nodes;
    return c.nodes - among + static_cast<std::uint32_t>(hash % among) + 1;
  }
  if (!shared && c.io_nodes == 0) return 0;
  if (c.io_nodes > 0) return c.nodes - c.io_nodes + turn % c.io_nodes + 1;
  return (c.node + turn) % c.nodes + 1;
}

}  // namespace advectio::capture
