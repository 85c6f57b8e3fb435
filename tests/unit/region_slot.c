/* Slots: claimed once each, alive for as long as their process is, and emptied after it. */
#include <sys/resource.h>

#include "region_fixture.h"
#include "region_internal.h"

struct holder {
	const char *path;
	struct region_setup setup;
	uint64_t ready, go, forgotten, done;
	pid_t child;
};

static struct holder *holder_make(const char *path)
{
	struct holder *holder = shared_memory(sizeof(*holder));

	holder->path = path;
	holder->setup = setup_of(GIB);
	return holder;
}

static void hold_until_killed(void *arg)
{
	struct holder *holder = arg;
	struct region region = REGION_CLOSED;

	CHECK(open_claimed(holder->path, &holder->setup, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, 10 * MIB, 0) == 0);
	FLAG_SET(holder->ready);
	for (;;)
		pause();
}

UNIT_TEST(test_claim_and_close)
{
	struct region a = claimed(), b = claimed();
	struct fault fault = {""};
	const struct vgpu_hami_slot *slot;

	assert_int_equal(a.slot, 0);
	assert_int_equal(b.slot, 1);
	slot = &a.file->hami.slots[1];
	assert_int_equal(slot->pid, getpid());
	assert_true(slot->hostpid == 0 || slot->hostpid == getpid());
	assert_int_equal(slot->status, VGPU_SLOT_RUNNING);
	assert_int_equal(a.file->hami.slot_count, 2);
	assert_int_equal(a.file->own.slots[1].claims, 1);
	assert_int_equal(region_claim(&b, &fault), -EALREADY);
	assert_int_equal(region_living(&a), 2);
	assert_true(region_slot_alive(&a, 0) && region_slot_alive(&a, 1));
	assert_false(region_slot_alive(&a, 2) || region_slot_alive(&a, 5000));

	assert_int_equal(region_charge(&b, 0, REGION_DATA, 7, 0), 0);
	region_close(&b);
	assert_int_equal(slot->status, VGPU_SLOT_FREE);
	assert_int_equal(slot->pid, 0);
	assert_int_equal(slot->used[0].total, 0);
	assert_int_equal(region_used(&a, 0), 0);
	assert_int_equal(region_living(&a), 1);
	claim(&b);
	assert_int_equal(b.slot, 1); /* it is used again, and the mark stays */
	assert_int_equal(a.file->hami.slot_count, 2);
	assert_int_equal(a.file->own.slots[1].claims, 2);
	assert_int_equal(count_wrong(&a), 0);
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_every_slot)
{
	static struct region regions[VGPU_SLOTS_MAX];
	struct region more = REGION_CLOSED;
	struct fault fault = {""};
	struct rlimit limit = {VGPU_SLOTS_MAX + 100, VGPU_SLOTS_MAX + 100};

	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		skip();
	for (int i = 0; i < VGPU_SLOTS_MAX; i++) {
		regions[i] = (struct region)REGION_CLOSED;
		assert_int_equal(
			region_open(here.path, i == 0 ? &one_gib : NULL, &regions[i], &fault), 0);
		assert_int_equal(region_claim(&regions[i], &fault), 0);
		assert_int_equal(regions[i].slot, i);
		assert_int_equal(region_charge(&regions[i], 0, REGION_DATA, 1, 0), 0);
	}
	assert_int_equal(region_living(&regions[0]), 1024);
	assert_int_equal(region_used(&regions[0], 0), 1024);
	assert_int_equal(region_open(here.path, NULL, &more, &fault), 0);
	assert_int_equal(region_claim(&more, &fault), -EUSERS);
	assert_non_null(strstr(fault.text, "1024"));
	assert_int_equal(more.slot, -1);

	region_close(&regions[700]);
	assert_int_equal(region_claim(&more, &fault), 0);
	assert_int_equal(more.slot, 700);
	assert_int_equal(count_wrong(&more), 0);
	for (int i = 0; i < VGPU_SLOTS_MAX; i++)
		region_close(&regions[i]);
	assert_int_equal(region_used(&more, 0), 0);
	assert_int_equal(region_living(&more), 1);
	region_close(&more);
}

