#include "json.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- positions and errors -------------------------------------------------------------------- */

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
    while (n + 2 < size && n <= 24 && at < doc->size && (unsigned char)doc->text[at] >= 32 &&
           !(n > 1 && strchr(",}] ", doc->text[at]))) {
        text[n++] = doc->text[at++];
    }
    text[n++] = '\'';
    text[n] = 0;
}

static int expected_at(const json_doc_t *doc, size_t at, const char *what)
{
    char found[40];
    int line, column;

    position_at(doc, at, &line, &column);
    found_at(doc, at, found, sizeof found);
    return gr_fail(doc->err, "%s:%d:%d: expected %s, found %s", doc->file, line, column, what,
                   found);
}

int json_expected(const json_doc_t *doc, const json_node_t *node, const char *what)
{
    return expected_at(doc, node->at, what);
}

void json_position(const json_doc_t *doc, const json_node_t *node, int *line, int *column)
{
    position_at(doc, node->at, line, column);
}

/* ---- scan ------------------------------------------------------------------------------------ */

typedef struct scan {
    const json_doc_t *doc;
    size_t at;
    int depth;
    char kind[JSON_MAX_DEPTH]; /* '{' or '[' of each open container */
} scan_t;

static int peek(const scan_t *s)
{
    return s->at < s->doc->size ? (unsigned char)s->doc->text[s->at] : -1;
}

static void skip_space(scan_t *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r') {
        s->at++;
    }
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

        if (!is_hex(c)) {
            return -1;
        }
        code = code * 16 + (is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
}

/* At a backslash. Refuses what cJSON would refuse or cut short: halves of surrogate pairs and
 * NUL. */
static int scan_escape(scan_t *s)
{
    size_t start = s->at++;
    int c = peek(s), code, low;

    s->at++;
    if (c != 'u') {
        return c > 0 && strchr("\"\\/bfnrt", c) ? 0
                                                : expected_at(s->doc, start, "an escape sequence");
    }
    code = scan_hex(s);
    if (code <= 0 || (code >= 0xDC00 && code <= 0xDFFF)) {
        return expected_at(s->doc, start, "a UTF-16 escape other than NUL");
    }
    if (code < 0xD800 || code > 0xDBFF) {
        return 0;
    }
    if (s->doc->size - s->at < 6 || memcmp(s->doc->text + s->at, "\\u", 2)) {
        return expected_at(s->doc, start, "a surrogate pair");
    }
    s->at += 2;
    low = scan_hex(s);
    return low >= 0xDC00 && low <= 0xDFFF ? 0 : expected_at(s->doc, start, "a surrogate pair");
}

static int scan_string(scan_t *s)
{
    for (s->at++; peek(s) != '"';) {
        if (peek(s) < 32) {
            return expected_at(s->doc, s->at, "the end of a string");
        }
        if (peek(s) != '\\') {
            s->at++;
        } else if (scan_escape(s)) {
            return -1;
        }
    }
    s->at++;
    return 0;
}

static int scan_digits(scan_t *s)
{
    if (!is_digit(peek(s))) {
        return expected_at(s->doc, s->at, "a digit");
    }
    while (is_digit(peek(s))) {
        s->at++;
    }
    return 0;
}

static int scan_number(scan_t *s)
{
    size_t start = s->at;

    s->at += peek(s) == '-';
    if (peek(s) == '0') {
        s->at++;
    } else if (scan_digits(s)) {
        return -1;
    }
    if (peek(s) == '.') {
        s->at++;
        if (scan_digits(s)) {
            return -1;
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        if (scan_digits(s)) {
            return -1;
        }
    }
    if (s->at - start < 64) { /* the room that number_text has */
        return 0;
    }
    return expected_at(s->doc, start, "a number of at most 63 characters");
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
    if (peek(s) != '"') {
        return expected_at(s->doc, s->at, "a key in quotes");
    }
    if (scan_string(s)) {
        return -1;
    }
    skip_space(s);
    if (peek(s) != ':') {
        return expected_at(s->doc, s->at, "':'");
    }
    s->at++;
    return 0;
}

static int scan_open(scan_t *s)
{
    if (s->depth == JSON_MAX_DEPTH) {
        return expected_at(s->doc, s->at, "at most 64 levels of nesting");
    }
    s->kind[s->depth++] = s->doc->text[s->at++];
    return 0;
}

static void scan_close(scan_t *s)
{
    s->depth--;
    s->at++;
}

/* Reads the start of one value. *open = 1 if it is a container that is not closed at once. */
static int scan_value(scan_t *s, int *open)
{
    int c;

    skip_space(s);
    c = peek(s);
    *open = 0;
    if (c == '"') {
        return scan_string(s);
    }
    if (c == '-' || is_digit(c)) {
        return scan_number(s);
    }
    if (c != '{' && c != '[') {
        return scan_word(s);
    }
    if (scan_open(s)) {
        return -1;
    }
    skip_space(s);
    *open = peek(s) != (c == '{' ? '}' : ']');
    if (!*open) {
        scan_close(s);
    }
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
        if (peek(s) != (object ? '}' : ']')) {
            return expected_at(s->doc, s->at, object ? "',' or '}'" : "',' or ']'");
        }
    }
    return 0;
}

