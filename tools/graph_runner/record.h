/* --json: everything that the text output says about a case, as one JSON document on one line of
 * stdout. Names of numbers end in their unit. A figure that was not measured is absent.
 * docs/graph_runner.md has the list of members. */
#ifndef GR_RECORD_H
#define GR_RECORD_H

#include "exec.h"
#include "limits.h"
#include "work.h"

struct cJSON;

/* NULL as the record of a function that adds something: nothing is recorded. */
typedef struct gr_record {
    struct cJSON *root, *partitions;
    bool failed; /* no memory for some member: the document is not complete */
} gr_record_t;

/* A time and what it is of the machine's limits; fractions are 0 where nothing was measured to
 * compare with. */
typedef struct gr_rate {
    double seconds, flops, bytes; /* flops and bytes per second */
    double of_fma, of_int8, of_read, of_copy, of_roofline;
    double of_mixed; /* of passes that read and write memory in the same proportion */
} gr_rate_t;

typedef struct gr_figures {
    size_t runs;
    double flops, bytes; /* of one execute */
    bool attention;      /* the bytes are those of K and V, not of all ports */
    double compile_seconds;
    gr_roofline_t roofline; /* 0 without products */
    gr_rate_t min, median;
} gr_figures_t;

void gr_record_open(gr_record_t *r);
void gr_record_close(gr_record_t *r);
void gr_record_warnings(gr_record_t *r, const model_t *model);
/* Graph and partitions as far as they are known; after compile, whether that succeeded or not. */
void gr_record_graph(gr_record_t *r, const gr_exec_t *x);
/* Scratch memory and the constant cache; after the runs. */
void gr_record_memory(gr_record_t *r, const gr_exec_t *x);
void gr_record_runs(gr_record_t *r, const gr_exec_t *x, size_t tensors, size_t bytes);
/* Mode C: one output against the oracle. d: what the comparison counted. */
void gr_record_output(gr_record_t *r, const sinter_logical_tensor_t *lt, const orc_diff_t *d,
                      bool passed);
void gr_record_limits(gr_record_t *r, const gr_limits_t *limits);
/* A partition by its place in x->parts. */
void gr_record_work(gr_record_t *r, int part, const gr_work_t *work, const gr_roofline_t *bound);
/* Mode P: a partition by its place in x->parts, or -1 for the sum of all. */
void gr_record_figures(gr_record_t *r, int part, const gr_figures_t *f);
/* Adds the verdict and returns the document, which ends in gr_free(); NULL without memory for all
 * of it. message: NULL if there is none. */
char *gr_record_text(gr_record_t *r, const gr_options_t *opt, const char *verdict, double seconds,
                     const char *message);

#endif
