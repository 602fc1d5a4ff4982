#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netcdf.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "core/schema.h"
#include "sinks/chunks/codec.h"
#include "sinks/chunks/elsewhere.h"
#include "sinks/fed_sink.h"
#include "sinks/library_lock.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"

namespace advectio {
namespace {

using testing::OwnedBlock;
using testing::Random;
using testing::read_by_netcdf;

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)

Bytes noise(Random& random, std::size_t n) {
  Bytes out(n);
  for (auto& b : out) b = static_cast<std::byte>(random());
  return out;
}

/// A smooth field, as models make them.
Bytes smooth(DataType type, std::size_t elements) {
  Bytes out(elements * size_of(type));
  for (std::size_t i = 0; i < elements; ++i) {
    const double x = 280.0 + 15.0 * std::sin(static_cast<double>(i) / 37.0) + 0.001 * static_cast<double>(i % 97);
    auto* to = out.data() + i * size_of(type);
    switch (type) {
      case DataType::float32: {
        const auto v = static_cast<float>(x);
        std::memcpy(to, &v, sizeof v);
        break;
      }
      case DataType::float64: std::memcpy(to, &x, sizeof x); break;
      case DataType::int16: {
        const auto v = static_cast<std::int16_t>(x * 10);
        std::memcpy(to, &v, sizeof v);
        break;
      }
      default: to[0] = static_cast<std::byte>(static_cast<int>(x) & 0xff); break;
    }
  }
  return out;
}

TEST(Elsewhere, MakesTheSameAndNothingOfWhatIsDamaged) {
  EncodePipeline pipeline;
  pipeline.stages = {{filter_id::shuffle, true, {4}}, {filter_id::deflate, false, {2}}};
  pipeline.element = 4;
  pipeline.level = 1;
  const auto raw = smooth(DataType::float32, 10'000);
  auto request = raw;
  const auto how = told_how(pipeline, raw.size());
  request.insert(request.end(), how.begin(), how.end());
  const auto memory = std::make_shared<MemoryBudget>(std::uint64_t{1} << 20);
  const auto reply = encode_for_another(request, memory);
  ASSERT_NE(reply, nullptr);
  const auto said = read_reply(reply->span());
  ASSERT_TRUE(said);
  Buffer out, spare;
  const auto here = encode(pipeline, raw, out, spare);
  ASSERT_OK(here);
  EXPECT_EQ(said->encoded.mask, here->mask);
  ASSERT_EQ(said->encoded.bytes, here->bytes);
  EXPECT_EQ(std::memcmp(reply->buffer.data(), out.data(), here->bytes), 0);

  Bytes damaged(reply->span().begin(), reply->span().end());
  damaged[damaged.size() / 2] ^= std::byte{1};
  EXPECT_FALSE(read_reply(damaged));
  EXPECT_FALSE(read_reply({}));
  for (std::size_t cut = 0; cut < how.size(); ++cut)
    EXPECT_EQ(encode_for_another(std::span(request).first(raw.size() + cut), memory), nullptr) << cut;
}

TEST(ByteShuffle, BringsBytesOfLikeSignificanceTogether) {
  Random random(1);
  for (const std::size_t element : {1, 2, 3, 4, 8, 16}) {
    for (const std::size_t n : {0, 1, 7, 31, 32, 33, 64, 1000, 4099}) {
      const auto in = noise(random, n * element);
      Bytes out(in.size()), expected(in.size());
      byte_shuffle(in.data(), n, element, out.data());
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t b = 0; b < element; ++b) expected[b * n + i] = in[i * element + b];
      ASSERT_EQ(out, expected) << element << " " << n;
    }
  }
}

TEST(BitShuffle, BringsBitsOfLikeSignificanceTogetherAndBack) {
  Random random(2);
  Buffer spare;
  for (const std::size_t element : {1, 2, 4, 8}) {
    for (const std::size_t n : {8, 16, 24, 128, 1000, 2048}) {
      const auto in = noise(random, n * element);
      Bytes out(in.size()), expected(in.size()), back(in.size());
      bit_shuffle(in.data(), n, element, out.data(), spare);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t bit = 0; bit < 8 * element; ++bit)
          if ((std::to_integer<int>(in[i * element + bit / 8]) >> (bit % 8) & 1) != 0)
            expected[bit * (n / 8) + i / 8] |= static_cast<std::byte>(1 << (i % 8));
      ASSERT_EQ(out, expected) << element << " " << n;
      bit_unshuffle(out.data(), n, element, back.data(), spare);
      ASSERT_EQ(back, in);
    }
  }
}

