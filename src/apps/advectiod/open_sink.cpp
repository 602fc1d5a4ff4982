#include "apps/advectiod/open_sink.h"

#include <algorithm>

#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/zarr/zarr_sink.h"

namespace advectio {

namespace {

void make_variable_readable(Variable& v) {
  bool shuffled = false, compressed = false, readable = true;
  for (const auto& f : v.filters) {
    shuffled = shuffled || f.id == filter_id::shuffle || f.id == filter_id::bitshuffle || f.id == filter_id::blosc;
    compressed =
        compressed || (f.id != filter_id::shuffle && f.id != filter_id::bitshuffle && f.id != filter_id::fletcher32);
    readable = readable && (f.id == filter_id::shuffle || f.id == filter_id::deflate || f.id == filter_id::fletcher32);
  }
  if (readable || !compressed) return;
  const bool checked =
      std::any_of(v.filters.begin(), v.filters.end(), [](const Filter& f) { return f.id == filter_id::fletcher32; });
  v.filters.clear();
  if (checked) v.filters.push_back({filter_id::fletcher32, {}});
  if (size_of(v.type) > 1) v.filters.push_back({filter_id::shuffle, {}});
  v.filters.push_back({filter_id::deflate, {1}});
}

}  // namespace

void make_readable(Schema& schema) {
  for (auto& v : schema.variables) make_variable_readable(v);
}

Abilities abilities_of(FileFormat format) {
  if (format == FileFormat::zarr) return zarr_abilities();
  return is_hdf5(format) ? netcdf4_abilities() : cdf5_abilities();
}

Result<std::unique_ptr<Sink>> open_sink(const SinkRequest& request, const SharedBySinks& shared, Executor& executor,
                                        Helpers* helpers) {
  const auto deflate = request.policy.deflate == DeflateBy::libdeflate ? DeflateMaker::libdeflate : DeflateMaker::isal;
  if (request.format == FileFormat::zarr) {
    ZarrOptions options;
    options.memory = shared.memory;
    options.helpers = helpers;
    options.ordered = request.ordered;
    options.owner = request.owner;
    options.level = request.policy.level;
    options.deflate = deflate;
    return open_zarr(system_files(), request.path, options, executor, request.resume);
  }
  if (!is_hdf5(request.format)) {
    Cdf5Options options;
    options.ordered = request.ordered;
    options.power_lost = request.power_lost;
    options.ends_with_header = request.together;  // of these formats PnetCDF makes all such files
    return open_cdf5(system_files(), request.path, options, request.resume);
  }
  Netcdf4Options options;
  options.memory = shared.memory;
  options.skeletons = shared.skeletons;
  options.helpers = helpers;
  options.ordered = request.ordered;
  options.for_parallel_hdf5 = request.together;
  options.level = request.policy.level;
  options.deflate = deflate;
  return open_netcdf4(system_files(), request.path, options, executor, request.resume);
}

}  // namespace advectio
