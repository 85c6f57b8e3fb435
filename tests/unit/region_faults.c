/* Each system call of an opening fails once, with each error: it is reported, and nothing leaks. */
#include <dirent.h>
#include <limits.h>
#include <sys/syscall.h>

#include "region_fixture.h"

static struct {
	int error; /* of the call that fails */
	int at;    /* which one, from 0 */
	int calls; /* how many there were */
} plan;

/* Calls that undo others always work: they cannot fail for lack of anything. */
static long fail_as_planned(long number)
{
	if (number == SYS_close || number == SYS_munmap)
		return 0;
	return plan.calls++ == plan.at ? plan.error : 0;
}

static int count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static int count_mappings(const char *path)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (fgets(line, sizeof(line), maps))
		count += strstr(line, path) != NULL;
	fclose(maps);
	return count;
}

/* What the opening meets, made anew for each call that fails. */
enum before { MISSING, UNHELD, HELD };

static void prepare(const char *path, enum before before, struct region *holder)
{
	struct fault fault;

	unlink(path);
	if (before == UNHELD) {
		assert_int_equal(region_open(path, &one_gib, holder, &fault), 0);
		region_close(holder);
	}
	if (before == HELD)
		assert_int_equal(open_claimed(path, &one_gib, holder), 0);
}

/* Opens and claims with the at-th call failing. Returns whether there was such a call. */
static int fail_once(const char *path, enum before before, int error, int at)
{
	struct region_setup setup = setup_from(1, 1, GIB);
	struct region holder = REGION_CLOSED, region = REGION_CLOSED, beside = REGION_CLOSED;
	struct fault fault = {""};
	int descriptors, result;

	prepare(path, before, &holder);
	descriptors = count_descriptors();
	plan.error = error;
	plan.at = at;
	plan.calls = 0;
	sys_fault = fail_as_planned;
	result = region_open(path, &setup, &region, &fault);
	if (result == 0)
		result = region_claim(&region, &fault);
	sys_fault = NULL;
	if (result) {
		assert_true(result < 0);
		assert_int_not_equal(strlen(fault.text), 0);
	} else {
		assert_int_equal(region_charge(&region, 0, REGION_DATA, 1, 0), 0);
		assert_int_equal(count_wrong(&region), 0);
		/* Nobody is kept out by what it did. */
		assert_int_equal(open_claimed(path, &setup, &beside), 0);
		region_close(&beside);
	}
	region_close(&region);
	assert_int_equal(count_descriptors(), descriptors);
	assert_int_equal(count_mappings(path), before == HELD);
	/* And the next one is none the worse for it. */
	assert_int_equal(open_claimed(path, &setup, &region), 0);
	assert_int_equal(count_wrong(&region), 0);
	assert_int_equal(region_living(&region), before == HELD ? 2 : 1);
	region_close(&region);
	region_close(&holder);
	return plan.calls > at;
}

/* Of many that are alike only some: a region's zeros, and before them what is asked of /proc where
 * others on the machine are in some region, which is three calls for each process that there is. */
static void fail_each(const char *path, enum before before)
{
	static const int errors[] = {-EMFILE, -ENOSPC, -EACCES, -ENOMEM, -EIO, -ENOLCK};
	const int full = before == MISSING ? 12 : 6; /* at least, or the seam is not where it was */
	int last, stride;

	assert_false(fail_once(path, before, 0, INT_MAX));
	last = plan.calls - 30;
	stride = last > full ? (last - full) / 12 + 1 : 1;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		int at = 0;

		while (fail_once(path, before, errors[i], at))
			at += at >= full && at < last ? stride : 1;
		assert_true(at >= full);
	}
}

UNIT_TEST(test_making)
{
	fail_each(here.path, MISSING);
}

UNIT_TEST(test_resetting)
{
	fail_each(here.path, UNHELD);
}

UNIT_TEST(test_appending)
{
	fail_each(here.path, HELD);
}

/* -- calls that must be reported as they are -------------------------------------------------- */

static long failing_number;
static int failing_error;

static unsigned let_through; /* so many of them */

