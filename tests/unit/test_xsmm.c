/* The libxsmm adaptor: every kernel it hands out computes the exact product of small integers,
 * and what it must refuse it refuses with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/ukernels/xsmm.h"
#include "base/cpu.h"
#include "check.h"
#include "random.h"

static uint64_t seed = 1;

static const char *const kind_names[] = {"f32", "bf16"};

/* Values of A and B, exact in every operand type. */
static int value(void)
{
    return random_below(&seed, 17) - 8;
}

static void put(xs_kind_t kind, unsigned char *p, int64_t i, int x)
{
    const float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    const uint16_t half = (uint16_t)(u >> 16);
    if (kind == XS_F32) {
        memcpy(p + 4 * i, &f, 4);
    } else {
        memcpy(p + 2 * i, &half, 2);
    }
}

/* Fills A and B, keeps their values as int, calls the kernel and compares C, its gaps between
 * rows included. */
static bool product_is_exact(const xs_shape_t *s, xs_kernel_t kernel, int count)
{
    const int pack = s->kind == XS_F32 ? 1 : 2;
    const size_t na = (size_t)(s->stride_a * (count - 1)) + (size_t)(s->m * s->lda),
                 nb = (size_t)(s->stride_b * (count - 1)) + (size_t)(s->k * s->ldb);
    const size_t nc = (size_t)(s->m * s->ldc);
    unsigned char *a = calloc(na, 4), *b = calloc(nb, 4);
    int *va = calloc(na, sizeof(int)), *vb = calloc(nb, sizeof(int));
    float *c = malloc(nc * sizeof *c);
    bool ok = a && b && va && vb && c;
    for (size_t i = 0; ok && i < na; i++) {
        va[i] = value();
        put(s->kind, a, (int64_t)i, va[i]);
    }
    for (size_t i = 0; ok && i < nb; i++) {
        vb[i] = value();
        put(s->kind, b, (int64_t)i, vb[i]);
    }
    for (size_t i = 0; ok && i < nc; i++) {
        c[i] = 3;
    }
    if (ok) {
        xs_call(kernel, a, b, c, (uint64_t)count);
    }
    for (int i = 0; ok && i < s->m; i++) {
        for (int j = 0; ok && j < s->ldc; j++) {
            int64_t want = j >= s->n || s->beta ? 3 : 0;
            for (int r = 0; r < count && j < s->n; r++) {
                for (int p = 0; p < s->k; p++) {
                    want += (int64_t)va[r * s->stride_a + i * s->lda + p] *
                            vb[r * s->stride_b + (int64_t)(p / pack) * s->ldb * pack + j * pack +
                               p % pack];
                }
            }
            ok = c[i * s->ldc + j] == (float)want;
        }
    }
    free(a), free(b), free(va), free(vb), free(c);
    return ok;
}

static void test_random(sinter_cpu_isa_t cap)
{
    for (int round = 0; round < 240; round++) {
        const xs_kind_t kind = (xs_kind_t)(round % 2);
        const int pack = kind == XS_F32 ? 1 : 2, count = 1 + random_below(&seed, 3);
        xs_shape_t s = {.kind = kind,
                        .m = 1 + random_below(&seed, 40),
                        .n = 1 + random_below(&seed, round % 8 < 4 ? 140 : 20),
                        .k = pack * (1 + random_below(&seed, 40)),
                        .beta = random_below(&seed, 2)};
        s.lda = s.k + pack * random_below(&seed, 3), s.ldb = s.n + random_below(&seed, 3),
        s.ldc = s.n + random_below(&seed, 3);
        s.stride_a = (int64_t)s.m * s.lda + pack * random_below(&seed, 5),
        s.stride_b = (int64_t)s.k * s.ldb + pack * random_below(&seed, 5);
        const char *why = NULL;
        const xs_kernel_t kernel = xs_dispatch(&s, features_up_to(cap), &why);
        char what[160];
        snprintf(what, sizeof what, "%s cap %s m %d n %d k %d ld %d %d %d count %d beta %d",
                 kind_names[kind], sinter_cpu_isa_name(cap), s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                 count, s.beta);
        CHECK(kernel.fn ? why == NULL && product_is_exact(&s, kernel, count) : why != NULL, "%s",
              what);
        const char *refused = xs_refuse(kind, features_up_to(cap));
        CHECK(!refused || !kernel.fn, "a kind that xs_refuse refuses is not dispatched");
        if (kernel.fn) {
            float c = 7;
            xs_call(kernel, NULL, NULL, &c, 0);
            CHECK(c == 7, "count 0 does nothing");
        }
    }
}

static void test_refusals(sinter_cpu_isa_t top)
{
    static const struct {
        const char *what;
        xs_shape_t s;
    } bad[] = {
        {"m 0", {XS_F32, 0, 16, 16, 16, 16, 16, 0, 0, false}},
        {"k 0", {XS_F32, 4, 16, 0, 16, 16, 16, 0, 0, false}},
        {"lda < k", {XS_F32, 4, 16, 16, 15, 16, 16, 0, 0, false}},
        {"ldb < n", {XS_F32, 4, 16, 16, 16, 15, 16, 0, 0, false}},
        {"ldc < n", {XS_F32, 4, 16, 16, 16, 16, 15, 0, 0, false}},
        {"negative stride", {XS_F32, 4, 16, 16, 16, 16, 16, -1, 0, false}},
        {"stride of 2^31 bytes", {XS_F32, 4, 16, 16, 16, 16, 16, 0, (int64_t)1 << 29, false}},
        {"B of 2 GiB", {XS_F32, 4, 16, 8192, 8192, 65536, 16, 0, 0, false}},
        {"bf16 odd k", {XS_BF16F32, 4, 16, 15, 16, 16, 16, 0, 0, false}},
        {"bf16 odd lda", {XS_BF16F32, 4, 16, 16, 17, 16, 16, 0, 0, false}},
    };
    const char *why;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        why = NULL;
        CHECK(!xs_dispatch(&bad[i].s, features_up_to(top), &why).fn && why, "%s", bad[i].what);
    }
    const xs_shape_t good = {XS_F32, 4, 64, 64, 64, 64, 64, 0, 0, false};
    why = NULL;
    CHECK(!xs_dispatch(&good, (features_t){NEEDS_NOTHING}, &why).fn && why,
          "generic cap: no JIT at all");
    const char *target = getenv("LIBXSMM_TARGET");
    why = NULL;
    const bool has = xs_dispatch(&good, features_up_to(top), &why).fn != NULL;
    if (target && strcmp(target, "none") == 0) {
        CHECK(!has && why, "LIBXSMM_TARGET=none: no kernel, with a reason");
    } else if (!target && has_features(features_up_to(top), NEEDS_AVX2)) {
        const bool capped = has_features(cpu_features(), NEEDS_AVX512) &&
                            !has_features(features_up_to(top), NEEDS_AVX512);
        CHECK(has == !capped, "%s",
              capped ? "AVX2 cap on an AVX-512 machine: no JIT"
                     : "f32 has a kernel on this machine");
    }
    for (int kind = XS_F32; kind <= XS_BF16F32; kind++) {
        const char *refused = xs_refuse((xs_kind_t)kind, features_up_to(top));
        printf("%s: %s\n", kind_names[kind], refused ? refused : xs_version());
    }
}

int main(void)
{
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int isa = sinter_isa_generic; isa <= (int)top; isa++) {
        test_random((sinter_cpu_isa_t)isa);
    }
    test_refusals(top);
    return check_finish();
}
