/* Which names are in the mounts of some process. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "lives.h"
#include "unit.h"

static const char *mounts; /* the mountinfo of each process; NULL: it cannot be opened */
static int open_error;     /* the errno of that */
static bool breaks;        /* reading mountinfo fails after its first line */
static bool no_proc;       /* /proc cannot be listed */
static unsigned opened;

FILE *__wrap_fopen(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

static ssize_t read_some(void *at, char *buf, size_t size)
{
	const char **rest = at;
	size_t len = strcspn(*rest, "\n");

	len += (*rest)[len] == '\n';
	if (len == 0 && breaks) {
		errno = EIO;
		return -1;
	}
	assert_true(len <= size);
	memcpy(buf, *rest, len);
	*rest += len;
	return (ssize_t)len;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	static const char *rest;

	opened++;
	assert_non_null(strstr(path, "/mountinfo"));
	rest = mounts;
	if (rest)
		return fopencookie(&rest, mode, (cookie_io_functions_t){.read = read_some});
	errno = open_error;
	return NULL;
}

DIR *__wrap_opendir(const char *path)
{
	if (!no_proc)
		return __real_opendir(path);
	errno = EMFILE;
	return NULL;
}

static int begin(void **state)
{
	(void)state;
	mounts = "";
	breaks = no_proc = false;
	opened = 0;
	return 0;
}

#define LIVES_TEST(name) UNIT_TEST_AROUND(name, begin, NULL)

/* Looks for both names, and checks the answers. */
static void assert_mounted(bool first, bool second)
{
	/* What the fields had before does not matter. */
	struct lives_name names[] = {{"first", true}, {"second", false}};

	lives_in_mounts(names, 2);
	assert_int_equal(names[0].is_mounted, first);
	assert_int_equal(names[1].is_mounted, second);
}

LIVES_TEST(test_mounted)
{
	assert_mounted(false, false);
	mounts = "1 2 0:1 / / rw\n3 4 0:1 /state/first /etc rw\n5 6 0:1 / /proc rw\n";
	assert_mounted(true, false);
	mounts = "3 4 0:1 /state/second /etc rw\n3 4 0:1 /state/first /etc rw\n5 6 0:1 / /x rw\n";
	assert_mounted(true, true);
}

/* While mountinfo cannot be read, each name counts as mounted. */
LIVES_TEST(test_unreadable)
{
	mounts = "1 2 0:1 / / rw\n";
	breaks = true;
	assert_mounted(true, true);
	mounts = NULL;
	open_error = EACCES;
	assert_mounted(true, true);
	no_proc = true;
	assert_mounted(true, true);
}

/* A process that has ended has nothing mounted. */
LIVES_TEST(test_ended)
{
	static const int errors[] = {ENOENT, ESRCH, EINVAL};

	mounts = NULL;
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		open_error = errors[i];
		assert_mounted(false, false);
	}
}

/* Without a name, no file is read. */
LIVES_TEST(test_no_names)
{
	lives_in_mounts(NULL, 0);
	assert_int_equal(opened, 0);
}
