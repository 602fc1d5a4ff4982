// A NetCDF-4 file that is not the first of its kind: two with the same schema, but for the values of
// attributes, were made before, so that it begins as a copy (skeletons.h).
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "sinks/netcdf4/hdf5.h"
#include "sinks/netcdf4/netcdf4_sink.h"

namespace advectio::testing {

class AfterOthers final : public Sink {
 public:
  /// `options.skeletons` must be there.
  AfterOthers(std::unique_ptr<Sink> sink, std::string path, Netcdf4Options options, Executor& executor, bool resume)
      : sink_(std::move(sink)),
        path_(std::move(path) + "-other"),
        options_(std::move(options)),
        executor_(executor),
        made_(resume) {}

  [[nodiscard]] Abilities abilities() const override { return sink_->abilities(); }
  Result<void> declare(const Schema& schema) override {
    for (int file = 0; file < 2 && !made_; ++file) ADVECTIO_TRY_WITH(make_other(schema), "another file");
    if (!std::exchange(made_, true)) {
      const Hdf5Lock lock;
      if (!options_.skeletons->find(schema)) return Error{Code::bug, "two files were made, and no skeleton is kept", 0};
    }
    return sink_->declare(schema);
  }
  Result<void> begin(std::uint64_t frame) override { return sink_->begin(frame); }
  Result<void> ready(const std::shared_ptr<const Field>& field, const Part& part) override {
    return sink_->ready(field, part);
  }
  Result<void> end() override { return sink_->end(); }
  Result<void> checkpoint() override { return sink_->checkpoint(); }
  std::function<Result<void>()> make_durable() override { return sink_->make_durable(); }
  Result<void> close() override { return sink_->close(); }
  void abandon() noexcept override { sink_->abandon(); }
  [[nodiscard]] SinkCounters counters() const override { return sink_->counters(); }

 private:
  static void change(std::vector<Attribute>& attributes) {
    for (auto& a : attributes) {
      for (auto& b : a.values) b ^= std::byte{1};
      for (auto& s : a.strings) s = s ? *s + " of another" : "another";
    }
  }
  Result<void> make_other(Schema schema) {
    change(schema.attributes);
    for (auto& v : schema.variables) change(v.attributes);
    std::ofstream(path_).close();
    auto options = options_;
    options.redo_path.clear();
    auto other = open_netcdf4(system_files(), path_, options, executor_, false);
    if (!other) return std::move(other).error();
    ADVECTIO_TRY((*other)->declare(schema));
    ADVECTIO_TRY((*other)->end());
    (*other)->abandon();
    other->reset();
    std::filesystem::remove(path_);
    return {};
  }

  std::unique_ptr<Sink> sink_;
  std::string path_;
  Netcdf4Options options_;
  Executor& executor_;
  bool made_;
};

inline Result<std::unique_ptr<Sink>> open_after_others(Files& files, const std::string& path, Netcdf4Options options,
                                                       Executor& executor, bool resume) {
  if (!options.skeletons) options.skeletons = std::make_shared<Skeletons>();
  auto sink = open_netcdf4(files, path, options, executor, resume);
  if (!sink) return std::move(sink).error();
  return std::unique_ptr<Sink>(
      std::make_unique<AfterOthers>(std::move(sink).value(), path, std::move(options), executor, resume));
}

}  // namespace advectio::testing
