/* The kernel registry: names by grammar, selection by name under every ISA cap and mode,
 * refusals with reasons. */
#define _POSIX_C_SOURCE 200809L
#include <sinter/sinter_partition.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "check.h"
#include "rig.h"

static const char *const step_names[STEP_KINDS] = {
#define SINTER_STEP(kind, name, driver) [STEP_##kind] = #name,
#include "backend_xsmm/steps.def"
};

/* ---- names ----------------------------------------------------------------------------------- */

/* <step>_<algorithm>_<arithmetic>_<isa>, each of small letters and digits. */
static void test_names(void)
{
    static const char *const arithmetics[] = {[IN_F32] = "f32",
                                              [IN_F64] = "f64",
                                              [IN_BF16] = "bf16",
                                              [IN_INT8] = "int8",
                                              [IN_ANY] = "any"},
                             *const isas[] = {"generic", "avx2", "avx512", "vnni", "avxvnni"};
    for (int i = 0; i < sinter_n_kernels; i++) {
        const kernel_t *k = &sinter_kernels[i];
        char parts[4][32] = {"", "", "", ""}, tail = 0;
        const int n = sscanf(k->name, "%31[a-z0-9]_%31[a-z0-9]_%31[a-z0-9]_%31[a-z0-9]%c", parts[0],
                             parts[1], parts[2], parts[3], &tail);
        CHECK(n == 4, "%s: %d parts", k->name, n);
        CHECK(strcmp(parts[0], step_names[k->driver->step]) == 0, "%s: step %s", k->name,
              step_names[k->driver->step]);
        bool arithmetic = false, isa = false;
        for (size_t a = 0; a < sizeof(arithmetics) / sizeof(*arithmetics); a++) {
            arithmetic = arithmetic || strcmp(parts[2], arithmetics[a]) == 0;
        }
        for (size_t a = 0; a < sizeof(isas) / sizeof(*isas); a++) {
            isa = isa || strcmp(parts[3], isas[a]) == 0;
        }
        CHECK(arithmetic && isa, "%s: arithmetic or isa", k->name);
        CHECK(strcmp(parts[3], "generic") != 0 || k->needs.bits == 0, "%s: needs more than generic",
              k->name);
        CHECK(strcmp(parts[3], "avx2") != 0 || k->needs.bits == NEEDS_AVX2, "%s: isa", k->name);
        CHECK(strcmp(parts[3], "avx512") != 0 || has_features(k->needs, NEEDS_AVX512), "%s: isa",
              k->name);
        CHECK(strcmp(parts[3], "avxvnni") != 0 || k->needs.bits == NEEDS_AVX2_VNNI, "%s: isa",
              k->name);
        CHECK(strcmp(parts[3], "vnni") != 0 || k->needs.bits == NEEDS_AVX512_VNNI, "%s: isa",
              k->name);
        CHECK(strcmp(parts[2], arithmetics[k->driver->arithmetic]) == 0, "%s: arithmetic", k->name);
        CHECK(k->driver->setup != NULL && k->driver->choose != NULL && k->driver->work != NULL &&
                  k->driver->phases >= 1,
              "%s: no work", k->name);
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(k->name, sinter_kernels[j].name) != 0, "%s stands twice", k->name);
        }
    }
}

/* The public list has one line for each row, in order, and names the objects. */
static void test_list(void)
{
    static const char *const rows[] = {
#define SINTER_KERNEL(name, driver, needs) #name,
#include "backend_xsmm/kernels.def"
    };
    const int n_rows = (int)(sizeof(rows) / sizeof(rows[0]));
    const char *at = sinter_kernel_list();
    CHECK(n_rows == sinter_n_kernels, "%d rows, %d kernels", n_rows, sinter_n_kernels);
    for (int i = 0; i < sinter_n_kernels && i < n_rows; i++) {
        const size_t len = strlen(rows[i]);
        CHECK(strcmp(rows[i], sinter_kernels[i].name) == 0, "row %s is kernel %s", rows[i],
              sinter_kernels[i].name);
        const bool listed = strncmp(at, rows[i], len) == 0 && at[len] == '\n';
        CHECK(listed, "%s is not in the list", rows[i]);
        at += listed ? len + 1 : 0;
    }
    CHECK(*at == '\0', "the list goes on: %s", at);
}

