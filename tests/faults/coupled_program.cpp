// A program of a workflow that knows nothing of Advectio: it does what its arguments say, step by step. Each value in
// its files is a function of the file's name, version, frame and place, so whoever reads knows a wrong, a torn and an
// old one.
//
//   coupled_program [--io netcdf|pnetcdf|parallel] [--format NETCDF4|NETCDF3_…] [--tag N] [--cells N] [--frames N]
//                   [--over FILE] STEP…
//
//   create FILE VERSION PAUSE_MS     all frames, synced one by one
//   overwrite FILE OLD NEW PAUSE_MS  opens it for writing, wants version OLD, makes it version NEW, frame by frame
//   read FILE VERSION                wants that version, whole; 0: any
//   watch FILE VERSION PAUSE_MS      reads again and again, until that version is there, whole; or until the
//                                    file of --over is there, and the version then is not
//   sees FILE                        by fopen: begins as a netCDF file does
//   remove FILE
//   sleep MS
//
// In FILE, {rank} is the rank. With pnetcdf and parallel all ranks have each file together, and each a part of it.
// What it does it says to stdout, a line each: begun, synced, closed, read. Exit codes: 3, a library's or the system's
// error; 4, wrong values; 5, what was watched for never came.
#include <netcdf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#if defined WITH_PNETCDF || defined WITH_PARALLEL
#include <mpi.h>
#endif
#ifdef WITH_PNETCDF
#include <pnetcdf.h>
#endif
#ifdef WITH_PARALLEL
#include <netcdf_par.h>
#endif

namespace {

struct Options {
  std::string io = "netcdf", format = "NETCDF4", over;
  std::uint64_t tag = 0;
  std::size_t cells = 100, frames = 3;
} options;

int rank = 0, ranks = 1;  // of those that have a file together
bool together = false;

[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
#if defined WITH_PNETCDF || defined WITH_PARALLEL
  if (together) MPI_Abort(MPI_COMM_WORLD, code);
#endif
  std::_Exit(code);
}

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  std::fprintf(stderr, "coupled_program: %s: %s\n", what.c_str(), why.c_str());
  leave(3);
}

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "coupled_program: WRONG: %s\n", what.c_str());
  leave(4);
}

/// What rank 0 says holds for all: neither a sync nor a close waits for the other ranks.
void all_are_here() {
#if defined WITH_PNETCDF || defined WITH_PARALLEL
  if (together) MPI_Barrier(MPI_COMM_WORLD);
#endif
}

void say(const std::string& text) {
  if (together && rank > 0) return;
  const auto line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) leave(3);
}

void pause_ms(long ms) {
  if (ms > 0) ::usleep(static_cast<useconds_t>(ms) * 1000);
}

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Every double that this gives is a whole number below 2^53.
std::vector<double> values_of(const std::string& file, int version, std::size_t frame, std::size_t first,
                              std::size_t count) {
  std::uint64_t seed = options.tag;
  for (const char c : file.substr(file.rfind('/') + 1)) seed = mixed(seed ^ static_cast<unsigned char>(c));
  seed = mixed(mixed(seed ^ static_cast<std::uint64_t>(version)) ^ frame);
  std::vector<double> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<double>(mixed(seed ^ (first + i)) >> 11);
  return out;
}

/// This rank's part of the cells.
struct Part {
  std::size_t first = options.cells * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
  std::size_t count = options.cells * (static_cast<std::size_t>(rank) + 1) / static_cast<std::size_t>(ranks) - first;
};

int format_flags() {
  if (options.format == "NETCDF4") return NC_NETCDF4;
  if (options.format == "NETCDF4_CLASSIC") return NC_NETCDF4 | NC_CLASSIC_MODEL;
  if (options.format == "NETCDF3_64BIT_OFFSET") return NC_64BIT_OFFSET;
  if (options.format == "NETCDF3_64BIT_DATA") return NC_64BIT_DATA;
  return 0;
}

