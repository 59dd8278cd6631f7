/* The one function of the plugin that reopen.c loads. */
#ifndef SINTER_TESTS_PLUGIN_H
#define SINTER_TESTS_PLUGIN_H

/* Executes a product on an engine of its own with a team of two threads; 1: the result is right. */
int plugin_run(void);

#endif
