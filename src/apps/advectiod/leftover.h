// `advectiod recover --dry-run`: what a leftover run directory holds, without touching it.
#pragma once

#include <string>

namespace advectio {

/// Print what recovery would do with the run directory (a table, or JSON). Returns the exit code.
int list_leftover(const std::string& run_dir, bool json);

}  // namespace advectio
