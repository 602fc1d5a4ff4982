// A BP5 file that is made at once, of datasets that can be read again (`advectio convert`). It has no
// earlier commit to go back to, so its memory is bounded whatever a step holds: `checkpoint` writes
// parts into the step under way. The file can be read after `close`.
//
// What is asked of the caller:
//   * Records of a variable come in their order. A record may come in several parts, which do not
//     meet, before the variable's next record.
//   * A variable without records is complete before a variable has its second record.
//   * A part is written as a whole: points of it that the field has not got become the fill value.
//
// Steps, names and attributes are those of bp5_sink.h. The n-th record of every variable is in the
// n-th step, where they come record by record.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"
#include "sinks/adios2/step_writer.h"
#include "sinks/sink.h"

namespace advectio {

/// An error (Code::unsupported) that names what of the schema a BP5 file cannot hold.
Result<void> fits_bp5_file(const Schema& schema);

/// The directory at `path` is there, and empty. Errors: Code::unsupported where there is no ADIOS2.
Result<std::unique_ptr<Sink>> open_bp5_file(Files& files, const std::string& path, adios2::Compression compression);

}  // namespace advectio
