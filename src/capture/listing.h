// Directory listings (readdir(3)) as programs of the run see them: a name that is held back (markers.h) is listed by
// its own. So a script that ends with `mv wrfout_* archive/` finds the files that its model has just closed.
#pragma once

#include <dirent.h>

namespace advectio::capture {

/// The entry that a program sees in place of `entry`, which the C library gave of that directory. It is valid until the
/// next call with the directory. Null: the entry is not listed, as another of the directory has its name.
struct dirent* listed(DIR* directory, struct dirent* entry, const void* caller) noexcept;
/// The directory is about to be closed.
void end_listing(DIR* directory) noexcept;

}  // namespace advectio::capture
