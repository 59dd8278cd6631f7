/* One graph through the library: build, partition, compile, buffers, execute. */
#ifndef GR_EXEC_H
#define GR_EXEC_H

#include "model.h"
#include "options.h"

/* Memory of one tensor, with sentinels before and behind. */
typedef struct gr_buffer {
    sinter_logical_tensor_t lt;
    unsigned char *base, *data;
    size_t bytes;
    /* A tensor of which the library has an opaque layout: lt is the one that the oracle and files
     * have, and these are what the library reads or writes. NULL: the same. */
    sinter_logical_tensor_t opaque_lt;
    unsigned char *opaque;
    size_t opaque_bytes;
} gr_buffer_t;

typedef struct gr_part {
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled; /* NULL until compiled */
    size_t id, n_ops, n_in, n_out;
    uint64_t *ops;
    sinter_logical_tensor_t *in, *out; /* ports; after compile with everything filled in */
    sinter_fpmath_mode_t mode;
    int apply_to_int, supported;
    bool dynamic; /* some dims of inputs are unknown until execute */
    const char *pattern;
    double compile_seconds;
    size_t scratch, scratch_per_thread;
} gr_part_t;

/* How the partitions run as one, for --json: the memory between them. */
typedef struct gr_sequence {
    bool known; /* the dims of all inputs are known */
    size_t bytes, n;
    sinter_arena_tensor_t *tensors;
    /* Mode P: seconds of an execute of the graph as a whole, and the time of its roofline as a
     * fraction of them. 0: not measured. */
    double min, median, min_of_roofline, median_of_roofline;
} gr_sequence_t;

typedef struct gr_exec {
    const gr_options_t *opt;
    model_t *model;
    sinter_engine_t *engine;
    sinter_stream_t *stream;
    sinter_graph_t *graph;
    sinter_graph_t *shapes;   /* has the dims that --dynamic hides from graph; else the same */
    struct gr_record *record; /* what --json prints, or NULL; belongs to the caller */
    int threads;
    size_t n_parts;
    gr_part_t *parts;               /* in execution order */
    sinter_compiled_graph_t *whole; /* all of them; NULL until compiled */
    gr_sequence_t sequence;
    const sinter_logical_tensor_t *
        *settled; /* by index of the model's tensor: as the compiled producer has it, or NULL */
    gr_buffer_t *buffers; /* by index of the model's tensor; base NULL where none */
} gr_exec_t;

/* Each returns 0, or -1 with a message. Close in any state. */
int gr_exec_open(gr_exec_t *x, model_t *model, const gr_options_t *opt, gr_error_t *err);
int gr_exec_compile(gr_exec_t *x, gr_error_t *err);
/* Allocates and fills all graph inputs. */
int gr_exec_inputs(gr_exec_t *x, gr_error_t *err);
/* Runs the graph once as a whole, into fresh outputs full of NaN, and checks the sentinels. Tensors
 * between partitions have such buffers too where something needs to see them, or where every op is
 * a partition; else they lie in the memory of the compiled graph. */
int gr_exec_run(gr_exec_t *x, gr_error_t *err);
/* Leaves tensors between partitions to the memory of the compiled graph, and what rows go into to
 * the memory of the cache before them, after a run that has given them buffers. */
int gr_exec_share_memory(gr_exec_t *x, gr_error_t *err);
void gr_exec_close(gr_exec_t *x);

int gr_buffer_alloc(gr_buffer_t *b, const sinter_logical_tensor_t *lt, gr_error_t *err);
/* Copies the elements as a port with an opaque layout wants them. */
int gr_buffer_pack(gr_buffer_t *b, const sinter_logical_tensor_t *port, gr_error_t *err);
void gr_buffer_free(gr_buffer_t *b);
/* A tensor as it is at execute: its buffer's description, or where it has none the shape that the
 * graph infers from its inputs' real dims; with dense strides for an opaque layout. */
void gr_exec_lt(const gr_exec_t *x, uint64_t id, sinter_logical_tensor_t *lt);
/* A partition's port as it is at execute: with the dims of its buffer where compile knows none. */
const sinter_logical_tensor_t *gr_exec_port(const gr_exec_t *x,
                                            const sinter_logical_tensor_t *port);
/* NULL if the graph has no such tensor or nothing is allocated for it. */
gr_buffer_t *gr_exec_buffer(const gr_exec_t *x, uint64_t id);
/* A tensor over a buffer; host scalars by value. */
int gr_make_tensor(const gr_exec_t *x, const sinter_logical_tensor_t *lt, const gr_buffer_t *b,
                   sinter_tensor_t **tensor, gr_error_t *err);
/* The fpmath mode that results must answer for: the loosest of all partitions. */
void gr_exec_loosest_mode(const gr_exec_t *x, sinter_fpmath_mode_t *mode, int *apply_to_int);
/* "what: status: message" of a failed library call. */
int gr_library_failure(sinter_status_t status, const char *what, gr_error_t *err);

#endif
