// Create, open, modes, sync, close: the functions that begin and end datasets and frames.
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "capture/netcdf/existing_files.h"
#include "capture/netcdf/open_files.h"
#include "capture/shadow/shared_place.h"

namespace advectio::netcdf {
namespace {

using capture::Place;

/// A remote dataset, or a local one with its format in the name ("file:///…#mode=zarr").
bool is_url(const char* path) {
  return std::strstr(path, "://") != nullptr || *path == '[';
}

bool can_capture(const char* path, int mode) {
  constexpr int understood =
      NC_WRITE | NC_NOCLOBBER | NC_CLASSIC_MODEL | NC_64BIT_DATA | NC_64BIT_OFFSET | NC_LOCK | NC_SHARE | NC_NETCDF4;
  if (path == nullptr || (mode & ~understood) != 0) return false;
  path = trimmed(path);
  struct stat there {};
  return *path != '\0' && !is_url(path) && (stat(path, &there) != 0 || S_ISREG(there.st_mode));
}

/// The last nc_set_alignment asked HDF5 to begin large objects at multiples of a number.
std::atomic<bool> aligned{false};

void say_not_aligned(Session& session, FileFormat format) {
  if (aligned.load(std::memory_order_relaxed) && is_hdf5(format))
    session.say_once("nc_set_alignment has no effect on the files that Advectio writes");
}

/// False: the real library creates the file. `why`: we tried, and could not.
bool capture(const RealLibrary& lib, const char* path, Place& place, int mode, int* ncid, int& code,
             std::optional<Error>& why) {
  const char* at = place.path.c_str();
  if (path == nullptr || is_url(trimmed(path)) || !can_capture(at, mode)) return false;
  auto* session = Session::current();
  if (session == nullptr || !session->wants(trimmed(path))) return false;

  const auto begin = shadow::now_ns();
  Shadow shadow;
  if (make_shadow(lib, mode, shadow) != NC_NOERR) return false;
  if ((mode & NC_SHARE) != 0 && !is_hdf5(shadow.format)) {
    drop(lib, shadow);
    session->say_once(std::string(trimmed(path)) +
                      " goes through the netCDF library as usual: NC_SHARE asks that each put can be read at once");
    return false;
  }
  // HDF5 does not create over a file which this process has open.
  if (const auto* open = file_at(at); open != nullptr && is_hdf5(shadow.format) && is_hdf5(open->format)) {
    drop(lib, shadow);
    code = (mode & NC_NOCLOBBER) != 0 ? NC_EEXIST : EACCES;
    return true;
  }
  // In the classic formats it does so for the library: a program may have forgotten to close the file.
  if (auto* open = file_at(at); open != nullptr && (mode & NC_NOCLOBBER) == 0 && open->can_hand_over_alone()) {
    session->say_once(open->path +
                      " is created again while this process has it open; the netCDF library has the first one");
    (void)open_files().remove(*open)->hand_over();
  }
  const auto shadow_ns = shadow::now_ns() - begin;
  auto created = shadow::as_result([&] {
    return session->create(
        {at, shadow.format, (mode & NC_NOCLOBBER) != 0, place.coupled ? place.coupled->created_ns : 0});
  });
  if (!created.ok()) {
    drop(lib, shadow);
    const bool in_use = created.error().code == Code::exists && (mode & NC_NOCLOBBER) == 0;
    if (in_use) code = EACCES;
    why = std::move(created).error();
    return in_use;
  }
  (*created)->add_stall(shadow_ns);  // the session counts its own part
  say_not_aligned(*session, shadow.format);
  bool has_shadow = false;
  const auto added = shadow::as_result([&]() -> Result<void> {
    auto file = std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(path), mode, shadow.format,
                                               std::move(created).value(), at);
    has_shadow = true;
    auto& kept = open_files().add(std::move(file));
    if (place.coupled) kept.couple(*std::exchange(place.coupled, {}));
    return {};
  });
  if (!added.ok()) {
    // The library creates the file when the server has let go of it.
    if (!has_shadow) drop(lib, shadow);
    why = added.error();
    (void)session->wait_for_file(at, true);
    return false;
  }
  *ncid = shadow.ncid;
  code = NC_NOERR;
  return true;
}

/// The same by several ranks. Collective.
bool capture_together(const RealLibrary& lib, const shadow::ProgramCommunicator& program, const char* path,
                      Place& place, int mode, int* ncid) {
  if (shadow::beyond_this_node()) {
    shadow::say_beyond_this_node(path != nullptr ? path : "", "netCDF");
    return false;
  }
  auto ranks = shadow::duplicate(reinterpret_cast<const void*>(lib.nc_create_par), program);
  if (ranks == nullptr) return false;
  const auto begin = shadow::now_ns();
  mode &= ~NC_MPIIO;  // says what the function's name says
  // An exception must not leave: the other ranks wait.
  Session* session = nullptr;
  bool can = false;
  Shadow shadow;
  CreateRequest request;
  const char* at = place.path.c_str();
  shadow::guarded("nc_create_par", [&] {
    if (ncid == nullptr || path == nullptr || is_url(trimmed(path)) || !can_capture(at, mode) || file_at(at) != nullptr)
      return;
    session = Session::current();
    if (session == nullptr || !session->wants(trimmed(path))) return;
    request.path = at;
    can = make_shadow(lib, mode, shadow) == NC_NOERR;
  });
  request.format = shadow.format;
  request.no_clobber = (mode & NC_NOCLOBBER) != 0;
  request.created_ns = place.coupled ? place.coupled->created_ns : 0;
  const auto shadow_ns = shadow::now_ns() - begin;

  CapturedFile* file = nullptr;
  SharedDataset* shared = nullptr;
  bool has_shadow = false;
  const auto keep = [&](std::unique_ptr<SharedDataset>& out) {
    shared = out.get();
    auto made =
        std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(path), mode, shadow.format, std::move(out), at);
    has_shadow = true;
    file = &open_files().add(std::move(made));
  };
  const auto forget = [&] { (void)open_files().remove(*file); };
  // The library gives the classic formats to PnetCDF, where they are caught.
  const bool ours = can && is_hdf5(shadow.format);
  if (shadow::create_together(*ranks, ours, session, request, "netCDF", keep, forget)) {
    shared->add_stall(shadow_ns);
    if (place.coupled) file->couple(*std::exchange(place.coupled, {}));
    const bool first = ranks->rank() == 0;
    file->write_together(std::move(ranks), *shared);
    *ncid = shadow.ncid;
    if (first) shadow::guarded("nc_create_par", [&] { say_not_aligned(*session, shadow.format); });
    return true;
  }
  if (can && !has_shadow) drop(lib, shadow);
  return false;
}

