// Memory for bytes that are made once and read once: chunks, messages.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace advectio {

/// Memory that is not cleared and does not shrink.
class Buffer {
 public:
  /// At least `bytes` of room; what was there is lost when it has to grow.
  void reserve(std::size_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity_ = bytes;
    }
  }
  [[nodiscard]] std::byte* data() noexcept { return data_.get(); }
  [[nodiscard]] const std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::span<const std::byte> first(std::size_t n) const noexcept { return {data_.get(), n}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0;
};

}  // namespace advectio
