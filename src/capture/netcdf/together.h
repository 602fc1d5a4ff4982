// The ranks that write one dataset together, and what the library keeps of each variable then.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "capture/dataset.h"
#include "capture/netcdf/placement.h"
#include "capture/netcdf/real_library.h"
#include "capture/netcdf/shapes.h"
#include "capture/shadow/ranks.h"

namespace advectio::netcdf {

/// Access to each variable is collective or independent, and puts of other ranks count too. Without
/// `begin` this process writes the dataset alone.
class Together {
 public:
  Together(const RealLibrary& lib, int ncid, Shapes& shapes) : lib_(lib), ncid_(ncid), shapes_(shapes) {}
  void begin(std::shared_ptr<shadow::Ranks> ranks, SharedDataset& out) {
    ranks_ = std::move(ranks);
    out_ = &out;
  }

  [[nodiscard]] bool several() const noexcept { return ranks_ != nullptr; }
  /// Null where this process writes it alone.
  [[nodiscard]] const shadow::Ranks* ranks() const noexcept { return ranks_.get(); }
  /// Rank 0, or the only process: it sends the schema, and speaks for all.
  [[nodiscard]] bool first() const noexcept { return ranks_ == nullptr || ranks_->rank() == 0; }
  /// Collective. True on all ranks when it is on each.
  [[nodiscard]] bool all(bool here) const { return ranks_ != nullptr ? ranks_->all(here) : here; }
  /// Collective. All ranks have come so far without an error.
  bool agreed(int& code) const;
  /// For a collective call, whose collective index ends with it: every call that changes metadata, mode or
  /// frame is one. Null where this process writes alone.
  [[nodiscard]] SharedDataset* collective_out() const noexcept { return out_; }
  /// The dataset goes.
  void forget_out() noexcept { out_ = nullptr; }
  /// Only destruction is left.
  std::shared_ptr<shadow::Ranks> take_ranks() noexcept { return std::move(ranks_); }

  // --- variables --------------------------------------------------------------------------------
  [[nodiscard]] bool collective(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < variables_.size() &&
           variables_[static_cast<std::size_t>(variable)].collective;
  }
  /// As nc_var_par_access.
  int set_access(int variable, int access);
  /// HDF5 writes through filters together or not at all.
  void filtered(int variable);
  /// The library has made the file under our number: its variables get the same access.
  void repeat_access() const;
  /// The file was there, with these variables. Each is taken to be as long as its unlimited
  /// dimension; the library would know that one of them is shorter.
  void take_up(const std::vector<Variable>& variables);
  /// The put as one of several ranks: a collective one makes the variable longer for all, any other
  /// must fit.
  int put(int variable, const Shape& shape, const Placement& place);
  /// Of unlimited dimensions, by the puts of all. Waits for ranks that have not come as far as the
  /// last collective put here, as the library would have done in it.
  void learn_lengths();

 private:
  struct Access {
    bool collective = false;
    /// Its length in the unlimited dimension, by this rank's collective puts.
    std::uint64_t records = 0;
    bool perhaps_longer = false;  ///< this rank had nothing to say in one of them
  };
  [[nodiscard]] bool has_filters(int variable) const;
  Access& access(int variable);

  const RealLibrary& lib_;
  const int ncid_;
  Shapes& shapes_;
  std::shared_ptr<shadow::Ranks> ranks_;
  SharedDataset* out_ = nullptr;
  std::vector<Access> variables_;  ///< shorter than the list of variables: the rest is as new
  /// The collective index after the last collective put that may have made a variable longer.
  std::uint64_t grown_before_ = 0;
};

}  // namespace advectio::netcdf
