#define _GNU_SOURCE
#include "simulate.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__) && defined(__x86_64__)
#include <ucontext.h>
#endif

enum {
    PAGE = 4096,
    LINE = 64,
    LEAST_BLOCK = 16 * PAGE, /* bytes of memory of the library that is watched, */
    LEAST_TENSOR = 4 * PAGE, /* and of tensors */
    MOST_BLOCKS = 8192,
    MOST_TOUCHED = 1 << 24, /* units, by a share */
    MOST_OPEN = 16,         /* pages that an instruction touches */
    RECENT = 1024,          /* lines that are known to have been touched */
    FEW = 6,                /* shares; if more read a page, each counts an equal part of it */
    WRITTEN = 1             /* added to the address of a unit */
};

/* Whole pages. */
typedef struct block {
    uintptr_t begin, end;
    void *memory; /* of the allocator; NULL: of a tensor */
} block_t;

/* A page or a line that was touched. */
typedef struct unit {
    uintptr_t at;        /* 0: a free place of the table */
    uint32_t shares;     /* that read it in this phase, */
    uint32_t last;       /* and the last of them, from 1 on */
    size_t written;      /* the last phase that wrote it, as sim.at */
    unsigned char owner; /* the node of a page, */
    unsigned char far;   /* and the nodes that have read it in this phase, a bit each */
} unit_t;

typedef struct read {
    size_t unit; /* place in the table */
    int share;
} read_t;

typedef struct phase {
    sinter_share_t share;     /* any of its shares */
    double *bytes, *products; /* by share */
    double far, far_of_one;   /* bytes from other nodes: by first touch; if one thread wrote all */
    uintptr_t *mixed;         /* pages whose lines count, by address */
    size_t n_mixed, cap_mixed;
} phase_t;

/* The run goes twice. First a share's first access to each page is seen; then each access to pages
 * that a few shares of a phase read and none writes, for they may read different lines of them. */
static struct {
    pthread_mutex_t lock; /* of blocks, while no share runs */
    block_t block[MOST_BLOCKS];
    size_t n_blocks, n_allocated; /* those of the allocator stand first */
    int threads, nodes;
    bool watches; /* this run is one that counts */
    bool lines;   /* it is the second one */
    bool on;      /* a share runs */
    bool bad;     /* memory could not be watched */
    bool out_of_memory;
    struct sigaction segv, trap; /* as they were before */
    /* Units that the share at hand has touched; those that it wrote first are WRITTEN. */
    uintptr_t *touched;
    volatile size_t n_touched;
    uintptr_t recent[RECENT], open[MOST_OPEN];
    volatile int n_open;
    unit_t *table;
    size_t room, n_units;
    read_t *reads; /* of the phase at hand */
    size_t n_reads, cap_reads;
    phase_t *phase;
    size_t n_phases, cap_phases, at; /* at: the phase at hand, from 1 on */
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- memory that is watched ------------------------------------------------------------------ */

static void *watched_alloc(size_t bytes, size_t alignment, void *user)
{
    const bool watched = bytes >= LEAST_BLOCK;
    void *memory = NULL;
    (void)user;

    if (watched) {
        alignment = alignment < PAGE ? PAGE : alignment;
        bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    }
    if (posix_memalign(&memory, alignment < sizeof memory ? sizeof memory : alignment, bytes)) {
        return NULL;
    }
    pthread_mutex_lock(&sim.lock);
    if (watched && sim.n_blocks < MOST_BLOCKS) {
        sim.block[sim.n_blocks++] = sim.block[sim.n_allocated];
        sim.block[sim.n_allocated++] =
            (block_t){(uintptr_t)memory, (uintptr_t)memory + bytes, memory};
    } else {
        sim.bad |= watched;
    }
    pthread_mutex_unlock(&sim.lock);
    return memory;
}

static void watched_free(void *memory, void *user)
{
    (void)user;
    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < sim.n_allocated; i++) {
        if (memory && sim.block[i].memory == memory) {
            sim.block[i] = sim.block[--sim.n_allocated];
            sim.block[sim.n_allocated] = sim.block[--sim.n_blocks];
            break;
        }
    }
    pthread_mutex_unlock(&sim.lock);
    free(memory);
}

