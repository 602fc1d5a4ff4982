#include "apps/advectiod/join.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/advectiod/boxes.h"
#include "apps/advectiod/new_file.h"
#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/open_source.h"
#include "core/executor.h"
#include "core/field.h"
#include "core/placement.h"
#include "core/placement_by_coordinates.h"
#include "platform/machine.h"
#include "server/stored_schema.h"
#include "sources/source_readers.h"

namespace advectio {
namespace {

/// A piece, and what has been read of it.
struct ReadPiece {
  Piece piece;
  std::span<const std::byte> data;
};

class Join {
 public:
  Join(const JoinRequest& request, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
       const std::atomic<bool>& stop)
      : request_(request), progress_(progress), stop_(stop) {}

  Result<JoinReport> run();

 private:
  Result<void> look_at_tiles();
  Result<void> place_by_values(std::vector<Tile>& tiles) const;
  Result<void> same_frames(const std::map<std::string, std::vector<std::uint64_t>>& lengths) const;
  Result<void> open_output();
  Result<void> write_all();
  Result<void> write_variable(std::uint32_t v, std::uint64_t first, std::uint64_t records);
  Result<void> read(std::uint32_t v, std::vector<ReadPiece>& parts);
  Result<void> read_alone(std::uint32_t v, ReadPiece& part);
  Result<void> make_room(std::uint64_t bytes);
  Result<void> disagree(std::uint32_t v, std::size_t one, std::size_t other);
  Result<void> finish();

  [[nodiscard]] std::uint64_t length_of(std::uint32_t dimension) const { return lengths_[dimension]; }
  [[nodiscard]] bool by_records(const Variable& v) const {
    return !v.dimensions.empty() && schema_.dimensions[v.dimensions[0]].unlimited;
  }
  [[nodiscard]] std::uint64_t frames() const;
  [[nodiscard]] std::uint64_t bytes_of_all() const;
  void select_records(const Variable& v, std::uint64_t first, std::uint64_t records, Box& box) const;

