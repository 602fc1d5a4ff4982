#include "server/stored_schema.h"

#include "config/glob.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "operators/bit_round.h"

namespace advectio {

namespace {

constexpr std::uint64_t chunk_bytes_max = 4ULL << 20;

bool compresses(std::uint32_t id) {
  return id == filter_id::deflate || id == filter_id::szip || id == filter_id::blosc || id == filter_id::lz4 ||
         id == filter_id::zstd;
}
bool shuffles(std::uint32_t id) {
  return id == filter_id::shuffle || id == filter_id::bitshuffle;
}

std::uint32_t level_or(const DatasetPolicy& policy, int fallback) {
  return static_cast<std::uint32_t>(policy.level.value_or(fallback));
}

/// What the file says of the level. libdeflate goes up to 12, HDF5 knows 0 … 9.
std::uint32_t deflate_level(const DatasetPolicy& policy) {
  return std::min<std::uint32_t>(9, level_or(policy, 1));
}

Filter blosc(const Variable& v, const DatasetPolicy& policy, std::uint32_t compressor) {
  // Parameters of the registered filter 32001: filter revision, format version, type size, chunk bytes, level, shuffle,
  // compressor.
  std::uint64_t bytes = size_of(v.type);
  for (const auto c : v.chunks) bytes *= c;
  const std::uint32_t shuffle = policy.shuffle == Shuffle::bit ? 2 : policy.shuffle == Shuffle::none ? 0 : 1;
  return {filter_id::blosc,
          {2, 2, static_cast<std::uint32_t>(size_of(v.type)), static_cast<std::uint32_t>(bytes), level_or(policy, 1),
           shuffle, compressor}};
}

void apply_codec(Variable& v, const DatasetPolicy& policy) {
  if (policy.codec == Codec::asked) {
    if (policy.level)
      for (auto& f : v.filters)
        if (f.id == filter_id::deflate) f.parameters = {deflate_level(policy)};
  } else {
    std::erase_if(v.filters, [](const Filter& f) { return compresses(f.id); });
    switch (policy.codec) {
      case Codec::deflate: v.filters.push_back({filter_id::deflate, {deflate_level(policy)}}); break;
      case Codec::zstd: v.filters.push_back({filter_id::zstd, {level_or(policy, 1)}}); break;
      case Codec::lz4: v.filters.push_back({filter_id::lz4, {0}}); break;
      case Codec::blosc_lz4: v.filters.push_back(blosc(v, policy, 1)); break;
      case Codec::blosc_zstd: v.filters.push_back(blosc(v, policy, 5)); break;
      case Codec::szip:
        v.filters.push_back({filter_id::szip, {32 /* nearest neighbour */, 32 /* pixels a block */}});
        break;
      case Codec::asked:
      case Codec::none: break;
    }
    const bool own_shuffle = policy.codec == Codec::blosc_lz4 || policy.codec == Codec::blosc_zstd;
    if (policy.codec == Codec::none || own_shuffle)
      std::erase_if(v.filters, [](const Filter& f) { return shuffles(f.id); });
    if (policy.codec == Codec::none || own_shuffle) return;
  }
  // A new codec without a word about shuffling gets the byte shuffle: it pays for every codec we have.
  const bool any = std::any_of(v.filters.begin(), v.filters.end(), [](const Filter& f) { return compresses(f.id); });
  const bool shuffled = std::any_of(v.filters.begin(), v.filters.end(), [](const Filter& f) { return shuffles(f.id); });
  Shuffle want = policy.shuffle;
  if (want == Shuffle::asked && policy.codec != Codec::asked && policy.codec != Codec::szip && !shuffled)
    want = Shuffle::byte;
  if (want == Shuffle::asked || !any) return;
  std::erase_if(v.filters, [](const Filter& f) { return shuffles(f.id); });
  if (size_of(v.type) < 2 || want == Shuffle::none) return;
  if (want == Shuffle::byte) v.filters.insert(v.filters.begin(), Filter{filter_id::shuffle, {}});
  // Bitshuffle's parameters are filled in by HDF5's set-local rule: version major and minor, element size, block size,
  // no codec.
  if (want == Shuffle::bit)
    v.filters.insert(v.filters.begin(),
                     Filter{filter_id::bitshuffle, {0, 3, static_cast<std::uint32_t>(size_of(v.type)), 0, 0}});
}

}  // namespace

std::vector<std::uint64_t> default_chunks(const Schema& schema, const Variable& variable) {
  std::vector<std::uint64_t> chunks;
  const std::uint64_t element = variable.type == DataType::string ? 16 : size_of(variable.type);
  // All chunks, or all but one. Dimensions may be longer together than can be counted.
  const auto bytes_but = [&](std::optional<std::size_t> left_out) {
    std::uint64_t n = element;
    for (std::size_t k = 0; k < chunks.size(); ++k)
      if (k != left_out && __builtin_mul_overflow(n, chunks[k], &n)) n = UINT64_MAX;
    return n;
  };
  bool only_unlimited = true;
  for (const auto d : variable.dimensions) {
    const auto& dim = schema.dimensions[d];
    chunks.push_back(dim.unlimited ? 1 : std::max<std::uint64_t>(1, dim.length));
    only_unlimited = only_unlimited && dim.unlimited;
  }
  if (only_unlimited && chunks.size() == 1) chunks[0] = 1024;  // a time axis: not one chunk a value
  for (std::size_t i = 0; i < chunks.size() && bytes_but({}) > chunk_bytes_max; ++i) {
    const auto fits = std::max<std::uint64_t>(1, chunk_bytes_max / std::max<std::uint64_t>(1, bytes_but(i)));
    const auto parts = (chunks[i] - 1) / fits + 1;
    chunks[i] = (chunks[i] - 1) / parts + 1;
  }
  return chunks;
}

std::vector<std::uint32_t> filters_named(const DatasetPolicy& policy) {
  Variable v;
  v.type = DataType::float32;
  v.chunks = {1};
  if (policy.codec == Codec::asked) v.filters = {{filter_id::deflate, {1}}};
  apply_codec(v, policy);
  std::vector<std::uint32_t> ids;
  for (const auto& f : v.filters) ids.push_back(f.id);
  return ids;
}

Operators operators_of(const DatasetPolicy& policy) {
  std::vector<std::unique_ptr<Operator>> all;
  all.push_back(std::make_unique<BitRound>([policy](const std::string& name) { return round_bits(policy, name); }));
  return Operators(std::move(all));
}

Result<Schema> as_stored(const Schema& asked, const DatasetPolicy& policy) {
  Schema s = asked;
  if (policy.format) s.format = *policy.format;
  for (std::size_t i = 0; i < s.variables.size(); ++i) {
    auto& v = s.variables[i];
    if (s.format == FileFormat::bp5 || s.format == FileFormat::sst) {
      v.contiguous = true;
      v.compact = false;
      v.chunks.clear();
      v.filters.clear();
    } else if (is_classic(s.format)) {
      const bool cdf5 = s.format == FileFormat::cdf5;
      if (v.type == DataType::string || (!cdf5 && v.type > DataType::float64))
        return Error{Code::unsupported,
                     "variable " + v.name + " is of type " + std::string(name_of(v.type)) + ", which a " +
                         std::string(name_of(s.format)) + " file cannot hold",
                     0};
      v.contiguous = true;
      v.chunks.clear();
      v.filters.clear();
    } else {
      const bool grows = std::any_of(v.dimensions.begin(), v.dimensions.end(),
                                     [&s](std::uint32_t d) { return s.dimensions[d].unlimited; });
      const bool chunks_named = std::any_of(v.dimensions.begin(), v.dimensions.end(), [&](std::uint32_t d) {
        return std::any_of(policy.chunks.begin(), policy.chunks.end(),
                           [&](const auto& c) { return c.first == s.dimensions[d].name; });
      });
      const bool codec = policy.codec != Codec::asked && policy.codec != Codec::none && !v.dimensions.empty() &&
                         v.type != DataType::string;
      if (v.contiguous && (grows || (!v.compact && (codec || chunks_named)))) {
        v.contiguous = false;
        v.chunks = default_chunks(s, v);
      }
      if (!v.contiguous && chunks_named) {
        for (std::size_t k = 0; k < v.dimensions.size(); ++k) {
          const auto& dim = s.dimensions[v.dimensions[k]];
          for (const auto& [name, length] : policy.chunks)
            if (name == dim.name)
              v.chunks[k] = dim.unlimited ? length : std::min(length, std::max<std::uint64_t>(1, dim.length));
        }
      }
      if (!v.contiguous && v.type != DataType::string) apply_codec(v, policy);
    }
  }
  return s;
}

Result<void> StoredSchema::take(const Schema& its, const DatasetPolicy& policy) {
  asked = its;
  written.reset();
  auto stored = as_stored(its, policy);
  if (!stored) return std::move(stored).error();
  numbers_ = select_variables(*stored, policy);
  auto made_by = operators_of(policy);
  auto made = made_by.declare(std::move(stored).value());
  if (!made) return std::move(made).error();
  written = std::move(made).value();
  operators = std::make_shared<const Operators>(std::move(made_by));
  return {};
}

std::optional<std::uint32_t> StoredSchema::number_of(std::uint32_t variable) const {
  if (variable >= numbers_.size()) return variable;
  if (numbers_[variable] < 0) return std::nullopt;
  return static_cast<std::uint32_t>(numbers_[variable]);
}

std::vector<int> select_variables(Schema& schema, const DatasetPolicy& policy) {
  if (policy.variables.empty()) return {};
  std::vector<int> numbers;
  std::vector<Variable> kept;
  for (auto& variable : schema.variables) {
    const bool is_named = std::any_of(policy.variables.begin(), policy.variables.end(),
                                      [&](const auto& pattern) { return glob_matches(pattern, variable.name); });
    numbers.push_back(is_named ? static_cast<int>(kept.size()) : -1);
    if (is_named) kept.push_back(std::move(variable));
  }
  schema.variables = std::move(kept);
  return numbers;
}

}  // namespace advectio
