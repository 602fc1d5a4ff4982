#include "capture/pnetcdf/variables.h"

#include <utility>

#include "capture/pnetcdf/convert.h"
#include "capture/pnetcdf/shadow_calls.h"

namespace advectio::pnetcdf {

int Variables::record_dimension() const {
  int dimension = -1;
  return lib_.ncmpi_inq_unlimdim(ncid_, &dimension) == NC_NOERR ? dimension : -1;
}

const Shape* Variables::of(int variable) {
  if (variable < 0) return nullptr;
  while (shapes_.size() <= static_cast<std::size_t>(variable)) {
    Shape k;
    int rank = 0;
    const int id = static_cast<int>(shapes_.size());
    if (lib_.ncmpi_inq_var(ncid_, id, nullptr, &k.type, &rank, nullptr, nullptr) != NC_NOERR) return nullptr;
    std::vector<int> dimensions(static_cast<std::size_t>(rank));
    lib_.ncmpi_inq_var(ncid_, id, nullptr, nullptr, nullptr, dimensions.data(), nullptr);
    k.element = memory_size(k.type);
    k.record = rank > 0 && dimensions[0] == record_dimension();
    for (const int d : dimensions) {
      MPI_Offset length = 0;
      lib_.ncmpi_inq_dimlen(ncid_, d, &length);
      k.lengths.push_back(static_cast<std::uint64_t>(length));
    }
    shapes_.push_back(std::move(k));
  }
  return &shapes_[static_cast<std::size_t>(variable)];
}

bool Variables::fill_value(int variable, Bytes& value) {
  Attribute fill;
  const auto* v = of(variable);
  value = v != nullptr ? default_fill(static_cast<DataType>(v->type)) : Bytes{};
  if (v == nullptr || shadow::read_attribute(Calls{lib_, ncid_}, variable, "_FillValue", fill) != NC_NOERR) return true;
  value = fill.values;
  return static_cast<nc_type>(fill.type) == v->type && fill.count == 1;
}

}  // namespace advectio::pnetcdf
