// A session without journal and server: it keeps what is captured in memory and, when the file is to be read, writes it
// anew with the real library. With it the interposer can be tested alone, end to end, under real programs.
//
// ADVECTIO_RUN        must be set (to anything), as for the real session
// ADVECTIO_TEST_LOG   a file that gets one line per call: what the interposer asked of the session
// ADVECTIO_TEST_FAIL  "sync" or "close": that call of every dataset fails as on a full disk;  "put": puts fail, no
// server ADVECTIO_TEST_SKIP  paths that contain this are not wanted
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "capture/dataset.h"
#include "capture/netcdf/real_library.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void log(const std::string& line) {
  // Never destroyed: the last line is written by the library's own destructor.
  static const auto& path = *new std::string(environment("ADVECTIO_TEST_LOG"));
  if (path.empty()) return;
  if (FILE* f = std::fopen(path.c_str(), "a"); f != nullptr) {
    std::fprintf(f, "%s\n", line.c_str());
    std::fclose(f);
  }
}

bool fails(const char* what) {
  return environment("ADVECTIO_TEST_FAIL") == what;
}

struct Put {
  std::uint32_t variable;
  Box box;
  std::vector<std::uint64_t> stride;
  Bytes data;
  std::vector<String> strings;
};

class ReplayedDataset final : public CapturedDataset {
 public:
  ReplayedDataset(const netcdf::RealLibrary& lib, std::string path, std::string link, FileFormat format)
      : lib_(lib), path_(std::move(path)), link_(std::move(link)) {
    schema_.format = format;
  }
  ~ReplayedDataset() override { unlink(link_.c_str()); }

  Result<void> schema(const Schema& schema) override {
    // What really travels must come back the same.
    auto decoded = decode_schema(encode(schema));
    if (!decoded.ok()) return std::move(decoded).error();
    if (*decoded != schema) return Error{Code::bug, "schema changed on its way"};
    ++schemas_;
    schema_ = schema;
    handed_out_.emplace_back(puts_.size(), schema);
    return {};
  }

