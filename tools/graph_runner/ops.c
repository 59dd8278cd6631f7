/* --describe-op: the schema cards, asked through the public API, with the notes of op_notes.def. */
#include "ops.h"

#include <sinter/sinter.h>
#include <stdio.h>
#include <string.h>

typedef struct note {
    sinter_op_kind_t kind;
    const char *inputs, *outputs; /* names of the ports, separated by ", " */
    const char *formula, *text;
} note_t;

typedef struct word {
    sinter_op_kind_t kind;
    sinter_op_attr_t attr;
    const char *value, *meaning;
} word_t;

static const note_t notes[] = {
#define OP_NOTE(op, inputs, outputs, formula, text) \
    {sinter_op_##op, inputs, outputs, formula, text},
#define OP_WORD(...)
#include "op_notes.def"
#undef OP_NOTE
#undef OP_WORD
};

static const word_t words[] = {
#define OP_NOTE(...)
#define OP_WORD(op, attr, value, meaning) {sinter_op_##op, sinter_op_attr_##attr, value, meaning},
#include "op_notes.def"
#undef OP_NOTE
#undef OP_WORD
};

static const sinter_data_type_t types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};

enum { NOTES = sizeof notes / sizeof *notes, WORDS = sizeof words / sizeof *words };
enum { TYPES = sizeof types / sizeof *types };

typedef int (*takes_t)(sinter_op_kind_t kind, int port, sinter_data_type_t type);

/* The library's functions are called, not pointed to: this program runs over an older library as
 * well, as long as nothing is asked that the older one lacks. */
static int takes_input(sinter_op_kind_t kind, int port, sinter_data_type_t type)
{
    return sinter_op_kind_input_takes(kind, port, type);
}

static int takes_output(sinter_op_kind_t kind, int port, sinter_data_type_t type)
{
    return sinter_op_kind_output_takes(kind, port, type);
}

static const note_t *find_note(sinter_op_kind_t kind)
{
    for (size_t i = 0; i < NOTES; i++) {
        if (notes[i].kind == kind) {
            return &notes[i];
        }
    }
    return NULL;
}

/* Prints a paragraph, broken at spaces into lines; the second line and all later ones begin with
 * indent spaces. */
