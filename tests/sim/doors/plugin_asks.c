/* A plugin that asks the loader, in the way that its argument names. With DOORS_DLERROR it goes by
 * dlerror alone. */
#include "driver.h"
#include "ways.h"

EXPORT void plugin_run(const char *argument);

static void check_error(const struct way *way)
{
	const char *error;

	dlerror();
	way->find("cuMemAlloc_v2");
	error = dlerror();
	CHECK_SAYING(!error, "cuMemAlloc_v2 is found, and yet dlerror says: %s", error);
}

void plugin_run(const char *argument)
{
	const struct way *way = way_named(argument);

	if (getenv("DOORS_DLERROR"))
		check_error(way);
	find_driver(way->find);
	check_held();
}
