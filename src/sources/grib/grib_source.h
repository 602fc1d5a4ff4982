// A GRIB file of edition 1 or 2, as a dataset (dataset.h). Values are what ecCodes decodes: float32, or
// float64 where a message packs them in more than 24 bits. Points that a message leaves out hold the fill
// value.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "sources/source.h"

namespace advectio {

/// A file that begins with a GRIB message, or with a bulletin's header and then one.
bool is_grib(const std::string& path);

/// Reads all headers; what was read is kept by this process for the next time, and by processes that it
/// forks. Errors: Code::unsupported where ecCodes is not found, with what to install; Code::corrupt and
/// invalid with the message of the file.
Result<std::unique_ptr<Source>> open_grib_source(const std::string& path);

}  // namespace advectio
