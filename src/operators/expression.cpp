#include "operators/expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "config/nearest.h"
#include "operators/reduction.h"
#include "operators/values.h"
#include "operators/wrf_diagnostics.h"

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();
// Deeper ones are no expressions that a person writes.
constexpr int depth_max = 200;
constexpr std::size_t length_max = 4096;

class Constant final : public Quantity {
 public:
  explicit Constant(double value) : value_(value) {}
  void needs(const Box&, std::vector<Need>&) const override {}
  void make(const Box&, Needed&, std::span<double> result) const override {
    std::fill(result.begin(), result.end(), value_);
  }

 private:
  double value_;
};

using One = double (*)(double);
using Two = double (*)(double, double);

template <typename Function>
class Applied;

/// A function of one quantity.
template <>
class Applied<One> final : public Quantity {
 public:
  Applied(One function, std::shared_ptr<const Quantity> a) : function_(function), a_(std::move(a)) {}
  void needs(const Box& box, std::vector<Need>& all) const override { a_->needs(box, all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    a_->make(box, values, result);
    for (auto& v : result) v = function_(v);
  }

 private:
  One function_;
  std::shared_ptr<const Quantity> a_;
};

/// A function of two. Missing where one of them is.
template <>
class Applied<Two> final : public Quantity {
 public:
  Applied(Two function, std::shared_ptr<const Quantity> a, std::shared_ptr<const Quantity> b)
      : function_(function), a_(std::move(a)), b_(std::move(b)) {}
  void needs(const Box& box, std::vector<Need>& all) const override {
    a_->needs(box, all);
    b_->needs(box, all);
  }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    std::vector<double> other(result.size());
    a_->make(box, values, result);
    b_->make(box, values, other);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double a = result[i], b = other[i];
      result[i] = std::isnan(a) || std::isnan(b) ? missing : function_(a, b);
    }
  }

 private:
  Two function_;
  std::shared_ptr<const Quantity> a_, b_;
};

using Three = double (*)(double, double, double);

/// A function of three. Missing where one of them is.
template <>
class Applied<Three> final : public Quantity {
 public:
  Applied(Three function, std::vector<std::shared_ptr<const Quantity>> of) : function_(function), of_(std::move(of)) {}
  void needs(const Box& box, std::vector<Need>& all) const override {
    for (const auto& of : of_) of->needs(box, all);
  }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    std::vector<double> b(result.size()), c(result.size());
    of_[0]->make(box, values, result);
    of_[1]->make(box, values, b);
    of_[2]->make(box, values, c);
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] =
          std::isnan(result[i]) || std::isnan(b[i]) || std::isnan(c[i]) ? missing : function_(result[i], b[i], c[i]);
  }

 private:
  Three function_;
  std::vector<std::shared_ptr<const Quantity>> of_;
};

/// condition ? a : b. Missing where the condition or the chosen one is.
class Chosen final : public Quantity {
 public:
  Chosen(std::shared_ptr<const Quantity> condition, std::shared_ptr<const Quantity> a,
         std::shared_ptr<const Quantity> b)
      : condition_(std::move(condition)), a_(std::move(a)), b_(std::move(b)) {}
  void needs(const Box& box, std::vector<Need>& all) const override {
    condition_->needs(box, all);
    a_->needs(box, all);
    b_->needs(box, all);
  }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    std::vector<double> a(result.size()), b(result.size());
    condition_->make(box, values, result);
    a_->make(box, values, a);
    b_->make(box, values, b);
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = std::isnan(result[i]) ? missing : result[i] != 0 ? a[i] : b[i];
  }

 private:
  std::shared_ptr<const Quantity> condition_, a_, b_;
};

