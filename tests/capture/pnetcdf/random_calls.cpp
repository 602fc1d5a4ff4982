// random_calls FIRST LAST [STEPS]: for each seed from FIRST to LAST a random but repeatable conversation of all ranks
// with the PnetCDF library about SEED.nc. Every return code and everything read is printed to answers.<rank>, so that
// two runs can be compared. STEPS: no more than that many, to find where two runs part. Knows nothing of Advectio.
//
// What is left out, because the library itself does not do the same twice, or breaks:
// * Ranks put into parts of their own (along the last dimension), and read those of others behind a barrier only.
// * Nothing is read that was neither put nor filled: what is added is put as a whole at once, unless it is filled.
// * A collective call is wrong on all ranks or on none: the library's ranks then make other MPI calls, and hang.
// * A wait_all with numbers that are not there has only such: what else it names would never be written. And as many
//   that it cannot mean all there are.
// * Values out of range in mput, mget and independent varn calls: the library leaves their requests pending.
// * Floating numbers that no integer can hold: what is stored is undefined.
// * A `_FillValue` that is renamed, copied or deleted.
// * Which status is whose, where a wait names as many requests as are pending.
// * What a posted read of `long` finds in floating variables: where it is out of range, another fill value.
// * New records by one of several pending calls: the library may overlook them. And blocking varn, mput and mget calls
//   of nothing: those end what is pending.
// * A put of nothing beyond the last record, and what depends on the layout: see docs/pnetcdf-interposer.md.
#include <mpi.h>
#include <pnetcdf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace {

int rank = 0, ranks = 1;
FILE* out = nullptr;

/// The same on all ranks, or of this one.
std::mt19937_64 of_all, of_this;
int below(std::mt19937_64& bits, int n) {
  return static_cast<int>(bits() % static_cast<std::uint64_t>(n));
}
int together(int n) {
  return below(of_all, n);
}
bool all_chance(int percent) {
  return together(100) < percent;
}
int own(int n) {
  return below(of_this, n);
}
bool own_chance(int percent) {
  return own(100) < percent;
}
void barrier() {
  MPI_Barrier(MPI_COMM_WORLD);
}

int nc = -1;
std::string path;
enum class Mode { define, collective, independent } mode;
int ended_variables = 0;  // those that have left define mode
bool ever_ended = false;
int named = 0;
bool attached = false, created = false;

const char* name_of(int code) {
  return code == NC_NOERR ? "ok" : ncmpi_strerrno(code);
}
int said(const std::string& what, int code) {
  std::fprintf(out, "%s: %s\n", what.c_str(), name_of(code));
  return code;
}
#define DO(CALL) said(#CALL, CALL)
std::string number(long long n) {
  return " " + std::to_string(n);
}

// --- what there is -------------------------------------------------------------------------------------------------

int count_of_variables() {
  int n = 0;
  ncmpi_inq_nvars(nc, &n);
  return n;
}
struct Variable {
  int id = -1;
  nc_type type = NC_NAT;
  std::vector<MPI_Offset> lengths;
  bool record = false;
  [[nodiscard]] bool text() const { return type == NC_CHAR; }
};
MPI_Offset records() {
  int d = -1;
  MPI_Offset n = 0;
  if (ncmpi_inq_unlimdim(nc, &d) == NC_NOERR && d >= 0) ncmpi_inq_dimlen(nc, d, &n);
  return n;
}
Variable variable(int id) {
  Variable v;
  int n = 0, dims[NC_MAX_VAR_DIMS > 64 ? 64 : NC_MAX_VAR_DIMS], unlimited = -1;
  v.id = id;
  if (ncmpi_inq_varndims(nc, id, &n) != NC_NOERR) return v;
  ncmpi_inq_var(nc, id, nullptr, &v.type, nullptr, dims, nullptr);
  ncmpi_inq_unlimdim(nc, &unlimited);
  for (int i = 0; i < n; ++i) {
    MPI_Offset length = 0;
    ncmpi_inq_dimlen(nc, dims[i], &length);
    v.lengths.push_back(length);
  }
  v.record = n > 0 && dims[0] == unlimited;
  return v;
}

// --- values and places ---------------------------------------------------------------------------------------------

constexpr std::size_t room = 4096;

template <typename T>
std::vector<T> values(std::mt19937_64& bits, bool small) {
  std::vector<T> v(room);
  for (auto& x : v) {
    double d = below(bits, 100);
    if (!small && below(bits, 8) == 0) d = below(bits, 100000) - 50000;
    if (!small && below(bits, 16) == 0) d = (below(bits, 2000) - 1000) * 5e6;
    const double lowest = static_cast<double>(std::numeric_limits<T>::lowest()) / 2,
                 highest = static_cast<double>(std::numeric_limits<T>::max()) / 2;
    x = static_cast<T>(std::min(std::max(d, lowest), highest));
  }
  return v;
}

struct Place {
  std::vector<MPI_Offset> start, count, stride, map;
  bool no_start = false, no_count = false, no_stride = false, no_map = false;
  [[nodiscard]] const MPI_Offset* starts() const { return no_start ? nullptr : start.data(); }
  [[nodiscard]] const MPI_Offset* counts() const { return no_count ? nullptr : count.data(); }
  [[nodiscard]] const MPI_Offset* strides() const { return no_stride ? nullptr : stride.data(); }
  [[nodiscard]] const MPI_Offset* maps() const { return no_map ? nullptr : map.data(); }
  [[nodiscard]] MPI_Offset volume() const {
    MPI_Offset n = 1;
    for (const auto c : count) n *= c;
    return n;
  }
};
std::string shown(const Place& p) {
  std::string s;
  for (std::size_t i = 0; i < p.start.size(); ++i)
    s += number(p.start[i]) + "+" + std::to_string(p.count[i]) + "*" + std::to_string(p.stride[i]) + "@" +
         std::to_string(p.map[i]);
  if (p.no_start) s += " no start";
  if (p.no_count) s += " no count";
  if (p.no_stride) s += " no stride";
  if (p.no_map) s += " no map";
  return s;
}

enum Form { var, var1, vara, vars, varm, varn, forms };
const char* const form_names[] = {"var", "var1", "vara", "vars", "varm", "varn"};