struct Codec {
  std::string name;
  std::vector<Filter> filters;
  DeflateMaker deflate = DeflateMaker::isal;
  std::optional<int> level;
};

std::vector<Codec> codecs() {
  using namespace filter_id;
  std::vector<Codec> all = {
      {"none", {}},
      {"deflate-isal-0", {{deflate, {2}}}, DeflateMaker::isal, 0},
      {"deflate-isal-1", {{deflate, {2}}}},
      {"deflate-isal-2", {{deflate, {7}}}},
      {"deflate-isal-3", {{deflate, {9}}}},
      {"deflate-stored", {{deflate, {0}}}},
      {"deflate-libdeflate-1", {{deflate, {1}}}, DeflateMaker::libdeflate},
      {"deflate-libdeflate-12", {{deflate, {6}}}, DeflateMaker::libdeflate, 12},
      {"zstd", {{zstd, {1}}}},
      {"zstd-9", {{zstd, {9}}}},
      {"lz4", {{lz4, {0}}}},
      {"lz4-small-blocks", {{lz4, {1000}}}},
      {"blosc-lz4", {{blosc, {0, 0, 0, 0, 5, 1, 1}}}},
      {"blosc-zstd", {{blosc, {0, 0, 0, 0, 1, 1, 5}}}},
      {"blosc-zstd-bits", {{blosc, {0, 0, 0, 0, 1, 2, 5}}}},
      {"bitshuffle", {{bitshuffle, {0, 0}}}},
      {"bitshuffle-lz4", {{bitshuffle, {0, 2}}}},
      {"bitshuffle-zstd", {{bitshuffle, {0, 3, 1}}}},
      {"szip", {{szip, {32, 16}}}},
  };
  return all;
}

class Codecs : public ::testing::Test {
 protected:
  void SetUp() override {
    // Files for other readers (check_with_wheels.py) stay where they are asked for.
    if (const char* keep = std::getenv("ADVECTIO_CODEC_FILES"); keep != nullptr) {
      directory_ = keep;
      keep_ = true;
      std::filesystem::create_directories(directory_);
      return;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-codecs-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (!keep_) std::filesystem::remove_all(directory_);
  }

  std::string directory_;
  bool keep_ = false;
  Executor executor_{2};
};

// Read back by netCDF-C, with HDF5's own decoders for deflate, shuffle and szip, and ours for the others. That
// independent decoders read them too is checked by check_with_wheels.py.
TEST_F(Codecs, EachWithAndWithoutShuffleReadsBackInEveryType) {
  Random random(3);
  for (const auto& codec : codecs()) {
    for (const bool shuffle : {false, true}) {
      if (shuffle && codec.filters.empty() && codec.name != "none") continue;
      SCOPED_TRACE(codec.name + (shuffle ? " with shuffle" : ""));
      Schema s;
      s.dimensions = {{"t", 0, true}, {"y", 50, false}, {"x", 67, false}};
      std::vector<OwnedBlock> blocks;
      for (const auto type : {DataType::int8, DataType::int16, DataType::float32, DataType::float64}) {
        for (const bool smooth_one : {true, false}) {
          Variable v;
          v.name = std::string(name_of(type)) + (smooth_one ? "_smooth" : "_noise");
          v.type = type;
          v.dimensions = {0, 1, 2};
          v.contiguous = false;
          // Chunks that do not divide; of 1980 elements, so that the last block of bitshuffle is short and has a tail.
          v.chunks = {1, 30, 66};
          if (shuffle) v.filters = {{filter_id::shuffle, {}}};
          v.filters.insert(v.filters.end(), codec.filters.begin(), codec.filters.end());
          const auto number = static_cast<std::uint32_t>(s.variables.size());
          s.variables.push_back(v);
          for (std::uint64_t t = 0; t < 2; ++t)
            blocks.emplace_back(number, Box{{t, 0, 0}, {1, 50, 67}},
                                smooth_one ? smooth(type, 50 * 67) : noise(random, 50 * 67 * size_of(type)));
        }
      }
      const auto path = directory_ + "/" + codec.name + (shuffle ? "-shuffle" : "") + ".nc";
      std::ofstream(path).flush();
      Netcdf4Options options;
      options.deflate = codec.deflate;
      options.level = codec.level;
      auto sink = testing::fed(open_netcdf4(system_files(), path, options, executor_, false));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(s));
      for (const auto& b : blocks) ASSERT_OK((*sink)->write(b.block));
      ASSERT_OK((*sink)->close());
      const auto got = read_by_netcdf(path);
      for (std::size_t v = 0; v < s.variables.size(); ++v) {
        auto expected = blocks[2 * v].data;
        expected.insert(expected.end(), blocks[2 * v + 1].data.begin(), blocks[2 * v + 1].data.end());
        ASSERT_EQ(got.values[v], expected) << s.variables[v].name;
      }
      // The read-modify-write way through the same codec: one element in the middle of chunks that exist.
      sink = testing::fed(open_netcdf4(system_files(), path, options, executor_, true));
      ASSERT_OK(sink);
      ASSERT_OK((*sink)->declare(s));
      std::deque<OwnedBlock> ones;
      for (std::uint32_t v = 0; v < s.variables.size(); ++v) {
        ones.emplace_back(v, Box{{1, 20, 40}, {1, 1, 1}}, Bytes(size_of(s.variables[v].type), std::byte{7}));
        ASSERT_OK((*sink)->write(ones.back().block));
      }
      ASSERT_OK((*sink)->close());
      const auto again = read_by_netcdf(path);
      for (std::size_t v = 0; v < s.variables.size(); ++v) {
        auto expected = blocks[2 * v].data;
        expected.insert(expected.end(), blocks[2 * v + 1].data.begin(), blocks[2 * v + 1].data.end());
        const auto element = size_of(s.variables[v].type);
        std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>((50 * 67 + 20 * 67 + 40) * element), element,
                    std::byte{7});
        ASSERT_EQ(again.values[v], expected) << s.variables[v].name;
      }
      if (keep_) {
        std::ofstream raw(directory_ + "/" + codec.name + (shuffle ? "-shuffle" : "") + ".raw", std::ios::binary);
        for (const auto& values : again.values)
          raw.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size()));
      }
    }
  }
}

