/* Opening a region: made, found again, reset when nobody is in it, appended to when somebody is. */
#include <sys/syscall.h>

#include "region_fixture.h"

UNIT_TEST(test_create)
{
	struct region_setup setup = setup_from(0, 2, GIB);
	struct region region = REGION_CLOSED;
	struct fault fault;
	struct stat st;
	mode_t mask = umask(077);

	assert_int_equal(region_open(here.path, &setup, &region, &fault), 0);
	assert_int_equal(umask(mask), 077);
	assert_int_equal(stat(here.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0666);
	assert_int_equal(st.st_size, 2097152);
	assert_true(st.st_blocks * 512 >=
		    2097152); /* no holes: a full disk must not kill us later */
	assert_int_equal(fcntl(region.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(region.slot, -1);
	assert_true(region.writable);
	assert_int_equal(region.file->hami.device_count, 2);
	assert_int_equal(region.file->hami.limit[1], GIB);
	assert_int_equal(region.file->hami.sm_limit[1], 50);
	assert_int_equal(region.file->hami.priority, 1);
	assert_int_equal(region.file->hami.recent_kernel, 2);
	assert_int_equal(region.file->hami.utilization_switch, 1);
	assert_int_equal(region_find_device(&region, "GPU-1"), 1);
	assert_int_equal(region_find_device(&region, "GPU-2"), -ENOENT);
	assert_int_equal(region_find_device(&region, "GPU"), -ENOENT);
	assert_int_equal(region_find_device(&region, ""), -ENOENT);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
	assert_null(region.file);
	assert_int_equal(region.fd, -1);
	region_close(&region); /* also of a closed one */
}

/* Also where whoever created the file died before it had its mode. */
UNIT_TEST(test_create_for_a_group)
{
	struct region_setup setup = setup_of(GIB);
	struct stat st;

	setup.has_group = true;
	setup.group = geteuid() == 0 ? 100 : getegid();
	for (int left_over = 0; left_over < 2; left_over++) {
		struct region region = REGION_CLOSED;

		if (left_over)
			close(open(here.path, O_CREAT | O_WRONLY, 0600));
		assert_int_equal(open_claimed(here.path, &setup, &region), 0);
		assert_int_equal(stat(here.path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0660);
		assert_int_equal(st.st_gid, setup.group);
		region_close(&region);
		unlink(here.path);
	}
}

UNIT_TEST(test_without_setup)
{
	struct region region = REGION_CLOSED, second = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_open(here.path, NULL, &region, &fault), -ENOENT);
	assert_non_null(strstr(fault.text, here.path));
	assert_int_equal(region.fd, -1);
	assert_int_equal(access(here.path, F_OK), -1);

	claim(&region);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 5, 0), 0);
	assert_int_equal(region_open(here.path, NULL, &second, &fault), 0);
	assert_int_equal(region_used(&second, 0), 5);
	region_close(&second);
	region_close(&region);
}

UNIT_TEST(test_reset_when_nobody_lives)
{
	struct region_setup old = setup_from(0, 3, GIB), new = setup_from(5, 1, 2 * GIB);
	struct region region = REGION_CLOSED;
	struct fault fault;

	assert_int_equal(open_claimed(here.path, &old, &region), 0);
	region.file->hami.recent_kernel = -1; /* as a monitor leaves it */
	region.file->hami.utilization_switch = 0;
	region.file->own.device[0].context_cost = 77;
	region.file->own.gang.member[3].owner = 1; /* as a process leaves it that is killed */
	region.file->own.gang.group.members = 4;
	region.file->own.gang.group.shut_at = 5;
	region.file->own.gang.group.used_ns = 6;
	region.file->own.gang.group.holder = 7;
	region.file->own.device[0].gang_until = 8;
	region.file->turn[0].joint_until = 9;
	region_close(&region);

	new.priority = 0;
	assert_int_equal(region_open(here.path, &new, &region, &fault), 0);
	assert_int_equal(region.file->hami.device_count, 1);
	assert_int_equal(region_find_device(&region, "GPU-5"), 0);
	assert_int_equal(region.file->hami.uuids[1][0], 0);
	assert_int_equal(region.file->hami.limit[0], 2 * GIB);
	assert_int_equal(region.file->hami.limit[1], 0);
	assert_int_equal(region.file->hami.slot_count, 0);
	assert_int_equal(region.file->hami.recent_kernel, 2);
	assert_int_equal(region.file->hami.utilization_switch, 1);
	assert_int_equal(region.file->hami.priority, 0);
	assert_int_equal(region.file->own.device[0].context_cost, 0);
	assert_int_equal(region.file->own.gang.member[3].owner, 0);
	assert_int_equal(region.file->own.gang.group.members, 0);
	assert_int_equal(region.file->own.gang.group.shut_at, 0);
	assert_int_equal(region.file->own.gang.group.used_ns, 0);
	assert_int_equal(region.file->own.gang.group.holder, 0);
	assert_int_equal(region.file->own.device[0].gang_until, 0);
	assert_int_equal(region.file->turn[0].joint_until, 0);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

struct dead_holder {
	const char *path;
	const struct region_setup *setup;
};

static void hold_and_die(void *arg)
{
	struct dead_holder *holder = arg;
	struct region region = REGION_CLOSED;

	CHECK(open_claimed(holder->path, holder->setup, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, 100 * MIB, 0) == 0);
	kill(getpid(), SIGKILL);
}

UNIT_TEST(test_reset_over_the_dead)
{
	struct region_setup other = setup_of(2 * GIB);
	struct dead_holder holder = {here.path, &one_gib};
	struct region region = REGION_CLOSED;
	struct fault fault;

	reap_status(spawn(hold_and_die, &holder));
	assert_int_equal(region_open(here.path, NULL, &region, &fault), 0);
	assert_int_equal(region_used(&region, 0), 100 * MIB); /* without a setup it stays */
	region_close(&region);
	assert_int_equal(region_open(here.path, &other, &region, &fault), 0);
	assert_int_equal(region_used(&region, 0), 0);
	assert_int_equal(region.file->hami.limit[0], 2 * GIB);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

UNIT_TEST(test_append_to_the_living)
{
	struct region_setup first = setup_from(0, 2, GIB), second = setup_from(1, 2, 4 * GIB);
	struct region region = REGION_CLOSED, other = REGION_CLOSED;

	assert_int_equal(open_claimed(here.path, &first, &region), 0);
	assert_int_equal(region_charge(&region, 1, REGION_DATA, 9, 0), 0);
	assert_int_equal(open_claimed(here.path, &second, &other), 0);
	assert_int_equal(other.file->hami.device_count, 3);
	assert_int_equal(region_find_device(&region, "GPU-0"), 0);
	assert_int_equal(region_find_device(&region, "GPU-1"), 1);
	assert_int_equal(region_find_device(&region, "GPU-2"), 2);
	assert_int_equal(other.file->hami.limit[1], GIB); /* that of the living stays */
	assert_int_equal(other.file->hami.limit[2], 4 * GIB);
	assert_int_equal(region_used(&other, 1), 9);
	assert_int_equal(count_wrong(&other), 0);
	region_close(&other);
	region_close(&region);
}

UNIT_TEST(test_more_devices_than_fit)
{
	struct region_setup first = setup_from(0, 16, GIB), second = setup_from(15, 2, GIB);
	struct region region = REGION_CLOSED, other = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(open_claimed(here.path, &first, &region), 0);
	assert_int_equal(region_open(here.path, &second, &other, &fault), -EINVAL);
	assert_non_null(strstr(fault.text, "16 is the most"));
	assert_int_equal(region.file->hami.device_count, 16);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

UNIT_TEST(test_setups_that_are_none)
{
	struct region_setup setup;
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	setup = setup_from(0, 2, GIB);
	setup.device_count = 17;
	assert_int_equal(region_open(here.path, &setup, &region, &fault), -EINVAL);
	setup = setup_from(0, 2, GIB);
	setup.device[1] = setup.device[0];
	assert_int_equal(region_open(here.path, &setup, &region, &fault), -EINVAL);
	assert_non_null(strstr(fault.text, "twice"));
	setup = setup_from(0, 2, GIB);
	memset(setup.device[1].uuid, 'x', VGPU_UUID_LEN);
	assert_int_equal(region_open(here.path, &setup, &region, &fault), -EINVAL);
	setup.device[1].uuid[0] = '\0';
	assert_int_equal(region_open(here.path, &setup, &region, &fault), -EINVAL);
	assert_int_equal(access(here.path, F_OK), -1);
	assert_int_equal(region.fd, -1);
}

/* -- several at once -------------------------------------------------------------------------- */

#define RACERS 8

struct race {
	const char *path;
	struct region_setup setup;
	uint64_t ready, go, opened, close;
	uint64_t slots[RACERS];
};

static void race_to_open(void *arg)
{
	struct race *race = arg;
	struct region region = REGION_CLOSED;

	__atomic_add_fetch(&race->ready, 1, __ATOMIC_SEQ_CST);
	while (!FLAG_READ(race->go))
		;
	CHECK(open_claimed(race->path, &race->setup, &region) == 0);
	CHECK(region_find_device(&region, "GPU-0") == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, 1, 0) == 0);
	__atomic_add_fetch(&race->slots[region.slot], 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&race->opened, 1, __ATOMIC_SEQ_CST);
	CHECK(reached(&race->close, 1, LONG_MS));
	region_close(&region);
}

/* Whoever is first makes it, and everybody is in the same one, each in a slot of its own. */
UNIT_TEST(test_all_open_at_once)
{
	struct race *race = shared_memory(sizeof(*race));
	struct region region = REGION_CLOSED;
	struct fault fault;

	for (int round = 0; round < 20; round++) {
		pid_t pids[RACERS];

		memset(race, 0, sizeof(*race));
		race->path = here.path;
		race->setup = setup_of(GIB);
		if (round % 2 == 0)
			unlink(here.path); /* else: a region that nobody is in */
		for (int i = 0; i < RACERS; i++)
			pids[i] = spawn(race_to_open, race);
		assert_true(reached(&race->ready, RACERS, LONG_MS));
		FLAG_SET(race->go);
		assert_true(reached(&race->opened, RACERS, LONG_MS));
		assert_int_equal(region_view(here.path, &region, &fault), 0);
		assert_int_equal(region_used(&region, 0), RACERS);
		assert_int_equal(region_living(&region), RACERS);
		assert_int_equal(count_wrong(&region), 0);
		for (int i = 0; i < RACERS; i++)
			assert_int_equal(race->slots[i], 1);
		region_close(&region);
		FLAG_SET(race->close);
		for (int i = 0; i < RACERS; i++)
			assert_int_equal(reap_status(pids[i]), 0);
	}
	munmap(race, sizeof(*race));
}

/* -- onlookers -------------------------------------------------------------------------------- */

UNIT_TEST(test_view)
{
	struct region region = REGION_CLOSED, view = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_view(here.path, &view, &fault), -ENOENT);
	claim(&region);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 5, 0), 0);
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	assert_true(view.writable);
	assert_int_equal(region_used(&view, 0), 5);
	assert_int_equal(region_living(&view), 1);
	assert_true(region_slot_alive(&view, 0));
	assert_false(region_slot_alive(&view, 1));
	assert_int_equal(region_charge(&view, 0, REGION_DATA, 5, 0), -EBADF);
	region_refund(&view, 0, REGION_DATA, 5);
	assert_int_equal(region_own_usage(&view, 0).total, 0);
	assert_int_equal(region_used(&view, 0), 5);
	region_close(&view);
	assert_int_equal(region_used(&region, 0), 5);
	region_close(&region);
}

/* The file is held first, and then opened: to write it, which fails, and to read it. */
static long no_writing(long number)
{
	static unsigned opens;

	return number == SYS_openat && opens++ == 1 ? -EACCES : 0;
}

UNIT_TEST(test_view_read_only)
{
	struct region region = claimed(), view = REGION_CLOSED;
	struct fault fault = {""};

	sys_fault = no_writing;
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	sys_fault = NULL;
	assert_false(view.writable);
	assert_int_equal(region_living(&view), 1);
	assert_int_equal(count_wrong(&view), 0);
	assert_int_equal(region_claim(&view, &fault), -EROFS);
	assert_int_equal(region_reap(&view), 0);
	region_close(&region);
	assert_int_equal(region_living(&view), 0);
	region_close(&view);
}
