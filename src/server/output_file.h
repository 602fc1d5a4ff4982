// The file of an output that the server begins: a further output, or the one file of tiles. The program begins its own
// files in the same order (capture/create.cpp).
#pragma once

#include <functional>

#include "server/output.h"
#include "server/run.h"

namespace advectio {

/// The store that takes the place of a file: the format's suffix (`.zarr`) is added to the name, in
/// place of `.nc`. Of a further output's placeholder: what that stands for.
std::string store_path(const std::string& file, FileFormat format);

/// Where the file of a further output lies. In a format of stores: an empty hidden file, the
/// placeholder, which stands for it while it is written.
std::string file_of_output(const OutputRule& rule, const std::string& dataset);

/// Makes the empty file at `output.path`, its shared state and its hard link. The file takes the place of what has that
/// name; whoever has that open keeps it. `describe` sets what the shared state says beside format, path and link.
/// Errors: Code::exists where a program of this run writes that file. The system's where the directory refuses: nothing
/// of ours is left there.
Result<void> make_output_file(Run& run, Output& output, const std::string& link_name,
                              const std::function<void(SharedState&)>& describe);

}  // namespace advectio
