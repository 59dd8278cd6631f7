/* Logical tensors: each rule with its own message, sizes and overlap against enumeration of all
 * elements, views against all elements. */
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "check.h"
#include "graph/tensor.h"
#include "numeric/dtype.h"
#include "random.h"

#define U SINTER_UNKNOWN_DIM
#define BIG (INT64_C(1) << 40)
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static uint64_t seed = 1;

static int below(int n)
{
    return random_below(&seed, n);
}

static lt_t strided(sinter_data_type_t type, int ndims, const int64_t *dims, const int64_t *strides)
{
    lt_t lt = {
        .id = 77, .ndims = ndims, .data_type = type, .layout_type = sinter_layout_type_strided};
    for (int i = 0; i < ndims && i < SINTER_MAX_NDIMS; i++) {
        lt.dims[i] = dims[i];
        lt.strides[i] = strides[i];
    }
    return lt;
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct rule {
    sinter_data_type_t type;
    int ndims;
    int64_t dims[4], strides[4];
    bool is_output;
    sinter_status_t status;
    const char *fragment; /* "" if valid */
} rule_t;

static const rule_t rules[] = {
    {sinter_f32, 2, {3, 4}, {4, 1}, true, sinter_success, ""},
    {sinter_f32, 0, {0}, {0}, true, sinter_success, ""},
    {sinter_f32, -1, {0}, {0}, true, sinter_success, ""},
    {sinter_f32, 2, {U, 4}, {U, 1}, true, sinter_success, ""},
    {sinter_f32, 2, {0, 4}, {0, 0}, true, sinter_success, ""},
    {sinter_f32, 2, {3, 4}, {0, 1}, false, sinter_success, ""}, /* an input may repeat itself */
    {sinter_f32, 2, {3, 4}, {1, 3}, true, sinter_success, ""},
    {sinter_f32, 2, {3, 1}, {1, 0}, true, sinter_success, ""},
    {sinter_s4, 2, {3, 4}, {1, 3}, true, sinter_success, ""},
    {sinter_s4, 2, {3, 5}, {5, 1}, true, sinter_success, ""},
    {sinter_s4, 2, {1, 1}, {7, 9}, true, sinter_success, ""},
    {sinter_s4, 2, {4, 4}, {U, 2}, true, sinter_success, ""},
    {sinter_s4, 2, {4, U}, {2, 1}, true, sinter_success, ""},
    {sinter_s4, 1, {0}, {5}, true, sinter_success, ""},
    {sinter_f6_e3m2, 2, {3, 4}, {8, 1}, true, sinter_success, ""},
    {sinter_f4_e2m1, 2, {3, 1}, {2, 1}, true, sinter_success, ""}, /* a slice of one */
    {sinter_s4, 2, {1, 1}, {7, 5}, true, sinter_success, ""},
    {(sinter_data_type_t)99, 1, {1}, {1}, false, sinter_invalid_data_type, "unknown data type 99"},
    {sinter_data_type_undef, 1, {1}, {1}, false, sinter_invalid_data_type, "unknown data type 0"},
    {sinter_f32, 13, {1}, {1}, false, sinter_invalid_shape, "rank 13"},
    {sinter_f32, -2, {1}, {1}, false, sinter_invalid_shape, "rank -2"},
    {sinter_f32, 2, {3, -1}, {1, 1}, false, sinter_invalid_shape, "dimension 1 is negative"},
    {sinter_f32,
     2,
     {BIG, BIG},
     {0, 0},
     false,
     sinter_invalid_shape,
     "number of elements overflows"},
    {sinter_f32,
     3,
     {BIG, 0, BIG},
     {0, 0, 0},
     false,
     sinter_invalid_shape,
     "number of elements overflows"},
    {sinter_f32,
     2,
     {BIG, 1 << 22},
     {0, 0},
     false,
     sinter_invalid_shape,
     "elements overflows in bytes"},
    {sinter_f32, 2, {3, 4}, {-4, 1}, false, sinter_invalid_shape, "stride 0 is negative"},
    {sinter_f32,
     2,
     {3, 4},
     {INT64_MAX / 2, INT64_MAX / 2},
     false,
     sinter_invalid_shape,
     "offset of the last element overflows"},
    {sinter_f32,
     2,
     {3, 4},
     {BIG, INT64_C(1) << 61},
     false,
     sinter_invalid_shape,
     "offset of the last element overflows"},
    {sinter_f32, 1, {2}, {INT64_C(1) << 61}, false, sinter_invalid_shape, "overflows in bytes"},
    {sinter_s4,
     2,
     {3, 4},
     {8, 2},
     false,
     sinter_invalid_shape,
     "packed type s4 needs a dimension of stride 1"},
    {sinter_f4_e2m1,
     2,
     {3, 1},
     {2, 5},
     false,
     sinter_invalid_shape,
     "packed type f4_e2m1 needs a dimension of stride 1"},
    {sinter_f6_e2m3,
     1,
     {3},
     {0},
     false,
     sinter_invalid_shape,
     "packed type f6_e2m3 needs a dimension of stride 1"},
    {sinter_f32, 2, {3, 4}, {0, 1}, true, sinter_invalid_shape, "elements overlap"},
    {sinter_f32, 2, {3, 4}, {3, 1}, true, sinter_invalid_shape, "elements overlap"},
    {sinter_f32, 3, {2, 3, 4}, {4, 4, 1}, true, sinter_invalid_shape, "elements overlap"},
    {sinter_f32, 1, {2}, {0}, true, sinter_invalid_shape, "elements overlap"},
};

static void check_failure(const lt_t *lt, bool is_output, sinter_status_t status,
                          const char *fragment)
{
    sinter_status_t got = lt_verify(lt, is_output, "op 5");
    CHECK(got == status, "status %d, not %d", (int)got, (int)status);
    CHECK(strstr(sinter_last_error_message(), fragment) != NULL, "\"%s\" is the wrong message",
          sinter_last_error_message());
    CHECK(strncmp(sinter_last_error_message(), "op 5: tensor 77: ", 17) == 0,
          "\"%s\" names the place", sinter_last_error_message());
}

static void test_rules(void)
{
    for (size_t i = 0; i < LENGTH(rules); i++) {
        const rule_t *r = &rules[i];
        lt_t lt = strided(r->type,
                          r->ndims < 0   ? 0
                          : r->ndims > 4 ? 4
                                         : r->ndims,
                          r->dims, r->strides);
        lt.ndims = r->ndims;
        if (r->status == sinter_success) {
            CHECK(lt_verify(&lt, r->is_output, "op 5") == sinter_success, "rule %zu: %s", i,
                  sinter_last_error_message());
        } else {
            check_failure(&lt, r->is_output, r->status, r->fragment);
        }
    }
    lt_t lt = strided(sinter_f32, 2, (int64_t[]){2, 3}, (int64_t[]){3, 1});
    lt.layout_type = sinter_layout_type_opaque;
    lt.layout_id = 77;
    check_failure(&lt, false, sinter_invalid_arguments, "77 is no id of an opaque layout");
    lt.layout_id = 1;
    CHECK(lt_verify(&lt, false, "op 5") == sinter_success, "plain floats in tiles");
    lt.data_type = sinter_f64;
    check_failure(&lt, false, sinter_invalid_data_type,
                  "an opaque layout of codes does not take f64");
    lt.layout_type = (sinter_layout_type_t)9;
    check_failure(&lt, false, sinter_invalid_arguments, "unknown layout type 9");
    lt.layout_type = sinter_layout_type_any;
    lt.strides[0] = -1; /* means nothing there */
    CHECK(lt_verify(&lt, true, "op 5") == sinter_success, "strides of layout any");
    lt.property = (sinter_tensor_property_t)7;
    check_failure(&lt, false, sinter_invalid_arguments, "unknown property 7");
    lt.property = sinter_tensor_property_host_scalar;
    check_failure(&lt, false, sinter_invalid_shape, "a host scalar has one element, not 6");
    lt.dims[0] = lt.dims[1] = 1;
    CHECK(lt_verify(&lt, false, "op 5") == sinter_success, "host scalar of one element");
}

/* ---- enumeration of elements ----------------------------------------------------------------- */

static int64_t count(int ndims, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < ndims; i++) {
        n *= dims[i];
    }
    return n;
}

