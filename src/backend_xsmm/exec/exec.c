#include "backend_xsmm/exec/exec.h"

#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

#include "backend_xsmm/exec/crew.h"
#include "backend_xsmm/exec/work.h"
#include "base/status.h"

/* ---- running a plan -------------------------------------------------------------------------- */

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

sinter_status_t exec_choose(const plan_t *plan, frame_mem_t *fm, const void *owner,
                            threads_t threads, size_t *total)
{
    const unsigned old = fp_default();
    sinter_status_t status = frame_pack(plan, fm, owner, threads);
    status = status == sinter_success ? frame_choose(plan, fm, threads, total) : status;
    fp_restore(old);
    return status;
}

/* ---- checks of elements ---------------------------------------------------------------------- */

/* Input 3 of a Dropout. */
static int probability_of(const plan_t *plan, int dropout)
{
    return plan->sub.nodes[plan->sub.dropouts[dropout]].in[3];
}

static sinter_status_t check_dropout(const plan_t *plan, const frame_mem_t *fm, int dropout)
{
    const int v = probability_of(plan, dropout);
    const unsigned old = fp_default(); /* subnormal numbers are not 0 */
    float probability = 0;
    dtype_traits(fm->v[v].dtype)->codec.load_f32(fm->v[v].data, 0, 1, 1, &probability);
    const bool zero = probability == 0;
    fp_restore(old);
    return zero ? sinter_success
                : sg_fail(sinter_invalid_arguments,
                          "%s: tensor %llu: the probability is %g, but must be 0: this library "
                          "executes Dropout for inference alone",
                          node_label(&plan->sub.nodes[plan->sub.dropouts[dropout]]),
                          (unsigned long long)plan->sub.values[v].lt.id, (double)probability);
}

sinter_status_t exec_check(const plan_t *plan, const frame_mem_t *fm)
{
    for (int i = 0; i < plan->sub.n_dropouts; i++) {
        SG_TRY(check_dropout(plan, fm, i));
    }
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        const driver_t *driver = fm->taken[s].candidate->kernel->driver;
        const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
        if (driver->check != NULL) {
            SG_TRY(driver->check(&problem, fm->state + step->state_offset));
        }
    }
    return sinter_success;
}

/* An output of this part has memory in common with the value. */
static bool is_written(const exec_part_t *part, const bound_t *value)
{
    lt_t lt = {.data_type = value->dtype,
               .layout_type = sinter_layout_type_strided,
               .ndims = value->ndims};
    memcpy(lt.dims, value->dims, sizeof lt.dims);
    memcpy(lt.strides, value->strides, sizeof lt.strides);
    for (int v = 0; v < part->plan->sub.n_values; v++) {
        if (part->plan->values[v].kind == PV_OUTPUT &&
            lt_overlap(&part->fm->lts[v], part->fm->v[v].data, &lt, value->data)) {
            return true;
        }
    }
    return false;
}

bool exec_may_check_first(const exec_part_t *parts, int n_parts)
{
    const exec_part_t *last = &parts[n_parts - 1];
    bool free = true;
    for (int i = 0; i < last->plan->sub.n_dropouts + last->plan->n_steps; i++) {
        const int s = i - last->plan->sub.n_dropouts;
        const driver_t *driver = s < 0 ? NULL : last->fm->taken[s].candidate->kernel->driver;
        int v, next = 0;
        do {
            v = s < 0                     ? next == 0 ? probability_of(last->plan, i) : -1
                : driver->checked != NULL ? driver->checked(&last->plan->steps[s], next)
                                          : -1;
            next++;
            for (int k = 0; k + 1 < n_parts && v >= 0; k++) {
                free = free && !is_written(&parts[k], &last->fm->v[v]);
            }
        } while (v >= 0);
    }
    return free;
}

/* ---- starting -------------------------------------------------------------------------------- */

