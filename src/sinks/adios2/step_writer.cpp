#include "sinks/adios2/step_writer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "sinks/transaction/transactional_sink.h"

namespace advectio::adios2 {
namespace {

/// What is gathered at once, and what ADIOS2 may keep of a step before it is written.
constexpr std::uint64_t slab_bytes = 16ULL << 20, kept_bytes_max = 64ULL << 20;
/// Where the pieces that were put are smaller on average, readers would have too many blocks.
constexpr std::uint64_t piece_bytes_min = 64ULL << 10;

Type type_of(DataType type) {
  switch (type) {
    case DataType::int8: return Type::int8;
    case DataType::text:
    case DataType::uint8: return Type::uint8;
    case DataType::int16: return Type::int16;
    case DataType::int32: return Type::int32;
    case DataType::float32: return Type::float32;
    case DataType::float64: return Type::float64;
    case DataType::uint16: return Type::uint16;
    case DataType::uint32: return Type::uint32;
    case DataType::int64: return Type::int64;
    case DataType::uint64: return Type::uint64;
    case DataType::none:
    case DataType::string: break;
  }
  return Type::string;
}

Attribute text(const std::string& name, const std::string& value) {
  Attribute a{name, DataType::text, value.size(), Bytes(value.size()), {}};
  if (!value.empty()) std::memcpy(a.values.data(), value.data(), value.size());
  return a;
}

/// The attributes that the names of dimensions become.
std::vector<Attribute> names_of_dimensions(const Schema& schema, const Variable& v) {
  std::vector<Attribute> out;
  const bool records = has_records(schema, v);
  std::string names;
  for (std::size_t k = records ? 1 : 0; k < v.dimensions.size(); ++k)
    names += (names.empty() ? "" : " ") + schema.dimensions[v.dimensions[k]].name;
  if (!names.empty()) out.push_back(text("dimensions", names));
  if (records) out.push_back(text("step_dimension", schema.dimensions[v.dimensions[0]].name));
  if (v.type == DataType::text) out.push_back(text("dtype", "|S1"));
  return out;
}

/// The dimension of all records; empty: there are several, or none.
std::string dimension_of_steps(const Schema& schema) {
  std::string name;
  for (const auto& v : schema.variables) {
    if (!has_records(schema, v)) continue;
    const auto& of = schema.dimensions[v.dimensions[0]].name;
    if (!name.empty() && name != of) return "";
    name = of;
  }
  return name;
}

}  // namespace

Result<void> can_compress(const Compression& compression) {
  auto library = adios2::library();
  if (!library) return std::move(library).error();
  if (compression.type.empty()) return {};
  auto* adios = (*library)->init_serial();
  const Complaints kept;
  const bool has = adios != nullptr && (*library)->define_operator(adios, "codec", compression.type.c_str()) != nullptr;
  if (adios != nullptr) (void)(*library)->finalize(adios);
  if (has) return {};
  return Error{Code::unsupported,
               "this ADIOS2 has no operator " + compression.type +
                   "; leave codec out, or name an ADIOS2 that has it in ADVECTIO_ADIOS2",
               0};
}

Result<std::unique_ptr<StepWriter>> StepWriter::open(const EngineSetup& setup) {
  auto library = adios2::library();
  if (!library) return std::move(library).error();
  const auto& l = **library;
  std::unique_ptr<StepWriter> out(new StepWriter(l, setup.name));
  const auto what = "open " + setup.name;
  errno = 0;
  out->is_file_ = setup.type == "BP5";
  out->adios_ = l.init_serial();
  if (out->adios_ == nullptr) return out->failed(what);
  out->io_ = l.declare_io(out->adios_, "advectio");
  if (out->io_ == nullptr || l.set_engine(out->io_, setup.type.c_str()) != 0) return out->failed(what);
  for (const auto& [key, value] : setup.parameters)
    if (l.set_parameter(out->io_, key.c_str(), value.c_str()) != 0) return out->failed(what + ": " + key);
  if (!setup.compression.type.empty()) {
    out->compressor_ = l.define_operator(out->adios_, "codec", setup.compression.type.c_str());
    if (out->compressor_ == nullptr) return can_compress(setup.compression).error().with(what);
    out->compressor_parameters_ = setup.compression.parameters;
  }
  errno = 0;
  out->engine_ = l.open(out->io_, setup.name.c_str(), setup.mode);
  if (out->engine_ == nullptr) return out->failed(what);
  return out;
}

StepWriter::~StepWriter() {
  if (!in_step_) (void)close();
  if (adios_ != nullptr) (void)library_.finalize(adios_);
}

/// ADIOS2 says no more than that it failed, and writes why to standard error.
Error StepWriter::failed(const std::string& what) const {
  if (const int sys = errno; sys != 0) return system_error("ADIOS2: " + what, sys);
  return Error{Code::io, "ADIOS2: " + what + ": its reason is on standard error", 0};
}

Result<void> StepWriter::set(const std::string& name, const Attribute& a) {
  const auto known = attributes_.find(name);
  if (known != attributes_.end() && known->second == a) return {};
  errno = 0;
  if (int removed = 0; known != attributes_.end() && library_.remove_attribute(&removed, io_, name.c_str()) != 0)
    return failed("change attribute " + name);
  const void* defined = nullptr;
  if (a.type == DataType::string && a.count > 1) {
    std::vector<const char*> texts;
    for (const auto& s : a.strings) texts.push_back(s ? s->c_str() : "");
    defined = library_.define_attribute_array(io_, name.c_str(), Type::string, texts.data(), texts.size());
  } else if (a.type == DataType::string || a.type == DataType::text || a.count == 0) {
    std::string value;
    if (a.type == DataType::text) value.assign(reinterpret_cast<const char*>(a.values.data()), a.values.size());
    if (a.type == DataType::string && a.count == 1) value = a.strings[0].value_or("");
    defined = library_.define_attribute(io_, name.c_str(), Type::string, value.c_str());
  } else if (a.count == 1) {
    defined = library_.define_attribute(io_, name.c_str(), type_of(a.type), a.values.data());
  } else {
    defined = library_.define_attribute_array(io_, name.c_str(), type_of(a.type), a.values.data(), a.count);
  }
  if (defined == nullptr) return failed("define attribute " + name);
  attributes_[name] = a;
  news_ = true;
  return {};
}

Result<void> StepWriter::declare(const Schema& schema) {
  schema_ = schema;
  variables_.resize(schema.variables.size(), nullptr);
  for (const auto& a : schema.attributes) ADVECTIO_TRY(set(a.name, a));
  if (const auto name = dimension_of_steps(schema); !name.empty())
    ADVECTIO_TRY(set("step_dimension", text("step_dimension", name)));
  for (const auto& v : schema.variables) {
    for (const auto& a : names_of_dimensions(schema, v)) ADVECTIO_TRY(set(v.name + '/' + a.name, a));
    for (const auto& a : v.attributes) ADVECTIO_TRY(set(v.name + '/' + a.name, a));
  }
  return {};
}

Result<VariableHandle*> StepWriter::variable(std::uint32_t number) {
  auto& known = variables_[number];
  if (known != nullptr) return known;
  const auto& v = schema_.variables[number];
  std::vector<std::size_t> shape;
  for (std::size_t k = has_records(schema_, v) ? 1 : 0; k < v.dimensions.size(); ++k)
    shape.push_back(schema_.dimensions[v.dimensions[k]].length);
  const std::vector<std::size_t> start(shape.size(), 0);
  errno = 0;
  known = library_.define_variable(io_, v.name.c_str(), type_of(v.type), shape.size(), shape.data(), start.data(),
                                   shape.data(), 0);
  if (known == nullptr) return failed("define variable " + v.name);
  if (compressor_ == nullptr || shape.empty()) return known;
  std::size_t index = 0;
  if (library_.add_operation(&index, known, compressor_, "", "") != 0) return failed("compress " + v.name);
  for (const auto& [key, value] : compressor_parameters_)
    if (library_.set_operation_parameter(known, index, key.c_str(), value.c_str()) != 0)
      return failed("compress " + v.name);
  return known;
}

/// `box`: of the netCDF variable, whose first `skipped` dimensions ADIOS2's has not.
Result<void> StepWriter::give(VariableHandle* variable, const Box& box, std::size_t skipped, const void* data,
                              std::size_t bytes, Mode mode) {
  errno = 0;
  if (const auto rank = box.rank() - skipped; rank > 0) {
    const std::vector<std::size_t> start(box.start.begin() + static_cast<std::ptrdiff_t>(skipped), box.start.end());
    const std::vector<std::size_t> count(box.count.begin() + static_cast<std::ptrdiff_t>(skipped), box.count.end());
    if (library_.set_selection(variable, rank, start.data(), count.data()) != 0) return failed("select");
  }
  if (library_.put(engine_, variable, data, mode) != 0) return failed("put");
  bytes_ += bytes;
  unwritten_ += bytes;
  // Of a stream the step is in memory in any case.
  if (!is_file_ || unwritten_ < kept_bytes_max) return {};
  unwritten_ = 0;
  if (library_.perform_data_write(engine_) != 0) return failed("write");
  return {};
}

/// As they lie in the stage.
Result<void> StepWriter::put_pieces(VariableHandle* variable, const Put& put, std::size_t skipped) {
  for (const auto& part : put.parts) {
    const auto view = put.field->view(part);
    // A stream outlives the stage's memory.
    ADVECTIO_TRY(give(variable, part.box, skipped, view.data(), view.size(), is_file_ ? Mode::deferred : Mode::sync));
  }
  return {};
}

/// Gathered, with fill values where nobody has put anything.
Result<void> StepWriter::put_slabs(VariableHandle* variable, const Put& put, std::size_t skipped) {
  const auto& v = schema_.variables[put.variable];
  const auto element = size_of(v.type);
  const auto fill = v.fill.empty() ? default_fill(v.type) : v.fill;
  // Cut along the first dimension that ADIOS2 has.
  const bool cuts = put.whole.rank() > skipped;
  const auto rows = cuts ? put.whole.count[skipped] : 1;
  const auto row_bytes = put.whole.volume() / std::max<std::uint64_t>(rows, 1) * element;
  const auto at_once = std::max<std::uint64_t>(1, slab_bytes / std::max<std::uint64_t>(row_bytes, 1));
  for (std::uint64_t row = 0; row < rows; row += at_once) {
    auto slab = put.whole;
    if (cuts) {
      slab.start[skipped] += row;
      slab.count[skipped] = std::min(at_once, rows - row);
    }
    buffer_.resize(slab.volume() * element);
    fill_with(buffer_.data(), buffer_.size(), fill);
    if (put.field) put.field->read(Part(slab), buffer_.data());
    ADVECTIO_TRY(give(variable, slab, skipped, buffer_.data(), buffer_.size(), Mode::sync));
  }
  return {};
}

Result<void> StepWriter::put(const Put& put) {
  const auto& v = schema_.variables[put.variable];
  auto variable = this->variable(put.variable);
  if (!variable) return std::move(variable).error();
  const std::size_t skipped = has_records(schema_, v) ? 1 : 0;
  const auto bytes = put.whole.volume() * size_of(v.type);
  // What covers a variable without records may have been put in an earlier frame.
  const auto count = put.parts.size();
  const bool large = skipped > 0 ? count == 1 || (count > 1 && bytes / count >= piece_bytes_min)
                                 : count == 1 && put.parts[0].box.count == put.whole.count;
  const bool pieces = put.field && put.whole.rank() > skipped && large && put.field->covers(put.whole) &&
                      std::all_of(put.parts.begin(), put.parts.end(),
                                  [&](const auto& p) { return p.dense() && !put.field->view(p).empty(); });
  auto done = pieces ? put_pieces(*variable, put, skipped) : put_slabs(*variable, put, skipped);
  return done ? std::move(done) : std::move(done).error().with(v.name);
}

/// A reader that comes late to a stream has only the attributes of the steps that it gets.
Result<void> StepWriter::repeat_attributes() {
  const auto all = std::exchange(attributes_, {});
  for (const auto& [name, attribute] : all) {
    int removed = 0;
    if (library_.remove_attribute(&removed, io_, name.c_str()) != 0) return failed("repeat attribute " + name);
    ADVECTIO_TRY(set(name, attribute));
  }
  return {};
}

Result<void> StepWriter::begin_step() {
  if (!is_file_ && steps_++ > 0) ADVECTIO_TRY(repeat_attributes());
  auto status = StepStatus::error;
  errno = 0;
  if (library_.begin_step(engine_, 0, -1.0F, &status) != 0 || status != StepStatus::ok) return failed("begin a step");
  in_step_ = true;
  return {};
}

Result<void> StepWriter::flush() {
  if (!in_step_ || unwritten_ == 0) return {};
  unwritten_ = 0;
  errno = 0;
  if (library_.perform_data_write(engine_) != 0) return failed("write");
  return {};
}

Result<void> StepWriter::end_step() {
  errno = 0;
  if (library_.end_step(engine_) != 0) return failed("end a step");
  in_step_ = false;
  unwritten_ = 0;
  news_ = false;
  return {};
}

Result<void> StepWriter::write(const Step& step) {
  ADVECTIO_TRY(begin_step());
  for (const auto& p : step) ADVECTIO_TRY(put(p));
  return end_step();
}

Result<void> StepWriter::close() {
  if (engine_ == nullptr) return {};
  errno = 0;
  auto* engine = std::exchange(engine_, nullptr);
  if (library_.close(engine) == 0) return {};
  // ADIOS2 2.12 ends the process when it destroys an engine that it could not close (the disk is
  // full). So this one is never destroyed.
  adios_ = nullptr;
  return failed("close");
}

void leave_for_ever(std::unique_ptr<StepWriter> writer) noexcept {
  struct Left {
    std::unique_ptr<StepWriter> writer;
    Left* next = nullptr;
  };
  static std::atomic<Left*> all{nullptr};
  auto* const left = new (std::nothrow) Left{std::move(writer), all.load()};
  if (left == nullptr) return (void)writer.release();
  while (!all.compare_exchange_weak(left->next, left)) {
  }
}

}  // namespace advectio::adios2
