/*
 * Prints what lookups of names that are none of ours come to, and the errors of those that fail.
 * same.sh compares the output with and without the library.
 */
#include "answers.h"

int main(int argc, char **argv)
{
	void (*run)(const char *argument);
	void *plugin;

	CHECK_SAYING(argc == 2, "usage: answers PLUGIN");
	answers_print("program", NULL);
	plugin = opened(argv[1], RTLD_LAZY | RTLD_LOCAL);
	answers_print("handle of the plugin", plugin);
	run = (void (*)(const char *))dlsym(plugin, "plugin_run");
	CHECK_SAYING(run, "%s", dlerror());
	run(NULL);
	/* Its own function under a name of the driver's is its own. */
	print_place("handle of the plugin", "cuMemAlloc_v2", dlsym(plugin, "cuMemAlloc_v2"));
	answers_print_versions();
	answers_print_procaddress();
	return 0;
}
