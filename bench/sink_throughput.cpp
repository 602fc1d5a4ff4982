// How fast a sink takes real model output from memory to a file.
//
//   sink_throughput FILE [--out PATH] [--threads N] [--frames N] [--levels] [--durable] [--zarr | --bp5]
//                   [--codec NAME]...
//
// The first record of every variable of FILE (a netCDF file) is put as one block per variable and frame. --levels:
// chunks of one horizontal level, whatever FILE has. --zarr, --bp5: a Zarr store or a BP5 file (of ADIOS2, which
// knows none of the codecs) in place of a netCDF-4 file. Prints one line per codec: raw MB/s, ratio, and CPU seconds of
// gather and compression.
#include <netcdf.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "sinks/adios2/bp5_sink.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/zarr/zarr_sink.h"

using namespace advectio;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Input {
  Schema schema;
  std::vector<Bytes> records;
  std::uint64_t bytes = 0;
};

Input load(const std::string& path, bool levels) {
  Input in;
  int nc = 0, dims = 0, vars = 0, unlimited = -1;
  if (nc_open(path.c_str(), NC_NOWRITE, &nc) != NC_NOERR || nc_inq(nc, &dims, &vars, nullptr, &unlimited) != NC_NOERR) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(1);
  }
  std::array<char, NC_MAX_NAME + 1> name{};
  for (int d = 0; d < dims; ++d) {
    std::size_t n = 0;
    nc_inq_dim(nc, d, name.data(), &n);
    in.schema.dimensions.push_back({name.data(), d == unlimited ? 0 : n, d == unlimited});
  }
  for (int i = 0; i < vars; ++i) {
    int rank = 0, type = 0;
    std::array<int, NC_MAX_VAR_DIMS> ids{};
    nc_inq_var(nc, i, name.data(), &type, &rank, ids.data(), nullptr);
    if (type == NC_STRING || rank == 0 || ids[0] != unlimited) continue;
    Variable v;
    v.name = name.data();
    v.type = static_cast<DataType>(type);
    v.dimensions.assign(ids.begin(), ids.begin() + rank);
    v.contiguous = false;
    std::vector<std::size_t> start(static_cast<std::size_t>(rank), 0), count;
    std::size_t n = 1;
    for (int k = 0; k < rank; ++k) {
      const auto& d = in.schema.dimensions[static_cast<std::size_t>(ids[static_cast<std::size_t>(k)])];
      count.push_back(d.unlimited ? 1 : d.length);
      n *= count.back();
    }
    v.chunks.assign(count.begin(), count.end());
    if (levels && rank == 4) v.chunks[1] = 1;
    Bytes data(n * size_of(v.type));
    nc_get_vara(nc, i, start.data(), count.data(), data.data());
    in.bytes += data.size();
    in.schema.variables.push_back(std::move(v));
    in.records.push_back(std::move(data));
  }
  nc_close(nc);
  return in;
}

struct Codec {
  std::vector<Filter> filters = {};
  DeflateMaker deflate = DeflateMaker::isal;
  std::optional<int> level = std::nullopt;
};

}  // namespace

