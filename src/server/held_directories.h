// The directories in which names are held back. Another program may move such a directory. The server keeps it open
// while it has a held name, and gives the name where the directory is then.
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

  /// `now` finds the directory from here on. Costs a descriptor for each directory.
  void watch(const std::string& directory);
  /// The present paths of the directories that were watched as `directory` ("/a/b/"); none of a removed one.
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