/* The offset of the element with this row-major index. */
static int64_t offset_of(int ndims, const int64_t *dims, const int64_t *strides, int64_t linear)
{
    int64_t offset = 0;
    for (int i = ndims - 1; i >= 0; i--) {
        offset += linear % dims[i] * strides[i];
        linear /= dims[i];
    }
    return offset;
}

/* Row-major, in a random order of dims, with gaps, or repeated. */
static void random_strides(int ndims, const int64_t *dims, int64_t *strides)
{
    int order[SINTER_MAX_NDIMS] = {0};
    int64_t next = 1;
    bool permute = below(3) == 0;
    for (int i = 0; i < ndims; i++) {
        order[i] = i;
    }
    for (int i = ndims - 1; permute && i > 0; i--) {
        int j = below(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int k = ndims - 1; k >= 0; k--) {
        int i = order[k];
        strides[i] = below(12) == 0 ? 0 : next;
        next *= dims[i] > 0 ? dims[i] : 1;
        next += below(8) == 0 ? below(3) : 0;
    }
}

static void test_sizes(void)
{
    for (int round = 0; round < 4000; round++) {
        int ndims = below(5);
        int64_t dims[4], strides[4], last = -1;
        for (int i = 0; i < ndims; i++) {
            dims[i] = below(30) == 0 ? 0 : 1 + below(5);
        }
        random_strides(ndims, dims, strides);
        for (int i = 0; i < ndims; i++) {
            strides[i] = below(10) == 0 ? below(8) : strides[i];
        }
        lt_t lt = strided(sinter_f16, ndims, dims, strides);
        int64_t n = count(ndims, dims);
        static unsigned char seen[4096];
        memset(seen, 0, sizeof seen);
        bool twice = false;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = offset_of(ndims, dims, strides, k);
            last = at > last ? at : last;
            twice = twice || seen[at]++;
        }
        size_t bytes = 12345;
        CHECK(lt_bytes(&lt, &bytes) == sinter_success && bytes == (size_t)(last + 1) * 2,
              "bytes %zu, not %d", bytes, (int)(last + 1) * 2);
        CHECK(lt_elems(&lt) == n, "elems");
        bool accepted = lt_verify(&lt, true, "x") == sinter_success;
        CHECK(!(accepted && twice), "an overlap is accepted");
        if (!accepted && !twice) { /* allowed only for layouts that do not nest */
            bool nests = true;
            for (int i = 0; i < ndims; i++) {
                for (int j = 0; j < ndims; j++) {
                    bool apart = dims[i] == 1 || dims[j] == 1 || i == j ||
                                 strides[i] >= strides[j] * dims[j] ||
                                 strides[j] >= strides[i] * dims[i];
                    nests = nests && apart;
                }
            }
            CHECK(!nests, "a nested layout is refused");
        }
        lt_t dense = lt;
        lt_set_dense(&dense);
        CHECK(lt_strides_known(&dense), "dense is known");
        for (int64_t k = 0; k < n; k++) {
            CHECK(offset_of(ndims, dims, dense.strides, k) == k, "dense offsets");
        }
    }
}

