/* Contexts: what they cost, who is refused, and what comes back when they end. */
#include "cuda_api.h"

#include <unistd.h>

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

/* So many contexts are charged. */
static void assert_contexts(unsigned living, uint64_t data)
{
	assert_books(living * CONTEXT, data, living ? HIDDEN + (living - 1) * HIDDEN_AGAIN : 0);
}

static void init(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	CHECK_OK(cuInit(0));
}

#define VERSIONS 8

/* Each function that makes a context, from 0 on. */
static CUresult create_by(unsigned version, CUcontext *ret_context)
{
	switch (version) {
	case 0:
		return cuCtxCreate(ret_context, 0, 0);
	case 1:
		return cuCtxCreate_v2(ret_context, 0, 0);
	case 2:
		return cuCtxCreate_v3(ret_context, NULL, 0, 0, 0);
	case 3:
		return cuCtxCreate_v4(ret_context, NULL, 0, 0);
	case 4:
		return cuGLCtxCreate(ret_context, 0, 0);
	case 5:
		return cuGLCtxCreate_v2(ret_context, 0, 0);
	case 6:
		return cuVDPAUCtxCreate(ret_context, 0, 0, 1, NULL);
	default:
		return cuVDPAUCtxCreate_v2(ret_context, 0, 0, 1, NULL);
	}
}

static CUcontext create(void)
{
	CUcontext context = NULL;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	return context;
}

TEST(primary_retained)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	for (unsigned i = 0; i < 3; i++)
		cuda_start(0);
	take(10 * MIB);
	assert_contexts(1, 10 * MIB);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK_OK(cuDevicePrimaryCtxRelease(0));
	assert_contexts(1, 10 * MIB);
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	assert_contexts(0, 0);
	CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	assert_contexts(0, 0);
}

TEST(primary_reset)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	for (unsigned round = 0; round < 6; round++) {
		cuda_start(0);
		take(100 * MIB);
		take(1);
		assert_contexts(1, 102 * MIB);
		CHECK_OK(round % 2 ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxReset_v2(0));
		assert_contexts(0, 0);
		CHECK_OK(cuDevicePrimaryCtxReset_v2(0)); /* there is none */
	}
}

TEST(created)
{
	init("2g");
	for (unsigned round = 0; round < 3 * VERSIONS; round++) {
		CUcontext context = NULL, attached;

		CHECK_OK(create_by(round % VERSIONS, &context));
		take(20 * MIB);
		take(KIB);
		assert_contexts(1, 22 * MIB);
		if (round % 3 == 0) {
			CHECK_OK(cuCtxDestroy_v2(context));
		} else if (round % 3 == 1) {
			CHECK_OK(cuCtxDestroy(context));
		} else {
			CHECK_OK(cuCtxAttach(&attached, 0));
			CHECK_OK(cuCtxDetach(context));
			assert_contexts(1, 22 * MIB);
			CHECK_OK(cuCtxDetach(context));
		}
		assert_contexts(0, 0);
		CHECK(cuCtxDestroy_v2(context) != CUDA_SUCCESS);
		assert_contexts(0, 0);
	}
}

TEST(two)
{
	CUcontext a, b;
	CUdeviceptr in_b;

	init("2g");
	a = create();
	take(30 * MIB);
	take(1);
	b = create();
	in_b = take(10 * MIB);
	take(1);
	assert_contexts(2, 44 * MIB);
	CHECK_OK(cuCtxDestroy_v2(a));
	assert_contexts(1, 12 * MIB);
	give(in_b);
	assert_contexts(1, 2 * MIB);
	CHECK_OK(cuCtxDestroy_v2(b));
	assert_contexts(0, 0);
}

/* Both are made before anything is allocated, so that NVML shows only what they cost together. */
TEST(two_guesses)
{
	CUcontext a, b;

	init("2g");
	a = create();
	b = create();
	take(KIB);
	assert_contexts(2, 2 * MIB);
	CHECK_OK(cuCtxDestroy_v2(a));
	assert_contexts(1, 2 * MIB);
	CHECK_OK(cuCtxDestroy_v2(b));
	assert_contexts(0, 0);
}

