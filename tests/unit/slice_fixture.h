/* Gives each test a directory of its own, functions that make files in it, and an empty
 * environment. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "place.h"

static int slice_place_make(void **state)
{
	clearenv();
	return place_make(state);
}

#undef UNIT_SET_UP
#define UNIT_SET_UP slice_place_make

/* Returns the path of a name in the directory. The last eight results stay valid. */
static inline char *in_root(const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", here.dir, name);
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
