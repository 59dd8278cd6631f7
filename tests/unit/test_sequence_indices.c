/* Random sequences in which some elements write the indices that later ones read: wholly, in part,
 * between their elements, or not at all. Plain C computes what must come out. An index out of range
 * is an error that names its element, and nothing is written outside of the tensors. Where no
 * element before writes the index, the error comes before the first element has run. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "passive.h"
#include "random.h"
#include "spec.h"

enum {
    POOL = 64, /* integers that are written, and read as indices */
    ELEMENTS = 6,
    ROWS = 6, /* of caches and tables */
    WIDTH = 8,
    MOST = 6, /* indices of an element */
    GUARD = 64,
    PORTS = 5
};

/* All memory that a sequence may touch, to be compared as a whole. */
typedef struct image {
    int32_t pool[POOL];
    struct {
        float before[GUARD], to[ROWS * WIDTH], after[GUARD];
    } out[ELEMENTS];
} image_t;

typedef enum kind { ADD, RELU, SCATTER, GATHER, ROTATE, KINDS } kind_t;

static const char *const graphs[KINDS] = {
    "Add 0:s32:?x? 1:s32:- -> 2:s32:?x?:?x?",
    "ReLU 0:f32:?x? -> 1:f32:?x?:?x?",
    "ScatterRows 0:f32:?x? 1:s32:?:? 2:f32:?x? -> 3:f32:?x?",
    "Gather 0:f32:?x? 1:s32:?x?:?x? -> 2:f32:?x?x?",
    "RotaryEmbedding 0:f32:1x1x?x8 1:f32:?x4 2:f32:?x4 3:s32:1x?:?x? -> 4:f32:1x1x?x8",
};

/* Integers of the pool: at[r, c] = pool[first + r * strides[0] + c * strides[1]]. */
typedef struct part {
    int first;
    int64_t dims[2], strides[2];
} part_t;

typedef struct element {
    kind_t kind;
    part_t part;                 /* what it writes, or its indices */
    int32_t from[MOST];          /* ADD and RELU: what it writes there, less what ADD adds */
    int32_t more;                /* what ADD adds */
    float updates[MOST * WIDTH]; /* SCATTER, and what ROTATE rotates */
    bool dependent;              /* an element before writes some of its indices */
} element_t;

static sinter_compiled_partition_t *compiled[KINDS];
static float table[ROWS * WIDTH], cosines[ROWS * WIDTH / 2], sines[ROWS * WIDTH / 2];
static uint64_t state;
static long right, late, early, amended, interleaved;

static int below(int n)
{
    return random_below(&state, n);
}

static bool writes(const element_t *e)
{
    return e->kind == ADD || e->kind == RELU;
}

static int place(const part_t *p, int i)
{
    const int64_t r = i / p->dims[1], c = i % p->dims[1];
    return p->first + (int)(r * p->strides[0] + c * p->strides[1]);
}

