#include "bench.h"

#include "limits.h"
#include "record.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 100000, MIN_RUNS = 5, MAX_SETS = 64 };

/* One set of tensors of a partition, over memory of its own for all but the first set. */
typedef struct set {
    gr_buffer_t *buffers;
    sinter_tensor_t **tensors; /* inputs, then outputs */
} set_t;

typedef struct bench {
    gr_exec_t *x;
    const gr_part_t *part;
    size_t n, n_sets, next; /* tensors of a set, sets, the set that runs next */
    set_t sets[MAX_SETS];
    /* With --cold-cache: alternates with the runs, and leaves nothing of theirs in the caches. */
    gr_meter_t meter;
    int metered;
    double *times, *rates, *mixed; /* of the runs, of the meter before each */
    double *of_rate, *of_mixed;    /* the rate of each run as a fraction of those */
    double *of_roofline;           /* the roofline's time as a fraction of each run's */
    double read, written;          /* bytes of the inputs, of the outputs */
    size_t n_times;
    gr_work_t work;
    const gr_limits_t *limits;
} bench_t;

typedef struct result {
    double compile, min, median, flops, bytes;
    double best_rate, median_rate; /* of the meter; 0: none */
    /* Of the meter's passes that read and write as the partition does; 0: none. */
    double best_mixed, median_mixed;
    double of_rate, of_mixed; /* median of the runs' fractions of what was measured beside each */
    gr_roofline_t roofline;   /* seconds, with the best rate of reading */
    double at_min, at_median; /* seconds of the roofline for the best and the median run */
    bool attention;
    size_t runs;
} result_t;

static const sinter_logical_tensor_t *port(const gr_exec_t *x, const gr_part_t *p, size_t i)
{
    return gr_exec_port(x, i < p->n_in ? &p->in[i] : &p->out[i - p->n_in]);
}

/* Bytes of ports from..to - 1. */
static double port_bytes(const gr_exec_t *x, const gr_part_t *p, size_t from, size_t to)
{
    double sum = 0;

    for (size_t i = from; i < to; i++) {
        sum += gr_port_bytes(x, p, i);
    }
    return sum;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* The port whose buffer port i has: a cache is updated in place, as an engine does it. */
static size_t buffer_of(const bench_t *b, size_t i)
{
    const size_t cache =
        i < b->part->n_in ? b->part->n_in : gr_cache_port(b->x, b->part, i - b->part->n_in);

    return cache < b->part->n_in ? cache : i;
}

static int open_set(bench_t *b, set_t *set, int copy, gr_error_t *err)
{
    gr_arena_t *arena = &b->x->model->arena;

    set->buffers = gr_arena_alloc(arena, b->n, sizeof *set->buffers);
    set->tensors = gr_arena_alloc(arena, b->n, sizeof *set->tensors);
    if (!set->buffers || !set->tensors) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < b->n; i++) {
        const size_t at = buffer_of(b, i);
        const gr_buffer_t *from = gr_exec_buffer(b->x, port(b->x, b->part, at)->id);

        if (copy && at == i) {
            if (gr_buffer_alloc(&set->buffers[i], &from->lt, err)) {
                return -1;
            }
            memcpy(set->buffers[i].data, from->data, from->bytes);
            if (from->opaque && gr_buffer_pack(&set->buffers[i], port(b->x, b->part, i), err)) {
                return -1;
            }
        }
        if (gr_make_tensor(b->x, port(b->x, b->part, i), copy ? &set->buffers[at] : from,
                           &set->tensors[i], err)) {
            return -1;
        }
    }
    return 0;
}

/* With --cold-cache: as many sets as make twice the last-level cache, as far as that is not left
 * to the meter. */
static int open_sets(bench_t *b, bool copies, gr_error_t *err)
{
    size_t bytes = (size_t)(b->read + b->written) + 1, twice = 2 * gr_last_level_cache();

    b->n_sets = 1;
    if (b->x->opt->cold_cache && bytes >= twice / (MAX_SETS - 1)) {
        b->n_sets = twice / bytes + 2;
    }
    b->metered = b->x->opt->cold_cache;
    if (b->metered &&
        gr_meter_open(&b->meter, sinter_engine_get_isa(b->x->engine), copies, b->x->threads)) {
        return gr_fail_memory(err);
    }
    for (size_t s = 0; s < b->n_sets; s++) {
        if (open_set(b, &b->sets[s], s > 0, err)) {
            return -1;
        }
    }
    return 0;
}

