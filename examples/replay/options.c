#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <netcdf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const help_text =
    "replay: write real model output again, call for call as the model wrote it\n"
    "\n"
    "    mpirun -n 4 replay [options] INPUT...\n"
    "\n"
    "Reads wrfout, wrfrst or any other netCDF file without user-defined types and groups, and writes the same\n"
    "dimensions, variables, attributes and values with the order of calls that WRF (or SCALE) uses. Several inputs "
    "are\n"
    "taken as successive output times; with --order scale as one file for each rank.\n"
    "\n"
    "How it writes\n"
    "  --io METHOD            serial (default): fields are spread over the ranks, gathered by MPI and written by\n"
    "                         rank 0, as WRF's io_form 2. split: every rank writes its patch to NAME_0000,\n"
    "                         NAME_0001, ... with WRF's patch attributes, as io_form 102. pnetcdf: all\n"
    "                         ranks write one file by PnetCDF, each its patch by collective puts, as io_form 11;\n"
    "                         pnetcdf-nonblocking: by posted and buffered puts and one wait a frame, as SCALE and\n"
    "                         ParallelIO do; netcdf4-parallel: by parallel netCDF-4 (nc_create_par), collectively, as\n"
    "                         io_form 13. To measure against: raw (every rank write()s the bytes of its patch to\n"
    "                         NAME_0000, ..., nothing else) and none (frames are made and not written)\n"
    "  --order wrf|scale      wrf (default): enddef, then each global attribute by redef, put, enddef; Times first,\n"
    "                         then fields, then one sync a frame. scale: never enddef; axes by put_var, time by\n"
    "                         put_var1, fields by put_vara, sync\n"
    "  --format F             asked (default: as the input), netcdf4, netcdf4-classic, classic, 64bit-offset, cdf5\n"
    "  --deflate D            asked (default: as the input), none, or a level 1...9 (with shuffle) for all fields\n"
    "  --output PATTERN       name of the files; <date>, <domain>, <n> (number of the file) and <input> (name of the\n"
    "                         input) are filled in. Default wrfout_d<domain>_<date> for WRF's files\n"
    "  --frames N             output times to write (default: as many as there are). More than the inputs hold: they\n"
    "                         are used again with later times and other values\n"
    "  --frames-per-file N    close the file and begin another after N frames (default: as the first input)\n"
    "  --no-sync              never sync a file, as WRF with io_form 11 and 13, and its quilt servers\n"
    "  --marker PATTERN       rank 0 makes a small file of that name when all ranks have closed a file; <n> is the "
    "number\n"
    "                         of the file. As UFS does it: log.f<n>\n"
    "\n"
    "How large, how often\n"
    "  --tile AxB             repeat the domain A times west to east and B times south to north. Tiles are mirrored "
    "so\n"
    "                         that fields stay continuous, and differ in amplitude so that no tile repeats another\n"
    "  --target-mb X          choose AxB such that a frame has at least X MB (10^6 bytes) before compression\n"
    "  --compute SECONDS      floating-point work on all ranks before every frame, calibrated at the start to take "
    "this\n"
    "                         long on the machine as it is then\n"
    "  --compute-work N       the same as a fixed amount of work, as a report names it: for comparing runs\n"
    "\n"
    "What it tells\n"
    "  Timing for Writing NAME for domain N: S elapsed seconds      on stdout after every frame, as WRF does\n"
    "  --report FILE.json     for every frame the seconds spent inside netCDF calls, gathering and computing; bytes;\n"
    "                         when each sync and close came back; run time; and, measured at the start of the same\n"
    "                         run, the time of one memcpy of a frame's bytes into warm memory\n"
    "  --help                 this text\n"
    "\n"
    "Exit code: 0, 1 when something could not be read or written, 2 for wrong options.\n";

const char* const io_names[] = {"serial", "split", "pnetcdf", "pnetcdf-nonblocking", "netcdf4-parallel", "raw", "none"};

static bool may_speak;

static void leave(int code) {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  exit(code);
}

__attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char* format, ...) {
  if (may_speak) {
    va_list arguments;
    va_start(arguments, format);
    fputs("replay: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs(" (replay --help explains)\n", stderr);
    va_end(arguments);
  }
  leave(2);
  abort();
}

static int count_of(const char* option, const char* text) {
  char* end = NULL;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < 1 || value > INT_MAX) {
    wrong("%s wants a whole number from 1, not '%s'", option, text);
  }
  return (int)value;
}

static double positive(const char* option, const char* text) {
  char* end = NULL;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0) || isinf(value)) {
    wrong("%s wants a number, not '%s'", option, text);
  }
  return value;
}

static int choice(const char* option, const char* text, const char* const* names, const int* values, int count) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(text, names[i]) == 0) return values[i];
  }
  wrong("%s does not know '%s'", option, text);
}

