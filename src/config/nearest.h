// "Did you mean": the nearest of some names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace advectio {

/// Letters to be changed, left out or added (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name that is nearest to `text`; empty where more than half of its letters would change.
std::string nearest(std::string_view text, std::span<const std::string> names);

}  // namespace advectio
