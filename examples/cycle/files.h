// The netCDF files of one process, written and read by the calls that SCALE makes.
#pragma once

#include <string>
#include <vector>

#include "grid.h"

namespace cycle {

/// Seconds that this process has spent in calls of files, netCDF's and fopen.
struct FileTimes {
  double opening = 0, reading = 0, writing = 0;
  [[nodiscard]] double all() const { return opening + reading + writing; }
};
FileTimes& file_times();

/// Where on the grid a variable's values lie.
enum class Place { centre, east, north };

/// A new file. Dimensions and variables first, then values; nobody calls nc_enddef, the library notices.
class NewFile {
 public:
  /// `frames`: has a time axis without end. The time of a file without one is an attribute.
  NewFile(const std::string& path, const Tile& tile, const std::string& title, bool frames, double time);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int add_float(const std::string& name, const std::string& long_name,
                const std::string& units);  // frames, at the centre
  int add_double(const std::string& name, const std::string& long_name, const std::string& units, Place place);
  void put_axes();
  void put_time(int frame, double time, double before);
  void put(int variable, int frame, const std::vector<float>& values);
  void put(int variable, const std::vector<double>& values);
  void sync();
  void close();

 private:
  int add(const std::string& name, const std::string& long_name, const std::string& units, int type,
          const std::vector<int>& dims);

  std::string path_;
  Tile tile_;
  bool frames_;
  int id_ = -1;
  int z_ = -1, x_ = -1, y_ = -1, xh_ = -1, yh_ = -1, nv_ = -1, time_ = -1;
  int axes_[5] = {}, time_variable_ = -1, bounds_ = -1;
};

/// A file that is there. It says itself where its tile lies.
class OldFile {
 public:
  OldFile(const std::string& path, bool writable);
  ~OldFile();
  OldFile(const OldFile&) = delete;
  OldFile& operator=(const OldFile&) = delete;

  [[nodiscard]] int x0() const { return x0_; }  // the first cell's number in the whole
  [[nodiscard]] int y0() const { return y0_; }
  [[nodiscard]] int nx() const { return nx_; }
  [[nodiscard]] int ny() const { return ny_; }
  std::vector<double> times();
  std::vector<float> frame(const std::string& name, int frame);  // [layer][y][x]
  std::vector<double> get(const std::string& name);              // the same
  std::vector<double> get_all(const std::string& name);          // of a file without tiles
  void put(const std::string& name, const std::vector<double>& values);
  void close();

 private:
  [[nodiscard]] int variable(const std::string& name);
  [[nodiscard]] std::size_t length(const std::string& dimension);

  std::string path_;
  int id_ = -1;
  int x0_ = 0, y0_ = 0, nx_ = 0, ny_ = 0;
};

/// Says it and ends all processes.
[[noreturn]] void fail(const std::string& what);

}  // namespace cycle
