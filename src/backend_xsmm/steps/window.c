/* MaxPool, AvgPool and Interpolate. */
#include <string.h>

#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "graph/shape.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    const lt_t *image = &e->lo->probe[n->in[0]];
    const attr_t *kernel = node_attr(n, sinter_op_attr_kernel);
    window_params_t *p = &step->p.window;
    p->x = n->in[0];
    p->kind = n->kind;
    p->channel = shape_channel_dim(n, image);
    for (int i = 0; i < image->ndims - 2 && kernel != NULL; i++) {
        SG_TRY(window_read(n, image->ndims - 2, i, kernel->s64[i], &p->dim[i]));
    }
    p->exclude_pad = node_bool(n, sinter_op_attr_exclude_pad, false);
    p->nearest = strcmp(node_str(n, sinter_op_attr_mode, ""), "nearest") == 0;
    p->corners = strcmp(node_str(n, sinter_op_attr_coordinate_transformation_mode, ""),
                        "align_corners") == 0;
    return emit_result(e, n->out[0], 0);
}

/* An element of the image is read for several results. */
static void visit(const step_t *step, step_see_t see, void *to)
{
    see_chain(step->pre, see, to);
}

/* Elements that a result of pooling or interpolation takes. */
static double taps(const window_params_t *w)
{
    double n = w->kind == sinter_op_interpolate && !w->nearest ? 4 : 1;
    for (int i = 0; i < SINTER_MAX_NDIMS && w->dim[i].kernel > 0; i++) {
        n *= (double)w->dim[i].kernel;
    }
    return n;
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->post->dims_value);
    estimate_chain(e, p, p->step->pre, estimate_elements(p, p->step->p.window.x));
    estimate_ops(e, n, taps(&p->step->p.window));
    return n;
}

const step_ops_t step_window = {
    .classes = OP_WINDOW, .takes_chain = true, .emit = emit, .visit = visit, .work = work};
