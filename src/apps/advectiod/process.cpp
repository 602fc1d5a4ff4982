#include "apps/advectiod/process.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "apps/advectiod/boxes.h"
#include "apps/advectiod/new_file.h"
#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/open_source.h"
#include "core/executor.h"
#include "core/field.h"
#include "operators/cf.h"
#include "operators/operated_field.h"
#include "operators/processed.h"
#include "operators/regrid.h"
#include "operators/selection.h"
#include "platform/machine.h"
#include "server/stored_schema.h"
#include "sources/series.h"
#include "sources/source_readers.h"
#include "sources/times.h"

namespace advectio {
namespace {

// netCDF holds megabytes of metadata of each.
constexpr std::size_t files_open_max = 8;
// More cells in a box make no chunk cheaper; with fewer, messages to readers begin to count.
constexpr std::uint64_t box_cells_max = 1U << 20U, box_cells_min = 1U << 14U;
constexpr std::uint64_t batch_bytes_max = 32U << 20U;

/// A file of the series.
struct Input {
  std::string path;
  std::shared_ptr<const Schema> schema;  ///< shared by files that have the same
  std::vector<std::uint64_t> lengths;
  std::vector<Moment> moments;
  Calendar calendar = Calendar::standard;
  // By number of the variable in the first file's schema:
  std::shared_ptr<const std::vector<std::optional<std::uint32_t>>> variables;
  std::shared_ptr<const std::vector<Packing>> packing;
  std::set<std::string> other_grid;  ///< its coordinates that are not those of the file that was looked at first
};

/// Where the values of a file are, by the names of its coordinates.
using Grid = std::map<std::string, std::vector<double>>;

/// Coordinates that do not change with time: of one dimension, and of two the first and the last row.
Result<Grid> grid_of(const Source& file, const Input& input, std::uint32_t time_dimension) {
  const auto& schema = *input.schema;
  std::set<std::string> named;
  for (const auto& v : schema.variables)
    for (const auto& name : words_of(text_of(v.attributes, "coordinates"))) named.insert(name);
  Grid grid;
  for (std::uint32_t number = 0; number < schema.variables.size(); ++number) {
    const auto& v = schema.variables[number];
    const auto rank = v.dimensions.size();
    const bool own = rank == 1 && schema.dimensions[v.dimensions[0]].name == v.name;
    if (!is_numeric(v.type) || rank == 0 || rank > 2 || (!own && !named.contains(v.name)) ||
        v.dimensions[0] == time_dimension)
      continue;
    Box box;
    for (const auto d : v.dimensions) box.count.push_back(input.lengths[d]);
    box.start.assign(rank, 0);
    if (box.empty()) continue;
    const auto rows = box.count[0];
    auto& values = grid[v.name];
    const auto read = [&](const Box& part) -> Result<void> {
      Bytes raw(part.volume() * size_of(v.type));
      std::vector<double> its(part.volume());
      ADVECTIO_TRY(file.read(number, part, raw.data()));
      unpack(packing_of(v), raw.data(), its);
      values.insert(values.end(), its.begin(), its.end());
      return {};
    };
    if (rank == 2) box.count[0] = 1;
    ADVECTIO_TRY(read(box));
    if (rank == 1 || rows == 1) continue;
    box.start[0] = rows - 1;
    ADVECTIO_TRY(read(box));
  }
  return grid;
}

bool same_values(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return x == y || (x != x && y != y); });
}

/// Of a file that does not say its times: its records as they follow each other.
SourceTimes numbered_records(TimeAxis axis, const std::vector<std::uint64_t>& lengths) {
  SourceTimes out;
  const auto count = axis.has_dimension() ? lengths[axis.dimension] : 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<Time>(i);
    out.moments.push_back({at, at, at});
  }
  out.axis = std::move(axis);
  return out;
}

/// Jobs that are waited for together.
class Together {
 public:
  explicit Together(Executor& executor) : executor_(executor) {}
  ~Together() { wait(); }
  void run(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    executor_.run([this, job = std::move(job)] {
      job();
      const std::lock_guard lock(mutex_);
      if (--open_ == 0) done_.notify_all();
    });
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  Executor& executor_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t open_ = 0;
};

/// An output as it will be made.
struct Output {
  const ProcessRule* rule = nullptr;
  std::string path;
  std::uint64_t first = 0, end = 0;  ///< records of the series that it is made of
  Processed processed;
  Schema schema;  ///< as stored
  std::shared_ptr<const Operators> operators;
  bool kept = false;
  bool later = false;  ///< looked at only: its records are not all there
};

/// A record of a box, as the sink takes it.
struct Made {
  std::uint64_t record = 0;
  std::shared_ptr<Bytes> values;
};

/// A box of one variable of an output, in space, over all of time.
struct Work {
  std::uint32_t variable = 0;  ///< of the output
  Box box;
  std::vector<Need> needs;
  std::unique_ptr<TimeChain> chain;
  std::vector<Made> made;
};

class Process {
 public:
  Process(const ProcessRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
          const std::atomic<bool>& stop)
      : request_(request), progress_(progress), stop_(stop) {}

  Result<ProcessReport> run();

