// One dataset that the program believes is a PnetCDF file: the shadow in the real library, this
// rank's own and without data, which holds the metadata and answers for it, and the SharedDataset,
// which takes the data away.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/defined_sizes.h"
#include "capture/pnetcdf/fill_modes.h"
#include "capture/pnetcdf/place.h"
#include "capture/pnetcdf/puts.h"
#include "capture/pnetcdf/reader.h"
#include "capture/pnetcdf/real_library.h"
#include "capture/pnetcdf/request.h"
#include "capture/pnetcdf/requests.h"
#include "capture/pnetcdf/sent_schema.h"
#include "capture/pnetcdf/variables.h"
#include "capture/shadow/define_mode.h"
#include "capture/shadow/stall.h"
#include "workflow/workflow.h"

namespace advectio::pnetcdf {

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
  /// Where it is coupled: what the server publishes when it is complete.
  std::optional<workflow::Opened> coupled;

  [[nodiscard]] SharedDataset& out() noexcept { return *out_; }
  /// The same for a collective call, whose collective index ends with it.
  [[nodiscard]] SharedDataset* collective_out(bool collective = true) noexcept {
    return collective ? out_.get() : nullptr;
  }

  /// The file was there, with so many records; the shadow has its definitions. Rank 0 sends the
  /// schema.
  int take_up(MPI_Offset records);

  // --- modes and metadata -----------------------------------------------------------------------
  int redef();
  /// `pads`: the four of ncmpi__enddef, or null.
  int enddef(const MPI_Offset* pads);
  /// End what is pending. Called before each call whose answer depends on the mode. Some programs
  /// define one thing at a time, and PnetCDF copies its whole header at each redef; so the shadow
  /// stays in define mode until then.
  int end_pending();
  void independent(bool now);
  [[nodiscard]] bool independent() const noexcept { return independent_; }
  [[nodiscard]] bool defining() const noexcept { return define_mode_.defining(); }
  [[nodiscard]] Variables& variables() noexcept { return variables_; }
  [[nodiscard]] FillModes& fill_modes() noexcept { return fill_modes_; }
  [[nodiscard]] const SentSchema& schema() const noexcept { return schema_; }
  /// `refused`: the call is wrong.
  int fill_record(int variable, MPI_Offset record, bool& refused);
  /// An attribute of that variable, or of the dataset (NC_GLOBAL), or its name may have changed.
  void touch(int variable);
  void touch_dimensions();

  // --- data -------------------------------------------------------------------------------------
  [[nodiscard]] bool right_mode(Mode mode) const noexcept;
  /// PnetCDF refuses a collective call in the wrong mode on this rank alone. In one that is wrong
  /// otherwise the rank takes part with nothing.
  [[nodiscard]] SharedDataset* collective_out(Mode mode) noexcept {
    return collective_out(mode == Mode::collective && right_mode(mode));
  }
  /// All blocks or, where one cannot be right, none. `request`: where a posted call gets its
  /// number.
  Answer put(Mode mode, const std::vector<Request>& requests, int* request);
  /// A varn call: many boxes of one variable, out of one run of memory.
  Answer put_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                   const void* data, const MemoryType& memory, int* request);

  /// A dataset of the real library, opened on the file itself, in which everything put so far can
  /// be read.
  struct Reading {
    int code = NC_NOERR;
    bool ask_shadow = false;
    bool done = false;  ///< nothing is left to be called; `code` is the answer
    int ncid = -1;
    std::vector<int> variables;  ///< of the requests, as the reader knows them
  };
  Reading read(Mode mode, const std::vector<Request>& requests);
  Reading read_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                     const MemoryType& memory);
  /// The shadow has been asked about a posted call: it shall not hold a request, nor the program
  /// that one's number.
  int answered(const Answer& answer, int code, int* request);

  // --- requests ---------------------------------------------------------------------------------
  Answer post_get(const Request& request, int* id);
  Answer post_get_boxes(int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts, void* data,
                        const MemoryType& memory, int* id);
  int wait(bool collective, int count, int* ids, int* statuses);
  int cancel(int count, int* ids, int* statuses);
  [[nodiscard]] Requests& requests() noexcept { return requests_; }

  // --- frames and the end -----------------------------------------------------------------------
  int sync();
  int close();
  int abort();
  /// The program has ended without closing it; MPI may have ended too.
  void keep_all() noexcept {}
  void close_at_exit();

  std::uint64_t bytes_put = 0;

  /// For the time spent in our code, in every call that may take any.
  shadow::StallClock& stall() noexcept { return stall_; }

 private:
  int fill_added_records(std::size_t first);
  /// Before the shadow is asked about a read: it checks places by its own number of records.
  void show_records();
  Answer put_placed(Mode mode, MPI_Offset bytes, int* request, const std::function<int(PostedPut&)>& send);
  class PendingPuts;
  void drop_pending(bool say);
  int finish();
  int remove();
  void close_shadow();

  std::unique_ptr<SharedDataset> out_;
  shadow::StallClock stall_;
  const std::string shadow_;
  const int rank_, ranks_;
  FileFormat format_ = FileFormat::classic;
  bool shadow_open_ = true;
  shadow::DefineMode define_mode_;
  bool independent_ = false;

  Variables variables_;
  FillModes fill_modes_;
  DefinedSizes sizes_;
  SentSchema schema_;
  MPI_Offset shown_records_ = 0;  ///< as many as the shadow has
  Requests requests_;
  Reader reader_;
  Puts puts_;
};

}  // namespace advectio::pnetcdf
