/* Every way to allocate and to free: what it takes, and the driver's own answer where it has one.
 */
#include "cuda_api.h"

#include <unistd.h>

static void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* The ledger is the truth: no managed memory, which is in no process's figure. */
static void assert_data(uint64_t bytes)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, bytes);
	CHECK_EQUAL(outside_of(0, getpid()), usage.context + usage.module + usage.data);
}

TEST(linear)
{
	CUdeviceptr a;
	CUdeviceptr_v1 b = 0, c = 0;

	start("1g");
	a = take(2 * MIB + 1);
	assert_data(4 * MIB);
	CHECK_OK(cuMemAlloc(&b, 3 * MIB));
	assert_data(8 * MIB);
	CHECK_OK(cuMemAlloc(&c, 2 * MIB));
	assert_data(10 * MIB);
	CHECK_OK(cuMemFree(c));
	assert_data(8 * MIB);
	give(b); /* by the other version */
	assert_data(4 * MIB);
	give(a);
	assert_data(0);
}

TEST(refused_linear_v1)
{
	CUdeviceptr_v1 address = UNTOUCHED;

	start("600m");
	CHECK_EQUAL(cuMemAlloc(&address, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	assert_data(0);
}

static uint64_t granules(uint64_t bytes)
{
	return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static void pitched_once(uint64_t width, uint64_t height, unsigned element)
{
	uint64_t before = ledger_own(0).data;
	CUdeviceptr address = 0;
	size_t pitch = 0;

	CHECK_OK(cuMemAllocPitch_v2(&address, &pitch, width, height, element));
	CHECK(pitch >= width);
	if (pitch * height > MIB) /* else it may share */
		assert_data(before + granules(pitch * height));
	give(address);
	assert_data(before);
}

TEST(pitched)
{
	static const uint64_t widths[] = {1, 3, 511, 512, 513, 1000, 4095, 4097, 65537};
	CUdeviceptr_v1 address = 0;
	unsigned pitch = 0;

	start("2g");
	for (unsigned i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		for (unsigned height = 1; height < 5000; height = height * 3 + 1)
			pitched_once(widths[i], height, 4u << i % 3);
	CHECK_OK(cuMemAllocPitch(&address, &pitch, 1001, 4096, 4));
	CHECK(pitch >= 1001);
	assert_data(granules((uint64_t)pitch * 4096));
	CHECK_OK(cuMemFree(address));
	assert_data(0);
}

/* What is left takes rows of the pitch, and no more of them. */
TEST(pitched_to_the_limit)
{
	CUdeviceptr address = UNTOUCHED, held;
	size_t pitch = UNTOUCHED;
	const uint64_t left = 600 * MIB - CONTEXT - HIDDEN;

	start("600m");
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 1, left / 512 + 1, 4),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_EQUAL(pitch, UNTOUCHED);
	assert_data(0);
	CHECK_OK(cuMemAllocPitch_v2(&held, &pitch, 1, left / 512, 4));
	assert_data(left);
	give(held);
}

TEST(pitched_too_big)
{
	static const struct {
		size_t width, height;
	} sizes[] = {{SIZE_MAX, 1},
		     {SIZE_MAX, SIZE_MAX},
		     {SIZE_MAX / 2, 3},
		     {SIZE_MAX - 510, 1},
		     {(size_t)1 << 32, (size_t)1 << 32},
		     {((size_t)1 << 40) + 1, (size_t)1 << 24}};
	CUdeviceptr address = UNTOUCHED;
	size_t pitch = UNTOUCHED;

	start("1g");
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		CHECK_EQUAL(
			cuMemAllocPitch_v2(&address, &pitch, sizes[i].width, sizes[i].height, 4),
			CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(address, UNTOUCHED);
		CHECK_EQUAL(pitch, UNTOUCHED);
		assert_data(0);
	}
}

TEST(pitched_rejected)
{
	CUdeviceptr address = UNTOUCHED;
	CUdeviceptr_v1 address_v1 = UNTOUCHED;
	size_t pitch = UNTOUCHED;
	unsigned pitch_v1 = UNTOUCHED;

	start("1g");
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 10, 0, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 10, 10, 5), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch_v2(NULL, &pitch, 10, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, NULL, 10, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch(&address_v1, &pitch_v1, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch(NULL, &pitch_v1, 10, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocPitch(&address_v1, NULL, 10, 10, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_EQUAL(address_v1, UNTOUCHED);
	CHECK_EQUAL(pitch, UNTOUCHED);
	CHECK_EQUAL(pitch_v1, UNTOUCHED);
	assert_data(0);
}

#define CHUNK (128 * MIB)

static CUdeviceptr take_managed(uint64_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
	return address;
}

TEST(managed)
{
	CUdeviceptr a, b, c, refused_one = UNTOUCHED;

	start("1g"); /* of which 496 MiB are left: three chunks */
	a = take_managed(1);
	CHECK_EQUAL(ledger_own(0).data, CHUNK);
	b = take_managed(CHUNK - GRANULE);
	CHECK_EQUAL(ledger_own(0).data, CHUNK);
	c = take_managed(2);
	CHECK_EQUAL(ledger_own(0).data, 2 * CHUNK);
	CHECK_EQUAL(cuMemAllocManaged(&refused_one, 2 * CHUNK, CU_MEM_ATTACH_GLOBAL),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(refused_one, UNTOUCHED);
	CHECK_EQUAL(ledger_own(0).data, 2 * CHUNK);
	give(b);
	CHECK_EQUAL(ledger_own(0).data, CHUNK);
	b = take_managed(2 * CHUNK);
	CHECK_EQUAL(ledger_own(0).data, 3 * CHUNK);
	give(a);
	give(b);
	CHECK_EQUAL(ledger_own(0).data, CHUNK);
	give(c);
	assert_data(0);
}

TEST(managed_rejected)
{
	CUdeviceptr address = UNTOUCHED;

	start("1g");
	CHECK_EQUAL(cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocManaged(NULL, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocManaged(&address, 1, 77), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocManaged(&address, SIZE_MAX, CU_MEM_ATTACH_GLOBAL),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	assert_data(0);
}

/* Managed memory and the rest, side by side and mixed: each goes back as it was charged. */
TEST(managed_with_others)
{
	CUdeviceptr device, shared;

	start("1g");
	for (unsigned round = 0; round < 50; round++) {
		device = take(5 * MIB);
		shared = take_managed(round * MIB + 1);
		CHECK_EQUAL(ledger_own(0).data, 6 * MIB + CHUNK);
		give(round % 2 ? device : shared);
		CHECK_EQUAL(ledger_own(0).data, round % 2 ? CHUNK : 6 * MIB);
		give(round % 2 ? shared : device);
		assert_data(0);
	}
}

TEST(freed_wrongly)
{
	CUdeviceptr small, big;

	start("1g");
	small = take(100 * KIB);
	big = take(9 * MIB);
	assert_data(12 * MIB);
	CHECK_OK(cuMemFree_v2(0));
	CHECK_OK(cuMemFree(0));
	CHECK_EQUAL(cuMemFree_v2(0x12345678), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree(0x12345678), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(small + 512), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(small + 1), CUDA_ERROR_INVALID_VALUE);
	for (uint64_t into = 1; into < 10 * MIB; into += MIB)
		CHECK_EQUAL(cuMemFree_v2(big + into), CUDA_ERROR_INVALID_VALUE);
	assert_data(12 * MIB);
	give(big);
	assert_data(2 * MIB);
	CHECK_EQUAL(cuMemFree_v2(big), CUDA_ERROR_INVALID_VALUE);
	assert_data(2 * MIB);
	give(small);
	CHECK_EQUAL(cuMemFree_v2(small), CUDA_ERROR_INVALID_VALUE);
	assert_data(0);
}

/* A small allocation in the rest of a bigger one's granule keeps that granule; nothing is ever put
 * into the rest of one that has several. */
TEST(tail_outlives_head)
{
	CUdeviceptr big, small;
	uint64_t bare;

	start("1g");
	big = take(20 * MIB + 100 * KIB);
	small = take(KIB);
	CHECK_EQUAL(small / GRANULE == (big + 20 * MIB) / GRANULE, false);
	give(small);
	give(big);
	assert_data(0);
	bare = outside_of(0, getpid());
	big = take(MIB + 100 * KIB);
	small = take(KIB);
	CHECK_EQUAL(small / GRANULE, big / GRANULE);
	give(big); /* the books hold the spare as well, that the small one did not need */
	CHECK_EQUAL(outside_of(0, getpid()), bare + GRANULE);
	give(small);
	assert_data(0);
}

/* The driver frees nothing without a context; the charge stays until it does. */
TEST(freed_without_context)
{
	CUdeviceptr address;
	CUcontext context;

	start("1g");
	address = take(6 * MIB);
	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_EQUAL(cuMemFree_v2(address), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(cuMemAlloc_v2(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
	assert_data(6 * MIB);
	CHECK_OK(cuCtxSetCurrent(context));
	give(address);
	assert_data(0);
}

TEST(linear_rejected)
{
	CUdeviceptr address = UNTOUCHED;
	CUdeviceptr_v1 address_v1 = UNTOUCHED;

	start("1g");
	CHECK_EQUAL(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc(&address_v1, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_EQUAL(address_v1, UNTOUCHED);
	refused(SIZE_MAX);
	refused(SIZE_MAX - GRANULE);
	refused((uint64_t)1 << 60);
	refused(GIB);
	assert_data(0);
}

/*
 * What cannot fit is refused before the driver is asked, which here answers 999 to everything; and
 * what the driver refuses costs nothing.
 */
TEST(refused_unasked)
{
	CUdeviceptr address = UNTOUCHED;
	CUdeviceptr_v1 address_v1 = UNTOUCHED;
	size_t pitch = UNTOUCHED;
	unsigned pitch_v1 = UNTOUCHED;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "600m"); /* 72 MiB and a context */
	env_set("VGPU_SIM_FAULTS", "cuMemAlloc_v2=999,cuMemAlloc=999,cuMemAllocPitch=999,"
				   "cuMemAllocPitch_v2=999,cuMemAllocManaged=999");
	cuda_start(0);
	CHECK_EQUAL(cuMemAlloc_v2(&address, 60 * MIB), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemAlloc_v2(&address, 73 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAlloc(&address_v1, 60 * MIB), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemAlloc(&address_v1, 73 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 1, 60 * MIB / 512, 4), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemAllocPitch_v2(&address, &pitch, 1, 73 * MIB / 512, 4),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocPitch(&address_v1, &pitch_v1, 513, 60 * KIB, 4), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemAllocPitch(&address_v1, &pitch_v1, 513, 73 * KIB, 4),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_EQUAL(address_v1, UNTOUCHED);
	CHECK_EQUAL(pitch, UNTOUCHED);
	CHECK_EQUAL(pitch_v1, UNTOUCHED);
	assert_data(0);
}

/* The GPU is full before the quota is: its answer, and the reservation goes back. */
TEST(refused_by_the_driver)
{
	env_set("VGPU_SIM_GPUS", "1x1G");
	start("8g");
	refused(GIB);
	assert_data(0);
	give(take(400 * MIB));
	assert_data(0);
}
