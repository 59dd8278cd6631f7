/* A library for LD_PRELOAD: the program gets the backend that GGML_BACKEND_PATH names. Programs of
 * llama.cpp that are linked with the CPU backend load none by themselves. */
#include "ggml-backend.h"

__attribute__((constructor)) static void load(void)
{
    ggml_backend_load_all();
}
