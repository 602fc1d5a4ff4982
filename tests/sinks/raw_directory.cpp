#include "sinks/raw_directory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "sinks/transaction/transactional_sink.h"

namespace advectio::testing {

namespace {

using nlohmann::json;

std::string file_name(const std::string& path, std::uint64_t commit, const std::string& what) {
  std::string number(6, '0');
  (void)std::snprintf(number.data(), number.size() + 1, "%06u", static_cast<unsigned>(commit % 1'000'000));
  return path + '/' + number + '.' + what;
}

/// Of the commit that a name belongs to; 0: the file is not ours.
std::uint64_t number_of(const std::string& name) {
  return std::strtoull(name.c_str(), nullptr, 10);
}

class RawDirectory final : public TransactionalSink {
 public:
  RawDirectory(Files& files, const std::string& path) : TransactionalSink(path), files_(files) {}
  ~RawDirectory() override { abandon(); }

  /// What no commit has named is of a process that died.
  Result<void> open(bool resume) {
    auto names = files_.list(path());
    if (!names) return std::move(names).error();
    for (const auto& name : *names)
      if (resume && name.ends_with(".json")) commits_ = std::max(commits_, number_of(name));
    for (const auto& name : *names)
      if (number_of(name) > commits_) ADVECTIO_TRY(files_.remove(path() + '/' + name));
    return {};
  }

  [[nodiscard]] Abilities abilities() const override { return raw_directory_abilities(); }

  std::function<Result<void>()> make_durable() override {
    return [&files = files_, path = path(), names = std::exchange(committed_, {})]() -> Result<void> {
      for (const auto& name : names) ADVECTIO_TRY(advectio::make_durable(files, name));
      return advectio::make_durable(files, path);
    };
  }

  [[nodiscard]] SinkCounters counters() const override { return counters_; }

 private:
  /// The values of one variable in the commit under way.
  struct Values {
    std::unique_ptr<File> file;
    std::uint64_t bytes = 0;
    json parts = json::array();
  };

  Result<void> apply(const Schema& schema) override {
    schema_ = schema;
    schema_changed_ = true;
    return {};
  }

  Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) override {
    const auto number = field->variable();
    if (number >= schema_.variables.size()) return Error{Code::invalid, "no variable " + std::to_string(number), 0};
    ADVECTIO_TRY(check(part, schema_.variables[number],
                       [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
    if (part.box.empty()) return {};

    // The values: where they lie already, or gathered. Strings are kept as a block has them.
    Bytes gathered;
    auto values = field->view(part);
    if (field->type() == DataType::string) {
      std::vector<String> strings(part.box.volume());
      field->read(part, strings);
      Encoder encoder(gathered);
      for (const auto& s : strings) encoder.string(s);
      values = gathered;
    } else if (values.empty()) {
      gathered.resize(part.box.volume() * size_of(field->type()));
      field->read(part, gathered.data());
      values = gathered;
    }

    auto& to = values_[number];
    if (!to.file) {
      auto file = files_.open(new_name(std::to_string(number) + ".raw"), OpenMode::create);
      if (!file) return std::move(file).error();
      to.file = std::move(file).value();
    }
    ADVECTIO_TRY(to.file->write(to.bytes, values));
    to.parts.push_back({{"start", part.box.start},
                        {"count", part.box.count},
                        {"stride", part.stride},
                        {"at", to.bytes},
                        {"bytes", values.size()}});
    to.bytes += values.size();
    counters_.bytes_in += values.size();
    counters_.bytes_out += values.size();
    return {};
  }

  Result<void> commit(bool) override {
    if (values_.empty() && !schema_changed_) return {};
    json head = {{"frame", frame()}, {"variables", json::array()}};
    for (const auto& [number, values] : values_)
      head["variables"].push_back(
          {{"number", number}, {"name", schema_.variables[number].name}, {"parts", values.parts}});
    if (schema_changed_) ADVECTIO_TRY(put(new_name("schema"), encode(schema_)));
    const auto text = head.dump(1);
    const auto bytes = std::as_bytes(std::span(text));
    const auto made = new_name("part"), name = file_name(path(), commits_ + 1, "json");
    ADVECTIO_TRY(put(made, bytes));
    ADVECTIO_TRY(files_.rename(made, name));
    // From here on the commit has happened.
    new_names_.back() = name;
    committed_.insert(committed_.end(), new_names_.begin(), new_names_.end());
    new_names_.clear();
    values_.clear();
    schema_changed_ = false;
    ++commits_;
    return {};
  }

  Result<void> leave() override {
    closed();
    return {};
  }

  void drop() noexcept override {
    values_.clear();
    for (const auto& name : new_names_) (void)files_.remove(name);
  }

  std::string new_name(const std::string& what) {
    return new_names_.emplace_back(file_name(path(), commits_ + 1, what));
  }
  Result<void> put(const std::string& name, std::span<const std::byte> bytes) {
    auto file = files_.open(name, OpenMode::create);
    if (!file) return std::move(file).error();
    counters_.bytes_out += bytes.size();
    return (*file)->write(0, bytes);
  }

  Files& files_;
  Schema schema_;
  bool schema_changed_ = false;
  std::uint64_t commits_ = 0;
  std::map<std::uint32_t, Values> values_;
  std::vector<std::string> new_names_, committed_;  // of the commit under way; of those that may not be durable
  SinkCounters counters_;
};

}  // namespace

Abilities raw_directory_abilities() {
  Abilities out;
  out.forms = {
      {FileFormat::netcdf4,
       {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64,
        DataType::uint8, DataType::uint16, DataType::uint32, DataType::int64, DataType::uint64, DataType::string}}};
  out.rewrites = false;
  out.directory = true;
  out.checkpoints = false;
  return out;
}

Result<std::unique_ptr<Sink>> open_raw_directory(Files& files, const std::string& path, bool resume) {
  auto sink = std::make_unique<RawDirectory>(files, path);
  ADVECTIO_TRY(sink->open(resume));
  return std::unique_ptr<Sink>(std::move(sink));
}

}  // namespace advectio::testing