  const JoinRequest& request_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  const std::atomic<bool>& stop_;
  std::vector<std::string> paths_;      // of tiles, in the order of `whole_`'s pieces
  std::vector<std::uint64_t> lengths_;  // of their dimensions; of unlimited ones it is the same in all
  std::string model_;
  Whole whole_;
  Schema schema_;  // as stored
  std::unique_ptr<SourceReaders> readers_;
  std::uint64_t filled_ = 0;  // of the memory shared with them; the sink has borrowed it until it commits
  std::deque<Bytes> held_;    // the same, of what has not gone through them
  std::uint64_t held_bytes_ = 0, done_ = 0, of_ = 0;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<NewFile> output_;
  std::unique_ptr<Sink> sink_;
  Frame frame_;  // what is in memory and not committed
  std::vector<std::string> disagreements_;
};

Error no_tile(const std::string& path) {
  return Error{Code::invalid,
               path +
                   " is not a tile of split output: it has none of the attributes that say where a tile lies "
                   "(WRF's …_PATCH_START_…, SCALE's size_global of axes, NEMO's DOMAIN_position_first, FMS's "
                   "domain_decomposition, MITgcm's tile_number), and its coordinates are held against those of no "
                   "other tile",
               0};
}

template <typename T>
std::vector<double> as_doubles(const Bytes& data) {
  std::vector<double> out(data.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value{};
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<double>(value);
  }
  return out;
}

std::vector<double> as_doubles(const Bytes& data, DataType type) {
  switch (type) {
    case DataType::int8: return as_doubles<std::int8_t>(data);
    case DataType::uint8: return as_doubles<std::uint8_t>(data);
    case DataType::int16: return as_doubles<std::int16_t>(data);
    case DataType::uint16: return as_doubles<std::uint16_t>(data);
    case DataType::int32: return as_doubles<std::int32_t>(data);
    case DataType::uint32: return as_doubles<std::uint32_t>(data);
    case DataType::int64: return as_doubles<std::int64_t>(data);
    case DataType::uint64: return as_doubles<std::uint64_t>(data);
    case DataType::float32: return as_doubles<float>(data);
    case DataType::float64: return as_doubles<double>(data);
    default: return {};
  }
}

/// By the values of their coordinate variables, where no attributes say the place.
Result<void> Join::place_by_values(std::vector<Tile>& tiles) const {
  std::vector<UnplacedTile> unplaced;
  for (const auto& tile : tiles) {
    if (stop_) return Error{Code::gone, "interrupted", 0};
    auto file = open_source(tile.name);
    if (!file) return std::move(file).error();
    auto& u = unplaced.emplace_back(UnplacedTile{tile.name, tile.schema, {}});
    u.coordinates.resize(tile.schema.dimensions.size());
    for (std::size_t d = 0; d < tile.schema.dimensions.size(); ++d) {
      const auto v = coordinate_of(tile.schema, d);
      if (!v) continue;
      const auto type = tile.schema.variables[*v].type;
      const auto length = tile.schema.dimensions[d].length;
      Bytes data(length * size_of(type));
      ADVECTIO_TRY((*file)->read(*v, {{0}, {length}}, data.data()));
      u.coordinates[d] = as_doubles(data, type);
    }
  }
  auto placements = place_by_coordinates(unplaced);
  if (!placements) return std::move(placements).error();
  for (std::size_t t = 0; t < tiles.size(); ++t) tiles[t].placement = std::move((*placements)[t]);
  return {};
}

Result<void> Join::look_at_tiles() {
  std::vector<Tile> tiles;
  std::map<std::string, std::vector<std::uint64_t>> lengths;
  std::vector<std::string> placed, unplaced;  // by their attributes
  for (const auto& path : request_.tiles) {
    if (lengths.contains(path)) continue;
    if (stop_) return Error{Code::gone, "interrupted", 0};
    auto file = open_source(path);
    if (!file) return std::move(file).error();
    auto head = (*file)->head();
    if (!head) return std::move(head).error();
    auto placement = placement_of(head->schema);
    if (!placement) return std::move(placement).error().with(path);
    tiles.push_back({path, std::move(head->schema), placement->value_or(Placement())});
    lengths.emplace(path, std::move(head->lengths));
    (*placement ? placed : unplaced).push_back(path);
  }
  if (!unplaced.empty()) {
    if (!placed.empty() || unplaced.size() == 1) return no_tile(unplaced.front());
    ADVECTIO_TRY(place_by_values(tiles));
  }
  auto whole = join_tiles(tiles);
  if (!whole) return std::move(whole).error();
  whole_ = std::move(whole).value();
  model_ = name_of(tiles.front().placement.kind);
  for (const auto& t : tiles) paths_.push_back(t.name);
  lengths_ = lengths.at(paths_.front());
  return same_frames(lengths);
}

Result<void> Join::same_frames(const std::map<std::string, std::vector<std::uint64_t>>& lengths) const {
  for (const auto& [path, its] : lengths)
    for (std::size_t d = 0; d < its.size(); ++d)
      if (whole_.schema.dimensions[d].unlimited && its[d] != lengths_[d])
        return Error{Code::invalid,
                     path + " has " + std::to_string(its[d]) + " records of " + whole_.schema.dimensions[d].name +
                         ", " + paths_.front() + " has " + std::to_string(lengths_[d]),
                     0};
  return {};
}

Result<void> Join::open_output() {
  auto stored = as_stored(whole_.schema, request_.policy);
  if (!stored) return std::move(stored).error().with(request_.output);
  schema_ = std::move(stored).value();
  if (is_store(schema_.format))
    return Error{Code::unsupported,
                 request_.output + ": files on the disk are joined to a netCDF file, not to " +
                     std::string(name_of(schema_.format)) + "; give it a rule with another format",
                 0};
  // A classic file does not say whether it was filled before it was written; where every point is written it need not.
  if (!is_hdf5(schema_.format))
    for (auto& v : schema_.variables) v.no_fill = whole_.land_points == 0;
  for (const auto& path : paths_)
    if (std::error_code none; std::filesystem::equivalent(path, request_.output, none))
      return Error{Code::exists, request_.output + " is one of the tiles", 0};
  auto output = NewFile::begin(system_files(), request_.output, request_.replace);
  if (!output) return std::move(output).error();
  output_ = std::move(output).value();
  executor_ = std::make_unique<Executor>(request_.threads);
  auto sink = open_sink({output_->path(), schema_.format, request_.policy, false},
                        {std::make_shared<MemoryBudget>(request_.memory_max)}, *executor_, nullptr);
  if (!sink) return std::move(sink).error().with(request_.output);
  sink_ = std::move(sink).value();
  ADVECTIO_TRY_WITH(sink_->declare(schema_), request_.output);
  frame_.declare(schema_);
  ADVECTIO_TRY_WITH(sink_->begin(1), request_.output);
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

/// Room for one variable more. After a commit the sink no longer reads what was given to it.
Result<void> Join::make_room(std::uint64_t bytes) {
  const bool fits = bytes > readers_->bytes() || filled_ + bytes <= readers_->bytes();
  if (fits && held_bytes_ < request_.memory_max) return {};
  ADVECTIO_TRY_WITH(sink_->checkpoint(), request_.output);
  frame_.clear();
  held_.clear();
  held_bytes_ = filled_ = 0;
  return {};
}

Result<void> Join::read_alone(std::uint32_t v, ReadPiece& part) {
  auto opened = open_source(paths_[part.piece.tile]);
  if (!opened) return std::move(opened).error();
  const auto& file = **opened;
  const auto type = schema_.variables[v].type;
  Bytes data(part.piece.from.volume() * size_of(type));
  if (type != DataType::string) {
    ADVECTIO_TRY(file.read(v, part.piece.from, data.data()));
  } else {
    auto strings = file.read_strings(v, part.piece.from);
    if (!strings) return std::move(strings).error();
    data = std::move(strings).value();
  }
  held_bytes_ += data.size();
  part.data = held_.emplace_back(std::move(data));
  return {};
}

/// Through the readers where it all fits the memory they share with us.
Result<void> Join::read(std::uint32_t v, std::vector<ReadPiece>& parts) {
  const auto element = size_of(schema_.variables[v].type);
  std::uint64_t bytes = 0;
  for (const auto& part : parts) bytes += aligned(part.piece.from.volume() * element);
  ADVECTIO_TRY(make_room(bytes));
  if (element == 0 || bytes > readers_->bytes()) {
    for (auto& part : parts) ADVECTIO_TRY(read_alone(v, part));
    return {};
  }
  std::vector<SourceReaders::Request> requests;
  requests.reserve(parts.size());
  for (auto& part : parts) {
    const auto size = part.piece.from.volume() * element;
    requests.push_back({part.piece.tile, paths_[part.piece.tile], v, part.piece.from, filled_});
    part.data = {readers_->memory() + filled_, size};
    filled_ += aligned(size);
  }
  return readers_->read(requests, stop_);
}

Result<void> Join::disagree(std::uint32_t v, std::size_t one, std::size_t other) {
  const auto& name = schema_.variables[v].name;
  if (!request_.take_first)
    return Error{Code::invalid,
                 paths_[one] + " and " + paths_[other] + " disagree about " + name +
                     ", which is neither's own: they are of different times or runs (--take-first takes the first "
                     "tile's)",
                 0};
  if (std::find(disagreements_.begin(), disagreements_.end(), name) == disagreements_.end())
    disagreements_.push_back(name);
  return {};
}

/// `records` from `first` on, where the variable has records.
Result<void> Join::write_variable(std::uint32_t v, std::uint64_t first, std::uint64_t records) {
  if (stop_) return Error{Code::gone, "interrupted", 0};
  std::vector<ReadPiece> parts;
  parts.reserve(whole_.pieces[v].size());
  for (auto piece : whole_.pieces[v]) {
    select_records(schema_.variables[v], first, records, piece.from);
    select_records(schema_.variables[v], first, records, piece.to);
    parts.push_back({std::move(piece), {}});
  }
  ADVECTIO_TRY(read(v, parts));
  const ReadPiece* owner = nullptr;
  for (const auto& part : parts) {
    if (part.piece.repeated) {
      if (!std::ranges::equal(part.data, owner->data)) ADVECTIO_TRY(disagree(v, part.piece.tile, owner->piece.tile));
      continue;
    }
    owner = &part;
    done_ += part.data.size();
    auto field = frame_.add({v, part.piece.to, {}, part.data.data(), part.data.size(), nullptr});
    if (!field) return std::move(field).error().with(request_.output);
    ADVECTIO_TRY_WITH(sink_->ready(*field, part.piece.to), request_.output);
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
  allow_open_files();  // readers keep their tiles open
  // Before there are threads and open files.
  auto readers = SourceReaders::start(std::min<std::size_t>(request_.threads, request_.tiles.size()),
                                      request_.memory_max, open_source);
  if (!readers) return std::move(readers).error();
  readers_ = std::move(readers).value();
  ADVECTIO_TRY(look_at_tiles());
  ADVECTIO_TRY(open_output());
  if (auto written = write_all(); !written) {
    sink_->abandon();
    return std::move(written).error();
  }
  ADVECTIO_TRY(finish());
  JoinReport report;
  report.model = model_;
  report.format = name_of(schema_.format);
  report.tiles = paths_.size();
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
