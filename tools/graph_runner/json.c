#include "json.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- positions and errors ------------------------------------------------------------------------------------------------------- */

static void position_at(const json_doc_t *doc, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at && i < doc->size; i++) {
        ++*column;
        if (doc->text[i] == '\n') {
            ++*line;
            *column = 1;
        }
    }
}

/* The start of what stands at a place, for the message. */
static void found_at(const json_doc_t *doc, size_t at, char *text, size_t size)
{
    size_t n = 0;

    if (at >= doc->size) {
        snprintf(text, size, "the end of the file");
        return;
    }
    text[n++] = '\'';
    while (n + 2 < size && n <= 24 && at < doc->size && (unsigned char)doc->text[at] >= 32 && !(n > 1 && strchr(",}] ", doc->text[at])))
        text[n++] = doc->text[at++];
    text[n++] = '\'';
    text[n] = 0;
}

static int expected_at(const json_doc_t *doc, size_t at, const char *what)
{
    char found[40];
    int line, column;

    position_at(doc, at, &line, &column);
    found_at(doc, at, found, sizeof found);
    return gr_fail(doc->err, "%s:%d:%d: expected %s, found %s", doc->file, line, column, what, found);
}

int json_expected(const json_doc_t *doc, const json_node_t *node, const char *what)
{
    return expected_at(doc, node->at, what);
}

void json_position(const json_doc_t *doc, const json_node_t *node, int *line, int *column)
{
    position_at(doc, node->at, line, column);
}

/* ---- scan ----------------------------------------------------------------------------------------------------------------------- */

typedef struct scan {
    const json_doc_t *doc;
    size_t at;
    json_node_t *nodes; /* NULL while counting */
    size_t count;
    int depth;
    char kind[JSON_MAX_DEPTH]; /* '{' or '[' of each open container */
    size_t node[JSON_MAX_DEPTH];
} scan_t;

static int peek(const scan_t *s)
{
    return s->at < s->doc->size ? (unsigned char)s->doc->text[s->at] : -1;
}

static void skip_space(scan_t *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r')
        s->at++;
}

static int is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static int is_hex(int c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The four hex digits behind "\u", or -1. */
static int scan_hex(scan_t *s)
{
    int code = 0;

    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s);

        if (!is_hex(c))
            return -1;
        code = code * 16 + (is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
}

/* At a backslash. Refuses what cJSON would refuse or cut short: halves of surrogate pairs and NUL. */
static int scan_escape(scan_t *s)
{
    size_t start = s->at++;
    int c = peek(s), code, low;

    s->at++;
    if (c != 'u')
        return c > 0 && strchr("\"\\/bfnrt", c) ? 0 : expected_at(s->doc, start, "an escape sequence");
    code = scan_hex(s);
    if (code <= 0 || (code >= 0xDC00 && code <= 0xDFFF))
        return expected_at(s->doc, start, "a UTF-16 escape other than NUL");
    if (code < 0xD800 || code > 0xDBFF)
        return 0;
    if (s->doc->size - s->at < 6 || memcmp(s->doc->text + s->at, "\\u", 2))
        return expected_at(s->doc, start, "a surrogate pair");
    s->at += 2;
    low = scan_hex(s);
    return low >= 0xDC00 && low <= 0xDFFF ? 0 : expected_at(s->doc, start, "a surrogate pair");
}

static int scan_string(scan_t *s)
{
    for (s->at++; peek(s) != '"';) {
        if (peek(s) < 32)
            return expected_at(s->doc, s->at, "the end of a string");
        if (peek(s) != '\\')
            s->at++;
        else if (scan_escape(s))
            return -1;
    }
    s->at++;
    return 0;
}

static int scan_digits(scan_t *s)
{
    if (!is_digit(peek(s)))
        return expected_at(s->doc, s->at, "a digit");
    while (is_digit(peek(s)))
        s->at++;
    return 0;
}

static int scan_number(scan_t *s)
{
    size_t start = s->at;

    s->at += peek(s) == '-';
    if (peek(s) == '0')
        s->at++;
    else if (scan_digits(s))
        return -1;
    if (peek(s) == '.') {
        s->at++;
        if (scan_digits(s))
            return -1;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        if (scan_digits(s))
            return -1;
    }
    return s->at - start < 64 ? 0 : expected_at(s->doc, start, "a number of at most 63 characters"); /* cJSON's limit */
}

static int scan_word(scan_t *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if (s->doc->size - s->at >= n && !memcmp(s->doc->text + s->at, words[i], n)) {
            s->at += n;
            return 0;
        }
    }
    return expected_at(s->doc, s->at, "a value");
}

