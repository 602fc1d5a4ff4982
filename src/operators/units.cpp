#include "operators/units.h"

#include <array>
#include <cmath>
#include <cstdarg>
#include <utility>
#include <vector>

#include "config/nearest.h"
#include "platform/loaded_library.h"

namespace advectio {
namespace {

struct System;
struct Unit;
struct Converter;
using Complain = int (*)(const char*, std::va_list);

// Declared by hand, after UDUNITS-2's reference manual.
struct Library {
  System* (*read_xml)(const char* path) = nullptr;
  Unit* (*parse)(const System*, const char* text, int encoding) = nullptr;
  int (*are_convertible)(const Unit*, const Unit*) = nullptr;
  Unit* (*multiply)(const Unit*, const Unit*) = nullptr;
  Converter* (*get_converter)(Unit* from, Unit* to) = nullptr;
  double* (*convert_doubles)(const Converter*, const double* in, std::size_t count, double* out) = nullptr;
  void (*free_unit)(Unit*) = nullptr;
  void (*free_converter)(Converter*) = nullptr;
  Complain (*set_complain)(Complain) = nullptr;
  Complain ignore = nullptr;
  System* system = nullptr;
  std::string why;  ///< where it cannot be used
};
constexpr int utf8 = 2;

Library load() {
  Library l;
  LoadedLibrary library;
  if (!library.open("libudunits2.so.0")) {
    l.why = library.why();
    return l;
  }
  const auto find = [&](auto& function, const char* name) { library.find(function, name); };
  find(l.read_xml, "ut_read_xml");
  find(l.parse, "ut_parse");
  find(l.are_convertible, "ut_are_convertible");
  find(l.multiply, "ut_multiply");
  find(l.get_converter, "ut_get_converter");
  find(l.convert_doubles, "cv_convert_doubles");
  find(l.free_unit, "ut_free");
  find(l.free_converter, "cv_free");
  find(l.set_complain, "ut_set_error_message_handler");
  find(l.ignore, "ut_ignore");
  l.why = library.why();
  if (!l.why.empty()) return l;
  l.set_complain(l.ignore);  // what is wrong, we say
  l.system = l.read_xml(nullptr);
  if (l.system == nullptr) l.why = "its file of units, udunits2.xml, cannot be read";
  return l;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

using OwnUnit = std::unique_ptr<Unit, void (*)(Unit*)>;

OwnUnit parse(const Library& l, const std::string& text) {
  // A blank at an end is not one of its units.
  const auto first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  const auto trimmed = first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
  return {trimmed.empty() ? nullptr : l.parse(l.system, trimmed.c_str(), utf8), l.free_unit};
}

std::string unknown(const std::string& text) {
  static const std::vector<std::string> usual = {"K",
                                                 "degC",
                                                 "degF",
                                                 "celsius",
                                                 "Pa",
                                                 "hPa",
                                                 "kPa",
                                                 "mbar",
                                                 "m",
                                                 "km",
                                                 "cm",
                                                 "mm",
                                                 "feet",
                                                 "mile",
                                                 "m s-1",
                                                 "km h-1",
                                                 "knot",
                                                 "mph",
                                                 "kg m-2",
                                                 "g kg-1",
                                                 "1",
                                                 "percent",
                                                 "%",
                                                 "degree",
                                                 "radian",
                                                 "s",
                                                 "min",
                                                 "hour",
                                                 "day",
                                                 "mm h-1",
                                                 "mm day-1",
                                                 "W m-2",
                                                 "J m-2",
                                                 "kg kg-1",
                                                 "m2 s-2",
                                                 "kg m-2 s-1",
                                                 "degrees_north",
                                                 "degrees_east",
                                                 "J kg-1",
                                                 "m3 m-3",
                                                 "inch"};
  const auto meant = nearest(text, usual);
  return "UDUNITS does not know the unit '" + text + "'" + (meant.empty() ? "" : "; did you mean " + meant + "?");
}

class ByUdunits final : public UnitConversion {
 public:
  ByUdunits(const Library& l, Converter* converter, bool water)
      : library_(l), converter_(converter, l.free_converter), water_(water) {
    double zero = 0;
    l.convert_doubles(converter, &zero, 1, &zero);
    shifts_ = zero != 0;
  }
  void convert(std::span<double> values) const override {
    library_.convert_doubles(converter_.get(), values.data(), values.size(), values.data());
  }
  [[nodiscard]] bool shifts() const override { return shifts_; }
  [[nodiscard]] bool of_water() const override { return water_; }

 private:
  const Library& library_;
  std::unique_ptr<Converter, void (*)(Converter*)> converter_;
  bool water_, shifts_ = false;
};

}  // namespace

Result<std::shared_ptr<const UnitConversion>> unit_conversion(const std::string& from, const std::string& to) {
  const auto& l = library();
  if (!l.why.empty())
    return Error{Code::unsupported, "UDUNITS cannot be used (" + l.why + "); on Debian it is libudunits2-0", 0};
  auto wanted = parse(l, to);
  if (!wanted) return Error{Code::config, unknown(to), 0};
  auto given = parse(l, from);
  if (!given) return Error{Code::config, "its unit is '" + from + "': " + unknown(from), 0};
  bool water = false;
  if (l.are_convertible(given.get(), wanted.get()) == 0) {
    const auto density = parse(l, "1000 kg m-3");
    OwnUnit mass{l.multiply(given.get(), density.get()), l.free_unit};
    const auto depth = parse(l, "m"), rate = parse(l, "m s-1");
    water = mass && l.are_convertible(mass.get(), wanted.get()) != 0 &&
            (l.are_convertible(given.get(), depth.get()) != 0 || l.are_convertible(given.get(), rate.get()) != 0);
    if (!water) return Error{Code::config, "'" + from + "' cannot become '" + to + "'", 0};
    given = std::move(mass);
  }
  auto* const converter = l.get_converter(given.get(), wanted.get());
  if (converter == nullptr) return Error{Code::config, "'" + from + "' cannot become '" + to + "'", 0};
  return std::shared_ptr<const UnitConversion>(std::make_shared<ByUdunits>(l, converter, water));
}

}  // namespace advectio
