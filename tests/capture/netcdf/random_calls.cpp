// random_calls SEED FORMAT FILE [STEPS [wide]]: a random but repeatable conversation with the netCDF library. Every
// return code and everything inquired is printed, so that two runs can be compared. Knows nothing of Advectio.
//
// `wide`: several lives of files by one name. They are given up, opened again, removed and renamed; with groups, user
// types and filters that few libraries have, late fill values, files that are not filled, and rooms in headers.
#include <netcdf.h>
#include <netcdf_filter.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace {

std::mt19937_64 random_bits;
int below(int n) {
  return static_cast<int>(random_bits() % static_cast<std::uint64_t>(n));
}
bool chance(int percent) {
  return below(100) < percent;
}

int ncid = -1;
bool classic_format = false;
bool wide = false;
bool classic_model = false;
/// Some values are nobody's: they are not said, and before the end all are put.
bool undefined_values = false;
std::set<int> filled_late;
/// By nc_open: the file is the library's own from here on.
bool opened = false;
bool moved = false;
/// A variable got a dimension's name: nc_abort in the same define mode may leave the dimension without one.
bool coordinate = false;
int named = 0;
/// An attribute that is in an HDF5 file, then overwritten and at once deleted or renamed, stays there with its old
/// value: the library no longer knows that it was written.
bool overwritten = false;
// Used names by kind. A variable gets a dimension's name only as its coordinate: other mixtures end in errors of HDF5's
// dimension scales when the file is closed, in the library itself.
std::map<char, std::vector<std::string>> used;

std::string fresh_name(char kind) {
  return kind + std::to_string(named++) + std::string(static_cast<std::size_t>(below(4)), 'x');
}
std::string any_name(char kind) {
  auto& names = used[kind];
  if (names.empty() || chance(70)) names.push_back(fresh_name(kind));
  return names[static_cast<std::size_t>(below(static_cast<int>(names.size())))];
}

int count_of(int what) {
  int n[3] = {0, 0, 0};
  nc_inq(ncid, &n[0], &n[1], &n[2], nullptr);
  return n[what];
}
int any_dimension() {
  return below(count_of(0) + (chance(5) ? 2 : 0) + (count_of(0) == 0 ? 1 : 0));
}
int any_variable() {
  if (chance(3)) return -1;
  return below(count_of(1) + (chance(5) ? 2 : 0) + (count_of(1) == 0 ? 1 : 0));
}
nc_type any_type() {
  if (chance(3)) return chance(50) ? 0 : 77;
  if (classic_format && chance(80)) return 1 + below(6);
  return 1 + below(12);
}

/// All that has been defined is in the file, and the mode stays what it was.
void write_out_if(bool needed) {
  if (!needed || classic_format) return;
  // Small changes of attributes do not need define mode.
  if (nc_enddef(ncid) == NC_NOERR)
    nc_redef(ncid);
  else
    nc_sync(ncid);
}

void said(const char* what, int code) {
  std::printf("%s -> %d\n", what, code);
}
#define DO(call) said(#call, call)

/// Which of several reasons a put is refused for, where the counts are left out, is the library's secret.
void said_put(const std::string& what, int code) {
  const bool secret = wide && code != NC_NOERR && code != NC_ERANGE && what.find("no count") != std::string::npos;
  if (secret)
    std::printf("%s refused\n", what.c_str());
  else
    said(what.c_str(), code);
}

// Values that test conversions: in range, out of range, not finite.
double any_value() {
  switch (below(8)) {
    case 0: return below(100000) - 50000;
    case 1: return (below(2000) - 1000) * 1e36;
    case 2: return below(300);
    case 3: return (below(2000) - 1000) * 5e6;
    default: return below(120);
  }
}

/// `small`: what every type can hold.
template <typename T>
std::vector<T> values(std::size_t n, bool small = false) {
  // To draw them all would take longer than what the library does with them.
  constexpr std::size_t drawn = 997;
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (i >= drawn) {
      v[i] = v[i - drawn];
      continue;
    }
    const double d = small ? below(120) : any_value();
    // Only what the language defines for this type.
    const double lowest = static_cast<double>(std::numeric_limits<T>::lowest()) / 2,
                 highest = static_cast<double>(std::numeric_limits<T>::max()) / 2;
    v[i] = static_cast<T>(d < lowest ? lowest : d > highest ? highest : d);
  }
  return v;
}

