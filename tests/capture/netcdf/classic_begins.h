#include <cstdint>
#include <string>
#include <vector>

/// Where each variable of a file in a classic format begins, as its header says. Empty: not such a file, or none.
std::vector<std::uint64_t> classic_begins(const std::string& path);
