/* Offsets as zero points, at every level that this machine has: (code - zp) * scale must be
 * scale * code + offset for the scale and the offset that went in, within two roundings of each
 * part; also where the scale is 0, far smaller than the offset, or not a number. Nothing behind the
 * last element changes. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "check.h"
#include "numeric/quant_rows.h"
#include "random.h"

enum { MOST = 70 };
static const float scales[] = {0,        -0.0f,    1,       -1,    0.37f,    -2.5e-3f, 0x1p-149f,
                               0x1p-80f, 0x1p-30f, 0x1p60f, 3e38f, INFINITY, NAN};
static const float offsets[] = {0,       -0.0f,   1,      -1,    -7.3f,     1e-3f, 0x1p-100f,
                                0x1p39f, 0x1p41f, -3e20f, 3e38f, -INFINITY, NAN};
enum { SCALES = sizeof scales / sizeof *scales, OFFSETS = sizeof offsets / sizeof *offsets };

/* What an execute makes of a code, against the formula in double. A zero point may be subnormal. */
static void check_code(float s, float o, float scale, float zp, int code)
{
    const double part = (double)s * code, want = part + (double)o;
    const float got = ((float)code - zp) * scale;
    const double bound =
        0x1p-22 * (fabs(part) + fabs((double)o)) + 0x1p-149 * fabs((double)s) + 0x1p-140;
    const bool right = isnan(want)                 ? isnan(got)
                       : fabs(want) > (double)3e38 ? fabsf(got) > 1e38f && (got > 0) == (want > 0)
                                                   : fabs((double)got - want) <= bound;
    CHECK(right, "code %d of scale %a, offset %a: %a, not %a (scale %a, zero point %a)", code,
          (double)s, (double)o, (double)got, want, (double)scale, (double)zp);
}

static void check_pair(const quant_rows_t *fn, float s, float o)
{
    static const int codes[] = {-128, -8, -1, 0, 1, 7, 15, 127, 255};
    float scale = s, zp = o;
    if (isinf(s)) {
        return; /* infinite scales have no offset: 0 times them is no number either way */
    }
    fn->zps_of_offsets(&scale, &zp, 1);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        check_code(s, o, scale, zp, codes[i]);
    }
}

/* Runs of every length, between sentinels: each element as if it were alone. */
static void check_runs(const quant_rows_t *fn)
{
    uint64_t state = 1;
    for (int n = 0; n <= MOST; n++) {
        float s[MOST + 1], o[MOST + 1];
        for (int i = 0; i <= n; i++) {
            s[i] = i == n ? 99 : scales[random_next(&state) % SCALES];
            o[i] = i == n ? 77 : offsets[random_next(&state) % OFFSETS];
        }
        float alone_s[MOST + 1], alone_o[MOST + 1];
        memcpy(alone_s, s, sizeof s);
        memcpy(alone_o, o, sizeof o);
        fn->zps_of_offsets(s, o, n);
        for (int i = 0; i < n; i++) {
            fn->zps_of_offsets(&alone_s[i], &alone_o[i], 1);
            CHECK(memcmp(&s[i], &alone_s[i], sizeof *s) == 0 &&
                      memcmp(&o[i], &alone_o[i], sizeof *o) == 0,
                  "element %d of %d differs from one alone", i, n);
        }
        CHECK(s[n] == 99 && o[n] == 77, "%d elements: what is behind them has changed", n);
    }
}

int main(void)
{
    sinter_cpu_isa_t top;
    if (cpu_isa_cap(sinter_isa_default, &top) != sinter_success) {
        return 1;
    }
    for (int isa = sinter_isa_generic; isa <= (int)top && isa <= sinter_isa_avx512; isa++) {
        const quant_rows_t *fn = quant_rows(features_up_to((sinter_cpu_isa_t)isa));
        for (int s = 0; s < SCALES; s++) {
            for (int o = 0; o < OFFSETS; o++) {
                check_pair(fn, scales[s], offsets[o]);
            }
        }
        check_runs(fn);
    }
    return check_finish();
}