/// Within a variable; `mine`: within this rank's part. `to`: records there are, or shall be.
Place any_place(const Variable& v, Form form, bool mine, MPI_Offset from, MPI_Offset to) {
  Place p;
  const std::size_t n = v.lengths.size();
  for (std::size_t i = 0; i < n; ++i) {
    MPI_Offset low = 0, high = v.record && i == 0 ? to : v.lengths[i];
    if (v.record && i == 0) low = from;
    MPI_Offset stride = form == vars || form == varm ? 1 + own(3) : 1;
    if (v.record && n == 1) stride = 1;  // the library goes to other places (1.12.3)
    if (mine && i + 1 == n) {
      if (v.record && i == 0) {  // every so-manieth record
        while (low < high && low % ranks != rank) ++low;
        high = std::min(high, low + 1);
      } else {
        const auto length = high;
        low = length * rank / ranks;
        high = length * (rank + 1) / ranks;
      }
    }
    MPI_Offset start = low < high ? low + own(static_cast<int>(high - low)) : 0;
    MPI_Offset count = low < high ? 1 + own(static_cast<int>((high - start - 1) / stride + 1)) : 0;
    // The library counts what lies between, too.
    while (count > 1 && start + count > high) --count;
    if (form == var1) count = low < high ? 1 : 0;
    p.start.push_back(start);
    p.count.push_back(count);
    p.stride.push_back(stride);
  }
  if (own_chance(3) && n > 0 && form != var1) p.count[static_cast<std::size_t>(own(static_cast<int>(n)))] = 0;
  // A put of nothing: not behind the last record, nor before the first.
  if (v.record && mine && p.volume() == 0) {
    p.start[0] = p.count[0] = 0;
    p.stride[0] = 1;
  }
  p.map.assign(n, 1);
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  if (n > 1 && own_chance(60)) std::swap(order[0], order[static_cast<std::size_t>(own(static_cast<int>(n)))]);
  MPI_Offset distance = 1 + own(2);
  for (std::size_t k = n; k-- > 0;) {
    p.map[order[k]] = distance;
    distance *= std::max<MPI_Offset>(p.count[order[k]] + own(2), 1);
  }
  p.no_stride = own_chance(10);
  p.no_map = own_chance(10);
  return p;
}

/// So that there is nothing in it, or it cannot be right. False: there is no way.
bool spoil(Place& p, const Variable& v, Form form, bool read) {
  if (v.lengths.empty() || form == var) return false;
  const std::size_t n = v.lengths.size(), from = v.record && !read ? 1 : 0;
  if (from >= n) {
    p.start[0] = -1 - own(3);
    return true;
  }
  const auto i = from + static_cast<std::size_t>(own(static_cast<int>(n - from)));
  const auto length = v.record && i == 0 ? records() : v.lengths[i];
  // Nothing may be anywhere, up to the end.
  p.count[i] = std::max<MPI_Offset>(p.count[i], 1);
  switch (own(form == vars || form == varm ? 8 : 7)) {
    case 0: p.start[i] = length + own(3); break;
    case 1: p.start[i] = -1 - own(2); break;
    case 2:
      p.count[i] = length + 1 + own(3);
      if (form == var1) p.start[i] = length + 1;
      break;
    case 3:
      p.count[i] = -1 - own(2);
      if (form == var1) p.start[i] = length + 1;
      break;
    case 4: p.no_start = true; break;
    case 5:
      if (form == var1 || form == varn)
        p.start[i] = length;
      else
        p.no_count = true;
      break;
    case 6:
      p.start[i] = length - 1;
      p.count[i] = 2;
      if (form == var1) p.start[i] = length + 5;
      break;
    default:
      p.stride[i] = -own(2);
      p.no_stride = false;
      break;
  }
  return true;
}

// --- the families --------------------------------------------------------------------------------------------------

enum Way { alone, all, posted, buffered };
const char* const way_names[] = {"alone", "all", "posted", "buffered"};

using Offsets = const MPI_Offset*;
using Lists = MPI_Offset* const*;

template <typename P, typename... Last>
struct Functions {
  int (*var)(int, int, P, Last...);
  int (*var1)(int, int, Offsets, P, Last...);
  int (*vara)(int, int, Offsets, Offsets, P, Last...);
  int (*vars)(int, int, Offsets, Offsets, Offsets, P, Last...);
  int (*varm)(int, int, Offsets, Offsets, Offsets, Offsets, P, Last...);
  int (*varn)(int, int, int, Lists, Lists, P, Last...);

  int call(Form form, int v, const std::vector<Place>& p, P data, Last... last) const {
    const auto& a = p[0];
    std::vector<MPI_Offset*> starts, counts;
    for (const auto& box : p) {
      starts.push_back(const_cast<MPI_Offset*>(box.starts()));
      counts.push_back(const_cast<MPI_Offset*>(box.counts()));
    }
    switch (form) {
      case Form::var: return var(nc, v, data, last...);
      case Form::var1: return var1(nc, v, a.starts(), data, last...);
      case Form::vara: return vara(nc, v, a.starts(), a.counts(), data, last...);
      case Form::vars: return vars(nc, v, a.starts(), a.counts(), a.strides(), data, last...);
      case Form::varm: return varm(nc, v, a.starts(), a.counts(), a.strides(), a.maps(), data, last...);
      default: return varn(nc, v, static_cast<int>(p.size()), starts.data(), counts.data(), data, last...);
    }
  }
};

template <typename T>
struct Family {
  const char* name;
  MPI_Datatype type;
  Functions<const T*> put[2];
  Functions<T*> get[2];
  Functions<const T*, int*> post_put[2];
  Functions<T*, int*> post_get;
  int (*mput[2])(int, int, int*, Lists, Lists, T* const*);
  int (*mget[2])(int, int, int*, Lists, Lists, T**);
};

#define MEMBERS(P, T, ALL)                                                                                     \
  {                                                                                                            \
    ncmpi_##P##_var_##T##ALL, ncmpi_##P##_var1_##T##ALL, ncmpi_##P##_vara_##T##ALL, ncmpi_##P##_vars_##T##ALL, \
        ncmpi_##P##_varm_##T##ALL, ncmpi_##P##_varn_##T##ALL                                                   \
  }
#define FAMILY(T, TYPE, MPI_TYPE)                                        \
  Family<TYPE> {                                                         \
#T, MPI_TYPE,                                                        \
        {MEMBERS(put, T, ), MEMBERS(put, T, _all) },                     \
         {MEMBERS(get, T, ), MEMBERS(get, T, _all) },                    \
          {MEMBERS(iput, T, ), MEMBERS(bput, T, ) }, MEMBERS(iget, T, ), \
           {ncmpi_mput_vara_##T, ncmpi_mput_vara_##T##_all }, {          \
      ncmpi_mget_vara_##T, ncmpi_mget_vara_##T##_all                     \
    }                                                                    \
  }

