/* Linear attention with what stands before and behind it: all modes, heads that share queries and
 * keys, states in either order of their dims, of their own or in slots. */
#include "fuzz.h"

#include <string.h>

typedef struct recurrence {
    int64_t batch, tokens, heads, few, keys, values;
} recurrence_t;

static int input(fz_t *f, const recurrence_t *r, int64_t heads, int64_t last)
{
    const int64_t dims[4] = {r->batch, r->tokens, heads, last};
    return fz_input(f, fz_float(f), 4, dims);
}

/* Keys, decays and rates as models have them: keys of length 1 at most, decays below 0, rates
 * between 0 and 1. With other ones states grow from token to token. */
static int small(fz_t *f, int x, int64_t n)
{
    const fz_tensor_t t = f->tensors[x];
    const float most = 1.0F / (float)(n < 4 ? 2 : n < 32 ? 5 : n < 100 ? 10 : 20);
    x = FZ_OP(f, clamp, fz_float(f), t.ndims, t.dims, x);
    fz_f32(f, sinter_op_attr_min, 1, (const float[]){-most});
    fz_f32(f, sinter_op_attr_max, 1, &most);
    return x;
}

static int between(fz_t *f, int x, float least, float most)
{
    const fz_tensor_t t = f->tensors[x];
    x = FZ_OP(f, clamp, fz_float(f), t.ndims, t.dims, x);
    fz_f32(f, sinter_op_attr_min, 1, &least);
    fz_f32(f, sinter_op_attr_max, 1, &most);
    return x;
}

void fz_gen_recurrent(fz_t *f)
{
    static const char *const modes[] = {"linear",      "gated",       "delta",
                                        "gated_delta", "gated_bonus", "gated_low_rank"};
    enum { GATED = 1, DELTA = 2, BONUS = 4, LOW_RANK = 5 };
    const int mode = fz_pick(f, 6), gated = mode >= BONUS || mode & GATED,
              delta = mode < BONUS && mode & DELTA, slots = fz_chance(f, 40),
              log_decay = !gated || fz_chance(f, 60);
    recurrence_t r = {.few = fz_range(f, 1, 3),
                      .keys = FZ_ONE_OF(f, 1, 3, 8, 16, 17, 40, 128, 264),
                      .values = FZ_ONE_OF(f, 1, 4, 15, 16, 33, 64)};
    r.heads = r.few * fz_range(f, 1, 3);
    r.batch = fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 3), 1);
    r.tokens = fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 4, 5, 9), 1);
    const int64_t rows = slots ? r.batch == 1 ? FZ_ONE_OF(f, 1, 4) : 4 : r.batch,
                  state[4] = {rows, r.heads, r.values, r.keys},
                  out[4] = {r.batch, r.tokens, r.heads, r.values};
    const sinter_data_type_t type = fz_chance(f, 70) ? sinter_f32 : fz_float(f);
    int in[9], n = 4;
    in[0] = input(f, &r, fz_chance(f, 80) ? r.few : r.heads, r.keys);
    in[1] = small(f, input(f, &r, fz_chance(f, 80) ? r.few : r.heads, r.keys), r.keys);
    in[2] = input(f, &r, r.heads, r.values);
    in[3] = fz_input(f, type, 4, state);
    if (gated) {
        in[n++] = between(f, input(f, &r, r.heads, fz_chance(f, 60) ? 1 : r.keys),
                          log_decay ? -3 : -0.5F, log_decay ? 0 : 1);
    }
    if (delta) {
        in[n++] = between(f, input(f, &r, r.heads, 1), 0, 1);
    }
    if (mode == BONUS) {
        in[n++] = fz_input(f, fz_float(f), 2, (const int64_t[]){r.heads, r.keys});
    }
    for (int i = 0; i < 2 && mode == LOW_RANK; i++) { /* a and b */
        in[n++] = small(f, input(f, &r, fz_chance(f, 50) ? r.few : r.heads, r.keys), r.keys);
    }
    if (slots) {
        in[n] = fz_indices(f, 1, &r.batch, rows);
        f->tensors[in[n]].skip = fz_chance(f, 50);
        n++;
    }
    const int written = slots && r.batch == 1 && fz_chance(f, 60); /* no two may be equal */
    if (written) {
        in[n] = fz_indices(f, 1, &r.batch, rows);
        f->tensors[in[n]].skip = fz_chance(f, 20);
        n++;
    }
    int64_t next[4];
    memcpy(next, state, sizeof next);
    next[0] = written ? rows : r.batch;
    int y = fz_op(f, sinter_op_linear_attention, fz_float(f), 4, out, n, in);
    f->tensors[fz_more_output(f, type, 4, next)].keep = 1;
    fz_str(f, sinter_op_attr_mode, modes[mode]);
    if (!log_decay) {
        fz_bool(f, sinter_op_attr_log_decay, 0);
    }
    if (fz_chance(f, 30)) {
        fz_f32(f, sinter_op_attr_scale, 1, (const float[]){0.25F});
    }
    if (fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_interleaved, 0);
    }
    for (int i = fz_pick(f, 3); i > 0; i--) {
        y = fz_post_op(f, y);
    }
}
