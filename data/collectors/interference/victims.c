/* Fixed work that is timed: `victims CPU NAME UNITS FOLDER`.
 *
 * Prepares its buffers, prints "ready", waits for a line on standard input, does UNITS units of work
 * and prints one JSON object. UNITS 0: works for ever from "ready" on, as a neighbour. CPU -1: not
 * pinned.
 * Times are of CLOCK_MONOTONIC; the run delay is the sum over threads of /proc/self/task schedstat.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, SIDE = 96, IO_BYTES = 65536, PIECE = 1 << 20 };

typedef struct node { struct node *next; char pad[LINE - sizeof(void *)]; } node;

static volatile uint64_t sink;
static volatile double real_sink;
static char *buffer;
static size_t bytes, place;
static node *at;
static uint64_t seed = 88172645463325252ull;
static double *left, *right, *product;
static int file = -1, zero = -1, to_thread[2], from_thread[2];

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static void make_buffer(size_t size) {
    bytes = size;
    if (posix_memalign((void **)&buffer, 4096, size)) fail("memory");
    memset(buffer, 1, size);
}

/* One random cycle through all lines (Sattolo). */
static void make_cycle(size_t size) {
    size_t n = size / LINE;
    make_buffer(size);
    node *nodes = (node *)buffer;
    uint32_t *order = malloc(n * sizeof *order);
    if (!order) fail("memory");
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = next_random() % i;
        uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (size_t i = 0; i < n; i++) nodes[order[i]].next = &nodes[order[(i + 1) % n]];
    free(order);
    at = nodes;
    for (size_t i = 0; i < n; i++) at = at->next;
}

static void alu(void) {
    uint64_t x = seed, total = 0;
    for (int i = 0; i < 200000; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        total += (x >> 33) ^ (x << 7);
    }
    seed = x | 1;
    sink = total;
}

static void polynomial(void) {
    double total = 0;
    for (int i = 0; i < 50000; i++) {
        double x = (double)(i & 1023) / 1024.0, y = 0.3;
        for (int k = 1; k <= 8; k++) y = y * x + 1.0 / k;
        total += y;
    }
    real_sink = total;
}

static void make_matrices(void) {
    make_buffer(3 * SIDE * SIDE * sizeof(double));
    left = (double *)buffer;
    right = left + SIDE * SIDE;
    product = right + SIDE * SIDE;
    for (int i = 0; i < 3 * SIDE * SIDE; i++) left[i] = (i % 17) / 17.0;
}

static void matmul(void) {
    for (int i = 0; i < SIDE; i++) {
        double *row = product + i * SIDE;
        memset(row, 0, SIDE * sizeof *row);
        for (int k = 0; k < SIDE; k++) {
            double scale = left[i * SIDE + k];
            const double *other = right + k * SIDE;
            for (int j = 0; j < SIDE; j++) row[j] += scale * other[j];
        }
    }
    real_sink = product[SIDE + 1];
}

static void chase(void) {
    node *p = at;
    for (int i = 0; i < 20000; i++) p = p->next;
    at = p;
}

static void update(void) {
    uint64_t *words = (uint64_t *)buffer;
    size_t n = bytes / sizeof *words;
    for (int i = 0; i < 20000; i++) words[(next_random() >> 11) % n] += (uint64_t)i;
}

static void triad(void) {
    size_t third = bytes / 3 / PIECE * PIECE / sizeof(double), n = PIECE / sizeof(double);
    double *a = (double *)buffer + place, *b = a + third, *c = b + third;
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.4 * c[i];
    place = (place + n) % third;
}

static void copy(void) {
    size_t half = bytes / 2;
    memcpy(buffer + place, buffer + half + place, PIECE);
    place = (place + PIECE) % half;
    sink = (uint64_t)buffer[place];
}

static void read_zero(void) {
    for (int i = 0; i < 16; i++)
        if (read(zero, buffer, IO_BYTES) != IO_BYTES) fail("/dev/zero");
}

