/* A region whose file, or whose descriptor, is taken away while it is used. */
#include <sys/resource.h>

#include "region_fixture.h"
#include "region_internal.h"

#define REGION_SIZE 2097152

static void open_one(struct region *region)
{
	*region = (struct region)REGION_CLOSED;
	claim(region);
	assert_int_equal(region_charge(region, 0, REGION_DATA, MIB, GIB), 0);
}

/* For longer than a look at the file is good for, coarse as the clock is. */
static void let_time_pass(void)
{
	sys_sleep_ns(REGION_WATCH_NS + 20 * NS_PER_MS);
}

/* No more is to be had, for good; what remains can be given back without a fuss. */
static void assert_lost(struct region *region, int error, const char *words)
{
	struct fault fault = {""};
	struct region_process processes[VGPU_SLOTS_MAX];

	assert_int_equal(region_charge(region, 0, REGION_DATA, MIB, GIB), error);
	assert_int_equal(region_charge(region, 0, REGION_DATA, MIB, 0), error);
	assert_int_equal(region_share_export(region, 0, 5, MIB), error);
	assert_int_equal(region_why_lost(region, &fault), error);
	assert_non_null(strstr(fault.text, region->path));
	if (!strstr(fault.text, words))
		fail_msg("\"%s\" lacks \"%s\"", fault.text, words);
	assert_int_equal(region_used(region, 0), 0);
	assert_int_equal(region_processes(region, 0, processes), 0);
	assert_int_equal(region_reap(region), error);
	assert_false(region_wait_dying(region, 0));
	region_refund(region, 0, REGION_DATA, MIB);
	region_share_import_end(region, 5);
	region_close(region);
}

UNIT_TEST(test_deleted)
{
	struct region region;

	open_one(&region);
	assert_int_equal(unlink(here.path), 0);
	let_time_pass();
	assert_lost(&region, -ESTALE, "deleted, renamed or replaced");
}

UNIT_TEST(test_replaced)
{
	struct region region, other = REGION_CLOSED;
	char path[128];

	open_one(&region);
	snprintf(path, sizeof(path), "%s/other", here.dir);
	assert_int_equal(open_claimed(path, &one_gib, &other), 0);
	assert_int_equal(rename(path, here.path), 0);
	let_time_pass();
	assert_lost(&region, -ESTALE, "deleted, renamed or replaced");
	region_close(&other);
}

/* Renamed, or its directory is. */
UNIT_TEST(test_renamed)
{
	struct region region;
	char path[128];

	open_one(&region);
	snprintf(path, sizeof(path), "%s/other", here.dir);
	assert_int_equal(rename(here.path, path), 0);
	let_time_pass();
	assert_lost(&region, -ESTALE, "deleted, renamed or replaced");
	unlink(path);
	open_one(&region);
	snprintf(path, sizeof(path), "%s.other", here.dir);
	assert_int_equal(rename(here.dir, path), 0);
	let_time_pass();
	assert_lost(&region, -ESTALE, "deleted, renamed or replaced");
	assert_int_equal(rename(path, here.dir), 0);
}

/* Also where the descriptor was closed. */
UNIT_TEST(test_renamed_and_closed)
{
	struct region region;
	char path[128];

	open_one(&region);
	close(region.fd);
	snprintf(path, sizeof(path), "%s/other", here.dir);
	assert_int_equal(rename(here.path, path), 0);
	let_time_pass();
	assert_lost(&region, -ESTALE, "deleted, renamed or replaced");
	unlink(path);
}

UNIT_TEST(test_truncated)
{
	static const off_t sizes[] = {0, 1, 4096, 2008952, REGION_SIZE - 1, REGION_SIZE + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct region region;

		unlink(here.path);
		open_one(&region);
		assert_int_equal(truncate(here.path, sizes[i]), 0);
		let_time_pass();
		assert_lost(&region, -EUCLEAN, "truncated or overwritten");
	}
}

