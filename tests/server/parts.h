// Parts of the server on a stage of their own: no loop, no socket, no program.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "server/output_writer.h"
#include "server/programs.h"

namespace advectio {

class PartsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t width = 10;

  advectio::Run& run() {
    if (!run_) {
      auto stage = Stage::make(system_files(), scratch_ / "run", 64 * 1024, 4, 1'000'000'000);
      EXPECT_TRUE(stage.ok());
      ServerOptions options;
      options.run_dir = scratch_ / "run";
      options.wait_max_ns = 1'000'000'000;
      run_.emplace(system_files(), options, config_, sinks_of(store_), log_, std::move(stage).value());
    }
    return *run_;
  }
  /// An output of a dataset that one process writes: its file, hard link and shared state.
  std::shared_ptr<Output> output(const std::string& name) {
    auto o = std::make_shared<Output>();
    o->path = scratch_ / name;
    o->file.link = scratch_ / ("." + name + ".advectio-link");
    std::ofstream(o->path).close();
    std::filesystem::create_hard_link(o->path, o->file.link);
    o->state_name = Stage::state_name_of(o->path).value();
    auto made = run().stage.make_dataset(o->state_name, [&](SharedState& s) {
      s.journal = 7;
      s.number = 1;
      std::memcpy(s.path, o->path.c_str(), o->path.size() + 1);
      std::memcpy(s.link, o->file.link.c_str(), o->file.link.size() + 1);
    });
    EXPECT_TRUE(made.ok());
    o->shared_state = std::move(made->shared_state);
    o->number = 1;
    return o;
  }
  /// A row of T; the record refers to `row_`.
  Record put(std::uint64_t sequence, std::uint64_t time, float value) {
    row_.assign(width, value);
    meta_ = journal::encode(journal::Put{0, {{time, 0}, {1, width}}, {}});
    Record r;
    r.type = RecordType::put;
    r.dataset = 1;
    r.sequence = sequence;
    r.meta = meta_;
    r.payload = std::as_bytes(std::span(row_));
    return r;
  }
  Record sync(std::uint64_t sequence, std::uint64_t frame, RecordType type = RecordType::sync) {
    meta_ = journal::encode(journal::Sync{frame, 0, width * 4, {}});
    Record r;
    r.type = type;
    r.dataset = 1;
    r.sequence = sequence;
    r.meta = meta_;
    r.time_ns = journal::realtime_ns();
    return r;
  }

  Scratch scratch_{"/dev/shm"};
  Config config_ = default_config();
  Log log_{LogLevel::error};
  Store store_;
  std::vector<float> row_;
  Bytes meta_;
  std::optional<advectio::Run> run_;
};

}  // namespace advectio
