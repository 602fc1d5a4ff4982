#include "sources/adios2/bp_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "platform/files.h"
#include "sinks/adios2/committed_steps.h"

namespace advectio::adios2 {

/// What only a reader calls.
struct ReadFunctions {
  char** (*available_variables)(IoHandle*, std::size_t*) = nullptr;
  char** (*available_attributes)(IoHandle*, std::size_t*) = nullptr;
  VariableHandle* (*inquire_variable)(IoHandle*, const char*) = nullptr;
  AttributeHandle* (*inquire_attribute)(IoHandle*, const char*) = nullptr;
  Status (*steps)(std::size_t*, const EngineHandle*) = nullptr;
  Status (*variable_type)(Type*, const VariableHandle*) = nullptr;
  Status (*variable_shapeid)(int*, const VariableHandle*) = nullptr;
  Status (*variable_ndims)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*variable_shape)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*variable_steps)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*set_step_selection)(VariableHandle*, std::size_t, std::size_t) = nullptr;
  Status (*get)(EngineHandle*, VariableHandle*, void*, Mode) = nullptr;
  Status (*attribute_type)(Type*, const AttributeHandle*) = nullptr;
  Status (*attribute_is_value)(int*, const AttributeHandle*) = nullptr;
  Status (*attribute_size)(std::size_t*, const AttributeHandle*) = nullptr;
  Status (*attribute_data)(void*, std::size_t*, const AttributeHandle*) = nullptr;
};

namespace {

constexpr int local_array = 4;  // adios2_shapeid
constexpr std::chrono::seconds try_out_max(60);

Error corrupt(const std::string& what) {
  return Error{Code::corrupt, what, 0};
}

Error unsupported(const std::string& what) {
  return Error{Code::unsupported, what, 0};
}

Result<const ReadFunctions*> read_functions(const Library& library) {
  struct Found {
    LoadedLibrary file;
    ReadFunctions functions;
  };
  static const Found found = [&] {
    Found f;
    f.file = library.file;
    const auto find = [&](auto& function, const char* name) { f.file.find(function, name); };
    auto& r = f.functions;
    find(r.available_variables, "adios2_available_variables");
    find(r.available_attributes, "adios2_available_attributes");
    find(r.inquire_variable, "adios2_inquire_variable");
    find(r.inquire_attribute, "adios2_inquire_attribute");
    find(r.steps, "adios2_steps");
    find(r.variable_type, "adios2_variable_type");
    find(r.variable_shapeid, "adios2_variable_shapeid");
    find(r.variable_ndims, "adios2_variable_ndims");
    find(r.variable_shape, "adios2_variable_shape");
    find(r.variable_steps, "adios2_variable_steps");
    find(r.set_step_selection, "adios2_set_step_selection");
    find(r.get, "adios2_get");
    find(r.attribute_type, "adios2_attribute_type");
    find(r.attribute_is_value, "adios2_attribute_is_value");
    find(r.attribute_size, "adios2_attribute_size");
    find(r.attribute_data, "adios2_attribute_data");
    return f;
  }();
  if (found.file.complete()) return &found.functions;
  return unsupported("this ADIOS2 cannot be read with: " + found.file.why());
}

/// DataType::none: netCDF has none for it.
DataType type_of(Type type) {
  switch (type) {
    case Type::string: return DataType::string;
    case Type::float32: return DataType::float32;
    case Type::float64: return DataType::float64;
    case Type::int8: return DataType::int8;
    case Type::int16: return DataType::int16;
    case Type::int32: return DataType::int32;
    case Type::int64: return DataType::int64;
    case Type::uint8: return DataType::uint8;
    case Type::uint16: return DataType::uint16;
    case Type::uint32: return DataType::uint32;
    case Type::uint64: return DataType::uint64;
  }
  return DataType::none;
}

/// Memory for texts whose lengths ADIOS2's C interface does not tell. Pages that are not written take
/// no memory.
class TextRoom {
 public:
  explicit TextRoom(std::uint64_t bytes) : bytes_(bytes) {
    auto* const room =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) room_ = static_cast<char*>(room);
  }
  ~TextRoom() {
    if (room_ != nullptr) ::munmap(room_, bytes_);
  }
  TextRoom(const TextRoom&) = delete;
  TextRoom& operator=(const TextRoom&) = delete;
  [[nodiscard]] char* at() const noexcept { return room_; }

