#include "sources/grib/library.h"

#include <array>
#include <limits>
#include <utility>

namespace advectio::grib {
namespace {

constexpr std::array system_names = {"libeccodes.so.0", "libeccodes.so"};
constexpr const char* file_name = "libeccodes.so";
// Of the wheels: libraries that eccodeslib needs lie in a wheel beside it.
constexpr const char* beside_wheel = "/../../eckitlib/lib64/";
constexpr int beside_wheel_max = 32;

/// What the library has said last, in place of printing it.
std::string& last_complaint() {
  static std::string text;
  return text;
}

void note_complaint(const ContextHandle*, int /*level*/, const char* text) {
  if (text != nullptr) last_complaint() = text;
}

/// The name of a library that was not found, out of the loader's "NAME: cannot open shared object file".
std::string missing_in(const std::string& why) {
  const auto end = why.find(": cannot open shared object file");
  return end == std::string::npos ? std::string() : why.substr(0, end);
}

bool open_wheel(const std::string& path, LoadedLibrary& library) {
  const auto directory = path.substr(0, path.rfind('/') + 1);
  for (int i = 0; i < beside_wheel_max; ++i) {
    if (library.open(path)) return true;
    const auto missing = missing_in(library.why());
    if (missing.empty() || missing.find('/') != std::string::npos ||
        !LoadedLibrary().open((directory.empty() ? "." : directory) + beside_wheel + missing))
      break;
  }
  return false;
}

Library load() {
  Library l;
  const auto given = library_named_in("ADVECTIO_ECCODES", file_name);
  if (given.empty() ? !l.file.open_first(system_names) : !open_wheel(given, l.file)) return l;
  const auto find = [&](auto& function, const char* name) { l.file.find(function, name); };
  find(l.context_get_default, "codes_context_get_default");
  find(l.context_set_logging_proc, "codes_context_set_logging_proc");
  find(l.handle_new_from_message, "codes_handle_new_from_message");
  find(l.handle_delete, "codes_handle_delete");
  find(l.get_long, "codes_get_long");
  find(l.get_double, "codes_get_double");
  find(l.get_string, "codes_get_string");
  find(l.get_size, "codes_get_size");
  find(l.get_long_array, "codes_get_long_array");
  find(l.get_double_array, "codes_get_double_array");
  find(l.get_data, "codes_grib_get_data");
  find(l.set_double, "codes_set_double");
  find(l.set_string, "codes_set_string");
  find(l.get_error_message, "codes_get_error_message");
  if (l.file.complete()) l.context_set_logging_proc(l.context_get_default(), note_complaint);
  return l;
}

Error failed(const Library& library, const std::string& what, Status status) {
  auto text = what + ": " + library.get_error_message(status);
  if (!last_complaint().empty()) text += " (" + std::exchange(last_complaint(), {}) + ")";
  return Error{Code::corrupt, std::move(text), 0};
}

}  // namespace

std::recursive_mutex& eccodes_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

Result<const Library*> library() {
  static const Library loaded = load();
  if (loaded.file.complete()) return &loaded;
  return Error{Code::unsupported,
               "GRIB is read by ecCodes, which is not found (" + loaded.file.why() +
                   "): pip install eccodeslib beside advectio, or install it for the system (Debian: apt-get install "
                   "libeccodes0), or name libeccodes.so in ADVECTIO_ECCODES",
               0};
}

void Message::Delete::operator()(MessageHandle* handle) const {
  if (const auto l = library()) (*l)->handle_delete(handle);
}

Result<Message> Message::decode(Bytes bytes) {
  const auto found = library();
  if (!found) return found.error();
  Message m;
  m.eccodes_ = *found;
  m.bytes_ = std::move(bytes);
  last_complaint().clear();
  m.handle_.reset(
      m.eccodes_->handle_new_from_message(m.eccodes_->context_get_default(), m.bytes_.data(), m.bytes_.size()));
  if (!m.handle_)
    return Error{Code::corrupt,
                 "ecCodes does not understand it" +
                     (last_complaint().empty() ? std::string() : ": " + std::exchange(last_complaint(), {})),
                 0};
  return m;
}

std::optional<long> Message::integer(const char* key) const {
  long value = 0;
  if (eccodes_->get_long(handle_.get(), key, &value) != 0) return std::nullopt;
  return value;
}

std::optional<double> Message::number(const char* key) const {
  double value = 0;
  if (eccodes_->get_double(handle_.get(), key, &value) != 0) return std::nullopt;
  return value;
}

std::string Message::text(const char* key) const {
  std::array<char, 1024> text{};
  std::size_t bytes = text.size();
  if (eccodes_->get_string(handle_.get(), key, text.data(), &bytes) != 0) return {};
  text.back() = '\0';
  return text.data();
}

std::vector<long> Message::integers(const char* key) const {
  std::size_t count = 0;
  if (eccodes_->get_size(handle_.get(), key, &count) != 0) return {};
  std::vector<long> out(count);
  if (count == 0 || eccodes_->get_long_array(handle_.get(), key, out.data(), &count) != 0) return {};
  out.resize(count);
  return out;
}

Result<std::vector<double>> Message::numbers(const char* key) const {
  std::size_t count = 0;
  last_complaint().clear();
  if (const auto status = eccodes_->get_size(handle_.get(), key, &count); status != 0)
    return failed(*eccodes_, key, status);
  std::vector<double> out(count);
  if (const auto status = eccodes_->get_double_array(handle_.get(), key, out.data(), &count); status != 0)
    return failed(*eccodes_, key, status);
  out.resize(count);
  return out;
}

Result<Message::Points> Message::points(std::size_t count) const {
  const auto unknown = std::numeric_limits<double>::quiet_NaN();
  Points out{std::vector<double>(count, unknown), std::vector<double>(count, unknown),
             std::vector<double>(count, unknown)};
  last_complaint().clear();
  std::size_t values = 0;
  if (eccodes_->get_size(handle_.get(), "values", &values) != 0 || values != count)
    return Error{Code::corrupt, "has not as many values as points", 0};
  if (const auto status =
          eccodes_->get_data(handle_.get(), out.latitudes.data(), out.longitudes.data(), out.values.data());
      status != 0)
    return failed(*eccodes_, "places of the points", status);
  return out;
}

bool Message::set(const char* key, double value) {
  return eccodes_->set_double(handle_.get(), key, value) == 0;
}

bool Message::set(const char* key, const std::string& text) {
  auto bytes = text.size();
  return eccodes_->set_string(handle_.get(), key, text.c_str(), &bytes) == 0;
}

}  // namespace advectio::grib
