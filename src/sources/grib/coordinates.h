// The dimensions and coordinates of a dataset, which variables share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sources/grib/dataset.h"

namespace advectio::grib {

/// Adds to a dataset's schema what variables ask for, once each.
class Coordinates {
 public:
  /// Decides what the dimension of time is, and makes it.
  Coordinates(Dataset& to, const std::vector<Group>& groups);

  /// What a variable's `coordinates` and dimensions are to be.
  struct Axis {
    std::optional<std::uint32_t> dimension;  ///< none: a scalar coordinate
    std::string name;                        ///< of the coordinate; empty: none
  };
  /// Sorted values without repetitions.
  Axis members(std::size_t axis, const std::vector<long>& values);
  /// Sorted as `levels_of` has them.
  Axis levels(const Quantity& quantity, const std::vector<Level>& levels);

  /// The coefficients of an axis of hybrid levels: a (Pa) of all half levels, then b, from the top down (key pv).
  void remember_coefficients(const Axis& axis, const std::vector<Level>& levels,
                             const std::vector<double>& coefficients);
  /// After the last group: what the pressure of such levels is made of, as CF has it.
  void add_coefficients();

  struct Places {
    std::vector<std::uint32_t> dimensions;
    std::string coordinates;  ///< names that the attribute `coordinates` has to have; empty: none
  };
  Places grid(std::uint32_t number);

  /// The leading dimensions of all variables, and a field's place along them.
  [[nodiscard]] const std::vector<std::uint32_t>& time_dimensions() const noexcept { return time_dimensions_; }
  [[nodiscard]] std::uint64_t times() const noexcept { return times_.size() * (runs_ ? steps_.size() : 1); }
  [[nodiscard]] std::uint64_t time_of(const When& when) const;
  /// Names of the coordinates that tell a group's reference times, and where its intervals begin.
  std::string of_times(const Group& group);
  /// After the last `of_times`: makes those coordinates.
  void add_shared_times();

 private:
  /// Names of coordinates with their contents, so that what is the same has one name.
  struct Known {
    std::string name;
    std::vector<std::optional<std::int64_t>> values;
  };
  std::uint32_t add_dimension(std::string name, std::uint64_t length, bool unlimited = false);
  void add_variable(std::string name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                    std::vector<Attribute> attributes);
  void add_variable(std::string name, std::vector<std::uint32_t> dimensions, Numbers values,
                    std::vector<Attribute> attributes);
  std::string unused(const std::string& name) const;
  Axis add_axis(const std::string& name, const std::vector<double>& values, const std::vector<double>& bounds,
                const std::string& units, std::vector<Attribute> attributes);
  std::string shared(std::vector<Known>& known, const char* name,
                     const std::vector<std::optional<std::int64_t>>& values);

  Dataset& to_;
  bool runs_ = false;                        ///< dimensions are reference time and step
  std::vector<std::int64_t> times_, steps_;  ///< seconds
  std::vector<std::uint32_t> time_dimensions_;
  std::vector<Known> references_, begins_;
  struct KnownAxis {
    std::string base;
    std::vector<double> values, bounds;
    std::string units;
    Axis axis;
  };
  std::vector<KnownAxis> axes_;
  struct Hybrid {
    std::uint32_t dimension = 0;
    std::string name;
    std::vector<double> coefficients;
    std::vector<double> ap, b;  ///< of the levels' middles
    bool one = true;            ///< all variables have these coefficients
  };
  std::vector<Hybrid> hybrid_;
  std::vector<std::optional<Places>> grids_;
  std::optional<std::uint32_t> ends_;  ///< the dimension of bounds
};

/// Sorted as their coordinate has them, without repetitions: pressures from the ground up.
std::vector<Level> levels_of(const Quantity& quantity, const Contents& contents,
                             const std::vector<std::uint32_t>& fields);

}  // namespace advectio::grib