 private:
  struct Batch {
    std::uint64_t first = 0, end = 0;  ///< records
    std::uint64_t memory = 0;          ///< where it begins in the readers' memory
  };
  /// Of each box where the values of each of its needs begin there.
  using Places = std::vector<std::vector<std::uint64_t>>;

  Result<void> look_at(const std::string& path);
  Result<void> put_in_order();
  /// What an output of a rule has in common with the others of that rule.
  struct OfRule {
    std::shared_ptr<const RegridWeights> weights;
    Selection selection;
  };
  Result<void> plan();
  Result<OfRule> of_rule(const ProcessRule& rule);
  Result<void> plan_output(const ProcessRule& rule, const OfRule& common, Output output, const TimePlan* whole,
                           std::set<std::string>& taken);
  Result<std::shared_ptr<const RegridWeights>> weights_of(const RegridRule& rule);
  Result<std::shared_ptr<const RegridWeights>> cells_of(const std::vector<PointRule>& points);
  Result<void> check_needs(const Output& output);
  Result<void> make(const Output& output, ProcessReport::Output& report);
  Result<void> write(const Output& output);
  Result<void> write_copied(const Output& output, std::uint32_t variable);
  Result<void> write_made_once(const Output& output, std::uint32_t variable);
  Result<void> write_group(const Output& output, std::span<Work> group);
  Result<void> read(std::span<const Work> group, const Batch& batch, Places& places);
  void fold(const Output& output, Work& work, const Batch& batch, std::span<const std::uint64_t> places) const;
  Result<void> give(const Output& output, std::span<Work> group);
  Result<void> put(const Output& output, std::uint32_t variable, Box box, std::shared_ptr<Bytes> values);

  /// The run that has a record of the series.
  [[nodiscard]] std::vector<RecordRun>::const_iterator run_of(std::uint64_t record) const {
    return std::upper_bound(runs_.begin(), runs_.end(), record,
                            [](std::uint64_t r, const RecordRun& run) { return r < run.end(); });
  }
  [[nodiscard]] const Input& input_of(std::uint64_t record) const { return inputs_[run_of(record)->part]; }
  [[nodiscard]] const Schema& first() const { return *inputs_.front().schema; }
  [[nodiscard]] bool timed(std::uint32_t variable) const {
    const auto& dimensions = first().variables[variable].dimensions;
    return !dimensions.empty() && dimensions.front() == axis_.dimension;
  }
  [[nodiscard]] std::uint64_t bytes_of(const Need& need) const {
    return need.box.volume() * size_of(first().variables[need.variable].type);
  }
  [[nodiscard]] std::vector<Work> works_of(const Output& output) const;
  [[nodiscard]] std::uint64_t record_bytes(const Work& work) const;
  [[nodiscard]] std::uint64_t records_of_a_chunk(const Work& work) const;
  [[nodiscard]] std::uint64_t state_bytes(const Output& output, const Work& work) const;

