#include "platform/log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace advectio {

namespace {
/// A message is one line, whatever a name or a damaged page has in it.
std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20U && byte != 0x7FU) {
      line += c;
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", byte);
    line += c == '\n' ? "\\n" : code;
  }
  return line;
}
}  // namespace

Log::~Log() {
  for (auto* f : files_) std::fclose(f);
}

void Log::also_to(const std::string& path, unsigned permissions) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, permissions);
  if (auto* f = fd < 0 ? nullptr : ::fdopen(fd, "a"); f != nullptr) {
    const std::lock_guard guard(mutex_);
    files_.push_back(f);
  } else {
    warning("log file " + path + ": " + std::strerror(errno));
  }
}

void Log::write(LogLevel level, const std::string& text) {
  const auto line = on_one_line(text);
  const std::lock_guard guard(mutex_);
  if (level <= level_) std::fprintf(stderr, "advectiod: %s: %s\n", std::string(name_of(level)).c_str(), line.c_str());
  if (level > LogLevel::info && level > level_) return;
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  ::localtime_r(&now, &t);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%F %T", &t);
  for (auto* f : files_) {
    std::fprintf(f, "%s %s: %s\n", stamp, std::string(name_of(level)).c_str(), line.c_str());
    std::fflush(f);
  }
}

}  // namespace advectio