struct Options parse_options(int argc, char** argv, bool speak) {
  may_speak = speak;
  enum {
    IO = 1000,
    ORDER,
    FORMAT,
    DEFLATE,
    OUTPUT,
    FRAMES,
    FRAMES_PER_FILE,
    NO_SYNC,
    TILE,
    TARGET,
    COMPUTE,
    WORK,
    MARKER,
    REPORT,
    HELP
  };
  static const struct option options[] = {
      {"io", required_argument, NULL, IO},
      {"order", required_argument, NULL, ORDER},
      {"format", required_argument, NULL, FORMAT},
      {"deflate", required_argument, NULL, DEFLATE},
      {"output", required_argument, NULL, OUTPUT},
      {"frames", required_argument, NULL, FRAMES},
      {"frames-per-file", required_argument, NULL, FRAMES_PER_FILE},
      {"no-sync", no_argument, NULL, NO_SYNC},
      {"tile", required_argument, NULL, TILE},
      {"target-mb", required_argument, NULL, TARGET},
      {"compute", required_argument, NULL, COMPUTE},
      {"compute-work", required_argument, NULL, WORK},
      {"marker", required_argument, NULL, MARKER},
      {"report", required_argument, NULL, REPORT},
      {"help", no_argument, NULL, HELP},
      {NULL, 0, NULL, 0},
  };
  struct Options o = {.tiles_x = 1, .tiles_y = 1, .deflate = DEFLATE_ASKED, .format = FORMAT_ASKED};
  bool io_given = false;
  opterr = 0;
  for (;;) {
    const int here = optind;
    const int option = getopt_long(argc, argv, "", options, NULL);
    if (option == -1) break;
    switch (option) {
      case IO:
        o.io = choice("--io", optarg, io_names,
                      (const int[]){IO_SERIAL, IO_SPLIT, IO_PNETCDF, IO_PNETCDF_NONBLOCKING, IO_NETCDF4_PARALLEL,
                                    IO_RAW, IO_NONE},
                      7);
        io_given = true;
        break;
      case ORDER:
        o.order =
            choice("--order", optarg, (const char* const[]){"wrf", "scale"}, (const int[]){ORDER_WRF, ORDER_SCALE}, 2);
        break;
      case FORMAT:
        o.format =
            choice("--format", optarg,
                   (const char* const[]){"asked", "netcdf4", "netcdf4-classic", "classic", "64bit-offset", "cdf5"},
                   (const int[]){FORMAT_ASKED, NC_FORMAT_NETCDF4, NC_FORMAT_NETCDF4_CLASSIC, NC_FORMAT_CLASSIC,
                                 NC_FORMAT_64BIT_OFFSET, NC_FORMAT_64BIT_DATA},
                   6);
        break;
      case DEFLATE:
        if (strcmp(optarg, "asked") == 0) {
          o.deflate = DEFLATE_ASKED;
        } else if (strcmp(optarg, "none") == 0) {
          o.deflate = 0;
        } else {
          o.deflate = count_of("--deflate", optarg);
          if (o.deflate > 9) wrong("--deflate wants a level from 1 to 9, not '%s'", optarg);
        }
        break;
      case OUTPUT: o.output = optarg; break;
      case FRAMES: o.frames = count_of("--frames", optarg); break;
      case FRAMES_PER_FILE: o.frames_per_file = count_of("--frames-per-file", optarg); break;
      case NO_SYNC: o.no_sync = true; break;
      case TILE: {
        char* end = NULL;
        const long a = strtol(optarg, &end, 10);
        const long b = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
        if (*end != '\0' || a < 1 || b < 1 || a > 10000 || b > 10000)
          wrong("--tile wants AxB, as 3x2, not '%s'", optarg);
        o.tiles_x = (int)a;
        o.tiles_y = (int)b;
        break;
      }
      case TARGET: o.target_mb = positive("--target-mb", optarg); break;
      case COMPUTE: o.compute_s = positive("--compute", optarg); break;
      case WORK: o.compute_work = count_of("--compute-work", optarg); break;
      case MARKER: o.marker = optarg; break;
      case REPORT: o.report = optarg; break;
      case HELP:
        if (speak) fputs(help_text, stdout);
        leave(0);
        break;
      default: wrong("cannot make sense of '%s'", argv[here]);
    }
  }
  o.inputs = argv + optind;
  o.input_count = argc - optind;
  if (o.input_count == 0) wrong("names no input");
  if (o.order == ORDER_SCALE && io_given) wrong("--order scale always writes a file for each rank; leave --io out");
#ifndef HAVE_PNETCDF
  if (is_pnetcdf(o.io)) wrong("this replay was built without PnetCDF");
#endif
#ifndef HAVE_PARALLEL_NETCDF
  if (o.io == IO_NETCDF4_PARALLEL) wrong("this replay has the serial netCDF library; take replay_netcdf_mpi");
#endif
  if (o.io == IO_NETCDF4_PARALLEL && o.format != FORMAT_ASKED && o.format != NC_FORMAT_NETCDF4 &&
      o.format != NC_FORMAT_NETCDF4_CLASSIC)
    wrong("--io netcdf4-parallel writes netcdf4 and netcdf4-classic only");
  if (o.target_mb > 0 && (o.tiles_x > 1 || o.tiles_y > 1)) wrong("--tile and --target-mb exclude each other");
  return o;
}
