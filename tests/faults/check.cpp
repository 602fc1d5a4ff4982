#include "faults/check.h"

#include <netcdf.h>
#include <sys/stat.h>

namespace advectio::faults {

/// One that is open.
class Found::File {
 public:
  File(int nc, Found& found, const Area& held, const Area& own) : nc_(nc), found_(found), held_(held), own_(own) {}

  bool shape(std::uint64_t begun) {
    std::size_t y = 0, x = 0;
    int dims[NC_MAX_VAR_DIMS], id = 0;
    nc_type type = NC_NAT;
    int unlimited = -1;
    if (nc_inq_unlimdim(nc_, &unlimited) != NC_NOERR || nc_inq_dimlen(nc_, 0, &records_) != NC_NOERR ||
        unlimited != 0 || nc_inq_dimlen(nc_, 1, &y) != NC_NOERR || nc_inq_dimlen(nc_, 2, &x) != NC_NOERR ||
        y != held_.ny || x != held_.nx)
      return say("its dimensions are not those that were defined");
    const std::pair<const char*, nc_type> variables[] = {
        {"T", NC_FLOAT}, {"U", NC_DOUBLE}, {"HGT", NC_INT}, {"S", NC_INT}};
    for (const auto& [name, asked] : variables)
      if (nc_inq_varid(nc_, name, &id) != NC_NOERR ||
          nc_inq_var(nc_, id, nullptr, &type, nullptr, dims, nullptr) != NC_NOERR || type != asked)
        return say(std::string("there is no ") + name);
    if (records_ > begun) return say("it holds " + std::to_string(records_) + " records of " + std::to_string(begun));
    if (found_.frames_.size() < records_) found_.frames_.resize(records_);
    return true;
  }
  [[nodiscard]] std::uint64_t records() const { return records_; }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }

  /// What is neither right nor missing is said in `wrong`.
  void frame(std::uint64_t f) {
    const auto i = found_.number_;
    auto& frame = found_.frames_[f];
    judge(
        frame.t, slab<float>("T", f, 3, nc_get_vara_float), [&](std::uint64_t k) { return value_t(i, f, k); },
        NC_FILL_FLOAT, "T", f);
    judge(
        frame.u, slab<double>("U", f, 3, nc_get_vara_double),
        [&](std::uint64_t k) { return has_u(f) ? value_u(i, f, k) : NC_FILL_DOUBLE; }, NC_FILL_DOUBLE, "U", f);
    if (f == 0)
      judge(
          found_.h_, slab<int>("HGT", 0, 2, nc_get_vara_int), [&](std::uint64_t k) { return value_h(i, k); },
          NC_FILL_INT, "HGT", 0);
    const auto s = slab<int>("S", f, 1, nc_get_vara_int)[0];
    frame.s = frame.s || s == value_s(i, f);
    if (s != value_s(i, f) && s != NC_FILL_INT)
      (void)say("S of frame " + std::to_string(f) + " is " + std::to_string(s));
  }

 private:
  bool say(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
    return false;
  }
  /// Of a variable of so many dimensions.
  template <typename T, typename Read>
  std::vector<T> slab(const char* name, std::uint64_t f, int rank, Read read) {
    std::vector<T> values(rank == 1 ? 1 : held_.ny * held_.nx);
    const std::size_t start[] = {f, 0, 0}, count[] = {1, held_.ny, held_.nx};
    const auto skip = rank == 2 ? 1 : 0;
    int id = 0;
    const int status = nc_inq_varid(nc_, name, &id) != NC_NOERR
                           ? NC_ENOTVAR
                           : read(nc_, id, start + skip, count + skip, values.data());
    if (status != NC_NOERR)
      (void)say(std::string(name) + " of frame " + std::to_string(f) + " cannot be read: " + nc_strerror(status));
    return values;
  }
  template <typename T, typename Right>
  void judge(Cells& cells, const std::vector<T>& values, Right right, T fill, const char* name, std::uint64_t f) {
    const auto& d = found_.d_;
    cells.resize(d.y * d.x);
    for (std::uint64_t k = 0; k < values.size(); ++k) {
      const auto y = held_.y + k / held_.nx, x = held_.x + k % held_.nx, cell = y * d.x + x;
      const bool is_own = y >= own_.y && y < own_.y + own_.ny && x >= own_.x && x < own_.x + own_.nx;
      if (values[k] == right(cell)) {
        cells[cell] = cells[cell] || is_own;
      } else if (values[k] != fill) {
        (void)say(std::string(name) + " of frame " + std::to_string(f) + " has " + std::to_string(values[k]) +
                  " in cell " + std::to_string(cell) + " instead of " + std::to_string(right(cell)));
        return;
      }
    }
  }

  int nc_;
  Found& found_;
  Area held_, own_;
  std::size_t records_ = 0;
  std::string wrong_;
};

std::string Found::look_into(const std::string& path, const Area& held, const Area& own, std::uint64_t synced,
                             std::uint64_t begun) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || st.st_size == 0) return {};
  int nc = -1;
  if (const int status = nc_open(path.c_str(), NC_NOWRITE, &nc); status != NC_NOERR)
    return std::string("it cannot be opened: ") + nc_strerror(status);
  int variables = 0;
  (void)nc_inq_nvars(nc, &variables);
  File file(nc, *this, held, own);
  // A commit before the schema leaves an empty one.
  if ((variables > 0 || synced > 0) && file.shape(begun))
    for (std::uint64_t f = 0; f < file.records() && file.wrong().empty(); ++f) file.frame(f);
  (void)nc_close(nc);
  return file.wrong();
}

bool Found::holds(std::uint64_t frame, const Area& area) const {
  if (frame >= frames_.size()) return false;
  const auto& f = frames_[frame];
  if (!f.s || f.t.empty() || (frame == 0 && h_.empty())) return false;
  for (auto y = area.y; y < area.y + area.ny; ++y)
    for (auto x = area.x; x < area.x + area.nx; ++x)
      if (const auto cell = y * d_.x + x; !f.t[cell] || !f.u[cell] || (frame == 0 && !h_[cell])) return false;
  return true;
}

}  // namespace advectio::faults