/// The mean of two neighbours along one dimension, or the second less the first.
class OfNeighbours final : public Quantity {
 public:
  OfNeighbours(std::shared_ptr<const Quantity> of, std::size_t dimension, bool mean)
      : of_(std::move(of)), dimension_(dimension), mean_(mean) {}
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(wider(box), all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    const auto from = wider(box);
    std::vector<double> points(from.volume());
    of_->make(from, values, points);
    std::uint64_t inner = 1, outer = 1;
    for (std::size_t i = 0; i < box.rank(); ++i) (i < dimension_ ? outer : inner) *= i == dimension_ ? 1 : box.count[i];
    const auto n = box.count[dimension_];
    for (std::uint64_t o = 0; o < outer; ++o)
      for (std::uint64_t k = 0; k < n; ++k)
        for (std::uint64_t i = 0; i < inner; ++i) {
          const auto at = (o * (n + 1) + k) * inner + i;
          result[(o * n + k) * inner + i] =
              mean_ ? 0.5 * (points[at] + points[at + inner]) : points[at + inner] - points[at];
        }
  }

 private:
  [[nodiscard]] Box wider(Box box) const {
    ++box.count[dimension_];
    return box;
  }
  std::shared_ptr<const Quantity> of_;
  std::size_t dimension_;
  bool mean_;
};

/// The same values along dimensions that the quantity has not, and its own in another order.
class Repeated final : public Quantity {
 public:
  /// `own`: of each dimension of the result its place among those of `of`, where it is one.
  Repeated(std::shared_ptr<const Quantity> of, std::vector<std::optional<std::size_t>> own)
      : of_(std::move(of)),
        own_(std::move(own)),
        rank_(static_cast<std::size_t>(std::count_if(own_.begin(), own_.end(), [](const auto& o) { return o; }))) {}
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(own(box), all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override {
    const auto from = own(box);
    std::vector<double> points(from.volume());
    of_->make(from, values, points);
    std::vector<std::uint64_t> its(rank_, 1);
    for (auto i = rank_; i-- > 1;) its[i - 1] = its[i] * from.count[i];
    std::vector<std::uint64_t> step(box.rank(), 0), at(box.rank(), 0);
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (own_[i]) step[i] = its[*own_[i]];
    std::uint64_t place = 0;
    for (auto& r : result) {
      r = points[place];
      for (auto i = box.rank(); i-- > 0;) {
        place += step[i];
        if (++at[i] < box.count[i]) break;
        place -= step[i] * box.count[i];
        at[i] = 0;
      }
    }
  }

 private:
  [[nodiscard]] Box own(const Box& box) const {
    Box out;
    out.start.resize(rank_);
    out.count.resize(rank_);
    for (std::size_t i = 0; i < own_.size(); ++i) {
      if (!own_[i]) continue;
      out.start[*own_[i]] = box.start[i];
      out.count[*own_[i]] = box.count[i];
    }
    return out;
  }
  std::shared_ptr<const Quantity> of_;
  std::vector<std::optional<std::size_t>> own_;
  std::size_t rank_;
};

enum class Units : std::uint8_t { kept, none };

struct OneNamed {
  std::string_view name;
  One function;
  Units units;
};
struct TwoNamed {
  std::string_view name;
  Two function;
  bool one_unit;  ///< the operands', and the result's
};

constexpr std::array<OneNamed, 12> ones = {{
    {"abs", [](double a) { return std::abs(a); }, Units::kept},
    {"sqrt", [](double a) { return std::sqrt(a); }, Units::none},
    {"exp", [](double a) { return std::exp(a); }, Units::none},
    {"log", [](double a) { return std::log(a); }, Units::none},
    {"log10", [](double a) { return std::log10(a); }, Units::none},
    {"sin", [](double a) { return std::sin(a); }, Units::none},
    {"cos", [](double a) { return std::cos(a); }, Units::none},
    {"tan", [](double a) { return std::tan(a); }, Units::none},
    {"asin", [](double a) { return std::asin(a); }, Units::none},
    {"acos", [](double a) { return std::acos(a); }, Units::none},
    {"atan", [](double a) { return std::atan(a); }, Units::none},
    {"neg", [](double a) { return -a; }, Units::kept},
}};
constexpr std::array<TwoNamed, 5> twos = {{
    {"hypot", [](double a, double b) { return std::hypot(a, b); }, true},
    {"min", [](double a, double b) { return b < a ? b : a; }, true},
    {"max", [](double a, double b) { return b > a ? b : a; }, true},
    {"atan2", [](double a, double b) { return std::atan2(a, b); }, false},
    {"pow", [](double a, double b) { return std::pow(a, b); }, false},
}};

// Bolton (1980), "The Computation of Equivalent Potential Temperature", equations 10 and 11, with the constants of
// wrf-python 1.3 (DCOMPUTERH, DCOMPUTETD).
double relative_humidity(double mixing_ratio, double pressure, double temperature) {
  const auto saturation = 6.112 * std::exp(17.67 * (temperature - 273.15) / (temperature - 29.65));  // hPa
  const auto most = 0.622 * saturation / (0.01 * pressure - (1 - 0.622) * saturation);
  return 100 * std::max(std::min(mixing_ratio / most, 1.0), 0.0);
}
double dew_point(double mixing_ratio, double pressure) {
  const auto q = std::max(mixing_ratio, 0.0);
  const auto vapour = std::log(std::max(q * 0.01 * pressure / (0.622 + q), 0.001));  // hPa
  return (243.5 * vapour - 440.8) / (19.48 - vapour);
}
/// Of calm air 0.
double wind_direction(double u, double v) {
  if (u == 0 && v == 0) return 0;
  const auto from = 270 - std::atan2(v, u) * (180 / std::numbers::pi);
  return from >= 360 ? from - 360 : from;
}

/// A function whose arguments have units, as its result.
template <typename Function>
struct Physical {
  std::string_view name;
  Function function;
  std::string_view units;
};
constexpr std::array<Physical<Two>, 2> physical_twos = {{
    {"dew_point", dew_point, "degC"},
    {"wind_direction", wind_direction, "degree"},
}};
constexpr std::array<Physical<Three>, 1> physical_threes = {{{"relative_humidity", relative_humidity, "%"}}};

constexpr std::array<std::pair<std::string_view, Reduction>, 4> reductions = {{
    {"mean", Reduction::mean},
    {"sum", Reduction::sum},
    {"minimum", Reduction::minimum},
    {"maximum", Reduction::maximum},
}};

class Compiler {
 public:
  Compiler(const std::string& text, const Schema& schema, std::uint32_t time, const std::vector<Definition>& others,
           std::vector<std::string> under_way)
      : text_(text), rest_(text), schema_(schema), time_(time), others_(others), under_way_(std::move(under_way)) {}

