/* What differs among the versions of ggml, found out by asking the host. */
#include "host.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"

/* ---- ops ------------------------------------------------------------------------------------- */

typedef enum group { OF_OP, OF_UNARY, OF_GLU, GROUPS } group_t;

static const struct {
    const char *name;
    group_t group;
} names[] = {
#define OP(name) [GS_OP_##name] = {#name, OF_OP},
#define UNARY(name) [GS_UNARY_##name] = {#name, OF_UNARY},
#define GLU(name) [GS_GLU_##name] = {#name, OF_GLU},
#include "host_ops.def"
#undef OP
#undef UNARY
#undef GLU
};

static gs_op_t op_named(const char *name, group_t group)
{
    for (size_t i = GS_OP_UNKNOWN + 1; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].group == group && !strcmp(names[i].name, name)) {
            return (gs_op_t)i;
        }
    }
    return GS_OP_UNKNOWN;
}

/* The op of a number. The host is asked for its name once, and only for numbers of its own nodes:
 * ggml does not say how many ops it has names for. */
static gs_op_t op_numbered(unsigned number, group_t group)
{
    enum { NUMBERS = 256 };
    static _Atomic unsigned char known[GROUPS][NUMBERS]; /* the op + 1; 0: not asked yet */
    if (number >= NUMBERS) {
        return GS_OP_UNKNOWN;
    }
    const unsigned char before = atomic_load_explicit(&known[group][number], memory_order_relaxed);
    if (before) {
        return (gs_op_t)(before - 1);
    }
    const char *name = group == OF_UNARY ? ggml_unary_op_name((enum ggml_unary_op)number)
                       : group == OF_GLU ? ggml_glu_op_name((enum ggml_glu_op)number)
                                         : ggml_op_name((enum ggml_op)number);
    const gs_op_t op = op_named(name, group);
    atomic_store_explicit(&known[group][number], (unsigned char)(op + 1), memory_order_relaxed);
    return op;
}

_Static_assert(sizeof(names) / sizeof(names[0]) < 255, "an op + 1 must fit into a byte");

gs_op_t gs_op(const struct ggml_tensor *node)
{
    const gs_op_t op = op_numbered((unsigned)node->op, OF_OP);
    return op == GS_OP_UNARY ? op_numbered(ggml_get_unary_op(node), OF_UNARY)
           : op == GS_OP_GLU ? op_numbered(ggml_get_glu_op(node), OF_GLU)
                             : op;
}

/* ---- what is asked of the host, if it is there ----------------------------------------------- */

/* Functions that some hosts do not have, or have in a library of their own, are weak: NULL then. */
extern __attribute__((weak)) size_t
ggml_backend_buft_get_alloc_size_n(ggml_backend_buffer_type_t type, struct ggml_tensor **tensors,
                                   int n_tensors);
extern __attribute__((weak)) size_t ggml_backend_dev_count(void);
extern __attribute__((weak)) ggml_backend_dev_t ggml_backend_dev_get(size_t index);

int gs_host_version(void)
{
    return ggml_backend_buft_get_alloc_size_n ? 3 : 2;
}

bool gs_host_has_gpu(ggml_backend_dev_t ours)
{
    if (!ggml_backend_dev_count || !ggml_backend_dev_get) {
        return false;
    }
    const size_t count = ggml_backend_dev_count();
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        const ggml_backend_dev_t device = ggml_backend_dev_get(i);
        const enum ggml_backend_dev_type type =
            device == ours ? GGML_BACKEND_DEVICE_TYPE_CPU : ggml_backend_dev_type(device);
        found = type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
    }
    return found;
}

/* ---- what must fit --------------------------------------------------------------------------- */

