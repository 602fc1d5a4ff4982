#include "apps/advectiod/convert.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "apps/advectiod/boxes.h"
#include "apps/advectiod/new_file.h"
#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/open_source.h"
#include "apps/advectiod/selection.h"
#include "config/nearest.h"
#include "core/executor.h"
#include "core/field.h"
#include "operators/operated_field.h"
#include "operators/references.h"
#include "platform/machine.h"
#include "server/stored_schema.h"
#include "sinks/adios2/bp5_file_sink.h"
#include "sources/collection.h"
#include "sources/source_readers.h"

namespace advectio {
namespace {

// netCDF holds megabytes of metadata of each. Tiles of one whole are read again and again, and stay open.
constexpr std::size_t files_open_max = 8;
// Records of a small variable are read together until they are worth a message to a reader.
constexpr std::uint64_t worth_a_read = 1U << 20U;

Error invalid(std::string what) {
  return Error{Code::invalid, std::move(what), 0};
}

/// An output as it will be made.
struct Output {
  std::string path;
  Schema schema;                         ///< as stored
  std::vector<std::uint32_t> variables;  ///< by number in `schema`: that in the collection
  std::shared_ptr<const Operators> operators;
  std::vector<bool> copied;  ///< by number in `schema`: chunks are those of the input
  std::uint64_t bytes = 0;
};

/// A box of a variable of an output, and what is read for it.
struct Item {
  std::uint32_t variable = 0;
  Box box;
  std::vector<Extract> extracts;  ///< `to` counts the output's records
  std::vector<std::span<const std::byte>> data;
  std::vector<std::vector<StoredChunk>> stored;  ///< of each extract; none: `data` are values
};

/// What is read while the sink works on another one.
struct Batch {
  std::vector<Item> items;
  std::vector<SourceReaders::Request> requests;
  std::vector<Bytes> held;  ///< what does not go through the readers
};

class Conversion {
 public:
  Conversion(const ConvertRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
             const std::atomic<bool>& stop)
      : request_(request), progress_(progress), stop_(stop) {}

  Result<ConvertReport> run();

 private:
  /// Goes through the boxes of an output, in the order in which they are written.
  class Boxes;

  Result<void> choose_records();
  Result<void> plan();
  Result<Output> plan_output(std::string path, const std::vector<std::uint32_t>& chosen);
  [[nodiscard]] bool may_copy(const Output& output, std::uint32_t variable) const;
  Result<void> check_path(const std::string& path) const;
  Result<void> start_readers();
  Result<void> make(const Output& output);
  Result<void> write(const Output& output);
  [[nodiscard]] std::vector<std::uint64_t> lengths_of(const Output& output, std::uint32_t variable) const;
  [[nodiscard]] Item item_of(const Output& output, std::uint32_t variable, Box box) const;
  [[nodiscard]] std::uint64_t bytes_of(const Output& output, const Item& item) const;
  Result<Batch> next(const Output& output, Boxes& boxes, std::uint64_t memory);
  Result<void> read_alone(const Output& output, Item& item, Batch& batch);
  [[nodiscard]] bool is_copied(const Output& output, std::uint32_t variable, const Extract& extract) const;
  [[nodiscard]] std::vector<Box> for_readers(const Output& output, const Item& item, const Box& from) const;
  void request_all(const Output& output, Item& item, std::uint64_t& at, Batch& batch) const;
  Result<void> give_stored(const Output& output, const Item& item, std::size_t extract);
  Result<void> give(const Output& output, Batch& batch);
  Result<void> same(const Output& output, const Item& item) const;
  Result<void> disagree(const Output& output, const Item& item, const Extract& one, const Extract& other) const;
  [[nodiscard]] std::uint64_t element_of(const Output& output, std::uint32_t variable) const {
    return size_of(output.schema.variables[variable].type);
  }

  const ConvertRequest& request_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  const std::atomic<bool>& stop_;
  std::optional<Collection> input_;
  std::vector<std::uint64_t> records_;  ///< of the input, by number in the outputs
  FileFormat format_ = FileFormat::netcdf4;
  std::vector<Output> outputs_;
  std::unique_ptr<SourceReaders> readers_;
  std::map<std::size_t, std::unique_ptr<Source>> opened_;  ///< for what does not go through the readers
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<MemoryBudget> sink_memory_;
  std::uint64_t half_ = 0;  ///< of the readers' memory: one half is read while the sink works on the other
  std::uint64_t done_ = 0, of_ = 0;
  std::vector<std::uint64_t> written_;  ///< bytes, by output
  mutable std::vector<std::string> disagreements_;
  Frame frame_;
  Sink* sink_ = nullptr;
};

/// Frame by frame, as a model would have written them; records that are in one chunk of the output or of the input are
/// taken together.
class Conversion::Boxes {
 public:
  Boxes(const Conversion& all, const Output& output)
      : all_(all), output_(output), steps_(all.format_ == FileFormat::bp5), together_(steps_ ? fitting_records() : 1) {}

