// The judge of a run: reads what is there through netCDF-C or a strict reader of stores, and knows of Advectio only
// what its writers saw.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "faults/case.h"

namespace advectio::faults {

/// What is there of a dataset: in its file, or where tiles have not become one also in theirs.
class Found {
 public:
  Found(const DatasetCase& dataset, std::size_t number) : d_(dataset), number_(number) {}

  /// A file that holds `held` of the domain, of which `own` is its to hold. `synced`: frames whose sync has returned to
  /// all who write it; `begun`: frames of which anything was put. Says why it is not one that can be there; nothing
  /// where it can, also where there is none.
  std::string look_into(const std::string& path, const Area& held, const Area& own, std::uint64_t synced,
                        std::uint64_t begun);
  /// Every cell of the frame there?
  [[nodiscard]] bool holds(std::uint64_t frame, const Area& area) const;

 private:
  using Cells = std::vector<bool>;  // of the domain: right
  struct Frame {
    Cells t, u;
    bool s = false;
  };
  struct Opened;
  class File;
  static std::string open_netcdf(const std::string& path, std::shared_ptr<int>& nc, Opened& to);
  static std::string open_store(const std::string& path, FileFormat format, Opened& to);

  const DatasetCase& d_;
  std::size_t number_;
  std::vector<Frame> frames_;
  Cells h_;
};

}  // namespace advectio::faults
