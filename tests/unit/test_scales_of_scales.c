/* Weights whose scales, and offsets, are codes with scales of their own, as K-quants of llama.cpp
 * have them: in tiles one partition reads all of it. Against sums in double of the same numbers,
 * with few and many rows, groups of 16 and 32, codes of 2 to 6 bits, floats and integers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "random.h"

enum { N = 40, K = 512, MOST_ROWS = 40 };
enum { NUMBERS = 7 };
enum { CODES, SCALES, OFFSETS, SCALE_SCALES, OFFSET_SCALES, X, Y, TENSORS };

typedef struct weights {
    sinter_data_type_t codes, scales;
    /* Bits of codes, and of scales and offsets, of 8 bits; 0: all. NUMBERS: codes of IQ4_NL. */
    int kept, kept_scales;
    int group, span; /* elements of a scale, scales of a scale of scales */
    bool offsets;
    int across; /* columns that share scales */
} weights_t;

static uint64_t seeds = 1;

static int draw(int n)
{
    return random_below(&seeds, n);
}

static void must(sinter_status_t status)
{
    if (status != sinter_success) {
        CHECK(false, "%s", sinter_last_error_message());
        exit(check_finish());
    }
}

static sinter_logical_tensor_t tensor(int id, sinter_data_type_t type, int64_t rows,
                                      int64_t columns)
{
    const sinter_dim_t dims[2] = {rows, columns};
    sinter_logical_tensor_t lt;
    must(
        sinter_logical_tensor_init(&lt, (uint64_t)id, type, 2, dims, sinter_tensor_property_undef));
    return lt;
}

/* A result whose dims are inferred. */
static sinter_logical_tensor_t result(int id)
{
    sinter_logical_tensor_t lt;
    must(sinter_logical_tensor_init_unknown(&lt, (uint64_t)id, sinter_f32, 2,
                                            sinter_tensor_property_undef));
    return lt;
}

/* The numbers of one case, as they are in memory with strides and as doubles. */
typedef struct numbers {
    unsigned char codes[N * K], scales[N * K / 16], offsets[N * K / 16];
    float scale_scales[N * K / 128], offset_scales[N * K / 128];
    float x[MOST_ROWS * K];
    double weight[N][K], size[N][K];
} numbers_t;

static int sub_scale(const weights_t *w, const unsigned char *codes, int at)
{
    return w->scales == sinter_s8 ? (signed char)codes[at] : codes[at];
}

