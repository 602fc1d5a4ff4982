#include "operators/operator.h"

#include <algorithm>
#include <utility>

namespace advectio {

Result<Schema> Operators::declare(Schema schema) {
  for (const auto& one : all_) {
    auto made = one->declare(std::move(schema));
    if (!made) return made;
    schema = std::move(made).value();
  }
  return schema;
}

bool Operators::changes(std::uint32_t variable) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& one) { return one->changes(variable); });
}

void Operators::apply(std::uint32_t variable, const Box& box, std::span<std::byte> values) const {
  for (const auto& one : all_)
    if (one->changes(variable)) one->apply(variable, box, values);
}

}  // namespace advectio
