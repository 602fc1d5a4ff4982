// ADIOS2's C interface, found when somebody asks for a format of it: neither the build nor a server
// that writes other formats needs ADIOS2.
//
// Where it is looked for, in this order:
//   1. ADVECTIO_ADIOS2: the library `libadios2_c.so`, or the directory that it lies in. The command
//      `advectio` sets it to the wheel `adios2` of its own Python, where there is one
//   2. where the system looks for libraries (LD_LIBRARY_PATH, ldconfig)
//
// Declared here by hand, after the reference of the C bindings (adios2.readthedocs.io): the functions
// that we call have been the same since ADIOS2 2.9. Numbers of an enum are part of that interface.
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"
#include "platform/loaded_library.h"

namespace advectio::adios2 {

struct AdiosHandle;
struct IoHandle;
struct VariableHandle;
struct AttributeHandle;
struct EngineHandle;
struct OperatorHandle;

/// adios2_error; 0: none.
using Status = int;

enum class Type : int {
  string = 0,
  float32 = 1,
  float64 = 2,
  int8 = 5,
  int16 = 6,
  int32 = 7,
  int64 = 8,
  uint8 = 9,
  uint16 = 10,
  uint32 = 11,
  uint64 = 12,
};

enum class Mode : int { write = 1, read = 2, append = 3, deferred = 4, sync = 5, random_access = 6 };

enum class StepStatus : int { error = -1, ok = 0, not_ready = 1, end_of_stream = 2 };

struct Library {
  LoadedLibrary file;  ///< in which others may look up more functions

  AdiosHandle* (*init_serial)() = nullptr;
  Status (*finalize)(AdiosHandle*) = nullptr;
  IoHandle* (*declare_io)(AdiosHandle*, const char* name) = nullptr;
  OperatorHandle* (*define_operator)(AdiosHandle*, const char* name, const char* type) = nullptr;
  Status (*set_engine)(IoHandle*, const char* type) = nullptr;
  Status (*set_parameter)(IoHandle*, const char* key, const char* value) = nullptr;
  VariableHandle* (*define_variable)(IoHandle*, const char* name, Type, std::size_t rank, const std::size_t* shape,
                                     const std::size_t* start, const std::size_t* count, int constant) = nullptr;
  Status (*set_selection)(VariableHandle*, std::size_t rank, const std::size_t* start,
                          const std::size_t* count) = nullptr;
  Status (*add_operation)(std::size_t* index, VariableHandle*, OperatorHandle*, const char* key,
                          const char* value) = nullptr;
  Status (*set_operation_parameter)(VariableHandle*, std::size_t index, const char* key, const char* value) = nullptr;
  AttributeHandle* (*define_attribute)(IoHandle*, const char* name, Type, const void* value) = nullptr;
  AttributeHandle* (*define_attribute_array)(IoHandle*, const char* name, Type, const void* values,
                                             std::size_t count) = nullptr;
  Status (*remove_attribute)(int* removed, IoHandle*, const char* name) = nullptr;
  EngineHandle* (*open)(IoHandle*, const char* name, Mode) = nullptr;
  Status (*begin_step)(EngineHandle*, int mode, float timeout_s, StepStatus*) = nullptr;
  Status (*put)(EngineHandle*, VariableHandle*, const void* data, Mode) = nullptr;
  Status (*perform_data_write)(EngineHandle*) = nullptr;
  Status (*end_step)(EngineHandle*) = nullptr;
  Status (*close)(EngineHandle*) = nullptr;
};

/// Keeps from standard error what ADIOS2 prints there while this lives: its calls say that they failed,
/// and print why. Of the whole process, so not for long.
class Complaints {
 public:
  Complaints();
  ~Complaints();
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;

  /// What was printed last, in one line, without ADIOS2's marks; empty: nothing.
  [[nodiscard]] std::string last() const;

 private:
  int standard_error_ = -1, kept_ = -1;
};

/// Loaded once; any thread. Errors: Code::unsupported, with what to do, where there is none.
Result<const Library*> library();

}  // namespace advectio::adios2