struct Place {
  std::vector<std::size_t> start, count;
  std::vector<std::ptrdiff_t> stride, map;
  bool wrong = false;
};

/// Mostly inside the variable; `strided` also chooses strides, within what every format does the same way.
bool is_record(int variable) {
  int rank = 0, dimensions[NC_MAX_VAR_DIMS] = {}, unlimited[NC_MAX_DIMS] = {}, count = 0;
  if (nc_inq_var(ncid, variable, nullptr, nullptr, &rank, dimensions, nullptr) != NC_NOERR) return false;
  nc_inq_unlimdims(ncid, &count, unlimited);
  for (int i = 0; i < rank; ++i)
    for (int k = 0; k < count; ++k)
      if (dimensions[i] == unlimited[k]) return true;
  return false;
}

/// A failing conversion between strings and numbers leaves a record variable longer in the library, which is not a
/// thing to reproduce.
bool would_grow_in_vain(int variable, bool strings) {
  nc_type type = NC_NAT;
  nc_inq_vartype(ncid, variable, &type);
  return is_record(variable) && (type == NC_STRING) != strings;
}

Place any_place(int variable, bool strided, bool growing) {
  int rank = 0, dimensions[NC_MAX_VAR_DIMS] = {}, unlimited[NC_MAX_DIMS] = {}, unlimited_count = 0;
  if (nc_inq_var(ncid, variable, nullptr, nullptr, &rank, dimensions, nullptr) != NC_NOERR) rank = 3;
  nc_inq_unlimdims(ncid, &unlimited_count, unlimited);
  Place p;
  const auto n = static_cast<std::size_t>(rank);
  const bool wrong = !strided && (growing || !classic_format) && chance(12);
  p.wrong = wrong;
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t length = 3;
    bool grows = false;
    nc_inq_dimlen(ncid, dimensions[i], &length);
    for (int k = 0; k < unlimited_count; ++k) grows |= unlimited[k] == dimensions[i];
    if (grows && growing) length = length + 2;
    std::size_t start = length > 0 ? static_cast<std::size_t>(below(static_cast<int>(length))) : 0;
    std::ptrdiff_t stride = strided ? 1 + below(3) : 1;
    std::size_t count =
        length > start ? 1 + static_cast<std::size_t>(
                                 below(static_cast<int>((length - start - 1) / static_cast<std::size_t>(stride) + 1)))
                       : 0;
    if (chance(4) && !grows) count = 0;
    if (wrong && chance(50)) {
      start = static_cast<std::size_t>(below(9));
      count = static_cast<std::size_t>(below(6));
      if (grows) count += 1;
    }
    if (wrong && chance(10)) stride = -1;
    p.start.push_back(start);
    p.count.push_back(count);
    p.stride.push_back(stride);
  }
  // A permutation of the dense distances, with gaps.
  p.map.assign(n, 1);
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  if (n > 1 && chance(60)) std::swap(order[0], order[static_cast<std::size_t>(below(rank))]);
  std::ptrdiff_t distance = 1 + below(2);
  for (std::size_t k = n; k-- > 0;) {
    p.map[order[k]] = distance;
    distance *= static_cast<std::ptrdiff_t>(p.count[order[k]] + static_cast<std::size_t>(below(2)));
    if (distance == 0) distance = 1;
  }
  return p;
}

std::string shown(const Place& p) {
  std::string s;
  for (std::size_t i = 0; i < p.start.size(); ++i)
    s += std::string(" ").append(std::to_string(p.start[i])) + "+" + std::to_string(p.count[i]) + "*" +
         std::to_string(p.stride[i]) + "@" + std::to_string(p.map[i]);
  return s;
}

constexpr std::size_t room = 100000;

template <typename T>
struct Family {
  int (*var)(int, int, T*);
  int (*var1)(int, int, const std::size_t*, T*);
  int (*vara)(int, int, const std::size_t*, const std::size_t*, T*);
  int (*vars)(int, int, const std::size_t*, const std::size_t*, const std::ptrdiff_t*, T*);
  int (*varm)(int, int, const std::size_t*, const std::size_t*, const std::ptrdiff_t*, const std::ptrdiff_t*, T*);
};