  const ProcessRequest& request_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  const std::atomic<bool>& stop_;
  std::vector<std::string> paths_;  // each once
  std::vector<Input> inputs_;       // in order of time
  std::string grid_from_;           // the file that was looked at first
  Grid grid_;                       // its own
  TimeAxis axis_;
  std::vector<RecordRun> runs_;  // of inputs_
  std::vector<Moment> series_;
  std::vector<std::string> notes_;
  std::optional<Agreement> agreement_;
  std::vector<bool> packed_alike_;
  std::vector<Output> outputs_;
  /// By the paths of weights and grid: several outputs may have the same.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const RegridWeights>> weights_;
  std::unique_ptr<SourceReaders> readers_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<MemoryBudget> sink_memory_;
  std::uint64_t batch_bytes_ = 0, state_max_ = 0, held_max_ = 0;
  std::uint64_t done_ = 0, of_ = 0, held_ = 0, read_ = 0;
  Frame frame_;
  Sink* sink_ = nullptr;
};

Result<void> Process::look_at(const std::string& path) {
  auto opened = open_source(path);
  if (!opened) return std::move(opened).error();
  const auto& file = **opened;
  auto head = file.head();
  if (!head) return std::move(head).error();
  Input input;
  input.path = path;
  if (!inputs_.empty() && *inputs_.back().schema == head->schema)
    input.schema = inputs_.back().schema;
  else
    input.schema = std::make_shared<const Schema>(std::move(head->schema));
  input.lengths = std::move(head->lengths);
  auto times = times_of(file, {*input.schema, input.lengths});
  if (!times) {
    if (times.error().code != Code::unsupported && times.error().code != Code::invalid)
      return std::move(times).error().with(path);
    if (paths_.size() > 1)
      return Error{Code::invalid,
                   path + ": " + times.error().message +
                       "; files of a series say their times, any other file is "
                       "processed alone",
                   0};
    times = numbered_records(undated_axis(*input.schema, path + ": " + times.error().message), input.lengths);
  }
  auto& axis = times->axis;
  auto& moments = times->moments;
  if (moments.empty() && axis.has_dimension()) return Error{Code::invalid, path + " has no record", 0};
  input.moments = std::move(moments);
  input.calendar = axis.units.calendar;
  auto grid = grid_of(file, input, axis.dimension);
  if (!grid) return std::move(grid).error().with(path);
  if (inputs_.empty()) {
    grid_from_ = path;
    grid_ = std::move(grid).value();
  } else {
    for (const auto& [name, values] : *grid)
      if (const auto mine = grid_.find(name); mine != grid_.end() && !same_values(mine->second, values))
        input.other_grid.insert(name);
  }
  if (inputs_.empty()) axis_ = std::move(axis);
  inputs_.push_back(std::move(input));
  return {};
}

Result<void> Process::put_in_order() {
  std::vector<SeriesPart> parts;
  for (auto& input : inputs_) parts.push_back({input.path, input.calendar, std::move(input.moments)});
  const auto order = order_of(parts);
  inputs_ = in_order(std::move(inputs_), order);
  auto series = series_of(in_order(std::move(parts), order), request_.rules.overlap,
                          "overlap: first or overlap: last, beside outputs in the rules,");
  if (!series) return std::move(series).error();
  runs_ = std::move(series->runs);
  series_ = std::move(series->moments);
  notes_ = std::move(series->notes);
  if (axis_.dated()) {
    auto axis = find_time_axis(first());  // numbers of variables are those of the first file from here on
    if (!axis) return std::move(axis).error();
    axis_ = std::move(axis).value();
  }
  for (auto& input : inputs_) {
    if (&input != &inputs_.front() && input.schema == (&input - 1)->schema) {
      input.variables = (&input - 1)->variables;
      input.packing = (&input - 1)->packing;
      continue;
    }
    std::vector<std::optional<std::uint32_t>> variables;
    std::vector<Packing> packing;
    for (const auto& v : first().variables) {
      const auto& its = input.schema->variables;
      const auto same =
          std::find_if(its.begin(), its.end(), [&](const Variable& other) { return other.name == v.name; });
      packing.push_back(same == its.end() ? Packing() : packing_of(*same));
      if (same == its.end())
        variables.emplace_back();
      else
        variables.emplace_back(static_cast<std::uint32_t>(same - its.begin()));
    }
    input.variables = std::make_shared<const std::vector<std::optional<std::uint32_t>>>(std::move(variables));
    input.packing = std::make_shared<const std::vector<Packing>>(std::move(packing));
  }
  for (std::size_t v = 0; v < first().variables.size(); ++v)
    packed_alike_.push_back(std::all_of(inputs_.begin(), inputs_.end(), [&](const Input& i) {
      return i.packing == inputs_.front().packing || (*i.packing)[v] == (*inputs_.front().packing)[v];
    }));
  return {};
}

/// All files must have what is read of them, in the same shape.
Result<void> Process::check_needs(const Output& output) {
  std::set<std::uint32_t> needed;
  for (std::size_t i = 0; i < output.schema.variables.size(); ++i) {
    const auto& p = output.processed.variables[i];
    if (p.kind != ProcessedVariable::Kind::made) continue;
    Box box;
    for (std::size_t d = 1; d < output.schema.variables[i].dimensions.size(); ++d) {
      box.start.push_back(0);
      box.count.push_back(1);
    }
    std::vector<Need> needs;
    p.quantity->needs(box, needs);
    for (const auto& need : needs) needed.insert(need.variable);
  }
  if (!agreement_)
    agreement_.emplace(SeriesFile{inputs_.front().path, &first(), &inputs_.front().lengths}, axis_.dimension, true);
  for (const auto& input : inputs_)
    for (const auto number : needed) {
      if (!timed(number)) continue;
      const auto& v = first().variables[number];
      if (!(*input.variables)[number])
        return Error{Code::invalid,
                     input.path + " has no variable " + v.name + ", which " + inputs_.front().path + " has", 0};
      const auto& its = input.schema->variables[*(*input.variables)[number]];
      if (&input != &inputs_.front())
        ADVECTIO_TRY(
            agreement_->check(number, {input.path, input.schema.get(), &input.lengths}, *(*input.variables)[number]));
      std::set<std::string> coordinates;
      for (const auto d : its.dimensions) coordinates.insert(input.schema->dimensions[d].name);
      for (const auto& name : words_of(text_of(its.attributes, "coordinates"))) coordinates.insert(name);
      for (const auto& name : coordinates)
        if (input.other_grid.contains(name))
          return Error{Code::invalid,
                       input.path + ": " + name + " of variable " + v.name + " has not the values that it has in " +
                           grid_from_ + "; files of one grid are a series",
                       0};
    }
  return {};
}

/// A file that is read whole.
Result<SmallFile> small_file(const std::string& path) {
  auto opened = open_source(path);
  if (!opened) return std::move(opened).error();
  auto head = (*opened)->head();
  if (!head) return std::move(head).error();
  SmallFile file;
  file.path = path;
  file.schema = std::move(head->schema);
  file.lengths = std::move(head->lengths);
  file.read = [file = std::shared_ptr<const Source>(std::move(opened).value()), schema = file.schema,
               lengths = file.lengths](std::uint32_t v) -> Result<std::vector<double>> {
    const auto& variable = schema.variables[v];
    Box box;
    for (const auto d : variable.dimensions) box.count.push_back(lengths[d]);
    box.start.assign(box.count.size(), 0);
    Bytes raw(box.volume() * size_of(variable.type));
    std::vector<double> values(box.volume());
    ADVECTIO_TRY(file->read(v, box, raw.data()));
    unpack(packing_of(variable), raw.data(), values);
    return values;
  };
  return file;
}

Result<std::shared_ptr<const RegridWeights>> Process::weights_of(const RegridRule& rule) {
  auto& known = weights_[{rule.weights, rule.grid}];
  if (known) return known;
  std::optional<GridPoints> points;
  if (!rule.grid.empty()) {
    auto file = small_file(rule.grid);
    if (!file) return std::move(file).error();
    auto read = grid_points(*file);
    if (!read) return std::move(read).error();
    points = std::move(read).value();
  }
  auto file = small_file(rule.weights);
  if (!file) return std::move(file).error();
  auto weights = regrid_weights(*file, points ? &*points : nullptr);
  if (!weights) return std::move(weights).error();
  known = std::make_shared<const RegridWeights>(std::move(weights).value());
  return known;
}

/// Of places: the nearest cells of the first file's grid.
Result<std::shared_ptr<const RegridWeights>> Process::cells_of(const std::vector<PointRule>& points) {
  auto file = small_file(inputs_.front().path);
  if (!file) return std::move(file).error();
  auto grid = grid_points(*file);
  if (!grid) return std::move(grid).error();
  auto cells = nearest_cells(*grid, points);
  if (!cells) return std::move(cells).error();
  return std::make_shared<const RegridWeights>(std::move(cells).value());
}

Result<Process::OfRule> Process::of_rule(const ProcessRule& rule) {
  OfRule common;
  std::optional<SmallFile> coordinates;
  if (rule.region) {
    auto file = small_file(inputs_.front().path);
    if (!file) return std::move(file).error();
    coordinates = std::move(file).value();
  }
  auto selection = select_cells(rule, first(), axis_.dimension, coordinates ? &*coordinates : nullptr);
  if (!selection) return std::move(selection).error();
  common.selection = std::move(selection).value();
  if (rule.regrid || !rule.points.empty()) {
    auto read = rule.regrid ? weights_of(*rule.regrid) : cells_of(rule.points);
    const std::string key = rule.regrid ? "regrid" : "points";
    if (!read) return Error{Code::config, rule.origins.at(key) + ": " + key + ": " + read.error().message, 0};
    common.weights = std::move(read).value();
  }
  return common;
}

Result<void> Process::plan() {
  std::set<std::string> taken;
  for (const auto& rule : request_.rules.outputs) {
    ADVECTIO_TRY(check_dates(rule, axis_));
    const auto common = of_rule(rule);
    if (!common) return common.error();
    Output output;
    output.rule = &rule;
    const auto calendar = axis_.units.calendar;
    auto whole = TimePlan::make(series_, rule.time, calendar);
    if (!whole && request_.complete) continue;  // a difference of one window: more will come
    if (!rule.split) {
      output.path = process_path(rule, request_.directory, runs_.empty() ? inputs_.front().path : input_of(0).path);
      output.end = series_.size();
      output.later = request_.complete;
      ADVECTIO_TRY(plan_output(rule, *common, std::move(output), nullptr, taken));
      continue;
    }
    if (!whole) {
      whole.error().code = Code::config;
      return std::move(whole).error();
    }
    for (const auto& period : periods_of(*whole, *rule.split, calendar)) {
      output.later = request_.complete && !period.complete;
      output.path = process_path(rule, request_.directory, input_of(period.own).path,
                                 period_text(period.begin, *rule.split, calendar));
      output.first = period.first;
      output.end = period.last;
      ADVECTIO_TRY(plan_output(rule, *common, output, &*whole, taken));
    }
  }
  return {};
}

Result<void> Process::plan_output(const ProcessRule& rule, const OfRule& common, Output output, const TimePlan* whole,
                                  std::set<std::string>& taken) {
  const auto refuse = [&](const std::string& what) {
    const auto at = rule.origins.find("path");
    return Error{Code::config, (at == rule.origins.end() ? rule.origin : at->second) + ": " + what, 0};
  };
  if (!taken.insert(std::filesystem::path(output.path).lexically_normal().string()).second)
    return refuse(output.path + " is the path of another output, too" +
                  (rule.split ? "; {time} in path tells the files of split apart" : ""));
  for (const auto& input : inputs_)
    if (std::error_code none; std::filesystem::equivalent(input.path, output.path, none))
      return refuse(output.path + " is one of the input files");
  const bool is_kept =
      request_.keep || std::find(request_.kept.begin(), request_.kept.end(), output.path) != request_.kept.end();
  output.kept = is_kept && std::filesystem::exists(output.path);
  if (!output.kept && !request_.replace && std::filesystem::exists(output.path))
    return Error{Code::exists,
                 output.path + " is there already; --force replaces it when the new one is complete, --keep leaves it",
                 0};
  const std::vector<Moment> records(series_.begin() + static_cast<std::ptrdiff_t>(output.first),
                                    series_.begin() + static_cast<std::ptrdiff_t>(output.end));
  auto processed =
      process_schema(first(), axis_, records, rule, packed_alike_, common.weights, common.selection, whole);
  if (!processed) return std::move(processed).error();
  output.processed = std::move(processed).value();
  if (rule.cf) {
    auto file = small_file(inputs_.front().path);
    if (!file) return std::move(file).error();
    const auto points = grid_points(*file);  // not every file has some
    make_cf(output.processed, first(), rule, axis_.text, points ? &*points : nullptr);
  }
  auto& schema = output.processed.schema;
  if (schema.format == FileFormat::zarr) {
    schema.format = rule.stored.format.value_or(FileFormat::netcdf4);
    if (is_hdf5(schema.format) && rule.stored.codec == Codec::asked) make_readable(schema);
  }
  auto stored = as_stored(schema, rule.stored);
  if (!stored) return std::move(stored).error().with(rule.origin);
  ADVECTIO_TRY_WITH(can_be_made_of_files(stored->format), rule.origin);
  auto operators = operators_of(rule.stored);
  auto declared = operators.declare(std::move(stored).value());
  if (!declared) return std::move(declared).error().with(rule.origin);
  output.schema = std::move(declared).value();
  output.operators = std::make_shared<const Operators>(std::move(operators));
  ADVECTIO_TRY(check_needs(output));
  for (auto& v : output.schema.variables)
    if (const auto it = agreement_->dropped().find(v.name); it != agreement_->dropped().end())
      for (const auto& name : it->second) remove_attribute(v.attributes, name);
  if (output.later) return {};
  outputs_.push_back(std::move(output));
  return {};
}

std::uint64_t Process::record_bytes(const Work& work) const {
  std::uint64_t sum = 0;
  for (const auto& need : work.needs) sum += aligned(bytes_of(need));
  return sum;
}

/// A chunk that holds several records is best read once.
std::uint64_t Process::records_of_a_chunk(const Work& work) const {
  std::uint64_t most = 1;
  for (const auto& need : work.needs)
    if (const auto& v = first().variables[need.variable]; timed(need.variable) && !v.contiguous)
      most = std::max(most, std::min<std::uint64_t>(v.chunks.front(), series_.size()));
  return most;
}

/// Memory of a box beside what is read: its chain, and what a thread reckons with.
std::uint64_t Process::state_bytes(const Output& output, const Work& work) const {
  std::uint64_t cells = work.box.volume();
  for (const auto& need : work.needs) cells += need.box.volume();
  return TimeChain::bytes(*output.processed.variables[work.variable].plan, work.box.volume()) + cells * sizeof(double);
}

std::vector<Work> Process::works_of(const Output& output) const {
  std::vector<Work> works;
  for (std::uint32_t i = 0; i < output.schema.variables.size(); ++i) {
    const auto& p = output.processed.variables[i];
    if (p.kind != ProcessedVariable::Kind::made) continue;
    const auto& v = output.schema.variables[i];
    std::vector<std::uint64_t> lengths, chunks;
    for (std::size_t d = 1; d < v.dimensions.size(); ++d) {
      const auto& dimension = output.schema.dimensions[v.dimensions[d]];
      const auto same = std::find_if(first().dimensions.begin(), first().dimensions.end(),
                                     [&](const Dimension& other) { return other.name == dimension.name; });
      lengths.push_back(dimension.unlimited && same != first().dimensions.end()
                            ? inputs_.front().lengths[static_cast<std::size_t>(same - first().dimensions.begin())]
                            : dimension.length);
      chunks.push_back(v.contiguous ? 1 : v.chunks[d]);
    }
    if (p.whole) chunks[*p.whole] = lengths[*p.whole];
    Work one;
    one.variable = i;
    one.box = {std::vector<std::uint64_t>(lengths.size(), 0), lengths};
    p.quantity->needs(one.box, one.needs);
    const auto volume = std::max<std::uint64_t>(1, one.box.volume());
    const auto each = std::max<std::uint64_t>(1, state_bytes(output, one) / volume);
    std::uint64_t needed = 0;
    for (const auto& need : one.needs) needed = std::max(needed, need.box.volume());
    // Of blocks a few cells are made of many.
    const auto least = output.processed.selection.empty()
                           ? box_cells_min
                           : std::max<std::uint64_t>(1, box_cells_min / std::max<std::uint64_t>(1, needed / volume));
    const auto cells = std::clamp(state_max_ / each / (2 * std::max(1U, request_.threads)), least, box_cells_max);
    for (auto& box : cut(lengths, chunks, cells)) {
      Work work;
      work.variable = i;
      work.box = std::move(box);
      p.quantity->needs(work.box, work.needs);
      works.push_back(std::move(work));
    }
  }
  return works;
}

/// A value of a file is given to the sink when it is made; the sink may look at it until it commits.
Result<void> Process::put(const Output& output, std::uint32_t variable, Box box, std::shared_ptr<Bytes> values) {
  Block block;
  block.variable = variable;
  block.box = box;
  block.data = values->data();
  block.bytes = values->size();
  held_ += values->size();
  block.lease = std::move(values);
  auto field = frame_.add(block);
  if (!field) return std::move(field).error().with(output.path);
  ADVECTIO_TRY_WITH(sink_->ready(operated(*field, output.operators), Part(std::move(box))), output.path);
  if (held_ < held_max_) return {};
  ADVECTIO_TRY_WITH(sink_->checkpoint(), output.path);
  frame_.clear();
  held_ = 0;
  return {};
}

Result<void> Process::write_copied(const Output& output, std::uint32_t variable) {
  const auto& input = inputs_.front();
  const auto from = output.processed.variables[variable].from;
  const auto& v = input.schema->variables[from];
  auto opened = open_source(input.path);
  if (!opened) return std::move(opened).error();
  std::vector<std::uint64_t> lengths;
  const auto& start = output.processed.variables[variable].start;
  for (std::size_t i = 0; i < v.dimensions.size(); ++i)
    lengths.push_back(start.empty() ? input.lengths[v.dimensions[i]]
                                    : output.schema.dimensions[output.schema.variables[variable].dimensions[i]].length);
  auto chunks = output.schema.variables[variable].chunks;
  chunks.resize(lengths.size(), 1);
  for (auto& box : cut(lengths, chunks, box_cells_max)) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    auto values = std::make_shared<Bytes>();
    auto there = box;
    for (std::size_t i = 0; i < start.size(); ++i) there.start[i] += start[i];
    if (v.type == DataType::string) {
      auto strings = (*opened)->read_strings(from, there);
      if (!strings) return std::move(strings).error();
      *values = std::move(strings).value();
    } else {
      values->resize(box.volume() * size_of(v.type));
      ADVECTIO_TRY((*opened)->read(from, there, values->data()));
    }
    read_ += values->size();
    ADVECTIO_TRY(put(output, variable, std::move(box), std::move(values)));
  }
  return {};
}

