#include "sinks/adios2/bp5_file_sink.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sinks/adios2/bp5_sink.h"
#include "sinks/adios2/committed_steps.h"
#include "sinks/adios2/steps.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {
namespace {

using adios2::StepWriter;

class Bp5FileSink final : public TransactionalSink {
 public:
  Bp5FileSink(Files& files, const std::string& path, adios2::Compression compression)
      : TransactionalSink(path), files_(files), compression_(std::move(compression)) {}
  ~Bp5FileSink() override { abandon(); }

  [[nodiscard]] Abilities abilities() const override {
    auto out = bp5_abilities();
    out.checkpoints = true;
    return out;
  }

  std::function<Result<void>()> make_durable() override {
    return [&files = files_, directory = path()]() -> Result<void> {
      ADVECTIO_TRY(adios2::force_files(files, directory));
      ADVECTIO_TRY(advectio::make_durable(files, directory + "/advectio.json"));
      return make_names_durable(files, directory);
    };
  }

  [[nodiscard]] SinkCounters counters() const override { return counters_; }

 private:
  /// What one step has of a part.
  struct Piece {
    std::uint32_t variable = 0;
    std::optional<std::uint64_t> record;
    std::shared_ptr<const Field> field;
    Box box;
  };

  Result<void> apply(const Schema& schema) override;
  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override;
  Result<void> commit(bool last) override;
  Result<void> leave() override;
  void drop() noexcept override;
  void failed() noexcept override { pieces_.clear(); }

  Result<void> open_writer();
  Result<void> has_room() const;
  Result<void> next_step();
  Result<void> put(const Piece& piece);
  [[nodiscard]] bool is_in_step(const Piece& piece) const {
    const auto it = in_step_.find(piece.variable);
    return it != in_step_.end() && it->second == piece.record;
  }