sinter_allocator_t gr_simulate_allocator(void)
{
    return (sinter_allocator_t){watched_alloc, watched_free, NULL};
}

/* The pages that a tensor has for itself. */
static void watch_tensor(const unsigned char *data, size_t bytes)
{
    const uintptr_t begin = ((uintptr_t)data + PAGE - 1) / PAGE * PAGE,
                    end = ((uintptr_t)data + bytes) / PAGE * PAGE;

    if (data && bytes >= LEAST_TENSOR) {
        sim.bad |= sim.n_blocks == MOST_BLOCKS;
        if (sim.n_blocks < MOST_BLOCKS) {
            sim.block[sim.n_blocks++] = (block_t){begin, end, NULL};
        }
    }
}

static void protect_all(int how)
{
    for (size_t i = 0; i < sim.n_blocks; i++) {
        const block_t *b = &sim.block[i];

        sim.bad |= mprotect((void *)b->begin, b->end - b->begin, how) != 0;
    }
}

#if defined(__linux__) && defined(__x86_64__)
enum { TRAP_FLAG = 0x100, WRITES = 2 }; /* of the flags, and of the code of a page fault */

static void open_page(uintptr_t at, const block_t *of, int how)
{
    if (mprotect((void *)at, PAGE, how)) { /* more pieces of memory than the system allows */
        sim.bad = true;
        mprotect((void *)of->begin, of->end - of->begin, PROT_READ | PROT_WRITE);
    }
}

static void touch(uintptr_t unit)
{
    if (sim.n_touched < MOST_TOUCHED) {
        sim.touched[sim.n_touched++] = unit;
    }
}

static bool is_mixed(uintptr_t page)
{
    const phase_t *p = &sim.phase[sim.at - 1];
    size_t from = 0, end = p->n_mixed;

    while (from < end) {
        const size_t middle = from + (end - from) / 2;

        if (p->mixed[middle] == page) {
            return true;
        }
        *(p->mixed[middle] < page ? &from : &end) = middle + (p->mixed[middle] < page);
    }
    return false;
}

/* An access to a page that is locked. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    ucontext_t *cpu = context;
    const uintptr_t address = (uintptr_t)info->si_addr, page = address / PAGE * PAGE,
                    line = address / LINE * LINE;
    const bool writes = cpu->uc_mcontext.gregs[REG_ERR] & WRITES;
    const int how = writes ? PROT_READ | PROT_WRITE : PROT_READ;
    const block_t *found = NULL;

    for (size_t i = 0; i < sim.n_blocks && !found; i++) {
        found = page >= sim.block[i].begin && page < sim.block[i].end ? &sim.block[i] : NULL;
    }
    if (!found || !sim.on) {
        sigaction(number, &sim.segv, NULL); /* the access is repeated, and ends as it would */
        return;
    }
    if (!sim.lines) {
        touch(page + (writes ? WRITTEN : 0));
    } else if (is_mixed(page) && sim.n_open < MOST_OPEN) {
        uintptr_t *recent = &sim.recent[line / LINE % RECENT];

        if (!writes && *recent != line) {
            touch(line);
            *recent = line;
        }
        sim.open[sim.n_open++] = page; /* for this instruction */
        cpu->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
    }
    open_page(page, found, how);
}

/* The instruction is done. */
static void on_trap(int number, siginfo_t *info, void *context)
{
    ucontext_t *cpu = context;
    (void)number, (void)info;

    for (; sim.n_open > 0; sim.n_open--) {
        mprotect((void *)sim.open[sim.n_open - 1], PAGE, PROT_NONE);
    }
    cpu->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static int catch_faults(gr_error_t *err)
{
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER},
                     trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (sysconf(_SC_PAGESIZE) != PAGE || sigaction(SIGSEGV, &fault, &sim.segv) ||
        sigaction(SIGTRAP, &trap, &sim.trap)) {
        return gr_fail(err, "--simulate-threads: this system does not tell which pages are read");
    }
    return 0;
}
#else
static int catch_faults(gr_error_t *err)
{
    return gr_fail(err, "--simulate-threads: expected Linux on x86-64");
}
#endif

