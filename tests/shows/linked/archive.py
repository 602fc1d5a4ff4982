"""A static library in the place of libnetcdf.a, which Debian does not have.

It defines every function of the shared netCDF, in members as a linker takes them, and passes each call on to that library,
which it loads into a name space of its own: there it meets nobody's preloads, as code inside a program does not.
What a real libnetcdf.a has beyond that: calls between its own members. libpnetcdf.a, which Debian has, shows those.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_MEMBERS = ("nc_inq", "nc_put_att", "nc_get_att", "nc_put", "nc_get", "nc_def", "nc_")
_HEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
__attribute__((weak)) void* stand_in_library;
static void* library(void) {{
  if (stand_in_library == 0) stand_in_library = dlmopen(LM_ID_NEWLM, "{library}", RTLD_NOW);
  return stand_in_library;
}}
"""
_FUNCTION = """
__attribute__((visibility("hidden"))) void* slot_{0};
__asm__(".text\\n.globl {0}\\n.type {0},@function\\n{0}: jmp *slot_{0}(%rip)\\n.size {0},.-{0}\\n");
"""
# As every netCDF library has it; who looks for it in a stripped program must find it.
_MESSAGE = '\nconst char* volatile stand_in_message = "NetCDF: Not a valid ID";\n'


def make(library: Path, directory: Path) -> Path:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    functions = sorted({words[2] for words in map(str.split, listed.splitlines()) if words[1] == "T" and words[2][:3] == "nc_"})
    objects = []
    for member in _MEMBERS:
        mine = [f for f in functions if next(m for m in _MEMBERS if f.startswith(m)) == member]
        text = _HEAD.format(library=library) + "".join(_FUNCTION.format(f) for f in mine)
        finds = "".join(f'  slot_{f} = dlsym(library(), "{f}");\n' for f in mine)
        text += f"__attribute__((constructor)) static void find(void) {{\n{finds}}}\n" + (_MESSAGE if member == "nc_" else "")
        source = directory / f"member_{member}.c"
        source.write_text(text)
        subprocess.run(["cc", "-c", "-O1", "-fPIE", source, "-o", source.with_suffix(".o")], check=True)
        objects.append(source.with_suffix(".o"))
    archive = directory / "libnetcdf.a"
    subprocess.run(["ar", "rcs", archive, *objects], check=True)
    return archive
