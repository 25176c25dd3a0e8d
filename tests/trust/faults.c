/* Faults at system calls on the files of one folder, for a process that is started with LD_PRELOAD.

   PLUMBLINE_FAULTS names a file that holds the plan below, mapped by every process of a command, so that calls are
   counted over all of them. While no plan is armed, calls pass through. With `trace` set, each call that changes a
   file is written to that file as `CALL PATH`, one a line; that is where the points come from at which faults are
   tried. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NOTHING, KILL_BEFORE, KILL_TORN, KILL_AFTER, FAIL_ONCE, FAIL_FROM_THEN, CLOCK };

struct plan {
    int64_t armed, seen, nth, action, error, fired, clock;
    char call[64];    /* a pattern of fnmatch, such as "write" or "*" */
    char path[1024];  /* likewise */
    char folder[1024];
    char trace[1024];
};

static struct plan *plan;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static struct plan *current(void) {
    if (plan) return plan->armed ? plan : NULL;
    const char *name = getenv("PLUMBLINE_FAULTS");
    if (!name) return NULL;
    int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return NULL;
    void *map = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (map != MAP_FAILED) plan = map;
    return plan && plan->armed ? plan : NULL;
}

static int below(const struct plan *p, const char *path) {
    return strncmp(path, p->folder, strlen(p->folder)) == 0;
}

/* What is to be done at this call: an action, or NOTHING. */
static int asked(const char *call, const char *path) {
    struct plan *p = current();
    int saved = errno, action = NOTHING;
    if (!p || !path || !below(p, path)) return NOTHING;
    if (p->trace[0] && strncmp(call, "read", 4) != 0) {
        int fd = syscall(SYS_openat, AT_FDCWD, p->trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) {
            char line[PATH_MAX + 80];
            int n = snprintf(line, sizeof line, "%s %s\n", call, path);
            syscall(SYS_write, fd, line, (size_t)n);
            syscall(SYS_close, fd);
        }
    }
    if (p->action != NOTHING && fnmatch(p->call, call, 0) == 0 && fnmatch(p->path, path, 0) == 0) {
        int64_t n = __atomic_add_fetch(&p->seen, 1, __ATOMIC_SEQ_CST);
        if (n == p->nth || (n > p->nth && p->action == FAIL_FROM_THEN)) {
            __atomic_add_fetch(&p->fired, 1, __ATOMIC_SEQ_CST);
            action = (int)p->action;
        }
    }
    errno = saved;
    return action;
}

static void die(void) {
    kill(0, SIGKILL);
    for (;;) pause();
}

/* True if the call is to fail, with errno set. */
static int refused(int action) {
    if (action == KILL_BEFORE) die();
    if (action == FAIL_ONCE || action == FAIL_FROM_THEN) {
        errno = (int)plan->error;
        return 1;
    }
    return 0;
}

static const char *absolute(int directory, const char *path, char *space) {
    if (!path) return NULL;
    if (path[0] == '/') return path;
    char link[64], base[PATH_MAX];
    if (directory == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t n = readlink(link, base, sizeof base - 1);
    if (n < 0) return NULL;
    base[n] = 0;
    return snprintf(space, PATH_MAX, "%s/%s", base, path) < PATH_MAX ? space : NULL;
}

static const char *of_descriptor(int fd, char *space) {
    char link[64];
    if (!current()) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, space, PATH_MAX - 1);
    if (n < 0) return NULL;
    space[n] = 0;
    return space;
}

static int opened(int directory, const char *path, int flags, mode_t mode, int (*go)(int, const char *, int, mode_t)) {
    char space[PATH_MAX];
    const char *call = (flags & O_CREAT) ? "create" : (flags & (O_WRONLY | O_RDWR)) ? "open" : "readopen";
    int action = current() ? asked(call, absolute(directory, path, space)) : NOTHING;
    if (refused(action)) return -1;
    int fd = go(directory, path, flags, mode);
    if (action == KILL_TORN || action == KILL_AFTER) die();
    return fd;
}

#define MODE() \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