static int scan_key(scan_t *s)
{
    skip_space(s);
    if (peek(s) != '"')
        return expected_at(s->doc, s->at, "a key in quotes");
    if (scan_string(s))
        return -1;
    skip_space(s);
    if (peek(s) != ':')
        return expected_at(s->doc, s->at, "':'");
    s->at++;
    return 0;
}

static int scan_open(scan_t *s)
{
    if (s->depth == JSON_MAX_DEPTH)
        return expected_at(s->doc, s->at, "at most 64 levels of nesting");
    s->kind[s->depth] = s->doc->text[s->at++];
    s->node[s->depth++] = s->count - 1;
    return 0;
}

static void scan_close(scan_t *s)
{
    s->depth--;
    s->at++;
    if (s->nodes)
        s->nodes[s->node[s->depth]].span = s->count - s->node[s->depth];
}

/* Reads the start of one value. *open = 1 if it is a container that is not closed at once. */
static int scan_value(scan_t *s, int *open)
{
    int c;

    skip_space(s);
    c = peek(s);
    *open = 0;
    if (s->nodes)
        s->nodes[s->count] = (json_node_t){.at = s->at, .span = 1};
    s->count++;
    if (c == '"')
        return scan_string(s);
    if (c == '-' || is_digit(c))
        return scan_number(s);
    if (c != '{' && c != '[')
        return scan_word(s);
    if (scan_open(s))
        return -1;
    skip_space(s);
    *open = peek(s) != (c == '{' ? '}' : ']');
    if (!*open)
        scan_close(s);
    return 0;
}

/* Behind a value: closes what ends here. *more = 1 if another value follows. */
static int scan_after(scan_t *s, int *more)
{
    for (*more = 0; s->depth; scan_close(s)) {
        int object = s->kind[s->depth - 1] == '{';

        skip_space(s);
        if (peek(s) == ',') {
            s->at++;
            *more = 1;
            return 0;
        }
        if (peek(s) != (object ? '}' : ']'))
            return expected_at(s->doc, s->at, object ? "',' or '}'" : "',' or ']'");
    }
    return 0;
}

static int scan(const json_doc_t *doc, json_node_t *nodes, size_t *count)
{
    scan_t s = {.doc = doc, .nodes = nodes};
    int more = 1;

    if (doc->size >= 3 && !memcmp(doc->text, "\xEF\xBB\xBF", 3))
        s.at = 3;
    while (more) {
        if (s.depth && s.kind[s.depth - 1] == '{' && scan_key(&s))
            return -1;
        if (scan_value(&s, &more))
            return -1;
        if (!more && scan_after(&s, &more))
            return -1;
    }
    skip_space(&s);
    *count = s.count;
    return s.at == doc->size ? 0 : expected_at(doc, s.at, "the end of the file");
}

/* ---- document ------------------------------------------------------------------------------------------------------------------- */

/* Pairs nodes with cJSON's items, both in document order. */
static void link_items(json_doc_t *doc)
{
    const cJSON *parents[JSON_MAX_DEPTH + 1];
    const cJSON *item = doc->root;
    int depth = 0;

    for (size_t i = 0; i < doc->count && item; i++) {
        doc->nodes[i].item = item;
        if (item->child) {
            parents[depth++] = item;
            item = item->child;
            continue;
        }
        while (!item->next && depth)
            item = parents[--depth];
        item = item->next;
    }
}

int json_open(json_doc_t *doc, const char *file, const char *text, size_t size, gr_error_t *err)
{
    *doc = (json_doc_t){.file = file, .text = text, .size = size, .err = err};
    if (scan(doc, NULL, &doc->count))
        return -1;
    doc->nodes = gr_malloc(doc->count * sizeof *doc->nodes);
    if (!doc->nodes)
        return gr_fail_memory(err);
    scan(doc, doc->nodes, &doc->count);
    doc->root = cJSON_ParseWithLength(text, size);
    if (!doc->root)
        return gr_fail_memory(err); /* all that cJSON refuses is refused by the scan already */
    link_items(doc);
    return 0;
}