  /// False: there are no more.
  bool next(std::uint32_t& variable, Box& box) {
    for (;;) {
      if (at_ < boxes_.size()) {
        variable = variable_ - 1;
        box = boxes_[at_++];
        return true;
      }
      if (variable_ == output_.variables.size()) {
        variable_ = 0;
        ++round_;
        if (first_record() >= std::max<std::uint64_t>(1, all_.records_.size())) return false;
      }
      if (output_.variables.empty()) return false;
      if (steps_)
        fill_for_steps(variable_++);
      else
        fill(variable_++);
    }
  }
  /// The last one comes again.
  void put_back() { --at_; }

  /// Of a format of steps: boxes of two rounds must not be written in one go, and those of one round must be where
  /// it has several records.
  [[nodiscard]] std::uint64_t round() const { return steps_ ? round_ : 0; }
  [[nodiscard]] bool round_is_one() const { return steps_ && together_ > 1 && round_ >= rounds_before_records; }

 private:
  /// Variables without records; then those whose records are not the files'.
  static constexpr std::uint64_t rounds_before_records = 2;

  [[nodiscard]] std::uint64_t first_record() const {
    if (!steps_) return round_;
    return round_ < rounds_before_records ? 0 : (round_ - rounds_before_records) * together_;
  }
  [[nodiscard]] std::uint64_t cells(std::uint32_t v) const {
    // Places in memory are aligned, which takes a little more.
    const auto element = std::max<std::uint64_t>(1, all_.element_of(output_, v));
    return std::max<std::uint64_t>(1, all_.half_ / 4 * 3 / element / all_.input_->copies(output_.variables[v]));
  }
  [[nodiscard]] bool grows(std::uint32_t v) const {
    const auto& d = output_.schema.variables[v].dimensions;
    return !d.empty() && output_.schema.dimensions[d[0]].unlimited;
  }
  /// How many records of all variables can be read at once.
  [[nodiscard]] std::uint64_t fitting_records() const {
    std::uint64_t record = 1;
    for (std::uint32_t v = 0; v < output_.variables.size(); ++v) {
      if (!grows(v) || !all_.input_->has_records(output_.variables[v])) continue;
      auto bytes = all_.element_of(output_, v) * all_.input_->copies(output_.variables[v]);
      const auto lengths = all_.lengths_of(output_, v);
      for (std::size_t i = 1; i < lengths.size(); ++i) bytes *= lengths[i];
      record += aligned(bytes);
    }
    return std::max<std::uint64_t>(1, all_.half_ / 4 * 3 / record);
  }

  void fill(std::uint32_t v) {
    boxes_.clear();
    at_ = 0;
    const auto& stored = output_.schema.variables[v];
    const auto& original = all_.input_->schema().variables[output_.variables[v]];
    auto lengths = all_.lengths_of(output_, v);
    auto chunks = stored.contiguous ? std::vector<std::uint64_t>(lengths.size(), 1) : stored.chunks;
    std::uint64_t first = 0;
    if (all_.input_->has_records(output_.variables[v])) {
      auto record = std::max<std::uint64_t>(1, all_.element_of(output_, v));
      for (std::size_t i = 1; i < lengths.size(); ++i) record *= std::max<std::uint64_t>(1, lengths[i]);
      const auto whole = [&](std::uint64_t n) { return (n + chunks[0] - 1) / chunks[0] * chunks[0]; };
      const auto step = std::max({chunks[0], whole(original.contiguous ? 1 : original.chunks[0]),
                                  whole((worth_a_read + record - 1) / record)});
      if (round_ % step != 0 || round_ >= lengths[0]) return;
      first = round_;
      lengths[0] = std::min(step, lengths[0] - first);
    } else if (round_ > 0) {
      return;
    }
    cut_all(v, lengths, chunks, first);
  }

