/* A case from its graph to its verdict. */
#include "fuzz.h"

#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 192, GUARD_BYTE = 0xA5, FEW_OUTPUTS = 200 };

fz_tally_t fz_tally;

/* ---- a graph, partitioned and compiled ------------------------------------------------------- */

typedef struct part {
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    size_t n_in, n_out;
    sinter_logical_tensor_t *in, *out;
} part_t;

typedef struct program {
    sinter_graph_t *graph;
    size_t n_parts;
    part_t *parts;
    sinter_compiled_graph_t *whole; /* all of them; NULL if one is refused */
    /* By tensor: the layout that compile has chosen for one that may have any; id 0 and layout
     * undef for others. NULL: there is none. */
    sinter_logical_tensor_t *chosen;
    int refused; /* a partition that the library does not run */
} program_t;

/* One tensor's memory. base is what malloc gave, copy its bytes before execution. */
typedef struct buffer {
    sinter_logical_tensor_t lt;
    unsigned char *base, *data, *copy;
    size_t bytes, room;
    int is_input;
    /* The same in tiles, for the library: at an odd place of its memory, and a copy. NULL: it reads
     * the strided one. */
    sinter_logical_tensor_t tiles_lt;
    unsigned char *tiles_base, *tiles, *tiles_copy;
    size_t tiles_bytes;
} buffer_t;

typedef struct run {
    fz_t *f;
    sinter_stream_t *stream, *other; /* the other one has another number of threads */
    program_t programs[2];           /* fused, op by op */
    model_t model;                   /* of the variant */
    int variant;
    buffer_t *buffers; /* by tensor id */
    size_t n_wanted;
    uint64_t *wanted;      /* graph outputs */
    orc_result_t *results; /* of wanted */
    char *text;
    size_t size;
} run_t;

static const char *const policy_names[] = {"fused", "unfused"};

__attribute__((format(printf, 2, 3))) static int fail(run_t *r, const char *format, ...)
{
    va_list args;

    if (r->text[0]) {
        return -1;
    }
    va_start(args, format);
    vsnprintf(r->text, r->size, format, args);
    va_end(args);
    return -1;
}

static int library_failed(run_t *r, sinter_status_t status, const char *what, int policy)
{
    return fail(r, "%s (%s): %s: %s", what, policy_names[policy], sinter_status_name(status),
                sinter_last_error_message());
}

static void *take(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p) {
        abort();
    }
    return p;
}

static void count_pattern(const char *name, size_t ops)
{
    size_t i = 0;

    while (fz_tally.patterns[i].n && strcmp(fz_tally.patterns[i].name, name)) {
        i++;
    }
    snprintf(fz_tally.patterns[i].name, sizeof fz_tally.patterns[i].name, "%s", name);
    fz_tally.patterns[i].n++;
    fz_tally.partitions++;
    fz_tally.ops += (long)ops;
}

static sinter_status_t open_part(run_t *r, part_t *p, int policy)
{
    const char *pattern = "";
    size_t ops = 0;
    sinter_status_t status = sinter_partition_get_input_num(p->partition, &p->n_in);

    if (!status) {
        status = sinter_partition_get_output_num(p->partition, &p->n_out);
    }
    if (!status) {
        status = sinter_partition_get_op_num(p->partition, &ops);
    }
    if (!status) {
        status = sinter_partition_get_pattern(p->partition, &pattern);
    }
    if (status) {
        return status;
    }
    p->in = gr_arena_alloc(&r->f->arena, p->n_in + 1, sizeof *p->in);
    p->out = gr_arena_alloc(&r->f->arena, p->n_out + 1, sizeof *p->out);
    if (policy == 0) {
        count_pattern(pattern, ops);
    }
    status = sinter_partition_get_inputs(p->partition, p->n_in, p->in);
    return status ? status : sinter_partition_get_outputs(p->partition, p->n_out, p->out);
}

/* The library's reason without numbers, so that like ones are counted together. */
static void count_refusal(const char *reason)
{
    char text[sizeof fz_tally.refusals[0].text];
    size_t n = 0, i = 0;

    for (const char *p = reason; *p && n + 1 < sizeof text; p++) {
        int digit = *p >= '0' && *p <= '9';

        if (!digit || n == 0 || text[n - 1] != '#') {
            text[n++] = digit ? '#' : *p == '\n' ? ' ' : *p;
        }
    }
    text[n] = 0;
    while (i < 63 && fz_tally.refusals[i].n && strcmp(fz_tally.refusals[i].text, text)) {
        i++;
    }
    memcpy(fz_tally.refusals[i].text, text, n + 1);
    fz_tally.refusals[i].n++;
}

static int refuse(run_t *r, program_t *p, const char *reason)
{
    p->refused = 1;
    if (!reason || !reason[0]) {
        return fail(r, "refused without a reason");
    }
    count_refusal(reason);
    return 0;
}

/* Notes the layout that a compile has chosen for tensor t: tiles as they are packed here, or
 * strides. */
static int note_layout(run_t *r, program_t *p, int t, const sinter_logical_tensor_t *lt, int policy)
{
    sinter_logical_tensor_t tiles = *lt;

    p->chosen[t] = *lt;
    fz_tiled(r->f, t, &tiles);
    return lt->layout_type == sinter_layout_type_opaque && lt->layout_id != tiles.layout_id
               ? fail(r, "%s: compile chooses layout %llu for tensor %d", policy_names[policy],
                      (unsigned long long)lt->layout_id, t)
               : 0;
}

/* Where no compile of the whole graph chooses, each partition does so for inputs that no partition
 * before it reads. */
static int note_own_layouts(run_t *r, program_t *p, const part_t *part, int policy)
{
    for (size_t i = 0; i < part->n_in; i++) {
        const uint64_t id = part->in[i].id;
        sinter_logical_tensor_t lt;

        if (r->f->tensors[id].any && !p->chosen[id].layout_type) {
            const sinter_status_t status =
                sinter_compiled_partition_query_logical_tensor(part->compiled, id, &lt);

            if (status) {
                return library_failed(r, status, "query", policy);
            }
            if (note_layout(r, p, (int)id, &lt, policy)) {
                return -1;
            }
        }
    }
    return 0;
}