template <typename T>
int call(const Family<T>& f, int form, int variable, const Place& p, T* data, std::string& text) {
  const bool no_start = chance(1), no_count = chance(3), no_stride = chance(10);
  const auto* start = no_start ? nullptr : p.start.data();
  const auto* count = no_count ? nullptr : p.count.data();
  const auto* stride = no_stride ? nullptr : p.stride.data();
  text += std::string(" form ") + std::to_string(form) + (no_start ? " no start" : "") + (no_count ? " no count" : "") +
          (no_stride ? " no stride" : "");
  switch (form) {
    case 0: return f.var(ncid, variable, data);
    case 1: return f.var1(ncid, variable, start, data);
    case 2: return f.vara(ncid, variable, start, count, data);
    case 3: return f.vars(ncid, variable, start, count, stride, data);
    default: return f.varm(ncid, variable, start, count, stride, p.map.data(), data);
  }
}

#define FAMILY(DIRECTION, SUFFIX, T)                                                            \
  Family<T> {                                                                                   \
    nc_##DIRECTION##_var##SUFFIX, nc_##DIRECTION##_var1##SUFFIX, nc_##DIRECTION##_vara##SUFFIX, \
        nc_##DIRECTION##_vars##SUFFIX, nc_##DIRECTION##_varm##SUFFIX                            \
  }

template <typename T>
void put(const Family<const T>& f, const char* type) {
  const int variable = any_variable(), form = below(5);
  if (would_grow_in_vain(variable, false)) return;
  const Place p = any_place(variable, form >= 3, true);
  nc_type type_there = NC_NAT;
  nc_inq_vartype(ncid, variable, &type_there);
  // A floating number that does not fit an integer has no defined value there: what is stored depends on how the loop
  // was compiled. And one conversion of CDF-5 leaves alone what it cannot store; what was there before, only the file
  // knows.
  const bool undefined = std::is_floating_point_v<T> && type_there != NC_FLOAT && type_there != NC_DOUBLE;
  const bool left_alone = std::is_same_v<T, signed char> && type_there == NC_UINT && classic_format;
  const auto data = values<T>(room, undefined || left_alone);
  std::string text = std::string("put ") + type + " " + std::to_string(variable) + shown(p);
  const int code = call<const T>(f, form, variable, p, data.data(), text);
  said_put(text, code);
}