/// The program opens a file for writing that it writes already: both are the library's then. `all`: all
/// ranks open it.
int share(CapturedFile& file, bool all) {
  if (all ? !file.can_hand_over() : !file.can_hand_over_alone()) return EBUSY;
  if (auto* session = Session::current(); session != nullptr)
    session->say_once(file.path +
                      " is opened for writing a second time; the netCDF library writes this file from here on");
  return open_files().remove(file)->hand_over();
}

/// Before the real library touches a path: let what is in flight there arrive. `all`: as in `share`.
int wait_for(const char* path, bool writing, bool all = false) noexcept try {
  if (path == nullptr) return NC_NOERR;
  path = trimmed(path);
  if (*path == '\0' || is_url(path)) return NC_NOERR;
  if (auto* open = file_at(path); open != nullptr) {
    if (writing) return share(*open, all);
    // In define mode nothing new can be shown; what was synced can.
    const int code = open->make_visible();
    return code == NC_EINDEFINE ? NC_NOERR : code;
  }
  // Outside a run there is nothing to wait for, and the session must not complain.
  if (std::getenv("ADVECTIO_RUN") == nullptr) return NC_NOERR;
  auto* session = Session::current();
  if (session == nullptr) return NC_NOERR;
  const auto waited = session->wait_for_file(path, writing);
  if (waited.ok()) return NC_NOERR;
  session->say_once(waited.error().message);
  return code_of(waited.error());
}
ADVECTIO_GUARDED

