#include "backend_xsmm/drivers/common/box.h"

#include "numeric/quant_rows.h"

void box_prepare(sinter_data_type_t type, int ndims, box_t *box)
{
    box->type = dtype_traits(type);
    box->n = 1;
    box->shares_byte = false;
    box->past_caches = NULL;
    box->ndims = 0;
    for (int d = 0; d < ndims; d++) {
        const int last = box->ndims - 1;
        box->n *= box->dims[d];
        if (box->dims[d] == 1) {
            continue;
        }
        if (last >= 0 && box->from[last] == box->dims[d] * box->from[d] &&
            box->to[last] == box->dims[d] * box->to[d]) {
            box->dims[last] *= box->dims[d];
            box->from[last] = box->from[d];
            box->to[last] = box->to[d];
            continue;
        }
        box->dims[box->ndims] = box->dims[d];
        box->from[box->ndims] = box->from[d];
        box->to[box->ndims++] = box->to[d];
    }
    for (int d = 0; d < box->ndims && box->type->block_elems > 1; d++) {
        const bool run = d == box->ndims - 1 && box->to[d] == 1;
        box->shares_byte = box->shares_byte || (!run && box->to[d] % box->type->block_elems != 0);
    }
}

/* Elements one by one, of whole bytes. */
static inline __attribute__((always_inline)) void move_strided(const unsigned char *from,
                                                               int64_t from_step, unsigned char *to,
                                                               int64_t to_step, int64_t n,
                                                               int64_t bytes)
{
    for (int64_t i = 0; i < n; i++, from += from_step * bytes, to += to_step * bytes) {
        memcpy(to, from, (size_t)bytes);
    }
}

/* Elements of less than a byte, or of blocks. Floats hold all of their values. */
static void move_packed(const dtype_traits_t *type, const unsigned char *data, int64_t from,
                        int64_t from_step, unsigned char *out, int64_t to, int64_t to_step,
                        int64_t n)
{
    enum { RUN = 256 };
    float x[RUN];
    for (int64_t i = 0; i < n; i += RUN) {
        const int64_t m = n - i < RUN ? n - i : RUN;
        type->codec.load_f32(data, from + i * from_step, from_step, m, x);
        type->codec.store_f32(out, to + i * to_step, to_step, m, x);
    }
}

static void move_run(const box_t *box, const unsigned char *data, int64_t from, unsigned char *out,
                     int64_t to)
{
    const int last = box->ndims - 1, per = box->type->block_elems;
    const int64_t n = last < 0 ? 1 : box->dims[last], step = last < 0 ? 1 : box->from[last],
                  to_step = last < 0 ? 1 : box->to[last], bytes = box->type->block_bytes;
    if (step == 1 && to_step == 1 && from % per == 0 && to % per == 0 && n % per == 0) {
        const unsigned char *run = data + from / per * bytes;
        const size_t length = (size_t)(n / per * bytes);
        if (box->past_caches != NULL) {
            box->past_caches->stream(out + to / per * bytes, run, length);
        } else {
            memcpy(out + to / per * bytes, run, length);
        }
    } else if (per == 1) {
        BY_SIZE(move_strided, bytes, data + from * bytes, step, out + to * bytes, to_step, n);
    } else {
        move_packed(box->type, data, from, step, out, to, to_step, n);
    }
}

void box_move(const box_t *box, const unsigned char *data, int64_t from, unsigned char *out,
              int64_t to)
{
    const int outer = box->ndims > 0 ? box->ndims - 1 : 0;
    int64_t at[SINTER_MAX_NDIMS] = {0}, runs = 1;
    for (int d = 0; d < outer; d++) {
        runs *= box->dims[d];
    }
    for (int64_t i = 0; i < runs && box->n > 0; i++, walk_next(outer, box->dims, at)) {
        move_run(box, data, from + walk_place(outer, at, box->from), out,
                 to + walk_place(outer, at, box->to));
    }
}