static int compile_part(run_t *r, program_t *p, part_t *part, int policy)
{
    const char *why = "";
    const size_t given = r->f->rank_comes_late == 1 || p->chosen ? part->n_in : 0;
    int supported = 0;
    sinter_status_t status = sinter_partition_is_supported(part->partition, &supported);

    if (!status && !supported) {
        sinter_partition_explain(part->partition, &why);
        return refuse(r, p, why);
    }
    if (!status) {
        for (size_t i = 0; i < given; i++) {
            const uint64_t id = part->in[i].id;

            if (r->f->rank_comes_late == 1) {
                fz_with_dims(r->f, (int)id, &part->in[i]);
            }
            if (p->chosen && p->chosen[id].layout_type) {
                part->in[i] = p->chosen[id];
            }
        }
        status = sinter_partition_compile(part->partition, NULL, given, part->in, 0, NULL,
                                          &part->compiled);
    }
    if (status == sinter_unimplemented) {
        return refuse(r, p, sinter_last_error_message());
    }
    if (status) {
        return library_failed(r, status, "compile", policy);
    }
    return p->chosen ? note_own_layouts(r, p, part, policy) : 0;
}

static int tie_parts(run_t *r, program_t *p, int policy)
{
    sinter_compiled_partition_t **list = gr_arena_alloc(&r->f->arena, p->n_parts + 1, sizeof *list);
    sinter_status_t status;

    for (size_t i = 0; i < p->n_parts; i++) {
        list[i] = p->parts[i].compiled;
    }
    status = sinter_compiled_graph_create(&p->whole, NULL, p->graph, p->n_parts, list);
    return status ? library_failed(r, status, "graph", policy) : 0;
}

/* Asks a compile of the whole graph for the layouts of inputs that may have any. It fails where a
 * number of dims is unknown; then partitions choose. */
static int choose_layouts(run_t *r, program_t *p, int policy)
{
    sinter_compiled_graph_t *whole = NULL;
    sinter_logical_tensor_t lt;
    int some = 0;

    for (int t = 0; t < r->f->n_tensors; t++) {
        some |= r->f->tensors[t].any;
    }
    if (!some) {
        return 0;
    }
    p->chosen = gr_arena_alloc(&r->f->arena, (size_t)r->f->n_tensors, sizeof *p->chosen);
    memset(p->chosen, 0, sizeof *p->chosen * (size_t)r->f->n_tensors);
    if (sinter_graph_compile(p->graph, NULL, 0, NULL, &whole)) {
        return 0; /* a partition that is refused says why */
    }
    for (int t = 0; t < r->f->n_tensors; t++) {
        if (r->f->tensors[t].any &&
            !sinter_compiled_graph_query_logical_tensor(whole, (uint64_t)t, &lt) &&
            note_layout(r, p, t, &lt, policy)) {
            break;
        }
    }
    sinter_compiled_graph_destroy(&whole);
    return r->text[0] ? -1 : 0;
}

/* Whether a program reads an input in tiles. */
static int reads_tiles(const program_t *p, const buffer_t *b)
{
    return b->tiles &&
           (!p->chosen || p->chosen[b->lt.id].layout_type != sinter_layout_type_strided);
}

static int open_program(run_t *r, int policy)
{
    program_t *p = &r->programs[policy];
    sinter_partition_t **list;
    model_t declared;
    gr_error_t err = {{0}, 0};
    sinter_status_t status;
    int failed =
        fz_emit(r->f, 0, 1, &declared, &err) || model_build(&declared, NULL, &p->graph, &err);

    model_free(&declared);
    if (failed) {
        return fail(r, "build: %s", err.text);
    }
    status = sinter_graph_filter(p->graph, policy ? sinter_partition_policy_debug
                                                  : sinter_partition_policy_fusion);
    if (!status) {
        status = sinter_graph_get_partition_num(p->graph, &p->n_parts);
    }
    if (status) {
        return library_failed(r, status, "filter", policy);
    }
    list = gr_arena_alloc(&r->f->arena, p->n_parts + 1, sizeof *list);
    p->parts = gr_arena_alloc(&r->f->arena, p->n_parts + 1, sizeof *p->parts);
    status = sinter_graph_get_partitions(p->graph, p->n_parts, list);
    for (size_t i = 0; i < p->n_parts && !status; i++) {
        p->parts[i].partition = list[i];
    }
    for (size_t i = 0; i < p->n_parts && !status; i++) {
        status = open_part(r, &p->parts[i], policy);
    }
    if (status) {
        return library_failed(r, status, "partitions", policy);
    }
    if (choose_layouts(r, p, policy)) {
        return -1;
    }
    for (size_t i = 0; i < p->n_parts && !p->refused; i++) {
        if (compile_part(r, p, &p->parts[i], policy)) {
            return -1;
        }
    }
    return p->refused ? 0 : tie_parts(r, p, policy);
}

