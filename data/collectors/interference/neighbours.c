/* Work that disturbs: `neighbours CPU load NAME FOLDER` works for ever;
 * `neighbours CPU launch COMMAND...` becomes that command, pinned, and dies with its parent.
 *
 * CPU -1: not pinned. NAME: cpu, cache, stream, memrate, vm, hdd, switch, after stress-ng's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MIB = 1 << 20, CHUNK = 65536 };

static volatile uint64_t sink;
static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static char *memory(size_t size) {
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("memory");
    return p;
}

static void cpu(void) {
    for (;;)
        for (int i = 0; i < 100000; i++) sink += next_random() ^ (sink >> 3);
}

/* Random writes to more lines than any last-level cache of a guest holds. */
static void cache(void) {
    size_t lines = (size_t)64 * MIB / 64;
    char *p = memory(lines * 64);
    for (;;) {
        size_t first = (next_random() % lines) & ~7ull;
        for (size_t i = 0; i < 8; i++) p[((first + i) % lines) * 64]++;
    }
}

static void stream(void) {
    size_t n = (size_t)32 * MIB / sizeof(double);
    double *a = (double *)memory(3 * n * sizeof *a), *b = a + n, *c = b + n;
    for (size_t i = 0; i < 3 * n; i++) a[i] = 1;
    for (;;)
        for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.4 * c[i];
}

static void memrate(void) {
    size_t n = (size_t)256 * MIB / sizeof(uint64_t);
    uint64_t *p = (uint64_t *)memory(n * sizeof *p), total = 0;
    for (;;) {
        for (size_t i = 0; i < n; i++) p[i] = i;
        for (size_t i = 0; i < n; i++) total += p[i];
        sink = total;
    }
}

static void vm(void) {
    size_t size = (size_t)128 * MIB;
    for (;;) {
        char *p = memory(size);
        for (size_t i = 0; i < size; i += 4096) p[i] = (char)i;
        for (size_t i = 0; i < size; i += 64) sink += (uint64_t)p[i];
        munmap(p, size);
    }
}

static void hdd(const char *folder) {
    static char chunk[CHUNK];
    char path[4096];
    snprintf(path, sizeof path, "%s/neighbour-XXXXXX", folder);
    int file = mkstemp(path);
    if (file < 0) fail(path);
    unlink(path);
    for (;;) {
        for (int i = 0; i < 1024; i++)
            if (pwrite(file, chunk, CHUNK, (off_t)i * CHUNK) != CHUNK) fail("write");
        if (fdatasync(file)) fail("sync");
    }
}

static void switching(void) {
    int there[2], back[2];
    char byte = 1;
    if (pipe(there) || pipe(back)) fail("pipe");
    int child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
        exit(0);
    }
    while (write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1) {}
}

int main(int count, char **given) {
    if (count < 4) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int where = atoi(given[1]);
    if (where >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(where, &set);
        if (sched_setaffinity(0, sizeof set, &set)) fail("pin");
    }
    if (!strcmp(given[2], "launch")) {
        execvp(given[3], given + 3);
        fail(given[3]);
    }
    const char *name = given[3], *folder = count > 4 ? given[4] : ".";
    if (!strcmp(name, "cpu")) cpu();
    if (!strcmp(name, "cache")) cache();
    if (!strcmp(name, "stream")) stream();
    if (!strcmp(name, "memrate")) memrate();
    if (!strcmp(name, "vm")) vm();
    if (!strcmp(name, "hdd")) hdd(folder);
    if (!strcmp(name, "switch")) switching();
    fprintf(stderr, "no load %s\n", name);
    return 2;
}
