#include "workflow/workflow.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "platform/files.h"
#include "workflow/members.h"
#include "workflow/versions.h"

namespace advectio::workflow {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr auto look_again = milliseconds(1), look_again_most = milliseconds(20);
constexpr auto members_again = milliseconds(200);
constexpr auto say_after = std::chrono::seconds(2);
constexpr std::uint64_t clock_tick_ns = 20'000'000;  // of the times of files, and more
constexpr int links_most = 40;                       // as the system follows
constexpr const char* own_file = ".advectio-";       // begins the names of files that we put beside those of programs
constexpr int waits_in_vain = 16;                    // so much shorter is the second wait for a name

bool is_named(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&name](const auto& p) { return ::fnmatch(p.c_str(), name.c_str(), 0) == 0; });
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : " or ") + name;
  return out;
}

/// Nanoseconds since 1970, another number at each call.
std::uint64_t now_ns() {
  static std::atomic<std::uint64_t> latest{0};
  const auto now = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
  auto before = latest.load();
  while (!latest.compare_exchange_weak(before, std::max(now, before + 1))) {
  }
  return std::max(now, before + 1);
}

std::string text_of(milliseconds time) {
  const auto ms = time.count();
  return ms % 60000 == 0 && ms > 0 ? std::to_string(ms / 60000) + " min"
         : ms % 1000 == 0          ? std::to_string(ms / 1000) + " s"
                                   : std::to_string(ms) + " ms";
}

}  // namespace

std::string resolved(const std::string& path) {
  char here[PATH_MAX];
  std::string whole = path;
  if (whole.empty() || whole[0] != '/') {
    if (::getcwd(here, sizeof here) == nullptr) return path;
    whole = std::string(here) + "/" + path;
  }
  const auto slash = whole.rfind('/');
  const auto directory = slash == 0 ? std::string("/") : whole.substr(0, slash);
  if (::realpath(directory.c_str(), here) == nullptr) return fs::path(whole).lexically_normal().string();
  const std::string real = here;
  return (real == "/" ? "" : real) + whole.substr(slash);
}

std::string name_for_programs(const std::string& memory, const std::string& path) {
  const auto files = memory + "/files/";
  if (memory.empty() || !path.starts_with(files)) return path;
  const auto slash = path.rfind('/');
  return path.substr(files.size() - 1, slash - files.size() + 1);
}

std::string Settings::to_lines() const {
  std::string out = "workflow " + memory + "\nworkflow-directory " + directory + "\nmember " + name + ' ' + entry +
                    "\npatience " + std::to_string(wait_max.count()) + ' ' + std::to_string(restart_max.count()) + '\n';
  for (const auto& rule : rules) out += to_line(rule) + '\n';
  return out;
}

bool Settings::take_line(const std::string& line) {
  const auto after = [&line](std::string_view key) -> std::optional<std::string> {
    if (!line.starts_with(key)) return std::nullopt;
    return line.substr(key.size());
  };
  if (auto text = after("workflow ")) {
    memory = *text;
  } else if (auto named = after("workflow-directory ")) {
    directory = *named;
  } else if (auto member = after("member ")) {
    name = member->substr(0, member->find(' '));
    entry = member->substr(member->find(' ') + 1);
  } else if (auto patience = after("patience ")) {
    char* end = nullptr;
    wait_max = milliseconds(std::strtoll(patience->c_str(), &end, 10));
    restart_max = milliseconds(std::strtoll(end, nullptr, 10));
  } else if (auto rule = couple_rule_of_line(line)) {
    rules.push_back(std::move(*rule));
  } else {
    return false;
  }
  return true;
}

bool Workflow::holds(const std::string& path) const {
  return path.starts_with(settings_.memory + "/");
}

std::optional<Coupled> Workflow::of(const std::string& path) const {
  auto found = of_name(path);
  char target[PATH_MAX];
  std::string at = path;
  for (int links = 0; links < links_most; ++links) {
    const auto bytes = ::readlink(at.c_str(), target, sizeof target);
    if (bytes <= 0) break;
    const std::string to(target, static_cast<std::size_t>(bytes));
    at = to[0] == '/' ? to : at.substr(0, at.rfind('/') + 1) + to;
    if (auto file = of_name(at)) found = std::move(file);
  }
  return found;
}

