#include "platform/faulty_files.h"

#include <algorithm>
#include <cerrno>

namespace advectio {

namespace {

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> real, std::shared_ptr<Faults> faults)
      : real_(std::move(real)), faults_(std::move(faults)) {}

  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    if (!struck()) return real_->write(offset, data);
    if (faults_->note) faults_->note("write");
    ++faults_->writes;
    if (faults_->writes_until == 0) return system_error("write to " + path(), faults_->write_errno);
    if (faults_->writes_until != Faults::never) --faults_->writes_until;
    const auto fits = std::min<std::uint64_t>(data.size(), faults_->space);
    if (faults_->space != Faults::never) faults_->space -= fits;
    ADVECTIO_TRY(real_->write(offset, data.first(fits)));
    if (fits < data.size()) return system_error("write " + std::to_string(data.size()) + " bytes to " + path(), ENOSPC);
    return {};
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> data) override {
    if (faults_->note && struck()) faults_->note("read");
    return real_->read(offset, data);
  }
  Result<std::uint64_t> size() override { return real_->size(); }
  Result<void> resize(std::uint64_t bytes) override { return real_->resize(bytes); }
  Result<void> reserve(std::uint64_t bytes) override {
    if (struck() && faults_->space != Faults::never) {
      if (bytes > faults_->space)
        return system_error("reserve " + std::to_string(bytes) + " bytes for " + path(), ENOSPC);
      faults_->space -= bytes;
    }
    return real_->reserve(bytes);
  }
  Result<void> sync() override {
    if (struck()) {
      if (faults_->syncs_until == 0) return system_error("fdatasync " + path(), EIO);
      if (faults_->syncs_until != Faults::never) --faults_->syncs_until;
    }
    return real_->sync();
  }
  [[nodiscard]] int descriptor() const noexcept override { return real_->descriptor(); }
  [[nodiscard]] const std::string& path() const noexcept override { return real_->path(); }

 private:
  [[nodiscard]] bool struck() const {
    return faults_->only.empty() || real_->path().find(faults_->only) != std::string::npos;
  }

  std::unique_ptr<File> real_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace

Result<std::unique_ptr<File>> FaultyFiles::open(const std::string& path, OpenMode mode, unsigned permissions) {
  if (faults_->opens_refused > 0 && path.find(faults_->only) != std::string::npos) {
    --faults_->opens_refused;
    return system_error("open " + path, EMFILE);
  }
  auto file = real_.open(path, mode, permissions);
  if (!file) return file;
  return std::unique_ptr<File>(std::make_unique<FaultyFile>(std::move(file).value(), faults_));
}
Result<Mapping> FaultyFiles::map(File& file, std::size_t bytes, bool writable) {
  return real_.map(file, bytes, writable);
}
Result<void> FaultyFiles::make_directory(const std::string& path, unsigned permissions) {
  return real_.make_directory(path, permissions);
}
Result<void> FaultyFiles::rename(const std::string& from, const std::string& to) {
  return real_.rename(from, to);
}
Result<void> FaultyFiles::link(const std::string& from, const std::string& to) {
  return real_.link(from, to);
}
Result<void> FaultyFiles::remove(const std::string& path) {
  if (faults_->keeps_names) return system_error("remove " + path, EROFS);
  return real_.remove(path);
}
bool FaultyFiles::exists(const std::string& path) {
  return real_.exists(path);
}
Result<std::vector<std::string>> FaultyFiles::list(const std::string& directory) {
  return real_.list(directory);
}
Result<std::uint64_t> FaultyFiles::free_bytes(const std::string& path) {
  return real_.free_bytes(path);
}

}  // namespace advectio
