/* A double of a host that differs from the one whose headers the backend was built with. It loads
 * the backend that GGML_BACKEND_PATH names. The argument is the case:
 *
 * plain      nothing differs: the host is the one that the program is linked to
 * shuffled   all ops but NONE have other numbers: the backend must serve the host as before
 * tensors    tensors have another size
 * types      two types have other numbers
 * functions  the table of buffer types has other functions
 *
 * In the last three the backend must refuse the host with one sentence. Functions of ggml that are
 * defined here are those that the backend finds. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

static bool shuffled, other_tensors, other_types, other_functions;

/* ---- the functions that differ --------------------------------------------------------------- */

/* Number n of ggml is the double's number; the other way it is the same function. */
static int swapped(int n, int count)
{
    return shuffled && n > 0 ? count - n : n;
}

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "the host has no %s\n", name);
        exit(1);
    }
    return found;
}

const char *ggml_op_name(enum ggml_op op)
{
    const char *(*function)(enum ggml_op);
    *(void **)&function = real("ggml_op_name");
    return function((enum ggml_op)swapped(op, GGML_OP_COUNT));
}

const char *ggml_unary_op_name(enum ggml_unary_op op)
{
    const char *(*function)(enum ggml_unary_op);
    *(void **)&function = real("ggml_unary_op_name");
    return function((enum ggml_unary_op)swapped(op, GGML_UNARY_OP_COUNT));
}

const char *ggml_glu_op_name(enum ggml_glu_op op)
{
    const char *(*function)(enum ggml_glu_op);
    *(void **)&function = real("ggml_glu_op_name");
    return function((enum ggml_glu_op)swapped(op, GGML_GLU_OP_COUNT));
}

/* The host's own would say that a node with the double's number is none of UNARY or GLU. */
enum ggml_unary_op ggml_get_unary_op(const struct ggml_tensor *t)
{
    return (enum ggml_unary_op)t->op_params[0];
}

enum ggml_glu_op ggml_get_glu_op(const struct ggml_tensor *t)
{
    return (enum ggml_glu_op)t->op_params[0];
}

static void renumber(struct ggml_tensor *t)
{
    if (t->op == GGML_OP_UNARY) {
        t->op_params[0] = swapped(t->op_params[0], GGML_UNARY_OP_COUNT);
    } else if (t->op == GGML_OP_GLU) {
        t->op_params[0] = swapped(t->op_params[0], GGML_GLU_OP_COUNT);
    }
    t->op = (enum ggml_op)swapped(t->op, GGML_OP_COUNT);
}

/* The two nodes that the backend makes when it looks at the host. */
struct ggml_tensor *ggml_view_1d(struct ggml_context *context, struct ggml_tensor *t, int64_t ne,
                                 size_t offset)
{
    struct ggml_tensor *(*function)(struct ggml_context *, struct ggml_tensor *, int64_t, size_t);
    *(void **)&function = real("ggml_view_1d");
    struct ggml_tensor *view = function(context, t, ne, offset);
    renumber(view);
    return view;
}

struct ggml_tensor *ggml_scale(struct ggml_context *context, struct ggml_tensor *t, float factor)
{
    struct ggml_tensor *(*function)(struct ggml_context *, struct ggml_tensor *, float);
    *(void **)&function = real("ggml_scale");
    struct ggml_tensor *y = function(context, t, factor);
    renumber(y);
    return y;
}

size_t ggml_tensor_overhead(void)
{
    size_t (*function)(void);
    *(void **)&function = real("ggml_tensor_overhead");
    return function() + (other_tensors ? 16 : 0);
}

const char *ggml_type_name(enum ggml_type type)
{
    const char *(*function)(enum ggml_type);
    *(void **)&function = real("ggml_type_name");
    return function(!other_types             ? type
                    : type == GGML_TYPE_Q4_0 ? GGML_TYPE_Q4_1
                    : type == GGML_TYPE_Q4_1 ? GGML_TYPE_Q4_0
                                             : type);
}

