// Zarr stores, version 3, sharded. What is promised, and what is not: docs/sinks/zarr.md.
//
//   STORE/zarr.json          the root, with the metadata of all arrays; its rename is what readers
//                            see of a commit
//   STORE/VARIABLE/zarr.json the array's own metadata, for readers that do not look at the root. Its
//                            shape is brought up to date at the end, and where the schema changes
//   STORE/VARIABLE/c.0.0     a shard (shards.h)
//   STORE/.advectio          somebody writes the store, or has died over it: the dataset that it is of
//   STORE/.advectio-redo     what a commit has decided to do and has not done yet (redo.h)
//
// A commit:
//   1. chunks are appended to shards; new shards, new arrays and new metadata are written under
//      other names
//   2. the redo file gets its name: from here on the commit happens
//   3. new files get their names, shards that were there get their new index, and the root is
//      renamed
//   4. the redo file goes
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/executor.h"
#include "core/helpers.h"
#include "core/result.h"
#include "platform/files.h"
#include "sinks/chunks/chunk_assembly.h"
#include "sinks/chunks/codec.h"
#include "sinks/sink.h"

namespace advectio {

struct ZarrOptions {
  DeflateMaker deflate = DeflateMaker::isal;
  /// Instead of the level that the schema's filters ask for, on the codec's own scale (ISA-L 0 …
  /// 3). The metadata keep saying what was asked.
  std::optional<int> level;
  /// Chunks being made or waiting to be written may take this much; one chunk always may.
  std::uint64_t memory_max = std::uint64_t{512} << 20;
  /// The same, shared by several sinks; memory_max is not looked at then.
  std::shared_ptr<MemoryBudget> memory;
  /// Who compresses chunks where this process' threads have too many; null: nobody. Outlives the
  /// sink.
  Helpers* helpers = nullptr;
  /// Called on any thread where there may be something for `advance`; empty: `ready` waits for memory.
  std::function<void()> wake;
  /// From its first commit on the store can be brought to a commit after a loss of power, too,
  /// whatever part of it has reached the disk. Commits then wait for the disk. Without, a loss of
  /// power leaves what was made durable; of frames committed after that, readers may find damaged
  /// chunks.
  bool ordered = false;
  /// Which dataset the store is of: the name of its file, a slash, and what tells it from others of
  /// that name. With `resume`, the store of another dataset is begun anew: a directory keeps its name
  /// from run to run. The store of a file with another name is refused. Empty: whatever is there is
  /// taken up.
  std::string owner;
};

/// What the sink can do, known before there is a store.
Abilities zarr_abilities();

/// The directory at `path` is made where it is missing. With `resume` it is taken up where its last
/// commit left it (where there was none: from the beginning); without, it is emptied. Errors:
/// Code::exists where the directory is to be emptied and holds other things than a Zarr store, or
/// the store of a file with another name.
Result<std::unique_ptr<Sink>> open_zarr(Files& files, const std::string& path, const ZarrOptions& options,
                                        Executor& executor, bool resume);

}  // namespace advectio
