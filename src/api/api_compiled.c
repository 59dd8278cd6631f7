/* The public functions of compiled partitions: port matching and checks in front of the
 * executor. */
#include <string.h>

#include <sinter/sinter.h>

#include "api/bind.h"
#include "api/compile_with.h"
#include "backend_xsmm/exec/crew.h"
#include "backend_xsmm/exec/exec.h"
#include "backend_xsmm/plan/compile.h"
#include "base/status.h"
#include "graph/objects.h"
#include "passes/pass.h"

sinter_status_t compile_with(sinter_partition_t *partition, sinter_engine_t *engine,
                             const compile_ports_t *ports, strided_inputs_t *strided,
                             sinter_compiled_partition_t **compiled)
{
    bool again = true;
    while (again) {
        sinter_compiled_partition_t *cp = NULL;
        again = false;
        sinter_status_t status = compile_open(partition, engine, ports->n_in, ports->in,
                                              ports->n_out, ports->out, strided, &cp);
        status = status == sinter_success ? passes_run(&cp->plan.sub) : status;
        status = status == sinter_success ? compile_finish(cp, partition, strided, &again) : status;
        if (status == sinter_success && !again) {
            *compiled = cp;
        } else if (cp != NULL) {
            compiled_unref(cp);
        }
        SG_TRY(status);
    }
    return sinter_success;
}

sinter_status_t sinter_partition_compile(sinter_partition_t *partition, sinter_engine_t *engine,
                                         size_t n_inputs, const sinter_logical_tensor_t *inputs,
                                         size_t n_outputs, const sinter_logical_tensor_t *outputs,
                                         sinter_compiled_partition_t **compiled)
{
    SG_REQUIRE_ALL(partition, compiled);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    SG_REQUIRE(n_outputs == 0 || outputs != NULL);
    SG_TRY(engine_check(engine));
    sinter_engine_t *held = engine_ref(engine);
    arena_t arena;
    arena_init(&arena, held);
    const sinter_status_t status =
        compile_with(partition, held, &(compile_ports_t){n_inputs, n_outputs, inputs, outputs},
                     &(strided_inputs_t){.arena = &arena}, compiled);
    arena_free(&arena);
    engine_unref(held);
    return status;
}

sinter_status_t sinter_compiled_partition_destroy(sinter_compiled_partition_t **compiled)
{
    SG_REQUIRE(compiled != NULL);
    if (*compiled != NULL) {
        compiled_unref(*compiled);
        *compiled = NULL;
    }
    return sinter_success;
}

static sinter_status_t find_port(const sinter_compiled_partition_t *cp, uint64_t id,
                                 const lt_t **port)
{
    for (int i = 0; i < cp->n_inputs + cp->n_outputs; i++) {
        *port = bind_port(cp, i);
        if ((*port)->id == id) {
            return sinter_success;
        }
    }
    return sg_fail(sinter_invalid_arguments,
                   "the compiled partition has no port with tensor id %llu",
                   (unsigned long long)id);
}

sinter_status_t
sinter_compiled_partition_query_logical_tensor(const sinter_compiled_partition_t *compiled,
                                               uint64_t id, sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(compiled, lt);
    const lt_t *port = NULL;
    SG_TRY(find_port(compiled, id, &port));
    *lt = *port;
    return sinter_success;
}

sinter_status_t sinter_compiled_partition_create_tensor(const sinter_compiled_partition_t *compiled,
                                                        uint64_t id, int ndims,
                                                        const sinter_dim_t *dims, void *data,
                                                        size_t bytes, sinter_tensor_t **tensor)
{
    SG_REQUIRE_ALL(compiled, tensor);
    SG_REQUIRE(ndims == 0 || dims != NULL);
    const lt_t *port = NULL;
    lt_t lt;
    SG_TRY(find_port(compiled, id, &port));
    SG_TRY(bind_with_dims(port, dims != NULL ? ndims : port->ndims,
                          dims != NULL ? dims : port->dims, NULL, &lt));
    return sinter_tensor_create(tensor, compiled->engine, &lt, data, bytes);
}

sinter_status_t
sinter_compiled_partition_get_inplace_ports(const sinter_compiled_partition_t *compiled,
                                            size_t *count, const sinter_inplace_pair_t **pairs)
{
    SG_REQUIRE_ALL(compiled, count, pairs);
    *count = compiled->n_inplace;
    *pairs = compiled->inplace;
    return sinter_success;
}