  /// All variables go through the records together: a step ends when its last variable is there.
  void fill_for_steps(std::uint32_t v) {
    boxes_.clear();
    at_ = 0;
    const auto& original = all_.input_->schema().variables[output_.variables[v]];
    const bool has_records = all_.input_->has_records(output_.variables[v]);
    const auto round_of_variable = !grows(v) ? 0 : has_records ? rounds_before_records : 1;
    if (std::min(round_, rounds_before_records) != round_of_variable) return;
    auto lengths = all_.lengths_of(output_, v);
    auto chunks = original.contiguous ? std::vector<std::uint64_t>(lengths.size(), 1) : original.chunks;
    if (grows(v)) chunks[0] = 1;
    std::uint64_t first = 0;
    if (round_of_variable == rounds_before_records) {
      first = first_record();
      if (first >= lengths[0]) return;
      lengths[0] = std::min(together_, lengths[0] - first);
    }
    cut_all(v, lengths, chunks, first);
  }

  void cut_all(std::uint32_t v, const std::vector<std::uint64_t>& lengths, const std::vector<std::uint64_t>& chunks,
               std::uint64_t first_record) {
    boxes_ = cut(lengths, chunks, cells(v));
    if (first_record > 0)
      for (auto& b : boxes_) b.start[0] += first_record;
  }

