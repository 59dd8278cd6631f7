#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

const pass_t sinter_passes[] = {
    {"infer_shapes", pass_infer_shapes, "op(x : dims) = op(x) : shape_rule(op, dims)"},
    {"matmul_2d", pass_matmul_2d,
     "MatMul(a[K], b) = reshape(MatMul(reshape(a, [1, K]), b)), and likewise for b[K] as [K, 1]"},
    {"drop_dropout", pass_drop_dropout, "Dropout(x, seed, offset, 0) = cast(x)"},
    {"plain_attention", pass_plain_attention,
     "MatMul(v, transpose(softmax(s))) = transpose(MatMul(softmax(s), transpose(v))), "
     "f(transpose(s)) = transpose(f(s))"},
    {"raise_slices", pass_raise_slices,
     "slice(f(x)) = f(slice(x)) where f is a TypeCast, a dequantisation or the bias of an expert"},
    {"drop_casts", pass_drop_casts, "op(cast(x)) = op(x), both types wide floats"},
    {"widen", pass_widen, "y = op(x) : f16 = op(x) : f32, y inside, bf16 alike"},
    {"conv_weights", pass_conv_weights,
     "Convolution(x, w) = Convolution(x, view(w)), weights as [groups, window, I, O]"},
    {"choose_layouts", pass_choose_layouts,
     "MatMul(y, dequant(x : any, s : any)) = MatMul(y, dequant(x : tiles, s : tiles))"},
    {"sink_dequant", pass_sink_dequant,
     "matmul(view(dequant(x, s, z)), y) = matmul{dequant(., view(s), view(z))}(view(x), y)"},
    {"sink_views", pass_sink_views, "f(view(x)) = view(f(x)) for elementwise f of one tensor"},
    {"sink_quantise", pass_sink_quantise,
     "{q, s} = quantise(view(x)) = {view(q'), view(s')}, {q', s'} = quantise(x), where quantise "
     "computes its scales"},
    /* Uses by the dequantisations that ride on matmul operands count: their scales are read. */
    {"dead_code", graph_prune, "{y = op(x); } = {}, y unused"},
    {"unpack", pass_unpack, "f(x) = f(Reorder(x)), x in tiles that f does not read"},
};
const int sinter_n_passes = (int)(sizeof(sinter_passes) / sizeof(sinter_passes[0]));

sinter_status_t passes_run(graph_t *sub)
{
    const char *dump = getenv("SINTER_DUMP_AFTER");
    for (int i = 0; i < sinter_n_passes; i++) {
        const pass_t *pass = &sinter_passes[i];
        sinter_status_t status = pass->run(sub);
        status = status == sinter_success ? graph_sort(sub) : status;
        status = status == sinter_success ? graph_verify(sub, pass->name) : status;
        if (status != sinter_success) {
            return status;
        }
        if (dump != NULL && (strcmp(dump, pass->name) == 0 || strcmp(dump, "all") == 0)) {
            graph_print(sub, pass->name);
        }
    }
    return sinter_success;
}
