// The server cannot write groups and user-defined types. When a program defines one, the real
// library takes the file over under the same ncid. It creates the file again with the same calls,
// and gets the values that were put. It cannot open the old file instead. The program could then no
// longer change the definitions that it has not ended. And in a file that it has not made, 4.9.0
// swaps the bytes of big-endian variables and fails to add a coordinate to a dimension.
//
// Where values were put, the new file lies beside the old one. It takes the old name when all
// values are in it and on disk. A process that dies before that leaves the old file as it was.
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
#include <new>
#include <optional>

#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"
#include "capture/netcdf/present_name.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio::netcdf {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t bytes_at_once = 8U << 20U;

/// Beside the file, and hidden.
std::string hidden_name(const std::string& path, const char* what) {
  const auto place = fs::path(path);
  std::string name = ".";
  name.append(place.filename().string()).append(what).append(std::to_string(getpid()));
  return place.parent_path() / name;
}

/// The names by which the library made files, and those by which the program did. Never destroyed,
/// as the last calls of a program may come from destructors.
struct Renamed {
  std::mutex mutex;
  std::map<std::string, std::string> names;
};
Renamed& renamed() {
  static auto* r = new Renamed;
  return *r;
}
std::atomic<bool> any_renamed{false};

/// A name that goes with this, also when an exception leaves. Null: none.
struct Removed {
  const char* const path;
  ~Removed() {
    if (path != nullptr) ::unlink(path);
  }
};

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

using Lengths = std::vector<std::size_t>;

struct VariableCopy {
  const RealLibrary& lib;
  int from, from_variable, to, to_variable;
  bool strings;
  std::size_t element;
  std::vector<std::byte> buffer;

