#include "sinks/bp5_reader.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "sinks/adios2/library.h"

namespace advectio::testing {
namespace {

using adios2::AdiosHandle;
using adios2::AttributeHandle;
using adios2::EngineHandle;
using adios2::IoHandle;
using adios2::Mode;
using adios2::Status;
using adios2::Type;
using adios2::VariableHandle;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

void must(Status status, const std::string& what) {
  if (status != 0) fail("ADIOS2: " + what);
}

/// What only a reader calls.
struct Functions {
  explicit Functions(LoadedLibrary file) {
    const auto find = [&](auto& function, const char* name) {
      file.find(function, name);
      if (function == nullptr) fail(file.why());
    };
    find(available_variables, "adios2_available_variables");
    find(available_attributes, "adios2_available_attributes");
    find(inquire_variable, "adios2_inquire_variable");
    find(inquire_attribute, "adios2_inquire_attribute");
    find(variable_type, "adios2_variable_type");
    find(variable_ndims, "adios2_variable_ndims");
    find(variable_shape, "adios2_variable_shape");
    find(variable_steps, "adios2_variable_steps");
    find(set_step_selection, "adios2_set_step_selection");
    find(get, "adios2_get");
    find(attribute_type, "adios2_attribute_type");
    find(attribute_size, "adios2_attribute_size");
    find(attribute_data, "adios2_attribute_data");
    find(attribute_string_data, "adios2_attribute_string_data");
  }
  char** (*available_variables)(IoHandle*, std::size_t*) = nullptr;
  char** (*available_attributes)(IoHandle*, std::size_t*) = nullptr;
  VariableHandle* (*inquire_variable)(IoHandle*, const char*) = nullptr;
  AttributeHandle* (*inquire_attribute)(IoHandle*, const char*) = nullptr;
  Status (*variable_type)(Type*, const VariableHandle*) = nullptr;
  Status (*variable_ndims)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*variable_shape)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*variable_steps)(std::size_t*, const VariableHandle*) = nullptr;
  Status (*set_step_selection)(VariableHandle*, std::size_t, std::size_t) = nullptr;
  Status (*get)(EngineHandle*, VariableHandle*, void*, Mode) = nullptr;
  Status (*attribute_type)(Type*, const AttributeHandle*) = nullptr;
  Status (*attribute_size)(std::size_t*, const AttributeHandle*) = nullptr;
  Status (*attribute_data)(void*, std::size_t*, const AttributeHandle*) = nullptr;
  Status (*attribute_string_data)(const AttributeHandle*, char* data, std::size_t* length) = nullptr;
};

DataType type_of(Type type) {
  switch (type) {
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
    case Type::string: return DataType::text;
  }
  return DataType::none;
}

Attribute text_attribute(const std::string& name, const std::string& value) {
  Attribute a{name, DataType::text, value.size(), Bytes(value.size()), {}};
  if (!value.empty()) std::memcpy(a.values.data(), value.data(), value.size());
  return a;
}

std::string text_of(const Attribute& a) {
  return {reinterpret_cast<const char*>(a.values.data()), a.values.size()};
}

