// One ADIOS2 engine that is written: the schema becomes attributes and variables, each frame some
// steps (steps.h).
//
// Names follow what xarray-adios2 reads: a variable's attribute `dimensions` has the names of its
// dimensions without that of the records; the dataset's attribute `step_dimension` has that one.
// The attribute `step_dimension` of a variable is ours: it says that the variable has records.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "core/schema.h"
#include "sinks/adios2/library.h"
#include "sinks/adios2/steps.h"

namespace advectio::adios2 {

using Parameters = std::vector<std::pair<std::string, std::string>>;

/// Compression of the variables by an operator of ADIOS2; no name: none.
struct Compression {
  std::string type;  ///< "blosc"
  Parameters parameters;
};

struct EngineSetup {
  std::string type;  ///< "BP5", "SST"
  std::string name;  ///< as ADIOS2 is told it
  Mode mode = Mode::write;
  Parameters parameters;
  Compression compression;
};

/// An error that says why, where the library or the operator is missing.
Result<void> can_compress(const Compression& compression);

/// Calls are serial. Its destructor closes the engine, unless a step is under way: closing would end
/// that.
class StepWriter {
 public:
  static Result<std::unique_ptr<StepWriter>> open(const EngineSetup& setup);
  ~StepWriter();
  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;

  /// Attributes that are new or have changed are in the next step.
  Result<void> declare(const Schema& schema);
  /// There are attributes that no step has.
  [[nodiscard]] bool has_news() const noexcept { return news_; }

  /// One step. All fields have been read on return.
  Result<void> write(const Step& step);

  /// The same in parts. A step may have a variable in several puts, of boxes that do not meet. Fields
  /// that were put have been read when `flush` or `end_step` returns.
  Result<void> begin_step();
  Result<void> put(const Put& put);
  Result<void> flush();
  Result<void> end_step();

  /// Idempotent.
  Result<void> close();

  /// A step was begun, and could not be ended.
  [[nodiscard]] bool in_step() const noexcept { return in_step_; }

  /// Bytes of the values that were given to ADIOS2.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  StepWriter(const Library& library, std::string name) : library_(library), name_(std::move(name)) {}

  Result<void> set(const std::string& name, const Attribute& attribute);
  Result<void> repeat_attributes();
  Result<VariableHandle*> variable(std::uint32_t number);
  Result<void> put_pieces(VariableHandle* variable, const Put& put, std::size_t skipped);
  Result<void> put_slabs(VariableHandle* variable, const Put& put, std::size_t skipped);
  Result<void> give(VariableHandle* variable, const Box& box, std::size_t skipped, const void* data, std::size_t bytes,
                    Mode mode);
  [[nodiscard]] Error failed(const std::string& what) const;

  const Library& library_;
  const std::string name_;
  bool is_file_ = false;
  AdiosHandle* adios_ = nullptr;
  IoHandle* io_ = nullptr;
  EngineHandle* engine_ = nullptr;
  OperatorHandle* compressor_ = nullptr;
  Parameters compressor_parameters_;
  Schema schema_;
  std::map<std::string, Attribute> attributes_;  ///< as ADIOS2 has them
  std::vector<VariableHandle*> variables_;       ///< by number; null: not defined yet
  Bytes buffer_;
  std::uint64_t bytes_ = 0, unwritten_ = 0, steps_ = 0;
  bool news_ = false, in_step_ = false;
};

/// For one whose engine cannot be closed: its memory stays in use, and known, until the process ends.
void leave_for_ever(std::unique_ptr<StepWriter> writer) noexcept;

}  // namespace advectio::adios2