  /// HDF5 (1.10) does not read strings in chunks that nobody has put: those are looked for by
  /// halves, and left out.
  int block(Lengths start, Lengths count) {
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

/// The variable up to the ends, piece by piece along its first dimension. Beyond what it has in a
/// later unlimited dimension the library does not read it right.
int copy_variable(const RealLibrary& lib, int from, int from_variable, int to, int to_variable, const Lengths& ends) {
  nc_type type = NC_NAT;
  int code = lib.nc_inq_var(from, from_variable, nullptr, &type, nullptr, nullptr, nullptr);
  if (code != NC_NOERR) return code;
  const bool strings = type == NC_STRING;
  VariableCopy copy{lib, from, from_variable, to, to_variable, strings, strings ? sizeof(char*) : memory_size(type),
                    {}};
  Lengths start(ends.size(), 0), count(ends);
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

/// netCDF-C gives the lowest free number, and `ncid` is free. So datasets in memory take all lower
/// ones.
int hold_lower_numbers(const RealLibrary& lib, int ncid, std::vector<int>& held) try {
  held.reserve(static_cast<unsigned>(ncid) >> 16);
  for (;;) {
    const std::string name = "advectio-placeholder-" + std::to_string(held.size());
    int id = -1;
    if (const int code = lib.nc_create(name.c_str(), NC_NETCDF4 | NC_DISKLESS, &id); code != NC_NOERR) return code;
    if (id == ncid) return lib.nc_close(id);
    if (id > ncid) {
      lib.nc_close(id);
      return NC_ENFILE;
    }
    held.push_back(id);
  }
} catch (const std::bad_alloc&) {
  return NC_ENOMEM;
}

}  // namespace

int open_again(const RealLibrary& lib, int ncid, const std::string& path) {
  int code = lib.nc_close(ncid);
  if (code != NC_NOERR) return code;
  std::vector<int> held;
  int id = -1;
  code = hold_lower_numbers(lib, ncid, held);
  if (code == NC_NOERR) code = lib.nc_open(path.c_str(), NC_NOWRITE, &id);
  if (code == NC_NOERR && id != ncid) {
    lib.nc_close(id);
    code = NC_ENFILE;
  }
  for (const int other : held) lib.nc_close(other);
  return code;
}

/// Gives one dataset to the real library.
class HandOver {
 public:
  /// The parts of the captured file.
  struct Parts {
    ShadowDataset& shadow;
    const Shapes& shapes;
    Together& together;
    Description& description;
    SentSchema& schema;
    Reader& reader;
    const Puts& puts;
    shadow::StallClock& stall;
    std::unique_ptr<CapturedDataset>& out;
  };
  HandOver(const CapturedFile& file, const Parts& parts) : f_(file), p_(parts), lib_(file.lib), ncid_(file.ncid) {}
  int run();

 private:
  int link_to(const std::string& hidden, std::string& link) const;
  int let_go(shadow::Stall& stall, int code);
  [[nodiscard]] Result<std::shared_ptr<void>> turn_to_open() const;
  int create_real(const std::string& name, int& id) const;
  int take_number(const std::string& name) const;
  int bring_up_to_date();
  int make_anew(const std::string& values);
  int copy_values(const std::string& from) const;
  int open_file(const std::string& link);
  int empty_file(const std::string& link);
  int replace_file(const std::string& link, const std::string& servers);

  const CapturedFile& f_;
  const Parts p_;
  const RealLibrary& lib_;
  const int ncid_;
};

int CapturedFile::hand_over() {
  bool defining = false;
  int code = NC_NOERR;
  if (!opened_) keep_from_server();
  if (opened_ && !inherited()) {
    if (together_.several() && !together_.all(same_file(where, out_->file_path()))) {
      if (auto* session = Session::current(); session != nullptr && together_.first())
        session->say_once(path + ": has another name now; the netCDF library cannot go on with it on all ranks");
      return NC_ENOTBUILT;
    }
    shadow_.ask_mode();
    defining = shadow_.explicit_modes() && shadow_.defining();
    code = leave_define_mode();
    if (code == NC_NOERR) code = schema_.flush();
  }
  if (!together_.agreed(code)) return code;
  code = HandOver(*this, {shadow_, shapes_, together_, description_, schema_, reader_, puts_, stall_, out_}).run();
  if (code == NC_NOERR && defining) code = lib.nc_redef(ncid);
  if (!coupled_) return code;
  const auto coupled = std::move(*coupled_);
  coupled_.reset();
  if (code == NC_NOERR)
    lent_files().add(ncid, {path, coupled, together_.take_ranks()});
  else
    (void)capture::leave(coupled, false);
  return code;
}

int HandOver::create_real(const std::string& name, int& id) const {
  const auto* all = p_.together.ranks();
  if (f_.was_there())
    return all != nullptr ? lib_.nc_open_par(name.c_str(), NC_WRITE, all->communicator(), all->hints(), &id)
                          : lib_.nc_open(name.c_str(), NC_WRITE, &id);
  const int flags = f_.mode & ~NC_NOCLOBBER;
  return all != nullptr ? lib_.nc_create_par(name.c_str(), flags, all->communicator(), all->hints(), &id)
                        : lib_.nc_create(name.c_str(), flags, &id);
}

/// The library creates or opens the file under our number.
int HandOver::take_number(const std::string& name) const {
  std::vector<int> held;
  int id = -1, code = hold_lower_numbers(lib_, ncid_, held);
  if (p_.together.agreed(code)) code = create_real(name, id);
  if (code == NC_NOERR && id != ncid_) {
    lib_.nc_close(id);
    code = NC_ENFILE;
  }
  for (const int other : held) lib_.nc_close(other);
  return code;
}

/// The file under our number is empty: define what the program has defined. `values`: a file that
/// has what was put, or none.
int HandOver::make_anew(const std::string& values) {
  const auto& schema = p_.description.last_read();
  const DefinitionCount all{schema.dimensions.size(), schema.variables.size()};
  const auto before = p_.shadow.ended_definitions();
  if (p_.shadow.fresh()) return define(lib_, ncid_, schema, {}, all);
  int code = define(lib_, ncid_, schema, {}, before);
  if (code != NC_NOERR) return code;
  code = p_.shadow.end_again(!p_.together.several());
  if (code == NC_NOERR && !values.empty()) code = copy_values(values);
  if (code == NC_NOERR && !values.empty()) code = lib_.nc_sync(ncid_);
  // The library chooses chunks by the lengths that somebody has asked for.
  const auto& extents = p_.shapes.extents();
  for (std::size_t d = 0; d < extents.size(); ++d)
    if (std::size_t length = 0; extents[d].asked > 0) lib_.nc_inq_dimlen(ncid_, static_cast<int>(d), &length);
  if (code == NC_NOERR && p_.shadow.defining()) code = lib_.nc_redef(ncid_);
  return code == NC_NOERR && p_.shadow.defining() ? define(lib_, ncid_, schema, before, all) : code;
}

int HandOver::copy_values(const std::string& from) const {
  int source = -1;
  int code = lib_.nc_open(from.c_str(), NC_NOWRITE, &source);
  if (code != NC_NOERR) return code;
  const auto& variables = p_.description.last_read().variables;
  const auto& ends = p_.puts.ends();
  for (std::size_t v = 0; v < ends.size() && code == NC_NOERR; ++v) {
    if (!ends[v]) continue;
    // By name: the server need not number the variables as the program does.
    int variable = -1;
    code = lib_.nc_inq_varid(source, variables[v].name.c_str(), &variable);
    if (code == NC_NOERR) code = copy_variable(lib_, source, variable, ncid_, static_cast<int>(v), *ends[v]);
  }
  const int closed = lib_.nc_close(source);
  return code != NC_NOERR ? code : closed;
}

/// Nothing was put: the library makes its file in place of ours, by the program's name where that
/// is still the file.
int HandOver::empty_file(const std::string& link) {
  const bool is_there = p_.together.several() || same_file(f_.where, link) || !fs::exists(link);
  int code = take_number(!is_there ? link : absolute(f_.path) == f_.where ? f_.path : f_.where);
  if (code != NC_NOERR) return code;
  try {
    return make_anew("");
  } catch (...) {
    lib_.nc_abort(ncid_);
    throw;
  }
}

int HandOver::replace_file(const std::string& link, const std::string& servers) {
  auto place = present_name(link, f_.where, servers);
  // The program may have renamed it, and that name may be held back: the server must not give it to ours meanwhile.
  // A name that it gave during the first look is found by the second.
  if (auto* session = Session::current(); session != nullptr) {
    session->name_now(place.value_or(f_.where));
    place = present_name(link, f_.where, servers);
  }
  if (!place) {
    if (auto* session = Session::current(); session != nullptr)
      session->say_once(f_.path +
                        ": was moved to another directory while it was written; the netCDF library cannot go on with "
                        "it there. A rule with capture: false leaves it to the library from the start");
    return NC_ENOTBUILT;
  }
  // Where the program has removed the file, the new one has a name only while the library creates
  // it.
  const auto name = hidden_name(place->empty() ? f_.where : *place, ".advectio-handed-over-");
  {
    auto& r = renamed();
    const std::lock_guard lock(r.mutex);
    r.names[name] = f_.path;
  }
  int code = take_number(name);
  if (code != NC_NOERR) return code;
  try {
    code = make_anew(link);
    if (code == NC_NOERR && !place->empty()) code = replace(name, *place);
  } catch (const std::bad_alloc&) {
    code = NC_ENOMEM;
  }
  if (code != NC_NOERR) lib_.nc_abort(ncid_);
  if (code != NC_NOERR || place->empty()) ::unlink(name.c_str());
  if (code == NC_NOERR) any_renamed.store(true, std::memory_order_release);
  return code;
}

/// The dataset learns the schema for the values that were put: without what define mode has not
/// ended.
int HandOver::bring_up_to_date() {
  if (!p_.shadow.defining()) return p_.schema.flush();
  auto ended = p_.description.last_read();
  const auto count = p_.shadow.ended_definitions();
  ended.dimensions.resize(count.dimensions);
  ended.variables.resize(count.variables);
  return p_.schema.send(ended);
}

/// A name of our own for the file: the server removes its link when the file is complete, and the
/// program may have renamed it. Where there can be no hard links, the program's name must do.
int HandOver::link_to(const std::string& hidden, std::string& link) const {
  ::unlink(hidden.c_str());  // of a process that had our number and died
  const int refused = ::link(p_.out->file_path().c_str(), hidden.c_str()) == 0 ? 0 : errno;
  // Of a dataset that a child has inherited the server may have let go.
  if (refused == 0 || (!f_.inherited() && !same_file(f_.where, p_.out->file_path()))) return refused;
  link = f_.where;
  return NC_NOERR;
}

/// Our number is the real file's from here on. The server lets go of the file. `code`: of what came before.
int HandOver::let_go(shadow::Stall& stall, int code) {
  p_.shadow.close();
  p_.shadow.follow();
  stall.report();
  const auto handed = p_.out->hand_over();
  p_.out.reset();
  p_.together.forget_out();
  return code == NC_NOERR && !handed.ok() ? code_of(handed.error()) : code;
}

/// Processes that wait for the file must find that the library has it open.
Result<std::shared_ptr<void>> HandOver::turn_to_open() const {
  auto* session = Session::current();
  if (session == nullptr) return std::shared_ptr<void>();
  return session->turn_to_open(f_.where, Session::Opening::by_library);
}

/// The file was there: the library opens it under the program's name, where that is still the file.
int HandOver::open_file(const std::string& link) {
  const bool is_there = p_.together.several() || same_file(f_.where, link);
  const auto name = !is_there ? link : absolute(f_.path) == f_.where ? f_.path : f_.where;
  if (!is_there) {
    auto& r = renamed();
    const std::lock_guard lock(r.mutex);
    r.names[name] = f_.path;
  }
  const int code = take_number(name);
  if (!is_there && code == NC_NOERR) any_renamed.store(true, std::memory_order_release);
  return code;
}

int HandOver::run() {
  shadow::Stall stall(p_.stall);
  const bool alone = !p_.together.several();
  if (auto* session = Session::current(); session != nullptr) session->name_now(f_.where);
  p_.reader.close();
  bool copies = false;
  if (!f_.was_there()) {
    p_.schema.read();
    copies = !p_.together.all(!p_.puts.any());
  }
  const bool inherited = f_.inherited();
  if (!f_.was_there()) p_.shadow.ask_mode();
  const auto hidden = hidden_name(f_.where, ".advectio-opened-");
  auto link = hidden;
  const Removed at_the_end{alone ? hidden.c_str() : nullptr};
  int code = alone ? link_to(hidden, link) : NC_NOERR;
  if (code == NC_NOERR && copies && !inherited) code = bring_up_to_date();
  const auto servers = p_.out->file_path();
  const auto turn = p_.together.first() ? turn_to_open() : std::shared_ptr<void>();
  if (!turn && code == NC_NOERR) code = code_of(turn.error());
  code = let_go(stall, code);
  if (p_.together.agreed(code))
    code = f_.was_there() ? open_file(link) : copies ? replace_file(link, servers) : empty_file(link);
  // For what is defined from here on.
  if (code == NC_NOERR) lib_.nc_set_fill(ncid_, p_.shadow.fill_mode(), nullptr);
  if (code == NC_NOERR) p_.together.repeat_access();
  return code;
}

std::string name_for_program(const std::string& library_name) {
  if (!any_renamed.load(std::memory_order_acquire)) return library_name;
  auto& r = renamed();
  const std::lock_guard lock(r.mutex);
  const auto found = r.names.find(library_name);
  return found == r.names.end() ? library_name : found->second;
}

}  // namespace advectio::netcdf
