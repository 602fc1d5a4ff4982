/* runs_out_at KIND FORMAT CALLS once|all stops|goes-on FIRST STEP: for n = FIRST, FIRST + STEP, … a process of its own
 * writes KIND-FORMAT-CALLS-….n.nc, and the nth call of that kind that Advectio makes for it fails (fails_at.c,
 * preloaded). It ends with the first n that no call has reached. A line for each: n, the status of the process, whether
 * it came to n, and netCDF's codes. CALLS: short; over: in place of a file that is there; read: what was put is read;
 * group: the library takes over */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netcdf.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { calls_max = 32, width = 500, records = 3, seconds_max = 60 };

struct shared {
  atomic_int reached;
  int count;
  struct {
    char name[12];
    int code;
  } calls[calls_max];
};

static struct shared* done;
static int goes_on;

static int note(const char* name, int code) {
  snprintf(done->calls[done->count].name, sizeof done->calls[0].name, "%s", name);
  done->calls[done->count++].code = code;
  return code;
}
#define CALL(NAME, CODE) \
  if (note(NAME, CODE) != NC_NOERR && !goes_on) return 1

static int put(int file, int variable, size_t record) {
  float row[width];
  for (int i = 0; i < width; ++i) row[i] = (float)(1000 * (record + 1) + (size_t)i);
  const size_t start[] = {record, 0}, count[] = {1, width};
  return nc_put_vara_float(file, variable, start, count, row);
}

static int get(int file, int variable, size_t record) {
  float row[width];
  const size_t start[] = {record, 0}, count[] = {1, width};
  const int code = nc_get_vara_float(file, variable, start, count, row);
  for (int i = 0; i < width && code == NC_NOERR; ++i)
    if (row[i] != (float)(1000 * (record + 1) + (size_t)i)) return 1;
  return code;
}

static int write_file(const char* name, int mode, const char* calls) {
  int file, dimensions[2], variable, group;
  if (note("create", nc_create(name, mode, &file)) != NC_NOERR) return 1;
  CALL("dim", nc_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]));
  CALL("dim", nc_def_dim(file, "x", width, &dimensions[1]));
  CALL("var", nc_def_var(file, "T", NC_FLOAT, 2, dimensions, &variable));
  CALL("att", nc_put_att_text(file, variable, "units", 1, "K"));
  CALL("enddef", nc_enddef(file));
  CALL("put0", put(file, variable, 0));
  CALL("sync", nc_sync(file));
  if (strcmp(calls, "read") == 0) CALL("get0", get(file, variable, 0));
  CALL("put1", put(file, variable, 1));
  if (strcmp(calls, "group") == 0) CALL("group", nc_def_grp(file, "g", &group));
  if (strcmp(calls, "read") == 0) CALL("get1", get(file, variable, 1));
  CALL("sync", nc_sync(file));
  CALL("put2", put(file, variable, 2));
  CALL("close", nc_close(file));
  return 0;
}

static int any_failed(void) {
  for (int i = 0; i < done->count; ++i)
    if (done->calls[i].code != NC_NOERR) return 1;
  return 0;
}

int main(int count, char** words) {
  if (count != 8) return 2;
  const char* const kind = words[1];
  const int mode = strcmp(words[2], "netcdf4") == 0 ? NC_NETCDF4 : 0;
  const char* const calls = words[3];
  const int all = strcmp(words[4], "all") == 0;
  goes_on = strcmp(words[5], "goes-on") == 0;
  const long step = atol(words[7]);
  void (*fails_at)(const char*, long, int, atomic_int*) =
      (void (*)(const char*, long, int, atomic_int*))dlsym(RTLD_DEFAULT, "fails_at");
  if (fails_at == NULL) return 2;
  done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (done == MAP_FAILED) return 2;
  for (long n = atol(words[6]);; n += step) {
    memset(done, 0, sizeof *done);
    char name[128];
    snprintf(name, sizeof name, "%s-%s-%s-%s-%s.%ld.nc", kind, words[2], calls, words[4], words[5], n);
    if (strcmp(calls, "over") == 0) {
      FILE* old = fopen(name, "w");
      if (old == NULL || fputs("old", old) < 0 || fclose(old) != 0) return 2;
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(seconds_max); /* a process that hangs */
      if (getenv("FAILS_AT_TRACE") != NULL) fprintf(stderr, "=== %s\n", name);
      fails_at(kind, n, all, &done->reached);
      (void)write_file(name, mode, calls);
      exit(any_failed() ? 3 : 0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 2;
    printf("%s %d %d", name, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), done->reached);
    for (int i = 0; i < done->count; ++i) printf(" %s=%d", done->calls[i].name, done->calls[i].code);
    printf("\n");
    if (!done->reached) break;
  }
  return 0;
}