/// What does not change with time is small beside what does: box by box on this thread.
Result<void> Process::write_made_once(const Output& output, std::uint32_t variable) {
  const auto& input = inputs_.front();
  const auto& p = output.processed.variables[variable];
  const auto& v = output.schema.variables[variable];
  auto opened = open_source(input.path);
  if (!opened) return std::move(opened).error();
  std::vector<std::uint64_t> lengths;
  for (const auto d : v.dimensions) lengths.push_back(output.schema.dimensions[d].length);
  auto chunks = v.chunks;
  chunks.resize(lengths.size(), 1);
  for (auto& box : cut(lengths, chunks, box_cells_max)) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    std::vector<Need> needs;
    p.quantity->needs(box, needs);
    std::vector<std::vector<double>> read(needs.size());
    std::vector<std::span<const double>> values;
    for (std::size_t n = 0; n < needs.size(); ++n) {
      Bytes raw(bytes_of(needs[n]));
      ADVECTIO_TRY((*opened)->read(needs[n].variable, needs[n].box, raw.data()));
      read_ += raw.size();
      read[n].resize(needs[n].box.volume());
      const auto& packing = (*input.packing)[needs[n].variable];
      if (p.as_it_is)
        widen(packing.stored, raw.data(), read[n]);
      else
        unpack(packing, raw.data(), read[n]);
      values.emplace_back(read[n]);
    }
    std::vector<double> result(box.volume());
    Needed needed(values);
    p.quantity->make(box, needed, result);
    auto bytes = std::make_shared<Bytes>(result.size() * size_of(v.type));
    if (p.units) p.units->convert(result);
    narrow(v.type, p.as_it_is ? std::numeric_limits<double>::quiet_NaN() : p.fill, result, bytes->data());
    ADVECTIO_TRY(put(output, variable, std::move(box), std::move(bytes)));
  }
  return {};
}