static int count(const part_t *p)
{
    return (int)(p->dims[0] * p->dims[1]);
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Rows beside or between one another, or columns. Indices may also repeat. */
static part_t draw_part(bool reads, bool flat)
{
    part_t p = {.dims = {flat ? 1 : 1 + below(3), 1 + below(flat ? MOST : 2)}};
    const int inner = below(4) == 0 && !flat ? 0 : 1;
    p.strides[inner] = reads && below(8) == 0 ? 0 : 1 + below(3);
    p.strides[1 - inner] = p.strides[inner] * p.dims[inner] + below(3);
    p.strides[1 - inner] += p.strides[1 - inner] == 0;
    int last = 0;
    for (int d = 0; d < 2; d++) {
        last += (int)((p.dims[d] - 1) * p.strides[d]);
    }
    p.first = below(24 < POOL - last ? 24 : POOL - last);
    return p;
}

/* Mostly a row of a cache; RELU leaves the bits of integers that are not negative. */
static int32_t draw_index(void)
{
    return below(25) == 0 ? ROWS + below(2) * 1000000 : below(ROWS);
}

static bool share_an_integer(const part_t *a, const part_t *b)
{
    for (int i = 0; i < count(a); i++) {
        for (int k = 0; k < count(b); k++) {
            if (place(a, i) == place(b, k)) {
                return true;
            }
        }
    }
    return false;
}

static bool ranges_meet(const part_t *a, const part_t *b)
{
    const int a_last = place(a, count(a) - 1), b_last = place(b, count(b) - 1);
    return a->first <= b_last && b->first <= a_last;
}

static void draw_element(element_t *elements, int at)
{
    element_t *e = &elements[at];
    *e = (element_t){.kind = (kind_t)below(KINDS), .more = below(2)};
    e->part = draw_part(!writes(e), e->kind == SCATTER || e->kind == ROTATE);
    for (int i = 0; i < MOST; i++) {
        e->from[i] = draw_index() - (e->kind == ADD ? e->more : 0);
    }
    for (int i = 0; i < MOST * WIDTH; i++) {
        e->updates[i] = (float)below(1000);
    }
    for (int k = 0; k < at && !writes(e); k++) {
        const bool shares = writes(&elements[k]) && share_an_integer(&elements[k].part, &e->part);
        interleaved += writes(&elements[k]) && !shares && ranges_meet(&elements[k].part, &e->part);
        e->dependent = e->dependent || shares;
    }
}

/* ---- what must come out ---------------------------------------------------------------------- */

static bool indices_are_right(const element_t *e, const image_t *m)
{
    const int least = e->kind == GATHER ? -ROWS : e->kind == SCATTER ? -1 : 0;
    for (int i = 0; i < count(&e->part) && !writes(e); i++) {
        const int32_t index = m->pool[place(&e->part, i)];
        if (index < least || index >= ROWS) {
            return false;
        }
    }
    return true;
}

static void compute(const element_t *e, image_t *m, float *out)
{
    for (int i = 0; i < count(&e->part); i++) {
        int32_t *at = &m->pool[place(&e->part, i)];
        const int row = *at < 0 && e->kind == GATHER ? *at + ROWS : *at;
        for (int c = 0; c < WIDTH; c++) {
            if (e->kind == SCATTER && row >= 0) {
                out[row * WIDTH + c] = e->updates[i * WIDTH + c];
            } else if (e->kind == GATHER) {
                out[i * WIDTH + c] = table[row * WIDTH + c];
            } else if (e->kind == ROTATE) { /* all sines are 0 */
                out[i * WIDTH + c] = e->updates[i * WIDTH + c] * cosines[row * WIDTH / 2 + c % 4];
            }
        }
        if (writes(e)) {
            *at = e->from[i] + (e->kind == ADD ? e->more : 0);
        }
    }
}

/* The element whose error the sequence must give; -1: none. m becomes what must be in memory. */
static int run_plainly(const element_t *elements, int n, image_t *m)
{
    const image_t before = *m;
    for (int i = 0; i < n; i++) {
        if (!elements[i].dependent && !indices_are_right(&elements[i], m)) {
            early++;
            return i;
        }
    }
    bool wrong_before = false;
    for (int i = 0; i < n; i++) {
        if (!indices_are_right(&elements[i], m)) {
            late++;
            return i;
        }
        wrong_before = wrong_before || !indices_are_right(&elements[i], &before);
        compute(&elements[i], m, m->out[i].to);
    }
    right++;
    amended += wrong_before;
    return -1;
}

/* ---- the sequence ---------------------------------------------------------------------------- */

static sinter_tensor_t *tensor(uint64_t id, sinter_data_type_t type, int ndims, const int64_t *dims,
                               const int64_t *strides, void *data)
{
    sinter_logical_tensor_t lt;
    sinter_tensor_t *t = NULL;
    size_t bytes = 0;
    sinter_logical_tensor_init(&lt, id, type, ndims, dims, sinter_tensor_property_undef);
    for (int d = 0; d < ndims && strides != NULL; d++) {
        lt.strides[d] = strides[d];
    }
    CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_success);
    CHECK_THAT(sinter_tensor_create(&t, NULL, &lt, data, bytes) == sinter_success);
    return t;
}

static sinter_tensor_t *of_pool(uint64_t id, sinter_data_type_t type, const part_t *p, image_t *m)
{
    return tensor(id, type, 2, p->dims, p->strides, &m->pool[p->first]);
}