/* Managed memory, which is in no process's figure, goes with its context as well. */
TEST(two_with_managed)
{
	CUcontext a, b;
	CUdeviceptr address;

	init("2g");
	a = create();
	CHECK_OK(cuMemAllocManaged(&address, 130 * MIB, CU_MEM_ATTACH_GLOBAL));
	b = create();
	CHECK_OK(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_GLOBAL));
	CHECK_EQUAL(ledger_own(0).data, 256 * MIB);
	CHECK_OK(cuCtxDestroy_v2(a));
	CHECK_EQUAL(ledger_own(0).data, 128 * MIB);
	CHECK_OK(cuCtxDestroy_v2(b));
	assert_contexts(0, 0);
}

/* -- how many fit ------------------------------------------------------------------------------ */

static void assert_current(CUcontext expected)
{
	CUcontext current = (CUcontext)UNTOUCHED;

	CHECK_OK(cuCtxGetCurrent(&current));
	CHECK(current == expected);
}

static void all_refused(void)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	unsigned flags;
	int active;

	for (unsigned version = 0; version < VERSIONS; version++)
		CHECK_EQUAL(create_by(version, &context), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK_EQUAL(active, 0);
}

/* Smaller than anything that a context can cost; and smaller than what this one does. */
static const struct limit {
	const char *name, *limit;
	bool learnt; /* the cost of a context is known before the second one is tried */
} too_small[] = {
	{"far_too_small", "100m", false},
	{"too_small", "400m", false},
	{"too_small_by_little", "526m", false},
};

static void none_fits(const struct limit *row)
{
	init(row->limit);
	for (unsigned round = 0; round < 3; round++) {
		all_refused();
		assert_current(NULL);
		assert_contexts(0, 0);
		CHECK_AT_MOST(outside_used(0), STRAY);
	}
}

TEST_TABLE(too_small, none_fits);

TEST(just_enough)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "540m");
	cuda_start(0);
	take(GRANULE);
	assert_contexts(1, GRANULE);
}

/* Room for one, not for a second: by what is known of its cost, and by measuring. */
static const struct limit for_one[] = {
	{"one_fits_learnt", "800m", true},
	{"one_fits_unlearnt", "800m", false},
	{"one_fits_measured", "1030m", false},
};

static void one_fits(const struct limit *row)
{
	CUcontext first;
	uint64_t before;

	init(row->limit);
	first = create();
	if (row->learnt)
		take(GRANULE);
	before = outside_used(0);
	all_refused();
	assert_current(first);
	CHECK_EQUAL(outside_used(0), before);
	CHECK_AT_MOST(ledger_used(0), 600 * MIB);
	take(GRANULE);
	assert_contexts(1, row->learnt ? 2 * GRANULE : GRANULE);
	CHECK_OK(cuCtxDestroy_v2(first));
	assert_contexts(0, 0);
	create();
	CHECK_OK(cuCtxSynchronize());
}

TEST_TABLE(for_one, one_fits);

/* -- what they cost ---------------------------------------------------------------------------- */

/* The first allocation measures the first context; the slice remembers. */
static const struct cost {
	const char *name, *mib;
} costs[] = {{"learnt_usual", "518"}, {"learnt_small", "300"}, {"learnt_big", "1000"}};

static void learnt(const struct cost *row)
{
	const uint64_t cost = strtoull(row->mib, NULL, 10) * MIB;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("VGPU_SIM_CONTEXT_MIB", row->mib);
	cuda_start(0);
	CHECK_EQUAL(ledger_context_cost(0), 0);
	CHECK_AT_MOST(cost, ledger_own(0).context);
	CHECK_AT_MOST(ledger_own(0).context, cost + 16 * MIB);
	take(5);
	CHECK_EQUAL(ledger_context_cost(0), cost);
	assert_books(cost, 2 * MIB, HIDDEN);
	create();
	assert_books(2 * cost, 2 * MIB, HIDDEN + HIDDEN_AGAIN);
}

TEST_TABLE(costs, learnt);

/* Costs more than is ever reserved for a guess: it is charged in the end all the same. */
TEST(learnt_huge)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("VGPU_SIM_CONTEXT_MIB", "1500");
	cuda_start(0);
	take(5);
	CHECK_EQUAL(ledger_own(0).context + ledger_own(0).module, 1500 * MIB);
}

/* -- what is rejected -------------------------------------------------------------------------- */

