#include "operators/expression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "operators/reduction.h"
#include "operators/values.h"
#include "operators/vertical.h"

namespace advectio {
namespace {

constexpr std::uint32_t time_dimension = 0;

/// T and U with an x-staggered one, S without time, all filled by `value`.
class Expressions : public testing::Test {
 protected:
  Expressions() {
    schema.dimensions = {{"time", 0, true}, {"z", 3, false}, {"y", 4, false}, {"x", 5, false}, {"x_stag", 6, false}};
    add("T", {0, 1, 2, 3}, "K");
    add("P", {0, 1, 2, 3}, "Pa");
    add("PB", {0, 1, 2, 3}, "Pa");
    add("U", {0, 1, 2, 4}, "m s-1");
    add("V", {0, 1, 2, 3}, "m s-1");
    add("S", {2, 3}, "K");
    add("D", {0, 2, 3}, "");
    schema.variables.back().type = DataType::float64;
    add("U10", {0, 2, 3}, "m s-1");
    add("COSALPHA", {0, 2, 3}, "");
    add("SINALPHA", {0, 2, 3}, "");
    add("QVAPOR", {0, 1, 2, 3}, "kg kg-1");
  }
  void add(const std::string& name, std::vector<std::uint32_t> dimensions, const std::string& units) {
    Variable v;
    v.name = name;
    v.type = DataType::float32;
    v.dimensions = std::move(dimensions);
    if (!units.empty()) set_text(v.attributes, "units", units);
    schema.variables.push_back(std::move(v));
  }

  static double value(std::uint32_t variable, const std::vector<std::uint64_t>& at) {
    double v = 1 + variable;
    for (const auto i : at) v = v * 1.7 + static_cast<double>(i);
    return v;
  }
  static void each(const Box& box, const std::function<void(const std::vector<std::uint64_t>&)>& visit) {
    auto at = box.start;
    for (std::uint64_t n = box.volume(); n > 0; --n) {
      visit(at);
      for (auto i = at.size(); i-- > 0;) {
        if (++at[i] < box.start[i] + box.count[i]) break;
        at[i] = box.start[i];
      }
    }
  }
  static std::vector<double> made(const Quantity& quantity, const Box& box) {
    std::vector<Need> needs;
    quantity.needs(box, needs);
    std::vector<std::vector<double>> read;
    std::vector<std::span<const double>> values;
    for (const auto& need : needs)
      each(need.box, [&, first = true](const auto& at) mutable {
        if (std::exchange(first, false)) read.emplace_back();
        read.back().push_back(value(need.variable, at));
      });
    for (const auto& r : read) values.emplace_back(r);
    std::vector<double> out(box.volume());
    Needed needed(values);
    quantity.make(box, needed, out);
    return out;
  }
  Typed compiled(const std::string& text) {
    auto made_of = compile_expression(text, schema, time_dimension);
    EXPECT_TRUE(made_of.ok()) << (made_of ? "" : made_of.error().message);
    return made_of ? *made_of : Typed();
  }
  std::string refused(const std::string& text) {
    auto made_of = compile_expression(text, schema, time_dimension);
    EXPECT_FALSE(made_of.ok()) << text;
    return made_of ? "" : made_of.error().message;
  }
  /// At one point of (z, y, x).
  double at_point(const std::string& text) {
    const auto typed = compiled(text);
    const std::vector<std::uint64_t> point = {1, 2, 3};
    Box box;
    box.start.assign(point.end() - static_cast<std::ptrdiff_t>(typed.dimensions.size()), point.end());
    box.count.assign(box.start.size(), 1);
    return made(*typed.quantity, box)[0];
  }