static int scan(const json_doc_t *doc)
{
    scan_t s = {.doc = doc, .at = doc->root.at};
    int more = 1;

    while (more) {
        if (s.depth && s.kind[s.depth - 1] == '{' && scan_key(&s)) {
            return -1;
        }
        if (scan_value(&s, &more)) {
            return -1;
        }
        if (!more && scan_after(&s, &more)) {
            return -1;
        }
    }
    skip_space(&s);
    return s.at == doc->size ? 0 : expected_at(doc, s.at, "the end of the file");
}

/* ---- walking over text that the scan has found to be right ----------------------------------- */

static size_t behind_space(const json_doc_t *doc, size_t at)
{
    scan_t s = {.doc = doc, .at = at};

    skip_space(&s);
    return s.at;
}

/* at: a string's opening quote. Returns the place behind the closing one; *escapes says whether
 * there is a backslash between them. */
static size_t behind_string(const json_doc_t *doc, size_t at, bool *escapes)
{
    *escapes = false;
    for (at++; doc->text[at] != '"'; at++) {
        if (doc->text[at] == '\\') {
            *escapes = true;
            at++;
        }
    }
    return at + 1;
}

/* Whether a number or a word ends before this character. */
static bool ends_scalar(char c)
{
    switch (c) {
    case '"':
    case '[':
    case ']':
    case '{':
    case '}':
    case ',':
    case ':':
    case ' ':
    case '\t':
    case '\r':
    case '\n':
    case 0:
        return true;
    default:
        return false;
    }
}

static size_t behind_value(const json_doc_t *doc, size_t at)
{
    int depth = 0;
    bool escapes;

    do {
        switch (doc->text[at]) {
        case '"':
            at = behind_string(doc, at, &escapes);
            break;
        case '{':
        case '[':
            depth++;
            at++;
            break;
        case '}':
        case ']':
            depth--;
            at++;
            break;
        default:
            at++;
            while (at < doc->size && !ends_scalar(doc->text[at])) {
                at++;
            }
            break;
        }
    } while (depth > 0);
    return at;
}

/* The child that begins at a place: a member with its key, or an element. */
static void begin_child(const json_doc_t *doc, size_t at, bool member, json_node_t *child)
{
    bool escapes;

    child->key = member ? at : 0;
    if (member) {
        at = behind_space(doc, behind_string(doc, at, &escapes)) + 1; /* behind the colon */
    }
    child->at = behind_space(doc, at);
}

bool json_first(const json_doc_t *doc, const json_node_t *node, json_node_t *child)
{
    const bool object = json_is_object(doc, node);
    size_t at;

    if (!object && !json_is_array(doc, node)) {
        return false;
    }
    at = behind_space(doc, node->at + 1);
    if (doc->text[at] == '}' || doc->text[at] == ']') {
        return false;
    }
    begin_child(doc, at, object, child);
    return true;
}

bool json_next(const json_doc_t *doc, json_node_t *child)
{
    const size_t at = behind_space(doc, behind_value(doc, child->at));

    if (doc->text[at] != ',') {
        return false;
    }
    begin_child(doc, behind_space(doc, at + 1), child->key != 0, child);
    return true;
}

size_t json_count(const json_doc_t *doc, const json_node_t *node)
{
    json_node_t c;
    size_t n = 0;

    for (bool more = json_first(doc, node, &c); more; more = json_next(doc, &c)) {
        n++;
    }
    return n;
}

/* ---- document -------------------------------------------------------------------------------- */

int json_open(json_doc_t *doc, const char *file, const char *text, size_t size, gr_error_t *err)
{
    const bool mark = size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3);

    *doc = (json_doc_t){.file = file, .text = text, .size = size, .err = err};
    doc->root.at = mark ? 3 : 0;
    if (scan(doc)) {
        return -1;
    }
    doc->root.at = behind_space(doc, doc->root.at);
    return 0;
}

void json_close(json_doc_t *doc)
{
    gr_arena_free(&doc->strings);
    *doc = (json_doc_t){0};
}

bool json_is_object(const json_doc_t *doc, const json_node_t *node)
{
    return doc->text[node->at] == '{';
}

bool json_is_array(const json_doc_t *doc, const json_node_t *node)
{
    return doc->text[node->at] == '[';
}

/* A string with escapes as cJSON decodes it; NULL without memory, as all that cJSON refuses is
 * refused by the scan already. */
static cJSON *decode(const json_doc_t *doc, size_t at, size_t end)
{
    cJSON *item = cJSON_ParseWithLength(doc->text + at, end - at);

    if (!item) {
        gr_fail_memory(doc->err);
    }
    return item;
}

static const char *string_at(json_doc_t *doc, size_t at)
{
    bool escapes;
    const size_t end = behind_string(doc, at, &escapes);
    cJSON *item = escapes ? decode(doc, at, end) : NULL;
    char *copy = NULL;

    if (item) {
        copy = gr_arena_strdup(&doc->strings, item->valuestring);
    } else if (!escapes) {
        copy = gr_arena_alloc(&doc->strings, end - at - 1, 1);
        if (copy) {
            memcpy(copy, doc->text + at + 1, end - at - 2);
        }
    }
    cJSON_Delete(item);
    if (!copy) {
        gr_fail_memory(doc->err);
    }
    return copy;
}

