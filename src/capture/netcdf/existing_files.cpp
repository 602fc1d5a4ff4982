#include "capture/netcdf/existing_files.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "capture/launcher.h"
#include "capture/netcdf/closed_files.h"
#include "capture/netcdf/description.h"
#include "capture/netcdf/open_files.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio::netcdf {
namespace {

FileFormat format_of(int format) {
  return static_cast<FileFormat>(format);
}
static_assert(NC_FORMAT_CLASSIC == static_cast<int>(FileFormat::classic) &&
              NC_FORMAT_64BIT_OFFSET == static_cast<int>(FileFormat::offset64) &&
              NC_FORMAT_NETCDF4 == static_cast<int>(FileFormat::netcdf4) &&
              NC_FORMAT_NETCDF4_CLASSIC == static_cast<int>(FileFormat::netcdf4_classic) &&
              NC_FORMAT_CDF5 == static_cast<int>(FileFormat::cdf5));

}  // namespace

int make_shadow(const RealLibrary& lib, int mode, Shadow& shadow) {
  static std::atomic<unsigned> count{0};
  // A name of our own: two datasets in memory by one name would be one to HDF5. And one that no
  // file can have: giving up a new dataset removes its file.
  const std::string name = "/dev/null/advectio-shadow-" + std::to_string(count.fetch_add(1));
  const int flags = (mode & ~(NC_NOCLOBBER | NC_SHARE | NC_LOCK)) | NC_DISKLESS;
  int code = lib.nc_create(name.c_str(), flags, &shadow.ncid);
  if (code != NC_NOERR) return code;
  int format = NC_FORMAT_NETCDF4;
  code = lib.nc_inq_format(shadow.ncid, &format);
  shadow.format = format_of(format);
  if (code == NC_NOERR && !is_hdf5(shadow.format)) {
    code = lib.nc_enddef(shadow.ncid);
    if (code == NC_NOERR) code = lib.nc_redef(shadow.ncid);
  }
  if (code != NC_NOERR) lib.nc_abort(shadow.ncid);
  return code;
}

void drop(const RealLibrary& lib, const Shadow& shadow) {
  lib.nc_abort(shadow.ncid);
}

namespace {

/// Flags by which the library creates such a file.
int creation_flags(FileFormat format) {
  switch (format) {
    case FileFormat::netcdf4: return NC_NETCDF4;
    case FileFormat::netcdf4_classic: return NC_NETCDF4 | NC_CLASSIC_MODEL;
    case FileFormat::offset64: return NC_64BIT_OFFSET;
    case FileFormat::cdf5: return NC_64BIT_DATA;
    default: return 0;
  }
}

/// The classic format has no flag: it is what the library makes by default, and a program may have set another default.
class ClassicByDefault {
 public:
  explicit ClassicByDefault(const RealLibrary& lib) : lib_(lib) {
    is_set_ =
        lib.nc_set_default_format != nullptr && lib.nc_set_default_format(NC_FORMAT_CLASSIC, &before_) == NC_NOERR;
  }
  ~ClassicByDefault() {
    if (is_set_) lib_.nc_set_default_format(before_, nullptr);
  }
  ClassicByDefault(const ClassicByDefault&) = delete;
  ClassicByDefault& operator=(const ClassicByDefault&) = delete;