static void close_bench(bench_t *b)
{
    for (size_t s = 0; s < b->n_sets; s++) {
        for (size_t i = 0; b->sets[s].tensors && i < b->n; i++) {
            sinter_tensor_destroy(&b->sets[s].tensors[i]);
            gr_buffer_free(&b->sets[s].buffers[i]);
        }
    }
    gr_free(b->times);
    gr_free(b->rates);
    gr_free(b->mixed);
    gr_free(b->of_rate);
    gr_free(b->of_mixed);
    gr_free(b->of_roofline);
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* One execute with the next set. */
static int run_once(bench_t *b, double *seconds, gr_error_t *err)
{
    const set_t *set = &b->sets[b->next];
    sinter_status_t status;
    double start;

    b->next = b->next + 1 < b->n_sets ? b->next + 1 : 0;
    start = gr_seconds();
    status =
        sinter_compiled_partition_execute(b->part->compiled, b->x->stream, b->part->n_in,
                                          (const sinter_tensor_t *const *)set->tensors,
                                          b->part->n_out, set->tensors + b->part->n_in, NULL, 0);
    *seconds = gr_seconds() - start;
    return status ? gr_library_failure(status, "execute", err) : 0;
}

/* A run that counts, and with --cold-cache the passes before it. */
static int time_once(bench_t *b, size_t i, gr_error_t *err)
{
    b->mixed[i] = b->metered ? gr_meter_mixed(&b->meter, b->read, b->written) : 0;
    b->rates[i] = b->metered ? gr_meter_rate(&b->meter) : 0;
    return run_once(b, &b->times[i], err);
}

static int open_times(bench_t *b, gr_error_t *err)
{
    const size_t want = b->x->opt->repeat ? (size_t)b->x->opt->repeat : MAX_RUNS;

    b->times = gr_malloc(want * sizeof *b->times);
    b->rates = gr_malloc(want * sizeof *b->rates);
    b->mixed = gr_malloc(want * sizeof *b->mixed);
    b->of_rate = gr_malloc(want * sizeof *b->of_rate);
    b->of_mixed = gr_malloc(want * sizeof *b->of_mixed);
    b->of_roofline = gr_malloc(want * sizeof *b->of_roofline);
    if (!b->times || !b->rates || !b->mixed || !b->of_rate || !b->of_mixed || !b->of_roofline) {
        return gr_fail_memory(err);
    }
    return 0;
}

static int run_all(bench_t *b, gr_error_t *err)
{
    const gr_options_t *opt = b->x->opt;
    const size_t want = opt->repeat ? (size_t)opt->repeat : MAX_RUNS;
    double start, progress, seconds;

    /* Warm up code and scratch memory, and let copies of constants be made. */
    for (size_t i = 0; i < (b->n_sets > 1 ? b->n_sets : 2); i++) {
        if (run_once(b, &seconds, err)) {
            return -1;
        }
    }
    start = progress = gr_seconds();
    for (b->n_times = 0; b->n_times < want; b->n_times++) {
        double now = gr_seconds();

        if (!opt->repeat && b->n_times >= (opt->on_demand ? 1 : MIN_RUNS) &&
            now - start >= opt->min_time) {
            break;
        }
        if (now - progress > 5) {
            gr_progress("partition %zu: %zu runs in %.0f s", b->part->id, b->n_times, now - start);
            progress = now;
        }
        if (time_once(b, b->n_times, err)) {
            return -1;
        }
    }
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double fraction(double rate, double limit)
{
    return limit > 0 ? rate / limit : 0;
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare_doubles);
    return x[n / 2];
}

/* What a run could have taken at least, where reads, or copies if there are no products, had this
 * rate and passes that read and write as it does that one. */
static double roofline_seconds(const bench_t *b, double rate, double mixed)
{
    const bool copies = b->work.flops == 0;
    const double memory = copies ? b->limits->copy_bytes : b->limits->read_bytes;
    gr_roofline_t r;

    rate = b->metered ? rate : memory;
    r = gr_roofline(&b->work, b->limits, copies && mixed > 0 ? mixed : rate);
    return r.memory > r.products ? r.memory : r.products;
}

/* Memory may be twice as fast a second later, so each run is compared with what was measured
 * just before it. */
static void summarise(bench_t *b, result_t *r)
{
    for (size_t i = 0; i < b->n_times; i++) {
        b->of_rate[i] = fraction(r->bytes / b->times[i], b->rates[i]);
        b->of_mixed[i] = fraction(r->bytes / b->times[i], b->mixed[i]);
        b->of_roofline[i] = roofline_seconds(b, b->rates[i], b->mixed[i]) / b->times[i];
    }
    r->median = median(b->times, b->n_times);
    r->median_rate = median(b->rates, b->n_times);
    r->median_mixed = median(b->mixed, b->n_times);
    r->of_rate = median(b->of_rate, b->n_times);
    r->of_mixed = median(b->of_mixed, b->n_times);
    r->runs = b->n_times;
    r->min = b->times[0];
    r->best_rate = b->rates[b->n_times - 1];
    r->best_mixed = b->mixed[b->n_times - 1];
    r->at_min = roofline_seconds(b, r->best_rate, r->best_mixed);
    r->at_median = median(b->of_roofline, b->n_times) * r->median;
    if (r->flops > 0) {
        r->roofline =
            gr_roofline(&b->work, b->limits, b->metered ? r->best_rate : b->limits->read_bytes);
    }
}

/* All that a partition's runs need. close_bench follows, after a failure too. */
static int open_bench(gr_exec_t *x, const gr_part_t *p, bench_t *b, result_t *r, gr_error_t *err)
{
    *b = (bench_t){.x = x, .part = p, .n = p->n_in + p->n_out};
    if (gr_part_work(x, p, &b->work, err)) {
        return -1;
    }
    b->read = port_bytes(x, p, 0, p->n_in);
    b->written = port_bytes(x, p, p->n_in, b->n);
    *r = (result_t){.compile = p->compile_seconds,
                    .flops = b->work.flops,
                    .bytes = b->work.bytes,
                    .attention = b->work.attention};
    return open_sets(b, r->flops == 0, err) || open_times(b, err) ? -1 : 0;
}

static int bench_part(gr_exec_t *x, const gr_part_t *p, const gr_limits_t *limits, result_t *r,
                      gr_error_t *err)
{
    bench_t b;
    const int failed = open_bench(x, p, &b, r, err) || run_all(&b, err);

    if (!failed) {
        b.limits = limits;
        summarise(&b, r);
    }
    close_bench(&b);
    return failed ? -1 : 0;
}

/* A partition without products (quantisation, reorders, elementwise chains) does no more than a
 * copy that converts, so it is compared with copies, and others with reads. of_memory: its fraction
 * of those; of_mixed: of passes that read and write as many bytes, 0: not measured. roofline: its
 * seconds. */
static gr_rate_t rate_of(double seconds, double roofline, const result_t *r,
                         const gr_limits_t *limits, double of_memory, double of_mixed)
{
    gr_rate_t rate = {.seconds = seconds,
                      .flops = r->flops / seconds,
                      .bytes = r->bytes / seconds,
                      .of_roofline = roofline / seconds,
                      .of_mixed = of_mixed};

    if (r->flops == 0) {
        rate.of_copy = of_memory;
        return rate;
    }
    rate.of_read = of_memory;
    rate.of_fma = fraction(rate.flops, limits->fma_flops);
    rate.of_int8 = fraction(rate.flops, limits->int8_ops);
    return rate;
}

static gr_figures_t figures_of(const result_t *r, const gr_limits_t *limits)
{
    const double memory = r->flops == 0 ? limits->copy_bytes : limits->read_bytes;
    const double best = r->bytes / r->min, typical = r->bytes / r->median;
    const int metered = r->best_rate > 0;
    gr_figures_t f = {.runs = r->runs,
                      .flops = r->flops,
                      .bytes = r->bytes,
                      .attention = r->attention,
                      .roofline = r->roofline,
                      .compile_seconds = r->compile};

    f.min = rate_of(r->min, r->at_min, r, limits, fraction(best, metered ? r->best_rate : memory),
                    fraction(best, r->best_mixed));
    f.median = rate_of(r->median, r->at_median, r, limits,
                       metered ? r->of_rate : fraction(typical, memory), r->of_mixed);
    return f;
}

static void print_rate(const char *what, const result_t *r, const gr_rate_t *rate)
{
    if (r->flops == 0) {
        gr_print("        %-6s %.4g ms: %.4g GB/s = %.3g of copy bandwidth", what,
                 1e3 * rate->seconds, 1e-9 * rate->bytes, rate->of_copy);
        if (rate->of_mixed > 0) {
            gr_print(", %.3g of its read and write limit", rate->of_mixed);
        }
        gr_print("\n");
        return;
    }
    gr_print("        %-6s %.4g ms: %.4g GFLOP/s = %.3g of FMA peak", what, 1e3 * rate->seconds,
             1e-9 * rate->flops, rate->of_fma);
    if (rate->of_int8 > 0) {
        gr_print(" = %.3g of int8 peak", rate->of_int8);
    }
    gr_print(", %.4g GB/s = %.3g of read bandwidth, %.3g of roofline\n", 1e-9 * rate->bytes,
             rate->of_read, rate->of_roofline);
}

/* The fraction of the peak for integers may be above 1 by another instruction. */
static bool above_one(const gr_rate_t *rate)
{
    const double most = 1.005; /* 1 as it is printed */
    return rate->of_read > most || rate->of_copy > most || rate->of_mixed > most ||
           rate->of_fma > most || rate->of_roofline > most;
}

static void print_result(const char *what, const result_t *r, const gr_figures_t *f)
{
    gr_print("    %s: compile %.3g ms, %.4g MFLOP, %.4g MB %s\n", what, 1e3 * r->compile,
             1e-6 * r->flops, 1e-6 * r->bytes, r->attention ? "of K and V" : "read and written");
    if (r->best_rate > 0) {
        gr_print("        %s between the runs: best %.4g, median %.4g GB/s\n",
                 r->flops == 0 ? "copies" : "reads", 1e-9 * r->best_rate, 1e-9 * r->median_rate);
    }
    if (r->best_mixed > 0) {
        gr_print("        passes that read and write as it does: best %.4g, median %.4g GB/s\n",
                 1e-9 * r->best_mixed, 1e-9 * r->median_mixed);
    }
    if (r->roofline.products > 0) {
        gr_print("        roofline: memory %.4g ms, products %.4g ms\n", 1e3 * r->roofline.memory,
                 1e3 * r->roofline.products);
    }
    print_rate("min", r, &f->min);
    print_rate("median", r, &f->median);
    if (above_one(&f->min) || above_one(&f->median)) {
        gr_print(
            "        above 1: the caches held what the limit reads from memory, or the machine "
            "was slower while the limit was measured\n");
    }
}

int gr_bench_on_demand(gr_exec_t *x, gr_error_t *err)
{
    bench_t *b = gr_arena_alloc(&x->model->arena, x->n_parts, sizeof *b);
    result_t r;
    int failed = 0, c;

    if (!b) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < x->n_parts && !failed; i++) {
        failed = open_bench(x, &x->parts[i], &b[i], &r, err) || run_all(&b[i], err);
    }
    if (!failed) {
        printf("ready\n");
        fflush(stdout);
    }
    while (!failed && (c = getchar()) != EOF) {
        double sum = 0;

        if (c != '\n') {
            continue;
        }
        for (size_t i = 0; i < x->n_parts && !failed; i++) {
            failed = run_all(&b[i], err);
            sum += failed ? 0 : median(b[i].times, b[i].n_times);
        }
        if (!failed) {
            printf("%.9g us\n", 1e6 * sum);
            fflush(stdout);
        }
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        close_bench(&b[i]);
    }
    return failed ? -1 : 0;
}

