#include "apps/advectiod/join.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/advectiod/new_file.h"
#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/tile_file.h"
#include "core/executor.h"
#include "core/placement.h"
#include "server/storage.h"

namespace advectio {
namespace {

/// All tiles are open at once.
void allow_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

class Join {
 public:
  Join(const JoinRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
       const std::atomic<bool>& stop)
      : request_(request), progress_(progress), stop_(stop) {}

  Result<JoinReport> run();

 private:
  Result<void> open_tiles();
  Result<void> same_frames() const;
  Result<void> open_output();
  Result<void> write_all();
  Result<void> write_variable(std::uint32_t v, std::uint64_t first, std::uint64_t records);
  Result<Bytes> read(std::uint32_t v, const Piece& piece) const;
  Result<void> disagree(std::uint32_t v, std::size_t one, std::size_t other);
  Result<void> finish();

  [[nodiscard]] std::uint64_t length_of(std::uint32_t dimension) const { return files_.front()->lengths()[dimension]; }
  [[nodiscard]] bool by_records(const Variable& v) const {
    return !v.dimensions.empty() && schema_.dimensions[v.dimensions[0]].unlimited;
  }
  [[nodiscard]] std::uint64_t frames() const;
  [[nodiscard]] std::uint64_t bytes_of_all() const;
  void select_records(const Variable& v, std::uint64_t first, std::uint64_t records, Box& box) const;

  const JoinRequest& request_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  const std::atomic<bool>& stop_;
  std::vector<std::unique_ptr<TileFile>> files_;  // in the order of `whole_`'s pieces
  std::string model_;
  Whole whole_;
  Schema schema_;  // as stored
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<NewFile> output_;
  std::unique_ptr<Sink> sink_;
  std::deque<Bytes> held_;  // what the sink has borrowed
  std::uint64_t held_bytes_ = 0, done_ = 0, of_ = 0;
  std::vector<std::string> disagreements_;
};

Result<void> Join::open_tiles() {
  allow_open_files();
  std::vector<Tile> tiles;
  std::map<std::string, std::unique_ptr<TileFile>> by_name;
  for (const auto& path : request_.tiles) {
    if (by_name.contains(path)) continue;
    auto file = TileFile::open(path);
    if (!file) return std::move(file).error();
    auto placement = placement_of((*file)->schema());
    if (!placement) return std::move(placement).error().with(path);
    if (!*placement)
      return Error{Code::invalid,
                   path +
                       " is not a tile of split output: it has none of the attributes that say where a tile lies "
                       "(WRF's …_PATCH_START_…, SCALE's size_global of axes, NEMO's DOMAIN_position_first)",
                   0};
    tiles.push_back({path, (*file)->schema(), **placement});
    by_name.emplace(path, std::move(file).value());
  }
  auto whole = join_tiles(tiles);
  if (!whole) return std::move(whole).error();
  whole_ = std::move(whole).value();
  model_ = name_of(tiles.front().placement.kind);
  for (const auto& t : tiles) files_.push_back(std::move(by_name.at(t.name)));
  return same_frames();
}

Result<void> Join::same_frames() const {
  const auto& first = *files_.front();
  for (const auto& file : files_)
    for (std::uint32_t d = 0; d < first.schema().dimensions.size(); ++d)
      if (first.schema().dimensions[d].unlimited && file->lengths()[d] != first.lengths()[d])
        return Error{Code::invalid,
                     file->path() + " has " + std::to_string(file->lengths()[d]) + " records of " +
                         first.schema().dimensions[d].name + ", " + first.path() + " has " +
                         std::to_string(first.lengths()[d]),
                     0};
  return {};
}

Result<void> Join::open_output() {
  auto stored = as_stored(whole_.schema, request_.policy);
  if (!stored) return std::move(stored).error().with(request_.output);
  schema_ = std::move(stored).value();
  // A classic file does not say whether it was filled before it was written; where every point is written it need not.
  if (!is_hdf5(schema_.format))
    for (auto& v : schema_.variables) v.no_fill = whole_.land_points == 0;
  for (const auto& file : files_)
    if (std::error_code none; std::filesystem::equivalent(file->path(), request_.output, none))
      return Error{Code::exists, request_.output + " is one of the tiles", 0};
  auto output = NewFile::begin(system_files(), request_.output, request_.replace);
  if (!output) return std::move(output).error();
  output_ = std::move(output).value();
  executor_ = std::make_unique<Executor>(request_.threads);
  auto sink = open_sink({output_->path(), schema_.format, request_.policy, false},
                        std::make_shared<MemoryBudget>(request_.memory_max), *executor_);
  if (!sink) return std::move(sink).error().with(request_.output);
  sink_ = std::move(sink).value();
  ADVECTIO_TRY_WITH(sink_->declare(schema_), request_.output);
  return {};
}

std::uint64_t Join::frames() const {
  std::uint64_t most = 0;
  for (const auto& v : schema_.variables)
    if (by_records(v)) most = std::max(most, length_of(v.dimensions[0]));
  return most;
}

/// A piece as `join_tiles` gives it has one record along unlimited dimensions; those that are not the first are taken
/// whole.
void Join::select_records(const Variable& v, std::uint64_t first, std::uint64_t records, Box& box) const {
  for (std::size_t i = 0; i < v.dimensions.size(); ++i) {
    if (!schema_.dimensions[v.dimensions[i]].unlimited) continue;
    box.start[i] = i == 0 ? first : 0;
    box.count[i] = i == 0 ? records : length_of(v.dimensions[i]);
  }
}

std::uint64_t Join::bytes_of_all() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < schema_.variables.size(); ++i) {
    const auto& v = schema_.variables[i];
    for (const auto& piece : whole_.pieces[i]) {
      auto box = piece.to;
      select_records(v, 0, by_records(v) ? length_of(v.dimensions[0]) : 1, box);
      if (!piece.repeated) sum += box.volume() * size_of(v.type);
    }
  }
  return sum;
}