/// `use` calls the real function with that path. What it leaves open is noted.
template <typename Use>
int lend(const char* path, Place& place, int* ncid, Use&& use, std::shared_ptr<shadow::Ranks> ranks = nullptr) {
  const int code = use(place.coupled ? place.path.c_str() : path);
  if (!place.coupled) return code;
  if (code == NC_NOERR && ncid != nullptr)
    lent_files().add(*ncid, {trimmed(path), std::move(*place.coupled), std::move(ranks)});
  else
    (void)capture::leave(*place.coupled, false);
  return code;
}

/// The library opens the file for writing. The server may have to let go of it first, or another
/// process has it now.
template <typename Open>
int open_in_turn(const char* path, Place& place, int* ncid, Open&& open) {
  auto* session = std::getenv("ADVECTIO_RUN") != nullptr ? Session::current() : nullptr;
  const bool may_be_carried = session != nullptr && session->wants(trimmed(path));
  constexpr unsigned openings = 100;  // of others, each of which has come first
  for (unsigned tries = 0; tries < openings; ++tries) {
    if (const int code = wait_for(path, true); code != NC_NOERR) return code;
    if (!may_be_carried) return lend(path, place, ncid, open);
    const auto turn = session->turn_to_open(trimmed(path), Session::Opening::by_library);
    if (!turn) {
      session->say_once(turn.error().message);
      return code_of(turn.error());
    }
    if (!session->is_in_flight(trimmed(path))) return lend(path, place, ncid, open);
  }
  session->say_once(std::string(trimmed(path)) + " is not opened: other processes open it for writing again and again");
  return EBUSY;
}

bool may_be_coupled(const char* path) {
  return path != nullptr && *trimmed(path) != '\0' && !is_url(trimmed(path)) &&
         capture::workflow_of_process() != nullptr;
}

/// The dataset is in the program's memory alone, and never in its file.
bool stays_in_memory(int mode) {
  return (mode & NC_DISKLESS) != 0 && (mode & NC_PERSIST) == 0;
}

/// NC_NOERR: the run is there, or the file cannot be coupled.
int run_is_there(const char* path) {
  if (path == nullptr || *trimmed(path) == '\0' || is_url(trimmed(path))) return NC_NOERR;
  const auto there = capture::run_is_there(trimmed(path));
  return there ? NC_NOERR : code_of(there.error());
}

/// The library creates a file, and we have not seen the call that led there.
void say_past_us(const char* path) {
  if (path == nullptr || std::getenv("ADVECTIO_RUN") == nullptr) return;
  auto* session = Session::current();
  if (session != nullptr && session->wants(trimmed(path)))
    session->say_once(std::string(trimmed(path)) +
                      " goes through the netCDF library as usual: the program calls its functions by addresses that it "
                      "has found itself");
}

/// Never fails: the library may have created the file.
void say_why(const char* path, const char* what, const Error& why) noexcept {
  shadow::guarded(what, [&] {
    if (auto* session = Session::current(); session != nullptr)
      session->say_once(std::string(trimmed(path)) + " " + what + ": " + why.message);
  });
}

