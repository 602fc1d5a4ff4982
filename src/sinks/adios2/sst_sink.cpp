#include "sinks/adios2/sst_sink.h"

#include <thread>
#include <utility>
#include <vector>

#include "sinks/adios2/steps.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {
namespace {

using adios2::FrameParts;
using adios2::StepWriter;

class SstSink final : public TransactionalSink {
 public:
  SstSink(const std::string& path, SstOptions options) : TransactionalSink(path), options_(std::move(options)) {}

  ~SstSink() override { abandon(); }

  [[nodiscard]] Abilities abilities() const override { return sst_abilities(); }

  /// There is nothing on a disk.
  std::function<Result<void>()> make_durable() override {
    return [] { return Result<void>{}; };
  }

  [[nodiscard]] SinkCounters counters() const override { return counters_; }

 private:
  Result<void> apply(const Schema& schema) override {
    ADVECTIO_TRY(adios2::can_append(schema));
    schema_ = schema;
    return writer_ ? writer_->declare(schema) : Result<void>{};
  }

  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override {
    const auto number = field->variable();
    if (number >= schema_.variables.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
    const auto& v = schema_.variables[number];
    ADVECTIO_TRY(check(part, v, [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
    counters_.bytes_in += part.box.volume() * size_of(v.type);
    if (frames_.empty() || frames_.back().number != frame()) frames_.push_back({frame(), {}});
    frames_.back().parts.emplace_back(field, part);
    return {};
  }

  Result<void> commit(bool) override {
    if (!writer_) ADVECTIO_TRY(begin());
    for (const auto& frame : frames_) {
      auto steps = adios2::steps_alone(schema_, frame);
      if (!steps) return std::move(steps).error();
      for (const auto& step : *steps) ADVECTIO_TRY(writer_->write(step));
    }
    frames_.clear();
    counters_.bytes_out = writer_->bytes();
    return {};
  }

  Result<void> begin() {
    adios2::EngineSetup setup;
    setup.type = "SST";
    const std::string suffix = ".sst";  // which ADIOS2 adds
    setup.name = path().ends_with(suffix) ? path().substr(0, path().size() - suffix.size()) : path();
    setup.parameters = {{"RendezvousReaderCount", "0"},
                        {"QueueLimit", "2"},
                        {"QueueFullPolicy", "Discard"},
                        {"ReserveQueueLimit", "1"}};
    // Of two of a name the later one counts.
    setup.parameters.insert(setup.parameters.end(), options_.parameters.begin(), options_.parameters.end());
    setup.compression = options_.compression;
    auto writer = StepWriter::open(setup);
    if (!writer) return std::move(writer).error();
    writer_ = std::move(writer).value();
    return writer_->declare(schema_);
  }

  Result<void> leave() override {
    let_go();
    closed();
    return {};
  }
  void drop() noexcept override { let_go(); }
  void failed() noexcept override { frames_.clear(); }

  void let_go() {
    frames_.clear();
    if (writer_) options_.closing->close(std::move(writer_));
  }

  const SstOptions options_;
  Schema schema_;
  std::unique_ptr<StepWriter> writer_;
  std::vector<FrameParts> frames_;
  SinkCounters counters_;
};

}  // namespace

void ClosingStreams::close(std::unique_ptr<StepWriter> stream) {
  {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  std::thread([self = shared_from_this(), stream = std::move(stream)]() mutable {
    (void)stream->close();  // a reader that has gone is no error
    stream.reset();
    const std::lock_guard lock(self->mutex_);
    --self->count_;
    self->done_.notify_all();
  }).detach();
}

bool ClosingStreams::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, most, [this] { return count_ == 0; });
}

Abilities sst_abilities() {
  Abilities out;
  out.any_thread = false;
  out.forms = {
      {FileFormat::sst,
       {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64,
        DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64, DataType::string}}};
  out.rewrites = false;
  out.checkpoints = false;
  out.keeps_layout = false;
  return out;
}

Result<std::unique_ptr<Sink>> open_sst(const std::string& path, const SstOptions& options) {
  if (auto can = adios2::can_compress(options.compression); !can) return std::move(can).error().with(path);
  return std::unique_ptr<Sink>(std::make_unique<SstSink>(path, options));
}

}  // namespace advectio