static void print_limits(const gr_limits_t *l)
{
    gr_print("    limits of %d threads (%s): read %.4g GB/s, copy %.4g GB/s, FMA f32 %.4g GFLOP/s",
             l->threads, l->isa, 1e-9 * l->read_bytes, 1e-9 * l->copy_bytes, 1e-9 * l->fma_flops);
    if (l->int8_ops > 0) {
        gr_print(", int8 %.4g GOP/s (%s)", 1e-9 * l->int8_ops, l->int8_by);
    }
    if (l->bf16_flops > 0) {
        gr_print(", bf16 %.4g GFLOP/s", 1e-9 * l->bf16_flops);
    }
    gr_print("\n");
}

/* The limits that --limits gives, or else measured ones. given: room for the former. */
static int find_limits(const gr_exec_t *x, gr_limits_t *given, const gr_limits_t **limits,
                       gr_error_t *err)
{
    if (!x->opt->limits || !strcmp(x->opt->limits, "measured")) {
        *limits = gr_limits(sinter_engine_get_isa(x->engine), x->threads);
        return 0;
    }
    *limits = given;
    return gr_limits_parse(x->opt->limits, x->threads, given, err);
}

static void print_bound(const gr_part_t *p, const gr_work_t *work, const gr_roofline_t *bound)
{
    gr_print("    partition %zu %s: %.4g MFLOP, reads %.4g MB, writes %.4g MB, roofline: memory "
             "%.4g ms, products %.4g ms\n",
             p->id, p->pattern, 1e-6 * work->flops, 1e-6 * work->read, 1e-6 * work->written,
             1e3 * bound->memory, 1e3 * bound->products);
}