/// `create` calls the real function with the program's own arguments, but that path.
template <typename Create>
int create_file(const Entry& entry, const char* path, int mode, int* ncid, Create&& create) {
  if (entry.past_us()) say_past_us(path);
  if (entry.nested()) return create(path);
  if (const int lost = run_is_there(path); lost != NC_NOERR) return lost;
  Place place{path != nullptr ? trimmed(path) : "", {}};
  if (may_be_coupled(path) && !stays_in_memory(mode)) {
    auto found = capture::place_to_create(trimmed(path), (mode & NC_NOCLOBBER) != 0);
    if (!found) return found.error().code == Code::exists ? NC_EEXIST : code_of(found.error());
    place = std::move(found).value();
  }
  int code = NC_NOERR;
  std::optional<Error> why;
  if (ncid != nullptr && entry.lib.nc_create != nullptr && capture(entry.lib, path, place, mode, ncid, code, why)) {
    if (place.coupled) (void)capture::leave(*place.coupled, false);
    if (why) say_why(path, "is not created", *why);
    return code;
  }
  if ((mode & NC_NOCLOBBER) == 0 && path != nullptr) {
    code = wait_for(place.path.c_str(), true);
    if (code != NC_NOERR && place.coupled) (void)capture::leave(*place.coupled, false);
    if (code != NC_NOERR) return code;
  }
  code = lend(path, place, ncid, create);
  // Most often it has found the same reason, and the program says so.
  if (why && code != code_of(*why)) say_why(path, "goes through the netCDF library as usual", *why);
  return code;
}

/// The dataset of this process that writes the coupled file of that name at present.
CapturedFile* written_here(const char* path) {
  auto* workflow = capture::workflow_of_process();
  const auto coupled = workflow->of(path);
  if (!coupled) return nullptr;
  return open_files().find_if(
      [&](const CapturedFile* file) { return workflow->name_for_programs(file->where) == coupled->path; });
}

template <typename Open>
int open_file(const Entry& entry, const char* path, int mode, int* ncid, Open&& open) {
  if (entry.nested()) return open(path);
  if (const int lost = run_is_there(path); lost != NC_NOERR) return lost;
  Place place{path != nullptr ? trimmed(path) : "", {}};
  const bool writing = (mode & NC_WRITE) != 0 && !stays_in_memory(mode);
  if (may_be_coupled(path)) {
    if (auto* file = written_here(trimmed(path)); file != nullptr) {
      if (writing) return EBUSY;
      const int code = file->make_visible();
      return code == NC_NOERR || code == NC_EINDEFINE ? open(file->out().file_path().c_str()) : code;
    }
    auto found = capture::place_to_open(trimmed(path), writing);
    if (!found) return code_of(found.error());
    place = std::move(found).value();
  }
  const bool may_be_carried = writing && path != nullptr && !is_url(trimmed(path)) && !place.coupled;
  std::string why;
  const OpenCall call{path, place.path, mode, ncid};
  if (may_be_carried && open_own_file(entry.lib, call, why)) return NC_NOERR;
  if (const int code = wait_for(place.coupled ? place.path.c_str() : path, writing); code != NC_NOERR) {
    if (place.coupled) (void)capture::leave(*place.coupled, false);
    return code;
  }
  if (!may_be_carried) return lend(path, place, ncid, open);
  if (open_file_of_others(entry.lib, call, why)) return NC_NOERR;
  return open_in_turn(path, place, ncid, open);
}

/// Of ranks that use one file together: rank 0 finds its place. Null `ranks`: it is not coupled.
struct PlaceTogether {
  int code = NC_NOERR;
  Place place;  ///< `coupled` on rank 0 alone
  std::shared_ptr<shadow::Ranks> ranks;
};

