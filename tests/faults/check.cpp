#include "faults/check.h"

#include <netcdf.h>
#include <sys/stat.h>

#include <functional>

namespace advectio::faults {
namespace {

/// What a cell may be: what was put there, or nothing.
enum class Cell : std::uint8_t { right, missing, wrong };

class Check {
 public:
  Check(int nc, const DatasetCase& dataset, std::size_t number) : nc_(nc), d_(dataset), number_(number) {}

  bool shape(std::uint64_t begun, Verdict& v) {
    std::size_t y = 0, x = 0;
    int dims[NC_MAX_VAR_DIMS], id = 0;
    nc_type type = NC_NAT;
    int unlimited = -1;
    if (nc_inq_unlimdim(nc_, &unlimited) != NC_NOERR || nc_inq_dimlen(nc_, 0, &records_) != NC_NOERR ||
        unlimited != 0 || nc_inq_dimlen(nc_, 1, &y) != NC_NOERR || nc_inq_dimlen(nc_, 2, &x) != NC_NOERR || y != d_.y ||
        x != d_.x)
      return say(v, "its dimensions are not those that were defined");
    const std::pair<const char*, nc_type> variables[] = {{"T", NC_FLOAT}, {"U", NC_DOUBLE}, {"HGT", NC_INT}};
    for (const auto& [name, asked] : variables)
      if (nc_inq_varid(nc_, name, &id) != NC_NOERR ||
          nc_inq_var(nc_, id, nullptr, &type, nullptr, dims, nullptr) != NC_NOERR || type != asked)
        return say(v, std::string("there is no ") + name);
    if (records_ > begun)
      return say(v, "it holds " + std::to_string(records_) + " records of " + std::to_string(begun));
    return true;
  }
  [[nodiscard]] std::uint64_t records() const { return records_; }

  /// True when all of the frame is there. What is neither there nor missing is said in `v.wrong`.
  bool frame(std::uint64_t f, Verdict& v) {
    auto t = slab<float>("T", f, nc_get_vara_float, v);
    auto u = slab<double>("U", f, nc_get_vara_double, v);
    bool all = judge(
        t, [&](std::uint64_t i) { return value_t(number_, f, i); }, NC_FILL_FLOAT, "T", f, v);
    if (has_u(f)) {
      all = judge(
                u, [&](std::uint64_t i) { return value_u(number_, f, i); }, NC_FILL_DOUBLE, "U", f, v) &&
            all;
    } else {
      (void)judge(
          u, [&](std::uint64_t) { return NC_FILL_DOUBLE; }, NC_FILL_DOUBLE, "U", f, v);
    }
    if (f == 0) {
      std::vector<int> h(d_.y * d_.x);
      int id = 0;
      if (nc_inq_varid(nc_, "HGT", &id) != NC_NOERR || nc_get_var_int(nc_, id, h.data()) != NC_NOERR)
        return say(v, "HGT cannot be read");
      all = judge(
                h, [&](std::uint64_t i) { return value_h(number_, i); }, NC_FILL_INT, "HGT", 0, v) &&
            all;
    }
    return all;
  }

 private:
  static bool say(Verdict& v, const std::string& what) {
    if (v.wrong.empty()) v.wrong = what;
    return false;
  }
  template <typename T, typename Read>
  std::vector<T> slab(const char* name, std::uint64_t f, Read read, Verdict& v) {
    std::vector<T> values(d_.y * d_.x);
    const std::size_t start[] = {f, 0, 0}, count[] = {1, d_.y, d_.x};
    int id = 0;
    const int status =
        nc_inq_varid(nc_, name, &id) != NC_NOERR ? NC_ENOTVAR : read(nc_, id, start, count, values.data());
    if (status != NC_NOERR)
      (void)say(v, std::string(name) + " of frame " + std::to_string(f) + " cannot be read: " + nc_strerror(status));
    return values;
  }
  template <typename T, typename Right>
  static bool judge(const std::vector<T>& values, Right right, T fill, const char* name, std::uint64_t f, Verdict& v) {
    bool all = true;
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      if (values[i] == right(i)) continue;
      all = false;
      if (values[i] != fill)
        return say(v, std::string(name) + " of frame " + std::to_string(f) + " has " + std::to_string(values[i]) +
                          " in cell " + std::to_string(i) + " instead of " + std::to_string(right(i)));
    }
    return all;
  }

  int nc_;
  const DatasetCase& d_;
  std::size_t number_;
  std::size_t records_ = 0;
};

}  // namespace

Verdict check_file(const std::string& path, const DatasetCase& dataset, std::size_t number, std::uint64_t synced,
                   std::uint64_t begun) {
  Verdict v;
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || st.st_size == 0) return v;
  v.there = true;
  int nc = -1;
  if (const int status = nc_open(path.c_str(), NC_NOWRITE, &nc); status != NC_NOERR) {
    v.wrong = std::string("it cannot be opened: ") + nc_strerror(status);
    return v;
  }
  int variables = 0;
  (void)nc_inq_nvars(nc, &variables);
  Check check(nc, dataset, number);
  // A commit before the schema leaves an empty one.
  if (variables == 0 && synced == 0) {
  } else if (check.shape(begun, v)) {
    bool all = true;
    for (std::uint64_t f = 0; f < check.records() && v.wrong.empty(); ++f) {
      const bool whole = check.frame(f, v);
      all = all && whole;
      if (all) ++v.complete;
      if (whole && f < synced) ++v.held;
    }
  }
  (void)nc_close(nc);
  return v;
}

}  // namespace advectio::faults