/* Every step kind runs on any machine: its driver has a kernel that needs nothing. */
static void test_generic(void)
{
    for (int kind = 0; kind < STEP_KINDS; kind++) {
        const driver_t *driver = sinter_step_drivers[kind];
        bool any = false;
        for (int i = 0; i < sinter_n_kernels; i++) {
            const kernel_t *k = &sinter_kernels[i];
            any = any || (k->driver == driver && k->needs.bits == 0);
        }
        CHECK((int)driver->step == kind, "the driver of %s is for %s", step_names[kind],
              step_names[driver->step]);
        CHECK(any, "no generic kernel for %s", step_names[kind]);
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

typedef struct select_case {
    rig_t r;
    step_t step;
} select_case_t;

/* One step over dense tensors, matrices of more rows than the kernels for few of them take;
 * heads: Q, K, V and output of attention are [2][4][heads]. */
static void make(select_case_t *p, step_kind_t kind, sinter_data_type_t type,
                 sinter_fpmath_mode_t mode, int64_t heads, sinter_cpu_isa_t isa)
{
    const int64_t dims[3] = {2, 4, heads}, mat[2] = {20, 20};
    rig_init(&p->r, isa);
    p->step = (step_t){.kind = kind, .permit = permit_of(mode, false)};
    const operand_t none = {.scale = -1, .zp = -1};
    chain_builder_t b;
    if (kind == STEP_ATTENTION) {
        const int64_t score[3] = {2, 4, 4};
        attention_params_t *a = &p->step.p.attention;
        *a = (attention_params_t){
            .q = none, .k = none, .v = none, .trans_k = true, .stats = -1, .sink = -1, .mask = -1};
        a->q.data = rig_value(&p->r, type, 3, dims, NULL);
        a->k.data = rig_value(&p->r, type, 3, dims, NULL);
        a->v.data = rig_value(&p->r, type, 3, dims, NULL);
        a->score_dims = rig_value(&p->r, sinter_f32, 3, score, NULL);
        a->out_dims = rig_value(&p->r, sinter_f32, 3, dims, NULL);
        for (int v = 0; v < p->r.n && heads == 1; v++) { /* 1 stands for not known */
            p->r.values[v].lt.dims[2] = v == a->score_dims ? 4 : SINTER_UNKNOWN_DIM;
        }
        chain_begin(&b, &p->r.plan.arena, 3, a->out_dims, true);
        chain_store(&b, 0, a->out_dims, NULL);
    } else {
        const int in = rig_value(&p->r, type, 2, mat, NULL),
                  out = rig_value(&p->r, kind == STEP_DYNQUANT ? sinter_s8 : sinter_f32, 2, mat,
                                  NULL);
        const bool rows =
            kind == STEP_NORM || kind == STEP_ROTARY || kind == STEP_REDUCE || kind == STEP_WINDOW;
        if (rows) {
            chain_begin(&b, &p->r.plan.arena, 2, in, false);
            const int x = chain_load(&b, in, 2);
            CHECK(chain_finish(&b, x, dtype_needs_f64(type), &p->step.pre) == sinter_success,
                  "pre");
        }
        chain_begin(&b, &p->r.plan.arena, 2, out,
                    rows || kind == STEP_MATMUL || kind == STEP_EXPERTS || kind == STEP_SOFTMAX);
        const int reg = kind == STEP_CHAIN ? chain_load(&b, in, 2) : 0;
        if (kind == STEP_MATMUL) {
            p->step.p.matmul =
                (matmul_params_t){.a = none, .b = none, .experts = -1, .out_dims = out};
            p->step.p.matmul.a.data = p->step.p.matmul.b.data = in;
        } else if (kind == STEP_EXPERTS) {
            step_t *product = ARENA_NEW(&p->r.plan.arena, step_t, 1);
            *product = (step_t){.kind = STEP_MATMUL};
            product->p.matmul =
                (matmul_params_t){.a = none, .b = none, .experts = -1, .out_dims = out};
            product->p.matmul.a.data = product->p.matmul.b.data = in;
            p->step.p.mlp =
                (mlp_params_t){.n_upper = 1, .product = {product, product}, .out_dims = out};
        } else if (kind == STEP_SOFTMAX) {
            p->step.p.softmax = (softmax_params_t){.in = in, .stats = -1, .sink = -1, .axis = 1};
        } else if (kind == STEP_NORM) {
            p->step.p.norm = (norm_params_t){.x = in, .mean = -1, .variance = -1, .begin_axis = -1};
        } else if (kind == STEP_ROTARY) {
            p->step.p.rotary =
                (rotary_params_t){.x = in, .cosines = in, .sines = in, .positions = -1, .scale = 1};
        } else if (kind == STEP_REDUCE) {
            static const int64_t axes[1] = {1};
            p->step.p.reduce =
                (reduce_params_t){.x = in, .kind = sinter_op_reduce_sum, .axes = axes, .n_axes = 1};
        } else if (kind == STEP_WINDOW) {
            p->step.p.window = (window_params_t){.x = in, .kind = sinter_op_max_pool};
        } else if (kind == STEP_DYNQUANT) {
            p->step.p.dynquant = (dynquant_params_t){
                .in = in, .out = {.data = out, .scale = -1, .zp = -1}, .tensor_scale = -1};
        }
        if (kind != STEP_DYNQUANT) {
            chain_store(&b, reg, out, NULL);
        }
    }
    CHECK(chain_finish(&b, -1, dtype_needs_f64(type), &p->step.post) == sinter_success,
          "chain of %s", step_names[kind]);
}

/* Selects under a cap with all dims known; checks that every kernel that stands before the
 * winner is refused with its reason, and that no other one is named. why: the refusals, as
 * lines. */
static const char *selected(select_case_t *p, textbuf_t *why)
{
    selection_t s;
    kernel_select(&p->r.plan, &p->step, &s);
    const kernel_t *best = rig_select(&p->r, &p->step, why);
    CHECK(s.n_kernels <= 1 && s.sure == (s.n_kernels == 1), "%d kernels, sure %d", s.n_kernels,
          s.sure);
    int n = 0;
    for (int i = 0; i < sinter_n_kernels && &sinter_kernels[i] != best; i++) {
        const kernel_t *k = &sinter_kernels[i];
        if (k->driver->step != p->step.kind) {
            continue;
        }
        const refusal_t *r = &s.refusals[n];
        if (k->driver->reads_cache && r->kernel != k) {
            continue; /* nothing lies in tiles here, and reports leave it out */
        }
        CHECK(n < s.n_refusals && r->kernel == k, "%s neither won nor was refused", k->name);
        if (n < s.n_refusals && r->kernel == k) {
            CHECK(r->reason != NULL && r->reason[0] != '\0', "%s: no reason", k->name);
            CHECK(r->features == !has_features(p->r.plan.features, k->needs.bits),
                  "%s: the isa is the reason", k->name);
            n++;
        }
    }
    CHECK(n == s.n_refusals, "%d kernels stand before the winner, %d are refused", n, s.n_refusals);
    return best != NULL ? best->name : "none";
}

/* From the manuals: bf16 products need AVX512_BF16 (CPUID leaf 7, subleaf 1, EAX bit 5), for which
 * libxsmm makes code unless its environment variable names an older target. */
static bool has_bf16_products(void)
{
    const char *target = getenv("LIBXSMM_TARGET");
    unsigned eax = 0;
#if defined(__x86_64__)
    unsigned ebx = 0, ecx = 0, edx = 0;
    eax = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) ? eax : 0;
#endif
    return (eax >> 5 & 1) != 0 &&
           (target == NULL || strcmp(target, "cpx") == 0 || strcmp(target, "spr") == 0);
}

static const char *const isa_suffix[LEVELS] = {[sinter_isa_generic] = "generic",
                                               [sinter_isa_avx2] = "avx2",
                                               [sinter_isa_avx2_vnni] = "avx2",
                                               [sinter_isa_avx512] = "avx512",
                                               [sinter_isa_avx512_vnni] = "avx512"};

/* The same kernel runs the kind on every machine. */
static bool has_one_kernel(step_kind_t kind)
{
    int n = 0;
    for (int i = 0; i < sinter_n_kernels; i++) {
        n += sinter_kernels[i].driver->step == kind;
    }
    return n == 1;
}

/* Float steps take the widest ISA under the cap, and bf16 products only where mode, CPU and JIT
 * allow them. */
static void test_float_steps(sinter_cpu_isa_t machine)
{
    static const char *const stems[STEP_KINDS] = {
#define SINTER_STEP(kind, name, driver) [STEP_##kind] = #driver,
#include "backend_xsmm/steps.def"
    };
    static const sinter_fpmath_mode_t modes[] = {
        sinter_fpmath_mode_strict, sinter_fpmath_mode_bf16, sinter_fpmath_mode_f16,
        sinter_fpmath_mode_any,    sinter_fpmath_mode_tf32, sinter_fpmath_mode_int8};
    for (int kind = 0; kind < STEP_KINDS; kind++) {
        if (has_one_kernel((step_kind_t)kind)) {
            continue;
        }
        for (int i = sinter_isa_generic; i < LEVELS; i++) {
            const sinter_cpu_isa_t isa = (sinter_cpu_isa_t)i;
            const uint32_t has = features_up_to(machine).bits & features_of_level(isa).bits;
            const bool is_here = level_of_features((features_t){has}) == isa;
            for (size_t m = 0; m < sizeof(modes) / sizeof(*modes) && is_here; m++) {
                select_case_t p;
                textbuf_t why;
                char want[64];
                make(&p, (step_kind_t)kind, sinter_f32, modes[m], 8, isa);
                const bool products = kind == STEP_MATMUL || kind == STEP_ATTENTION;
                const bool allowed =
                    modes[m] == sinter_fpmath_mode_bf16 || modes[m] == sinter_fpmath_mode_any;
                const bool bf16 =
                    products && allowed && isa == sinter_isa_avx512_vnni && has_bf16_products();
                snprintf(want, sizeof(want), "%s_%s_%s", stems[kind], bf16 ? "bf16" : "f32",
                         isa_suffix[isa]);
                const char *got = selected(&p, &why);
                CHECK(strcmp(got, want) == 0, "%s under %s: got %s", want, sinter_cpu_isa_name(isa),
                      got);
                CHECK(!products || bf16 || allowed || isa != sinter_isa_avx512_vnni ||
                          strstr(why.text, "the fpmath mode does not allow bf16") != NULL,
                      "%s: why no bf16: %s", want, why.text);
                rig_free(&p.r);
            }
        }
    }
}

/* Steps with a reason of their own. */
static void test_reasons(sinter_cpu_isa_t machine)
{
    select_case_t p;
    textbuf_t why;
    make(&p, STEP_CHAIN, sinter_s32, sinter_fpmath_mode_strict, 8, machine);
    CHECK(strstr(selected(&p, &why), "chain_runs_f64_") != NULL &&
              strstr(why.text, "needs double precision") != NULL,
          "s32 chain: %s", why.text);
    rig_free(&p.r);
    make(&p, STEP_CHAIN, sinter_bf16, sinter_fpmath_mode_strict, 8, sinter_isa_generic);
    CHECK(strcmp(selected(&p, &why), "chain_runs_f32_generic") == 0 &&
              strstr(why.text, "chain_runs_f32_avx2 refused: needs avx2"),
          "bf16 chain: %s", why.text);
    rig_free(&p.r);
    static const step_kind_t only_f32[] = {STEP_SOFTMAX, STEP_DYNQUANT};
    for (int i = 0; i < 2; i++) {
        const step_kind_t kind = only_f32[i];
        make(&p, kind, sinter_f64, sinter_fpmath_mode_strict, 8, machine);
        CHECK(strcmp(selected(&p, &why), "none") == 0 &&
                  strstr(why.text, "double precision") != NULL,
              "f64 %s: %s", step_names[kind], why.text);
        rig_free(&p.r);
    }
    make(&p, STEP_ATTENTION, sinter_f32, sinter_fpmath_mode_bf16, 1, machine);
    const char *got = selected(&p, &why);
    CHECK(strstr(got, "attention_flash_f32_") == got, "unknown head size: %s", got);
    CHECK(machine != sinter_isa_avx512_vnni || !has_bf16_products() ||
              strstr(why.text, "head sizes known at compile") != NULL,
          "unknown head size: %s", why.text);
    rig_free(&p.r);
}

int main(void)
{
    sinter_cpu_isa_t machine;
    if (cpu_isa_cap(sinter_isa_default, &machine) != sinter_success) {
        return 1;
    }
    test_names();
    test_list();
    test_generic();
    test_float_steps(machine);
    test_reasons(machine);
    return check_finish();
}
