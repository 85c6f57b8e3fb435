/* See unit.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define TESTS_MAX 512

/* The tests in the order of their files and lines. Only constructors write the list. */
static struct entry {
	struct CMUnitTest test;
	const char *file;
	unsigned line;
} entries[TESTS_MAX];
static unsigned count;

static bool is_before(const struct entry *a, const struct entry *b)
{
	int order = strcmp(a->file, b->file);

	return order ? order < 0 : a->line < b->line;
}

void unit_add(const struct CMUnitTest *test, const char *file, unsigned line)
{
	struct entry entry = {*test, file, line};
	unsigned i;

	if (count == TESTS_MAX)
		abort();
	for (i = count++; i > 0 && is_before(&entry, &entries[i - 1]); i--)
		entries[i] = entries[i - 1];
	entries[i] = entry;
}

static bool is_known(const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(entries[i].test.name, name))
			return true;
	fprintf(stderr, "there is no test \"%s\" in this program\n", name);
	return false;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int unit_main(int argc, char **argv)
{
	static struct CMUnitTest wanted[TESTS_MAX];
	unsigned wanted_count = 0;
	bool is_list = argc == 2 && !strcmp(argv[1], "--list");

	for (int i = 1; i < argc && !is_list; i++)
		if (!is_known(argv[i]))
			return 1;
	for (unsigned i = 0; i < count; i++) {
		if (is_list)
			puts(entries[i].test.name);
		else if (is_wanted(entries[i].test.name, argc, argv))
			wanted[wanted_count++] = entries[i].test;
	}
	if (is_list)
		return 0;
	/* cmocka returns how many tests failed: 256 of them are 0, and 77 a skipped program. */
	return wanted_count == 0 ||
	       _cmocka_run_group_tests("tests", wanted, wanted_count, NULL, NULL) != 0;
}