  Result<Typed> run() {
    auto made = choice();
    if (!made) return made;
    skip();
    if (!rest_.empty()) return unexpected();
    return made;
  }

 private:
  [[nodiscard]] Error refuse(const std::string& what) const {
    return Error{Code::config, "'" + text_ + "': " + what, 0};
  }
  [[nodiscard]] Error unexpected() const {
    return refuse(rest_.empty() ? "it ends too early"
                                : "'" + std::string(rest_.substr(0, 1)) + "' at character " +
                                      std::to_string(text_.size() - rest_.size() + 1) + " does not belong there");
  }
  void skip() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())) != 0) rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  Result<Typed> choice() {
    if (++depth_ > depth_max) return refuse("it is nested too deeply");
    auto condition = comparison();
    if (!condition || !take("?")) {
      --depth_;
      return condition;
    }
    auto a = choice();
    if (!a) return a;
    if (!take(":")) return refuse("a ? needs its :");
    auto b = choice();
    if (!b) return b;
    --depth_;
    auto units = one_unit(*a, *b, "?:");
    if (!units) return std::move(units).error();
    if (auto fitted = fit({&*condition, &*a, &*b}); !fitted) return std::move(fitted).error();
    auto out = joined({&*condition, &*a, &*b});
    out.single = a->single && b->single;
    out.units = *units;
    out.quantity = std::make_shared<Chosen>(condition->quantity, a->quantity, b->quantity);
    return out;
  }

  Result<Typed> comparison() {
    auto a = sum();
    if (!a) return a;
    static constexpr std::array<std::pair<std::string_view, Two>, 6> known = {{
        {"<=", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
        {">=", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
        {"==", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
        {"!=", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
        {"<", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
        {">", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
    }};
    for (const auto& [token, function] : known) {
      if (!take(token)) continue;
      auto b = sum();
      if (!b) return b;
      auto made = two(function, std::move(*a), std::move(*b), token, true);
      if (made) made->units = "1";
      return made;
    }
    return a;
  }

  Result<Typed> sum() {
    auto a = product();
    while (a) {
      const bool plus = take("+");
      if (!plus && !take("-")) break;
      auto b = product();
      if (!b) return b;
      a = two(plus ? [](double x, double y) { return x + y; } : Two([](double x, double y) { return x - y; }),
              std::move(*a), std::move(*b), plus ? "+" : "-", true);
    }
    return a;
  }

  Result<Typed> product() {
    auto a = sign();
    while (a) {
      const bool times = take("*");
      if (!times && !take("/")) break;
      auto b = sign();
      if (!b) return b;
      const auto dimensionless = [](const std::string& units) { return units == "1" ? std::string() : units; };
      const auto left = dimensionless(a->units), right = dimensionless(b->units);
      a = two(times ? [](double x, double y) { return x * y; } : Two([](double x, double y) { return x / y; }),
              std::move(*a), std::move(*b), "", false);
      if (!a) return a;
      // A number has no units; of two units only people know what they make.
      a->units = right.empty() ? left : left.empty() && times ? right : "";
    }
    return a;
  }

  Result<Typed> sign() {
    if (++depth_ > depth_max) return refuse("it is nested too deeply");
    if (take("-")) {
      auto a = sign();
      --depth_;
      if (a) a->quantity = std::make_shared<Applied<One>>([](double x) { return -x; }, a->quantity);
      return a;
    }
    auto a = primary();
    if (a && take("^")) {
      auto b = sign();
      if (!b) return b;
      a = two([](double x, double y) { return std::pow(x, y); }, std::move(*a), std::move(*b), "", false);
    }
    --depth_;
    return a;
  }

  Result<Typed> primary() {
    if (take("(")) {
      auto a = choice();
      if (a && !take(")")) return rest_.empty() ? refuse("a ) is missing") : unexpected();
      return a;
    }
    skip();
    if (rest_.empty()) return unexpected();
    const auto c = static_cast<unsigned char>(rest_.front());
    if (std::isdigit(c) != 0 || c == '.') {
      double value = 0;
      const auto [end, ec] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (ec != std::errc()) return unexpected();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      Typed out;
      out.quantity = std::make_shared<Constant>(value);
      return out;
    }
    if (std::isalpha(c) == 0 && c != '_') return unexpected();
    const auto name = word();
    if (!take("(")) return variable(name);
    for (const auto& [known, reduction] : reductions)
      if (known == name) return reduced(name, reduction);
    return call(name);
  }

  std::string word() {
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '_'))
      ++length;
    std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return name;
  }

  Result<Typed> variable(const std::string& name) {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < schema_.variables.size(); ++i) {
      const auto& v = schema_.variables[i];
      names.push_back(v.name);
      if (v.name != name) continue;
      if (!is_numeric(v.type)) return refuse("variable " + name + " is text");
      if (std::find(v.dimensions.begin(), v.dimensions.end(), time_) != v.dimensions.end() &&
          v.dimensions.front() != time_)
        return refuse("variable " + name + ": time is not its first dimension, which is not supported");
      return typed_variable(schema_, i, time_);
    }
    const bool of_itself = std::find(under_way_.begin(), under_way_.end(), name) != under_way_.end();
    for (const auto& other : others_) {
      names.push_back(other.name);
      if (other.name != name || of_itself) continue;
      auto inner = under_way_;
      inner.push_back(name);
      auto made = Compiler(other.formula, schema_, time_, others_, std::move(inner)).run();
      if (!made) return Error{Code::config, name + " = " + made.error().message, 0};
      if (!other.units.empty()) made->units = other.units;
      return made;
    }
    if (const auto* const known = find_wrf_diagnostic(name)) {
      auto made = compile_expression(std::string(known->formula), schema_, time_);
      if (!made) return Error{Code::config, name + " = " + made.error().message, 0};
      made->units = known->units;
      return made;
    }
    if (of_itself) return refuse("it is made of " + name + ", which is made of it");
    for (const auto& d : wrf_diagnostics()) names.emplace_back(d.name);
    const auto meant = nearest(name, names);
    return refuse("variable " + name + " is not in the files" + (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }

  /// The rest of `mean(x, dimension, …)`.
  Result<Typed> reduced(const std::string& name, Reduction reduction) {
    auto of = choice();
    if (!of) return of;
    std::vector<std::uint64_t> lengths(of->dimensions.size(), 0);
    while (take(",")) {
      skip();
      const auto dimension = word();
      std::vector<std::string> its;
      bool found = false;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const auto& d = schema_.dimensions[of->dimensions[i]];
        its.push_back(d.name);
        if (d.name != dimension) continue;
        if (d.unlimited) return refuse(name + " along the unlimited dimension " + d.name + " is not supported");
        found = true;
        lengths[i] = d.length;
      }
      if (found) continue;
      std::string all;
      for (const auto& d : its) all += (all.empty() ? "" : ", ") + d;
      const auto meant = nearest(dimension, its);
      return refuse(name + ": '" + dimension + "' is no dimension of it" +
                    (!meant.empty() ? "; did you mean " + meant + "?"
                     : its.empty()  ? "; it has none"
                                    : "; it has " + all));
    }
    if (!take(")")) return rest_.empty() ? refuse("a ) is missing") : unexpected();
    if (std::all_of(lengths.begin(), lengths.end(), [](auto l) { return l == 0; }))
      return refuse(name + " takes an expression and the dimensions that go, as in " + name + "(T, bottom_top)" +
                    (reduction == Reduction::minimum   ? "; min(a, b) is the lesser of two"
                     : reduction == Reduction::maximum ? "; max(a, b) is the greater of two"
                                                       : ""));
    std::vector<std::uint32_t> left;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] == 0) left.push_back(of->dimensions[i]);
    of->quantity = std::make_shared<Reduced>(of->quantity, std::move(lengths), reduction);
    of->dimensions = std::move(left);
    return of;
  }

  Result<Typed> at_sea_level(std::vector<Typed> of) {
    if (auto fitted = fit({&of[0], &of[1], &of[2], &of[3]}); !fitted) return std::move(fitted).error();
    auto out = joined({&of[0], &of[1], &of[2], &of[3]});
    if (out.dimensions.empty()) return refuse("sea_level_pressure: there are no levels");
    std::vector<std::shared_ptr<const Quantity>> all;
    std::transform(of.begin(), of.end(), std::back_inserter(all), [](const Typed& t) { return t.quantity; });
    const auto& levels = schema_.dimensions[out.dimensions.front()];
    out.quantity = std::make_shared<SeaLevelPressure>(std::move(all), levels.length);
    out.dimensions.erase(out.dimensions.begin());
    out.units = "Pa";
    return out;
  }

  Result<Typed> call(const std::string& name) {
    std::vector<Typed> arguments;
    if (!take(")")) {
      do {
        auto a = choice();
        if (!a) return a;
        arguments.push_back(std::move(*a));
      } while (take(","));
      if (!take(")")) return rest_.empty() ? refuse("a ) is missing") : unexpected();
    }
    const auto wants = [&](std::size_t n) {
      return refuse(name + " takes " + std::to_string(n) + (n == 1 ? " argument" : " arguments") + ", and there are " +
                    std::to_string(arguments.size()));
    };
    std::vector<std::string> known = {"destagger", "thickness", "sea_level_pressure"};
    for (const auto& [reduction, which] : reductions) known.emplace_back(reduction);
    if (name == "destagger" || name == "thickness") {
      if (arguments.size() != 1) return wants(1);
      auto made = name == "destagger" ? destaggered(std::move(arguments[0]), schema_)
                                      : thickness(std::move(arguments[0]), schema_);
      return made ? std::move(made) : Result<Typed>(refuse(made.error().message));
    }
    if (name == "sea_level_pressure") {
      if (arguments.size() != 4) return wants(4);
      return at_sea_level(std::move(arguments));
    }
    for (const auto& f : physical_twos) {
      known.emplace_back(f.name);
      if (f.name != name) continue;
      if (arguments.size() != 2) return wants(2);
      auto made = two(f.function, std::move(arguments[0]), std::move(arguments[1]), f.name, false);
      if (made) made->units = f.units;
      return made;
    }
    for (const auto& f : physical_threes) {
      known.emplace_back(f.name);
      if (f.name != name) continue;
      if (arguments.size() != 3) return wants(3);
      auto &a = arguments[0], &b = arguments[1], &c = arguments[2];
      if (auto fitted = fit({&a, &b, &c}); !fitted) return std::move(fitted).error();
      auto out = joined({&a, &b, &c});
      out.quantity = std::make_shared<Applied<Three>>(
          f.function, std::vector<std::shared_ptr<const Quantity>>{a.quantity, b.quantity, c.quantity});
      out.units = f.units;
      return out;
    }
    for (const auto& f : ones) {
      known.emplace_back(f.name);
      if (f.name != name) continue;
      if (arguments.size() != 1) return wants(1);
      auto& a = arguments[0];
      a.quantity = std::make_shared<Applied<One>>(f.function, a.quantity);
      if (f.units == Units::none) a.units.clear();
      return std::move(a);
    }
    for (const auto& f : twos) {
      known.emplace_back(f.name);
      if (f.name != name) continue;
      if (arguments.size() != 2) return wants(2);
      auto made = two(f.function, std::move(arguments[0]), std::move(arguments[1]), f.name, f.one_unit);
      if (made && !f.one_unit) made->units.clear();
      return made;
    }
    const auto meant = nearest(name, known);
    std::string all;
    for (const auto& k : known) all += (all.empty() ? "" : ", ") + k;
    return refuse("unknown function " + name + (meant.empty() ? "; known: " + all : "; did you mean " + meant + "?"));
  }

  /// The unit that two operands have in common; empty where neither has one.
  Result<std::string> one_unit(const Typed& a, const Typed& b, std::string_view what) {
    if (!a.units.empty() && !b.units.empty() && a.units != b.units)
      return refuse(std::string(what) + " of '" + a.units + "' and '" + b.units + "': their units do not fit");
    return a.units.empty() ? b.units : a.units;
  }

  /// All of them along all their dimensions, by name: those of one operand, or of a variable of the files. So the
  /// profile b(lev) times ps(lat, lon) is a field, and two points of a staggered grid are no product of grids.
  Result<void> fit(std::vector<Typed*> all) {
    std::vector<std::uint32_t> most, whole;
    for (const auto* t : all) {
      if (t->dimensions.size() > most.size()) most = t->dimensions;
      for (const auto d : t->dimensions)
        if (std::find(whole.begin(), whole.end(), d) == whole.end()) whole.push_back(d);
    }
    if (whole.size() > most.size())
      if (auto in_order = order_of(std::move(whole)); !in_order.empty()) most = std::move(in_order);
    for (auto* t : all) {
      auto made = repeated(std::move(*t), most, schema_);
      if (!made) return refuse(made.error().message);
      *t = std::move(*made);
    }
    return {};
  }

  /// As a variable of the files has these dimensions; empty: none has.
  [[nodiscard]] std::vector<std::uint32_t> order_of(std::vector<std::uint32_t> dimensions) const {
    std::sort(dimensions.begin(), dimensions.end());
    for (const auto& v : schema_.variables) {
      if (!is_numeric(v.type)) continue;
      auto its = v.dimensions;
      std::erase(its, time_);
      auto sorted = its;
      std::sort(sorted.begin(), sorted.end());
      if (sorted == dimensions) return its;
    }
    return {};
  }

  /// What a quantity of several has of them, but for its values and units.
  static Typed joined(std::vector<const Typed*> all) {
    Typed out;
    out.dimensions = all.front()->dimensions;
    for (const auto* t : all) {
      out.timed = out.timed || t->timed;
      out.single = out.single && t->single;
      out.variables.insert(out.variables.end(), t->variables.begin(), t->variables.end());
    }
    return out;
  }

  Result<Typed> two(Two function, Typed a, Typed b, std::string_view what, bool same_unit) {
    std::string units;
    if (same_unit) {
      auto common = one_unit(a, b, what);
      if (!common) return std::move(common).error();
      units = *common;
    }
    if (auto fitted = fit({&a, &b}); !fitted) return std::move(fitted).error();
    auto out = joined({&a, &b});
    out.units = units;
    out.quantity = std::make_shared<Applied<Two>>(function, a.quantity, b.quantity);
    return out;
  }

  const std::string& text_;
  std::string_view rest_;
  const Schema& schema_;
  std::uint32_t time_;
  const std::vector<Definition>& others_;
  std::vector<std::string> under_way_;  ///< of `others_`, whose formulas name this one
  int depth_ = 0;
};

}  // namespace

