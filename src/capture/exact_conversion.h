// Values of the program's type into the variable's, where there is one right answer. Compiled into each interposer.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace advectio {

/// False: the conversion is none of those, or some value does not fit. What is in `to` then means nothing.
bool convert_exactly(const void* from, DataType memory, void* to, DataType type, std::size_t elements);

}  // namespace advectio
