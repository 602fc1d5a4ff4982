#include "sources/grib/grib_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "platform/files.h"
#include "sources/grib/dataset.h"
#include "sources/grib/library.h"
#include "sources/grib/messages.h"

namespace advectio {
namespace {

using grib::Dataset;
using grib::Field;

/// Which file it was, and whether somebody has written it since.
struct Identity {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const Identity&) const = default;
};

Result<Identity> identity_of(const File& file) {
  struct stat s {};
  if (::fstat(file.descriptor(), &s) != 0) return system_error("look at " + file.path(), errno);
  return Identity{file.path(), s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec};
}

/// Headers of the files that were opened last: a command opens each several times, and so do the processes that read
/// for it. Used under `eccodes_mutex`.
struct Remembered {
  Identity identity;
  std::shared_ptr<const Dataset> dataset;
};
constexpr std::size_t fields_remembered_max = 1'000'000;

std::list<Remembered>& remembered() {
  static std::list<Remembered> all;
  return all;
}

Result<std::shared_ptr<const Dataset>> dataset_of(File& file) {
  auto identity = identity_of(file);
  if (!identity) return std::move(identity).error();
  auto& all = remembered();
  for (auto it = all.begin(); it != all.end(); ++it)
    if (it->identity == *identity) return it->dataset;
  auto dataset = grib::read_dataset(file);
  if (!dataset) return std::move(dataset).error().with(file.path());
  all.push_back({std::move(identity).value(), *dataset});
  std::size_t fields = 0;
  for (const auto& r : all) fields += r.dataset->contents.fields.size();
  for (; fields > fields_remembered_max && all.size() > 1; all.pop_front())
    fields -= all.front().dataset->contents.fields.size();
  return dataset;
}

template <typename T>
Bytes converted(const std::vector<double>& values, double missing) {
  T fill{};
  std::memcpy(&fill, default_fill(sizeof(T) == 4 ? DataType::float32 : DataType::float64).data(), sizeof fill);
  Bytes out(values.size() * sizeof(T));
  auto* to = out.data();
  for (const auto value : values) {
    const T x = value == missing ? fill : static_cast<T>(value);
    std::memcpy(to, &x, sizeof x);
    to += sizeof x;
  }
  return out;
}

class GribSource final : public Source {
 public:
  GribSource(std::unique_ptr<File> file, std::shared_ptr<const Dataset> dataset)
      : file_(std::move(file)), dataset_(std::move(dataset)) {}

  [[nodiscard]] Result<SourceHead> head() const override { return dataset_->head; }
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const override;
  [[nodiscard]] Result<Bytes> read_strings(std::uint32_t /*variable*/, const Box& /*box*/) const override {
    return Error{Code::bug, file_->path() + " has no strings", 0};
  }

 private:
  [[nodiscard]] Result<const Bytes*> values_of(std::uint32_t field, DataType type) const;
  Result<Bytes> decode(const Field& field, DataType type) const;

  std::unique_ptr<File> file_;
  std::shared_ptr<const Dataset> dataset_;
  /// The field that was decoded last: a box may hold a part of it, and the next one another.
  mutable std::optional<std::uint32_t> decoded_;
  mutable Bytes values_;
};

Result<Bytes> GribSource::decode(const Field& field, DataType type) const {
  // A number that no field has in place of the library's own choice for points without a value, 9999.
  constexpr double missing = 1.7e308;
  const auto& quantity = dataset_->contents.quantities[field.quantity];
  auto bytes = grib::field_bytes(*file_, field.place, false);
  if (!bytes) return std::move(bytes).error();
  auto message = grib::Message::decode(std::move(bytes).value());
  if (!message) return std::move(message).error();
  if (!message->set("missingValue", missing))
    return Error{Code::corrupt, "ecCodes cannot mark its points without a value", 0};
  auto values = message->numbers("values");
  if (!values) return std::move(values).error();
  if (values->size() != quantity.points)
    return Error{Code::corrupt,
                 "has " + std::to_string(values->size()) + " values for " + std::to_string(quantity.points) + " points",
                 0};
  return type == DataType::float32 ? converted<float>(*values, missing) : converted<double>(*values, missing);
}

Result<const Bytes*> GribSource::values_of(std::uint32_t field, DataType type) const {
  if (decoded_ == field) return &values_;
  decoded_.reset();
  const std::lock_guard lock(grib::eccodes_mutex());
  const auto& f = dataset_->contents.fields[field];
  auto values = decode(f, type);
  if (!values)
    return std::move(values).error().with(file_->path() + ": " + grib::text_of(f.place) + ", " +
                                          grib::text_of(f, dataset_->contents.quantities[f.quantity]));
  values_ = std::move(values).value();
  decoded_ = field;
  return &values_;
}

Result<void> GribSource::read(std::uint32_t variable, const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  const auto& stored = dataset_->stored[variable];
  const auto& v = dataset_->head.schema.variables[variable];
  const auto element = size_of(v.type);
  std::vector<std::uint64_t> lengths;
  for (const auto d : v.dimensions) lengths.push_back(dataset_->head.lengths[d]);
  if (stored.leading == 0) {
    copy_part(box, stored.values->data(), {std::vector<std::uint64_t>(lengths.size(), 0), lengths}, to, box, element);
    return {};
  }
  const auto split = [&](const std::vector<std::uint64_t>& all, bool first) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(stored.leading);
    return first ? std::vector(all.begin(), at) : std::vector(at, all.end());
  };
  const Box outer{split(box.start, true), split(box.count, true)},
      inner{split(box.start, false), split(box.count, false)};
  const auto outer_lengths = split(lengths, true), inner_lengths = split(lengths, false);
  const Box whole{std::vector<std::uint64_t>(inner_lengths.size(), 0), inner_lengths};
  const auto fill = default_fill(v.type);
  const auto inner_bytes = inner.volume() * element;
  auto at = outer.start;
  for (std::uint64_t i = 0; i < outer.volume(); ++i, to += inner_bytes) {
    std::uint64_t place = 0;
    for (std::size_t d = 0; d < at.size(); ++d) place = place * outer_lengths[d] + at[d];
    if (const auto field = stored.fields[place]; field == grib::no_field) {
      for (std::uint64_t b = 0; b < inner_bytes; b += element) std::memcpy(to + b, fill.data(), element);
    } else {
      auto values = values_of(field, v.type);
      if (!values) return std::move(values).error();
      copy_part(inner, (*values)->data(), whole, to, inner, element);
    }
    for (auto d = at.size(); d-- > 0;) {
      if (++at[d] < outer.start[d] + outer.count[d]) break;
      at[d] = outer.start[d];
    }
  }
  return {};
}

}  // namespace

bool is_grib(const std::string& path) {
  auto file = system_files().open(path, OpenMode::read);
  if (!file) return false;
  const auto size = (*file)->size();
  if (!size) return false;
  Bytes first(std::min<std::uint64_t>(*size, grib::first_bytes_max));
  return (*file)->read(0, first) && grib::begins_with_message(first);
}

Result<std::unique_ptr<Source>> open_grib_source(const std::string& path) {
  const std::lock_guard lock(grib::eccodes_mutex());
  if (auto library = grib::library(); !library) return std::move(library).error().with(path);
  auto file = system_files().open(path, OpenMode::read);
  if (!file) return std::move(file).error();
  auto dataset = dataset_of(**file);
  if (!dataset) return std::move(dataset).error();
  return std::unique_ptr<Source>(std::make_unique<GribSource>(std::move(file).value(), std::move(dataset).value()));
}

}  // namespace advectio