std::optional<Coupled> Workflow::of_name(const std::string& path) const {
  if (path.empty() || holds(path)) return std::nullopt;
  // Most names of a process are not coupled: a look at the name alone, where the pattern is one of names.
  const auto by_name = [](const CoupleRule& rule) { return rule.match.find('/') == std::string::npos; };
  const auto base = path.substr(path.rfind('/') + 1);
  if (base.empty() || base.starts_with(own_file)) return std::nullopt;
  std::vector<std::string> others;
  Coupled file;
  for (const auto& rule : settings_.rules) {
    if (by_name(rule) && !couples(rule, base)) continue;
    if (file.path.empty()) file.path = resolved(path);
    const auto captures = couples(rule, file.path);
    if (!captures) continue;
    if (file.rule == nullptr) file.rule = &rule;
    const auto from = filled_in(rule.from, *captures);
    const auto to = filled_in(rule.to, *captures);
    const bool reads = is_named(to, settings_.name);
    file.to.insert(file.to.end(), to.begin(), to.end());
    file.writes = file.writes || is_named(from, settings_.name);
    file.reads = file.reads || reads;
    if (reads) file.from.insert(file.from.end(), from.begin(), from.end());
    if (!reads && !file.reads) others = from;
  }
  if (!file.writes && !file.reads) return std::nullopt;
  if (!file.reads) file.from = others;
  file.directory = settings_.memory + "/files" + file.path;
  return file;
}

std::string Workflow::name_for_programs(const std::string& path) const {
  return workflow::name_for_programs(settings_.memory, path);
}

std::string Workflow::name_for(const char* kind) const {
  return std::string(kind) + "." + settings_.entry + "." + std::to_string(::getpid()) + "." +
         std::to_string(count_.fetch_add(1));
}

/// Why the file does not come. `died`: nobody lives who could write it, and somebody has not ended well.
std::string Workflow::find_fault(const Coupled& file, bool& died) const {
  const auto members = members_in(settings_.memory);
  const Member* alive = nullptr;
  const Member* last = nullptr;
  std::string others;
  for (const auto& member : members) {
    if (!is_named(file.from, member.name)) {
      if (member.alive && member.name != settings_.name && others.find(member.name) == std::string::npos)
        others += (others.empty() ? "" : ", ") + member.name;
      continue;
    }
    if (member.alive && !member.ended) alive = &member;
    // Of several runs of a program the latest counts.
    if (last == nullptr || member.started >= last->started) last = &member;
  }
  died = alive == nullptr && last != nullptr && (!last->ended || last->code != 0);
  if (alive == nullptr && last == nullptr)
    return joined(file.from) + " has not come to the workflow " + settings_.directory +
           (others.empty() ? ", nor has any other program" : " (there are: " + others + ")");
  if (alive == nullptr) {
    const auto how =
        !last->ended ? std::string(" has died") : " has ended (exit code " + std::to_string(last->code) + ")";
    return last->name + how + " without having completed it";
  }
  if (auto trouble = read_file(system_files(), file.directory + "/trouble"); trouble && !trouble->empty())
    return alive->name +
           " cannot write it: " + std::string(reinterpret_cast<const char*>(trouble->data()), trouble->size());
  for (const auto& wait : waits_in(settings_.memory))
    if (wait.member == alive->name)
      return alive->name + " runs, and itself waits for " + wait.path + " from " + joined(wait.programs);
  return alive->name + " runs, and has not completed it";
}

void Workflow::keep(const Opened& opened) {
  const std::lock_guard guard(mutex_);
  if (!opened.publish.empty()) open_here_.insert(opened.publish);
}

void Workflow::forget(const Opened& opened) {
  const std::lock_guard guard(mutex_);
  open_here_.erase(opened.publish);
}

void Workflow::close_for_server(const Opened& opened) {
  if (opened.publish.empty()) return;
  const auto mark = closed_mark(opened.publish);
  (void)replace_file(system_files(), mark, {});
  forget(opened);
  // It may have been published before the mark was there.
  struct stat st {};
  if (::lstat(opened.publish.c_str(), &st) != 0) (void)::unlink(mark.c_str());
}

