/* Graphs are written and read alike in a locale whose decimal point is two bytes long. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "model.h"
#include "spec.h"

/* Makes the locale of Pashto in a folder; false: the system cannot. */
static bool use_locale(const char *folder)
{
    char command[256];
    snprintf(command, sizeof command, "localedef -i ps_AF -f UTF-8 %s/ps_AF > %s/log 2>&1", folder,
             folder);
    if (system(command) != 0 || setenv("LOCPATH", folder, 1) != 0) {
        return false;
    }
    return setlocale(LC_ALL, "ps_AF") != NULL && strlen(localeconv()->decimal_point) > 1;
}

static void test_round_trip(const char *path, const sinter_graph_t *graph)
{
    char text[4096] = "";
    gr_error_t err = {{0}, 0};
    model_t model;
    CHECK_THAT(sinter_graph_dump(graph, path) == sinter_success);
    FILE *f = fopen(path, "r");
    CHECK_THAT(f != NULL && fread(text, 1, sizeof text - 1, f) > 0);
    CHECK(strstr(text, "[0.5, 0.1, 1e-20, -1.5e+20]") != NULL, "%s", text);
    fclose(f);
    CHECK(model_load_file(&model, path, &err) == 0, "%s", err.text);
    const orc_attr_t *scales = model.n_ops > 0 ? model.ops[0].attrs : NULL;
    while (scales != NULL && scales->id != sinter_op_attr_scales) {
        scales++;
    }
    CHECK_THAT(scales != NULL && scales->n == 4 && scales->f32[0] == 0.5f &&
               scales->f32[1] == 0.1f && scales->f32[2] == 1e-20f && scales->f32[3] == -1.5e20f);
    model_free(&model);
}

int main(void)
{
    char folder[] = "locale-XXXXXX", command[64], path[64];
    sinter_graph_t *graph = NULL;
    CHECK_THAT(mkdtemp(folder) != NULL);
    CHECK_THAT(spec_graph(&graph, NULL,
                          "Quantize qtype=per_channel axis=0 scales=0.5,0.1,1e-20,-1.5e20 "
                          "zps=0,0,0,0 1:f32:4 -> 2:s8:4") == sinter_success);
    snprintf(path, sizeof path, "%s/graph.json", folder);
    test_round_trip(path, graph);
    if (use_locale(folder)) {
        test_round_trip(path, graph);
    } else {
        check_skip("a locale with a decimal point of several bytes: localedef cannot make ps_AF");
    }
    sinter_graph_destroy(&graph);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0);
    return check_finish();
}
