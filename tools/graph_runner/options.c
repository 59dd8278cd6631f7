#include "options.h"

#include "limits.h"

#include <stdio.h>
#include <string.h>

const gr_options_t gr_default_options = {
    .mode = "C",
    .mb = GR_SAME_BATCH,
    .seed = 1,
    .runs = 1,
    .expected_n_partitions = -1,
    .min_time = 0.5,
    .max_ambiguous = 1,
    .constant_cache = -1,
    .simulate_nodes = 1,
};

typedef enum kind { STR, NAME_OR_ALL, INT, REAL, FLAG } kind_t;

typedef struct option {
    const char *name;
    kind_t kind;
    size_t offset;
    const char *value, *help; /* value: what stands behind '=' in --help */
} option_t;

#define AT(field) offsetof(gr_options_t, field)
static const option_t options[] = {
    {"mode", STR, AT(mode), "C|P|L|X",
     "C correctness against the oracle (default), P performance, L list partitions and kernels, X "
     "execute once"},
    {"case", STR, AT(case_file), "FILE",
     "the graph, JSON; a leading ${NAME} or ${NAME:-default} is taken from the environment"},
    {"batch", STR, AT(batch), "FILE",
     "one command line per line, with quotes as in a shell; '#' starts a comment; options given "
     "here "
     "are defaults of every line"},
    {"in-shapes", STR, AT(in_shapes), "ID:DIMS[*STRIDES]+...",
     "new dims of graph inputs: 0:4x16x32x256, strides as 64x4x1 or a dim order as abdc; without "
     "strides the order of the JSON's strides\n"
     "is kept where the rank is the same. Tensors computed from it get their shapes inferred anew"},
    {"dynamic", STR, AT(dynamic), "ID:DIMS+...",
     "dims of graph inputs that stay unknown until execute: 0:1x8x?x128, with '?' for an unknown "
     "dim "
     "and the others\nas they are. Build, partition and compile do not see the unknown dims; "
     "execute "
     "gets the real ones of the JSON\nor --in-shapes"},
    {"mb", INT, AT(mb), "N",
     "new batch: the leading dim of every input that shares rank and leading dim with the first "
     "one, and of reshapes to it"},
    {"dt", STR, AT(dt), "[ID:]TYPE+...",
     "new data types; without ID, all float tensors (f32 f16 bf16) or all integer tensors (s8 u8 "
     "s4 u4)"},
    {"op-attrs", STR, AT(op_attrs), "ID:NAME:VALUE[*NAME:VALUE]+...",
     "new op attributes; vectors as 1x1x32x1"},
    {"attr-fpmath", STR, AT(attr_fpmath), "MODE[:true]",
     "fpmath mode of the graph; :true applies it to integers as well"},
    {"partition-fpmath", STR, AT(partition_fpmath), "PID:MODE[:true]+...",
     "fpmath mode of single partitions"},
    {"expected-n-partitions", INT, AT(expected_n_partitions), "N",
     "fail unless there are N partitions"},
    {"no-fuse", FLAG, AT(no_fuse), NULL, "every op its own partition"},
    {"threads", INT, AT(threads), "N",
     "threads of the stream; 0 (default): what OpenMP would use. Mode P: at most; a step uses as "
     "many "
     "as its work pays for"},
    {"max-cpu-isa", STR, AT(max_cpu_isa), "ISA",
     "use no more than this instruction set; the names are those of SINTER_MAX_CPU_ISA"},
    {"deterministic", FLAG, AT(deterministic), NULL,
     "a deterministic engine: bits of a row do not depend on what is computed with it"},
    {"seed", INT, AT(seed), "N", "seed of the inputs (default 1)"},
    {"in", STR, AT(in), "ID:FILE+...",
     "inputs from .npy files, or from raw bytes where NumPy lacks the type; =VALUE,VALUE... "
     "instead of a file: these values one after the other, again and again, where A-B stands for "
     "the whole numbers from A to B and V*N for N times V; =permuted: the numbers from 0 on in a "
     "random order"},
    {"runs", INT, AT(runs), "N",
     "modes C, P, X: run the graph N times before anything is checked or measured (default 1)"},
    {"same-bits", FLAG, AT(same_bits), NULL,
     "with --runs: fail unless every tensor that a partition writes has the same bits in each run; "
     "the message names tensor and element"},
    {"repeat", INT, AT(repeat), "N", "mode P: exactly N timed runs; 0 (default): by --min-time"},
    {"min-time", REAL, AT(min_time), "SECONDS",
     "mode P: time to spend on each partition (default 0.5)"},
    {"cold-cache", FLAG, AT(cold_cache), NULL,
     "mode P: rotate over copies of the inputs that together exceed the last-level cache"},
    {"limits", STR, AT(limits), "measured|NAME:RATE+...",
     "print the roofline of each partition in every mode, from these limits: read:24+copy:31 in\n"
     "GB/s, fma:187+int8:330+bf16:0 in GFLOP/s; mode P measures none then. measured: as in mode P"},
    {"on-demand", FLAG, AT(on_demand), NULL,
     "mode P: print 'ready', then for each line of standard input run for --min-time and print the "
     "median microseconds;\ntools/dev/compare_builds.py uses it"},
    {"simulate-threads", INT, AT(simulate_threads), "N",
     "run the division of the plan for N threads, all by the calling thread and untimed, and print "
     "for each phase\nhow far the largest share is over the mean, in bytes read and in products"},
    {"simulate-nodes", INT, AT(simulate_nodes), "N",
     "with --simulate-threads: these lie on N memory nodes (default 1); print the bytes that are "
     "read from\nanother node, by first touch and, in parentheses, if one thread had written all"},
    {"constant-cache-bytes", INT, AT(constant_cache), "BYTES",
     "most that copies of constant weights take; -1 (default): no limit"},
    {"mem", FLAG, AT(mem), NULL,
     "print scratch memory, and what is in the constant cache after the runs"},
    {"max-scratch-per-thread", INT, AT(max_scratch), "BYTES",
     "fail if a partition's scratch memory per thread exceeds this"},
    {"max-ambiguous", REAL, AT(max_ambiguous), "SHARE",
     "mode C: fail if more than this share of an output's elements of 8 bits or less differ from "
     "the rounding of the oracle's value, even where\n"
     "its error bound reaches over a boundary of rounding, which makes both neighbours right"},
    {"max-loose", REAL, AT(max_loose), "SHARE",
     "mode C: fail if more than this share (default 0) of an output's elements have an error "
     "bound\n"
     "that checks nothing: infinite, beyond every magnitude of the output, or with every value of "
     "the\n"
     "type inside"},
    {"explain", FLAG, AT(explain), NULL, "print why partitions and kernels were chosen"},
    {"json", FLAG, AT(json), NULL,
     "print one JSON document for each case, on a line of its own, instead of text: graph, "
     "partitions, "
     "kernels, reasons,\nin mode C the verdict of each output, in mode P the measured figures. "
     "docs/graph_runner.md lists its members"},
    {"verbose", STR, AT(verbose), "WORDS",
     "the library's own messages: error,dispatch,compile,exec,all; exec prints a line for each\n"
     "execute: dims, threads, microseconds, kernels, the code path that each kernel took and why\n"
     "not a faster one"},
    {"dump-after", STR, AT(dump_after), "PASS", "let the library print the graph after a pass"},
    {"dump-graph", STR, AT(dump_graph), "FILE", "write the graph as the library dumps it"},
    {"dump-tensors", STR, AT(dump_tensors), "DIR",
     "write the graph's inputs and outputs as .npy; types that NumPy lacks as raw bytes with a "
     ".json note"},
    {"dump-tensor-ids", STR, AT(dump_tensor_ids), "ID+ID...",
     "with --dump-tensors: write these tensors instead; all: every tensor that is in memory"},
    {"dot", STR, AT(dot), "FILE", "write ops and partitions for Graphviz"},
    {"list-ops", FLAG, AT(list_ops), NULL, "list the op kinds"},
    {"list-kernels", FLAG, AT(list_kernels), NULL, "list the library's kernels"},
    {"describe-op", NAME_OR_ALL, AT(describe_op), "NAME",
     "what an op may look like: ports and their data types, attributes with defaults and allowed\n"
     "values, formula and rules; without NAME, or with NAME all: every op"},
    {"markdown", FLAG, AT(markdown), NULL, "with --describe-op: as markdown, which docs/ops.md is"},
    {"describe-dtype", STR, AT(describe_dtype), "NAME",
     "a data type's storage, limits, special values and rounding, and the codes of types of up to "
     "8 bits"},
    {"help", FLAG, AT(help), NULL, "this text"},
};
#undef AT

