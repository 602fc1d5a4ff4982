// The options of the program, from its command line.
#pragma once

enum decomposition { ROUND_ROBIN, CURVE, SHUFFLED };
enum way { IPUT_VARN, BPUT_VARN, PUT_VARN, PUT_VARA };

struct options {
  const char* path;
  long columns;
  long levels;
  int variables;  // with levels; as many again without
  int records;
  int holes;  // every so many-th column is put by nobody; 0: none
  int fill;   // it gets the fill value
  enum decomposition decomposition;
  enum way way;
  double compute;  // seconds between frames
  int check;
};

/// Ends the program where the command line is wrong.
struct options read_options(int argc, char** argv);