static void close_program(program_t *p)
{
    sinter_compiled_graph_destroy(&p->whole);
    for (size_t i = 0; p->parts && i < p->n_parts; i++) {
        sinter_compiled_partition_destroy(&p->parts[i].compiled);
        sinter_partition_destroy(&p->parts[i].partition);
    }
    sinter_graph_destroy(&p->graph);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void free_buffer(buffer_t *b)
{
    free(b->base);
    free(b->copy);
    free(b->tiles_base);
    free(b->tiles_copy);
    *b = (buffer_t){0};
}

/* Inputs end where their allocation ends, so that a sanitizer sees reads beyond; outputs have
 * guards. */
static int take_buffer(run_t *r, const sinter_logical_tensor_t *lt, int is_input)
{
    buffer_t *b = &r->buffers[lt->id];
    const size_t misalign = fz_chance(r->f, 50) ? (size_t)fz_pick(r->f, 64) : 0,
                 guard = is_input ? 0 : GUARD;

    free_buffer(b);
    *b = (buffer_t){.lt = *lt, .is_input = is_input};
    if (sinter_logical_tensor_get_bytes(lt, &b->bytes)) {
        return fail(r, "tensor %llu: %s", (unsigned long long)lt->id, sinter_last_error_message());
    }
    b->room = b->bytes + misalign + 2 * guard;
    b->base = take(b->room);
    b->data = b->base + guard + misalign;
    memset(b->base, GUARD_BYTE, b->room);
    return 0;
}

static void keep_copy(buffer_t *b)
{
    free(b->copy);
    b->copy = take(b->room);
    memcpy(b->copy, b->base, b->room);
}

/* Bits that belong to no element of the tensor must not have changed. */
static int check_surroundings(run_t *r, const buffer_t *b, int policy)
{
    const sinter_logical_tensor_t *lt = &b->lt;
    const int64_t n = gr_elements(lt), bits = gr_dtype(lt->data_type)->bits;
    const int last = lt->ndims - 1;
    const int64_t row = last >= 0 ? lt->dims[last] : 1, stride = last >= 0 ? lt->strides[last] : 0;
    unsigned char *owned = take(b->room);

    memset(owned, 0, b->room);
    for (int64_t i = 0; !b->is_input && i < n; i += row) {
        const int64_t offset = gr_offset(lt, i);

        for (int64_t k = 0; k < row; k++) {
            const int64_t first = (offset + k * stride) * bits;

            for (int64_t byte = first / 8; byte <= (first + bits - 1) / 8; byte++) {
                owned[(b->data - b->base) + byte] = 1;
            }
        }
    }
    for (size_t i = 0; i < b->room; i++) {
        if (!owned[i] && b->base[i] != b->copy[i]) {
            fail(r, "%s: byte %td of %s %llu, which has %zu bytes, was overwritten",
                 policy_names[policy], (ptrdiff_t)i - (b->data - b->base),
                 b->is_input ? "input" : "tensor", (unsigned long long)b->lt.id, b->bytes);
        }
    }
    free(owned);
    if (b->tiles && memcmp(b->tiles, b->tiles_copy, b->tiles_bytes)) {
        fail(r, "%s: input %llu was overwritten, which lies in tiles", policy_names[policy],
             (unsigned long long)b->lt.id);
    }
    return r->text[0] ? -1 : 0;
}

/* ---- inputs and expectations ----------------------------------------------------------------- */

/* One of a run of 16 elements that have a character in common; a type that cannot hold the value
 * makes it 0 or infinite. */
static double wild_value(uint64_t run, uint64_t h)
{
    const double x = (double)(int64_t)h * 0x1p-63, sign = h & 1 ? -1 : 1;
    const int e = (int)(run >> 8) % 40 - 20;

    switch (run % 12) {
    case 0:
        return 0 * sign;
    case 1:
        return ldexp(x, -126);
    case 2:
        return ldexp(x, 127);
    case 3:
        return ldexp(sign, e + (int)(h >> 1 & 1));
    case 4:
        return sign * nextafterf(ldexpf(1, e + (int)(h >> 1 & 1)), 0);
    case 5:
        return h >> 4 & 15 ? ldexp(x, -10) : ldexp(x, 10);
    case 6:
        return ldexp(x, (int)(h >> 8 & 63) - 32);
    case 7:
        return h >> 4 & 31 ? x : h & 2 ? NAN : INFINITY;
    default:
        return ldexp(x, (int)(run >> 8) % 12 - 6);
    }
}

/* Numbers small enough that no sum of products overflows. */
static double spread_value(uint64_t run, uint64_t h, int specials)
{
    const double x = (double)(int64_t)h * 0x1p-63;

    if (specials && (h >> 8) % 211 == 0) {
        return h & 1 ? NAN : h & 2 ? INFINITY : -INFINITY;
    }
    return run % 9 == 0 ? 0 : h >> 3 & 31 ? ldexp(x, (int)(run >> 8) % 12 - 10) : ldexp(x, 8);
}

/* Up to the largest bf16, which rounds to no infinity in bf16 arithmetic. */
static double vast_value(sinter_data_type_t type, uint64_t run, uint64_t h)
{
    const double x = (double)(int64_t)h * (0x1.FEp0 * 0x1p-63);
    const int top = type == sinter_f16 ? 15 : 127;

    switch (run % 5) {
    case 0:
        return ldexp(x, top);
    case 1:
        return ldexp(h & 1 ? 1.9921875 : -1.9921875, top - (int)(run >> 8 & 7));
    case 2:
        return ldexp(x, top - (int)(run >> 8 & 31));
    case 3:
        return ldexp(x, -top);
    default:
        return x;
    }
}

/* Around a value that the tensor has in common; of a type that cannot hold them, values are 0,
 * infinite or equal. */
static double far_value(const fz_tensor_t *t, uint64_t tensor, uint64_t h)
{
    const double x = (double)(int64_t)h * 0x1p-63;
    const double middle = 1 + (double)(tensor % 97) / 128;
    return ldexp(t->far > 0 ? middle + ldexp(x, -t->far) : x, t->level);
}

/* What all codes of a tensor lie around. */
static double middle_code(const fz_t *f, int codes)
{
    const fz_tensor_t *t = &f->tensors[codes];
    const double middle = 1 + (double)(random_mix(f->seed + (uint64_t)codes) % 97) / 128;
    return t->far > 0 ? rint(ldexp(middle, t->level)) : 0;
}

/* Element i of scales, or of zero points or offsets in the same groups. Half of the scales are so
 * large that codes times these are beyond f32, or nearly; a quarter is among the least numbers. */
static double brink_value(const fz_t *f, const fz_tensor_t *t, int64_t i)
{
    const uint64_t h = random_mix(f->seed ^ (uint64_t)t->codes << 32 ^ (uint64_t)i);
    const int what = h & 3, e = (int)(h >> 32 & 63),
              bits = gr_dtype(f->tensors[t->codes].type)->bits,
              exponent = what < 2    ? 125 - bits + e % 4
                         : what == 2 ? -149 + e
                                     : -8 + e % 8;
    const double sign = h & 16 ? -1 : 1, few = 1 + (double)(h >> 8 & 63) / 64,
                 middle = middle_code(f, t->codes),
                 code = middle > 0 ? middle : (double)((h >> 20 & 255) >> (8 - bits)),
                 scale = t->power ? ldexp(1, exponent) : ldexp(sign * few, exponent);
    if (t->brink == FZ_BRINK_SCALES) {
        return scale;
    }
    if (t->brink == FZ_BRINK_ZPS) {
        return what == 2 ? ldexp(sign * few, 80 + e % 40) : code;
    }
    return what == 2 ? ldexp(sign * few, -100 + 2 * e)
                     : -scale * fmin(code, fabs(0x1.FEp127 / scale));
}

static double index_value(const fz_tensor_t *t, int64_t n, uint64_t h)
{
    const double i = (double)(int64_t)((h >> 8) % (uint64_t)n);
    return t->skip && h % 5 == 0 ? -1 : t->from_end && h % 3 == 0 ? i - (double)n : i;
}

static double cell_value(const fz_t *f, const fz_tensor_t *t, const sinter_logical_tensor_t *lt,
                         int64_t i)
{
    enum { SLOTS = 4 };
    const int64_t columns = lt->dims[lt->ndims - 1], row = i / columns, column = i % columns,
                  s = row % lt->dims[lt->ndims - 2];
    const uint64_t h = random_mix(f->seed ^ (lt->id << 40) ^ (uint64_t)i),
                   of_row = random_mix(f->seed + (lt->id << 20) + (uint64_t)row),
                   of_all = random_mix(f->seed + lt->id);
    const bool always = t->cells == FZ_LENGTH || t->cells == FZ_ALL_CELLS;
    bool sees = h % 3 == 0;

    sees = t->cells == FZ_LENGTH      ? column <= (int64_t)(of_all % (uint64_t)columns)
           : t->cells == FZ_SLOTS     ? column % SLOTS == s % SLOTS
           : t->cells == FZ_RUNS      ? column * SLOTS / columns == s % SLOTS
           : t->cells == FZ_ONE_CELL  ? column == (int64_t)(of_row % (uint64_t)columns)
           : t->cells == FZ_ALL_CELLS ? true
           : t->cells == FZ_NONE      ? false
                                      : sees;
    if (!sees || (!always && (of_row >> 32) % 6 == 0)) {
        return -INFINITY;
    }
    return t->cells == FZ_NANS && (h >> 32) % 50 == 0 ? NAN
           : t->cells == FZ_TERMS                     ? (double)(h >> 32 & 7) / 4 - 1
                                                      : 0;
}

/* Odd values in some places; whole rows along an axis of -Inf, and single ones. */
static void spoil(const fz_t *f, const fz_tensor_t *t, const buffer_t *b, int variant)
{
    static const double odd[] = {NAN,      INFINITY, -INFINITY, -0.0, 0.0, 0x1p-140,
                                 -0x1p-24, 3e4,      -3e38,     3e38, 1e-6};
    const sinter_logical_tensor_t *lt = &b->lt;
    const int64_t n = gr_elements(lt);

    for (int64_t i = 0; i < n; i++) {
        const uint64_t h = random_mix(f->seed ^ (lt->id << 40) ^ (uint64_t)i);
        int64_t inner = 1, row = i;

        if (t->value) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i), t->value[variant]);
        }
        if (t->cells) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i), cell_value(f, t, lt, i));
        }
        if (t->index_of) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       index_value(t, fz_size(f, t->index_of, variant), h));
        }
        for (int d = t->ndims - 1; t->dead_rows && d >= t->dead_rows; d--) {
            inner *= lt->dims[d];
        }
        if (t->dead_rows) {
            row = i / (inner * lt->dims[t->dead_rows - 1]) * inner + i % inner;
        }
        if (t->wild) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       wild_value(random_mix(f->seed + (uint64_t)(i / 16)), h));
        }
        if (t->spread) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       spread_value(random_mix(f->seed + (uint64_t)(i / 16)), h, t->spread == 2));
        }
        if (t->far || t->level) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       far_value(t, random_mix(f->seed + lt->id), h));
        }
        if (t->brink) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i), brink_value(f, t, i));
        }
        if (t->vast) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       vast_value(lt->data_type, random_mix(f->seed + (uint64_t)(i / 16)), h));
        }
        if (t->dead_rows && (random_mix(f->seed + (uint64_t)row) % 3 == 0 || h % 5 == 0)) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i), -INFINITY);
        } else if (t->specials && (int)(h % 100) < t->specials) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i),
                       odd[(h >> 32) % (sizeof odd / sizeof *odd)]);
        } else if (t->nonfinite && (int)(h % 100) < t->nonfinite) {
            orc_encode(lt->data_type, b->data, gr_offset(lt, i), odd[(h >> 32) % 3]);
        }
    }
}

