/* Writing by PnetCDF, as WRF's io_form 11 does (blocking), or SCALE and ParallelIO (nonblocking). */
#pragma once

#include "output.h"

/* As write_frame. */
void write_frame_in_parallel(struct Output* output, bool last_of_file, struct FrameTimes* times);
