#include "capture/netcdf/compare_files.h"

#include <netcdf.h>
#include <netcdf_filter.h>

#include "capture/netcdf/classic_begins.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

namespace {

std::string hex(const std::vector<unsigned char>& bytes) {
  std::string s;
  for (const auto b : bytes) {
    s += "0123456789abcdef"[b >> 4];
    s += "0123456789abcdef"[b & 15];
  }
  return s;
}

std::string value(int ncid, nc_type type, std::size_t count, const std::vector<unsigned char>& raw) {
  std::size_t size = 0;
  nc_inq_type(ncid, type, nullptr, &size);
  if (type != NC_STRING) return hex(raw);
  std::string s;
  auto** strings = reinterpret_cast<char**>(const_cast<unsigned char*>(raw.data()));
  for (std::size_t i = 0; i < count; ++i) s += strings[i] != nullptr ? std::string("'") + strings[i] + "' " : "NULL ";
  return s;
}

/// The library gives strings away.
void free_strings(nc_type type, std::size_t count, std::vector<unsigned char>& raw) {
  if (type == NC_STRING) nc_free_string(count, reinterpret_cast<char**>(raw.data()));
}

/// By name in netCDF-4, where the order in the file is that in which their values were last written.
void attributes(std::ostream& all, int ncid, int variable, int count) {
  int format = 0;
  nc_inq_format(ncid, &format);
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    std::size_t length = 0, size = 0;
    nc_inq_attname(ncid, variable, i, name);
    nc_inq_att(ncid, variable, name, &type, &length);
    nc_inq_type(ncid, type, nullptr, &size);
    std::vector<unsigned char> raw(length * size + 8, 0);
    const int code = nc_get_att(ncid, variable, name, raw.data());
    raw.resize(length * size);
    std::ostringstream out;
    out << "  att " << name << " type " << type << " count " << length << " " << code << " "
        << value(ncid, type, length, raw) << "\n";
    free_strings(type, length, raw);
    lines.push_back(out.str());
  }
  if (format == NC_FORMAT_NETCDF4 || format == NC_FORMAT_NETCDF4_CLASSIC) std::sort(lines.begin(), lines.end());
  for (const auto& line : lines) all << line;
}

void describe(std::ostream& out, int ncid);

std::string described(const std::string& path) {
  std::ostringstream out;
  int ncid = -1;
  if (const int code = nc_open(path.c_str(), NC_NOWRITE, &ncid); code != NC_NOERR)
    return "cannot open: " + std::to_string(code) + "\n";
  describe(out, ncid);
  nc_close(ncid);
  for (const auto begin : classic_begins(path)) out << "begin " << begin << "\n";
  return out.str();
}

/// A group, or the file.
void describe(std::ostream& out, int ncid) {
  int format = 0, dimensions = 0, variables = 0, globals = 0, unlimited_count = 0;
  nc_inq_format(ncid, &format);
  nc_inq(ncid, &dimensions, &variables, &globals, nullptr);
  out << "format " << format << "\n";
  int unlimited[NC_MAX_DIMS];
  nc_inq_unlimdims(ncid, &unlimited_count, unlimited);
  for (int d = 0; d < dimensions; ++d) {
    char name[NC_MAX_NAME + 1] = {};
    std::size_t length = 0;
    nc_inq_dim(ncid, d, name, &length);
    // Not in the order in which the library lists them: in HDF5 that is the one of making, and a rename makes anew.
    const bool grows = std::find(unlimited, unlimited + unlimited_count, d) != unlimited + unlimited_count;
    out << "dim " << name << " " << length << (grows ? " unlimited" : "") << "\n";
  }
  attributes(out, ncid, NC_GLOBAL, globals);
  for (int v = 0; v < variables; ++v) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    int rank = 0, ids[NC_MAX_VAR_DIMS], count = 0, storage = -1, endian = -1, no_fill = -1;
    nc_inq_var(ncid, v, name, &type, &rank, ids, &count);
    out << "var " << name << " type " << type << " (";
    std::size_t elements = 1, size = 0;
    for (int i = 0; i < rank; ++i) {
      std::size_t length = 0;
      nc_inq_dimlen(ncid, ids[i], &length);
      elements *= length;
      out << ids[i] << " ";
    }
    out << ")";
    if (format == NC_FORMAT_NETCDF4 || format == NC_FORMAT_NETCDF4_CLASSIC) {
      std::size_t chunks[NC_MAX_VAR_DIMS] = {}, filters = 0;
      nc_inq_var_chunking(ncid, v, &storage, chunks);
      out << " storage " << storage;
      for (int i = 0; i < rank && storage == NC_CHUNKED; ++i) out << " " << chunks[i];
      unsigned filter_ids[32] = {};
      nc_inq_var_filter_ids(ncid, v, &filters, filter_ids);
      for (std::size_t i = 0; i < filters; ++i) {
        std::size_t parameters = 0;
        unsigned values[32] = {};
        nc_inq_var_filter_info(ncid, v, filter_ids[i], &parameters, values);
        out << " filter " << filter_ids[i];
        for (std::size_t k = 0; k < parameters; ++k) out << "," << values[k];
      }
      nc_inq_var_endian(ncid, v, &endian);
      if (type != NC_STRING) nc_inq_var_fill(ncid, v, &no_fill, nullptr);
      out << " endian " << endian << " no_fill " << no_fill;
    }
    out << "\n";
    attributes(out, ncid, v, count);
    nc_inq_type(ncid, type, nullptr, &size);
    std::vector<unsigned char> raw(elements * size + 8, 0);
    const int code = nc_get_var(ncid, v, raw.data());
    raw.resize(elements * size);
    out << "  data " << code << " " << value(ncid, type, elements, raw) << "\n";
    free_strings(type, elements, raw);
  }
  int types = 0, groups = 0;
  nc_inq_typeids(ncid, &types, nullptr);
  std::vector<int> ids(static_cast<std::size_t>(types));
  nc_inq_typeids(ncid, &types, ids.data());
  for (const int id : ids) {
    char name[NC_MAX_NAME + 1] = {};
    std::size_t bytes = 0;
    nc_inq_type(ncid, id, name, &bytes);
    out << "type " << name << " " << bytes << "\n";
  }
  nc_inq_grps(ncid, &groups, nullptr);
  ids.resize(static_cast<std::size_t>(groups));
  nc_inq_grps(ncid, &groups, ids.data());
  for (const int id : ids) {
    char name[NC_MAX_NAME + 1] = {};
    nc_inq_grpname(id, name);
    out << "group " << name << "\n";
    describe(out, id);
    out << "end of " << name << "\n";
  }
}

}  // namespace

std::string difference(const std::string& a, const std::string& b) {
  std::istringstream left(described(a)), right(described(b));
  std::string x, y, context;
  for (;;) {
    const bool more_left = static_cast<bool>(std::getline(left, x)),
               more_right = static_cast<bool>(std::getline(right, y));
    if (!more_left && !more_right) return {};
    if (more_left && x.rfind("var ", 0) == 0) context = x;
    if (!more_left) x = "(end)";
    if (!more_right) y = "(end)";
    if (x != y) return "in " + context + "\n< " + x.substr(0, 3000) + "\n> " + y.substr(0, 3000) + "\n";
  }
}
