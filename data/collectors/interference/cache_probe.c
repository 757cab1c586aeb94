/* What a guest sees of the last-level cache.
 *
 * `cache_probe CPU watch MILLISECONDS`: one CSV row a tick on standard output, until killed.
 * `cache_probe CPU sweep`: mean latency of dependent loads by working set, CSV (mib,ns), then ends.
 * After CacheX (arXiv 2511.09956), with plain loads: no eviction sets are needed to see contention.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum { LINE = 64, MIB = 1 << 20, SMALL = 3, LARGE = 8, FAR = 64, CHUNKS = 5, HOPS = 400, SAMPLE = 256 };

typedef struct node { struct node *next; char pad[LINE - sizeof(void *)]; } node;

static volatile uint64_t sink;
static uint64_t seed = 88172645463325252ull;
static node *volatile kept;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static double clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static node *cycle(size_t mib_64ths) {
    size_t size = mib_64ths * (MIB / 64), n = size / LINE;
    node *nodes = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t *order = malloc(n * sizeof *order);
    if (nodes == MAP_FAILED || !order) exit(3);
    madvise(nodes, size, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = next_random() % i;
        uint32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    for (size_t i = 0; i < n; i++) nodes[order[i]].next = &nodes[order[(i + 1) % n]];
    free(order);
    return nodes;
}

static void prime(const node *nodes, size_t mib) {
    uint64_t total = 0;
    for (size_t i = 0; i < mib * MIB / LINE; i++) total += (uint64_t)nodes[i].next;
    sink = total;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

/* Nanoseconds a dependent load: the median of chunks, so that one preemption does not matter. */
static double latency(node **at, int chunks, int hops) {
    double each[64];
    for (int c = 0; c < chunks; c++) {
        node *p = *at;
        double start = now_ns();
        for (int i = 0; i < hops; i++) p = p->next;
        kept = *at = p;
        each[c] = (now_ns() - start) / hops;
    }
    return median(each, chunks);
}

/* Share of sampled lines whose load takes longer than `limit` ns; the median goes to *typical. */
static double slower_than(node *nodes, size_t mib, double limit, double *typical) {
    static double times[SAMPLE];
    int slow = 0;
    for (int i = 0; i < SAMPLE; i++) {
        node *p = nodes + next_random() % (mib * MIB / LINE);
        double start = now_ns();
        kept = *(node *volatile *)&p->next;
        times[i] = now_ns() - start;
        slow += times[i] > limit;
    }
    *typical = median(times, SAMPLE);
    return (double)slow / SAMPLE;
}

static double read_rate(const char *far, size_t *place) {
    uint64_t total = 0;
    const uint64_t *p = (const uint64_t *)(far + *place);
    double start = now_ns();
    for (size_t i = 0; i < MIB / sizeof *p; i += 8) total += p[i];
    double taken = now_ns() - start;
    sink = total;
    *place = (*place + MIB) % ((size_t)FAR * MIB);
    return MIB / taken;
}

static void sleep_until(double ns) {
    struct timespec t = {(time_t)(ns / 1e9), 0};
    t.tv_nsec = (long)(ns - 1e9 * (double)t.tv_sec);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}

/* Between a line that is near and one that is in memory, in the geometric middle. */
static double threshold(node *small, node *far) {
    double near_ns, far_ns, product;
    prime(small, SMALL);
    slower_than(small, SMALL, 0, &near_ns);
    slower_than(far, FAR, 0, &far_ns);
    product = near_ns * far_ns;
    double root = product;
    for (int i = 0; i < 60; i++) root = 0.5 * (root + product / root);
    return root;
}

static void watch(double tick_ns) {
    node *small = cycle(SMALL * 64), *large = cycle(LARGE * 64), *far = cycle(FAR * 64), *at = large;
    size_t place = 0;
    double limit = threshold(small, far), due = now_ns() + tick_ns;
    puts("t_s,late_ms,latency_ns,near_ns,evicted,read_gbs,cpu_ms,limit_ns");
    for (;; due += tick_ns) {
        double near_ns, start, cpu;
        sleep_until(due);
        start = now_ns();
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        prime(large, LARGE);
        double large_ns = latency(&at, CHUNKS, HOPS);
        double rate = read_rate((const char *)far, &place);
        prime(small, SMALL);
        sleep_until(now_ns() + 1e6);
        double evicted = slower_than(small, SMALL, limit, &near_ns);
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%.6f,%.4f,%.3f,%.3f,%.5f,%.4f,%.4f,%.2f\n", 1e-9 * start, 1e-6 * (start - due),
               large_ns, near_ns, evicted, rate, 1e-6 * cpu, limit);
        fflush(stdout);
        while (due + tick_ns < now_ns()) due += tick_ns;
    }
}

static void sweep(void) {
    static const int sizes[] = {16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096};
    puts("mib,ns");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = (size_t)sizes[s] * (MIB / 64);
        node *at = cycle((size_t)sizes[s]), *nodes = at;
        for (size_t i = 0; i < bytes / LINE; i++) at = at->next;
        printf("%g,%.3f\n", sizes[s] / 64.0, latency(&at, 41, 1000));
        fflush(stdout);
        munmap(nodes, bytes);
    }
}

int main(int count, char **given) {
    if (count < 3) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int cpu = atoi(given[1]);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set)) return 3;
    }
    if (!strcmp(given[2], "sweep")) return sweep(), 0;
    if (!strcmp(given[2], "watch") && count == 4 && atof(given[3]) > 0) watch(1e6 * atof(given[3]));
    return 2;
}