/// A file with `version(time)` and `T(time, x)`. The same by each library.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  virtual ~File() = default;
  virtual void create() = 0;
  virtual void open(bool writing) = 0;
  virtual std::size_t frames() = 0;
  virtual void put(std::size_t frame, int version) = 0;
  virtual int get(std::size_t frame, std::vector<double>& values) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;

 protected:
  const std::string path_;
  int id_ = -1, version_ = -1, field_ = -1;
};

class Netcdf : public File {
 public:
  using File::File;
  void create() override {
    check(create_it(), "create");
    int time = 0, x = 0;
    check(nc_def_dim(id_, "time", NC_UNLIMITED, &time), "define");
    check(nc_def_dim(id_, "x", options.cells, &x), "define");
    const int dimensions[] = {time, x};
    check(nc_def_var(id_, "version", NC_INT, 1, dimensions, &version_), "define");
    check(nc_def_var(id_, "T", NC_DOUBLE, 2, dimensions, &field_), "define");
    check(nc_enddef(id_), "define");
    access();
  }
  void open(bool writing) override {
    check(open_it(writing), "open");
    check(nc_inq_varid(id_, "version", &version_), "find version");
    check(nc_inq_varid(id_, "T", &field_), "find T");
    access();
  }
  std::size_t frames() override {
    std::size_t length = 0;
    int time = 0;
    check(nc_inq_dimid(id_, "time", &time), "find time");
    check(nc_inq_dimlen(id_, time, &length), "find time");
    return length;
  }
  void put(std::size_t frame, int version) override {
    const Part part;
    const std::size_t start[] = {frame, part.first}, count[] = {1, part.count};
    check(nc_put_vara_int(id_, version_, start, count, &version), "put version");
    check(
        nc_put_vara_double(id_, field_, start, count, values_of(path_, version, frame, part.first, part.count).data()),
        "put T");
  }
  int get(std::size_t frame, std::vector<double>& values) override {
    const Part part;
    const std::size_t start[] = {frame, part.first}, count[] = {1, part.count};
    int version = 0;
    values.resize(part.count);
    check(nc_get_vara_int(id_, version_, start, count, &version), "get version");
    check(nc_get_vara_double(id_, field_, start, count, values.data()), "get T");
    return version;
  }
  void sync() override { check(nc_sync(id_), "sync"); }
  void close() override { check(nc_close(id_), "close"); }

 protected:
  virtual int create_it() { return nc_create(path_.c_str(), NC_CLOBBER | format_flags(), &id_); }
  virtual int open_it(bool writing) { return nc_open(path_.c_str(), writing ? NC_WRITE : NC_NOWRITE, &id_); }
  virtual void access() {}
  void check(int code, const char* what) const {
    if (code != NC_NOERR) fail(std::string(what) + ' ' + path_, nc_strerror(code));
  }
};

#ifdef WITH_PARALLEL
class Parallel : public Netcdf {
 public:
  using Netcdf::Netcdf;

 protected:
  int create_it() override {
    return nc_create_par(path_.c_str(), NC_CLOBBER | format_flags(), MPI_COMM_WORLD, MPI_INFO_NULL, &id_);
  }
  int open_it(bool writing) override {
    return nc_open_par(path_.c_str(), writing ? NC_WRITE : NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &id_);
  }
  void access() override {
    check(nc_var_par_access(id_, version_, NC_COLLECTIVE), "access");
    check(nc_var_par_access(id_, field_, NC_COLLECTIVE), "access");
  }
};
#endif

