/*
 * Code that is loaded while others take and give up the device's memory: neighbours that are in no
 * slice, and threads of the same process. What has room is not refused, and what is theirs is not
 * charged.
 */
#include "own_fixture.h"
#include "parked.h"

#include <sys/socket.h>

#define LOADS 200

static void be_neighbour(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("VGPU_SIM_PARK", NULL);
	cuda_start(0);
	tell(wire, 0);
}

/* It takes and gives up 512 MiB until it is told to end. */
static void be_restless(int wire)
{
	char byte;

	be_neighbour(wire);
	while (recv(wire, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0)
		give(take(512 * MIB));
}

static void load_and_unload(void)
{
	for (unsigned i = 0; i < LOADS; i++) {
		union loaded loaded = {.any = NULL};

		CHECK_OK(load(i, &loaded));
		CHECK_AT_MOST(ledger_own(0).module, MODULE);
		give(take(GRANULE));
		unload(i, loaded);
	}
}

/* Also where the slice has room for what is the neighbour's. */
TEST(beside_a_neighbour)
{
	struct member neighbour = member_begin(be_restless);
	start("1200m");
	load_and_unload();
	rest();
	assert_books(0, 0);
	member_finish(&neighbour);
}

/* The first code of a process, before NVML was asked anything. */
static void be_first(int wire)
{
	union loaded loaded = {.any = NULL};
	struct member neighbour = member_begin(be_restless);
	start("1200m");
	load_and_unload();
	CHECK_OK(load(0, &loaded));
	rest();
	assert_books(MODULE, 0);
	member_finish(&neighbour);
	tell(wire, 0);
}

TEST(the_first)
{
	struct member first = member_begin(be_first);
	member_end(&first);
	first = member_start(be_first); /* what a context costs is known by now */
	hear(first.wire);
	member_end(&first);
}

/* Takes it while the other's call is in the driver. */
static void be_big(int wire)
{
	be_neighbour(wire);
	wait_parked();
	take(8 * GIB);
	go_on();
	hear(wire);
}

/* Eight GiB go within the driver's call. */
TEST(beside_a_big_one)
{
	union loaded loaded = {.any = NULL};
	struct member neighbour;

	park("cuModuleLoadData");
	neighbour = member_begin(be_big);
	start("16g");
	CHECK_OK(load(1, &loaded));
	assert_books(MODULE, 0);
	unload(1, loaded);
	rest();
	assert_books(0, 0);
	member_finish(&neighbour);
}

static CUcontext its_context;
static int at_work; /* atomic */

static void *allocate(void *none)
{
	CHECK_OK(cuCtxSetCurrent(its_context));
	while (__atomic_load_n(&at_work, __ATOMIC_ACQUIRE))
		give(take(64 * MIB));
	return none;
}

TEST(beside_threads)
{
	struct threads threads;

	its_context = start("696m"); /* 148 MiB and the code */
	at_work = 1;
	threads = threads_start(2, allocate);
	for (unsigned i = 0; i < LOADS; i++) {
		union loaded loaded = {.any = NULL};

		CHECK_OK(load(i, &loaded));
		unload(i, loaded);
	}
	__atomic_store_n(&at_work, 0, __ATOMIC_RELEASE);
	threads_join(threads);
	rest();
	assert_books(0, 0);
}
