#include "exchange/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <sstream>
#include <utility>

#include "platform/files.h"
#include "workflow/members.h"
#include "workflow/versions.h"

namespace advectio::exchange {

using nlohmann::json;
using workflow::of_node;

namespace {

constexpr std::uint32_t file_changes =
    IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW;
constexpr std::uint32_t wait_changes = IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR;
constexpr std::uint32_t member_changes = IN_MODIFY | IN_DELETE | IN_ONLYDIR;
constexpr const char* node_line = "node ";  ///< begins the line that a member of another node has

bool is_version(const std::string& name) {
  return workflow::is_newer(name, "");
}

bool is_text(const std::string& name) {
  const bool in_the_making = name.ends_with(".next");  // of replace_file
  return !in_the_making && (name == "readers" || name == "trouble" || name.starts_with("read."));
}

bool is_of_another_node(const std::string& name) {
  return name.find(of_node) != std::string::npos;
}

std::vector<std::string> names_in(const std::string& directory) {
  auto names = system_files().list(directory);
  return names ? std::move(names).value() : std::vector<std::string>();
}

bool has_ended(const std::string& member) {
  return member.find("\nended ") != std::string::npos;
}

json version_event(const std::string& path, const Registry::Version& v) {
  json event = {{"version", v.name}, {"path", path}, {"bytes", v.bytes}};
  if (!v.link.empty()) event["link"] = v.link;
  return event;
}

}  // namespace

std::optional<std::string> text_of(const std::string& path) {
  const auto bytes = read_file(system_files(), path);
  if (!bytes) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

Registry::Registry(std::string memory, std::string node, Tell tell, Want want, Log& log)
    : memory_(std::move(memory)), node_(std::move(node)), tell_(std::move(tell)), want_(std::move(want)), log_(log) {}

Result<void> Registry::begin() {
  watch_ = readers::Descriptor(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch_) return system_error("inotify", errno);
  // What an earlier server of this node has put there of other nodes: they say it again.
  for (const auto& name : names_in(memory_ + "/waits"))
    if (is_of_another_node(name)) (void)::unlink((memory_ + "/waits/" + name).c_str());
  waits_watch_ = ::inotify_add_watch(watch_.get(), (memory_ + "/waits").c_str(), wait_changes);
  if (waits_watch_ < 0) return system_error("watch " + memory_ + "/waits", errno);
  // Other nodes learn at once that a program has begun or ended. A kill writes nothing: `look` finds it later.
  if (::inotify_add_watch(watch_.get(), (memory_ + "/members").c_str(), member_changes) < 0)
    return system_error("watch " + memory_ + "/members", errno);
  for (const auto& name : names_in(memory_ + "/waits"))
    if (auto text = text_of(memory_ + "/waits/" + name)) waits_[name] = std::move(*text);
  follow("");
  look();
  return {};
}

/// The directory of that path, and all below: what is there, and what comes.
void Registry::follow(const std::string& path) {
  const auto directory = directory_of(path);
  const int watch = ::inotify_add_watch(watch_.get(), directory.c_str(), file_changes);
  if (watch < 0) {
    if (errno != ENOENT)
      log_.error("watch " + directory + ": " + std::generic_category().message(errno) +
                 (errno == ENOSPC ? " (fs.inotify.max_user_watches)" : "") +
                 "; other nodes do not get what is written there");
    return;
  }
  watched_[watch] = path;
  for (const auto& name : names_in(directory)) {
    struct stat st {};
    if (::lstat((directory + "/" + name).c_str(), &st) != 0) continue;
    if (S_ISDIR(st.st_mode))
      follow(path + "/" + name);
    else
      appeared(path, name);
  }
}

void Registry::look() {
  // What a program has written before it ended is told before its end.
  std::map<std::string, Member> now;
  for (const auto& entry : names_in(memory_ + "/members")) {
    if (others_.contains(entry)) continue;
    auto text = text_of(memory_ + "/members/" + entry);
    if (!text || text->find(std::string("\n") + node_line) != std::string::npos) continue;
    now[entry] = {std::move(*text), workflow::is_alive(memory_, entry)};
  }
  read_events();
  for (const auto& [entry, member] : now) {
    const auto before = members_.find(entry);
    if (before != members_.end() && before->second == member) continue;
    tell_({{"member", entry}, {"is", member.text}, {"alive", member.alive}});
    if (!member.alive) clean_up_after(entry);
  }
  for (const auto& [entry, member] : members_)
    if (!now.contains(entry)) tell_({{"member", entry}, {"is", nullptr}});
  members_ = std::move(now);
}

void Registry::read_events() {
  alignas(inotify_event) char buffer[1 << 16];
  struct {
    std::uint32_t cookie = 0;
    std::string path, name;
  } left;  // by a rename, of which the other half comes next; empty: there is none
  const auto settle = [&] {
    if (!left.name.empty()) disappeared(left.path, left.name);
    left.name.clear();
  };
  for (;;) {
    const auto bytes = ::read(watch_.get(), buffer, sizeof buffer);
    if (bytes <= 0) break;
    for (const char* at = buffer; at < buffer + bytes;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(at);
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        log_.warning("more has changed at once than the system keeps; looking at all of it");
        settle();
        follow("");
        for (const auto& [path, file] : files_) {
          struct stat st {};
          const auto gone = [&st, directory = directory_of(path)](const std::string& n) {
            return ::lstat((directory + "/" + n).c_str(), &st) != 0;
          };
          const auto known = file;
          for (const auto& n : known.writing)
            if (gone(n)) disappeared(path, n);
          if (!known.newest.name.empty() && gone(known.newest.name)) disappeared(path, known.newest.name);
        }
        continue;
      }
      const std::string name = event.len > 0 ? event.name : "";
      if (event.wd == waits_watch_) {
        if (is_of_another_node(name)) continue;
        auto text = (event.mask & IN_DELETE) == 0 ? text_of(memory_ + "/waits/" + name) : std::nullopt;
        if (text)
          waits_[name] = *text;
        else if (waits_.erase(name) == 0)
          continue;
        tell_({{"wait", name}, {"is", text ? json(*text) : json(nullptr)}});
        continue;
      }
      const auto found = watched_.find(event.wd);
      if (found == watched_.end()) continue;
      if ((event.mask & IN_IGNORED) != 0) {
        watched_.erase(found);
        continue;
      }
      const auto path = found->second;
      if ((event.mask & IN_ISDIR) != 0) {
        settle();
        if ((event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) follow(path + "/" + name);
      } else if ((event.mask & IN_MOVED_FROM) != 0) {
        settle();
        left = {event.cookie, path, name};
      } else if ((event.mask & IN_MOVED_TO) != 0) {
        // Nobody may see what is between: the old name gone, and the new one not there.
        const bool is_other_half = !left.name.empty() && left.cookie == event.cookie;
        if (!is_other_half) settle();
        appeared(path, name);
        settle();
      } else {
        settle();
        if ((event.mask & IN_CREATE) != 0) appeared(path, name);
        if ((event.mask & IN_DELETE) != 0) disappeared(path, name);
      }
    }
  }
  settle();
}

void Registry::appeared(const std::string& path, const std::string& name) {
  const auto at = directory_of(path) + "/" + name;
  if (name.starts_with("wanted.")) {
    char version[NAME_MAX + 1];
    const auto bytes = ::readlink(at.c_str(), version, sizeof version - 1);
    if (bytes > 0) want_(path, std::string(version, static_cast<std::size_t>(bytes)), name);
    return;
  }
  if (is_version(name)) {
    auto& file = files_[path];
    if (!workflow::is_newer(name, file.newest.name)) return;
    file.newest = {name, {}, 0, {}};
    struct stat st {};
    if (::lstat(at.c_str(), &st) != 0) return;  // replaced or removed since, which is told next
    if (const auto there = workflow::elsewhere(at)) {
      file.newest.node = there->node;
      file.newest.bytes = there->bytes;
      return;
    }
    file.newest.bytes = static_cast<std::uint64_t>(st.st_size);
    char target[PATH_MAX];
    if (const auto bytes = ::readlink(at.c_str(), target, sizeof target); bytes > 0)
      file.newest.link.assign(target, static_cast<std::size_t>(bytes));
    tell_(version_event(path, file.newest));
  } else if (name.starts_with("writing.") && !is_of_another_node(name)) {
    files_[path].writing.insert(name);
    tell_({{"writing", name}, {"path", path}});
  } else if (is_text(name)) {
    auto text = text_of(at);
    auto& known = files_[path].texts;
    if (!text || (known.contains(name) && known[name] == *text)) return;
    known[name] = *text;
    tell_({{"text", name}, {"path", path}, {"is", *text}});
  }
}

void Registry::disappeared(const std::string& path, const std::string& name) {
  const auto found = files_.find(path);
  if (found == files_.end()) return;
  auto& file = found->second;
  if (name == file.newest.name) {
    file.newest = {};
    tell_({{"gone", name}, {"path", path}});
  } else if (file.writing.erase(name) > 0) {
    tell_({{"written", name}, {"path", path}});
  } else if (is_text(name) && file.texts.erase(name) > 0) {
    tell_({{"text", name}, {"path", path}, {"is", nullptr}});
  }
}

std::vector<json> Registry::whole() const {
  std::vector<json> all;
  for (const auto& [path, file] : files_) {
    for (const auto& [name, text] : file.texts) all.push_back({{"text", name}, {"path", path}, {"is", text}});
    for (const auto& name : file.writing) all.push_back({{"writing", name}, {"path", path}});
    if (!file.newest.name.empty() && file.newest.node.empty()) all.push_back(version_event(path, file.newest));
  }
  for (const auto& [name, text] : waits_) all.push_back({{"wait", name}, {"is", text}});
  for (const auto& [entry, m] : members_) all.push_back({{"member", entry}, {"is", m.text}, {"alive", m.alive}});
  return all;
}

void Registry::take_whole(const std::string& node, const std::vector<json>& events) {
  lost_.erase(node);
  const auto mark = of_node + node;
  std::set<std::pair<std::string, std::string>> there;  // versions
  std::set<std::string> members, writing;
  for (const auto& e : events) {
    if (e.contains("version")) there.emplace(e["path"].get<std::string>(), e["version"].get<std::string>());
    if (e.contains("member")) members.insert(e["member"].get<std::string>());
    if (e.contains("writing"))
      writing.insert(directory_of(e["path"].get<std::string>()) + "/" + e["writing"].get<std::string>() + mark);
  }
  // First what has gone: between two nobody must get what has been replaced.
  for (auto& [path, file] : files_) {
    if (file.newest.node == node && !there.contains({path, file.newest.name}))
      take(node, {{"gone", file.newest.name}, {"path", path}});
    for (const auto& name : names_in(directory_of(path)))
      if (name.ends_with(mark) && !writing.contains(directory_of(path) + "/" + name))
        (void)::unlink((directory_of(path) + "/" + name).c_str());
  }
  for (const auto& name : names_in(memory_ + "/waits"))
    if (name.ends_with(mark)) (void)::unlink((memory_ + "/waits/" + name).c_str());
  std::vector<std::string> away;
  for (const auto& [entry, other] : others_)
    if (other.node == node && !members.contains(entry)) away.push_back(entry);
  for (const auto& entry : away) take(node, {{"member", entry}, {"is", nullptr}});
  for (const auto& e : events) take(node, e);
}

void Registry::take(const std::string& node, const json& event) {
  const auto path = event.value("path", "");
  if (event.contains("member")) return take_member(node, event);
  if (event.contains("wait")) return take_wait(node, event);
  if (path.empty() || path.front() != '/' || path.find("/../") != std::string::npos) return;
  const auto named = [&event](const char* kind) {
    auto name = event.value(kind, "");
    return name.find('/') == std::string::npos ? name : std::string();
  };
  if (event.contains("version")) {
    take_version(node, path, event);
  } else if (event.contains("text")) {
    take_text(path, event);
  } else if (const auto gone = named("gone"); !gone.empty()) {
    auto& newest = files_[path].newest;
    if (newest.name != gone) return;
    newest = {};
    (void)::unlink((directory_of(path) + "/" + gone).c_str());
  } else if (const auto name = named("writing"); name.starts_with("writing.")) {
    (void)system_files().make_directory(directory_of(path), 0700);
    put(directory_of(path) + "/" + name + of_node + node, "");
  } else if (const auto done = named("written"); done.starts_with("writing.")) {
    (void)::unlink((directory_of(path) + "/" + done + of_node + node).c_str());
  }
}

void Registry::take_version(const std::string& node, const std::string& path, const json& event) {
  auto& file = files_[path];
  Version version{event.value("version", ""), node, event.value("bytes", std::uint64_t{0}), event.value("link", "")};
  if (version.name.find('/') != std::string::npos || !workflow::is_newer(version.name, file.newest.name)) return;
  file.newest = version;
  const auto directory = directory_of(path);
  auto made = system_files().make_directory(directory, 0700);
  auto noted =
      made ? workflow::note_version(directory, version.name,
                                    version.link.empty() ? workflow::to_target({node, version.bytes}) : version.link)
           : Result<bool>(made.error());
  if (!noted) log_.error(noted.error().message);
}

void Registry::take_text(const std::string& path, const json& event) {
  const auto name = event.value("text", "");
  if (!is_text(name) || name.find('/') != std::string::npos) return;
  auto& known = files_[path].texts;
  const auto at = directory_of(path) + "/" + name;
  if (!event["is"].is_string()) {
    if (known.erase(name) > 0) (void)::unlink(at.c_str());
    return;
  }
  const auto text = event["is"].get<std::string>();
  if (known.contains(name) && known[name] == text) return;
  known[name] = text;
  (void)system_files().make_directory(directory_of(path), 0700);
  put(at, text);
}

void Registry::take_member(const std::string& node, const json& event) {
  const auto entry = event.value("member", "");
  if (entry.empty() || entry.find('/') != std::string::npos || members_.contains(entry)) return;
  const auto at = memory_ + "/members/" + entry;
  if (!event["is"].is_string()) {
    (void)::unlink(at.c_str());
    others_.erase(entry);
    return;
  }
  const bool alive = event.value("alive", false);
  auto& other = others_[entry];
  const auto text = event["is"].get<std::string>() + node_line + node + "\n";
  if (other.text == text && static_cast<bool>(other.lock) == alive) return;
  other.node = node;
  other.text = text;
  // Under its name it is locked from the beginning.
  const auto next = memory_ + "/next-member";
  readers::Descriptor fd(::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const bool good = fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    (!alive || ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) && ::rename(next.c_str(), at.c_str()) == 0;
  if (!good) log_.error("note the program " + entry + " of " + node + ": " + std::generic_category().message(errno));
  other.lock = alive ? std::move(fd) : readers::Descriptor();
  if (!alive || has_ended(text)) clean_up_after(entry);
}

void Registry::take_wait(const std::string& node, const json& event) {
  const auto name = event.value("wait", "");
  if (name.empty() || name.find('/') != std::string::npos) return;
  const auto at = memory_ + "/waits/" + name + of_node + node;
  if (event["is"].is_string())
    put(at, event["is"].get<std::string>());
  else
    (void)::unlink(at.c_str());
}

/// In one step.
void Registry::put(const std::string& path, const std::string& text) const {
  const auto next = memory_ + "/next-text";
  const auto slash = path.rfind('/');
  auto written = replace_file(system_files(), next, std::as_bytes(std::span(text)));
  if (written && ::rename(next.c_str(), path.c_str()) != 0) written = system_error("note " + path, errno);
  if (!written) log_.error(written.error().message + " (" + path.substr(slash + 1) + ")");
}

void Registry::lose(const std::string& node) {
  lost_.insert(node);
  const auto mark = of_node + node;
  for (auto& [entry, other] : others_) {
    if (other.node != node || !other.lock) continue;
    other.lock = readers::Descriptor();
    clean_up_after(entry);
  }
  for (const auto& name : names_in(memory_ + "/waits"))
    if (name.ends_with(mark)) (void)::unlink((memory_ + "/waits/" + name).c_str());
  for (const auto& [path, file] : files_)
    for (const auto& name : names_in(directory_of(path)))
      if (name.ends_with(mark)) (void)::unlink((directory_of(path) + "/" + name).c_str());
}

/// What a program that is over has left here.
void Registry::clean_up_after(const std::string& entry) const {
  for (const auto& [path, file] : files_)
    for (const auto& name : names_in(directory_of(path)))
      for (const char* kind : {"writing.", "open.", "wanted.", "refused."})
        if (name.starts_with(kind + entry + ".")) (void)::unlink((directory_of(path) + "/" + name).c_str());
  for (const auto& name : names_in(memory_ + "/waits"))
    if (name.starts_with(entry + ".")) (void)::unlink((memory_ + "/waits/" + name).c_str());
}

Registry::Version Registry::newest(const std::string& path) const {
  const auto found = files_.find(path);
  return found != files_.end() ? found->second.newest : Version{};
}

bool Registry::anybody_alive(bool here) const {
  const bool one = std::any_of(members_.begin(), members_.end(),
                               [](const auto& m) { return m.second.alive && !has_ended(m.second.text); });
  return one || (!here && std::any_of(others_.begin(), others_.end(), [](const auto& o) {
           return static_cast<bool>(o.second.lock) && !has_ended(o.second.text);
         }));
}

bool Registry::anything_unread() const {
  for (const auto& [path, file] : files_) {
    const auto& version = file.newest;
    if (version.name.empty() || !file.texts.contains("readers")) continue;
    if (lost_.contains(version.node) && workflow::elsewhere(directory_of(path) + "/" + version.name)) continue;
    const auto writer = version.name.substr(version.name.find('.') + 1);
    const auto has_read = [&version, &texts = file.texts](const std::string& program) {
      return std::any_of(texts.begin(), texts.end(), [&](const auto& t) {
        return t.first.starts_with("read.") && t.second.ends_with("/" + version.name) &&
               ::fnmatch(program.c_str(), t.first.c_str() + 5, 0) == 0;
      });
    };
    std::istringstream lines(file.texts.at("readers"));
    std::string program;
    std::getline(lines, program);  // what to keep
    while (std::getline(lines, program))
      if (program != writer && !has_read(program)) return true;
  }
  return false;
}

}  // namespace advectio::exchange
