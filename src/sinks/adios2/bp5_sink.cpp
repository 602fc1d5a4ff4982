#include "sinks/adios2/bp5_sink.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "sinks/adios2/committed_steps.h"
#include "sinks/adios2/steps.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {
namespace {

using adios2::CommittedSteps;
using adios2::FrameParts;
using adios2::Progress;
using adios2::StepWriter;

/// Commits of a durable dataset that may have to be taken back: the server may not have noted yet
/// that they are durable.
constexpr std::size_t earlier_min = 64, earlier_max = 4096;

/// What `make_durable` has done. Outlives the sink.
struct Durable {
  std::atomic<bool> asked = false;
  std::atomic<std::uint64_t> steps = 0;  ///< durable, at least
};

class Bp5Sink final : public TransactionalSink {
 public:
  Bp5Sink(Files& files, const std::string& path, Bp5Options options)
      : TransactionalSink(path), files_(files), options_(std::move(options)) {}

  ~Bp5Sink() override { abandon(); }

  Result<void> open(bool resume);

  [[nodiscard]] Abilities abilities() const override { return bp5_abilities(); }

  std::function<Result<void>()> make_durable() override {
    durable_->asked = true;
    return [durable = durable_, &files = files_, directory = path(), steps = committed_.now.steps]() -> Result<void> {
      ADVECTIO_TRY(adios2::force_files(files, directory));
      ADVECTIO_TRY(advectio::make_durable(files, directory + "/advectio.json"));
      ADVECTIO_TRY(make_names_durable(files, directory));
      ADVECTIO_TRY(make_names_durable(files, directory_of(directory)));
      auto known = durable->steps.load();
      while (known < steps && !durable->steps.compare_exchange_weak(known, steps)) {
      }
      return {};
    };
  }

  [[nodiscard]] SinkCounters counters() const override { return counters_; }

 private:
  Result<void> apply(const Schema& schema) override;
  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override;
  Result<void> commit(bool last) override;
  Result<void> leave() override;
  void drop() noexcept override;
  void failed() noexcept override { frames_.clear(); }

  Result<void> begin_file();
  Result<void> open_writer();
  Result<void> take_back();
  Result<void> has_room() const;
  Result<void> write_steps(std::vector<std::uint64_t>& lengths, std::uint64_t& steps);
  Result<void> note_commit(Progress next);

  Files& files_;
  const Bp5Options options_;
  CommittedSteps committed_;
  std::unique_ptr<StepWriter> writer_;
  std::optional<Schema> schema_;
  std::vector<FrameParts> frames_;  ///< since the last commit
  bool made_here_ = false;          ///< the directory is this sink's
  bool ours_ = false;               ///< what is in it may be cut, and emptied
  bool first_commit_ = false;       ///< of a file that was taken up
  std::shared_ptr<Durable> durable_ = std::make_shared<Durable>();
  SinkCounters counters_;
};

/// Empties the directory. Marked first: should this process die meanwhile, the next one may empty it
/// too.
Result<void> Bp5Sink::begin_file() {
  auto names = files_.list(path());
  if (!names) return std::move(names).error();
  if (!names->empty() && !adios2::is_bp_file(*names))
    return Error{Code::exists,
                 path() +
                     " is a directory that holds no BP file, and it is not emptied; move it away, or give the dataset "
                     "another name",
                 EEXIST};
  committed_ = {};
  committed_.owner = options_.owner;
  ADVECTIO_TRY(adios2::write_committed(files_, path(), committed_, options_.ordered));
  ours_ = true;
  for (const auto& name : *names) {
    std::error_code failed;
    if (name != "advectio.json") std::filesystem::remove_all(path() + '/' + name, failed);
    if (failed) return system_error("remove " + path() + '/' + name, failed.value());
  }
  return {};
}

Result<void> Bp5Sink::open(bool resume) {
  if (auto there = adios2::can_compress(options_.compression); !there) return std::move(there).error().with(path());
  made_here_ = !files_.exists(path());
  ADVECTIO_TRY(files_.make_directory(path(), 0777));
  auto there = adios2::read_committed(files_, path());
  if (!there) return std::move(there).error();
  const auto& owner = options_.owner;
  const auto file_of = [](const std::string& o) { return o.substr(0, o.find('/')); };
  if (*there && !(*there)->owner.empty() && !owner.empty() && file_of((*there)->owner) != file_of(owner))
    return Error{Code::exists,
                 path() + " is the store of the file " + file_of((*there)->owner) + ", not of " + file_of(owner) +
                     "; move it away, or give the dataset another name",
                 EEXIST};
  const bool ours = *there && (owner.empty() || (*there)->owner == owner);
  if (!resume || !ours || (*there)->now.steps == 0) return begin_file();
  committed_ = std::move(**there);
  // A loss of power may have left less than was committed. What was durable comes again from there.
  auto cut = adios2::cut_files(files_, path(), committed_.now.bytes);
  while (!cut && cut.error().code == Code::corrupt && !committed_.earlier.empty() &&
         committed_.earlier.back().steps > 0) {
    committed_.now = std::move(committed_.earlier.back());
    committed_.earlier.pop_back();
    cut = adios2::cut_files(files_, path(), committed_.now.bytes);
  }
  ours_ = first_commit_ = cut.ok();
  return cut;
}

Result<void> Bp5Sink::apply(const Schema& schema) {
  ADVECTIO_TRY(adios2::can_append(schema));
  const auto& names = committed_.variables;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i >= schema.variables.size())
      return Error{Code::invalid, path() + " holds more variables than the schema has", 0};
    if (names[i] != schema.variables[i].name)
      return Error{Code::unsupported,
                   "variable " + names[i] + " is renamed to " + schema.variables[i].name +
                       " after it was written, and a BP file only grows; give the dataset a rule with another format",
                   0};
  }
  schema_ = schema;
  return writer_ ? writer_->declare(schema) : Result<void>{};
}

