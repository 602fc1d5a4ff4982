/* Preloaded into a program, it lets it run out of something, and says so on stderr, once:
 *   RUNS_OUT_MEMORY=N   the Nth allocation that the interposer asks for
 *   RUNS_OUT_THREADS=P  every thread of a program whose name begins with P */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char* what) {
  (void)!write(STDERR_FILENO, "runs out: ", 10);
  (void)!write(STDERR_FILENO, what, strlen(what));
  (void)!write(STDERR_FILENO, "\n", 1);
}

#ifndef OTHER_MALLOC
extern void* __libc_malloc(size_t bytes);

static int is_of_interposer(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "libadvectio_netcdf") != NULL;
}

void* malloc(size_t bytes) {
  static atomic_long left = 0;
  static atomic_int ready = 0;
  static __thread int inside = 0;
  if (inside) return __libc_malloc(bytes);
  inside = 1;
  if (!atomic_exchange(&ready, 1)) {
    const char* n = getenv("RUNS_OUT_MEMORY");
    atomic_store(&left, n != NULL ? atol(n) : 0);
  }
  const int fails =
      atomic_load(&left) > 0 && is_of_interposer(__builtin_return_address(0)) && atomic_fetch_sub(&left, 1) == 1;
  inside = 0;
  if (!fails) return __libc_malloc(bytes);
  say("memory");
  errno = ENOMEM;
  return NULL;
}

#endif

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = NULL;
  const char* program = getenv("RUNS_OUT_THREADS");
  if (program != NULL && strncmp(program_invocation_short_name, program, strlen(program)) == 0) {
    say("threads");
    return EAGAIN;
  }
  if (real == NULL)
    real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  return real(thread, attributes, start, argument);
}