/// Collective where the name is coupled. `find` is called by rank 0.
template <typename Find>
PlaceTogether place_together(const Entry& entry, const shadow::ProgramCommunicator& program, const char* path,
                             Find&& find) {
  PlaceTogether out{NC_NOERR, {path != nullptr ? trimmed(path) : "", {}}, nullptr};
  out.code = run_is_there(path);
  if (out.code != NC_NOERR || !may_be_coupled(path) || !capture::workflow_of_process()->of(trimmed(path))) return out;
  if (!shadow::beyond_this_node())
    out.ranks = shadow::duplicate(reinterpret_cast<const void*>(entry.lib.nc_create_par), program);
  if (out.ranks == nullptr) {
    capture::say_of_coupling(out.place.path + " is coupled, and its ranks cannot use it together: " +
                             (shadow::beyond_this_node() ? "some are on other nodes" : "their MPI is not known"));
    out.code = ENOTSUP;
    return out;
  }
  capture::share_place(*out.ranks, NC_ENOMEM, out.code, out.place, [&](int& code, Place& place) {
    auto found = find();
    if (found)
      place = std::move(found).value();
    else
      code = found.error().code == Code::exists ? NC_EEXIST : code_of(found.error());
  });
  return out;
}

/// The library answers such a call before it asks for other ranks.
bool refused_alone(const char* path, int mode) {
  const int format = mode & (NC_NETCDF4 | NC_64BIT_OFFSET | NC_64BIT_DATA);
  return path == nullptr || *trimmed(path) == '\0' || (format & (format - 1)) != 0;
}

/// Collective. All ranks go into the library or none: it waits for all of them.
template <typename Open>
int open_together(const Entry& entry, const shadow::ProgramCommunicator& program, const char* path, int mode, int* ncid,
                  Open&& open, bool creates = false) {
  const bool writing = creates || (mode & NC_WRITE) != 0;
  if (entry.nested() || refused_alone(path, 0)) return open(path);
  PlaceTogether at;  // without memory for that the rank still takes part
  shadow::guarded("nc_open_par", [&] {
    at = place_together(entry, program, path, [&] { return capture::place_to_open(trimmed(path), writing); });
  });
  if (at.code != NC_NOERR) return at.code;
  if (at.ranks != nullptr) {
    if (!at.place.coupled) at.place.coupled.emplace();
    return lend(path, at.place, ncid, open, std::move(at.ranks));
  }
  const int code = wait_for(path, writing, true);
  const auto ranks = shadow::beyond_this_node()
                         ? nullptr
                         : shadow::duplicate(reinterpret_cast<const void*>(entry.lib.nc_open_par), program);
  if (ranks != nullptr && !ranks->all(code == NC_NOERR)) return code != NC_NOERR ? code : NC_EIO;
  if (code != NC_NOERR || ranks == nullptr || creates) return code != NC_NOERR ? code : open(path);
  std::string place;  // without memory for that the rank still takes part
  shadow::guarded("nc_open_par", [&] { place = trimmed(path); });
  if (open_file_together(entry.lib, ranks, {path, place, mode & ~NC_MPIIO, ncid})) return NC_NOERR;
  if (writing) (void)wait_for(path, true, true);  // another process may have it now
  return open(path);
}

template <typename Create>
int create_file_together(const Entry& entry, const shadow::ProgramCommunicator& program, const char* path, int mode,
                         int* ncid, Create&& create) {
  if (entry.nested() || refused_alone(path, mode)) return create(path);
  const bool no_clobber = (mode & NC_NOCLOBBER) != 0;
  PlaceTogether at;  // without memory for that the rank still takes part
  shadow::guarded("nc_create_par", [&] {
    at = place_together(entry, program, path, [&] { return capture::place_to_create(trimmed(path), no_clobber); });
  });
  if (at.code != NC_NOERR) return at.code;
  // On all ranks there is something to note: closing is collective.
  if (at.ranks != nullptr && !at.place.coupled) at.place.coupled.emplace();
  if (entry.lib.nc_create_par != nullptr && capture_together(entry.lib, program, path, at.place, mode, ncid))
    return NC_NOERR;
  if (at.ranks != nullptr) return lend(path, at.place, ncid, create, std::move(at.ranks));
  return no_clobber ? create(path) : open_together(entry, program, path, mode, ncid, create, true);
}