/// `f` with the family of one of the eleven types of numbers.
template <typename F>
void with_numbers(int which, F f) {
  switch (which) {
    case 0: return f(FAMILY(schar, signed char, MPI_SIGNED_CHAR));
    case 1: return f(FAMILY(uchar, unsigned char, MPI_UNSIGNED_CHAR));
    case 2: return f(FAMILY(short, short, MPI_SHORT));
    case 3: return f(FAMILY(ushort, unsigned short, MPI_UNSIGNED_SHORT));
    case 4: return f(FAMILY(int, int, MPI_INT));
    case 5: return f(FAMILY(uint, unsigned, MPI_UNSIGNED));
    case 6: return f(FAMILY(long, long, MPI_LONG));
    case 7: return f(FAMILY(float, float, MPI_FLOAT));
    case 8: return f(FAMILY(longlong, long long, MPI_LONG_LONG_INT));
    case 9: return f(FAMILY(ulonglong, unsigned long long, MPI_UNSIGNED_LONG_LONG));
    default: return f(FAMILY(double, double, MPI_DOUBLE));
  }
}
constexpr int number_types = 11;
template <typename F>
void with_text(F f) {
  f(FAMILY(text, char, MPI_CHAR));
}

template <typename T>
void print_values(const std::vector<T>& data) {
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) sum += static_cast<double>(data[i]) * static_cast<double>(i % 17 + 1);
  std::fprintf(out, "  %.17g:", sum);
  for (std::size_t i = 0; i < 12; ++i) std::fprintf(out, " %.9g", static_cast<double>(data[i]));
  std::fprintf(out, "\n");
}

// --- posted calls --------------------------------------------------------------------------------------------------

struct Pending {
  int id = NC_REQ_NULL;
  bool get = false, named = true;
  int variable = -1;
  std::shared_ptr<void> memory;
  void (*print)(const void*) = nullptr;
};
std::vector<Pending> pending;

bool is_pending(bool get, int v) {
  return std::any_of(pending.begin(), pending.end(),
                     [get, v](const Pending& p) { return p.get == get && p.variable == v; });
}
template <typename T>
void remember(int id, bool get, int v, std::shared_ptr<std::vector<T>> data) {
  if (id == NC_REQ_NULL) return;
  pending.push_back(
      {id, get, true, v, std::move(data), [](const void* d) { print_values(*static_cast<const std::vector<T>*>(d)); }});
}
/// Those that are over: all of a kind, or those whose numbers have been taken back.
template <typename Over>
void forget(Over over) {
  for (const auto& p : pending)
    if (over(p) && p.get) p.print(p.memory.get());
  std::erase_if(pending, over);
}

void wait(bool collective) {
  auto& bits = collective ? of_all : of_this;
  const auto call = [collective](int n, int* ids, int* statuses) {
    return collective ? ncmpi_wait_all(nc, n, ids, statuses) : ncmpi_wait(nc, n, ids, statuses);
  };
  std::string what = collective ? "wait_all" : "wait";
  if (mode == Mode::define || collective != (mode == Mode::collective)) {
    said(what + " in another mode", call(NC_REQ_ALL, nullptr, nullptr));
    return;
  }
  const int how = below(bits, 12);
  if (how < 3) {
    const int kind = how == 0 ? NC_REQ_ALL : how == 1 ? NC_PUT_REQ_ALL : NC_GET_REQ_ALL;
    said(what + number(kind), call(kind, nullptr, nullptr));
    forget([kind](const Pending& p) { return kind == NC_REQ_ALL || p.get == (kind == NC_GET_REQ_ALL); });
    return;
  }
  const bool with_status = below(bits, 2) == 0, wrong = how == 3, some = how < 8;
  std::vector<int> ids;
  if (wrong) {
    for (std::size_t i = 0; i < pending.size() + 3; ++i) ids.push_back(200 + static_cast<int>(i) * 7);
  } else {
    for (const auto& p : pending)
      if (!some || own_chance(50)) ids.push_back(p.id);
    std::shuffle(ids.begin(), ids.end(), of_this);
    if (some && own_chance(20)) ids.push_back(NC_REQ_NULL);
  }
  // Where as many are named as are pending, the library goes by the count, and may give one the status of another.
  const auto asked = ids;
  std::vector<int> statuses(ids.size() + 1, 9);
  ids.push_back(0);
  for (const auto id : asked) what += number(id);
  said(what, call(static_cast<int>(asked.size()), ids.data(), with_status ? statuses.data() : nullptr));
  if (asked.size() == pending.size()) std::sort(statuses.begin(), statuses.begin() + std::ssize(asked));
  std::string line = " ";
  for (std::size_t i = 0; i < asked.size(); ++i) line += number(ids[i]) + "/" + name_of(statuses[i]);
  std::fprintf(out, "%s\n", line.c_str());
  if (wrong) return;
  forget([&asked](const Pending& p) { return std::find(asked.begin(), asked.end(), p.id) != asked.end(); });
}

void finish_pending() {
  said("wait_all", ncmpi_wait_all(nc, NC_REQ_ALL, nullptr, nullptr));
  forget([](const Pending&) { return true; });
}

void cancel() {
  std::string what = "cancel";
  if (own_chance(20)) {
    const int kinds[] = {NC_REQ_ALL, NC_PUT_REQ_ALL, NC_GET_REQ_ALL, -17};
    const int kind = kinds[own(4)];
    said(what + number(kind), ncmpi_cancel(nc, kind, nullptr, nullptr));
    if (kind != -17)
      std::erase_if(pending,
                    [kind](const Pending& p) { return kind == NC_REQ_ALL || p.get == (kind == NC_GET_REQ_ALL); });
    return;
  }
  std::vector<int> ids;
  for (const auto& p : pending)
    if (own_chance(40)) ids.push_back(p.id);
  if (own_chance(30)) ids.push_back(300 + own(9));
  if (own_chance(10)) ids.push_back(NC_REQ_NULL);
  std::shuffle(ids.begin(), ids.end(), of_this);
  const auto asked = ids;
  std::vector<int> statuses(ids.size() + 1, 9);
  ids.push_back(0);
  const bool with_status = own_chance(50);
  said(what, ncmpi_cancel(nc, static_cast<int>(asked.size()), ids.data(), with_status ? statuses.data() : nullptr));
  for (std::size_t i = 0; i < asked.size(); ++i)
    std::fprintf(out, "  %d %d/%s\n", asked[i], ids[i], name_of(statuses[i]));
  std::erase_if(pending,
                [&asked](const Pending& p) { return std::find(asked.begin(), asked.end(), p.id) != asked.end(); });
}

void say_buffer() {
  MPI_Offset used = -1, size = -1;
  int n = -1;
  const int a = ncmpi_inq_buffer_usage(nc, &used), b = ncmpi_inq_buffer_size(nc, &size), c = ncmpi_inq_nreqs(nc, &n);
  std::fprintf(out, "buffer %s %lld %s %lld requests %s %d\n", name_of(a), static_cast<long long>(used), name_of(b),
               static_cast<long long>(size), name_of(c), n);
}