/// The values of all needs of a batch: of each all records, one after the other.
Result<void> Process::read(std::span<const Work> group, const Batch& batch, Places& places) {
  std::vector<SourceReaders::Request> requests;
  auto to = batch.memory;
  std::size_t number = 0;
  // Of several files each is opened by one reader, of few all read a part.
  std::set<std::size_t> files;
  for (auto run = run_of(batch.first); run != runs_.end() && run->first < batch.end; ++run) files.insert(run->part);
  const bool by_file = files.size() >= 2 * std::size_t{request_.threads};
  for (const auto& work : group) {
    auto& place = places.emplace_back();
    for (const auto& need : work.needs) {
      place.push_back(to);
      const auto bytes = bytes_of(need);
      if (!timed(need.variable)) {
        requests.push_back({number++, inputs_.front().path, need.variable, need.box, to});
        to += aligned(bytes);
        continue;
      }
      for (auto run = run_of(batch.first); run != runs_.end() && run->first < batch.end; ++run) {
        const auto first = std::max(batch.first, run->first), end = std::min(batch.end, run->end());
        const auto& input = inputs_[run->part];
        Box box;
        box.start.push_back(run->record + (first - run->first));
        box.count.push_back(end - first);
        box.start.insert(box.start.end(), need.box.start.begin(), need.box.start.end());
        box.count.insert(box.count.end(), need.box.count.begin(), need.box.count.end());
        requests.push_back({by_file ? run->part : number++, input.path, *(*input.variables)[need.variable],
                            std::move(box), to + (first - batch.first) * bytes});
      }
      to += aligned(bytes * (batch.end - batch.first));
      read_ += bytes * (batch.end - batch.first);
    }
  }
  // A reader that has to close files to open others goes through them once.
  std::stable_sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return readers_->read(requests, stop_);
}