/* An onlooker, too. */
UNIT_TEST(test_truncated_under_onlooker)
{
	struct region region, view = REGION_CLOSED;
	struct fault fault;

	open_one(&region);
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	assert_int_equal(region_used(&view, 0), MIB);
	assert_int_equal(truncate(here.path, 0), 0);
	let_time_pass();
	assert_int_equal(region_used(&view, 0), 0);
	assert_int_equal(region_living(&view), 0);
	region_close(&view);
	region_close(&region);
}

static void write_over(const char *path, int seed)
{
	uint8_t *bytes = calloc(1, REGION_SIZE);
	int fd = open(path, O_WRONLY);

	srand((unsigned)seed);
	for (size_t i = 0; seed && i < REGION_SIZE; i++)
		bytes[i] = (uint8_t)rand();
	assert_int_equal(write(fd, bytes, REGION_SIZE), REGION_SIZE);
	close(fd);
	free(bytes);
}

UNIT_TEST(test_written_over)
{
	for (int seed = 0; seed < 10; seed++) { /* 0: with zeros */
		struct region region;

		unlink(here.path);
		open_one(&region);
		write_over(here.path, seed);
		assert_lost(&region, -EUCLEAN, "truncated or overwritten");
	}
}

/* Emptied and made again, before anybody looked: the same file, and all that we had is gone. */
UNIT_TEST(test_made_again)
{
	struct region region, fresh = REGION_CLOSED;
	uint8_t *bytes = malloc(REGION_SIZE);
	char path[128];
	int fd;

	open_one(&region);
	sys_sleep_ns(NS_PER_MS);
	snprintf(path, sizeof(path), "%s/other", here.dir);
	assert_int_equal(open_claimed(path, &one_gib, &fresh), 0);
	region_close(&fresh);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, bytes, REGION_SIZE), REGION_SIZE);
	close(fd);
	unlink(path);
	fd = open(here.path, O_WRONLY);
	assert_int_equal(write(fd, bytes, REGION_SIZE), REGION_SIZE);
	close(fd);
	free(bytes);
	assert_lost(&region, -EUCLEAN, "truncated or overwritten");
}

/* -- a new region while the old one is used --------------------------------------------------- */

static void assert_not_made(const char *path, const char *words)
{
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_open(path, &one_gib, &region, &fault), -EBUSY);
	if (!strstr(fault.text, words) || !strstr(fault.text, path))
		fail_msg("\"%s\" lacks \"%s\" or the path", fault.text, words);
	assert_int_equal(region.fd, -1);
}

static void assert_made(const char *path)
{
	struct region region = REGION_CLOSED;

	assert_int_equal(open_claimed(path, &one_gib, &region), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, GIB, GIB), 0);
	region_close(&region);
}

UNIT_TEST(test_emptied_in_use)
{
	struct region region;

	open_one(&region);
	assert_int_equal(truncate(here.path, 0), 0);
	assert_not_made(here.path, "was emptied while");
	let_time_pass();
	region_close(&region);
	assert_made(here.path);
}

struct user {
	const char *path;
	uint64_t ready;
};

static void use(void *arg)
{
	struct user *user = arg;
	struct region region = REGION_CLOSED;

	MUST(open_claimed(user->path, &one_gib, &region) == 0);
	MUST(region_charge(&region, 0, REGION_DATA, GIB, GIB) == 0);
	FLAG_SET(user->ready);
	pause();
}

UNIT_TEST(test_deleted_in_use)
{
	struct user *user = shared_memory(sizeof(*user));
	char words[64];
	pid_t child;

	user->path = here.path;
	child = spawn(use, user);
	assert_true(reached(&user->ready, 1, LONG_MS));
	assert_int_equal(unlink(here.path), 0);
	snprintf(words, sizeof(words), "process %d uses it", (int)child);
	assert_not_made(here.path, words);
	assert_not_made(here.path, words); /* nor of the empty file that this left */
	kill_child(child);
	assert_made(here.path);
	munmap(user, sizeof(*user));
}

