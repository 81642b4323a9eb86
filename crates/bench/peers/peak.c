/* What a benchmark takes of memory at its peak, counted in the allocator, for any program.
 *
 * Preloaded into Pullback and its peers alike (`compare --memory`), it counts the bytes that are
 * allocated by malloc and its relatives and by anonymous mmap (which some libraries use instead).
 * Counting starts when a program first reads /proc/self/status or statm: all of them do so after
 * their imports, before they make a model. It ends when /proc/stat is read for the second time,
 * which all of them do before and after their first timed steps; numbers are compared after that.
 * The growth in between, in bytes, is appended to the file that PEAK_FILE names.
 *
 * Resident memory would count, beside tensors, what the allocator keeps after it was freed, and the
 * code of libraries, which is loaded when it is first used: tens of MiB in some peers and next to
 * nothing in others. Bytes that were asked for mean the same everywhere.
 *
 *     cc -O2 -shared -fPIC -o peak.so peak.c
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long live, peak, base = -1, reads, timed;

static void add(long bytes) {
    long now = atomic_fetch_add(&live, bytes) + bytes;
    long most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {
    }
}

/* Blocks with a large alignment have as much unused space behind them, which no page is given to:
 * their sizes are those that were asked for. */
enum { BLOCKS = 1 << 14, LARGE = 1 << 16 };
static struct {
    void *at;
    long bytes;
} aligned[BLOCKS];
static atomic_flag held = ATOMIC_FLAG_INIT;

static long noted(void *p, void *from, void *to, long bytes) {
    while (atomic_flag_test_and_set(&held)) {
    }
    long found = -1;
    for (size_t i = 0, at = (size_t)p / LARGE; i < BLOCKS; i++) {
        size_t k = (at + i) % BLOCKS;
        if (aligned[k].at == from) {
            found = aligned[k].bytes;
            aligned[k].at = to;
            aligned[k].bytes = bytes;
            break;
        }
        if (from && !aligned[k].at) break;
    }
    atomic_flag_clear(&held);
    return found;
}

/* What is freed is marked, so that what lies behind it is found. */
static char gone;

static void *counted(void *p) {
    if (p) add((long)malloc_usable_size(p));
    return p;
}

static void *counted_aligned(void *p, size_t align, size_t n) {
    long bytes = (long)n;
    if (p && align >= LARGE && (noted(p, &gone, p, bytes) >= 0 || noted(p, NULL, p, bytes) >= 0)) {
        add(bytes);
        return p;
    }
    return counted(p);
}

void *malloc(size_t n) { return counted(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
void *memalign(size_t align, size_t n) {
    return counted_aligned(__libc_memalign(align, n), align, n);
}
void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
int posix_memalign(void **p, size_t align, size_t n) {
    void *made = memalign(align, n);
    if (!made) return ENOMEM;
    *p = made;
    return 0;
}
void free(void *p) {
    long known = p && (size_t)p % LARGE == 0 ? noted(p, p, &gone, 0) : -1;
    if (p) atomic_fetch_sub(&live, known >= 0 ? known : (long)malloc_usable_size(p));
    __libc_free(p);
}
void *realloc(void *p, size_t n) {
    long before = p ? (long)malloc_usable_size(p) : 0;
    void *made = __libc_realloc(p, n);
    if (made || n == 0) atomic_fetch_sub(&live, before);
    return counted(made);
}

/* The allocator's own calls do not come here. What is unmapped stays counted. */
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
    if (p != MAP_FAILED && (flags & MAP_ANONYMOUS) && (prot & PROT_WRITE)) add((long)n);
    return p;
}
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    return mmap(at, n, prot, flags, fd, offset);
}

static void seen(const char *path) {
    long none = -1;
    if (path && !strncmp(path, "/proc/self/stat", 15) && path[15]) {
        long now = atomic_load(&live);
        if (atomic_compare_exchange_strong(&base, &none, now)) atomic_store(&peak, now);
    }
    if (path && !strcmp(path, "/proc/stat") && atomic_fetch_add(&reads, 1) == 1)
        atomic_store(&timed, atomic_load(&peak));
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;                        \
        va_end(rest);                                                                              \
        seen(path);                                                                                \
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);                              \
    }
OPEN(open)
OPEN(open64)

__attribute__((destructor)) static void report(void) {
    const char *file = getenv("PEAK_FILE");
    long from = atomic_load(&base);
    if (!file || from < 0) return;
    char line[64];
    int n = snprintf(line, sizeof line, "%ld\n", (timed ? timed : peak) - from);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0 && write(fd, line, (size_t)n) == n) close(fd);
}