// --- puts and gets -------------------------------------------------------------------------------------------------

template <typename T>
bool fits_all(const Variable& v) {
  // A floating number that no integer can hold has no defined value there.
  return std::is_floating_point_v<T> && v.type != NC_FLOAT && v.type != NC_DOUBLE;
}

struct Choice {
  Way way = all;
  Form form = vara;
  int type = 0;
  bool wrong = false, flexible = false, many = false, other_kind = false;
  int spoiled = 0;  // the variable's number: 1 unknown, 2 NC_GLOBAL, 3 negative
};

/// Of a collective call all ranks choose the same but for the place.
Choice any_choice(Way way) {
  auto& bits = way == all ? of_all : of_this;
  Choice c;
  c.way = way;
  c.form = static_cast<Form>(below(bits, forms));
  c.type = below(bits, number_types);
  c.wrong = below(bits, 100) < 15;
  c.flexible = below(bits, 100) < 20;
  c.many = (way == all || way == alone) && below(bits, 100) < 10;
  if (c.many) c.form = vara;
  if (c.wrong && below(bits, 4) == 0) c.spoiled = 1 + below(bits, 3);
  if (c.wrong && c.spoiled == 0) c.other_kind = below(bits, 5) == 0;
  // The library does not find it in a flexible call, and dies of it.
  if (c.other_kind) c.flexible = false;
  return c;
}

std::vector<Place> places(const Variable& v, const Choice& c, bool mine, bool read, MPI_Offset from, MPI_Offset to,
                          bool& wrong) {
  std::vector<Place> p;
  p.push_back(any_place(v, c.form, mine, from, to));
  // Boxes of one call do not overlap: neither puts nor gets are defined then.
  // A varn box of several records is one that the library writes and reads with another's bytes (1.12.3).
  if (c.form == varn && v.record) p[0].count[0] = std::min<MPI_Offset>(p[0].count[0], 2);
  if (c.form == varn && v.record && v.lengths.size() == 1) p[0].count[0] = std::min<MPI_Offset>(p[0].count[0], 1);
  if ((c.form == varn || c.many) && v.lengths.size() > 1 && p[0].count[0] > 1) {
    p.push_back(p[0]);
    p[0].count[0] = 1;
    p[1].start[0] += 1;
    p[1].count[0] -= 1;
  }
  // A map is of elements that lie together, and these may not be more than the flexible memory has.
  if (c.flexible) p[0].no_map = true;
  if (wrong) wrong = spoil(p[static_cast<std::size_t>(own(static_cast<int>(p.size())))], v, c.form, read);
  return p;
}

std::string describe(const char* what, const char* type, const Variable& v, const Choice& c,
                     const std::vector<Place>& p) {
  std::string s = std::string(what) + " " + form_names[c.form] + " " + way_names[c.way] + " " + type + number(v.id);
  for (const auto& box : p) s += " |" + shown(box);
  return s;
}

int spoiled_id(const Choice& c, int id) {
  return c.spoiled == 1 ? 777 : c.spoiled == 2 ? NC_GLOBAL : c.spoiled == 3 ? -5 : id;
}

/// The memory of a flexible call: as many of a type, perhaps with gaps between them.
struct Flexible {
  MPI_Offset count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  bool own_type = false;
  Flexible(MPI_Offset elements, MPI_Datatype element, std::mt19937_64& bits, bool wrong) {
    count = elements;
    type = element;
    const int how = below(bits, 4);
    if (how == 0 && elements > 0) {
      MPI_Type_vector(static_cast<int>(elements), 1, 2, element, &type);
      MPI_Type_commit(&type);
      own_type = true;
      count = 1;
    } else if (how == 1 && elements > 0) {
      MPI_Type_contiguous(static_cast<int>(elements), element, &type);
      MPI_Type_commit(&type);
      own_type = true;
      count = 1;
    }
    if (wrong) count += 1 + below(bits, 2);
  }
  ~Flexible() {
    if (own_type) MPI_Type_free(&type);
  }
  Flexible(const Flexible&) = delete;
  Flexible& operator=(const Flexible&) = delete;
};

MPI_Offset volume(const std::vector<Place>& p, const Variable& v, const Choice& c) {
  if (v.lengths.empty()) return 1;
  MPI_Offset n = 0;
  for (const auto& box : p) n += c.form == var1 ? 1 : box.volume();
  if (c.form == var) {
    n = 1;
    for (std::size_t i = 0; i < v.lengths.size(); ++i) n *= i == 0 && v.record ? records() : v.lengths[i];
  }
  return n;
}

#define FLEXIBLE(P, ALL)                                                                                              \
  {                                                                                                                   \
    ncmpi_##P##_var##ALL, ncmpi_##P##_var1##ALL, ncmpi_##P##_vara##ALL, ncmpi_##P##_vars##ALL, ncmpi_##P##_varm##ALL, \
        ncmpi_##P##_varn##ALL                                                                                         \
  }

template <typename T>
void put(const Family<T>& f, const Variable& v, Choice c, MPI_Offset from, MPI_Offset to) {
  const bool whole = c.form == var || v.lengths.empty();
  bool spoils = c.wrong && c.spoiled == 0 && !c.other_kind;
  auto p = places(v, c, true, false, from, to, spoils);
  // Where all put everything, all put the same.
  if (whole && c.way != all && ranks > 1) return;
  auto& bits = whole ? of_all : of_this;
  // Nobody else's is to come before or after it.
  struct Apart {
    const bool needed;
    ~Apart() {
      if (needed) barrier();
    }
  };
  const Apart apart{whole && c.way == all};
  if (apart.needed) barrier();
  const bool small = fits_all<T>(v) || c.many || (c.form == varn && c.way == alone);
  auto data = std::make_shared<std::vector<T>>(values<T>(bits, small));
  if (c.way == all && c.wrong && !spoils && c.spoiled == 0 && !c.other_kind && !c.flexible) return;
  if (c.form == var1 && !whole)
    for (const auto n : p[0].count)
      if (n == 0 && c.way != all) return;
  if (c.way == alone && (c.form == varn || c.many) && !pending.empty() && volume(p, v, c) == 0) return;
  const int id = spoiled_id(c, v.id);
  const std::string what = describe("put", f.name, v, c, p);
  if (c.way == posted || c.way == buffered) {
    if (is_pending(false, v.id)) return;
    int request = -7, code = 0;
    if (c.flexible) {
      const Functions<const void*, MPI_Offset, MPI_Datatype, int*> functions[2] = {FLEXIBLE(iput, ), FLEXIBLE(bput, )};
      const Flexible memory(volume(p, v, c), f.type, of_this, c.wrong && own_chance(20));
      code = functions[c.way == buffered].call(c.form, id, p, data->data(), memory.count, memory.type, &request);
    } else {
      code = f.post_put[c.way == buffered].call(c.form, id, p, data->data(), &request);
    }
    said(what + " flexible" + number(c.flexible), code);
    std::fprintf(out, "  request %d\n", request);
    remember<T>(request, false, v.id, data);
    return;
  }
  if (c.many && !v.lengths.empty() && !c.wrong) {
    int ids[2] = {v.id, v.id};
    MPI_Offset* starts[2] = {p.front().start.data(), p.back().start.data()};
    MPI_Offset* counts[2] = {p.front().count.data(), p.back().count.data()};
    T* lists[2] = {data->data(), data->data() + room / 2};
    const int n = static_cast<int>(p.size());
    said("m" + what, f.mput[c.way == all](nc, n, ids, starts, counts, lists));
    return;
  }
  if (c.flexible) {
    const Functions<const void*, MPI_Offset, MPI_Datatype> functions[2] = {FLEXIBLE(put, ), FLEXIBLE(put, _all)};
    const Flexible memory(volume(p, v, c), f.type, bits, c.wrong && !spoils);
    said("flexible " + what, functions[c.way == all].call(c.form, id, p, data->data(), memory.count, memory.type));
    return;
  }
  said(what, f.put[c.way == all].call(c.form, id, p, data->data()));
}

