#include "server/file_on_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "platform/files.h"

namespace advectio {

void FileOnDisk::lend_permission() {
  constexpr mode_t needed = S_IRUSR | S_IWUSR;
  struct stat st {};
  if (::access(link.c_str(), R_OK | W_OK) == 0 || errno != EACCES || ::stat(link.c_str(), &st) != 0 ||
      st.st_uid != ::geteuid() || ::chmod(link.c_str(), (st.st_mode & 07777) | needed) != 0)
    return;
  lent_permission_ |= needed & ~st.st_mode;
}

void FileOnDisk::give_permission_back() {
  struct stat st {};
  if (const auto lent = std::exchange(lent_permission_, 0); lent != 0 && ::stat(link.c_str(), &st) == 0)
    (void)::chmod(link.c_str(), st.st_mode & 07777 & ~lent);
}

void FileOnDisk::mark_as_ours() {
  if (!mark_ && has_descriptors_to_spare()) mark_ = journal::RunMark::on(link);
}

void tell_watchers(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0) ::close(fd);
}

}  // namespace advectio