/* What the driver rejects is its to reject, and costs nothing. */
TEST(rejected)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	init("2g");
	CHECK_EQUAL(cuCtxCreate(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxCreate_v3(NULL, NULL, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxCreate_v4(NULL, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxCreate_v2(&context, 1u << 20, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(cuCtxDetach(NULL), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK(context == (CUcontext)UNTOUCHED);
	assert_contexts(0, 0);
}

TEST(no_such_device)
{
	static const CUdevice devices[] = {1, 7, 100, -1};
	CUcontext context = (CUcontext)UNTOUCHED;

	init("2g");
	for (unsigned i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
		CUdevice device = devices[i];

		CHECK_EQUAL(cuCtxCreate_v2(&context, 0, device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_DEVICE);
		CHECK_EQUAL(cuDevicePrimaryCtxReset_v2(device), CUDA_ERROR_INVALID_DEVICE);
	}
	CHECK(context == (CUcontext)UNTOUCHED);
	assert_contexts(0, 0);
}

/* Programs that call first and initialise then are told so, and can. */
TEST(too_early)
{
	CUcontext context = (CUcontext)UNTOUCHED;
	CUdeviceptr address = UNTOUCHED;
	size_t available, total;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_EQUAL(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuDeviceTotalMem_v2(&total, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuMemAlloc_v2(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuMemFree_v2(1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK(context == (CUcontext)UNTOUCHED);
	cuda_start(0);
	take(MIB);
	assert_contexts(1, GRANULE);
}

/* -- many of them ------------------------------------------------------------------------------ */

#define CONTEXTS 12

/* Nothing else: contexts come and go in some order, the books follow. */
TEST(come_and_go)
{
	CUcontext contexts[CONTEXTS] = {NULL};
	unsigned seed = 5, living = 0;

	init("9g");
	for (unsigned round = 0; round < 200; round++) {
		unsigned i = (unsigned)rand_r(&seed) % CONTEXTS;

		if (contexts[i]) {
			CHECK_OK(cuCtxDestroy_v2(contexts[i]));
			contexts[i] = NULL;
			living--;
		} else {
			contexts[i] = create();
			take(MIB);
			living++;
		}
		assert_contexts(living, living * GRANULE);
	}
}

static void *make_and_end(void *number)
{
	for (unsigned round = 0; round < 200; round++) {
		CUcontext context;
		CUresult result = cuCtxCreate_v2(&context, 0, 0);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result != CUDA_SUCCESS)
			continue;
		take(MIB);
		usleep(500); /* to be seen */
		CHECK_OK(cuCtxDestroy_v2(context));
	}
	return number;
}

TEST(by_threads)
{
	CUcontext first;
	uint64_t peak;

	init("1700m");
	first = create();
	take(1);
	CHECK_OK(cuCtxDestroy_v2(first));
	outside_peak_begin(0);
	threads_join(threads_start(4, make_and_end));
	peak = outside_peak(0);
	CHECK_AT_MOST(peak, 1700 * MIB + GRANULE);
	CHECK_AT_MOST(CONTEXT, peak);
	assert_contexts(0, 0);
}

/* -- guesses ----------------------------------------------------------------------------------- */

#define GUESS_PATIENCE_MS 2000

/* A first context, which is charged 1 GiB until its process allocates. */
static void first_context(int wire)
{
	hear(wire);
	cuda_start(0);
	say_ready(wire);
	sleep_ms(100);
	give(take(1));
	say_ready(wire);
}

static struct member start_beside_first_context(void)
{
	struct member other;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	other = member_start(first_context);
	cuda_start(0);
	member_ask(&other, 1);
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
	member_finish(&other);
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

/* An exported block ends with the context that it was made in, whichever was current at the export.
 */
TEST(exported_while_another_is_current)
{
	CUcontext first, second;
	CUdeviceptr block;
	int fd = -1;

	init("4g");
	first = create();
	block = take(256 * MIB);
	second = create();
	CHECK_OK(cuMemGetHandleForAddressRange(&fd, block, 256 * MIB,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_EQUAL(ledger_own(0).data, 256 * MIB);
	CHECK_OK(cuCtxDestroy_v2(first));
	CHECK_AT_MOST(256 * MIB, ledger_used(0)); /* the descriptor keeps it */
	CHECK_EQUAL(close(fd), 0);
}