static int plain(int directory, const char *path, int flags, mode_t mode) {
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

int open(const char *path, int flags, ...) { MODE(); return opened(AT_FDCWD, path, flags, mode, plain); }
int open64(const char *path, int flags, ...) { MODE(); return opened(AT_FDCWD, path, flags, mode, plain); }
int openat(int d, const char *path, int flags, ...) { MODE(); return opened(d, path, flags, mode, plain); }
int openat64(int d, const char *path, int flags, ...) { MODE(); return opened(d, path, flags, mode, plain); }

FILE *fopen64(const char *path, const char *how) {
    REAL(FILE *, "fopen64", const char *, const char *);
    char space[PATH_MAX];
    int action = current() ? asked(how[0] == 'r' ? "readopen" : "create", absolute(AT_FDCWD, path, space)) : NOTHING;
    if (refused(action)) return NULL;
    FILE *file = real(path, how);
    if (action == KILL_TORN || action == KILL_AFTER) die();
    return file;
}
FILE *fopen(const char *path, const char *how) { return fopen64(path, how); }

#define WRITES(name, call, parameters, arguments, torn) \
    ssize_t name parameters { \
        REAL(ssize_t, #name, WRITES_TYPES_##name); \
        char space[PATH_MAX]; \
        const char *path = of_descriptor(fd, space); \
        int action = path ? asked(call, path) : NOTHING; \
        if (refused(action)) return -1; \
        if (action == KILL_TORN) { torn; die(); } \
        ssize_t n = real arguments; \
        if (action == KILL_AFTER) die(); \
        return n; \
    }
#define WRITES_TYPES_write int, const void *, size_t
#define WRITES_TYPES_pwrite int, const void *, size_t, off_t
#define WRITES_TYPES_pwrite64 int, const void *, size_t, off64_t
#define WRITES_TYPES_writev int, const struct iovec *, int
#define WRITES_TYPES_read int, void *, size_t
#define WRITES_TYPES_pread int, void *, size_t, off_t
#define WRITES_TYPES_pread64 int, void *, size_t, off64_t
WRITES(write, "write", (int fd, const void *data, size_t n_bytes), (fd, data, n_bytes), real(fd, data, n_bytes / 2))
WRITES(pwrite, "write", (int fd, const void *data, size_t n_bytes, off_t at), (fd, data, n_bytes, at), real(fd, data, n_bytes / 2, at))
WRITES(pwrite64, "write", (int fd, const void *data, size_t n_bytes, off64_t at), (fd, data, n_bytes, at), real(fd, data, n_bytes / 2, at))
WRITES(writev, "write", (int fd, const struct iovec *parts, int count), (fd, parts, count), real(fd, parts, count / 2))
WRITES(read, "read", (int fd, void *data, size_t n_bytes), (fd, data, n_bytes), )
WRITES(pread, "read", (int fd, void *data, size_t n_bytes, off_t at), (fd, data, n_bytes, at), )
WRITES(pread64, "read", (int fd, void *data, size_t n_bytes, off64_t at), (fd, data, n_bytes, at), )

#define ON_DESCRIPTOR(name, call, parameters, arguments, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        char space[PATH_MAX]; \
        const char *path = of_descriptor(fd, space); \
        int action = path ? asked(call, path) : NOTHING; \
        if (refused(action)) return -1; \
        int result = real arguments; \
        if (action == KILL_TORN || action == KILL_AFTER) die(); \
        return result; \
    }
ON_DESCRIPTOR(fsync, "sync", (int fd), (fd), int)
ON_DESCRIPTOR(fdatasync, "sync", (int fd), (fd), int)
ON_DESCRIPTOR(ftruncate, "truncate", (int fd, off_t size), (fd, size), int, off_t)
ON_DESCRIPTOR(ftruncate64, "truncate", (int fd, off64_t size), (fd, size), int, off64_t)

#define ON_PATH(name, call, directory, path, parameters, arguments, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        char space[PATH_MAX]; \
        int action = current() ? asked(call, absolute(directory, path, space)) : NOTHING; \
        if (refused(action)) return -1; \
        int result = real arguments; \
        if (action == KILL_TORN || action == KILL_AFTER) die(); \
        return result; \
    }
ON_PATH(rename, "rename", AT_FDCWD, to, (const char *from, const char *to), (from, to), const char *, const char *)
ON_PATH(renameat, "rename", e, to, (int d, const char *from, int e, const char *to), (d, from, e, to), int, const char *, int, const char *)
ON_PATH(renameat2, "rename", e, to, (int d, const char *from, int e, const char *to, unsigned flags), (d, from, e, to, flags), int, const char *, int, const char *, unsigned)
ON_PATH(link, "link", AT_FDCWD, to, (const char *from, const char *to), (from, to), const char *, const char *)
ON_PATH(linkat, "link", e, to, (int d, const char *from, int e, const char *to, int flags), (d, from, e, to, flags), int, const char *, int, const char *, int)
ON_PATH(symlink, "link", AT_FDCWD, to, (const char *from, const char *to), (from, to), const char *, const char *)
ON_PATH(unlink, "unlink", AT_FDCWD, path, (const char *path), (path), const char *)
ON_PATH(unlinkat, "unlink", d, path, (int d, const char *path, int flags), (d, path, flags), int, const char *, int)
ON_PATH(rmdir, "unlink", AT_FDCWD, path, (const char *path), (path), const char *)
ON_PATH(mkdir, "mkdir", AT_FDCWD, path, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
ON_PATH(mkdirat, "mkdir", d, path, (int d, const char *path, mode_t mode), (d, path, mode), int, const char *, mode_t)

/* The wall clock jumps by `clock` seconds from the nth call on the folder's files on. */
static int64_t jump(void) {
    struct plan *p = current();
    return p && p->action == CLOCK && p->seen >= p->nth ? p->clock : 0;
}
int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(which, now);
    if (result == 0 && which == CLOCK_REALTIME) now->tv_sec += jump();
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    REAL(int, "gettimeofday", struct timeval *, void *);
    int result = real(now, zone);
    if (result == 0) now->tv_sec += jump();
    return result;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
