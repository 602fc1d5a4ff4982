#include "files.h"

#include <mpi.h>
#include <netcdf.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cycle {
namespace {

/// Adds the seconds of a scope.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum), began_(MPI_Wtime()) {}
  ~Timed() { sum_ += MPI_Wtime() - began_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  double began_;
};

void check(int status, const std::string& what) {
  if (status != NC_NOERR) fail(what + ": " + nc_strerror(status));
}

void put_text(int id, int variable, const char* name, const std::string& text) {
  check(nc_put_att_text(id, variable, name, text.size(), text.c_str()), name);
}

void put_int(int id, const char* name, int value) {
  check(nc_put_att_int(id, NC_GLOBAL, name, NC_INT, 1, &value), name);
}

}  // namespace

void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

FileTimes& file_times() {
  static FileTimes times;
  return times;
}

std::string tile_name(const std::string& prefix, int number) {
  char text[32];
  std::snprintf(text, sizeof text, ".pe%06d.nc", number);
  return prefix + text;
}

std::string member_name(int member) {
  char text[16];
  std::snprintf(text, sizeof text, "%04d", member);
  return text;
}

std::string cycle_directory(int cycle) {
  return member_name(cycle) + "/";
}

NewFile::NewFile(const std::string& path, const Tile& tile, const std::string& title, bool frames, double time)
    : path_(path), tile_(tile), frames_(frames) {
  const Timed timed(file_times().writing);
  check(nc_create(path.c_str(), NC_CLOBBER | NC_NETCDF4, &id_), "cannot create " + path);
  put_text(id_, NC_GLOBAL, "title", title);
  put_text(id_, NC_GLOBAL, "source", "two-layer model of examples/cycle");
  put_int(id_, "rankid", tile.number);
  put_int(id_, "prc_rank_x", tile.column());
  put_int(id_, "prc_rank_y", tile.row());
  put_int(id_, "prc_num_x", tile.tiles.along_x);
  put_int(id_, "prc_num_y", tile.tiles.along_y);
  put_int(id_, "index_imaxg", tile.grid.nx);
  put_int(id_, "index_jmaxg", tile.grid.ny);
  put_int(id_, "index_ihalo", 0);
  put_int(id_, "index_jhalo", 0);
  put_text(id_, NC_GLOBAL, "time_units", "seconds since 0000-01-01 00:00:00");
  check(nc_put_att_double(id_, NC_GLOBAL, "time_start", NC_DOUBLE, 1, &time), "time_start");

  check(nc_def_dim(id_, "z", kLayers, &z_), "z");
  check(nc_def_dim(id_, "x", tile.nx(), &x_), "x");
  check(nc_def_dim(id_, "y", tile.ny(), &y_), "y");
  check(nc_def_dim(id_, "xh", tile.nx(), &xh_), "xh");
  check(nc_def_dim(id_, "yh", tile.ny(), &yh_), "yh");
  if (frames) {
    check(nc_def_dim(id_, "nv", 2, &nv_), "nv");
    check(nc_def_dim(id_, "time", NC_UNLIMITED, &time_), "time");
  }
  struct Axis {
    const char *name, *long_name;
    int dim, size, start;
  };
  const Axis axes[] = {{"z", "layer, from above", z_, 0, 0},
                       {"x", "X", x_, tile.grid.nx, tile.x0()},
                       {"y", "Y", y_, tile.grid.ny, tile.y0()},
                       {"xh", "X (half level)", xh_, tile.grid.nx, tile.x0()},
                       {"yh", "Y (half level)", yh_, tile.grid.ny, tile.y0()}};
  for (int a = 0; a < 5; ++a) {
    const Axis& axis = axes[a];
    const bool along_x = axis.dim == x_ || axis.dim == xh_;
    check(nc_def_var(id_, axis.name, NC_DOUBLE, 1, &axis.dim, &axes_[a]), axis.name);
    put_text(id_, axes_[a], "long_name", axis.long_name);
    put_text(id_, axes_[a], "units", axis.size == 0 ? "1" : "m");
    if (axis.size == 0) continue;
    const int first = axis.start + 1, none[2] = {0, 0};
    check(nc_put_att_int(id_, axes_[a], "size_global", NC_INT, 1, &axis.size), "size_global");
    check(nc_put_att_int(id_, axes_[a], "start_global", NC_INT, 1, &first), "start_global");
    check(nc_put_att_int(id_, axes_[a], "halo_global", NC_INT, 2, none), "halo_global");
    check(nc_put_att_int(id_, axes_[a], "halo_local", NC_INT, 2, none), "halo_local");
    put_text(id_, axes_[a], "periodic", along_x ? "true" : "false");
  }
  if (!frames) return;
  const int bounds[] = {time_, nv_};
  check(nc_def_var(id_, "time", NC_DOUBLE, 1, &time_, &time_variable_), "time");
  put_text(id_, time_variable_, "long_name", "time");
  put_text(id_, time_variable_, "units", "seconds since 0000-01-01 00:00:00");
  put_text(id_, time_variable_, "bounds", "time_bnds");
  check(nc_def_var(id_, "time_bnds", NC_DOUBLE, 2, bounds, &bounds_), "time_bnds");
}