sinter_status_t
sinter_compiled_partition_get_fpmath_mode(const sinter_compiled_partition_t *compiled,
                                          sinter_fpmath_mode_t *mode, int *apply_to_int)
{
    SG_REQUIRE_ALL(compiled, mode, apply_to_int);
    *mode = compiled->plan.mode;
    *apply_to_int = compiled->plan.apply_to_int;
    return sinter_success;
}

sinter_status_t sinter_compiled_partition_report(const sinter_compiled_partition_t *compiled,
                                                 const char **text)
{
    SG_REQUIRE_ALL(compiled, text);
    *text = compiled->report;
    return sinter_success;
}

/* ---- execute --------------------------------------------------------------------------------- */

static unsigned char *align_up(void *p)
{
    return (unsigned char *)(((uintptr_t)p + SCRATCH_ALIGN - 1) & ~(uintptr_t)(SCRATCH_ALIGN - 1));
}

/* The tensors and the threads of one execute. */
typedef struct execute_args {
    tensors_t tensors;
    threads_t threads;
    bool fixed; /* the memory is the caller's: it cannot grow */
} execute_args_t;

/* The frame in m, bound to the tensors, with a kernel for each step. *total: the memory that this
 * execute needs; where m has less, temporaries may have no address yet. Memory for the frame alone
 * is only measured with: copies of constants are not taken before there is more. frame_unpack must
 * follow where *fm is not NULL. */
static sinter_status_t make_frame(sinter_compiled_partition_t *cp, const scratch_block_t *m,
                                  const execute_args_t *args, frame_mem_t **frame, size_t *total)
{
    size_t bytes;
    SG_TRY(bind_all(cp, m->memory, &args->tensors, frame));
    frame_mem_t *fm = *frame;
    SG_TRY(frame_temps(fm->plan, fm, &bytes));
    if (bytes <= m->bytes) {
        frame_data(fm->plan, fm, fm->port_data,
                   (unsigned char *)m->memory + scratch_round(cp->plan.frame_bytes));
    }
    if (m->bytes <= scratch_round(cp->plan.frame_bytes)) {
        SG_TRY(frame_choose(fm->plan, fm, args->threads, total));
        *total += exec_run_bytes(fm->shares);
        if (*total > m->bytes) {
            return sinter_success;
        }
    }
    SG_TRY(exec_choose(fm->plan, fm, cp, args->threads, total));
    *total += exec_run_bytes(fm->shares);
    return sinter_success;
}

/* Moves the frame to a block that is large enough and binds it again. This happens once for each
 * new size. */
static sinter_status_t fit_memory(sinter_compiled_partition_t *cp, scratch_block_t *m,
                                  const execute_args_t *args, frame_mem_t **frame, size_t *total)
{
    sinter_status_t status = make_frame(cp, m, args, frame, total);
    while (status == sinter_success && *total > m->bytes) {
        if (args->fixed) {
            return sg_fail(sinter_invalid_arguments,
                           "scratchpad of %zu bytes is too small, this execute needs %zu", m->bytes,
                           *total);
        }
        frame_unpack((*frame)->plan, *frame);
        *frame = NULL;
        if (!scratch_grow(cp, m, *total)) {
            return sinter_out_of_memory;
        }
        status = make_frame(cp, m, args, frame, total);
    }
    return status;
}

static sinter_status_t execute(sinter_compiled_partition_t *cp, scratch_block_t *m,
                               const execute_args_t *args)
{
    size_t total;
    frame_mem_t *fm = NULL;
    const bool logged = (sg_verbose() & SG_VERBOSE_EXEC) != 0;
    const int64_t begin = logged ? crew_clock() : 0;
    sinter_status_t status = fit_memory(cp, m, args, &fm, &total);
    status = status == sinter_success ? exec_check(fm->plan, fm) : status;
    status = status == sinter_success ? exec_start(fm->plan, fm) : status;
    exec_part_t part = {.plan = fm != NULL ? fm->plan : NULL, .fm = fm, .started = true};
    exec_run_t run = {.parts = &part, .n_parts = 1, .threads = args->threads};
    if (status == sinter_success) {
        part.shared = (unsigned char *)m->memory + scratch_round(cp->plan.frame_bytes) +
                      scratch_round(fm->temp_bytes);
        part.scratch = part.shared + fm->shared_bytes;
        exec_run(&run, part.scratch + fm->plan->share_bytes * (size_t)fm->shares);
    }
    if (logged && status == sinter_success) {
        exec_log(cp, &run, begin);
    }
    if (fm != NULL) {
        frame_unpack(fm->plan, fm);
    }
    return status;
}