static void test_packed_sizes(void)
{
    size_t bytes;
    lt_t s4 = strided(sinter_s4, 2, (int64_t[]){3, 5}, (int64_t[]){5, 1});
    CHECK(lt_bytes(&s4, &bytes) == sinter_success && bytes == 8, "15 nibbles");
    lt_t f6 = strided(sinter_f6_e3m2, 2, (int64_t[]){5, 2}, (int64_t[]){1, 8});
    CHECK(lt_bytes(&f6, &bytes) == sinter_success && bytes == 10, "13 elements of 6 bits");
    lt_t any = {
        .ndims = 2, .dims = {3, 5}, .data_type = sinter_f32, .layout_type = sinter_layout_type_any};
    CHECK(lt_bytes(&any, &bytes) == sinter_success && bytes == 60, "layout any is dense");
    any.dims[0] = U;
    CHECK(lt_bytes(&any, &bytes) == sinter_invalid_shape && bytes == 60, "unknown dims");
    CHECK(strstr(sinter_last_error_message(), "not known") != NULL, "message");
    lt_t gap = strided(sinter_f32, 2, (int64_t[]){3, 5}, (int64_t[]){U, 1});
    CHECK(lt_bytes(&gap, &bytes) == sinter_invalid_shape, "unknown strides");
    lt_t rank = {.ndims = SINTER_UNKNOWN_NDIMS, .data_type = sinter_f32};
    CHECK(lt_bytes(&rank, &bytes) == sinter_invalid_shape && lt_elems(&rank) == -1 &&
              !lt_dims_known(&rank),
          "unknown rank");
    lt_set_dense(&rank);
    CHECK(rank.layout_type == sinter_layout_type_any, "unknown rank stays any");
}