const char *json_key(json_doc_t *doc, const json_node_t *node)
{
    return node->key ? string_at(doc, node->key) : "";
}

const char *json_text(json_doc_t *doc, const json_node_t *node)
{
    return doc->text[node->at] == '"' ? string_at(doc, node->at) : NULL;
}

/* 1 if a member has this key, which is written without escapes; -1 without memory. */
static int has_key(const json_doc_t *doc, const json_node_t *node, const char *key)
{
    bool escapes;
    const size_t n = strlen(key), end = behind_string(doc, node->key, &escapes);
    cJSON *item;
    int equal;

    if (!escapes) {
        return end - node->key - 2 == n && !memcmp(doc->text + node->key + 1, key, n);
    }
    item = decode(doc, node->key, end);
    if (!item) {
        return -1;
    }
    equal = !strcmp(item->valuestring, key);
    cJSON_Delete(item);
    return equal;
}

int json_member(const json_doc_t *doc, const json_node_t *obj, const char *key, json_node_t *member)
{
    json_node_t c;

    *member = (json_node_t){0};
    for (bool more = json_first(doc, obj, &c); more; more = json_next(doc, &c)) {
        const int equal = c.key ? has_key(doc, &c, key) : 0;

        if (equal < 0) {
            return -1;
        }
        if (equal && member->at) {
            return json_expected(doc, &c, "each key only once");
        }
        if (equal) {
            *member = c;
        }
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_number(const json_doc_t *doc, const json_node_t *node)
{
    return doc->text[node->at] == '-' || is_digit((unsigned char)doc->text[node->at]);
}

/* The scanned text of a number, ended by NUL; at most 63 characters. */
static int number_text(const json_doc_t *doc, const json_node_t *node, char text[64])
{
    size_t n = 0;

    if (!is_number(doc, node)) {
        return -1;
    }
    while (n < 63 && node->at + n < doc->size &&
           strchr("+-.eE0123456789", doc->text[node->at + n]) && doc->text[node->at + n]) {
        text[n] = doc->text[node->at + n];
        n++;
    }
    text[n] = 0;
    return 0;
}

static bool is_word(const json_doc_t *doc, const json_node_t *node, const char *word)
{
    const size_t n = strlen(word);

    return doc->size - node->at >= n && !memcmp(doc->text + node->at, word, n);
}

int json_s64(const json_doc_t *doc, const json_node_t *node, int64_t *value)
{
    char text[64];
    const char *p = text;

    if (number_text(doc, node, text) || gr_parse_s64(&p, value) || *p) {
        return json_expected(doc, node, "a 64-bit integer");
    }
    return 0;
}

int json_u64(const json_doc_t *doc, const json_node_t *node, uint64_t *value)
{
    char text[64];
    const char *p = text;

    if (number_text(doc, node, text) || gr_parse_u64(&p, value) || *p) {
        return json_expected(doc, node, "a 64-bit unsigned integer");
    }
    return 0;
}

/* strtod reads the decimal point of the locale, which may be several bytes. */
static double real_of(const char *digits)
{
    const char *point = localeconv()->decimal_point;
    const size_t whole = strcspn(digits, ".");
    char text[128];

    if (!digits[whole] || strlen(point) > 16) {
        return strtod(digits, NULL);
    }
    snprintf(text, sizeof text, "%.*s%s%s", (int)whole, digits, point, digits + whole + 1);
    return strtod(text, NULL);
}

int json_f32(json_doc_t *doc, const json_node_t *node, float *value)
{
    const char *text = json_text(doc, node);
    char digits[64];
    double number;

    if (text && (!strcmp(text, "inf") || !strcmp(text, "-inf"))) {
        *value = *text == '-' ? -INFINITY : INFINITY;
        return 0;
    }
    if (text && !strcmp(text, "nan")) {
        *value = NAN;
        return 0;
    }
    if (number_text(doc, node, digits)) {
        return json_expected(doc, node, "a number within f32");
    }
    number = real_of(digits);
    if (fabs(number) > FLT_MAX) {
        return json_expected(doc, node, "a number within f32");
    }
    *value = (float)number;
    return 0;
}

int json_bool(json_doc_t *doc, const json_node_t *node, int *value)
{
    const char *text = json_text(doc, node);
    int yes = is_word(doc, node, "true") || (text && !strcmp(text, "true"));
    int no = is_word(doc, node, "false") || (text && !strcmp(text, "false"));
    char digits[64];

    if (!number_text(doc, node, digits)) {
        yes = real_of(digits) == 1;
        no = real_of(digits) == 0;
    }
    if (!yes && !no) {
        return json_expected(doc, node, "0, 1, true or false");
    }
    *value = yes;
    return 0;
}

int json_string(json_doc_t *doc, const json_node_t *node, const char **value)
{
    *value = json_text(doc, node);
    return *value ? 0 : json_expected(doc, node, "a string");
}
