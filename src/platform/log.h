// The server's log: one line an event, on stderr and in a file of the run directory.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "config/config.h"

namespace advectio {

class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Also append to this file; every line of `info` and above goes there whatever the level is. Says so when it cannot.
  void also_to(const std::string& path, unsigned permissions = 0666);

  void error(const std::string& text) { write(LogLevel::error, text); }
  void warning(const std::string& text) { write(LogLevel::warning, text); }
  void info(const std::string& text) { write(LogLevel::info, text); }
  void debug(const std::string& text) { write(LogLevel::debug, text); }

 private:
  void write(LogLevel level, const std::string& text);

  LogLevel level_;
  std::mutex mutex_;
  std::vector<std::FILE*> files_;
};

}  // namespace advectio
