// Options of a command line: --name value.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "files.h"
#include "grid.h"

namespace cycle {

class Options {
 public:
  Options(int argc, char** argv) : words_(argv + 1, argv + argc), used_(words_.size(), false) {}

  /// The word behind `name`, or `otherwise`.
  std::string text(const char* name, const std::string& otherwise, const char* help) {
    help_ += "  " + std::string(name) + std::string(std::strlen(name) < 18 ? 18 - std::strlen(name) : 1, ' ') + help +
             (otherwise.empty() ? "" : " (" + otherwise + ")") + "\n";
    for (std::size_t i = 0; i + 1 < words_.size(); ++i)
      if (words_[i] == name) {
        used_[i] = used_[i + 1] = true;
        return words_[i + 1];
      }
    return otherwise;
  }

  double number(const char* name, const char* otherwise, const char* help) {
    const std::string word = text(name, otherwise, help);
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0') fail(std::string(name) + ": '" + word + "' is no number");
    return value;
  }

  int count(const char* name, const char* otherwise, const char* help) {
    const double value = number(name, otherwise, help);
    if (value < 0 || value != static_cast<int>(value)) fail(std::string(name) + " has to be a whole number");
    return static_cast<int>(value);
  }

  bool flag(const char* name, const char* help) {
    help_ +=
        "  " + std::string(name) + std::string(std::strlen(name) < 18 ? 18 - std::strlen(name) : 1, ' ') + help + "\n";
    bool found = false;
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (words_[i] == name) found = used_[i] = true;
    return found;
  }

  Grid grid() {
    Grid g;
    g.nx = count("--nx", "72", "cells along the channel");
    g.ny = count("--ny", "32", "cells across");
    g.dx = 1000 * number("--dx", "150", "their size, km");
    return g;
  }

  /// How the files of a member cut the plane: 2x1.
  Tiles tiles(const Grid& grid) {
    const std::string word =
        text("--tiles", "2x1", "files of a member, along x and y; one process of the forecast each");
    Tiles t;
    if (std::sscanf(word.c_str(), "%dx%d", &t.along_x, &t.along_y) != 2 || t.along_x < 1 || t.along_y < 1)
      fail("--tiles: '" + word + "' is not like 2x1");
    if (grid.nx % t.along_x != 0 || grid.ny % t.along_y != 0 || grid.nx / t.along_x < 2 || grid.ny / t.along_y < 2)
      fail("--tiles " + word + " does not divide " + std::to_string(grid.nx) + " x " + std::to_string(grid.ny) +
           " cells into tiles of 2 x 2 or more");
    return t;
  }

  /// After all options were asked for. False: help was wanted, and rank 0 has printed it.
  bool complete(const char* about, int rank) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == "--help") {
        if (rank == 0) std::printf("%s\n\n%s", about, help_.c_str());
        return false;
      }
      if (!used_[i]) fail("unknown option " + words_[i] + " (or nothing behind it); --help lists them");
    }
    return true;
  }

 private:
  std::vector<std::string> words_;
  std::vector<bool> used_;
  std::string help_;
};

}  // namespace cycle
