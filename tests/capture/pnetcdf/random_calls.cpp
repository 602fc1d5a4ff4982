// random_calls FIRST LAST [STEPS]: for each seed from FIRST to LAST a random but repeatable conversation of all ranks
// with the PnetCDF library about SEED.nc. Every return code and everything read is printed to answers.<rank>, so that
// two runs can be compared. STEPS: no more than that many, to find where two runs part. Knows nothing of Advectio.
//
// What is left out, because the library itself does not do the same twice, or breaks:
// * Ranks put into parts of their own (along the last dimension), and read those of others behind a barrier only.
// * Nothing is read that was neither put nor filled: what is added is put as a whole at once, unless it is filled.
// * A collective call is wrong on all ranks or on none: the library's ranks then make other MPI calls, and hang.
// * A wait_all with numbers that are not there has only such: what else it names would never be written. And as many
//   that it cannot mean all there are.
// * Values out of range in mput, mget and independent varn calls: the library leaves their requests pending.
// * Floating numbers that no integer can hold: what is stored is undefined.
// * A `_FillValue` that is renamed, copied or deleted.
// * Which status is whose, where a wait names as many requests as are pending.
// * What a posted read of `long` finds in floating variables: where it is out of range, another fill value.
// * New records by one of several pending calls: the library may overlook them. And blocking varn, mput and mget calls
//   of nothing: those end what is pending.
// * A put of nothing beyond the last record, and what depends on the layout: see docs/pnetcdf-interposer.md.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "random_calls.h"

using namespace random_calls;

namespace {

// --- definitions ---------------------------------------------------------------------------------------------------

std::string any_name(const char* kind) {
  if (all_chance(4)) return all_chance(50) ? "" : "a/b";
  return kind + std::to_string(all_chance(30) && named > 0 ? together(named) : named++) +
         std::string(static_cast<std::size_t>(together(4)), 'x');
}
int any_id(int n) {
  return all_chance(4) ? 99 : n == 0 ? 0 : together(n);
}

void define_dimension() {
  const MPI_Offset length = all_chance(5) ? -1 : all_chance(8) ? NC_UNLIMITED : 1 + together(6);
  const auto name = any_name("d");
  int id = -1;
  said("def_dim " + name + number(length), ncmpi_def_dim(nc, name.c_str(), length, &id));
}

void define_variable() {
  int dims[4], n = 0, count = 0, unlimited = -1;
  ncmpi_inq_ndims(nc, &n);
  ncmpi_inq_unlimdim(nc, &unlimited);
  const int number_of_dimensions = together(4);
  for (int i = 0; i < number_of_dimensions; ++i) {
    int d = any_id(n);
    if (i == 0 && unlimited >= 0 && all_chance(50)) d = unlimited;
    dims[count++] = d;
  }
  const nc_type type = all_chance(3) ? 77 : 1 + together(all_chance(80) ? 6 : 11);
  const auto name = any_name("v");
  int id = -1;
  std::string what = "def_var " + name + number(type);
  for (int i = 0; i < count; ++i) what += number(dims[i]);
  said(what, ncmpi_def_var(nc, name.c_str(), type, count, dims, &id));
}

void put_attribute() {
  const int v = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
  auto name = any_name("a");
  nc_type type = 1 + together(all_chance(80) ? 6 : 11);
  MPI_Offset count = together(5);
  if (v != NC_GLOBAL && all_chance(15)) {
    name = "_FillValue";
    if (all_chance(80)) type = variable(v).type;
    if (all_chance(85)) count = 1;
  }
  int ints[8];
  double doubles[8];
  signed char chars[8];
  for (int i = 0; i < 8; ++i) {
    ints[i] = together(all_chance(20) ? 70000 : 100);
    doubles[i] = together(100);
    chars[i] = static_cast<signed char>(together(100));
  }
  const std::string what = "att " + name + number(v) + number(type) + number(count);
  switch (type == NC_CHAR ? 3 : together(4)) {
    case 0: said(what + " int", ncmpi_put_att_int(nc, v, name.c_str(), type, count, ints)); break;
    case 1: said(what + " double", ncmpi_put_att_double(nc, v, name.c_str(), type, count, doubles)); break;
    case 2: said(what + " schar", ncmpi_put_att_schar(nc, v, name.c_str(), type, count, chars)); break;
    default: said(what + " text", ncmpi_put_att_text(nc, v, name.c_str(), count, "abcdefgh")); break;
  }
}

void change_names() {
  int n = 0;
  ncmpi_inq_ndims(nc, &n);
  switch (together(5)) {
    case 0: {
      const auto name = any_name("d");
      const int id = any_id(n);
      said("rename_dim" + number(id) + " " + name, ncmpi_rename_dim(nc, id, name.c_str()));
      break;
    }
    case 1: {
      const auto name = any_name("v");
      const int id = any_id(count_of_variables());
      said("rename_var" + number(id) + " " + name, ncmpi_rename_var(nc, id, name.c_str()));
      break;
    }
    case 2: {
      const auto name = any_name("a"), next = any_name("a");
      const int id = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
      said("rename_att" + number(id) + " " + name + " " + next, ncmpi_rename_att(nc, id, name.c_str(), next.c_str()));
      break;
    }
    case 3: {
      const auto name = any_name("a");
      const int id = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables());
      said("del_att" + number(id) + " " + name, ncmpi_del_att(nc, id, name.c_str()));
      break;
    }
    default: {
      const auto name = any_name("a");
      const int from = all_chance(30) ? NC_GLOBAL : any_id(count_of_variables()), to = any_id(count_of_variables());
      said("copy_att" + number(from) + number(to) + " " + name, ncmpi_copy_att(nc, from, name.c_str(), nc, to));
      break;
    }
  }
}

