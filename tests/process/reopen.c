/* reopen PLUGIN: loads the plugin, lets it execute with a team, unloads it, looks at what the
 * process has left, and does all of that again. This program itself does not link the library. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin.h"

static int run_once(const char *path)
{
    int (*run)(void) = NULL;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = plugin != NULL ? dlsym(plugin, "plugin_run") : NULL;
    if (symbol == NULL) {
        printf("%s\n", dlerror());
        return 0;
    }
    memcpy(&run, &symbol, sizeof run); /* ISO C has no cast for this */
    const int ok = run();
    dlclose(plugin);
    return ok;
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec =
                                       100000000}; /* the team's threads stop spinning and sleep */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || (fcntl(0, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != 0)) {
        printf("usage: reopen PLUGIN\n");
        return 1;
    }
    for (int time = 1; time <= 2; time++) {
        if (!run_once(argv[1])) {
            printf("load %d: failed\n", time);
            return 1;
        }
        nanosleep(&pause, NULL);
        /* Reads all strings of the environment. */
        if (getenv("SINTER_TEST_IS_NOT_SET") != NULL || fcntl(0, F_GETFD) < 0) {
            printf("load %d: the standard input is closed\n", time);
            return 1;
        }
        printf("load %d: executed, unloaded\n", time);
    }
    return 0;
}