static void test_unknown_dense(void)
{
    lt_t lt = {.ndims = 4, .dims = {2, U, 3, 5}, .data_type = sinter_f32};
    lt_set_dense(&lt);
    CHECK(lt.strides[3] == 1 && lt.strides[2] == 5 && lt.strides[1] == 15 && lt.strides[0] == U,
          "unknown strides to the left");
    CHECK(!lt_strides_known(&lt) && !lt_dims_known(&lt) && lt_elems(&lt) == -1, "not known yet");
    lt_t huge = {.ndims = 3, .dims = {2, BIG, BIG}, .data_type = sinter_f32};
    lt_set_dense(&huge);
    CHECK(huge.strides[0] == U && huge.strides[1] == BIG, "an overflow is not a number");
}

/* ---- memory in common ------------------------------------------------------------------------ */

/* As random_strides, with gaps as wide as what lies inside: two tensors often interleave. */
static void spread_strides(int ndims, const int64_t *dims, int64_t *strides, bool packed)
{
    int64_t next = 1, most = below(4) == 0 ? below(4) : 0;
    random_strides(ndims, dims, strides);
    for (int i = ndims - 1; i >= 0 && below(4) != 0; i--) {
        strides[i] = next;
        next *= dims[i] > 0 ? dims[i] : 1;
        next *= below(3) == 0 && !(packed && i == ndims - 1) ? 2 + below(2) : 1;
    }
    if (!packed && ndims > 0 && most > 0) { /* elements that repeat, as those of an input may */
        strides[below(ndims)] = most;
    }
}

/* Marks the bytes of the elements. False: some row of elements of less than a byte begins within
 * a byte. */
static bool mark_bytes(const lt_t *lt, int first, unsigned char *seen)
{
    const int64_t n = count(lt->ndims, lt->dims), bits = dtype_traits(lt->data_type)->bits;
    int side_by_side = 0;
    bool whole = true;
    for (int64_t k = 0; k < n; k++) {
        const int64_t from = offset_of(lt->ndims, lt->dims, lt->strides, k) * bits;
        for (int64_t byte = from / 8; byte <= (from + bits - 1) / 8; byte++) {
            seen[first + byte] = 1;
        }
    }
    for (int d = 0; d < lt->ndims; d++) {
        const bool within = lt->dims[d] > 1 && lt->strides[d] * bits % 8 != 0;
        side_by_side += within && lt->strides[d] == 1;
        whole = whole && (!within || lt->strides[d] == 1);
    }
    return whole && side_by_side <= 1;
}

static lt_t random_tensor(void)
{
    static const sinter_data_type_t types[] = {sinter_f32, sinter_f16, sinter_s8,
                                               sinter_f64, sinter_s4,  sinter_f6_e3m2};
    int64_t dims[4] = {0}, strides[4] = {0};
    const int ndims = below(5);
    const sinter_data_type_t type = types[below(LENGTH(types))];
    for (int i = 0; i < ndims; i++) {
        dims[i] = below(30) == 0 ? 0 : 1 + below(5);
    }
    spread_strides(ndims, dims, strides, dtype_is_packed(type));
    return strided(type, ndims, dims, strides);
}