static int find_bounds(gr_exec_t *x, const gr_limits_t *limits, gr_error_t *err)
{
    for (size_t i = 0; i < x->n_parts; i++) {
        gr_work_t work;
        gr_roofline_t bound;

        if (gr_part_work(x, &x->parts[i], &work, err)) {
            return -1;
        }
        bound =
            gr_roofline(&work, limits, work.flops > 0 ? limits->read_bytes : limits->copy_bytes);
        print_bound(&x->parts[i], &work, &bound);
        gr_record_work(x->record, (int)i, &work, &bound);
    }
    return 0;
}

int gr_bench_bounds(gr_exec_t *x, gr_error_t *err)
{
    const gr_limits_t *limits;
    gr_limits_t given;

    if (find_limits(x, &given, &limits, err)) {
        return -1;
    }
    print_limits(limits);
    gr_record_limits(x->record, limits);
    return find_bounds(x, limits, err);
}

/* ---- the graph as a whole -------------------------------------------------------------------- */

/* Seconds of executes of the compiled graph, with the memory that it has for tensors between
 * partitions; with --cold-cache a pass over other memory goes before each. Gives their number. */
static size_t time_whole(gr_exec_t *x, const gr_meter_t *meter, double *times, size_t most,
                         gr_error_t *err)
{
    const size_t warm = 2;
    double begin = 0, start;
    size_t n;

    for (n = 0; n < most + warm; n++) {
        sinter_status_t status;

        begin = n == warm ? gr_seconds() : begin;
        if (!x->opt->repeat && n >= warm + MIN_RUNS && gr_seconds() - begin >= x->opt->min_time) {
            break;
        }
        if (meter) {
            gr_meter_rate(meter);
        }
        start = gr_seconds();
        status = sinter_compiled_graph_execute(x->whole, x->stream);
        if (status) {
            gr_library_failure(status, "execute", err);
            return 0;
        }
        times[n < warm ? 0 : n - warm] = gr_seconds() - start;
    }
    return n - warm;
}

