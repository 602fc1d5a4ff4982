// How a function of a preloaded library is seen by the programs that it is loaded into.
#pragma once

#define ADVECTIO_EXPORT extern "C" __attribute__((visibility("default")))
