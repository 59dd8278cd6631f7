/* GGUF files: fields with names, then tensors with names, then their data. No byte of the file is
 * trusted: a cursor refuses to leave it. */
#include "llm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_F32 = 6, TYPE_STRING = 8, TYPE_ARRAY = 9, TYPE_F64 = 12, TYPES };
/* Bytes of a value; a sign. */
static const uint8_t value_bytes[TYPES + 1] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* How a type of tensor stores numbers: in blocks of a scale, perhaps an offset, and codes. */
typedef struct block {
    uint32_t type;
    sinter_data_type_t codes, scales;
    uint64_t elements, bytes, codes_at;
    uint8_t flip; /* bits of two codes in one byte that Sinter has the other way round */
} block_t;

static const block_t blocks[] = {
    {0, sinter_f32, sinter_data_type_undef, 1, 4, 0, 0},   /* F32 */
    {1, sinter_f16, sinter_data_type_undef, 1, 2, 0, 0},   /* F16 */
    {30, sinter_bf16, sinter_data_type_undef, 1, 2, 0, 0}, /* BF16 */
    {2, sinter_s4, sinter_f16, 32, 18, 2, 0x88},           /* Q4_0: scale * (code - 8) */
    {3, sinter_u4, sinter_f16, 32, 20, 4, 0},              /* Q4_1: scale * code + offset */
    {8, sinter_s8, sinter_f16, 32, 34, 2, 0},              /* Q8_0: scale * code */
};

