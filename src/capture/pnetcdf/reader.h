// The file of a dataset, opened with the real library to read what has been put.
#pragma once

#include <cstdint>

#include "capture/dataset.h"
#include "capture/pnetcdf/real_library.h"
#include "capture/pnetcdf/request.h"
#include "capture/pnetcdf/requests.h"
#include "capture/pnetcdf/variables.h"

namespace advectio::pnetcdf {

/// The error number that a program gets for a failure on our side.
int code_of(const Error& error) noexcept;
int code_of(const Result<void>& result) noexcept;

class Reader {
 public:
  /// `shadow`: the number of the dataset's shadow, which knows the names of its variables.
  Reader(const RealLibrary& lib, int shadow) : lib_(lib), shadow_(shadow) {}

  /// Open the file as it is now. It stays open for as long as nothing can have changed.
  int open(SharedDataset& dataset, bool independent);
  void close();
  /// MPI has ended: what it holds goes with the process.
  void abandon() noexcept { ncid_ = -1; }

  [[nodiscard]] int ncid() const noexcept { return ncid_; }
  /// The number of records in the file.
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  /// The variable's number in the file.
  [[nodiscard]] int variable(int variable) const;
  /// The whole variable, up to the `records` that there are for this rank: the file may have others.
  int get_records(const Request& request, const Shape& shape, std::uint64_t records, bool collective) const;
  /// It is open for collective calls.
  int get(const PostedGet& get) const;

 private:
  const RealLibrary& lib_;
  const int shadow_;
  int ncid_ = -1;
  bool independent_ = false;
  std::uint64_t generation_ = 0;  ///< SharedDataset::generation when it was opened
  std::uint64_t records_ = 0;
};

}  // namespace advectio::pnetcdf
