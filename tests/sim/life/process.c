/* Threads that end, fork, exec, daemons: a process's charge is its own, and counted once. */
#include "life.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define WORKERS 4

static CUcontext context;

static pthread_t thread_start(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, body, arg) == 0);
	return thread;
}

static void thread_join(pthread_t thread)
{
	CHECK(pthread_join(thread, NULL) == 0);
}

/* -- threads ----------------------------------------------------------------------------------- */

static void *take_and_leave(void *arg)
{
	CHECK_OK(cuCtxSetCurrent(context));
	*(CUdeviceptr *)arg = take(100 * MIB);
	return NULL;
}

/* What a thread has allocated stays when it ends, and another may free it. */
TEST(threads_leave_memory)
{
	CUdeviceptr left[THREADS];

	set_quota(1, 450 * MIB);
	context = cuda_start(0);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < THREADS; i++)
			thread_join(thread_start(take_and_leave, &left[i]));
		assert_alone_with(400 * MIB);
		refused(100 * MIB);
		for (unsigned i = 0; i < THREADS; i++)
			give(left[i]);
		assert_alone_with(0);
	}
}

static void *outlive_main(void *arg)
{
	pthread_join(*(pthread_t *)arg, NULL);
	CHECK_OK(cuCtxSetCurrent(context));
	give(take(300 * MIB));
	refused(500 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
	exit(0);
}

/* The main thread ends, and the others go on. */
TEST(main_thread_ends)
{
	static pthread_t main_thread;

	set_quota(1, 400 * MIB);
	context = cuda_start(0);
	main_thread = pthread_self();
	thread_start(outlive_main, &main_thread);
	pthread_exit(NULL);
}

/* -- exec -------------------------------------------------------------------------------------- */

/* The program again and again in the place of itself: argv[0] is how often yet. */
TEST_ROLE(again)
{
	int left = argc ? atoi(argv[0]) : 0;
	char fewer[16];

	context = cuda_start(0);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	take(300 * MIB);
	CHECK_SOON_EQUAL(outside_used(0), OUTSIDE + 300 * MIB);
	refused(200 * MIB);
	assert_alone_with(300 * MIB);
	snprintf(fewer, sizeof(fewer), "%d", left - 1);
	if (!left)
		return;
	for (unsigned i = 0; i < THREADS; i++) /* exec ends them wherever they are */
		thread_start(allocate_and_free, context);
	sleep_ms(5);
	role_exec("again", fewer);
}

/* The quota has room for the program once: was its old self counted, the new one would be refused.
 */
TEST(exec_with_cuda)
{
	pid_t child;

	set_quota(1, 400 * MIB);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		context = cuda_start(0);
		take(300 * MIB);
		role_exec("again", "10");
	}
	expect_ended(child);
	assert_nobody();
}

/* -- fork -------------------------------------------------------------------------------------- */

TEST_ROLE(use_cuda)
{
	(void)argc;
	(void)argv;
	cuda_start(0);
	take(100 * MIB);
	CHECK_EQUAL(ledger_own(0).data, 100 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 100 * MIB);
	refused(4 * GIB);
}

TEST_ROLE(do_nothing)
{
	(void)argc;
	(void)argv;
}

static void *fork_and_use(void *arg)
{
	pid_t child = fork();

	(void)arg;
	if (child == 0) {
		use_cuda(0, NULL);
		exit(0);
	}
	expect_ended(child);
	return NULL;
}

static void *fork_and_fail(void *arg)
{
	pid_t child = fork();

	(void)arg;
	if (child == 0) {
		CUdeviceptr address = UNTOUCHED;

		CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED); /* the driver's own word */
		CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
		CHECK_EQUAL(address, UNTOUCHED);
		exit(0);
	}
	expect_ended(child);
	return NULL;
}

static void *fork_and_exec(void *arg)
{
	pid_t child = fork();

	if (child == 0)
		role_exec(arg, NULL);
	expect_ended(child);
	return NULL;
}

TEST(forks_of_a_thread)
{
	set_quota(2, GIB);
	thread_join(thread_start(fork_and_use, NULL));
	thread_join(thread_start(fork_and_exec, (void *)(uintptr_t) "use_cuda"));
	assert_nobody();
	context = cuda_start(0);
	take(200 * MIB);
	for (unsigned round = 0; round < 5; round++) {
		thread_join(thread_start(fork_and_fail, NULL));
		thread_join(thread_start(fork_and_exec, (void *)(uintptr_t) "use_cuda"));
		assert_alone_with(200 * MIB);
	}
}

/* -- vfork and posix_spawn --------------------------------------------------------------------- */

static pid_t vfork_and_exec(char **arguments)
{
	pid_t child = vfork();

	if (child == 0) {
		execv(arguments[0], arguments);
		_exit(127);
	}
	return child;
}

static void *spawn_many(void *arg)
{
	char **arguments = arg;
	pid_t child;

	for (unsigned round = 0; round < 20; round++) {
		expect_ended(vfork_and_exec(arguments));
		CHECK_EQUAL(posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ), 0);
		expect_ended(child);
	}
	return NULL;
}

