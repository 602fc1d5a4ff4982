// chosen_calls NAME FORMAT: one conversation with the netCDF library as models, their libraries and tools hold it, or
// one that once went wrong. It writes files in the current directory and prints every return code and everything
// inquired, so that two runs can be compared. Knows nothing of Advectio. Without arguments: the names.
#include <dlfcn.h>
#include <netcdf.h>
#include <netcdf_filter.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// netCDF 4.9.3 names a parameter there `typeid`, a keyword of C++.
#define typeid type_id
#include <netcdf_aux.h>
#undef typeid

extern "C" {
// For netcdf-fortran; in the library, in no header.
int nc_set_chunk_cache_ints(int size, int elements, int preemption);
int nc_def_var_chunking_ints(int ncid, int varid, int contiguous, int* chunks);
// Of netCDF-2, in no header either.
int nc_inq_rec(int ncid, std::size_t* count, int* varids, std::size_t* bytes);
int nc_put_rec(int ncid, std::size_t record, void* const* data);
int nc_get_rec(int ncid, std::size_t record, void** data);
}

namespace {

int mode = 0;  // that of the format

int said(const char* what, int code) {
  std::printf("%s -> %d\n", what, code);
  return code;
}
#define DO(call) said(#call, call)

using Index = std::vector<std::size_t>;

std::vector<float> numbers(std::size_t n, float from) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = from + 0.5F * static_cast<float>(i);
  return v;
}

int create(const char* path, int more = 0) {
  int ncid = -1;
  DO(nc_create(path, mode | more, &ncid));
  std::printf("  %s is %d\n", path, ncid);
  return ncid;
}

int dimension(int ncid, const char* name, std::size_t length) {
  int id = -1;
  DO(nc_def_dim(ncid, name, length, &id));
  return id;
}

int variable(int ncid, const char* name, nc_type type, const std::vector<int>& dimensions) {
  int id = -1;
  DO(nc_def_var(ncid, name, type, static_cast<int>(dimensions.size()), dimensions.data(), &id));
  return id;
}

void text(int ncid, int varid, const char* name, const std::string& value) {
  DO(nc_put_att_text(ncid, varid, name, value.size(), value.c_str()));
}

void lengths(int ncid) {
  int n = 0, unlimited = -2;
  DO(nc_inq_ndims(ncid, &n));
  DO(nc_inq_unlimdim(ncid, &unlimited));
  std::printf("  unlimited %d\n", unlimited);
  for (int d = 0; d < n; ++d) {
    std::size_t length = 0;
    DO(nc_inq_dimlen(ncid, d, &length));
    std::printf("  %zu\n", length);
  }
}

void values(int ncid, int varid, std::size_t n) {
  std::vector<float> v(n, -1);
  DO(nc_get_var_float(ncid, varid, v.data()));
  for (const float x : v) std::printf(" %g", static_cast<double>(x));
  std::printf("\n");
}

/// What a reader that opens the file by its name finds in the first variable.
void read_back(const char* path, std::size_t n) {
  int ncid = -1;
  if (DO(nc_open(path, NC_NOWRITE, &ncid)) != NC_NOERR) return;
  lengths(ncid);
  values(ncid, 0, n);
  DO(nc_close(ncid));
}

/// time × 3, the first variable, with a frame in it.
struct Small {
  int ncid, time, n, v;
};
Small small(const char* path, int more = 0) {
  Small s{};
  s.ncid = create(path, more);
  s.time = dimension(s.ncid, "time", NC_UNLIMITED);
  s.n = dimension(s.ncid, "n", 3);
  s.v = variable(s.ncid, "v", NC_FLOAT, {s.time, s.n});
  DO(nc_enddef(s.ncid));
  DO(nc_put_vara_float(s.ncid, s.v, Index{0, 0}.data(), Index{1, 3}.data(), numbers(3, 1).data()));
  return s;
}
void frame(const Small& s, std::size_t at) {
  const float from = 10 * static_cast<float>(at);
  DO(nc_put_vara_float(s.ncid, s.v, Index{at, 0}.data(), Index{1, 3}.data(), numbers(3, from).data()));
}

/// netCDF 4.9.3 aborts the program that asks it for chunks, by its function for Fortran, of a classic file.
bool aborts_where_it_cannot_chunk() {
  int major = 0, minor = 0, patch = 0;
  std::sscanf(nc_inq_libvers(), "%d.%d.%d", &major, &minor, &patch);
  return (mode & NC_NETCDF4) == 0 && std::array<int, 3>{major, minor, patch} >= std::array<int, 3>{4, 9, 3};
}

// --- models --------------------------------------------------------------------------------------------------------

/// WRF's history: fields defined in a dry run, global attributes each in a redefinition of its own, frames with a sync.
void wrf_history() {
  const int ncid = create("wrfout_d01", NC_CLOBBER);
  DO(nc_set_chunk_cache_ints(16 << 20, 521, 75));
  const int time = dimension(ncid, "Time", NC_UNLIMITED), letters = dimension(ncid, "DateStrLen", 19);
  const int times = variable(ncid, "Times", NC_CHAR, {time, letters});
  const int west = dimension(ncid, "west_east", 6), south = dimension(ncid, "south_north", 5);
  std::vector<int> fields;
  for (const char* name : {"T2", "Q2", "HGT"}) {
    fields.push_back(variable(ncid, name, NC_FLOAT, {time, south, west}));
    std::array<int, 3> chunks{1, 5, 3};
    if (!aborts_where_it_cannot_chunk()) DO(nc_def_var_chunking_ints(ncid, fields.back(), NC_CHUNKED, chunks.data()));
    DO(nc_def_var_deflate(ncid, fields.back(), 1, 1, 2));
    const int field_type = 104;
    DO(nc_put_att_int(ncid, fields.back(), "FieldType", NC_INT, 1, &field_type));
    text(ncid, fields.back(), "MemoryOrder", "XY ");
    text(ncid, fields.back(), "stagger", std::string(1, '\0'));
  }
  int old = -1;
  DO(nc_set_fill(ncid, NC_NOFILL, &old));
  std::printf("  %d\n", old);
  DO(nc_enddef(ncid));
  for (int i = 0; i < 20; ++i) {
    DO(nc_redef(ncid));
    const std::string name = "ATTRIBUTE_" + std::to_string(i);
    const double value = i / 3.0;
    if (i % 2 == 0)
      DO(nc_put_att_double(ncid, NC_GLOBAL, name.c_str(), NC_FLOAT, 1, &value));
    else
      text(ncid, NC_GLOBAL, name.c_str(), "value " + std::to_string(i));
    DO(nc_enddef(ncid));
  }
  for (std::size_t t = 0; t < 3; ++t) {
    const std::string date = "2000-01-24_12:00:0" + std::to_string(t);
    DO(nc_put_vara_text(ncid, times, Index{t, 0}.data(), Index{1, 19}.data(), date.c_str()));
    for (const int f : fields) {
      int rank = 0;
      DO(nc_inq_varndims(ncid, f, &rank));
      DO(nc_put_vara_float(ncid, f, Index{t, 0, 0}.data(), Index{1, 5, 6}.data(),
                           numbers(30, static_cast<float>(f)).data()));
    }
    DO(nc_sync(ncid));
    lengths(ncid);
  }
  DO(nc_close(ncid));
}

