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
  /// The same of a box of which only the elements with marks have been put. It lies together in the file. Needed where
  /// any are added as scattered.
  using PutMarked = std::function<Result<void>(std::uint32_t variable, const Box& box, const std::byte* data,
                                               const std::vector<bool>&)>;

  /// `box` of the field has been put, or with `scattered` some of its elements. It is not empty, and of one record
  /// where its variable has records.
  void add(const std::shared_ptr<const Field>& field, const Box& box, bool has_records, bool scattered = false);
  [[nodiscard]] bool holds(std::uint32_t variable) const { return variables_.contains(variable); }
  /// So many that they want to be flushed.
  [[nodiscard]] bool many() const noexcept { return boxes_ > boxes_max; }

  /// Puts everything that was added, with the values that the fields have now, and forgets it;
  /// forgets it as well when something fails.
  Result<void> flush(const Schema& schema, const Put& put, const PutMarked& put_marked = {});
  void clear() noexcept;

 private:
  static constexpr std::size_t boxes_max = 1 << 18;
  /// Runs between holes that are far apart are put one by one: for each of them so many bytes may be read and written.
  static constexpr std::uint64_t hole_bytes = 4096;
  static constexpr std::uint64_t together_max = 4U << 20U;  ///< bytes; large enough that calls cost nothing

  struct Calls {
    const Put& put;
    const PutMarked& put_marked;
  };
  struct Place {
    std::shared_ptr<const Field> field;
    std::vector<Box> boxes;
    bool scattered = false;  ///< of some box there are only some elements
  };
  using Boxes = std::vector<const Box*>;
  Result<void> put_all(const Schema& schema, const Calls& calls);
  Result<void> put_pieces(const Place& place, const std::vector<std::uint64_t>& lengths, const Calls& calls);
  Result<void> put_together(const Place& place, const Box& box, const Boxes& boxes, const Calls& calls);
  Result<void> put_marked(const Field& field, const Box& box, const Calls& calls);

  std::size_t boxes_ = 0;
  std::set<std::uint32_t> variables_;
  /// In the order of the file: the variables without records (0), then those of each record (its
  /// index + 1).
  std::map<std::pair<std::uint64_t, std::uint32_t>, Place> by_place_;
  std::vector<std::byte> gathered_;  ///< of several boxes
  std::vector<std::byte> one_;       ///< of one of them
  std::vector<bool> marks_;          ///< what of `gathered_` has been put
};

}  // namespace advectio
