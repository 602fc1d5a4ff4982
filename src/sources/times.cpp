#include "sources/times.h"

#include <utility>

#include "operators/values.h"

namespace advectio {

Result<SourceTimes> times_of(const Source& source, const SourceHead& head) {
  auto axis = find_time_axis(head.schema);
  if (!axis) return std::move(axis).error();
  const auto whole = [&](std::uint32_t v) {
    Box box;
    for (const auto d : head.schema.variables[v].dimensions) box.count.push_back(head.lengths[d]);
    box.start.assign(box.count.size(), 0);
    return box;
  };
  const auto numbers = [&](std::uint32_t v) -> Result<std::vector<double>> {
    const auto box = whole(v);
    const auto& variable = head.schema.variables[v];
    Bytes raw(box.volume() * size_of(variable.type));
    std::vector<double> values(box.volume());
    ADVECTIO_TRY(source.read(v, box, raw.data()));
    unpack(packing_of(variable), raw.data(), values);
    return values;
  };
  auto moments = [&]() -> Result<std::vector<Moment>> {
    if (axis->text) {
      const auto box = whole(axis->variable);
      Bytes raw(box.volume());
      ADVECTIO_TRY(source.read(axis->variable, box, raw.data()));
      return moments_of_text(*axis, {reinterpret_cast<const char*>(raw.data()), raw.size()}, box.count[1]);
    }
    auto values = numbers(axis->variable);
    if (!values) return std::move(values).error();
    std::vector<double> bounds;
    if (axis->bounds) {
      auto read = numbers(*axis->bounds);
      if (!read) return std::move(read).error();
      bounds = std::move(read).value();
    }
    return moments_of_numbers(*axis, *values, bounds);
  }();
  if (!moments) return std::move(moments).error();
  return SourceTimes{std::move(axis).value(), std::move(moments).value()};
}

}  // namespace advectio
