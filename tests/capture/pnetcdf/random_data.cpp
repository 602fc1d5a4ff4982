// random_calls: values and places, and every way to put and get them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "random_calls.h"

namespace random_calls {
namespace {

// --- values and places ---------------------------------------------------------------------------------------------

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

void finish_pending() {
  said("wait_all", ncmpi_wait_all(nc, NC_REQ_ALL, nullptr, nullptr));
  forget([](const Pending&) { return true; });
}

}  // namespace

void begin_pending() {
  pending.clear();
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

namespace {
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

}  // namespace

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

}  // namespace random_calls
