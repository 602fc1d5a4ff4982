// What a file is called that a program may have renamed or removed since it was made.
#pragma once

#include <optional>
#include <string>

namespace advectio::netcdf {

/// Do both paths lead to one file? False where one leads to none.
bool same_file(const std::string& a, const std::string& b);

/// The present name of the file that has the hard link `ours`: `path`, or another one in the same directory. Empty: it
/// has none but `ours` and `servers`, the link that the server removes when the file is complete, at any moment. None:
/// it has one that is not found.
std::optional<std::string> present_name(const std::string& ours, const std::string& path, const std::string& servers);

}  // namespace advectio::netcdf
