#include "sources/grib/field.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "operators/calendar.h"

namespace advectio::grib {
namespace {

// float32 holds integers of this many bits.
constexpr long bits_of_float32 = 24;

Result<Message> header_of(File& file, const FieldPlace& place) {
  auto bytes = field_bytes(file, place, true);
  if (!bytes) return std::move(bytes).error();
  auto message = Message::decode(std::move(bytes).value());
  if (!message) return std::move(message).error().with(text_of(place));
  return message;
}

/// Tenths of the last of 12 digits are not the message's: it scales decimal numbers.
double rounded(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", x);
  return std::strtod(text, nullptr);
}

std::string joined(const Message& m, std::initializer_list<const char*> keys) {
  std::string out;
  for (const char* key : keys) {
    const auto value = m.integer(key);
    out += (out.empty() ? "" : ".") + (value ? std::to_string(*value) : "-");
  }
  return out;
}

Names names_of(const Message& m) {
  return {m.text("name"), m.text("units"), m.text("cfName"), m.text("cfVarName")};
}

void take(const Names& names, Quantity& to) {
  to.name = names.name;
  to.units = names.units;
  to.standard_name = names.standard_name;
  to.variable_name = names.variable_name;
}

Result<void> read_when(Message& m, Field& to) {
  const auto date = m.integer("dataDate"), time = m.integer("dataTime");
  if (!date || !time) return Error{Code::unsupported, "has no date", 0};
  const Date day{*date / 10000, static_cast<unsigned>(*date / 100 % 100), static_cast<unsigned>(*date % 100)};
  const auto calendar = Calendar::proleptic_gregorian;
  const auto days = days_of(day, calendar) - days_of({1970, 1, 1}, calendar);
  if (*date <= 0 || date_of(days_of(day, calendar), calendar) != day)
    return Error{Code::unsupported, "has the date " + std::to_string(*date) + ", which is not in the calendar", 0};
  to.when.reference_s = days * 86400 + *time / 100 * 3600 + *time % 100 * 60 + m.integer("second").value_or(0);
  const bool in_seconds = m.set("stepUnits", std::string("s"));
  const auto end = in_seconds ? m.integer("endStep") : std::nullopt;
  const auto begin = in_seconds ? m.integer("startStep") : std::nullopt;
  if (!end)
    return Error{Code::unsupported,
                 "has a step that is not a number of seconds (stepRange " + m.text("stepRange") + ", stepUnits " +
                     m.text("stepUnits") + ")",
                 0};
  to.when.step_s = *end;
  to.begin_s = begin.value_or(*end);
  return {};
}

}  // namespace

Result<Header> read_header(File& file, const FieldPlace& place, KnownNames& known) {
  auto decoded = header_of(file, place);
  if (!decoded) return std::move(decoded).error();
  auto& m = *decoded;
  Header out;
  auto& f = out.field;
  auto& q = out.quantity;
  f.place = place;
  out.origin = {m.integer("edition").value_or(0), m.text("centre"), m.text("centreDescription"),
                m.integer("subCentre").value_or(0)};
  q.short_name = m.text("shortName");
  q.parameter = m.integer("paramId").value_or(0);
  if (q.parameter == 0)
    q.code = out.origin.edition == 1 ? joined(m, {"table2Version", "indicatorOfParameter"})
                                     : joined(m, {"discipline", "parameterCategory", "parameterNumber"});
  q.level_type = m.text("typeOfLevel");
  if (q.level_type.empty() || q.level_type == "unknown")
    q.surfaces = out.origin.edition == 1 ? joined(m, {"indicatorOfTypeOfLevel"})
                                         : joined(m, {"typeOfFirstFixedSurface", "typeOfSecondFixedSurface"});
  if (const auto* type = level_type_named(q.level_type))
    q.level_units = out.origin.edition == 1 ? type->units_1 : type->units;
  q.step_type = m.text("stepType");
  if (q.parameter != 0) {
    const auto key = std::to_string(q.parameter) + '/' + std::to_string(out.origin.edition) + '/' + out.origin.centre +
                     '/' + q.level_type + '/' + q.step_type + '/' + q.short_name;
    auto it = known.find(key);
    if (it == known.end()) it = known.emplace(key, names_of(m)).first;
    take(it->second, q);
  } else {
    take(names_of(m), q);
  }
  q.grid_type = m.text("gridType");
  const auto section = grid_section(m.bytes());
  out.grid_section.assign(reinterpret_cast<const char*>(section.data()), section.size());
  const auto points = m.integer("numberOfPoints");
  if (!points || *points <= 0)
    return Error{Code::unsupported, text_of(place) + " does not say how many points its grid has", 0};
  q.points = static_cast<std::uint64_t>(*points);
  const auto top = m.number("topLevel"), bottom = m.number("bottomLevel"), level = m.number("level");
  f.level = {rounded(level.value_or(0)), rounded(top.value_or(level.value_or(0))),
             rounded(bottom.value_or(level.value_or(0)))};
  for (std::size_t i = 0; i < member_axes.size(); ++i) {
    f.members[i] = m.integer(member_axes[i].key);
    if (f.members[i]) q.members |= 1U << i;
  }
  f.of_ensemble = f.members[0].value_or(0) != 0 || m.integer("totalNumber").value_or(1) != 0;
  f.wide = m.text("packingType") == "grid_ieee" ? m.integer("precision") != 1L
                                                : m.integer("bitsPerValue").value_or(0) > bits_of_float32;
  if (auto when = read_when(m, f); !when) return std::move(when).error().with(text_of(place) + ", " + q.short_name);
  return out;
}

Result<std::vector<std::string>> keys_of(File& file, const FieldPlace& place, std::span<const char* const> keys) {
  auto message = header_of(file, place);
  if (!message) return std::move(message).error();
  std::vector<std::string> out;
  for (const char* key : keys) out.push_back(message->text(key));
  return out;
}

Result<std::vector<double>> coefficients_of(File& file, const FieldPlace& place) {
  auto message = header_of(file, place);
  if (!message) return std::move(message).error();
  if (message->integer("PVPresent").value_or(0) == 0) return std::vector<double>();
  auto numbers = message->numbers("pv");
  if (!numbers) return std::move(numbers).error().with(text_of(place));
  return numbers;
}

const LevelType* level_type_named(const std::string& type) {
  static constexpr std::array known = {
      LevelType{"isobaricInhPa", "hPa", "hPa", "air_pressure", "pressure", "down"},
      LevelType{"isobaricInPa", "Pa", "Pa", "air_pressure", "pressure", "down"},
      LevelType{"heightAboveGround", "m", "m", "height", "height above the surface", "up"},
      LevelType{"heightAboveSea", "m", "m", "altitude", "height above mean sea level", "up"},
      LevelType{"depthBelowLand", "m", "cm", "depth", "depth below land", "down"},
      LevelType{"depthBelowLandLayer", "m", "cm", "depth", "depth below land", "down"},
      LevelType{"depthBelowSea", "m", "m", "depth", "depth below sea level", "down"},
      LevelType{"hybrid", "1", "1", nullptr, "hybrid level", "down"},
      LevelType{"sigma", "1", "1", nullptr, "sigma level", "down"},
      LevelType{"theta", "K", "K", "air_potential_temperature", "isentropic level", "up"},
  };
  for (const auto& l : known)
    if (type == l.type) return &l;
  return nullptr;
}

std::string text_of(const Field& field, const Quantity& quantity) {
  const auto number = [](double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", x);
    return std::string(text);
  };
  const auto calendar = Calendar::proleptic_gregorian;
  auto out = quantity.short_name + " at " + quantity.level_type + " " + number(field.level.at) + ", " +
             time_text(days_of({1970, 1, 1}, calendar) * day_ms + field.when.valid_s() * 1000, calendar) + " (step " +
             number(static_cast<double>(field.when.step_s) / 3600) + " h)";
  for (std::size_t i = 0; i < member_axes.size(); ++i)
    if (field.members[i]) out += std::string(", ") + member_axes[i].name + " " + std::to_string(*field.members[i]);
  return out;
}

}  // namespace advectio::grib