TEST(spawns_of_threads)
{
	pthread_t allocators[THREADS], spawners[2];

	set_quota(5, GIB);
	context = cuda_start(0);
	take(200 * MIB);
	for (unsigned i = 0; i < THREADS; i++)
		allocators[i] = thread_start(allocate_and_free, context);
	for (unsigned i = 0; i < 2; i++)
		spawners[i] = thread_start(spawn_many, role_arguments("do_nothing", NULL, NULL));
	for (unsigned i = 0; i < 4; i++)
		expect_ended(role_spawn("use_cuda", NULL, NULL));
	for (unsigned i = 0; i < 2; i++)
		thread_join(spawners[i]);
	__atomic_store_n(&stop_allocating, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		thread_join(allocators[i]);
	assert_alone_with(200 * MIB);
}

/* -- who outlives its parent ------------------------------------------------------------------- */

static void loader(void)
{
	alarm(WAIT_S);
	for (;;)
		free(malloc(MIB + (uint64_t)rand() % MIB));
}

/* A trainer and its persistent workers; those of a worker, too. */
static void trainer(int wire)
{
	cuda_start(0);
	take(500 * MIB);
	for (unsigned i = 0; i < WORKERS; i++) {
		pid_t child = fork();

		if (child == 0) {
			tell(wire, (uint64_t)getpid());
			if (i % 2 && (child = fork()) > 0)
				tell(wire, (uint64_t)child);
			loader();
		}
	}
	pause();
}

TEST(workers_outlive_a_kill)
{
	struct member parent;
	pid_t workers[WORKERS + WORKERS / 2];
	unsigned count = sizeof(workers) / sizeof(*workers);

	set_quota(2, 600 * MIB);
	parent = member_start(trainer);
	for (unsigned i = 0; i < count; i++)
		workers[i] = (pid_t)hear(parent.wire);
	cuda_start(0);
	refused(550 * MIB);
	member_kill(&parent);
	give(take_soon(550 * MIB));
	assert_alone_with(0);
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(kill(workers[i], SIGKILL), 0); /* they were there all the time */
}

/* A child made behind libc's back: no fork handler runs, and it has what its parent had. */
static void parent_of_a_raw_child(int wire)
{
	long child;

	cuda_start(0);
	take(200 * MIB);
	child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
	if (child == 0) {
		alarm(WAIT_S);
		pause();
		_exit(0);
	}
	tell(wire, (uint64_t)child);
	pause();
}

/* It holds the device's descriptors and ours: memory and charge stay as long as it is there. */
TEST(raw_child_outlives)
{
	struct member parent;
	pid_t child;

	set_quota(1, 400 * MIB);
	parent = member_start(parent_of_a_raw_child);
	child = (pid_t)hear(parent.wire);
	member_kill(&parent);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_SOON_EQUAL(outside_used(0), OUTSIDE + 200 * MIB);
	CHECK_EQUAL(kill(child, SIGKILL), 0);
	assert_nobody();
}

/* -- daemons ----------------------------------------------------------------------------------- */

/* As daemons are made: the caller's process ends, and the grandchild goes on in here. */
static void daemonise(void)
{
	int null;

	if (fork() > 0)
		_exit(0);
	CHECK(setsid() > 0);
	if (fork() > 0)
		_exit(0);
	alarm(WAIT_S); /* should the test be gone by then */
	CHECK_EQUAL(chdir("/"), 0);
	for (int fd = 0; fd < 256; fd++)
		close(fd);
	null = open("/dev/null", O_RDWR);
	CHECK(null == 0 && dup(null) == 1 && dup(null) == 2);
}

TEST(daemon_before_cuda)
{
	pid_t child;

	set_quota(1, 400 * MIB);
	board_open();
	child = fork();
	if (child == 0) {
		daemonise();
		cuda_start(0);
		take(300 * MIB);
		refused(200 * MIB);
		board_write(0, 1);
		board_wait(1, 1);
		_exit(0);
	}
	expect_ended(child);
	board_wait(0, 1);
	assert_alone_with(300 * MIB);
	board_write(1, 1);
	assert_nobody();
}

/* CUDA does not survive a fork; the daemon is told so, and holds nothing of its forebear's. */
TEST(daemon_after_cuda)
{
	pid_t child;

	set_quota(1, 400 * MIB);
	board_open();
	child = fork();
	if (child == 0) {
		CUdeviceptr address;

		cuda_start(0);
		take(300 * MIB);
		daemonise();
		board_write(1, cuInit(0));
		board_write(2, cuMemAlloc_v2(&address, MIB));
		board_write(0, 1);
		board_wait(0, 2);
		_exit(0);
	}
	expect_ended(child);
	board_wait(0, 1);
	CHECK_EQUAL(board_read(1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK(board_read(2) != CUDA_SUCCESS);
	assert_nobody();
	cuda_start(0);
	give(take(390 * MIB));
	board_write(0, 2);
}
