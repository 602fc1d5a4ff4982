// What tests of the server need: programs in processes of their own, and a sink that keeps its files in memory.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "capture/dataset.h"
#include "journal/scratch.h"
#include "journal/stage.h"
#include "server/server.h"

namespace advectio {

using nlohmann::json;

/// What the sinks have written, and what they shall fail at.
struct Store {
  struct FileImage {
    /// First value of each row put: by step along the unlimited dimension, start along the next (<< 32) and variable
    /// (<< 56).
    std::map<std::uint64_t, float> committed;
    int commits = 0, durable = 0, declared = 0;
    std::vector<std::size_t> rows;  ///< of each commit
    bool closed = false;
    std::vector<std::uint64_t> begun;     ///< numbers of the frames, in the order in which they were begun
    std::vector<std::uint64_t> of_parts;  ///< the frame under way, for each part
  };
  std::mutex mutex;
  std::map<std::string, FileImage> files;  ///< by the name in the output directory
  std::string fail_commit_of;              ///< commits of this file fail with ENOSPC
  std::string fail_close_of;               ///< and what is done at the close of this one
  std::size_t rows_max = SIZE_MAX;         ///< and commits of more rows
  std::atomic<bool> commits_stand{false};  ///< none returns
  std::atomic<bool> is_standing{false};    ///< the server is in one
  std::vector<std::string> order;          ///< of all commits: of which file
  std::set<std::string> encoding;          ///< these files: sealed, and their threads have not ended (`advance`)
  std::set<std::string> hanging;           ///< the disk of these files: no commit returns
  std::string fail_advance_of;             ///< a thread of that one has failed
  [[nodiscard]] bool is_encoding(const std::string& name) {
    const std::lock_guard guard(mutex);
    return encoding.contains(name);
  }
  void encode(std::set<std::string> names) {
    const std::lock_guard guard(mutex);
    encoding = std::move(names);
  }
  void hang(std::set<std::string> names) {
    const std::lock_guard guard(mutex);
    hanging = std::move(names);
  }
  [[nodiscard]] bool hangs(const std::string& name) {
    const std::lock_guard guard(mutex);
    asked[name] += hanging.contains(name) ? 1 : 0;
    return hanging.contains(name);
  }
  std::map<std::string, int> asked;      ///< by file: how often it was asked while it encodes or hangs
  std::atomic<bool> disk_stands{false};  ///< nothing becomes durable
  std::atomic<bool> disk_fails{false};
  std::atomic<bool> disk_refuses{false};  ///< no sink can be opened, and an abandoned one leaves what it has
  std::uint64_t row = UINT64_MAX;         ///< longer ones are several: blocks of several writers may be joined
  std::atomic<int> refusals{0};           ///< how often it has refused to open one
  bool files_grow = false;                ///< by a byte with each commit
  bool refuses_others = false;            ///< sinks cannot go on with files of others
  bool checkpoints = true;                ///< sinks can commit in the midst of a frame
  void allow() {
    const std::lock_guard guard(mutex);
    fail_commit_of.clear();
    fail_close_of.clear();
  }
};

/// Like a real sink it has something beside its file until it is closed or abandoned, which its death leaves there.
class MemorySink final : public Sink {
 public:
  MemorySink(Store& store, const std::string& path, std::string name, bool resume)
      : store_(store), beside_(path + "-redo"), name_(std::move(name)) {
    ::close(::creat(beside_.c_str(), 0600));
    const std::lock_guard guard(store_.mutex);
    if (!resume) store_.files[name_] = {};
  }
  [[nodiscard]] Abilities abilities() const override {
    Abilities can;
    can.checkpoints = store_.checkpoints;
    return can;
  }
  Result<void> holds(const Schema&) override {
    if (store_.refuses_others) return Error{Code::unsupported, "the chunks are not ours", 0};
    return {};
  }
  Result<void> declare(const Schema&) override {
    const std::lock_guard guard(store_.mutex);
    ++store_.files[name_].declared;
    return {};
  }
  Result<void> begin(std::uint64_t frame) override {
    const std::lock_guard guard(store_.mutex);
    store_.files[name_].begun.push_back(frame);
    return {};
  }
  Result<void> ready(const std::shared_ptr<const Field>& field, const Part& part) override {
    {
      const std::lock_guard guard(store_.mutex);
      auto& file = store_.files[name_];
      if (!file.begun.empty()) file.of_parts.push_back(file.begun.back());
    }
    if (part.layout) return for_each_box(part, [&](const Part& box) { return ready(field, box); });
    const auto& box = part.box;
    const auto values = read(*field, part);
    written_ += values.size() * sizeof(float);
    const auto row = std::min(box.count[1], store_.row);
    for (std::uint64_t i = 0; i < box.count[0]; ++i)
      for (std::uint64_t k = 0; k < box.count[1]; k += row)
        pending_[box.start[0] + i + ((box.start[1] + k) << 32U) + (std::uint64_t{field->variable()} << 56U)] =
            values[i * box.count[1] + k];
    borrowed_.emplace_back(field, part);
    return {};
  }
  Result<bool> advance() override {
    const std::lock_guard guard(store_.mutex);
    if (name_ == store_.fail_advance_of) return system_error("append to " + name_, ENOSPC);
    if (!store_.encoding.contains(name_)) return true;
    ++store_.asked[name_];
    return false;
  }
  Result<void> checkpoint() override {
    if (!store_.checkpoints) return Error{Code::unsupported, "a commit in the midst of a frame", 0};
    return end();
  }
  Result<void> end() override {
    while (store_.commits_stand) {
      store_.is_standing = true;
      ::usleep(1000);
    }
    while (store_.hangs(name_)) ::usleep(1000);
    const std::lock_guard guard(store_.mutex);
    if (name_ == store_.fail_commit_of || pending_.size() > store_.rows_max)
      return system_error("append to " + name_, ENOSPC);
    look_at_borrowed();
    auto& f = store_.files[name_];
    for (const auto& [at, value] : pending_) f.committed[at] = value;
    f.rows.push_back(pending_.size());
    if (store_.order.empty() || store_.order.back() != name_) store_.order.push_back(name_);
    pending_.clear();
    borrowed_.clear();
    ++f.commits;
    if (store_.files_grow) std::ofstream(beside_.substr(0, beside_.size() - 5), std::ios::app) << '.';
    return {};
  }
  std::function<Result<void>()> make_durable() override {
    return [&store = store_, name = name_]() -> Result<void> {
      while (store.disk_stands) ::usleep(1000);
      if (store.disk_fails) return system_error("fdatasync " + name, EIO);
      const std::lock_guard guard(store.mutex);
      ++store.files[name].durable;
      return {};
    };
  }
  Result<void> close() override {
    const std::lock_guard guard(store_.mutex);
    if (name_ == store_.fail_close_of) return system_error("truncate " + name_, ENOSPC);
    store_.files[name_].closed = true;
    ::unlink(beside_.c_str());
    return {};
  }
  void abandon() noexcept override {
    look_at_borrowed();
    borrowed_.clear();
    pending_.clear();
    if (!store_.disk_refuses) ::unlink(beside_.c_str());
  }
  [[nodiscard]] SinkCounters counters() const override {
    SinkCounters c;
    c.bytes_out = written_;
    return c;
  }

