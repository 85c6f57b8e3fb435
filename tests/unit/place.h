/* Gives each test a directory of its own, here. */
#pragma once

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#define UNUSED __attribute__((unused))

#define PIPE_WAIT_S 10 /* seconds; a test that waits longer for a writer is ended */

static struct place {
	char dir[64];
	char path[96]; /* path of a file in dir, which does not exist yet */
} here;

UNUSED static int place_make(void **state)
{
	strcpy(here.dir, "/tmp/vgpu-unit-XXXXXX");
	if (!mkdtemp(here.dir))
		return -1;
	snprintf(here.path, sizeof(here.path), "%s/slice.cache", here.dir);
	*state = &here;
	return 0;
}

/* Makes a pipe that nobody writes to. SIGALRM ends a test that waits for a writer. */
UNUSED static void place_pipe(const char *path)
{
	assert_int_equal(mkfifo(path, 0600), 0);
	alarm(PIPE_WAIT_S);
}

static int place_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* Removes all that is in the directory. */
UNUSED static void place_empty(void)
{
	nftw(here.dir, place_remove_one, 8, FTW_DEPTH | FTW_PHYS);
	mkdir(here.dir, 0700);
}

UNUSED static int place_remove(void **state)
{
	(void)state;
	alarm(0);
	return nftw(here.dir, place_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    place_make
#define UNIT_TEAR_DOWN place_remove
