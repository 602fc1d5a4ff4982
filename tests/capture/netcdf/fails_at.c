/* Preloaded: the Nth call of a kind that comes from Advectio's libraries fails, once or from then on.
 * The program says which by `fails_at`, which it looks up; before that nothing fails. With FAILS_AT_TRACE set it says
 * on stderr where that was, for addr2line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { none, memory, mapping, descriptor, thread, hard_link, disk, renaming, kinds };
static const char* const names[] = {"", "memory", "mapping", "descriptor", "thread", "link", "disk", "rename"};

static enum kind kind = none;
static int from_then_on = 0;
static atomic_long left = 0;
static atomic_int* reached = NULL;

static struct { uintptr_t begin, end; } ours[16];
static int parts = 0;

static int look_at(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  (void)data;
  if (object->dlpi_name == NULL || strstr(object->dlpi_name, "/libadvectio_") == NULL) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0 || parts == 16) continue;
    ours[parts].begin = object->dlpi_addr + part->p_vaddr;
    ours[parts++].end = object->dlpi_addr + part->p_vaddr + part->p_memsz;
  }
  return 0;
}

/* `at_all`: where the program can see that it came so far. An empty kind: nothing fails any more. */
void fails_at(const char* what, long n, int all, atomic_int* at_all) {
  if (parts == 0) dl_iterate_phdr(look_at, NULL);
  kind = none;
  reached = at_all;
  from_then_on = all;
  atomic_store(&left, n);
  for (int i = 1; i < kinds; ++i)
    if (strcmp(names[i], what) == 0) kind = (enum kind)i;
}

static int is_ours(const void* address) {
  const uintptr_t at = (uintptr_t)address;
  for (int i = 0; i < parts; ++i)
    if (at >= ours[i].begin && at < ours[i].end) return 1;
  return 0;
}

/* Files that MPI opens come by our open(2), too. It cannot do without them. */
static int is_for_mpi(void) {
  const enum kind before = kind;
  void* calls[32];
  kind = none; /* its first call allocates */
  const int count = backtrace(calls, 32);
  kind = before;
  int i = 0;
  while (i < count && !is_ours(calls[i])) ++i;
  while (i < count && is_ours(calls[i])) ++i;
  Dl_info caller;
  return i < count && dladdr(calls[i], &caller) != 0 && caller.dli_fname != NULL &&
         (strstr(caller.dli_fname, "/mca_") != NULL || strstr(caller.dli_fname, "/libmca_") != NULL ||
          strstr(caller.dli_fname, "/libmpi") != NULL || strstr(caller.dli_fname, "/libopen-") != NULL);
}

static int fails(enum kind of, const void* caller, int error) {
  if (kind != of || !is_ours(caller) || (of != memory && is_for_mpi())) return 0;
  const long before = atomic_fetch_sub(&left, 1);
  if (before > 1 || (before < 1 && !from_then_on)) return 0;
  atomic_store(reached, 1);
  if (getenv("FAILS_AT_TRACE") != NULL) {
    const enum kind before_trace = kind;
    void* calls[32];
    kind = none; /* its first call allocates */
    backtrace_symbols_fd(calls, backtrace(calls, 32), STDERR_FILENO);
    kind = before_trace;
  }
  errno = error;
  return 1;
}
#define FAILS(OF, ERROR) fails(OF, __builtin_return_address(0), ERROR)

#define NEXT(F)                      \
  static __typeof__(F)* real = NULL; \
  if (real == NULL) real = (__typeof__(F)*)dlsym(RTLD_NEXT, #F)

#ifndef OTHER_MALLOC
extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* old, size_t bytes);
void* malloc(size_t bytes) {
  return FAILS(memory, ENOMEM) ? NULL : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return FAILS(memory, ENOMEM) ? NULL : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return FAILS(memory, ENOMEM) ? NULL : __libc_realloc(old, bytes);
}
#endif

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  NEXT(mmap);
  return FAILS(mapping, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, fd, offset);
}

#define MODE                       \
  va_list rest;                    \
  va_start(rest, flags);           \
  mode_t mode = va_arg(rest, int); \
  va_end(rest);
#define OPEN(F)                                                      \
  int F(const char* path, int flags, ...) {                          \
    MODE NEXT(F);                                                    \
    return FAILS(descriptor, EMFILE) ? -1 : real(path, flags, mode); \
  }
#define OPENAT(F)                                                               \
  int F(int directory, const char* path, int flags, ...) {                      \
    MODE NEXT(F);                                                               \
    return FAILS(descriptor, EMFILE) ? -1 : real(directory, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return FAILS(descriptor, EMFILE) ? NULL : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return FAILS(descriptor, EMFILE) ? NULL : real(path, mode);
}
DIR* opendir(const char* path) {
  NEXT(opendir);
  return FAILS(descriptor, EMFILE) ? NULL : real(path);
}
int socket(int domain, int type, int protocol) {
  NEXT(socket);
  return FAILS(descriptor, EMFILE) ? -1 : real(domain, type, protocol);
}
int pthread_create(pthread_t* new, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  NEXT(pthread_create);
  return FAILS(thread, EAGAIN) ? EAGAIN : real(new, attributes, start, argument);
}
int link(const char* from, const char* to) {
  NEXT(link);
  return FAILS(hard_link, EMLINK) ? -1 : real(from, to);
}
int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  NEXT(linkat);
  return FAILS(hard_link, EMLINK) ? -1 : real(from_directory, from, to_directory, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return FAILS(disk, ENOSPC) ? -1 : real(path, mode);
}
int mknod(const char* path, mode_t mode, dev_t device) {
  NEXT(mknod);
  return FAILS(disk, ENOSPC) ? -1 : real(path, mode, device);
}
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  NEXT(posix_fallocate);
  return FAILS(disk, ENOSPC) ? ENOSPC : real(fd, offset, bytes);
}
int ftruncate(int fd, off_t bytes) {
  NEXT(ftruncate);
  return FAILS(disk, ENOSPC) ? -1 : real(fd, bytes);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  NEXT(pwrite);
  return FAILS(disk, ENOSPC) ? -1 : real(fd, data, bytes, offset);
}
int rename(const char* from, const char* to) {
  NEXT(rename);
  return FAILS(renaming, ENOSPC) ? -1 : real(from, to);
}