void Workflow::keep_from_server(Opened& opened) {
  const auto kept = opened.publish + handed_over;
  if (::rename(opened.publish.c_str(), kept.c_str()) != 0) return;
  forget(opened);
  opened.publish = kept;
  keep(opened);
}

/// A live program writes it, and this process may wait for that. It may not wait while its own program has the file
/// open: ranks wait for each other, and this process may have it open by the other of our libraries.
bool Workflow::is_written(const Coupled& file, const Versions& there, const std::string& entry) {
  {
    const std::lock_guard guard(mutex_);
    if (open_here_.contains(file.directory + "/" + entry)) return false;
  }
  const auto maker = maker_of(entry);
  if (!maker || !is_alive(settings_.memory, maker->member)) return false;
  if (maker->member != settings_.entry || there.is_closed(entry)) return true;
  const auto pending = Pending::of(entry);
  return pending && pending->kind == Pending::Kind::moved;
}

/// A version of another node that a process of this one wants to read. The node's server fetches it: then it is a file,
/// and no link any more. Or it says why it cannot.
class Workflow::Wanted {
 public:
  Wanted(const std::string& directory, const std::string& name, std::string version)
      : entry_(directory + "/wanted." + name), refused_(directory + "/refused." + name), version_(std::move(version)) {
    (void)!::symlink(version_.c_str(), entry_.c_str());
  }
  ~Wanted() {
    (void)::unlink(entry_.c_str());
    (void)::unlink(refused_.c_str());
  }
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;
  [[nodiscard]] const std::string& version() const { return version_; }
  /// "ERRNO text"; empty: it has said nothing.
  [[nodiscard]] std::string refusal() const {
    const auto text = read_file(system_files(), refused_);
    return text ? std::string(reinterpret_cast<const char*>(text->data()), text->size()) : std::string();
  }

 private:
  const std::string entry_, refused_, version_;
};

std::optional<Error> Workflow::why_not_fetched(const Wanted& wanted, steady_clock::time_point now,
                                               steady_clock::time_point& served_at) const {
  if (const auto text = wanted.refusal(); !text.empty()) {
    const auto blank = text.find(' ');
    const int sys = static_cast<int>(std::strtol(text.c_str(), nullptr, 10));
    return Error{sys == ENOSPC ? Code::full : Code::gone, blank == std::string::npos ? text : text.substr(blank + 1),
                 sys};
  }
  if (is_held(settings_.memory + node_server)) served_at = now;
  if (now - served_at < settings_.restart_max) return std::nullopt;
  return Error{Code::gone, "the server of the workflow on this node has died, and no other has come", EOWNERDEAD};
}

