/* A host's plugin that uses the shared library, so that unloading the plugin unloads the library,
 * if anything does. */
#include "plugin.h"

#include "product.h"

int plugin_run(void)
{
    static product_t product;
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2, .all_threads = 1};
    sinter_engine_t *engine = NULL;
    sinter_stream_t *stream = NULL;
    const bool ok = sinter_engine_create(&engine, NULL) == sinter_success &&
                    sinter_stream_create(&stream, engine, &desc) == sinter_success &&
                    product_open(&product, engine) && product_run(&product, stream);
    product_close(&product);
    sinter_stream_destroy(&stream);
    sinter_engine_destroy(&engine);
    return ok;
}