Typed typed_variable(const Schema& schema, std::uint32_t variable, std::uint32_t time_dimension) {
  const auto& v = schema.variables[variable];
  Typed out;
  out.quantity = std::make_shared<StoredVariable>(variable);
  for (const auto d : v.dimensions)
    if (d == time_dimension)
      out.timed = true;
    else
      out.dimensions.push_back(d);
  out.units = text_of(v.attributes, "units");
  out.single = packing_of(v).unpacked == DataType::float32;
  out.variables = {variable};
  return out;
}

namespace {

/// A quantity of two neighbours along every staggered dimension.
Result<Typed> of_neighbours(Typed of, const Schema& schema, bool mean) {
  constexpr std::string_view ending = "_stag";
  bool any = false;
  for (std::size_t i = 0; i < of.dimensions.size(); ++i) {
    const auto& d = schema.dimensions[of.dimensions[i]];
    if (!d.name.ends_with(ending)) continue;
    const auto name = d.name.substr(0, d.name.size() - ending.size());
    const auto it = std::find_if(schema.dimensions.begin(), schema.dimensions.end(),
                                 [&](const Dimension& other) { return other.name == name; });
    if (it == schema.dimensions.end() || it->length + 1 != d.length) continue;  // soil_layers_stag
    any = true;
    of.dimensions[i] = static_cast<std::uint32_t>(it - schema.dimensions.begin());
    of.quantity = std::make_shared<OfNeighbours>(of.quantity, i, mean);
  }
  if (!any)
    return Error{Code::config, "nothing of it is staggered: it has no dimension like west_east_stag beside west_east",
                 0};
  return of;
}

}  // namespace

