/* A region whose file, or whose descriptor, is taken away while it is used. */
#include <sys/resource.h>

#include "region_fixture.h"
#include "region_internal.h"

#define REGION_SIZE 2097152

static struct region region; /* of this process, which has a MiB of it */
static char other_path[128]; /* of another file in the same directory */

static void open_one(struct region *ret_region)
{
	*ret_region = (struct region)REGION_CLOSED;
	claim(ret_region);
	assert_int_equal(region_charge(ret_region, 0, REGION_DATA, MIB, GIB), 0);
}

static int begin(void **state)
{
	if (place_make(state))
		return -1;
	snprintf(other_path, sizeof(other_path), "%s/other", here.dir);
	open_one(&region);
	return 0;
}

static int end(void **state)
{
	region_close(&region);
	unlink(other_path);
	return place_remove(state);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    begin
#define UNIT_TEAR_DOWN end

static void open_again(void)
{
	unlink(here.path);
	open_one(&region);
}

/* For longer than a look at the file is good for, coarse as the clock is. */
static void let_time_pass(void)
{
	sys_sleep_ns(REGION_WATCH_NS + 20 * NS_PER_MS);
}

/* No more is to be had, for good; what remains can be given back without a fuss. */
static void assert_lost(int error, const char *words)
{
	struct fault fault = {""};
	struct region_process processes[VGPU_SLOTS_MAX];

	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, GIB), error);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, 0), error);
	assert_int_equal(region_share_export(&region, 0, 5, MIB), error);
	assert_int_equal(region_why_lost(&region, &fault), error);
	assert_non_null(strstr(fault.text, region.path));
	if (!strstr(fault.text, words))
		fail_msg("\"%s\" lacks \"%s\"", fault.text, words);
	assert_int_equal(region_used(&region, 0), 0);
	assert_int_equal(region_processes(&region, 0, processes), 0);
	assert_int_equal(region_reap(&region), error);
	assert_false(region_wait_dying(&region, 0));
	region_refund(&region, 0, REGION_DATA, MIB);
	region_share_import_end(&region, 5);
	region_close(&region);
}

static void assert_gone(void)
{
	let_time_pass();
	assert_lost(-ESTALE, "deleted, renamed or replaced");
}

static void assert_damaged(void)
{
	assert_lost(-EUCLEAN, "truncated or overwritten");
}

UNIT_TEST(test_deleted)
{
	assert_int_equal(unlink(here.path), 0);
	assert_gone();
}

UNIT_TEST(test_replaced)
{
	struct region other = REGION_CLOSED;

	assert_int_equal(open_claimed(other_path, &one_gib, &other), 0);
	assert_int_equal(rename(other_path, here.path), 0);
	assert_gone();
	region_close(&other);
}

UNIT_TEST(test_renamed)
{
	assert_int_equal(rename(here.path, other_path), 0);
	assert_gone();
}

UNIT_TEST(test_directory_renamed)
{
	char path[128];

	snprintf(path, sizeof(path), "%s.other", here.dir);
	assert_int_equal(rename(here.dir, path), 0);
	assert_gone();
	assert_int_equal(rename(path, here.dir), 0);
}

/* Also where the descriptor was closed. */
UNIT_TEST(test_renamed_and_closed)
{
	close(region.fd);
	assert_int_equal(rename(here.path, other_path), 0);
	assert_gone();
}

UNIT_TEST(test_truncated)
{
	static const off_t sizes[] = {0, 1, 4096, 2008952, REGION_SIZE - 1, REGION_SIZE + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(truncate(here.path, sizes[i]), 0);
		let_time_pass();
		assert_damaged();
		open_again();
	}
}

/* An onlooker, too. */
UNIT_TEST(test_truncated_under_onlooker)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	assert_int_equal(region_view(here.path, &view, &fault), 0);
	assert_int_equal(region_used(&view, 0), MIB);
	assert_int_equal(truncate(here.path, 0), 0);
	let_time_pass();
	assert_int_equal(region_used(&view, 0), 0);
	assert_int_equal(region_living(&view), 0);
	region_close(&view);
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
		write_over(here.path, seed);
		assert_damaged();
		open_again();
	}
}