size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t type)
{
    size_t (*alignment)(ggml_backend_buffer_type_t), (*most)(ggml_backend_buffer_type_t);
    *(void **)&alignment = real("ggml_backend_buft_get_alignment");
    *(void **)&most = real("ggml_backend_buft_get_max_size");
    return other_functions ? most(type) : alignment(type);
}

/* ---- a graph --------------------------------------------------------------------------------- */

enum { WIDTH = 64, ROWS = 5, OUT = 48 };

/* Ops of all groups, and views. The result has OUT / 2 elements in each of ROWS rows. */
static struct ggml_tensor *build(struct ggml_context *context, struct ggml_tensor *in[3])
{
    struct ggml_tensor *x = in[0] = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, ROWS),
                       *gamma = in[1] = ggml_new_tensor_1d(context, GGML_TYPE_F32, WIDTH),
                       *w = in[2] = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, OUT);
    struct ggml_tensor *y =
        ggml_mul_mat(context, w, ggml_mul(context, ggml_rms_norm(context, x, 1e-5f), gamma));
    y = ggml_add(context, ggml_silu(context, y), ggml_sqr(context, y));
    return ggml_reshape_3d(context, ggml_swiglu(context, y), OUT / 4, 2, ROWS);
}

/* Computes the graph on a device and copies the result. false: it could not. */
static bool compute(ggml_backend_dev_t device, bool double_numbers, float *result)
{
    const struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    const ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    struct ggml_tensor *in[3], *y = build(context, in), *last = y->src[0];
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, y);
    const ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    for (int i = 0; i < 3; i++) {
        float values[WIDTH * OUT];
        const int count = (int)ggml_nelements(in[i]);
        for (int e = 0; e < count; e++) {
            values[e] = sinf((float)(e * (i + 1) + i)) / 4;
        }
        ggml_backend_tensor_set(in[i], values, 0, ggml_nbytes(in[i]));
    }
    bool ok = true;
    for (int n = 0; n < ggml_graph_n_nodes(graph) && double_numbers; n++) {
        struct ggml_tensor *node = ggml_graph_node(graph, n);
        renumber(node);
        ok &= ggml_backend_dev_supports_op(device, node);
    }
    ok = ok && ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(last, result, 0, ggml_nbytes(last));
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(context);
    return ok;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static char said[512];

static void hear(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s", text);
    }
}

int main(int argc, char **argv)
{
    const char *path = getenv("GGML_BACKEND_PATH"), *name = argc == 2 ? argv[1] : "";
    shuffled = !strcmp(name, "shuffled");
    other_tensors = !strcmp(name, "tensors");
    other_types = !strcmp(name, "types");
    other_functions = !strcmp(name, "functions");
    const bool must_fit = shuffled || !strcmp(name, "plain");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    ggml_backend_reg_t (*init)(void) = NULL;
    if (library) {
        *(void **)&init = dlsym(library, "ggml_backend_init");
    }
    if (!init) {
        fprintf(stderr, "no backend: %s\n", dlerror());
        return 1;
    }
    ggml_log_set(hear, NULL);
    const ggml_backend_reg_t registry = init();
    if (!must_fit) {
        const char *end = strchr(said, '\n');
        const bool right = !registry && strstr(said, "cannot serve") && end && !end[1];
        printf("%s: %s%s", name, right ? "refused: " : "NOT refused ", said);
        return right ? 0 : 1;
    }
    if (!registry) {
        printf("%s: refused: %s\n", name, said);
        return 1;
    }
    static float ours[OUT / 2 * ROWS], theirs[OUT / 2 * ROWS];
    float most = 0;
    const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu || !compute(cpu, false, theirs) ||
        !compute(ggml_backend_reg_dev_get(registry, 0), true, ours)) {
        printf("%s: NOT computed: %s\n", name, said);
        return 1;
    }
    for (int i = 0; i < OUT / 2 * ROWS; i++) {
        most = fmaxf(most, fabsf(ours[i] - theirs[i]));
    }
    const bool right = most < 1e-4f && !*said;
    printf("%s: served, %g from ggml's CPU backend%s%s\n", name, most,
           right ? "" : ", WRONG: ", said);
    return right ? 0 : 1;
}