void choose_fill() {
  if (all_chance(25)) {
    int before = -7;
    const int mode_ = all_chance(10) ? 5 : all_chance(60) ? NC_FILL : NC_NOFILL;
    said("set_fill" + number(mode_), ncmpi_set_fill(nc, mode_, &before));
    std::fprintf(out, "  before %d\n", before);
    return;
  }
  const int id = all_chance(5) ? NC_GLOBAL : any_id(count_of_variables());
  const int no_fill = all_chance(20) ? 1 : 0;
  double value[2] = {0, 0};
  std::memset(value, together(100), sizeof value);
  const void* with = all_chance(50) ? value : nullptr;
  // Its bytes are to be a number that is nothing special.
  if (with != nullptr && (variable(id).type == NC_FLOAT || variable(id).type == NC_DOUBLE)) with = nullptr;
  said("def_var_fill" + number(id) + number(no_fill) + (with != nullptr ? " with" : ""),
       ncmpi_def_var_fill(nc, id, no_fill, with));
}

/// What is defined and not filled is put as a whole.
void define_mode_has_ended() {
  mode = Mode::collective;
  ever_ended = true;
  barrier();
  const int before = ended_variables;
  ended_variables = count_of_variables();
  const auto n = records();
  for (int id = before; id < ended_variables; ++id) {
    const Variable v = variable(id);
    int no_fill = 1;
    ncmpi_inq_var_fill(nc, id, &no_fill, nullptr);
    std::fprintf(out, "new %d no_fill %d\n", id, no_fill);
    if (no_fill == 0) continue;
    if (!v.record) put_part(v, 0);
    for (MPI_Offset r = 0; v.record && r < n; ++r) put_part(v, r);
  }
}

void end_definitions() {
  int code = NC_NOERR;
  if (all_chance(25)) {
    const MPI_Offset pad = all_chance(5) ? -1 : together(300), align = 4 * together(40), behind = together(100),
                     record_align = 4 * together(9);
    code = said("_enddef" + number(pad) + number(align) + number(behind) + number(record_align),
                ncmpi__enddef(nc, pad, align, behind, record_align));
  } else {
    code = DO(ncmpi_enddef(nc));
  }
  if (code == NC_NOERR) define_mode_has_ended();
}

