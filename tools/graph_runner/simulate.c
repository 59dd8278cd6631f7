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
    LEAST_BLOCK = 16 * PAGE, /* bytes of memory that is watched */
    MOST_BLOCKS = 8192,
    MOST_TOUCHED = 1 << 24, /* pages, by a share */
    WRITTEN = 1 /* added to the address of a page */
};

/* Whole pages. */
typedef struct block {
    uintptr_t begin, end;
    void *memory; /* of the allocator; NULL: of a tensor */
} block_t;

/* What is known of a page that was touched. */
typedef struct page {
    uintptr_t at;             /* 0: a free place of the table */
    uint32_t shares;          /* that read it in this phase */
    unsigned char owner, far; /* its node; other nodes that read it in this phase, a bit each */
} page_t;

typedef struct read {
    size_t page; /* place in the table */
    int share;
} read_t;

/* A phase that is over. */
typedef struct phase {
    sinter_share_t share;
    double bytes, most_bytes;       /* of all shares, and of the share with most */
    double products, most_products; /* the same */
    double far, far_of_one;         /* bytes from other nodes: by first touch; if one wrote all */
} phase_t;

static struct {
    pthread_mutex_t lock; /* of blocks, while no share runs */
    block_t block[MOST_BLOCKS];
    size_t n_blocks, n_allocated; /* those of the allocator stand first */
    int threads, nodes;
    bool watches; /* this run is the one that counts */
    bool on;      /* a share runs */
    bool bad;     /* memory could not be watched */
    /* Pages that the share at hand has touched; those that it wrote first are WRITTEN. */
    uintptr_t *touched;
    volatile size_t n_touched;
    struct sigaction before;
    page_t *table;
    size_t room, n_pages;
    /* Of the phase at hand. */
    read_t *reads;
    size_t n_reads, cap_reads;
    double *products; /* by share */
    sinter_share_t now;
    phase_t *phase;
    size_t n_phases, cap_phases;
    bool out_of_memory;
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
    }
    sim.bad |= watched && sim.n_blocks == MOST_BLOCKS;
    pthread_mutex_unlock(&sim.lock);
    return memory;
}

