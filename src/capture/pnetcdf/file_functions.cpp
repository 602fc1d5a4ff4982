// Create, open, modes, sync, close: the functions that begin and end datasets and frames.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "capture/coupling.h"
#include "capture/launcher.h"
#include "capture/pnetcdf/parallel_file.h"
#include "capture/shadow/open_files.h"
#include "capture/shadow/ranks.h"
#include "capture/shadow/shared_place.h"

namespace advectio::pnetcdf {
namespace {

shadow::OpenFiles<ParallelFile>& open_files() {
  return shadow::OpenFiles<ParallelFile>::of_process();
}

__attribute__((destructor)) void finish() {
  open_files().finish();
}

/// MPI-IO takes the kind of file system before a colon in the path.
bool has_prefix(const char* path) {
  const char* colon = std::strchr(path, ':');
  if (colon == nullptr) return false;
  const std::string prefix(path, colon);
  static const char* const known[] = {"ufs",    "nfs",  "xfs",    "pvfs2", "gpfs",   "panfs",
                                      "lustre", "daos", "testfs", "ime",   "quobyte"};
  return std::any_of(std::begin(known), std::end(known), [&prefix](const char* k) { return prefix == k; });
}

bool can_capture(const RealLibrary& lib, const char* path, int mode) {
  constexpr int understood = NC_WRITE | NC_NOCLOBBER | NC_64BIT_DATA | NC_64BIT_OFFSET | NC_LOCK | NC_SHARE;
  if (!lib.mpi.usable || path == nullptr || *path == '\0' || (mode & ~understood) != 0 || has_prefix(path))
    return false;
  struct stat there {};
  if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return false;
  // In this mode all ranks compare their arguments, to find errors in programs.
  const char* safe = std::getenv("PNETCDF_SAFE_MODE");
  return safe == nullptr || *safe == '\0' || *safe == '0';
}

/// A file of this rank's own in memory, beside the journals: what a killed process leaves goes with
/// the run directory.
std::string shadow_path(const Session& session) {
  static std::atomic<unsigned> count{0};
  const std::string directory = session.directory() + "/shadows";
  (void)mkdir(directory.c_str(), 0700);
  return directory + "/" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
}

struct Shadow {
  int ncid = -1;
  std::string path;
  FileFormat format = FileFormat::classic;
};

bool make_shadow(const RealLibrary& lib, const Session& session, int mode, MPI_Info info, Shadow& shadow) {
  shadow.path = shadow_path(session);
  if (lib.ncmpi_create(lib.mpi.self, shadow.path.c_str(), mode & ~NC_NOCLOBBER, info, &shadow.ncid) != NC_NOERR)
    return false;
  int format = NC_FORMAT_CLASSIC;
  lib.ncmpi_inq_format(shadow.ncid, &format);
  shadow.format = static_cast<FileFormat>(format);
  return true;
}

void drop(const RealLibrary& lib, const Shadow& shadow) {
  lib.ncmpi_abort(shadow.ncid);
  unlink(shadow.path.c_str());
}

/// Collective. False: the real library creates the file. Where we could not, it finds the reason
/// too and returns its own code. `path`: null where this rank has none. `code`: for a rank whose mode is
/// not rank 0's; rank 0's mode counts.
bool capture(const RealLibrary& lib, MPI_Comm comm, const char* name, const char* path, int mode, MPI_Info info,
             int* ncid, int& code, std::optional<workflow::Opened>& coupled) {
  if (shadow::beyond_this_node()) {
    shadow::say_beyond_this_node(path != nullptr ? path : "", "PnetCDF");
    return false;
  }
  const shadow::MpiRanks ranks(lib.mpi, comm, info);
  if (!ranks.usable()) return false;
  const int asked = mode;
  ranks.broadcast(std::as_writable_bytes(std::span(&mode, 1)));
  code = mode == asked ? NC_NOERR : NC_EMULTIDEFINE_CMODE;
  // An exception must not leave: the other ranks wait.
  Session* session = nullptr;
  bool can = false;
  Shadow shadow;
  CreateRequest request;
  shadow::guarded("ncmpi_create", [&] {
    if (ncid == nullptr || !can_capture(lib, path, mode)) return;
    session = Session::current();
    if (session == nullptr || !session->wants(name)) return;
    request.path = path;
    can = make_shadow(lib, *session, mode, info, shadow);
  });
  request.format = shadow.format;
  request.no_clobber = (mode & NC_NOCLOBBER) != 0;
  request.created_ns = coupled ? coupled->created_ns : 0;

  ParallelFile* file = nullptr;
  bool has_shadow = false;
  const auto keep = [&](std::unique_ptr<SharedDataset>& out) {
    auto made = std::make_unique<ParallelFile>(lib, shadow.ncid, name, shadow.path, ranks.rank(), ranks.count(),
                                               std::move(out));
    has_shadow = true;
    file = &open_files().add(std::move(made));
  };
  const auto forget = [&] { (void)open_files().remove(*file); };
  if (shadow::create_together(ranks, can, session, request, "PnetCDF", keep, forget)) {
    file->coupled = std::exchange(coupled, {});
    *ncid = shadow.ncid;
    return true;
  }
  if (can && !has_shadow) drop(lib, shadow);
  return false;
}

/// Before the real library touches a path: let what is in flight there arrive.
int wait_for(const char* path, bool writing) noexcept try {
  if (path == nullptr || *path == '\0' || std::getenv("ADVECTIO_RUN") == nullptr) return NC_NOERR;
  auto* session = Session::current();
  if (session == nullptr) return NC_NOERR;
  const auto waited = session->wait_for_file(path, writing);
  if (waited.ok()) return NC_NOERR;
  session->say_once(waited.error().message);
  return code_of(waited.error());
}
ADVECTIO_GUARDED

/// Collective. All ranks go into the library or none: it waits for all of them.
int wait_together(const RealLibrary& lib, MPI_Comm comm, MPI_Info info, const char* path, bool writing) {
  const int code = wait_for(path, writing);
  const shadow::MpiRanks ranks(lib.mpi, comm, info);
  if (shadow::beyond_this_node() || !ranks.usable() || ranks.all(code == NC_NOERR)) return code;
  return code != NC_NOERR ? code : NC_EFILE;
}

/// The shadow gets the definitions of the file under the same numbers. False: the library cannot
/// repeat them.
bool define_as(const RealLibrary& lib, int from, const Shadow& shadow) {
  int dimensions = 0, variables = 0, attributes = 0, record = -1;
  if (lib.ncmpi_inq(from, &dimensions, &variables, &attributes, &record) != NC_NOERR) return false;
  char name[NC_MAX_NAME + 1] = {};
  int id = -1;
  const auto copy_attributes = [&](int variable, int count) {
    for (int a = 0; a < count; ++a)
      if (lib.ncmpi_inq_attname(from, variable, a, name) != NC_NOERR ||
          lib.ncmpi_copy_att(from, variable, name, shadow.ncid, variable) != NC_NOERR)
        return false;
    return true;
  };
  for (int d = 0; d < dimensions; ++d) {
    MPI_Offset length = 0;
    if (lib.ncmpi_inq_dim(from, d, name, &length) != NC_NOERR ||
        lib.ncmpi_def_dim(shadow.ncid, name, d == record ? NC_UNLIMITED : length, &id) != NC_NOERR || id != d)
      return false;
  }
  for (int v = 0; v < variables; ++v) {
    nc_type type = NC_NAT;
    int rank = 0, count = 0, no_fill = 1;
    if (lib.ncmpi_inq_var(from, v, name, &type, &rank, nullptr, &count) != NC_NOERR ||
        lib.ncmpi_inq_var_fill(from, v, &no_fill, nullptr) != NC_NOERR)
      return false;
    std::vector<int> ids(static_cast<std::size_t>(rank) + 1);
    if (lib.ncmpi_inq_var(from, v, nullptr, nullptr, nullptr, ids.data(), nullptr) != NC_NOERR ||
        lib.ncmpi_def_var(shadow.ncid, name, type, rank, ids.data(), &id) != NC_NOERR || id != v ||
        lib.ncmpi_def_var_fill(shadow.ncid, v, no_fill, nullptr) != NC_NOERR || !copy_attributes(v, count))
      return false;
  }
  return copy_attributes(NC_GLOBAL, attributes);
}

int creation_flags(FileFormat format) {
  switch (format) {
    case FileFormat::offset64: return NC_64BIT_OFFSET;
    case FileFormat::cdf5: return NC_64BIT_DATA;
    default: return 0;
  }
}

/// A file that is there, as this rank has read it, and a shadow with its definitions.
struct Existing {
  FileToOpen there;
  MPI_Offset records = 0;
  Shadow shadow;
};

/// False: it is no classic file, or the library cannot repeat its definitions.
bool look_at_file(const RealLibrary& lib, const Session& session, MPI_Info info, const char* path, Existing& file) {
  struct OpenFile {
    ~OpenFile() {
      if (id >= 0) lib.ncmpi_close(id);
    }
    const RealLibrary& lib;
    int id = -1;
  } from{lib};
  struct Made {
    ~Made() {
      if (shadow != nullptr) drop(lib, *shadow);
    }
    const RealLibrary& lib;
    Shadow* shadow = nullptr;
  } made{lib};
  auto there = shadow::look_at(path);
  if (!there || session.is_in_flight(path)) return false;
  int format = 0, record = -1;
  if (lib.ncmpi_open(lib.mpi.self, path, NC_NOWRITE, lib.mpi.no_info, &from.id) != NC_NOERR) {
    from.id = -1;
    return false;
  }
  if (lib.ncmpi_inq_format(from.id, &format) != NC_NOERR ||
      (format != NC_FORMAT_CLASSIC && format != NC_FORMAT_CDF2 && format != NC_FORMAT_CDF5) ||
      lib.ncmpi_inq_unlimdim(from.id, &record) != NC_NOERR ||
      (record >= 0 && lib.ncmpi_inq_dimlen(from.id, record, &file.records) != NC_NOERR))
    return false;
  file.there = std::move(*there);
  file.there.format = static_cast<FileFormat>(format);
  if (!make_shadow(lib, session, creation_flags(file.there.format), info, file.shadow)) return false;
  made.shadow = &file.shadow;
  if (!define_as(lib, from.id, file.shadow)) return false;
  made.shadow = nullptr;
  return true;
}

/// Collective, also for ranks that only read. A file that is there, opened for writing by all ranks
/// of the job. False: the library opens it, if `code` is NC_NOERR.
bool open_carried(const RealLibrary& lib, MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid,
                  int& code) {
  const auto begun = shadow::now_ns();
  const shadow::MpiRanks ranks(lib.mpi, comm, info);
  if (shadow::beyond_this_node() || !ranks.usable()) return false;
  // The library uses rank 0's mode. A rank with another mode gets an error.
  int of_first = mode;
  ranks.broadcast(std::as_writable_bytes(std::span(&of_first, 1)));
  if ((of_first & NC_WRITE) == 0) return false;
  Session* session = nullptr;
  bool can = false;
  Existing file;
  shadow::guarded("ncmpi_open", [&] {
    if (ncid == nullptr || mode != of_first || !can_capture(lib, path, mode)) return;
    // A rank outside this communicator may have the file open.
    if (std::getenv("ADVECTIO_RUN") == nullptr || capture::is_rank_of_several(ranks.count())) return;
    session = Session::current();
    can = session != nullptr && session->wants(path) && look_at_file(lib, *session, info, path, file);
  });
  const auto looked_ns = shadow::now_ns() - begun;
  ParallelFile* opened = nullptr;
  bool has_shadow = false;
  const auto keep = [&](std::unique_ptr<SharedDataset>& out) {
    auto made = std::make_unique<ParallelFile>(lib, file.shadow.ncid, path, file.shadow.path, ranks.rank(),
                                               ranks.count(), std::move(out));
    has_shadow = true;
    opened = &open_files().add(std::move(made));
  };
  const auto forget = [&] { (void)open_files().remove(*opened); };
  const auto take_up = [&]() -> Result<void> {
    const int taken = opened->take_up(file.records);
    if (taken != NC_NOERR) return Error{Code::unsupported, "the library answers " + std::to_string(taken), 0};
    opened->out().add_stall(looked_ns);
    return {};
  };
  if (shadow::open_together(ranks, can, session, file.there, "PnetCDF", keep, forget, take_up)) {
    *ncid = file.shadow.ncid;
    return true;
  }
  if (can && !has_shadow) drop(lib, file.shadow);
  code = wait_together(lib, comm, info, path, true);  // another process may have it now
  return false;
}

/// Coupled files that the library has open.
using LentFiles = capture::LentFiles<std::shared_ptr<shadow::Ranks>>;
LentFiles& lent_files() {
  return LentFiles::of_process();
}

/// The place of a coupled file, which rank 0 finds by `find`. Null `ranks`: it is not coupled.
struct PlaceTogether {
  int code = NC_NOERR;
  capture::Place place;
  std::shared_ptr<shadow::Ranks> ranks;
  [[nodiscard]] const char* path() const { return place.path.c_str(); }
};

/// Collective where the name is coupled.
template <typename Find>
PlaceTogether place_together(const RealLibrary& lib, MPI_Comm comm, MPI_Info info, const char* path, Find&& find) {
  PlaceTogether out{NC_NOERR, {path != nullptr ? path : "", {}}, nullptr};
  if (path == nullptr || *path == '\0') return out;
  if (const auto there = capture::run_is_there(path); !there) {
    out.code = code_of(there.error());
    return out;
  }
  auto* workflow = capture::workflow_of_process();
  if (workflow == nullptr || !workflow->of(path)) return out;
  if (const shadow::MpiRanks theirs(lib.mpi, comm, info); theirs.usable() && !shadow::beyond_this_node())
    out.ranks =
        shadow::duplicate(reinterpret_cast<const void*>(lib.ncmpi_create), {theirs.communicator(), theirs.hints()});
  if (out.ranks == nullptr) {
    capture::say_of_coupling(out.place.path + " is coupled, and its ranks cannot use it together: " +
                             (shadow::beyond_this_node() ? "some are on other nodes" : "their MPI is not known"));
    out.code = NC_EFILE;
    return out;
  }
  capture::share_place(*out.ranks, NC_ENOMEM, out.code, out.place, [&](int& code, capture::Place& place) {
    auto found = find();
    if (found)
      place = std::move(found).value();
    else
      code = found.error().code == Code::exists ? NC_EEXIST : code_of(found.error());
  });
  if (out.code == NC_NOERR && !out.place.coupled) out.place.coupled.emplace();
  return out;
}

/// The library has opened or created the file, with that code.
int lend(const char* path, PlaceTogether& at, const int* ncid, int code) {
  if (at.ranks == nullptr) return code;
  if (code == NC_NOERR && ncid != nullptr)
    lent_files().add(*ncid, {path, std::move(*at.place.coupled), std::move(at.ranks)});
  else
    (void)capture::leave(*at.place.coupled, false);
  return code;
}

/// The library has closed it.
int give_back(std::optional<LentFiles::Lent> lent, int code, bool complete) {
  if (!lent) return code;
  // What the others have written is in the file, too.
  const bool all = lent->beside->all(code == NC_NOERR);
  const auto left = capture::leave(lent->opened, complete && all);
  return code == NC_NOERR && !left ? code_of(left.error()) : code;
}

}  // namespace

ADVECTIO_EXPORT int ncmpi_create(MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid) try {
  ADVECTIO_ENTER;
  // The library answers without a name before it asks for other ranks.
  if (entry.nested() || entry.lib.ncmpi_create == nullptr || path == nullptr || *path == '\0')
    return ADVECTIO_REAL(ncmpi_create, comm, path, mode, info, ncid);
  const bool no_clobber = (mode & NC_NOCLOBBER) != 0;
  PlaceTogether at;
  bool placed = false;  // without memory for that the rank still takes part
  shadow::guarded("ncmpi_create", [&] {
    at = place_together(entry.lib, comm, info, path, [&] { return capture::place_to_create(path, no_clobber); });
    placed = true;
  });
  if (at.code != NC_NOERR) return at.code;
  const char* place = at.ranks != nullptr ? at.path() : path;
  int captured = NC_NOERR;
  if (capture(entry.lib, comm, path, placed ? place : nullptr, mode, info, ncid, captured, at.place.coupled))
    return captured;
  if (!no_clobber && at.ranks == nullptr) {
    if (const int code = wait_together(entry.lib, comm, info, path, true); code != NC_NOERR) return code;
  }
  return lend(path, at, ncid, ADVECTIO_REAL(ncmpi_create, comm, place, mode, info, ncid));
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_open(MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid) try {
  ADVECTIO_ENTER;
  if (entry.nested() || path == nullptr || *path == '\0')
    return ADVECTIO_REAL(ncmpi_open, comm, path, mode, info, ncid);
  const bool writing = (mode & NC_WRITE) != 0;
  PlaceTogether at;
  shadow::guarded("ncmpi_open", [&] {
    at = place_together(entry.lib, comm, info, path, [&] { return capture::place_to_open(path, writing); });
  });
  if (at.code != NC_NOERR) return at.code;
  if (at.ranks == nullptr) {
    int code = wait_together(entry.lib, comm, info, path, writing);
    if (code == NC_NOERR && open_carried(entry.lib, comm, path, mode, info, ncid, code)) return NC_NOERR;
    if (code != NC_NOERR) return code;
  }
  return lend(path, at, ncid,
              ADVECTIO_REAL(ncmpi_open, comm, at.ranks != nullptr ? at.path() : path, mode, info, ncid));
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_delete(const char* path, MPI_Info info) try {
  ADVECTIO_ENTER;
  if (!entry.nested() && path != nullptr && capture::remove_coupled(path)) return NC_NOERR;
  if (!entry.nested()) (void)wait_for(path, true);
  return ADVECTIO_REAL(ncmpi_delete, path, info);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_file_format(const char* path, int* format) try {
  ADVECTIO_ENTER;
  if (entry.nested() || path == nullptr) return ADVECTIO_REAL(ncmpi_inq_file_format, path, format);
  auto place = capture::place_to_open(path, false);
  if (!place) return code_of(place.error());
  (void)wait_for(place->path.c_str(), false);
  const int code = ADVECTIO_REAL(ncmpi_inq_file_format, place->path.c_str(), format);
  if (place->coupled) (void)capture::leave(*place->coupled, false);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_close(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return open_files().remove(*file)->close();
  auto lent = entry.nested() ? std::nullopt : lent_files().take(ncid);
  return give_back(std::move(lent), ADVECTIO_REAL(ncmpi_close, ncid), true);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_abort(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return open_files().remove(*file)->abort();
  auto lent = entry.nested() ? std::nullopt : lent_files().take(ncid);
  return give_back(std::move(lent), ADVECTIO_REAL(ncmpi_abort, ncid), false);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_sync(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->sync();
  return ADVECTIO_REAL(ncmpi_sync, ncid);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_redef(int ncid) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_redef, ncid);
  Collective in_call(file->collective_out());
  const shadow::Stall stall(file->stall());
  const int code = file->redef();
  if (code != NC_NOERR) in_call.refused();
  return code;
}
ADVECTIO_GUARDED

static int end_definitions(ParallelFile& file, const MPI_Offset* pads) {
  Collective in_call(file.collective_out());
  const shadow::Stall stall(file.stall());
  const bool was_defining = file.defining();
  const int code = file.enddef(pads);
  if (code != NC_NOERR && (!was_defining || file.defining())) in_call.refused();
  return code;
}

ADVECTIO_EXPORT int ncmpi_enddef(int ncid) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_enddef, ncid);
  return end_definitions(*file, nullptr);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi__enddef(int ncid, MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad,
                                  MPI_Offset record_align) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi__enddef, ncid, header_pad, data_align, data_pad, record_align);
  const MPI_Offset pads[4] = {header_pad, data_align, data_pad, record_align};
  return end_definitions(*file, pads);
}
ADVECTIO_GUARDED

// Collective calls that change nothing but the mode of the library, and the collective index. THERE: the
// mode is there already, and the library asks no other rank.
#define ADVECTIO_MODE(F, THERE, DONE)                    \
  ADVECTIO_EXPORT int F(int ncid) try {                  \
    ADVECTIO_ENTER;                                      \
    auto* file = entry.find(ncid);                       \
    if (file == nullptr) return ADVECTIO_REAL(F, ncid);  \
    Collective in_call(file->collective_out(!(THERE)));  \
    int code = file->end_pending();                      \
    if (code == NC_NOERR) code = ADVECTIO_REAL(F, ncid); \
    if (code == NC_NOERR)                                \
      DONE;                                              \
    else                                                 \
      in_call.refused();                                 \
    return code;                                         \
  }                                                      \
  ADVECTIO_GUARDED
ADVECTIO_MODE(ncmpi_begin_indep_data, file->independent(), file->independent(true))
ADVECTIO_MODE(ncmpi_end_indep_data, !file->independent(), file->independent(false))
ADVECTIO_MODE(ncmpi_sync_numrecs, false, (void)0)
ADVECTIO_MODE(ncmpi_flush, false, (void)0)

}  // namespace advectio::pnetcdf
