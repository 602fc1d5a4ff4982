// The server cannot write groups and user-defined types. A program that defines one goes on with the real library,
// under the same ncid. The library creates the file again with the same calls, and gets the values that were put. It
// cannot open the old file instead: definitions that have not been ended could not be changed any more, and 4.9.0 swaps
// the bytes of what is put into big-endian variables of a file that it has not made, and fails to add a coordinate to
// one of its dimensions.
//
// Where values were put, the new file is another one, beside the old, and takes its name when all values are in it and
// on disk: a process that dies before that leaves the old file as it was.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t bytes_at_once = 8U << 20U;

bool same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

/// Beside the file, and hidden.
std::string hidden_name(const std::string& path, const char* what) {
  const auto place = fs::path(path);
  std::string name = ".";
  name.append(place.filename().string()).append(what).append(std::to_string(getpid()));
  return place.parent_path() / name;
}

/// The names by which the library made files, and those by which the program did. Never destroyed, as the last calls
/// of a program may come from destructors.
struct Renamed {
  std::mutex mutex;
  std::map<std::string, std::string> names;
};
Renamed& renamed() {
  static auto* r = new Renamed;
  return *r;
}
std::atomic<bool> any_renamed{false};

/// Where the file of `link` is now: at `path`, or under another name in the same directory. An empty string where it
/// has no name any more but ours; nothing where it has one that is not found.
std::optional<std::string> place_of(const std::string& link, const std::string& path, nlink_t ours) {
  std::error_code error;
  if (same_file(link, path)) {
    auto place = fs::canonical(path, error);
    return error ? path : place.string();
  }
  struct stat file {};
  if (stat(link.c_str(), &file) == 0 && file.st_nlink <= ours) return "";
  for (auto entry = fs::directory_iterator(fs::path(path).parent_path(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    if (entry->path() != link && same_file(entry->path(), link)) return entry->path().string();
  return std::nullopt;
}

/// The file that is now at `from` takes the place of the one at `to`, whose permissions it gets.
int replace(const std::string& from, const std::string& to) {
  const int fd = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat old {};
  int code = fd >= 0 ? NC_NOERR : errno;
  if (code == NC_NOERR && ::stat(to.c_str(), &old) == 0 && ::fchmod(fd, old.st_mode & 07777) != 0) code = errno;
  if (code == NC_NOERR && ::fsync(fd) != 0) code = errno;
  if (code == NC_NOERR && std::rename(from.c_str(), to.c_str()) != 0) code = errno;
  if (fd >= 0) ::close(fd);
  return code;
}

using Place = std::vector<std::size_t>;

struct VariableCopy {
  const RealLibrary& lib;
  int from, from_variable, to, to_variable;
  bool strings;
  std::size_t element;
  std::vector<std::byte> buffer;

  /// HDF5 (1.10) does not read strings in chunks that nobody has put: those are looked for by halves, and left out.
  int block(Place start, Place count) {
    std::size_t elements = 1;
    for (const auto n : count) elements *= n;
    buffer.resize(std::max(buffer.size(), elements * element));
    int code = lib.nc_get_vara(from, from_variable, start.data(), count.data(), buffer.data());
    if (code == NC_NOERR) {
      code = lib.nc_put_vara(to, to_variable, start.data(), count.data(), buffer.data());
      if (strings) lib.nc_free_string(elements, reinterpret_cast<char**>(buffer.data()));
      return code;
    }
    if (!strings || code != NC_EHDFERR) return code;
    const auto longest = std::max_element(count.begin(), count.end());
    if (longest == count.end() || *longest <= 1) return NC_NOERR;
    const auto i = static_cast<std::size_t>(longest - count.begin());
    const auto all = count[i];
    count[i] = all / 2;
    code = block(start, count);
    start[i] += count[i];
    count[i] = all - count[i];
    return code == NC_NOERR ? block(start, count) : code;
  }
};

/// The variable up to the ends, piece by piece along its first dimension. Beyond what it has in a later unlimited
/// dimension the library does not read it right.
int copy_variable(const RealLibrary& lib, int from, int from_variable, int to, int to_variable, const Place& ends) {
  nc_type type = NC_NAT;
  int code = lib.nc_inq_var(from, from_variable, nullptr, &type, nullptr, nullptr, nullptr);
  if (code != NC_NOERR) return code;
  const bool strings = type == NC_STRING;
  VariableCopy copy{lib, from, from_variable, to, to_variable, strings, strings ? sizeof(char*) : memory_size(type),
                    {}};
  Place start(ends.size(), 0), count(ends);
  std::size_t row = 1;
  for (std::size_t i = 1; i < count.size(); ++i) row *= count[i];
  const std::size_t rows = count.empty() ? 1 : count[0];
  if (rows == 0 || row == 0) return NC_NOERR;
  const std::size_t step = std::min(rows, std::max<std::size_t>(1, bytes_at_once / (row * copy.element)));
  for (std::size_t at = 0; at < rows && code == NC_NOERR; at += step) {
    if (!count.empty()) {
      start[0] = at;
      count[0] = std::min(step, rows - at);
    }
    code = copy.block(start, count);
  }
  return code;
}

}  // namespace

/// Until our number, which is free, is the lowest that is: netCDF-C gives that one. What holds the others is in memory.
int CapturedFile::hold_lower_numbers(std::vector<int>& held) const {
  for (;;) {
    const std::string name = "advectio-placeholder-" + std::to_string(held.size());
    int id = -1;
    if (const int code = lib.nc_create(name.c_str(), NC_NETCDF4 | NC_DISKLESS, &id); code != NC_NOERR) return code;
    if (id == ncid) return lib.nc_close(id);
    held.push_back(id);
    if (id > ncid) return NC_ENFILE;
  }
}

int CapturedFile::create_real(const std::string& name, int& id) const {
  const int flags = mode & ~NC_NOCLOBBER;
  const auto* all = ranks();
  return all != nullptr ? lib.nc_create_par(name.c_str(), flags, all->communicator(), all->hints(), &id)
                        : lib.nc_create(name.c_str(), flags, &id);
}

/// The real file gets our number.
int CapturedFile::take_number(const std::string& name) {
  std::vector<int> held;
  int id = -1, code = hold_lower_numbers(held);
  if (agreed(code)) code = create_real(name, id);
  if (code == NC_NOERR && id != ncid) {
    lib.nc_close(id);
    code = NC_ENFILE;
  }
  for (const int other : held) lib.nc_close(other);
  return code;
}

bool CapturedFile::nothing_put() const {
  return together_ != nullptr ? together_->ranks->all(!put_anything_) : !put_anything_;
}

/// The file under our number is empty. `values`: a file that has what was put, or none.
int CapturedFile::make_anew(const std::string& values) {
  const DefinitionCount all{schema_.dimensions.size(), schema_.variables.size()};
  const DefinitionCount before{static_cast<std::size_t>(ended_dimensions_), static_cast<std::size_t>(ended_variables_)};
  if (fresh_) return define(lib, ncid, schema_, {}, all);
  int code = define(lib, ncid, schema_, {}, before);
  if (code != NC_NOERR) return code;
  const bool each_written = std::count(written_.begin(), written_.end(), true) >= ended_variables_;
  code = together_ != nullptr || explicit_modes() || each_written ? lib.nc_enddef(ncid) : end_shadow();
  const auto written = std::exchange(written_, {});
  for (std::size_t v = 0; v < written.size() && !each_written && together_ == nullptr; ++v)
    if (written[v]) note_written(static_cast<int>(v));
  if (code == NC_NOERR && !values.empty()) code = copy_values(values);
  if (code == NC_NOERR && !values.empty()) code = lib.nc_sync(ncid);
  // The library chooses chunks by the lengths that somebody has asked for.
  for (std::size_t d = 0; d < extents_.size(); ++d)
    if (std::size_t length = 0; extents_[d].asked > 0) lib.nc_inq_dimlen(ncid, static_cast<int>(d), &length);
  if (code == NC_NOERR && defining_) code = lib.nc_redef(ncid);
  return code == NC_NOERR && defining_ ? define(lib, ncid, schema_, before, all) : code;
}

int CapturedFile::copy_values(const std::string& from) const {
  int source = -1;
  int code = lib.nc_open(from.c_str(), NC_NOWRITE, &source);
  if (code != NC_NOERR) return code;
  for (std::size_t v = 0; v < put_.size() && code == NC_NOERR; ++v) {
    if (!put_[v]) continue;
    // By name: whoever wrote the file need not have numbered its variables as the program does.
    int variable = -1;
    code = lib.nc_inq_varid(source, schema_.variables[v].name.c_str(), &variable);
    if (code == NC_NOERR) code = copy_variable(lib, source, variable, ncid, static_cast<int>(v), *put_[v]);
  }
  const int closed = lib.nc_close(source);
  return code != NC_NOERR ? code : closed;
}

/// A change that failed may not have ended data mode, which only the shadow knows.
bool CapturedFile::is_defining() const {
  if (!defining_ || fresh_ || ended_variables_ == 0 || lib.nc_def_var_filter == nullptr) return defining_;
  // Too late for a variable that is there, but in data mode that is not what the library says.
  const unsigned level = 1;
  return lib.nc_def_var_filter(ncid, 0, filter_id::deflate, 1, &level) != NC_EINDEFINE;
}

int CapturedFile::hand_over() {
  Stall stall(*this);
  close_reader();
  read_schema();
  const bool copies = !nothing_put();
  if (paid_) defining_ = is_defining();
  int code = NC_NOERR;
  // Its other names may go when it is complete, and the program may have given it another. Where there can be no hard
  // links, its own name must do.
  const auto hidden = hidden_name(where, ".advectio-opened-");
  auto link = hidden;
  if (together_ == nullptr) {
    ::unlink(hidden.c_str());  // of a process that had our number and died
    const int refused = ::link(out_->file_path().c_str(), hidden.c_str()) == 0 ? 0 : errno;
    if (refused != 0 && same_file(where, out_->file_path()))
      link = where;
    else
      code = refused;
  }
  if (code == NC_NOERR && copies && defining_) {
    auto told = schema_;
    told.dimensions.resize(static_cast<std::size_t>(ended_dimensions_));
    told.variables.resize(static_cast<std::size_t>(ended_variables_));
    code = tell(told);
  } else if (code == NC_NOERR && copies) {
    code = flush_schema();
  }
  close_shadow();
  // From here on our number is the real file's.
  owed_ = false;
  paid_ = true;
  stall.report();
  const auto handed = out_->hand_over();
  if (code == NC_NOERR && !handed.ok()) code = code_of(handed.error());
  out_.reset();
  if (together_ != nullptr) together_->out = nullptr;
  if (agreed(code)) code = copies ? replace_file(link) : empty_file(link);
  if (together_ == nullptr) ::unlink(hidden.c_str());
  // For what is defined from here on.
  if (code == NC_NOERR) lib.nc_set_fill(ncid, fill_mode_, nullptr);
  for (std::size_t v = 0; code == NC_NOERR && together_ != nullptr && v < together_->variables.size(); ++v)
    if (together_->variables[v].collective) lib.nc_var_par_access(ncid, static_cast<int>(v), NC_COLLECTIVE);
  return code;
}

/// Nothing was put: the library makes its file of ours, as the program called it where that still is the file.
int CapturedFile::empty_file(const std::string& link) {
  const bool is_there = together_ != nullptr || same_file(where, link);
  const int code = take_number(!is_there ? link : absolute(path) == where ? path : where);
  return code == NC_NOERR ? make_anew("") : code;
}

int CapturedFile::replace_file(const std::string& link) {
  // The program removed the file: the new one has a name only while the library creates it.
  const auto place = place_of(link, where, 1);
  if (!place) {
    if (auto* session = Session::current(); session != nullptr)
      session->say_once(path +
                        ": was moved to another directory while it was written; the netCDF library cannot go on with "
                        "it there. A rule with capture: false leaves it to the library from the start");
    return NC_ENOTBUILT;
  }
  const auto name = hidden_name(place->empty() ? where : *place, ".advectio-handed-over-");
  int code = take_number(name);
  if (code != NC_NOERR) return code;
  code = make_anew(link);
  if (code == NC_NOERR && !place->empty()) code = replace(name, *place);
  if (code != NC_NOERR) lib.nc_abort(ncid);
  if (code != NC_NOERR || place->empty()) ::unlink(name.c_str());
  if (code != NC_NOERR) return code;
  auto& r = renamed();
  const std::lock_guard lock(r.mutex);
  r.names[name] = path;
  any_renamed.store(true, std::memory_order_release);
  return NC_NOERR;
}

std::string name_for_program(const std::string& library_name) {
  if (!any_renamed.load(std::memory_order_acquire)) return library_name;
  auto& r = renamed();
  const std::lock_guard lock(r.mutex);
  const auto found = r.names.find(library_name);
  return found == r.names.end() ? library_name : found->second;
}

}  // namespace advectio
