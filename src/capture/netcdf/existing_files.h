// Files that are there when a program opens them for writing, and the shadows of all files that are carried.
#pragma once

#include <memory>
#include <string>

#include "capture/dataset.h"
#include "capture/netcdf/real_library.h"
#include "capture/shadow/ranks.h"

namespace advectio::netcdf {

/// The library skips blanks and control characters in front of a path.
inline const char* trimmed(const char* path) {
  while (*path != '\0' && static_cast<unsigned char>(*path) <= ' ') ++path;
  return path;
}

/// A dataset in memory that keeps the metadata. A classic one would be laid out in memory, whole,
/// when define mode ends; so it never ends: the redefinition of an empty dataset, which can be
/// given up at any time without a trace.
struct Shadow {
  int ncid = -1;
  FileFormat format = FileFormat::netcdf4;
};
/// `mode`: of nc_create. Returns the library's code.
int make_shadow(const RealLibrary& lib, int mode, Shadow& shadow);
void drop(const RealLibrary& lib, const Shadow& shadow);

/// The words of a program that opens a file.
struct OpenCall {
  const char* path;       ///< as the program gave it
  const std::string& at;  ///< the file
  int mode;               ///< of nc_open
  int* ncid;              ///< for the handle
};

/// This process has created the file in this run, and goes on with it (docs/decisions/0029). False: it is opened in
/// another way; `why` says why, if that is worth a line.
bool open_own_file(const RealLibrary& lib, const OpenCall& call, std::string& why);

/// The file is there, and no process of this run writes it. The server is asked whether it can go on with it
/// (docs/decisions/0036), and this process waits for the answer. False: the library opens the file, and a line says
/// what the server has said, or `why`.
bool open_file_of_others(const RealLibrary& lib, const OpenCall& call, const std::string& why);

/// Collective. As open_file_of_others, for all ranks of a job together. Ranks that only read call
/// it, too.
bool open_file_together(const RealLibrary& lib, const std::shared_ptr<shadow::Ranks>& ranks, const OpenCall& call);

}  // namespace advectio::netcdf