template <typename T>
void get(const Family<T>& f, const Variable& v, Choice c, MPI_Offset to) {
  bool spoils = c.wrong && c.spoiled == 0 && !c.other_kind;
  const bool whole = c.form == var || v.lengths.empty();
  // Alone nothing of the others is read: they may be putting it.
  if (whole && c.way != all && ranks > 1) return;
  auto p = places(v, c, c.way != all, true, 0, to, spoils);
  if (c.way == all && c.wrong && !spoils && c.spoiled == 0 && !c.other_kind && !c.flexible) return;
  if (!whole && c.form == var1)
    for (const auto n : p[0].count)
      if (n == 0 && !spoils) return;
  if (c.way == alone && (c.form == varn || c.many) && !pending.empty() && volume(p, v, c) == 0) return;
  const int id = spoiled_id(c, v.id);
  auto data = std::make_shared<std::vector<T>>(room, T(7));
  const std::string what = describe("get", f.name, v, c, p);
  if (c.way == posted) {
    if (is_pending(true, v.id)) return;
    if (std::is_same_v<T, long> && (v.type == NC_FLOAT || v.type == NC_DOUBLE)) return;
    int request = -7, code = 0;
    if (c.flexible) {
      const Functions<void*, MPI_Offset, MPI_Datatype, int*> functions = FLEXIBLE(iget, );
      const Flexible memory(volume(p, v, c), f.type, of_this, c.wrong && own_chance(20));
      code = functions.call(c.form, id, p, data->data(), memory.count, memory.type, &request);
    } else {
      code = f.post_get.call(c.form, id, p, data->data(), &request);
    }
    said(what + " flexible" + number(c.flexible), code);
    std::fprintf(out, "  request %d\n", request);
    remember<T>(request, true, v.id, data);
    return;
  }
  int code = 0;
  if (c.many && !v.lengths.empty() && !c.wrong) {
    int ids[2] = {v.id, v.id};
    MPI_Offset* starts[2] = {p.front().start.data(), p.back().start.data()};
    MPI_Offset* counts[2] = {p.front().count.data(), p.back().count.data()};
    T* lists[2] = {data->data(), data->data() + room / 2};
    code = said("m" + what, f.mget[c.way == all](nc, static_cast<int>(p.size()), ids, starts, counts, lists));
  } else if (c.flexible) {
    const Functions<void*, MPI_Offset, MPI_Datatype> functions[2] = {FLEXIBLE(get, ), FLEXIBLE(get, _all)};
    const Flexible memory(volume(p, v, c), f.type, of_this, c.wrong && !spoils);
    code =
        said("flexible " + what, functions[c.way == all].call(c.form, id, p, data->data(), memory.count, memory.type));
  } else {
    code = said(what, f.get[c.way == all].call(c.form, id, p, data->data()));
  }
  if (code == NC_NOERR || code == NC_ERANGE) print_values(*data);
}

/// One element of each rank, which has to have one.
void give_each_its_own(Choice& c, const Variable& v) {
  if (c.way != all || c.form != var1 || v.lengths.empty()) return;
  if (v.lengths.back() < ranks || (v.record && (v.lengths.size() == 1 || records() == 0))) c.form = vara;
}

template <typename F>
void with_family(const Variable& v, const Choice& c, F f) {
  if (v.text() != c.other_kind)
    with_text(f);
  else
    with_numbers(c.type, f);
}

/// Of those whose every element is known; none: -1.
int any_variable(std::mt19937_64& bits, int n) {
  return n == 0 ? -1 : below(bits, n);
}

void put_somewhere(Way way) {
  const int id = any_variable(way == all ? of_all : of_this, ended_variables);
  if (id < 0) return;
  const Variable v = variable(id);
  Choice c = any_choice(way);
  give_each_its_own(c, v);
  if (way == all && (c.form == varn || c.many)) finish_pending();
  with_family(v, c, [&](const auto& f) { put(f, v, c, 0, records()); });
}

void get_somewhere(Way way) {
  const int id = any_variable(way == all ? of_all : of_this, ended_variables);
  if (id < 0) return;
  const Variable v = variable(id);
  Choice c = any_choice(way);
  // A value out of range leaves a request pending in the library.
  if (c.many || (c.form == varn && c.way == alone)) c.type = number_types - 1;
  if (way == all && (c.form == varn || c.many)) finish_pending();
  if (way == all) barrier();
  with_family(v, c, [&](const auto& f) { get(f, v, c, records()); });
  if (way == all) barrier();
}

/// This rank's part of a variable, or of one of its records.
void put_part(const Variable& v, MPI_Offset record) {
  const std::size_t n = v.lengths.size();
  std::vector<MPI_Offset> start(n, 0), count(v.lengths);
  std::vector<double> numbers(room);
  std::string text(room, 'a');
  for (std::size_t i = 0; i < room; ++i) {
    numbers[i] = together(100);
    text[i] = static_cast<char>('a' + static_cast<int>(numbers[i]) % 26);
  }
  if (v.record) {
    start[0] = record;
    count[0] = 1;
  }
  if (n > 0 && !(v.record && n == 1)) {
    start[n - 1] = v.lengths[n - 1] * rank / ranks;
    count[n - 1] = v.lengths[n - 1] * (rank + 1) / ranks - start[n - 1];
    if (count[n - 1] == 0) start[n - 1] = 0;
  } else if (n == 1 && record % ranks != rank) {
    start[0] = count[0] = 0;
  }
  said("part of" + number(v.id) + number(record),
       v.text() ? ncmpi_put_vara_text_all(nc, v.id, start.data(), count.data(), text.data())
                : ncmpi_put_vara_double_all(nc, v.id, start.data(), count.data(), numbers.data()));
}