/// One open file.
class Reader {
 public:
  explicit Reader(const std::string& path) : library_(**adios2::library()), functions_(library_.file) {
    adios_ = library_.init_serial();
    io_ = library_.declare_io(adios_, "reader");
    must(library_.set_engine(io_, "BP5"), "engine");
    engine_ = library_.open(io_, path.c_str(), Mode::random_access);
    if (engine_ == nullptr) fail("cannot open " + path);
  }
  ~Reader() {
    if (engine_ != nullptr) (void)library_.close(engine_);
    (void)library_.finalize(adios_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::vector<std::string> names(char** (*list)(IoHandle*, std::size_t*)) const {
    std::size_t count = 0;
    char** found = list(io_, &count);
    std::vector<std::string> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.emplace_back(found[i]);
      std::free(found[i]);
    }
    std::free(found);
    std::sort(out.begin(), out.end());
    return out;
  }

  Attribute attribute(const std::string& full, const std::string& name) const {
    const auto* a = functions_.inquire_attribute(io_, full.c_str());
    if (a == nullptr) fail("no attribute " + full);
    Type type{};
    std::size_t count = 0;
    must(functions_.attribute_type(&type, a), full);
    must(functions_.attribute_size(&count, a), full);
    if (type == Type::string) {
      std::size_t length = 0;
      must(functions_.attribute_string_data(a, nullptr, &length), full);
      std::string value(length + 1, '\0');
      must(functions_.attribute_string_data(a, value.data(), &length), full);
      value.resize(std::strlen(value.c_str()));
      return text_attribute(name, value);
    }
    Attribute out{name, type_of(type), count, Bytes(count * size_of(type_of(type))), {}};
    must(functions_.attribute_data(out.values.data(), &count, a), full);
    return out;
  }

  Contents read() const {
    Contents out;
    out.schema.format = FileFormat::bp5;
    std::map<std::string, std::vector<Attribute>> of;
    for (const auto& full : names(functions_.available_attributes)) {
      const auto slash = full.find('/');
      const auto variable = slash == std::string::npos ? std::string() : full.substr(0, slash);
      of[variable].push_back(attribute(full, slash == std::string::npos ? full : full.substr(slash + 1)));
    }
    of[""];
    std::erase_if(of[""], [](const auto& a) { return a.name == "step_dimension"; });
    out.schema.attributes = of[""];
    std::vector<std::size_t> steps;
    for (const auto& name : names(functions_.available_variables)) read_variable(name, of[name], out, steps);
    // Records that are missing at the end.
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto& v = out.schema.variables[i];
      if (v.dimensions.empty() || !out.schema.dimensions[v.dimensions[0]].unlimited) continue;
      auto fill = default_fill(v.type);
      for (const auto& a : v.attributes)
        if (a.name == "_FillValue") fill = a.values;
      auto elements = out.schema.dimensions[v.dimensions[0]].length - steps[i];
      for (std::size_t k = 1; k < v.dimensions.size(); ++k) elements *= out.schema.dimensions[v.dimensions[k]].length;
      for (; elements > 0; --elements) out.values[i].insert(out.values[i].end(), fill.begin(), fill.end());
    }
    return out;
  }

 private:
  static std::uint32_t dimension(Schema& schema, const std::string& name, std::uint64_t length, bool unlimited) {
    auto& all = schema.dimensions;
    const auto it = std::find_if(all.begin(), all.end(), [&](const auto& d) { return d.name == name; });
    if (it == all.end()) {
      all.push_back({name, length, unlimited});
      return static_cast<std::uint32_t>(all.size() - 1);
    }
    if (it->unlimited != unlimited || (!unlimited && it->length != length)) fail("another length of dimension " + name);
    it->length = std::max(it->length, length);
    return static_cast<std::uint32_t>(it - all.begin());
  }

  void read_variable(const std::string& name, std::vector<Attribute> attributes, Contents& out,
                     std::vector<std::size_t>& all_steps) const {
    auto* handle = functions_.inquire_variable(io_, name.c_str());
    if (handle == nullptr) fail("no variable " + name);
    Type type{};
    std::size_t rank = 0, steps = 0;
    must(functions_.variable_type(&type, handle), name);
    must(functions_.variable_ndims(&rank, handle), name);
    must(functions_.variable_steps(&steps, handle), name);
    std::vector<std::size_t> shape(rank);
    if (rank > 0) must(functions_.variable_shape(shape.data(), handle), name);
    Variable v;
    v.name = name;
    v.type = type_of(type);
    std::vector<std::string> dimensions;
    std::string of_records;
    for (const auto& a : attributes) {
      if (a.name == "step_dimension") of_records = text_of(a);
      if (a.name == "dtype" && text_of(a) == "|S1") v.type = DataType::text;
      std::istringstream words(a.name == "dimensions" ? text_of(a) : "");
      for (std::string word; words >> word;) dimensions.push_back(word);
    }
    std::erase_if(attributes, [&](const auto& a) {
      return a.name == "step_dimension" || a.name == "dimensions" || (a.name == "dtype" && v.type == DataType::text);
    });
    v.attributes = attributes;
    if (dimensions.size() != rank) fail(name + " has not as many dimensions as names of them");
    if (!of_records.empty()) v.dimensions.push_back(dimension(out.schema, of_records, steps, true));
    for (std::size_t k = 0; k < rank; ++k)
      v.dimensions.push_back(dimension(out.schema, dimensions[k], shape[k], false));
    const auto bytes = std::accumulate(shape.begin(), shape.end(), size_of(v.type), std::multiplies<>());
    Bytes values;
    // What has no records is what it was last.
    for (std::size_t step = of_records.empty() ? steps - 1 : 0; step < steps; ++step) {
      must(functions_.set_step_selection(handle, step, 1), name);
      const std::vector<std::size_t> start(rank, 0);
      if (rank > 0) must(library_.set_selection(handle, rank, start.data(), shape.data()), name);
      values.resize(values.size() + bytes);
      must(functions_.get(engine_, handle, values.data() + values.size() - bytes, Mode::sync), name);
    }
    out.schema.variables.push_back(std::move(v));
    out.values.push_back(std::move(values));
    out.strings.emplace_back();
    all_steps.push_back(steps);
  }

