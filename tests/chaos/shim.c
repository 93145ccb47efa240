/* Preloaded into a process: writes down, in order, every change to files below a folder, so that a
 * test can leave the disk as a power cut at any moment might have left it; and moves the wall clock.
 *
 * CHAOS_LOG: file that gets the records; CHAOS_BELOW: the folder. A record is
 *   kind (1 byte: O open, W write, T truncate, S sync, R rename, U unlink)
 *   length of the path, offset or size, length of the data: 8 bytes each; then path and data.
 * CHAOS_CLOCK: seconds by which the wall clock is put on or back, in turn, every 200th time it is
 * read. Monotonic clocks are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static const char *below;
static long jump;

#define NEXT(name) static __typeof__(name) *next_##name; \
    if (!next_##name) next_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_LOG");
    below = getenv("CHAOS_BELOW");
    if (getenv("CHAOS_CLOCK")) jump = atol(getenv("CHAOS_CLOCK"));
    if (path && below) log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void record(char kind, const char *path, uint64_t number, const void *data, uint64_t size) {
    char head[25];
    uint64_t length = strlen(path);
    ssize_t done;
    head[0] = kind;
    memcpy(head + 1, &length, 8);
    memcpy(head + 9, &number, 8);
    memcpy(head + 17, &size, 8);
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, length}, {(void *)data, size}};
    pthread_mutex_lock(&lock);
    done = writev(log_fd, parts, size ? 3 : 2);
    pthread_mutex_unlock(&lock);
    if (done < 0) abort();
}

static int is_below(const char *path) {
    size_t n = strlen(below);
    return !strncmp(path, below, n) && (path[n] == '/' || !path[n]);
}

/* The path of a descriptor, if it is one below the folder. */
static int find(int fd, char *path) {
    char link[40];
    if (log_fd < 0 || fd < 0 || fd == log_fd) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return is_below(path);
}

static int opened(int fd, int flags) {
    char path[PATH_MAX];
    int saved = errno;
    if (flags & (O_CREAT | O_TRUNC) && find(fd, path)) record('O', path, flags & O_TRUNC, "", 0);
    errno = saved;
    return fd;
}

#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
    NEXT(name); return opened(next_##name(path, flags, mode), flags); }
OPEN(open)
OPEN(open64)

#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
    NEXT(name); return opened(next_##name(folder, path, flags, mode), flags); }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    NEXT(write);
    ssize_t done = next_write(fd, data, size);
    if (done > 0 && find(fd, path)) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        record('W', path, end - done, data, done);
    }
    return done;
}

#define PWRITE(name, offset_t) ssize_t name(int fd, const void *data, size_t size, offset_t at) { \
    char path[PATH_MAX]; NEXT(name); \
    ssize_t done = next_##name(fd, data, size, at); \
    if (done > 0 && find(fd, path)) record('W', path, at, data, done); \
    return done; }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset_t) int name(int fd, offset_t size) { \
    char path[PATH_MAX]; NEXT(name); int failed = next_##name(fd, size); \
    if (!failed && find(fd, path)) record('T', path, size, "", 0); \
    return failed; }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name) int name(int fd) { \
    char path[PATH_MAX]; NEXT(name); int failed = next_##name(fd); \
    if (!failed && find(fd, path)) record('S', path, 0, "", 0); \
    return failed; }
SYNC(fsync)
SYNC(fdatasync)

static void whole(const char *path, char *found) {
    if (path[0] == '/' || !getcwd(found, PATH_MAX)) found[0] = 0; else strcat(found, "/");
    strncat(found, path, PATH_MAX - strlen(found) - 1);
}

int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    NEXT(rename);
    int failed = next_rename(from, to);
    whole(from, old);
    whole(to, new);
    if (!failed && log_fd >= 0 && is_below(new)) record('R', old, 0, new, strlen(new));
    return failed;
}

int unlink(const char *name) {
    char path[PATH_MAX];
    NEXT(unlink);
    int failed = next_unlink(name);
    whole(name, path);
    if (!failed && log_fd >= 0 && is_below(path)) record('U', path, 0, "", 0);
    return failed;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static unsigned long n;
    NEXT(clock_gettime);
    int failed = next_clock_gettime(which, now);
    if (jump && which == CLOCK_REALTIME && (n++ / 200) % 2) now->tv_sec += jump;
    return failed;
}
