/*
 * Gives each test a directory of its own, here. Include it after cmocka.h and the headers that
 * cmocka.h needs.
 */
#pragma once

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

UNUSED static int place_remove(void **state)
{
	(void)state;
	alarm(0);
	unlink(here.path);
	rmdir(here.path);
	rmdir(here.dir);
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    place_make
#define UNIT_TEAR_DOWN place_remove
