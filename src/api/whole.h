/* A compiled graph: the partitions of a graph in order, their tensors, and the block of memory in
 * which the tensors between them lie. */
#ifndef SINTER_SRC_WHOLE_H
#define SINTER_SRC_WHOLE_H

#include <sinter/sinter_compiled_graph.h>
#include <sinter/sinter_sequence.h>

#include "backend_xsmm/exec/compiled.h"
#include "base/idmap.h"
#include "graph/objects.h"

/* Where the memory of a tensor is, at the next execute. */
typedef enum whole_place {
    PLACE_NONE,  /* an input or an output of the graph that is not bound */
    PLACE_BOUND, /* the caller's */
    PLACE_INPUT, /* the buffer of an input, by in-place pairs */
    PLACE_ARENA  /* the block of the compiled graph */
} whole_place_t;

/* A port of some partition. */
typedef struct whole_tensor {
    sinter_tensor_t tensor; /* what the partitions read or write at the next execute */
    lt_t port;              /* as compiled */
    lt_t wanted;            /* an output: the dims that the caller gave */
    int first;              /* the partition that writes it; -1: none, it is an input */
    int last;               /* the last partition that reads it; an output: behind all of them */
    bool bound;             /* the caller has given its memory, or its value */
    bool given;             /* the caller has given its dims */
    void *data;             /* bound: the caller's */
    whole_place_t place;
    bool lent;           /* an input: an output lies in its buffer */
    size_t offset, room; /* PLACE_ARENA: in the block, bytes there */
    int search;          /* the last one for a root that has come here */
} whole_tensor_t;

/* A tensor on the way to a root, and the next input to look at of the partition that writes it. */
typedef struct whole_hop {
    int tensor, next;
} whole_hop_t;

typedef struct whole_part {
    sinter_compiled_partition_t *compiled; /* held */
    int *ports;                            /* tensors, in the order of the partition's ports */
    const sinter_tensor_t **ins;           /* the same as the library wants them */
    sinter_tensor_t **outs;
    bool stale; /* dims of its outputs are to be inferred again */
} whole_part_t;

struct sinter_compiled_graph {
    sinter_engine_t *engine; /* held */
    arena_t arena;
    int n_parts, n_tensors, n_inputs, n_outputs;
    whole_part_t *parts;
    whole_tensor_t *tensors; /* by the first partition that has them as a port */
    int *inputs, *outputs;   /* tensors */
    idmap_t *ids;            /* tensor id -> tensor */
    sinter_inplace_pair_t *pairs;
    size_t n_pairs;
    sinter_sequence_t *sequence;
    void *frame;    /* dims are inferred in it: as large as the largest frame of a partition */
    lt_t *inferred; /* room for the outputs of one partition */
    bool stale;     /* places and addresses are to be found again */
    int *live;      /* while places are found: tensors in the block, by offset */
    whole_hop_t *path;
    int n_path, searches;
    sinter_arena_tensor_t *placed;
    size_t n_placed, placed_bytes;
    unsigned char *memory; /* the block */
    size_t memory_bytes;
};

/* Brings dims, places and addresses of all tensors up to date with what is bound. Outputs that are
 * not bound are PLACE_NONE. Allocates nothing. */
sinter_status_t whole_place_all(sinter_compiled_graph_t *w);
/* The same for an execute: every tensor has memory, and no memory is written before it is read. */
sinter_status_t whole_prepare(sinter_compiled_graph_t *w);
/* Dims alone. An input without dims is an error. */
sinter_status_t whole_infer(sinter_compiled_graph_t *w);
/* Marks the partitions that read or write a tensor whose dims have changed, and all places. */
void whole_renew(sinter_compiled_graph_t *w, const whole_tensor_t *t);
/* The input to whose buffer in-place pairs lead from tensor b, through tensors that are not bound:
 * the first one that is not constant; if `bound`, that is bound to memory where b may lie. -1:
 * there is none. path: from b to what is written over it. */
int whole_find_root(sinter_compiled_graph_t *w, int b, bool bound);

#endif