  Schema schema;
};

TEST_F(Expressions, AreWhatTheySay) {
  const double t = value(0, {1, 2, 3}), p = value(1, {1, 2, 3}), pb = value(2, {1, 2, 3}), v = value(4, {1, 2, 3});
  EXPECT_EQ(at_point("T"), t);
  EXPECT_EQ(at_point("P + PB"), p + pb);
  EXPECT_EQ(at_point("2 + 3 * 4 ^ 2 / 8 - 1 + 0 * T"), 7);
  EXPECT_EQ(at_point("2 ^ 3 ^ 2 + 0 * T"), 512) << "a power of a power is taken from the right";
  EXPECT_EQ(at_point("-T ^ 2"), -(t * t));
  EXPECT_EQ(at_point("10 - 4 - 3 + 0*T"), 3);
  EXPECT_EQ(at_point("(T - 1e1) * .5"), (t - 10) * 0.5);
  EXPECT_EQ(at_point("hypot(V, 2 * V)"), std::hypot(v, 2 * v));
  EXPECT_EQ(at_point("max(T, min(S, 1))"), t);
  EXPECT_EQ(at_point("T > 273.15 ? T : T < 0 ? 1 : 2"), t > 273.15 ? t : 2);
  EXPECT_EQ(at_point("log(exp(1 + 0 * D)) + sqrt(abs(-4))"), 3);
  EXPECT_EQ(at_point("T == T"), 1);
  EXPECT_TRUE(std::isnan(at_point("sqrt(-T)")));
  EXPECT_EQ(at_point("T * (S > 0)"), t) << "what has fewer dimensions is repeated";
  EXPECT_EQ(at_point("destagger(U)"), 0.5 * (value(3, {1, 2, 3}) + value(3, {1, 2, 4})));
  EXPECT_EQ(at_point("thickness(U)"), value(3, {1, 2, 4}) - value(3, {1, 2, 3}));
}

TEST_F(Expressions, ReduceAFieldAlongDimensions) {
  EXPECT_EQ(compiled("mean(T, x)").dimensions, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(compiled("mean(T, x)").units, "K");
  EXPECT_EQ(compiled("sum(T, z, y, x)").dimensions, (std::vector<std::uint32_t>{}));
  EXPECT_EQ(compiled("T - mean(T, z)").dimensions, (std::vector<std::uint32_t>{1, 2, 3}));
  const auto row = [&](std::uint64_t z, std::uint64_t y) {
    double sum = 0;
    for (std::uint64_t x = 0; x < 5; ++x) sum += value(0, {z, y, x});
    return sum;
  };
  const auto mean = made(*compiled("mean(T, x)").quantity, {{0, 0}, {3, 4}});
  for (std::uint64_t z = 0; z < 3; ++z)
    for (std::uint64_t y = 0; y < 4; ++y) EXPECT_EQ(mean[z * 4 + y], row(z, y) / 5);
  const auto column = [&](const std::string& text) { return made(*compiled(text).quantity, {{2, 3}, {1, 1}})[0]; };
  EXPECT_EQ(column("maximum(T, z)"), value(0, {2, 2, 3}));
  EXPECT_EQ(column("minimum(T, z)"), value(0, {0, 2, 3}));
  EXPECT_EQ(column("sum(T, z)"), value(0, {0, 2, 3}) + value(0, {1, 2, 3}) + value(0, {2, 2, 3}));
  // What is missing is passed over: the root is missing where T is greater.
  const auto least = value(0, {0, 2, 3}), next = value(0, {1, 2, 3});
  const auto bound = std::to_string(0.5 * (next + value(0, {2, 2, 3})));
  EXPECT_EQ(column("mean(T + 0 * sqrt(" + bound + " - T), z)"), (least + next) / 2);
  EXPECT_TRUE(std::isnan(column("mean(sqrt(-T), z)")));
}

TEST_F(Expressions, HaveTheDiagnosticsOfWrf) {
  schema.dimensions[4].name = "x_stag";
  EXPECT_EQ(at_point("p"), value(1, {1, 2, 3}) + value(2, {1, 2, 3}));
  EXPECT_EQ(compiled("pressure").units, "hPa");
  EXPECT_EQ(at_point("theta"), value(0, {1, 2, 3}) + 300);
  EXPECT_EQ(compiled("tk").units, "K");
  EXPECT_EQ(refused("slp"), "slp = z = 'destagger(PH + PHB) / 9.81': variable PH is not in the files; did you mean P?");
  EXPECT_EQ(refused("thta"), "'thta': variable thta is not in the files; did you mean theta?");
  add("p", {0, 2, 3}, "1");
  EXPECT_EQ(compiled("p").units, "1") << "a variable of the file comes first";
}

TEST_F(Expressions, KnowMoistAirAndWind) {
  // Saturated air of 20 °C and 1000 hPa; Bolton's formula is right to 0.3 %.
  EXPECT_NEAR(at_point("relative_humidity(0.01470 + 0*T, 1e5, 293.15)"), 100, 0.3);
  EXPECT_NEAR(at_point("relative_humidity(0.00735 + 0*T, 1e5, 293.15)"), 50, 0.2);
  EXPECT_EQ(at_point("relative_humidity(-1 + 0*T, 1e5, 293.15)"), 0);
  EXPECT_NEAR(at_point("dew_point(0.01470 + 0*T, 1e5)"), 19.80, 0.01) << "e = 23.09 hPa";
  EXPECT_EQ(at_point("wind_direction(0*T, 0)"), 0);
  EXPECT_EQ(at_point("wind_direction(0*T, -1)"), 0) << "from the north";
  EXPECT_EQ(at_point("wind_direction(0*T - 1, 0)"), 90) << "from the east";
  EXPECT_EQ(at_point("wind_direction(0*T, 1)"), 180);
  EXPECT_EQ(at_point("wind_direction(0*T + 1, 0)"), 270);
  EXPECT_EQ(compiled("sea_level_pressure(P, T, QVAPOR, T)").units, "Pa");
  EXPECT_EQ(compiled("sea_level_pressure(P, T, QVAPOR, T)").dimensions, (std::vector<std::uint32_t>{2, 3}));
}

TEST(SeaLevelPressure, IsThatOfTheLowestLevelAtTheSea) {
  // An atmosphere of 6.5 K/km and 15 °C at 1013.25 hPa.
  const auto slp = [](double ground) {
    std::vector<double> p, t, q, z;
    for (const double above : {0., 200., 500., 1000., 1600., 2500.}) {
      z.push_back(ground + above);
      t.push_back(288.15 - 0.0065 * z.back());
      p.push_back(101325 * std::pow(t.back() / 288.15, 9.81 / (0.0065 * 287)));
      q.push_back(0);
    }
    return sea_level_pressure(p, t, q, z);
  };
  EXPECT_DOUBLE_EQ(slp(0), 101325);
  EXPECT_NEAR(slp(100), 101325, 10);
  const std::vector<double> near = {1e5, 99e3, 98e3}, any = {280, 280, 280};
  EXPECT_TRUE(std::isnan(sea_level_pressure(near, any, any, any))) << "no level is 100 hPa above the first";
}

TEST_F(Expressions, KnowTheirUnitsAndTypes) {
  EXPECT_EQ(compiled("P + PB").units, "Pa");
  EXPECT_EQ(compiled("hypot(destagger(U), V)").units, "m s-1");
  EXPECT_EQ(compiled("2 * T").units, "K");
  EXPECT_EQ(compiled("T * P").units, "");
  EXPECT_EQ(compiled("1 / T").units, "");
  EXPECT_EQ(compiled("T > 1").units, "1");
  EXPECT_EQ(compiled("log(P)").units, "");
  EXPECT_TRUE(compiled("T + S").single);
  EXPECT_FALSE(compiled("T + D").single);
  EXPECT_FALSE(compiled("2 * S").timed);
  EXPECT_EQ(compiled("S + T").dimensions, (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST_F(Expressions, RepeatOperandsByTheNamesOfTheirDimensions) {
  // A profile times a field of the ground, in any order, is along the dimensions that T has.
  add("B", {1}, "1");
  add("TURNED", {3, 2}, "K");
  for (const std::string text : {"B * S", "S * B", "TURNED * B", "B * TURNED * S"})
    EXPECT_EQ(compiled(text).dimensions, (std::vector<std::uint32_t>{1, 2, 3})) << text;
  const auto by_hand = [&](std::uint64_t z, std::uint64_t y, std::uint64_t x) {
    const auto number = [&](const std::string& name) {
      for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
        if (schema.variables[i].name == name) return i;
      return UINT32_MAX;
    };
    return value(number("B"), {z}) * value(number("TURNED"), {x, y}) - value(number("S"), {y, x});
  };
  EXPECT_EQ(at_point("B * TURNED - S"), by_hand(1, 2, 3));
  const auto typed = compiled("S * B - TURNED");
  const auto whole = made(*typed.quantity, {{0, 0, 0}, {3, 4, 5}});
  std::size_t next = 0;
  each({{0, 1, 2}, {3, 3, 3}}, [&](const auto& at) {
    const auto part = made(*typed.quantity, {{at[0], at[1], at[2]}, {1, 1, 1}});
    EXPECT_EQ(part[0], whole[(at[0] * 4 + at[1]) * 5 + at[2]]);
    ++next;
  });
  EXPECT_EQ(next, 27U);
}

TEST_F(Expressions, MayNameOthersOfTheirRule) {
  const std::vector<Definition> others = {
      {"warm", "T - 273.15", "degC"}, {"twice", "2 * warm", ""}, {"T", "T + 1", ""}, {"a", "b", ""}, {"b", "a", ""}};
  const auto made_of = [&](const std::string& text, const std::string& name) {
    return compile_expression(text, schema, time_dimension, others, name);
  };
  auto twice = made_of("2 * warm", "twice");
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(twice->units, "degC");
  EXPECT_EQ(made(*twice->quantity, {{1, 2, 3}, {1, 1, 1}})[0], 2 * (at_point("T") - 273.15));
  // A name of the files is the files'.
  auto own = made_of("T + 1", "T");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(made(*own->quantity, {{1, 2, 3}, {1, 1, 1}})[0], at_point("T") + 1);
  auto circle = made_of("b", "a");
  ASSERT_FALSE(circle.ok());
  EXPECT_EQ(circle.error().message, "b = 'a': it is made of a, which is made of it");
  auto wrong = made_of("twicee", "x");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "'twicee': variable twicee is not in the files; did you mean twice?");
}

TEST_F(Expressions, RefuseWhatMakesNoSense) {
  EXPECT_EQ(refused("T + P"), "'T + P': + of 'K' and 'Pa': their units do not fit");
  EXPECT_EQ(refused("hypot(T, V)"), "'hypot(T, V)': hypot of 'K' and 'm s-1': their units do not fit");
  EXPECT_EQ(refused("T + PX"), "'T + PX': variable PX is not in the files; did you mean P?");
  EXPECT_EQ(refused("hypo(V, V)"), "'hypo(V, V)': unknown function hypo; did you mean hypot?");
  EXPECT_EQ(refused("sqrt(T, T)"), "'sqrt(T, T)': sqrt takes 1 argument, and there are 2");
  EXPECT_EQ(refused("destagger(T)"),
            "'destagger(T)': nothing of it is staggered: it has no dimension like west_east_stag beside west_east");
  EXPECT_EQ(
      refused("U + V"),
      "'U + V': dimensions (z, y, x) and (z, y, x_stag) do not fit; destagger(…) takes a staggered variable to the "
      "others' points");
  EXPECT_EQ(refused("mean(T, X)"), "'mean(T, X)': mean: 'X' is no dimension of it; it has z, y, x");
  EXPECT_EQ(refused("mean(S, z_b)"), "'mean(S, z_b)': mean: 'z_b' is no dimension of it; it has y, x");
  EXPECT_EQ(refused("maximum(T)"),
            "'maximum(T)': maximum takes an expression and the dimensions that go, as in maximum(T, bottom_top); "
            "max(a, b) is the greater of two");
  EXPECT_EQ(refused("sea_level_pressure(P, T)"),
            "'sea_level_pressure(P, T)': sea_level_pressure takes 4 arguments, and there are 2");
  EXPECT_EQ(refused("T +"), "'T +': it ends too early");
  EXPECT_EQ(refused("T $ 2"), "'T $ 2': '$' at character 3 does not belong there");
  EXPECT_EQ(refused("(T"), "'(T': a ) is missing");
  EXPECT_EQ(refused("T ? 1"), "'T ? 1': a ? needs its :");
  EXPECT_EQ(refused(""), "'': it ends too early");
  EXPECT_NE(refused(std::string(1000, '(')).find("nested too deeply"), std::string::npos);
  EXPECT_NE(refused(std::string(5000, '1')).find("longer than any"), std::string::npos);
}

TEST_F(Expressions, GiveTheSameBitsHoweverTheFieldIsCut) {
  std::mt19937 random(3);
  const auto hold = [&](const Quantity& quantity, const Box& whole, const std::string& what) {
    const auto everything = made(quantity, whole);
    ASSERT_TRUE(std::any_of(everything.begin(), everything.end(), [](double v) { return v == v; })) << what;
    const auto offset = [&](const std::vector<std::uint64_t>& at) {
      std::uint64_t n = 0;
      for (std::size_t i = 0; i < at.size(); ++i) n = n * whole.count[i] + at[i];
      return n;
    };
    for (int i = 0; i < 50; ++i) {
      Box box;
      for (const auto n : whole.count) {
        box.start.push_back(random() % n);
        box.count.push_back(1 + random() % (n - box.start.back()));
      }
      const auto part = made(quantity, box);
      std::size_t next = 0;
      each(box, [&](const auto& at) {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(part[next++]), std::bit_cast<std::uint64_t>(everything[offset(at)]))
            << what;
      });
    }
  };
  for (const std::string text : {"hypot(destagger(U), V) * S", "T > S ? log(P + PB) : T ^ 0.3", "destagger(U) - D"})
    hold(*compiled(text).quantity, {{0, 0, 0}, {3, 4, 5}}, text);
  hold(*compiled("sum(T, z, x) / mean(U, x_stag, z)").quantity, {{0}, {4}}, "reductions");
  const ReadOnce once(compiled("T * T + S * mean(T, z, y)").quantity);
  hold(once, {{0, 0, 0}, {3, 4, 5}}, "each once");
  LevelsRule rule;
  rule.method = LevelsRule::Method::log;
  const OnLevels levels(compiled("destagger(U) * T").quantity, compiled("P + PB").quantity, 0, 3, {45, 20, 30, 1},
                        rule);
  hold(levels, {{0, 0, 0}, {4, 4, 5}}, "levels");
}

}  // namespace
}  // namespace advectio
