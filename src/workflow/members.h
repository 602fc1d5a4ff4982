// Who has come to a workflow, who lives, and who waits for whom (workflow/README.md).
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace advectio::workflow {

/// One `advectio run --as NAME`.
struct Member {
  std::string name;    ///< NAME
  std::string entry;   ///< "NAME,ID"
  bool alive = false;  ///< it, its command or its server
  bool ended = false;  ///< by itself
  int code = 0;        ///< the exit code of its command, then
  double started = 0;  ///< seconds since 1970
};

std::vector<Member> members_in(const std::string& memory);
/// Does somebody hold the lock of that member?
bool is_alive(const std::string& memory, const std::string& entry);
/// Does somebody hold the lock of that file?
bool is_held(const std::string& path);

/// A process that waits, as others see it: from construction to destruction.
class Wait {
 public:
  Wait(const std::string& memory, const std::string& name, const std::string& path,
       const std::vector<std::string>& programs);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  std::string entry_;
};

struct Waiting {
  std::string member;  ///< NAME of the program that waits
  std::string path;
  std::vector<std::string> programs;  ///< that should write it
};
/// Of live processes.
std::vector<Waiting> waits_in(const std::string& memory);

}  // namespace advectio::workflow