Result<std::string> Workflow::wait(const Coupled& file, For use, const Say& say) {
  const auto begin = steady_clock::now();
  auto patience = settings_.wait_max;
  {
    const std::lock_guard guard(mutex_);
    if (in_vain_.contains(file.path)) patience /= waits_in_vain;
  }
  std::optional<Wait> told;
  bool was_dead = false;
  auto died_at = begin, members_at = begin;
  bool has_said = false;
  std::optional<Wanted> wanted;
  auto served_at = begin;
  for (auto pause = look_again;; pause = std::min(2 * pause, look_again_most)) {
    const auto there = settled(file, say);
    // A program finds what it is writing without a library, as it would on the disk.
    if (use != For::reading || !file.reads)
      if (auto own = open_by_own(file, there, use == For::looking)) return *own;
    const bool is_written = std::any_of(there.writing.begin(), there.writing.end(),
                                        [&](const auto& name) { return this->is_written(file, there, name); });
    // A process that has closed a version gets that version, also where other programs read single frames.
    const bool closed_here = std::any_of(there.writing.begin(), there.writing.end(), [&](const auto& name) {
      const auto maker = maker_of(name);
      return maker && maker->member == settings_.entry && maker->pid == ::getpid() &&
             this->is_written(file, there, name);
    });
    // As on the disk, what this program has closed is there.
    const bool closed_by_own = std::any_of(there.writing.begin(), there.writing.end(), [&](const auto& name) {
      return is_own(name) && this->is_written(file, there, name);
    });
    const bool may_read_on =
        (use == For::looking && !closed_by_own) || (file.rule->when == CoupleRule::When::sync && !closed_here);
    const bool is_fresh = use == For::looking || use == For::opening || !file.reads ||
                          is_named(file.from, there.writer) || (use == For::writing && there.writer == settings_.name);
    if (there.newest > 0 && is_fresh && (!is_written || may_read_on)) {
      const auto version = file.directory + "/" + there.name;
      if (!elsewhere(version)) return version;
      if (!wanted || wanted->version() != there.name) {
        wanted.emplace(file.directory, name_for("w").substr(2), there.name);
        pause = look_again;
        served_at = steady_clock::now();
      }
      // How long that may take is the node server's matter: as long as bytes come.
      if (auto why = why_not_fetched(*wanted, steady_clock::now(), served_at))
        return std::move(*why).with(settings_.name + ": wait for " + file.path + " from " + there.writer +
                                    ": its version " + std::to_string(there.newest));
      std::this_thread::sleep_for(pause);
      continue;
    }
    // Who writes it, too, may look whether it is there before it does.
    if (there.newest == 0 && (use == For::looking ? file.writes && !closed_by_own : !is_written && !file.reads))
      return Error{Code::not_found, file.path + " has not been written yet", ENOENT};
    const auto now = steady_clock::now();
    if (!told) told.emplace(settings_.memory, name_for("w").substr(2), file.path, file.from);
    const auto what = "wait for " + file.path + " from " + joined(file.from);
    if (now >= members_at) {
      members_at = now + members_again;
      bool died = false;
      const auto why = find_fault(file, died);
      if (died && !std::exchange(was_dead, true)) died_at = now;
      was_dead = died;
      if (died && now - died_at >= settings_.restart_max)
        return Error{Code::gone, settings_.name + ": " + what + ": " + why, EOWNERDEAD};
      if (now - begin >= patience) {
        const std::lock_guard guard(mutex_);
        in_vain_.insert(file.path);
        return Error{Code::timeout,
                     settings_.name + ": " + what + ": not there after " + text_of(settings_.wait_max) + ": " + why,
                     ETIMEDOUT};
      }
      if (!has_said && now - begin >= say_after) {
        has_said = true;
        say(settings_.name + " waits for " + file.path + " from " + joined(file.from) + ": " + why);
      }
    }
    std::this_thread::sleep_for(pause);
  }
}

void Workflow::note_read(const Coupled& file, const std::string& version) const {
  if (file.reads)
    (void)replace_file(system_files(), file.directory + "/read." + settings_.name, std::as_bytes(std::span(version)));
}

Result<void> Workflow::wait_on_disk(const Coupled& file, const Say& say) {
  const auto there = Versions::in(file.directory);
  const bool writes_now = std::any_of(there.writing.begin(), there.writing.end(), [&](const auto& name) {
    const auto pending = Pending::of(name);
    return is_own(name) && !there.is_closed(name) && !(pending && pending->kind == Pending::Kind::moved);
  });
  auto version = wait(file, writes_now ? For::opening : For::reading, say);
  if (!version) return std::move(version).error();
  note_read(file, *version);
  return {};
}

Result<Opened> Workflow::held(const Coupled& file, For use, const Say& say) {
  for (;;) {
    auto version = wait(file, use, say);
    if (!version) return std::move(version).error();
    const auto name = file.directory + "/" + name_for("open");
    if (!holds(*version)) return Opened{*version, {}};
    auto held = hold(*version, name);
    if (!held) {
      if (held.error().code == Code::not_found) continue;  // replaced, or removed, since
      return std::move(held).error();
    }
    note_read(file, *version);
    return Opened{*held, *held == name ? name : std::string()};
  }
}

Result<Opened> Workflow::open_to_read(const Coupled& file, const Say& say) {
  return held(file, For::reading, say);
}

