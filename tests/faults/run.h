// One run of a case: its servers and writers, the faults in their time, recovery, and the judgement.
#pragma once

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "faults/check.h"
#include "faults/ledger.h"
#include "faults/servers.h"

namespace advectio::faults {

class Run {
 public:
  Run(const Case& c, Ledger& ledger, const std::string& scratch, Report& report);

  void go();
  /// What has been said.
  [[nodiscard]] std::string log() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Path = std::filesystem::path;

  std::uint64_t below(std::uint64_t n) { return random_() % std::max<std::uint64_t>(1, n); }
  std::uint64_t some(std::uint64_t most);
  void failed(const std::string& what);

  // The processes and what strikes them (run.cpp).
  void plan();
  void play();
  void start_servers();
  void start_writers();
  void kill_servers();
  void kill_writer(pid_t pid);
  void collect();
  [[nodiscard]] bool writers_gone() const;
  void look_after_servers();
  void end_writers_soon();
  void strike();
  void drain_once_more();
  void recover_where_the_output_is_away();
  void recover();

  // Until the power goes, perhaps once more while it is recovered (without_power.cpp).
  void go_without_power();
  void play_until_power_goes();
  void lose();
  void keep_what_is_left();

  // Damage of what only the stage holds (damage.cpp).
  void flip(const Path& file, std::uint64_t at, std::uint64_t bytes);
  void damage();
  void damage_journal();
  void damage_page();

  // The judgement (judge.cpp).
  void judge();
  void judge_dataset(std::size_t i);
  void judge_second(std::size_t i, std::uint64_t synced, std::uint64_t begun);
  [[nodiscard]] bool is_said_of(const std::string& file) const;
  bool judge_tiles(std::size_t i, Found& found, std::uint64_t synced_by_all);
  bool judge_file(std::size_t i, const std::string& name, const std::string& wrong);
  void judge_leftover(const Path& file);
  [[nodiscard]] std::string held_name(const std::string& file) const;
  [[nodiscard]] bool said(std::size_t dataset, const std::string& what = {}) const;
  [[nodiscard]] std::string why_apart(std::size_t dataset) const;
  [[nodiscard]] bool may_stay_apart(std::size_t i, const std::string& why) const;

  const Case& case_;
  Ledger& ledger_;
  std::string run_dir_, output_, log_file_;  // the first: of the one node there is
  Report& report_;
  std::mt19937_64 random_;
  Servers servers_;

  std::uint64_t frames_in_all_ = 0, strike_at_ = 0, server_deaths_ = 0;
  std::int64_t room_again_ms_ = -1;
  bool by_calls_ = false, met_by_restart_ = false;
  std::uint32_t victim_ = 0, victim_node_ = 0;

  std::vector<pid_t> writers_, pids_;
  bool serving_ = false;
  std::uint32_t server_lives_ = 0;
  bool drain_asked_ = false, for_good_ = false, struck_ = false, vanished_ = false;
  bool run_dir_missed_ = false, writer_killed_ = false, writer_gave_up_ = false, said_by_exit_ = false,
       left_in_stage_ = false;
  Clock::time_point struck_at_, server_gone_at_;
  bool touched_[datasets_max] = {}, apart_[datasets_max] = {};
  std::string damage_;
  std::uint64_t run_inode_ = 0;
  int losses_ = 0;  ///< of power
};

/// In the order of their names.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory);

}  // namespace advectio::faults
