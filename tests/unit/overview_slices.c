/* The list of slices where directories cannot be read. */
#include <dirent.h>
#include <errno.h>
#include <sys/syscall.h>

#include "place.h"
#include "slices.h"
#include "sys.h"

static int opendir_error; /* 0: none */
static long open_error;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

DIR *__wrap_opendir(const char *path)
{
	errno = opendir_error;
	return opendir_error ? NULL : __real_opendir(path);
}

static long refuse_open(long number)
{
	return number == SYS_openat || number == SYS_open ? open_error : 0;
}

static int list(int opendir_fails, long open_fails)
{
	struct slices slices;
	struct fault fault = {""};
	int error;

	opendir_error = opendir_fails;
	open_error = open_fails;
	sys_fault = refuse_open;
	error = slices_list(&slices, &fault);
	sys_fault = NULL;
	assert_int_equal(*fault.text == '\0', error == 0);
	slices_free(&slices);
	return error;
}

UNIT_TEST(test_a_shortage_hides_no_slice)
{
	static const int lacks[] = {EMFILE, ENFILE, ENOMEM}, others[] = {ENOENT, EACCES};
	static const char *const places[] = {"VGPU_STATE", "VGPU_CONTAINERS", "VGPU_KUBERNETES",
					     "VGPU_HAMI"};

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		setenv(places[i], here.dir, 1);
	assert_int_equal(list(0, 0), 0);
	for (unsigned i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
		assert_int_equal(list(lacks[i], 0), -ENOMEM);
		assert_int_equal(list(0, -lacks[i]), -ENOMEM);
	}
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_int_equal(list(others[i], 0), 0);
		assert_int_equal(list(0, -others[i]), 0);
	}
}
