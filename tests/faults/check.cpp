#include "faults/check.h"

#include <netcdf.h>
#include <sys/stat.h>

#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>

#include "sinks/bp5_reader.h"
#include "sinks/zarr_reader.h"

namespace advectio::faults {

/// What is there, whoever reads it. All numbers of the runs are whole in a double.
struct Found::Opened {
  std::map<std::string, DataType> types;
  std::map<std::string, std::size_t> lengths;  ///< of dimensions
  bool one_unlimited = false;
  /// The record of a variable, or all of one without records; the error where it cannot be read.
  std::function<std::string(const std::string& variable, std::uint64_t record, std::vector<double>& to)> read;
};

std::string Found::open_netcdf(const std::string& path, std::shared_ptr<int>& nc, Opened& to) {
  int id = -1;
  if (const int status = nc_open(path.c_str(), NC_NOWRITE, &id); status != NC_NOERR) return nc_strerror(status);
  nc = std::shared_ptr<int>(new int(id), [](const int* open) {
    (void)nc_close(*open);
    delete open;
  });
  int dimensions = 0, variables = 0, unlimited = -1;
  if (nc_inq(id, &dimensions, &variables, nullptr, &unlimited) != NC_NOERR) return "what it holds cannot be read";
  to.one_unlimited = unlimited == 0;
  for (int i = 0; i < dimensions; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    std::size_t length = 0;
    if (nc_inq_dim(id, i, name, &length) != NC_NOERR) return "a dimension cannot be read";
    to.lengths[name] = length;
  }
  for (int i = 0; i < variables; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    if (nc_inq_var(id, i, name, &type, nullptr, nullptr, nullptr) != NC_NOERR) return "a variable cannot be read";
    to.types[name] = static_cast<DataType>(type);
  }
  to.read = [id](const std::string& name, std::uint64_t record, std::vector<double>& values) -> std::string {
    int variable = 0, rank = 0, dims[NC_MAX_VAR_DIMS];
    int status = nc_inq_varid(id, name.c_str(), &variable);
    if (status == NC_NOERR) status = nc_inq_var(id, variable, nullptr, nullptr, &rank, dims, nullptr);
    std::vector<std::size_t> start(static_cast<std::size_t>(rank), 0), count(start.size(), 1);
    for (int i = 0; status == NC_NOERR && i < rank; ++i) {
      const auto k = static_cast<std::size_t>(i);
      if (dims[i] == 0)
        start[k] = record;
      else
        status = nc_inq_dimlen(id, dims[i], &count[k]);
    }
    if (status == NC_NOERR) status = nc_get_vara_double(id, variable, start.data(), count.data(), values.data());
    return status == NC_NOERR ? "" : nc_strerror(status);
  };
  return {};
}

namespace {

double number_at(const Bytes& values, DataType type, std::size_t i) {
  const auto as = [&](auto value) {
    std::memcpy(&value, values.data() + i * sizeof value, sizeof value);
    return static_cast<double>(value);
  };
  return type == DataType::float32 ? as(float{}) : type == DataType::float64 ? as(double{}) : as(std::int32_t{});
}

}  // namespace

/// By the strict readers of the sinks' tests.
std::string Found::open_store(const std::string& path, FileFormat format, Opened& to) {
  auto all = std::make_shared<testing::Contents>();
  try {
    *all = format == FileFormat::zarr ? testing::read_zarr(path) : testing::read_bp5(path);
  } catch (const std::exception& e) {
    return e.what();
  }
  std::size_t unlimited = 0;
  for (const auto& d : all->schema.dimensions) {
    to.lengths[d.name] = d.length;
    if (d.unlimited && d.name == "Time") ++unlimited;
  }
  to.one_unlimited = unlimited == 1;
  for (const auto& v : all->schema.variables) to.types[v.name] = v.type;
  to.read = [all](const std::string& name, std::uint64_t record, std::vector<double>& values) -> std::string {
    for (std::size_t i = 0; i < all->schema.variables.size(); ++i) {
      const auto& v = all->schema.variables[i];
      if (v.name != name) continue;
      const bool has_records = all->schema.dimensions[v.dimensions[0]].name == "Time";
      const auto first = has_records ? record * values.size() : 0;
      if (all->values[i].size() < (first + values.size()) * size_of(v.type)) return "it ends before";
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = number_at(all->values[i], v.type, first + k);
      return {};
    }
    return "it is not there";
  };
  return {};
}

/// One that is open.
class Found::File {
 public:
  File(const Opened& from, Found& found, const Area& held, const Area& own)
      : from_(from), found_(found), held_(held), own_(own) {}

