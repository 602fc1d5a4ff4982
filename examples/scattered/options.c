#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const decompositions[] = {"round-robin", "curve", "shuffled", NULL};
static const char* const ways[] = {"iput_varn", "bput_varn", "put_varn", "put_vara", NULL};

static void usage(const char* program) {
  fprintf(stderr,
          "%s [--columns 4860] [--levels 72] [--variables 4] [--records 3] [--holes 0] [--no-fill] [--large]\n"
          "  [--decomposition round-robin|curve|shuffled] [--way iput_varn|bput_varn|put_varn|put_vara]\n"
          "  [--compute SECONDS] [--check] FILE\n"
          "  --holes N: every N-th column is put by nobody; --no-fill: and may then be anything\n"
          "  --large: 48,602 columns\n",
          program);
  exit(2);
}

static int index_of(const char* word, const char* const* words, const char* program) {
  for (int i = 0; words[i] != NULL; ++i)
    if (strcmp(word, words[i]) == 0) return i;
  usage(program);
  return 0;
}

struct options read_options(int argc, char** argv) {
  struct options o = {NULL, 4860, 72, 4, 3, 0, 1, ROUND_ROBIN, IPUT_VARN, 0.0, 0};
  static const struct option known[] = {
      {"columns", required_argument, NULL, 'c'},   {"levels", required_argument, NULL, 'l'},
      {"variables", required_argument, NULL, 'v'}, {"records", required_argument, NULL, 'r'},
      {"holes", required_argument, NULL, 'h'},     {"large", no_argument, NULL, 'L'},
      {"way", required_argument, NULL, 'w'},       {"decomposition", required_argument, NULL, 'd'},
      {"no-fill", no_argument, NULL, 'n'},         {"compute", required_argument, NULL, 's'},
      {"check", no_argument, NULL, 'k'},           {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    switch (c) {
      case 'c': o.columns = atol(optarg); break;
      case 'l': o.levels = atol(optarg); break;
      case 'v': o.variables = atoi(optarg); break;
      case 'r': o.records = atoi(optarg); break;
      case 'h': o.holes = atoi(optarg); break;
      case 'n': o.fill = 0; break;
      case 'L': o.columns = 48602; break;
      case 'w': o.way = (enum way)index_of(optarg, ways, argv[0]); break;
      case 'd': o.decomposition = (enum decomposition)index_of(optarg, decompositions, argv[0]); break;
      case 's': o.compute = atof(optarg); break;
      case 'k': o.check = 1; break;
      default: usage(argv[0]);
    }
  }
  if (optind + 1 != argc || o.columns < 1 || o.levels < 1 || o.variables < 1 || o.records < 1 || o.holes < 0)
    usage(argv[0]);
  o.path = argv[optind];
  return o;
}