 private:
  const RealLibrary& lib_;
  int before_ = NC_FORMAT_CLASSIC;
  bool is_set_ = false;
};

/// A dataset in memory with the definitions of that file, numbered alike. False: the library does not repeat them.
bool make_shadow_of(const RealLibrary& lib, const ClosedFile& file, Shadow& shadow) {
  {
    const ClassicByDefault classic(lib);
    if (make_shadow(lib, creation_flags(file.schema.format), shadow) != NC_NOERR) return false;
  }
  Description description(lib, shadow.ncid, shadow.format);
  description.touch(Touched::everything, NC_GLOBAL);
  auto wanted = file.schema;
  // A classic file does not say which variables were not to be filled: what is put from here on is.
  if (!is_hdf5(wanted.format))
    for (auto& v : wanted.variables) v.no_fill = false;
  // The shadow knows nothing of the layout in the file.
  wanted.header_pad = wanted.data_align = wanted.data_pad = wanted.record_align = 0;
  if (shadow.format == wanted.format && define(lib, shadow.ncid, wanted) == NC_NOERR &&
      description.read(NC_FILL) == wanted)
    return true;
  drop(lib, shadow);
  return false;
}

/// A file's filters have further parameters, which HDF5 has set. Here they are as a program defines them.
void as_defined(Filter& filter) {
  constexpr std::uint32_t entropy_coding = 4, nearest_neighbour = 32;  // the others say how the bytes lie
  auto& parameters = filter.parameters;
  if (filter.id == filter_id::shuffle || filter.id == filter_id::fletcher32) parameters.clear();
  if (filter.id == filter_id::szip && parameters.size() > 2) {
    parameters.resize(2);
    parameters[0] &= entropy_coding | nearest_neighbour;
  }
}

/// A file as the library sees it, whoever has made it. Nothing: it has more than sinks can hold, or
/// the library cannot open it.
std::optional<ClosedFile> look_at_file(const RealLibrary& lib, const std::string& path) {
  if (lib.nc_inq_grps == nullptr || lib.nc_inq_typeids == nullptr || lib.nc_inq_format_extended == nullptr) return {};
  int ncid = -1;
  if (lib.nc_open(path.c_str(), NC_NOWRITE, &ncid) != NC_NOERR) return {};
  std::optional<ClosedFile> file;
  int kind = 0, mode = 0, format = 0, groups = 0, types = 0;
  // Ranks may have a classic file open together.
  if (lib.nc_inq_format_extended(ncid, &kind, &mode) == NC_NOERR &&
      (kind == NC_FORMATX_NC_HDF5 || (kind == NC_FORMATX_NC3 && !capture::is_rank_of_several())) &&
      lib.nc_inq_format(ncid, &format) == NC_NOERR && lib.nc_inq_grps(ncid, &groups, nullptr) == NC_NOERR &&
      groups == 0 && lib.nc_inq_typeids(ncid, &types, nullptr) == NC_NOERR && types == 0) {
    Description description(lib, ncid, format_of(format));
    description.touch(Touched::everything, NC_GLOBAL);
    file.emplace();
    file->of_others = true;
    file->schema = description.read(NC_FILL);
    for (auto& v : file->schema.variables)
      for (auto& filter : v.filters) as_defined(filter);
    file->lengths.resize(file->schema.dimensions.size());
    for (std::size_t d = 0; d < file->lengths.size() && file; ++d)
      if (std::size_t length = 0; lib.nc_inq_dimlen(ncid, static_cast<int>(d), &length) == NC_NOERR)
        file->lengths[d] = length;
      else
        file.reset();
  }
  lib.nc_close(ncid);
  return file;
}

struct OpenedAgain {
  std::unique_ptr<CapturedDataset> out;
  ClosedFile known;
  Shadow shadow;
};

/// `open` opens the dataset. Code::invalid: nothing worth a line is in the way.
template <typename Open>
Result<OpenedAgain> open_with_shadow(const RealLibrary& lib, ClosedFile known, Open&& open) {
  OpenedAgain opened{nullptr, std::move(known), {}};
  if (!make_shadow_of(lib, opened.known, opened.shadow))
    return Error{Code::invalid, "the library does not repeat its definitions", 0};
  auto out = shadow::as_result([&] { return open(opened.known); });
  if (!out) {
    drop(lib, opened.shadow);
    return std::move(out).error();
  }
  opened.out = std::move(out).value();
  return opened;
}

/// A file of others that may be carried, and its schema.
struct FoundFile {
  FileToOpen file;
  ClosedFile known;
};
std::optional<FoundFile> find_file(const RealLibrary& lib, const Session& session, const std::string& at) {
  auto file = shadow::look_at(at);
  if (!file || session.is_in_flight(at)) return {};
  auto known = look_at_file(lib, at);
  if (!known) return {};
  file->format = known->schema.format;
  return FoundFile{std::move(*file), std::move(*known)};
}

/// See open_file_of_others.
Result<OpenedAgain> open_of_others(const RealLibrary& lib, Session& session, const std::string& at) {
  auto found = find_file(lib, session, at);
  if (!found) return Error{Code::invalid, "it is not a file that may be carried", 0};
  return open_with_shadow(lib, std::move(found->known),
                          [&](const ClosedFile&) { return session.open_file_of_others(found->file); });
}

/// The mode of a file that was opened by `call`.
int flags_of(const Shadow& shadow, const OpenCall& call) {
  return creation_flags(shadow.format) | (call.mode & (NC_WRITE | NC_NOCLOBBER | NC_LOCK));
}

/// The handle of the program becomes that of the dataset.
Result<void> keep_opened(const RealLibrary& lib, OpenedAgain opened, const OpenCall& call) {
  const auto shadow = opened.shadow;
  bool has_shadow = false;
  const int as_opened = flags_of(shadow, call);
  auto added = shadow::as_result([&]() -> Result<void> {
    auto file = std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(call.path), as_opened, shadow.format,
                                               std::move(opened.out), call.at);
    has_shadow = true;
    if (const int code = file->take_up(opened.known); code != NC_NOERR) {
      (void)file->close();
      return Error{Code::unsupported, "the library answers " + std::to_string(code), 0};
    }
    if (auto answer = file->out().await_answer(); !answer) {
      (void)file->out().abort();
      return std::move(answer).error();
    }
    (void)open_files().add(std::move(file));
    return {};
  });
  if (added) *call.ncid = shadow.ncid;
  if (!added && !has_shadow) drop(lib, shadow);
  return added;
}

