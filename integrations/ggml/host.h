/* The host that has loaded the library. One binary serves hosts of several versions: ggml inserts
 * ops, so that their numbers move, and functions into the tables of its interface. */
#ifndef SINTER_GGML_HOST_H
#define SINTER_GGML_HOST_H

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

/* The ops that the backend knows. GS_OP_UNKNOWN: all others. An op of the groups UNARY and GLU is
 * one of its own here. */
typedef enum gs_op {
    GS_OP_UNKNOWN,
#define OP(name) GS_OP_##name,
#define UNARY(name) GS_UNARY_##name,
#define GLU(name) GS_GLU_##name,
#include "host_ops.def"
#undef OP
#undef UNARY
#undef GLU
} gs_op_t;

/* Which op a node is. Numbers of ops in ggml's headers must not be compared with node->op. */
gs_op_t gs_op(const struct ggml_tensor *node);

/* The version of the interface that the host expects. */
int gs_host_version(void);

/* NULL, or one sentence about what in the host does not fit: a struct that is read here, a type, or
 * a table of functions. The device and its buffer type are called through the host's functions. */
const char *gs_host_misfit(ggml_backend_reg_t registry);

/* Whether the host has another device that is a GPU. */
bool gs_host_has_gpu(ggml_backend_dev_t ours);

#endif