enum { N_OPTIONS = sizeof options / sizeof *options };

static int store(gr_options_t *opt, const option_t *o, const char *argument, const char *value,
                 gr_error_t *err)
{
    void *field = (char *)opt + o->offset;
    const char *p = value;
    int bad = 0;

    switch (o->kind) {
    case FLAG:
        bad = value && strcmp(value, "true") && strcmp(value, "false");
        *(int *)field = !value || !strcmp(value, "true");
        break;
    case STR:
        bad = !value || !*value;
        *(const char **)field = value;
        break;
    case NAME_OR_ALL:
        bad = value && !*value;
        *(const char **)field = value ? value : "all";
        break;
    case INT:
        bad = !value || gr_parse_s64(&p, field) || *p;
        break;
    case REAL:
        bad = !value || gr_parse_double(&p, field) || *p;
        break;
    }
    return bad ? gr_fail(err, "%s: expected --%s%s%s", argument, o->name, o->value ? "=" : "",
                         o->value ? o->value : "")
               : 0;
}

static int parse_one(gr_options_t *opt, const char *argument, gr_error_t *err)
{
    const char *equals = strchr(argument, '=');
    size_t n = equals ? (size_t)(equals - argument) : strlen(argument);

    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!strncmp(argument, "--", 2) && n - 2 == strlen(options[i].name) &&
            !strncmp(argument + 2, options[i].name, n - 2)) {
            return store(opt, &options[i], argument, equals ? equals + 1 : NULL, err);
        }
    }
    return gr_fail(err, "%s: no such option, see --help", argument);
}