 private:
  std::uint64_t bytes_;
  char* room_ = nullptr;
};

std::uint64_t number_at(const Bytes& bytes, std::uint64_t at) {
  std::uint64_t out = 0;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

/// What the index says of the other files of BP5: header of 64 bytes, then records of a kind, a length
/// and numbers. Of a step: place and size of its metadata, count of flushes, then for each writer place
/// and size of what each flush wrote, and the place where the rest of the step's data begins.
Result<void> check_index(const std::string& path, const Bytes& index,
                         const std::map<std::string, std::uint64_t>& sizes) {
  constexpr std::uint64_t header = 64, number = 8, head = 1 + number;
  const auto cut = [&](const char* name) {
    return corrupt(path + ": " + name + " is cut: the index knows of more than it holds");
  };
  const bool alone = !sizes.contains("data.1");
  const auto data = sizes.find("data.0");
  const auto damaged = corrupt(path + ": md.idx is damaged");
  std::uint64_t metadata_end = 0, writers = 0, data_end = 0;
  for (auto at = header; at < index.size();) {
    if (index.size() - at < head) return corrupt(path + ": md.idx is cut");
    const auto kind = static_cast<char>(index[at]);
    const auto bytes = number_at(index, at + 1);
    if (bytes > index.size() - at - head || bytes % number != 0) return corrupt(path + ": md.idx is cut, or damaged");
    const auto begin = at + head;
    at = begin + bytes;
    if (bytes < 3 * number || (kind != 's' && kind != 'w')) return damaged;
    if (kind == 'w') {
      // Of the writers: their number, that of aggregators and of files, and the file of each.
      writers = number_at(index, begin);
      const auto data_files = number_at(index, begin + 2 * number);
      if (bytes / number - 3 != writers || data_files == 0 || number_at(index, begin + number) > writers)
        return damaged;
      if (!sizes.contains("data." + std::to_string(data_files - 1)))
        return corrupt(path + " lacks data." + std::to_string(data_files - 1) + ": the BP file is not whole");
      for (auto place = begin + 3 * number; place < begin + bytes; place += number)
        if (number_at(index, place) >= data_files) return damaged;
      continue;
    }
    // Counts are compared without products that may overflow.
    const auto flushes = number_at(index, begin + 2 * number);
    const auto numbers = bytes / number - 3;
    if (number_at(index, begin) != metadata_end || writers == 0 || numbers % writers != 0 || flushes > numbers ||
        numbers / writers != 2 * flushes + 1)
      return damaged;
    const auto end_of = [&](std::uint64_t place) { return number_at(index, place) + number_at(index, place + number); };
    metadata_end = end_of(begin);
    if (metadata_end > sizes.at("md.0")) return cut("md.0");
    if (!alone || data == sizes.end()) continue;
    // Places only grow, of flushes and of what follows them.
    for (auto place = begin + 3 * number; place < begin + bytes; place += 2 * number) {
      if (writers == 1 && number_at(index, place) < data_end) return damaged;
      data_end = number_at(index, place);
    }
    for (auto place = begin + 3 * number; place + 2 * number <= begin + bytes; place += 2 * number)
      if (number_at(index, place + number) > 0 && end_of(place) > data->second) return cut("data.0");
  }
  if (metadata_end < sizes.at("md.0")) return corrupt(path + ": md.idx is cut: md.0 holds steps that it does not know");
  return {};
}

/// Descriptions of steps: of each the lengths of its name and of itself, and both. ADIOS2 crashes where one is missing.
Result<void> check_descriptions(const std::string& path) {
  auto bytes = read_file(system_files(), path + "/mmd.0");
  if (!bytes) return std::move(bytes).error();
  const auto cut = corrupt(path + ": mmd.0 is cut");
  constexpr std::uint64_t head = 16;
  if (bytes->empty()) return cut;
  for (std::uint64_t at = 0; at < bytes->size();) {
    if (bytes->size() - at < head) return cut;
    const auto name = number_at(*bytes, at), description = number_at(*bytes, at + head / 2);
    at += head;
    if (name > bytes->size() - at || description > bytes->size() - at - name) return cut;
    at += name + description;
  }
  return {};
}

/// The version of BP. Errors where the directory is not a whole one that nobody writes.
Result<int> look_at_files(const std::string& path, std::uint64_t& text_max) {
  constexpr std::uint64_t header = 64, version_at = 37, writes_at = 39;
  auto& files = system_files();
  auto names = files.list(path);
  if (!names) return std::move(names).error();
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& name : *names) {
    if (!name.starts_with("md") && !name.starts_with("mmd.") && !name.starts_with("data.")) continue;
    auto file = files.open(path + '/' + name, OpenMode::read);
    if (!file) return std::move(file).error();
    auto size = (*file)->size();
    if (!size) return std::move(size).error();
    sizes[name] = *size;
  }
  const auto need = [&](const char* name) -> Result<void> {
    if (sizes.contains(name)) return {};
    return corrupt(path + " lacks " + name + ": the BP file is not whole");
  };
  ADVECTIO_TRY(need("md.idx"));
  auto index = read_file(files, path + "/md.idx");
  if (!index) return std::move(index).error();
  if (index->size() < header) return corrupt(path + ": md.idx is cut");
  const auto version = static_cast<int>((*index)[version_at]);
  if (version != 4 && version != 5)
    return unsupported(path + " is no BP file of version 4 or 5 (its index says " + std::to_string(version) + ")");
  if ((*index)[writes_at] != std::byte{0})
    return Error{Code::invalid,
                 path + ": somebody still writes the file, or has died while writing it; see `advectio recover`", 0};
  for (const auto* name : {"md.0", "data.0"}) ADVECTIO_TRY(need(name));
  if (version == 5) {
    ADVECTIO_TRY(need("mmd.0"));
    ADVECTIO_TRY(check_index(path, *index, sizes));
    ADVECTIO_TRY(check_descriptions(path));
  }
  auto committed = read_committed(files, path);
  if (!committed) return std::move(committed).error();
  if (*committed)
    for (const auto& [name, size] : (*committed)->now.bytes)
      if (const auto there = sizes.find(name); there == sizes.end() || there->second < size)
        return corrupt(path + ": " + name + " is cut: " + std::to_string(size) + " bytes of it were committed");
  text_max = 1;
  for (const auto& [name, size] : sizes)
    if (!name.starts_with("data.")) text_max += size;
  return version;
}

}  // namespace