/// SCALE: modes are the library's business; axes whole, time alone, then fields.
void scale_history() {
  const int ncid = create("history.pe000000.nc", NC_CLOBBER);
  const int x = dimension(ncid, "x", 4), time = dimension(ncid, "time", NC_UNLIMITED);
  const int axis = variable(ncid, "x", NC_FLOAT, {x}), clock = variable(ncid, "time", NC_DOUBLE, {time}),
            field = variable(ncid, "PREC", NC_FLOAT, {time, x});
  DO(nc_def_var_deflate(ncid, field, 0, 1, 2));
  const std::array<int, 2> global{8, 1};
  DO(nc_put_att_int(ncid, axis, "size_global", NC_INT, 1, global.data()));
  DO(nc_put_var_float(ncid, axis, numbers(4, 100).data()));
  for (std::size_t t = 0; t < 3; ++t) {
    const double seconds = 60.0 * static_cast<double>(t);
    DO(nc_put_var1_double(ncid, clock, &t, &seconds));
    DO(nc_put_vara_double(ncid, field, Index{t, 0}.data(), Index{1, 4}.data(),
                          std::vector<double>{0.1, 0.2, seconds, 1e-3}.data()));
    DO(nc_sync(ncid));
    text(ncid, field, "units", "kg/m2/s");
  }
  DO(nc_close(ncid));
}

/// NEMO and CDI: room in the header, variables between data, another redefinition after frames.
void nemo_output() {
  int ncid = -1;
  std::size_t hint = 0;
  DO(nc__create("ocean_0003.nc", mode, 0, &hint, &ncid));
  const int time = dimension(ncid, "time_counter", NC_UNLIMITED), x = dimension(ncid, "x", 3);
  const int first = variable(ncid, "sst", NC_FLOAT, {time, x}), depth = variable(ncid, "depth", NC_FLOAT, {x});
  const std::array<int, 2> position{1, 7};
  DO(nc_put_att_int(ncid, NC_GLOBAL, "DOMAIN_position_first", NC_INT, 2, position.data()));
  DO(nc__enddef(ncid, 4096, 4, 512, 4));
  DO(nc_put_vara_float(ncid, depth, Index{0}.data(), Index{3}.data(), numbers(3, 5).data()));
  DO(nc_put_vara_float(ncid, first, Index{0, 0}.data(), Index{1, 3}.data(), numbers(3, 0).data()));
  DO(nc_redef(ncid));
  const int late = variable(ncid, "sss", NC_DOUBLE, {time, x});
  text(ncid, first, "long_name", "sea surface temperature, in a rather long attribute");
  DO(nc_enddef(ncid));
  DO(nc_put_vara_float(ncid, late, Index{1, 0}.data(), Index{1, 3}.data(), numbers(3, 30).data()));
  lengths(ncid);
  values(ncid, first, 6);
  DO(nc_close(ncid));
  DO(nc__open("ocean_0003.nc", NC_NOWRITE, &hint, &ncid));
  values(ncid, 0, 6);
  DO(nc_close(ncid));
}

/// CM1: what cannot be opened is created; later runs append behind the length of time.
void cm1_appends() {
  for (std::size_t run = 0; run < 3; ++run) {
    Small s{};
    if (DO(nc_open("cm1out.nc", NC_WRITE, &s.ncid)) != NC_NOERR) {
      s = small("cm1out.nc");
    } else {
      DO(nc_inq_varid(s.ncid, "v", &s.v));
      std::size_t length = 0;
      DO(nc_inq_dimlen(s.ncid, 0, &length));
      frame(s, length);
      DO(nc_redef(s.ncid));
      text(s.ncid, NC_GLOBAL, "history", "run " + std::to_string(run));
      DO(nc_enddef(s.ncid));
    }
    DO(nc_close(s.ncid));
  }
  read_back("cm1out.nc", 9);
}

/// LETKF: the model's restart is overwritten in place, after a look whether it is there.
void letkf_overwrites() {
  DO(nc_close(small("restart.nc").ncid));
  if (FILE* there = std::fopen("restart.nc", "r"); there != nullptr) {
    std::printf("it is there\n");
    std::fclose(there);
  }
  Small s{};
  DO(nc_open("restart.nc", NC_WRITE, &s.ncid));
  DO(nc_inq_varid(s.ncid, "v", &s.v));
  values(s.ncid, s.v, 3);
  frame(s, 0);
  DO(nc_close(s.ncid));
  read_back("restart.nc", 3);
}

/// A field is kept transposed in memory, text comes as nf90 gives it, and every second element is written.
void fortran_shapes() {
  const int ncid = create("shapes.nc");
  const int x = dimension(ncid, "x", 4), y = dimension(ncid, "y", 3), letters = dimension(ncid, "letters", 5);
  const int field = variable(ncid, "field", NC_DOUBLE, {y, x}), names = variable(ncid, "names", NC_CHAR, {y, letters}),
            scalar = variable(ncid, "scalar", NC_INT, {});
  DO(nc_enddef(ncid));
  const std::array<std::ptrdiff_t, 2> transposed{1, 3}, ones{1, 1}, halves{1, 2};
  DO(nc_put_varm_float(ncid, field, Index{0, 0}.data(), Index{3, 4}.data(), ones.data(), transposed.data(),
                       numbers(12, 0).data()));
  DO(nc_put_vars_text(ncid, names, Index{0, 0}.data(), Index{3, 5}.data(), ones.data(), "one  two  three"));
  DO(nc_put_vars_double(ncid, field, Index{1, 0}.data(), Index{1, 2}.data(), halves.data(),
                        std::vector<double>{-1, -2}.data()));
  const int forty_two = 42;
  DO(nc_put_var_int(ncid, scalar, &forty_two));
  values(ncid, field, 12);
  DO(nc_close(ncid));
}

// --- files ---------------------------------------------------------------------------------------------------------

/// A post-processor in the same program reads while the model goes on.
void read_while_written() {
  const Small s = small("out.nc");
  DO(nc_sync(s.ncid));
  read_back("out.nc", 3);
  frame(s, 1);
  DO(nc_sync(s.ncid));
  read_back("out.nc", 6);
  frame(s, 3);
  values(s.ncid, s.v, 12);
  DO(nc_close(s.ncid));
  read_back("out.nc", 12);
}