static long fail_number(long number)
{
	if (number != failing_number)
		return 0;
	if (let_through == 0)
		return failing_error;
	let_through--;
	return 0;
}

static void assert_reported(const char *path, long number, int error, const char *words)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	failing_number = number;
	failing_error = error;
	sys_fault = fail_number;
	assert_int_equal(region_open(path, &one_gib, &region, &fault), error);
	sys_fault = NULL;
	assert_int_equal(region.fd, -1);
	if (!strstr(fault.text, words) || !strstr(fault.text, path))
		fail_msg("\"%s\" lacks \"%s\" or the path", fault.text, words);
}

UNIT_TEST(test_words)
{
	struct stat st;

	assert_reported(here.path, SYS_openat, -EMFILE, "ulimit -n");
	assert_reported(here.path, SYS_openat, -EROFS, "read-only");
	let_through = 100;
	assert_reported(here.path, SYS_write, -ENOSPC, "full");
	assert_int_equal(stat(here.path, &st), 0);
	assert_int_equal(st.st_size, 0); /* what had been written is given back */
	assert_reported(here.path, SYS_mmap, -ENOMEM, "no memory");
	assert_reported(here.path, SYS_fcntl, -EOPNOTSUPP, "no file locks");
	assert_reported(here.path, SYS_fstat, -EIO, "error 5");
}

/* The lock of somebody who is stopped in the middle of making a region. */
UNIT_TEST(test_stopped_initialiser)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};
	uint64_t start = clock_now_ns();
	int fd = open(here.path, O_RDWR | O_CREAT, 0666);

	assert_int_equal(sys_lock_byte(fd, VGPU_INIT_LOCK_OFFSET), 0);
	assert_int_equal(region_open(here.path, &one_gib, &region, &fault), -ETIMEDOUT);
	assert_in_range(clock_now_ns() - start, 1900 * NS_PER_MS, LONG_MS * NS_PER_MS);
	assert_non_null(strstr(fault.text, "stopped"));
	close(fd); /* it dies */
	assert_int_equal(region_open(here.path, &one_gib, &region, &fault), 0);
	region_close(&region);
}

static unsigned interrupted;

/* Every other time. */
static long interrupt(long number)
{
	switch (number) {
	case SYS_openat:
	case SYS_write:
	case SYS_read:
	case SYS_ftruncate:
	case SYS_fcntl:
		return interrupted++ % 2 == 0 ? -EINTR : 0;
	default:
		return 0;
	}
}

/* By signals: nothing comes of it. */
UNIT_TEST(test_interrupted)
{
	struct region a = REGION_CLOSED, b = REGION_CLOSED;

	interrupted = 0;
	sys_fault = interrupt;
	claim(&a);
	claim(&b);
	assert_int_equal(region_charge(&b, 0, REGION_DATA, GIB, GIB), 0);
	assert_int_equal(region_living(&a), 2);
	region_close(&b);
	assert_int_equal(region_living(&a), 1);
	assert_int_equal(region_charge(&a, 0, REGION_DATA, GIB, GIB), 0);
	assert_int_equal(count_wrong(&a), 0);
	sys_fault = NULL;
	assert_true(interrupted > 20);
	region_close(&a);
}

/* -- at work ---------------------------------------------------------------------------------- */

/* A kernel that does not answer who lives: everybody may. */
UNIT_TEST(test_no_answer)
{
	struct region a = claimed(), b = claimed();

	assert_int_equal(region_charge(&b, 0, REGION_DATA, GIB, GIB), 0);
	region_forget(&b); /* gone without a word */
	failing_number = SYS_fcntl;
	failing_error = -ENOLCK;
	sys_fault = fail_number;
	assert_true(region_slot_alive(&a, 1));
	assert_int_equal(region_reap(&a), 0);
	assert_int_equal(region_charge(&a, 0, REGION_DATA, 1, GIB), -EDQUOT);
	sys_fault = NULL;
	assert_false(region_slot_alive(&a, 1));
	assert_int_equal(region_charge(&a, 0, REGION_DATA, 1, GIB), 0);
	assert_int_equal(region_used(&a, 0), 1);
	region_close(&a);
}