NewFile::~NewFile() {
  close();
}

int NewFile::add(const std::string& name, const std::string& long_name, const std::string& units, int type,
                 const std::vector<int>& dims) {
  const Timed timed(file_times().writing);
  int variable = -1;
  check(nc_def_var(id_, name.c_str(), type, static_cast<int>(dims.size()), dims.data(), &variable),
        name + " in " + path_);
  check(nc_def_var_deflate(id_, variable, 0, 1, 2), name + " in " + path_);
  put_text(id_, variable, "long_name", long_name);
  put_text(id_, variable, "units", units);
  return variable;
}

int NewFile::add_float(const std::string& name, const std::string& long_name, const std::string& units) {
  return add(name, long_name, units, NC_FLOAT, {time_, z_, y_, x_});
}

int NewFile::add_double(const std::string& name, const std::string& long_name, const std::string& units, Place place) {
  return add(name, long_name, units, NC_DOUBLE,
             {z_, place == Place::north ? yh_ : y_, place == Place::east ? xh_ : x_});
}

void NewFile::put_axes() {
  const Timed timed(file_times().writing);
  const auto axis = [this](int a, int count, int first, double shift, double step) {
    std::vector<double> values(count);
    for (int i = 0; i < count; ++i) values[i] = (first + i + shift) * step;
    check(nc_put_var_double(id_, axes_[a], values.data()), "an axis of " + path_);
  };
  axis(0, kLayers, 1, 0, 1);
  axis(1, tile_.nx(), tile_.x0(), 0.5, tile_.grid.dx);
  axis(2, tile_.ny(), tile_.y0(), 0.5, tile_.grid.dx);
  axis(3, tile_.nx(), tile_.x0(), 1, tile_.grid.dx);
  axis(4, tile_.ny(), tile_.y0(), 1, tile_.grid.dx);
}

void NewFile::put_time(int frame, double time, double before) {
  const Timed timed(file_times().writing);
  const std::size_t at = frame, start[] = {at, 0}, count[] = {1, 2};
  const double bounds[] = {before, time};
  check(nc_put_var1_double(id_, time_variable_, &at, &time), "time in " + path_);
  check(nc_put_vara_double(id_, bounds_, start, count, bounds), "time_bnds in " + path_);
}

void NewFile::put(int variable, int frame, const std::vector<float>& values) {
  const Timed timed(file_times().writing);
  const std::size_t start[] = {static_cast<std::size_t>(frame), 0, 0, 0};
  const std::size_t count[] = {1, kLayers, static_cast<std::size_t>(tile_.ny()), static_cast<std::size_t>(tile_.nx())};
  check(nc_put_vara_float(id_, variable, start, count, values.data()), "cannot write to " + path_);
}

void NewFile::put(int variable, const std::vector<double>& values) {
  const Timed timed(file_times().writing);
  const std::size_t start[] = {0, 0, 0};
  const std::size_t count[] = {kLayers, static_cast<std::size_t>(tile_.ny()), static_cast<std::size_t>(tile_.nx())};
  check(nc_put_vara_double(id_, variable, start, count, values.data()), "cannot write to " + path_);
}

void NewFile::sync() {
  const Timed timed(file_times().writing);
  check(nc_sync(id_), "cannot sync " + path_);
}

void NewFile::close() {
  if (id_ < 0) return;
  const Timed timed(file_times().writing);
  check(nc_close(id_), "cannot close " + path_);
  id_ = -1;
}