/* Renamed as well; and one that was copied is another slice's. */
UNIT_TEST(test_renamed_in_use)
{
	struct user *user = shared_memory(sizeof(*user));
	char words[192], other[128];
	pid_t child;

	user->path = here.path;
	child = spawn(use, user);
	assert_true(reached(&user->ready, 1, LONG_MS));
	snprintf(other, sizeof(other), "%s/other", here.dir);
	assert_int_equal(rename(here.path, other), 0);
	snprintf(words, sizeof(words), "was renamed to %s while process %d uses it", other,
		 (int)child);
	assert_not_made(here.path, words);
	assert_not_made(here.path, words); /* nor of the empty file that this left */
	kill_child(child);
	assert_made(here.path);
	user->path = other; /* nobody lives there: a region of that path from now on */
	user->ready = 0;
	child = spawn(use, user);
	assert_true(reached(&user->ready, 1, LONG_MS));
	assert_int_equal(unlink(here.path), 0);
	assert_made(here.path);
	kill_child(child);
	unlink(other);
	munmap(user, sizeof(*user));
}

/* A path that ends in another one is not that one. */
UNIT_TEST(test_deleted_elsewhere)
{
	struct user *user = shared_memory(sizeof(*user));
	char path[192], command[256];
	pid_t child;

	snprintf(command, sizeof(command), "mkdir -p %s%s", here.dir, here.dir);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s%s", here.dir, here.path);
	user->path = path;
	child = spawn(use, user);
	assert_true(reached(&user->ready, 1, LONG_MS));
	assert_int_equal(unlink(path), 0);
	assert_made(here.path);
	kill_child(child);
	munmap(user, sizeof(*user));
	snprintf(command, sizeof(command), "rm -rf %s/tmp", here.dir);
	assert_int_equal(system(command), 0);
}

/* -- the descriptor --------------------------------------------------------------------------- */

UNIT_TEST(test_number)
{
	struct region region;
	struct rlimit before, low = {30, 30};
	int zero = dup(0);

	open_one(&region);
	assert_true(region.fd >= 40);
	region_close(&region);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	close(0);
	open_one(&region);
	assert_in_range(region.fd, 3, 29);
	assert_int_equal(fcntl(0, F_GETFD), -1);
	assert_int_equal(fcntl(region.fd, F_GETFD), FD_CLOEXEC);
	region_close(&region);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	dup2(zero, 0);
	close(zero);
}

/* What the application did to our descriptor, and that the dead are found all the same. */
static void assert_dead_are_found(void (*take_away)(int fd))
{
	struct region region, other;
	int number;

	open_one(&region);
	open_one(&other);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, GIB - 2 * MIB, GIB), 0);
	number = region.fd;
	take_away(number);
	assert_true(region_slot_alive(&region, 1));
	region_forget(&other);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, GIB - MIB, GIB), 0);
	assert_true(region_slot_alive(&region, 0));
	assert_int_equal(count_wrong(&region), 0);
	assert_int_equal(region_living(&region), 1);
	if (fcntl(number, F_GETFD) >= 0)
		close(number);
	region_close(&region);
}

static void close_it(int fd)
{
	close(fd);
}

static void open_over_it(int fd)
{
	int other = open("/dev/null", O_RDWR);

	assert_int_equal(dup2(other, fd), fd);
	close(other);
}

UNIT_TEST(test_closed)
{
	assert_dead_are_found(close_it);
}

UNIT_TEST(test_another_file)
{
	assert_dead_are_found(open_over_it);
}

/* With the path gone as well, as after a chroot, everybody is taken for alive; charges go on. */
UNIT_TEST(test_no_way_back)
{
	struct region region, other;

	open_one(&region);
	open_one(&other);
	close(region.fd);
	region.path = "/nowhere/slice.cache";
	region.root_inode++;
	region_forget(&other);
	let_time_pass();
	assert_true(region_slot_alive(&region, 1));
	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, GIB), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, GIB - 2 * MIB, GIB), -EDQUOT);
	region_close(&region);
}
