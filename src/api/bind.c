#include "api/bind.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "graph/layout.h"

/* ---- ports ----------------------------------------------------------------------------------- */

static bool same_strides(const lt_t *want, const lt_t *got)
{
    for (int d = 0; d < want->ndims; d++) {
        if (want->strides[d] != SINTER_UNKNOWN_DIM && got->dims[d] > 1 &&
            want->strides[d] != got->strides[d]) {
            return false;
        }
    }
    return true;
}

sinter_status_t bind_check_port(const lt_t *want, const lt_t *got)
{
    const unsigned long long id = (unsigned long long)want->id;
    if (got->data_type != want->data_type) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu is %s, compiled for %s", id,
                       sinter_data_type_name(got->data_type),
                       sinter_data_type_name(want->data_type));
    }
    if (got->ndims != want->ndims) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu has %d dims, compiled for %d", id,
                       (int)got->ndims, (int)want->ndims);
    }
    for (int d = 0; d < want->ndims; d++) {
        if (want->dims[d] != SINTER_UNKNOWN_DIM && want->dims[d] != got->dims[d]) {
            return sg_fail(sinter_invalid_arguments,
                           "tensor %llu: dim %d is %lld, compiled for %lld", id, d,
                           (long long)got->dims[d], (long long)want->dims[d]);
        }
    }
    if (!lt_same_layout(want, got)) {
        return sg_fail(sinter_invalid_arguments,
                       "tensor %llu has another layout than it was compiled for: %s", id,
                       lt_is_opaque(want) ? "an opaque one" : "strides");
    }
    if (lt_elems(got) != 0 && !lt_is_opaque(want) && !same_strides(want, got)) {
        return sg_fail(sinter_invalid_arguments,
                       "tensor %llu has other strides than it was compiled for", id);
    }
    return sinter_success;
}

sinter_status_t bind_with_dims(const lt_t *port, int ndims, const sinter_dim_t *dims,
                               const sinter_dim_t *strides, lt_t *lt)
{
    const unsigned long long id = (unsigned long long)port->id;
    if (ndims != port->ndims) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu has %d dims, compiled for %d", id,
                       ndims, (int)port->ndims);
    }
    *lt = *port;
    if (lt_is_opaque(port)) {
        memcpy(lt->dims, dims, sizeof(*dims) * (size_t)ndims);
    } else {
        lt->layout_type = sinter_layout_type_strided;
        lt_set_dims(lt, dims, strides == NULL && lt_strides_known(lt) ? port->strides : strides);
    }
    SG_TRY(lt_verify(lt, false, "tensor"));
    for (int d = 0; d < ndims; d++) {
        if (lt->dims[d] == SINTER_UNKNOWN_DIM) {
            return sg_fail(sinter_invalid_arguments,
                           "tensor %llu: dim %d is dynamic, so its value must be given", id, d);
        }
    }
    return bind_check_port(port, lt);
}

sinter_status_t bind_check_bytes(const lt_t *lt, const void *data, size_t bytes)
{
    size_t need;
    SG_TRY(lt_bytes(lt, &need));
    return data == NULL || bytes >= need
               ? sinter_success
               : sg_fail(sinter_invalid_arguments, "tensor %llu: %zu bytes given, %zu needed",
                         (unsigned long long)lt->id, bytes, need);
}

sinter_status_t bind_fail(const sinter_compiled_partition_t *cp, int element,
                          sinter_status_t status)
{
    return status == sinter_out_of_memory
               ? status
               : sg_fail(status, "element %d, partition %zu (%s): %s", element, cp->id, cp->pattern,
                         sinter_last_error_message());
}

static sinter_status_t check_data(const sinter_tensor_t *tensor)
{
    return tensor->data != NULL || lt_elems(&tensor->lt) == 0
               ? sinter_success
               : sg_fail(sinter_invalid_arguments, "tensor %llu has no data",
                         (unsigned long long)tensor->lt.id);
}

const sinter_tensor_t *find_tensor(uint64_t id, size_t n, const sinter_tensor_t *const *tensors)
{
    for (size_t i = 0; i < n; i++) {
        if (tensors[i] != NULL && tensors[i]->lt.id == id) {
            return tensors[i];
        }
    }
    return NULL;
}

