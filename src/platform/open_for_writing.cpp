#include "platform/open_for_writing.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace advectio {
namespace {

namespace fs = std::filesystem;

bool a_process_writes(const struct stat& file) {
  std::error_code failed;
  for (auto process = fs::directory_iterator("/proc", failed); !failed && process != fs::directory_iterator();
       process.increment(failed)) {
    if (std::strtol(process->path().filename().c_str(), nullptr, 10) <= 0) continue;
    std::error_code none;
    for (auto fd = fs::directory_iterator(process->path() / "fd", none); !none && fd != fs::directory_iterator();
         fd.increment(none)) {
      struct stat st {};
      if (::stat(fd->path().c_str(), &st) != 0 || st.st_dev != file.st_dev || st.st_ino != file.st_ino) continue;
      std::ifstream info(process->path() / "fdinfo" / fd->path().filename());
      for (std::string key, value; info >> key >> value;)
        if (key == "flags:" && (std::strtol(value.c_str(), nullptr, 8) & O_ACCMODE) != O_RDONLY) return true;
    }
  }
  return false;
}

/// A client of such a file system refuses leases for reasons of its own, with the same error.
bool is_on_file_server(int fd) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return false;
  const auto type = static_cast<std::uint32_t>(system.f_type);
  return type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == SMB2_SUPER_MAGIC || type == CIFS_SUPER_MAGIC;
}

}  // namespace

std::optional<bool> is_open_for_writing_by_lease(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  // A lease to read is refused while the file is open for writing. Where somebody opens it now, the
  // signal is one that processes do not hear by default; SIGIO would end them.
  (void)::fcntl(fd, F_SETSIG, SIGURG);
  std::optional<bool> open;
  if (::fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(fd, F_SETLEASE, F_UNLCK);
    open = false;
  } else if (errno == EAGAIN && !is_on_file_server(fd)) {
    open = true;
  }
  ::close(fd);
  return open;
}

bool is_open_for_writing(const std::string& path) {
  if (const auto open = is_open_for_writing_by_lease(path)) return *open;
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 && a_process_writes(file);
}

}  // namespace advectio
