/* The command line: one table of flags in options.c is the parser, --help and the line that
 * reproduces a result. */
#ifndef GR_OPTIONS_H
#define GR_OPTIONS_H

#include "base.h"

#include <stdio.h>

#define GR_SAME_BATCH INT64_MIN /* as mb: none is given */

typedef struct gr_options {
    const char *mode, *case_file, *batch;
    const char *in_shapes, *dynamic, *dt, *op_attrs, *attr_fpmath, *partition_fpmath, *in;
    int64_t mb, seed, threads, expected_n_partitions, max_scratch, runs, repeat, constant_cache;
    int64_t simulate_threads, simulate_nodes;
    double min_time, max_ambiguous, max_loose;
    int no_fuse, deterministic, same_bits, cold_cache, on_demand, explain, json, mem;
    const char *max_cpu_isa, *verbose, *dump_after, *dump_graph, *dump_tensors, *dump_tensor_ids,
        *dot, *describe_dtype, *describe_op, *limits;
    int list_ops, list_kernels, markdown, help;
} gr_options_t;

extern const gr_options_t gr_default_options;

/* Applies arguments to opt, which keeps pointers into them. A message names the argument. */
int gr_options_parse(gr_options_t *opt, int argc, char *const *argv, gr_error_t *err);
/* Splits a line into words as a shell does, with quotes and backslashes; # at the start of a word
 * begins a comment. What gr_options_print wrote gives the same words again. The words lie in the
 * line, which is changed. Returns 1 with a message if a quote is open or there are too many. */
int gr_options_split(char *line, char **words, int most, int *n, gr_error_t *err);
void gr_options_help(void);
/* The command line of opt on one line, without newline. */
void gr_options_print(FILE *f, const gr_options_t *opt);

#endif
