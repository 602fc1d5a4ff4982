// Posted calls of one dataset, and the buffer that some of them are counted against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/pnetcdf/real_library.h"
#include "capture/pnetcdf/request.h"

namespace advectio::pnetcdf {

struct Posted {
  int id = 0;
  /// It is waited for. As in the library, it stays so where the wait fails, and its number no
  /// longer finds it.
  bool chosen = false;
  int* status = nullptr;
};

/// Its blocks are in the journal, pending.
struct PostedPut : Posted {
  std::vector<std::uint64_t> sequences;
  std::uint64_t records = 0;
  int buffered = -1;  ///< its place in the attached buffer
};

/// The read is made when it is waited for.
struct PostedGet : Posted {
  int variable = -1;
  /// Of a varn call: `start` and `count` of each box. The boxes lie one behind the other in memory.
  bool boxes = false;
  std::vector<std::vector<MPI_Offset>> start, count;
  std::vector<MPI_Offset> stride, map;
  void* data = nullptr;
  MPI_Offset elements = -1;  ///< of `datatype`; -1: as many as the place has
  MPI_Datatype datatype{};
  bool own_type = false;
};

/// The buffer of ncmpi_buffer_attach. We copy blocks at once, so only its bytes are counted.
class AttachedBuffer {
 public:
  void attach(MPI_Offset bytes);
  void detach() noexcept { attached_ = false; }
  [[nodiscard]] bool attached() const noexcept { return attached_; }
  [[nodiscard]] MPI_Offset used() const noexcept { return used_; }
  [[nodiscard]] MPI_Offset free() const noexcept { return bytes_ - used_; }
  void make_room();
  /// The place of what is taken.
  int take(MPI_Offset bytes);
  /// No longer used. It is free again after `give_back`.
  void release(int place) noexcept;
  /// As in the library, only from the end.
  void give_back() noexcept;
  void give_back_all() noexcept;

 private:
  struct Taken {
    MPI_Offset bytes = 0;
    bool used = false;
  };
  bool attached_ = false;
  MPI_Offset bytes_ = 0, used_ = 0;
  std::vector<Taken> taken_;  ///< in the order it was taken
};

class Requests {
 public:
  Requests(const RealLibrary& lib, int ncid) : lib_(lib), ncid_(ncid) {}

  // As the library numbers them: puts even, gets odd, from the start where none is pending.
  int number_of_put() noexcept { return last_put_ = puts.empty() ? 0 : last_put_ + 2; }
  int number_of_get() noexcept { return last_get_ = gets.empty() ? 1 : last_get_ + 2; }
  [[nodiscard]] bool empty() const noexcept { return puts.empty() && gets.empty(); }
  [[nodiscard]] int pending() const noexcept { return static_cast<int>(puts.size() + gets.size()); }

  /// For one more put: noting it then fails for no lack of memory.
  void make_room();
  /// A get that has been found right.
  void post(PostedGet get, const MemoryType& memory, int* id);
  /// Mark what a wait is for, as the library finds it: by the count where that is enough, else by
  /// numbers.
  int choose(int count, int* ids, int* statuses);
  /// Remove the chosen puts. Returns their sequences and the number of records that they make.
  struct Done {
    std::vector<std::uint64_t> sequences;
    std::uint64_t records = 0;
  };
  Done take_chosen_puts();
  /// As ncmpi_cancel. `dropped`: what the cancelled puts have put.
  int cancel(int count, int* ids, int* statuses, std::vector<std::uint64_t>& dropped);
  /// The get goes. Its datatype may be ours.
  void forget(PostedGet& get) const;

  // As ncmpi_buffer_attach, ncmpi_buffer_detach and ncmpi_inq_buffer_usage.
  int attach(MPI_Offset bytes);
  int detach();
  int usage(MPI_Offset* bytes) const;

  std::vector<PostedPut> puts;
  std::vector<PostedGet> gets;
  AttachedBuffer buffer;

 private:
  void drop(const PostedPut& put, std::vector<std::uint64_t>& dropped);
  const RealLibrary& lib_;
  const int ncid_;
  int last_put_ = 0, last_get_ = 1;  ///< the numbers that were given last
};

}  // namespace advectio::pnetcdf