/* Integers of 8 bits become such as fit the bits that tiles keep. */
static void keep_bits(const fz_tensor_t *t, buffer_t *b)
{
    const int ones = (1 << t->kept) - 1,
              least = t->type == sinter_s8 && t->kept > 0 ? 1 << (t->kept - 1) : 0;

    for (size_t i = 0; i < b->bytes && t->kept > 0; i++) {
        b->data[i] = (unsigned char)((b->data[i] & ones) - least);
    }
}

/* Makes tokens odd that a mask leaves to no row. */
static void spoil_hidden(const run_t *r, const buffer_t *b, unsigned char *data)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 7, 1e4};
    const fz_tensor_t *t = &r->f->tensors[b->lt.id];
    const buffer_t *mask = &r->buffers[t->hidden_by - 1];
    const int64_t tokens = b->lt.dims[t->token_dim], columns = mask->lt.dims[mask->lt.ndims - 1];
    const bool is_int = gr_dtype(t->type)->class_ == GR_INT;
    int64_t inner = 1;

    for (int d = b->lt.ndims - 1; d > t->token_dim; d--) {
        inner *= b->lt.dims[d];
    }
    if (tokens != columns || gr_dtype(t->type)->bits < 8) {
        return; /* one value for all tokens, or no type of odd numbers */
    }
    for (int64_t token = 0; token < tokens; token++) {
        bool hidden = true;

        for (int64_t i = token; i < gr_elements(&mask->lt); i += columns) {
            hidden = hidden && orc_decode(mask->lt.data_type, mask->data,
                                          gr_offset(&mask->lt, i)) == -INFINITY;
        }
        for (int64_t i = 0; i < gr_elements(&b->lt) && hidden; i++) {
            if (i / inner % tokens == token) {
                orc_encode(t->type, data, gr_offset(&b->lt, i), odd[is_int ? 3 : i % 5]);
            }
        }
    }
}