  Result<void> put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                   const Memory& memory, std::size_t element) override {
    if (fails("put")) return Error{Code::gone, "no server"};
    if (size_of(schema_.variables.at(variable).type) != element) return Error{Code::bug, "wrong size of element"};
    Put p{variable, box, stride, Bytes(box.volume() * element), {}};
    std::vector<std::ptrdiff_t> step(memory.step);
    if (step.empty()) {
      step.resize(box.rank());
      auto distance = static_cast<std::ptrdiff_t>(element);
      for (std::size_t i = box.rank(); i-- > 0;) {
        step[i] = distance;
        distance *= static_cast<std::ptrdiff_t>(box.count[i]);
      }
    }
    for (std::uint64_t n = 0; n < box.volume(); ++n) {
      std::uint64_t rest = n;
      std::ptrdiff_t at = 0;
      for (std::size_t i = box.rank(); i-- > 0;) {
        at += static_cast<std::ptrdiff_t>(rest % box.count[i]) * step[i];
        rest /= box.count[i];
      }
      std::memcpy(p.data.data() + n * element, static_cast<const std::byte*>(memory.data) + at, element);
    }
    bytes_ += p.data.size();
    puts_.push_back(std::move(p));
    return {};
  }

  Result<void> put_strings(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                           const char* const* strings) override {
    Put p{variable, box, stride, {}, {}};
    for (std::uint64_t n = 0; n < box.volume(); ++n)
      p.strings.push_back(strings[n] != nullptr ? String(strings[n]) : std::nullopt);
    puts_.push_back(std::move(p));
    return {};
  }

  Result<void> sync() override {
    ++syncs_;
    if (fails("sync")) return Error{Code::full, "disk full", ENOSPC};
    return {};
  }

  Result<void> close() override {
    if (fails("close")) return Error{Code::full, "disk full", ENOSPC};
    ADVECTIO_TRY(write());
    end("closed");
    return {};
  }

  Result<void> abort() override {
    unlink(link_.c_str());
    if (syncs_ == 0) unlink(path_.c_str());
    end("aborted");
    return {};
  }

  Result<void> wait_visible() override {
    ++waits_;
    return write();
  }

  Result<void> hand_over() override {
    ADVECTIO_TRY(write());
    unlink(link_.c_str());
    end("handed over");
    return {};
  }

  [[nodiscard]] const std::string& file_path() const noexcept override { return link_; }
  void add_stall(std::uint64_t nanoseconds) noexcept override { stall_ += nanoseconds; }

 private:
  void end(const char* how) {
    log(std::string(how) + " " + path_ + " schemas=" + std::to_string(schemas_) + " puts=" +
        std::to_string(puts_.size()) + " bytes=" + std::to_string(bytes_) + " syncs=" + std::to_string(syncs_) +
        " waits=" + std::to_string(waits_) + " stalled=" + (stall_ > 0 ? "yes" : "no"));
  }

  /// The whole file, from the start: the same inode, whatever it is called now.
  Result<void> write() {
    const netcdf::Entry entry(lib_);
    int mode = NC_CLOBBER, ncid = -1;
    if (is_hdf5(schema_.format)) mode |= NC_NETCDF4;
    if (schema_.format == FileFormat::netcdf4_classic) mode |= NC_CLASSIC_MODEL;
    if (schema_.format == FileFormat::offset64) mode |= NC_64BIT_OFFSET;
    if (schema_.format == FileFormat::cdf5) mode |= NC_64BIT_DATA;
    const int created = lib_.nc_create(link_.c_str(), mode, &ncid);
    if (created != NC_NOERR) return Error{Code::io, "create " + link_ + ": " + std::to_string(created)};
    int code = is_hdf5(schema_.format) ? write_hdf5(ncid) : write_classic(ncid);
    const int closed = lib_.nc_close(ncid);
    if (code == NC_NOERR) code = closed;
    if (code == NC_NOERR) return {};
    std::fprintf(stderr, "replay of %s fails: %d\n", path_.c_str(), code);
    return Error{Code::io, "replay " + path_ + ": " + std::to_string(code)};
  }

  int write_hdf5(int ncid) const {
    int code = netcdf::define(lib_, ncid, schema_);
    if (code == NC_NOERR) code = lib_.nc_enddef(ncid);
    for (const auto& p : puts_)
      if (code == NC_NOERR) code = write(ncid, p);
    return code;
  }

  /// Step by step: what fills depends on when it was told.
  int write_classic(int ncid) const {
    const Schema nothing;
    const Schema* is = &nothing;
    std::size_t next = 0;
    int code = NC_NOERR;
    for (std::size_t i = 0; i <= puts_.size() && code == NC_NOERR; ++i) {
      // Only what a block or the end follows is made.
      const Schema* to = is;
      for (; next < handed_out_.size() && handed_out_[next].first <= i; ++next) to = &handed_out_[next].second;
      if (to != is) code = change(ncid, *is, *to);
      is = to;
      if (code == NC_NOERR && i < puts_.size()) code = write(ncid, puts_[i]);
    }
    if (handed_out_.empty() && code == NC_NOERR) code = lib_.nc_enddef(ncid);
    return code;
  }

  int change(int ncid, const Schema& is, const Schema& to) const {
    const bool first = &is != &to && is.variables.empty() && is.dimensions.empty() && is.attributes.empty();
    int code = first ? NC_NOERR : lib_.nc_redef(ncid);
    if (code == NC_EINDEFINE) code = NC_NOERR;
    const auto run = [&](auto&& call) {
      if (code == NC_NOERR) code = call();
    };
    for (const bool last : {false, true}) {
      for (std::size_t d = 0; d < is.dimensions.size(); ++d)
        if (is.dimensions[d].name != to.dimensions[d].name)
          run([&] {
            return lib_.nc_rename_dim(ncid, static_cast<int>(d),
                                      last ? to.dimensions[d].name.c_str() : ("_d" + std::to_string(d)).c_str());
          });
      for (std::size_t v = 0; v < is.variables.size(); ++v)
        if (is.variables[v].name != to.variables[v].name)
          run([&] {
            return lib_.nc_rename_var(ncid, static_cast<int>(v),
                                      last ? to.variables[v].name.c_str() : ("_v" + std::to_string(v)).c_str());
          });
    }
    const auto attributes = [&](int id, const std::vector<Attribute>& old, const std::vector<Attribute>& wanted) {
      for (const auto& a : old)
        if (std::none_of(wanted.begin(), wanted.end(), [&](const Attribute& b) { return a.name == b.name; }))
          run([&] { return lib_.nc_del_att(ncid, id, a.name.c_str()); });
      for (const auto& a : wanted)
        if (std::find(old.begin(), old.end(), a) == old.end())
          run([&] {
            return lib_.nc_put_att(ncid, id, a.name.c_str(), static_cast<nc_type>(a.type), a.count, a.values.data());
          });
    };
    attributes(NC_GLOBAL, is.attributes, to.attributes);
    for (std::size_t v = 0; v < is.variables.size(); ++v) {
      attributes(static_cast<int>(v), is.variables[v].attributes, to.variables[v].attributes);
      if (is.variables[v].no_fill != to.variables[v].no_fill)
        run([&] {
          return lib_.nc_def_var_fill(ncid, static_cast<int>(v), to.variables[v].no_fill ? NC_NOFILL : NC_FILL,
                                      nullptr);
        });
    }
    run([&] {
      return netcdf::define(lib_, ncid, to, {is.dimensions.size(), is.variables.size()},
                            {to.dimensions.size(), to.variables.size()});
    });
    run([&] {
      return to.data_align != 0 ? lib_.nc__enddef(ncid, to.header_pad, to.data_align, to.data_pad, to.record_align)
                                : lib_.nc_enddef(ncid);
    });
    return code;
  }

  int write(int ncid, const Put& p) const {
    const std::vector<std::size_t> start(p.box.start.begin(), p.box.start.end());
    const std::vector<std::size_t> count(p.box.count.begin(), p.box.count.end());
    const std::vector<std::ptrdiff_t> stride(p.stride.begin(), p.stride.end());
    const auto* steps = stride.empty() ? nullptr : stride.data();
    const int variable = static_cast<int>(p.variable);
    if (p.strings.empty()) return lib_.nc_put_vars(ncid, variable, start.data(), count.data(), steps, p.data.data());
    std::vector<const char*> strings;
    for (const auto& s : p.strings) strings.push_back(s ? s->c_str() : nullptr);
    return lib_.nc_put_vars_string(ncid, variable, start.data(), count.data(), steps, strings.data());
  }

  const netcdf::RealLibrary& lib_;
  std::string path_, link_;
  Schema schema_;
  std::vector<Put> puts_;
  std::vector<std::pair<std::size_t, Schema>> handed_out_;  ///< each with the number of blocks before it
  std::uint64_t schemas_ = 0, bytes_ = 0, syncs_ = 0, waits_ = 0, stall_ = 0;
};