/// A sum is kept in the file: read, add, write. Beside it everything else that a program may do between two reads.
void reads_adds_writes() {
  const Small s = small("sum.nc");
  DO(nc_redef(s.ncid));
  const int field = variable(s.ncid, "field", NC_SHORT, {s.n, s.n}),
            letters = variable(s.ncid, "letters", NC_CHAR, {s.n}), scalar = variable(s.ncid, "scalar", NC_DOUBLE, {});
  const bool has_strings = mode == NC_NETCDF4;
  const int words = has_strings ? variable(s.ncid, "words", NC_STRING, {s.n}) : -1;
  DO(nc_enddef(s.ncid));
  const std::array<std::ptrdiff_t, 2> ones{1, 1}, transposed{1, 3}, second{2, 2};
  for (std::size_t step = 0; step < 14; ++step) {
    values(s.ncid, s.v, 3 * (step / 3 + 1));
    frame(s, (step + 1) / 3);
    values(s.ncid, field, 9);
    const auto from = static_cast<float>(step);
    DO(nc_put_varm_float(s.ncid, field, Index{0, 0}.data(), Index{3, 3}.data(), ones.data(), transposed.data(),
                         numbers(9, from).data()));
    DO(nc_put_vars_float(s.ncid, field, Index{0, 0}.data(), Index{2, 2}.data(), second.data(),
                         numbers(4, -from).data()));
    const std::array<float, 2> far{1e9F, from};
    DO(nc_put_vara_float(s.ncid, field, Index{1, 1}.data(), Index{1, 2}.data(), far.data()));
    double total = 0;
    DO(nc_get_var_double(s.ncid, scalar, &total));
    std::printf("  %g\n", total);
    total = total > 1e30 ? 1 : total + 1;
    DO(nc_put_var_double(s.ncid, scalar, &total));
    const char letter = static_cast<char>('a' + step);
    char read[4] = {};
    DO(nc_put_var1_text(s.ncid, letters, Index{step % 3}.data(), &letter));
    DO(nc_get_var_text(s.ncid, letters, read));
    std::printf("  %d %d %d\n", read[0], read[1], read[2]);
    if (has_strings) {
      std::array<const char*, 2> some{step % 2 == 0 ? nullptr : "odd", "sum"};
      DO(nc_put_vara_string(s.ncid, words, Index{1}.data(), Index{2}.data(), some.data()));
      std::array<char*, 3> there{};
      if (DO(nc_get_var_string(s.ncid, words, there.data())) == NC_NOERR) {
        for (const char* word : there) std::printf("  %s\n", word != nullptr ? word : "(null)");
        DO(nc_free_string(3, there.data()));
      }
    }
    if (step % 5 == 4) DO(nc_sync(s.ncid));
    if (step == 9) {
      DO(nc_redef(s.ncid));
      text(s.ncid, s.v, "long_name", "a sum");
      (void)variable(s.ncid, "late", NC_INT, {s.time});
      DO(nc_enddef(s.ncid));
    }
    lengths(s.ncid);
  }
  DO(nc_close(s.ncid));
  read_back("sum.nc", 15);
}

/// The name goes elsewhere while the model writes, and is used anew.
void names_change() {
  const Small first = small("out.nc");
  DO(rename("out.nc", "kept.nc"));
  frame(first, 1);
  const Small second = small("out.nc");
  frame(second, 2);
  DO(nc_close(first.ncid));
  DO(nc_close(second.ncid));
  read_back("kept.nc", 6);
  const Small gone = small("gone.nc");
  DO(unlink("gone.nc"));
  frame(gone, 1);
  DO(nc_close(gone.ncid));
  DO(nc_delete("kept.nc"));
  DO(access("kept.nc", F_OK));
}

void created_again() {
  DO(nc_close(small("out.nc").ncid));
  int ncid = -1;
  DO(nc_create("out.nc", mode | NC_NOCLOBBER, &ncid));
  const Small s = small("out.nc", NC_CLOBBER);
  frame(s, 1);
  DO(nc_close(s.ncid));
  read_back("out.nc", 6);
}

void many_at_once() {
  std::vector<Small> all;
  for (int i = 0; i < 12; ++i) all.push_back(small(("many" + std::to_string(i) + ".nc").c_str()));
  for (std::size_t i = 0; i < all.size(); i += 2) DO(nc_close(all[i].ncid));
  const Small again = small("again.nc");  // gets the number of a closed one
  for (std::size_t i = 1; i < all.size(); i += 2) frame(all[i], 1);
  for (std::size_t i = 1; i < all.size(); i += 2) DO(nc_close(all[i].ncid));
  DO(nc_close(again.ncid));
  for (const auto& s : all) DO(nc_sync(s.ncid));
}

void cannot_be_created() {
  int ncid = -1;
  DO(nc_create("no/such/directory/out.nc", mode, &ncid));
  DO(mkdir("directory", 0777));
  DO(nc_create("directory", mode, &ncid));
  DO(nc_create("", mode, &ncid));
  DO(nc_create("out.nc", mode | NC_64BIT_OFFSET | NC_64BIT_DATA | NC_NETCDF4, &ncid));
  DO(nc_create("  spaces before.nc", mode, &ncid));
  DO(nc_close(ncid));
  DO(access("spaces before.nc", F_OK));
  DO(nc_open("not-there.nc", NC_NOWRITE, &ncid));
}

void given_up() {
  DO(nc_abort(create("new.nc")));
  DO(access("new.nc", F_OK));
  DO(access("new.nc", F_OK));
  const Small s = small("old.nc");
  DO(nc_sync(s.ncid));
  DO(nc_redef(s.ncid));
  variable(s.ncid, "never", NC_INT, {s.n});
  DO(nc_abort(s.ncid));
  const Small written = small("written.nc");
  DO(nc_abort(written.ncid));
}

/// A program that forgets to close, after a child of it has come and gone.
void never_closed() {
  const Small s = small("out.nc");
  DO(std::system("true"));
  frame(s, 1);
  DO(nc_sync(s.ncid));
}

// --- metadata ------------------------------------------------------------------------------------------------------

void copies() {
  const Small from = small("from.nc");
  text(from.ncid, NC_GLOBAL, "title", "x");
  DO(nc_redef(from.ncid));
  text(from.ncid, NC_GLOBAL, "title", "where it comes from");
  text(from.ncid, from.v, "units", "K");
  DO(nc_enddef(from.ncid));
  const int to = create("to.nc");
  dimension(to, "time", NC_UNLIMITED);
  dimension(to, "n", 3);
  DO(nc_copy_att(from.ncid, NC_GLOBAL, "title", to, NC_GLOBAL));
  DO(nc_copy_att(from.ncid, NC_GLOBAL, "not there", to, NC_GLOBAL));
  DO(nc_copy_var(from.ncid, from.v, to));
  DO(nc_close(from.ncid));
  DO(nc_close(to));
}

/// What the values are where nobody wrote.
void fills() {
  const int ncid = create("fill.nc");
  const int time = dimension(ncid, "time", NC_UNLIMITED), n = dimension(ncid, "n", 3);
  const float missing = -999;
  const int plain = variable(ncid, "plain", NC_FLOAT, {time, n}), own = variable(ncid, "own", NC_FLOAT, {time, n}),
            still = variable(ncid, "still", NC_INT, {n}), whole = variable(ncid, "whole", NC_FLOAT, {n});
  DO(nc_put_att_float(ncid, own, "_FillValue", NC_FLOAT, 1, &missing));
  DO(nc_enddef(ncid));
  DO(nc_put_vara_float(ncid, plain, Index{2, 1}.data(), Index{1, 2}.data(), numbers(2, 7).data()));
  DO(nc_put_vara_float(ncid, own, Index{0, 0}.data(), Index{1, 1}.data(), numbers(1, 8).data()));
  values(ncid, own, 9);
  values(ncid, still, 3);
  values(ncid, plain, 9);
  // As NCO does it: named when the values are there. netCDF-4 refuses.
  DO(nc_put_var_float(ncid, whole, numbers(3, 9).data()));
  DO(nc_redef(ncid));
  DO(nc_put_att_float(ncid, whole, "_FillValue", NC_FLOAT, 1, &missing));
  DO(nc_enddef(ncid));
  values(ncid, whole, 3);
  DO(nc_close(ncid));
}