 private:
  /// Real sinks, or their threads, read what they have been lent up to the commit.
  void look_at_borrowed() noexcept {
    for (const auto& [field, part] : borrowed_)
      if (const auto values = read(*field, part); !values.empty()) looked_at_ = values.front() + values.back();
  }
  static std::vector<float> read(const Field& field, const Part& part) {
    std::vector<float> values(part.box.volume());
    field.read(part, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  Store& store_;
  std::string beside_, name_;
  std::uint64_t written_ = 0;
  std::map<std::uint64_t, float> pending_;
  std::vector<std::pair<std::shared_ptr<const Field>, Part>> borrowed_;
  volatile float looked_at_ = 0;
};

inline Schema series(std::uint64_t width) {
  Schema s;
  s.dimensions = {{"Time", 0, true}, {"x", width, false}};
  Variable v;
  v.name = "T";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  v.contiguous = false;
  v.chunks = {1, width};
  s.variables = {v};
  return s;
}

/// The same as one of `tiles` tiles that WRF cuts along west_east.
inline Schema tile_of_series(std::uint64_t width, std::uint64_t tile, std::uint64_t tiles) {
  Schema s = series(width);
  s.dimensions[1].name = "west_east";
  const auto number = [&s](const std::string& name, std::uint64_t value) {
    Attribute a{name, DataType::int32, 1, {}, {}};
    Encoder(a.values).number(static_cast<std::int32_t>(value));
    s.attributes.push_back(std::move(a));
  };
  for (const auto* kind : {"_UNSTAG", "_STAG"}) {
    number(std::string("WEST-EAST_PATCH_START") + kind, tile * width + 1);
    number(std::string("WEST-EAST_PATCH_END") + kind, (tile + 1) * width);
  }
  number("WEST-EAST_GRID_DIMENSION", tiles * width + 1);
  return s;
}

/// A program in a process of its own. It is forked before the server's threads exist, and begins when told.
class Program {
 public:
  explicit Program(const std::string& run_dir, const std::function<int(Session&)>& body) {
    EXPECT_EQ(::pipe(go_), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      char c = 0;
      (void)!::read(go_[0], &c, 1);
      ::setenv("ADVECTIO_RUN", run_dir.c_str(), 1);
      auto* session = Session::current();
      ::_exit(session == nullptr ? 99 : body(*session));
    }
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(go_[0]);
    ::close(go_[1]);
  }
  void go() const { (void)!::write(go_[1], "x", 1); }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }

 private:
  int go_[2] = {-1, -1};
  pid_t pid_ = -1;
};

/// The sinks of a server under test, by the names of the files in the output directory.
inline SinkFactory sinks_of(Store& store) {
  return [&store](const SinkRequest& r) -> Result<std::unique_ptr<Sink>> {
    // ".NAME.advectio-…" is the second name of NAME, where it has one.
    auto name = r.path.substr(r.path.find_last_of('/') + 1);
    if (name.starts_with('.')) name = name.substr(1, name.find(".advectio-") - 1);
    if (store.disk_refuses) {
      ++store.refusals;
      return system_error("open " + name, EIO);
    }
    if (::access(r.path.c_str(), R_OK | W_OK) != 0) return system_error("open " + name, errno);
    return std::unique_ptr<Sink>(std::make_unique<MemorySink>(store, r.path, name, r.resume));
  };
}

/// Ask for the drain as `advectio run` does, and wait for its end. `taken`, if any, is called when the server has taken
/// the request. The final status.
inline json ask_for_the_drain(const std::string& run_dir, const std::string& what = "drain",
                              const std::function<void()>& taken = nullptr) {
  std::ifstream file(run_dir + "/secret");
  const std::string secret{std::istreambuf_iterator<char>(file), {}};
  const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", run_dir.c_str());
  // A connection's requests are taken in their order.
  auto ask = json{{"do", what}, {"secret", secret}}.dump() + '\n';
  if (taken) ask += json{{"do", "status"}, {"secret", secret}}.dump() + '\n';
  std::string text;
  const auto read_line = [&text, s] {
    char buffer[4096];
    for (ssize_t n = 0; text.find('\n') == std::string::npos && (n = ::read(s, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
  };
  if (::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::write(s, ask.data(), ask.size()) == static_cast<ssize_t>(ask.size())) {
    if (taken) {
      read_line();
      text.erase(0, text.find('\n') + 1);
      taken();
    }
    read_line();
  }
  ::close(s);
  return json::parse(text.substr(0, text.find('\n')));
}

/// Every dataset's shared state in a stage that no server has, with the stage and the shared state's name.
template <typename Change>
void change_pages(const std::string& run_dir, const Change& change) {
  const auto stage = journal::Stage::open(system_files(), run_dir);
  ASSERT_TRUE(stage.ok());
  const auto names = system_files().list(stage->datasets());
  ASSERT_TRUE(names.ok());
  for (const auto& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    auto shared_state = stage->open_state(name);
    ASSERT_TRUE(shared_state.ok());
    change(*stage, name, **shared_state);
  }
}

template <typename Condition>
bool eventually(Condition c) {
  for (int i = 0; i < 1500; ++i) {
    if (c()) return true;
    ::usleep(10'000);
  }
  return false;
}

/// How the processes of a parallel program find their dataset: the first tells the others its name.
class Meeting {
 public:
  explicit Meeting(std::uint32_t writers) : writers_(writers) {
    EXPECT_EQ(::pipe(pipe_), 0);
    EXPECT_EQ(::pipe(joined_), 0);
  }
  ~Meeting() {
    for (const int fd : {pipe_[0], pipe_[1], joined_[0], joined_[1]}) ::close(fd);
  }
  /// `there`: they open that file, and do not create it.
  std::unique_ptr<SharedDataset> meet(Session& session, const std::string& path, std::uint32_t writer,
                                      const FileToOpen* there = nullptr) const {
    struct {
      char shared_state[64], path[256], link[256];
      std::uint64_t journal, created_ns;
      std::uint32_t number, owner;
    } told{};
    char done = 0;
    if (writer == 0) {
      Invitation i;
      auto d = there != nullptr ? session.open_shared(*there, writers_, i)
                                : session.create_shared({path, FileFormat::netcdf4, false}, writers_, i);
      if (!d) return nullptr;
      std::snprintf(told.shared_state, sizeof told.shared_state, "%s", i.shared_state.c_str());
      std::snprintf(told.path, sizeof told.path, "%s", i.path.c_str());
      std::snprintf(told.link, sizeof told.link, "%s", i.link.c_str());
      told.journal = i.journal;
      told.created_ns = i.created_ns;
      told.number = i.number;
      told.owner = i.owner;
      for (std::uint32_t n = 1; n < writers_; ++n) (void)!::write(pipe_[1], &told, sizeof told);
      for (std::uint32_t n = 1; n < writers_; ++n) (void)!::read(joined_[0], &done, 1);
      return std::move(d).value();
    }
    (void)!::read(pipe_[0], &told, sizeof told);
    auto d = session.join({told.shared_state, told.path, told.link, FileFormat::netcdf4, told.journal, told.number,
                           writers_, told.owner, told.created_ns},
                          writer);
    (void)!::write(joined_[1], &done, 1);
    return d ? std::move(d).value() : nullptr;
  }

 private:
  std::uint32_t writers_;
  int pipe_[2] = {-1, -1}, joined_[2] = {-1, -1};
};

}  // namespace advectio
