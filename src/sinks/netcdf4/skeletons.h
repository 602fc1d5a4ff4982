// Files of a run mostly have the same dimensions, variables, chunks and attributes; only the values
// of some attributes differ. HDF5 needs half a millisecond for each variable that it creates. So the
// bytes of such a file, taken before anything is put into it, are the begin of the next one.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "core/schema.h"
#include "sinks/netcdf4/layout.h"

namespace advectio {

struct Skeleton {
  KnownLayout layout;
  std::vector<std::byte> bytes;  ///< of the file, as long as HDF5 has given out space in it
};

/// Those of one process, shared by its sinks. All methods are called under Hdf5Lock.
class Skeletons {
 public:
  /// Of a file that differs from one of this schema in values of attributes at most. Null: there is none.
  std::shared_ptr<const Skeleton> find(const Schema& schema);
  /// A file of such a schema was begun before, and there is no skeleton of it.
  bool is_wanted(const Schema& schema);
  void keep(const Schema& schema, Skeleton skeleton);

 private:
  /// Tiles of one domain have up to 16 shapes: those at its borders differ.
  static constexpr std::size_t most = 64, bytes_max = 64U << 20U;
  struct Entry {
    Schema shape;  ///< without values of attributes
    std::shared_ptr<const Skeleton> skeleton;
  };
  Entry* entry(const Schema& shape);
  void forget_oldest();

  std::list<Entry> entries_;  // the one used last is the first
  std::size_t bytes_ = 0;     // of all skeletons
};

}  // namespace advectio