/* Packs an input as the library wants it. */
static int pack_tiles(run_t *r, buffer_t *b)
{
    unsigned char *source = NULL;
    const size_t misalign = random_mix(r->f->seed + b->lt.id) % 64;
    sinter_tensor_t *from = NULL, *to = NULL;
    sinter_status_t status;

    b->tiles_lt = b->lt;
    if (!fz_tiled(r->f, (int)b->lt.id, &b->tiles_lt)) {
        return 0;
    }
    status = sinter_logical_tensor_get_bytes(&b->tiles_lt, &b->tiles_bytes);
    b->tiles_base = take(b->tiles_bytes + misalign);
    b->tiles = b->tiles_base + misalign;
    b->tiles_copy = take(b->tiles_bytes);
    if (r->f->tensors[b->lt.id].hidden_by) {
        source = take(b->bytes);
        memcpy(source, b->data, b->bytes);
        spoil_hidden(r, b, source);
    }
    status = status
                 ? status
                 : sinter_tensor_create(&from, NULL, &b->lt, source ? source : b->data, b->bytes);
    status =
        status ? status : sinter_tensor_create(&to, NULL, &b->tiles_lt, b->tiles, b->tiles_bytes);
    status = status ? status : sinter_reorder(from, to);
    sinter_tensor_destroy(&from);
    sinter_tensor_destroy(&to);
    free(source);
    memcpy(b->tiles_copy, b->tiles, b->tiles_bytes);
    fz_tally.tiled++;
    return status ? library_failed(r, status, "reorder", 0) : 0;
}

static int make_inputs(run_t *r)
{
    for (size_t i = 0; i < r->model.n_tensors; i++) {
        const model_tensor_t *t = &r->model.tensors[i];

        if (!t->is_input) {
            continue;
        }
        if (take_buffer(r, model_lt(&r->model, t), 1)) {
            return -1;
        }
        fill_input(&r->model, t, &r->buffers[t->id].lt, r->f->seed % 1000, r->buffers[t->id].data);
        spoil(r->f, &r->f->tensors[t->id], &r->buffers[t->id], r->variant);
        keep_bits(&r->f->tensors[t->id], &r->buffers[t->id]);
        keep_copy(&r->buffers[t->id]);
    }
    for (size_t i = 0; i < r->model.n_tensors; i++) {
        const model_tensor_t *t = &r->model.tensors[i];

        if (t->is_input && pack_tiles(r, &r->buffers[t->id])) {
            return -1;
        }
    }
    return 0;
}

/* A partition that holds a MatMul but not the dequantising op before it cannot know that an
 * operand is integer: it answers for its mode alone. */
static int ask_oracle(run_t *r, int apply_to_int)
{
    orc_graph_t graph;
    gr_error_t err = {{0}, 0};
    char text[400] = "";
    size_t n_in = 0;
    orc_tensor_t *in = gr_arena_alloc(&r->model.arena, r->model.n_tensors, sizeof *in);

    r->n_wanted = 0;
    for (size_t i = 0; i < r->model.n_tensors; i++) {
        const model_tensor_t *t = &r->model.tensors[i];

        if (t->is_input) {
            in[n_in++] = (orc_tensor_t){r->buffers[t->id].lt, r->buffers[t->id].data};
        }
        if (t->is_output) {
            r->wanted[r->n_wanted++] = t->id;
        }
    }
    if (model_to_oracle(&r->model, &graph, &err)) {
        abort();
    }
    graph.apply_to_int = apply_to_int;
    if (orc_run(&graph, n_in, in, r->n_wanted, r->wanted, r->results, text, sizeof text)) {
        r->n_wanted = 0;
        return fail(r, "oracle: %s", text);
    }
    return 0;
}

static void forget_oracle(run_t *r)
{
    for (size_t i = 0; i < r->n_wanted; i++) {
        orc_result_free(&r->results[i]);
    }
    r->n_wanted = 0;
}

static int compare(run_t *r, int policy)
{
    for (size_t i = 0; i < r->n_wanted; i++) {
        const buffer_t *b = &r->buffers[r->wanted[i]];
        orc_diff_t d = {0};
        char text[300];

        if (!b->base) {
            return fail(r, "%s: output %llu was not computed", policy_names[policy],
                        (unsigned long long)r->wanted[i]);
        }
        /* Random graphs reach the ends of their types' ranges: fz_check_loose limits what all cases
         * leave unchecked. */
        const int wrong = orc_compare_loosely(&r->results[i], &b->lt, b->data, 1, &d);
        fz_tally.outputs++;
        fz_tally.loose += d.n > 0 ? (double)d.loose / (double)d.n : 0;
        if (wrong) {
            return fail(r, "%s, variant %d: output %llu: %s", policy_names[policy], r->variant,
                        (unsigned long long)r->wanted[i], orc_diff_text(&d, text, sizeof text));
        }
    }
    return 0;
}

/* ---- execution ------------------------------------------------------------------------------- */

static int same_shape(const sinter_logical_tensor_t *a, const sinter_logical_tensor_t *b)
{
    const size_t n = (size_t)a->ndims * sizeof *a->dims;

    return a->ndims == b->ndims && !memcmp(a->dims, b->dims, n) &&
           !memcmp(a->strides, b->strides, n);
}

/* The input that an output may overwrite, or NULL. Not if a later partition or a comparison
 * needs the input, or if an output before it, of which there are `before`, has taken it. */