OldFile::OldFile(const std::string& path, bool writable) : path_(path) {
  {
    const Timed timed(file_times().opening);
    // SCALE asks whether the file is there before it lets netCDF open it.
    std::FILE* there = std::fopen(path.c_str(), "r");
    if (there == nullptr) fail("cannot open " + path + ": " + std::strerror(errno));
    std::fclose(there);
    check(nc_open(path.c_str(), writable ? NC_WRITE : NC_NOWRITE, &id_), "cannot open " + path);
  }
  const Timed timed(file_times().reading);
  int dims = 0, variables = 0, attributes = 0, unlimited = 0;
  check(nc_inq(id_, &dims, &variables, &attributes, &unlimited), "nc_inq of " + path);
  int x = -1, type = 0, rank = 0;
  if (nc_inq_varid(id_, "x", &x) != NC_NOERR) return;  // no tile: observations
  nc_type kind = NC_NAT;
  check(nc_inq_var(id_, x, nullptr, &type, &rank, nullptr, nullptr), "x of " + path);
  std::size_t count = 0;
  if (nc_inq_att(id_, x, "start_global", &kind, &count) != NC_NOERR) return;
  check(nc_get_att_int(id_, x, "start_global", &x0_), "start_global of " + path);
  check(nc_get_att_int(id_, variable("y"), "start_global", &y0_), "start_global of " + path);
  --x0_;
  --y0_;
  nx_ = static_cast<int>(length("x"));
  ny_ = static_cast<int>(length("y"));
}

OldFile::~OldFile() {
  close();
}

int OldFile::variable(const std::string& name) {
  int id = -1;
  check(nc_inq_varid(id_, name.c_str(), &id), "no variable " + name + " in " + path_);
  return id;
}

std::size_t OldFile::length(const std::string& dimension) {
  int id = -1;
  std::size_t count = 0;
  check(nc_inq_dimid(id_, dimension.c_str(), &id), "no dimension " + dimension + " in " + path_);
  check(nc_inq_dimlen(id_, id, &count), dimension + " of " + path_);
  return count;
}

std::vector<double> OldFile::times() {
  const Timed timed(file_times().reading);
  const std::size_t start = 0, count = length("time");
  std::vector<double> values(count);
  check(nc_get_vara_double(id_, variable("time"), &start, &count, values.data()), "time of " + path_);
  return values;
}

std::vector<float> OldFile::frame(const std::string& name, int frame) {
  const Timed timed(file_times().reading);
  const std::size_t start[] = {static_cast<std::size_t>(frame), 0, 0, 0};
  const std::size_t count[] = {1, kLayers, static_cast<std::size_t>(ny_), static_cast<std::size_t>(nx_)};
  std::vector<float> values(static_cast<std::size_t>(kLayers) * ny_ * nx_);
  check(nc_get_vara_float(id_, variable(name), start, count, values.data()), name + " of " + path_);
  return values;
}

std::vector<double> OldFile::get(const std::string& name) {
  const Timed timed(file_times().reading);
  const std::size_t start[] = {0, 0, 0};
  const std::size_t count[] = {kLayers, static_cast<std::size_t>(ny_), static_cast<std::size_t>(nx_)};
  std::vector<double> values(static_cast<std::size_t>(kLayers) * ny_ * nx_);
  check(nc_get_vara_double(id_, variable(name), start, count, values.data()), name + " of " + path_);
  return values;
}

std::vector<double> OldFile::get_all(const std::string& name) {
  const Timed timed(file_times().reading);
  const int id = variable(name);
  int rank = 0, dims[NC_MAX_VAR_DIMS];
  check(nc_inq_varndims(id_, id, &rank), name + " of " + path_);
  check(nc_inq_vardimid(id_, id, dims), name + " of " + path_);
  std::size_t count = 1;
  for (int d = 0; d < rank; ++d) {
    std::size_t one = 0;
    check(nc_inq_dimlen(id_, dims[d], &one), name + " of " + path_);
    count *= one;
  }
  std::vector<double> values(count);
  check(nc_get_var_double(id_, id, values.data()), name + " of " + path_);
  return values;
}

void OldFile::put(const std::string& name, const std::vector<double>& values) {
  const Timed timed(file_times().writing);
  const std::size_t start[] = {0, 0, 0};
  const std::size_t count[] = {kLayers, static_cast<std::size_t>(ny_), static_cast<std::size_t>(nx_)};
  check(nc_put_vara_double(id_, variable(name), start, count, values.data()), name + " of " + path_);
}

void OldFile::close() {
  if (id_ < 0) return;
  const Timed timed(file_times().writing);
  check(nc_close(id_), "cannot close " + path_);
  id_ = -1;
}

}  // namespace cycle
