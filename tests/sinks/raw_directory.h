// The example of docs/sinks/writing-a-sink.md: a directory of plain arrays. It only appends.
//
//   PATH/000003.json    commit 3: its frame, and where the values of each part lie. Once this name is there,
//                       the commit has happened.
//   PATH/000003.1.raw   what commit 3 holds of variable 1: the values of one part after the other
//   PATH/000003.schema  the schema (core/schema.h), where it has changed since the commit before
//
// A reader takes the commits in their order; of parts that overlap the later one counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/files.h"
#include "sinks/netcdf_reference.h"
#include "sinks/sink.h"

namespace advectio::testing {

Abilities raw_directory_abilities();

/// The directory at `path` must exist. With `resume` it is taken up behind its last commit; else it is emptied.
Result<std::unique_ptr<Sink>> open_raw_directory(Files& files, const std::string& path, bool resume);

/// What an ordinary reader finds: the schema, and the parts in their order.
struct RawContents {
  Schema schema;
  std::vector<OwnedBlock> parts;
};
RawContents read_raw_directory(const std::string& path);

}  // namespace advectio::testing