// --- what there is, in words ---------------------------------------------------------------------------------------

void say_attributes(int v, int n) {
  for (int i = 0; i < n; ++i) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    MPI_Offset count = 0;
    unsigned char bytes[256] = {};
    ncmpi_inq_attname(nc, v, i, name);
    ncmpi_inq_att(nc, v, name, &type, &count);
    const int code = ncmpi_get_att(nc, v, name, bytes);
    std::fprintf(out, "    %s %d %lld %s ", name, type, static_cast<long long>(count), name_of(code));
    for (int k = 0; k < 40; ++k) std::fprintf(out, "%02x", bytes[k]);
    std::fprintf(out, "\n");
  }
}

void inquire() {
  int dims = 0, vars = 0, atts = 0, unlimited = -2, fixed = -1, with_records = -1, format = -1;
  DO(ncmpi_inq(nc, &dims, &vars, &atts, &unlimited));
  ncmpi_inq_format(nc, &format);
  // Of a file that has been opened the library does not know them.
  if (created) {
    ncmpi_inq_num_fix_vars(nc, &fixed);
    ncmpi_inq_num_rec_vars(nc, &with_records);
  }
  std::fprintf(out, "  %d %d %d %d format %d variables %d %d\n", dims, vars, atts, unlimited, format, fixed,
               with_records);
  for (int d = 0; d < dims; ++d) {
    char name[NC_MAX_NAME + 1] = {};
    MPI_Offset length = -1, again = -1;
    ncmpi_inq_dim(nc, d, name, &length);
    ncmpi_inq_dimlen(nc, d, &again);
    std::fprintf(out, "  dim %s %lld %lld\n", name, static_cast<long long>(length), static_cast<long long>(again));
  }
  say_attributes(NC_GLOBAL, atts);
  for (int v = 0; v < vars; ++v) {
    char name[NC_MAX_NAME + 1] = {};
    nc_type type = NC_NAT;
    int n = 0, ids[64] = {}, count = 0, no_fill = -1;
    unsigned char fill[16] = {};
    ncmpi_inq_var(nc, v, name, &type, &n, ids, &count);
    const int code = ncmpi_inq_var_fill(nc, v, &no_fill, fill);
    std::fprintf(out, "  var %s %d %d (%d %d %d) fill %s %d %02x%02x%02x%02x\n", name, type, n, ids[0], ids[1], ids[2],
                 name_of(code), no_fill, fill[0], fill[1], fill[2], fill[3]);
    say_attributes(v, count);
  }
}

void read_all() {
  barrier();
  for (int id = 0; id < count_of_variables(); ++id) {
    const Variable v = variable(id);
    std::vector<double> numbers(room, 7);
    std::vector<char> text(room, 7);
    if (v.text()) {
      said("whole" + number(id), ncmpi_get_var_text_all(nc, id, text.data()));
      print_values(text);
    } else {
      said("whole" + number(id), ncmpi_get_var_double_all(nc, id, numbers.data()));
      print_values(numbers);
    }
  }
  barrier();
}

// --- the conversation ----------------------------------------------------------------------------------------------

/// Alone, in independent data mode.
void step_alone() {
  switch (own(10)) {
    case 0:
    case 1:
    case 2: put_somewhere(alone); break;
    case 3:
    case 4: get_somewhere(alone); break;
    case 5: put_somewhere(own_chance(50) ? buffered : posted); break;
    case 6: get_somewhere(posted); break;
    case 7: wait(false); break;
    case 8: cancel(); break;
    default: say_buffer(); break;
  }
}

void any_time() {
  switch (own(4)) {
    case 0: say_buffer(); break;
    case 1: cancel(); break;
    case 2: put_somewhere(own_chance(50) ? buffered : posted); break;
    default: get_somewhere(posted); break;
  }
}

