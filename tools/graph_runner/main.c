/* graph_runner: one graph per command line, or many from a list. */
#include "bench.h"
#include "check.h"
#include "dtypes.h"
#include "exec.h"
#include "ops.h"
#include "record.h"
#include "report.h"
#include "rewrite.h"
#include "runs.h"
#include "simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SKIPPED is the exit status that test drivers know as such. */
enum { PASSED = 0, FAILED = 1, SKIPPED = 77 };

/* ---- finding the case file ------------------------------------------------------------------- */

/* Replaces a leading ${NAME} or ${NAME:-default} as a shell would. -1 if there is one and
 * neither gives a value. */
static int expand(const char *path, char *out, size_t size)
{
    const char *end = strchr(path, '}'), *value, *otherwise;
    char name[256];
    size_t n;

    if (strncmp(path, "${", 2) || !end) {
        return snprintf(out, size, "%s", path) < (int)size ? 0 : -1;
    }
    n = (size_t)(end - path) - 2;
    if (n >= sizeof name) {
        return -1;
    }
    memcpy(name, path + 2, n);
    name[n] = 0;
    otherwise = strstr(name, ":-");
    if (otherwise) {
        name[otherwise - name] = 0;
    }
    value = getenv(name);
    if ((!value || !*value) && otherwise) {
        value = otherwise + 2;
    }
    return value && snprintf(out, size, "%s%s", value, end + 1) < (int)size ? 0 : -1;
}

/* As it is, or relative to the list's folder. path and *opt hold the place found. */
static int find_case(gr_options_t *opt, const char *folder, gr_arena_t *arena, char *path,
                     size_t size)
{
    char expanded[4096];

    if (expand(opt->case_file, expanded, sizeof expanded)) {
        return -1;
    }
    if (access(expanded, R_OK) == 0) {
        return snprintf(path, size, "%s", expanded) < (int)size ? 0 : -1;
    }
    if (*expanded == '/' || !*folder ||
        snprintf(path, size, "%s%s", folder, expanded) >= (int)size || access(path, R_OK)) {
        return -1;
    }
    opt->case_file = gr_arena_strdup(arena, path);
    return opt->case_file ? 0 : -1;
}

/* Graphs that are not part of the project may be absent. */
static int is_outside(const char *case_file)
{
    return !strncmp(case_file, "${", 2) || strstr(case_file, "../shared/");
}

/* ---- one case -------------------------------------------------------------------------------- */

static int check_count(const gr_exec_t *x, gr_error_t *err)
{
    char names[512] = "";
    size_t used = 0;

    if (x->opt->expected_n_partitions < 0 || (size_t)x->opt->expected_n_partitions == x->n_parts) {
        return 0;
    }
    for (size_t i = 0; i < x->n_parts && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 x->parts[i].pattern);
    }
    return gr_fail(err, "expected %lld partitions, got %zu: %s",
                   (long long)x->opt->expected_n_partitions, x->n_parts, names);
}

static int run_mode(gr_exec_t *x, gr_error_t *err)
{
    char mode = *x->opt->mode;
    int failed = gr_exec_compile(x, err);

    gr_record_graph(x->record, x);
    if (mode == 'L' || x->opt->explain) {
        gr_report_partitions(x, x->opt->explain);
    }
    if (x->opt->mem && !failed) {
        gr_report_memory(x);
    }
    if (failed || mode == 'L') {
        return failed;
    }
    if (gr_exec_inputs(x, err) || gr_run_all(x, err)) {
        return -1;
    }
    failed = (mode == 'C' && gr_check(x, err)) ||
             (mode == 'P' && (x->opt->on_demand ? gr_bench_on_demand(x, err) : gr_bench(x, err)));
    if (x->opt->simulate_threads > 0 && !failed) {
        failed = gr_simulate(x, err);
    }
    if (x->opt->mem) {
        gr_report_constants(x);
    }
    if (x->opt->dump_tensors && gr_dump_tensors(x, err)) {
        return -1;
    }
    return failed ? -1 : 0;
}

static int run_model(model_t *model, const gr_options_t *opt, gr_record_t *record, gr_error_t *err)
{
    gr_exec_t x;
    int failed = gr_exec_open(&x, model, opt, err);

    x.record = record;
    if (!failed && opt->dot) {
        failed = gr_write_dot(&x, opt->dot, err);
    }
    if (!failed) {
        check_count(&x, err); /* a wrong count fails the case, but the rest is still worth seeing */
        failed = run_mode(&x, err);
        if (opt->limits && *opt->mode != 'P' && gr_bench_bounds(&x, err)) {
            failed = -1;
        }
        gr_record_memory(record, &x);
    }
    gr_exec_close(&x);
    return failed || err->text[0] ? -1 : 0;
}

/* record: NULL, or what --json prints. */
static int verdict(int result, const gr_options_t *opt, gr_record_t *record, double seconds,
                   const char *message)
{
    const char *const words[] = {"PASSED", "FAILED", "SKIPPED"};
    const int at = result == PASSED ? 0 : result == FAILED ? 1 : 2;

    if (record) {
        char *text =
            gr_record_text(record, opt, words[at], seconds, result == PASSED ? NULL : message);

        if (!text) {
            result = FAILED;
        }
        puts(text ? text
                  : "{\"schema\":1,\"verdict\":\"FAILED\",\"message\":\"out of memory for this "
                    "document\"}");
        gr_free(text);
    } else {
        printf("%s (%.2f s): ", words[at], seconds);
        gr_options_print(stdout, opt);
        putchar('\n');
        if (result != PASSED) {
            printf("    %s\n", message);
        }
    }
    fflush(stdout);
    return result;
}