template <typename T>
void get(const Family<T>& f, const char* type) {
  const int variable = any_variable(), form = below(5);
  if (filled_late.count(variable) != 0) return;
  const Place p = any_place(variable, form >= 3, false);
  // Beyond the last record a classic dataset open for reading only gives another error than one open for writing.
  // A mapped read of nothing does not end define mode of the library; of ours it does.
  if ((classic_format || form == 4) && std::find(p.count.begin(), p.count.end(), 0U) != p.count.end()) return;
  if (wide && form == 4 && !classic_format) return;  // the same, also where it is refused
  std::vector<T> data(room, T(7));
  std::string text = std::string("get ") + type + " " + std::to_string(variable) + shown(p);
  int code = call<T>(f, form, variable, p, data.data(), text);
  if (undefined_values && code == NC_ERANGE) code = NC_NOERR;
  said(text.c_str(), code);
  if (code != NC_NOERR || undefined_values) return;
  double sum = 0;
  for (std::size_t i = 0; i < 200; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(i % 17 + 1);
  std::printf("  %.17g:", sum);
  for (std::size_t i = 0; i < 12; ++i) std::printf(" %.9g", static_cast<double>(data[i]));
  std::printf("\n");
}

void put_strings() {
  const int variable = any_variable(), form = below(5);
  if (would_grow_in_vain(variable, true)) return;
  const Place p = any_place(variable, form >= 3, true);
  std::vector<std::string> text(room / 100);
  std::vector<const char*> data;
  for (auto& t : text) t = std::string(static_cast<std::size_t>(below(9)), static_cast<char>('a' + below(26)));
  for (std::size_t i = 0; i < room; ++i) data.push_back(wide && i % 7 == 3 ? nullptr : text[i % text.size()].c_str());
  if (classic_format && std::find(p.count.begin(), p.count.end(), 0U) != p.count.end()) return;
  std::string line = "put string " + std::to_string(variable) + shown(p);
  const int code = call<const char*>(FAMILY(put, _string, const char*), form, variable, p, data.data(), line);
  said_put(line, code);
}

/// Untyped: the memory must be of the variable's type, so text and strings are left to the others.
void put_untyped() {
  const int variable = any_variable(), form = below(5);
  nc_type type = NC_NAT;
  nc_inq_vartype(ncid, variable, &type);
  if (type == NC_STRING) return;
  const Place p = any_place(variable, form >= 3, true);
  const auto data = values<unsigned char>(room * 8, true);
  std::string line = "put untyped " + std::to_string(variable) + shown(p);
  const int code = call<const void>({nc_put_var, nc_put_var1, nc_put_vara, nc_put_vars, nc_put_varm}, form, variable, p,
                                    data.data(), line);
  said_put(line, code);
}

void put_attribute() {
  const int variable = chance(40) ? NC_GLOBAL : any_variable();
  const std::string name = any_name('a');
  int there = -1;
  overwritten |= nc_inq_attid(ncid, variable, name.c_str(), &there) == NC_NOERR;
  // An unknown type leaves ruins in a netCDF-4 dataset, which then cannot be synced.
  nc_type type = any_type();
  if (type < 1 || type > 12) type = NC_INT;
  const auto count = static_cast<std::size_t>(below(6));
  std::string line = "att " + std::to_string(variable) + " " + name + " type " + std::to_string(type) + " count " +
                     std::to_string(count) + " by ";
  switch (below(7)) {
    case 0:
      line += "int";
      said(line.c_str(), nc_put_att_int(ncid, variable, name.c_str(), type, count, values<int>(9).data()));
      break;
    case 1:
      line += "double";
      said(line.c_str(), nc_put_att_double(ncid, variable, name.c_str(), type, count, values<double>(9).data()));
      break;
    case 2:
      line += "uchar";
      said(line.c_str(), nc_put_att_uchar(ncid, variable, name.c_str(), type, count, values<unsigned char>(9).data()));
      break;
    case 3:
      line += "longlong";
      said(line.c_str(), nc_put_att_longlong(ncid, variable, name.c_str(), type, count, values<long long>(9).data()));
      break;
    case 4: {
      line += "string";
      const char* strings[6] = {"one", "", "three", "four", "a longer one", "six"};
      if (wide && chance(30)) strings[below(6)] = nullptr;
      said(line.c_str(), nc_put_att_string(ncid, variable, name.c_str(), count, strings));
      break;
    }
    default:
      line += "text";
      said(line.c_str(), nc_put_att_text(ncid, variable, name.c_str(), count, "abcdefgh"));
      break;
  }
}

void define_variable() {
  int dimensions[4];
  const int rank = below(4);
  for (int& d : dimensions) d = any_dimension();
  // The library does not fill reliably what lies beyond the data of one variable along two unlimited dimensions.
  int unlimited[NC_MAX_DIMS] = {}, count = 0, of_them = 0;
  nc_inq_unlimdims(ncid, &count, unlimited);
  for (int i = 0; i < rank; ++i)
    of_them += std::find(unlimited, unlimited + count, dimensions[i]) != unlimited + count ? 1 : 0;
  if (!classic_format && of_them > 1) return;
  int id = -1;
  std::string name = any_name('v');
  const nc_type type = any_type();
  if (rank == 1 && chance(30)) {
    char of_dimension[NC_MAX_NAME + 1] = {};
    if (nc_inq_dimname(ncid, dimensions[0], of_dimension) == NC_NOERR) {
      name = of_dimension;
      coordinate = true;
    }
  }
  const std::string line = "def_var " + name + " type " + std::to_string(type) + " rank " + std::to_string(rank);
  const int code = nc_def_var(ncid, name.c_str(), type, rank, dimensions, &id);
  said(line.c_str(), code);
  // At once: later, and with another type, it is refused, and the library leaves the ruins of it among the attributes.
  if (code != NC_NOERR || !chance(15)) return;
  const double number = 3;
  if (type == NC_CHAR)
    DO(nc_put_att_text(ncid, id, "_FillValue", 1, "x"));
  else if (type != NC_STRING)
    DO(nc_put_att_double(ncid, id, "_FillValue", type, 1, &number));
}

void define_storage() {
  const int v = any_variable();
  std::printf("storage of %d: ", v);
  switch (below(7)) {
    case 0: DO(nc_def_var_deflate(ncid, v, chance(50), chance(80), below(5))); break;
    case 1: DO(nc_def_var_fletcher32(ncid, v, chance(80) ? 1 : 0)); break;
    case 2: DO(nc_def_var_endian(ncid, v, below(3))); break;
    case 3: {
      std::size_t chunks[4];
      for (auto& c : chunks) c = 1 + static_cast<std::size_t>(below(4));
      DO(nc_def_var_chunking(ncid, v, below(3), chunks));
      break;
    }
    case 4: {
      // A classic dataset fills a variable when define mode first ends after its definition, and not again.
      if (classic_format) break;
      double value = 3;
      DO(nc_def_var_fill(ncid, v, 0, &value));
      break;
    }
    case 5: DO(nc_def_var_fill(ncid, v, 0, nullptr)); break;
    default: DO(nc_def_var_szip(ncid, v, 0, 7)); break;
  }
}

void inquire() {
  int dimensions = 0, variables = 0, attributes = 0, unlimited = -2;
  DO(nc_inq(ncid, &dimensions, &variables, &attributes, &unlimited));
  std::printf("  %d %d %d %d\n", dimensions, variables, attributes, unlimited);
  for (int d = 0; d < dimensions; ++d) {
    char name[NC_MAX_NAME + 1] = {};
    std::size_t length = 0, again = 0;
    const int code = nc_inq_dim(ncid, d, name, &length);
    nc_inq_dimlen(ncid, d, &again);
    std::printf("  dim %d %s %zu %zu -> %d\n", d, name, length, again, code);
  }
  for (int v = 0; v < variables; ++v) {
    int storage = -1, shuffle = -1, deflate = -1, level = -1, no_fill = -1, endian = -1;
    std::size_t chunks[NC_MAX_VAR_DIMS] = {};
    char fill[64] = {};
    nc_type type = NC_NAT;
    nc_inq_vartype(ncid, v, &type);
    const int a = nc_inq_var_chunking(ncid, v, &storage, chunks),
              b = nc_inq_var_deflate(ncid, v, &shuffle, &deflate, &level);
    const int c = type == NC_STRING ? 0 : nc_inq_var_fill(ncid, v, &no_fill, fill),
              d = nc_inq_var_endian(ncid, v, &endian);
    // A file that the library has opened says of the machine's own order that it is little-endian.
    if (wide && endian == NC_ENDIAN_LITTLE) endian = NC_ENDIAN_NATIVE;
    std::printf("  var %d %d,%d,%d,%d storage %d %zu %zu deflate %d %d %d fill %d %02x%02x endian %d\n", v, a, b, c, d,
                storage, chunks[0], chunks[1], shuffle, deflate, level, wide ? no_fill != 0 : no_fill,
                static_cast<unsigned char>(fill[0]), static_cast<unsigned char>(fill[1]), endian);
  }
  int format = 0, extended = 0, mode = 0;
  DO(nc_inq_format(ncid, &format));
  DO(nc_inq_format_extended(ncid, &extended, &mode));
  if (wide) mode &= ~NC_WRITE;  // the same
  std::printf("  %d %d %x\n", format, extended, static_cast<unsigned>(mode));
  std::size_t length = 0;
  char path[4096] = {};
  DO(nc_inq_path(ncid, &length, path));
  std::printf("  %zu\n", length - std::strlen(path));
}

/// A fill value, by either way, at any time.
void late_fill() {
  const int v = any_variable();
  nc_type type = NC_NAT;
  if (nc_inq_vartype(ncid, v, &type) != NC_NOERR) return;
  // The library leaves the ruins of what it refuses among the attributes, and in the classic model in the file.
  if (classic_model) return;
  char name[NC_MAX_NAME + 1] = {};
  int id = -1;
  if (!classic_format) {
    nc_inq_varname(ncid, v, name);
    // The library makes it anew, behind all others; ours stays where it was.
    if (v != count_of(1) - 1) return;
    // A coordinate that has to be made anew takes its dimension with it, in the library.
    if (nc_inq_dimid(ncid, name, &id) == NC_NOERR || nc_inq_attid(ncid, v, "_FillValue", &id) == NC_NOERR) return;
    // Until the file is closed the library reads the old value where nothing was put.
    filled_late.insert(v);
  }
  const std::string line = "fill of " + std::to_string(v);
  if (type == NC_STRING) {
    const char* text = chance(50) ? nullptr : "missing";
    said(line.c_str(), nc_put_att_string(ncid, v, "_FillValue", 1, &text));
  } else if (type == NC_CHAR) {
    said(line.c_str(), nc_put_att_text(ncid, v, "_FillValue", 1, "y"));
  } else {
    const double value = below(100);
    said(line.c_str(), nc_put_att_double(ncid, v, "_FillValue", type, 1, &value));
  }
  if (!classic_format && nc_inq_attid(ncid, v, "_FillValue", &id) == NC_NOERR) {
    std::size_t count = 0;
    nc_inq_attlen(ncid, v, "_FillValue", &count);
    if (count == 0) DO(nc_del_att(ncid, v, "_FillValue"));
  }
}

/// What belongs to nobody where a variable is not filled.
void leave_unfilled() {
  // Opened files do not know which of their variables are to be filled; and what has not been filled the classic
  // library (4.9.0) cannot move: it crashes.
  if (opened) return;
  undefined_values = true;
  if (chance(50)) {
    int old = -1;
    DO(nc_set_fill(ncid, NC_NOFILL, &old));
    std::printf("  %d\n", old);
  } else {
    DO(nc_def_var_fill(ncid, any_variable(), 1, nullptr));
  }
}

/// The chunks that the library chooses along others depend on what it has been asked before. -1: there is none.
int fixed_dimension() {
  int unlimited[NC_MAX_DIMS] = {}, count = 0;
  nc_inq_unlimdims(ncid, &count, unlimited);
  for (int d = 0; d < count_of(0); ++d)
    if (std::find(unlimited, unlimited + count, d) == unlimited + count) return d;
  return -1;
}

/// Only netCDF-4 knows them; some of them nobody but the library can write.
void beyond() {
  int id = -1;
  switch (below(7)) {
    case 0: {
      const std::string name = fresh_name('g');
      const int code = nc_def_grp(ncid, name.c_str(), &id);
      said("group", code);
      if (code != NC_NOERR) break;
      int variable = -1;
      const std::array<int, 1> dimensions{fixed_dimension()};
      DO(nc_def_var(id, "inner", NC_FLOAT, dimensions[0] >= 0 ? 1 : 0, dimensions.data(), &variable));
      DO(nc_put_att_text(id, NC_GLOBAL, "title", 5, "inner"));
      break;
    }
    case 1: DO(nc_def_opaque(ncid, 7, fresh_name('o').c_str(), &id)); break;
    case 2: DO(nc_def_vlen(ncid, fresh_name('l').c_str(), NC_INT, &id)); break;
    case 3: {
      const int code = nc_def_compound(ncid, 8, fresh_name('c').c_str(), &id);
      said("compound", code);
      if (code == NC_NOERR) DO(nc_insert_compound(ncid, id, "a", 0, NC_INT));
      break;
    }
    case 4: {
      const int code = nc_def_enum(ncid, NC_INT, fresh_name('e').c_str(), &id);
      const int one = 1;
      said("enum", code);
      if (code == NC_NOERR) DO(nc_insert_enum(ncid, id, "one", &one));
      break;
    }
    case 5: DO(nc_def_var_quantize(ncid, any_variable(), 1 + below(3), 3)); break;
    default: {
      const unsigned level = 4;
      DO(nc_def_var_filter(ncid, any_variable(), 307, 1, &level));
      break;
    }
  }
}

/// nc__enddef with room. An alignment of 0 ends the library.
void end_with_room() {
  // To align records that are there anew the library (4.9.0) may take them backwards, onto others.
  static bool aligned = false;
  const auto align = aligned ? 1U : static_cast<unsigned>(1 + below(300));
  aligned = true;
  DO(nc__enddef(ncid, static_cast<std::size_t>(below(2000)), align, static_cast<std::size_t>(below(2000)), align));
}

void wide_step() {
  switch (below(9)) {
    case 0:
    case 1: late_fill(); break;
    case 2:
      if (chance(15)) leave_unfilled();
      break;
    case 3:
      if (chance(classic_format ? 100 : 20)) beyond();
      break;
    case 4: end_with_room(); break;
    case 5: {
      double value = 7;
      nc_type type = NC_NAT;
      const int v = any_variable();
      if (nc_inq_vartype(ncid, v, &type) != NC_NOERR || type == NC_STRING) break;
      DO(nc_def_var_fill(ncid, v, 0, chance(50) ? nullptr : &value));
      break;
    }
    case 6: get<double>(FAMILY(get, _double, double), "double"); break;
    case 7: put<float>(FAMILY(put, _float, const float), "float"); break;
    default: DO(nc_inq_unlimdim(ncid, nullptr)); break;
  }
}

void step() {
  if (wide && chance(25)) {
    wide_step();
    return;
  }
  switch (below(32)) {
    case 0:
      if (!classic_format || !undefined_values) DO(nc_redef(ncid));
      break;
    case 1:
    case 2: DO(nc_enddef(ncid)); break;
    case 3: DO(nc_sync(ncid)); break;
    case 4:
    case 5: {
      int id = -1;
      const std::string name = any_name('d');
      const int length = chance(15) ? 0 : 1 + below(5);
      std::printf("%s %d ", name.c_str(), length);
      DO(nc_def_dim(ncid, name.c_str(), static_cast<std::size_t>(length), &id));
      break;
    }
    case 6:
    case 7:
    case 8: define_variable(); break;
    case 9:
    case 10: put_attribute(); break;
    case 11: define_storage(); break;
    case 12: {
      write_out_if(overwritten);
      const int v = chance(30) ? NC_GLOBAL : any_variable();
      DO(nc_del_att(ncid, v, any_name('a').c_str()));
      break;
    }
    case 13: {
      const bool variable = chance(50);
      // The library leaves dimensions without names behind where it has not written all first.
      if (wide && !classic_format) break;
      // Not shorter than any before: the classic library keeps the room of the old name, and then lets it grow into
      // that.
      static std::size_t longest = 5;
      std::string name = any_name(variable ? 'v' : 'd');
      // HDF5 objects keep traces of their old names, which the library runs into.
      if (!classic_format) name = fresh_name('r');
      const int id = any_variable();
      char old_name[NC_MAX_NAME + 1] = {};
      int coordinate = -1;
      const int dimension = any_dimension();
      if (variable)
        nc_inq_varname(ncid, id, old_name);
      else
        nc_inq_dimname(ncid, dimension, old_name);
      if (classic_format) {
        longest = std::max(longest, std::strlen(old_name)) + static_cast<std::size_t>(below(2));
        name.resize(longest, 'z');
      }
      // Renaming coordinates is where the library's own troubles are.
      if (!classic_format && (variable ? nc_inq_dimid(ncid, old_name, &coordinate)
                                       : nc_inq_varid(ncid, old_name, &coordinate)) == NC_NOERR)
        break;
      std::printf("%s ", name.c_str());
      // The library moves every later variable too, and stops half-way where one is not in the file yet.
      if (variable) write_out_if(id + 1 < count_of(1));
      if (variable)
        DO(nc_rename_var(ncid, id, name.c_str()));
      else
        DO(nc_rename_dim(ncid, dimension, name.c_str()));
      // Whether a renamed dimension leaves the library in define mode depends on what HDF5 has open.
      if (!classic_format) nc_enddef(ncid);
      break;
    }
    case 14: {
      const int from = any_variable(), to = any_variable();
      DO(nc_copy_att(ncid, from, any_name('a').c_str(), ncid, to));
      overwritten = true;
      write_out_if(overwritten);
      const std::string a = any_name('a'), b = any_name('b');
      DO(nc_rename_att(ncid, chance(30) ? NC_GLOBAL : any_variable(), a.c_str(), b.c_str()));
      // Where the old name is not there, the library is in define mode or not.
      if (wide && !classic_format && !classic_model) nc_enddef(ncid);
      break;
    }
    case 15: inquire(); break;
    case 16: put<int>(FAMILY(put, _int, const int), "int"); break;
    case 17: put<float>(FAMILY(put, _float, const float), "float"); break;
    case 18: put<double>(FAMILY(put, _double, const double), "double"); break;
    case 19: put<signed char>(FAMILY(put, _schar, const signed char), "schar"); break;
    case 20: put<unsigned char>(FAMILY(put, _uchar, const unsigned char), "uchar"); break;
    case 21: put<short>(FAMILY(put, _short, const short), "short"); break;
    case 22: put<long>(FAMILY(put, _long, const long), "long"); break;
    case 23: put<unsigned short>(FAMILY(put, _ushort, const unsigned short), "ushort"); break;
    case 24: put<unsigned>(FAMILY(put, _uint, const unsigned), "uint"); break;
    case 25: put<long long>(FAMILY(put, _longlong, const long long), "longlong"); break;
    case 26: put<unsigned long long>(FAMILY(put, _ulonglong, const unsigned long long), "ulonglong"); break;
    case 27: put<char>(FAMILY(put, _text, const char), "text"); break;
    case 28: put_strings(); break;
    case 29: put_untyped(); break;
    case 30:
      switch (below(4)) {
        case 0: get<double>(FAMILY(get, _double, double), "double"); break;
        case 1: get<int>(FAMILY(get, _int, int), "int"); break;
        case 2: get<char>(FAMILY(get, _text, char), "text"); break;
        default: get<float>(FAMILY(get, _float, float), "float"); break;
      }
      break;
    default: {
      int old = -1;
      DO(nc_set_fill(ncid, NC_FILL, &old));
      std::printf("  %d\n", old);
      break;
    }
  }
}

void create(const char* path, int format) {
  const int modes[] = {0, 0, NC_64BIT_OFFSET, NC_NETCDF4, NC_NETCDF4 | NC_CLASSIC_MODEL, NC_64BIT_DATA};
  classic_format = format != 3 && format != 4;
  classic_model = format == 4;
  DO(nc_create(path, modes[format], &ncid));
  const bool unlimited_first = chance(70);
  int id = 0;
  if (unlimited_first) nc_def_dim(ncid, "time", NC_UNLIMITED, &id);
  for (int i = 0; i < 3; ++i)
    nc_def_dim(ncid, std::string("n").append(std::to_string(i)).c_str(), static_cast<std::size_t>(2 + below(4)), &id);
  for (int i = 0; i < 5; ++i) define_variable();
}

/// Nothing is left that is nobody's.
void put_everything() {
  nc_enddef(ncid);
  for (int v = 0; v < count_of(1); ++v) {
    nc_type type = NC_NAT;
    nc_inq_vartype(ncid, v, &type);
    static const std::vector<const char*> texts(room, "x");
    static const std::vector<float> numbers(room, 3);
    static const std::string letters(room, 'l');
    std::printf("all of %d: ", v);
    if (type == NC_STRING)
      DO(nc_put_var_string(ncid, v, const_cast<const char**>(texts.data())));
    else if (type == NC_CHAR)
      DO(nc_put_var_text(ncid, v, letters.c_str()));
    else
      DO(nc_put_var_float(ncid, v, numbers.data()));
  }
}

void end() {
  inquire();
  if (!wide || undefined_values || chance(85)) {
    if (undefined_values) put_everything();
    DO(nc_close(ncid));
    return;
  }
  // What a classic file had not synced before it was redefined the library forgets with the redefinition; and of an
  // HDF5 file that has not been synced the dimensions lose their names. Of a file that was renamed it cannot remove the
  // name.
  const int synced = nc_sync(ncid);
  if (moved || (coordinate && !classic_format) || (classic_format && synced == NC_EINDEFINE)) {
    DO(nc_close(ncid));
    return;
  }
  if (chance(50)) DO(nc_redef(ncid));
  for (int i = below(4); i > 0; --i) step();
  DO(nc_abort(ncid));
}

/// The file with its name, or what had it.
void live(const char* path, int format, int steps) {
  std::printf("--- %s\n", path);
  opened = moved = coordinate = undefined_values = overwritten = false;
  filled_late.clear();
  const std::string other = std::string(path) + ".other";
  if (wide && access(path, F_OK) == 0 && chance(40)) {
    const int flags = chance(70) ? NC_WRITE : NC_NOWRITE;
    if (nc_open(path, flags, &ncid) != NC_NOERR) return;
    std::printf("opened\n");
    opened = true;
    nc_inq_format(ncid, &format);
    classic_format = format != NC_FORMAT_NETCDF4 && format != NC_FORMAT_NETCDF4_CLASSIC;
    classic_model = format == NC_FORMAT_NETCDF4_CLASSIC;
  } else {
    create(path, format);
  }
  for (int i = 0; i < steps; ++i) {
    if (wide && !opened && chance(1)) {
      const bool gone = chance(30);
      moved = true;
      std::printf("%s -> %d\n", gone ? "removed" : "renamed", gone ? unlink(path) : std::rename(path, other.c_str()));
    }
    step();
  }
  end();
  if (wide && chance(20)) std::printf("%d\n", unlink(path));
  if (wide && chance(20)) std::printf("%d\n", std::rename(path, other.c_str()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  random_bits.seed(std::strtoull(argv[1], nullptr, 10));
  const int format = std::atoi(argv[2]);
  wide = argc > 5;
  const int most = argc > 4 ? std::atoi(argv[4]) : 1000;  // to find where two runs part
  if (!wide) {
    create(argv[3], format);
    int steps = 40 + below(100);
    steps = std::min(steps, most);
    for (int i = 0; i < steps; ++i) step();
    inquire();
    DO(nc_close(ncid));
    DO(nc_close(ncid));
    return 0;
  }
  for (int lives = 1 + below(4), left = most; lives > 0 && left > 0; --lives) {
    const int steps = std::min(left, 10 + below(70));
    live(argv[3], format, steps);
    left -= steps;
  }
  return 0;
}
