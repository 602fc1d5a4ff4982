// Ranks put patches; in a file the elements of a patch lie in rows, far apart. What lies together
// in the file is gathered from all patches and written in one go, in the order of the file, so that
// none of it is read again and again, a few rows at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/box.h"
#include "core/field.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

class Patches {
 public:
  /// Dense, of exactly this box.
  using Put = std::function<Result<void>(std::uint32_t variable, const Box& box, const std::byte* data)>;

  /// `box` of the field has been put. It is not empty, and of one record where its variable has
  /// records.
  void add(const std::shared_ptr<const Field>& field, const Box& box, bool has_records);
  [[nodiscard]] bool holds(std::uint32_t variable) const { return variables_.contains(variable); }
  /// So many that they want to be flushed.
  [[nodiscard]] bool many() const noexcept { return boxes_ > boxes_max; }

  /// Puts everything that was added, with the values that the fields have now, and forgets it;
  /// forgets it as well when something fails.
  Result<void> flush(const Schema& schema, const Put& put);
  void clear() noexcept;

 private:
  static constexpr std::size_t boxes_max = 1 << 18;
  static constexpr std::uint64_t together_max = 4U << 20U;  ///< bytes; large enough that calls cost nothing

  struct Place {
    std::shared_ptr<const Field> field;
    std::vector<Box> boxes;
  };
  using Boxes = std::vector<const Box*>;
  Result<void> put_all(const Schema& schema, const Put& put);
  Result<void> put_pieces(const Place& place, const std::vector<std::uint64_t>& lengths, const Put& put);
  Result<void> put_together(const Field& field, const Box& box, const Boxes& boxes, const Put& put);

  std::size_t boxes_ = 0;
  std::set<std::uint32_t> variables_;
  /// In the order of the file: the variables without records (0), then those of each record (its
  /// index + 1).
  std::map<std::pair<std::uint64_t, std::uint32_t>, Place> by_place_;
  std::vector<std::byte> gathered_;  ///< of several boxes
  std::vector<std::byte> one_;       ///< of one of them
};

}  // namespace advectio
