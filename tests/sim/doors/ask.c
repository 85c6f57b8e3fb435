/*
 * ask MODE WAY: opens the driver by dlopen with that MODE (local, global, now) or leaves it alone
 * (as_is, for the build of this that is linked with it), and asks for its functions in that WAY.
 */
#include "driver.h"
#include "ways.h"
#include "wrapper.h"

static int mode_named(const char *name)
{
	return strcmp(name, "local") == 0    ? RTLD_LAZY | RTLD_LOCAL
	       : strcmp(name, "global") == 0 ? RTLD_LAZY | RTLD_GLOBAL
	       : strcmp(name, "now") == 0    ? RTLD_NOW
					     : 0;
}

int main(int argc, char **argv)
{
	const struct way *way;
	int mode;

	CHECK_SAYING(argc == 3, "usage: ask MODE WAY");
	mode = mode_named(argv[1]);
	if (mode)
		opened(DRIVER, mode);
	way = way_named(argv[2]);
	if (way->find == by_new_namespace && !way->find("cuMemAlloc_v2"))
		return 0; /* refused is as good as held */
	find_driver(way->find);
	check_held();
	check_wrapper();
	return 0;
}
