// The directories in which names are held back, for as long as that takes. Somebody may move such a directory: the
// names belong into it wherever it is then.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace advectio {

class HeldDirectories {
 public:
  HeldDirectories() = default;
  ~HeldDirectories() { forget(); }
  HeldDirectories(const HeldDirectories&) = delete;
  HeldDirectories& operator=(const HeldDirectories&) = delete;

  /// From now on it is found again. Costs a descriptor for each directory.
  void watch(const std::string& directory);
  /// Where those are now that were at `directory` ("/a/b/") when they were watched. Without those that are removed.
  [[nodiscard]] std::vector<std::string> now(const std::string& directory) const;
  /// No name is held back.
  void forget();

 private:
  struct Opened {
    int fd;
    dev_t device;
    ino_t inode;
  };
  std::map<std::string, std::vector<Opened>> watched_;
};

}  // namespace advectio