void storage() {
  const int ncid = create("storage.nc");
  const int n = dimension(ncid, "n", 40);
  const std::size_t chunk = 16;
  const float missing = -1;
  std::array<int, 8> v{};
  for (int i = 0; i < 8; ++i)
    v[static_cast<std::size_t>(i)] = variable(ncid, std::string("v").append(std::to_string(i)).c_str(), NC_FLOAT, {n});
  const int scalar = variable(ncid, "scalar", NC_FLOAT, {});
  DO(nc_def_var_chunking(ncid, v[0], NC_CHUNKED, &chunk));
  DO(nc_def_var_chunking(ncid, v[1], NC_COMPACT, nullptr));
  DO(nc_def_var_chunking(ncid, scalar, NC_COMPACT, nullptr));
  DO(nc_def_var_deflate(ncid, v[2], 1, 1, 5));
  DO(nc_def_var_fletcher32(ncid, v[3], NC_FLETCHER32));
  DO(nc_def_var_endian(ncid, v[4], NC_ENDIAN_BIG));
  DO(nc_def_var_fill(ncid, v[5], NC_FILL, &missing));
  text(ncid, v[6], "before", "the library marks it");
  DO(nc_def_var_quantize(ncid, v[6], NC_QUANTIZE_BITROUND, 9));
  text(ncid, v[6], "after", "that");
  DO(nc_def_var_filter(ncid, v[7], 4711, 0, nullptr));
  DO(nc_def_var_deflate(ncid, 99, 1, 1, 5));
  DO(nc_enddef(ncid));
  DO(nc_def_var_deflate(ncid, v[0], 1, 1, 5));  // too late
  for (const int id : v) {
    if (id == v[5]) continue;
    DO(nc_put_var_float(ncid, id, numbers(40, 1.0F / 3).data()));
  }
  const float one = 1;
  DO(nc_put_var_float(ncid, scalar, &one));
  DO(nc_close(ncid));
}

void strings() {
  const int ncid = create("strings.nc");
  const int n = dimension(ncid, "n", 3);
  const int v = variable(ncid, "station", NC_STRING, {n});
  std::array<const char*, 3> names{"Lindenberg", "", "Payerne"};
  DO(nc_put_att_string(ncid, NC_GLOBAL, "names", 3, names.data()));
  DO(nc_put_var_string(ncid, v, names.data()));
  const std::size_t second = 1;
  const char* late = "Sodankylä";
  DO(nc_put_var1_string(ncid, v, &second, &late));
  // A null pointer is not the empty string.
  const int absent = variable(ncid, "absent", NC_STRING, {n}), never = variable(ncid, "never", NC_STRING, {n}),
            filled = variable(ncid, "filled", NC_STRING, {n});
  std::array<const char*, 3> some{"a", nullptr, ""};
  DO(nc_put_att_string(ncid, NC_GLOBAL, "some", 3, some.data()));
  DO(nc_put_att_string(ncid, filled, "_FillValue", 1, &some[1]));
  DO(nc_put_var_string(ncid, absent, some.data()));
  for (const int id : {absent, never, filled}) {
    std::array<char*, 3> there{};
    if (DO(nc_get_var_string(ncid, id, there.data())) != NC_NOERR) continue;
    for (const char* s : there) std::printf("  %s\n", s != nullptr ? s : "(null)");
    DO(nc_free_string(3, there.data()));
  }
  std::array<char*, 3> read{};
  if (DO(nc_get_var_string(ncid, v, read.data())) == NC_NOERR) {
    for (const char* s : read) std::printf("  %s\n", s);
    DO(nc_free_string(3, read.data()));
  }
  DO(nc_close(ncid));
}

/// Groups and types of the user are the library's: the dataset goes over to it with all that was said before.
void handed_over() {
  const Small s = small("groups.nc");
  int group = -1, type = -1, filled = -1;
  DO(nc_set_fill(s.ncid, NC_NOFILL, &filled));
  const int unfilled = variable(s.ncid, "unfilled", NC_INT, {});
  const int seven = 7;
  DO(nc_put_att_int(s.ncid, unfilled, "_FillValue", NC_INT, 1, &seven));
  DO(nc_set_fill(s.ncid, NC_FILL, &filled));
  DO(nc_def_compound(s.ncid, 8, "pair", &type));
  DO(nc_insert_compound(s.ncid, type, "a", 0, NC_INT));
  DO(nc_def_grp(s.ncid, "forecast", &group));
  // The other formats refuse all of this, and stay with us.
  const int v = variable(group, "inner", NC_FLOAT, {s.n});
  DO(nc_put_var_float(group, v, numbers(3, 50).data()));
  frame(s, 1);
  DO(nc_put_var_int(s.ncid, unfilled, &seven));
  DO(nc_close(s.ncid));
  int ncid = -1, inner = -1;
  DO(nc_open("groups.nc", NC_NOWRITE, &ncid));
  DO(nc_inq_grp_ncid(ncid, "forecast", &group));
  if (DO(nc_inq_varid(group, "inner", &inner)) == NC_NOERR) values(group, inner, 3);
  DO(nc_close(ncid));
}

/// Strings in chunks that nobody has put cannot be read (HDF5 1.10). The others go over.
void handed_over_with_strings() {
  const int ncid = create("strings.nc");
  const int x = dimension(ncid, "x", 4), time = dimension(ncid, "time", NC_UNLIMITED);
  const int v = variable(ncid, "v", NC_STRING, {x, time});
  const char* word = "last";
  DO(nc_put_vara_string(ncid, v, Index{3, 15}.data(), Index{1, 1}.data(), &word));
  int group = -1;
  DO(nc_def_grp(ncid, "g", &group));
  char* read = nullptr;
  if (DO(nc_get_vara_string(ncid, v, Index{3, 15}.data(), Index{1, 1}.data(), &read)) == NC_NOERR) {
    std::printf("  %s\n", read);
    DO(nc_free_string(1, &read));
  }
  DO(nc_close(ncid));
}

// --- what once went wrong ------------------------------------------------------------------------------------------

/// The length that a read without counts takes is the program's, not the shadow's.
void whole_read_in_define_mode() {
  const int ncid = create("out.nc");
  const int time = dimension(ncid, "time", NC_UNLIMITED);
  const int v = variable(ncid, "time", NC_FLOAT, {time});
  DO(nc_enddef(ncid));
  DO(nc_put_vara_float(ncid, v, Index{0}.data(), Index{2}.data(), numbers(2, 1).data()));
  DO(nc_redef(ncid));
  const std::ptrdiff_t one = 1;
  float read[2] = {};
  DO(nc_get_varm_float(ncid, v, Index{0}.data(), nullptr, &one, &one, read));
  DO(nc_get_varm_float(ncid, v, Index{0}.data(), Index{0}.data(), &one, &one, read));
  DO(nc_get_vara_float(ncid, v, nullptr, Index{1}.data(), read));
  DO(nc_get_var_float(ncid, v, read));
  DO(nc_close(ncid));
}

