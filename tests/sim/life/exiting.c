/*
 * What a monitor sees of a process that exits: nothing, from the moment that it begins to. And what
 * the quota keeps counting: all that the device still holds for it. The monitor is HAMi's: it adds
 * up what the region says, without a lock and without a question of who lives.
 */
#include "last.h"
#include "life.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD    (100 * MIB)
#define LATE_MS 30

enum { SEEN_BYTES, SEEN_STATUS, SEEN_LEDGER, LATE_DONE, ROUNDS }; /* places on the board */

/* -- the monitor ------------------------------------------------------------------------------- */

static unsigned slots_shown(void)
{
	const struct vgpu_hami_region *hami = &ledger()->hami;
	unsigned shown = 0;

	for (int i = 0; i < hami->slot_count; i++)
		shown += hami->slots[i].status != 0 || hami->slots[i].pid != 0 ||
			 hami->slots[i].hostpid != 0;
	return shown;
}

/* Of all slots, whatever their status. */
static uint64_t bytes_shown(void)
{
	const struct vgpu_hami_region *hami = &ledger()->hami;
	uint64_t bytes = 0;

	for (int i = 0; i < hami->slot_count; i++) {
		const struct vgpu_hami_usage *used = &hami->slots[i].used[ledger_index(0)];

		bytes += used->total + used->context + used->module + used->data + used->offset;
		bytes += hami->slots[i].device_util[ledger_index(0)].sm;
	}
	return bytes;
}

/* -- ends -------------------------------------------------------------------------------------- */

static CUcontext context;
static CUdeviceptr late; /* freed after the library's destructor */

/* After all destructors, ours included: the driver still works, and so does its accounting. */
static void after_all(void)
{
	board_write(SEEN_BYTES, bytes_shown());
	board_write(SEEN_STATUS, slots_shown());
	board_write(SEEN_LEDGER, ledger_used(0));
	give(late);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + HELD);
	late = take(HELD / 2);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + HELD + HELD / 2);
	CHECK_EQUAL(outside_used(0), OUTSIDE + HELD + HELD / 2);
	CHECK_EQUAL(bytes_shown(), 0);
	board_write(LATE_DONE, 1);
}

static void start(void)
{
	alarm(WAIT_S);
	context = cuda_start(0);
	take(HELD);
	late = take(HELD);
	CHECK(bytes_shown() >= 2 * (CONTEXT + HIDDEN + 2 * HELD));
	CHECK_EQUAL(slots_shown(), 1);
}

static void by_exit(void)
{
	start();
	last_call = after_all;
	exit(0);
}

/* quick_exit calls handlers in the reverse order: this one after the library's. */
static void by_quick_exit(void)
{
	CHECK_EQUAL(at_quick_exit(after_all), 0);
	start();
	quick_exit(0);
}

static void by__exit(void)
{
	start();
	board_write(LATE_DONE, 1);
	_exit(0);
}

static void *end_last(void *arg)
{
	CHECK_OK(cuCtxSetCurrent(context));
	sleep_ms(10);
	return arg;
}

/* The process exits with its last thread. */
static void by_last_thread(void)
{
	pthread_t thread;

	start();
	last_call = after_all;
	CHECK(pthread_create(&thread, NULL, end_last, NULL) == 0);
	pthread_exit(NULL);
}

static void *exit_here(void *arg)
{
	board_write(LATE_DONE, 1);
	sleep_ms(5);
	exit(0);
	return arg;
}

/* From another thread than that which allocates and frees, as from a callback of the driver's. */
static void by_a_thread(void)
{
	pthread_t thread;

	start();
	give(late);
	CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
	allocate_and_free(context);
}

static void by_kill(void)
{
	start();
	board_write(LATE_DONE, 1);
	raise(SIGKILL);
}

static const struct {
	void (*end)(void);
	int status;
	bool looks; /* after_all looks before the process has ended */
} ends[] = {
	{by_exit, 0, true},        {by_quick_exit, 0, true}, {by__exit, 0, false},
	{by_last_thread, 0, true}, {by_a_thread, 0, false},
};

TEST(is_not_shown)
{
	board_open();
	set_quota(1, 2 * HELD);
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct said said;

		board_write(LATE_DONE, 0);
		said = member_listen(ends[i].end);
		if (said.status != ends[i].status || said.err[0])
			fprintf(stderr, "end %u: %s\n", i, said.err);
		CHECK_EQUAL(said.status, ends[i].status);
		CHECK_EQUAL(board_read(LATE_DONE), 1);
		CHECK_EQUAL(bytes_shown(), 0);
		CHECK_EQUAL(slots_shown(), 0);
		if (ends[i].looks) {
			CHECK_EQUAL(board_read(SEEN_BYTES), 0);
			CHECK_EQUAL(board_read(SEEN_STATUS), 0);
			CHECK_EQUAL(board_read(SEEN_LEDGER), CONTEXT + HIDDEN + 2 * HELD);
		}
		assert_nobody();
	}
}

