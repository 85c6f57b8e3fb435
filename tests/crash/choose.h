/* Which tests of a crash program run: all of them, or the one that its argument names. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka takes a name that no test has for success, so a misspelt one ends the program here. */
static inline void choose_test(const struct CMUnitTest *tests, size_t count, int argc, char **argv)
{
	if (argc < 2)
		return;
	for (size_t i = 0; i < count; i++)
		if (strcmp(tests[i].name, argv[1]) == 0) {
			cmocka_set_test_filter(argv[1]);
			return;
		}
	fprintf(stderr, "there is no test \"%s\" in this program\n", argv[1]);
	exit(1);
}
