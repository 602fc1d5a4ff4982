// Values of the program's type into the variable's type, exactly as the real library converts them.
#pragma once

#include <cstddef>
#include <vector>

#include "core/bytes.h"
#include "core/types.h"

namespace advectio::shadow {

/// Bytes of one element in memory, by its nc_type; 0 where there is no fixed size.
inline std::size_t memory_size(int type) noexcept {
  return is_known(static_cast<DataType>(type)) ? size_of(static_cast<DataType>(type)) : 0;
}

/// Converts where there is one right answer. False: there is none, or some value does not fit. The
/// values in `to` then mean nothing.
bool convert_exactly(const void* from, DataType memory, void* to, DataType type, std::size_t elements);

/// All other conversions are the real library's. It writes the values to a scratch variable and
/// reads them back. There is one scratch variable for each type and fill value. `Face` has
///   int make_scratch(int type, const Bytes& fill, int& id);
///   int through_scratch(int id, from, memory, to, type, elements, fill);
/// Codes are the library's; 0 is success.
template <typename Face>
class Converter {
 public:
  /// The most elements of one call.
  static constexpr std::size_t elements_max = 65536;

  /// `fill` is the variable's own fill value, or empty. Some builds put it in the place of values
  /// out of range. NC_ERANGE: some values do not fit; all are converted all the same.
  int convert(const void* from, int memory, void* to, int type, std::size_t elements, const Bytes& fill) {
    if (convert_exactly(from, static_cast<DataType>(memory), to, static_cast<DataType>(type), elements)) return 0;
    int id = -1;
    if (const int code = scratch_of(type, fill, id); code != 0) return code;
    return face().through_scratch(id, from, memory, to, type, elements, fill);
  }

 protected:
  struct Scratch {
    int type = 0;
    Bytes fill;
    int id = -1;
  };
  [[nodiscard]] const std::vector<Scratch>& scratches() const noexcept { return scratches_; }

 private:
  Face& face() noexcept { return static_cast<Face&>(*this); }
  int scratch_of(int type, const Bytes& fill, int& id) {
    for (const auto& s : scratches_) {
      if (s.type != type || s.fill != fill) continue;
      id = s.id;
      return 0;
    }
    const int code = face().make_scratch(type, fill, id);
    if (code == 0) scratches_.push_back({type, fill, id});
    return code;
  }

  std::vector<Scratch> scratches_;
};

}  // namespace advectio::shadow