/// A dataset of the real library has been closed, with that code.
int give_back(std::optional<LentFiles::Lent> lent, int code, bool complete) {
  if (!lent) return code;
  // What the others have written is in the file, too.
  const bool all = lent->beside == nullptr || lent->beside->all(code == NC_NOERR);
  const auto left = capture::leave(lent->opened, complete && all && code == NC_NOERR);
  return code == NC_NOERR && !left ? code_of(left.error()) : code;
}

shadow::ProgramCommunicator of_fortran(int comm, int info) {
  const auto in_pointer = [](int handle) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(handle)); };
  return {in_pointer(comm), in_pointer(info), true};
}

}  // namespace

ADVECTIO_EXPORT int nc_create(const char* path, int mode, int* ncid) try {
  ADVECTIO_ENTER;
  return create_file(entry, path, mode, ncid, [&](const char* at) { return ADVECTIO_REAL(nc_create, at, mode, ncid); });
}
ADVECTIO_GUARDED

/// The library's nc_create ends with a jump to this function, so its caller seems to be the program's. A
/// program that calls this one was linked with it, or has looked it up.
static bool is_jumped_to(const Entry& entry) {
  return !entry.nested() && !shadow::imports(entry.return_address(), "nc__create") &&
         !shadow::imports(entry.return_address(), "__wrap_nc__create") && !was_looked_up("nc__create");
}

