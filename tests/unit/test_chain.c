/* Chains: the builder, the interpreter and the elementwise kernels against plain loops in
 * double. Inputs are small whole numbers and powers of two, so that every result is exact and
 * whole buffers compare equal, gaps between elements included. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"
#include "graph/op_schema.h"
#include "rig.h"

static sinter_cpu_isa_t cap;

/* ---- random spaces: relu((a - zp) * scale + b) ----------------------------------------------- */

static const int64_t sizes[] = {1, 2, 3, 5, 8, 17, 33, 300};

static int64_t random_dims(int ndims, int64_t *dims)
{
    int64_t n;
    do {
        n = 1;
        for (int d = 0; d < ndims; d++) {
            dims[d] = sizes[rig_pick(8)];
            n *= dims[d];
        }
    } while (n > 20000);
    return n;
}

/* A right-aligned operand, some dims broadcast, some leading ones missing. */
static int broadcast_value(rig_t *r, sinter_data_type_t type, int ndims, const int64_t *dims,
                           int *own)
{
    int64_t d2[SINTER_MAX_NDIMS] = {0}, strides[SINTER_MAX_NDIMS];
    const int skip = rig_pick(ndims + 1);
    *own = ndims - skip;
    for (int d = 0; d < *own; d++) {
        d2[d] = rig_pick(3) ? dims[d + skip] : 1;
    }
    rig_strides(*own, d2, strides);
    return rig_value(r, type, *own, d2, strides);
}

/* One value for each group of neighbours: dims divided at random. */
static int grouped_value(rig_t *r, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    int64_t d2[SINTER_MAX_NDIMS] = {0}, strides[SINTER_MAX_NDIMS];
    for (int d = 0; d < ndims; d++) {
        const int64_t by = 1 + rig_pick(17);
        d2[d] = dims[d] % by == 0 ? dims[d] / by : rig_pick(2) ? dims[d] : 1;
    }
    rig_strides(ndims, d2, strides);
    return rig_value(r, type, ndims, d2, strides);
}

static double at_broadcast(const rig_t *r, int v, const bound_t *space, const int64_t *idx)
{
    const bound_t *b = &r->v[v];
    int64_t own[SINTER_MAX_NDIMS];
    for (int d = 0; d < b->ndims; d++) {
        const int s = d + space->ndims - b->ndims;
        own[d] = idx[s] * b->dims[d] / space->dims[s]; /* broadcast and grouped alike */
    }
    return rig_get(r, v, own);
}