Result<std::unique_ptr<BpFile>> BpFile::open(const std::string& path) {
  auto library = adios2::library();
  if (!library) return std::move(library).error().with(path);
  auto functions = read_functions(**library);
  if (!functions) return std::move(functions).error().with(path);
  std::unique_ptr<BpFile> out(new BpFile(path, **library, **functions));
  auto version = look_at_files(path, out->text_max_);
  if (!version) return std::move(version).error();
  ADVECTIO_TRY(out->try_out(*version));
  ADVECTIO_TRY_WITH(out->open_engine(*version), path);
  return out;
}

Result<void> BpFile::open_engine(int version) {
  const auto& l = library_;
  const Complaints kept;
  adios_ = l.init_serial();
  io_ = adios_ == nullptr ? nullptr : l.declare_io(adios_, "advectio");
  if (io_ == nullptr || l.set_engine(io_, version == 4 ? "BP4" : "BP5") != 0 ||
      l.set_parameter(io_, "Threads", "1") != 0)
    return Error{Code::io, "ADIOS2: " + kept.last(), 0};
  engine_ = l.open(io_, path_.c_str(), Mode::random_access);
  if (engine_ == nullptr) return corrupt("ADIOS2 cannot open it: " + kept.last());
  std::size_t steps = 0;
  if (functions_.steps(&steps, engine_) != 0) return corrupt("ADIOS2: " + kept.last());
  steps_ = steps;
  ADVECTIO_TRY(list_attributes());
  ADVECTIO_TRY(list_variables());
  return read_ends();
}