/* folder: of the list that the command stands in, with a slash, or "". */
static int run_case(gr_options_t *opt, const char *folder)
{
    gr_arena_t arena = {0};
    gr_error_t err = {0};
    model_t model = {0};
    gr_record_t record = {0}, *json = opt->json ? &record : NULL;
    char path[4096];
    double start = gr_seconds();
    int result = FAILED;

    gr_print_mute(opt->json);
    if (json) {
        gr_record_open(json);
    }

    if (!opt->case_file) {
        gr_fail(&err, "expected --case=FILE, see --help");
    } else if (find_case(opt, folder, &arena, path, sizeof path)) {
        result = is_outside(opt->case_file) ? SKIPPED : FAILED;
        gr_fail(&err, "%s: not found", opt->case_file);
    } else if (!model_load_file(&model, path, &err) && !gr_rewrite(&model, opt, &err) &&
               !run_model(&model, opt, json, &err)) {
        result = PASSED;
    }
    for (size_t i = 0; i < model.n_warnings; i++) {
        gr_progress("%s", model.warnings[i]);
    }
    gr_record_warnings(json, &model);
    model_free(&model);
    result = verdict(result, opt, json, gr_seconds() - start, err.text);
    gr_record_close(&record);
    gr_arena_free(&arena);
    return result;
}

/* ---- lists ----------------------------------------------------------------------------------- */

enum { MAX_WORDS = 64 };

static int run_line(const gr_options_t *defaults, char *line, const char *folder, int number)
{
    gr_options_t opt = *defaults;
    gr_error_t err = {0};
    gr_record_t record;
    char *words[MAX_WORDS], message[sizeof err.text + 32];
    int n, failed = gr_options_split(line, words, MAX_WORDS, &n, &err);
    int skip = n && !strcmp(words[0], "graph_runner");

    if (n == 0 && !failed) {
        return -1;
    }
    opt.batch = NULL;
    failed = failed || gr_options_parse(&opt, n - skip, words + skip, &err);
    if (!failed && !opt.batch) {
        return run_case(&opt, folder);
    }
    snprintf(message, sizeof message, "line %d: %s", number,
             err.text[0] ? err.text : "a list inside a list");
    if (opt.json) {
        gr_record_open(&record);
        verdict(FAILED, &opt, &record, 0, message);
        gr_record_close(&record);
    } else {
        printf("FAILED: %s\n", message);
    }
    return FAILED;
}

static int run_batch(const gr_options_t *defaults)
{
    FILE *f = fopen(defaults->batch, "r");
    const char *slash = strrchr(defaults->batch, '/');
    char folder[4096], line[8192];
    int counts[3] = {0}, number = 0;

    if (!f || (slash && (size_t)(slash - defaults->batch) + 2 > sizeof folder)) {
        fprintf(stderr, "graph_runner: %s: %s\n", defaults->batch, strerror(errno));
        return FAILED;
    }
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - defaults->batch) + 1 : 0,
             defaults->batch);
    while (fgets(line, sizeof line, f)) {
        int result = run_line(defaults, line, folder, ++number);

        if (result >= 0) {
            counts[result == PASSED ? 0 : result == FAILED ? 1 : 2]++;
        }
    }
    fclose(f);
    fprintf(defaults->json ? stderr : stdout, "%d passed, %d failed, %d skipped\n", counts[0],
            counts[1], counts[2]);
    if (counts[1]) {
        return FAILED;
    }
    return counts[0] == 0 && counts[2] ? SKIPPED : PASSED;
}

static int describe_dtype(const char *name)
{
    gr_error_t err = {0};
    char *text = gr_describe_dtype(name, &err);

    if (!text) {
        fprintf(stderr, "graph_runner: %s\n", err.text);
        return FAILED;
    }
    fputs(text, stdout);
    gr_free(text);
    return PASSED;
}

static int describe_op(const gr_options_t *opt)
{
    gr_error_t err = {0};

    if (gr_describe_op(opt->describe_op, opt->markdown, &err)) {
        fprintf(stderr, "graph_runner: %s\n", err.text);
        return FAILED;
    }
    return PASSED;
}

int main(int argc, char **argv)
{
    gr_options_t opt = gr_default_options;
    gr_error_t err = {0};
    int result = PASSED;

    gr_alloc_set(NULL);
    if (gr_options_parse(&opt, argc - 1, argv + 1, &err)) {
        fprintf(stderr, "graph_runner: %s\n", err.text);
        return FAILED;
    }
    if (opt.help) {
        gr_options_help();
    } else if (opt.list_ops) {
        gr_list_ops();
    } else if (opt.list_kernels) {
        fputs(sinter_kernel_list(), stdout);
    } else if (opt.describe_op) {
        result = describe_op(&opt);
    } else if (opt.describe_dtype) {
        result = describe_dtype(opt.describe_dtype);
    } else {
        result = opt.batch ? run_batch(&opt) : run_case(&opt, "");
    }
    gr_check_forget();
    return result;
}
