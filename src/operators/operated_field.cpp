#include "operators/operated_field.h"

#include <utility>

namespace advectio {

OperatedField::OperatedField(std::shared_ptr<const Field> from, std::shared_ptr<const Operators> operators)
    : Field(from->variable(), from->type()), from_(std::move(from)), operators_(std::move(operators)) {}

void OperatedField::read(const Part& part, std::byte* destination) const {
  from_->read(part, destination);
  operators_->apply(variable(), part.box, {destination, part.box.volume() * size_of(type())});
}

void OperatedField::read(const Part& part, std::span<String> destination) const {
  from_->read(part, destination);
}

std::span<const std::byte> OperatedField::view(const Part&) const {
  return {};
}

bool OperatedField::covers(const Box& box) const {
  return from_->covers(box);
}

std::uint64_t OperatedField::mark_put(const Box& box, std::vector<bool>& marks) const {
  return from_->mark_put(box, marks);
}

std::shared_ptr<const Field> operated(std::shared_ptr<const Field> field,
                                      const std::shared_ptr<const Operators>& operators) {
  if (!operators || !operators->changes(field->variable())) return field;
  return std::make_shared<OperatedField>(std::move(field), operators);
}

}  // namespace advectio