static const buffer_t *shared_input(run_t *r, const part_t *p, size_t before, int allowed)
{
    const sinter_inplace_pair_t *pairs = NULL;
    const sinter_logical_tensor_t *out = &p->out[before];
    size_t n = 0;

    if (!allowed || sinter_compiled_partition_get_inplace_ports(p->compiled, &n, &pairs)) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const buffer_t *b = &r->buffers[pairs[i].input_id];
        int taken = pairs[i].output_id != out->id || !same_shape(&b->lt, out);

        for (size_t k = 0; k < n && !taken; k++) {
            for (size_t o = 0; o < before; o++) {
                taken |= pairs[k].input_id == pairs[i].input_id &&
                         pairs[k].output_id == p->out[o].id && same_shape(&b->lt, &p->out[o]);
            }
        }
        if (!taken &&
            r->f->tensors[pairs[i].input_id].property != sinter_tensor_property_host_scalar) {
            return b;
        }
    }
    return NULL;
}

/* Marks the bytes of a tensor's elements. */
static void mark(const sinter_logical_tensor_t *lt, size_t at, unsigned char *taken)
{
    const int64_t n = gr_elements(lt), bits = gr_dtype(lt->data_type)->bits;

    for (int64_t i = 0; i < n; i++) {
        const int64_t first = gr_offset(lt, i) * bits;

        for (int64_t byte = first / 8; byte <= (first + bits - 1) / 8; byte++) {
            taken[at + (size_t)byte] = 1;
        }
    }
}

/* Rows of elements of less than a byte begin with a whole byte. Others count as one piece of
 * memory, gaps included. */
static int has_whole_rows(const sinter_logical_tensor_t *lt)
{
    for (int d = 0; d < lt->ndims; d++) {
        if (lt->dims[d] > 1 && lt->strides[d] != 1 &&
            lt->strides[d] * gr_dtype(lt->data_type)->bits % 8 != 0) {
            return 0;
        }
    }
    return 1;
}

/* Where an output may begin within the range of another tensor without a byte in common with it:
 * behind half a stride of either; 0: nowhere. */
static size_t place_between(const buffer_t *host, const sinter_logical_tensor_t *lt, size_t bytes)
{
    for (int i = 0;
         i < host->lt.ndims + lt->ndims && has_whole_rows(&host->lt) && has_whole_rows(lt); i++) {
        const sinter_logical_tensor_t *of = i < host->lt.ndims ? &host->lt : lt;
        const int d = i < host->lt.ndims ? i : i - host->lt.ndims;
        const size_t at = (size_t)(of->strides[d] * gr_dtype(of->data_type)->bits / 16);
        unsigned char *taken;
        int common = at == 0 || at >= host->bytes || bytes == 0;

        if (common || !(taken = calloc(host->bytes + at + bytes, 1))) {
            continue;
        }
        mark(&host->lt, 0, taken);
        unsigned char *own = calloc(host->bytes + at + bytes, 1);
        mark(lt, at, own);
        for (size_t b = 0; b < host->bytes; b++) {
            common |= taken[b] && own[b];
        }
        free(taken);
        free(own);
        if (!common) {
            return at;
        }
    }
    return 0;
}

/* Lays an output between the elements of an input, of which it takes a copy. */
static const buffer_t *take_between(run_t *r, const part_t *p, const sinter_logical_tensor_t *lt)
{
    buffer_t *b = &r->buffers[lt->id];
    size_t bytes = 0;

    for (size_t i = 0; i < p->n_in && r->f->interleave; i++) {
        const buffer_t *host = &r->buffers[p->in[i].id];

        if (host->lt.property == sinter_tensor_property_host_scalar || host->tiles ||
            sinter_logical_tensor_get_bytes(lt, &bytes)) {
            continue;
        }
        const size_t at = place_between(host, lt, bytes);

        if (at > 0) {
            free_buffer(b);
            *b = (buffer_t){.lt = *lt, .bytes = bytes};
            b->room = host->bytes + at + bytes + 2 * GUARD;
            b->base = take(b->room);
            memset(b->base, GUARD_BYTE, b->room);
            memcpy(b->base + GUARD, host->data, host->bytes);
            b->data = b->base + GUARD + at;
            fz_tally.interleaved++;
            return host;
        }
    }
    return NULL;
}

static sinter_status_t bind(const program_t *p, const buffer_t *b, sinter_tensor_t **tensor)
{
    if (b->lt.property == sinter_tensor_property_host_scalar) {
        return sinter_tensor_create_scalar(tensor, NULL, &b->lt, b->data);
    }
    if (reads_tiles(p, b)) {
        return sinter_tensor_create(tensor, NULL, &b->tiles_lt, b->tiles, b->tiles_bytes);
    }
    return sinter_tensor_create(tensor, NULL, &b->lt, b->data, b->bytes);
}

/* Outputs as the inputs lead to; an output that works in place starts as a copy of its input,
 * which is then handed over in its stead. */
static int make_tensors(run_t *r, part_t *p, sinter_tensor_t **tensors, int policy, int in_place)
{
    sinter_status_t status = sinter_success;

    for (size_t i = 0; i < p->n_in && !status; i++) {
        status = bind(&r->programs[policy], &r->buffers[p->in[i].id], &tensors[i]);
    }
    if (!status) {
        status = sinter_compiled_partition_infer_outputs(
            p->compiled, p->n_in, (const sinter_tensor_t *const *)tensors, p->n_out, p->out);
    }
    if (status) {
        return library_failed(r, status, "inputs", policy);
    }
    for (size_t i = 0; i < p->n_out; i++) {
        const buffer_t *from = shared_input(r, p, i, in_place),
                       *host = from ? NULL : take_between(r, p, &p->out[i]);
        buffer_t *b = &r->buffers[p->out[i].id];

        if (!host && take_buffer(r, &p->out[i], 0)) {
            return -1;
        }
        if (from) {
            memcpy(b->data, from->data, b->bytes);
        }
        keep_copy(b);
        status = bind(&r->programs[policy], b, &tensors[p->n_in + i]);
        for (size_t k = 0; host && k < p->n_in && !status; k++) {
            if (p->in[k].id == host->lt.id) {
                status = sinter_tensor_set_data(tensors[k], b->base + GUARD, host->bytes);
            }
        }
        for (size_t k = 0; from && k < p->n_in && !status; k++) {
            if (p->in[k].id == from->lt.id) {
                status = sinter_tensor_set_data(tensors[k], b->data, b->bytes);
            }
        }
        if (status) {
            return library_failed(r, status, "outputs", policy);
        }
    }
    return 0;
}

