/*
 * lacking SYMBOL MODE WAY: what the driver lacks, or what is lacking with the driver, is not found,
 * and dlerror says so: as the first lookup in a process, and later. MODE as in ask.c; `absent`: no
 * driver can be opened either.
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
	CHECK_SAYING(!answer, "%s is found", symbol);
	CHECK_SAYING(error, "%s is not found, and dlerror does not say so", symbol);
	CHECK_SAYING(strstr(error, symbol), "dlerror does not say %s, but: %s", symbol, error);
}

int main(int argc, char **argv)
{
	const struct way *way;

	CHECK_SAYING(argc == 4, "usage: lacking SYMBOL MODE WAY");
	if (strcmp(argv[2], "absent") == 0) {
		if (dlopen(DRIVER, RTLD_LAZY))
			SKIP("this machine has a driver");
	} else if (strcmp(argv[2], "as_is") != 0) {
		opened(DRIVER, strcmp(argv[2], "global") ? RTLD_LAZY : RTLD_LAZY | RTLD_GLOBAL);
	}
	way = way_named(argv[3]);
	check(way, argv[1]);
	check(way, argv[1]);
	if (strcmp(argv[2], "absent") != 0)
		CHECK_SAYING(way->find("cuMemAlloc_v2"), "cuMemAlloc_v2 is not found");
	check(way, argv[1]);
	return 0;
}