/// The file on the disk holds that version, in the storage that its program has asked for. Waits until it is complete.
bool Workflow::has_disk(const Coupled& file, const std::string& version) const {
  const auto begin = steady_clock::now();
  const auto writer = Versions::in(file.directory).writer;
  for (auto pause = look_again;; pause = std::min(2 * pause, look_again_most)) {
    const auto state = on_disk(file.directory, version, file.path);
    if (state != OnDisk::not_yet) return state == OnDisk::same;
    const auto all = members_in(settings_.memory);
    const bool is_written =
        std::any_of(all.begin(), all.end(), [&](const auto& m) { return m.alive && m.name == writer; });
    if (!is_written || steady_clock::now() - begin >= settings_.wait_max) return false;
    std::this_thread::sleep_for(pause);
  }
}

/// A copy of it, which takes its place when it is closed.
Result<Opened> Workflow::copy_of_disk(const Coupled& file, const std::string& next) {
  const auto slash = file.path.rfind('/') + 1;
  const auto created = now_ns();
  const auto copy = file.path.substr(0, slash) + own_file + file.path.substr(slash) + '.' + std::to_string(created);
  auto copied = copy_file(file.path, copy);
  if (copied) copied = copy_attributes(file.path, copy);
  if (copied && ::symlink(copy.c_str(), next.c_str()) != 0) copied = system_error("link " + next, errno);
  if (!copied) {
    (void)::unlink(copy.c_str());
    return std::move(copied).error();
  }
  const Opened opened{copy, {}, next, file.path, true, created};
  keep(opened);
  return opened;
}

Result<Opened> Workflow::open_to_write(const Coupled& file, const Say& say) {
  if (!file.writes) return may_not_write(file);
  auto now = held(file, For::writing, say);
  if (!now) return now;
  ADVECTIO_TRY(begin(file));
  auto next = file.directory + "/" + name_for("writing");
  if (now->release.empty()) {  // a file on the disk is overwritten where it is
    if (::symlink(now->path.c_str(), next.c_str()) != 0) return system_error("link " + next, errno);
    const Opened opened{now->path, {}, next};
    keep(opened);
    return opened;
  }
  const bool on_disk = file.rule->mode == CoupleRule::Mode::memory_and_file;
  if (on_disk && has_disk(file, now->path)) {
    (void)::unlink(now->release.c_str());
    return copy_of_disk(file, next);
  }
  auto copied = copy_file(now->path, next);
  (void)::unlink(now->release.c_str());
  if (!copied) {
    (void)::unlink(next.c_str());
    return std::move(copied).error();
  }
  const Opened opened{next, {}, next, on_disk ? file.path : std::string()};
  keep(opened);
  return opened;
}

/// Who may read what is written from now on, for whoever cleans up in the end.
Result<void> Workflow::begin(const Coupled& file) const {
  ADVECTIO_TRY(system_files().make_directory(file.directory, 0700));
  std::string text(name_of(file.rule->keep));
  for (const auto& name : file.to) text += '\n' + name;
  return replace_file(system_files(), file.directory + "/readers", std::as_bytes(std::span(text)));
}

/// A program that is not in `from`.
Error Workflow::may_not_write(const Coupled& file) const {
  return Error{Code::permission,
               file.path + " is coupled, and " + settings_.name + " is not among those who write it (from: " +
                   joined(file.from) + "), so it cannot be written or replaced; write to another name, or add " +
                   settings_.name + " to from",
               EACCES};
}

Result<Opened> Workflow::create(const Coupled& file, bool no_clobber) {
  struct stat st {};
  const auto parent = file.path.substr(0, std::max<std::size_t>(file.path.rfind('/'), 1));
  if (::stat(parent.c_str(), &st) != 0) return system_error("create " + file.path, errno);
  ADVECTIO_TRY(begin(file));
  const auto there = settled(file, {});
  const bool moved = std::any_of(there.writing.begin(), there.writing.end(),
                                 [&](const auto& name) { return is_own(name) && Pending::of(name); });
  if (moved) ADVECTIO_TRY(await_own(file));  // its version comes before this one
  if (no_clobber && file.rule->mode == CoupleRule::Mode::memory && Versions::in(file.directory).newest > 0)
    return Error{Code::exists, file.path + " is there already", EEXIST};
  const auto created = now_ns();
  auto next =
      file.directory + "/writing." + settings_.entry + '.' + std::to_string(::getpid()) + '.' + std::to_string(created);
  const bool in_memory = file.rule->mode == CoupleRule::Mode::memory;
  if (!in_memory && ::symlink(file.path.c_str(), next.c_str()) != 0) return system_error("link " + next, errno);
  // The next version is written to the same file on the disk, and readers may still have this one open.
  const bool copy_in = file.rule->mode == CoupleRule::Mode::memory_and_file;
  const Opened opened{in_memory ? next : file.path, {}, next, {}, copy_in, created};
  keep(opened);
  return opened;
}

