/* LinearAttention in place: the same states as with another buffer, whichever slots are read and
 * written, for any number of threads. Wrong slots are an error, and nothing is written. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "passive.h"
#include "spec.h"

enum { BATCH = 5, SLOTS = 7, HEADS = 3, KEYS = 20, VALUES = 36, MOST_TOKENS = 6, MOST_PORTS = 9 };
enum { STATES = SLOTS * HEADS * KEYS * VALUES, MOST = BATCH * MOST_TOKENS * HEADS * VALUES };

/* beta is the bonus where the mode has one. */
typedef struct data {
    float q[MOST], k[MOST], v[MOST], state[STATES], decay[MOST], beta[MOST], a[MOST], b[MOST];
    float o[MOST], next[STATES];
    int32_t from[BATCH], to[BATCH];
} data_t;

static uint64_t seed = 1;

static unsigned draw(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void fill(float *x, size_t n, float least, float most)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = least + (most - least) * (float)draw(10000) / 10000;
    }
}

static void draw_data(data_t *d)
{
    fill(d->q, MOST, -1, 1);
    fill(d->k, MOST, -0.2F, 0.2F);
    fill(d->v, MOST, -1, 1);
    fill(d->state, STATES, -1, 1);
    fill(d->decay, MOST, -1, 0);
    fill(d->beta, MOST, 0, 1);
    fill(d->a, MOST, -0.2F, 0.2F);
    fill(d->b, MOST, -0.2F, 0.2F);
    memset(d->o, 0x5A, sizeof d->o);
    memset(d->next, 0x5A, sizeof d->next);
}

/* A permutation of the slots: those that are written. What is read: the same ones in another order,
 * or any, or none. */
static void draw_slots(data_t *d, int how)
{
    int32_t slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        const unsigned at = draw((unsigned)i + 1);
        slots[i] = slots[at];
        slots[at] = i;
    }
    memcpy(d->to, slots, sizeof d->to);
    for (int i = 0; i < BATCH; i++) {
        d->from[i] = how == 0 ? d->to[i] : how == 1 ? d->to[(i + 1) % BATCH] : (int)draw(SLOTS);
        d->from[i] = how == 3 && draw(3) == 0 ? -1 : d->from[i];
    }
    if (how == 4) { /* two cycles, and a slot that two sequences read */
        const int of[BATCH] = {1, 0, 3, 2, 2};
        for (int i = 0; i < BATCH; i++) {
            d->from[i] = d->to[of[i]];
        }
    }
    if (how == 3) {
        d->to[draw(BATCH)] = -1;
    }
}

typedef enum mode { DELTA, BONUS, LOW_RANK, MODES } mode_t;

/* The text of an op of a mode: tensors 10 and 11 are the slots, 8 and 9 the outputs. */
static void write_spec(char *spec, size_t size, mode_t mode, int tokens, const char *order)
{
    static const char *const names[MODES] = {"gated_delta", "gated_bonus log_decay=0",
                                             "gated_low_rank log_decay=0"};
    char more[64];
    if (mode == DELTA) {
        snprintf(more, sizeof more, "4:f32:5x%dx3x1 5:f32:5x%dx3x1", tokens, tokens);
    } else if (mode == BONUS) {
        snprintf(more, sizeof more, "4:f32:5x%dx3x20 5:f32:3x20", tokens);
    } else {
        snprintf(more, sizeof more, "4:f32:5x%dx3x20 6:f32:5x%dx3x20 7:f32:5x%dx1x20", tokens,
                 tokens, tokens);
    }
    snprintf(spec, size,
             "LinearAttention mode=%s 0:f32:5x%dx3x20 1:f32:5x%dx3x20 2:f32:5x%dx3x36 "
             "3:f32:7x3x36x20%s %s 10:s32:5 11:s32:5 -> 8:f32:5x%dx3x36 9:f32:7x3x36x20%s",
             names[mode], tokens, tokens, tokens, order, more, tokens, order);
}

