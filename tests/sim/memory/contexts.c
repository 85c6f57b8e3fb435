/* Contexts: what they cost, who is refused, and what comes back when they end. */
#include "cuda_api.h"

#include <pthread.h>
#include <unistd.h>

/* What the device may still hold of a process that has no context any more. */
#define STRAY (4 * MIB)

static void assert_books(uint64_t context, uint64_t data, uint64_t offset)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.context, context);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(usage.offset, offset);
	CHECK_EQUAL(usage.total, context + data + offset);
	CHECK_EQUAL(ledger_used(0), usage.total);
	CHECK_EQUAL(outside_of(0, getpid()), context + data);
}

TEST(primary_retained)
{
	CUcontext context;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	take(10 * MIB);
	assert_books(CONTEXT, 10 * MIB, HIDDEN);
	CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_CUDA(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
	assert_books(CONTEXT, 10 * MIB, HIDDEN);
	CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	assert_books(0, 0, 0);
	CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	assert_books(0, 0, 0);
}

TEST(primary_reset)
{
	CUcontext context;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	for (unsigned round = 0; round < 6; round++) {
		take(100 * MIB);
		take(1);
		assert_books(CONTEXT, 102 * MIB, HIDDEN);
		CHECK_CUDA(round % 2 ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxReset_v2(0),
			   CUDA_SUCCESS);
		assert_books(0, 0, 0);
		CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS); /* there is none */
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	}
}

static CUcontext create(unsigned version)
{
	CUcontext context = NULL;
	CUresult result = CUDA_ERROR_UNKNOWN;

	switch (version) {
	case 1:
		result = cuCtxCreate(&context, 0, 0);
		break;
	case 2:
		result = cuCtxCreate_v2(&context, 0, 0);
		break;
	case 3:
		result = cuCtxCreate_v3(&context, NULL, 0, 0, 0);
		break;
	case 4:
		result = cuCtxCreate_v4(&context, NULL, 0, 0);
		break;
	case 5:
		result = cuGLCtxCreate(&context, 0, 0);
		break;
	case 6:
		result = cuGLCtxCreate_v2(&context, 0, 0);
		break;
	case 7:
		result = cuVDPAUCtxCreate(&context, 0, 0, 1, NULL);
		break;
	case 8:
		result = cuVDPAUCtxCreate_v2(&context, 0, 0, 1, NULL);
		break;
	}
	CHECK_EQUAL(result, CUDA_SUCCESS);
	return context;
}

TEST(created)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	for (unsigned round = 0; round < 24; round++) {
		CUcontext context = create(round % 8 + 1), attached;

		take(20 * MIB);
		take(KIB);
		assert_books(CONTEXT, 22 * MIB, HIDDEN);
		if (round % 3 == 0) {
			CHECK_CUDA(cuCtxDestroy_v2(context), CUDA_SUCCESS);
		} else if (round % 3 == 1) {
			CHECK_CUDA(cuCtxDestroy(context), CUDA_SUCCESS);
		} else {
			CHECK_CUDA(cuCtxAttach(&attached, 0), CUDA_SUCCESS);
			CHECK_CUDA(cuCtxDetach(context), CUDA_SUCCESS);
			assert_books(CONTEXT, 22 * MIB, HIDDEN);
			CHECK_CUDA(cuCtxDetach(context), CUDA_SUCCESS);
		}
		assert_books(0, 0, 0);
		CHECK(cuCtxDestroy_v2(context) != CUDA_SUCCESS);
		assert_books(0, 0, 0);
	}
}

TEST(two)
{
	CUcontext a, b;
	CUdeviceptr in_b;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	a = create(2);
	take(30 * MIB);
	take(1);
	b = create(2);
	in_b = take(10 * MIB);
	take(1);
	assert_books(2 * CONTEXT, 44 * MIB, HIDDEN + HIDDEN_AGAIN);
	CHECK_CUDA(cuCtxDestroy_v2(a), CUDA_SUCCESS);
	assert_books(CONTEXT, 12 * MIB, HIDDEN);
	give(in_b);
	assert_books(CONTEXT, 2 * MIB, HIDDEN);
	CHECK_CUDA(cuCtxDestroy_v2(b), CUDA_SUCCESS);
	assert_books(0, 0, 0);
}