/* ---- units ----------------------------------------------------------------------------------- */

static size_t place_in(const unit_t *table, size_t room, uintptr_t at)
{
    size_t i = at / LINE * 0x9E3779B97F4A7C15u % room;

    while (table[i].at && table[i].at != at) {
        i = i + 1 == room ? 0 : i + 1;
    }
    return i;
}

/* Room for one more element of a list. */
static bool grow(void **list, size_t n, size_t *cap, size_t size)
{
    const size_t more = 2 * *cap + 64;
    void *longer;

    if (n < *cap) {
        return true;
    }
    longer = gr_malloc(more * size);
    if (!longer) {
        return false;
    }
    if (n) {
        memcpy(longer, *list, n * size);
    }
    gr_free(*list);
    *list = longer;
    *cap = more;
    return true;
}

/* Before the first read of a phase: units do not move within one. */
static bool make_room(void)
{
    size_t units = 0, room;
    unit_t *table;

    for (size_t i = 0; i < sim.n_blocks; i++) {
        units += (sim.block[i].end - sim.block[i].begin) / PAGE;
    }
    if (sim.lines) {
        units = sim.phase[sim.at - 1].n_mixed * (PAGE / LINE);
    }
    room = 2 * (sim.n_units + units) + 1;
    if (room <= sim.room) {
        return true;
    }
    table = gr_malloc(room * sizeof *table);
    if (!table) {
        return false;
    }
    memset(table, 0, room * sizeof *table);
    for (size_t i = 0; i < sim.room; i++) {
        if (sim.table[i].at) {
            table[place_in(table, room, sim.table[i].at)] = sim.table[i];
        }
    }
    gr_free(sim.table);
    sim.table = table;
    sim.room = room;
    return true;
}