  const Conversion& all_;
  const Output& output_;
  const bool steps_;
  const std::uint64_t together_;
  std::uint64_t round_ = 0;
  std::uint32_t variable_ = 0;
  std::vector<Box> boxes_;
  std::size_t at_ = 0;
};

// ---- what is wanted ----

Result<void> Conversion::choose_records() {
  const auto count = input_->records();
  if (!request_.records.empty() || !request_.times.empty()) {
    if (!input_->along()) return invalid("the files have no records: neither a time nor an unlimited dimension");
    for (const auto& v : input_->schema().variables)
      if (std::find(v.dimensions.begin() + (v.dimensions.empty() ? 0 : 1), v.dimensions.end(), *input_->along()) !=
          v.dimensions.end())
        return Error{Code::unsupported,
                     "variable " + v.name + ": " + input_->schema().dimensions[*input_->along()].name +
                         " is not its first dimension, and records of it cannot be chosen",
                     0};
  }
  if (!request_.records.empty() && !request_.times.empty())
    return invalid("--records and --times both choose records: say one of the two");
  if (!request_.times.empty() && !input_->moments()) return input_->moments().error();
  if (!request_.records.empty() || !request_.times.empty()) {
    auto chosen = request_.times.empty() ? records_numbered(request_.records, count)
                                         : records_timed(request_.times, *input_->moments(), input_->calendar());
    if (!chosen) return std::move(chosen).error();
    records_ = std::move(chosen).value();
    return {};
  }
  records_.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) records_[i] = i;
  return {};
}

Result<void> Conversion::check_path(const std::string& path) const {
  namespace fs = std::filesystem;
  std::error_code none;
  for (const auto& input : input_->paths())
    if (fs::equivalent(input, path, none)) return Error{Code::exists, path + " is one of the sources", 0};
  return NewFile::check(system_files(), path, request_.replace, abilities_of(format_).directory);
}

Result<Output> Conversion::plan_output(std::string path, const std::vector<std::uint32_t>& chosen) {
  Output out;
  out.path = std::move(path);
  ADVECTIO_TRY(check_path(out.path));
  out.variables = chosen;
  const auto& original = input_->schema();
  std::vector<std::optional<std::uint32_t>> numbers;
  auto schema = with_variables(original, chosen, request_.variables.empty() && !request_.split, numbers);
  if (chosen.size() < original.variables.size()) drop_dangling_names(schema);
  const auto along = input_->along();
  if (along && numbers[*along])
    if (auto& d = schema.dimensions[*numbers[*along]]; !d.unlimited) d.length = records_.size();
  for (auto& v : schema.variables) {
    for (std::size_t i = 0; i < v.chunks.size(); ++i)
      if (const auto& d = schema.dimensions[v.dimensions[i]]; !d.unlimited)
        v.chunks[i] = std::min(v.chunks[i], std::max<std::uint64_t>(1, d.length));
  }
  if (original.format == FileFormat::zarr && is_hdf5(format_) && request_.policy.codec == Codec::asked)
    make_readable(schema);
  auto policy = request_.policy;
  policy.format = format_;
  auto stored = as_stored(schema, policy);
  if (!stored) return std::move(stored).error().with(out.path);
  auto operators = operators_of(policy);
  auto declared = operators.declare(std::move(stored).value());
  if (!declared) return std::move(declared).error().with(out.path);
  out.schema = std::move(declared).value();
  out.operators = std::make_shared<const Operators>(std::move(operators));
  // A classic file does not say whether it was filled before it was written; where every point is written it need not.
  if (is_classic(format_))
    for (auto& v : out.schema.variables) v.no_fill = input_->land_points() == 0;
  ADVECTIO_TRY_WITH(can_carry(abilities_of(format_), out.schema), out.path);
  if (format_ == FileFormat::bp5) ADVECTIO_TRY_WITH(fits_bp5_file(out.schema), out.path);
  for (std::uint32_t v = 0; v < out.variables.size(); ++v) out.copied.push_back(may_copy(out, v));
  for (std::uint32_t v = 0; v < out.variables.size(); ++v) {
    auto bytes = element_of(out, v);
    for (const auto l : lengths_of(out, v)) bytes *= l;
    if (bytes == 0 && format_ == FileFormat::bp5)
      return Error{Code::unsupported,
                   out.path + ": variable " + out.schema.variables[v].name +
                       " has no values, and a BP file does not hold such variables (-v chooses others)",
                   0};
    out.bytes += bytes;
  }
  return out;
}

/// Chunks of the input are what the output asks for. A level, or who compresses, is a wish for other streams.
bool Conversion::may_copy(const Output& output, std::uint32_t variable) const {
  const auto number = output.variables[variable];
  const auto& original = input_->schema().variables[number];
  const auto& stored = output.schema.variables[variable];
  return abilities_of(format_).takes_stored && is_hdf5(input_->schema().format) && stored_alike(original, stored) &&
         original.round_bits == stored.round_bits && !request_.policy.level &&
         request_.policy.deflate == DatasetPolicy().deflate && input_->tiles() == 0 &&
         (input_->has_records(number) || input_->parts() == 1) && input_->counted_again(number) == nullptr;
}

/// `--chunks` and the rule's keys name dimensions.
Result<void> check_dimensions(const Schema& schema, const DatasetPolicy& policy) {
  std::vector<std::string> known;
  for (const auto& d : schema.dimensions) known.push_back(d.name);
  for (const auto& [name, length] : policy.chunks) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto meant = nearest(name, known);
    return invalid("chunks: the files have no dimension " + name +
                   (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  return {};
}

/// What this machine, and the format, can do of what is asked for.
Result<void> can_be_made(const DatasetPolicy& policy, FileFormat format) {
  if (format == FileFormat::sst)
    return Error{Code::unsupported, "format sst is a stream of `advectio run`, and no file", 0};
  if (format != FileFormat::bp5) return {};
  if (!policy.chunks.empty()) return Error{Code::invalid, "chunks: a BP file has none", 0};
  auto asked = policy;
  asked.format = format;
  return can_be_written(asked, "convert");
}

Result<void> Conversion::plan() {
  const auto& schema = input_->schema();
  ADVECTIO_TRY(check_dimensions(schema, request_.policy));
  const bool is_netcdf = schema.format != FileFormat::zarr && schema.format != FileFormat::bp5;
  format_ = request_.policy.format.value_or(is_netcdf ? schema.format : FileFormat::netcdf4);
  ADVECTIO_TRY(can_be_made(request_.policy, format_));
  std::vector<std::uint32_t> chosen;
  if (request_.variables.empty()) {
    for (std::uint32_t i = 0; i < schema.variables.size(); ++i) chosen.push_back(i);
  } else {
    auto named = variables_named(schema, request_.variables);
    if (!named) return std::move(named).error();
    chosen = std::move(named).value();
  }
  const auto all = with_coordinates(schema, chosen);
  std::vector<bool> wanted(schema.variables.size(), false);
  for (const auto v : all) wanted[v] = true;
  ADVECTIO_TRY(input_->check(wanted));
  ADVECTIO_TRY(choose_records());
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> wanted_outputs;
  if (!request_.split) {
    wanted_outputs.emplace_back(request_.output, all);
  } else {
    const auto coordinates = are_coordinates(schema);
    const std::string place = "{variable}", ending = format_ == FileFormat::zarr  ? ".zarr"
                                                     : format_ == FileFormat::bp5 ? ".bp"
                                                                                  : ".nc";
    const auto at = request_.output.find(place);
    for (const auto v : chosen) {
      const auto& name = schema.variables[v].name;
      const bool by_name =
          std::find(request_.variables.begin(), request_.variables.end(), name) != request_.variables.end();
      if (coordinates[v] && !by_name) continue;
      auto path = request_.output;
      if (at == std::string::npos)
        path = (std::filesystem::path(path) / (name + ending)).string();
      else
        path.replace(at, place.size(), name);
      wanted_outputs.emplace_back(std::move(path), with_coordinates(schema, {v}));
    }
    if (wanted_outputs.empty()) return invalid("there is no variable beside coordinates");
  }
  for (auto& [path, variables] : wanted_outputs) {
    auto output = plan_output(std::move(path), variables);
    if (!output) return std::move(output).error();
    of_ += output->bytes;
    outputs_.push_back(std::move(output).value());
  }
  return {};
}

std::vector<std::uint64_t> Conversion::lengths_of(const Output& output, std::uint32_t variable) const {
  const auto number = output.variables[variable];
  std::vector<std::uint64_t> lengths;
  for (const auto d : input_->schema().variables[number].dimensions) lengths.push_back(input_->lengths()[d]);
  if (input_->has_records(number)) lengths.front() = records_.size();
  return lengths;
}

// ---- reading ----

Item Conversion::item_of(const Output& output, std::uint32_t variable, Box box) const {
  Item item;
  item.variable = variable;
  const auto number = output.variables[variable];
  if (!input_->has_records(number)) {
    item.extracts = input_->extracts(number, box);
    item.box = std::move(box);
    return item;
  }
  const auto end = box.start[0] + box.count[0];
  for (auto first = box.start[0], last = first; first < end; first = last) {
    // Records that follow each other in the input.
    for (last = first + 1; last < end && records_[last] == records_[last - 1] + 1;) ++last;
    auto run = box;
    run.start[0] = records_[first];
    run.count[0] = last - first;
    for (auto& e : input_->extracts(number, run)) {
      e.to.start[0] = e.to.start[0] - records_[first] + first;
      item.extracts.push_back(std::move(e));
    }
  }
  item.box = std::move(box);
  return item;
}

std::uint64_t Conversion::bytes_of(const Output& output, const Item& item) const {
  std::uint64_t sum = 0;
  for (const auto& e : item.extracts) sum += aligned(e.from.volume() * element_of(output, item.variable));
  return sum;
}

/// Whole chunks of the input, which are whole chunks of the output.
bool Conversion::is_copied(const Output& output, std::uint32_t variable, const Extract& extract) const {
  if (!output.copied[variable]) return false;
  const auto& original = input_->schema().variables[output.variables[variable]];
  const auto lengths = lengths_of(output, variable);
  std::uint64_t chunks = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto chunk = original.chunks[i], d = std::uint64_t{original.dimensions[i]}, count = extract.from.count[i];
    const bool ends_with_both = (input_->as_in_source() || d != input_->along()) &&
                                extract.from.start[i] + count == input_->lengths()[d] &&
                                extract.to.start[i] + count == lengths[i];
    if (extract.from.start[i] % chunk != 0 || extract.to.start[i] % chunk != 0 ||
        (count % chunk != 0 && !ends_with_both))
      return false;
    chunks *= (count + chunk - 1) / chunk;
  }
  return chunks <= SourceReaders::stored_chunks_max;
}

/// Slabs of whole chunks of the input, so that several readers have a part of it.
std::vector<Box> Conversion::for_readers(const Output& output, const Item& item, const Box& from) const {
  const auto& original = input_->schema().variables[output.variables[item.variable]];
  std::size_t k = 0;
  while (k < from.rank() && from.count[k] == 1) ++k;
  if (k == from.rank() || item.extracts.size() >= request_.threads) return {from};
  const auto chunk = original.contiguous ? 1 : original.chunks[k];
  const auto begin = from.start[k], end = begin + from.count[k];
  const auto chunks = (end - 1) / chunk - begin / chunk + 1;
  const auto step = (chunks + request_.threads - 1) / request_.threads * chunk;
  std::vector<Box> slabs;
  for (auto first = begin, last = begin; first < end; first = last) {
    last = std::min(end, (first / chunk) * chunk + step);
    auto& slab = slabs.emplace_back(from);
    slab.start[k] = first;
    slab.count[k] = last - first;
  }
  return slabs;
}

void Conversion::request_all(const Output& output, Item& item, std::uint64_t& at, Batch& batch) const {
  const auto element = element_of(output, item.variable);
  // What is copied is an extract for each reader: where the chunks lie in the slab is known when they have been read.
  std::vector<Extract> extracts;
  std::vector<std::vector<Box>> slabs;
  std::vector<bool> copied;
  for (const auto& e : item.extracts) {
    auto cut_up = for_readers(output, item, e.from);
    if (!is_copied(output, item.variable, e)) {
      extracts.push_back(e);
      slabs.push_back(std::move(cut_up));
      copied.push_back(false);
      continue;
    }
    for (auto& slab : cut_up) {
      auto& part = extracts.emplace_back(e);
      for (std::size_t i = 0; i < slab.rank(); ++i) part.to.start[i] += slab.start[i] - e.from.start[i];
      part.to.count = slab.count;
      part.from = slab;
      slabs.push_back({std::move(slab)});
      copied.push_back(true);
    }
  }
  item.extracts = std::move(extracts);
  item.stored.resize(item.extracts.size());
  for (std::size_t i = 0; i < item.extracts.size(); ++i) {
    const auto& e = item.extracts[i];
    item.data.emplace_back(readers_->memory() + at, e.from.volume() * element);
    for (auto& slab : slabs[i]) {
      const auto bytes = slab.volume() * element;
      auto* const stored = copied[i] ? &item.stored[i] : nullptr;
      batch.requests.push_back({e.source, input_->paths()[e.source], e.variable, std::move(slab), at, stored, bytes});
      at += bytes;
    }
    at = aligned(at);
  }
}

Result<void> Conversion::read_alone(const Output& output, Item& item, Batch& batch) {
  const auto element = element_of(output, item.variable);
  if (const auto* const again = input_->counted_again(output.variables[item.variable])) {
    // All its values are in memory, record by record of the collection.
    const auto lengths = lengths_of(output, item.variable);
    const Box whole{std::vector<std::uint64_t>(lengths.size(), 0), [&] {
                      auto all = lengths;
                      all[0] = input_->records();
                      return all;
                    }()};
    for (const auto& e : item.extracts) {
      auto from = e.to;
      from.start[0] = records_[e.to.start[0]];
      Bytes data(e.to.volume() * element);
      copy_part(from, again->data(), whole, data.data(), from, element);
      batch.held.push_back(std::move(data));
      item.data.emplace_back(batch.held.back());
    }
    return {};
  }
  for (const auto& e : item.extracts) {
    if (opened_.size() >= files_open_max && !opened_.contains(e.source)) opened_.clear();
    auto& source = opened_[e.source];
    if (!source) {
      auto opened = open_source(input_->paths()[e.source]);
      if (!opened) return std::move(opened).error();
      source = std::move(opened).value();
    }
    Bytes data(e.from.volume() * element);
    if (element > 0) {
      ADVECTIO_TRY(source->read(e.variable, e.from, data.data()));
    } else {
      auto strings = source->read_strings(e.variable, e.from);
      if (!strings) return std::move(strings).error();
      data = std::move(strings).value();
    }
    batch.held.push_back(std::move(data));
    item.data.emplace_back(batch.held.back());
  }
  return {};
}

/// As many boxes as fit one half of the memory, read when this returns.
Result<Batch> Conversion::next(const Output& output, Boxes& boxes, std::uint64_t memory) {
  Batch batch;
  auto at = memory;
  std::uint32_t variable = 0;
  Box box;
  std::uint64_t held = 0, round = 0;
  while ((held < half_ || boxes.round_is_one()) && boxes.next(variable, box)) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    if (!batch.items.empty() && boxes.round() != round) {
      boxes.put_back();
      break;
    }
    round = boxes.round();
    auto item = item_of(output, variable, std::move(box));
    const auto bytes = bytes_of(output, item);
    if (element_of(output, variable) == 0 || bytes > half_ || input_->counted_again(output.variables[variable])) {
      ADVECTIO_TRY(read_alone(output, item, batch));
      for (const auto& d : item.data) held += d.size();
    } else if (at - memory + bytes > half_) {
      if (!boxes.round_is_one()) {
        boxes.put_back();
        break;
      }
      ADVECTIO_TRY(read_alone(output, item, batch));
    } else {
      request_all(output, item, at, batch);
    }
    batch.items.push_back(std::move(item));
  }
  // Of many sources each is opened by one reader, of few all read a part.
  std::set<std::size_t> sources;
  for (const auto& r : batch.requests) sources.insert(r.number);
  if (sources.size() < 2 * request_.threads)
    for (std::size_t i = 0; i < batch.requests.size(); ++i) batch.requests[i].number = i;
  // A reader that has to close files to open others goes through them once.
  std::stable_sort(batch.requests.begin(), batch.requests.end(),
                   [](const auto& a, const auto& b) { return a.path < b.path; });
  ADVECTIO_TRY(readers_->read(batch.requests, stop_));
  return batch;
}

// ---- writing ----

Result<void> Conversion::disagree(const Output& output, const Item& item, const Extract& one,
                                  const Extract& other) const {
  const auto& name = output.schema.variables[item.variable].name;
  if (!request_.take_first)
    return invalid(input_->paths()[one.source] + " and " + input_->paths()[other.source] + " disagree about " + name +
                   ", which all of them hold: they are of different grids or runs (--take-first takes the first one's "
                   "values)");
  if (std::find(disagreements_.begin(), disagreements_.end(), name) == disagreements_.end())
    disagreements_.push_back(name);
  return {};
}

/// What is repeated is what was given.
Result<void> Conversion::same(const Output& output, const Item& item) const {
  const auto element = element_of(output, item.variable);
  for (std::size_t r = 0; r < item.extracts.size(); ++r) {
    const auto& repeated = item.extracts[r];
    if (!repeated.repeated) continue;
    for (std::size_t o = 0; o < item.extracts.size(); ++o) {
      const auto& owner = item.extracts[o];
      if (owner.repeated) continue;
      const auto part = intersect(owner.to, repeated.to);
      if (part.empty()) continue;
      if (owner.to == repeated.to) {
        if (!std::ranges::equal(item.data[o], item.data[r])) ADVECTIO_TRY(disagree(output, item, owner, repeated));
        continue;
      }
      if (element == 0) continue;  // strings of one box are cut alike
      Bytes a(part.volume() * element), b(a.size());
      copy_part(part, item.data[o].data(), owner.to, a.data(), part, element);
      copy_part(part, item.data[r].data(), repeated.to, b.data(), part, element);
      if (a != b) ADVECTIO_TRY(disagree(output, item, owner, repeated));
    }
  }
  return {};
}

/// The chunks lie one after the other.
Result<void> Conversion::give_stored(const Output& output, const Item& item, std::size_t extract) {
  const auto& chunk = output.schema.variables[item.variable].chunks;
  const auto& to = item.extracts[extract].to;
  const auto boxes = cut(to.count, chunk, 1);
  if (boxes.size() != item.stored[extract].size()) return Error{Code::bug, "chunks of another box", 0};
  auto rest = item.data[extract];
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    auto box = boxes[i];
    for (std::size_t k = 0; k < box.rank(); ++k) box.start[k] += to.start[k];
    const auto& stored = item.stored[extract][i];
    ADVECTIO_TRY(sink_->ready_stored(item.variable, box, stored.mask, rest.first(stored.bytes)));
    rest = rest.subspan(stored.bytes);
  }
  return {};
}

