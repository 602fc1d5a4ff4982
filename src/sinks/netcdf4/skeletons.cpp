#include "sinks/netcdf4/skeletons.h"

#include <algorithm>
#include <utility>

namespace advectio {

namespace {

void leave_out_values(std::vector<Attribute>& attributes) {
  for (auto& a : attributes) {
    a.values.clear();
    a.strings.clear();
  }
}

Schema shape_of(Schema schema) {
  leave_out_values(schema.attributes);
  for (auto& v : schema.variables) leave_out_values(v.attributes);
  return schema;
}

}  // namespace

Skeletons::Entry* Skeletons::entry(const Schema& shape) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.shape == shape; });
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return &entries_.front();
}

std::shared_ptr<const Skeleton> Skeletons::find(const Schema& schema) {
  const auto* e = entry(shape_of(schema));
  return e != nullptr ? e->skeleton : nullptr;
}

bool Skeletons::is_wanted(const Schema& schema) {
  auto shape = shape_of(schema);
  if (const auto* e = entry(shape); e != nullptr) return e->skeleton == nullptr;
  entries_.push_front({std::move(shape), nullptr});
  if (entries_.size() > most) forget_oldest();
  return false;
}

void Skeletons::keep(const Schema& schema, Skeleton skeleton) {
  auto* e = entry(shape_of(schema));
  if (e == nullptr || e->skeleton != nullptr || skeleton.bytes.size() > bytes_max) return;
  bytes_ += skeleton.bytes.size();
  e->skeleton = std::make_shared<const Skeleton>(std::move(skeleton));
  while (bytes_ > bytes_max) forget_oldest();
}

void Skeletons::forget_oldest() {
  if (const auto& skeleton = entries_.back().skeleton; skeleton != nullptr) bytes_ -= skeleton->bytes.size();
  entries_.pop_back();
}

}  // namespace advectio