/* It stays as it is until the next process of the slice comes. */
TEST(the_killed_are_shown)
{
	board_open();
	set_quota(1, 2 * HELD);
	CHECK_EQUAL(member_listen(by_kill).status, SIGKILL);
	CHECK_EQUAL(slots_shown(), 1);
	CHECK_EQUAL(member_listen(by_exit).status, 0);
	CHECK_EQUAL(slots_shown(), 0);
	CHECK_EQUAL(bytes_shown(), 0);
	assert_nobody();
}

/* -- children ---------------------------------------------------------------------------------- */

static void child_exits(void)
{
	pid_t child = fork();

	if (child == 0)
		exit(0);
	expect_ended(child);
	child = fork();
	if (child == 0)
		_exit(0);
	expect_ended(child);
	child = fork();
	if (child == 0)
		quick_exit(0);
	expect_ended(child);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/* It has the parent's memory, the library's included. */
static void vfork_child_exits(void)
{
	pid_t child = vfork();

	if (child == 0)
		_exit(0);
	expect_ended(child);
}
#pragma GCC diagnostic pop

/* No fork handler runs for it. */
static void raw_child_exits(void)
{
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (child == 0)
		exit(0);
	expect_ended(child);
}

static void spawned_child_exits(void)
{
	static char *arguments[] = {(char *)(uintptr_t) "true", NULL};
	pid_t child;

	CHECK_EQUAL(posix_spawnp(&child, "true", NULL, NULL, arguments, environ), 0);
	expect_ended(child);
}

TEST(children_leave_the_parent_alone)
{
	static void (*const children[])(void) = {child_exits, vfork_child_exits, raw_child_exits,
						 spawned_child_exits};

	set_quota(1, 2 * HELD + 2 * GRANULE);
	board_open();
	start();
	for (unsigned i = 0; i < sizeof(children) / sizeof(*children); i++) {
		children[i]();
		CHECK_EQUAL(slots_shown(), 1);
		CHECK_EQUAL(ledger_own(0).total, CONTEXT + HIDDEN + 2 * HELD);
		give(take(1));
	}
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + 2 * HELD);
}

/* -- the quota, as others exit ----------------------------------------------------------------- */

static void stay_for_a_while(void)
{
	sleep_ms(LATE_MS);
}

/* Fills a third of the slice, exits, and has its memory for LATE_MS after that. */
static void come_and_exit(int wire)
{
	pthread_t thread;

	alarm(WAIT_S);
	hear(wire);
	if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
		_exit(0); /* no room for it now */
	CHECK_OK(cuCtxSetCurrent(context));
	while (cuMemAlloc_v2(&late, HELD) == CUDA_SUCCESS)
		continue;
	last_call = stay_for_a_while;
	CHECK(pthread_create(&thread, NULL, allocate_and_free, context) == 0);
	sleep_ms(2);
	exit(0);
}

static void fill_all_the_time(int wire)
{
	CUdeviceptr pieces[64];

	cuda_start(0);
	give(take(1)); /* now the slice knows what a context costs */
	tell(wire, 1);
	while (board_read(ROUNDS) == 0) {
		unsigned count = 0;

		while (count < 64 && cuMemAlloc_v2(&pieces[count], 16 * MIB) == CUDA_SUCCESS)
			count++;
		while (count)
			give(pieces[--count]);
	}
}

TEST(quota_holds)
{
	uint64_t quota = 3 * (CONTEXT + HIDDEN) + 3 * HELD;
	struct member filler, leavers[2];
	uint64_t peak;

	board_open();
	set_quota(3, 3 * HELD);
	outside_peak_begin(0);
	filler = member_begin(fill_all_the_time);
	for (unsigned round = 0; round < 15; round++) {
		for (unsigned i = 0; i < 2; i++)
			leavers[i] = member_start(come_and_exit);
		for (unsigned i = 0; i < 2; i++)
			tell(leavers[i].wire, 1);
		for (unsigned i = 0; i < 2; i++)
			member_end(&leavers[i]);
	}
	board_write(ROUNDS, 1);
	member_end(&filler);
	peak = outside_peak(0);
	CHECK_AT_MOST(peak, quota + 3 * GRANULE);
	CHECK(peak > quota / 2);
	CHECK_EQUAL(bytes_shown(), 0);
	assert_nobody();
}
