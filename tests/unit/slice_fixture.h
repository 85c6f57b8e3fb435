/* Gives each test a directory of its own, functions that make files in it, and an empty
 * environment. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants those four before it. */
#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char root[64]; /* path of the test's directory */

static int fixture_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int fixture_make(void **state)
{
	(void)state;
	clearenv();
	strcpy(root, "/tmp/vgpu-test.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int fixture_drop(void **state)
{
	(void)state;
	return nftw(root, fixture_remove, 8, FTW_DEPTH | FTW_PHYS);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    fixture_make
#define UNIT_TEAR_DOWN fixture_drop

/* Returns the path root/name. The last eight results stay valid. */
static inline char *in_root(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
	return path;
}

static inline void make_dir(const char *name)
{
	assert_int_equal(mkdir(in_root(name), 0755), 0);
}

/* Makes a file, and its directory if there is none. */
static inline void write_bytes(const char *name, const char *bytes, size_t len)
{
	char *dir = in_root(name), *end = strrchr(dir, '/');
	FILE *file;

	*end = '\0';
	assert_true(mkdir(dir, 0755) == 0 || errno == EEXIST);
	file = fopen(in_root(name), "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
	write_bytes(name, text, strlen(text));
}

/* Fails unless text is one line that contains the words, and shows text then. */
static inline void assert_says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
	assert_null(strchr(text, '\n'));
}
