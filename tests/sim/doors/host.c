/*
 * host MODE PLUGIN [ARGUMENT]: opens the plugin in that MODE (words of local, global, now,
 * deepbind, base, in any number, joined by +) and runs its plugin_run.
 */
#include <dlfcn.h>
#include <string.h>

#include "check.h"

static int flags_of(const char *mode)
{
	return (strstr(mode, "now") ? RTLD_NOW : RTLD_LAZY) |
	       (strstr(mode, "global") ? RTLD_GLOBAL : RTLD_LOCAL) |
	       (strstr(mode, "deepbind") ? RTLD_DEEPBIND : 0);
}

int main(int argc, char **argv)
{
	void (*run)(const char *argument);
	void *plugin;

	CHECK_SAYING(argc >= 3, "usage: host MODE PLUGIN [ARGUMENT]");
	plugin = strstr(argv[1], "base") ? dlmopen(LM_ID_BASE, argv[2], flags_of(argv[1]))
					 : dlopen(argv[2], flags_of(argv[1]));
	CHECK_SAYING(plugin, "%s", dlerror());
	run = (void (*)(const char *))dlsym(plugin, "plugin_run");
	CHECK_SAYING(run, "%s", dlerror());
	run(argv[3]);
	return 0;
}