void buffer() {
  if (all_chance(60)) {
    const MPI_Offset bytes = all_chance(10) ? 0 : 40 + together(2000);
    if (said("attach" + number(bytes), ncmpi_buffer_attach(nc, bytes)) == NC_NOERR) attached = true;
  } else if (DO(ncmpi_buffer_detach(nc)) == NC_NOERR) {
    attached = false;
  }
}

/// False: the dataset is over.
bool step() {
  if (mode == Mode::define) {
    switch (together(20)) {
      case 0:
      case 1:
      case 2: define_dimension(); break;
      case 3:
      case 4:
      case 5:
      case 6: define_variable(); break;
      case 7:
      case 8:
      case 9: put_attribute(); break;
      case 10: change_names(); break;
      case 11: choose_fill(); break;
      case 12: inquire(); break;
      case 13:
        switch (together(5)) {
          case 0: DO(ncmpi_redef(nc)); break;
          case 1: DO(ncmpi_begin_indep_data(nc)); break;
          case 2: DO(ncmpi_sync(nc)); break;
          case 3: DO(ncmpi_sync_numrecs(nc)); break;
          default: wait(true); break;
        }
        break;
      case 14: {
        if (ended_variables == 0) break;
        const double none[room / 64] = {};
        const MPI_Offset start[4] = {}, count[4] = {1, 1, 1, 1};
        said("in define mode", ncmpi_put_vara_double_all(nc, 0, start, count, none));
        break;
      }
      case 15:
        // Behind the records there are: the number of these is not shown to whoever asks in define mode.
        if (ever_ended) put_somewhere(own_chance(50) ? buffered : posted);
        break;
      default: end_definitions(); break;
    }
    return true;
  }
  switch (together(30)) {
    case 0: {
      if (DO(ncmpi_redef(nc)) == NC_NOERR) mode = Mode::define;
      break;
    }
    case 1:
    case 2: {
      DO(ncmpi_begin_indep_data(nc));
      mode = Mode::independent;
      barrier();
      for (int n = own(8); n > 0; --n) step_alone();
      if (all_chance(10)) DO(ncmpi_sync(nc));
      if (all_chance(10)) DO(ncmpi_sync_numrecs(nc));
      if (all_chance(10)) wait(true);
      if (all_chance(10)) {
        const int code = DO(ncmpi_redef(nc));
        if (code == NC_NOERR) mode = Mode::define;
        return true;
      }
      DO(ncmpi_end_indep_data(nc));
      mode = Mode::collective;
      barrier();
      break;
    }
    case 3:
    case 4: grow(); break;
    case 5: {
      const auto n = records();
      const int id = any_variable(of_all, ended_variables);
      if (id < 0 || n > 6) break;
      const auto r = n == 0 || all_chance(20) ? n : together(static_cast<int>(n));
      said("fill_var_rec" + number(id) + number(r), fill_record(id, r));
      complete_records(n, records());
      break;
    }
    case 6: DO(ncmpi_sync(nc)); break;
    case 7: put_attribute(); break;
    case 8: change_names(); break;
    case 9: inquire(); break;
    case 10: buffer(); break;
    case 11:
    case 12:
    case 13: wait(true); break;
    case 14:
    case 15:
    case 16: any_time(); break;
    case 17:
      switch (together(6)) {
        case 0: DO(ncmpi_enddef(nc)); break;
        case 1: DO(ncmpi_end_indep_data(nc)); break;
        case 2: DO(ncmpi_flush(nc)); break;
        case 3: DO(ncmpi_sync_numrecs(nc)); break;
        case 4: wait(false); break;
        default: define_variable(); break;
      }
      break;
    case 18: {
      if (ended_variables == 0) break;
      double none[4] = {};
      const MPI_Offset start[4] = {}, count[4] = {1, 1, 1, 1};
      said("in collective mode", ncmpi_get_vara_double(nc, 0, start, count, none));
      break;
    }
    case 19: read_all(); break;
    case 20:
    case 21:
    case 22:
    case 23: get_somewhere(all); break;
    default: put_somewhere(all); break;
  }
  return true;
}