/* sum: the figures of all partitions, one by one. */
static int bench_whole(gr_exec_t *x, const result_t *sum, gr_error_t *err)
{
    const size_t most = x->opt->repeat ? (size_t)x->opt->repeat : MAX_RUNS;
    double *times = gr_malloc((most + 1) * sizeof *times);
    gr_sequence_t *s = &x->sequence;
    gr_meter_t meter;
    size_t n = 0;

    if (!times || (x->opt->cold_cache && gr_meter_open(&meter, sinter_engine_get_isa(x->engine),
                                                       sum->flops == 0, x->threads))) {
        gr_free(times);
        return gr_fail_memory(err);
    }
    if (!gr_exec_share_memory(x, err)) {
        n = time_whole(x, x->opt->cold_cache ? &meter : NULL, times, most, err);
    }
    if (n > 0) {
        s->median = median(times, n);
        s->min = times[0];
        s->min_of_roofline = sum->at_min / s->min;
        s->median_of_roofline = sum->at_median / s->median;
        gr_print("    as a whole: min %.4g ms = %.3g of roofline, median %.4g ms = %.3g of "
                 "roofline, %.4g MB between partitions\n",
                 1e3 * s->min, s->min_of_roofline, 1e3 * s->median, s->median_of_roofline,
                 1e-6 * (double)s->bytes);
    }
    gr_free(times);
    return n > 0 ? 0 : -1;
}

int gr_bench(gr_exec_t *x, gr_error_t *err)
{
    const gr_limits_t *limits;
    gr_limits_t given;
    result_t sum = {0};
    gr_figures_t figures = {0};

    if (find_limits(x, &given, &limits, err)) {
        return -1;
    }
    print_limits(limits);
    gr_record_limits(x->record, limits);
    if (x->opt->limits && find_bounds(x, limits, err)) {
        return -1;
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        result_t r;
        char what[128];

        if (bench_part(x, &x->parts[i], limits, &r, err)) {
            return -1;
        }
        snprintf(what, sizeof what, "partition %zu %s", x->parts[i].id, x->parts[i].pattern);
        figures = figures_of(&r, limits);
        print_result(what, &r, &figures);
        gr_record_figures(x->record, (int)i, &figures);
        sum = (result_t){.compile = sum.compile + r.compile,
                         .min = sum.min + r.min,
                         .median = sum.median + r.median,
                         .at_min = sum.at_min + r.at_min,
                         .at_median = sum.at_median + r.at_median,
                         .roofline = {sum.roofline.memory + r.roofline.memory,
                                      sum.roofline.products + r.roofline.products},
                         .flops = sum.flops + r.flops,
                         .bytes = sum.bytes + r.bytes};
    }
    if (x->n_parts > 1) {
        figures = figures_of(&sum, limits);
        print_result("all partitions", &sum, &figures);
        if (bench_whole(x, &sum, err)) {
            return -1;
        }
    }
    gr_record_figures(x->record, -1, &figures);
    return 0;
}