TEST_F(Codecs, SmoothFieldsGetSmaller) {
  Buffer out, spare;
  const auto in = smooth(DataType::float32, 100000);
  for (const auto& codec : codecs()) {
    if (codec.name == "none" || codec.name == "deflate-stored" || codec.name == "bitshuffle" ||
        codec.name.starts_with("szip"))
      continue;
    EncodePipeline p;
    p.element = 4;
    p.deflate = codec.deflate;
    p.level = codec.level;
    if (!codec.name.starts_with("b")) p.stages.push_back({filter_id::shuffle, true, {4}});
    auto parameters = codec.filters[0].parameters;
    if (codec.filters[0].id == filter_id::blosc) parameters[2] = 4;
    if (codec.filters[0].id == filter_id::bitshuffle) parameters.insert(parameters.begin(), {0, 4, 4});
    p.stages.push_back({codec.filters[0].id, false, parameters});
    auto n = encode(p, in, out, spare);
    ASSERT_OK(n);
    EXPECT_LT(n->bytes, in.size() * 4 / 5) << codec.name;
  }
}

TEST_F(Codecs, DecodersRefuseBytesThatAreNotTheirs) {
  Random random(5);
  Buffer out;
  const auto in = smooth(DataType::float32, 5000);
  for (const auto& codec : codecs()) {
    if (codec.filters.empty()) continue;
    const auto id = codec.filters[0].id;
    if (id != filter_id::zstd && id != filter_id::lz4 && id != filter_id::blosc && id != filter_id::bitshuffle)
      continue;
    auto parameters = codec.filters[0].parameters;
    if (id == filter_id::blosc) parameters[2] = 4;
    if (id == filter_id::bitshuffle) parameters.insert(parameters.begin(), {0, 4, 4});
    const EncodeStage stage{id, false, parameters};
    EncodePipeline p;
    p.element = 4;
    Buffer encoded;
    const auto n = encode_stage(stage, p, in, encoded);
    ASSERT_TRUE(n.has_value());
    const auto whole = decode_stage(stage, encoded.first(*n), out, in.size());
    ASSERT_EQ(whole, in.size()) << codec.name;
    ASSERT_EQ(std::memcmp(out.data(), in.data(), in.size()), 0);
    // Cut and changed bytes: any answer will do, except touching memory that is not there (for the sanitizers).
    for (std::size_t cut = 0; cut < *n; cut += 1 + *n / 50)
      (void)decode_stage(stage, encoded.first(cut), out, in.size());
    for (int i = 0; i < 300; ++i) {
      Bytes changed(encoded.data(), encoded.data() + *n);
      changed[random() % std::min<std::size_t>(*n, i % 2 == 0 ? 16 : *n)] = static_cast<std::byte>(random());
      (void)decode_stage(stage, changed, out, in.size());
    }
  }
}