/// The ranks divide it otherwise than here.
int fill_record(int id, MPI_Offset record) {
  barrier();
  const int code = ncmpi_fill_var_rec(nc, id, record);
  barrier();
  return code;
}

void complete_records(MPI_Offset from, MPI_Offset to) {
  for (auto r = from; r < to; ++r)
    for (int id = 0; id < ended_variables; ++id)
      if (const Variable v = variable(id); v.record) put_part(v, r);
}

/// Records behind the last, by any of the ways there are.
void grow() {
  std::vector<int> along;
  for (int id = 0; id < ended_variables; ++id)
    if (variable(id).record) along.push_back(id);
  if (along.empty() || records() > 6) return;
  finish_pending();
  const Variable v = variable(along[static_cast<std::size_t>(together(static_cast<int>(along.size())))]);
  const auto before = records(), from = before + together(2), to = from + 1 + together(2);
  const int how = together(6);
  const auto shared_put = [&](Way way, Form form) {
    Choice c;
    c.way = way;
    c.form = form;
    c.type = way == all ? together(number_types) : own(number_types);
    with_family(v, c, [&](const auto& f) { put(f, v, c, from, to); });
  };
  const Form some[] = {vara, vars, varm, varn};
  switch (how) {
    case 0:
    case 1: shared_put(all, some[together(4)]); break;
    case 2: {
      DO(ncmpi_begin_indep_data(nc));
      mode = Mode::independent;
      shared_put(alone, some[own(4)]);
      std::fprintf(out, "alone %lld\n", static_cast<long long>(records()));
      DO(ncmpi_end_indep_data(nc));
      mode = Mode::collective;
      break;
    }
    case 3:
    case 4: {
      shared_put(how == 4 && attached ? buffered : posted, some[own(4)]);
      std::fprintf(out, "posted %lld\n", static_cast<long long>(records()));
      barrier();
      finish_pending();
      break;
    }
    default: said("fill" + number(from), fill_record(v.id, from)); break;
  }
  barrier();
  std::fprintf(out, "records %lld\n", static_cast<long long>(records()));
  complete_records(before, records());
}

// --- definitions ---------------------------------------------------------------------------------------------------

std::string any_name(const char* kind) {
  if (all_chance(4)) return all_chance(50) ? "" : "a/b";
  return kind + std::to_string(all_chance(30) && named > 0 ? together(named) : named++) +
         std::string(static_cast<std::size_t>(together(4)), 'x');
}
int any_id(int n) {
  return all_chance(4) ? 99 : n == 0 ? 0 : together(n);
}

void define_dimension() {
  const MPI_Offset length = all_chance(5) ? -1 : all_chance(8) ? NC_UNLIMITED : 1 + together(6);
  const auto name = any_name("d");
  int id = -1;
  said("def_dim " + name + number(length), ncmpi_def_dim(nc, name.c_str(), length, &id));
}

void define_variable() {
  int dims[4], n = 0, count = 0, unlimited = -1;
  ncmpi_inq_ndims(nc, &n);
  ncmpi_inq_unlimdim(nc, &unlimited);
  const int number_of_dimensions = together(4);
  for (int i = 0; i < number_of_dimensions; ++i) {
    int d = any_id(n);
    if (i == 0 && unlimited >= 0 && all_chance(50)) d = unlimited;
    dims[count++] = d;
  }
  const nc_type type = all_chance(3) ? 77 : 1 + together(all_chance(80) ? 6 : 11);
  const auto name = any_name("v");
  int id = -1;
  std::string what = "def_var " + name + number(type);
  for (int i = 0; i < count; ++i) what += number(dims[i]);
  said(what, ncmpi_def_var(nc, name.c_str(), type, count, dims, &id));
}

void put_attribute() {
  const int v = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
  auto name = any_name("a");
  nc_type type = 1 + together(all_chance(80) ? 6 : 11);
  MPI_Offset count = together(5);
  if (v != NC_GLOBAL && all_chance(15)) {
    name = "_FillValue";
    if (all_chance(80)) type = variable(v).type;
    if (all_chance(85)) count = 1;
  }
  int ints[8];
  double doubles[8];
  signed char chars[8];
  for (int i = 0; i < 8; ++i) {
    ints[i] = together(all_chance(20) ? 70000 : 100);
    doubles[i] = together(100);
    chars[i] = static_cast<signed char>(together(100));
  }
  const std::string what = "att " + name + number(v) + number(type) + number(count);
  switch (type == NC_CHAR ? 3 : together(4)) {
    case 0: said(what + " int", ncmpi_put_att_int(nc, v, name.c_str(), type, count, ints)); break;
    case 1: said(what + " double", ncmpi_put_att_double(nc, v, name.c_str(), type, count, doubles)); break;
    case 2: said(what + " schar", ncmpi_put_att_schar(nc, v, name.c_str(), type, count, chars)); break;
    default: said(what + " text", ncmpi_put_att_text(nc, v, name.c_str(), count, "abcdefgh")); break;
  }
}

void change_names() {
  int n = 0;
  ncmpi_inq_ndims(nc, &n);
  switch (together(5)) {
    case 0: {
      const auto name = any_name("d");
      const int id = any_id(n);
      said("rename_dim" + number(id) + " " + name, ncmpi_rename_dim(nc, id, name.c_str()));
      break;
    }
    case 1: {
      const auto name = any_name("v");
      const int id = any_id(count_of_variables());
      said("rename_var" + number(id) + " " + name, ncmpi_rename_var(nc, id, name.c_str()));
      break;
    }
    case 2: {
      const auto name = any_name("a"), next = any_name("a");
      const int id = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
      said("rename_att" + number(id) + " " + name + " " + next, ncmpi_rename_att(nc, id, name.c_str(), next.c_str()));
      break;
    }
    case 3: {
      const auto name = any_name("a");
      const int id = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
      said("del_att" + number(id) + " " + name, ncmpi_del_att(nc, id, name.c_str()));
      break;
    }
    default: {
      const auto name = any_name("a");
      const int from = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables()), to = any_id(count_of_variables());
      said("copy_att" + number(from) + number(to) + " " + name, ncmpi_copy_att(nc, from, name.c_str(), nc, to));
      break;
    }
  }
}