void Process::fold(const Output& output, Work& work, const Batch& batch, std::span<const std::uint64_t> places) const {
  const auto& p = output.processed.variables[work.variable];
  const auto type = output.schema.variables[work.variable].type;
  std::vector<std::vector<double>> read(work.needs.size());
  std::vector<std::span<const double>> values(work.needs.size());
  // A variable as it is in the file need not be copied.
  const bool as_read = dynamic_cast<const StoredVariable*>(p.quantity.get()) != nullptr;
  std::vector<double> result(as_read ? 0 : work.box.volume());
  std::vector<double> converted;
  const auto emit = [&](std::uint64_t record, std::span<const double> made) {
    if (p.units) {
      converted.assign(made.begin(), made.end());
      p.units->convert(converted);
      made = converted;
    }
    auto bytes = std::make_shared<Bytes>(made.size() * size_of(type));
    narrow(type, p.as_it_is ? std::numeric_limits<double>::quiet_NaN() : p.fill, made, bytes->data());
    work.made.push_back({record, std::move(bytes)});
  };
  auto run = run_of(batch.first);
  for (auto record = batch.first; record < batch.end; ++record) {
    while (record >= run->end()) ++run;
    const auto& input = inputs_[run->part];
    for (std::size_t n = 0; n < work.needs.size(); ++n) {
      const auto& need = work.needs[n];
      const bool with_time = timed(need.variable);
      if (!with_time && record > batch.first) continue;
      const auto* const raw =
          readers_->memory() + places[n] + (with_time ? (record - batch.first) * bytes_of(need) : 0);
      read[n].resize(need.box.volume());
      const auto& packing = (*(with_time ? input : inputs_.front()).packing)[need.variable];
      if (p.as_it_is)
        widen(packing.stored, raw, read[n]);
      else
        unpack(packing, raw, read[n]);
      values[n] = read[n];
    }
    if (as_read) {
      work.chain->add(values.front(), emit);
      continue;
    }
    Needed needed(values);
    p.quantity->make(work.box, needed, result);
    work.chain->add(result, emit);
  }
}

