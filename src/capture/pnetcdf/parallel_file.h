// One dataset that the program believes is a PnetCDF file: the shadow in the real library, this rank's own and without
// data, which holds the metadata and answers for it, and the SharedDataset, which takes the data away.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/convert.h"
#include "capture/pnetcdf/real_library.h"
#include "core/schema.h"

namespace advectio {

/// The error number that a program gets for a failure on our side.
int code_of(const Error& error) noexcept;

enum class Form : std::uint8_t { var, var1, vara, vars, varm };
enum class Mode : std::uint8_t {
  independent,
  collective,
  posted,    ///< iput, iget
  buffered,  ///< bput
};

/// What a typed or a flexible call says of the program's memory.
struct MemoryType {
  nc_type type = NC_NAT;  ///< of the elements; NC_NAT: flexible, see `datatype`
  MPI_Offset count = -1;
  MPI_Datatype datatype{};
};

/// One block of a call. What the form does not have is null.
struct Request {
  Form form = Form::vara;
  int variable = -1;
  const MPI_Offset* start = nullptr;
  const MPI_Offset* count = nullptr;
  const MPI_Offset* stride = nullptr;
  const MPI_Offset* map = nullptr;  ///< in elements
  const void* data = nullptr;
  MemoryType memory;
};

struct Answer {
  int code = NC_NOERR;
  /// The call cannot be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
};

class ParallelFile {
 public:
  ParallelFile(const RealLibrary& real, int ncid, std::string path, std::string shadow, int rank, int ranks,
               std::unique_ptr<SharedDataset> out);
  ~ParallelFile();
  ParallelFile(const ParallelFile&) = delete;
  ParallelFile& operator=(const ParallelFile&) = delete;

  const RealLibrary& lib;
  const int ncid;          ///< of the shadow, and for the program
  const std::string path;  ///< as the program gave it

  [[nodiscard]] SharedDataset& out() noexcept { return *out_; }
  /// The same for a collective call, whose turn ends with it.
  [[nodiscard]] SharedDataset* turns(bool collective = true) noexcept { return collective ? out_.get() : nullptr; }

  // --- modes and metadata ----------------------------------------------------------------------------------------
  int redef();
  int enddef();
  /// Some programs define one thing at a time, and PnetCDF copies its whole header at each redef. So the shadow stays
  /// in define mode until a call comes whose answer depends on the mode, which must be preceded by this.
  int settle();
  /// Define mode has begun or ended.
  void defines(bool now);
  void independent(bool now);
  [[nodiscard]] bool defining() const noexcept { return defining_; }
  [[nodiscard]] bool independent() const noexcept { return independent_; }
  /// Before the shadow leaves define mode: it is not to fill its variables, for it would then hold them.
  void keep_shadow_empty();
  void align(MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad, MPI_Offset record_align);
  [[nodiscard]] bool filled(int variable) const noexcept;
  void set_filled(int variable, bool filled);
  int fill_record(int variable, MPI_Offset record);
  /// The schema has changed, in data mode or with its end.
  void touch() noexcept {
    dirty_ = true;
    if (rank_ == 0) out_->owe_schema();
  }
  [[nodiscard]] int record_dimension();

  // --- data ------------------------------------------------------------------------------------------------------
  /// All blocks or, where one cannot be right, none. `request`: where a posted call gets its number.
  Answer put(Mode mode, const std::vector<Request>& requests, int* request);
  /// A varn call: many boxes of one variable, out of one run of memory.
  Answer put_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                   const void* data, const MemoryType& memory, int* request);

  /// A dataset of the real library, opened on the file itself, in which everything put so far can be read.
  struct Reading {
    int code = NC_NOERR;
    bool ask_shadow = false;
    int ncid = -1, variable = -1;
  };
  Reading read(Mode mode, int variable);
  int variable_in_reader(int variable);

  // --- requests --------------------------------------------------------------------------------------------------
  int post_get(const Request& request, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts, int* id);
  int wait(bool collective, int count, int* ids, int* statuses);
  int cancel(int count, int* ids, int* statuses);
  int attach(MPI_Offset bytes);
  int detach();
  int usage(MPI_Offset* bytes) const;
  int attached(MPI_Offset* bytes) const;
  [[nodiscard]] int pending() const noexcept { return static_cast<int>(puts_.size() + gets_.size()); }

  // --- frames and the end ----------------------------------------------------------------------------------------
  int sync();
  int close();
  int abort();
  /// The program has ended without closing it; MPI may have ended too.
  void close_at_exit();

  std::uint64_t bytes_put = 0;

 private:
  struct Known {
    nc_type type = NC_NAT;
    std::size_t element = 0;
    std::vector<std::uint64_t> lengths;
    bool record = false;
  };
  /// A posted call whose blocks are in the journal, pending.
  struct Posted {
    std::vector<std::uint64_t> sequences;
    std::uint64_t records = 0;
    MPI_Offset buffered = 0;
  };
  /// A posted read. It is made when it is waited for.
  struct PostedGet {
    int variable = -1;
    struct Piece {
      std::vector<MPI_Offset> start, count, stride, map;
      void* data = nullptr;
    };
    std::vector<Piece> pieces;
    MPI_Offset count = -1;
    MPI_Datatype datatype{};
    bool own_type = false;
  };
  /// A block in the making.
  struct Place {
    Box box;
    std::vector<std::uint64_t> stride;
    std::vector<MPI_Offset> map;
    std::uint64_t records = 0;
  };

  const Known* known(int variable);
  const Schema& read_schema();
  int flush_schema();
  bool right_mode(Mode mode) const noexcept;
  bool surely_fits();
  bool place(const Request& request, const Known& variable, Place& to);
  bool element_type(MPI_Datatype datatype, nc_type& type) const;
  bool memory_fits(const MemoryType& memory, const Known& variable, std::uint64_t elements, nc_type& type) const;
  int send(const Request& request, const Known& variable, const Place& place, nc_type type);
  int send_converted(int variable, const Known& known, const Place& place, const std::byte* data, nc_type type);
  Answer put_placed(Mode mode, const std::vector<Request>& requests, const std::vector<Place>& places,
                    const std::vector<nc_type>& types, int* request);
  int run(const PostedGet& get, bool collective);
  void forget(PostedGet& get);
  void drop_pending();
  void close_reader();
  void close_shadow();

  std::unique_ptr<SharedDataset> out_;
  const std::string shadow_;
  const int rank_, ranks_;
  FileFormat format_ = FileFormat::classic;
  bool shadow_open_ = true;
  bool defining_ = true, independent_ = false, fresh_ = true;
  bool owed_ = false;  ///< the program has left define mode, the shadow has not

  Schema schema_;
  bool dirty_ = true;
  std::vector<Known> known_;
  std::vector<bool> filled_;
  int settled_variables_ = 0;                      ///< those of them that the program has taken out of define mode
  std::uint64_t bytes_defined_ = 0, largest_ = 0;  ///< of these, with one record

  std::map<int, Posted> puts_;
  std::map<int, PostedGet> gets_;
  bool attached_ = false;
  MPI_Offset buffer_bytes_ = 0;

  Converter converter_;
  int reader_ = -1;
  bool reader_independent_ = false;
};

/// Reports the time spent in our code as stall of the frame.
class Stall {
 public:
  explicit Stall(ParallelFile& file) noexcept;
  ~Stall();
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

 private:
  ParallelFile& file_;
  std::uint64_t begin_;
};

}  // namespace advectio
