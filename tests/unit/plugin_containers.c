/* What containers have on the host: how it is removed, whatever a tenant has made of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "clock.h"
#include "containers.h"
#include "place.h"
#include "records.h"
#include "size.h"
#include "sys.h"

#define RESOURCE "vgpu.dev/s"
#define DEPTH    1000 /* of directories: their path is longer than a path may be */
#define MANY     5000
#define ROUNDS   100

#define GRACE_S 300

/* The clocks are this machine's and the test's. clock_unix_s is the time of day. */
static int64_t wall_ahead_s;
static uint64_t ahead_s;
int64_t __real_clock_unix_s(void);
int64_t __wrap_clock_unix_s(void);
uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);

int64_t __wrap_clock_unix_s(void)
{
	return __real_clock_unix_s() + wall_ahead_s;
}

uint64_t __wrap_clock_now_ns(void)
{
	return __real_clock_now_ns() + ahead_s * NS_PER_S;
}

/* Files of this name cannot be opened by fopen. */
static const char *unreadable;
static unsigned mountinfos_opened;
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
	const char *name = strrchr(path, '/');

	mountinfos_opened += name && strcmp(name + 1, "mountinfo") == 0;
	if (unreadable && name && strcmp(name + 1, unreadable) == 0) {
		errno = EACCES;
		return NULL;
	}
	return __real_fopen(path, mode);
}

static char state_dir[96], regions_dir[96], library[96];
static struct containers_places places = {.state = state_dir, .regions = regions_dir};
static const struct policy policy = {
	.device_count = 1,
	.device = {{.uuid = "GPU-a", .memory_bytes = GIB}},
	.region_path = "/run/vgpu/region",
	.name = "s",
};

static void prepare(void)
{
	struct fault fault = {""};

	if (containers_prepare(&places, library, "/usr/local/lib/libvgpu.so", &fault))
		fail_msg("%s", fault.text);
}

static int make_place(void **state)
{
	int fd;

	if (place_make(state))
		return -1;
	wall_ahead_s = 0;
	ahead_s = 0;
	unreadable = NULL;
	snprintf(state_dir, sizeof(state_dir), "%s/state", here.dir);
	snprintf(regions_dir, sizeof(regions_dir), "%s/regions", here.dir);
	snprintf(library, sizeof(library), "%s/library", here.dir);
	fd = open(library, O_WRONLY | O_CREAT, 0644);
	if (fd < 0 || write(fd, "library", 7) != 7 || close(fd) < 0)
		return -1;
	prepare();
	return 0;
}

#undef UNIT_SET_UP
#define UNIT_SET_UP make_place

/* Of the containers that a test makes. */
static char made[CONTAINERS_NAME_LEN], older[CONTAINERS_NAME_LEN], newer[CONTAINERS_NAME_LEN],
	unused[CONTAINERS_NAME_LEN];

static void make(const char *id, char ret_name[CONTAINERS_NAME_LEN])
{
	const char *const ids[] = {id, NULL};
	struct fault fault = {""};

	if (containers_make(&places, RESOURCE, ids, &policy, ret_name, &fault))
		fail_msg("%s", fault.text);
}

/* How many names the directory has. */
static unsigned count(const char *path)
{
	const struct dirent *entry;
	unsigned found = 0;
	DIR *dir = opendir(path);

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		found += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(dir);
	return found;
}

static int open_region(const char *name)
{
	char path[192];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", regions_dir, name);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	return fd;
}

/* A directory in dir, and so on, with a file in each. dir is closed. */
static void nest(int dir, unsigned depth)
{
	while (depth-- > 0) {
		int below, file = openat(dir, "file", O_WRONLY | O_CREAT, 0600);

		assert_true(file >= 0);
		close(file);
		assert_int_equal(mkdirat(dir, "below", 0700), 0);
		below = openat(dir, "below", O_RDONLY | O_DIRECTORY);
		assert_true(below >= 0);
		close(dir);
		dir = below;
	}
	close(dir);
}

/* Takes all containers to be gone, as no pod has any device. */
static void sweep(void)
{
	const struct bytes none = {0};

	assert_true(containers_sweep(&places, &none, 0) >= 0);
}