static void random_space(void)
{
    static const sinter_data_type_t ins[] = {sinter_f32, sinter_f16,     sinter_bf16, sinter_s8,
                                             sinter_s4,  sinter_f8_e4m3, sinter_s32,  sinter_f64};
    static const sinter_data_type_t outs[] = {
        sinter_f32, sinter_f16, sinter_bf16,    sinter_s8,      sinter_u8,
        sinter_u4,  sinter_s4,  sinter_f8_e5m2, sinter_f6_e2m3, sinter_s32};
    rig_t r;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    int own;
    const int ndims = rig_pick(6);
    const int64_t n = random_dims(ndims, dims);
    rig_init(&r, cap);
    rig_strides(ndims, dims, strides);
    const int a = rig_value(&r, ins[rig_pick(8)], ndims, dims, strides);
    const int scale = grouped_value(&r, sinter_f32, ndims, dims),
              zp = grouped_value(&r, sinter_s8, ndims, dims);
    const int b = broadcast_value(&r, sinter_f32, ndims, dims, &own);
    rig_strides(ndims, dims, strides);
    const int out = rig_value(&r, outs[rig_pick(10)], ndims, dims, strides);
    rig_fill(&r, a, -7, 7);
    rig_fill(&r, scale, 1, 2);
    rig_fill(&r, zp, -2, 2);
    rig_fill(&r, b, -3, 3);

    chain_builder_t bld;
    int8_t same[SINTER_MAX_NDIMS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const int64_t exact[SINTER_MAX_NDIMS] = {0};
    const node_t add = {.kind = sinter_op_add, .n_in = 2},
                 relu = {.kind = sinter_op_relu, .n_in = 1};
    chain_begin(&bld, &r.plan.arena, ndims, out, false);
    const int x =
        chain_dequant(&bld, chain_load(&bld, a, ndims), chain_load_groups(&bld, scale, same, exact),
                      chain_load_groups(&bld, zp, same, exact));
    const int sum = chain_op(&bld, &add, (int[]){x, chain_load(&bld, b, own)}, 2),
              y = chain_op(&bld, &relu, &sum, 1);
    step_t step = {.kind = STEP_CHAIN};
    CHECK(chain_store(&bld, y, out, NULL) == sinter_success, "store");
    const bool f64 = dtype_needs_f64(r.v[a].dtype) || dtype_needs_f64(r.v[out].dtype);
    CHECK(chain_finish(&bld, -1, f64, &step.post) == sinter_success, "finish: %s",
          sinter_last_error_message());

    unsigned char *want = malloc(r.bytes[out] + 1);
    memset(want, RIG_FILL, r.bytes[out]);
    for (int64_t i = 0; i < n; i++) {
        rig_index(&r.v[out], i, idx);
        const double v = (rig_get(&r, a, idx) - at_broadcast(&r, zp, &r.v[out], idx)) *
                             at_broadcast(&r, scale, &r.v[out], idx) +
                         at_broadcast(&r, b, &r.v[out], idx);
        orc_encode(r.v[out].dtype, want, rig_offset(&r.v[out], idx), v > 0 ? v : 0);
    }
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    CHECK(n_kernels >= 1, "a kernel accepts");
    for (int k = 0; k < n_kernels; k++) {
        for (int nth = 1; nth <= 3; nth++) {
            memset(r.v[out].data, RIG_FILL, r.bytes[out]);
            CHECK(rig_run(&r, kernels[k], &step, nth) == sinter_success, "%s: %s", kernels[k]->name,
                  sinter_last_error_message());
            CHECK(memcmp(want, r.v[out].data, r.bytes[out]) == 0 && rig_guarded(&r, out), "%s: %s",
                  kernels[k]->name, dtype_traits(r.v[out].dtype)->name);
        }
    }
    free(want);
    rig_free(&r);
}

/* ---- the threads' shares of packed outputs --------------------------------------------------- */

/* No byte is written by two threads: each alone must leave the others' bytes as they were. */
static void packed_shares(const int64_t *dims, int ndims, const int64_t *in_strides,
                          const int64_t *strides, const char *what)
{
    rig_t r;
    rig_init(&r, cap);
    const int a = rig_value(&r, sinter_s8, ndims, dims, in_strides),
              out = rig_value(&r, sinter_u4, ndims, dims, strides);
    rig_fill(&r, a, 0, 15);
    chain_builder_t bld;
    chain_begin(&bld, &r.plan.arena, ndims, out, false);
    step_t step = {.kind = STEP_CHAIN};
    CHECK(chain_store(&bld, chain_load(&bld, a, ndims), out, NULL) == sinter_success &&
              chain_finish(&bld, -1, false, &step.post) == sinter_success,
          "%s", what);
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    unsigned char *writer = calloc(1, r.bytes[out]);
    for (int k = 0; k < n_kernels; k++) {
        const kernel_t *kern = kernels[k];
        rig_execute_t e;
        CHECK(rig_begin(&e, &r, kern, &step, 3) == sinter_success, "%s: %s", what, kern->name);
        memset(writer, 0, r.bytes[out]);
        int clashes = 0, written = 0;
        for (int tid = 0; tid < 3; tid++) {
            /* What a thread writes does not depend on what was there: two backgrounds show which
             * bytes it touches. */
            unsigned char *first = malloc(r.bytes[out]);
            memset(r.v[out].data, 0x00, r.bytes[out]);
            rig_work(&e, 0, tid);
            memcpy(first, r.v[out].data, r.bytes[out]);
            memset(r.v[out].data, 0xFF, r.bytes[out]);
            rig_work(&e, 0, tid);
            for (size_t i = 0; i < r.bytes[out]; i++) {
                const bool touched = first[i] != 0x00 || r.v[out].data[i] != 0xFF;
                clashes += touched && writer[i];
                written += touched;
                writer[i] = (unsigned char)(writer[i] | touched);
            }
            free(first);
        }
        CHECK(clashes == 0 && written > 0, "%s: %s", what, kern->name);
        rig_end(&e);
    }
    free(writer);
    rig_free(&r);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Runs a chain with io over all of its space, in runs of n. */
static void run_io(rig_t *r, const chain_t *chain, sinter_cpu_isa_t isa, int n, float *io)
{
    const frame_t frame = {.v = r->v, .shares = 1};
    static chain_bound_t b;
    CHECK(chain_bind(chain, &frame, features_up_to(isa), &b) == sinter_success, "bind: %s",
          sinter_last_error_message());
    void *scratch = rig_alloc(chain_scratch_bytes(chain));
    const bound_t *space = &r->v[chain->dims_value];
    int64_t idx[SINTER_MAX_NDIMS];
    const int64_t inner = space->dims[space->ndims - 1];
    for (int64_t i = 0; i<rig_count(space); i += idx[space->ndims - 1] + n> inner
                            ? inner - idx[space->ndims - 1]
                            : n) {
        rig_index(space, i, idx);
        const int64_t rest = inner - idx[space->ndims - 1];
        chain_run(&b, idx, rest < n ? (int)rest : n, io + i, scratch);
    }
    free(scratch);
}

/* The causal score: Select(row >= col, x / 4, fill), f32 and f64. */
static void causal(bool f64)
{
    rig_t r;
    const int64_t dims[] = {2, 5, 300};
    rig_init(&r, cap);
    const int space = rig_value(&r, sinter_f32, 3, dims, NULL),
              fill = rig_value(&r, f64 ? sinter_f64 : sinter_f32, 0, NULL, NULL),
              div = rig_value(&r, sinter_f32, 0, NULL, NULL);
    rig_set(&r, fill, NULL, -1000);
    rig_set(&r, div, NULL, 4);
    attr_t row_axis = {.id = sinter_op_attr_axis, .n = 1, .s64 = (int64_t[]){-2}},
           col_axis = {.id = sinter_op_attr_axis, .n = 1, .s64 = (int64_t[]){2}};
    int rows = space, cols = space; /* values with the dims that the indices count */
    const node_t row = {.kind = sinter_op_gen_index,
                        .out = &rows,
                        .attrs = &row_axis,
                        .n_attrs = 1},
                 col = {
                     .kind = sinter_op_gen_index, .out = &cols, .attrs = &col_axis, .n_attrs = 1};
    const node_t ge = {.kind = sinter_op_greater_equal}, divide = {.kind = sinter_op_divide},
                 select = {.kind = sinter_op_select};
    chain_builder_t b;
    const chain_t *chain;
    chain_begin(&b, &r.plan.arena, 3, space, true);
    const int i = chain_op(&b, &row, NULL, 0), j = chain_op(&b, &col, NULL, 0),
              keep = chain_op(&b, &ge, (int[]){i, j}, 2);
    const int x = chain_op(&b, &divide, (int[]){0, chain_load(&b, div, 0)}, 2),
              y = chain_op(&b, &select, (int[]){keep, x, chain_load(&b, fill, 0)}, 3);
    CHECK(chain_finish(&b, y, f64, &chain) == sinter_success && chain->result >= 0, "causal: %s",
          sinter_last_error_message());
    static float io[2 * 5 * 300];
    for (int k = 0; k < 3000; k++) {
        io[k] = (float)(k % 1000);
    }
    run_io(&r, chain, cap, 256, io);
    int bad = 0;
    for (int k = 0; k < 3000; k++) {
        bad += io[k] != (k / 300 % 5 >= k % 300 ? (float)(k % 1000) / 4 : -1000);
    }
    CHECK(bad == 0, "causal: %s", f64 ? "f64" : "f32");
    rig_free(&r);
}

/* An index of a tensor with one row is 0 in all rows of a longer space, beside one that counts
 * them. */
static void index_of_one_row(bool f64)
{
    rig_t r;
    const int64_t dims[] = {2, 5, 300}, one[] = {2, 1, 300};
    rig_init(&r, cap);
    int space = rig_value(&r, sinter_f32, 3, dims, NULL),
        row = rig_value(&r, sinter_f32, 3, one, NULL);
    attr_t axis = {.id = sinter_op_attr_axis, .n = 1, .s64 = (int64_t[]){1}};
    const node_t none = {.kind = sinter_op_gen_index, .out = &row, .attrs = &axis, .n_attrs = 1},
                 rows = {.kind = sinter_op_gen_index, .out = &space, .attrs = &axis, .n_attrs = 1},
                 add = {.kind = sinter_op_add};
    chain_builder_t b;
    const chain_t *chain;
    chain_begin(&b, &r.plan.arena, 3, space, true);
    const int i = chain_op(&b, &none, NULL, 0), j = chain_op(&b, &rows, NULL, 0),
              x = chain_op(&b, &add, (int[]){0, i}, 2), y = chain_op(&b, &add, (int[]){x, j}, 2);
    CHECK(chain_finish(&b, y, f64, &chain) == sinter_success, "%s", sinter_last_error_message());
    static float io[2 * 5 * 300];
    for (int k = 0; k < 3000; k++) {
        io[k] = 100;
    }
    run_io(&r, chain, cap, 256, io);
    int bad = 0;
    for (int k = 0; k < 3000; k++) {
        bad += io[k] != 100 + (float)(k / 300 % 5);
    }
    CHECK(bad == 0, "%d indices are wrong: %s", bad, f64 ? "f64" : "f32");
    rig_free(&r);
}

/* Run over more rows than the value has that it was built for, whose row then stands for all. */
static void bound_over_more(void)
{
    rig_t r;
    const int64_t one[] = {1, 7}, dims[] = {4, 7}, too_many[] = {4, 9};
    rig_init(&r, cap);
    const int x = rig_value(&r, sinter_f32, 2, one, NULL);
    rig_fill(&r, x, -9, 9);
    const frame_t frame = {.v = r.v, .shares = 1};
    const node_t add = {.kind = sinter_op_add};
    chain_builder_t b;
    const chain_t *chain;
    static chain_bound_t bound;
    chain_begin(&b, &r.plan.arena, 2, x, true);
    const int y = chain_op(&b, &add, (int[]){0, chain_load(&b, x, 2)}, 2);
    CHECK(chain_finish(&b, y, false, &chain) == sinter_success, "%s", sinter_last_error_message());
    CHECK(chain_bind_over(chain, too_many, &frame, features_up_to(cap), &bound) ==
              sinter_invalid_shape,
          "7 elements stand for 9");
    CHECK(chain_bind_over(chain, dims, &frame, features_up_to(cap), &bound) == sinter_success,
          "bind: %s", sinter_last_error_message());
    void *scratch = rig_alloc(chain_scratch_bytes(chain));
    for (int64_t row = 0; row < 4; row++) {
        float io[7] = {0};
        chain_run(&bound, (int64_t[]){row, 0}, 7, io, scratch);
        CHECK(memcmp(io, r.v[x].data, sizeof io) == 0, "row %d", (int)row);
    }
    free(scratch);
    rig_free(&r);
}

/* Random expressions over many values, several kept alive: colouring must keep them apart. */
static void random_program(void)
{
    enum { NODES = 60, N = 40 };
    static const sinter_op_kind_t kinds[] = {sinter_op_add,     sinter_op_subtract,
                                             sinter_op_maximum, sinter_op_minimum,
                                             sinter_op_select,  sinter_op_abs};
    rig_t r;
    const int64_t dims[] = {N};
    rig_init(&r, cap);
    const int in = rig_value(&r, sinter_f32, 1, dims, NULL),
              out = rig_value(&r, sinter_f32, 1, dims, NULL);
    rig_fill(&r, in, -9, 9);
    chain_builder_t b;
    const chain_t *chain;
    double ref[NODES + 2][N];
    float io[N];
    int regs[NODES + 2], n = 2;
    chain_begin(&b, &r.plan.arena, 1, in, true);
    regs[0] = 0;
    regs[1] = chain_load(&b, in, 1);
    for (int64_t i = 0; i < N; i++) {
        ref[0][i] = io[i] = (float)(i % 7 - 3);
        ref[1][i] = rig_get(&r, in, &i);
    }
    const int window =
        3 + rig_pick(9); /* operands come from the last few values, so few are alive at once */
    for (; n < NODES; n++) {
        const node_t node = {.kind = kinds[rig_pick(6)]};
        const int lo = n > window ? n - window : 0, p = lo + rig_pick(n - lo),
                  q = lo + rig_pick(n - lo), s = lo + rig_pick(n - lo);
        regs[n] = chain_op(&b, &node, (int[]){regs[p], regs[q], regs[s]}, 3);
        for (int i = 0; i < N; i++) {
            const double x = ref[p][i], y = ref[q][i], z = ref[s][i];
            ref[n][i] = node.kind == sinter_op_add        ? x + y
                        : node.kind == sinter_op_subtract ? x - y
                        : node.kind == sinter_op_maximum  ? fmax(x, y)
                        : node.kind == sinter_op_minimum  ? fmin(x, y)
                        : node.kind == sinter_op_select   ? (x != 0 ? y : z)
                                                          : fabs(x);
            if (fabs(ref[n][i]) > 1e6) { /* stays exact */
                n--;
                goto done;
            }
        }
    }
done:
    n = n >= NODES ? NODES - 1 : n;
    CHECK(chain_store(&b, regs[n / 2], out, NULL) == sinter_success, "store");
    CHECK(chain_finish(&b, regs[n], false, &chain) == sinter_success, "random program: %s",
          sinter_last_error_message());
    run_io(&r, chain, cap, 16, io);
    for (int64_t i = 0; i < N; i++) {
        CHECK(io[i] == ref[n][i] && rig_get(&r, out, &i) == ref[n / 2][i],
              "random program: result");
    }
    rig_free(&r);
}

/* Floats stay where they lie, if nothing that is stored before they are read last can change them:
 * sum = x + y goes over x, then x - sum, which needs x as it was, times y goes over y. The result
 * is the sum, in a register or where it was stored. */
static void floats_in_place(int n, bool dense)
{
    rig_t r;
    const int64_t dims[] = {n}, gaps[] = {2};
    rig_init(&r, cap);
    const int x = rig_value(&r, sinter_f32, 1, dims, dense ? NULL : gaps),
              y = rig_value(&r, sinter_f32, 1, dims, NULL);
    rig_fill(&r, x, -7, 7);
    rig_fill(&r, y, -7, 7);
    chain_builder_t b;
    const chain_t *chain;
    const node_t add = {.kind = sinter_op_add, .n_in = 2},
                 subtract = {.kind = sinter_op_subtract, .n_in = 2},
                 multiply = {.kind = sinter_op_multiply, .n_in = 2};
    chain_begin(&b, &r.plan.arena, 1, x, false);
    const int of_x = chain_load(&b, x, 1), of_y = chain_load(&b, y, 1),
              sum = chain_op(&b, &add, (int[]){of_x, of_y}, 2);
    CHECK(chain_store(&b, sum, x, NULL) == sinter_success, "store");
    const int apart = chain_op(&b, &subtract, (int[]){of_x, sum}, 2),
              product = chain_op(&b, &multiply, (int[]){apart, of_y}, 2);
    CHECK(chain_store(&b, product, y, NULL) == sinter_success, "store");
    CHECK(chain_finish(&b, sum, false, &chain) == sinter_success, "finish: %s",
          sinter_last_error_message());
    double want[2][CHAIN_LONG];
    for (int64_t i = 0; i < n; i++) {
        const double of[] = {rig_get(&r, x, &i), rig_get(&r, y, &i)};
        want[0][i] = of[0] + of[1];
        want[1][i] = (of[0] - want[0][i]) * of[1];
    }
    const frame_t frame = {.v = r.v, .shares = 1};
    static chain_bound_t bound;
    CHECK(chain_bind(chain, &frame, features_up_to(cap), &bound) == sinter_success, "bind");
    float *io = rig_alloc(CHAIN_LONG * sizeof *io);
    void *scratch = rig_alloc(chain_long_scratch_bytes(chain));
    const float *result = chain_run_long(&bound, (int64_t[]){0}, n, io, scratch);
    CHECK(result == (dense ? (const float *)(void *)r.v[x].data : io), "where the sum is");
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        wrong += (double)result[i] != want[0][i] || rig_get(&r, x, &i) != want[0][i] ||
                 rig_get(&r, y, &i) != want[1][i];
    }
    CHECK(wrong == 0 && rig_guarded(&r, x) && rig_guarded(&r, y), "%d of %d wrong", wrong, n);
    free(io);
    free(scratch);
    rig_free(&r);
}

/* More values alive at once than registers. */
static void too_many_registers(void)
{
    rig_t r;
    const int64_t dims[] = {4};
    const node_t add = {.kind = sinter_op_add};
    rig_init(&r, cap);
    chain_builder_t b;
    const chain_t *chain = NULL;
    int regs[CHAIN_MAX_REGS + 1], sum;
    const int space = rig_value(&r, sinter_f32, 1, dims, NULL);
    chain_begin(&b, &r.plan.arena, 1, space, false);
    for (int i = 0; i <= CHAIN_MAX_REGS; i++) {
        regs[i] = chain_load(&b, rig_value(&r, sinter_f32, 1, dims, NULL), 1);
    }
    sum = regs[0];
    for (int i = 1; i <= CHAIN_MAX_REGS; i++) {
        sum = chain_op(&b, &add, (int[]){sum, regs[i]}, 2);
    }
    CHECK(chain_store(&b, sum, space, NULL) == sinter_success, "store");
    CHECK(chain_finish(&b, -1, false, &chain) == sinter_unimplemented &&
              strstr(sinter_last_error_message(), "registers") != NULL,
          "17 registers: %s", sinter_last_error_message());
    rig_free(&r);
}

/* BiasAdd and PReLU along dim 1 of [N, C, H, W] and along the last dim. */
static void channels(bool ncx, sinter_op_kind_t kind)
{
    rig_t r;
    const int64_t dims[] = {2, 3, 4, 5}, c[] = {ncx ? 3 : 5};
    rig_init(&r, cap);
    const int x = rig_value(&r, sinter_f32, 4, dims, NULL),
              w = rig_value(&r, sinter_f32, 1, c, NULL),
              out = rig_value(&r, sinter_f32, 4, dims, NULL);
    rig_fill(&r, x, -9, 9);
    rig_fill(&r, w, -4, 4);
    attr_t format = {.id = sinter_op_attr_data_format, .str = ncx ? "NCX" : "NXC"};
    const node_t node = {.kind = kind, .attrs = &format, .n_attrs = 1};
    chain_builder_t b;
    step_t step = {.kind = STEP_CHAIN};
    chain_begin(&b, &r.plan.arena, 4, out, false);
    const int y = chain_op(&b, &node, (int[]){chain_load(&b, x, 4), chain_load(&b, w, 1)}, 2);
    CHECK(chain_store(&b, y, out, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &step.post) == sinter_success,
          "channels: %s", sinter_last_error_message());
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    for (int k = 0; k < n_kernels; k++) {
        CHECK(rig_run(&r, kernels[k], &step, 2) == sinter_success, "channels: %s",
              sinter_last_error_message());
        for (int64_t i = 0; i < 120; i++) {
            int64_t idx[4];
            rig_index(&r.v[x], i, idx);
            const double v = rig_get(&r, x, idx), s = rig_get(&r, w, &idx[ncx ? 1 : 3]);
            CHECK(rig_get(&r, out, idx) == (kind == sinter_op_bias_add ? v + s
                                            : v < 0                    ? v * s
                                                                       : v),
                  "channels: %s", kernels[k]->name);
        }
    }
    rig_free(&r);
}

/* round(x / scale) + zp, ties to even, saturated; floats rounded through their type. */
static void quantise(sinter_data_type_t type, double scale, double zp)
{
    rig_t r;
    const int64_t dims[] = {401};
    rig_init(&r, cap);
    const int x = rig_value(&r, sinter_f32, 1, dims, NULL),
              s = rig_value(&r, sinter_f32, 0, NULL, NULL),
              z = rig_value(&r, sinter_s8, 0, NULL, NULL), out = rig_value(&r, type, 1, dims, NULL);
    for (int64_t i = 0; i < 401; i++) {
        rig_set(&r, x, &i,
                i == 400   ? NAN
                : i == 399 ? INFINITY
                : i == 398 ? -1e30
                           : ((double)i - 200) * 0.25);
    }
    rig_set(&r, s, NULL, scale);
    rig_set(&r, z, NULL, zp);
    chain_builder_t b;
    step_t step = {.kind = STEP_CHAIN};
    chain_begin(&b, &r.plan.arena, 1, out, false);
    const bool integer = dtype_traits(type)->cls == DTYPE_INT;
    const int q = chain_quant(&b, chain_load(&b, x, 1), chain_load(&b, s, 0),
                              integer ? chain_load(&b, z, 0) : -1, type);
    CHECK(chain_store(&b, q, out, NULL) == sinter_success &&
              chain_finish(&b, -1, dtype_needs_f64(type), &step.post) == sinter_success,
          "quantise");
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    for (int k = 0; k < n_kernels; k++) {
        CHECK(rig_run(&r, kernels[k], &step, 1) == sinter_success, "quantise: %s",
              sinter_last_error_message());
        for (int64_t i = 0; i < 401; i++) {
            unsigned char code[8];
            const double v = rig_get(&r, x, &i) / scale; /* exact: powers of two */
            orc_encode(type, code, 0, integer ? rint(v) + zp : v);
            const double want = orc_decode(type, code, 0), got = rig_get(&r, out, &i);
            CHECK(got == want || (isnan(got) && isnan(want)), "quantise: %s",
                  dtype_traits(type)->name);
        }
    }
    rig_free(&r);
}

/* Exact where f32 is not. */
static void wide_integers(void)
{
    rig_t r;
    const int64_t dims[] = {3};
    rig_init(&r, cap);
    const int x = rig_value(&r, sinter_s32, 1, dims, NULL),
              y = rig_value(&r, sinter_s32, 1, dims, NULL),
              out = rig_value(&r, sinter_s32, 1, dims, NULL);
    const node_t add = {.kind = sinter_op_add};
    for (int64_t i = 0; i < 3; i++) {
        rig_set(&r, x, &i, 2147483000 - (double)i);
        rig_set(&r, y, &i, -1073741823 + (double)i * 3);
    }
    chain_builder_t b;
    step_t step = {.kind = STEP_CHAIN};
    chain_begin(&b, &r.plan.arena, 1, out, false);
    const int sum = chain_op(&b, &add, (int[]){chain_load(&b, x, 1), chain_load(&b, y, 1)}, 2);
    CHECK(chain_store(&b, sum, out, NULL) == sinter_success &&
              chain_finish(&b, -1, true, &step.post) == sinter_success,
          "s32");
    const kernel_t *kernels[RIG_KERNELS];
    CHECK(rig_kernels(&r, &step, kernels) >= 1, "an f64 kernel");
    CHECK(rig_run(&r, kernels[0], &step, 2) == sinter_success, "s32: %s",
          sinter_last_error_message());
    for (int64_t i = 0; i < 3; i++) {
        CHECK(rig_get(&r, out, &i) == rig_get(&r, x, &i) + rig_get(&r, y, &i), "s32: sum");
    }
    rig_free(&r);
}

/* Operands that do not fit the space, found at execute. */
static void bad_binding(void)
{
    rig_t r;
    static chain_bound_t bound;
    const int64_t dims[] = {4, 6}, five[] = {5}, two[] = {4, 1, 6};
    rig_init(&r, cap);
    const int space = rig_value(&r, sinter_f32, 2, dims, NULL),
              other = rig_value(&r, sinter_f32, 1, five, NULL),
              big = rig_value(&r, sinter_f32, 3, two, NULL);
    const frame_t frame = {.v = r.v, .shares = 1};
    const int8_t transposed[SINTER_MAX_NDIMS] = {1, 0};
    for (int kind = 0; kind < 3; kind++) {
        chain_builder_t b;
        const chain_t *chain;
        chain_begin(&b, &r.plan.arena, 2, space, true);
        const int x = kind == 0 ? chain_load(&b, other, 1) : kind == 1 ? chain_load(&b, big, 3) : 0;
        CHECK(chain_store(&b, x, space, kind == 2 ? transposed : NULL) == sinter_success &&
                  chain_finish(&b, -1, false, &chain) == sinter_success,
              "bad binding");
        CHECK(chain_bind(chain, &frame, features_up_to(cap), &bound) == sinter_invalid_shape,
              "bad binding: %s",
              kind == 0   ? "5 for 6"
              : kind == 1 ? "leading dim"
                          : "transposed store");
    }
    rig_free(&r);
}

static void plain_store(void)
{
    rig_t r;
    const int64_t dims[] = {4};
    int operand = -1;
    rig_init(&r, cap);
    const int out = rig_value(&r, sinter_f32, 1, dims, NULL);
    const node_t relu = {.kind = sinter_op_relu};
    chain_builder_t b;
    const chain_t *chain;
    chain_begin(&b, &r.plan.arena, 1, out, true);
    CHECK(chain_store(&b, 0, out, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &chain) == sinter_success,
          "plain store");
    CHECK(chain_is_store(chain, &operand) && chain->operands[operand].value == out,
          "plain store: found");
    chain_begin(&b, &r.plan.arena, 1, out, true);
    CHECK(chain_store(&b, chain_op(&b, &relu, (int[]){0}, 1), out, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &chain) == sinter_success,
          "plain store");
    CHECK(!chain_is_store(chain, &operand), "plain store: with relu");
    rig_free(&r);
}

/* ---- every op of several inputs -------------------------------------------------------------- */

/* Exact on small whole numbers, of which b is not 0. */
static double of_inputs(sinter_op_kind_t kind, double a, double b, double c, bool *known)
{
    *known = true;
    switch (kind) {
    case sinter_op_add:
    case sinter_op_bias_add:
        return a + b;
    case sinter_op_subtract:
        return a - b;
    case sinter_op_multiply:
        return a * b;
    case sinter_op_divide:
        return a / b;
    case sinter_op_maximum:
        return fmax(a, b);
    case sinter_op_minimum:
        return fmin(a, b);
    case sinter_op_squared_difference:
        return a * a - 2 * a * b + b * b;
    case sinter_op_greater_equal:
        return a >= b ? 1 : 0;
    case sinter_op_prelu:
        return fmax(a, 0) + b * fmin(a, 0);
    case sinter_op_select:
        return a != 0 ? b : c;
    default:
        *known = false;
        return NAN;
    }
}

/* op(x, y, z) of values that each take a register, with other results between that would take the
 * register of an operand that was given back too soon. */
static void several_inputs(sinter_op_kind_t kind, int n_in)
{
    enum { N = 40 };
    rig_t r;
    chain_builder_t b;
    const int64_t dims[] = {N};
    const node_t node = {.kind = kind, .n_in = n_in},
                 square = {.kind = sinter_op_square, .n_in = 1};
    int in[3], regs[3], squares[3];
    bool known = true;
    rig_init(&r, cap);
    for (int i = 0; i < n_in; i++) {
        in[i] = rig_value(&r, sinter_f32, 1, dims, NULL);
        for (int64_t k = 0; k < N; k++) {
            const double choices[] = {1, -2, 4, -8, 0.5, 2};
            rig_set(&r, in[i], &k, i == 0 ? (double)(rig_pick(9) - 4) : choices[rig_pick(6)]);
        }
    }
    const int out = rig_value(&r, sinter_f32, 1, dims, NULL),
              other = rig_value(&r, sinter_f32, 1, dims, NULL);
    chain_begin(&b, &r.plan.arena, 1, out, false);
    for (int i = 0; i < n_in; i++) {
        regs[i] = chain_load(&b, in[i], 1);
    }
    for (int i = 0; i < n_in; i++) {
        squares[i] = chain_op(&b, &square, &regs[i], 1);
    }
    step_t step = {.kind = STEP_CHAIN};
    const int y = chain_op(&b, &node, regs, n_in);
    CHECK(chain_store(&b, y, out, NULL) == sinter_success &&
              chain_store(&b, squares[n_in - 1], other, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &step.post) == sinter_success,
          "%s: %s", sinter_op_kind_name(kind), sinter_last_error_message());
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    for (int k = 0; k < n_kernels; k++) {
        int wrong = 0;
        CHECK(rig_run(&r, kernels[k], &step, 1) == sinter_success, "%s: %s",
              sinter_op_kind_name(kind), kernels[k]->name);
        for (int64_t i = 0; i < N; i++) {
            const double third = n_in > 2 ? rig_get(&r, in[2], &i) : 0;
            wrong += rig_get(&r, out, &i) !=
                     of_inputs(kind, rig_get(&r, in[0], &i), rig_get(&r, in[1], &i), third, &known);
        }
        CHECK(known, "%s: no reference for this op: of_inputs lacks it", sinter_op_kind_name(kind));
        CHECK(wrong == 0, "%s: %s", sinter_op_kind_name(kind), kernels[k]->name);
    }
    CHECK(n_kernels > 0, "%s: no kernel", sinter_op_kind_name(kind));
    rig_free(&r);
}

static void ops_of_several_inputs(void)
{
    int n = 0;
    for (int slot = 0; slot < ELTWISE_KINDS; slot++) {
        const sinter_op_kind_t kind = op_of_slot(slot);
        const op_card_t *card = op_card(kind);
        /* BatchNormInference is made of other functions, and Dropout is left out: random graphs
         * test them. */
        if (card != NULL && (card->flags & OP_ELTWISE) != 0 && card->max_in > 1 &&
            kind != sinter_op_batch_norm_inference && kind != sinter_op_dropout) {
            CHECK(card->min_in == card->max_in && card->max_in <= 3, "%s: number of inputs",
                  sinter_op_kind_name(kind));
            several_inputs(kind, card->max_in);
            n++;
        }
    }
    CHECK(n >= 11, "ops of several inputs: some are missing");
}

int main(void)
{
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < 600; i++) {
        random_space();
    }
    packed_shares((int64_t[]){5000}, 1, NULL, NULL, "dense");
    packed_shares((int64_t[]){303, 7}, 2, NULL, NULL, "merged odd rows");
    packed_shares((int64_t[]){303, 7}, 2, (int64_t[]){8, 1}, NULL, "odd rows");
    packed_shares((int64_t[]){40, 31}, 2, NULL, (int64_t[]){1, 40}, "packed along dim 0");
    packed_shares((int64_t[]){41, 30}, 2, NULL, (int64_t[]){1, 41}, "odd columns");
    packed_shares((int64_t[]){9, 700}, 2, NULL, (int64_t[]){704, 1}, "even rows");
    causal(false);
    causal(true);
    index_of_one_row(false);
    index_of_one_row(true);
    bound_over_more();
    for (int i = 0; i < 100; i++) {
        random_program();
    }
    for (int dense = 0; dense < 2; dense++) {
        floats_in_place(1, dense);
        floats_in_place(67, dense);
        floats_in_place(CHAIN_LONG, dense);
    }
    too_many_registers();
    ops_of_several_inputs();
    for (int ncx = 0; ncx < 2; ncx++) {
        channels(ncx, sinter_op_bias_add);
        channels(ncx, sinter_op_prelu);
    }
    quantise(sinter_s8, 0.5, 3);
    quantise(sinter_u8, 0.25, 100);
    quantise(sinter_s4, 2, -1);
    quantise(sinter_u4, 1, 8);
    quantise(sinter_f8_e4m3, 0.0625, 0);
    quantise(sinter_f8_e5m2, 2, 0);
    quantise(sinter_s32, 0x1p-30, 5);
    wide_integers();
    bad_binding();
    plain_store();
    return check_finish();
}