static int check(const gr_options_t *opt, gr_error_t *err)
{
    gr_limits_t limits;

    if (strlen(opt->mode) != 1 || !strchr("CPLX", *opt->mode)) {
        return gr_fail(err, "--mode=%s: expected C, P, L or X", opt->mode);
    }
    if (opt->threads < 0 || opt->threads > 4096) {
        return gr_fail(err, "--threads: expected 0 to 4096");
    }
    if (opt->simulate_threads < 0 || opt->simulate_threads > 1024 || opt->simulate_nodes < 1 ||
        opt->simulate_nodes > 8) {
        return gr_fail(err, "--simulate-threads, --simulate-nodes: expected up to 1024 and 1 to 8");
    }
    if (opt->simulate_threads > 0 && (*opt->mode == 'P' || *opt->mode == 'L' || opt->threads > 0)) {
        return gr_fail(err, "--simulate-threads: expected --mode=X or C, and no --threads");
    }
    if (opt->mb < 1 && opt->mb != GR_SAME_BATCH) {
        return gr_fail(err, "--mb: expected 1 or more");
    }
    if (opt->repeat < 0 || opt->repeat > 1000000 || opt->max_scratch < 0) {
        return gr_fail(err, "--repeat, --max-scratch-per-thread: expected 0 or more");
    }
    if (opt->limits && strcmp(opt->limits, "measured") &&
        gr_limits_parse(opt->limits, 1, &limits, err)) {
        return -1;
    }
    if (opt->runs < 1 || opt->runs > 1000000) {
        return gr_fail(err, "--runs: expected 1 to 1000000");
    }
    if (opt->same_bits && opt->runs < 2) {
        return gr_fail(err, "--same-bits: expected --runs=N with N of at least 2");
    }
    if (opt->dump_tensor_ids && !opt->dump_tensors) {
        return gr_fail(err, "--dump-tensor-ids: expected --dump-tensors=DIR as well");
    }
    return 0;
}

