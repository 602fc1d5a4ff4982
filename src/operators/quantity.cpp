#include "operators/quantity.h"

namespace advectio {

void ReadOnce::needs(const Box& box, std::vector<Need>& all) const {
  std::vector<Need> its;
  of_->needs(box, its);
  const auto first = static_cast<std::ptrdiff_t>(all.size());
  for (auto& need : its)
    if (std::find(all.begin() + first, all.end(), need) == all.end()) all.push_back(std::move(need));
}

void ReadOnce::make(const Box& box, Needed& values, std::span<double> result) const {
  std::vector<Need> its, once;
  of_->needs(box, its);
  std::vector<std::span<const double>> read, all;
  for (auto& need : its) {
    const auto it = std::find(once.begin(), once.end(), need);
    const auto place = static_cast<std::size_t>(it - once.begin());
    if (it == once.end()) {
      once.push_back(std::move(need));
      read.push_back(values.next());
    }
    all.push_back(read[place]);
  }
  Needed needed(all);
  of_->make(box, needed, result);
}

}  // namespace advectio
