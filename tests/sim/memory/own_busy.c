/*
 * Programs that are never quiet: threads allocate and free without pause, or one is inside an
 * allocation all the time. What the driver takes outside the books is charged within a bounded
 * time, never more than that, and what it gives back is refunded.
 */
#include "own_fixture.h"
#include "parked.h"

#define THREADS 8
#define BLOCK   (16 * MIB)
#define PATIENCE \
	10000 /* ms, of a machine that is busy with other tests: some 100 ms where it is not */

/* In ms: for how long a refusal waits until the other threads rest, and for how long refusals do
 * not wait after one has waited in vain. REST_REFUSAL_NS and REST_FAILED_NS of
 * preload/memory/reconcile.c. */
#define WAIT_FOR_REST 100
#define WITHOUT_WAIT  1000

static CUcontext its_context;
static struct threads threads;
static int at_work; /* atomic */

static void *allocate_and_free(void *none)
{
	CUdeviceptr address;

	CHECK_OK(cuCtxSetCurrent(its_context));
	while (__atomic_load_n(&at_work, __ATOMIC_ACQUIRE))
		if (cuMemAlloc_v2(&address, BLOCK) == CUDA_SUCCESS)
			give(address);
	return none;
}

static void begin_work(void)
{
	at_work = 1;
	threads = threads_start(THREADS, allocate_and_free);
}

static void end_work(void)
{
	__atomic_store_n(&at_work, 0, __ATOMIC_RELEASE);
	threads_join(threads);
}

/* Until the books have so much module memory, and never more than `most`. */
static void wait_for_module(uint64_t least, uint64_t most)
{
	uint64_t from = now_ms(), module;

	do {
		module = ledger_own(0).module;
		CHECK_AT_MOST(module, most);
		CHECK_AT_MOST(now_ms() - from, PATIENCE);
		sleep_ms(1);
	} while (module < least);
}

/* Code of 2 GiB comes with a launch, in a slice of 1 GiB. */
static void grow(void)
{
	CUdeviceptr address;
	CUlibrary library;
	CUkernel kernel;

	CHECK_OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	begin_work();
	launch((CUfunction)(void *)kernel);
	wait_for_module(2 * GIB - (THREADS + 1) * BLOCK, 2 * GIB);
	CHECK_EQUAL(cuMemAlloc_v2(&address, GRANULE), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_AT_MOST(ledger_own(0).module, 2 * GIB);
}

static void start_lazy(void)
{
	env_set("VGPU_SIM_MODULE_LAZY", "1");
	its_context = start_with_code("1g", "2048");
}

TEST(growth)
{
	start_lazy();
	grow();
	end_work();
	rest();
	assert_books(2 * GIB, 0);
}

static CUresult stay_in_an_allocation(void)
{
	give(take(BLOCK));
	return CUDA_SUCCESS;
}

/* No moment is at rest. The second allocation of the process parks: start() makes the first. */
TEST(growth_beside_an_allocation)
{
	struct call call;

	park("cuMemAlloc_v2@2");
	start_lazy();
	begin_call(&call, stay_in_an_allocation);
	grow();
	CHECK_OK(end_call(&call));
	end_work();
	rest();
	assert_books(2 * GIB, 0);
}

/* Loads code of 256 MiB and unloads it. */
static void load_and_unload(unsigned loader)
{
	union loaded loaded = {.any = NULL};

	CHECK_OK(load(loader, &loaded));
	sleep_ms(10);
	CHECK_AT_MOST(ledger_own(0).module, 256 * MIB);
	unload(loader, loaded);
}

static void end_with_nothing(void)
{
	end_work();
	rest();
	assert_books(0, 0);
}

/* Code that is unloaded is refunded while the program goes on. */
TEST(given_up)
{
	its_context = start_with_code("2g", "256");
	begin_work();
	for (unsigned i = 0; i < 2; i++) {
		uint64_t from = now_ms();

		load_and_unload(i);
		while (ledger_own(0).module) {
			CHECK_AT_MOST(now_ms() - from, PATIENCE);
			sleep_ms(1);
		}
	}
	end_with_nothing();
}

/* Takes memory for which there is room only once unloaded code is refunded. The library then has
 * the other threads rest, and refunds it. It may refuse only where a thread did not come to rest in
 * WAIT_FOR_REST, as on a machine where threads wait that long for a processor, and in the second
 * after that, in which it does not wait again. */
static CUdeviceptr take_refunded(size_t bytes)
{
	uint64_t from = now_ms(), excused_until = 0, began;
	CUdeviceptr address;

	for (;;) {
		began = now_ms();
		if (cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS)
			return address;
		if (now_ms() - began >= WAIT_FOR_REST)
			excused_until = now_ms() + WITHOUT_WAIT;
		CHECK_AT_MOST(began, excused_until);
		CHECK_AT_MOST(began - from, PATIENCE);
		sleep_ms(1);
	}
}

/* At once where a refusal depends on it. */
TEST(room_again)
{
	its_context = start_with_code("1g", "256");
	begin_work();
	for (unsigned i = 0; i < LOADERS; i++) {
		load_and_unload(i);
		give(take_refunded(256 * MIB));
	}
	end_with_nothing();
}