const char *failure(const char *format, ...)
{
    static _Thread_local char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

/* ---- the cursor ------------------------------------------------------------------------------ */

typedef struct cursor {
    const uint8_t *at, *end;
    bool bad; /* the file ended too early */
} cursor_t;

static const uint8_t *take(cursor_t *c, uint64_t bytes)
{
    const uint8_t *at = c->at;
    if (c->bad || bytes > (uint64_t)(c->end - at)) {
        c->bad = true;
        return NULL;
    }
    c->at += bytes;
    return at;
}

/* An unsigned number; 0 after the end. */
static uint64_t number(cursor_t *c, unsigned bytes)
{
    const uint8_t *p = take(c, bytes);
    uint64_t n = 0;
    for (unsigned i = 0; p != NULL && i < bytes; i++) {
        n |= (uint64_t)p[i] << (8 * i);
    }
    return n;
}

static string_t string(cursor_t *c)
{
    const uint64_t size = number(c, 8);
    const char *text = (const char *)take(c, size);
    return (string_t){text, text != NULL ? (size_t)size : 0};
}

bool string_begins(string_t s, const char *text)
{
    return s.text != NULL && s.size >= strlen(text) && memcmp(s.text, text, strlen(text)) == 0;
}

bool string_is(string_t s, const char *text)
{
    return s.size == strlen(text) && string_begins(s, text);
}

static void skip_value(cursor_t *c, uint64_t type)
{
    uint64_t count = 1;
    if (type == TYPE_ARRAY) {
        type = number(c, 4);
        count = number(c, 8);
    }
    if (type > TYPE_F64 || type == TYPE_ARRAY) {
        c->bad = true;
    } else if (type != TYPE_STRING) {
        c->bad = c->bad || count > (uint64_t)(c->end - c->at) / value_bytes[type];
        take(c, count * value_bytes[type]);
    }
    for (uint64_t i = 0; type == TYPE_STRING && i < count && !c->bad; i++) {
        string(c);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static cursor_t cursor_at(const gguf_t *g, size_t at)
{
    return (cursor_t){g->data + at, g->data + g->bytes, false};
}

/* A cursor at the value of a field, with its type; bad if there is no such field. */
static cursor_t field(const gguf_t *g, const char *key, uint64_t *type)
{
    cursor_t c = cursor_at(g, g->fields_at);
    for (uint64_t i = 0; i < g->n_fields && !c.bad; i++) {
        const string_t name = string(&c);
        *type = number(&c, 4);
        if (string_is(name, key)) {
            return c;
        }
        skip_value(&c, *type);
    }
    c.bad = true;
    return c;
}

const char *gguf_number(const gguf_t *g, const char *key, double *value)
{
    uint64_t type = 0;
    cursor_t c = field(g, key, &type);
    if (c.bad) {
        return NULL;
    }
    if (type > TYPE_F64 || value_bytes[type] == 0) {
        return failure("%s is no number", key);
    }
    const uint64_t bits = number(&c, value_bytes[type]);
    if (type == TYPE_F32) {
        const uint32_t low = (uint32_t)bits;
        float f;
        memcpy(&f, &low, sizeof f);
        *value = (double)f;
    } else if (type == TYPE_F64) {
        memcpy(value, &bits, sizeof *value);
    } else {
        *value = (double)bits; /* no number that is asked for may be negative */
    }
    return NULL; /* gguf_open has seen that the value is there */
}

const char *gguf_string(const gguf_t *g, const char *key, string_t *value)
{
    uint64_t type = 0;
    cursor_t c = field(g, key, &type);
    if (c.bad) {
        return NULL;
    }
    if (type != TYPE_STRING) {
        return failure("%s is no string", key);
    }
    *value = string(&c);
    return NULL;
}

const char *gguf_strings(const gguf_t *g, const char *key, string_t **list, size_t *count)
{
    uint64_t type = 0;
    cursor_t c = field(g, key, &type);
    if (c.bad || type != TYPE_ARRAY || number(&c, 4) != TYPE_STRING) {
        return failure("the file has no list of strings %s", key);
    }
    const uint64_t n = number(&c, 8);
    if (c.bad || n > (uint64_t)(c.end - c.at) / 8) { /* each has a length of 8 bytes */
        return failure("%s is longer than the file", key);
    }
    string_t *strings = malloc((size_t)(n + 1) * sizeof *strings);
    for (uint64_t i = 0; strings != NULL && i < n; i++) {
        strings[i] = string(&c);
    }
    if (strings == NULL || c.bad) {
        free(strings);
        return failure(c.bad ? "%s is longer than the file" : "no memory for %s", key);
    }
    *list = strings;
    *count = (size_t)n;
    return NULL;
}

const char *gguf_open(gguf_t *g, const void *data, size_t bytes)
{
    *g = (gguf_t){.data = data, .bytes = bytes};
    cursor_t c = cursor_at(g, 0);
    const bool magic = number(&c, 4) == 0x46554747;
    const uint64_t version = number(&c, 4);
    if (!magic || version < 2 || version > 3) {
        return failure("not a GGUF file of version 2 or 3");
    }
    g->n_tensors = number(&c, 8);
    g->n_fields = number(&c, 8);
    g->fields_at = (size_t)(c.at - g->data);
    for (uint64_t i = 0; i < g->n_fields && !c.bad; i++) {
        string(&c);
        skip_value(&c, number(&c, 4));
    }
    g->tensors_at = (size_t)(c.at - g->data);
    for (uint64_t i = 0; i < g->n_tensors && !c.bad; i++) {
        string(&c);
        take(&c, 8 * number(&c, 4));
        take(&c, 12);
    }
    double alignment = 32.0;
    TRY(gguf_number(g, "general.alignment", &alignment));
    if (c.bad || !(alignment >= 1.0 && alignment <= 65536.0)) {
        return failure("the file is damaged: its lists end beyond it");
    }
    g->alignment = (uint64_t)alignment;
    const uint64_t head = (uint64_t)(c.at - g->data);
    g->data_at = (size_t)((head + g->alignment - 1) / g->alignment * g->alignment);
    return NULL;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Two codes of 4 bits in each byte: a block has the first half of its codes in the low bits and
 * the second half in the high bits, Sinter has neighbours side by side. */
static void unpack_nibbles(const uint8_t *from, uint8_t flip, uint8_t *to)
{
    for (int i = 0; i < 8; i++) {
        to[i] = (uint8_t)((from[2 * i] & 15) | (from[2 * i + 1] & 15) << 4) ^ flip;
        to[i + 8] = (uint8_t)(from[2 * i] >> 4 | (from[2 * i + 1] & 0xF0)) ^ flip;
    }
}

/* Takes blocks apart into codes, scales and offsets. */
static const char *unpack(weight_t *w, const block_t *b, const uint8_t *from)
{
    const size_t count = (size_t)w->n * (size_t)(w->k / w->group), size = b->bytes - b->codes_at;
    uint8_t *codes = malloc(count * (size + 4) + 1);
    if (codes == NULL) {
        return failure("no memory for a weight");
    }
    uint8_t *scales = codes + count * size, *minima = scales + 2 * count;
    for (size_t i = 0; i < count; i++, from += b->bytes) {
        memcpy(scales + 2 * i, from, 2);
        if (w->offsets) {
            memcpy(minima + 2 * i, from + 2, 2);
        }
        if (size == 16) {
            unpack_nibbles(from + b->codes_at, b->flip, codes + 16 * i);
        } else {
            memcpy(codes + size * i, from + b->codes_at, size);
        }
    }
    w->codes = w->memory = codes;
    w->scales = scales;
    w->minima = w->offsets ? minima : NULL;
    return NULL;
}

static const block_t *block_of(uint64_t type)
{
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (blocks[i].type == type) {
            return &blocks[i];
        }
    }
    return NULL;
}

/* Reads the dims, type and place of a tensor, behind its name. */
static const char *read_weight(const gguf_t *g, cursor_t *c, const char *name, weight_t *w)
{
    const uint64_t ndims = number(c, 4);
    const uint64_t k = number(c, 8), n = ndims == 2 ? number(c, 8) : 1;
    const uint64_t type = number(c, 4), offset = number(c, 8);
    const block_t *b = block_of(type);
    if (c->bad || ndims < 1 || ndims > 2 || b == NULL) {
        return failure("%s: type %u in %u dims is not read", name, (unsigned)type, (unsigned)ndims);
    }
    if (k == 0 || n == 0 || k >> 31 || n >> 31 || k % b->elements != 0) {
        return failure("%s: the dims do not fit the type", name);
    }
    const uint64_t bytes = k / b->elements * n * b->bytes; /* less than 2^62 * 20 / 32 * 2 */
    if (offset > g->bytes || g->data_at > g->bytes - offset ||
        bytes > g->bytes - offset - g->data_at) {
        return failure("%s ends beyond the file", name);
    }
    *w = (weight_t){.type = b->codes,
                    .scale_type = b->scales,
                    .offsets = b->codes_at == 4,
                    .n = (int64_t)n,
                    .k = (int64_t)k,
                    .group = (int64_t)b->elements,
                    .codes = g->data + g->data_at + offset};
    return b->elements == 1 ? NULL : unpack(w, b, w->codes);
}

/* A cursor behind the name of a tensor; bad if there is none. */
static cursor_t find(const gguf_t *g, const char *name)
{
    cursor_t c = cursor_at(g, g->tensors_at);
    for (uint64_t i = 0; i < g->n_tensors && !c.bad; i++) {
        if (string_is(string(&c), name)) {
            return c;
        }
        take(&c, 8 * number(&c, 4));
        take(&c, 12);
    }
    c.bad = true;
    return c;
}

bool gguf_has_weight(const gguf_t *g, const char *name)
{
    return !find(g, name).bad;
}

const char *gguf_weight(const gguf_t *g, const char *name, weight_t *w)
{
    cursor_t c = find(g, name);
    return c.bad ? failure("the file has no tensor %s", name) : read_weight(g, &c, name, w);
}

const char *gguf_check_names(const gguf_t *g, bool (*known)(string_t name, bool tensor))
{
    cursor_t c = cursor_at(g, g->fields_at);
    for (uint64_t i = 0; i < g->n_fields + g->n_tensors && !c.bad; i++) {
        const bool tensor = i >= g->n_fields;
        const string_t name = string(&c);
        if (tensor) {
            take(&c, 8 * number(&c, 4));
            take(&c, 12);
        } else {
            skip_value(&c, number(&c, 4));
        }
        if (!known(name, tensor)) {
            return failure("the engine does not know the %s %.*s, which may change results",
                           tensor ? "tensor" : "key", (int)(name.size < 200 ? name.size : 200),
                           name.text);
        }
    }
    return NULL;
}

void weight_free(weight_t *w)
{
    free(w->memory);
    *w = (weight_t){.type = sinter_data_type_undef};
}