bool Workflow::is_own(const std::string& entry) const {
  const auto maker = maker_of(entry);
  return maker && maker->member == settings_.entry && entry.find(of_node) == std::string::npos;
}

namespace {

Becomes what_becomes(const Coupled& file) {
  using Mode = CoupleRule::Mode;
  return file.rule->mode == Mode::file     ? Becomes::link
         : file.rule->mode == Mode::memory ? Becomes::memory
                                           : Becomes::copy;
}

}  // namespace

void Workflow::settle_or_tell(const Coupled& file, const std::string& entry, bool& busy, const Say& say) const {
  const auto maker = maker_of(entry.substr(entry.rfind('/') + 1));
  if (!maker) return;
  const auto done = settle(entry, what_becomes(file), maker->member.substr(0, maker->member.find(',')));
  busy = done ? *done == Settled::busy : !say;
  if (done || !say) return;
  const auto& why = done.error().message;
  (void)replace_file(system_files(), file.directory + "/trouble", std::as_bytes(std::span(why)));
  (void)::unlink(entry.c_str());
  say(file.path + ": no other program gets what was written: " + why);
}

Versions Workflow::settled(const Coupled& file, const Say& say) {
  auto there = Versions::in(file.directory);
  bool any = false;
  for (const auto& name : there.writing) {
    const auto pending = Pending::of(name);
    const auto maker = maker_of(name);
    if (!pending || pending->kind != Pending::Kind::plain || !is_alive(settings_.memory, maker->member)) continue;
    bool busy = false;
    settle_or_tell(file, file.directory + "/" + name, busy, say);
    any = any || !busy;
  }
  return any ? Versions::in(file.directory) : there;
}

/// The path of a file that this program, in some process, has open for writing without a library; `by_library`: or with
/// one.
std::optional<std::string> Workflow::open_by_own(const Coupled& file, const Versions& there, bool by_library) const {
  for (const auto& name : there.writing) {
    if (!is_own(name)) continue;
    const auto pending = Pending::of(name);
    if (pending ? pending->kind == Pending::Kind::moved : !by_library || there.is_closed(name)) continue;
    struct stat st {};
    const auto entry = file.directory + "/" + name;
    if (::lstat(entry.c_str(), &st) == 0) return S_ISLNK(st.st_mode) ? file.path : entry;
  }
  return std::nullopt;
}

bool Workflow::is_open_by_library(const Coupled& file) const {
  const auto there = Versions::in(file.directory);
  return std::any_of(there.writing.begin(), there.writing.end(),
                     [&](const auto& name) { return is_own(name) && !Pending::of(name) && !there.is_closed(name); });
}

void Workflow::forget_own(const Coupled& file) const {
  for (const auto& name : Versions::in(file.directory).writing)
    if (is_own(name) && Pending::of(name)) (void)::unlink((file.directory + "/" + name).c_str());
}

/// The server of this run looks at it from time to time.
Result<void> Workflow::note_pending(const std::string& entry) const {
  const auto all = settings_.memory + "/pending";
  ADVECTIO_TRY(system_files().make_directory(all, 0700));
  const auto mark = all + "/" + name_for("w").substr(2);
  if (::symlink(entry.c_str(), mark.c_str()) != 0) return system_error("link " + mark, errno);
  return {};
}