/* An id that is given twice must have the same buffer both times. A NULL entry is an error. */
static sinter_status_t check_list(size_t n, const sinter_tensor_t *const *tensors, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (tensors[i] == NULL) {
            return sg_fail(sinter_invalid_arguments, "%s %zu is NULL", what, i);
        }
        const sinter_tensor_t *first = find_tensor(tensors[i]->lt.id, i, tensors);
        if (first != NULL && first->data != tensors[i]->data) {
            return sg_fail(sinter_invalid_arguments,
                           "tensor %llu is given twice with different buffers",
                           (unsigned long long)tensors[i]->lt.id);
        }
    }
    return sinter_success;
}

/* Finds a tensor for every port of one side. dims_only: the tensors need no data. */
static sinter_status_t bind_ports(const sinter_compiled_partition_t *cp, frame_mem_t *fm,
                                  bool output, bool dims_only, size_t n,
                                  const sinter_tensor_t *const *tensors)
{
    const char *what = output ? "output" : "input";
    SG_TRY(check_list(n, tensors, what));
    for (int i = 0; i < (output ? cp->n_outputs : cp->n_inputs); i++) {
        const int v = output ? cp->outputs[i] : cp->inputs[i];
        const lt_t *want = &cp->plan.sub.values[v].lt;
        const sinter_tensor_t *tensor = find_tensor(want->id, n, tensors);
        if (tensor == NULL) {
            return sg_fail(sinter_invalid_arguments, "no %s with tensor id %llu", what,
                           (unsigned long long)want->id);
        }
        SG_TRY(bind_check_port(want, &tensor->lt));
        SG_TRY(dims_only ? sinter_success : check_data(tensor));
        fm->lts[v] = lt_is_opaque(&tensor->lt) ? tensor->lt : lt_strided(&tensor->lt);
        fm->port_data[v] = tensor->data;
    }
    return sinter_success;
}

/* Binds the ports to a frame of one plan. dims_only: the inputs alone, which need no data. */
static sinter_status_t bind_plan(const sinter_compiled_partition_t *cp, frame_mem_t *fm,
                                 bool dims_only, const tensors_t *t, const same_dims_t **broken)
{
    SG_TRY(bind_ports(cp, fm, false, dims_only, t->n_in, t->in));
    if (!dims_only) {
        SG_TRY(bind_ports(cp, fm, true, false, t->n_out, (const sinter_tensor_t *const *)t->out));
    }
    return frame_shapes(fm->plan, fm, broken);
}

/* Takes the plan that is right for the dims of these tensors. */
static sinter_status_t bind_shapes(const sinter_compiled_partition_t *cp, void *memory,
                                   bool dims_only, const tensors_t *t, frame_mem_t **fm)
{
    const same_dims_t *broken, *none;
    *fm = frame_place(&cp->plan, memory);
    SG_TRY(bind_plan(cp, *fm, dims_only, t, &broken));
    if (broken != NULL) {
        *fm = frame_place(cp->fallback, memory);
        (*fm)->broken = broken;
        SG_TRY(bind_plan(cp, *fm, dims_only, t, &none));
    }
    return sinter_success;
}

void bind_take_outputs(const sinter_compiled_partition_t *cp, const frame_mem_t *fm, lt_t *outputs)
{
    for (int i = 0; i < cp->n_outputs; i++) {
        outputs[i] = fm->lts[cp->outputs[i]];
        if (!lt_is_opaque(&outputs[i]) && !lt_strides_known(&outputs[i])) {
            lt_set_dense(&outputs[i]);
        }
    }
}

sinter_status_t bind_input_dims(const sinter_compiled_partition_t *cp, void *memory, size_t n,
                                const sinter_tensor_t *const *inputs, frame_mem_t **fm)
{
    return bind_shapes(cp, memory, true, &(tensors_t){.n_in = n, .in = inputs}, fm);
}