void choose_fill() {
  if (all_chance(25)) {
    int before = -7;
    const int mode_ = all_chance(10) ? 5 : all_chance(60) ? NC_FILL : NC_NOFILL;
    said("set_fill" + number(mode_), ncmpi_set_fill(nc, mode_, &before));
    std::fprintf(out, "  before %d\n", before);
    return;
  }
  const int id = all_chance(5) ? NC_GLOBAL : any_id(count_of_variables());
  const int no_fill = all_chance(20) ? 1 : 0;
  double value[2] = {0, 0};
  std::memset(value, together(100), sizeof value);
  const void* with = all_chance(50) ? value : nullptr;
  // Its bytes are to be a number that is nothing special.
  if (with != nullptr && (variable(id).type == NC_FLOAT || variable(id).type == NC_DOUBLE)) with = nullptr;
  said("def_var_fill" + number(id) + number(no_fill) + (with != nullptr ? " with" : ""),
       ncmpi_def_var_fill(nc, id, no_fill, with));
}

/// What is defined and not filled is put as a whole.
void define_mode_has_ended() {
  mode = Mode::collective;
  ever_ended = true;
  barrier();
  const int before = ended_variables;
  ended_variables = count_of_variables();
  const auto n = records();
  for (int id = before; id < ended_variables; ++id) {
    const Variable v = variable(id);
    int no_fill = 1;
    ncmpi_inq_var_fill(nc, id, &no_fill, nullptr);
    std::fprintf(out, "new %d no_fill %d\n", id, no_fill);
    if (no_fill == 0) continue;
    if (!v.record) put_part(v, 0);
    for (MPI_Offset r = 0; v.record && r < n; ++r) put_part(v, r);
  }
}

void end_definitions() {
  int code = NC_NOERR;
  if (all_chance(25)) {
    const MPI_Offset pad = all_chance(5) ? -1 : together(300), align = 4 * together(40), behind = together(100),
                     record_align = 4 * together(9);
    code = said("_enddef" + number(pad) + number(align) + number(behind) + number(record_align),
                ncmpi__enddef(nc, pad, align, behind, record_align));
  } else {
    code = DO(ncmpi_enddef(nc));
  }
  if (code == NC_NOERR) define_mode_has_ended();
}

// --- what there is, in words ---------------------------------------------------------------------------------------

void say_attributes(int v, int n) {
  for (int i = 0; i < n; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    MPI_Offset count = 0;
    unsigned char bytes[256] = {};
    ncmpi_inq_attname(nc, v, i, name);
    ncmpi_inq_att(nc, v, name, &type, &count);
    const int code = ncmpi_get_att(nc, v, name, bytes);
    std::fprintf(out, "    %s %d %lld %s ", name, type, static_cast<long long>(count), name_of(code));
    for (int k = 0; k < 40; ++k) std::fprintf(out, "%02x", bytes[k]);
    std::fprintf(out, "\n");
  }
}

void inquire() {
  int dims = 0, vars = 0, atts = 0, unlimited = -2, fixed = -1, with_records = -1, format = -1;
  DO(ncmpi_inq(nc, &dims, &vars, &atts, &unlimited));
  ncmpi_inq_format(nc, &format);
  // Of a file that has been opened the library does not know them.
  if (created) {
    ncmpi_inq_num_fix_vars(nc, &fixed);
    ncmpi_inq_num_rec_vars(nc, &with_records);
  }
  std::fprintf(out, "  %d %d %d %d format %d variables %d %d\n", dims, vars, atts, unlimited, format, fixed,
               with_records);
  for (int d = 0; d < dims; ++d) {
    char name[NC_MAX_NAME + 1] = {};
    MPI_Offset length = -1, again = -1;
    ncmpi_inq_dim(nc, d, name, &length);
    ncmpi_inq_dimlen(nc, d, &again);
    std::fprintf(out, "  dim %s %lld %lld\n", name, static_cast<long long>(length), static_cast<long long>(again));
  }
  say_attributes(NC_GLOBAL, atts);
  for (int v = 0; v < vars; ++v) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    int n = 0, ids[64] = {}, count = 0, no_fill = -1;
    unsigned char fill[16] = {};
    ncmpi_inq_var(nc, v, name, &type, &n, ids, &count);
    const int code = ncmpi_inq_var_fill(nc, v, &no_fill, fill);
    std::fprintf(out, "  var %s %d %d (%d %d %d) fill %s %d %02x%02x%02x%02x\n", name, type, n, ids[0], ids[1], ids[2],
                 name_of(code), no_fill, fill[0], fill[1], fill[2], fill[3]);
    say_attributes(v, count);
  }
}

void read_all() {
  barrier();
  for (int id = 0; id < count_of_variables(); ++id) {
    const Variable v = variable(id);
    std::vector<double> numbers(room, 7);
    std::vector<char> text(room, 7);
    if (v.text()) {
      said("whole" + number(id), ncmpi_get_var_text_all(nc, id, text.data()));
      print_values(text);
    } else {
      said("whole" + number(id), ncmpi_get_var_double_all(nc, id, numbers.data()));
      print_values(numbers);
    }
  }
  barrier();
}

// --- the conversation ----------------------------------------------------------------------------------------------

/// Alone, in independent data mode.
void step_alone() {
  switch (own(10)) {
    case 0:
    case 1:
    case 2: put_somewhere(alone); break;
    case 3:
    case 4: get_somewhere(alone); break;
    case 5: put_somewhere(own_chance(50) ? buffered : posted); break;
    case 6: get_somewhere(posted); break;
    case 7: wait(false); break;
    case 8: cancel(); break;
    default: say_buffer(); break;
  }
}

void any_time() {
  switch (own(4)) {
    case 0: say_buffer(); break;
    case 1: cancel(); break;
    case 2: put_somewhere(own_chance(50) ? buffered : posted); break;
    default: get_somewhere(posted); break;
  }
}

void buffer() {
  if (all_chance(60)) {
    const MPI_Offset bytes = all_chance(10) ? 0 : 40 + together(2000);
    if (said("attach" + number(bytes), ncmpi_buffer_attach(nc, bytes)) == NC_NOERR) attached = true;
  } else if (DO(ncmpi_buffer_detach(nc)) == NC_NOERR) {
    attached = false;
  }
}