int main(int argc, char** argv) {
  std::string input, out = "/dev/shm/sink_throughput.nc";
  unsigned threads = std::thread::hardware_concurrency();
  int frames = 4;
  bool levels = false, durable = false, zarr = false, bp5 = false;
  std::vector<std::string> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (a == "--out")
      out = next();
    else if (a == "--threads")
      threads = static_cast<unsigned>(std::atoi(next()));
    else if (a == "--frames")
      frames = std::atoi(next());
    else if (a == "--levels")
      levels = true;
    else if (a == "--durable")
      durable = true;
    else if (a == "--zarr")
      zarr = true;
    else if (a == "--bp5")
      bp5 = true;
    else if (a == "--codec")
      chosen.emplace_back(next());
    else
      input = a;
  }
  if (input.empty()) {
    std::fprintf(stderr,
                 "usage: sink_throughput FILE [--out PATH] [--threads N] [--frames N] [--levels] [--durable] "
                 "[--zarr | --bp5] [--codec NAME]...\n");
    return 2;
  }
  using namespace filter_id;
  const Filter shuffled{shuffle, {}};
  const std::vector<std::pair<std::string, Codec>> codecs = {
      {"none", {}},
      {"isal-0", {{shuffled, {deflate, {1}}}, DeflateMaker::isal, 0}},
      {"isal-1", {{shuffled, {deflate, {1}}}}},
      {"isal-2", {{shuffled, {deflate, {1}}}, DeflateMaker::isal, 2}},
      {"isal-3", {{shuffled, {deflate, {1}}}, DeflateMaker::isal, 3}},
      {"libdeflate-1", {{shuffled, {deflate, {1}}}, DeflateMaker::libdeflate}},
      {"libdeflate-6", {{shuffled, {deflate, {6}}}, DeflateMaker::libdeflate}},
      {"zstd-1", {{shuffled, {zstd, {1}}}}},
      {"zstd-3", {{shuffled, {zstd, {3}}}}},
      {"lz4", {{shuffled, {lz4, {0}}}}},
      {"blosc-lz4", {{{blosc, {0, 0, 0, 0, 5, 1, 1}}}}},
      {"blosc-zstd", {{{blosc, {0, 0, 0, 0, 1, 1, 5}}}}},
      {"bitshuffle-lz4", {{{bitshuffle, {0, 2}}}}},
      {"bitshuffle-zstd", {{{bitshuffle, {0, 3, 1}}}}},
      {"szip", {{{szip, {32, 16}}}}},
  };
  const auto in = load(input, levels);
  std::printf("%s: %zu variables, %.1f MB a frame, %d frames, %u threads\n", input.c_str(), in.schema.variables.size(),
              static_cast<double>(in.bytes) / 1e6, frames, threads);
  std::printf("%-16s %10s %8s %10s %12s\n", "codec", "MB/s", "ratio", "cpu s", "cpu MB/s");
  Executor executor(threads);
  for (const auto& [name, codec] : codecs) {
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), name) == chosen.end()) continue;
    auto schema = in.schema;
    for (auto& v : schema.variables) v.filters = codec.filters;
    std::filesystem::remove_all(out);
    const auto open = [&]() -> Result<std::unique_ptr<Sink>> {
      if (zarr) {
        schema.format = FileFormat::zarr;
        ZarrOptions options;
        options.deflate = codec.deflate;
        options.level = codec.level;
        return open_zarr(system_files(), out, options, executor, false);
      }
      if (bp5) {
        schema.format = FileFormat::bp5;
        return open_bp5(system_files(), out, {}, false);
      }
      std::ofstream(out).flush();
      Netcdf4Options options;
      options.deflate = codec.deflate;
      options.level = codec.level;
      return open_netcdf4(system_files(), out, options, executor, false);
    };
    auto sink = open();
    if (!sink) {
      std::fprintf(stderr, "%s\n", sink.error().message.c_str());
      return 1;
    }
    const auto begin = now();
    auto fail = [&](const Result<void>& r) {
      if (r.ok()) return;
      std::fprintf(stderr, "%s: %s\n", name.c_str(), r.error().message.c_str());
      std::exit(1);
    };
    fail((*sink)->declare(schema));
    Frame frame;
    frame.declare(schema);
    std::vector<std::thread> syncing;
    for (int f = 0; f < frames; ++f) {
      fail((*sink)->begin(static_cast<std::uint64_t>(f) + 1));
      for (std::uint32_t v = 0; v < schema.variables.size(); ++v) {
        Block b;
        b.variable = v;
        for (const auto d : schema.variables[v].dimensions) {
          const auto& dim = schema.dimensions[d];
          b.box.start.push_back(dim.unlimited ? static_cast<std::uint64_t>(f) : 0);
          b.box.count.push_back(dim.unlimited ? 1 : dim.length);
        }
        b.data = in.records[v].data();
        b.bytes = in.records[v].size();
        const auto field = frame.add(b);
        if (!field) fail(field.error());
        fail((*sink)->ready(*field, b.box));
      }
      fail((*sink)->end());
      frame.clear();
      if (durable) syncing.emplace_back([sync = (*sink)->make_durable()] { (void)sync(); });
    }
    for (auto& t : syncing) t.join();
    fail((*sink)->close());
    const auto seconds = now() - begin;
    const auto c = (*sink)->counters();
    std::uintmax_t bytes = zarr || bp5 ? 0 : std::filesystem::file_size(out);
    if (zarr || bp5)
      for (const auto& e : std::filesystem::recursive_directory_iterator(out))
        if (e.is_regular_file()) bytes += e.file_size();
    const auto raw = static_cast<double>(in.bytes) * frames;
    std::printf("%-16s %10.0f %8.2f %10.3f %12.0f\n", name.c_str(), raw / seconds / 1e6,
                raw / static_cast<double>(bytes), static_cast<double>(c.encode_ns) / 1e9,
                raw / (static_cast<double>(c.encode_ns) / 1e9) / 1e6);
    std::fflush(stdout);
  }
  std::filesystem::remove_all(out);
  return 0;
}