Result<void> Bp5Sink::take(const std::shared_ptr<const Field>& field, const Part& part) {
  const auto number = field->variable();
  if (number >= schema_->variables.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
  const auto& v = schema_->variables[number];
  ADVECTIO_TRY(check(part, v, [this](std::uint32_t d) -> const Dimension& { return schema_->dimensions[d]; }));
  counters_.bytes_in += part.box.volume() * size_of(v.type);
  if (frames_.empty() || frames_.back().number != frame()) frames_.push_back({frame(), {}});
  frames_.back().parts.emplace_back(field, part);
  return {};
}

Result<void> Bp5Sink::open_writer() {
  adios2::EngineSetup setup;
  setup.type = "BP5";
  setup.name = path();
  // Errors come from the call that meets them. Larger pieces are written from the stage, without a
  // copy (by default from 4 MiB on).
  setup.parameters = {{"AsyncOpen", "false"}, {"AsyncWrite", "false"}, {"MinDeferredSize", "65536"}};
  setup.compression = options_.compression;
  if (committed_.now.steps > 0) {
    setup.mode = adios2::Mode::append;
    setup.parameters.emplace_back("AppendAfterSteps", std::to_string(committed_.now.steps));
  }
  auto writer = StepWriter::open(setup);
  if (!writer) return std::move(writer).error();
  writer_ = std::move(writer).value();
  return schema_ ? writer_->declare(*schema_) : Result<void>{};
}

/// Frames that come again, after a death or a loss of power, take the place of what they were.
Result<void> Bp5Sink::take_back() {
  if (!first_commit_ || frames_.empty()) return {};
  first_commit_ = false;
  const auto first = frames_.front().number;
  if (first > committed_.now.frame) return {};
  auto& earlier = committed_.earlier;
  const auto at = std::find_if(earlier.rbegin(), earlier.rend(), [&](const Progress& p) { return p.frame < first; });
  if (at == earlier.rend()) {
    return Error{Code::corrupt,
                 path() + ": frame " + std::to_string(first) + " comes again, and it has been committed too long ago",
                 0};
  }
  // The frame may only go on, where a program ends it twice: then it has nothing that is there.
  auto lengths = at->lengths;
  const auto steps = adios2::steps_of(*schema_, frames_.front(), lengths);
  bool all = steps.ok();
  const auto& later = at == earlier.rbegin() ? committed_.now : *std::prev(at);
  for (std::size_t i = 0; all && frames_.back().number >= later.frame && i < later.lengths.size(); ++i) {
    const auto before = i < at->lengths.size() ? at->lengths[i] : 0;
    const bool was_put = later.lengths[i] > before;
    const bool is_put = std::any_of(frames_.begin(), frames_.end(), [&](const FrameParts& f) {
      return std::any_of(f.parts.begin(), f.parts.end(), [&](const auto& p) { return p.first->variable() == i; });
    });
    all = !was_put || is_put;
  }
  if (!all) return {};
  committed_.now = *at;
  earlier.erase(std::prev(at.base()), earlier.end());
  return adios2::cut_files(files_, path(), committed_.now.bytes);
}

/// ADIOS2 is not left with half of a step where that can be known before.
Result<void> Bp5Sink::has_room() const {
  if (!options_.compression.type.empty()) return {};
  const auto free = files_.free_bytes(path());
  if (!free) return free.error();
  std::uint64_t needed = 64ULL << 10;  // and what ADIOS2 says about it
  for (const auto& frame : frames_)
    for (const auto& [field, part] : frame.parts) needed += part.box.volume() * size_of(field->type());
  if (*free < needed) return system_error("write " + path(), ENOSPC);
  return {};
}

Result<void> Bp5Sink::write_steps(std::vector<std::uint64_t>& lengths, std::uint64_t& steps) {
  for (const auto& frame : frames_) {
    auto of_frame = adios2::steps_of(*schema_, frame, lengths);
    if (!of_frame) return std::move(of_frame).error();
    for (const auto& step : *of_frame) {
      ADVECTIO_TRY(writer_->write(step));
      ++steps;
    }
  }
  return {};
}

Result<void> Bp5Sink::note_commit(Progress next) {
  auto bytes = adios2::bytes_of_files(files_, path());
  if (!bytes) return std::move(bytes).error();
  next.bytes = std::move(bytes).value();
  if (options_.ordered) {
    ADVECTIO_TRY(adios2::force_files(files_, path()));
    ADVECTIO_TRY(make_names_durable(files_, path()));
  }
  auto committed = committed_;
  auto& earlier = committed.earlier;
  earlier.push_back(std::exchange(committed.now, std::move(next)));
  committed.variables.clear();
  for (const auto& v : schema_->variables) committed.variables.push_back(v.name);
  // Without durability the server gives nothing again but the last commit.
  const bool durable = options_.ordered || durable_->asked;
  const auto needed = durable ? earlier_min : 1;
  const auto known = durable ? durable_->steps.load() : UINT64_MAX;
  while (earlier.size() > needed && (earlier[1].steps <= known || earlier.size() > earlier_max))
    earlier.erase(earlier.begin());
  ADVECTIO_TRY(adios2::write_committed(files_, path(), committed, durable));
  committed_ = std::move(committed);
  return {};
}

Result<void> Bp5Sink::commit(bool last) {
  if (!schema_) {
    Schema empty;
    empty.format = FileFormat::bp5;
    schema_ = empty;
  }
  ADVECTIO_TRY(take_back());
  const bool news = writer_ && writer_->has_news();
  // A file without a step is none to readers.
  const bool begins = committed_.now.steps == 0 && last;
  if (frames_.empty() && !begins && !(last && news)) return {};
  const auto begun = std::chrono::steady_clock::now();
  ADVECTIO_TRY(has_room());
  if (!writer_) ADVECTIO_TRY(open_writer());
  auto next = committed_.now;
  ADVECTIO_TRY(write_steps(next.lengths, next.steps));
  if (next.steps == committed_.now.steps && (begins || (last && writer_->has_news()))) {
    ADVECTIO_TRY(writer_->write({}));
    ++next.steps;
  }
  if (!frames_.empty()) next.frame = std::max(next.frame, frames_.back().number);
  frames_.clear();
  counters_.bytes_out = writer_->bytes();
  ADVECTIO_TRY(note_commit(std::move(next)));
  counters_.write_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count());
  return {};
}