// netCDF-C 4.9 has the same rounding: the same bits must come out.
TEST_F(Codecs, RoundsAsNetcdfDoesAndSaysSo) {
  for (const auto type : {DataType::float32, DataType::float64}) {
    constexpr std::size_t n = 4000;
    auto data = smooth(type, n);
    const std::vector<double> special = {
        0.0, -0.0, 1.0, -1.0, 1.5, 1e-30, -1e30, 3.4e38, 9.9692099683868690e+36, 1.0009765625, 1.00048828125};
    for (std::size_t i = 0; i < special.size(); ++i) {
      const auto f = static_cast<float>(special[i]);
      if (type == DataType::float32)
        std::memcpy(&data[4 * i], &f, 4);
      else
        std::memcpy(&data[8 * i], &special[i], 8);
    }
    for (const int bits : {1, 5, 9, 12, type == DataType::float32 ? 22 : 51}) {
      SCOPED_TRACE(std::string(name_of(type)) + " to " + std::to_string(bits));
      Schema s;
      s.dimensions = {{"x", n, false}};
      Variable v;
      v.name = "a";
      v.type = type;
      v.dimensions = {0};
      v.contiguous = false;
      v.chunks = {1000};
      v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {1}}};
      v.round_bits = static_cast<std::uint32_t>(bits);
      v.attributes = {{"units", DataType::text, 1, Bytes(1, std::byte{'K'}), {}}};
      s.variables = {v};
      v.name = "through_library";
      v.contiguous = true;
      v.chunks.clear();
      v.filters.clear();
      s.variables.push_back(v);
      const auto path = directory_ + "/rounded.nc", reference = directory_ + "/reference.nc";
      std::ofstream(path).flush();
      auto sink = testing::fed(open_netcdf4(system_files(), path, {}, executor_, false));
      ASSERT_OK(sink);
      const auto operators = testing::rounding();
      ASSERT_OK((*sink)->declare(*operators->declare(s), operators));
      const OwnedBlock a(0, Box{{0}, {n}}, data), b(1, Box{{0}, {n}}, data);
      ASSERT_OK((*sink)->write(a.block));
      ASSERT_OK((*sink)->write(b.block));
      ASSERT_OK((*sink)->close());
      {
        const std::lock_guard lock(library_mutex());
        int nc = 0, dim = 0, id = 0;
        ASSERT_EQ(nc_create(reference.c_str(), NC_NETCDF4 | NC_CLOBBER, &nc), NC_NOERR);
        ASSERT_EQ(nc_def_dim(nc, "x", n, &dim), NC_NOERR);
        ASSERT_EQ(nc_def_var(nc, "a", static_cast<nc_type>(type), 1, &dim, &id), NC_NOERR);
        ASSERT_EQ(nc_put_att_text(nc, id, "units", 1, "K"), NC_NOERR);
        ASSERT_EQ(nc_def_var_quantize(nc, id, NC_QUANTIZE_BITROUND, bits), NC_NOERR);
        ASSERT_EQ(nc_enddef(nc), NC_NOERR);
        ASSERT_EQ(nc_put_var(nc, id, data.data()), NC_NOERR);
        ASSERT_EQ(nc_close(nc), NC_NOERR);
        int mode = 0, got_bits = 0;
        ASSERT_EQ(nc_open(path.c_str(), NC_NOWRITE, &nc), NC_NOERR);
        ASSERT_EQ(nc_inq_var_quantize(nc, 0, &mode, &got_bits), NC_NOERR);
        EXPECT_EQ(mode, NC_QUANTIZE_BITROUND);
        EXPECT_EQ(got_bits, bits);
        ASSERT_EQ(nc_close(nc), NC_NOERR);
      }
      const auto ours = read_by_netcdf(path), theirs = read_by_netcdf(reference);
      EXPECT_EQ(ours.values[0], theirs.values[0]);
      EXPECT_EQ(ours.values[1], theirs.values[0]);
      // netCDF 4.9.3 marks the variable before its other attributes, 4.9.0 behind them.
      EXPECT_THAT(ours.schema.variables[0].attributes,
                  ::testing::UnorderedElementsAreArray(theirs.schema.variables[0].attributes));
    }
  }
}