#ifdef WITH_PNETCDF
class Pnetcdf : public File {
 public:
  using File::File;
  void create() override {
    check(ncmpi_create(MPI_COMM_WORLD, path_.c_str(), NC_CLOBBER | (format_flags() & ~NC_NETCDF4), MPI_INFO_NULL, &id_),
          "create");
    int dimensions[] = {0, 0};
    check(ncmpi_def_dim(id_, "time", NC_UNLIMITED, &dimensions[0]), "define");
    check(ncmpi_def_dim(id_, "x", static_cast<MPI_Offset>(options.cells), &dimensions[1]), "define");
    check(ncmpi_def_var(id_, "version", NC_INT, 1, dimensions, &version_), "define");
    check(ncmpi_def_var(id_, "T", NC_DOUBLE, 2, dimensions, &field_), "define");
    check(ncmpi_enddef(id_), "define");
  }
  void open(bool writing) override {
    check(ncmpi_open(MPI_COMM_WORLD, path_.c_str(), writing ? NC_WRITE : NC_NOWRITE, MPI_INFO_NULL, &id_), "open");
    check(ncmpi_inq_varid(id_, "version", &version_), "find version");
    check(ncmpi_inq_varid(id_, "T", &field_), "find T");
  }
  std::size_t frames() override {
    MPI_Offset length = 0;
    int time = 0;
    check(ncmpi_inq_dimid(id_, "time", &time), "find time");
    check(ncmpi_inq_dimlen(id_, time, &length), "find time");
    return static_cast<std::size_t>(length);
  }
  void put(std::size_t frame, int version) override {
    const Box box(frame);
    check(ncmpi_put_vara_int_all(id_, version_, box.start, box.count, &version), "put version");
    const auto values = values_of(path_, version, frame, box.part.first, box.part.count);
    check(ncmpi_put_vara_double_all(id_, field_, box.start, box.count, values.data()), "put T");
  }
  int get(std::size_t frame, std::vector<double>& values) override {
    const Box box(frame);
    int version = 0;
    values.resize(box.part.count);
    check(ncmpi_get_vara_int_all(id_, version_, box.start, box.count, &version), "get version");
    check(ncmpi_get_vara_double_all(id_, field_, box.start, box.count, values.data()), "get T");
    return version;
  }
  void sync() override { check(ncmpi_sync(id_), "sync"); }
  void close() override { check(ncmpi_close(id_), "close"); }

 private:
  struct Box {
    Part part;
    MPI_Offset start[2], count[2];
    explicit Box(std::size_t frame)
        : start{static_cast<MPI_Offset>(frame), static_cast<MPI_Offset>(part.first)},
          count{1, static_cast<MPI_Offset>(part.count)} {}
  };
  void check(int code, const char* what) const {
    if (code != NC_NOERR) fail(std::string(what) + ' ' + path_, ncmpi_strerror(code));
  }
};
#endif

std::unique_ptr<File> file_of(const std::string& path) {
#ifdef WITH_PNETCDF
  if (options.io == "pnetcdf") return std::make_unique<Pnetcdf>(path);
#endif
#ifdef WITH_PARALLEL
  if (options.io == "parallel") return std::make_unique<Parallel>(path);
#endif
  return std::make_unique<Netcdf>(path);
}

struct Found {
  int version = 0;
  std::size_t frames = 0;
};

/// All of an open file, and whether it is of one version.
Found look_at(const std::string& path, File& file) {
  Found found{0, file.frames()};
  for (std::size_t frame = 0; frame < found.frames; ++frame) {
    std::vector<double> values;
    const int version = file.get(frame, values);
    const auto where = path + ", frame " + std::to_string(frame);
    if (frame == 0) found.version = version;
    if (version != found.version)
      wrong(where + ": of version " + std::to_string(version) + " in version " + std::to_string(found.version));
    const Part part;
    const auto wanted = values_of(path, version, frame, part.first, part.count);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (std::memcmp(&values[i], &wanted[i], sizeof(double)) != 0)
        wrong(where + " of version " + std::to_string(version) + ", cell " + std::to_string(part.first + i) + ": " +
              std::to_string(values[i]) + " in place of " + std::to_string(wanted[i]));
  }
  return found;
}

Found read(const std::string& path) {
  const auto file = file_of(path);
  file->open(false);
  const auto found = look_at(path, *file);
  file->close();
  say("read " + path + ' ' + std::to_string(found.version) + ' ' + std::to_string(found.frames));
  return found;
}

void write_frames(const std::string& path, File& file, int version, long pause) {
  for (std::size_t frame = 0; frame < options.frames; ++frame) {
    file.put(frame, version);
    file.sync();
    all_are_here();
    say("synced " + path + ' ' + std::to_string(version) + ' ' + std::to_string(frame + 1));
    pause_ms(pause);
  }
  file.close();
  all_are_here();
  say("closed " + path + ' ' + std::to_string(version));
}

