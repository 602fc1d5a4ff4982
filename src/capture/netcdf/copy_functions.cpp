// nc_copy_var, where either side is ours. The library's own walks through its public functions,
// some of which it may call without passing here; so it is done anew, of the same steps.
#include <cstdlib>
#include <vector>

#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {
namespace {

constexpr std::size_t copied_at_once = 8U << 20U;

struct Source {
  int ncid = -1, variable = -1;
  nc_type type = NC_NAT;
  char name[NC_MAX_NAME + 1] = {};
  std::vector<std::size_t> shape;
};

int define_copy(const RealLibrary& lib, Source& from, CapturedFile& to, int& id) {
  Collective in_call(to.together().collective_out());
  if (to.shadow().classic_format() && !to.shadow().defining()) return NC_ENOTINDEFINE;
  const auto refused = [&in_call](int why) {
    in_call.refused();
    return why;
  };
  int rank = 0, attributes = 0;
  std::vector<int> dimensions(NC_MAX_VAR_DIMS);
  int code = lib.nc_inq_var(from.ncid, from.variable, from.name, &from.type, &rank, dimensions.data(), &attributes);
  if (code != NC_NOERR) return code;
  if (!is_known(static_cast<DataType>(from.type))) return refused(NC_EBADTYPE);
  for (int i = 0; i < rank; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    std::size_t length = 0;
    auto& dimension = dimensions[static_cast<std::size_t>(i)];
    code = lib.nc_inq_dim(from.ncid, dimension, name, &length);
    if (code == NC_NOERR) code = lib.nc_inq_dimid(to.ncid, name, &dimension);
    if (code != NC_NOERR) return refused(code);
    from.shape.push_back(length);
  }
  if (to.shadow().enddef_pending()) to.shadow().end_pending();
  to.before_change();
  code = lib.nc_def_var(to.ncid, from.name, from.type, rank, dimensions.data(), &id);
  to.shadow().after_change();
  if (code != NC_NOERR) return refused(code);
  to.touch(Touched::dimensions);
  for (int i = 0; i < attributes && code == NC_NOERR; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    code = lib.nc_inq_attname(from.ncid, from.variable, i, name);
    if (code == NC_NOERR) code = lib.nc_copy_att(from.ncid, from.variable, name, to.ncid, id);
  }
  to.touch(Touched::variable, id);
  if (code != NC_NOERR) return code;
  code = to.enddef(nullptr, 0, 0, 0);
  return code == NC_ENOTINDEFINE ? NC_NOERR : code;
}

int copy_data(const RealLibrary& lib, const Source& from, CapturedFile& to, int id) {
  const bool strings = from.type == NC_STRING;
  const std::size_t element = strings ? sizeof(char*) : memory_size(from.type);
  std::vector<std::size_t> start(from.shape.size(), 0), count(from.shape);
  std::size_t row = 1;
  for (std::size_t i = 1; i < count.size(); ++i) row *= count[i];
  const std::size_t rows = count.empty() ? 1 : count[0];
  if (rows == 0 || row == 0) return NC_NOERR;
  const std::size_t step = std::min(rows, std::max<std::size_t>(1, copied_at_once / (row * element)));
  std::vector<std::byte> buffer(step * row * element);
  for (std::size_t at = 0; at < rows; at += step) {
    const std::size_t here = std::min(step, rows - at);
    if (!count.empty()) {
      start[0] = at;
      count[0] = here;
    }
    int code = lib.nc_get_vara(from.ncid, from.variable, start.data(), count.data(), buffer.data());
    if (code != NC_NOERR) return code;
    code = to.put({PutCall::Form::vara, id, start.data(), count.data(), nullptr, nullptr, buffer.data(), NC_NAT}).code;
    if (strings) lib.nc_free_string(here * row, reinterpret_cast<char**>(buffer.data()));
    if (code != NC_NOERR) return code;
  }
  return NC_NOERR;
}

}  // namespace

ADVECTIO_EXPORT int nc_copy_var(int ncid_in, int varid, int ncid_out) try {
  ADVECTIO_ENTER;
  auto* from = entry.find(ncid_in);
  auto* to = entry.find(ncid_out);
  for (auto** file : {&from, &to}) {
    if (*file == nullptr || !(file == &to ? to->must_be_taken_over_to_define() : from->must_be_taken_over_to_read()))
      continue;
    auto* const taken = *file;
    if (const int code = take_over(*taken); code != NC_NOERR) return code;
    if (from == taken) from = nullptr;
    if (to == taken) to = nullptr;
  }
  if (from == nullptr && to == nullptr) return ADVECTIO_REAL(nc_copy_var, ncid_in, varid, ncid_out);
  Source source{ncid_in, varid};
  if (from != nullptr) {
    const auto reading = from->read(varid, NC_NAT, true, true);
    if (reading.code != NC_NOERR) return reading.code;
    source.ncid = reading.ncid;
    source.variable = reading.variable;
  }
  if (to == nullptr) return ADVECTIO_REAL(nc_copy_var, source.ncid, source.variable, ncid_out);
  int id = -1;
  if (const int code = define_copy(entry.lib, source, *to, id); code != NC_NOERR) return code;
  return copy_data(entry.lib, source, *to, id);
}
ADVECTIO_GUARDED

}  // namespace advectio::netcdf
