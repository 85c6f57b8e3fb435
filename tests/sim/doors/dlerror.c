/*
 * dlerror MODE WAY: a lookup that finds something leaves no error behind, the first one in a
 * process as little as later ones. The usual idiom is to look at dlerror alone.
 */
#include "driver.h"
#include "ways.h"

static void check(const struct way *way, const char *symbol)
{
	const char *error;
	void *answer;

	dlerror();
	answer = way->find(symbol);
	error = dlerror();
	CHECK_SAYING(answer, "%s is not found", symbol);
	CHECK_SAYING(!error, "%s is found, and yet dlerror says: %s", symbol, error);
}

int main(int argc, char **argv)
{
	const struct way *way;

	CHECK_SAYING(argc == 3, "usage: dlerror MODE WAY");
	if (strcmp(argv[1], "as_is") != 0)
		opened(DRIVER, strcmp(argv[1], "global") ? RTLD_LAZY : RTLD_LAZY | RTLD_GLOBAL);
	way = way_named(argv[2]);
	check(way, "cuMemAlloc_v2");
	check(way, "cuMemFree_v2");
	return 0;
}
