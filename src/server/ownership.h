// Which node writes an output, and what it has been told from here.
#pragma once

#include <cstdint>
#include <set>

namespace advectio {

class Ownership {
 public:
  /// Several nodes have part in it, and this one writes it.
  void set_owned() { place_ = Place::here; }
  /// Another node writes it: what is here of it is only sent there.
  void leave_to(unsigned node) {
    place_ = Place::elsewhere;
    owner_ = node;
  }

  /// Other nodes have part in it, or may have.
  [[nodiscard]] bool is_spread() const { return place_ != Place::one_node; }
  [[nodiscard]] bool owns() const { return place_ == Place::here; }
  /// Another node writes it.
  [[nodiscard]] bool is_elsewhere() const { return place_ == Place::elsewhere || place_ == Place::announced; }
  /// Where it is elsewhere.
  [[nodiscard]] unsigned owner() const { return owner_; }

  /// The owner knows that this node has part in it.
  [[nodiscard]] bool is_announced() const { return place_ == Place::announced; }
  void note_announced() { place_ = Place::announced; }

  /// True the first time: the owner has not been told of that writer's slot.
  [[nodiscard]] bool introduce(std::uint64_t journal) { return introduced_.insert(journal).second; }
  [[nodiscard]] bool is_introduced(std::uint64_t journal) const { return introduced_.contains(journal); }

 private:
  enum class Place : std::uint8_t { one_node, here, elsewhere, announced };

  Place place_ = Place::one_node;
  unsigned owner_ = 0;
  std::set<std::uint64_t> introduced_;
};

}  // namespace advectio
