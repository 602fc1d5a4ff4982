#pragma once
#include <string>

/// Everything two netCDF files hold, told apart in words: format, dimensions, variables with their storage, attributes,
/// data. Empty: the same.
std::string difference(const std::string& a, const std::string& b);