int gr_options_parse(gr_options_t *opt, int argc, char *const *argv, gr_error_t *err)
{
    for (int i = 0; i < argc; i++) {
        if (parse_one(opt, argv[i], err)) {
            return -1;
        }
    }
    return check(opt, err);
}

static void print_help_text(const char *text)
{
    const char *end;

    for (; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        printf("        %.*s\n", (int)(end - text), text);
    }
    printf("        %s\n", text);
}

void gr_options_help(void)
{
    printf("graph_runner --case=FILE.json [--mode=C|P|L|X] [option]...\n"
           "Loads a graph, partitions, compiles and runs it through the public API. The exit "
           "status is the verdict.\n\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        printf("    --%s%s%s\n", options[i].name, options[i].value ? "=" : "",
               options[i].value ? options[i].value : "");
        print_help_text(options[i].help);
    }
}

static int differs(const gr_options_t *opt, const option_t *o)
{
    const void *a = (const char *)opt + o->offset,
               *b = (const char *)&gr_default_options + o->offset;

    switch (o->kind) {
    case STR:
    case NAME_OR_ALL:
        return *(const char *const *)a && (o->offset == offsetof(gr_options_t, mode) ||
                                           *(const char *const *)a != *(const char *const *)b);
    case INT:
        return *(const int64_t *)a != *(const int64_t *)b;
    case REAL:
        return memcmp(a, b, sizeof(double)) != 0;
    default:
        return *(const int *)a;
    }
}

/* The next word of a line, or NULL at its end or at a comment. The word is written over the line,
 * without its quotes. */
static char *next_word(char **at, gr_error_t *err)
{
    char *from = *at + strspn(*at, " \t\r\n"), *to = from, *word = from, quote = 0;

    if (*from == '\0' || *from == '#') {
        return NULL;
    }
    for (; *from != '\0' && (quote || !strchr(" \t\r\n", *from)); from++) {
        if (quote ? *from == quote : *from == '\'' || *from == '"') {
            quote = quote ? 0 : *from;
        } else {
            from += *from == '\\' && quote != '\'' && from[1] != '\0';
            *to++ = *from;
        }
    }
    if (quote) {
        gr_fail(err, "a quote %c is not closed", quote);
        return NULL;
    }
    *at = from + (*from != '\0');
    *to = '\0';
    return word;
}

int gr_options_split(char *line, char **words, int most, int *n, gr_error_t *err)
{
    *n = 0;
    for (char *word; (word = next_word(&line, err)) != NULL; words[(*n)++] = word) {
        if (*n == most) {
            return gr_fail(err, "more than %d words", most);
        }
    }
    return err->text[0] != '\0';
}

/* Single quotes where a shell would take a character for its own. */
static void print_quoted(FILE *f, const char *text)
{
    if (!strpbrk(text, " \t*$&;|<>()?[]~#\"\\`!")) {
        fputs(text, f);
        return;
    }
    fputc('\'', f);
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", f);
        } else {
            fputc(*text, f);
        }
    }
    fputc('\'', f);
}

void gr_options_print(FILE *f, const gr_options_t *opt)
{
    fputs("graph_runner", f);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const void *field = (const char *)opt + options[i].offset;

        if (!differs(opt, &options[i]) || options[i].offset == offsetof(gr_options_t, batch)) {
            continue;
        }
        fprintf(f, " --%s%s", options[i].name, options[i].kind == FLAG ? "" : "=");
        if (options[i].kind == STR || options[i].kind == NAME_OR_ALL) {
            print_quoted(f, *(const char *const *)field);
        } else if (options[i].kind == INT) {
            fprintf(f, "%lld", (long long)*(const int64_t *)field);
        } else if (options[i].kind == REAL) {
            fprintf(f, "%g", *(const double *)field);
        }
    }
}