Result<void> Process::give(const Output& output, std::span<Work> group) {
  for (auto& work : group) {
    for (auto& made : work.made) {
      Box box = work.box;
      box.start.insert(box.start.begin(), made.record);
      box.count.insert(box.count.begin(), 1);
      ADVECTIO_TRY(put(output, work.variable, std::move(box), std::move(made.values)));
    }
    work.made.clear();
  }
  return {};
}

/// All records of some boxes. While threads reckon with one batch, the readers read the next.
Result<void> Process::write_group(const Output& output, std::span<Work> group) {
  std::uint64_t bytes = 0, step = 1;
  for (auto& work : group) {
    bytes += record_bytes(work);
    step = std::max(step, records_of_a_chunk(work));
    work.chain = std::make_unique<TimeChain>(output.processed.variables[work.variable].plan, work.box.volume());
  }
  auto records =
      std::clamp<std::uint64_t>(batch_bytes_ / std::max<std::uint64_t>(1, bytes), 1, output.end - output.first);
  if (records > step) records = records / step * step;
  Batch now, next;
  Places places;
  for (auto at = output.first;; at += records) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    next = {std::min(at, output.end), std::min(at + records, output.end), now.memory == 0 ? batch_bytes_ : 0};
    Together jobs(*executor_);
    if (now.first < now.end)
      for (std::size_t i = 0; i < group.size(); ++i) jobs.run([&, i] { fold(output, group[i], now, places[i]); });
    Places coming;
    Result<void> was_read;
    if (next.first < next.end) was_read = read(group, next, coming);
    jobs.wait();
    ADVECTIO_TRY(std::move(was_read));
    ADVECTIO_TRY(give(output, group));
    progress_(read_, of_);
    if (next.first == next.end) break;
    now = next;
    places = std::move(coming);
  }
  for (auto& work : group) work.chain.reset();
  return {};
}

Result<void> Process::write(const Output& output) {
  const auto& p = output.processed;
  const auto numbers = [](const std::vector<double>& values) {
    auto bytes = std::make_shared<Bytes>(values.size() * sizeof(double));
    std::memcpy(bytes->data(), values.data(), bytes->size());
    return bytes;
  };
  for (std::uint32_t v = 0; v < p.variables.size(); ++v) {
    switch (p.variables[v].kind) {
      case ProcessedVariable::Kind::time: ADVECTIO_TRY(put(output, v, {{0}, {p.records}}, numbers(p.times))); break;
      case ProcessedVariable::Kind::bounds:
        ADVECTIO_TRY(put(output, v, {{0, 0}, {p.records, 2}}, numbers(p.bounds)));
        break;
      case ProcessedVariable::Kind::coordinate: {
        std::vector<std::uint64_t> lengths;
        for (const auto d : output.schema.variables[v].dimensions)
          lengths.push_back(output.schema.dimensions[d].length);
        auto bytes = numbers(p.variables[v].values);
        if (!p.variables[v].text.empty()) {
          const auto text = std::as_bytes(std::span(p.variables[v].text));
          bytes->assign(text.begin(), text.end());
        }
        ADVECTIO_TRY(put(output, v, {std::vector<std::uint64_t>(lengths.size(), 0), lengths}, std::move(bytes)));
        break;
      }
      case ProcessedVariable::Kind::copied: ADVECTIO_TRY(write_copied(output, v)); break;
      case ProcessedVariable::Kind::made_once: ADVECTIO_TRY(write_made_once(output, v)); break;
      case ProcessedVariable::Kind::made: break;
    }
  }
  auto works = works_of(output);
  for (std::size_t begin = 0, end = 0; begin < works.size(); begin = end) {
    std::uint64_t bytes = 0, state = 0;
    for (; end < works.size(); ++end) {
      bytes += record_bytes(works[end]) * records_of_a_chunk(works[end]);
      state += state_bytes(output, works[end]);
      if (end > begin && (bytes > batch_bytes_ || state > state_max_)) break;
    }
    ADVECTIO_TRY(write_group(output, std::span(works).subspan(begin, end - begin)));
  }
  return {};
}