/* The node of the thread that takes a share first, if all come at once. */
static int node_of(int share, int shares)
{
    const int64_t thread = ((int64_t)share * sim.threads + shares - 1) / shares;

    return (int)(thread * sim.nodes / sim.threads);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static bool new_phase(const sinter_share_t *s)
{
    const size_t bytes = (size_t)s->shares * sizeof(double);
    phase_t p = {.share = *s};

    if (!grow((void **)&sim.phase, sim.n_phases, &sim.cap_phases, sizeof p)) {
        return false;
    }
    p.bytes = gr_malloc(bytes);
    p.products = gr_malloc(bytes);
    sim.phase[sim.n_phases++] = p;
    if (!p.bytes || !p.products) {
        return false;
    }
    memset(p.bytes, 0, bytes);
    memset(p.products, 0, bytes);
    return true;
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

    return x < y ? -1 : x > y;
}

/* Bytes of pages whose lines do not count, and the pages whose lines do. */
static void count_pages(phase_t *p)
{
    for (size_t i = 0; i < sim.n_reads; i++) {
        unit_t *page = &sim.table[sim.reads[i].unit];
        const int share = sim.reads[i].share, node = node_of(share, p->share.shares);

        if (!(page->far & 1 << node)) {
            p->far += page->owner != node ? PAGE : 0;
            p->far_of_one += node != 0 ? PAGE : 0;
            page->far |= (unsigned char)(1 << node);
        }
        if (page->shares == 1 || page->shares > FEW || page->written == sim.at) {
            p->bytes[share] += (double)PAGE / page->shares;
        } else if (page->last == (uint32_t)share + 1) { /* once for each page */
            if (!grow((void **)&p->mixed, p->n_mixed, &p->cap_mixed, sizeof *p->mixed)) {
                sim.out_of_memory = true;
                return;
            }
            p->mixed[p->n_mixed++] = page->at;
        }
    }
    if (p->n_mixed) {
        qsort(p->mixed, p->n_mixed, sizeof *p->mixed, by_address);
    }
}

static void end_phase(void)
{
    phase_t *p = sim.at ? &sim.phase[sim.at - 1] : NULL;

    if (p && !sim.lines) {
        count_pages(p);
    }
    for (size_t i = 0; i < sim.n_reads; i++) {
        if (p && sim.lines) {
            p->bytes[sim.reads[i].share] += (double)LINE / sim.table[sim.reads[i].unit].shares;
        }
    }
    for (size_t i = 0; i < sim.n_reads; i++) {
        unit_t *unit = &sim.table[sim.reads[i].unit];

        unit->shares = unit->last = unit->far = 0;
    }
    sim.n_reads = 0;
}

static void keep_touched(const sinter_share_t *s)
{
    for (size_t i = 0; i < sim.n_touched; i++) {
        const uintptr_t address = sim.touched[i] & ~(uintptr_t)WRITTEN;
        const size_t at = place_in(sim.table, sim.room, address);
        unit_t *unit = &sim.table[at];

        if (!unit->at) {
            *unit = (unit_t){.at = address, .owner = (unsigned char)node_of(s->number, s->shares)};
            sim.n_units++;
        }
        if (sim.touched[i] != address) {
            unit->written = sim.at;
        }
        if (sim.touched[i] != address || unit->last == (uint32_t)s->number + 1) {
            continue;
        }
        if (!grow((void **)&sim.reads, sim.n_reads, &sim.cap_reads, sizeof *sim.reads)) {
            sim.out_of_memory = true;
            return;
        }
        unit->shares++;
        unit->last = (uint32_t)s->number + 1;
        sim.reads[sim.n_reads++] = (read_t){at, s->number};
    }
}

static bool is_of(const sinter_share_t *s, const phase_t *p)
{
    return s->element == p->share.element && s->step == p->share.step && s->phase == p->share.phase;
}

static void begin_share(const sinter_share_t *s)
{
    if (sim.at == 0 || !is_of(s, &sim.phase[sim.at - 1])) {
        end_phase();
        if (!sim.lines && !new_phase(s)) {
            sim.out_of_memory = true;
            return;
        }
        if (sim.at == sim.n_phases || !is_of(s, &sim.phase[sim.at])) {
            sim.bad = true; /* the second run has other phases */
            return;
        }
        sim.at++;
        sim.out_of_memory |= !make_room();
    }
    sim.n_touched = 0;
    memset(sim.recent, 0, sizeof sim.recent);
    sim.on = true;
    protect_all(PROT_NONE);
}

static void on_share(void *user, const sinter_share_t *s)
{
    (void)user;
    if (!sim.watches || sim.out_of_memory || sim.bad) {
        return;
    }
    if (!s->done) {
        begin_share(s);
        return;
    }
    protect_all(PROT_READ | PROT_WRITE);
    sim.on = false;
    sim.bad |= sim.n_touched == MOST_TOUCHED;
    keep_touched(s);
    sim.phase[sim.at - 1].products[s->number] = (double)s->products;
}

/* Worker 0 runs all shares. */
static void run_one(void *pool, int workers, void (*run)(void *task, int worker), void *task)
{
    (void)pool, (void)workers;
    run(task, 0);
}

void gr_simulate_stream(const gr_options_t *opt, sinter_stream_desc_t *stream)
{
    stream->threads = (int)opt->simulate_threads;
    stream->all_threads = 0;
    stream->parallel_for = run_one;
    stream->watch = on_share;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int begin(gr_error_t *err)
{
    sim.n_phases = sim.n_touched = sim.n_reads = 0;
    sim.bad = sim.out_of_memory = false;
    sim.n_open = 0;
    sim.touched = mmap(NULL, MOST_TOUCHED * sizeof *sim.touched, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sim.touched == MAP_FAILED) {
        return gr_fail_memory(err);
    }
    return catch_faults(err);
}

static void forget_units(void)
{
    gr_free(sim.table);
    sim.table = NULL;
    sim.room = sim.n_units = sim.at = 0;
}

static void end(void)
{
    if (sim.touched && sim.touched != MAP_FAILED) {
        munmap(sim.touched, MOST_TOUCHED * sizeof *sim.touched);
        sim.touched = NULL;
    }
    for (size_t i = 0; i < sim.n_phases; i++) {
        gr_free(sim.phase[i].bytes);
        gr_free(sim.phase[i].products);
        gr_free(sim.phase[i].mixed);
    }
    forget_units();
    gr_free(sim.reads);
    gr_free(sim.phase);
    sim.reads = NULL;
    sim.phase = NULL;
    sim.cap_reads = sim.cap_phases = 0;
    sim.n_blocks = sim.n_allocated;
}

/* What shares of a phase read or multiply. */
typedef struct spread_of {
    double all, most;
} spread_of_t;

static spread_of_t spread_of(const double *x, int n)
{
    spread_of_t s = {0};

    for (int i = 0; i < n; i++) {
        s.all += x[i];
        s.most = x[i] > s.most ? x[i] : s.most;
    }
    return s;
}

/* How many times the mean of n parts the largest one is. */
static double over_mean(spread_of_t s, int n)
{
    return s.all > 0 ? s.most * n / s.all : 1;
}

/* Barriers stand between jobs: phases of several shares, and runs of phases with one share each. */
static void report(const gr_exec_t *x)
{
    spread_of_t all_bytes = {0}, all_products = {0};
    double far = 0, far_of_one = 0;
    int barriers = 0;

    gr_print("simulated: %d threads on %d node%s\n", sim.threads, sim.nodes,
             sim.nodes == 1 ? "" : "s");
    for (size_t i = 0; i < sim.n_phases; i++) {
        const phase_t *p = &sim.phase[i];
        const int shares = p->share.shares;
        const spread_of_t bytes = spread_of(p->bytes, shares),
                          products = spread_of(p->products, shares);

        barriers += i > 0 && (shares > 1 || sim.phase[i - 1].share.shares > 1);
        all_bytes.all += bytes.all;
        all_bytes.most += bytes.most;
        all_products.all += products.all;
        all_products.most += products.most;
        far += p->far;
        far_of_one += p->far_of_one;
        gr_print("    %d %s, step %d, phase %d: %s, %d shares, %.3f MB (largest %.3f of the mean), "
                 "%.3f M products (%.3f), from other nodes %.3f MB (%.3f)\n",
                 p->share.element, x->parts[p->share.element].pattern, p->share.step,
                 p->share.phase, p->share.kernel, shares, bytes.all / 1e6, over_mean(bytes, shares),
                 products.all / 1e6, over_mean(products, shares), p->far / 1e6,
                 p->far_of_one / 1e6);
    }
    gr_print("    all: %d barriers, %.3f MB (largest %.3f of the mean), %.3f M products (%.3f), "
             "from other nodes %.3f MB (%.3f)\n",
             barriers, all_bytes.all / 1e6, over_mean(all_bytes, sim.threads),
             all_products.all / 1e6, over_mean(all_products, sim.threads), far / 1e6,
             far_of_one / 1e6);
}

static int run(gr_exec_t *x, bool lines, gr_error_t *err)
{
    sinter_status_t status;

    sim.lines = lines;
    sim.watches = true;
    status = sinter_compiled_graph_execute(x->whole, x->stream);
    sim.watches = false;
    if (status) {
        return gr_library_failure(status, "execute", err);
    }
    end_phase();
    sim.bad |= sim.at != sim.n_phases;
    forget_units();
    return sim.out_of_memory ? gr_fail_memory(err)
           : sim.bad ? gr_fail(err, "--simulate-threads: the system does not allow so many pieces "
                                    "of memory (vm.max_map_count)")
                     : 0;
}

int gr_simulate(gr_exec_t *x, gr_error_t *err)
{
    int failed;

    sim.threads = (int)x->opt->simulate_threads;
    sim.nodes = (int)x->opt->simulate_nodes;
    failed = gr_exec_share_memory(x, err) || begin(err);
    if (!failed) {
        for (size_t i = 0; i < x->model->n_tensors; i++) {
            const gr_buffer_t *b = &x->buffers[i];

            watch_tensor(b->data, b->bytes);
            watch_tensor(b->opaque, b->opaque_bytes);
        }
        failed = run(x, false, err) || run(x, true, err);
        sigaction(SIGSEGV, &sim.segv, NULL);
        sigaction(SIGTRAP, &sim.trap, NULL);
    }
    if (!failed) {
        report(x);
    }
    end();
    return failed ? -1 : 0;
}