Result<void> Workflow::await_own(const Coupled& file) {
  const auto begin = steady_clock::now();
  for (auto pause = look_again;; pause = std::min(2 * pause, look_again_most)) {
    const auto there = settled(file, {});
    const bool waits = std::any_of(there.writing.begin(), there.writing.end(), [&](const auto& name) {
      return is_own(name) && this->is_written(file, there, name);
    });
    if (!waits) return {};
    if (steady_clock::now() - begin >= settings_.wait_max)
      return Error{Code::timeout,
                   file.path + ": its version before this one is not complete after " + text_of(settings_.wait_max),
                   ETIMEDOUT};
    std::this_thread::sleep_for(pause);
  }
}

Result<Workflow::PlainFile> Workflow::open_plainly(const Coupled& file, const PlainOpen& how, const Say& say) {
  if (!file.writes) {
    const auto there = Versions::in(file.directory);
    struct stat st {};
    const bool is_own_file = file.rule->mode == CoupleRule::Mode::memory && ::stat(file.path.c_str(), &st) == 0;
    const bool makes = how.truncates || how.exclusive || is_own_file;
    if (makes && there.newest == 0 && there.writing.empty()) return PlainFile{};
    return may_not_write(file);
  }
  ADVECTIO_TRY(await_own(file));
  if (!how.creates && !how.truncates) {
    auto there = wait(file, For::writing, say);
    if (!there && there.error().code != Code::not_found) return std::move(there).error();
  }
  struct stat st {};
  const auto parent = file.path.substr(0, std::max<std::size_t>(file.path.rfind('/'), 1));
  if (::stat(parent.c_str(), &st) != 0) return system_error("create " + file.path, errno);
  ADVECTIO_TRY(begin(file));
  return own_pending(file, how, Turn(file.directory));
}

/// Within its turn.
Result<Workflow::PlainFile> Workflow::own_pending(const Coupled& file, const PlainOpen& how, Turn turn) const {
  const bool in_memory = file.rule->mode == CoupleRule::Mode::memory;
  const auto there = Versions::in(file.directory);
  for (const auto& name : there.writing) {
    if (!is_own(name)) continue;
    const auto pending = Pending::of(name);
    // A library of this program writes the file on the disk, by calls that come here, too.
    if (!pending && !in_memory) return PlainFile{file.path, std::nullopt};
    if (!pending) continue;
    if (in_memory && how.exclusive) return Error{Code::exists, file.path + " is there already", EEXIST};
    return PlainFile{in_memory ? file.directory + "/" + name : file.path, std::move(turn)};
  }
  // Before the first version a file may be on the disk, as from an earlier run.
  const bool has_before = there.newest > 0 || (in_memory && ::access(file.path.c_str(), F_OK) == 0);
  const auto before = there.newest > 0 ? file.directory + "/" + there.name : file.path;
  if (in_memory && how.exclusive && has_before) return Error{Code::exists, file.path + " is there already", EEXIST};
  if (in_memory && !has_before && !how.creates)
    return Error{Code::not_found, file.path + " has not been written yet", ENOENT};
  const bool keeps = !how.truncates && (!in_memory || has_before);
  std::string copy;
  if (in_memory && has_before) {
    copy = temporary(file.directory);
    auto copied = keeps ? copy_file(before, copy) : replace_file(system_files(), copy, {});
    if (copied) copied = copy_attributes(before, copy);
    if (!copied) {
      (void)::unlink(copy.c_str());
      return std::move(copied).error();
    }
  }
  const auto changed = changed_ns(in_memory ? copy : file.path);
  // A change within a tick of the system's clock does not show in the time. In memory the bytes are compared.
  const bool shows = in_memory || changed + clock_tick_ns < now_ns();
  const Pending pending{Pending::Kind::plain, keeps && shows ? changed : 0};
  const auto entry = file.directory + "/" + name_for("writing") + pending.suffix();
  ADVECTIO_TRY(note_pending(entry));
  if (!copy.empty() && ::rename(copy.c_str(), entry.c_str()) != 0) return system_error("begin " + entry, errno);
  if (!in_memory && ::symlink(file.path.c_str(), entry.c_str()) != 0) return system_error("link " + entry, errno);
  return PlainFile{in_memory ? entry : file.path, std::move(turn)};
}

