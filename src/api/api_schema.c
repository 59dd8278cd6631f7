/* The op schema as users may ask for it: a public view of the cards in graph/op_schema.c. */
#include <sinter/sinter_graph.h>

#include "base/status.h"
#include "graph/attr.h"
#include "graph/op_schema.h"

static sinter_status_t find_card(sinter_op_kind_t kind, const op_card_t **card)
{
    *card = op_card(kind);
    return *card != NULL
               ? sinter_success
               : sg_fail(sinter_invalid_arguments, "op kind %d does not exist", (int)kind);
}

static size_t count_attrs(const op_card_t *card)
{
    size_t n = 0;
    while (card->attrs != NULL && card->attrs[n].id != sinter_op_attr_undef) {
        n++;
    }
    return n;
}

sinter_status_t sinter_op_kind_get_schema(sinter_op_kind_t kind, sinter_op_schema_t *schema)
{
    const op_card_t *card;
    SG_REQUIRE(schema != NULL);
    SG_TRY(find_card(kind, &card));
    const sinter_op_schema_t found = {.size = schema->size,
                                      .min_inputs = card->min_in,
                                      .max_inputs = card->max_in,
                                      .min_outputs = card->min_out,
                                      .max_outputs = card->max_out,
                                      .any_attr = card->any_attr,
                                      .n_attrs = count_attrs(card)};
    return sg_copy_sized(schema, &found, schema->size, sizeof(found), "sinter_op_schema_t");
}

sinter_status_t sinter_op_kind_get_attr_rule(sinter_op_kind_t kind, size_t index,
                                             sinter_op_attr_rule_t *rule)
{
    const op_card_t *card;
    SG_REQUIRE(rule != NULL);
    SG_TRY(find_card(kind, &card));
    if (index >= count_attrs(card)) {
        return sg_fail(sinter_invalid_arguments,
                       "op kind %s has %zu attributes, none has index %zu", op_name(kind),
                       count_attrs(card), index);
    }
    const attr_rule_t *row = &card->attrs[index];
    const bool one_of_many = attr_kind(row->id) == ATTR_S64_OR_S64S && !row->many;
    const sinter_op_attr_rule_t found = {
        .size = rule->size,
        .attr = row->id,
        .kind = attr_kind_name(one_of_many ? ATTR_S64 : attr_kind(row->id)),
        .required = row->required,
        .has_default = row->has_default || row->text != NULL,
        .default_number = row->number,
        .default_word = row->text,
        .words = row->words,
        .has_least = row->bounded,
        .least = row->least};
    return sg_copy_sized(rule, &found, rule->size, sizeof(found), "sinter_op_attr_rule_t");
}

/* Ports after the last one that a card describes take the same types as that port. */
static int takes(const dtype_set_t *sets, int ports, int port, sinter_data_type_t type)
{
    int last = 0;
    for (int i = 0; i <= port && i < CARD_PORTS && sets[i] != 0; i++) {
        last = i;
    }
    return port >= 0 && port < ports && dtype_in_set(type, sets[last]);
}

int sinter_op_kind_input_takes(sinter_op_kind_t kind, int port, sinter_data_type_t type)
{
    const op_card_t *card = op_card(kind);
    return card != NULL && takes(card->in, card->max_in, port, type);
}

int sinter_op_kind_output_takes(sinter_op_kind_t kind, int port, sinter_data_type_t type)
{
    const op_card_t *card = op_card(kind);
    return card != NULL && takes(card->out, card->max_out, port, type);
}
