// The contract of a source: a dataset that exists, read box by box. It is the counterpart of a sink
// (sinks/sink.h): what a source says of a dataset and reads of it, a sink can be given.
//
// Every source promises this, and the conformance suite (tests/sources/) checks it:
//  * `head` is the whole schema: names, types, attributes, and how the variables are stored.
//  * Any box within the variables reads the same values, however the dataset is stored. What nobody
//    has written is the fill value.
//  * Nothing of the dataset is changed. A dataset that is damaged is an error, never other values.
//  * One thread at a time calls a source. Who wants more takes several: source_readers.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/bytes.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// What a dataset is, without its values.
struct SourceHead {
  Schema schema;
  std::vector<std::uint64_t> lengths;  ///< of dimensions as they are now, unlimited ones too
};

class Source {
 public:
  virtual ~Source() = default;

  /// Errors: Code::unsupported for what our schemas cannot hold (groups, user-defined types); else
  /// the library's reason.
  [[nodiscard]] virtual Result<SourceHead> head() const = 0;

  /// The box of a variable of text or numbers: dense, row-major, in native byte order. `to` has room
  /// for it.
  virtual Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const = 0;

  /// The same of DataType::string, as a block has strings (core/block.h).
  [[nodiscard]] virtual Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const = 0;

  /// The chunks that make up the box, one after the other in `to`, as they are stored with the filters of `head`; in
  /// the order of their places, the last dimension fastest. The box begins at a chunk, and ends with one or with the
  /// variable. Empty where that cannot be had (not stored in chunks, one never written, no room): then there is `read`.
  virtual Result<std::vector<StoredChunk>> read_stored(std::uint32_t variable, const Box& box,
                                                       std::span<std::byte> to) const {
    static_cast<void>(variable), static_cast<void>(box), static_cast<void>(to);
    return std::vector<StoredChunk>();
  }
};

/// Opens what is at a path. Which kinds there are is the program's to say (apps/advectiod/open_source.h).
using OpenSource = std::function<Result<std::unique_ptr<Source>>(const std::string& path)>;

}  // namespace advectio
