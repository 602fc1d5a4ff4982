// The file of a dataset, opened with the real library to read what was put.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/netcdf/real_library.h"
#include "core/box.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// A program that reads, adds and writes would wait for a commit at each read. After a few of these
/// a copy of the file in memory is read instead, into which puts go, too.
class Reader {
 public:
  /// `shadow`: the number of the dataset's shadow, which knows the names of its variables.
  Reader(const RealLibrary& lib, int shadow) : lib_(lib), shadow_(shadow) {}

  [[nodiscard]] bool is_open() const noexcept { return ncid_ >= 0; }
  [[nodiscard]] bool reads_copy() const noexcept { return reads_copy_; }
  [[nodiscard]] int ncid() const noexcept { return ncid_; }
  /// `path`: the file, in which everything put so far is. `alone`: nobody else puts into it.
  int open(const std::string& path, const Schema& schema, int fill_mode, bool alone);
  void close();
  /// The file is about to change.
  void close_unless_copy() {
    if (!reads_copy_) close();
  }
  /// A read begins.
  void begin_read() noexcept { unread_bytes_ = 0; }
  /// The variable's number in the file.
  int find(int variable, int& there) const;
  /// Puts a block into the copy, where one is read. `data` is dense and of the variable's type.
  void put_into_copy(int variable, const Box& box, const std::vector<std::uint64_t>& stride, const void* data,
                     std::size_t element);

 private:
  const RealLibrary& lib_;
  const int shadow_;
  int ncid_ = -1;
  bool reads_copy_ = false;
  int reads_after_puts_ = 0;
  std::uint64_t unread_bytes_ = 0;  ///< put into the copy since the last read
};

}  // namespace advectio::netcdf
