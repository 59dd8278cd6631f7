#include "exec.h"

#include <omp.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

int exec_default_threads(void)
{
    return omp_get_max_threads();
}

/* Kernels count on gradual underflow and round-to-nearest, whatever the caller has set. */
static unsigned fp_default(void)
{
#if defined(__SSE__)
    const unsigned old = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return old;
#else
    return 0;
#endif
}

static void fp_restore(unsigned old)
{
#if defined(__SSE__)
    _mm_setcsr(old);
#else
    (void)old;
#endif
}

sinter_status_t exec_prepare(const plan_t *plan, frame_mem_t *fm, const void *owner)
{
    const unsigned old = fp_default();
    sinter_status_t status = frame_pack(plan, fm, owner);
    for (int s = 0; s < plan->n_steps && status == sinter_success; s++) {
        const step_t *step = &plan->steps[s];
        if (step->kernel->prepare) {
            status = step->kernel->prepare(plan, step, &fm->frame, fm->state + step->state_offset);
        }
    }
    fp_restore(old);
    return status;
}

static void run_thread(const plan_t *plan, const frame_mem_t *fm, unsigned char *shared, unsigned char *threads_scratch, int tid, int nth)
{
    const unsigned old = fp_default();
    unsigned char *scratch = threads_scratch + (size_t)tid * fm->thread_bytes;
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        for (int phase = 0; phase < step->kernel->phases; phase++) {
            step->kernel->work(plan, step, &fm->frame, fm->state + step->state_offset, phase, tid, nth, scratch, shared);
            if (nth > 1) {
#pragma omp barrier
            }
        }
    }
    fp_restore(old);
}

void exec_run(const plan_t *plan, const frame_mem_t *fm, unsigned char *shared, unsigned char *threads_scratch)
{
    if (fm->frame.threads == 1) { /* no team: a small graph takes a microsecond or two */
        run_thread(plan, fm, shared, threads_scratch, 0, 1);
        return;
    }
#pragma omp parallel num_threads(fm->frame.threads)
    run_thread(plan, fm, shared, threads_scratch, omp_get_thread_num(), omp_get_num_threads());
}