/// What one variable could not store must not show what another has.
void conversion_out_of_range() {
  const int ncid = create("out.nc");
  const int n = dimension(ncid, "n", 3);
  const int first = variable(ncid, "first", NC_UINT, {n}), second = variable(ncid, "second", NC_UINT, {n});
  DO(nc_enddef(ncid));
  DO(nc_put_var_schar(ncid, first, std::array<signed char, 3>{1, 2, 3}.data()));
  DO(nc_put_var_schar(ncid, second, std::array<signed char, 3>{4, -5, 6}.data()));
  DO(nc_close(ncid));
}

/// The library checks what it can lay out when define mode ends, the room for the header included.
void too_much_room() {
  const int ncid = create("room.nc");
  DO(nc_set_fill(ncid, NC_NOFILL, nullptr));
  const int x = dimension(ncid, "x", 5), yy = dimension(ncid, "yy", 320), xx = dimension(ncid, "xx", 320);
  const int first = variable(ncid, "var", NC_INT, {x}), big = variable(ncid, "var_big", NC_FLOAT, {yy, xx});
  // The other formats would have the room.
  if (mode == 0) DO(nc__enddef(ncid, std::size_t{1} << 31U, 1, 1, 1));
  DO(nc__enddef(ncid, 3000, 512, 777, 256));
  DO(nc_put_var_float(ncid, first, numbers(5, 1).data()));
  DO(nc_put_var_float(ncid, big, numbers(320 * 320, 1).data()));
  DO(nc_redef(ncid));
  const int time = dimension(ncid, "time", NC_UNLIMITED);
  const int late = variable(ncid, "late", NC_DOUBLE, {time, x});
  text(ncid, NC_GLOBAL, "history", std::string(5000, 'h'));
  DO(nc_enddef(ncid));
  DO(nc_put_vara_float(ncid, late, Index{0, 0}.data(), Index{1, 5}.data(), numbers(5, 7).data()));
  DO(nc_close(ncid));
}

/// What cannot be laid out when it is closed is given up. (The library keeps its number then.)
void define_too_much(int ncid) {
  DO(nc_set_fill(ncid, NC_NOFILL, nullptr));
  const int x = dimension(ncid, "x", std::size_t{1} << 30U), y = dimension(ncid, "y", 7);
  variable(ncid, "large", NC_FLOAT, {y, x});
  variable(ncid, "next", NC_FLOAT, {y, x});
  if (mode == 0 || mode == NC_64BIT_OFFSET) {
    DO(nc_enddef(ncid));
    DO(nc_close(ncid));
  } else {
    DO(nc_abort(ncid));
  }
}
void new_file_too_large_to_close() {
  define_too_much(create("out.nc"));
  DO(access("out.nc", F_OK));
}
void redefined_file_too_large_to_close() {
  const Small s = small("out.nc");
  DO(nc_sync(s.ncid));
  DO(nc_redef(s.ncid));
  define_too_much(s.ncid);
}

/// What was ended before stays when a later redefinition is given up.
void given_up_after_changes() {
  const Small s = small("out.nc");
  DO(nc_redef(s.ncid));
  text(s.ncid, NC_GLOBAL, "title", "of ten bytes");
  variable(s.ncid, "kept", NC_INT, {s.n});
  DO(nc_enddef(s.ncid));
  text(s.ncid, NC_GLOBAL, "title", "of nine");
  DO(nc_sync(s.ncid));
  DO(nc_redef(s.ncid));
  text(s.ncid, NC_GLOBAL, "comment", "never to be seen");
  variable(s.ncid, "never", NC_INT, {s.n});
  DO(nc_abort(s.ncid));
}

/// A fill value that changes between the end of define mode and the first data.
void another_fill_later() {
  const int ncid = create("fixed.nc");
  const int x = dimension(ncid, "x", 3), time = dimension(ncid, "time", NC_UNLIMITED);
  const float first = 42, second = 43;
  const int fixed = variable(ncid, "fixed", NC_FLOAT, {x}), records = variable(ncid, "records", NC_FLOAT, {time, x}),
            other = variable(ncid, "other", NC_FLOAT, {time});
  DO(nc_enddef(ncid));
  DO(nc_redef(ncid));
  DO(nc_put_att_float(ncid, fixed, "_FillValue", NC_FLOAT, 1, &first));
  DO(nc_put_att_float(ncid, records, "_FillValue", NC_FLOAT, 1, &first));
  DO(nc_enddef(ncid));
  DO(nc_put_var1_float(ncid, other, Index{1}.data(), &first));
  values(ncid, fixed, 3);
  DO(nc_put_att_float(ncid, records, "_FillValue", NC_FLOAT, 1, &second));
  DO(nc_put_var1_float(ncid, other, Index{2}.data(), &first));
  DO(nc_redef(ncid));
  const int late = variable(ncid, "late", NC_FLOAT, {time});
  DO(nc_enddef(ncid));
  int old = -1;
  DO(nc_redef(ncid));
  DO(nc_put_att_float(ncid, late, "_FillValue", NC_FLOAT, 1, &second));
  DO(nc_set_fill(ncid, NC_FILL, &old));
  DO(nc_enddef(ncid));
  DO(nc_put_var1_float(ncid, other, Index{3}.data(), &first));
  for (const int v : {records, late}) values(ncid, v, v == records ? 12 : 4);
  DO(nc_close(ncid));
}

/// The classic library fills the records of all variables, whatever nc_def_var_fill asks for each
/// of them.
void records_that_are_not_to_be_filled() {
  for (const int first : {0, 1}) {
    const int ncid = create(("records" + std::to_string(first) + ".nc").c_str());
    const int time = dimension(ncid, "time", NC_UNLIMITED), x = dimension(ncid, "x", 3);
    const int fixed = variable(ncid, "fixed", NC_FLOAT, {x}), sparse = variable(ncid, "sparse", NC_FLOAT, {time}),
              field = variable(ncid, "field", NC_FLOAT, {time, x});
    for (const int v : {fixed, sparse, field})
      if (v != fixed || first == 1) DO(nc_def_var_fill(ncid, v, NC_NOFILL, nullptr));
    DO(nc_enddef(ncid));
    DO(nc_put_vara_float(ncid, field, Index{2, 0}.data(), Index{1, 3}.data(), numbers(3, 1).data()));
    DO(nc_redef(ncid));
    const int late = variable(ncid, "late", NC_FLOAT, {time});
    DO(nc_def_var_fill(ncid, late, NC_NOFILL, nullptr));
    DO(nc_enddef(ncid));
    DO(nc_put_vara_float(ncid, field, Index{4, 0}.data(), Index{1, 3}.data(), numbers(3, 2).data()));
    // In netCDF-4 nobody has said what they hold.
    if ((mode & NC_NETCDF4) == 0)
      for (const int v : {sparse, field}) values(ncid, v, v == field ? 15 : 5);
    DO(nc_close(ncid));
  }
}