/* The bytes that two tensors have in common are counted one by one. */
static void test_overlap_counted(void)
{
    enum { BYTES = 1 << 13, FIRST = BYTES / 4 };
    static unsigned char seen[2][BYTES];
    long together = 0, between = 0, apart = 0;
    for (int round = 0; round < 40000; round++) {
        const lt_t a = random_tensor(), b = random_tensor();
        size_t bytes[2];
        if (lt_bytes(&a, &bytes[0]) != sinter_success ||
            lt_bytes(&b, &bytes[1]) != sinter_success || bytes[0] > FIRST || bytes[1] > FIRST) {
            continue;
        }
        const int room = (int)(bytes[0] + bytes[1]) + 4,
                  at = FIRST + below(room) - (int)bytes[1] - 2; /* of b */
        memset(seen, 0, sizeof seen);
        const bool whole = mark_bytes(&a, FIRST, seen[0]) & mark_bytes(&b, at, seen[1]);
        bool want = false;
        for (int i = 0; i < BYTES; i++) {
            want = want || (seen[0][i] && seen[1][i]);
        }
        const bool ranges = bytes[0] > 0 && bytes[1] > 0 && at < FIRST + (int)bytes[0] &&
                            FIRST < at + (int)bytes[1],
                   got = lt_overlap(&a, seen[0] + FIRST, &b, seen[0] + at);
        CHECK(want ? got : !got || (ranges && !whole), "round %d: %s, but got %d", round,
              want ? "common bytes" : "no common bytes", got);
        CHECK(lt_overlap(&b, seen[0] + at, &a, seen[0] + FIRST) == got, "round %d: b and a", round);
        together += want;
        between += !want && ranges && whole;
        apart += !ranges;
    }
    CHECK(together > 5000 && between > 1000 && apart > 1000, "all answers occur: %ld, %ld, %ld",
          together, between, apart);
}

/* Sizes of real tensors, for which nobody could count. b begins `first` bytes behind a. */
static void test_overlap_large(void)
{
    static const struct {
        const char *what;
        lt_t a, b;
        int64_t first;
        bool common;
    } cases[] = {
#define F16(n, ...) \
    {.ndims = (n), .data_type = sinter_f16, .layout_type = sinter_layout_type_strided, __VA_ARGS__}
#define DIMS(...) .dims = {__VA_ARGS__}
#define STRIDES(...) .strides = {__VA_ARGS__}
        {"K and V side by side for each token",
         F16(4, DIMS(1, 8, 32768, 128), STRIDES(67108864, 256, 2048, 1)),
         F16(4, DIMS(1, 8, 32768, 128), STRIDES(67108864, 256, 2048, 1)), 256, false},
        {"the same, one element further", F16(4, DIMS(1, 8, 32768, 128), STRIDES(0, 256, 2048, 1)),
         F16(4, DIMS(1, 8, 32768, 128), STRIDES(0, 256, 2048, 1)), 254, true},
        {"Q of 32 heads before K of 8 in rows of QKV",
         F16(3, DIMS(4096, 32, 128), STRIDES(6144, 128, 1)),
         F16(3, DIMS(4096, 8, 128), STRIDES(6144, 128, 1)), 8192, false},
        {"a quarter of each row, and a dense copy of all rows behind the last one",
         F16(2, DIMS(100000, 64), STRIDES(256, 1)), F16(2, DIMS(100000, 256), STRIDES(256, 1)),
         2 * (99999 * 256 + 64), false},
        {"the same, one element earlier", F16(2, DIMS(100000, 64), STRIDES(256, 1)),
         F16(2, DIMS(100000, 256), STRIDES(256, 1)), 2 * (99999 * 256 + 63), true},
        {"one column and another one", F16(1, DIMS(1000000), STRIDES(1000)),
         F16(2, DIMS(1000000, 998), STRIDES(1000, 1)), 2, false},
        {"even elements of one and odd ones of the other, in other dims",
         F16(3, DIMS(300, 700, 11), STRIDES(15400, 22, 2)), F16(1, DIMS(2310000), STRIDES(2)), 2,
         false},
        {"rows of other lengths, which meet at the end", F16(1, DIMS(64), STRIDES(64)),
         F16(1, DIMS(64), STRIDES(63)), 2 * 63, true},
        {"the same without the last row", F16(1, DIMS(63), STRIDES(64)),
         F16(1, DIMS(64), STRIDES(63)), 2 * 63, false},
        {"too intricate to tell, which counts as common",
         F16(6, DIMS(9, 9, 9, 9, 9, 9), STRIDES(210, 330, 462, 770, 1155, 2310)),
         F16(6, DIMS(9, 9, 9, 9, 9, 9),
             STRIDES(211 * 2, 331 * 2, 463 * 2, 769 * 2, 1153 * 2, 4622)),
         2, true},
#undef F16
#undef DIMS
#undef STRIDES
    };
    unsigned char *base = (unsigned char *)(uintptr_t)(1 << 20);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        CHECK(lt_overlap(&cases[i].a, base, &cases[i].b, base + cases[i].first) == cases[i].common,
              "%s: not %d", cases[i].what, cases[i].common);
        CHECK(lt_overlap(&cases[i].b, base + cases[i].first, &cases[i].a, base) == cases[i].common,
              "%s, the other way round: not %d", cases[i].what, cases[i].common);
    }
    lt_t any = {.ndims = 2, .dims = {3, 5}, .data_type = sinter_f32},
         one = {.data_type = sinter_f32, .layout_type = sinter_layout_type_strided};
    CHECK(lt_overlap(&any, base, &one, base + 59) && !lt_overlap(&any, base, &one, base + 60),
          "layout any is dense");
}