sinter_status_t bind_infer(const sinter_compiled_partition_t *cp, void *memory, size_t n,
                           const sinter_tensor_t *const *inputs, lt_t *outputs)
{
    frame_mem_t *fm;
    SG_TRY(bind_input_dims(cp, memory, n, inputs, &fm));
    bind_take_outputs(cp, fm, outputs);
    return sinter_success;
}

/* With dynamic dims: the outputs must have the shapes that follow from the inputs, and strides
 * that an output may have. Nothing has checked these strides before. */
static sinter_status_t check_dynamic_outputs(const sinter_compiled_partition_t *cp,
                                             const frame_mem_t *fm, size_t n,
                                             sinter_tensor_t *const *outputs)
{
    for (int i = 0; i < cp->n_outputs && cp->plan.dynamic; i++) {
        const lt_t *lt = &fm->lts[cp->outputs[i]];
        const sinter_tensor_t *tensor =
            find_tensor(lt->id, n, (const sinter_tensor_t *const *)outputs);
        SG_TRY(lt_verify(&tensor->lt, true, "execute"));
        for (int d = 0; d < lt->ndims; d++) {
            if (lt->dims[d] != tensor->lt.dims[d]) {
                return sg_fail(sinter_invalid_arguments,
                               "tensor %llu: dim %d is %lld, the inputs lead to %lld",
                               (unsigned long long)lt->id, d, (long long)tensor->lt.dims[d],
                               (long long)lt->dims[d]);
            }
        }
    }
    return sinter_success;
}

/* With dynamic dims a pair holds where the tensors of this execute have the same ones. */
static bool may_share(const sinter_compiled_partition_t *cp, const lt_t *in, const lt_t *out)
{
    for (size_t i = 0; i < cp->n_inplace; i++) {
        if (cp->inplace[i].input_id == in->id && cp->inplace[i].output_id == out->id) {
            return lt_may_coincide(in, out);
        }
    }
    return false;
}

/* Names the inputs that an output may share memory with, to follow "it may share memory". A text
 * that is too long for its room is cut off. */
static const char *sharing_text(const sinter_compiled_partition_t *cp, uint64_t out, char *text,
                                size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < cp->n_inplace && len < size; i++) {
        if (cp->inplace[i].output_id == out) {
            len += (size_t)snprintf(
                text + len, size - len, "%s %llu",
                len == 0 ? "from the same address on, and with the same dims and strides, "
                           "with input tensor"
                         : " or",
                (unsigned long long)cp->inplace[i].input_id);
        }
    }
    return len > 0 ? text : "with no input";
}

/* No output shares memory with an input or another output, in-place pairs at one address
 * excepted. */
static sinter_status_t check_aliases(const sinter_compiled_partition_t *cp, const frame_mem_t *fm)
{
    for (int o = 0; o < cp->n_outputs; o++) {
        const lt_t *out = &fm->lts[cp->outputs[o]];
        const void *data = fm->v[cp->outputs[o]].data;
        for (int k = 0; k < cp->n_inputs + o; k++) {
            const int v = cp->inputs[k];
            if (v == cp->outputs[o] || !lt_overlap(out, data, &fm->lts[v], fm->v[v].data) ||
                (k < cp->n_inputs && data == fm->v[v].data && may_share(cp, &fm->lts[v], out))) {
                continue;
            }
            char sharing[256];
            return sg_fail(sinter_invalid_arguments,
                           "output tensor %llu overlaps %s tensor %llu; it may share memory %s "
                           "(sinter_compiled_partition_get_inplace_ports)",
                           (unsigned long long)out->id, k < cp->n_inputs ? "input" : "output",
                           (unsigned long long)fm->lts[v].id,
                           sharing_text(cp, out->id, sharing, sizeof(sharing)));
        }
    }
    return sinter_success;
}

sinter_status_t bind_all(const sinter_compiled_partition_t *cp, void *memory,
                         const tensors_t *tensors, frame_mem_t **fm)
{
    SG_TRY(bind_shapes(cp, memory, false, tensors, fm));
    SG_TRY(check_dynamic_outputs(cp, *fm, tensors->n_out, tensors->out));
    frame_data((*fm)->plan, *fm, (*fm)->port_data, NULL);
    return check_aliases(cp, *fm);
}