static void watched_free(void *memory, void *user)
{
    (void)user;
    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < sim.n_allocated; i++) {
        if (sim.block[i].memory == memory && memory) {
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

    if (data && bytes >= LEAST_BLOCK && begin < end) {
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
/* The first access of the share at hand to a page. What it writes before it reads, it does not read
 * from memory. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    enum { WRITES = 2 };
    const ucontext_t *cpu = context;
    const uintptr_t at = (uintptr_t)info->si_addr / PAGE * PAGE;
    const bool writes = cpu->uc_mcontext.gregs[REG_ERR] & WRITES;
    const block_t *found = NULL;

    for (size_t i = 0; i < sim.n_blocks && !found; i++) {
        found = at >= sim.block[i].begin && at < sim.block[i].end ? &sim.block[i] : NULL;
    }
    if (!found || !sim.on) {
        sigaction(number, &sim.before, NULL); /* the access is repeated, and ends as it would */
        return;
    }
    if (sim.n_touched < MOST_TOUCHED) {
        sim.touched[sim.n_touched++] = at + (writes ? WRITTEN : 0);
    }
    if (mprotect((void *)at, PAGE, writes ? PROT_READ | PROT_WRITE : PROT_READ)) {
        sim.bad = true; /* more pieces of memory than the system allows */
        mprotect((void *)found->begin, found->end - found->begin, PROT_READ | PROT_WRITE);
    }
}

static int catch_faults(gr_error_t *err)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (sysconf(_SC_PAGESIZE) != PAGE || sigaction(SIGSEGV, &action, &sim.before)) {
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

/* ---- pages ----------------------------------------------------------------------------------- */

static size_t place_in(const page_t *table, size_t room, uintptr_t at)
{
    size_t i = at / PAGE * 0x9E3779B97F4A7C15u % room;

    while (table[i].at && table[i].at != at) {
        i = i + 1 == room ? 0 : i + 1;
    }
    return i;
}

/* Before the first read of a phase: places do not move within one. */
static bool make_room(void)
{
    size_t pages = 0, room;
    page_t *table;

    for (size_t i = 0; i < sim.n_blocks; i++) {
        pages += (sim.block[i].end - sim.block[i].begin) / PAGE;
    }
    room = 2 * (sim.n_pages + pages) + 1;
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

/* Room for one more element. */
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

/* The node of the thread that takes a share first, if all come at once. */
static int node_of(int share, int shares)
{
    const int64_t thread = ((int64_t)share * sim.threads + shares - 1) / shares;

    return (int)(thread * sim.nodes / sim.threads);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static void keep_touched(const sinter_share_t *s)
{
    for (size_t i = 0; i < sim.n_touched; i++) {
        const uintptr_t address = sim.touched[i] & ~(uintptr_t)WRITTEN;
        const size_t at = place_in(sim.table, sim.room, address);
        page_t *page = &sim.table[at];

        if (!page->at) {
            *page = (page_t){.at = address, .owner = (unsigned char)node_of(s->number, s->shares)};
            sim.n_pages++;
        }
        if (sim.touched[i] != address) {
            continue;
        }
        if (!grow((void **)&sim.reads, sim.n_reads, &sim.cap_reads, sizeof *sim.reads)) {
            sim.out_of_memory = true;
            return;
        }
        page->shares++;
        sim.reads[sim.n_reads++] = (read_t){at, s->number};
    }
}

static void end_phase(void)
{
    const int shares = sim.now.shares;
    double *bytes = shares ? gr_malloc((size_t)shares * sizeof *bytes) : NULL;
    phase_t p = {.share = sim.now};

    if (!shares) {
        return;
    }
    if (!bytes || !grow((void **)&sim.phase, sim.n_phases, &sim.cap_phases, sizeof p)) {
        sim.out_of_memory = true;
        gr_free(bytes);
        return;
    }
    memset(bytes, 0, (size_t)shares * sizeof *bytes);
    for (size_t i = 0; i < sim.n_reads; i++) {
        page_t *page = &sim.table[sim.reads[i].page];
        const int node = node_of(sim.reads[i].share, shares);

        bytes[sim.reads[i].share] += (double)PAGE / page->shares;
        if (!(page->far & 1 << node)) {
            p.far += page->owner != node ? PAGE : 0;
            p.far_of_one += node != 0 ? PAGE : 0;
            page->far |= (unsigned char)(1 << node);
        }
    }
    for (size_t i = 0; i < sim.n_reads; i++) {
        sim.table[sim.reads[i].page].shares = 0;
        sim.table[sim.reads[i].page].far = 0;
    }
    for (int i = 0; i < shares; i++) {
        p.bytes += bytes[i];
        p.most_bytes = bytes[i] > p.most_bytes ? bytes[i] : p.most_bytes;
        p.products += sim.products[i];
        p.most_products = sim.products[i] > p.most_products ? sim.products[i] : p.most_products;
    }
    gr_free(bytes);
    sim.phase[sim.n_phases++] = p;
    sim.n_reads = 0;
    memset(sim.products, 0, (size_t)sim.threads * sizeof *sim.products);
}

static void begin_share(const sinter_share_t *s)
{
    if (s->element != sim.now.element || s->step != sim.now.step || s->phase != sim.now.phase ||
        !sim.now.shares) {
        end_phase();
        sim.now = *s;
        sim.out_of_memory |= !make_room();
    }
    sim.n_touched = 0;
    sim.on = true;
    protect_all(PROT_NONE);
}

static void on_share(void *user, const sinter_share_t *s)
{
    (void)user;
    if (!sim.watches || sim.out_of_memory) {
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
    sim.products[s->number] += (double)s->products;
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
    sim.now = (sinter_share_t){0};
    sim.bad = sim.out_of_memory = false;
    sim.products = gr_malloc((size_t)sim.threads * sizeof *sim.products);
    sim.touched = mmap(NULL, MOST_TOUCHED * sizeof *sim.touched, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!sim.products || sim.touched == MAP_FAILED) {
        return gr_fail_memory(err);
    }
    memset(sim.products, 0, (size_t)sim.threads * sizeof *sim.products);
    return catch_faults(err);
}

static void end(void)
{
    sim.watches = false;
    sim.n_blocks = sim.n_allocated;
    if (sim.touched != MAP_FAILED) {
        munmap(sim.touched, MOST_TOUCHED * sizeof *sim.touched);
    }
    gr_free(sim.products);
    gr_free(sim.table);
    gr_free(sim.reads);
    gr_free(sim.phase);
    sim.products = NULL;
    sim.table = NULL;
    sim.reads = NULL;
    sim.phase = NULL;
    sim.room = sim.n_pages = sim.cap_reads = sim.cap_phases = 0;
}

/* How many times the mean the largest part of n is. */
static double over_mean(double most, double all, double n)
{
    return all > 0 ? most * n / all : 1;
}

/* Barriers stand between jobs: phases of several shares, and runs of phases with one share each. */
static void report(const gr_exec_t *x)
{
    phase_t all = {0};
    int barriers = -1;

    gr_print("simulated: %d threads on %d nodes\n", sim.threads, sim.nodes);
    for (size_t i = 0; i < sim.n_phases; i++) {
        const phase_t *p = &sim.phase[i];
        const int shares = p->share.shares;

        barriers += shares > 1 || i == 0 || sim.phase[i - 1].share.shares > 1;
        all.bytes += p->bytes;
        all.most_bytes += p->most_bytes;
        all.products += p->products;
        all.most_products += p->most_products;
        all.far += p->far;
        all.far_of_one += p->far_of_one;
        gr_print("    %d %s, step %d, phase %d: %s, %d shares, %.3f MB (largest %.3f of the mean), "
                 "%.3f M products (%.3f), from other nodes %.3f MB (%.3f)\n",
                 p->share.element, x->parts[p->share.element].pattern, p->share.step,
                 p->share.phase, p->share.kernel, shares, p->bytes / 1e6,
                 over_mean(p->most_bytes, p->bytes, shares), p->products / 1e6,
                 over_mean(p->most_products, p->products, shares), p->far / 1e6,
                 p->far_of_one / 1e6);
    }
    gr_print("    all: %d barriers, %.3f MB (largest shares %.3f of an even division), "
             "%.3f M products (%.3f), from other nodes %.3f MB (%.3f)\n",
             barriers < 0 ? 0 : barriers, all.bytes / 1e6,
             over_mean(all.most_bytes, all.bytes, sim.threads), all.products / 1e6,
             over_mean(all.most_products, all.products, sim.threads), all.far / 1e6,
             all.far_of_one / 1e6);
}

int gr_simulate(gr_exec_t *x, gr_error_t *err)
{
    sinter_status_t status = sinter_success;
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
        sim.watches = true;
        status = sinter_compiled_graph_execute(x->whole, x->stream);
        end_phase();
        sigaction(SIGSEGV, &sim.before, NULL);
    }
    if (!failed && status) {
        failed = gr_library_failure(status, "execute", err);
    } else if (!failed && sim.out_of_memory) {
        failed = gr_fail_memory(err);
    } else if (!failed && sim.bad) {
        failed = gr_fail(err, "--simulate-threads: the system does not allow so many pieces of "
                              "memory (vm.max_map_count)");
    } else if (!failed) {
        report(x);
    }
    end();
    return failed;
}