Result<void> Conversion::give(const Output& output, Batch& batch) {
  for (auto& item : batch.items) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    ADVECTIO_TRY(same(output, item));
    std::shared_ptr<const Field> latest;
    for (std::size_t i = 0; i < item.extracts.size(); ++i) {
      const auto& e = item.extracts[i];
      if (e.repeated) continue;
      if (i < item.stored.size() && !item.stored[i].empty()) {
        ADVECTIO_TRY(give_stored(output, item, i));
        continue;
      }
      auto field = frame_.add({item.variable, e.to, {}, item.data[i].data(), item.data[i].size(), nullptr});
      if (!field) return std::move(field).error();
      latest = operated(*field, output.operators);
      if (format_ != FileFormat::bp5) ADVECTIO_TRY(sink_->ready(latest, Part(e.to)));
    }
    // A block of a BP file for the box, however many sources it comes from.
    if (format_ == FileFormat::bp5 && latest) ADVECTIO_TRY(sink_->ready(latest, Part(item.box)));
    done_ += item.box.volume() * element_of(output, item.variable);
    progress_(done_, of_);
  }
  return {};
}

/// The readers read one batch while the sink works on the one before it.
Result<void> Conversion::write(const Output& output) {
  Boxes boxes(*this, output);
  std::uint64_t memory = 0;
  auto now = next(output, boxes, memory);
  for (;;) {
    if (!now) return std::move(now).error();
    if (now->items.empty()) return {};
    memory = half_ - memory;
    auto coming = std::async(std::launch::async, [&] { return next(output, boxes, memory); });
    auto given = give(output, *now);
    // The sink looks at what it was given until it commits.
    if (given) given = sink_->checkpoint();
    auto then = coming.get();
    ADVECTIO_TRY_WITH(std::move(given), output.path);
    frame_.clear();
    now = std::move(then);
  }
}