void create(const std::string& path, int version, long pause) {
  const auto file = file_of(path);
  file->create();
  say("begun " + path + ' ' + std::to_string(version));
  write_frames(path, *file, version, pause);
}

void want(const std::string& path, const Found& found, int version) {
  if (version > 0 && (found.version != version || found.frames != options.frames))
    wrong(path + ": version " + std::to_string(found.version) + " with " + std::to_string(found.frames) +
          " frames in place of version " + std::to_string(version));
}

void overwrite(const std::string& path, int old, int next, long pause) {
  const auto file = file_of(path);
  file->open(true);
  want(path, look_at(path, *file), old);
  say("begun " + path + ' ' + std::to_string(next));
  write_frames(path, *file, next, pause);
}

void watch(const std::string& path, int version, long pause) {
  for (Found last;;) {
    const bool over = !options.over.empty() && ::access(options.over.c_str(), F_OK) == 0;
    const auto found = read(path);
    if (found.frames > 0) {
      if (found.version < last.version || (found.version == last.version && found.frames < last.frames))
        wrong(path + ": version " + std::to_string(found.version) + " with " + std::to_string(found.frames) +
              " frames after version " + std::to_string(last.version) + " with " + std::to_string(last.frames));
      if (found.version >= version && found.frames == options.frames) return;
      last = found;
    }
    if (over) {
      std::fprintf(stderr, "coupled_program: version %d of %s never came\n", version, path.c_str());
      leave(5);
    }
    pause_ms(pause);
  }
}

void see(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) fail("fopen " + path, std::strerror(errno));
  char head[4] = {};
  if (std::fread(head, 1, 4, file) != 4 || (std::memcmp(head, "CDF", 3) != 0 && std::memcmp(head, "\x89HDF", 4) != 0))
    wrong(path + " does not begin as a netCDF file");
  std::fclose(file);
}

void step(const std::vector<std::string>& words) {
  const auto number = [&words](std::size_t k) { return std::atoi(words.at(k).c_str()); };
  auto path = words.at(1);
  if (const auto at = path.find("{rank}"); at != std::string::npos) {
    const char* mine = std::getenv("OMPI_COMM_WORLD_RANK");
    path.replace(at, 6, mine != nullptr ? mine : "0");
  }
  if (words[0] == "create") create(path, number(2), number(3));
  if (words[0] == "overwrite") overwrite(path, number(2), number(3), number(4));
  if (words[0] == "read") want(path, read(path), number(2));
  if (words[0] == "watch") watch(path, number(2), number(3));
  if (words[0] == "sees") see(path);
  if (words[0] == "remove" && std::remove(path.c_str()) != 0) fail("remove " + path, std::strerror(errno));
  if (words[0] == "sleep") pause_ms(number(1));
}

std::size_t words_of(const std::string& name) {
  if (name == "overwrite") return 5;
  if (name == "create" || name == "watch") return 4;
  if (name == "read") return 3;
  return name == "sees" || name == "remove" || name == "sleep" ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::size_t at = 0;
  for (; at + 1 < words.size() && words[at].starts_with("--"); at += 2) {
    const auto& value = words[at + 1];
    if (words[at] == "--io") options.io = value;
    if (words[at] == "--over") options.over = value;
    if (words[at] == "--format") options.format = value;
    if (words[at] == "--tag") options.tag = std::strtoull(value.c_str(), nullptr, 10);
    if (words[at] == "--cells") options.cells = std::strtoull(value.c_str(), nullptr, 10);
    if (words[at] == "--frames") options.frames = std::strtoull(value.c_str(), nullptr, 10);
  }
  together = options.io != "netcdf";
#if defined WITH_PNETCDF || defined WITH_PARALLEL
  if (together) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  }
#endif
  while (at < words.size()) {
    const auto count = words_of(words[at]);
    if (count == 0 || at + count > words.size()) fail("argument " + words[at], "no such step, or its end is missing");
    step({words.begin() + static_cast<std::ptrdiff_t>(at), words.begin() + static_cast<std::ptrdiff_t>(at + count)});
    at += count;
  }
#if defined WITH_PNETCDF || defined WITH_PARALLEL
  if (together) MPI_Finalize();
#endif
  return 0;
}
