// The sinks on which the suite `EverySink` runs.
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "sinks/adios2/bp5_sink.h"
#include "sinks/after_others.h"
#include "sinks/bp5_reader.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/chunks/elsewhere.h"
#include "sinks/every_sink.h"
#include "sinks/netcdf4/netcdf4_sink.h"
#include "sinks/raw_directory.h"
#include "sinks/zarr/zarr_sink.h"
#include "sinks/zarr_reader.h"

namespace advectio::testing {
namespace {

Kind netcdf4() {
  Kind k;
  k.name = "netcdf4";
  k.abilities = netcdf4_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.pipelines = {{},
                         {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                         {{filter_id::deflate, {9}}},
                         {{filter_id::shuffle, {}}},
                         // netCDF-C puts the checksum first, whenever it is asked for.
                         {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}}};
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return open_netcdf4(files, path, Netcdf4Options{}, executor, resume);
  };
  return k;
}

/// Somebody who does what is asked, each piece in a thread of its own, but for every third, which nobody does.
class SomebodyElse final : public Helpers {
 public:
  ~SomebodyElse() override { wait(); }
  std::optional<unsigned> place(std::size_t) override {
    const std::lock_guard guard(mutex_);
    if (given_ == 0) wait();
    if (given_ == places) return std::nullopt;
    ++given_;
    return 0;
  }
  void let_go(unsigned) override {
    const std::lock_guard guard(mutex_);
    --given_;
  }
  void ask(unsigned place, std::shared_ptr<const Message> request, Answer answer) override {
    const std::lock_guard guard(mutex_);
    threads_.emplace_back([this, place, request = std::move(request), answer = std::move(answer), number = ++asked_] {
      const auto reply = number % 3 == 0 ? nullptr : encode_for_another(request->span(), memory_);
      std::optional<Message> said;
      if (reply != nullptr) {
        said.emplace();
        said->buffer.reserve(reply->bytes);
        std::memcpy(said->buffer.data(), reply->buffer.data(), reply->bytes);
        said->bytes = reply->bytes;
        ++answered_;
      }
      let_go(place);
      answer(std::move(said));
    });
  }
  /// Chunks that it has made.
  [[nodiscard]] unsigned answered() const { return answered_; }

 private:
  void wait() {
    for (auto& t : threads_) t.join();
    threads_.clear();
  }

  static constexpr unsigned places = 3;
  std::mutex mutex_;
  unsigned given_ = 0, asked_ = 0;
  std::atomic<unsigned> answered_ = 0;
  std::vector<std::thread> threads_;
  std::shared_ptr<MemoryBudget> memory_ = std::make_shared<MemoryBudget>(std::uint64_t{1} << 20);
};

SomebodyElse& somebody_else() {
  static SomebodyElse one;
  return one;
}

/// netCDF-4 with other options; conformance tests take each `every`-th seed.
Kind netcdf4_with(const std::string& name, std::uint64_t every, const std::function<void(Netcdf4Options&)>& set) {
  auto k = netcdf4();
  k.name = name;
  k.every = every;
  k.open = [set](Files& files, const std::string& path, Executor& executor, bool resume) {
    Netcdf4Options options;
    set(options);
    return open_netcdf4(files, path, options, executor, resume);
  };
  return k;
}

Kind netcdf4_helped() {
  return netcdf4_with("netcdf4_helped", netcdf4().every,
                      [](Netcdf4Options& options) { options.helpers = &somebody_else(); });
}

Kind netcdf4_little_memory() {
  return netcdf4_with("netcdf4_little_memory", 2, [](Netcdf4Options& options) {
    options.wake = [] {};  // parts wait for memory
    options.memory_max = 4096;
  });
}

/// Threads that write for sinks. A process that a test forks has threads of its own.
Executor& disk_threads() {
  static std::map<pid_t, Executor> disk;
  return disk.try_emplace(::getpid(), 2U).first->second;
}

Kind netcdf4_written_behind() {
  return netcdf4_with("netcdf4_written_behind", 2, [](Netcdf4Options& options) {
    options.wake = [] {};
    options.disk = &disk_threads();
  });
}

Kind netcdf4_for_parallel_hdf5() {
  return netcdf4_with("netcdf4_for_parallel_hdf5", netcdf4().every,
                      [](Netcdf4Options& options) { options.for_parallel_hdf5 = true; });
}

Kind netcdf4_after_others() {
  auto k = netcdf4();
  k.name = "netcdf4_after_others";
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return open_after_others(files, path, {}, executor, resume);
  };
  return k;
}