static void fill(const weights_t *w, numbers_t *n)
{
    const int groups = K / w->group, spans = groups / w->span;
    static const signed char number[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
    const bool packed = w->codes == sinter_u4, numbers = w->kept == NUMBERS;
    const int code_bits = packed        ? 4
                          : w->kept > 0 ? w->kept
                                        : 6,
              codes = 1 << code_bits, least = w->codes == sinter_s8 ? codes / 2 : 0,
              whole = w->scales == sinter_s8 ? 256 : 64,
              scales = w->kept_scales > 0 ? 1 << w->kept_scales : whole,
              least_scale = w->scales == sinter_s8 ? scales / 2 : 0;
    memset(n, 0, sizeof *n);
    for (int i = 0; i < N * groups; i++) {
        n->scales[i] = (unsigned char)(draw(scales) - least_scale);
        n->offsets[i] = (unsigned char)(draw(scales) - least_scale);
    }
    for (int i = 0; i < N * spans; i++) {
        n->scale_scales[i] = (float)(draw(100) + 1) / 6000;
        n->offset_scales[i] = -(float)draw(100) / 3000;
    }
    for (int i = 0; i < MOST_ROWS * K; i++) {
        n->x[i] = (float)(draw(2001) - 1000) / 300;
    }
    for (int i = 0; i < N * K; i++) {
        const int c = i / K, k = i % K, code = numbers ? number[draw(16)] : draw(codes) - least,
                  v = c / w->across, g = v * groups + k / w->group,
                  s = v * spans + k / w->group / w->span;
        n->codes[packed ? i / 2 : i] |= (unsigned char)(packed ? code << i % 2 * 4 : code);
        const double scale = sub_scale(w, n->scales, g) * (double)n->scale_scales[s],
                     offset =
                         w->offsets ? sub_scale(w, n->offsets, g) * (double)n->offset_scales[s] : 0;
        n->weight[c][k] = code * scale + offset;
        n->size[c][k] = abs(code) * fabs(scale) + fabs(offset);
    }
}

/* A strided tensor becomes one in tiles: lt and the memory. */
static void *pack(sinter_logical_tensor_t *lt, const void *data, sinter_weights_part_t part,
                  int kept)
{
    sinter_tensor_t *from = NULL, *to = NULL;
    size_t bytes;
    must(sinter_tensor_create(&from, NULL, lt, (void *)(uintptr_t)data, SINTER_BYTES_TRUSTED));
    must(sinter_logical_tensor_set_weights_layout(lt, part, kept, 1));
    must(sinter_logical_tensor_get_bytes(lt, &bytes));
    void *memory = malloc(bytes);
    must(sinter_tensor_create(&to, NULL, lt, memory, bytes));
    must(sinter_reorder(from, to));
    sinter_tensor_destroy(&from);
    sinter_tensor_destroy(&to);
    return memory;
}

static void dequantise(sinter_graph_t *graph, int id, const sinter_logical_tensor_t *codes,
                       const sinter_logical_tensor_t *scales,
                       const sinter_logical_tensor_t *offsets, const sinter_logical_tensor_t *to,
                       int across, int group)
{
    const sinter_dim_t sizes[2] = {across, group};
    sinter_op_part_t parts[7];
    int n = 0;
    parts[n++] = sinter_in(codes);
    parts[n++] = sinter_in(scales);
    if (offsets != NULL) {
        parts[n++] = sinter_in(offsets);
        parts[n++] = sinter_attr_str(sinter_op_attr_zps_kind, "offsets");
    }
    parts[n++] = sinter_out(to);
    parts[n++] = sinter_attr_str(sinter_op_attr_qtype, "per_group");
    parts[n++] = sinter_attr_s64s(sinter_op_attr_group_shape, 2, sizes);
    must(sinter_graph_add_parts(graph, (uint64_t)id, sinter_op_dynamic_dequantize, (size_t)n,
                                parts));
}

/* tiles: else all has strides, and the scales are made in memory first. */
static void check_product(const weights_t *w, const numbers_t *n, int rows,
                          sinter_fpmath_mode_t mode, bool tiles, sinter_stream_t *stream)
{
    const int groups = K / w->group, spans = groups / w->span, columns = N / w->across;
    sinter_logical_tensor_t lt[TENSORS] = {
        [CODES] = tensor(CODES, w->codes, N, K),
        [SCALES] = tensor(SCALES, w->scales, columns, groups),
        [OFFSETS] = tensor(OFFSETS, w->scales, columns, groups),
        [SCALE_SCALES] = tensor(SCALE_SCALES, sinter_f32, columns, spans),
        [OFFSET_SCALES] = tensor(OFFSET_SCALES, sinter_f32, columns, spans),
        [X] = tensor(X, sinter_f32, rows, K),
        [Y] = tensor(Y, sinter_f32, rows, N)};
    static float y[MOST_ROWS * N];
    const void *data[TENSORS] = {n->codes,         n->scales, n->offsets, n->scale_scales,
                                 n->offset_scales, n->x,      y};
    void *packed[X] = {NULL};
    for (int i = 0; i < X && tiles; i++) {
        const bool values = i == SCALES || i == OFFSETS;
        data[i] = packed[i] = pack(&lt[i], data[i],
                                   i > CODES            ? sinter_weights_values
                                   : w->kept == NUMBERS ? sinter_weights_codes_iq4_nl
                                                        : sinter_weights_codes,
                                   i == CODES ? w->kept % NUMBERS
                                   : values   ? w->kept_scales
                                              : 0);
    }
    const sinter_logical_tensor_t scales = result(20), offsets = result(21), b = result(22);
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *whole = NULL;
    size_t partitions = 0;
    must(sinter_graph_create_with_fpmath_mode(&graph, NULL, sinter_cpu, mode, 1));
    dequantise(graph, 30, &lt[SCALES], &lt[SCALE_SCALES], NULL, &scales, 1, w->span);
    if (w->offsets) {
        dequantise(graph, 31, &lt[OFFSETS], &lt[OFFSET_SCALES], NULL, &offsets, 1, w->span);
    }
    dequantise(graph, 32, &lt[CODES], &scales, w->offsets ? &offsets : NULL, &b, w->across,
               w->group);
    const sinter_op_part_t product[] = {sinter_in(&lt[X]), sinter_in(&b), sinter_out(&lt[Y]),
                                        sinter_attr_bool(sinter_op_attr_transpose_b, 1)};
    must(sinter_graph_add_parts(graph, 33, sinter_op_matmul, 4, product));
    must(sinter_graph_finalize(graph));
    must(sinter_graph_compile(graph, NULL, 0, NULL, &whole));
    must(sinter_compiled_graph_get_partition_num(whole, &partitions));
    CHECK(partitions == 1, "%zu partitions", partitions);
    for (int i = 0; i < TENSORS; i++) {
        if (w->offsets || (i != OFFSETS && i != OFFSET_SCALES)) {
            must(sinter_compiled_graph_bind(whole, (uint64_t)i, 2, lt[i].dims, NULL,
                                            (void *)(uintptr_t)data[i], SINTER_BYTES_TRUSTED));
        }
    }
    for (int i = 0; i < MOST_ROWS * N; i++) {
        y[i] = NAN;
    }
    must(sinter_compiled_graph_execute(whole, stream));
    /* Of the largest of SHARE elements: no more than these share a scale of an activation. */
    enum { SHARE = 128 };
    const double part = mode == sinter_fpmath_mode_strict ? 0
                        : mode == sinter_fpmath_mode_int8 ? 0x1p-7
                                                          : 0x1p-8;
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        const float *x = n->x + r * K;
        double most[K / SHARE] = {0};
        for (int k = 0; k < K; k++) {
            most[k / SHARE] = fmax(most[k / SHARE], fabs((double)x[k]));
        }
        for (int c = 0; c < N; c++) {
            double want = 0, bound = 0;
            for (int k = 0; k < K; k++) {
                want += (double)x[k] * n->weight[c][k];
                bound += n->size[c][k] * (fabs((double)x[k]) * 0x1p-18 + most[k / SHARE] * part);
            }
            const double off = fabs((double)y[r * N + c] - want) / bound;
            worst = off <= worst ? worst : off;
        }
    }
    CHECK(worst <= 1, "%s, %d rows, mode %s, %s: %g of the bound", sinter_data_type_name(w->codes),
          rows, sinter_fpmath_mode_name(mode), tiles ? "tiles" : "strides", worst);
    sinter_compiled_graph_destroy(&whole);
    sinter_graph_destroy(&graph);
    for (int i = 0; i < X; i++) {
        free(packed[i]);
    }
}