static void print_wrapped(const char *text, const char *end, int indent)
{
    enum { COLUMNS = 98 };
    int column = indent;

    for (const char *next; text < end; text = next) {
        const char *word = text + strspn(text, " ");
        next = word + strcspn(word, " \n");
        if (column > indent && column + 1 + (int)(next - word) > COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", (int)(next - word), word);
    }
    putchar('\n');
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* The name of port i in a list "a, b, c"; the last name serves all further ports. */
static void port_name(const char *names, int i, char *name, size_t size)
{
    const char *next;

    for (; i > 0 && (next = strstr(names, ", ")) != NULL; i--) {
        names = next + 2;
    }
    snprintf(name, size, "%.*s", (int)strcspn(names, ","), names);
}

static int same_types(sinter_op_kind_t kind, takes_t takes, int a, int b)
{
    int same = 1;

    for (size_t t = 0; t < TYPES; t++) {
        same = same && takes(kind, a, types[t]) == takes(kind, b, types[t]);
    }
    return same;
}

static void print_types(sinter_op_kind_t kind, takes_t takes, int port)
{
    size_t n = 0;

    for (size_t t = 0; t < TYPES; t++) {
        n += (size_t)takes(kind, port, types[t]);
    }
    if (n == TYPES) {
        fputs(" any", stdout);
    }
    for (size_t t = 0; t < TYPES && n < TYPES; t++) {
        if (takes(kind, port, types[t])) {
            printf(" %s", sinter_data_type_name(types[t]));
        }
    }
}

typedef struct side {
    const char *what; /* "input" or "output" */
    const char *names;
    takes_t takes;
    int min, max;
} side_t;

static void print_ports(sinter_op_kind_t kind, const side_t *side, int markdown)
{
    for (int i = 0; i < side->max; i++) {
        int last = i;
        char name[64], number[16];

        /* Ports of one type set without names of their own are one line. */
        while (side->names == NULL && last + 1 < side->max &&
               (i < side->min) == (last + 1 < side->min) &&
               same_types(kind, side->takes, i, last + 1)) {
            last++;
        }
        port_name(side->names != NULL ? side->names : "", i, name, sizeof name);
        snprintf(number, sizeof number, i == last ? "%d" : "%d to %d", i, last);
        printf(markdown ? "| %s %s | %s%s |" : "  %-6s %-7s %-20s%s", side->what, number, name,
               i < side->min ? ""
               : markdown    ? " (optional)"
                             : " optional,");
        print_types(kind, side->takes, i);
        puts(markdown ? " |" : "");
        i = last;
    }
}

/* ---- attributes ------------------------------------------------------------------------------ */

static void print_default(const sinter_op_attr_rule_t *rule)
{
    if (rule->required) {
        fputs("required", stdout);
    } else if (!rule->has_default) {
        fputs("optional", stdout);
    } else if (rule->default_word != NULL) {
        printf("default %s", rule->default_word);
    } else if (strcmp(rule->kind, "bool") == 0) {
        printf("default %s", rule->default_number != 0 ? "true" : "false");
    } else {
        printf("default %g", rule->default_number);
    }
}

static void print_allowed(const sinter_op_attr_rule_t *rule, const char *before)
{
    if (rule->words != NULL) {
        fputs(before, stdout);
        for (const char *c = rule->words; *c != '\0'; c++) {
            fputs(*c == '|' ? ", " : (const char[]){*c, '\0'}, stdout);
        }
    }
    if (rule->has_least) {
        printf("%s%lld or more", before, (long long)rule->least);
    }
}

static void print_words(sinter_op_kind_t kind, sinter_op_attr_t attr, int markdown)
{
    for (size_t i = 0; i < WORDS; i++) {
        if (words[i].kind == kind && words[i].attr == attr) {
            const char *meaning = words[i].meaning;

            printf(markdown ? "| `%s` = `%s` | " : "  %s = %s:\n      ", sinter_op_attr_name(attr),
                   words[i].value);
            if (markdown) {
                printf("%s |\n", meaning);
            } else {
                print_wrapped(meaning, meaning + strlen(meaning), 6);
            }
        }
    }
}

static void print_attrs(sinter_op_kind_t kind, const sinter_op_schema_t *schema, int markdown)
{
    sinter_op_attr_rule_t rule = {.size = sizeof rule};
    int explained = 0;

    for (size_t i = 0; i < schema->n_attrs; i++) {
        if (sinter_op_kind_get_attr_rule(kind, i, &rule) != sinter_success) {
            continue;
        }
        printf(markdown ? "| `%s` | %s | " : "  %-20s %-13s ", sinter_op_attr_name(rule.attr),
               rule.kind);
        print_default(&rule);
        print_allowed(&rule, markdown ? " | " : "; ");
        if (markdown) {
            fputs(rule.words != NULL || rule.has_least ? " |" : " | |", stdout);
        }
        putchar('\n');
        for (size_t w = 0; w < WORDS; w++) {
            explained += words[w].kind == kind && words[w].attr == rule.attr;
        }
    }
    if (explained > 0) {
        puts(markdown ? "\n| value | meaning |\n|---|---|" : "values");
    }
    for (size_t i = 0; explained > 0 && i < schema->n_attrs; i++) {
        if (sinter_op_kind_get_attr_rule(kind, i, &rule) == sinter_success) {
            print_words(kind, rule.attr, markdown);
        }
    }
}

/* ---- one op ---------------------------------------------------------------------------------- */

static void print_notes(const char *text, int markdown)
{
    for (const char *end; *text != '\0'; text = *end == '\0' ? end : end + 1) {
        end = text + strcspn(text, "\n");
        fputs(markdown ? "- " : "  ", stdout);
        print_wrapped(text, end, markdown ? 2 : 4);
    }
}

static const char *executed(sinter_op_kind_t kind)
{
    return sinter_op_kind_is_executed(kind)
               ? "executed"
               : "checked and partitioned only: a partition of its own that is not supported";
}

static void describe(sinter_op_kind_t kind, int markdown)
{
    const note_t *note = find_note(kind);
    sinter_op_schema_t schema = {.size = sizeof schema};

    if (sinter_op_kind_get_schema(kind, &schema) != sinter_success) {
        return;
    }
    const side_t in = {"input", note ? note->inputs : NULL, takes_input, schema.min_inputs,
                       schema.max_inputs};
    const side_t out = {"output", note ? note->outputs : NULL, takes_output, schema.min_outputs,
                        schema.max_outputs};

    if (markdown) {
        printf("### %s\n\n", sinter_op_kind_name(kind));
    } else {
        printf("%s: %s\n", sinter_op_kind_name(kind), executed(kind));
    }
    if (note != NULL) {
        printf(markdown ? "    %s\n\n" : "  %s\n", note->formula);
    }
    fputs(markdown ? "| port | name | data types |\n|---|---|---|\n" : "ports\n", stdout);
    print_ports(kind, &in, markdown);
    print_ports(kind, &out, markdown);
    if (schema.n_attrs > 0) {
        puts(markdown ? "\n| attribute | kind | default | allowed |\n|---|---|---|---|"
                      : "attributes");
        print_attrs(kind, &schema, markdown);
    }
    if (schema.any_attr) {
        puts(markdown ? "\nEvery attribute is accepted." : "  every attribute is accepted");
    }
    if (note != NULL && note->text[0] != '\0') {
        puts(markdown ? "" : "notes");
        print_notes(note->text, markdown);
    }
    putchar('\n');
}

/* ---- all ops --------------------------------------------------------------------------------- */

static const char common[] =
    "Rules for all ops:\n"
    "- Float inputs and outputs of one op may have different float types. They compute\n"
    "  in f32, elementwise ops in f64 where a tensor is f64, and outputs are rounded once.\n"
    "- [numerics.md](numerics.md#functions) says how exact results are, and what functions give "
    "for\n"
    "  infinities, NaN and zeros.\n"
    "- s32 does not mix with floats in one op: put a TypeCast between them.\n"
    "- Two inputs broadcast against each other as in numpy, unless auto_broadcast is none.\n"
    "- In place: an output may be written over an input only where\n"
    "  sinter_compiled_partition_get_inplace_ports lists the pair, from the same address on, and "
    "where\n"
    "  both have the same dims and strides. It lists the inputs of which each element is read "
    "once, "
    "before\n"
    "  the same element of the output is written: by elementwise ops, alone or behind a product,\n"
    "  attention, softmax or a norm (x += matmul(..)), and the inputs of a softmax, a norm, a "
    "rotary\n"
    "  embedding, and the data of ScatterRows. Any other overlap is sinter_invalid_arguments. "
    "Tensors\n"
    "  whose elements lie between one another, such as the two halves of each row, do not "
    "overlap.\n"
    "- Host scalars: an input of property host_scalar has one element, which each execute reads "
    "anew.\n"
    "  sinter_tensor_create_scalar copies a value, sinter_tensor_set_scalar another one. Or give\n"
    "  sinter_tensor_create the address of a variable of yours, and write the variable between "
    "two\n"
    "  executes. Nothing is compiled again.\n"
    "- Dims and strides are in elements. A dim may be unknown until execute.\n";

static void print_contents(int runs)
{
    const char *between = "";

    for (int kind = 0; kind < (int)sinter_op_last_symbol; kind++) {
        const char *name = sinter_op_kind_name((sinter_op_kind_t)kind);

        if (name != NULL && sinter_op_kind_is_executed((sinter_op_kind_t)kind) == runs) {
            /* Anchors are lower case. */
            printf("%s[%s](#", between, name);
            for (const char *c = name; *c != '\0'; c++) {
                putchar(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
            }
            putchar(')');
            between = ",\n";
        }
    }
    puts("\n");
}

static void describe_all(int runs, int markdown)
{
    if (markdown) {
        puts(runs ? "## Ops that are executed\n"
                  : "## Ops that are checked and partitioned only\n");
        if (!runs) {
            puts("Each of them becomes a partition of its own that is not supported.\n");
        }
        print_contents(runs);
    }
    for (int kind = 0; kind < (int)sinter_op_last_symbol; kind++) {
        if (sinter_op_kind_name((sinter_op_kind_t)kind) != NULL &&
            sinter_op_kind_is_executed((sinter_op_kind_t)kind) == runs) {
            describe((sinter_op_kind_t)kind, markdown);
        }
    }
}

int gr_describe_op(const char *name, int markdown, gr_error_t *err)
{
    sinter_op_kind_t kind;

    if (strcmp(name, "all") == 0) {
        if (markdown) {
            puts("# Ops\n\nGenerated by `graph_runner --describe-op=all --markdown`: do not edit. "
                 "Attributes that are\nmissing have their default.\n");
        }
        puts(common);
        describe_all(1, markdown);
        describe_all(0, markdown);
        return 0;
    }
    if (!sinter_op_kind_parse(name, &kind)) {
        return gr_fail(err, "--describe-op=%s: no such op; --list-ops lists them", name);
    }
    describe(kind, markdown);
    return 0;
}
