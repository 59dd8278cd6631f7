/* Random graphs, fused and op by op, against the oracle. SINTER_RANDOM_SEED and
 * SINTER_RANDOM_CASES make long runs; SINTER_RANDOM_ONLY=SEED, in hex as a failure prints it,
 * runs one case; SINTER_RANDOM_GENERATOR=NAME one kind of graph; SINTER_RANDOM_OPEN=100 the share
 * of cases, in percent, with dims that only execute knows; SINTER_RANDOM_VERBOSE shows every case
 * before it runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"

static const struct {
    const char *name;
    int weight;
    void (*generate)(fz_t *f);
} generators[] = {
    {"eltwise", 15, fz_gen_eltwise},
    {"matmul", 14, fz_gen_matmul},
    {"attention", 14, fz_gen_attention},
    {"softmax", 4, fz_gen_softmax},
    {"views", 6, fz_gen_views},
    {"dynquant", 9, fz_gen_dynquant},
    {"mlp", 4, fz_gen_mlp},
    {"turned", 3, fz_gen_turned_attention},
    {"norm", 8, fz_gen_norm},
    {"rope", 4, fz_gen_rope},
    {"gather", 4, fz_gen_gather},
    {"image", 4, fz_gen_image},
    {"conv", 4, fz_gen_conv},
    {"recurrent", 3, fz_gen_recurrent},
    {"experts", 3, fz_gen_experts},
    {"router", 4, fz_gen_router},
    {"paged", 0, fz_gen_paged_attention}, /* instead of some others */
};
enum { N_GENERATORS = sizeof generators / sizeof *generators };

/* Cases that have failed before run first: a reciprocal of a zero of either sign, queries near the
 * ends of f32 times codes that small scales follow, probabilities that are codes, values near the
 * ends of f32 whose sums are beyond it before attention divides them, a product of factors some of
 * which are beyond double, and layouts that each partition chooses alone, as the rank of another
 * input comes late. */
static const struct {
    uint64_t seed;
    const char *generator; /* NULL: any */
} known[] = {{0xc938c9a131dbdf70, NULL},   {0x8ebd6799b8ba3667, NULL},
             {0x50f85b2f06d2fbad, NULL},   {0x293cbd3c20dc19f9, "attention"},
             {0x2abeb20963e9bb74, "norm"}, {0xbe15c0abf9c11559, "mlp"},
             {0x49be6037f0350547, "mlp"}};

static long number(const char *name, long missing)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 0) : missing;
}

static void generate(fz_t *f, const char *only)
{
    int at = fz_pick(f, 100), g = 0;

    while (at >= generators[g].weight) {
        at -= generators[g++].weight;
    }
    /* Not drawn: seeds name the same cases as before. */
    if (generators[g].generate == fz_gen_attention && random_mix(f->seed) % 4 == 0) {
        g = N_GENERATORS - 1;
    }
    for (int i = 0; only && i < N_GENERATORS; i++) {
        if (!strcmp(generators[i].name, only)) {
            g = i;
        }
    }
    f->generator = generators[g].name;
    f->lacks_ranks = 1;
    f->dynamic = fz_chance(f, (int)number("SINTER_RANDOM_OPEN", 20));
    generators[g].generate(f);
}

static void run_case(uint64_t seed, const char *generator, int verbose)
{
    fz_t f;
    char text[1024];
    fz_outcome_t outcome;

    fz_init(&f, seed);
    generate(&f, generator);
    if (verbose) {
        fprintf(stderr, "%016llx %s\n", (unsigned long long)seed, f.generator);
        fz_print(&f);
    }
    outcome = fz_run(&f, text, sizeof text);
    if (verbose && outcome == FZ_UNSUPPORTED) {
        fprintf(stderr, "UNSUPPORTED %016llx\n", (unsigned long long)seed);
    }
    if (outcome != FZ_UNSUPPORTED) {
        CHECK(outcome == FZ_PASSED, "%016llx %s: %s", (unsigned long long)seed, f.generator, text);
    }
    if (outcome == FZ_FAILED) {
        fz_print(&f);
    }
    fz_free(&f);
}

static void report(void)
{
    for (int i = 0; i < 64 && fz_tally.patterns[i].n; i++) {
        printf("pattern %-14s %ld partitions\n", fz_tally.patterns[i].name, fz_tally.patterns[i].n);
    }
    for (int i = 0; i < 64 && fz_tally.refusals[i].n; i++) {
        printf("unsupported %ld times: %s\n", fz_tally.refusals[i].n, fz_tally.refusals[i].text);
    }
    printf("%ld outputs between the elements of an input\n", fz_tally.interleaved);
    printf("%ld ops in %ld partitions; %ld cases unsupported\n", fz_tally.ops, fz_tally.partitions,
           fz_tally.cases[FZ_UNSUPPORTED]);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const char *only = getenv("SINTER_RANDOM_ONLY");
    const int verbose = number("SINTER_RANDOM_VERBOSE", 0) != 0;
    const long cases = only ? 1 : number("SINTER_RANDOM_CASES", 400),
               most = number("SINTER_RANDOM_FAILURES", 10);
    const char *generator = getenv("SINTER_RANDOM_GENERATOR");
    const bool all = only == NULL && cases > 0 && generator == NULL;
    uint64_t seeds = (uint64_t)number("SINTER_RANDOM_SEED", 1);

    for (size_t i = 0; all && i < sizeof known / sizeof *known; i++) {
        run_case(known[i].seed, known[i].generator, verbose);
    }
    for (long i = 0; i < cases && check_failed < most; i++) {
        uint64_t seed = random_next(&seeds);

        run_case(only ? strtoull(only, NULL, 16) : seed, generator, verbose);
    }
    report();
    /* Reciprocals of zeros of open sign, sums beyond f32, f16 intermediates beyond 65504, both
     * planes of split codes where a code may be its neighbour; 4 to 7 % in runs of 300 cases. */
    fz_check_loose(0.1);
    return check_finish();
}
