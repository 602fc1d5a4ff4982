#include "capture/netcdf/classic_begins.h"

#include <array>
#include <fstream>

namespace {

/// Walks through a header.
class Header {
 public:
  explicit Header(const std::string& path) : in_(path, std::ios::binary) {
    std::array<char, 4> magic{};
    in_.read(magic.data(), magic.size());
    if (magic[0] == 'C' && magic[1] == 'D' && magic[2] == 'F') version_ = magic[3];
  }
  [[nodiscard]] bool is_classic() const { return version_ > 0; }

  std::vector<std::uint64_t> begins() {
    number();  // of records
    for (auto n = list(); n > 0; --n) {
      skip_name();
      number();
    }
    skip_attributes();
    std::vector<std::uint64_t> all;
    for (auto n = list(); n > 0 && in_; --n) {
      skip_name();
      for (auto rank = number(); rank > 0; --rank) number();
      skip_attributes();
      integer(4);
      number();
      all.push_back(integer(version_ == 1 ? 4 : 8));
    }
    return all;
  }

 private:
  std::uint64_t integer(int bytes) {
    std::uint64_t value = 0;
    for (; bytes > 0; --bytes) value = value << 8U | static_cast<unsigned char>(in_.get());
    return in_ ? value : 0;
  }
  std::uint64_t number() { return integer(version_ == 5 ? 8 : 4); }
  std::uint64_t list() {
    integer(4);
    return number();
  }
  void skip(std::uint64_t bytes) { in_.seekg(static_cast<std::streamoff>((bytes + 3) / 4 * 4), std::ios::cur); }
  void skip_name() { skip(number()); }
  void skip_attributes() {
    static constexpr std::array<std::uint64_t, 12> sizes{0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
    for (auto n = list(); n > 0 && in_; --n) {
      skip_name();
      const auto type = integer(4);
      skip(number() * sizes.at(type));
    }
  }

  std::ifstream in_;
  int version_ = 0;
};

}  // namespace

std::vector<std::uint64_t> classic_begins(const std::string& path) {
  Header header(path);
  return header.is_classic() ? header.begins() : std::vector<std::uint64_t>();
}
