#include "capture/netcdf/open_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>

namespace advectio::netcdf {

namespace {
__attribute__((destructor)) void finish() {
  open_files().finish();
}
}  // namespace

std::string absolute(const std::string& path) {
  std::error_code error;
  auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

int take_over(CapturedFile& file) {
  if (!file.can_hand_over_alone()) return EBUSY;  // MPI is the parent's
  if (auto* session = Session::current(); session != nullptr)
    session->say_once(file.path +
                      (file.inherited() ? ": a process that was forked from its writer writes it now"
                                        : ": only the netCDF library can change its definitions") +
                      "; the netCDF library does so from here on");
  return open_files().remove(file)->hand_over();
}

namespace {

void do_what_was_put_off() {
  const auto wants = [](CapturedFile* file) { return file->later().what() != WantedLater::What::nothing; };
  while (auto* file = open_files().find_if(wants)) {
    const Entry entry(file->lib);
    shadow::guarded("what a signal handler has asked for", [&] {
      const auto what = file->later().what();
      file->later().done();
      (void)(what == WantedLater::What::close ? open_files().remove(*file)->close() : file->sync());
    });
  }
}

}  // namespace

int do_later(CapturedFile& file, WantedLater::What what) noexcept {
  file.keep_all();
  file.later().want(what);
  Entry::do_later(do_what_was_put_off);
  return NC_NOERR;
}

int refuse_put() noexcept {
  constexpr std::string_view line =
      "advectio: a put from a signal handler is refused: it came in the midst of another call of the same thread\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  return EBUSY;
}

CapturedFile* file_at(const std::string& path) {
  struct stat wanted {};
  std::optional<bool> is_there;
  return open_files().find_if([&](CapturedFile* file) {
    const auto* session = is_there ? nullptr : Session::current();
    if (!is_there)
      is_there = ::stat(session != nullptr ? session->present_path(path).c_str() : path.c_str(), &wanted) == 0;
    struct stat own {};
    return *is_there && ::stat(file->out().file_path().c_str(), &own) == 0 && own.st_dev == wanted.st_dev &&
           own.st_ino == wanted.st_ino;
  });
}

}  // namespace advectio::netcdf