class ReplayingSession final : public Session {
 public:
  bool wants(const std::string& path) override {
    const auto skip = environment("ADVECTIO_TEST_SKIP");
    return skip.empty() || path.find(skip) == std::string::npos;
  }

  Result<std::unique_ptr<CapturedDataset>> create(const CreateRequest& request) override {
    const auto path = std::filesystem::absolute(request.path);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | (request.no_clobber ? O_EXCL : O_TRUNC), 0666);
    if (fd < 0) return system_error("create " + path.string(), errno);
    ::close(fd);
    static std::atomic<int> count{0};
    const auto link = path.parent_path() / ("." + path.filename().string() + ".advectio-" + std::to_string(getpid()) +
                                            "-" + std::to_string(count++));
    unlink(link.c_str());  // of a process that had our number and died
    if (::link(path.c_str(), link.c_str()) != 0) return system_error("link " + link.string(), errno);
    log("created " + path.string());
    return std::unique_ptr<CapturedDataset>(
        std::make_unique<ReplayedDataset>(*netcdf::Entry::current(), path.string(), link.string(), request.format));
  }

  Result<std::unique_ptr<SharedDataset>> create_shared(const CreateRequest&, std::uint32_t, Invitation&) override {
    return Error{Code::unsupported, "this session is of one process", 0};
  }
  Result<std::unique_ptr<SharedDataset>> join(const Invitation&, std::uint32_t) override {
    return Error{Code::unsupported, "this session is of one process", 0};
  }

  Result<void> wait_for_file(const std::string& path, bool for_writing) override {
    log("waited for " + path + (for_writing ? " to write" : " to read"));
    return {};
  }

  Result<void> wait_for_plain_use(const std::string&, Until) override { return {}; }

  [[nodiscard]] const std::string& directory() const noexcept override { return nowhere_; }

  void finish() noexcept override { log("finished"); }

  void say_once(const std::string& text) noexcept override {
    const std::lock_guard lock(mutex_);
    if (said_.insert(text).second) std::fprintf(stderr, "advectio: %s\n", text.c_str());
  }

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
  std::string nowhere_ = std::filesystem::temp_directory_path();
};

}  // namespace

std::string stage_directory_of_process() {
  return {};
}

Session* Session::current() {
  static auto* session = new ReplayingSession;
  if (std::getenv("ADVECTIO_RUN") != nullptr) return session;
  session->say_once("no run: the netCDF library writes by itself");
  return nullptr;
}

}  // namespace advectio
