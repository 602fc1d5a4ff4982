// `advectiod inspect`: what a run directory holds, without touching it.
#pragma once

#include <string>
#include <vector>

namespace advectio {

/// Returns the exit code: 0, 1 where something in the stage is damaged, 2 where there is no stage.
int inspect_command(const std::vector<std::string>& arguments);

}  // namespace advectio