int main(void)
{
    static const weights_t weights[] = {
        {sinter_u8, sinter_u8, 2, 4, 16, 16, true, 1},       /* Q2_K */
        {sinter_s8, sinter_s8, 3, 6, 16, 16, false, 1},      /* Q3_K */
        {sinter_u4, sinter_u8, 0, 0, 32, 8, true, 1},        /* Q4_K */
        {sinter_u8, sinter_u8, 5, 0, 32, 8, true, 1},        /* Q5_K */
        {sinter_s8, sinter_s8, 6, 0, 16, 16, false, 1},      /* Q6_K */
        {sinter_s8, sinter_s8, NUMBERS, 6, 32, 8, false, 1}, /* IQ4_XS */
        {sinter_s8, sinter_s8, 0, 0, 16, 16, false, 1},
        {sinter_u4, sinter_u8, 0, 5, 16, 16, true, 1},
        {sinter_u4, sinter_s8, 0, 3, 64, 8, false, 1},
        {sinter_u4, sinter_u8, 0, 0, 32, 8, true, 8},
        {sinter_s8, sinter_s8, 6, 4, 16, 16, false, 2},
        {sinter_u4, sinter_s8, 0, 0, 32, 8, false, 40}};
    static const int rows[] = {1, 2, 3, 5, 8, 16, 17, 40};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_bf16,
                                                 sinter_fpmath_mode_int8};
    static numbers_t numbers;
    sinter_stream_t *stream = NULL;
    must(sinter_stream_create(&stream, NULL, NULL));
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        fill(&weights[i], &numbers);
        for (int j = 0; j < 8 * 3; j++) {
            check_product(&weights[i], &numbers, rows[j / 3], modes[j % 3], true, stream);
        }
        check_product(&weights[i], &numbers, 3, sinter_fpmath_mode_strict, false, stream);
    }
    sinter_stream_destroy(&stream);
    return check_finish();
}