/* turned: the elements of a column follow one another, not those of a key. */
static sinter_status_t run(data_t *d, mode_t mode, int tokens, bool turned, bool in_place,
                           int threads)
{
    const size_t n_ports = mode == LOW_RANK ? 9 : 8;
    void *const in_data[] = {d->q, d->k, d->v, d->state, d->decay, d->beta,
                             d->a, d->b, NULL, NULL,     d->from,  d->to};
    char spec[640];
    write_spec(spec, sizeof spec, mode, tokens, turned ? ":2160x720x1x36" : "");

    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_logical_tensor_t in[MOST_PORTS], out[2];
    sinter_tensor_t *inputs[MOST_PORTS], *outputs[2];
    const sinter_inplace_pair_t *pairs;
    size_t n_in = 0, n_out = 0, n_pairs = 0;
    CHECK_THAT(spec_graph(&graph, NULL, spec) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_get_input_num(partition, &n_in) == sinter_success &&
               n_in == n_ports);
    CHECK_THAT(sinter_partition_get_output_num(partition, &n_out) == sinter_success && n_out == 2);
    CHECK_THAT(sinter_partition_get_inputs(partition, n_in, in) == sinter_success);
    CHECK_THAT(sinter_partition_get_outputs(partition, n_out, out) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(compiled, &n_pairs, &pairs) ==
               sinter_success);
    CHECK_THAT(n_pairs == 1 && pairs[0].input_id == 3 && pairs[0].output_id == 9);
    for (size_t i = 0; i < n_in; i++) {
        size_t bytes = 0;
        sinter_logical_tensor_get_bytes(&in[i], &bytes);
        CHECK_THAT(sinter_tensor_create(&inputs[i], NULL, &in[i], in_data[in[i].id], bytes) ==
                   sinter_success);
    }
    for (size_t i = 0; i < n_out; i++) {
        void *const data = out[i].id == 8 ? d->o : in_place ? d->state : d->next;
        size_t bytes = 0;
        sinter_logical_tensor_get_bytes(&out[i], &bytes);
        CHECK_THAT(sinter_tensor_create(&outputs[i], NULL, &out[i], data, bytes) == sinter_success);
    }
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    const sinter_status_t status = sinter_compiled_partition_execute(
        compiled, stream, n_in, (const sinter_tensor_t *const *)inputs, n_out, outputs, NULL, 0);
    sinter_stream_destroy(&stream);
    for (size_t i = 0; i < n_in; i++) {
        sinter_tensor_destroy(&inputs[i]);
    }
    for (size_t i = 0; i < n_out; i++) {
        sinter_tensor_destroy(&outputs[i]);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return status;
}

static void test_in_place(void)
{
    data_t *d = malloc(sizeof *d), *other = malloc(sizeof *other);
    if (!CHECK(d != NULL && other != NULL, "out of memory")) {
        exit(check_finish());
    }
    for (int i = 0; i < 60 * MODES; i++) {
        const mode_t mode = (mode_t)(i / 60);
        const int tokens = i % 2 == 0 ? 1 + i % 4 : MOST_TOKENS;
        const bool turned = i / 2 % 2 != 0;
        draw_data(d);
        draw_slots(d, i / 4 % 5);
        *other = *d;
        CHECK(run(d, mode, tokens, turned, false, 1) == sinter_success, "%s",
              sinter_last_error_message());
        CHECK(run(other, mode, tokens, turned, true, 1 + i % 3) == sinter_success, "%s",
              sinter_last_error_message());
        CHECK(memcmp(d->o, other->o, sizeof d->o) == 0, "case %d: other results", i);
        CHECK(memcmp(d->next, other->state, sizeof d->next) == 0, "case %d: other states", i);
    }
    free(d);
    free(other);
}

static void test_wrong_slots(void)
{
    static const struct {
        int32_t from, to;
        const char *text;
    } wrong[] = {{7, 0, "tensor 10: slot 7 of sequence 1 is outside a dimension of 7"},
                 {-2, 0, "tensor 10: slot -2 of sequence 1 is outside a dimension of 7"},
                 {0, 7, "tensor 11: slot 7 of sequence 1 is outside a dimension of 7"},
                 {0, 3, "tensor 11: sequences 1 and 3 both write slot 3"}};
    data_t *d = malloc(sizeof *d), *before = malloc(sizeof *before);
    if (!CHECK(d != NULL && before != NULL, "out of memory")) {
        exit(check_finish());
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        draw_data(d);
        for (int b = 0; b < BATCH; b++) {
            d->from[b] = d->to[b] = b;
        }
        d->from[1] = wrong[i].from;
        d->to[1] = wrong[i].to == 0 ? 1 : wrong[i].to;
        *before = *d;
        CHECK_THAT(run(d, DELTA, 2, false, i % 2 == 0, 2) == sinter_invalid_arguments);
        CHECK(strstr(sinter_last_error_message(), wrong[i].text) != NULL, "message \"%s\"",
              sinter_last_error_message());
        CHECK(memcmp(d, before, sizeof *d) == 0, "case %d has written", (int)i);
    }
    free(d);
    free(before);
}

int main(void)
{
    test_in_place();
    test_wrong_slots();
    return check_finish();
}