Result<void> Conversion::make(const Output& output) {
  const auto parent = std::filesystem::path(output.path).parent_path();
  std::error_code failed;
  if (!parent.empty() && request_.split) std::filesystem::create_directories(parent, failed);
  if (failed) return system_error("make the directory " + parent.string(), failed.value());
  auto file = NewFile::begin(system_files(), output.path, request_.replace, "convert", abilities_of(format_).directory);
  if (!file) return std::move(file).error();
  auto policy = request_.policy;
  policy.format = format_;
  auto sink = open_sink_for_whole({(*file)->path(), format_, policy, false}, {sink_memory_}, *executor_);
  if (!sink) return std::move(sink).error().with(output.path);
  sink_ = sink->get();
  frame_.clear();
  frame_.declare(output.schema);
  auto written = [&]() -> Result<void> {
    ADVECTIO_TRY_WITH(sink_->declare(output.schema), output.path);
    ADVECTIO_TRY_WITH(sink_->begin(1), output.path);
    ADVECTIO_TRY(write(output));
    ADVECTIO_TRY_WITH(sink_->close(), output.path);
    if (request_.policy.durable) ADVECTIO_TRY_WITH(sink_->make_durable()(), output.path);
    return {};
  }();
  if (!written) sink_->abandon();
  frame_.clear();
  if (!written) return written;
  written_.push_back(sink_->counters().bytes_out);
  return (*file)->finish();
}