/// netCDF-4 refuses a fill value for what counts as written: that depends on how define mode has ended.
void fill_before_the_first_data() {
  for (int how = 0; how < 6; ++how) {
    const int ncid = create(("fill" + std::to_string(how) + ".nc").c_str());
    const int time = dimension(ncid, "time", NC_UNLIMITED), x = dimension(ncid, "x", 3);
    const int clock = variable(ncid, "time", NC_DOUBLE, {time}), field = variable(ncid, "field", NC_FLOAT, {time, x}),
              small = variable(ncid, "small", NC_FLOAT, {x});
    DO(nc_def_var_chunking(ncid, small, NC_COMPACT, nullptr));
    const double now = 1;
    const float missing = -99;
    std::array<float, 3> read{};
    if (how == 1) DO(nc_enddef(ncid));
    if (how == 2) DO(nc_sync(ncid));
    if (how == 3) DO(nc_get_var_float(ncid, small, read.data()));
    DO(nc_put_var1_double(ncid, clock, Index{0}.data(), &now));
    if (how == 4) DO(nc_put_vara_float(ncid, field, Index{0, 0}.data(), Index{0, 0}.data(), &missing));
    if (how == 5) {
      // A variable that is not yet ended can still be changed after one that is has been asked about.
      const int late = variable(ncid, "late", NC_FLOAT, {x});
      DO(nc_def_var_deflate(ncid, field, 1, 1, 2));
      DO(nc_def_var_deflate(ncid, late, 1, 1, 2));
      // The classic model keeps the ruins of a refused one.
      if ((mode & NC_CLASSIC_MODEL) == 0) DO(nc_put_att_float(ncid, clock, "_FillValue", NC_FLOAT, 1, &missing));
    }
    DO(nc_put_att_float(ncid, field, "_FillValue", NC_FLOAT, 1, &missing));
    DO(nc_put_att_float(ncid, small, "_FillValue", NC_FLOAT, 1, &missing));
    values(ncid, small, 3);
    DO(nc_close(ncid));
  }
}

/// The dataset goes over to the library after data. What was defined since can still be changed, as before.
void handed_over_late() {
  const auto kinds = std::array<const char*, 5>{"filter", "quantize", "opaque", "group", "fresh"};
  for (const char* kind : kinds) {
    const bool data = std::strcmp(kind, "fresh") != 0;
    const int ncid = create((std::string(kind) + ".nc").c_str());
    const int x = dimension(ncid, "x", 100);
    const int a = variable(ncid, "a", NC_FLOAT, {x});
    DO(nc_enddef(ncid));
    if (data) DO(nc_put_var_float(ncid, a, numbers(100, 1).data()));
    DO(nc_redef(ncid));
    const int y = dimension(ncid, "y", 20);
    const int b = variable(ncid, "b", NC_FLOAT, {x}), c = variable(ncid, "y", NC_FLOAT, {y});
    const std::array<float, 2> missing{-1, -2};
    DO(nc_def_var_fill(ncid, b, 0, missing.data()));
    DO(nc_def_var_endian(ncid, b, NC_ENDIAN_BIG));
    const unsigned level = 4;
    int id = -1;
    switch (kind[0]) {
      case 'f':
        if (data)
          DO(nc_def_var_filter(ncid, b, 307, 1, &level));
        else
          DO(nc_def_grp(ncid, "g", &id));
        break;
      case 'q': DO(nc_def_var_quantize(ncid, c, NC_QUANTIZE_GRANULARBR, 3)); break;
      case 'o': DO(nc_def_opaque(ncid, 7, "o", &id)); break;
      default: DO(nc_def_grp(ncid, "g", &id)); break;
    }
    const std::size_t chunk = 10;
    DO(nc_def_var_chunking(ncid, b, NC_CHUNKED, &chunk));
    DO(nc_def_var_deflate(ncid, c, 1, 1, 3));
    DO(nc_put_att_float(ncid, b, "_FillValue", NC_FLOAT, 1, &missing[1]));
    // NetCDF-C 4.9.3 refuses it, and leaves an empty attribute in the file.
    const bool leaves_it = kind[0] == 'f' && data && std::strncmp(nc_inq_libvers(), "4.9.3", 5) == 0;
    if ((mode & NC_CLASSIC_MODEL) == 0 && !leaves_it)
      DO(nc_put_att_float(ncid, a, "_FillValue", NC_FLOAT, 1, &missing[1]));
    DO(nc_def_var_deflate(ncid, a, 1, 1, 3));
    text(ncid, a, "units", "K");
    DO(nc_enddef(ncid));
    DO(nc_put_vara_float(ncid, b, Index{3}.data(), Index{50}.data(), numbers(50, 1).data()));
    DO(nc_put_var_float(ncid, c, numbers(20, 1).data()));
    values(ncid, b, 100);
    DO(nc_close(ncid));
  }
}

/// The library swaps the bytes of what is put into such a variable of a file that it has opened.
void byte_orders_in_the_library() {
  for (const bool renamed : {false, true}) {
    const char* path = renamed ? "renamed.nc" : "out.nc";
    const int ncid = create(path);
    const int x = dimension(ncid, "x", 4), time = dimension(ncid, "time", NC_UNLIMITED);
    const int big = variable(ncid, "big", NC_FLOAT, {x}), plain = variable(ncid, "plain", NC_DOUBLE, {time, x}),
              never = variable(ncid, "never", NC_INT, {x});
    DO(nc_def_var_endian(ncid, big, NC_ENDIAN_BIG));
    DO(nc_def_var_deflate(ncid, plain, 1, 1, 2));
    DO(nc_put_var1_float(ncid, big, Index{0}.data(), numbers(1, 9).data()));
    DO(nc_put_vara_float(ncid, plain, Index{1, 0}.data(), Index{1, 4}.data(), numbers(4, 5).data()));
    if (renamed) DO(rename(path, "other.nc"));
    int group = -1;
    DO(nc_def_grp(ncid, "group", &group));
    const int seven = 7;
    DO(nc_put_att_int(ncid, never, "_FillValue", NC_INT, 1, &seven));
    DO(nc_put_vara_float(ncid, big, Index{1}.data(), Index{2}.data(), numbers(2, 1).data()));
    values(ncid, big, 4);
    values(ncid, plain, 8);
    DO(nc_close(ncid));
  }
}

/// netCDF-4 ends define mode for some calls that it refuses, and not for others.
void refused_in_define_mode() {
  const int ncid = create("out.nc");
  const int x = dimension(ncid, "x", 4);
  const int v = variable(ncid, "v", NC_INT, {x});
  const char* word = "word";
  DO(nc_put_var1_string(ncid, v, Index{0}.data(), &word));
  DO(nc_enddef(ncid));
  DO(nc_redef(ncid));
  float one = 0;
  DO(nc_get_vars_float(ncid, v, nullptr, Index{1}.data(), nullptr, &one));
  DO(nc_enddef(ncid));
  const std::ptrdiff_t stride = 1, map = 1;
  DO(nc_redef(ncid));
  DO(nc_put_varm_int(ncid, v, Index{9}.data(), nullptr, &stride, &map, nullptr));
  DO(nc_enddef(ncid));
}