/* What is gone while a pod has the device "a" all the time. */
static void sweep_in_use(void)
{
	struct bytes used = {0};

	bytes_add(&used, "a", 2);
	assert_true(containers_sweep(&places, &used, GRACE_S) >= 0);
	bytes_free(&used);
}

static bool is_there(const char *name)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s/policy", state_dir, name);
	return access(path, F_OK) == 0;
}

static void remove_all(void)
{
	for (unsigned i = 0; i < ROUNDS && !containers_remove(&places); i++)
		;
	assert_int_equal(count(regions_dir), 0);
}

UNIT_TEST(test_removes_what_is_nested_deeply)
{
	make("a", made);
	nest(open_region(made), DEPTH);
	sweep();
	remove_all();
}

UNIT_TEST(test_removes_many_files_in_several_rounds)
{
	char file[16];
	int dir;

	make("a", made);
	dir = open_region(made);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(file, sizeof(file), "%u", i);
		assert_int_equal(mkdirat(dir, file, 0), 0);
	}
	close(dir);
	sweep();
	assert_false(containers_remove(&places));
	remove_all();
}

UNIT_TEST(test_follows_no_link)
{
	int dir;

	make("a", made);
	dir = open_region(made);
	assert_int_equal(symlinkat(here.dir, dir, "link"), 0);
	assert_int_equal(mkdirat(dir, "below", 0700), 0);
	assert_int_equal(symlinkat(here.dir, dir, "below/link"), 0);
	close(dir);
	sweep();
	remove_all();
	assert_int_equal(access(library, F_OK), 0);
}

/* -- the newer of two ---------------------------------------------------------------------------
 */

UNIT_TEST(test_the_older_of_two_is_gone)
{
	make("a", older);
	make("a", newer); /* an init container and another one of the same pod */
	sweep_in_use();
	assert_true(is_there(older) && is_there(newer));
	ahead_s += GRACE_S;
	make("a", newer);
	sweep_in_use();
	assert_true(!is_there(older) && is_there(newer));
}

UNIT_TEST(test_the_newer_stays_when_the_clock_is_set_back)
{
	make("a", older);
	wall_ahead_s = -2 * GRACE_S;
	ahead_s = GRACE_S;
	make("a", newer);
	sweep_in_use();
	assert_true(!is_there(older) && is_there(newer));
}

UNIT_TEST(test_what_is_new_stays_when_the_clock_is_set_forward)
{
	make("b", made);
	wall_ahead_s = 2 * GRACE_S;
	sweep_in_use();
	assert_true(is_there(made));
}

/* How many mountinfo files a look opens that finds so many containers unused. */
static unsigned opened_for(unsigned containers)
{
	char id[32];

	for (unsigned i = 0; i < containers; i++) {
		snprintf(id, sizeof(id), "many-%u", i);
		make(id, made);
	}
	ahead_s += 2 * GRACE_S;
	mountinfos_opened = 0;
	sweep();
	remove_all();
	return mountinfos_opened;
}

UNIT_TEST(test_proc_is_read_once_a_look)
{
	unsigned one, many;

	one = opened_for(1);
	many = opened_for(100);
	print_message("mountinfo files opened for 1 container: %u, for 100: %u\n", one, many);
	assert_true(one > 0 && many > 0 && many < 3 * one + 50);
}

UNIT_TEST(test_what_cannot_be_seen_is_mounted)
{
	make("b", made);
	ahead_s = GRACE_S;
	wall_ahead_s = GRACE_S;
	unreadable = "mountinfo";
	sweep_in_use();
	assert_true(is_there(made));
	unreadable = NULL;
	sweep_in_use();
	assert_false(is_there(made));
}