void look_at(const std::string& name, int how) {
  if (said("open", ncmpi_open(MPI_COMM_WORLD, name.c_str(), how, MPI_INFO_NULL, &nc)) != NC_NOERR) return;
  created = false;
  ended_variables = count_of_variables();
  inquire();
  read_all();
  if (how == NC_WRITE) {
    mode = Mode::collective;
    put_somewhere(all);
    read_all();
  }
  DO(ncmpi_close(nc));
}

void converse(int steps) {
  const int modes[] = {0, NC_64BIT_OFFSET, NC_64BIT_DATA};
  const int how = modes[together(3)] | (all_chance(10) ? NC_NOCLOBBER : NC_CLOBBER);
  const bool otherwise = all_chance(5) && rank > 0;
  begin_pending();
  attached = ever_ended = false;
  created = true;
  ended_variables = 0;
  named = 0;
  mode = Mode::define;
  barrier();
  const int code =
      said("create", ncmpi_create(MPI_COMM_WORLD, path.c_str(), otherwise ? modes[own(3)] : how, MPI_INFO_NULL, &nc));
  if (code != NC_NOERR && code != NC_EMULTIDEFINE_CMODE) return;
  int id = 0;
  if (all_chance(80)) ncmpi_def_dim(nc, "time", NC_UNLIMITED, &id);
  for (int i = 0; i < 3; ++i) {
    const std::string name = "n" + std::to_string(i);
    ncmpi_def_dim(nc, name.c_str(), 1 + together(6), &id);
  }
  for (int i = 0; i < 4; ++i) define_variable();
  for (int i = 0; i < steps; ++i) step();
  if (mode != Mode::define || all_chance(50)) {
    if (mode == Mode::define) end_definitions();
    if (mode != Mode::define) {
      inquire();
      read_all();
    }
  }
  if (all_chance(15)) {
    // Each rank removes a file that was never laid out, and only one can.
    const bool removed = mode == Mode::define && !ever_ended;
    const int aborted = ncmpi_abort(nc);
    if (!removed) said("abort", aborted);
    barrier();
    std::fprintf(out, "there %d\n", access(path.c_str(), F_OK) == 0);
    barrier();
    if (removed) return;
  } else {
    for (int v = ended_variables; mode == Mode::define && v < count_of_variables(); ++v)
      DO(ncmpi_def_var_fill(nc, v, 0, nullptr));
    DO(ncmpi_close(nc));
  }
  barrier();
  std::string name = path;
  if (all_chance(20)) {
    name = path + ".moved";
    if (rank == 0) said("rename", std::rename(path.c_str(), name.c_str()));
    barrier();
  }
  look_at(name, NC_NOWRITE);
  if (all_chance(30)) look_at(name, NC_WRITE);
  if (all_chance(20)) {
    barrier();
    if (rank == 0) said("remove", unlink(name.c_str()));
    barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 3) return 2;
  out = std::fopen(("answers." + std::to_string(rank)).c_str(), "w");
  std::setvbuf(out, nullptr, _IOLBF, 0);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (auto seed = std::strtoull(argv[1], nullptr, 10); seed <= std::strtoull(argv[2], nullptr, 10); ++seed) {
    std::fprintf(out, "seed %llu\n", seed);
    of_all.seed(seed);
    of_this.seed(seed * 1000 + static_cast<unsigned>(rank) + 1);
    path = std::to_string(seed) + ".nc";
    for (int times = all_chance(20) ? 2 : 1; times > 0; --times) {
      int steps = 20 + together(60);
      if (argc > 3) steps = std::min(steps, std::atoi(argv[3]));
      converse(steps);
    }
  }
  std::fclose(out);
  MPI_Finalize();
  return 0;
}
