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
constexpr int waits_in_vain = 16;  // so much shorter is the second wait for a name

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
  if (path.empty() || holds(path)) return std::nullopt;
  // Most names of a process are not coupled: a look at the name alone, where the pattern is one of names.
  const auto by_name = [](const CoupleRule& rule) { return rule.match.find('/') == std::string::npos; };
  const auto base = path.substr(path.rfind('/') + 1);
  if (base.empty()) return std::nullopt;
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
  return maker->member != settings_.entry || there.is_closed(entry);
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
    const auto there = Versions::in(file.directory);
    const bool is_written = std::any_of(there.writing.begin(), there.writing.end(),
                                        [&](const auto& name) { return this->is_written(file, there, name); });
    // A process that has closed a version gets that version, also where other programs read single frames.
    const bool closed_here = std::any_of(there.writing.begin(), there.writing.end(), [&](const auto& name) {
      const auto maker = maker_of(name);
      return maker && maker->member == settings_.entry && maker->pid == ::getpid() &&
             this->is_written(file, there, name);
    });
    const bool may_read_on = use == For::looking || (file.rule->when == CoupleRule::When::sync && !closed_here);
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
    if (there.newest == 0 && (use == For::looking ? file.writes : !is_written && !file.reads))
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

Result<Opened> Workflow::held(const Coupled& file, For use, const Say& say) {
  for (;;) {
    auto version = wait(file, use, say);
    if (!version) return std::move(version).error();
    const auto name = file.directory + "/" + name_for("open");
    auto held = hold(*version, name);
    if (!held) {
      if (held.error().code == Code::not_found) continue;  // replaced, or removed, since
      return std::move(held).error();
    }
    if (file.reads)
      (void)replace_file(system_files(), file.directory + "/read." + settings_.name,
                         std::as_bytes(std::span(*version)));
    return Opened{*held, *held == name ? name : std::string()};
  }
}

Result<Opened> Workflow::open_to_read(const Coupled& file, const Say& say) {
  return held(file, For::reading, say);
}

Result<Opened> Workflow::open_to_write(const Coupled& file, const Say& say) {
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
  auto copied = copy_file(now->path, next);
  (void)::unlink(now->release.c_str());
  if (!copied) {
    (void)::unlink(next.c_str());
    return std::move(copied).error();
  }
  const bool on_disk = file.rule->mode == CoupleRule::Mode::memory_and_file;
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

Result<Opened> Workflow::create(const Coupled& file, bool no_clobber) {
  if (no_clobber && file.rule->mode == CoupleRule::Mode::memory && Versions::in(file.directory).newest > 0)
    return Error{Code::exists, file.path + " is there already", EEXIST};
  struct stat st {};
  const auto parent = file.path.substr(0, std::max<std::size_t>(file.path.rfind('/'), 1));
  if (::stat(parent.c_str(), &st) != 0) return system_error("create " + file.path, errno);
  ADVECTIO_TRY(begin(file));
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

bool Workflow::remove(const Coupled& file) {
  const auto there = Versions::in(file.directory);
  return there.newest > 0 && ::unlink((file.directory + "/" + there.name).c_str()) == 0;
}

Result<void> Workflow::close(const Opened& opened, bool complete) {
  if (!opened.release.empty()) (void)::unlink(opened.release.c_str());
  if (opened.publish.empty()) return {};
  forget(opened);
  if (!complete) {
    (void)::unlink(opened.publish.c_str());
    return {};
  }
  if (!opened.disk.empty()) ADVECTIO_TRY(replace_by_copy(opened.publish, opened.disk));
  if (opened.copy_in)
    if (auto copied = replace_by_copy(opened.path, opened.publish); !copied) {
      (void)::unlink(opened.publish.c_str());  // else readers wait for it
      return std::move(copied).error();
    }
  auto done = publish(opened.publish, settings_.name);
  return done ? Result<void>{} : std::move(done).error();
}

}  // namespace advectio::workflow