  Files& files_;
  const adios2::Compression compression_;
  std::unique_ptr<StepWriter> writer_;
  Schema schema_;
  std::vector<Piece> pieces_;                                      ///< since the last commit
  std::map<std::uint32_t, std::optional<std::uint64_t>> in_step_;  ///< variables of the step under way: the record
  std::vector<std::uint64_t> lengths_;                             ///< of each variable: steps that have it
  std::uint64_t steps_ = 0;
  SinkCounters counters_;
};

Result<void> Bp5FileSink::apply(const Schema& schema) {
  ADVECTIO_TRY(fits_bp5_file(schema));
  schema_ = schema;
  lengths_.resize(schema.variables.size(), 0);
  if (!writer_) ADVECTIO_TRY(open_writer());
  return writer_->declare(schema);
}

Result<void> Bp5FileSink::open_writer() {
  adios2::EngineSetup setup;
  setup.type = "BP5";
  setup.name = path();
  setup.parameters = {{"AsyncOpen", "false"}, {"AsyncWrite", "false"}, {"MinDeferredSize", "65536"}};
  setup.compression = compression_;
  auto writer = StepWriter::open(setup);
  if (!writer) return std::move(writer).error();
  writer_ = std::move(writer).value();
  return {};
}

Result<void> Bp5FileSink::take(const std::shared_ptr<const Field>& field, const Part& part) {
  const auto number = field->variable();
  if (number >= schema_.variables.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
  const auto& v = schema_.variables[number];
  ADVECTIO_TRY(check(part, v, [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
  if (!part.dense()) return Error{Code::bug, "variable " + v.name + ": a part with strides", 0};
  counters_.bytes_in += part.box.volume() * size_of(v.type);
  if (!adios2::has_records(schema_, v)) {
    pieces_.push_back({number, std::nullopt, field, part.box});
    return {};
  }
  for (std::uint64_t i = 0; i < part.box.count[0]; ++i) {
    auto box = part.box;
    box.start[0] += i;
    box.count[0] = 1;
    const auto record = box.start[0];
    pieces_.push_back({number, record, field, std::move(box)});
  }
  return {};
}

/// ADIOS2 is not left with half of a step where that can be known before.
Result<void> Bp5FileSink::has_room() const {
  if (!compression_.type.empty()) return {};
  const auto free = files_.free_bytes(path());
  if (!free) return free.error();
  std::uint64_t needed = 64ULL << 10;  // and what ADIOS2 says about it
  for (const auto& p : pieces_) needed += p.box.volume() * size_of(p.field->type());
  if (*free < needed) return system_error("write " + path(), ENOSPC);
  return {};
}

Result<void> Bp5FileSink::next_step() {
  if (writer_->in_step()) ADVECTIO_TRY(writer_->end_step());
  in_step_.clear();
  ++steps_;
  return writer_->begin_step();
}

Result<void> Bp5FileSink::put(const Piece& piece) {
  const auto out_of_order = [&] {
    return Error{Code::bug, "variable " + schema_.variables[piece.variable].name + " does not come in order", 0};
  };
  if (!is_in_step(piece)) {
    if (!writer_->in_step() || in_step_.contains(piece.variable)) ADVECTIO_TRY(next_step());
    auto& length = lengths_[piece.variable];
    if (length != piece.record.value_or(0)) return out_of_order();
    ++length;
    in_step_[piece.variable] = piece.record;
  }
  return writer_->put({piece.variable, piece.field, piece.box, {Part(piece.box)}});
}

Result<void> Bp5FileSink::commit(bool last) {
  if (!writer_) ADVECTIO_TRY(open_writer());
  ADVECTIO_TRY(has_room());
  // What the step under way lacks, then record by record.
  const auto when = [this](const Piece& p) { return !p.record || is_in_step(p) ? 0 : *p.record + 1; };
  std::vector<std::pair<std::uint64_t, const Piece*>> order;
  for (const auto& p : pieces_) order.emplace_back(when(p), &p);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, piece] : order) ADVECTIO_TRY(put(*piece));
  ADVECTIO_TRY(writer_->flush());
  pieces_.clear();
  if (last && steps_ == 0) ADVECTIO_TRY(next_step());  // a file without a step is none to readers
  if (last && writer_->in_step()) ADVECTIO_TRY(writer_->end_step());
  counters_.bytes_out = writer_->bytes();
  return {};
}

Result<void> Bp5FileSink::leave() {
  ADVECTIO_TRY(writer_->close());
  ADVECTIO_TRY(files_.remove(path() + "/profiling.json"));
  adios2::CommittedSteps committed;
  for (const auto& v : schema_.variables) committed.variables.push_back(v.name);
  auto bytes = adios2::bytes_of_files(files_, path());
  if (!bytes) return std::move(bytes).error();
  committed.now = {steps_, 1, lengths_, std::move(bytes).value()};
  ADVECTIO_TRY(adios2::write_committed(files_, path(), committed, false));
  closed();
  return {};
}

void Bp5FileSink::drop() noexcept {
  pieces_.clear();
  // The destructor of ADIOS2's engine ends the step, and the process where it cannot.
  if (writer_ && writer_->in_step()) adios2::leave_for_ever(std::move(writer_));
  writer_.reset();
}

}  // namespace

Result<void> fits_bp5_file(const Schema& schema) {
  ADVECTIO_TRY(can_carry(bp5_abilities(), schema));
  ADVECTIO_TRY(adios2::can_append(schema));
  for (const auto& d : schema.dimensions)
    if (d.name.find(' ') != std::string::npos)
      return Error{Code::unsupported,
                   "dimension '" + d.name + "' has a space in its name; spaces separate the names in a BP file", 0};
  return {};
}

Result<std::unique_ptr<Sink>> open_bp5_file(Files& files, const std::string& path, adios2::Compression compression) {
  ADVECTIO_TRY_WITH(adios2::can_compress(compression), path);
  return std::unique_ptr<Sink>(std::make_unique<Bp5FileSink>(files, path, std::move(compression)));
}

}  // namespace advectio