/* A dead process's slot is only taken when none is free, and its holdings go at once. */
UNIT_TEST(test_claim_over_the_dead)
{
	struct region a = claimed(), dead = claimed(), b = REGION_CLOSED;

	assert_int_equal(region_charge(&dead, 0, REGION_DATA, 50, 0), 0);
	assert_int_equal(region_charge(&a, 0, REGION_DATA, 4, 0), 0);
	region_forget(&dead);
	for (unsigned slot = 2; slot < VGPU_SLOTS_MAX; slot++)
		a.file->hami.slots[slot].status = VGPU_SLOT_RUNNING; /* as if none were free */
	claim(&b);
	assert_int_equal(b.slot, 1);
	assert_int_equal(region_used(&b, 0), 4);
	assert_int_equal(region_own_usage(&b, 0).total, 0);
	for (unsigned slot = 2; slot < VGPU_SLOTS_MAX; slot++)
		a.file->hami.slots[slot].status = VGPU_SLOT_FREE;
	assert_int_equal(count_wrong(&a), 0);
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_reap)
{
	struct holder *holder = holder_make(here.path);
	struct region region = claimed(), view = REGION_CLOSED;
	struct fault fault;
	pid_t pid;

	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, 0), 0);
	for (int round = 0; round < 2; round++) {
		holder->ready = 0;
		pid = spawn(hold_until_killed, holder);
		assert_true(reached(&holder->ready, 1, LONG_MS));
		assert_int_equal(region_reap(&region), 0);
		assert_int_equal(region_used(&region, 0), 11 * MIB);
		kill_child(pid);
		assert_false(region_slot_alive(&region, 1));
		assert_int_equal(region_living(&region), 1);
		assert_int_equal(region_view(here.path, &view, &fault), 0);
		/* Once by one who has a slot, once by one who has none. */
		assert_int_equal(region_reap(round == 0 ? &region : &view), 1);
		assert_int_equal(region_reap(&region), 0);
		assert_int_equal(region_used(&region, 0), MIB);
		assert_int_equal(region.file->hami.slots[1].pid, 0);
		assert_int_equal(count_wrong(&region), 0);
		region_close(&view);
	}
	/* The onlooker gave the borrowed byte back, and its slot was never anybody's. */
	assert_int_equal(sys_byte_is_locked(region.fd, VGPU_SLOT_LOCK_OFFSET + 1023), 0);
	assert_int_equal(region.file->hami.slot_count, 2);
	region_close(&region);
	munmap(holder, sizeof(*holder));
}

static const struct vgpu_hami_slot *emptied;
static unsigned halves;

static void assert_hidden(enum region_step step)
{
	if (step != REGION_STEP_clear_hidden && step != REGION_STEP_clear_half)
		return;
	assert_int_equal(emptied->status, VGPU_SLOT_FREE);
	halves += step == REGION_STEP_clear_half && emptied->used[0].total == 0;
}

/* No monitor takes what is left of a slot, while it is emptied, for what a process holds. */
UNIT_TEST(test_emptied_slot_is_hidden)
{
	struct region a = claimed(), b = claimed();

	assert_int_equal(region_charge(&b, 0, REGION_DATA, 5, 0), 0);
	region_forget(&b);
	emptied = &a.file->hami.slots[1];
	region_step_hook = assert_hidden;
	assert_int_equal(region_reap(&a), 1);
	region_step_hook = NULL;
	assert_int_equal(halves, 1);
	region_close(&a);
}

UNIT_TEST(test_suspended_counts)
{
	struct region a = claimed(), b = claimed();

	b.file->hami.slots[1].status = VGPU_SLOT_SUSPENDED;
	assert_int_equal(region_charge(&b, 0, REGION_DATA, 5, 0), 0);
	assert_int_equal(region_living(&a), 2);
	assert_int_equal(region_reap(&a), 0);
	assert_int_equal(count_wrong(&a), 0);
	region_forget(&b);
	assert_int_equal(region_reap(&a), 1);
	assert_int_equal(region_used(&a, 0), 0);
	region_close(&a);
}