/* ---- merging --------------------------------------------------------------------------------- */

static void test_merge(void)
{
    const char *what = "?";
    lt_t a = {.id = 1,
              .ndims = 2,
              .dims = {U, 4},
              .data_type = sinter_f32,
              .layout_type = sinter_layout_type_any};
    lt_t b = strided(sinter_f32, 2, (int64_t[]){3, U}, (int64_t[]){4, 1});
    b.property = sinter_tensor_property_constant;
    CHECK(lt_merge(&a, &b, &what) && what == NULL, "fills what is unknown");
    CHECK(a.dims[0] == 3 && a.dims[1] == 4 && a.strides[0] == 4 && a.strides[1] == 1,
          "dims and strides");
    CHECK(a.layout_type == sinter_layout_type_strided &&
              a.property == sinter_tensor_property_constant && a.id == 1,
          "layout and property");

    static const struct {
        lt_t other;
        const char *what;
    } clashes[] = {
        {{.ndims = 2, .dims = {3, 4}, .data_type = sinter_f16}, "data type"},
        {{.ndims = 3, .dims = {3, 4, 1}, .data_type = sinter_f32}, "rank"},
        {{.ndims = 2, .dims = {3, 5}, .data_type = sinter_f32}, "dims"},
        {{.ndims = 2,
          .dims = {3, 4},
          .data_type = sinter_f32,
          .layout_type = sinter_layout_type_strided,
          .strides = {1, 3}},
         "strides"},
    };
    for (size_t i = 0; i < LENGTH(clashes); i++) {
        lt_t before = a;
        CHECK(!lt_merge(&a, &clashes[i].other, &what) && what != NULL &&
                  strcmp(what, clashes[i].what) == 0,
              "clash in %s", clashes[i].what);
        CHECK(before.ndims == a.ndims && before.data_type == a.data_type &&
                  before.layout_type == a.layout_type &&
                  memcmp(before.dims, a.dims, sizeof a.dims) == 0 &&
                  memcmp(before.strides, a.strides, sizeof a.strides) == 0,
              "a failed merge changes nothing");
    }
    lt_t rank = {.ndims = SINTER_UNKNOWN_NDIMS,
                 .data_type = sinter_f32,
                 .layout_type = sinter_layout_type_strided};
    CHECK(lt_merge(&rank, &a, &what) && rank.ndims == 2 && rank.dims[1] == 4 &&
              rank.strides[0] == 4,
          "unknown rank");
    rank.ndims = SINTER_UNKNOWN_NDIMS;
    CHECK(lt_merge(&a, &rank, &what) && a.ndims == 2 && a.strides[0] == 4,
          "unknown rank adds nothing");
    lt_t unit = strided(sinter_f32, 2, (int64_t[]){1, 4}, (int64_t[]){4, 1}),
         other = strided(sinter_f32, 2, (int64_t[]){1, 4}, (int64_t[]){99, 1});
    CHECK(lt_merge(&unit, &other, &what) && unit.strides[0] == 4,
          "the stride of a dim of size 1 means nothing");
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Splits n at random into dims, with some ones. */
static int random_dims(int64_t n, int64_t *dims)
{
    int ndims = 0;
    while (n != 1 && ndims < 5) {
        int64_t factor = n;
        for (int64_t f = 2; f < n; f++) {
            if (n % f == 0 && below(2) == 0) {
                factor = f;
                break;
            }
        }
        dims[ndims++] = factor;
        n /= factor;
        if (below(5) == 0 && ndims < 5) {
            dims[ndims++] = 1;
        }
    }
    if (n != 1) {
        dims[ndims++] = n;
    }
    return ndims;
}

/* The strides are forced by the first step along each dim; whether they then fit everywhere is
 * the answer. */
static bool view_exists(int ndims, const int64_t *dims, const int64_t *strides, int to_ndims,
                        const int64_t *to_dims)
{
    int64_t forced[SINTER_MAX_NDIMS], step = 1;
    for (int i = to_ndims - 1; i >= 0; i--) {
        forced[i] = to_dims[i] > 1 ? offset_of(ndims, dims, strides, step) : 0;
        step *= to_dims[i];
    }
    for (int64_t k = 0; k < step; k++) {
        if (offset_of(ndims, dims, strides, k) != offset_of(to_ndims, to_dims, forced, k)) {
            return false;
        }
    }
    return true;
}

static void test_view(void)
{
    static const int64_t sizes[] = {1, 2, 4, 6, 8, 12, 24, 36, 48, 60, 64, 72};
    long yes = 0, no = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t n = sizes[below(LENGTH(sizes))], dims[8], strides[8], to_dims[8],
                to_strides[SINTER_MAX_NDIMS];
        int ndims = random_dims(n, dims), to_ndims = random_dims(n, to_dims);
        random_strides(ndims, dims, strides);
        for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
            to_strides[i] = -1;
        }
        bool want = view_exists(ndims, dims, strides, to_ndims, to_dims);
        bool got = view_reshape(ndims, dims, strides, to_ndims, to_dims, to_strides);
        CHECK(got == want, "round %d: view of %d elements, got %d", round, (int)n, got);
        bool right = true;
        for (int i = 0; got && i < to_ndims; i++) {
            right = right && to_strides[i] >= 0 &&
                    to_strides[i] < 1 << 20; /* dims of size 1 get a stride too */
        }
        for (int64_t k = 0; got && k < n; k++) {
            right = right && offset_of(to_ndims, to_dims, to_strides, k) ==
                                 offset_of(ndims, dims, strides, k);
        }
        CHECK(right, "round %d: strides point elsewhere", round);
        yes += got;
        no += !got;
    }
    CHECK(yes > 2000 && no > 2000, "both answers occur: %ld yes, %ld no", yes, no);

    int64_t out[3] = {-7, -7, -7};
    CHECK(!view_reshape(2, (int64_t[]){U, 4}, (int64_t[]){4, 1}, 1, (int64_t[]){12}, out),
          "unknown dims");
    CHECK(!view_reshape(2, (int64_t[]){3, 4}, (int64_t[]){U, 1}, 1, (int64_t[]){12}, out),
          "unknown strides");
    CHECK(!view_reshape(2, (int64_t[]){3, 4}, (int64_t[]){4, 1}, 2, (int64_t[]){U, 4}, out),
          "unknown target");
    CHECK(!view_reshape(2, (int64_t[]){3, 4}, (int64_t[]){4, 1}, 1, (int64_t[]){13}, out),
          "another number of elements");
    CHECK(view_reshape(2, (int64_t[]){0, 4}, (int64_t[]){9, 5}, 3, (int64_t[]){2, 0, 3}, out),
          "no elements: always");
    CHECK(view_reshape(0, NULL, NULL, 2, (int64_t[]){1, 1}, out) &&
              view_reshape(2, (int64_t[]){1, 1}, (int64_t[]){3, 9}, 0, NULL, out),
          "scalars");
}

int main(void)
{
    test_rules();
    test_sizes();
    test_packed_sizes();
    test_unknown_dense();
    test_overlap_counted();
    test_overlap_large();
    test_merge();
    test_view();
    return check_finish();
}