/// False: the dataset is over.
bool step() {
  if (mode == Mode::define) {
    switch (together(20)) {
      case 0:
      case 1:
      case 2: define_dimension(); break;
      case 3:
      case 4:
      case 5:
      case 6: define_variable(); break;
      case 7:
      case 8:
      case 9: put_attribute(); break;
      case 10: change_names(); break;
      case 11: choose_fill(); break;
      case 12: inquire(); break;
      case 13:
        switch (together(5)) {
          case 0: DO(ncmpi_redef(nc)); break;
          case 1: DO(ncmpi_begin_indep_data(nc)); break;
          case 2: DO(ncmpi_sync(nc)); break;
          case 3: DO(ncmpi_sync_numrecs(nc)); break;
          default: wait(true); break;
        }
        break;
      case 14: {
        if (ended_variables == 0) break;
        const double none[room / 64] = {};
        const MPI_Offset start[4] = {}, count[4] = {1, 1, 1, 1};
        said("in define mode", ncmpi_put_vara_double_all(nc, 0, start, count, none));
        break;
      }
      case 15:
        // Behind the records there are: the number of these is not shown to whoever asks in define mode.
        if (ever_ended) put_somewhere(own_chance(50) ? buffered : posted);
        break;
      default: end_definitions(); break;
    }
    return true;
  }
  switch (together(30)) {
    case 0: {
      if (DO(ncmpi_redef(nc)) == NC_NOERR) mode = Mode::define;
      break;
    }
    case 1:
    case 2: {
      DO(ncmpi_begin_indep_data(nc));
      mode = Mode::independent;
      barrier();
      for (int n = own(8); n > 0; --n) step_alone();
      if (all_chance(10)) DO(ncmpi_sync(nc));
      if (all_chance(10)) DO(ncmpi_sync_numrecs(nc));
      if (all_chance(10)) wait(true);
      if (all_chance(10)) {
        const int code = DO(ncmpi_redef(nc));
        if (code == NC_NOERR) mode = Mode::define;
        return true;
      }
      DO(ncmpi_end_indep_data(nc));
      mode = Mode::collective;
      barrier();
      break;
    }
    case 3:
    case 4: grow(); break;
    case 5: {
      const auto n = records();
      const int id = any_variable(of_all, ended_variables);
      if (id < 0 || n > 6) break;
      const auto r = n == 0 || all_chance(20) ? n : together(static_cast<int>(n));
      said("fill_var_rec" + number(id) + number(r), fill_record(id, r));
      complete_records(n, records());
      break;
    }
    case 6: DO(ncmpi_sync(nc)); break;
    case 7: put_attribute(); break;
    case 8: change_names(); break;
    case 9: inquire(); break;
    case 10: buffer(); break;
    case 11:
    case 12:
    case 13: wait(true); break;
    case 14:
    case 15:
    case 16: any_time(); break;
    case 17:
      switch (together(6)) {
        case 0: DO(ncmpi_enddef(nc)); break;
        case 1: DO(ncmpi_end_indep_data(nc)); break;
        case 2: DO(ncmpi_flush(nc)); break;
        case 3: DO(ncmpi_sync_numrecs(nc)); break;
        case 4: wait(false); break;
        default: define_variable(); break;
      }
      break;
    case 18: {
      if (ended_variables == 0) break;
      double none[4] = {};
      const MPI_Offset start[4] = {}, count[4] = {1, 1, 1, 1};
      said("in collective mode", ncmpi_get_vara_double(nc, 0, start, count, none));
      break;
    }
    case 19: read_all(); break;
    case 20:
    case 21:
    case 22:
    case 23: get_somewhere(all); break;
    default: put_somewhere(all); break;
  }
  return true;
}

void look_at(const std::string& name, int how) {
  if (said("open", ncmpi_open(MPI_COMM_WORLD, name.c_str(), how, MPI_INFO_NULL, &nc)) != NC_NOERR) return;
  created = false;
  ended_variables = count_of_variables();
  inquire();
  read_all();
  if (how == NC_WRITE) {
    mode = Mode::collective;
    put_somewhere(all);
    read_all();
  }
  DO(ncmpi_close(nc));
}

void converse(int steps) {
  const int modes[] = {0, NC_64BIT_OFFSET, NC_64BIT_DATA};
  const int how = modes[together(3)] | (all_chance(10) ? NC_NOCLOBBER : NC_CLOBBER);
  const bool otherwise = all_chance(5) && rank > 0;
  pending.clear();
  attached = ever_ended = false;
  created = true;
  ended_variables = 0;
  named = 0;
  mode = Mode::define;
  barrier();
  const int code =
      said("create", ncmpi_create(MPI_COMM_WORLD, path.c_str(), otherwise ? modes[own(3)] : how, MPI_INFO_NULL, &nc));
  if (code != NC_NOERR && code != NC_EMULTIDEFINE_CMODE) return;
  int id = 0;
  if (all_chance(80)) ncmpi_def_dim(nc, "time", NC_UNLIMITED, &id);
  for (int i = 0; i < 3; ++i) {
    const std::string name = "n" + std::to_string(i);
    ncmpi_def_dim(nc, name.c_str(), 1 + together(6), &id);
  }
  for (int i = 0; i < 4; ++i) define_variable();
  for (int i = 0; i < steps; ++i) step();
  if (mode != Mode::define || all_chance(50)) {
    if (mode == Mode::define) end_definitions();
    if (mode != Mode::define) {
      inquire();
      read_all();
    }
  }
  if (all_chance(15)) {
    // Each rank removes a file that was never laid out, and only one can.
    const bool removed = mode == Mode::define && !ever_ended;
    const int aborted = ncmpi_abort(nc);
    if (!removed) said("abort", aborted);
    barrier();
    std::fprintf(out, "there %d\n", access(path.c_str(), F_OK) == 0);
    barrier();
    if (removed) return;
  } else {
    for (int v = ended_variables; mode == Mode::define && v < count_of_variables(); ++v)
      DO(ncmpi_def_var_fill(nc, v, 0, nullptr));
    DO(ncmpi_close(nc));
  }
  barrier();
  std::string name = path;
  if (all_chance(20)) {
    name = path + ".moved";
    if (rank == 0) said("rename", std::rename(path.c_str(), name.c_str()));
    barrier();
  }
  look_at(name, NC_NOWRITE);
  if (all_chance(30)) look_at(name, NC_WRITE);
  if (all_chance(20)) {
    barrier();
    if (rank == 0) said("remove", unlink(name.c_str()));
    barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 3) return 2;
  out = std::fopen(("answers." + std::to_string(rank)).c_str(), "w");
  std::setvbuf(out, nullptr, _IOLBF, 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (auto seed = std::strtoull(argv[1], nullptr, 10); seed <= std::strtoull(argv[2], nullptr, 10); ++seed) {
    std::fprintf(out, "seed %llu\n", seed);
    of_all.seed(seed);
    of_this.seed(seed * 1000 + static_cast<unsigned>(rank) + 1);
    path = std::to_string(seed) + ".nc";
    for (int times = all_chance(20) ? 2 : 1; times > 0; --times) {
      int steps = 20 + together(60);
      if (argc > 3) steps = std::min(steps, std::atoi(argv[3]));
      converse(steps);
    }
  }
  std::fclose(out);
  MPI_Finalize();
  return 0;
}
