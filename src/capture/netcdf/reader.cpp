#include "capture/netcdf/reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "capture/dataset.h"

namespace advectio::netcdf {
namespace {

/// Files that are so long, and so much put into the copy between two reads: no copy is kept.
constexpr std::uint64_t copy_max = 16U << 20U;

/// A copy of the file in the stage. Empty: it is too long, or cannot be made.
std::string copy_in_stage(const std::string& path) {
  auto* session = Session::current();
  std::error_code error;
  if (session == nullptr || std::filesystem::file_size(path, error) > copy_max || error) return {};
  std::string name = session->directory() + "/copy-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return {};
  ::close(fd);
  std::filesystem::copy_file(path, name, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return name;
  ::unlink(name.c_str());
  return {};
}

}  // namespace

int Reader::open(const std::string& path, const Schema& schema, int fill_mode, bool alone) {
  constexpr int with_a_commit = 4;
  reads_copy_ = false;
  // 4.9.0 swaps the bytes of big-endian variables in a file that it has not made (hand_over.cpp).
  const bool swaps = std::any_of(schema.variables.begin(), schema.variables.end(),
                                 [](const Variable& v) { return v.endian == Endian::big; });
  if (alone && !swaps && ++reads_after_puts_ > with_a_commit) {
    if (const auto copy = copy_in_stage(path); !copy.empty()) {
      reads_copy_ = lib_.nc_open(copy.c_str(), NC_WRITE, &ncid_) == NC_NOERR;
      ::unlink(copy.c_str());  // the library has it open
      int old = NC_FILL;
      if (reads_copy_) return lib_.nc_set_fill(ncid_, fill_mode, &old);
    }
  }
  const int code = lib_.nc_open(path.c_str(), NC_NOWRITE, &ncid_);
  if (code != NC_NOERR) ncid_ = -1;
  return code;
}

void Reader::close() {
  reads_copy_ = false;
  if (ncid_ < 0) return;
  lib_.nc_close(ncid_);
  ncid_ = -1;
}

int Reader::find(int variable, int& there) const {
  // By name: whoever wrote the file need not have numbered its variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  const int code = lib_.nc_inq_varname(shadow_, variable, name);
  return code == NC_NOERR ? lib_.nc_inq_varid(ncid_, name, &there) : code;
}

void Reader::put_into_copy(int variable, const Box& box, const std::vector<std::uint64_t>& stride, const void* data,
                           std::size_t element) {
  constexpr std::uint64_t of_a_call = 4096;  // what a put costs beside its bytes
  if (!reads_copy_) return;
  unread_bytes_ += box.volume() * element + of_a_call;
  int there = -1;
  int code = unread_bytes_ > copy_max ? NC_ENOMEM : find(variable, there);
  const std::vector<std::ptrdiff_t> steps(stride.begin(), stride.end());
  if (code == NC_NOERR)
    code = lib_.nc_put_vars(ncid_, there, box.start.data(), box.count.data(), steps.empty() ? nullptr : steps.data(),
                            data);
  if (code != NC_NOERR) close();  // the next read opens the file
}

}  // namespace advectio::netcdf
