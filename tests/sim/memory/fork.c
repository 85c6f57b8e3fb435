/* fork: a child is not its parent, and the parent's slot is the parent's alone. */
#include "cuda_api.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 4
#define THREADS 4

static void assert_books(uint64_t data)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(usage.offset, HIDDEN);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + data);
	CHECK_EQUAL(ledger_used(0), usage.total);
}

/* Its CUDA is spoilt, as the driver has it; and none of it reaches the parent's books. */
static void try_parents_cuda(CUdeviceptr address)
{
	CUcontext context;
	CUdeviceptr other = UNTOUCHED;

	CHECK(cuMemAlloc_v2(&other, MIB) != CUDA_SUCCESS);
	CHECK(cuMemFree_v2(address) != CUDA_SUCCESS);
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxReset_v2(0) != CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&other, MIB) != CUDA_SUCCESS);
	CHECK_EQUAL(other, UNTOUCHED);
}

TEST(after_init)
{
	CUdeviceptr address;
	int slot;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
	address = take(64 * MIB);
	slot = ledger_slot(getpid());
	for (unsigned round = 0; round < 10; round++) {
		pid_t child = fork();

		if (child == 0) {
			if (round % 2)
				try_parents_cuda(address);
			exit(0); /* with all that runs at exit */
		}
		expect_ended(child);
		assert_books(64 * MIB);
		CHECK_EQUAL(ledger_slot(getpid()), slot);
		CHECK(ledger_slot_lives((unsigned)slot));
		CHECK_SOON_EQUAL(ledger_reap(), 1);
		give(take(400 * MIB));
		refused(500 * MIB);
	}
	give(address);
	assert_books(0);
}

/* The parent dies; its child, which knows nothing of CUDA, lives on. */
static void parent_that_dies(int wire)
{
	cuda_start(0);
	take(200 * MIB);
	if (fork() == 0) {
		alarm(WAIT_S); /* should the test be gone by then */
		tell(wire, (uint64_t)getpid());
		pause();
		_exit(0);
	}
	hear(wire);
}

TEST(parent_dies)
{
	struct member parent;
	unsigned slot;
	pid_t child;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	parent = member_start(parent_that_dies);
	child = (pid_t)hear(parent.wire);
	slot = (unsigned)ledger_slot(parent.pid);
	CHECK(ledger_slot_lives(slot));
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + 200 * MIB);
	member_kill(&parent);
	CHECK_EQUAL(kill(child, 0), 0);
	CHECK_SOON_EQUAL(ledger_slot_lives(slot), false);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
	CHECK_SOON_EQUAL(outside_used(0), 0);
	kill(child, SIGKILL);
}

/* Two that share nothing but the slice. */
TEST(before_init)
{
	pid_t child;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	child = fork();
	cuda_start(0);
	take(100 * MIB);
	if (child == 0) {
		CHECK_EQUAL(ledger_own(0).data, 100 * MIB);
		exit(0);
	}
	expect_ended(child);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	assert_books(100 * MIB);
}

/* The slice was asked for by NVML's view of it, say, before fork; CUDA comes afterwards. */
TEST(child_of_an_onlooker)
{
	pid_t child;
	size_t bytes;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK(cuDeviceTotalMem_v2(&bytes, 0) != CUDA_SUCCESS); /* too early; the slice is read */
	child = fork();
	if (child == 0) {
		cuda_start(0);
		take(100 * MIB);
		assert_books(100 * MIB);
		exit(0);
	}
	expect_ended(child);
	cuda_start(0);
	take(50 * MIB);
	assert_books(50 * MIB);
}

static CUcontext context;
static bool stop; /* atomic */

static void *allocate(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	CHECK_OK(cuCtxSetCurrent(context));
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CUdeviceptr address = 0;

		if (cuMemAlloc_v2(&address, 1 + (unsigned)rand_r(&seed) % (8 * MIB)) ==
		    CUDA_SUCCESS)
			give(address);
	}
	return NULL;
}

static struct threads start_allocating(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	context = cuda_start(0);
	give(take(1));
	return threads_start(THREADS, allocate);
}

static void stop_allocating(struct threads threads)
{
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	threads_join(threads);
	assert_books(0);
}

static pid_t worker_start(unsigned ms)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		char *memory = malloc(MIB); /* it works, and never touches CUDA */

		memset(memory, 1, MIB);
		sleep_ms(ms);
		free(memory);
		exit(0);
	}
	return child;
}

/* A program whose data loaders come and go while its threads allocate. */
TEST(data_loaders)
{
	struct threads threads = start_allocating();
	pid_t workers[WORKERS];

	for (unsigned round = 0; round < 25; round++) {
		for (unsigned i = 0; i < WORKERS; i++)
			workers[i] = worker_start(round % 10);
		CHECK_SOON_EQUAL(ledger_reap(), 1);
		for (unsigned i = 0; i < WORKERS; i++)
			expect_ended(workers[i]);
	}
	stop_allocating(threads);
}

/* The child of a process with threads uses what libvgpu.so has, whatever lock a thread had. */
TEST(spoilt_children_of_threads)
{
	struct threads threads = start_allocating();

	for (unsigned round = 0; round < 100; round++) {
		pid_t child = fork();

		if (child == 0) {
			alarm(10);
			try_parents_cuda(0x1000);
			_exit(0);
		}
		expect_ended(child);
	}
	stop_allocating(threads);
}
