#include "operators/expression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

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
    for (int i = 0; i < 50; ++i) {
      Box box;
      for (const auto n : whole.count) {
        box.start.push_back(random() % n);
        box.count.push_back(1 + random() % (n - box.start.back()));
      }
      const auto part = made(quantity, box);
      std::size_t next = 0;
      each(box, [&](const auto& at) {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(part[next++]),
                  std::bit_cast<std::uint64_t>(everything[(at[0] * 4 + at[1]) * 5 + at[2]]))
            << what;
      });
    }
  };
  for (const std::string text : {"hypot(destagger(U), V) * S", "T > S ? log(P + PB) : T ^ 0.3", "destagger(U) - D"})
    hold(*compiled(text).quantity, {{0, 0, 0}, {3, 4, 5}}, text);
  LevelsRule rule;
  rule.method = LevelsRule::Method::log;
  const OnLevels levels(compiled("destagger(U) * T").quantity, compiled("P + PB").quantity, 0, 3, {45, 20, 30, 1},
                        rule);
  hold(levels, {{0, 0, 0}, {4, 4, 5}}, "levels");
}

}  // namespace
}  // namespace advectio