/* Managed memory goes with its context as well. */
TEST(two_with_managed)
{
	CUcontext a, b;
	CUdeviceptr address;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	a = create(2);
	CHECK_CUDA(cuMemAllocManaged(&address, 130 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	b = create(2);
	CHECK_CUDA(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 256 * MIB);
	CHECK_CUDA(cuCtxDestroy_v2(a), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 128 * MIB);
	CHECK_CUDA(cuCtxDestroy_v2(b), CUDA_SUCCESS);
	assert_books(0, 0, 0);
}

static void assert_current(CUcontext expected)
{
	CUcontext current = (CUcontext)UNTOUCHED;

	CHECK_CUDA(cuCtxGetCurrent(&current), CUDA_SUCCESS);
	CHECK(current == expected);
}

static void create_refused(void)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	CHECK_CUDA(cuCtxCreate(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuCtxCreate_v3(&context, NULL, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuCtxCreate_v4(&context, NULL, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuGLCtxCreate(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuGLCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuVDPAUCtxCreate(&context, 0, 0, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuVDPAUCtxCreate_v2(&context, 0, 0, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(context == (CUcontext)UNTOUCHED);
}

static void primary_refused(void)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	unsigned flags;
	int active;

	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
	CHECK_EQUAL(active, 0);
}

/* Smaller than anything that a context can cost; and smaller than what this one does. */
static void none_fits(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	for (unsigned round = 0; round < 3; round++) {
		create_refused();
		primary_refused();
		assert_current(NULL);
		assert_books(0, 0, 0);
		CHECK_AT_MOST(outside_used(0), STRAY);
	}
}

TEST(far_too_small)
{
	none_fits("100m");
}

TEST(too_small)
{
	none_fits("400m");
}

TEST(too_small_by_little)
{
	none_fits("526m");
}

TEST(just_enough)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "540m");
	cuda_start(0);
	take(GRANULE);
	assert_books(CONTEXT, GRANULE, HIDDEN);
}

/* Room for one, not for a second: by what is known of its cost, and by measuring. */
static void one_fits(const char *limit, bool learnt)
{
	CUcontext first;
	uint64_t before;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	first = create(2);
	if (learnt)
		take(GRANULE);
	before = outside_used(0);
	create_refused();
	primary_refused();
	assert_current(first);
	CHECK_EQUAL(outside_used(0), before);
	CHECK_AT_MOST(ledger_used(0), 600 * MIB);
	take(GRANULE);
	assert_books(CONTEXT, learnt ? 2 * GRANULE : GRANULE, HIDDEN);
	CHECK_CUDA(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	assert_books(0, 0, 0);
	create(2);
	CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(one_fits_learnt)
{
	one_fits("800m", true);
}

TEST(one_fits_unlearnt)
{
	one_fits("800m", false);
}

TEST(one_fits_measured)
{
	one_fits("1030m", false);
}

/* The first allocation measures the first context; the slice remembers. */
static void learnt(const char *mib)
{
	const uint64_t cost = strtoull(mib, NULL, 10) * MIB;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("VGPU_SIM_CONTEXT_MIB", mib);
	cuda_start(0);
	CHECK_EQUAL(ledger_context_cost(0), 0);
	CHECK_AT_MOST(cost, ledger_own(0).context);
	CHECK_AT_MOST(ledger_own(0).context, cost + 16 * MIB);
	take(5);
	CHECK_EQUAL(ledger_context_cost(0), cost);
	assert_books(cost, 2 * MIB, HIDDEN);
	create(2);
	assert_books(2 * cost, 2 * MIB, HIDDEN + HIDDEN_AGAIN);
}

TEST(learnt_usual)
{
	learnt("518");
}

TEST(learnt_small)
{
	learnt("300");
}

TEST(learnt_big)
{
	learnt("1000");
}

/* Costs more than is ever reserved for a guess: it is charged in the end all the same. */
TEST(learnt_huge)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("VGPU_SIM_CONTEXT_MIB", "1500");
	cuda_start(0);
	take(5);
	CHECK_EQUAL(ledger_own(0).context + ledger_own(0).module, 1500 * MIB);
}

/* What the driver rejects is its to reject, and costs nothing. */
TEST(rejected)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxCreate(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuCtxCreate_v3(NULL, NULL, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuCtxCreate_v4(NULL, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuCtxCreate_v2(&context, 1u << 20, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA(cuCtxDetach(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK(context == (CUcontext)UNTOUCHED);
	assert_books(0, 0, 0);
}

TEST(no_such_device)
{
	static const CUdevice devices[] = {1, 7, 100, -1};
	CUcontext context = (CUcontext)UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	for (unsigned i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
		CUdevice device = devices[i];

		CHECK_CUDA(cuCtxCreate_v2(&context, 0, device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_CUDA(cuDevicePrimaryCtxReset_v2(device), CUDA_ERROR_INVALID_DEVICE);
	}
	CHECK(context == (CUcontext)UNTOUCHED);
	assert_books(0, 0, 0);
}

/* Programs that call first and initialise then are told so, and can. */
TEST(too_early)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	CUdeviceptr address = UNTOUCHED;
	size_t available, total;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_CUDA(cuDeviceTotalMem_v2(&total, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_CUDA(cuMemAlloc_v2(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_CUDA(cuMemFree_v2(1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_CUDA(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK(context == (CUcontext)UNTOUCHED);
	cuda_start(0);
	take(MIB);
	assert_books(CONTEXT, GRANULE, HIDDEN);
}

#define CONTEXTS 12

/* Nothing else: contexts come and go in some order, the books follow. */
TEST(come_and_go)
{
	CUcontext contexts[CONTEXTS] = {NULL};
	unsigned seed = 5, living = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "9g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	for (unsigned round = 0; round < 200; round++) {
		unsigned i = (unsigned)rand_r(&seed) % CONTEXTS;

		if (contexts[i]) {
			CHECK_CUDA(cuCtxDestroy_v2(contexts[i]), CUDA_SUCCESS);
			contexts[i] = NULL;
			living--;
		} else {
			contexts[i] = create(2);
			take(MIB);
			living++;
		}
		assert_books(living * CONTEXT, living * GRANULE,
			     living ? HIDDEN + (living - 1) * HIDDEN_AGAIN : 0);
	}
}

static void *make_and_end(void *arg)
{
	(void)arg;
	for (unsigned round = 0; round < 200; round++) {
		CUcontext context;
		CUresult result = cuCtxCreate_v2(&context, 0, 0);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result != CUDA_SUCCESS)
			continue;
		take(MIB);
		usleep(500); /* to be seen */
		CHECK_CUDA(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	}
	return NULL;
}

TEST(by_threads)
{
	pthread_t threads[4];
	CUcontext first;
	uint64_t peak;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1700m");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	first = create(2);
	take(1);
	CHECK_CUDA(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	outside_peak_begin(0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, make_and_end, NULL) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	peak = outside_peak(0);
	CHECK_AT_MOST(peak, 1700 * MIB + GRANULE);
	CHECK_AT_MOST(CONTEXT, peak);
	assert_books(0, 0, 0);
}

#define GUESS_PATIENCE_MS 2000

/* A first context, which is charged 1 GiB until its process allocates. */
static void first_context(int wire)
{
	hear(wire);
	cuda_start(0);
	tell(wire, 1);
	hear(wire);
	sleep_ms(100);
	give(take(1));
	tell(wire, 1);
	hear(wire);
}

static struct member start_beside_first_context(void)
{
	struct member other;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	other = member_start(first_context);
	cuda_start(0);
	tell(other.wire, 1);
	hear(other.wire);
	CHECK_EQUAL(ledger_of(other.pid, 0).context, 1024 * MIB);
	return other;
}

/* There is room but for the guess: the allocation waits until the guess is corrected. */
TEST(room_but_for_a_guess)
{
	uint64_t began = now_ms();
	struct member other = start_beside_first_context();
	CUdeviceptr address = 0;

	tell(other.wire, 1);
	if (cuMemAlloc_v2(&address, 600 * MIB) != CUDA_SUCCESS)
		CHECK(now_ms() - began >= GUESS_PATIENCE_MS); /* this machine is too busy */
	hear(other.wire);
	refused(1500 * MIB);
	tell(other.wire, 1);
	member_end(&other);
}

/* A process that makes a context and nothing else is not waited for again and again. */
TEST(guess_that_stays)
{
	struct member other = start_beside_first_context();
	uint64_t began = now_ms();

	for (unsigned i = 0; i < 20; i++)
		refused(600 * MIB);
	CHECK(now_ms() - began < 10 * GUESS_PATIENCE_MS);
	CHECK_EQUAL(ledger_of(other.pid, 0).context, 1024 * MIB);
	member_kill(&other);
}
