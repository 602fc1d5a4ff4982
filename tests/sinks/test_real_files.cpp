// Files of real models, taken through a sink and compared with themselves: everything the netCDF interface tells of
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"

namespace advectio {
namespace {

using testing::Contents;
using testing::difference;
using testing::OwnedBlock;
using testing::read_by_netcdf;

std::filesystem::path shared_data() {
  if (const char* s = std::getenv("ADVECTIO_SHARED"); s != nullptr) return std::filesystem::path(s) / "data";
  return std::filesystem::path(ADVECTIO_SOURCE_DIR) / ".." / "shared" / "data";
}

std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* p = ::popen(command.c_str(), "r");
  if (p == nullptr) return out;
  std::array<char, 65536> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), p)) > 0;) out.append(buffer.data(), n);
  return ::pclose(p) == 0 ? out : "";
}

/// A schema as a program would give it, from what is read of a file.
Schema declared(const Contents& c) {
  Schema s = c.schema;
  for (auto& d : s.dimensions)
    if (d.unlimited) d.length = 0;
  for (auto& v : s.variables)
    v.has_fill = std::any_of(v.attributes.begin(), v.attributes.end(),
                             [](const Attribute& a) { return a.name == "_FillValue"; });
  return s;
}

/// Every variable record by record, each record in two parts.
std::vector<OwnedBlock> blocks_of(const Contents& c) {
  std::vector<OwnedBlock> out;
  for (std::uint32_t i = 0; i < c.schema.variables.size(); ++i) {
    const auto& v = c.schema.variables[i];
    if (v.type == DataType::string) continue;
    Box whole;
    for (const auto d : v.dimensions) {
      whole.start.push_back(0);
      whole.count.push_back(c.schema.dimensions[d].length);
    }
    if (whole.empty()) continue;
    std::vector<Box> boxes = {whole};
    for (std::size_t cut = 0; cut < std::min<std::size_t>(2, whole.rank()); ++cut) {
      std::vector<Box> next;
      for (const auto& b : boxes) {
        const auto step = cut == 0 ? 1 : (b.count[cut] + 1) / 2;
        for (std::uint64_t at = 0; at < b.count[cut]; at += step) {
          auto piece = b;
          piece.start[cut] += at;
          piece.count[cut] = std::min<std::uint64_t>(step, b.count[cut] - at);
          next.push_back(piece);
        }
      }
      if (cut == 0 && !c.schema.dimensions[v.dimensions[0]].unlimited) continue;
      boxes = next;
    }
    for (auto& b : boxes) {
      Bytes data(b.volume() * size_of(v.type));
      copy_part(b, c.values[i].data(), whole, data.data(), b, size_of(v.type));
      out.emplace_back(i, std::move(b), std::move(data));
    }
  }
  return out;
}

class RealFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_data())) GTEST_SKIP() << "no shared data beside the project";
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-real-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (!directory_.empty() && std::getenv("ADVECTIO_KEEP") == nullptr) std::filesystem::remove_all(directory_);
  }

  static std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> out;
    for (const auto& e : std::filesystem::recursive_directory_iterator(shared_data()))
      // Of the many tiles of one file one says as much as all.
      if (e.is_regular_file() && e.path().extension() != ".md" && e.path().extension() != ".txt" &&
          e.file_size() < 3'100'000 && e.path().string().find("split6") == std::string::npos &&
          (e.path().string().find("split4") == std::string::npos || e.path().string().ends_with("_0003")))
        out.push_back(e.path());
    std::sort(out.begin(), out.end());
    return out;
  }

  void copy(testing::FedSink& sink, const Schema& schema, const std::vector<OwnedBlock>& blocks) {
    const auto declared_ok = sink.declare(schema);
    ASSERT_TRUE(declared_ok.ok()) << declared_ok.error().message;
    for (const auto& b : blocks) {
      const auto r = sink.write(b.block);
      ASSERT_TRUE(r.ok()) << r.error().message;
    }
    const auto r = sink.close();
    ASSERT_TRUE(r.ok()) << r.error().message;
  }

  Executor executor_{2};
  std::string directory_;
};

TEST_F(RealFiles, ComeOutAsTheyWentIn) {
  std::size_t seen = 0;
  for (const auto& from : files()) {
    SCOPED_TRACE(from.filename().string());
    Contents c;
    try {
      c = read_by_netcdf(from.string());
    } catch (const std::runtime_error&) {
      continue;  // not a netCDF file
    }
    ++seen;
    const auto path = directory_ + "/out.nc";
    std::ofstream(path).flush();
    auto sink = is_hdf5(c.schema.format) ? testing::fed(open_netcdf4(system_files(), path, {}, executor_, false))
                                         : testing::fed(open_cdf5(system_files(), path, {}, false));
    ASSERT_TRUE(sink.ok());
    ASSERT_NO_FATAL_FAILURE(copy(**sink, declared(c), blocks_of(c)));
    ASSERT_EQ(difference(c, read_by_netcdf(path)), "");
    // The tools everybody uses see the same, special attributes and all; but who wrote it.
    const auto dump = [](const std::string& file, const std::string& options) {
      return output_of("ncdump " + options + " -n x '" + file + "' | grep -v -e _NCProperties -e _SuperblockVersion");
    };
    if (!output_of("ncdump -k '" + path + "' 2>/dev/null").empty()) {
      ASSERT_EQ(dump(from.string(), "-hs"), dump(path, "-hs"));
      if (std::filesystem::file_size(from) < 400'000) {
        ASSERT_EQ(dump(from.string(), ""), dump(path, ""));
      }
    }
  }
  EXPECT_GT(seen, 10U);
}

}  // namespace
}  // namespace advectio