/// Another process opens it first, once in this process and those that it starts.
Result<void> BpFile::try_out(int version) {
  static std::mutex mutex;
  static std::set<std::string> tried;
  const std::lock_guard lock(mutex);
  if (tried.contains(path_)) return {};
  const auto child = ::fork();
  if (child < 0) return system_error("start a process that opens " + path_, errno);
  if (child == 0) {
    const rlimit none{0, 0};
    (void)::setrlimit(RLIMIT_CORE, &none);
    if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0)
      (void)::dup2(nowhere, STDOUT_FILENO);
    (void)open_engine(version);
    close_engine();
    ::_exit(0);  // what is wrong with it is found again
  }
  const auto end = std::chrono::steady_clock::now() + try_out_max;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    if (std::chrono::steady_clock::now() > end) {
      (void)::kill(child, SIGKILL);
      (void)::waitpid(child, &status, 0);
      return corrupt(path_ + ": ADIOS2 did not open it within " + std::to_string(try_out_max.count()) +
                     " s: it is cut or damaged, or the disk does not answer");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return corrupt(path_ + ": ADIOS2 crashes when it opens it: its metadata are damaged");
  tried.insert(path_);
  return {};
}

void BpFile::close_engine() noexcept {
  const Complaints kept;
  if (engine_ != nullptr) (void)library_.close(std::exchange(engine_, nullptr));
  if (adios_ != nullptr) (void)library_.finalize(std::exchange(adios_, nullptr));
}

BpFile::~BpFile() {
  close_engine();
}

