/* Zero points that are floats, and offsets, which DynamicQuantize computes: what exact rational
 * arithmetic gives (oracle/gen_dynquant_vectors.py), number by number and code by code. Zero points
 * are rounded once, differences are exact, and codes saturate. */
#include <math.h>

#include "oracle.h"
#include "passive.h"
#include "spec_run.h"

#include "../oracle/dynquant_vectors.h"

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static double decoded(sinter_data_type_t type, const void *data)
{
    return orc_decode(type, data, 0);
}

/* Groups of 8 numbers in rows, or in columns. */
static void check_set(const dynquant_vector_t *v, bool columns)
{
    enum { N = DYNQUANT_GROUPS };
    static float x[N * 8], scales[N], zps[N];
    static unsigned char codes[N * 8];
    const spec_port_t ports[] = {{1, x}, {2, codes}, {3, scales}, {4, zps}, {0, NULL}};
    const int d[2] = {columns ? 8 : N, columns ? N : 8}, g[2] = {columns ? 1 : N, columns ? N : 1};
    const char *type = sinter_data_type_name(v->type),
               *scale = sinter_data_type_name(v->scale_type),
               *zp = sinter_data_type_name(v->zp_type);
    const size_t scale_bytes = v->scale_type == sinter_f32 ? 4 : 2,
                 zp_bytes = v->zp_type == sinter_f32 ? 4 : 2;
    char spec[400];
    for (int i = 0; i < N * 8; i++) {
        x[columns ? i % 8 * N + i / 8 : i] = dynquant_groups[i / 8][i % 8];
    }
    snprintf(spec, sizeof spec,
             "DynamicQuantize quantization_kind=%s qtype=per_group group_shape=%d,%d zps_kind=%s "
             "1:f32:%dx%d -> 2:%s:%dx%d 3:%s:%dx%d 4:%s:%dx%d",
             v->kind, columns ? 8 : 1, columns ? 1 : 8, v->offsets ? "offsets" : "zero_points",
             d[0], d[1], type, d[0], d[1], scale, g[0], g[1], zp, g[0], g[1]);
    if (!CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s",
               spec, sinter_last_error_message())) {
        return;
    }
    for (int i = 0; i < N; i++) {
        const dynquant_result_t *want = &v->results[i];
        const double s = decoded(v->scale_type, (unsigned char *)scales + (size_t)i * scale_bytes),
                     z = decoded(v->zp_type, (unsigned char *)zps + (size_t)i * zp_bytes);
        CHECK(same(s, want->scale) && same(z, want->zp),
              "%s, group %d: scale %a and %a, want %a and %a", spec, i, s, z, want->scale,
              want->zp);
        for (int k = 0; k < 8; k++) {
            const double code = orc_decode(v->type, codes, columns ? k * N + i : i * 8 + k);
            CHECK(code == want->elements[k], "%s, group %d: code %d of %a is %g, want %g", spec, i,
                  k, dynquant_groups[i][k], code, want->elements[k]);
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    for (size_t i = 0; i < sizeof dynquant_vectors / sizeof *dynquant_vectors; i++) {
        const dynquant_vector_t *v = &dynquant_vectors[i];
        if (v->zp_type == sinter_f32 || v->zp_type == sinter_f16 || v->zp_type == sinter_bf16) {
            check_set(v, false);
            check_set(v, true);
        }
    }
    return check_finish();
}
