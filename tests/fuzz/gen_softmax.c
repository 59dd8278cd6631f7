/* SoftMax and LogSoftmax over any axis with what may follow them. */
#include "fuzz.h"

#include <string.h>

void fz_gen_softmax(fz_t *f)
{
    int64_t dims[FZ_MAX_RANK], stats[FZ_MAX_RANK], room = 8000;
    int ndims = fz_range(f, 1, 5), axis = fz_pick(f, ndims), log = fz_chance(f, 25),
        posts = fz_pick(f, 4), given = fz_chance(f, 70), x;
    int safe = !log && fz_chance(f, 40);
    sinter_data_type_t type = fz_float(f);

    if (!given) {
        axis = log ? ndims - 1 : 1;
    }
    if (axis >= ndims) {
        ndims = axis + 1;
    }
    for (int d = 0; d < ndims; d++) {
        int64_t size = FZ_ONE_OF(f, 1, 2, 3, 5, 8, 16, 17, 31, 65, 130, 300);

        while (size > room) {
            size /= 2;
        }
        room /= size;
        dims[d] = fz_dim(f, size, 1);
    }
    x = fz_input(f, type, ndims, dims);
    if (safe) {
        f->tensors[x].dead_rows = axis + 1;
    } else if (fz_chance(f, 10)) {
        f->tensors[x].specials = fz_range(f, 1, 5);
    }
    if (fz_chance(f, 20)) {
        x = fz_post_op(f, x); /* may enlarge unknown dims */
    }
    memcpy(dims, f->tensors[x].dims, sizeof dims);
    memcpy(stats, dims, sizeof stats);
    stats[axis] = 1;
    type = fz_chance(f, 70) ? f->tensors[x].type : fz_float(f);
    if (!log && fz_chance(f, 25)) {
        int64_t sinks[FZ_MAX_RANK];

        for (int d = 0; d < ndims; d++) {
            sinks[d] = fz_part(f, stats[d], 40);
        }
        x = FZ_OP(f, softmax, type, ndims, dims, x, fz_input(f, fz_float(f), ndims, sinks));
    } else {
        x = fz_unary(f, log ? sinter_op_log_softmax : sinter_op_softmax, type, x);
    }
    if (given) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? axis : axis - ndims});
    }
    if (safe || (!log && fz_chance(f, 30))) {
        fz_str(f, sinter_op_attr_mode, safe ? "inf_as_zero" : "none");
    }
    if (!log && fz_chance(f, 25)) {
        fz_more_output(f, sinter_f32, ndims, stats);
    }
    for (int i = 0; i < posts; i++) {
        f->tensors[x].keep = fz_chance(f, 5);
        x = fz_post_op(f, x);
    }
    if (fz_chance(f, 20)) {
        fz_quantized(f, x);
    }
}
