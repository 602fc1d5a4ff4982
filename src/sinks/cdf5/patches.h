// Ranks put patches; in a file the elements of a patch lie in rows, far apart. What lies together in the file is
// gathered from all patches and written in one go, in the order of the file, so that none of it is read again and
// again, a few rows at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"
#include "sinks/sink.h"

namespace advectio {

class Patches {
 public:
  /// Dense, of exactly this box.
  using Put = std::function<Result<void>(std::uint32_t variable, const Box& box, const std::byte* data)>;

  /// A block without strides, not empty, and of one record where its variable has records. Its memory stays until
  /// `flush` or `clear`.
  void add(const Block& block, bool has_records);
  [[nodiscard]] bool holds(std::uint32_t variable) const { return variables_.contains(variable); }
  /// So many that they want to be flushed.
  [[nodiscard]] bool many() const noexcept { return blocks_.size() > blocks_max; }

  /// Put everything that was added, of two blocks that overlap the later one, and forget it; forget it as well when
  /// something fails.
  Result<void> flush(const Schema& schema, const Put& put);
  void clear() noexcept;

 private:
  static constexpr std::size_t blocks_max = 1 << 18;
  static constexpr std::uint64_t together_max = 4U << 20U;  ///< bytes; large enough that calls cost nothing

  using Blocks = std::vector<const Block*>;
  Result<void> put_all(const Schema& schema, const Put& put);
  Result<void> put_pieces(std::uint32_t variable, const std::vector<std::uint64_t>& lengths, std::size_t element,
                          const Blocks& blocks, const Put& put);
  Result<void> put_together(std::uint32_t variable, const Box& box, std::size_t element, const Blocks& blocks,
                            const Put& put);

  std::deque<Block> blocks_;
  std::set<std::uint32_t> variables_;
  /// In the order of the file: the variables without records (0), then those of each record (its index + 1).
  std::map<std::pair<std::uint64_t, std::uint32_t>, Blocks> by_place_;
  std::vector<std::byte> gathered_;
};

}  // namespace advectio
