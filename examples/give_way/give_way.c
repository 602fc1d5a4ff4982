/* Preloaded into MPI programs with more ranks than cores: sched_yield sleeps for a moment.
   Open MPI calls sched_yield in a loop while a rank waits. On Linux 6.18 two such ranks on two cores leave other
   processes without a core, for a minute at a time (docs/lab/2026-11-24-sched-yield.md). */
#define _POSIX_C_SOURCE 199309L
#include <sched.h>
#include <time.h>

int sched_yield(void) {
  const struct timespec moment = {0, 1000};
  nanosleep(&moment, NULL);
  return 0;
}
