#include "runs.h"

#include "record.h"

#include <stdio.h>
#include <string.h>

int gr_keep(const gr_exec_t *x, gr_kept_t *kept, gr_error_t *err)
{
    const size_t n = x->model->n_tensors;

    *kept = (gr_kept_t){.data = gr_malloc(n * sizeof *kept->data)};
    if (!kept->data) {
        return gr_fail_memory(err);
    }
    for (; kept->n < n; kept->n++) {
        const gr_buffer_t *b = &x->buffers[kept->n];
        const bool written = b->base && !x->model->tensors[kept->n].is_input;

        kept->data[kept->n] = written ? gr_malloc(b->bytes) : NULL;
        if (!written) {
            continue;
        }
        if (!kept->data[kept->n]) {
            err->out_of_memory = 1;
            return gr_fail(err, "--same-bits: out of memory for a copy of tensor %llu, %zu bytes",
                           (unsigned long long)b->lt.id, b->bytes);
        }
        memcpy(kept->data[kept->n], b->data, b->bytes);
        kept->tensors++;
        kept->bytes += b->bytes;
    }
    return 0;
}

void gr_kept_free(gr_kept_t *kept)
{
    for (size_t i = 0; i < kept->n; i++) {
        gr_free(kept->data[i]);
    }
    gr_free(kept->data);
    *kept = (gr_kept_t){0};
}

/* The bits of one element; types narrower than a byte are packed, lowest bits first. */
static uint64_t bits_of(const sinter_logical_tensor_t *lt, const unsigned char *data, int64_t index)
{
    const int bits = gr_dtype(lt->data_type)->bits;
    const int64_t first = gr_offset(lt, index) * bits;
    uint64_t value = 0;

    for (int i = 0; i < bits; i++) {
        value |= (uint64_t)(data[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    }
    return value;
}

static int describe_difference(const gr_buffer_t *b, const unsigned char *first, int64_t run,
                               gr_error_t *err)
{
    const int64_t n = gr_elements(&b->lt);
    const unsigned long long id = b->lt.id;
    int64_t at = -1, count = 0;
    char where[256];

    for (int64_t i = 0; i < n; i++) {
        const bool differs = bits_of(&b->lt, b->data, i) != bits_of(&b->lt, first, i);

        at = differs && at < 0 ? i : at;
        count += differs;
    }
    if (count == 0) {
        return gr_fail(
            err, "run %lld: tensor %llu has other bytes between its elements than in the first run",
            (long long)run, id);
    }
    gr_index_text(&b->lt, at, where, sizeof where);
    return gr_fail(err,
                   "run %lld: tensor %llu has other bits than in the first run in %lld of %lld "
                   "elements, first at [%s]: "
                   "0x%llX (%.9g), in the first run 0x%llX (%.9g)",
                   (long long)run, id, (long long)count, (long long)n, where,
                   (unsigned long long)bits_of(&b->lt, b->data, at),
                   orc_decode(b->lt.data_type, b->data, gr_offset(&b->lt, at)),
                   (unsigned long long)bits_of(&b->lt, first, at),
                   orc_decode(b->lt.data_type, first, gr_offset(&b->lt, at)));
}

int gr_compare_kept(const gr_exec_t *x, const gr_kept_t *kept, int64_t run, gr_error_t *err)
{
    for (size_t i = 0; i < kept->n; i++) {
        const gr_buffer_t *b = &x->buffers[i];

        if (kept->data[i] && memcmp(kept->data[i], b->data, b->bytes)) {
            return describe_difference(b, kept->data[i], run, err);
        }
    }
    return 0;
}

int gr_run_all(gr_exec_t *x, gr_error_t *err)
{
    gr_kept_t kept = {0};
    int failed = gr_exec_run(x, err) || (x->opt->same_bits && gr_keep(x, &kept, err));

    for (int64_t run = 2; run <= x->opt->runs && !failed; run++) {
        failed = gr_exec_run(x, err) || gr_compare_kept(x, &kept, run, err);
    }
    if (!failed && x->opt->same_bits) {
        gr_print("    %lld runs: the same bits in %zu tensors of %zu bytes\n",
                 (long long)x->opt->runs, kept.tensors, kept.bytes);
    }
    if (!failed && x->opt->runs > 1) {
        gr_record_runs(x->record, x, kept.tensors, kept.bytes);
    }
    gr_kept_free(&kept);
    return failed ? -1 : 0;
}