/* The structs of tensors and graphs, by what the host's functions write into them. */
static const char *misfit_of_structs(void)
{
    enum { BYTES = 1 << 16, NODES = 8, OBJECT_BYTES = 32 };
    const struct ggml_init_params params = {.mem_size = BYTES, .no_alloc = true};
    if (ggml_tensor_overhead() != OBJECT_BYTES + sizeof(struct ggml_tensor)) {
        return "its tensors have another size";
    }
    struct ggml_context *context = ggml_init(params);
    if (!context) {
        return "there is no memory";
    }
    struct ggml_tensor *x = ggml_new_tensor_4d(context, GGML_TYPE_F32, 7, 5, 3, 2);
    struct ggml_tensor *view = ggml_view_1d(context, x, 4, 8);
    struct ggml_tensor *y = ggml_scale(context, view, 3.0f);
    struct ggml_cgraph *graph = ggml_new_graph_custom(context, NODES, false);
    float factor;
    ggml_set_name(y, "y");
    ggml_set_output(y);
    ggml_build_forward_expand(graph, y);
    memcpy(&factor, y->op_params, sizeof(factor));
    const size_t at = ggml_hash_find(&graph->visited_hash_set, view);
    const bool tensors = x->type == GGML_TYPE_F32 && x->ne[0] == 7 && x->ne[1] == 5 &&
                         x->ne[2] == 3 && x->ne[3] == 2 && x->nb[0] == 4 && x->nb[1] == 28 &&
                         x->nb[2] == 140 && x->nb[3] == 420 && !x->buffer && !x->data &&
                         !x->extra && !x->view_src && view->view_src == x && view->view_offs == 8 &&
                         gs_op(view) == GS_OP_VIEW && gs_op(y) == GS_OP_SCALE &&
                         y->src[0] == view && !y->src[1] && factor == 3.0f &&
                         y->flags & GGML_TENSOR_FLAG_OUTPUT && !strcmp(y->name, "y");
    const bool graphs = ggml_graph_n_nodes(graph) == graph->n_nodes && graph->n_nodes == 2 &&
                        graph->n_leafs == 1 && graph->nodes == ggml_graph_nodes(graph) &&
                        graph->nodes[1] == y && graph->size == NODES && at != GGML_HASHSET_FULL &&
                        graph->visited_hash_set.keys[at] == view && graph->use_counts[at] == 1;
    ggml_free(context);
    return !tensors  ? "its tensors are other structs"
           : !graphs ? "its graphs are other structs"
                     : NULL;
}

/* The types whose bytes are read here. */
static const char *misfit_of_types(void)
{
    static const struct {
        enum ggml_type type;
        const char *name;
    } types[] = {
        {GGML_TYPE_F32, "f32"},       {GGML_TYPE_F16, "f16"},       {GGML_TYPE_BF16, "bf16"},
        {GGML_TYPE_I32, "i32"},       {GGML_TYPE_I64, "i64"},       {GGML_TYPE_Q4_0, "q4_0"},
        {GGML_TYPE_Q4_1, "q4_1"},     {GGML_TYPE_Q5_0, "q5_0"},     {GGML_TYPE_Q5_1, "q5_1"},
        {GGML_TYPE_Q8_0, "q8_0"},     {GGML_TYPE_Q2_K, "q2_K"},     {GGML_TYPE_Q3_K, "q3_K"},
        {GGML_TYPE_Q4_K, "q4_K"},     {GGML_TYPE_Q5_K, "q5_K"},     {GGML_TYPE_Q6_K, "q6_K"},
        {GGML_TYPE_IQ4_NL, "iq4_nl"}, {GGML_TYPE_IQ4_XS, "iq4_xs"}, {GGML_TYPE_MXFP4, "mxfp4"},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const gs_layout_t *layout = gs_layout_of(types[i].type);
        if (strcmp(ggml_type_name(types[i].type), types[i].name) != 0) {
            return "its types have other numbers";
        }
        if (layout && (ggml_blck_size(types[i].type) != layout->elements ||
                       ggml_type_size(types[i].type) != (size_t)layout->bytes)) {
            return "its types have other blocks";
        }
    }
    return NULL;
}