  bool shape(std::uint64_t begun) {
    const auto length = [&](const char* name, const char* of_wrf) {
      const auto it = from_.lengths.find(from_.lengths.contains(of_wrf) ? of_wrf : name);
      return it == from_.lengths.end() ? 0 : it->second;
    };
    if (!from_.one_unlimited || length("y", "south_north") != held_.ny || length("x", "west_east") != held_.nx)
      return say("its dimensions are not those that were defined");
    // A BP file has what was put.
    const bool whole = found_.d_.store != FileFormat::bp5;
    const std::pair<const char*, DataType> variables[] = {
        {"T", DataType::float32}, {"U", DataType::float64}, {"HGT", DataType::int32}, {"S", DataType::int32}};
    for (const auto& [name, asked] : variables) {
      const auto it = from_.types.find(name);
      if (it == from_.types.end() ? whole : it->second != asked) return say(std::string("there is no ") + name);
    }
    records_ = length("Time", "Time");
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
        frame.t, record("T", f), [&](std::uint64_t k) { return double{value_t(i, f, k)}; }, double{NC_FILL_FLOAT}, "T",
        f);
    judge(
        frame.u, record("U", f), [&](std::uint64_t k) { return has_u(f) ? value_u(i, f, k) : NC_FILL_DOUBLE; },
        NC_FILL_DOUBLE, "U", f);
    if (f == 0)
      judge(
          found_.h_, record("HGT", 0), [&](std::uint64_t k) { return static_cast<double>(value_h(i, k)); },
          double{NC_FILL_INT}, "HGT", 0);
    const auto s = static_cast<int>(record("S", f, 1)[0]);
    frame.s = frame.s || s == value_s(i, f);
    if (s != value_s(i, f) && s != NC_FILL_INT)
      (void)say("S of frame " + std::to_string(f) + " is " + std::to_string(s));
  }

 private:
  bool say(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
    return false;
  }
  std::vector<double> record(const char* name, std::uint64_t f) { return record(name, f, held_.ny * held_.nx); }
  std::vector<double> record(const char* name, std::uint64_t f, std::size_t values) {
    const auto fill = name[0] == 'T' ? double{NC_FILL_FLOAT} : name[0] == 'U' ? NC_FILL_DOUBLE : double{NC_FILL_INT};
    std::vector<double> to(values, fill);
    if (!from_.types.contains(name)) return to;
    if (const auto wrong = from_.read(name, f, to); !wrong.empty())
      (void)say(std::string(name) + " of frame " + std::to_string(f) + " cannot be read: " + wrong);
    return to;
  }
  template <typename Right>
  void judge(Cells& cells, const std::vector<double>& values, Right right, double fill, const char* name,
             std::uint64_t f) {
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

  const Opened& from_;
  Found& found_;
  Area held_, own_;
  std::size_t records_ = 0;
  std::string wrong_;
};

std::string Found::look_into(const std::string& path, const Area& held, const Area& own, std::uint64_t synced,
                             std::uint64_t begun) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || st.st_size == 0) return {};
  Opened opened;
  std::shared_ptr<int> nc;
  if (S_ISDIR(st.st_mode)) {
    // Before the first commit there is nothing.
    if (::stat((path + (d_.store == FileFormat::zarr ? "/zarr.json" : "/md.idx")).c_str(), &st) != 0) return {};
    if (const auto wrong = open_store(path, *d_.store, opened); !wrong.empty()) return "it cannot be read: " + wrong;
  } else if (const auto wrong = open_netcdf(path, nc, opened); !wrong.empty()) {
    return "it cannot be opened: " + wrong;
  }
  File file(opened, *this, held, own);
  // A commit before the schema leaves an empty one.
  if ((!opened.types.empty() || synced > 0) && file.shape(begun))
    for (std::uint64_t f = 0; f < file.records() && file.wrong().empty(); ++f) file.frame(f);
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
