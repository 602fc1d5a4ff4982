// Whole runs in a fraction of a second: writers with the real session, servers with the real sinks, faults that a seed
// chooses, recovery, and a judge that knows only what the writers saw (check.h).
//
//   fault_runs --seed 7                        that case again, with what was said
//   fault_runs --first 0 --runs 2000 --jobs 2 --table
//   fault_runs --power --runs 2000             the power goes, of a stage on a disk (power.h)
//   fault_runs --store zarr --runs 2000        datasets are written as Zarr stores, or with bp5 by ADIOS2
//
// A seed fixes who writes what and what goes wrong when, by counts of calls or frames. Which process is how far at that
// moment is another matter in each run.
//
//   case.h          what a seed stands for
//   run.h           one run of it: run.cpp the processes and faults, damage.cpp, without_power.cpp, judge.cpp
//   writer.h        a process of the program;  servers.h, transport.h  the servers
//   system_calls.h  the system as they find it
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "faults/run.h"
#include "journal/scratch.h"
#include "sinks/bp5_reader.h"

namespace advectio::faults {
namespace {

constexpr unsigned hang_s = 60;

struct Row {
  std::uint64_t runs = 0, hangs = 0, failures = 0;
  Report::Count all;
};

void add(Report::Count& sum, const Report::Count& c) {
  sum.datasets += c.datasets;
  sum.synced += c.synced;
  sum.lost += c.lost;
  sum.lost_said += c.lost_said;
  sum.malformed += c.malformed;
  sum.malformed_said += c.malformed_said;
}

struct Options {
  std::uint64_t first = 0, runs = 1;
  unsigned jobs = 1;
  bool table = false, json = false, loud = false, power = false, away = false;
  std::optional<FileFormat> store;
};

/// A run in processes of its own, so that it can hang or die without harm to the others.
struct Slot {
  Case run;
  std::unique_ptr<Scratch> scratch;
  Report* report = nullptr;
  Ledger* ledger = nullptr;
  pid_t pid = 0;
  std::chrono::steady_clock::time_point began;
};

class Runs {
 public:
  explicit Runs(const Options& options) : options_(options), slots_(options.jobs) {}

  int go() {
    auto next = options_.first;
    const auto end = options_.first + options_.runs;
    for (bool busy = true; busy; ::usleep(500)) {
      busy = false;
      for (auto& slot : slots_) {
        if (slot.pid == 0 && next < end) begin(slot, next++);
        if (slot.pid == 0) continue;
        busy = true;
        int status = 0;
        const bool late = std::chrono::steady_clock::now() - slot.began > std::chrono::seconds(hang_s);
        if (late) (void)::kill(-slot.pid, SIGKILL);
        if (::waitpid(slot.pid, &status, late ? 0 : WNOHANG) != 0) end_run(slot, status, late);
      }
    }
    if (options_.table) print_table();
    if (options_.json) print_json();
    return all_.failures == 0 ? 0 : 1;
  }

 private:
  void begin(Slot& slot, std::uint64_t seed) {
    slot.run = options_.power ? Case::of_power(seed) : options_.away ? Case::of_away(seed) : Case::of(seed);
    if (options_.store) slot.run.write_as(*options_.store);
    slot.scratch = std::make_unique<Scratch>("/dev/shm");
    slot.report = share<Report>();
    slot.ledger = share<Ledger>();
    slot.began = std::chrono::steady_clock::now();
    std::fflush(nullptr);
    slot.pid = ::fork();
    if (slot.pid != 0) return;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Run run(slot.run, *slot.ledger, slot.scratch->path(), *slot.report);
    run.go();
    if (options_.loud) std::printf("%s\n%s", slot.run.text().c_str(), run.log().c_str());
    std::fflush(nullptr);
    ::_exit(0);
  }

  void end_run(Slot& slot, int status, bool late) {
    (void)::kill(-slot.pid, SIGKILL);
    slot.pid = 0;
    auto& r = *slot.report;
    if (late) {
      std::snprintf(r.failure, sizeof r.failure, "it hangs");
    } else if (!r.done && r.failure[0] == '\0') {
      std::snprintf(r.failure, sizeof r.failure, "the run itself ended with status %d", status);
    }
    const bool bad = r.failure[0] != '\0';
    const auto count = [&](Row& row) {
      ++row.runs;
      for (const auto& c : r.of) add(row.all, c);
      row.hangs += late ? 1 : 0;
      row.failures += bad ? 1 : 0;
    };
    count(rows_[row_of(slot.run)]);
    count(all_);
    for (std::size_t w = 0; w < writing_names.size(); ++w) add(of_[slot.run.nodes > 1 ? 1 : 0][w], r.of[w]);
    if (bad) {
      std::printf("FAILED %s\n  %s\n  again: fault_runs %s%s--seed %llu\n", slot.run.text().c_str(), r.failure,
                  options_.power  ? "--power "
                  : options_.away ? "--away "
                                  : "",
                  !options_.store                      ? ""
                  : options_.store == FileFormat::zarr ? "--store zarr "
                                                       : "--store bp5 ",
                  static_cast<unsigned long long>(slot.run.seed));
      std::fflush(stdout);
    }
    if (const char* keep = std::getenv("ADVECTIO_FAULTS_KEEP"); keep != nullptr && bad)
      (void)std::rename(slot.scratch->path().c_str(), (keep + ("/" + std::to_string(slot.run.seed))).c_str());
    ::munmap(slot.report, sizeof(Report));
    ::munmap(slot.ledger, sizeof(Ledger));
    slot.scratch.reset();
  }

