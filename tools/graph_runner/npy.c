#include "npy.h"

#include "../../tests/oracle/oracle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct npy_type {
    const char *descr;
    sinter_data_type_t type;
} npy_type_t;

static const npy_type_t types[] = {
    {"<f2", sinter_f16}, {"<f4", sinter_f32}, {"<f8", sinter_f64}, {"|i1", sinter_s8},
    {"|u1", sinter_u8},  {"<i4", sinter_s32}, {"<i8", sinter_s64}, {"|b1", sinter_boolean},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- write ----------------------------------------------------------------------------------- */

static FILE *open_in(const char *dir, const char *name, const char *ending, gr_error_t *err)
{
    char path[4096];
    FILE *f;

    if (snprintf(path, sizeof path, "%s/%s%s", dir, name, ending) >= (int)sizeof path) {
        gr_fail(err, "%s: path too long", dir);
        return NULL;
    }
    f = fopen(path, "wb");
    if (!f) {
        gr_fail(err, "%s: %s", path, strerror(errno));
    }
    return f;
}

static int close_written(FILE *f, const char *name, gr_error_t *err)
{
    int bad = ferror(f);

    return fclose(f) || bad ? gr_fail(err, "%s: writing failed", name) : 0;
}

static void write_list(FILE *f, const int64_t *values, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(f, "%s%lld", i ? ", " : "", (long long)values[i]);
    }
}

static int write_raw(const char *dir, const char *name, const sinter_logical_tensor_t *lt,
                     const void *data, size_t bytes, gr_error_t *err)
{
    FILE *f = open_in(dir, name, ".bin", err);

    if (!f) {
        return -1;
    }
    fwrite(data, 1, bytes, f);
    if (close_written(f, name, err)) {
        return -1;
    }
    f = open_in(dir, name, ".json", err);
    if (!f) {
        return -1;
    }
    fprintf(f, "{\"id\": %llu, \"dtype\": \"%s\", \"shape\": [", (unsigned long long)lt->id,
            gr_dtype(lt->data_type)->name);
    write_list(f, lt->dims, lt->ndims);
    fprintf(f, "], \"stride\": [");
    write_list(f, lt->strides, lt->ndims);
    fprintf(f, "], \"bytes\": %zu}\n", bytes);
    return close_written(f, name, err);
}

/* The header is padded so that the data starts at a multiple of 64. */
static void write_header(FILE *f, const char *descr, const sinter_logical_tensor_t *lt)
{
    char text[1024];
    int n =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    int padded;

    for (int i = 0; i < lt->ndims; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%lld,", (long long)lt->dims[i]);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    padded = (10 + n + 1 + 63) / 64 * 64 - 10;
    fwrite("\x93NUMPY\1\0", 1, 8, f);
    fputc(padded & 255, f);
    fputc(padded >> 8, f);
    fprintf(f, "%s%*s\n", text, padded - n - 1, "");
}

int npy_write(const char *dir, const char *name, const sinter_logical_tensor_t *lt,
              const void *data, size_t bytes, gr_error_t *err)
{
    size_t element = (size_t)gr_dtype(lt->data_type)->bits / 8;
    int64_t n = gr_elements(lt);
    int i = 0;
    FILE *f;

    while (i < N_TYPES && types[i].type != lt->data_type) {
        i++;
    }
    if (i == N_TYPES) {
        return write_raw(dir, name, lt, data, bytes, err);
    }
    f = open_in(dir, name, ".npy", err);
    if (!f) {
        return -1;
    }
    write_header(f, types[i].descr, lt);
    if (gr_is_dense(lt)) {
        fwrite(data, element, (size_t)n, f);
    } else {
        for (int64_t k = 0; k < n; k++) {
            fwrite((const char *)data + (size_t)gr_offset(lt, k) * element, element, 1, f);
        }
    }
    return close_written(f, name, err);
}

/* ---- read ------------------------------------------------------------------------------------ */

static char *read_file(const char *path, size_t *size, gr_error_t *err)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long n = -1;

    if (!f) {
        gr_fail(err, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (!fseek(f, 0, SEEK_END)) {
        n = ftell(f);
    }
    rewind(f);
    if (n >= 0) {
        text = gr_malloc((size_t)n + 1);
    }
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) {
        gr_fail(err, "%s: cannot be read", path);
        gr_free(text);
        text = NULL;
    } else {
        text[n] = 0;
        *size = (size_t)n;
    }
    fclose(f);
    return text;
}

/* The place behind 'key': in a header that ends in NUL, or NULL. */
static const char *header_value(const char *header, const char *key)
{
    const char *p = strstr(header, key);

    if (!p) {
        return NULL;
    }
    p += strlen(key);
    return p + strspn(p, " :");
}

static int parse_header(const char *header, const sinter_logical_tensor_t *lt,
                        sinter_data_type_t *type)
{
    const char *descr = header_value(header, "'descr'"), *shape = header_value(header, "'shape'");
    const char *order = header_value(header, "'fortran_order'");
    int i = 0;

    if (!descr || !shape || !order || strncmp(order, "False", 5) || *descr++ != '\'' ||
        *shape++ != '(') {
        return -1;
    }
    while (i < N_TYPES && strncmp(descr, types[i].descr, 3)) {
        i++;
    }
    if (i == N_TYPES) {
        return -1;
    }
    *type = types[i].type;
    for (int d = 0; d < lt->ndims; d++, shape += strspn(shape, ", ")) {
        int64_t dim;

        if (gr_parse_s64(&shape, &dim) || dim != lt->dims[d]) {
            return -1;
        }
    }
    return *shape == ')' ? 0 : -1;
}

static int read_npy(const char *path, char *text, size_t size, const sinter_logical_tensor_t *lt,
                    void *data, gr_error_t *err)
{
    size_t header = size < 10 ? 0 : (unsigned char)text[8] + 256u * (unsigned char)text[9];
    size_t element, to = (size_t)gr_dtype(lt->data_type)->bits / 8;
    int64_t n = gr_elements(lt);
    sinter_data_type_t type;
    const char *from;

    if (size < 10 + header || text[6] != 1 || header == 0) {
        return gr_fail(err, "%s: expected a .npy file of version 1.0", path);
    }
    text[10 + header - 1] = 0;
    if (parse_header(text + 10, lt, &type)) {
        return gr_fail(err,
                       "%s: expected %d dims as tensor %llu has them, C order and one of f2 f4 f8 "
                       "i1 u1 i4 i8 b1",
                       path, lt->ndims, (unsigned long long)lt->id);
    }
    element = (size_t)gr_dtype(type)->bits / 8;
    from = text + 10 + header;
    if (size - 10 - header < (size_t)n * element) {
        return gr_fail(err, "%s: too short", path);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = gr_offset(lt, i);

        if (type == lt->data_type) {
            memcpy((char *)data + (size_t)at * to, from + (size_t)i * element, element);
        } else {
            orc_encode(lt->data_type, data, at, orc_decode(type, from, i));
        }
    }
    return 0;
}

int npy_read(const char *path, const sinter_logical_tensor_t *lt, void *data, size_t bytes,
             gr_error_t *err)
{
    size_t size = 0;
    char *text = read_file(path, &size, err);
    int status = 0;

    if (!text) {
        return -1;
    }
    if (size >= 6 && !memcmp(text, "\x93NUMPY", 6)) {
        status = read_npy(path, text, size, lt, data, err);
    } else if (size == bytes) {
        memcpy(data, text, bytes);
    } else {
        status = gr_fail(err, "%s: expected a .npy file or exactly %zu bytes", path, bytes);
    }
    gr_free(text);
    return status;
}