/// A fill value comes too late for a variable that has data, and not for one of which only the definition has ended.
void fill_after_a_sync() {
  const int ncid = create("out.nc");
  const int x = dimension(ncid, "x", 4);
  const int first = variable(ncid, "first", NC_INT, {x});
  const char* word = "word";
  const std::ptrdiff_t stride = 1, map = 1;
  DO(nc_put_varm_string(ncid, first, Index{0}.data(), Index{1}.data(), &stride, &map, &word));
  const int second = variable(ncid, "second", NC_USHORT, {x});
  DO(nc_put_var_float(ncid, first, numbers(4, 1).data()));
  DO(nc_def_var_fill(ncid, second, NC_FILL, nullptr));
  DO(nc_sync(ncid));
  DO(nc_put_vara_float(ncid, second, Index{0}.data(), Index{1}.data(), numbers(4, -1).data()));
  const unsigned short seven = 7;
  if ((mode & NC_CLASSIC_MODEL) == 0) DO(nc_put_att_ushort(ncid, second, "_FillValue", NC_USHORT, 1, &seven));
  DO(nc_close(ncid));
}

// --- netCDF-2 -------------------------------------------------------------------------------------------------------

#define DO2(call)        \
  do {                   \
    DO(call);            \
    error_of_netcdf_2(); \
  } while (false)
void error_of_netcdf_2() {
  std::printf("  ncerr %d\n", ncerr);
}

/// What both interfaces find in the file: `v` (time × 4) and `u` (4).
void read_by_netcdf_2(const char* path) {
  const int ncid = ncopen(path, NC_NOWRITE);
  std::printf("ncopen %d\n", ncid);
  int dimensions = 0, variables = 0, attributes = 0, record = -1, count = 0;
  std::array<int, 8> ids{};
  std::array<long, 8> bytes{};
  DO2(ncinquire(ncid, &dimensions, &variables, &attributes, &record));
  std::printf("  %d %d %d %d\n", dimensions, variables, attributes, record);
  DO2(ncrecinq(ncid, &count, ids.data(), bytes.data()));
  for (int i = 0; i < count; ++i) std::printf("  record of %d: %ld\n", ids[i], bytes[i]);
  char name[NC_MAX_NAME] = {};
  long length = 0;
  for (int d = 0; d < dimensions; ++d) {
    DO2(ncdiminq(ncid, d, name, &length));
    std::printf("  %s %ld\n", name, length);
  }
  const int v = ncvarid(ncid, "v");
  const long start[2] = {0, 0}, one[2] = {1, 3}, steps[2] = {1, 2}, some[2] = {2, 2}, map[2] = {4, 8};
  std::array<float, 64> data{};
  const auto show = [&data](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) std::printf(" %g", static_cast<double>(data[i]));
    std::printf("\n");
  };
  DO2(ncvarget1(ncid, v, one, data.data()));
  show(1);
  DO2(ncvarget(ncid, v, start, some, data.data()));
  show(4);
  DO2(ncvargets(ncid, v, start, some, steps, data.data()));
  show(4);
  DO2(ncvargetg(ncid, v, start, some, nullptr, map, data.data()));
  show(4);
  void* of_record[3] = {data.data(), nullptr, nullptr};
  DO2(ncrecget(ncid, 1, of_record));
  show(4);
  DO2(ncclose(ncid));
}

/// netCDF-2 alone, right calls and wrong ones, and each form of its puts.
void netcdf_2() {
  ncopts = 0;
  int ncid = nccreate("no/such/directory.nc", mode);
  std::printf("nccreate %d ncerr %d\n", ncid, ncerr);
  ncid = nccreate("out.nc", mode);
  std::printf("nccreate %d ncerr %d\n", ncid, ncerr);
  const int time = ncdimdef(ncid, "time", NC_UNLIMITED), x = ncdimdef(ncid, "x", 4);
  DO2(ncdimdef(ncid, "x", 4));
  DO2(ncdimdef(ncid, "less", -1));
  const int both[2] = {time, x};
  const int v = ncvardef(ncid, "v", NC_FLOAT, 2, both), u = ncvardef(ncid, "u", NC_FLOAT, 1, both + 1);
  const int scalar = ncvardef(ncid, "scalar", NC_INT, 0, nullptr);
  DO2(ncvardef(ncid, "v", NC_FLOAT, 2, both));
  DO2(ncattput(ncid, v, "units", NC_CHAR, 1, "m"));
  DO2(ncattput(ncid, NC_GLOBAL, "title", NC_CHAR, 5, "title"));
  DO2(ncattput(ncid, 9, "units", NC_CHAR, 1, "m"));
  DO2(ncattcopy(ncid, v, "units", ncid, u));
  DO2(ncattrename(ncid, u, "units", "unit"));
  DO2(ncattdel(ncid, u, "none"));
  DO2(ncsetfill(ncid, NC_NOFILL));
  DO2(ncsetfill(ncid, NC_FILL));
  const auto values = numbers(64, 1);
  const int seven = 7;
  long start[2] = {0, 0};
  const long count[2] = {1, 4}, half[2] = {2, 2}, steps[2] = {1, 2}, map[2] = {4, 8}, far[2] = {0, 4};
  DO2(ncendef(ncid));
  DO2(ncvarput(ncid, v, start, count, values.data()));
  DO2(ncvarput(ncid, v, far, count, values.data()));
  DO2(ncvarput(ncid, 9, start, count, values.data()));
  DO2(ncvarputg(ncid, 9, start, count, nullptr, map, values.data()));
  DO2(ncvarput(ncid, u, start, count + 1, values.data()));
  DO2(ncvarput1(ncid, scalar, nullptr, &seven));
  start[0] = 1;
  DO2(ncvarput1(ncid, v, start, values.data() + 9));
  DO2(ncvarputs(ncid, v, start, half, steps, values.data() + 10));
  DO2(ncvarputs(ncid, v, start, count, nullptr, values.data() + 14));
  start[0] = 3;
  DO2(ncvarputg(ncid, v, start, half, nullptr, map, values.data() + 20));
  DO2(ncsync(ncid));
  lengths(ncid);
  DO2(ncredef(ncid));
  DO2(ncdimrename(ncid, x, "y"));
  DO2(ncvarrename(ncid, u, "w"));
  const int late = ncvardef(ncid, "late", NC_DOUBLE, 1, both);
  DO2(ncattput(ncid, late, "units", NC_CHAR, 1, "s"));
  DO2(ncendef(ncid));
  DO2(ncendef(ncid));
  double when = 3.5;
  void* record[2] = {const_cast<float*>(values.data()) + 30, &when};
  DO2(ncrecput(ncid, 5, record));
  record[0] = nullptr;
  DO2(ncrecput(ncid, 6, record));
  DO2(ncclose(ncid));
  DO2(ncclose(ncid));
  read_by_netcdf_2("out.nc");
}