TEST_F(Codecs, ABlockOfManyChunksNeedsNoMoreMemoryThanAllowed) {
  Schema s;
  s.dimensions = {{"y", 400, false}, {"x", 1000, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  v.contiguous = false;
  v.chunks = {10, 1000};
  v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {1}}};
  s.variables = {v};
  const OwnedBlock block(0, Box{{0, 0}, {400, 1000}}, smooth(DataType::float32, 400000));
  for (const std::uint64_t memory : {std::uint64_t{1}, std::uint64_t{300000}}) {
    const auto path = directory_ + "/memory.nc";
    std::ofstream(path).flush();
    Netcdf4Options options;
    options.memory = std::make_shared<MemoryBudget>(memory);
    auto sink = testing::fed(open_netcdf4(system_files(), path, options, executor_, false));
    ASSERT_OK(sink);
    ASSERT_OK((*sink)->declare(s));
    ASSERT_OK((*sink)->write(block.block));
    ASSERT_OK((*sink)->close());
    EXPECT_EQ(options.memory->reserved(), 0U);
    // One chunk may always be under way: here twice its 40 kB and what the codec may add.
    const auto most = options.memory->reserved_peak();
    EXPECT_LE(most, std::max<std::uint64_t>(memory, 2 * (40000 + 40000 / 64 + 8192)));
    EXPECT_GT(most, 0U);
    EXPECT_EQ(read_by_netcdf(path).values[0], block.data);
  }
}

TEST_F(Codecs, SeveralSinksMayWriteAtTheSameTime) {
  std::vector<std::thread> threads;
  for (std::uint64_t k = 0; k < 3; ++k)
    threads.emplace_back([&, k] {
      Random random(50 + k);
      testing::Ability can;
      can.formats = {FileFormat::netcdf4};
      can.types = {DataType::int16, DataType::float32, DataType::float64};
      can.pipelines = {{{filter_id::shuffle, {}}, {filter_id::deflate, {2}}}, {{filter_id::zstd, {1}}}};
      for (int round = 0; round < 5; ++round) {
        const auto schema = testing::random_schema(random, can);
        const auto path = directory_ + "/several" + std::to_string(k) + ".nc";
        std::ofstream(path).flush();
        auto sink = testing::fed(open_netcdf4(system_files(), path, {}, executor_, false));
        EXPECT_TRUE(sink.ok());
        EXPECT_TRUE((*sink)->declare(schema).ok());
        std::vector<OwnedBlock> all;
        for (std::uint64_t f = 0; f < 3; ++f) {
          const auto frame = testing::random_frame(random, schema, f);
          for (const auto& b : frame) EXPECT_TRUE((*sink)->write(b.block).ok());
          EXPECT_TRUE((*sink)->commit().ok());
          all.insert(all.end(), frame.begin(), frame.end());
        }
        EXPECT_TRUE((*sink)->close().ok());
        const auto model = testing::model_of(schema, all);
        auto plain = model.contents;
        const auto ours = read_by_netcdf(path);
        plain.schema = ours.schema;
        EXPECT_EQ(testing::difference(plain, ours, model.written, true), "");
      }
    });
  for (auto& t : threads) t.join();
}

TEST_F(Codecs, AFilterThatIsNotHereIsRefusedByName) {
  Schema s;
  s.dimensions = {{"x", 10, false}};
  Variable v;
  v.name = "a";
  v.type = DataType::float32;
  v.dimensions = {0};
  v.contiguous = false;
  v.chunks = {10};
  v.filters = {{32999, {}}};
  s.variables = {v};
  const auto path = directory_ + "/refused.nc";
  std::ofstream(path).flush();
  auto sink = testing::fed(open_netcdf4(system_files(), path, {}, executor_, false));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(s));
  const auto r = (*sink)->commit();
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Code::unsupported);
  EXPECT_THAT(r.error().message, ::testing::HasSubstr("variable a: HDF5 filter 32999"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace advectio