Result<void> Workflow::move(const std::string& version, const Coupled& to) {
  ADVECTIO_TRY(begin(to));
  forget_own(to);
  const auto entry = to.directory + "/" + name_for("writing");
  if (::rename(version.c_str(), entry.c_str()) != 0) return system_error("move " + version, errno);
  auto done = publish(entry, settings_.name);
  return done ? Result<void>{} : std::move(done).error();
}

Result<void> Workflow::has_come(const Coupled& to, Pending::Kind kind) {
  ADVECTIO_TRY(begin(to));
  forget_own(to);
  const auto entry = to.directory + "/" + name_for("writing") + Pending{kind, 0}.suffix();
  if (::symlink(to.path.c_str(), entry.c_str()) != 0) return system_error("link " + entry, errno);
  ADVECTIO_TRY(note_pending(entry));
  (void)settled(to, {});
  return {};
}

void Workflow::look_at_moved(const Coupled& file, const std::function<bool(const std::string&)>& is_open) {
  for (const auto& name : Versions::in(file.directory).writing) {
    const auto pending = is_own(name) ? Pending::of(name) : std::nullopt;
    if (!pending || pending->kind != Pending::Kind::moved_open || is_open(file.path)) continue;
    const auto entry = file.directory + "/" + name;
    const auto closed = file.directory + "/" + name_for("writing") + Pending{Pending::Kind::moved, 0}.suffix();
    if (note_pending(closed)) (void)::rename(entry.c_str(), closed.c_str());
  }
}

std::vector<std::string> Workflow::settle_own(const std::function<bool(const std::string&)>& is_in_flight,
                                              const Say& say) {
  std::vector<std::string> busy_ones;
  std::error_code failed;
  std::vector<fs::path> marks;
  for (auto mark = fs::directory_iterator(settings_.memory + "/pending", failed);
       !failed && mark != fs::directory_iterator(); mark.increment(failed))
    if (mark->path().filename().string().starts_with(settings_.entry + ".")) marks.push_back(mark->path());
  for (const auto& mark : marks) {
    std::error_code gone;
    const auto entry = fs::read_symlink(mark, gone).string();
    const auto file = gone ? std::nullopt : of_name(name_for_programs(entry));
    bool busy = false;
    if (file) {
      const auto pending = Pending::of(entry.substr(entry.rfind('/') + 1));
      struct stat st {};
      busy = pending && pending->kind != Pending::Kind::plain && ::lstat(entry.c_str(), &st) == 0 &&
             is_in_flight(file->path);
      if (!busy) settle_or_tell(*file, entry, busy, say);
    }
    if (busy)
      busy_ones.push_back(file->path);
    else
      (void)::unlink(mark.c_str());
  }
  return busy_ones;
}

bool Workflow::remove(const Coupled& file) {
  forget_own(file);
  const auto there = Versions::in(file.directory);
  return there.newest > 0 && ::unlink((file.directory + "/" + there.name).c_str()) == 0;
}

Result<void> Workflow::close(const Opened& opened, bool complete) {
  if (!opened.release.empty()) (void)::unlink(opened.release.c_str());
  if (opened.publish.empty()) return {};
  forget(opened);
  auto done = complete ? bring(opened) : Result<void>{};
  if (!complete || !done) {
    (void)::unlink(opened.publish.c_str());  // else readers wait for it
    if (opened.copy_in && !opened.disk.empty()) (void)::unlink(opened.path.c_str());
    return done;
  }
  auto published = publish(opened.publish, settings_.name);
  return published ? Result<void>{} : std::move(published).error();
}

/// Takes a closed file to the disk and to memory.
Result<void> Workflow::bring(const Opened& opened) {
  if (!opened.copy_in) return opened.disk.empty() ? Result<void>{} : replace_by_copy(opened.publish, opened.disk);
  const auto& disk = opened.disk.empty() ? opened.path : opened.disk;
  if (disk != opened.path && ::rename(opened.path.c_str(), disk.c_str()) != 0)
    return system_error("replace " + disk, errno);
  ADVECTIO_TRY(replace_by_copy(disk, opened.publish));
  ADVECTIO_TRY(note_made(opened.publish, opened.created_ns));
  return note_disk(opened.publish.substr(0, opened.publish.rfind('/')), disk, opened.created_ns);
}

}  // namespace advectio::workflow