static void synced_write(void) {
    off_t where = (off_t)(place % 64) * IO_BYTES;
    place++;
    if (pwrite(file, buffer, IO_BYTES, where) != IO_BYTES || fdatasync(file)) fail("file");
}

static void *answer(void *unused) {
    char byte;
    while (read(to_thread[0], &byte, 1) == 1)
        if (write(from_thread[1], &byte, 1) != 1) break;
    return unused;
}

static void ping_pong(void) {
    char byte = 1;
    for (int i = 0; i < 100; i++)
        if (write(to_thread[1], &byte, 1) != 1 || read(from_thread[0], &byte, 1) != 1) fail("pipe");
}

static void make_pipes(void) {
    pthread_t thread;
    if (pipe(to_thread) || pipe(from_thread) || pthread_create(&thread, 0, answer, 0)) fail("pipe");
}

static void make_zero(void) {
    make_buffer(IO_BYTES);
    if ((zero = open("/dev/zero", O_RDONLY)) < 0) fail("/dev/zero");
}

/* The file has no name while it is open, so that nothing is left behind. */
static void make_file(const char *folder) {
    char path[4096];
    make_buffer(IO_BYTES);
    snprintf(path, sizeof path, "%s/victim-XXXXXX", folder);
    if ((file = mkstemp(path)) < 0) fail(path);
    unlink(path);
    for (int i = 0; i < 64; i++) synced_write();
}

static void (*prepare(const char *name, const char *folder))(void) {
    const char *number = name + strcspn(name, "0123456789");
    size_t size = (size_t)(atof(number) * (1 << 20));
    if (!strcmp(name, "alu")) return alu;
    if (!strcmp(name, "polynomial")) return polynomial;
    if (!strcmp(name, "matmul")) return make_matrices(), matmul;
    if (!strncmp(name, "chase", 5) && size) return make_cycle(size), chase;
    if (!strncmp(name, "update", 6) && size) return make_buffer(size), update;
    if (!strcmp(name, "triad")) return make_buffer(96 << 20), triad;
    if (!strcmp(name, "copy")) return make_buffer(64 << 20), copy;
    if (!strcmp(name, "read_zero")) return make_zero(), read_zero;
    if (!strcmp(name, "synced_write")) return make_file(folder), synced_write;
    if (!strcmp(name, "ping_pong")) return make_pipes(), ping_pong;
    fprintf(stderr, "no victim %s\n", name);
    exit(2);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that threads of this process waited for a CPU; negative where the kernel does not say. */
static double run_delay(void) {
    DIR *tasks = opendir("/proc/self/task");
    double total = -1;
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        char path[320];
        unsigned long long waited;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? 0 : fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%*u %llu", &waited) == 1) total = (total < 0 ? 0 : total) + 1e-9 * (double)waited;
        fclose(f);
    }
    if (tasks) closedir(tasks);
    return total;
}

static double seconds(struct timeval a, struct timeval b) {
    return (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_usec - a.tv_usec);
}

int main(int count, char **given) {
    if (count != 5) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int cpu = atoi(given[1]);
    long long units = atoll(given[3]);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set)) fail("pin");
    }
    void (*work)(void) = prepare(given[2], given[4]);
    work();
    puts("ready");
    fflush(stdout);
    while (units == 0) work();
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 1;
    struct rusage a, b;
    double waited = run_delay();
    getrusage(RUSAGE_SELF, &a);
    double start = now();
    for (long long i = 0; i < units; i++) work();
    double end = now();
    getrusage(RUSAGE_SELF, &b);
    double waited_after = run_delay();
    printf("{\"start\": %.6f, \"end\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, ", start, end,
           seconds(a.ru_utime, b.ru_utime), seconds(a.ru_stime, b.ru_stime));
    if (waited >= 0) printf("\"run_delay_s\": %.6f, ", waited_after - waited);
    printf("\"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"minor_faults\": %ld, "
           "\"major_faults\": %ld}\n",
           b.ru_nvcsw - a.ru_nvcsw, b.ru_nivcsw - a.ru_nivcsw, b.ru_minflt - a.ru_minflt,
           b.ru_majflt - a.ru_majflt);
    return 0;
}