namespace {

std::vector<std::string> names_in(char** found, std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(found[i]);
    std::free(found[i]);
  }
  std::free(found);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<BpVariable> BpFile::look_at(const std::string& name) const {
  const auto& f = functions_;
  const auto failed = [&] { return corrupt("variable " + name + ": ADIOS2 does not say what it is"); };
  BpVariable v;
  v.name = name;
  v.handle = f.inquire_variable(io_, name.c_str());
  Type type{};
  int shape_kind = 0;
  std::size_t rank = 0, steps = 0;
  if (v.handle == nullptr || f.variable_type(&type, v.handle) != 0 || f.variable_shapeid(&shape_kind, v.handle) != 0 ||
      f.variable_ndims(&rank, v.handle) != 0 || f.variable_steps(&steps, v.handle) != 0)
    return failed();
  v.type = type_of(type);
  v.steps = steps;
  if (v.type == DataType::none)
    return unsupported("variable " + name + " is of a type that netCDF has not (complex numbers, long double or char)");
  if (shape_kind == local_array)
    return unsupported("variable " + name +
                       " is a local array of ADIOS2: its blocks have no place in a whole, and netCDF only has wholes");
  if (name.find('/') != std::string::npos) return unsupported("variable " + name + ": a name in netCDF has no '/'");
  v.shape.resize(rank);
  for (std::uint64_t step = 0; rank > 0 && step < v.steps; ++step) {
    std::vector<std::size_t> shape(rank);
    if (f.set_step_selection(v.handle, step, 1) != 0 || f.variable_shape(shape.data(), v.handle) != 0) return failed();
    if (step > 0 && !std::equal(shape.begin(), shape.end(), v.shape.begin(), v.shape.end()))
      return unsupported("variable " + name + " has another shape in its step " + std::to_string(step) +
                         " than before, and a variable of netCDF has one");
    v.shape.assign(shape.begin(), shape.end());
  }
  return v;
}

Result<void> BpFile::list_variables() {
  std::size_t count = 0;
  char** const found = functions_.available_variables(io_, &count);
  for (const auto& name : names_in(found, count)) {
    auto v = look_at(name);
    if (!v) return std::move(v).error();
    if (v->steps > 0) variables_.push_back(std::move(v).value());
  }
  return {};
}

Result<Attribute> BpFile::attribute(const std::string& name) const {
  const auto& f = functions_;
  const auto failed = [&] { return corrupt("attribute " + name + ": ADIOS2 does not say what it is"); };
  const auto* a = f.inquire_attribute(io_, name.c_str());
  Type type{};
  std::size_t count = 0;
  int single = 0;
  if (a == nullptr || f.attribute_type(&type, a) != 0 || f.attribute_size(&count, a) != 0 ||
      f.attribute_is_value(&single, a) != 0)
    return failed();
  Attribute out;
  out.name = name;
  out.type = type_of(type);
  if (out.type == DataType::none)
    return unsupported("attribute " + name + " is of a type that netCDF has not (complex numbers or long double)");
  if (out.type != DataType::string) {
    out.count = count;
    out.values.resize(count * size_of(out.type));
    if (f.attribute_data(out.values.data(), &count, a) != 0) return failed();
    return out;
  }
  const auto texts = single != 0 ? 1 : count;
  const TextRoom room(std::max<std::uint64_t>(1, texts) * (text_max_ + 1));
  if (room.at() == nullptr) return system_error("make room for attribute " + name, errno);
  std::vector<char*> places;
  for (std::size_t i = 0; i < texts; ++i) places.push_back(room.at() + i * (text_max_ + 1));
  void* const to = single != 0 ? static_cast<void*>(room.at()) : static_cast<void*>(places.data());
  if (f.attribute_data(to, &count, a) != 0) return failed();
  out.count = texts;
  for (auto* const place : places) out.strings.emplace_back(place);
  if (single == 0) return out;
  const auto text = *out.strings[0];
  out.type = DataType::text;
  out.count = text.size();
  out.strings.clear();
  out.values.resize(text.size());
  if (!text.empty()) std::memcpy(out.values.data(), text.data(), text.size());
  return out;
}

Result<void> BpFile::list_attributes() {
  std::size_t count = 0;
  char** const found = functions_.available_attributes(io_, &count);
  for (const auto& name : names_in(found, count)) {
    auto a = attribute(name);
    if (!a) return std::move(a).error();
    attributes_.push_back(std::move(a).value());
  }
  return {};
}

/// The last element of each variable: a file whose data are cut is found here.
Result<void> BpFile::read_ends() const {
  for (const auto& v : variables_) {
    Box last;
    bool empty = false;
    for (const auto length : v.shape) {
      empty = empty || length == 0;
      last.start.push_back(length - 1);
      last.count.push_back(1);
    }
    if (empty || v.type == DataType::string) continue;
    std::array<std::byte, 16> element{};
    ADVECTIO_TRY(read(v, v.steps - 1, last, element.data()));
  }
  return {};
}

Result<void> BpFile::select(const BpVariable& variable, std::uint64_t step) const {
  if (functions_.set_step_selection(variable.handle, step, 1) == 0) return {};
  return corrupt("variable " + variable.name + ": ADIOS2 has no step " + std::to_string(step));
}

Result<void> BpFile::read(const BpVariable& v, std::uint64_t step, const Box& box, std::byte* to) const {
  ADVECTIO_TRY(select(v, step));
  const Complaints kept;
  const std::vector<std::size_t> start(box.start.begin(), box.start.end()), count(box.count.begin(), box.count.end());
  if (!start.empty() && library_.set_selection(v.handle, start.size(), start.data(), count.data()) != 0)
    return corrupt("variable " + v.name + ": ADIOS2: " + kept.last());
  if (functions_.get(engine_, v.handle, to, Mode::sync) != 0)
    return corrupt("variable " + v.name + ", step " + std::to_string(step) + ": ADIOS2 cannot read it: " + kept.last());
  return {};
}

Result<std::string> BpFile::read_text(const BpVariable& v, std::uint64_t step) const {
  ADVECTIO_TRY(select(v, step));
  const TextRoom room(text_max_ + 1);
  if (room.at() == nullptr) return system_error("make room for variable " + v.name, errno);
  const Complaints kept;
  if (functions_.get(engine_, v.handle, room.at(), Mode::sync) != 0)
    return corrupt("variable " + v.name + ", step " + std::to_string(step) + ": ADIOS2 cannot read it: " + kept.last());
  return std::string(room.at());
}

}  // namespace advectio::adios2
