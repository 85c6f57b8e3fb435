/* Files on the host that runtimes mount: what becomes of what lies in their place. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "disk.h"
#include "place.h"

#define NAME "slice.cache" /* of here.path */
#define TEXT "whole"

static void keep(int result)
{
	assert_int_equal(disk_keep(here.dir, NAME, TEXT, strlen(TEXT)), result);
}

static struct stat check_whole(void)
{
	struct bytes data = {0};
	struct stat st;

	assert_int_equal(lstat(here.path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
	assert_int_equal(disk_read(here.path, &data), 0);
	assert_int_equal(data.len, strlen(TEXT));
	assert_memory_equal(data.data, TEXT, data.len);
	bytes_free(&data);
	return st;
}

UNIT_TEST(test_a_file_that_is_whole_stays)
{
	struct stat st;

	keep(0);
	st = check_whole();
	keep(0);
	assert_int_equal(check_whole().st_ino, st.st_ino);
}

UNIT_TEST(test_other_bytes_are_replaced)
{
	struct stat st;

	assert_int_equal(disk_write(here.path, "other", 5), 0);
	assert_int_equal(lstat(here.path, &st), 0);
	keep(0);
	assert_int_not_equal(check_whole().st_ino, st.st_ino);
}

UNIT_TEST(test_a_file_that_not_everybody_may_read_is_replaced)
{
	keep(0);
	assert_int_equal(chmod(here.path, 0600), 0);
	keep(0);
	check_whole();
}

UNIT_TEST(test_an_empty_directory_gives_way)
{
	assert_int_equal(mkdir(here.path, 0755), 0);
	keep(0);
	check_whole();
}

UNIT_TEST(test_a_directory_that_is_not_empty_stays)
{
	char below[128], made[128];

	snprintf(below, sizeof(below), "%s/below", here.path);
	snprintf(made, sizeof(made), "%s/" DISK_NEW NAME, here.dir);
	assert_int_equal(mkdir(here.path, 0755), 0);
	assert_int_equal(mkdir(below, 0755), 0);
	keep(-EISDIR);
	assert_int_equal(rmdir(below), 0);
	assert_int_not_equal(access(made, F_OK), 0);
}

UNIT_TEST(test_a_link_to_a_whole_file_is_replaced)
{
	char other[128];

	snprintf(other, sizeof(other), "%s/other", here.dir);
	assert_int_equal(disk_keep(here.dir, "other", TEXT, strlen(TEXT)), 0);
	assert_int_equal(symlink("other", here.path), 0);
	keep(0);
	check_whole();
	assert_int_equal(unlink(other), 0);
}

UNIT_TEST(test_without_its_directory_it_is_not_made)
{
	assert_int_equal(disk_keep("/nonexistent", NAME, TEXT, strlen(TEXT)), -ENOENT);
}

/* A disk that becomes full takes a part of the bytes first. */
UNIT_TEST(test_says_why_only_a_part_could_be_written)
{
	struct rlimit before, small;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){strlen(TEXT) - 1, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	keep(-EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_not_equal(access(here.path, F_OK), 0);
}
