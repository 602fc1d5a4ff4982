/* Waiting for other ranks.
 *
 * MPI waits by asking again and again, which is right where every rank has a core of its own. Where there are more
 * ranks than cores the waiting ranks would take the time of the one that is writing, and every time measured would be
 * the scheduler's. There, and only there, they sleep a little between asking. */
#pragma once

#include <mpi.h>

/* Once, before the others; collective over all ranks. */
void start_waiting(void);
void wait_for(MPI_Request* request);
void wait_for_all(MPI_Comm comm);