Result<Typed> destaggered(Typed of, const Schema& schema) {
  return of_neighbours(std::move(of), schema, true);
}

Result<Typed> thickness(Typed of, const Schema& schema) {
  return of_neighbours(std::move(of), schema, false);
}

Result<Typed> repeated(Typed of, const std::vector<std::uint32_t>& to, const Schema& schema) {
  if (of.dimensions == to) return of;
  const auto names = [&](const std::vector<std::uint32_t>& dimensions) {
    std::string out;
    for (const auto d : dimensions) out += (out.empty() ? "" : ", ") + schema.dimensions[d].name;
    return "(" + out + ")";
  };
  std::vector<std::optional<std::size_t>> own;
  std::size_t found = 0;
  for (const auto d : to) {
    const auto it = std::find(of.dimensions.begin(), of.dimensions.end(), d);
    own.emplace_back();
    if (it == of.dimensions.end()) continue;
    own.back() = static_cast<std::size_t>(it - of.dimensions.begin());
    ++found;
  }
  if (found < of.dimensions.size()) {
    const bool staggered = std::any_of(of.dimensions.begin(), of.dimensions.end(), [&](std::uint32_t d) {
      return std::any_of(to.begin(), to.end(), [&](std::uint32_t other) {
        const auto &a = schema.dimensions[d].name, &b = schema.dimensions[other].name;
        return a == b + "_stag" || b == a + "_stag";
      });
    });
    return Error{Code::config,
                 "dimensions " + names(of.dimensions) + " and " + names(to) + " do not fit; " +
                     (staggered ? "destagger(…) takes a staggered variable to the others' points"
                                : "no variable of the files has all of them"),
                 0};
  }
  if (of.dimensions == to) return of;
  of.quantity = std::make_shared<Repeated>(of.quantity, std::move(own));
  of.dimensions = to;
  return of;
}

Result<Typed> compile_expression(const std::string& text, const Schema& schema, std::uint32_t time_dimension,
                                 const std::vector<Definition>& others, const std::string& name) {
  if (text.size() > length_max) return Error{Code::config, "it is longer than any expression", 0};
  std::vector<std::string> under_way;
  if (!name.empty()) under_way.push_back(name);
  return Compiler(text, schema, time_dimension, others, std::move(under_way)).run();
}

}  // namespace advectio
