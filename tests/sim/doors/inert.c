/*
 * inert WAY: without a slice the application has the driver's own functions, except for those that
 * it is linked with. INERT_CALLED: it is linked with cuGetProcAddress and asks that, in no other
 * way.
 */
#include "driver.h"
#include "place.h"
#include "ways.h"

#ifdef INERT_CALLED
static void *by_call(const char *symbol)
{
	return asked_of(cuGetProcAddress_v2, symbol);
}
#define FINDER(way) ((void)(way), by_call)
#else
#define FINDER(way) way_named(way)->find
#endif

int main(int argc, char **argv)
{
	CHECK_SAYING(argc == 2, "usage: inert WAY");
	find_driver(FINDER(argv[1]));
#define X(name)                                                          \
	CHECK_SAYING(strcmp(object_of((void *)found.name), DRIVER) == 0, \
		     "%s is not the driver's own, but in %s", #name,     \
		     object_of((void *)found.name));
	DRIVER_FUNCTIONS(X)
#undef X
	check_held(); /* or rather not: a control */
	return 0;
}