/* In scratch memory full of `fill`, or in the library's own for -1. */
static int execute(run_t *r, sinter_stream_t *stream, part_t *p, sinter_tensor_t **tensors,
                   int policy, int fill)
{
    const sinter_tensor_t *const *in = (const sinter_tensor_t *const *)tensors;
    unsigned char *scratch = NULL;
    size_t bytes = 0, shift = (size_t)fz_pick(r->f, 64);
    sinter_status_t status = sinter_success;

    if (fill >= 0) {
        status = sinter_compiled_partition_get_scratchpad_bytes(p->compiled, stream, p->n_in, in,
                                                                &bytes, NULL);
        scratch = take(bytes + shift + GUARD);
        memset(scratch, fill, bytes + shift);
        memset(scratch + shift + bytes, GUARD_BYTE, GUARD);
    }
    if (!status) {
        status = sinter_compiled_partition_execute(p->compiled, stream, p->n_in, in, p->n_out,
                                                   tensors + p->n_in,
                                                   scratch ? scratch + shift : NULL, bytes);
    }
    for (size_t i = 0; scratch && i < GUARD; i++) {
        if (scratch[shift + bytes + i] != GUARD_BYTE) {
            fail(r, "%s: %zu bytes of scratchpad were not enough", policy_names[policy], bytes);
        }
    }
    free(scratch);
    return status ? library_failed(r, status, "execute", policy) : r->text[0] ? -1 : 0;
}

/* Numbers that send products another way, for all rows and columns of a block. How large this is,
 * the number of threads says (docs/numerics.md). */
static int has_odd_numbers(const fz_t *f)
{
    int odd = 0;
    for (int t = 0; t < f->n_tensors; t++) {
        const fz_tensor_t *x = &f->tensors[t];

        odd = odd || x->specials || x->nonfinite || x->wild || x->spread > 1 || x->vast || x->brink;
    }
    return odd;
}

/* The same inputs give the same bits again, whatever scratch memory held and however many threads
 * there are. */
static int execute_again(run_t *r, part_t *p, sinter_tensor_t **tensors, int policy)
{
    int failed = 0;

    for (size_t i = 0; i < p->n_out; i++) {
        buffer_t *b = &r->buffers[p->out[i].id];
        unsigned char *fresh = b->copy;

        b->copy = b->base; /* the first result, compared with below */
        b->base = fresh;
        b->data = b->base + (b->data - b->copy);
        sinter_tensor_set_data(tensors[p->n_in + i], b->data, b->bytes);
    }
    failed = execute(r, has_odd_numbers(r->f) ? r->stream : r->other, p, tensors, policy,
                     (int)fz_pick(r->f, 256));
    for (size_t i = 0; i < p->n_out && !failed; i++) {
        const buffer_t *b = &r->buffers[p->out[i].id];

        if (memcmp(b->base, b->copy, b->room)) {
            failed = fail(r, "%s: a second execute gives other bits of tensor %llu",
                          policy_names[policy], (unsigned long long)b->lt.id);
        }
    }
    return failed;
}