Result<void> Process::make(const Output& output, ProcessReport::Output& report) {
  const auto parent = std::filesystem::path(output.path).parent_path();
  std::error_code failed;
  if (!parent.empty()) std::filesystem::create_directories(parent, failed);
  if (failed) return system_error("make the directory " + parent.string(), failed.value());
  auto file = NewFile::begin(system_files(), output.path, request_.replace, "process",
                             output.schema.format == FileFormat::zarr);
  if (!file) return std::move(file).error();
  auto sink = open_sink({(*file)->path(), output.schema.format, output.rule->stored, false}, {sink_memory_}, *executor_,
                        nullptr);
  if (!sink) return std::move(sink).error().with(output.path);
  sink_ = sink->get();
  const auto before = read_;
  frame_.clear();
  frame_.declare(output.schema);
  held_ = 0;
  auto written = [&]() -> Result<void> {
    ADVECTIO_TRY_WITH(sink_->declare(output.schema), output.path);
    ADVECTIO_TRY_WITH(sink_->begin(1), output.path);
    ADVECTIO_TRY(write(output));
    ADVECTIO_TRY_WITH(sink_->close(), output.path);
    ADVECTIO_TRY_WITH(sink_->make_durable()(), output.path);
    return {};
  }();
  if (!written) sink_->abandon();
  frame_.clear();
  if (!written) return written;
  report.bytes_read = read_ - before;
  report.bytes_written = sink_->counters().bytes_out;
  return (*file)->finish();
}

Result<ProcessReport> Process::run() {
  allow_open_files();
  for (const auto& path : request_.inputs)
    if (std::find(paths_.begin(), paths_.end(), path) == paths_.end()) paths_.push_back(path);
  for (const auto& path : paths_) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    ADVECTIO_TRY(look_at(path));
  }
  if (inputs_.empty()) return Error{Code::invalid, "no files are named", 0};
  ADVECTIO_TRY(put_in_order());
  ADVECTIO_TRY(plan());

  const auto quarter = std::max<std::uint64_t>(1, request_.memory_max / 4);
  state_max_ = quarter;
  held_max_ = std::max<std::uint64_t>(1, request_.memory_max / 8);
  batch_bytes_ = std::min(quarter, batch_bytes_max);
  for (const auto& output : outputs_) {
    if (output.kept) continue;
    for (const auto& work : works_of(output)) {
      const auto bytes = record_bytes(work);
      batch_bytes_ = std::max({batch_bytes_, bytes, std::min(bytes * records_of_a_chunk(work), quarter)});
      for (const auto& need : work.needs)
        of_ += timed(need.variable) ? bytes_of(need) * (output.end - output.first) : 0;
    }
    for (const auto& p : output.processed.variables)
      if (p.kind == ProcessedVariable::Kind::copied || p.kind == ProcessedVariable::Kind::made_once) {
        std::uint64_t bytes = size_of(first().variables[p.from].type);
        const auto& selection = output.processed.selection;
        for (const auto d : first().variables[p.from].dimensions)
          bytes *= selection.empty() ? inputs_.front().lengths[d]
                                     : std::min(inputs_.front().lengths[d], selection.along[d].count);
        of_ += bytes;
      }
  }
  batch_bytes_ = aligned(batch_bytes_);
  // Before there are threads.
  auto readers = SourceReaders::start(request_.threads, 2 * batch_bytes_, open_source, files_open_max);
  if (!readers) return std::move(readers).error();
  readers_ = std::move(readers).value();
  executor_ = std::make_unique<Executor>(request_.threads);
  sink_memory_ = std::make_shared<MemoryBudget>(held_max_);

  ProcessReport report;
  report.files = inputs_.size();
  report.records = series_.size();
  report.notes = notes_;
  if (agreement_)
    for (auto& note : agreement_->notes()) report.notes.push_back(std::move(note));
  if (axis_.dated()) {
    report.first = time_text(series_.front().at, axis_.units.calendar);
    report.last = time_text(series_.back().at, axis_.units.calendar);
  }
  for (const auto& output : outputs_) {
    auto& told = report.outputs.emplace_back();
    told.path = output.path;
    told.format = name_of(output.schema.format);
    told.variables = output.schema.variables.size();
    told.records = output.processed.records;
    told.left_out = output.processed.left_out;
    told.kept = output.kept;
    if (!output.kept) ADVECTIO_TRY(make(output, told));
  }
  return report;
}

}  // namespace

Result<ProcessReport> process(const ProcessRequest& request,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                              const std::atomic<bool>& stop) {
  return Process(request, progress, stop).run();
}

}  // namespace advectio
