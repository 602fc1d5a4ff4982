#include "apps/advectiod/open_sink.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sinks/adios2/bp5_file_sink.h"
#include "sinks/adios2/bp5_sink.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/zarr/zarr_sink.h"

namespace advectio {
namespace {

/// ADIOS2's operator for a codec. `asked` is none: what the program asks of HDF5 is not ADIOS2's.
Result<adios2::Compression> compression_of(const DatasetPolicy& policy) {
  adios2::Compression out;
  switch (policy.codec) {
    case Codec::asked:
    case Codec::none: return out;
    case Codec::blosc_lz4:
    case Codec::blosc_zstd: break;
    default:
      return Error{Code::config,
                   "codec: " + std::string(name_of(policy.codec)) +
                       " cannot be with ADIOS2, which has blosc-lz4 and blosc-zstd of our codecs; name one of them, or "
                       "none, in the rule with the format",
                   0};
  }
  out.type = "blosc";
  out.parameters = {{"compressor", policy.codec == Codec::blosc_lz4 ? "lz4" : "zstd"},
                    {"clevel", std::to_string(policy.level.value_or(1))},
                    {"doshuffle", policy.shuffle == Shuffle::bit    ? "BLOSC_BITSHUFFLE"
                                  : policy.shuffle == Shuffle::none ? "BLOSC_NOSHUFFLE"
                                                                    : "BLOSC_SHUFFLE"}};
  return out;
}

}  // namespace

Result<void> can_be_written(const DatasetPolicy& policy, const std::string& origin) {
  if (policy.format != FileFormat::bp5 && policy.format != FileFormat::sst) return {};
  const auto what = origin + ": format: " + std::string(policy.format == FileFormat::bp5 ? "bp5" : "sst");
  auto compression = compression_of(policy);
  if (!compression) return std::move(compression).error().with(what);
  if (auto can = adios2::can_compress(*compression); !can) return std::move(can).error().with(what);
  return {};
}

Result<void> can_be_written(const Config& config) {
  for (const auto& rule : config.datasets) {
    if (rule.sets("format")) ADVECTIO_TRY(can_be_written(rule.values, rule.origins.at("format")));
    if (!rule.sets("outputs")) continue;
    for (const auto& output : rule.values.outputs)
      ADVECTIO_TRY(can_be_written(output.policy, rule.origins.at("outputs")));
  }
  return {};
}

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
  if (format == FileFormat::bp5) return bp5_abilities();
  if (format == FileFormat::sst) return sst_abilities();
  return is_hdf5(format) ? netcdf4_abilities() : cdf5_abilities();
}

Result<void> can_be_made_of_files(FileFormat format) {
  if (format != FileFormat::bp5 && format != FileFormat::sst) return {};
  return Error{Code::unsupported,
               "format " + std::string(name_of(format)) + " is written by `advectio run`, and not made of files yet",
               0};
}

Result<std::unique_ptr<Sink>> open_sink(const SinkRequest& request, const SharedBySinks& shared, Executor& executor,
                                        Helpers* helpers) {
  const auto deflate = request.policy.deflate == DeflateBy::libdeflate ? DeflateMaker::libdeflate : DeflateMaker::isal;
  if (request.format == FileFormat::zarr) {
    ZarrOptions options;
    options.memory = shared.memory;
    options.helpers = helpers;
    options.wake = request.wake;
    options.ordered = request.ordered;
    options.owner = request.owner;
    options.level = request.policy.level;
    options.deflate = deflate;
    return open_zarr(system_files(), request.path, options, executor, request.resume);
  }
  if (request.format == FileFormat::bp5) {
    auto compression = compression_of(request.policy);
    if (!compression) return std::move(compression).error();
    return open_bp5(system_files(), request.path, {request.ordered, request.owner, std::move(compression).value()},
                    request.resume);
  }
  if (request.format == FileFormat::sst) {
    auto compression = compression_of(request.policy);
    if (!compression) return std::move(compression).error();
    return open_sst(request.path, {std::move(compression).value(), request.policy.stream, shared.streams});
  }
  if (!is_hdf5(request.format)) {
    Cdf5Options options;
    options.ordered = request.ordered;
    options.power_lost = request.power_lost;
    options.ends_with_header = request.together;  // of these formats PnetCDF makes all such files
    options.disk = request.disk;
    options.memory = shared.memory;
    options.wake = request.wake;
    options.made_by_others = request.made_by_others;
    options.continues = request.continues;
    return open_cdf5(system_files(), request.path, options, request.resume);
  }
  Netcdf4Options options;
  options.memory = shared.memory;
  options.skeletons = shared.skeletons;
  options.helpers = helpers;
  options.wake = request.wake;
  options.disk = request.disk;
  options.ordered = request.ordered;
  options.for_parallel_hdf5 = request.together;
  options.made_by_others = request.made_by_others;
  options.level = request.policy.level;
  options.deflate = deflate;
  return open_netcdf4(system_files(), request.path, options, executor, request.resume);
}

Result<std::unique_ptr<Sink>> open_sink_for_whole(const SinkRequest& request, const SharedBySinks& shared,
                                                  Executor& executor) {
  if (request.format != FileFormat::bp5) return open_sink(request, shared, executor, nullptr);
  auto compression = compression_of(request.policy);
  if (!compression) return std::move(compression).error();
  return open_bp5_file(system_files(), request.path, std::move(compression).value());
}

}  // namespace advectio
