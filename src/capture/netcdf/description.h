// The schema of a dataset as its shadow has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "capture/netcdf/real_library.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// The part of the metadata that a call has changed.
enum class Touched : std::uint8_t { dimensions, globals, variable, all_but_attributes, everything };

/// Reads again only what has changed. Reading attributes back by their names takes as long as
/// putting them (1.4 ms for a WRF history file). So the attributes of a variable are noted as the
/// program puts them, as long as it puts each once.
class Description {
 public:
  Description(const RealLibrary& lib, int ncid, FileFormat format);

  /// The schema as the shadow has it now. `fill_mode`: the one of the whole file, in the classic
  /// formats.
  const Schema& read(int fill_mode);
  /// The schema as it was read last.
  [[nodiscard]] Schema& last_read() noexcept { return schema_; }
  void touch(Touched what, int variable);

  // --- attributes -------------------------------------------------------------------------------
  /// The variable is new: it has no attributes.
  void note_variable(int variable);
  /// The library has taken these `values`, of `type`, as an attribute of the variable (or
  /// NC_GLOBAL). Null: they are not as the library has them now.
  void note_attribute(int variable, const char* name, nc_type type, std::size_t count, const void* values);
  /// They are to be read back.
  void forget_attributes(int variable);
  /// This process never tells the schema.
  void note_nothing() noexcept;
  /// The library writes how it quantizes a variable as an attribute, behind those that are there
  /// when it makes the variable.
  void note_quantized(int variable) { quantized_.push_back({variable, -1}); }
  /// Define mode ends: the library makes the variables.
  void end_define_mode();

 private:
  struct Quantized {
    int variable, attributes_before;  ///< -1: not yet made
  };
  [[nodiscard]] std::optional<std::vector<Attribute>>* noted(int variable);
  int read_globals();
  void mark_rounding(Variable& v, int variable) const;

  const RealLibrary& lib_;
  const int ncid_;
  Schema schema_;
  bool dirty_dimensions_ = true, dirty_globals_ = true;
  std::vector<bool> dirty_variables_;  ///< shorter than the list of variables: the rest is new
  bool notes_ = true;
  std::vector<Quantized> quantized_;
  /// Of each variable, the global ones first. Shorter than the list: nothing is noted of the rest.
  std::vector<std::optional<std::vector<Attribute>>> noted_;
};

}  // namespace advectio::netcdf