/// A file of netCDF-3, and calls of netCDF-2 on it, as NCL and old codes make them. Its number is used again at once.
void netcdf_2_on_netcdf_3() {
  ncopts = 0;
  const int ncid = create("out.nc");
  const int time = dimension(ncid, "time", NC_UNLIMITED), x = dimension(ncid, "x", 4);
  const int v = variable(ncid, "v", NC_FLOAT, {time, x});
  DO2(ncattput(ncid, v, "units", NC_CHAR, 1, "m"));
  DO2(ncendef(ncid));
  const auto values = numbers(64, 1);
  DO(nc_put_vara_float(ncid, v, Index{0, 0}.data(), Index{1, 4}.data(), values.data()));
  const long start[2] = {1, 0}, count[2] = {1, 4};
  DO2(ncvarputg(ncid, v, start, count, nullptr, nullptr, values.data() + 4));
  void* record[1] = {const_cast<float*>(values.data()) + 8};
  DO(nc_put_rec(ncid, 2, record));
  std::size_t variables = 0, bytes[4] = {};
  int ids[4] = {};
  DO(nc_inq_rec(ncid, &variables, ids, bytes));
  std::printf("  %zu, %d: %zu\n", variables, ids[0], bytes[0]);
  DO2(ncsync(ncid));
  std::array<float, 4> back{};
  void* to[1] = {back.data()};
  DO(nc_get_rec(ncid, 2, to));
  std::printf("  %g %g\n", static_cast<double>(back[0]), static_cast<double>(back[3]));
  DO2(ncclose(ncid));
  read_back("out.nc", 12);
  const int second = create("second.nc");
  const int n = dimension(second, "n", 2), w = variable(second, "w", NC_INT, {n});
  DO(nc_enddef(second));
  const long zero = 0, two = 2;
  const int numbers_of_it[2] = {4, 5};
  DO2(ncvarput(second, w, &zero, &two, numbers_of_it));
  DO2(ncabort(second));
  DO2(ncsync(second));
}

/// Functions of the library that call its others, at addresses by which nobody sees the call itself.
void past_all_names() {
  ncopts = 0;
  // Without a run nobody stands before dlsym.
  const char* run = std::getenv("ADVECTIO_RUN");
  const std::string name = run != nullptr ? run : "";
  unsetenv("ADVECTIO_RUN");
  Dl_info library{};
  void* handle = dladdr(reinterpret_cast<void*>(nc_strerror), &library) != 0
                     ? dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                     : nullptr;
  const auto find = [handle](const char* function) { return handle != nullptr ? dlsym(handle, function) : nullptr; };
  const auto end = reinterpret_cast<int (*)(int)>(find("ncendef"));
  const auto close = reinterpret_cast<int (*)(int)>(find("ncclose"));
  const auto put_attribute =
      reinterpret_cast<int (*)(int, int, const char*, nc_type, int, const void*)>(find("ncattput"));
  const auto put = reinterpret_cast<int (*)(int, int, const long*, const long*, const void*)>(find("ncvarput"));
  if (run != nullptr) setenv("ADVECTIO_RUN", name.c_str(), 1);
  const int ncid = create("out.nc");
  if (end == nullptr || close == nullptr || put_attribute == nullptr || put == nullptr) std::exit(3);
  const int time = dimension(ncid, "time", NC_UNLIMITED), x = dimension(ncid, "x", 4);
  const int v = variable(ncid, "v", NC_FLOAT, {time, x});
  DO(put_attribute(ncid, v, "units", NC_CHAR, 1, "m"));
  DO(end(ncid));
  const long start[2] = {1, 0}, count[2] = {1, 4};
  DO(put(ncid, v, start, count, numbers(4, 2).data()));
  DO(nc_put_vara_float(ncid, v, Index{0, 0}.data(), Index{1, 4}.data(), numbers(4, 1).data()));
  DO(close(ncid));
  read_back("out.nc", 8);
}

/// A compound type that the helpers of the library begin, and one without them.
void compound_by_helpers() {
  struct Pair {
    int a;
    double b;
  };
  const int ncid = create("out.nc");
  const int x = dimension(ncid, "x", 2);
  void* made = nullptr;
  DO(ncaux_begin_compound(ncid, "bad/name", NCAUX_ALIGN_C, &made));
  DO(ncaux_abort_compound(made));
  DO(ncaux_begin_compound(ncid, "pair", NCAUX_ALIGN_C, &made));
  DO(ncaux_abort_compound(made));
  nc_type type = NC_NAT;
  if (DO(nc_def_compound(ncid, sizeof(Pair), "pair", &type)) == NC_NOERR) {
    DO(nc_insert_compound(ncid, type, "a", offsetof(Pair, a), NC_INT));
    DO(nc_insert_compound(ncid, type, "b", offsetof(Pair, b), NC_DOUBLE));
    const int v = variable(ncid, "v", type, {x});
    const Pair pairs[2] = {{1, 1.5}, {2, 2.5}};
    DO(nc_put_var(ncid, v, pairs));
  }
  DO(nc_close(ncid));
}

struct Conversation {
  const char* name;
  void (*hold)();
};
#define NAMED(f) \
  { #f, f }
constexpr Conversation conversations[] = {NAMED(wrf_history),
                                          NAMED(scale_history),
                                          NAMED(nemo_output),
                                          NAMED(cm1_appends),
                                          NAMED(letkf_overwrites),
                                          NAMED(fortran_shapes),
                                          NAMED(read_while_written),
                                          NAMED(reads_adds_writes),
                                          NAMED(names_change),
                                          NAMED(created_again),
                                          NAMED(many_at_once),
                                          NAMED(cannot_be_created),
                                          NAMED(given_up),
                                          NAMED(never_closed),
                                          NAMED(copies),
                                          NAMED(fills),
                                          NAMED(storage),
                                          NAMED(strings),
                                          NAMED(handed_over),
                                          NAMED(handed_over_with_strings),
                                          NAMED(whole_read_in_define_mode),
                                          NAMED(conversion_out_of_range),
                                          NAMED(too_much_room),
                                          NAMED(new_file_too_large_to_close),
                                          NAMED(redefined_file_too_large_to_close),
                                          NAMED(given_up_after_changes),
                                          NAMED(another_fill_later),
                                          NAMED(records_that_are_not_to_be_filled),
                                          NAMED(fill_before_the_first_data),
                                          NAMED(handed_over_late),
                                          NAMED(byte_orders_in_the_library),
                                          NAMED(refused_in_define_mode),
                                          NAMED(fill_after_a_sync),
                                          NAMED(netcdf_2),
                                          NAMED(netcdf_2_on_netcdf_3),
                                          NAMED(past_all_names),
                                          NAMED(compound_by_helpers)};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    for (const auto& c : conversations) std::printf("%s\n", c.name);
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int modes[] = {0, 0, NC_64BIT_OFFSET, NC_NETCDF4, NC_NETCDF4 | NC_CLASSIC_MODEL, NC_64BIT_DATA};
  mode = modes[std::atoi(argv[2])];
  for (const auto& c : conversations) {
    if (std::strcmp(c.name, argv[1]) != 0) continue;
    c.hold();
    return 0;
  }
  return 2;
}
