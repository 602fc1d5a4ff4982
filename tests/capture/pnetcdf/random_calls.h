// What the two halves of random_calls share: the dataset in hand, and how a call and its answer are printed.
#pragma once

#include <mpi.h>
#include <pnetcdf.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace random_calls {

inline int rank = 0, ranks = 1;
inline FILE* out = nullptr;

/// The same on all ranks, or of this one.
inline std::mt19937_64 of_all, of_this;
inline int below(std::mt19937_64& bits, int n) {
  return static_cast<int>(bits() % static_cast<std::uint64_t>(n));
}
inline int together(int n) {
  return below(of_all, n);
}
inline bool all_chance(int percent) {
  return together(100) < percent;
}
inline int own(int n) {
  return below(of_this, n);
}
inline bool own_chance(int percent) {
  return own(100) < percent;
}
inline void barrier() {
  MPI_Barrier(MPI_COMM_WORLD);
}

inline int nc = -1;
inline std::string path;
enum class Mode { define, collective, independent };
inline Mode mode;
inline int ended_variables = 0;  // those that have left define mode
inline bool ever_ended = false;
inline int named = 0;
inline bool attached = false, created = false;

inline const char* name_of(int code) {
  return code == NC_NOERR ? "ok" : ncmpi_strerrno(code);
}
inline int said(const std::string& what, int code) {
  std::fprintf(out, "%s: %s\n", what.c_str(), name_of(code));
  return code;
}
#define DO(CALL) said(#CALL, CALL)
inline std::string number(long long n) {
  return " " + std::to_string(n);
}

// --- what there is -------------------------------------------------------------------------------------------------

inline int count_of_variables() {
  int n = 0;
  ncmpi_inq_nvars(nc, &n);
  return n;
}
struct Variable {
  int id = -1;
  nc_type type = NC_NAT;
  std::vector<MPI_Offset> lengths;
  bool record = false;
  [[nodiscard]] bool text() const { return type == NC_CHAR; }
};
inline MPI_Offset records() {
  int d = -1;
  MPI_Offset n = 0;
  if (ncmpi_inq_unlimdim(nc, &d) == NC_NOERR && d >= 0) ncmpi_inq_dimlen(nc, d, &n);
  return n;
}
inline Variable variable(int id) {
  Variable v;
  int n = 0, dims[NC_MAX_VAR_DIMS > 64 ? 64 : NC_MAX_VAR_DIMS], unlimited = -1;
  v.id = id;
  if (ncmpi_inq_varndims(nc, id, &n) != NC_NOERR) return v;
  ncmpi_inq_var(nc, id, nullptr, &v.type, nullptr, dims, nullptr);
  ncmpi_inq_unlimdim(nc, &unlimited);
  for (int i = 0; i < n; ++i) {
    MPI_Offset length = 0;
    ncmpi_inq_dimlen(nc, dims[i], &length);
    v.lengths.push_back(length);
  }
  v.record = n > 0 && dims[0] == unlimited;
  return v;
}

// --- puts and gets, in random_data.cpp -----------------------------------------------------------------------------

inline constexpr std::size_t room = 4096;
enum Way { alone, all, posted, buffered };

template <typename T>
void print_values(const std::vector<T>& data) {
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) sum += static_cast<double>(data[i]) * static_cast<double>(i % 17 + 1);
  std::fprintf(out, "  %.17g:", sum);
  for (std::size_t i = 0; i < 12; ++i) std::fprintf(out, " %.9g", static_cast<double>(data[i]));
  std::fprintf(out, "\n");
}

/// Nothing of an earlier dataset is pending.
void begin_pending();
void wait(bool collective);
void cancel();
void say_buffer();

/// Of those whose every element is known; none: -1.
int any_variable(std::mt19937_64& bits, int n);
void put_somewhere(Way way);
void get_somewhere(Way way);
/// This rank's part of a variable, or of one of its records.
void put_part(const Variable& v, MPI_Offset record);
int fill_record(int id, MPI_Offset record);
void complete_records(MPI_Offset from, MPI_Offset to);
/// Records behind the last, by any of the ways there are.
void grow();

}  // namespace random_calls