Result<void> Conversion::start_readers() {
  half_ = std::max<std::uint64_t>(1, request_.memory_max / 4);
  // One chunk of an output always has room.
  std::uint64_t most = half_;
  for (const auto& output : outputs_)
    for (std::uint32_t v = 0; v < output.variables.size(); ++v) {
      const auto& stored = output.schema.variables[v];
      if (stored.contiguous) continue;
      auto bytes = element_of(output, v) * input_->copies(output.variables[v]);
      const auto lengths = lengths_of(output, v);
      for (std::size_t i = 0; i < lengths.size(); ++i) bytes *= std::min(stored.chunks[i], lengths[i]);
      most = std::max(most, bytes + (bytes >> 8U) + (64U << 10U));
    }
  half_ = aligned(most);
  std::size_t open_max = files_open_max;
  if (input_->tiles() > 0) open_max = std::max(open_max, input_->tiles() / input_->parts());
  auto readers = SourceReaders::start(request_.threads, 2 * half_, open_source, open_max);
  if (!readers) return std::move(readers).error();
  readers_ = std::move(readers).value();
  return {};
}

/// The most that this process has had in memory. What it was started from does not count, as getrusage counts it.
std::uint64_t memory_peak_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes << 10U;
  }
  return 0;
}

Result<ConvertReport> Conversion::run() {
  allow_open_files();
  auto input = Collection::look_at(request_.inputs, request_.along, open_source, stop_, request_.overlap);
  if (!input) return std::move(input).error();
  input_ = std::move(input).value();
  ADVECTIO_TRY(plan());
  ADVECTIO_TRY(start_readers());  // before there are threads
  executor_ = std::make_unique<Executor>(request_.threads);
  sink_memory_ = std::make_shared<MemoryBudget>(std::max<std::uint64_t>(1, request_.memory_max / 4));
  for (const auto& output : outputs_) ADVECTIO_TRY(make(output));
  readers_.reset();

  ConvertReport report;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    report.outputs.push_back({outputs_[i].path, std::string(name_of(format_)), outputs_[i].variables.size(),
                              records_.size(), outputs_[i].bytes, written_[i]});
  report.files = input_->paths().size();
  report.tiles = input_->tiles();
  report.model = input_->model();
  report.records = records_.size();
  report.land_points = input_->land_points();
  report.disagreements = disagreements_;
  report.notes = input_->notes();
  if (input_->moments() && !records_.empty() && input_->moments()->size() == input_->records()) {
    report.first = time_text((*input_->moments())[records_.front()].at, input_->calendar());
    report.last = time_text((*input_->moments())[records_.back()].at, input_->calendar());
  }
  rusage readers{};
  ::getrusage(RUSAGE_CHILDREN, &readers);
  report.memory_peak = std::max(memory_peak_of_this_process(), static_cast<std::uint64_t>(readers.ru_maxrss) << 10U);
  return report;
}

}  // namespace

Result<ConvertReport> convert(const ConvertRequest& request,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                              const std::atomic<bool>& stop) {
  return Conversion(request, progress, stop).run();
}

}  // namespace advectio
