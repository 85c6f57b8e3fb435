/*
 * A parent that ends while a child of its goes on. The child was forked before CUDA started, and
 * holds memory of its own and of its parent; or it was forked after that, and calls nothing. The
 * slice is charged what the living hold, however the parent ends.
 */
#include "life.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARENTS (200 * MIB)
#define OWN     (100 * MIB)

enum { EXPORTED, HOLDS, CLOSE, CLOSED, END, LIVES }; /* places on the board */

static CUipcMemHandle *handle; /* shared by all */

/* -- ends -------------------------------------------------------------------------------------- */

static void by_exit(void)
{
	exit(0);
}

static void by_quick_exit(void)
{
	quick_exit(0);
}

static void by__exit(void)
{
	_exit(0);
}

static void by_system_call(void)
{
	syscall(SYS_exit_group, 0);
}

static void by_kill(void)
{
	raise(SIGKILL);
}

struct end {
	const char *name;
	void (*end)(void);
	int status; /* of waitpid(2) */
};

static const struct end *chosen;

/* Runs the parent to its end. Its child lives on. */
static void run(void (*body)(void), int status)
{
	pid_t parent = fork();

	CHECK(parent >= 0);
	if (parent == 0) {
		alarm(WAIT_S); /* should the test be gone by then */
		body();
	}
	expect_status(parent, status);
}

/* -- the child holds memory -------------------------------------------------------------------- */

static void holder(void)
{
	CUdeviceptr imported;

	alarm(WAIT_S); /* should the test be gone by then */
	board_wait(EXPORTED, 1);
	cuda_start(0);
	take(OWN);
	CHECK_OK(cuIpcOpenMemHandle_v2(&imported, *handle, 1));
	board_write(HOLDS, 1);
	board_wait(CLOSE, 1);
	CHECK_OK(cuIpcCloseMemHandle(imported));
	board_write(CLOSED, 1);
	board_wait(END, 1);
	exit(0);
}

static void parent_of_a_holder(void)
{
	CUdeviceptr mine;

	if (fork() == 0)
		holder();
	cuda_start(0);
	mine = take(PARENTS);
	CHECK_OK(cuIpcGetMemHandle(handle, mine));
	board_write(EXPORTED, 1);
	board_wait(HOLDS, 1);
	chosen->end();
}

static void share_handle(void)
{
	handle = mmap(NULL, sizeof(*handle), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(handle != MAP_FAILED);
}

static void child_holds(const struct end *end)
{
	board_open();
	share_handle();
	set_quota(2, PARENTS + OWN);
	chosen = end;
	run(parent_of_a_holder, end->status);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	assert_alone_with(PARENTS + OWN);
	board_write(CLOSE, 1);
	board_wait(CLOSED, 1);
	assert_alone_with(OWN);
	board_write(END, 1);
	assert_nobody();
}

static const struct end holding[] = {
	{"held_after_exit", by_exit, 0},         {"held_after_quick_exit", by_quick_exit, 0},
	{"held_after__exit", by__exit, 0},       {"held_after_the_system_call", by_system_call, 0},
	{"held_after_a_kill", by_kill, SIGKILL},
};
TEST_TABLE(holding, child_holds);

/* -- the child calls nothing ------------------------------------------------------------------- */

static void parent_of_an_idle_child(void)
{
	cuda_start(0);
	take(PARENTS);
	if (fork() == 0) {
		alarm(WAIT_S);
		board_write(LIVES, (uint64_t)getpid());
		pause();
		_exit(0);
	}
	while (!board_read(LIVES))
		sleep_ms(1);
	chosen->end();
}

static void child_is_idle(const struct end *end)
{
	board_open();
	set_quota(1, PARENTS);
	chosen = end;
	run(parent_of_an_idle_child, end->status);
	assert_nobody();
	CHECK_EQUAL(kill((pid_t)board_read(LIVES), SIGKILL), 0); /* it was there all the time */
}

static const struct end idle[] = {
	{"idle_after_exit", by_exit, 0},         {"idle_after_quick_exit", by_quick_exit, 0},
	{"idle_after__exit", by__exit, 0},       {"idle_after_the_system_call", by_system_call, 0},
	{"idle_after_a_kill", by_kill, SIGKILL},
};
TEST_TABLE(idle, child_is_idle);