Result<Bytes> Join::read(std::uint32_t v, const Piece& piece) const {
  const auto& file = *files_[piece.tile];
  const auto type = schema_.variables[v].type;
  if (type == DataType::string) return file.read_strings(v, piece.from);
  Bytes data(piece.from.volume() * size_of(type));
  ADVECTIO_TRY(file.read(v, piece.from, data.data()));
  return data;
}

Result<void> Join::disagree(std::uint32_t v, std::size_t one, std::size_t other) {
  const auto& name = schema_.variables[v].name;
  if (!request_.take_first)
    return Error{Code::invalid,
                 files_[one]->path() + " and " + files_[other]->path() + " disagree about " + name +
                     ", which is neither's own: they are of different times or runs (--take-first takes the first "
                     "tile's)",
                 0};
  if (std::find(disagreements_.begin(), disagreements_.end(), name) == disagreements_.end())
    disagreements_.push_back(name);
  return {};
}

/// `records` from `first` on, where the variable has records. The sink keeps what it is given until the next commit.
Result<void> Join::write_variable(std::uint32_t v, std::uint64_t first, std::uint64_t records) {
  const Bytes* before = nullptr;
  std::size_t owner = 0;
  for (auto piece : whole_.pieces[v]) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    select_records(schema_.variables[v], first, records, piece.from);
    select_records(schema_.variables[v], first, records, piece.to);
    auto data = read(v, piece);
    if (!data) return std::move(data).error();
    if (piece.repeated) {
      if (before != nullptr && *data != *before) ADVECTIO_TRY(disagree(v, piece.tile, owner));
      continue;
    }
    before = &held_.emplace_back(std::move(data).value());
    owner = piece.tile;
    held_bytes_ += before->size();
    done_ += before->size();
    ADVECTIO_TRY_WITH(sink_->write({v, piece.to, {}, before->data(), before->size()}), request_.output);
  }
  return {};
}

Result<void> Join::write_all() {
  of_ = bytes_of_all();
  const auto last = std::max<std::uint64_t>(1, frames());
  for (std::uint64_t frame = 0; frame < last; ++frame) {
    for (std::uint32_t v = 0; v < schema_.variables.size(); ++v) {
      const auto& variable = schema_.variables[v];
      const bool records = by_records(variable);
      // A chunk that reaches over several records is made once, of all of them.
      const auto step = records && !variable.contiguous ? std::max<std::uint64_t>(1, variable.chunks[0]) : 1;
      const auto length = records ? length_of(variable.dimensions[0]) : 1;
      if (frame >= length || frame % step != 0) continue;
      ADVECTIO_TRY(write_variable(v, frame, std::min(step, length - frame)));
      progress_(done_, of_);
      if (held_bytes_ < request_.memory_max) continue;
      ADVECTIO_TRY_WITH(sink_->commit(), request_.output);
      held_.clear();
      held_bytes_ = 0;
    }
  }
  return {};
}

Result<void> Join::finish() {
  ADVECTIO_TRY_WITH(sink_->close(), request_.output);
  ADVECTIO_TRY_WITH(sink_->make_durable()(), request_.output);
  ADVECTIO_TRY(output_->finish());
  return {};
}

Result<JoinReport> Join::run() {
  ADVECTIO_TRY(open_tiles());
  ADVECTIO_TRY(open_output());
  if (auto written = write_all(); !written) {
    sink_->abandon();
    return std::move(written).error();
  }
  ADVECTIO_TRY(finish());
  JoinReport report;
  report.model = model_;
  report.format = name_of(schema_.format);
  report.tiles = files_.size();
  report.variables = schema_.variables.size();
  report.frames = frames();
  report.bytes = of_;
  report.bytes_written = sink_->counters().bytes_out;
  report.land_points = whole_.land_points;
  report.disagreements = disagreements_;
  return report;
}

}  // namespace

Result<JoinReport> join(const JoinRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                        const std::atomic<bool>& stop) {
  return Join(request, progress, stop).run();
}

}  // namespace advectio