/* The tables of the buffer type and of buffers: each function is called through the host's. */
static const char *misfit_of_buffers(ggml_backend_buffer_type_t type)
{
    enum { BYTES = 256 };
    static const char text[] = "a few bytes";
    char back[sizeof(text)];
    const struct ggml_init_params params = {.mem_size = 4096, .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    if (!context) {
        return "there is no memory";
    }
    struct ggml_tensor *t = ggml_new_tensor_1d(context, GGML_TYPE_I32, BYTES / 4);
    const bool fits = ggml_backend_buft_get_alignment(type) == GS_ALIGNMENT &&
                      !strcmp(ggml_backend_buft_name(type), "Sinter") &&
                      ggml_backend_buft_get_max_size(type) == SIZE_MAX &&
                      ggml_backend_buft_get_alloc_size(type, t) == BYTES &&
                      !ggml_backend_buft_is_host(type);
    const ggml_backend_buffer_t buffer = fits ? ggml_backend_buft_alloc_buffer(type, BYTES) : NULL;
    bool buffers = buffer && ggml_backend_buffer_get_size(buffer) == BYTES &&
                   buffer->size == BYTES && buffer->buft == type &&
                   ggml_backend_buffer_get_base(buffer) == buffer->context;
    if (buffers) {
        const char *data = t->data = buffer->context;
        t->buffer = buffer;
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
        buffers = buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE;
        ggml_backend_buffer_clear(buffer, 3);
        buffers &= data[0] == 3 && data[BYTES - 1] == 3;
        ggml_backend_tensor_memset(t, 5, 8, 8);
        buffers &= data[7] == 3 && data[8] == 5 && data[15] == 5 && data[16] == 3;
        ggml_backend_tensor_set(t, text, 16, sizeof(text));
        ggml_backend_tensor_get(t, back, 16, sizeof(text));
        buffers &= !memcmp(data + 16, text, sizeof(text)) && !memcmp(back, text, sizeof(text));
    }
    if (buffer) {
        ggml_backend_buffer_free(buffer);
    }
    ggml_free(context);
    return !fits      ? "its buffer types have other functions"
           : !buffers ? "its buffers have other functions"
                      : NULL;
}

static const char *misfit_of_devices(ggml_backend_reg_t registry, ggml_backend_dev_t device)
{
    struct ggml_backend_dev_props props;
    if (strcmp(ggml_backend_reg_name(registry), "Sinter") != 0 ||
        ggml_backend_reg_dev_count(registry) != 1 ||
        ggml_backend_reg_dev_get(registry, 0) != device ||
        !ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads")) {
        return "its registries have other functions";
    }
    ggml_backend_dev_get_props(device, &props);
    const char *name = ggml_backend_dev_name(device);
    const bool devices =
        ggml_backend_dev_backend_reg(device) == registry && props.name == name &&
        !strcmp(name, "Sinter") && props.description == ggml_backend_dev_description(device) &&
        props.type == ggml_backend_dev_type(device) &&
        ggml_backend_dev_supports_buft(device, ggml_backend_dev_buffer_type(device));
    const ggml_backend_t backend = devices ? ggml_backend_dev_init(device, NULL) : NULL;
    const bool backends = backend && !strcmp(ggml_backend_name(backend), "Sinter") &&
                          ggml_backend_get_device(backend) == device;
    ggml_backend_free(backend);
    return !devices    ? "its devices have other functions"
           : !backends ? "its backends have other functions"
                       : NULL;
}

const char *gs_host_misfit(ggml_backend_reg_t registry)
{
    const ggml_backend_dev_t device = registry->iface.get_device(registry, 0);
    const char *why = misfit_of_types();
    if (!why) {
        why = misfit_of_structs();
    }
    if (!why) {
        why = misfit_of_devices(registry, device);
    }
    return why ? why : misfit_of_buffers(ggml_backend_dev_buffer_type(device));
}
