#include "apps/advectiod/open_sink.h"

#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/zarr/zarr_sink.h"

namespace advectio {

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
