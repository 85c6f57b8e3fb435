/*
 * Contexts that are made and ended inside calls that make or end one, as a wrapper or a callback of
 * CUPTI's does: nothing hangs, and each is counted once.
 */
#include "parked.h"
#include "stream_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include "nesting.h"

#define HANGS_S 60 /* a lock that is waited for by the thread that has it */

static void start(void)
{
	alarm(HANGS_S);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	CHECK_OK(cuInit(0));
}

/* The books after a look at NVML. Which of several contexts that were made at once cost how much is
 * a guess: what one was thought to have less than it has, is counted as code when it is seen. */
static void assert_contexts(unsigned count)
{
	struct vgpu_hami_usage usage;

	give(take(1));
	sleep_ms(60); /* the next comparison is due */
	give(take(1));
	usage = ledger_own(0);
	CHECK_EQUAL(usage.context + usage.module, count * CONTEXT);
	CHECK_EQUAL(usage.offset, HIDDEN + (count - 1) * HIDDEN_AGAIN);
	CHECK_EQUAL(usage.total - usage.offset, outside_of(0, getpid()));
}

static CUcontext create(void)
{
	CUcontext context = NULL;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	return context;
}

TEST(primary_in_create)
{
	CUcontext context;

	start();
	nesting_set(NESTING_PRIMARY);
	context = create();
	assert_contexts(2);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	assert_contexts(1);
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(ledger_used(0), 0);
}

TEST(another_in_create)
{
	start();
	nesting_set(NESTING_OTHER);
	create();
	assert_contexts(1);
}

TEST(another_in_retain)
{
	start();
	nesting_set(NESTING_OTHER);
	cuda_start(0);
	assert_contexts(1);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_used(0), 0);
}

TEST(another_in_destroy)
{
	CUcontext context, other;

	start();
	context = create();
	other = create();
	assert_contexts(2);
	nesting_set(NESTING_OTHER);
	CHECK_OK(cuCtxDestroy_v2(other));
	CHECK_OK(cuCtxSetCurrent(context));
	assert_contexts(1);
}

/* What a wrapper passes to the call that it stands in for comes by the library twice. */
TEST(same_in_create)
{
	CUcontext context;

	start();
	nesting_set(NESTING_SAME);
	context = create();
	assert_contexts(1);
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(ledger_used(0), 0);
}

TEST(same_in_retain)
{
	start();
	nesting_set(NESTING_SAME);
	cuda_start(0);
	assert_contexts(1);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK_EQUAL(ledger_used(0), 0);
}

/* The outer call, too, is refused then, and nothing stays counted. */
TEST(refused_within)
{
	CUcontext context = NULL;

	alarm(HANGS_S);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "900m");
	CHECK_OK(cuInit(0));
	nesting_set(NESTING_PRIMARY);
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	create();
	assert_contexts(1);
	CHECK_AT_MOST(outside_used(0), 900 * MIB);
}

/* -- within the driver's call, NVML is not started ----------------------------------------------
 */

static void *make(void *none)
{
	CUcontext context;

	nesting_set(NESTING_OTHER);
	cuCtxCreate_v2(&context, 0, 0);
	return none;
}

static void *load_constructing(void *none)
{
	CHECK(dlopen(getenv("CONSTRUCTING"), RTLD_NOW));
	return none;
}

/* The inner context may not fit, and only NVML could tell. Its start needs the loader's lock, which
 * the thread has that waits, in a library's constructor, for the outer call. Whether there is room
 * does not matter. */
TEST(beside_a_constructor)
{
	pthread_t makes, loads;

	park("cuCtxCreate_v2@1");
	alarm(HANGS_S);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1500m");
	CHECK_OK(cuInit(0));
	CHECK(pthread_create(&makes, NULL, make, NULL) == 0);
	wait_parked();
	CHECK(pthread_create(&loads, NULL, load_constructing, NULL) == 0);
	sleep_ms(50); /* it has the loader's lock */
	go_on();
	CHECK(pthread_join(makes, NULL) == 0);
	CHECK(pthread_join(loads, NULL) == 0);
}

/* -- a graph whose end the library does not see ------------------------------------------------ */

#define GRAPHS 40

static bool is_one_of(CUgraphExec exec, const CUgraphExec *execs)
{
	for (unsigned i = 0; i < GRAPHS; i++)
		if (execs[i] == exec)
			return true;
	return false;
}

/* A larger graph with the handle of one that has been launched does not have its memory. */
TEST(graph_destroyed_unseen)
{
	CUgraphExec execs[GRAPHS];
	unsigned same = 0;

	start();
	cuda_start(0);
	for (unsigned i = 0; i < GRAPHS; i++) {
		execs[i] = graph_exec_of(GIB);
		CHECK_OK(cuGraphLaunch(execs[i], NULL));
	}
	CHECK_OK(cuCtxSynchronize());
	take(5 * GIB);
	for (unsigned i = 0; i < GRAPHS; i++)
		CHECK_OK(nesting_destroy_exec(execs[i]));
	for (unsigned i = 0; i < GRAPHS; i++) {
		CUgraphExec exec = graph_exec_of(3 * GIB);

		if (!is_one_of(exec, execs))
			continue;
		same++;
		CHECK_EQUAL(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_AT_MOST(outside_used(0), 8 * GIB);
	}
	if (!same)
		SKIP("no handle came back");
}