static int run_part(run_t *r, part_t *p, int policy)
{
    const size_t n = p->n_in + p->n_out;
    const int in_place = fz_chance(r->f, 40);
    sinter_tensor_t **tensors = gr_arena_alloc(&r->model.arena, n, sizeof *tensors);
    int failed = make_tensors(r, p, tensors, policy, in_place) ||
                 execute(r, r->stream, p, tensors, policy, fz_chance(r->f, 50) ? GUARD_BYTE : -1);

    for (size_t i = 0; i < p->n_out && !failed; i++) {
        failed = check_surroundings(r, &r->buffers[p->out[i].id], policy);
    }
    for (size_t i = 0; i < p->n_in && !failed; i++) {
        failed = r->buffers[p->in[i].id].is_input &&
                 check_surroundings(r, &r->buffers[p->in[i].id], policy);
    }
    if (!failed && !in_place && fz_chance(r->f, 70)) {
        failed = execute_again(r, p, tensors, policy);
    }
    for (size_t i = 0; i < n; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    return failed;
}

/* ---- the graph as a whole -------------------------------------------------------------------- */

static sinter_status_t bind_input(run_t *r, const program_t *p, uint64_t id)
{
    const buffer_t *b = &r->buffers[id];
    sinter_compiled_graph_t *whole = p->whole;

    if (b->lt.property == sinter_tensor_property_host_scalar) {
        return sinter_compiled_graph_bind_scalar(whole, id, b->data);
    }
    if (reads_tiles(p, b)) {
        return sinter_compiled_graph_bind(whole, id, b->lt.ndims, b->lt.dims, NULL, b->tiles,
                                          b->tiles_bytes);
    }
    return sinter_compiled_graph_bind(
        whole, id, b->lt.ndims, b->lt.dims,
        b->lt.layout_type == sinter_layout_type_strided ? b->lt.strides : NULL, b->data, b->bytes);
}

/* The bits of the elements of a tensor that a graph and its partitions one by one have made. */
static int same_elements(const sinter_logical_tensor_t *lt, const unsigned char *a,
                         const unsigned char *b)
{
    const int64_t n = gr_elements(lt), bits = gr_dtype(lt->data_type)->bits;
    int same = 1;

    for (int64_t i = 0; i < n && same; i++) {
        const int64_t first = gr_offset(lt, i) * bits;

        if (bits % 8 == 0) {
            same = !memcmp(a + first / 8, b + first / 8, (size_t)bits / 8);
        }
        for (int64_t k = first; k < first + bits % 8; k++) {
            same = same && !((a[k / 8] ^ b[k / 8]) >> k % 8 & 1);
        }
    }
    return same;
}

/* Outputs in buffers of their own, tensors between partitions in memory that they share. */
static int run_whole(run_t *r, int policy)
{
    sinter_compiled_graph_t *whole = r->programs[policy].whole;
    sinter_logical_tensor_t *in, *out;
    size_t n_in = 0, n_out = 0;
    sinter_status_t status = sinter_compiled_graph_get_input_num(whole, &n_in);

    status = status ? status : sinter_compiled_graph_get_output_num(whole, &n_out);
    in = gr_arena_alloc(&r->model.arena, n_in + 1, sizeof *in);
    out = gr_arena_alloc(&r->model.arena, n_out + 1, sizeof *out);
    status = status ? status : sinter_compiled_graph_get_inputs(whole, n_in, in);
    status = status ? status : sinter_compiled_graph_get_outputs(whole, n_out, out);
    for (size_t i = 0; i < n_in && !status; i++) {
        status = bind_input(r, &r->programs[policy], in[i].id);
    }
    for (size_t i = 0; i < n_out && !status; i++) {
        buffer_t *b = &r->buffers[out[i].id];

        free(b->copy);
        b->copy = take(b->bytes);
        memset(b->copy, GUARD_BYTE, b->bytes);
        status = sinter_compiled_graph_bind(whole, out[i].id, 0, NULL, NULL, b->copy, b->bytes);
    }
    status = status ? status : sinter_compiled_graph_execute(whole, r->stream);
    if (status) {
        return library_failed(r, status, "as a whole", policy);
    }
    for (size_t i = 0; i < n_out; i++) {
        const buffer_t *b = &r->buffers[out[i].id];

        if (!same_elements(&b->lt, b->data, b->copy)) {
            return fail(r, "%s: tensor %llu has other bits in an execute of the whole graph",
                        policy_names[policy], (unsigned long long)b->lt.id);
        }
    }
    return 0;
}

static int run_program(run_t *r, int policy)
{
    program_t *p = &r->programs[policy];

    if (p->refused) {
        return 0;
    }
    for (size_t i = 0; i < p->n_parts; i++) {
        if (run_part(r, &p->parts[i], policy)) {
            return -1;
        }
    }
    if (compare(r, policy) || run_whole(r, policy)) {
        return -1;
    }
    for (int t = 0; t < r->f->n_tensors; t++) { /* the next program computes everything itself */
        buffer_t *b = &r->buffers[t];

        if (!b->is_input) {
            free_buffer(b);
        }
    }
    return 0;
}

static int run_variant(run_t *r, int variant)
{
    gr_error_t err = {{0}, 0};
    int failed = fz_emit(r->f, variant, 0, &r->model, &err) ? fail(r, "emit: %s", err.text) : 0;

    r->variant = variant;
    failed = failed || make_inputs(r);
    for (int policy = 0; policy < (r->f->fused_only ? 1 : 2) && !failed; policy++) {
        failed = ask_oracle(r, r->f->apply_to_int || r->programs[policy].n_parts > 1) ||
                 run_program(r, policy);
        forget_oracle(r);
    }
    model_free(&r->model);
    return failed;
}

static void dump_graph(run_t *r)
{
    char path[64];
    model_t m;
    sinter_graph_t *graph = NULL;
    gr_error_t err = {{0}, 0};

    snprintf(path, sizeof path, "random-%016llx.json", (unsigned long long)r->f->seed);
    const int emitted = !fz_emit(r->f, r->variant, 0, &m, &err);

    for (size_t i = 0; emitted && i < m.n_uses; i++) {
        fz_tiled(r->f, (int)m.uses[i].id, model_at(&m, &m.uses[i]));
    }
    if (emitted && !model_build(&m, NULL, &graph, &err) && !sinter_graph_dump(graph, path)) {
        fprintf(stderr, "  graph written to %s; its inputs: graph_runner --seed=%llu\n", path,
                (unsigned long long)(r->f->seed % 1000));
    }
    sinter_graph_destroy(&graph);
    model_free(&m);
}

fz_outcome_t fz_run(fz_t *f, char *text, size_t size)
{
    run_t r = {.f = f, .text = text, .size = size};
    const sinter_stream_desc_t desc = {
        .size = sizeof desc, .threads = fz_range(f, 1, 3), .all_threads = 1};
    const sinter_stream_desc_t other = {.size = sizeof other,
                                        .threads = desc.threads == 1   ? (f->seed & 1 ? 2 : 7)
                                                   : desc.threads == 2 ? 3
                                                                       : 1,
                                        .all_threads = 1};
    const size_t n = (size_t)f->n_tensors;
    int failed, refused;

    text[0] = 0;
    r.buffers = gr_arena_alloc(&f->arena, n, sizeof *r.buffers);
    r.wanted = gr_arena_alloc(&f->arena, n, sizeof *r.wanted);
    r.results = gr_arena_alloc(&f->arena, n, sizeof *r.results);
    failed =
        sinter_stream_create(&r.stream, NULL, &desc) || sinter_stream_create(&r.other, NULL, &other)
            ? fail(&r, "stream: %s", sinter_last_error_message())
            : 0;
    fz_some_in_tiles(f, 2);
    failed = failed || open_program(&r, 0) || (!f->fused_only && open_program(&r, 1));
    for (int v = 0; v < (f->n_symbols ? FZ_VARIANTS : 1) && !failed; v++) {
        failed = run_variant(&r, v);
    }
    refused = r.programs[0].refused || r.programs[1].refused;
    close_program(&r.programs[0]);
    close_program(&r.programs[1]);
    sinter_stream_destroy(&r.stream);
    sinter_stream_destroy(&r.other);
    for (size_t i = 0; i < n; i++) {
        free_buffer(&r.buffers[i]);
    }
    if (failed) {
        dump_graph(&r);
    }
    fz_tally.cases[failed ? FZ_FAILED : refused ? FZ_UNSUPPORTED : FZ_PASSED]++;
    return failed ? FZ_FAILED : refused ? FZ_UNSUPPORTED : FZ_PASSED;
}

void fz_check_loose(double most)
{
    const double share = fz_tally.outputs > 0 ? fz_tally.loose / (double)fz_tally.outputs : 0;

    printf("%ld outputs compared; %.3f %% of an output's elements, on average, have a bound that "
           "checks nothing\n",
           fz_tally.outputs, 100 * share);
    if (share > most && fz_tally.outputs >= FEW_OUTPUTS) {
        CHECK(
            false,
            "%.3f %% of an output's elements have a bound that checks nothing, at most %.3f %% may",
            100 * share, 100 * most);
    }
}
