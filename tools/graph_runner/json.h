/* Reading JSON with positions and exact integers, in no memory beyond the text.
 *
 * An iterative scan checks the grammar of the whole text first and refuses deep nesting. A node is
 * a place in that text: children and members are found by walking over it, and integers are read
 * from it. No tree is built, so that a file takes little more memory than its size, however many
 * values it packs into a byte. Strings with escapes are decoded by cJSON. */
#ifndef GR_JSON_H
#define GR_JSON_H

#include "base.h"

#include <stdbool.h>

enum { JSON_MAX_DEPTH = 64 };

typedef struct json_node {
    size_t key; /* byte offset of a member's key, 0 for an element of an array */
    size_t at;  /* byte offset of the value; 0 for an absent member */
} json_node_t;

typedef struct json_doc {
    const char *file, *text;
    size_t size;
    json_node_t root;
    gr_arena_t strings; /* decoded strings that the loader asked for */
    gr_error_t *err;
} json_doc_t;

/* text need not end in NUL and must outlive doc, as must err, which gets "file:line:col:
 * expected X". Close also after a failure. */
int json_open(json_doc_t *doc, const char *file, const char *text, size_t size, gr_error_t *err);
void json_close(json_doc_t *doc);

/* "file:line:col: expected <what>, found <what is there>". Returns -1. */
int json_expected(const json_doc_t *doc, const json_node_t *node, const char *what);
void json_position(const json_doc_t *doc, const json_node_t *node, int *line, int *column);

/* The children of an array or object in turn; false at the end. */
bool json_first(const json_doc_t *doc, const json_node_t *node, json_node_t *child);
bool json_next(const json_doc_t *doc, json_node_t *child);
size_t json_count(const json_doc_t *doc, const json_node_t *node);

bool json_is_object(const json_doc_t *doc, const json_node_t *node);
bool json_is_array(const json_doc_t *doc, const json_node_t *node);
/* A member's key, and the text of a string; both live until the document is closed. NULL without
 * memory, which is then in the document's error, and for a node that is no string. */
const char *json_key(json_doc_t *doc, const json_node_t *node);
const char *json_text(json_doc_t *doc, const json_node_t *node);

/* member->at = 0 if obj has no such key; a key given twice fails. */
int json_member(const json_doc_t *doc, const json_node_t *obj, const char *key,
                json_node_t *member);

/* Each fails with a position unless the node is exactly that. */
int json_s64(const json_doc_t *doc, const json_node_t *node, int64_t *value);
int json_u64(const json_doc_t *doc, const json_node_t *node, uint64_t *value);
/* Numbers within f32, and the strings "inf", "-inf", "nan". */
int json_f32(json_doc_t *doc, const json_node_t *node, float *value);
/* 0, 1, true, false, "true", "false". */
int json_bool(json_doc_t *doc, const json_node_t *node, int *value);
int json_string(json_doc_t *doc, const json_node_t *node, const char **value);

#endif
