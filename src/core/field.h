// A field: one variable of the frame under way, as far as it has been put. Sinks, operators and
// readers see fields; they see no ranks, no journals and no blocks.
//
//  * A field grows: the server's loop adds blocks while other threads read.
//  * A field copies nothing. It holds the leases of its blocks, so their memory stays until the
//    field goes.
//  * Of blocks that overlap the later one wins.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/block.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// Elements of a variable: a box of them or, with strides, every stride-th one. `box.count` counts
/// the elements. With a layout: those of its boxes, which lie in `box`.
struct Part {
  Part() = default;
  Part(Box elements, std::vector<std::uint64_t> strides = {})  // NOLINT: a box is a part
      : box(std::move(elements)), stride(std::move(strides)) {}

  /// True when all strides are 1, and it is one box.
  [[nodiscard]] bool dense() const noexcept;
  [[nodiscard]] std::uint64_t elements() const noexcept { return layout ? layout->elements() : box.volume(); }
  /// The smallest box that holds the part.
  [[nodiscard]] Box bounds() const;

  Box box;
  std::vector<std::uint64_t> stride;        ///< empty: all 1
  std::shared_ptr<const BoxLayout> layout;  ///< in a part that a sink gets: its boxes have been put; null: all of `box`
};

/// Any thread may call any function. Parts lie within the variable and have its rank.
class Field {
 public:
  virtual ~Field() = default;
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  /// Index into Schema::variables.
  [[nodiscard]] std::uint32_t variable() const noexcept { return variable_; }
  [[nodiscard]] DataType type() const noexcept { return type_; }

  /// Copies the values of `part` to `destination`: dense, row-major, in native byte order. Elements
  /// that nobody has put keep what the destination holds. Text and numbers only.
  virtual void read(const Part& part, std::byte* destination) const = 0;

  /// The same of DataType::string. `destination` has one string for each element of `part`.
  virtual void read(const Part& part, std::span<String> destination) const = 0;

  /// The memory where the values of `part` lie as `read` would copy them; empty where there is
  /// none. It stays as it is until the field goes. A block that is added later does not change it.
  [[nodiscard]] virtual std::span<const std::byte> view(const Part& part) const = 0;

  /// True when all of `box` has been put. May be false all the same where blocks are cut in a very
  /// involved way.
  [[nodiscard]] virtual bool covers(const Box& box) const = 0;

  /// Which elements of `box` have been put, in its order. Returns how many.
  virtual std::uint64_t mark_put(const Box& box, std::vector<bool>& marks) const = 0;

 protected:
  Field(std::uint32_t variable, DataType type) noexcept : variable_(variable), type_(type) {}

 private:
  std::uint32_t variable_;
  DataType type_;
};

/// A field made of blocks. A search costs about as much as what it finds, however many blocks there
/// are and whatever their order: blocks are kept in trees of boxes (`Tree`). The newest blocks are in
/// none until somebody searches for a part of them. A tree is made anew with older ones that are not
/// much larger, so that there are few, and each block has been sorted few times.
class AssembledField final : public Field {
 public:
  AssembledField(std::uint32_t variable, DataType type, std::size_t rank);
  ~AssembledField() override;

  /// The block lies within the variable and has its rank. One thread at a time.
  /// Errors: Code::corrupt where its bytes are not the strings that its box takes.
  Result<void> add(const Block& block);

  void read(const Part& part, std::byte* destination) const override;
  void read(const Part& part, std::span<String> destination) const override;
  [[nodiscard]] std::span<const std::byte> view(const Part& part) const override;
  [[nodiscard]] bool covers(const Box& box) const override;
  std::uint64_t mark_put(const Box& box, std::vector<bool>& marks) const override;
  /// The blocks, in the order in which they were put: a later one hides what it covers of earlier ones.
  /// One of many boxes is as many blocks.
  [[nodiscard]] std::vector<Block> blocks() const;
  /// The smallest box that holds all blocks; of rank 0 where there are none.
  [[nodiscard]] Box bounds() const;

  /// Blocks, and nodes of trees, that all searches so far have looked at.
  [[nodiscard]] std::uint64_t looked_at() const noexcept { return looked_at_.load(std::memory_order_relaxed); }

 private:
  struct Piece;
  struct Tree;
  struct Search;
  using Pieces = std::vector<const Piece*>;
  static constexpr std::size_t leaf = 16;   ///< pieces of a leaf, at most
  static constexpr std::size_t loose = 32;  ///< pieces that a search looks at one by one

  [[nodiscard]] Pieces meeting(const Box& box, std::size_t most) const;
  void plant() const;
  static void widen(std::vector<std::uint64_t>& bounds, const Piece& piece);

  const std::size_t rank_;
  mutable std::shared_mutex mutex_;  // held for the search, never while values are copied
  std::deque<Piece> pieces_;         // in the order in which they were put; a piece stays at its place
  mutable std::vector<Tree> trees_;  // of the first pieces, then of those behind them, and so on
  mutable std::size_t planted_ = 0;  // pieces in trees
  // Start and end per dimension; empty: there are none.
  std::vector<std::uint64_t> bounds_;                // of all pieces
  mutable std::vector<std::uint64_t> loose_bounds_;  // of those in no tree
  mutable std::atomic<std::uint64_t> looked_at_ = 0;
};

/// The fields of the frame under way of one output. One thread.
class Frame {
 public:
  /// Blocks that follow belong to this schema.
  void declare(Schema schema) { schema_ = std::move(schema); }

  /// The field of the block's variable, which now holds the block too.
  /// Errors: Code::invalid where the block does not fit the schema; Code::corrupt as
  /// AssembledField::add.
  Result<std::shared_ptr<const Field>> add(const Block& block);

  /// Lets go of all fields. Somebody else may still hold them.
  void clear() noexcept { fields_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return fields_.empty(); }
  /// By variable.
  [[nodiscard]] const std::map<std::uint32_t, std::shared_ptr<AssembledField>>& fields() const noexcept {
    return fields_;
  }

 private:
  Schema schema_;
  std::map<std::uint32_t, std::shared_ptr<AssembledField>> fields_;
};

/// `visit` for each box of a part with a layout, until one returns an error.
Result<void> for_each_box(const Part& part, const std::function<Result<void>(const Part&)>& visit);

/// An error unless the part has the variable's rank and lies within its dimensions. Unlimited ones
/// have no end.
Result<void> check(const Part& part, const Variable& variable,
                   const std::function<const Dimension&(std::uint32_t)>& dimension);

}  // namespace advectio