void json_close(json_doc_t *doc)
{
    cJSON_Delete(doc->root);
    gr_free(doc->nodes);
    *doc = (json_doc_t){0};
}

const json_node_t *json_first(const json_node_t *node)
{
    return node->span > 1 ? node + 1 : NULL;
}

const json_node_t *json_next(const json_node_t *parent, const json_node_t *child)
{
    const json_node_t *next = child + child->span;

    return next < parent + parent->span ? next : NULL;
}

size_t json_count(const json_node_t *node)
{
    size_t n = 0;

    for (const json_node_t *c = json_first(node); c; c = json_next(node, c))
        n++;
    return n;
}

const char *json_key(const json_node_t *node)
{
    return node->item->string ? node->item->string : "";
}

int json_is_object(const json_node_t *node)
{
    return cJSON_IsObject(node->item);
}

int json_is_array(const json_node_t *node)
{
    return cJSON_IsArray(node->item);
}

const char *json_text(const json_node_t *node)
{
    return cJSON_IsString(node->item) ? node->item->valuestring : NULL;
}

int json_member(const json_doc_t *doc, const json_node_t *obj, const char *key, const json_node_t **member)
{
    *member = NULL;
    for (const json_node_t *c = json_first(obj); c; c = json_next(obj, c)) {
        if (strcmp(json_key(c), key))
            continue;
        if (*member)
            return json_expected(doc, c, "each key only once");
        *member = c;
    }
    return 0;
}

/* ---- values --------------------------------------------------------------------------------------------------------------------- */

/* The scanned text of a number, ended by NUL; at most 63 characters. */
static int number_text(const json_doc_t *doc, const json_node_t *node, char text[64])
{
    size_t n = 0;

    if (!cJSON_IsNumber(node->item))
        return -1;
    while (n < 63 && node->at + n < doc->size && strchr("+-.eE0123456789", doc->text[node->at + n]) && doc->text[node->at + n]) {
        text[n] = doc->text[node->at + n];
        n++;
    }
    text[n] = 0;
    return 0;
}

int json_s64(const json_doc_t *doc, const json_node_t *node, int64_t *value)
{
    char text[64];
    const char *p = text;

    if (number_text(doc, node, text) || gr_parse_s64(&p, value) || *p)
        return json_expected(doc, node, "a 64-bit integer");
    return 0;
}

int json_u64(const json_doc_t *doc, const json_node_t *node, uint64_t *value)
{
    char text[64];
    const char *p = text;

    if (number_text(doc, node, text) || gr_parse_u64(&p, value) || *p)
        return json_expected(doc, node, "a 64-bit unsigned integer");
    return 0;
}

int json_f32(const json_doc_t *doc, const json_node_t *node, float *value)
{
    const char *text = json_text(node);

    if (text && (!strcmp(text, "inf") || !strcmp(text, "-inf"))) {
        *value = *text == '-' ? -INFINITY : INFINITY;
        return 0;
    }
    if (text && !strcmp(text, "nan")) {
        *value = NAN;
        return 0;
    }
    if (!cJSON_IsNumber(node->item) || fabs(node->item->valuedouble) > FLT_MAX)
        return json_expected(doc, node, "a number within f32");
    *value = (float)node->item->valuedouble;
    return 0;
}

int json_bool(const json_doc_t *doc, const json_node_t *node, int *value)
{
    const char *text = json_text(node);
    int yes = cJSON_IsTrue(node->item) || (text && !strcmp(text, "true"));
    int no = cJSON_IsFalse(node->item) || (text && !strcmp(text, "false"));

    if (cJSON_IsNumber(node->item)) {
        yes = node->item->valuedouble == 1;
        no = node->item->valuedouble == 0;
    }
    if (!yes && !no)
        return json_expected(doc, node, "0, 1, true or false");
    *value = yes;
    return 0;
}

int json_string(const json_doc_t *doc, const json_node_t *node, const char **value)
{
    *value = json_text(node);
    return *value ? 0 : json_expected(doc, node, "a string");
}
