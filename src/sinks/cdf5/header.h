// Where a classic file has its data, read from its own header.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "platform/files.h"

namespace advectio {

struct ClassicVariable {
  DataType type = DataType::none;
  bool has_records = false;
  std::vector<std::uint64_t> lengths;  ///< of its dimensions; 0 for the record dimension
  std::uint64_t begin = 0;             ///< bytes from the beginning of the file; of record 0 where it has records
  std::uint64_t bytes = 0;             ///< of the variable, or of its part of one record, with padding
};

struct ClassicLayout {
  unsigned version = 0;  ///< 1, 2 or 5
  std::uint64_t header_bytes = 0;
  std::uint64_t records = 0;       ///< as the header counts them
  std::uint64_t record_bytes = 0;  ///< from one record to the next
  unsigned record_variables = 0;
  std::vector<ClassicVariable> variables;

  /// Bytes of the number of records, which is at `count_at`.
  [[nodiscard]] std::size_t count_bytes() const noexcept { return version == 5 ? 8 : 4; }
  static constexpr std::uint64_t count_at = 4;
};

/// Errors: Code::corrupt where it is no whole header.
Result<ClassicLayout> read_classic_layout(File& file);

}  // namespace advectio