/// A file that the program opens for writing may be carried. Null: it may not.
Session* session_to_open(const OpenCall& call) {
  constexpr int understood =
      NC_WRITE | NC_LOCK | NC_NOCLOBBER | NC_CLASSIC_MODEL | NC_64BIT_DATA | NC_64BIT_OFFSET | NC_NETCDF4;
  if (call.ncid == nullptr || (call.mode & ~understood) != 0 || std::getenv("ADVECTIO_RUN") == nullptr) return nullptr;
  auto* session = Session::current();
  return session != nullptr && session->wants(trimmed(call.path)) && file_at(call.at) == nullptr ? session : nullptr;
}

}  // namespace

bool open_own_file(const RealLibrary& lib, const OpenCall& call, std::string& why) {
  auto* session = session_to_open(call);
  if (session == nullptr) return false;
  const auto begun = shadow::now_ns();
  auto known = ClosedFiles::of_process().take(session->identity_of(call.at));
  if (!known) return false;
  auto opened = open_with_shadow(lib, std::move(*known), [&](const ClosedFile&) { return session->reopen(call.at); });
  if (opened) opened->out->add_stall(shadow::now_ns() - begun);
  const auto kept = opened ? keep_opened(lib, std::move(opened).value(), call) : Result<void>(opened.error());
  if (!kept && kept.error().code == Code::unsupported) why = kept.error().message;
  return kept.ok();
}

bool open_file_of_others(const RealLibrary& lib, const OpenCall& call, const std::string& why) {
  auto* session = session_to_open(call);
  if (session == nullptr) return false;
  const auto begun = shadow::now_ns();
  auto opened = open_of_others(lib, *session, call.at);
  if (opened) opened->out->add_stall(shadow::now_ns() - begun);
  if (!opened) {
    if (!why.empty()) session->say_once(why);
    return false;
  }
  const auto kept = keep_opened(lib, std::move(opened).value(), call);
  if (kept) return true;
  session->say_once(call.at + " is opened for writing, and the netCDF library writes it: " + kept.error().message);
  return false;
}

namespace {
/// Each rank would have to know the length of a second unlimited dimension for each variable.
bool ranks_can_share(const Schema& schema) {
  return std::count_if(schema.dimensions.begin(), schema.dimensions.end(),
                       [](const Dimension& d) { return d.unlimited; }) < 2;
}
}  // namespace

bool open_file_together(const RealLibrary& lib, const std::shared_ptr<shadow::Ranks>& ranks, const OpenCall& call) {
  const auto begun = shadow::now_ns();
  int of_first = call.mode;
  ranks->broadcast(std::as_writable_bytes(std::span(&of_first, 1)));
  if ((of_first & NC_WRITE) == 0) return false;
  Session* session = nullptr;
  std::optional<FoundFile> found;
  const FileToOpen none;
  const FileToOpen* there = &none;
  Shadow shadow;
  bool can = false;
  shadow::guarded("nc_open_par", [&] {
    if (call.mode != of_first) return;
    session = session_to_open(call);
    // A rank outside this communicator may have the file open.
    if (session == nullptr || capture::is_rank_of_several(ranks->count())) return;
    found = find_file(lib, *session, call.at);
    // The library gives the classic formats to PnetCDF, where they are caught.
    can = found && is_hdf5(found->file.format) && ranks_can_share(found->known.schema) &&
          make_shadow_of(lib, found->known, shadow);
    if (can) there = &found->file;
  });
  const auto looked_ns = shadow::now_ns() - begun;
  CapturedFile* file = nullptr;
  SharedDataset* shared = nullptr;
  bool has_shadow = false;
  const auto keep = [&](std::unique_ptr<SharedDataset>& out) {
    shared = out.get();
    auto made = std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(call.path), flags_of(shadow, call),
                                               shadow.format, std::move(out), call.at);
    has_shadow = true;
    made->write_together(ranks, *shared);
    file = &open_files().add(std::move(made));
  };
  const auto forget = [&] { (void)open_files().remove(*file); };
  const auto take_up = [&]() -> Result<void> {
    const int code = file->take_up(found->known);
    // Later puts have a later collective index.
    shared->end_collective_call();
    if (code != NC_NOERR) return Error{Code::unsupported, "the library answers " + std::to_string(code), 0};
    shared->add_stall(looked_ns);
    return {};
  };
  if (shadow::open_together(*ranks, can, session, *there, "netCDF", keep, forget, take_up)) {
    *call.ncid = shadow.ncid;
    return true;
  }
  if (can && !has_shadow) drop(lib, shadow);
  return false;
}

}  // namespace advectio::netcdf
