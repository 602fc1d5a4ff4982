#include "sinks/netcdf4/hdf5.h"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include <new>
#include <string>

#include "sinks/netcdf4/crash_safe_file.h"
#include "sinks/netcdf4/hdf5_filters.h"

namespace advectio {

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  // A library built thread-safe keeps this setting per thread.
  thread_local bool quiet = false;
  if (!quiet) {
    (void)H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    quiet = true;
  }
  static const bool registered = [] {
    register_hdf5_filters();
    return true;
  }();
  (void)registered;
}

Error hdf5_error(std::string_view what) {
  std::string text;
  // Upwards: the first entry is where it went wrong.
  (void)H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* e, void* to) -> herr_t {
        auto& out = *static_cast<std::string*>(to);
        if (n == 0 && e->desc != nullptr) out = e->desc;
        return 0;
      },
      &text);
  (void)H5Eclear2(H5E_DEFAULT);
  return Error{Code::io, std::string(what) + ": HDF5: " + (text.empty() ? "failed" : text), 0};
}

namespace {

// HDF5's view of a CrashSafeFile. H5Fcreate opens twice (to look, then to create), so that this is only a handle.
struct DriverFile {
  H5FD_t base;  // HDF5 fills it in
  CrashSafeFile* file;
  haddr_t eoa;
};

DriverFile& of(H5FD_t* f) {
  return *reinterpret_cast<DriverFile*>(f);
}
const DriverFile& of(const H5FD_t* f) {
  return *reinterpret_cast<const DriverFile*>(f);
}

H5FD_t* driver_open(const char*, unsigned flags, hid_t access, haddr_t) {
  const void* info = H5Pget_driver_info(access);
  if (info == nullptr) return nullptr;
  auto* file = *static_cast<CrashSafeFile* const*>(info);
  // Without a superblock there is nothing to open, only to create.
  if ((flags & (H5F_ACC_TRUNC | H5F_ACC_CREAT)) == 0 && file->size() == 0) return nullptr;
  auto* out = new (std::nothrow) DriverFile{};
  if (out == nullptr) return nullptr;
  out->file = file;
  return &out->base;
}

herr_t driver_close(H5FD_t* f) {
  delete &of(f);
  return 0;
}

int driver_compare(const H5FD_t* a, const H5FD_t* b) {
  const auto x = reinterpret_cast<std::uintptr_t>(of(a).file), y = reinterpret_cast<std::uintptr_t>(of(b).file);
  return x < y ? -1 : x > y ? 1 : 0;
}

// As the library's own POSIX driver, so that space is laid out as in every other HDF5 file.
herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr)
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA
#ifdef H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
             | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
#endif
        ;
  return 0;
}

haddr_t driver_get_eoa(const H5FD_t* f, H5FD_mem_t) {
  return of(f).eoa;
}

herr_t driver_set_eoa(H5FD_t* f, H5FD_mem_t, haddr_t eoa) {
  of(f).eoa = eoa;
  of(f).file->set_allocated(eoa);
  return 0;
}

haddr_t driver_get_eof(const H5FD_t* f, H5FD_mem_t) {
  return of(f).file->size();
}

herr_t driver_read(H5FD_t* f, H5FD_mem_t, hid_t, haddr_t offset, size_t bytes, void* to) {
  return of(f).file->read(offset, {static_cast<std::byte*>(to), bytes}).ok() ? 0 : -1;
}

herr_t driver_write(H5FD_t* f, H5FD_mem_t type, hid_t, haddr_t offset, size_t bytes, const void* from) {
  of(f).file->write(offset, {static_cast<const std::byte*>(from), bytes},
                    type == H5FD_MEM_DRAW ? CrashSafeFile::Kind::raw : CrashSafeFile::Kind::metadata);
  return 0;
}

herr_t driver_truncate(H5FD_t* f, hid_t, hbool_t) {
  of(f).file->truncate(of(f).eoa);
  return 0;
}

hid_t driver() {
  static const hid_t id = [] {
    static H5FD_class_t c{};
#if H5_VERSION_GE(1, 13, 0)
    c.version = H5FD_CLASS_VERSION;
    c.value = static_cast<H5FD_class_value_t>(640);  // of the range for drivers of one application
#endif
    c.name = "advectio_crash_safe";
    c.maxaddr = (static_cast<haddr_t>(1) << 62) - 1;
    c.fc_degree = H5F_CLOSE_STRONG;
    c.fapl_size = sizeof(CrashSafeFile*);
    c.open = driver_open;
    c.close = driver_close;
    c.cmp = driver_compare;
    c.query = driver_query;
    c.get_eoa = driver_get_eoa;
    c.set_eoa = driver_set_eoa;
    c.get_eof = driver_get_eof;
    c.read = driver_read;
    c.write = driver_write;
    c.truncate = driver_truncate;
    const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
    for (int i = 0; i < H5FD_MEM_NTYPES; ++i) c.fl_map[i] = map[i];
    return H5FDregister(&c);
  }();
  return id;
}

}  // namespace

Hdf5Id crash_safe_access(CrashSafeFile& file) {
  Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  CrashSafeFile* info = &file;
  // The bounds are netCDF-C's since 4.9.0: nothing newer than HDF5 1.8 can read.
  if (H5Pset_driver(access, driver(), &info) < 0 || H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
      H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0)
    access.reset();
  return access;
}

}  // namespace advectio