/* -- fork ------------------------------------------------------------------------------------- */

static void forget_and_wait(struct holder *holder, struct region *region)
{
	prctl(PR_SET_PDEATHSIG, 0); /* it is to outlive its parent */
	departure_leave();
	region_forget(region);
	CHECK(region->fd == -1 && region->slot == -1 && !region->file);
	FLAG_SET(holder->forgotten);
	CHECK(reached(&holder->done, 1, LONG_MS));
	_exit(0);
}

static void fork_a_child(void *arg)
{
	struct holder *holder = arg;
	struct region region = REGION_CLOSED;
	pid_t child;

	CHECK(open_claimed(holder->path, &holder->setup, &region) == 0);
	CHECK(region_charge(&region, 0, REGION_DATA, MIB, 0) == 0);
	child = fork();
	if (child == 0)
		forget_and_wait(holder, &region);
	holder->child = child;
	FLAG_SET(holder->ready);
	CHECK(reached(&holder->go, 1, LONG_MS));
	CHECK(region_charge(&region, 0, REGION_DATA, MIB, 0) == 0);
	FLAG_SET(holder->done);
	for (;;)
		pause();
}

UNIT_TEST(test_fork)
{
	struct holder *holder = holder_make(here.path);
	struct region region = claimed();
	uint64_t *done = &holder->done;
	pid_t pid;

	pid = spawn(fork_a_child, holder);
	assert_true(reached(&holder->ready, 1, LONG_MS));
	assert_true(reached(&holder->forgotten, 1, LONG_MS));
	assert_true(
		region_slot_alive(&region, 1)); /* what the child forgot is the parent's still */
	assert_int_equal(region_used(&region, 0), MIB);
	kill_child(pid);
	assert_int_equal(kill(holder->child, 0), 0); /* the child lives on */
	assert_false(region_slot_alive(&region, 1));
	assert_int_equal(region_reap(&region), 1);
	assert_int_equal(region_used(&region, 0), 0);
	FLAG_SET(*done);
	region_close(&region);
	munmap(holder, sizeof(*holder));
}

/* The child opens a region of its own: a second slot, and the parent's is not touched. */
static void open_again(void *arg)
{
	struct region *region = arg;

	region_forget(region);
	CHECK(open_claimed(here.path, &one_gib, region) == 0);
	CHECK(region->slot == 1);
	CHECK(region_charge(region, 0, REGION_DATA, MIB, 0) == 0);
	CHECK(region_used(region, 0) == 2 * MIB);
	region_close(region);
}

UNIT_TEST(test_child_opens_its_own)
{
	struct region region = claimed();

	assert_int_equal(region_charge(&region, 0, REGION_DATA, MIB, 0), 0);
	assert_int_equal(reap_status(spawn(open_again, &region)), 0);
	assert_int_equal(region_used(&region, 0), MIB);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* -- an application that closes descriptors that are not its own ------------------------------ */

UNIT_TEST(test_descriptor_closed_by_others)
{
	struct region a = claimed(), b = claimed();
	int fd;

	assert_int_equal(region_charge(&b, 0, REGION_DATA, 5, 0), 0);
	fd = a.fd;
	close(fd);
	assert_true(region_slot_alive(&b, 0)); /* the mapping keeps the slot */
	assert_int_equal(dup2(STDIN_FILENO, fd), fd);
	assert_int_equal(region_reap(&a), 0); /* that file has no locks, and b is not dead for it */
	assert_int_equal(region_used(&a, 0), 5);
	assert_true(region_slot_alive(&a, 1));
	assert_int_equal(region_charge(&a, 0, REGION_DATA, 5, 0), 0);
	region_close(&a);
	assert_int_equal(fcntl(fd, F_GETFD) >= 0, 1); /* the application's file is open still */
	close(fd);
	assert_false(region_slot_alive(&b, 0));
	assert_int_equal(region_used(&b, 0), 5);
	region_close(&b);
}