/* The record of that name becomes one of that start of the machine, at that time in it. */
static void move_record(const char *name, unsigned long long made_s, const char *boot)
{
	char path[192], text[256], *rest;
	unsigned long long number;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/record", state_dir, name);
	file = fopen(path, "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	number = strtoull(text, NULL, 10);
	rest = strchr(text, '\n');
	assert_non_null(rest);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%llu %llu %s%s", number, made_s, boot, rest);
	fclose(file);
}

/* The record of that name becomes one of another start of the machine, late in it. */
static void age(const char *name)
{
	move_record(name, 4000000000, "another");
}

UNIT_TEST(test_grace_is_over_between_two_starts)
{
	make("a", older);
	age(older);
	make("a", newer);
	make("b", unused);
	age(unused);
	sweep_in_use();
	assert_true(!is_there(older) && is_there(newer) && !is_there(unused));
}

UNIT_TEST(test_an_unknown_start_is_no_other_start)
{
	const unsigned long long now_s = clock_now_ns() / NS_PER_S;

	make("a", older);
	make("a", newer); /* an init container and another one of the same pod */
	make("b", unused);
	move_record(newer, now_s, "");
	move_record(unused, now_s, "");
	sweep_in_use();
	assert_true(is_there(older) && is_there(newer) && is_there(unused));
	move_record(older, now_s, "");
	move_record(newer, now_s, "another");
	sweep_in_use();
	assert_true(is_there(older) && is_there(newer));
}

/* So many opens of files succeed, and then no descriptor is free. */
static unsigned opens_left;

static long open_until_none_is_left(long number)
{
	if (number != SYS_openat && number != SYS_open)
		return 0;
	return opens_left > 0 ? (opens_left--, 0) : -EMFILE;
}

/* Whether the container may start while so many descriptors are free. */
static int ready_with(unsigned opens, struct fault *fault)
{
	const char *const ids[] = {"a", NULL};
	int error;

	opens_left = opens;
	sys_fault = open_until_none_is_left;
	error = containers_ready(&places, ids, fault);
	sys_fault = NULL;
	return error;
}

UNIT_TEST(test_a_lack_of_descriptors_is_no_lost_policy)
{
	struct fault fault = {""};
	unsigned opens = 0;
	int error;

	make("a", made);
	while ((error = ready_with(opens, &fault)) != 0 && opens < 100) {
		print_message("%u: %s\n", opens, fault.text);
		assert_int_equal(error, -EMFILE);
		assert_null(strstr(fault.text, "delete the pod"));
		opens++;
	}
	assert_int_equal(error, 0);
	assert_true(opens > 3); /* of directories, the record and the policy's files */
}

UNIT_TEST(test_a_damaged_policy_is_lost)
{
	const char *const ids[] = {"a", NULL};
	char path[192], other[200];
	struct fault fault = {""};

	make("a", made);
	snprintf(path, sizeof(path), "%s/%s/policy/GPU-a", state_dir, made);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(containers_ready(&places, ids, &fault), -ENOENT);
	assert_non_null(strstr(fault.text, "delete the pod"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(containers_ready(&places, ids, &fault), -ENOENT);
	assert_int_equal(rmdir(path), 0);
	snprintf(path, sizeof(path), "%s/%s/policy", state_dir, made);
	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(rename(path, other), 0);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(containers_ready(&places, ids, &fault), -ENOENT);
}

/* The kubelet's answer of pods has IDs that other device plugins chose. */
UNIT_TEST(test_an_odd_id_is_none)
{
	static const char zeros[16 * 1024 * 1024];
	struct records records;

	make("GPU-a::s::0", made);
	assert_int_equal(records_read(state_dir, &records), 0);
	assert_non_null(records_newest(&records, "GPU-a::s::0", strlen("GPU-a::s::0")));
	assert_null(records_newest(&records, zeros, sizeof(zeros)));
	assert_null(records_newest(&records, "", 0));
	assert_null(records_newest(&records, "GPU-a::s::0\n", strlen("GPU-a::s::0\n")));
	assert_null(records_newest(&records, "GPU-a::s::", strlen("GPU-a::s::")));
	assert_null(records_newest(&records, RESOURCE, strlen(RESOURCE)));
	records_free(&records);
}

/* The container's record does not fit the disk. */
UNIT_TEST(test_what_cannot_be_made_leaves_nothing)
{
	const char *const ids[] = {"a", NULL};
	struct fault fault = {""};
	struct rlimit before, small;
	unsigned there = count(state_dir);

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){16, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(containers_make(&places, RESOURCE, ids, &policy, made, &fault), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(count(state_dir), there);
	assert_int_equal(count(regions_dir), 0);
}

UNIT_TEST(test_a_pipe_is_no_record)
{
	char path[192];
	struct records records;

	snprintf(path, sizeof(path), "%s/00000000000000000000000000000000", state_dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/00000000000000000000000000000000/record", state_dir);
	place_pipe(path);
	assert_int_equal(records_read(state_dir, &records), 0);
	assert_int_equal(records.count, 0);
	records_free(&records);
}
