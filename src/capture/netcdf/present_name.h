// Finds the current name of a file that the program may have renamed or removed since creating it.
#pragma once

#include <optional>
#include <string>

namespace advectio::netcdf {

/// Whether both paths lead to the same file. False if either leads to none.
bool same_file(const std::string& a, const std::string& b);

/// The current name of the file behind the hard link `ours`. Looks at `path`, then in the directory of `path`.
/// Empty string: the program has removed the file; only `ours` and perhaps `servers` are left. (The server removes its
/// link `servers` when the file is complete, at any moment.) nullopt: the file has a name, in some other directory.
std::optional<std::string> present_name(const std::string& ours, const std::string& path, const std::string& servers);

}  // namespace advectio::netcdf
