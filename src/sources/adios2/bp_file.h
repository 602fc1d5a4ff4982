// A BP file as ADIOS2's own reader finds it: what is in it, and boxes of a step. Knows nothing of
// netCDF's dimensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"
#include "sinks/adios2/library.h"

namespace advectio::adios2 {

struct BpVariable {
  std::string name;
  DataType type = DataType::none;    ///< string: one text a step
  std::vector<std::uint64_t> shape;  ///< the same in all steps; empty: one value
  std::uint64_t steps = 0;           ///< that have it
  VariableHandle* handle = nullptr;
};

struct ReadFunctions;

/// Not to be used by two threads.
class BpFile {
 public:
  /// Looks at the directory before ADIOS2 does: it opens files that are cut, and waits for those that
  /// somebody writes. Where metadata are damaged it may crash or never come back: another process tries
  /// it out, for a minute at most. Errors: Code::unsupported where there is no ADIOS2, for formats before BP4, and
  /// for variables that netCDF has no type or shape for; Code::corrupt; Code::invalid where the file
  /// is being written.
  static Result<std::unique_ptr<BpFile>> open(const std::string& path);
  ~BpFile();
  BpFile(const BpFile&) = delete;
  BpFile& operator=(const BpFile&) = delete;

  /// By name.
  [[nodiscard]] const std::vector<BpVariable>& variables() const noexcept { return variables_; }
  /// By name, as ADIOS2 has them: VARIABLE/NAME. One text is DataType::text, several are strings.
  [[nodiscard]] const std::vector<Attribute>& attributes() const noexcept { return attributes_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// The box of the variable's `step`-th step, counted from 0. Points that nobody has written keep
  /// what is in `to`.
  Result<void> read(const BpVariable& variable, std::uint64_t step, const Box& box, std::byte* to) const;
  /// The same of a text.
  [[nodiscard]] Result<std::string> read_text(const BpVariable& variable, std::uint64_t step) const;

 private:
  BpFile(std::string path, const Library& library, const ReadFunctions& functions)
      : path_(std::move(path)), library_(library), functions_(functions) {}
  Result<void> try_out(int version);
  Result<void> open_engine(int version);
  void close_engine() noexcept;
  Result<void> list_variables();
  Result<BpVariable> look_at(const std::string& name) const;
  Result<void> list_attributes();
  Result<Attribute> attribute(const std::string& name) const;
  Result<void> read_ends() const;
  Result<void> select(const BpVariable& variable, std::uint64_t step) const;

  const std::string path_;
  const Library& library_;
  const ReadFunctions& functions_;
  AdiosHandle* adios_ = nullptr;
  IoHandle* io_ = nullptr;
  EngineHandle* engine_ = nullptr;
  std::uint64_t steps_ = 0;
  std::uint64_t text_max_ = 0;  ///< no text of the file is longer
  std::vector<BpVariable> variables_;
  std::vector<Attribute> attributes_;
};

}  // namespace advectio::adios2