sinter_status_t exec_start(const plan_t *plan, frame_mem_t *fm)
{
    const unsigned old = fp_default();
    sinter_status_t status = sinter_success;
    for (int s = 0; s < plan->n_steps && status == sinter_success; s++) {
        const step_t *step = &plan->steps[s];
        const candidate_t *taken = fm->taken[s].candidate;
        const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
        if (taken->kernel->driver->start != NULL) {
            status = taken->kernel->driver->start(taken->kernel, &problem, taken->config,
                                                  fm->state + step->state_offset);
        }
    }
    fp_restore(old);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* A thread of a region. */
typedef struct member {
    int tid, nth;
} member_t;

enum { STARTING = -1 }; /* as a step: the starts of all steps of a part */

/* A phase of a step of a part. */
typedef struct place {
    int part, step, phase;
} place_t;

static bool at_end(const exec_run_t *run, place_t at)
{
    return at.part == run->n_parts;
}

static int shares_at(const exec_run_t *run, place_t at)
{
    return at.step == STARTING ? 1 : run->parts[at.part].fm->taken[at.step].shares;
}

/* The first phase at or after `step` of this part, or of those behind it. */
static place_t settle(const exec_run_t *run, int part, int step)
{
    while (part < run->n_parts) {
        const exec_part_t *p = &run->parts[part];
        if (step == p->plan->n_steps) {
            part++;
            step = part < run->n_parts && !run->parts[part].started ? STARTING : 0;
        } else if (step != STARTING && frame_has_copy(p->plan, p->fm, &p->plan->steps[step])) {
            step++;
        } else {
            break;
        }
    }
    return (place_t){part, step, 0};
}

static place_t first_phase(const exec_run_t *run)
{
    return settle(run, 0, run->parts[0].started ? 0 : STARTING);
}

/* The phases of a step in each round, from choice.first on. */
static int phases_of_round(const taken_t *taken)
{
    const choice_t *choice = &taken->choice;
    return (choice->phases > 0 ? choice->phases : taken->candidate->kernel->driver->phases) -
           choice->first;
}

/* And in all rounds. */
static int phases_of(const taken_t *taken)
{
    const int phases = phases_of_round(taken);
    return taken->choice.rounds > 1 ? taken->choice.rounds * phases : phases;
}

static place_t next_phase(const exec_run_t *run, place_t at)
{
    const taken_t *taken = run->parts[at.part].fm->taken;
    if (at.step != STARTING && at.phase + 1 < phases_of(&taken[at.step])) {
        at.phase++;
        return at;
    }
    return settle(run, at.part, at.step + 1);
}

static void tell_watch(const exec_run_t *run, place_t at, const worker_t *w, bool done)
{
    const taken_t *taken = &run->parts[at.part].fm->taken[at.step];
    const sinter_share_t share = {.size = sizeof share,
                                  .element = at.part,
                                  .step = at.step,
                                  .phase = at.phase,
                                  .number = w->tid,
                                  .shares = w->nth,
                                  .done = done,
                                  .products = *w->products,
                                  .kernel = taken->candidate->kernel->name};
    run->threads.watch(run->threads.watch_user, &share);
}

static void run_share(exec_run_t *run, place_t at, int share)
{
    const exec_part_t *part = &run->parts[at.part];
    const plan_t *plan = part->plan;
    if (run->failed >= 0) {
        return;
    }
    if (at.step == STARTING) {
        const bool starts = (part->checked || exec_check(plan, part->fm) == sinter_success) &&
                            exec_start(plan, part->fm) == sinter_success;
        run->failed = starts ? -1 : at.part;
        return;
    }
    const step_t *step = &plan->steps[at.step];
    taken_t *taken = &part->fm->taken[at.step];
    const kernel_t *k = taken->candidate->kernel;
    const problem_t problem = {.plan = plan, .step = step, .frame = &part->fm->frame};
    uint64_t products = 0;
    const worker_t w = {.phase = taken->choice.first + at.phase % phases_of_round(taken),
                        .round = at.phase / phases_of_round(taken),
                        .tid = share,
                        .nth = taken->shares,
                        .scratch = part->scratch + (size_t)share * plan->share_bytes,
                        .shared = part->shared,
                        .detour = &taken->detour,
                        .products = &products};
    if (run->threads.watch != NULL) {
        tell_watch(run, at, &w, false);
    }
    k->driver->work(k, &problem, taken->candidate->config, part->fm->state + step->state_offset,
                    &w);
    if (run->threads.watch != NULL) {
        tell_watch(run, at, &w, true);
    }
}

/* A job of the crew is a phase, or several phases of one share each: between these stands no
 * barrier. This goes from the first phase of a job to that of the next one. runs: it runs the
 * phases on its way. */
static place_t next_job(exec_run_t *run, place_t at, bool runs)
{
    const bool single = shares_at(run, at) == 1;
    at = next_phase(run, at);
    while (single && !at_end(run, at) && shares_at(run, at) == 1) {
        if (runs) {
            run_share(run, at, 0);
        }
        at = next_phase(run, at);
    }
    return at;
}

/* Runs the shares of a job that nobody has taken, the member's own first. Gives their number. */
static int run_job(exec_run_t *run, crew_t *crew, unsigned job, place_t at, const member_t *m)
{
    const int n = shares_at(run, at), own = (int)((int64_t)n * m->tid / m->nth);
    int ran = 0;
    for (int i = 0; i < n; i++) {
        const int share = own + i < n ? own + i : own + i - n;
        if (crew_take(crew, job, share)) {
            run_share(run, at, share);
            ran++;
        }
    }
    if (ran > 0 && n == 1) {
        next_job(run, at, true);
    }
    return ran;
}

static void run_alone(exec_run_t *run)
{
    const unsigned old = fp_default();
    for (place_t at = first_phase(run); !at_end(run, at); at = next_phase(run, at)) {
        for (int share = 0; share < shares_at(run, at); share++) {
            run_share(run, at, share);
        }
    }
    fp_restore(old);
}

/* One thread of a region. Gives the nanoseconds that it would have needed without the others,
 * judged by its own shares. */
static int64_t run_member(exec_run_t *run, crew_t *crew, member_t m)
{
    const unsigned old = fp_default();
    place_t at = first_phase(run);
    int64_t alone = 0;
    unsigned job = 0;
    while (!at_end(run, at)) {
        const int n = shares_at(run, at);
        const int64_t begin = crew_clock();
        const int ran = run_job(run, crew, job, at, &m);
        const int64_t took = crew_clock() - begin;
        const place_t next = next_job(run, at, false);
        if (ran > 0) {
            const bool wake = at_end(run, next) || shares_at(run, next) > 1;
            crew_finish(crew, job, ran, n, wake);
        }
        crew_wait(crew, job);
        alone += ran > 0 ? took * n / ran : crew_clock() - begin;
        at = next;
        job++;
        for (const unsigned now = crew_job(crew); job < now; job++) {
            at = next_job(run, at, false);
        }
    }
    fp_restore(old);
    return alone;
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Where other work takes the cores, or where waking a thread takes long, a region may cost more
 * time than it saves, and it cannot end before its last thread has come. So this thread keeps
 * account of what its regions save. When they have lost more than they had saved, it works alone
 * for many times as long as that loss, and then tries again. Results do not depend on it: the
 * shares are the same. */
enum { LEAST_TIMES = 16, MOST_TIMES = 64, MOST_SAVED = 4000000 };
static _Thread_local int64_t saved;       /* nanoseconds, up to MOST_SAVED */
static _Thread_local int64_t alone_until; /* of crew_clock */
static _Thread_local int times = LEAST_TIMES;

static void keep_account(int64_t now, int64_t gain)
{
    saved += gain > MOST_SAVED ? MOST_SAVED : gain < -MOST_SAVED ? -MOST_SAVED : gain;
    saved = saved > MOST_SAVED ? MOST_SAVED : saved;
    times = gain > 0 && times > LEAST_TIMES ? times / 2 : times;
    if (saved < 0) {
        alone_until = now - saved * times;
        saved = 0;
        times = times < MOST_TIMES ? times * 2 : times;
    }
}

/* What the members of a region share. */
typedef struct region {
    exec_run_t *run;
    crew_t *crew;
    int64_t alone;    /* what member 0 would have needed without the others */
    atomic_bool over; /* a member has seen the end of the run */
} region_t;

/* A caller's pool may call it with any number: there is no such worker, and the others do all the
 * work. */
static void run_worker(void *region, int worker)
{
    region_t *r = region;
    if (worker < 0 || worker >= r->run->threads.most) {
        return;
    }
    const int64_t alone = run_member(r->run, r->crew, (member_t){worker, r->run->threads.most});
    if (worker == 0) {
        r->alone = alone;
    }
    atomic_store(&r->over, true);
}

/* The team is as large as the stream allows, or one thread: libgomp ends threads that a smaller
 * team than the last one leaves over, and making them again takes longer than most executes. */
static void run_region(exec_run_t *run, crew_t *crew, int shares)
{
    const int64_t begin = crew_clock();
    region_t region = {.run = run, .crew = crew};
    crew_init(crew, shares);
    team_run(&run->threads, run_worker, &region);
    if (!atomic_load(&region.over)) {
        run_worker(&region, 0); /* a pool that has run nothing */
    }
    const int64_t end = crew_clock();
    keep_account(end, region.alone - (end - begin));
}

/* Why one thread should run all shares; NULL: it should not. */
static const char *alone_because(const exec_run_t *run)
{
    double divisible = 0;
    for (int i = 0; i < run->n_parts; i++) {
        divisible += run->parts[i].fm->divisible;
    }
    return team_usable(&run->threads) == 1 ? "a fork has taken the others away"
           : run->threads.all              ? NULL
           : !work_pays_region(divisible)  ? "too little work for more"
           : alone_until == 0              ? NULL
           : crew_clock() < alone_until    ? "the others have come late"
                                           : NULL;
}

void exec_run(exec_run_t *run, void *memory)
{
    int shares = 1;
    run->failed = -1;
    for (int i = 0; i < run->n_parts; i++) {
        shares = run->parts[i].fm->shares > shares ? run->parts[i].fm->shares : shares;
    }
    run->why = run->threads.most == 1 ? NULL : alone_because(run);
    run->used = run->why != NULL ? 1 : run->threads.most;
    if (run->used == 1) {
        run_alone(run);
    } else {
        run_region(run, memory, shares);
    }
}

size_t exec_run_bytes(int shares)
{
    return shares > 1 ? crew_bytes(shares) : 0;
}