/* Emptied and made again, before anybody looked: the same file, and all that we had is gone. */
UNIT_TEST(test_made_again)
{
	struct region fresh = REGION_CLOSED;
	uint8_t *bytes = malloc(REGION_SIZE);
	int fd;

	sys_sleep_ns(NS_PER_MS);
	assert_int_equal(open_claimed(other_path, &one_gib, &fresh), 0);
	region_close(&fresh);
	fd = open(other_path, O_RDONLY);
	assert_int_equal(read(fd, bytes, REGION_SIZE), REGION_SIZE);
	close(fd);
	fd = open(here.path, O_WRONLY);
	assert_int_equal(write(fd, bytes, REGION_SIZE), REGION_SIZE);
	close(fd);
	free(bytes);
	assert_damaged();
}

/* -- a new region while the old one is used --------------------------------------------------- */

static void assert_not_made(const char *words)
{
	struct region fresh = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_open(here.path, &one_gib, &fresh, &fault), -EBUSY);
	if (!strstr(fault.text, words) || !strstr(fault.text, here.path))
		fail_msg("\"%s\" lacks \"%s\" or the path", fault.text, words);
	assert_int_equal(fresh.fd, -1);
}

static void assert_made(void)
{
	struct region fresh = claimed();

	assert_int_equal(region_charge(&fresh, 0, REGION_DATA, GIB, GIB), 0);
	region_close(&fresh);
}

UNIT_TEST(test_emptied_in_use)
{
	assert_int_equal(truncate(here.path, 0), 0);
	assert_not_made("was emptied while");
	let_time_pass();
	region_close(&region);
	assert_made();
}

static uint64_t *user_is_ready; /* in shared memory */

static void use(void *path)
{
	struct region own = REGION_CLOSED;

	CHECK(open_claimed(path, &one_gib, &own) == 0);
	CHECK(region_charge(&own, 0, REGION_DATA, GIB, GIB) == 0);
	FLAG_SET(*user_is_ready);
	pause();
}

/* Another process uses the region at that path, and this one does not use its own any more. */
static pid_t spawn_user(char *path)
{
	pid_t child;

	region_close(&region);
	user_is_ready = user_is_ready ? user_is_ready : shared_memory(sizeof(*user_is_ready));
	*user_is_ready = 0;
	child = spawn(use, path);
	assert_true(reached(user_is_ready, 1, LONG_MS));
	return child;
}

UNIT_TEST(test_deleted_in_use)
{
	pid_t child = spawn_user(here.path);
	char words[64];

	assert_int_equal(unlink(here.path), 0);
	snprintf(words, sizeof(words), "process %d uses it", (int)child);
	assert_not_made(words);
	assert_not_made(words); /* nor of the empty file that this left */
	kill_child(child);
	assert_made();
}

/* Renamed as well; and one that was copied is another slice's. */
UNIT_TEST(test_renamed_in_use)
{
	pid_t child = spawn_user(here.path);
	char words[192];

	assert_int_equal(rename(here.path, other_path), 0);
	snprintf(words, sizeof(words), "was renamed to %s while process %d uses it", other_path,
		 (int)child);
	assert_not_made(words);
	assert_not_made(words); /* nor of the empty file that this left */
	kill_child(child);
	assert_made();
	child = spawn_user(other_path); /* where nobody lives: from then on, that path's region */
	assert_int_equal(unlink(here.path), 0);
	assert_made();
	kill_child(child);
}

/* A path that ends in another one is not that one. */
UNIT_TEST(test_deleted_elsewhere)
{
	char path[192], command[256];
	pid_t child;

	snprintf(command, sizeof(command), "mkdir -p %s%s", here.dir, here.dir);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s%s", here.dir, here.path);
	child = spawn_user(path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(here.path), 0);
	assert_made();
	kill_child(child);
	snprintf(command, sizeof(command), "rm -rf %s/tmp", here.dir);
	assert_int_equal(system(command), 0);
}

/* -- the descriptor --------------------------------------------------------------------------- */

UNIT_TEST(test_number)
{
	struct rlimit before, low = {30, 30};
	int zero = dup(0);

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
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	dup2(zero, 0);
	close(zero);
}

/* What the application did to our descriptor, and that the dead are found all the same. */
static void assert_dead_are_found(void (*take_away)(int fd))
{
	struct region other;
	int number;

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
	struct region other;

	open_one(&other);
	close(region.fd);
	region.path = "/nowhere/slice.cache";
	region.root_inode++;
	region_forget(&other);
	let_time_pass();
	assert_true(region_slot_alive(&region, 1));
	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, GIB), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, GIB - 2 * MIB, GIB), -EDQUOT);
}