Kind cdf5() {
  Kind k;
  k.name = "cdf5";
  k.abilities = cdf5_abilities();
  k.ability = ability_of(k.abilities);
  k.redo_in_each_commit = false;
  k.exact_after_crash = false;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return open_cdf5(files, path, {}, resume);
  };
  return k;
}

Kind cdf5_written_behind() {
  auto k = cdf5();
  k.name = "cdf5_written_behind";
  k.every = 2;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    Cdf5Options options;
    options.wake = [] {};
    options.disk = &disk_threads();
    return open_cdf5(files, path, options, resume);
  };
  return k;
}

/// The reader writes what it finds into a netCDF file, so that it is compared as everything else is.
Kind raw_directory() {
  Kind k;
  k.name = "raw_directory";
  k.abilities = raw_directory_abilities();
  k.ability = ability_of(k.abilities);
  k.redo_in_each_commit = false;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return open_raw_directory(files, path, resume);
  };
  k.read = [](const std::string& path) {
    auto found = read_raw_directory(path);
    for (auto& v : found.schema.variables) v.round_bits = 0;
    const auto file = path + "/read.nc";
    write_by_netcdf(file, found.schema, found.parts);
    auto out = read_by_netcdf(file);
    std::filesystem::remove(file);
    return out;
  };
  return k;
}

Kind zarr() {
  Kind k;
  k.name = "zarr";
  k.abilities = zarr_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.pipelines = {{},
                         {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}},
                         {{filter_id::deflate, {9}}},
                         {{filter_id::shuffle, {}}},
                         {{filter_id::fletcher32, {}}, {filter_id::shuffle, {}}, {filter_id::deflate, {1}}},
                         {{filter_id::shuffle, {}}, {filter_id::zstd, {3}}},
                         {{filter_id::zstd, {1}}, {filter_id::fletcher32, {}}},
                         {{filter_id::lz4, {0}}},
                         {{filter_id::bitshuffle, {}}, {filter_id::zstd, {1}}},
                         {{filter_id::blosc, {2, 2, 4, 0, 5, 1, 0}}}};
  k.redo_in_each_commit = false;
  k.open = [](Files& files, const std::string& path, Executor& executor, bool resume) {
    return open_zarr(files, path, {}, executor, resume);
  };
  k.read = read_zarr;
  k.keeps = as_zarr_keeps;
  return k;
}

Kind bp5() {
  Kind k;
  k.name = "bp5";
  k.abilities = bp5_abilities();
  k.ability = ability_of(k.abilities);
  k.ability.no_fill = false;
  k.redo_in_each_commit = k.own_files = false;
  k.only_grows = true;
  k.every = 3;
  k.open = [](Files& files, const std::string& path, Executor&, bool resume) {
    return open_bp5(files, path, {}, resume);
  };
  k.read = read_bp5;
  k.keeps = as_bp5_keeps;
  k.missing = why_no_adios2;
  return k;
}

INSTANTIATE_TEST_SUITE_P(Sinks, EverySink,
                         ::testing::Values(netcdf4(), netcdf4_helped(), netcdf4_little_memory(),
                                           netcdf4_written_behind(), netcdf4_for_parallel_hdf5(),
                                           netcdf4_after_others(), cdf5(), cdf5_written_behind(), zarr(), bp5(),
                                           raw_directory()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace

void PrintTo(const Kind& kind, std::ostream* to) {
  *to << kind.name;
}

unsigned chunks_made_by_others() {
  return somebody_else().answered();
}

}  // namespace advectio::testing