  const adios2::Library& library_;
  const Functions functions_;
  AdiosHandle* adios_ = nullptr;
  IoHandle* io_ = nullptr;
  EngineHandle* engine_ = nullptr;
};

Attribute as_adios2_keeps(const Attribute& a) {
  if (a.type == DataType::text || a.count > 0) return a;
  return text_attribute(a.name, "");
}

void sort_by_name(std::vector<Attribute>& attributes) {
  std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

}  // namespace

std::string why_no_adios2() {
  if (std::getenv("ADVECTIO_ADIOS2") == nullptr) {
    std::error_code failed;
    const std::filesystem::path lib = std::string(ADVECTIO_SOURCE_DIR) + "/.venv/lib";
    for (std::filesystem::directory_iterator it(lib, failed), end; !failed && it != end; it.increment(failed))
      if (const auto wheel = it->path() / "site-packages" / "adios2"; std::filesystem::exists(wheel / "libadios2_c.so"))
        ::setenv("ADVECTIO_ADIOS2", wheel.c_str(), 1);
  }
  const auto library = adios2::library();
  return library ? "" : library.error().message;
}

Contents read_bp5(const std::string& path) {
  return Reader(path).read();
}

namespace {

Contents kept(const Contents& netcdf, const std::vector<std::size_t>& order) {
  Contents out;
  out.schema.format = FileFormat::bp5;
  for (const auto& a : netcdf.schema.attributes) out.schema.attributes.push_back(as_adios2_keeps(a));
  sort_by_name(out.schema.attributes);
  std::vector<std::uint32_t> numbers(netcdf.schema.dimensions.size(), UINT32_MAX);
  for (const auto i : order) {
    auto v = netcdf.schema.variables[i];
    for (auto& a : v.attributes) a = as_adios2_keeps(a);
    sort_by_name(v.attributes);
    for (auto& d : v.dimensions) {
      if (numbers[d] == UINT32_MAX) {
        numbers[d] = static_cast<std::uint32_t>(out.schema.dimensions.size());
        out.schema.dimensions.push_back(netcdf.schema.dimensions[d]);
      }
      d = numbers[d];
    }
    out.schema.variables.push_back(std::move(v));
    out.values.push_back(netcdf.values[i]);
    out.strings.emplace_back();
  }
  return out;
}

std::vector<std::size_t> numbers_of_variables(const Contents& netcdf) {
  std::vector<std::size_t> out(netcdf.schema.variables.size());
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

}  // namespace

Contents as_bp5_keeps_in_order(const Contents& netcdf) {
  return kept(netcdf, numbers_of_variables(netcdf));
}

Contents as_bp5_keeps(const Contents& netcdf) {
  auto order = numbers_of_variables(netcdf);
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return netcdf.schema.variables[a].name < netcdf.schema.variables[b].name; });
  return kept(netcdf, order);
}

}  // namespace advectio::testing