Result<void> Bp5Sink::leave() {
  if (writer_) ADVECTIO_TRY(writer_->close());
  ADVECTIO_TRY(files_.remove(path() + "/profiling.json"));
  const auto said = adios2::say_that_nobody_writes(files_, path());
  if (!said) return said.error();
  closed();
  return {};
}

void Bp5Sink::drop() noexcept {
  frames_.clear();
  if (writer_) {
    // The destructor of ADIOS2's engine writes to the index, and ends the process where it cannot: in a step, and where
    // a close has failed.
    const auto can_write = adios2::say_that_nobody_writes(files_, path());
    if (!can_write || !*can_write) adios2::leave_for_ever(std::move(writer_));
  }
  writer_.reset();
  if (!ours_) return;
  if (committed_.now.steps > 0) {
    (void)adios2::cut_files(files_, path(), committed_.now.bytes);
    (void)adios2::say_that_nobody_writes(files_, path());
    (void)files_.remove(path() + "/profiling.json");
    return;
  }
  (void)adios2::cut_files(files_, path(), {});
  (void)files_.remove(path() + "/profiling.json");
  (void)adios2::remove_committed(files_, path());
  if (made_here_) (void)::rmdir(path().c_str());
}

}  // namespace

Abilities bp5_abilities() {
  Abilities out;
  out.forms = {
      {FileFormat::bp5,
       {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64,
        DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64, DataType::string}}};
  out.rewrites = false;
  out.any_thread = false;
  out.directory = true;
  out.checkpoints = false;
  out.keeps_layout = false;
  return out;
}

Result<std::unique_ptr<Sink>> open_bp5(Files& files, const std::string& path, const Bp5Options& options, bool resume) {
  auto sink = std::make_unique<Bp5Sink>(files, path, options);
  ADVECTIO_TRY(sink->open(resume));
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio
