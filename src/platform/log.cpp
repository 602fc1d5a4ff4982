#include "platform/log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace advectio {

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
  const std::lock_guard guard(mutex_);
  if (level <= level_) std::fprintf(stderr, "advectiod: %s: %s\n", std::string(name_of(level)).c_str(), text.c_str());
  if (level > LogLevel::info && level > level_) return;
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  ::localtime_r(&now, &t);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%F %T", &t);
  for (auto* f : files_) {
    std::fprintf(f, "%s %s: %s\n", stamp, std::string(name_of(level)).c_str(), text.c_str());
    std::fflush(f);
  }
}

}  // namespace advectio