  static void print(std::initializer_list<std::uint64_t> cells) {
    for (const auto cell : cells) std::printf(" %llu |", static_cast<unsigned long long>(cell));
  }
  void print_table() const {
    std::printf("| fault | runs | frames synced | lost | of these said | malformed files | of these said | hangs |");
    std::printf(" failures |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    const auto line = [](const char* name, const Row& r) {
      const auto& c = r.all;
      std::printf("| %s |", name);
      print({r.runs, c.synced, c.lost, c.lost_said, c.malformed, c.malformed_said, r.hangs, r.failures});
      std::printf("\n");
    };
    for (std::size_t k = 0; k < rows_.size(); ++k) line(row_name(k), rows_[k]);
    line("all runs", all_);
    std::printf("\n| written by | nodes | datasets | frames synced | lost | of these said | malformed files |");
    std::printf(" of these said |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (std::size_t w = 0; w < writing_names.size(); ++w)
      for (const auto several : {0, 1}) {
        const auto& c = of_[several][w];
        std::printf("| %s | %s |", writing_names[w], several == 0 ? "one" : "two or three");
        print({c.datasets, c.synced, c.lost, c.lost_said, c.malformed, c.malformed_said});
        std::printf("\n");
      }
  }
  void print_json() const {
    nlohmann::json all;
    const auto counts = [](const Report::Count& c) {
      return nlohmann::json{{"datasets", c.datasets},   {"frames_synced", c.synced},
                            {"frames_lost", c.lost},    {"losses_said", c.lost_said},
                            {"malformed", c.malformed}, {"malformed_said", c.malformed_said}};
    };
    const auto entry = [&counts](const Row& r) {
      auto row = counts(r.all);
      row["runs"] = r.runs;
      row["hangs"] = r.hangs;
      row["failures"] = r.failures;
      return row;
    };
    for (std::size_t k = 0; k < rows_.size(); ++k) all["by_fault"][row_name(k)] = entry(rows_[k]);
    for (std::size_t w = 0; w < writing_names.size(); ++w)
      for (const auto several : {0, 1})
        all["by_writing"][several == 0 ? "one_node" : "several_nodes"][writing_names[w]] = counts(of_[several][w]);
    all["all"] = entry(all_);
    all["first_seed"] = options_.first;
    std::printf("%s\n", all.dump(2).c_str());
  }

  Options options_;
  std::vector<Slot> slots_;
  /// By the fault where there is one; then two that lose nothing, and two of which one may.
  static std::size_t row_of(const Case& c) {
    std::vector<Kind> kinds = c.kinds;
    if (kinds.size() > 1) std::erase(kinds, Kind::nothing);
    return kinds.size() == 1 ? static_cast<std::size_t>(kinds[0]) : kind_names.size() + (c.may_lose() ? 1 : 0);
  }
  static const char* row_name(std::size_t row) {
    constexpr std::array pairs = {"two of these, not the last three", "two of these, one of the last three"};
    return row < kind_names.size() ? kind_names[row] : pairs[row - kind_names.size()];
  }

  std::array<Row, kind_names.size() + 2> rows_;
  Row all_;
  Report::Count of_[2][writing_names.size()];  // on one node, on several
};

std::optional<Options> parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&]() -> std::uint64_t { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (arg == "--seed") {
      o.first = number();
      o.loud = true;
    } else if (arg == "--first") {
      o.first = number();
    } else if (arg == "--runs") {
      o.runs = number();
    } else if (arg == "--jobs") {
      o.jobs = static_cast<unsigned>(std::max<std::uint64_t>(1, number()));
    } else if (arg == "--power") {
      o.power = true;
    } else if (arg == "--away") {
      o.away = true;
    } else if (arg == "--store" && i + 1 < argc) {
      const std::string name = argv[++i];
      if (name != "zarr" && name != "bp5") return std::nullopt;
      o.store = name == "zarr" ? FileFormat::zarr : FileFormat::bp5;
    } else if (arg == "--table") {
      o.table = true;
    } else if (arg == "--json") {
      o.json = true;
    } else {
      return std::nullopt;
    }
  }
  return o;
}

}  // namespace
}  // namespace advectio::faults

int main(int argc, char** argv) {
  const auto options = advectio::faults::parse(argc, argv);
  if (!options) {
    std::fprintf(
        stderr,
        "fault_runs [--seed N] [--first N] [--runs N] [--jobs N] [--power | --away] [--store zarr|bp5] [--table] "
        "[--json]\n");
    return 2;
  }
  if (options->store == advectio::FileFormat::bp5)
    if (const auto why = advectio::testing::why_no_adios2(); !why.empty()) {
      std::printf("skipped: %s\n", why.c_str());
      return 77;
    }
  return advectio::faults::Runs(*options).go();
}