sinter_status_t sinter_compiled_partition_execute(const sinter_compiled_partition_t *compiled,
                                                  sinter_stream_t *stream, size_t n_inputs,
                                                  const sinter_tensor_t *const *inputs,
                                                  size_t n_outputs, sinter_tensor_t *const *outputs,
                                                  void *scratchpad, size_t scratchpad_bytes)
{
    SG_REQUIRE_ALL(compiled, stream);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    SG_REQUIRE(n_outputs == 0 || outputs != NULL);
    /* The only thing that changes in a compiled partition is its pool of idle scratch blocks,
     * under its lock. */
    sinter_compiled_partition_t *cp = (sinter_compiled_partition_t *)(uintptr_t)compiled;
    const execute_args_t args = {
        {n_inputs, n_outputs, inputs, outputs}, stream->threads, scratchpad != NULL};
    if (scratchpad != NULL) {
        unsigned char *const begin = align_up(scratchpad);
        const size_t lost = (size_t)(begin - (unsigned char *)scratchpad);
        scratch_block_t given = {.memory = begin,
                                 .bytes = scratchpad_bytes > lost ? scratchpad_bytes - lost : 0};
        return given.bytes >= cp->plan.frame_bytes
                   ? execute(cp, &given, &args)
                   : sg_fail(sinter_invalid_arguments, "scratchpad of %zu bytes is too small",
                             scratchpad_bytes);
    }
    /* For the frame alone: only a bound frame can tell how much the rest needs. */
    scratch_block_t *own = scratch_take(cp, cp->plan.frame_bytes);
    if (own == NULL) {
        return sinter_out_of_memory;
    }
    const sinter_status_t status = execute(cp, own, &args);
    scratch_give(cp, own);
    return status;
}

/* Makes a frame for a query, with the dims of the inputs where the caller gives them. */
static sinter_status_t query_frame(const sinter_compiled_partition_t *cp, size_t n,
                                   const sinter_tensor_t *const *inputs, void **memory,
                                   frame_mem_t **fm)
{
    *memory = sg_alloc(cp->engine, cp->plan.frame_bytes, SCRATCH_ALIGN);
    if (*memory == NULL) {
        return sinter_out_of_memory;
    }
    const same_dims_t *broken;
    sinter_status_t status;
    if (n > 0) {
        status = bind_input_dims(cp, *memory, n, inputs, fm);
    } else if (cp->plan.dynamic) {
        status = sg_fail(sinter_invalid_arguments,
                         "dims are dynamic: the query needs the input tensors");
    } else {
        *fm = frame_place(&cp->plan, *memory);
        status = frame_shapes(&cp->plan, *fm, &broken);
    }
    if (status != sinter_success) {
        sg_free(cp->engine, *memory);
    }
    return status;
}

sinter_status_t sinter_compiled_partition_get_scratchpad_bytes(
    const sinter_compiled_partition_t *compiled, const sinter_stream_t *stream, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t *total, size_t *per_thread)
{
    SG_REQUIRE_ALL(compiled, stream, total);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    void *memory;
    frame_mem_t *fm;
    size_t bytes;
    SG_TRY(query_frame(compiled, n_inputs, inputs, &memory, &fm));
    const sinter_status_t status = frame_choose(fm->plan, fm, stream->threads, &bytes);
    if (status == sinter_success) {
        /* the caller's pointer may have any alignment */
        *total = bytes + exec_run_bytes(fm->shares) + SCRATCH_ALIGN;
        if (per_thread != NULL) {
            *per_thread = fm->plan->share_bytes;
        }
    }
    sg_free(compiled->engine, memory);
    return status;
}

sinter_status_t sinter_compiled_partition_infer_outputs(const sinter_compiled_partition_t *compiled,
                                                        size_t n_inputs,
                                                        const sinter_tensor_t *const *inputs,
                                                        size_t count,
                                                        sinter_logical_tensor_t *outputs)
{
    SG_REQUIRE(compiled != NULL);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    SG_REQUIRE(outputs != NULL);
    if (count != (size_t)compiled->n_outputs) {
        return sg_fail(sinter_invalid_arguments, "the partition has %d outputs, not %zu",
                       compiled->n_outputs, count);
    }
    void *memory;
    frame_mem_t *fm;
    SG_TRY(query_frame(compiled, n_inputs, inputs, &memory, &fm));
    bind_take_outputs(compiled, fm, outputs);
    sg_free(compiled->engine, memory);
    return sinter_success;
}
