// The netCDF data model laid out in an HDF5 file by netCDF-4's documented conventions: dimension scales, hidden
// attributes, creation order. Knows what the file holds, and changes it into what a schema wants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "sinks/netcdf4/hdf5.h"

namespace advectio {

/// A variable as it is in the file.
struct KnownVariable {
  Variable is;                        ///< attributes, name and dimensions as in the file; the rest as declared
  bool structure_known = false;       ///< false after `load`, until a schema says how it was meant
  std::string link;                   ///< name of the HDF5 data set
  bool scale = false;                 ///< it is the coordinate variable of its first dimension
  std::vector<bool> attached;         ///< per dimension: the scale is attached
  std::vector<std::uint64_t> extent;  ///< lengths of the data set now
};
struct FileVariable : KnownVariable {
  Hdf5Id dataset;
};

struct KnownDimension {
  Dimension is;
  std::int64_t coordinate = -1;  ///< the variable that is its scale, or -1: FileDimension::scale
};
struct FileDimension : KnownDimension {
  Hdf5Id scale;  ///< a data set that stands for the dimension alone
};

/// What is known of a file beside its open objects: as much as is needed to go on in a copy of it.
struct KnownLayout {
  std::vector<KnownDimension> dimensions;
  std::vector<KnownVariable> variables;
  std::vector<Attribute> attributes;
  Schema declared;
};

/// All methods are called under Hdf5Lock. After an error the file is in no state to go on with.
class Layout {
 public:
  /// A new file's root group.
  Result<void> create(hid_t file, FileFormat format);
  /// An existing file that this class has made, or netCDF-C.
  Result<void> load(hid_t file);
  /// A file that netCDF-C has made holds that schema, stored as this class stores it. Errors name what differs.
  [[nodiscard]] Result<void> holds(const Schema& schema) const;
  /// A copy of a file of which `known` was known.
  Result<void> take_up(hid_t file, const KnownLayout& known);
  [[nodiscard]] KnownLayout known() const;

  /// Make the file hold `schema`. Dimensions and variables are known by their numbers. What the file has beyond the
  /// schema stays.
  Result<void> apply(const Schema& schema);

  /// Grow the data set so that `end[i]` elements fit in each dimension.
  Result<void> extend(std::size_t variable, const std::vector<std::uint64_t>& end);

  [[nodiscard]] const FileVariable& variable(std::size_t i) const { return variables_[i]; }
  [[nodiscard]] std::size_t variables() const noexcept { return variables_.size(); }
  [[nodiscard]] const FileDimension& dimension(std::size_t i) const { return dimensions_[i]; }

  /// Close every object, so that the file can be closed.
  void release() noexcept;

 private:
  struct Wish;

  Result<Wish> wish(const Schema& schema) const;
  Result<void> restructure(const Wish& wish);
  Result<void> create_dimension(std::size_t d);
  Result<void> create_variable(std::size_t v, const Variable& variable, const std::string& link, bool scale);
  Result<void> rebuild_variable(std::size_t v, const Variable& variable);
  Result<void> mark_scale(std::size_t v);
  Result<void> attach(std::size_t v);
  Result<void> write_number(hid_t object, const char* name, int value);
  Result<void> write_attribute(hid_t object, const Attribute& attribute);
  Result<void> overwrite_attribute(hid_t object, const Attribute& attribute);
  Result<void> set_attributes(hid_t object, std::vector<Attribute>& current, const std::vector<Attribute>& wanted);
  Result<std::vector<Attribute>> read_attributes(hid_t object);
  Result<void> load_dataset(const std::string& link);
  [[nodiscard]] Result<void> is_stored_as(const FileVariable& v, const Variable& variable) const;
  [[nodiscard]] std::uint64_t length_now(std::size_t dimension) const;
  [[nodiscard]] hid_t scale_of(std::size_t dimension) const;

  hid_t file_ = H5I_INVALID_HID;
  Hdf5Id root_;
  std::vector<FileDimension> dimensions_;
  std::vector<FileVariable> variables_;
  std::vector<Attribute> attributes_;
  Schema declared_;
  bool any_declared_ = false;
  bool loaded_ = false;  ///< the file was there
};

/// The HDF5 type of an element in memory (`order` native) or in the file.
Hdf5Id hdf5_type(DataType type, Endian order);

/// The attributes a variable has in the file: the schema's, and the one that tells of rounding.
std::vector<Attribute> attributes_in_file(const Variable& variable);

}  // namespace advectio
