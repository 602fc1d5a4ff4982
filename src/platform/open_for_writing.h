// Is a file open for writing?
#pragma once

#include <optional>
#include <string>

namespace advectio {

/// Some process of this machine has the file open for writing, or mapped so. The kernel says that
/// by a lease (fcntl(2), F_SETLEASE). Nothing: it does not, as on file servers, some file systems,
/// and for another user's file. False where the file cannot be read.
std::optional<bool> is_open_for_writing_by_lease(const std::string& path);

/// The same. Without leases the descriptors of this user's processes are looked at, which takes
/// milliseconds and may wait for file servers; mappings are not seen then.
bool is_open_for_writing(const std::string& path);

}  // namespace advectio