/* Inputs, then the output; gives their number. */
static int make_tensors(element_t *e, image_t *m, float *out, sinter_tensor_t **t)
{
    const int64_t n = count(&e->part), cache[2] = {ROWS, WIDTH}, half[2] = {ROWS, WIDTH / 2},
                  rows[4] = {1, 1, n, WIDTH};
    if (e->kind == ADD) {
        t[0] = tensor(0, sinter_s32, 2, e->part.dims, NULL, e->from);
        t[1] = tensor(1, sinter_s32, 0, NULL, NULL, &e->more);
        t[2] = of_pool(2, sinter_s32, &e->part, m);
        return 3;
    }
    if (e->kind == RELU) {
        t[0] = tensor(0, sinter_f32, 2, e->part.dims, NULL, e->from);
        t[1] = of_pool(1, sinter_f32, &e->part, m);
        return 2;
    }
    if (e->kind == SCATTER) {
        t[0] = tensor(0, sinter_f32, 2, cache, NULL, out);
        t[1] = tensor(1, sinter_s32, 1, &n, &e->part.strides[1], &m->pool[e->part.first]);
        t[2] = tensor(2, sinter_f32, 2, &rows[2], NULL, e->updates);
        t[3] = tensor(3, sinter_f32, 2, cache, NULL, out);
        return 4;
    }
    if (e->kind == GATHER) {
        const int64_t dims[3] = {e->part.dims[0], e->part.dims[1], WIDTH};
        t[0] = tensor(0, sinter_f32, 2, cache, NULL, table);
        t[1] = of_pool(1, sinter_s32, &e->part, m);
        t[2] = tensor(2, sinter_f32, 3, dims, NULL, out);
        return 3;
    }
    t[0] = tensor(0, sinter_f32, 4, rows, NULL, e->updates);
    t[1] = tensor(1, sinter_f32, 2, half, NULL, cosines);
    t[2] = tensor(2, sinter_f32, 2, half, NULL, sines);
    t[3] = of_pool(3, sinter_s32, &e->part, m);
    t[4] = tensor(4, sinter_f32, 4, rows, NULL, out);
    return 5;
}

static void run_case(long number, sinter_stream_t *stream)
{
    element_t elements[ELEMENTS];
    static image_t m, want;
    sinter_tensor_t *tensors[ELEMENTS][PORTS] = {{NULL}};
    sinter_sequence_t *sequence = NULL;
    const int n = 2 + below(ELEMENTS - 1);
    char text[32];
    memset(&m, 0xA5, sizeof m);
    for (int i = 0; i < POOL; i++) {
        m.pool[i] = draw_index();
    }
    CHECK_THAT(sinter_sequence_create(&sequence, NULL) == sinter_success);
    for (int i = 0; i < n; i++) {
        draw_element(elements, i);
        const int ports = make_tensors(&elements[i], &m, m.out[i].to, tensors[i]);
        CHECK(sinter_sequence_append(sequence, compiled[elements[i].kind], (size_t)ports - 1,
                                     (const sinter_tensor_t *const *)tensors[i], 1,
                                     &tensors[i][ports - 1]) == sinter_success,
              "case %ld", number);
    }
    for (int again = 0; again < 2; again++) { /* then on what the first execute has left */
        want = m;
        const int failed = run_plainly(elements, n, &want);
        const sinter_status_t status = sinter_sequence_execute(sequence, stream);
        snprintf(text, sizeof text, "element %d, ", failed);
        CHECK(failed < 0 ? status == sinter_success
                         : status == sinter_invalid_arguments &&
                               strncmp(sinter_last_error_message(), text, strlen(text)) == 0,
              "case %ld: %s, but the error should be that of element %d", number,
              sinter_status_name(status), failed);
        CHECK(memcmp(&m, &want, sizeof m) == 0, "case %ld: other memory than plain C leaves",
              number);
    }
    sinter_sequence_destroy(&sequence);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < PORTS; k++) {
            sinter_tensor_destroy(&tensors[i][k]);
        }
    }
}

static void compile(kind_t kind)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    CHECK_THAT(spec_graph(&graph, NULL, graphs[kind]) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled[kind]) ==
              sinter_success,
          "%s", graphs[kind]);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

static long number_of(const char *name, long missing)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 0) : missing;
}

int main(int argc, char **argv)
{
    sinter_stream_t *streams[3];
    (void)argc;
    wait_passively(argv);
    state = (uint64_t)number_of("SINTER_RANDOM_SEED", 1);
    for (int i = 0; i < KINDS; i++) {
        compile((kind_t)i);
    }
    for (int i = 0; i < 3; i++) {
        const sinter_stream_desc_t desc = {
            .size = sizeof desc, .threads = i + 1, .all_threads = i == 2};
        CHECK_THAT(sinter_stream_create(&streams[i], NULL, &desc) == sinter_success);
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        table[i] = (float)i;
        cosines[i / 2] = (float)(i / 2 % 5 + 1);
    }
    for (long i = 0, n = number_of("SINTER_RANDOM_CASES", 2000); i < n && check_failed < 10; i++) {
        run_case(i, streams[i % 3]);
    }
    printf("%ld right, of which %ld have an index that is out of range before; %ld errors before "
           "the first element, %ld later; %ld times indices lie between what is written\n",
           right, amended, early, late, interleaved);
    CHECK_THAT(number_of("SINTER_RANDOM_CASES", 2000) < 2000 ||
               (amended > 10 && early > 100 && late > 100 && interleaved > 100));
    for (int i = 0; i < 3; i++) {
        sinter_stream_destroy(&streams[i]);
    }
    for (int i = 0; i < KINDS; i++) {
        sinter_compiled_partition_destroy(&compiled[i]);
    }
    return check_finish();
}
