/* Reading JSON with positions and exact integers.
 *
 * cJSON builds the tree, but keeps no positions and holds numbers as doubles. So an iterative scan checks the grammar first, refuses deep
 * nesting before cJSON recurses, and notes where each value starts; a value's node pairs that place with cJSON's item. Integers are read
 * from the text. Nodes are in document order: the first child follows its parent, the next sibling follows the whole subtree. */
#ifndef GR_JSON_H
#define GR_JSON_H

#include "base.h"

struct cJSON;

enum { JSON_MAX_DEPTH = 64 };

typedef struct json_node {
    const struct cJSON *item;
    size_t at;   /* byte offset of the value */
    size_t span; /* nodes in its subtree, itself included */
} json_node_t;

typedef struct json_doc {
    const char *file, *text;
    size_t size, count;
    json_node_t *nodes;
    struct cJSON *root;
    gr_error_t *err;
} json_doc_t;

/* text need not end in NUL and must outlive doc, as must err, which gets "file:line:col: expected X". Close also after a failure. */
int json_open(json_doc_t *doc, const char *file, const char *text, size_t size, gr_error_t *err);
void json_close(json_doc_t *doc);

/* "file:line:col: expected <what>, found <what is there>". Returns -1. */
int json_expected(const json_doc_t *doc, const json_node_t *node, const char *what);
void json_position(const json_doc_t *doc, const json_node_t *node, int *line, int *column);

/* Children of an array or object; NULL at the end. */
const json_node_t *json_first(const json_node_t *node);
const json_node_t *json_next(const json_node_t *parent, const json_node_t *child);
size_t json_count(const json_node_t *node);
const char *json_key(const json_node_t *node);

int json_is_object(const json_node_t *node);
int json_is_array(const json_node_t *node);
/* The text of a string, NULL for anything else. */
const char *json_text(const json_node_t *node);

/* *member = NULL if obj has no such key; a key given twice fails. */
int json_member(const json_doc_t *doc, const json_node_t *obj, const char *key, const json_node_t **member);

/* Each fails with a position unless the node is exactly that. */
int json_s64(const json_doc_t *doc, const json_node_t *node, int64_t *value);
int json_u64(const json_doc_t *doc, const json_node_t *node, uint64_t *value);
/* Numbers within f32, and the strings "inf", "-inf", "nan". */
int json_f32(const json_doc_t *doc, const json_node_t *node, float *value);
/* 0, 1, true, false, "true", "false". */
int json_bool(const json_doc_t *doc, const json_node_t *node, int *value);
int json_string(const json_doc_t *doc, const json_node_t *node, const char **value);

#endif
