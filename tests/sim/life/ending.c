/*
 * How a process ends: whatever runs at its end, and however it is cut short, what it freed late is
 * freed, nothing crashes or hangs or is said, and all that it held is free when it is gone.
 */
#include "life.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS 4

enum { LATE_FREES, READY }; /* places on the board */

static CUcontext context;
static CUdeviceptr late[2]; /* what handlers free at the end */
static bool busy;           /* threads allocate as the process ends */

static void start(void)
{
	alarm(WAIT_S); /* an end that hangs is a failure */
	context = cuda_start(0);
	late[0] = take(100 * MIB);
	late[1] = take(100 * MIB);
	for (unsigned i = 0; busy && i < THREADS; i++) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, allocate_and_free, context) == 0);
	}
	if (busy)
		sleep_ms(5);
}

static void give_late(unsigned which)
{
	if (cuMemFree_v2(late[which]) == CUDA_SUCCESS)
		board_write(LATE_FREES, board_read(LATE_FREES) + 1);
	late[which] = 0;
}

static void at_exit(void)
{
	give_late(0);
}

/* After the handlers; in every process of this program. */
__attribute__((destructor)) static void at_the_very_end(void)
{
	if (late[1])
		give_late(1);
}

/* -- ends ---------------------------------------------------------------------------------------
 */

static void by_exit(void)
{
	CHECK_EQUAL(atexit(at_exit), 0);
	start();
	exit(0);
}

static void by_quick_exit(void)
{
	CHECK_EQUAL(at_quick_exit(at_exit), 0);
	start();
	quick_exit(0);
}

static void by__exit(void)
{
	start();
	_exit(0);
}

static void by_abort(void)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	start();
	abort();
}

static void by_kill(void)
{
	start();
	raise(SIGKILL);
}

static void by_term(void)
{
	start();
	raise(SIGTERM);
}

static void by_fault(void)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	start();
	raise(SIGSEGV);
}

/* From a thread, while the main thread is in a call. */
static void *end_process(void *arg)
{
	(void)arg;
	CHECK_OK(cuCtxSetCurrent(context));
	sleep_ms(5);
	exit(0);
}

static void by_a_thread(void)
{
	pthread_t thread;

	CHECK_EQUAL(atexit(at_exit), 0);
	start();
	CHECK(pthread_create(&thread, NULL, end_process, NULL) == 0);
	allocate_and_free(context);
}

static const struct {
	void (*end)(void);
	int status;
	unsigned late_frees;
} ends[] = {
	{by_exit, 0, 2},        {by_quick_exit, 0, 1}, {by__exit, 0, 0},
	{by_abort, SIGABRT, 0}, {by_kill, SIGKILL, 0}, {by_term, SIGTERM, 0},
	{by_fault, SIGSEGV, 0}, {by_a_thread, 0, 2},
};

static void end_in_every_way(void)
{
	board_open();
	set_quota(1, 210 * MIB); /* nearly full: some of what the threads ask for is refused */
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct said said;

		board_write(LATE_FREES, 0);
		said = member_listen(ends[i].end);
		if (said.status != ends[i].status || said.err[0])
			fprintf(stderr, "end %u: %s\n", i, said.err);
		CHECK_EQUAL(said.status, ends[i].status);
		CHECK_EQUAL(strlen(said.err), 0);
		CHECK_EQUAL(board_read(LATE_FREES), ends[i].late_frees);
		assert_nobody();
	}
}

TEST(quiet)
{
	end_in_every_way();
}

TEST(while_threads_allocate)
{
	busy = true;
	for (unsigned round = 0; round < 5; round++)
		end_in_every_way();
}

/* -- threads' own destructors -------------------------------------------------------------------
 */

static void free_of_thread(void *value)
{
	CUdeviceptr *address = value;

	give(*address);
	free(address);
}

static pthread_key_t key;

static void *use_key(void *arg)
{
	CUdeviceptr *address = malloc(sizeof(*address));

	(void)arg;
	CHECK_OK(cuCtxSetCurrent(context));
	*address = take(50 * MIB);
	CHECK(pthread_setspecific(key, address) == 0);
	return NULL;
}

TEST(key_destructors)
{
	pthread_t threads[THREADS];

	set_quota(1, THREADS * 50 * MIB + 2 * GRANULE);
	context = cuda_start(0);
	give(take(1)); /* the books are right from here on, whatever the threads do */
	CHECK(pthread_key_create(&key, free_of_thread) == 0);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, use_key, NULL) == 0);
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	assert_alone_with(0);
}