ADVECTIO_EXPORT int nc__create(const char* path, int mode, size_t initial, size_t* hint, int* ncid) try {
  ADVECTIO_ENTER;
  if (is_jumped_to(entry)) {
    say_past_us(path);
    return ADVECTIO_REAL(nc__create, path, mode, initial, hint, ncid);
  }
  return create_file(entry, path, mode, ncid,
                     [&](const char* at) { return ADVECTIO_REAL(nc__create, at, mode, initial, hint, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc__create_mp(const char* path, int mode, size_t initial, int pe, size_t* hint, int* ncid) try {
  ADVECTIO_ENTER;
  return create_file(entry, path, mode, ncid,
                     [&](const char* at) { return ADVECTIO_REAL(nc__create_mp, at, mode, initial, pe, hint, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_create_par(const char* path, int mode, void* comm, void* info, int* ncid) try {
  ADVECTIO_ENTER;
  return create_file_together(entry, {comm, info}, path, mode, ncid,
                              [&](const char* at) { return ADVECTIO_REAL(nc_create_par, at, mode, comm, info, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_create_par_fortran(const char* path, int mode, int comm, int info, int* ncid) try {
  ADVECTIO_ENTER;
  return create_file_together(entry, of_fortran(comm, info), path, mode, ncid, [&](const char* at) {
    return ADVECTIO_REAL(nc_create_par_fortran, at, mode, comm, info, ncid);
  });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_open_par(const char* path, int mode, void* comm, void* info, int* ncid) try {
  ADVECTIO_ENTER;
  return open_together(entry, {comm, info}, path, mode, ncid,
                       [&](const char* at) { return ADVECTIO_REAL(nc_open_par, at, mode, comm, info, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_open_par_fortran(const char* path, int mode, int comm, int info, int* ncid) try {
  ADVECTIO_ENTER;
  return open_together(entry, of_fortran(comm, info), path, mode, ncid,
                       [&](const char* at) { return ADVECTIO_REAL(nc_open_par_fortran, at, mode, comm, info, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_var_par_access(int ncid, int varid, int access) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->together().several())
    return file->together().set_access(varid, access);
  return ADVECTIO_REAL(nc_var_par_access, ncid, varid, access);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_open(const char* path, int mode, int* ncid) try {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, ncid, [&](const char* at) { return ADVECTIO_REAL(nc_open, at, mode, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc__open(const char* path, int mode, size_t* hint, int* ncid) try {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, ncid,
                   [&](const char* at) { return ADVECTIO_REAL(nc__open, at, mode, hint, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc__open_mp(const char* path, int mode, int pe, size_t* hint, int* ncid) try {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, ncid,
                   [&](const char* at) { return ADVECTIO_REAL(nc__open_mp, at, mode, pe, hint, ncid); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_close(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.interrupted(ncid); file != nullptr) return do_later(*file, WantedLater::What::close);
  if (auto* file = entry.find(ncid); file != nullptr) return open_files().remove(*file)->close();
  auto lent = entry.nested() ? std::nullopt : lent_files().take(ncid);
  return give_back(std::move(lent), ADVECTIO_REAL(nc_close, ncid), true);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_close_memio(int ncid, void* memory) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.interrupted(ncid); file != nullptr) return do_later(*file, WantedLater::What::close);
  if (auto* file = entry.find(ncid); file != nullptr) return open_files().remove(*file)->close();
  auto lent = entry.nested() ? std::nullopt : lent_files().take(ncid);
  return give_back(std::move(lent), ADVECTIO_REAL(nc_close_memio, ncid, memory), true);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_abort(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.interrupted(ncid); file != nullptr) return do_later(*file, WantedLater::What::close);
  if (auto* file = entry.find(ncid); file != nullptr) return open_files().remove(*file)->abort();
  auto lent = entry.nested() ? std::nullopt : lent_files().take(ncid);
  return give_back(std::move(lent), ADVECTIO_REAL(nc_abort, ncid), false);
}
ADVECTIO_GUARDED

/// Before the library syncs a dataset that it has open to read: it shall see what was synced in this run.
static int let_reader_see(const Entry& entry, int ncid) {
  if (entry.nested() || std::getenv("ADVECTIO_RUN") == nullptr || entry.lib.nc_inq_path == nullptr) return NC_NOERR;
  std::size_t bytes = 0;
  int format = 0, mode = 0;
  if (entry.lib.nc_inq_format_extended == nullptr ||
      entry.lib.nc_inq_format_extended(ncid, &format, &mode) != NC_NOERR || (mode & (NC_WRITE | NC_DISKLESS)) != 0 ||
      entry.lib.nc_inq_path(ncid, &bytes, nullptr) != NC_NOERR)
    return NC_NOERR;
  std::string path(bytes + 1, '\0');
  if (entry.lib.nc_inq_path(ncid, &bytes, path.data()) != NC_NOERR) return NC_NOERR;
  path.resize(bytes);
  auto* session = Session::current();
  if (session == nullptr || (file_at(path) == nullptr && !session->is_in_flight(path))) return NC_NOERR;
  const int code = wait_for(path.c_str(), false);
  // A classic file's header is read again by the library. HDF5 sees what another has written when it opens the file.
  return code != NC_NOERR || format != NC_FORMATX_NC_HDF5 ? code : open_again(entry.lib, ncid, path);
}

ADVECTIO_EXPORT int nc_sync(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.interrupted(ncid); file != nullptr) return do_later(*file, WantedLater::What::sync);
  if (auto* file = entry.find(ncid); file != nullptr) return file->sync();
  int code = NC_NOERR;
  // Without memory for it the library syncs all the same: other ranks may wait for that.
  shadow::guarded("nc_sync", [&] { code = let_reader_see(entry, ncid); });
  return code != NC_NOERR ? code : ADVECTIO_REAL(nc_sync, ncid);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_redef(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->must_be_taken_over_to_define())
    if (const int code = take_over(*file); code != NC_NOERR) return code;
  if (auto* file = entry.find(ncid); file != nullptr) {
    const shadow::Stall stall(file->stall());
    return file->redef();
  }
  return ADVECTIO_REAL(nc_redef, ncid);
}
ADVECTIO_GUARDED

/// False: the code is the answer. True: the library has failed in the midst of the end of define mode
/// (4.9.0 does so for a quantized variable in the classic model). Only its own file tells what may be
/// done from here on, so it has the file now.
static bool must_end_in_library(CapturedFile& file, int& code) {
  const auto& shadow = file.shadow();
  // Of netCDF-4 proper only the library knows whether it was in define mode.
  const bool was_none = !shadow.defining() || (code == NC_ENOTINDEFINE && !shadow.explicit_modes());
  if (code == NC_NOERR || was_none || shadow.classic_format() || !file.can_hand_over_alone()) return false;
  if (auto* session = Session::current(); session != nullptr)
    session->say_once(file.path + ": the netCDF library fails to end define mode; it writes this file from here on");
  const int handed = open_files().remove(file)->hand_over();
  if (handed != NC_NOERR) code = handed;
  return handed == NC_NOERR;
}

ADVECTIO_EXPORT int nc_enddef(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->inherited())
    if (const int code = take_over(*file); code != NC_NOERR) return code;
  if (auto* file = entry.find(ncid); file != nullptr) {
    int code = file->enddef(nullptr, 0, 0, 0);
    if (!must_end_in_library(*file, code)) return code;
  }
  return ADVECTIO_REAL(nc_enddef, ncid);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc__enddef(int ncid, size_t header_pad, size_t data_align, size_t data_pad,
                               size_t record_align) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->inherited())
    if (const int code = take_over(*file); code != NC_NOERR) return code;
  if (auto* file = entry.find(ncid); file != nullptr) {
    int code = file->enddef(&header_pad, data_align, data_pad, record_align);
    if (!must_end_in_library(*file, code)) return code;
  }
  return ADVECTIO_REAL(nc__enddef, ncid, header_pad, data_align, data_pad, record_align);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_set_fill(int ncid, int fill_mode, int* old_mode) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->inherited())
    if (const int code = take_over(*file); code != NC_NOERR) return code;
  if (auto* file = entry.find(ncid); file != nullptr) return file->set_fill(fill_mode, old_mode);
  return ADVECTIO_REAL(nc_set_fill, ncid, fill_mode, old_mode);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_set_alignment(int threshold, int alignment) try {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(nc_set_alignment, threshold, alignment);
  if (code == NC_NOERR) aligned.store(alignment > 1, std::memory_order_relaxed);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_inq_path(int ncid, size_t* length, char* path) try {
  ADVECTIO_ENTER;
  if (const auto* file = entry.find(ncid); file != nullptr) {
    if (length != nullptr) *length = file->path.size();
    if (path != nullptr) std::strcpy(path, file->path.c_str());
    return NC_NOERR;
  }
  if (const auto name = lent_files().name_of(ncid); !name.empty()) {
    if (length != nullptr) *length = name.size();
    if (path != nullptr) std::strcpy(path, name.c_str());
    return NC_NOERR;
  }
  std::size_t bytes = 0;
  int code = ADVECTIO_REAL(nc_inq_path, ncid, &bytes, nullptr);
  std::string name(bytes + 1, '\0');
  if (code == NC_NOERR) code = ADVECTIO_REAL(nc_inq_path, ncid, &bytes, name.data());
  if (code != NC_NOERR) return code;
  name = name_for_program(name.c_str());
  if (length != nullptr) *length = name.size();
  if (path != nullptr) std::strcpy(path, name.c_str());
  return NC_NOERR;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_inq_format_extended(int ncid, int* format, int* mode) try {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(nc_inq_format_extended, ncid, format, mode);
  if (const auto* file = entry.find(ncid); file != nullptr && code == NC_NOERR && mode != nullptr)
    // That a file keeps to the classic model is known only of one that is made.
    *mode = (*mode & ~(NC_DISKLESS | (file->was_there() ? NC_CLASSIC_MODEL : 0))) |
            (file->mode & (NC_NOCLOBBER | NC_SHARE | NC_LOCK));
  return code;
}
ADVECTIO_GUARDED

}  // namespace advectio::netcdf
