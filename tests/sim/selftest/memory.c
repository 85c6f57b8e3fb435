/*
 * The memory model: what every kind of allocation takes from the GPU, to the byte, and what it
 * gives back.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t start; /* in use before the first allocation */

static long long held(void)
{
	size_t available, total;

	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total - available, selftest_used(0));
	return (long long)(total - available - start);
}

static CUdeviceptr take(size_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAlloc_v2(&address, bytes));
	CHECK(address % 512 == 0);
	return address;
}

static void give(CUdeviceptr address)
{
	CHECK_OK(cuMemFree_v2(address));
}

/* As measured on a real driver. */
static void test_granules(void)
{
	CUdeviceptr p[6];

	CHECK_AFTER(p[0] = take(1), held(), 2 * MIB);
	CHECK_AFTER(p[1] = take(4 * KIB), held(), 2 * MIB);
	CHECK_AFTER(p[2] = take(MIB), held(), 2 * MIB);
	CHECK_AFTER(p[3] = take(MIB + 1), held(), 4 * MIB);
	CHECK_AFTER(p[4] = take(2 * MIB + 1), held(), 8 * MIB);
	CHECK_AFTER(p[5] = take(100 * MIB), held(), 108 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 108 * MIB);
	for (int i = 3; i < 6; i++)
		CHECK(p[i] % (2 * MIB) == 0);
	for (int i = 0; i < 6; i++)
		give(p[i]);
	CHECK_EQUAL(held(), 0);
}

/* More than 1 MiB shares nothing, though there is room. */
static void test_threshold(void)
{
	CUdeviceptr p[3] = {take(1), take(MIB + 1), 0};

	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_AFTER(p[2] = take(MIB), held(), 4 * MIB);
	for (int i = 0; i < 3; i++)
		give(p[i]);
	CHECK_EQUAL(held(), 0);
}

/* The unused end of a block of one granule is used, and holds it when the rest is gone; that of a
 * bigger one is not. */
static void test_tail(void)
{
	CUdeviceptr big = take(4 * MIB + 512), head, small, more;

	CHECK_EQUAL(held(), 6 * MIB);
	CHECK_AFTER(head = take(MIB + 512), held(), 8 * MIB);
	CHECK_AFTER(small = take(MIB - 512), held(), 8 * MIB);
	CHECK(small > head && small < head + 2 * MIB);
	CHECK_EQUAL(cuMemFree_v2(big + 4 * MIB), CUDA_ERROR_INVALID_VALUE); /* the big one's end */
	CHECK_AFTER(give(big), held(), 2 * MIB);
	CHECK_EQUAL(cuMemFree_v2(big), CUDA_ERROR_INVALID_VALUE);
	CHECK_AFTER(give(head), held(), 2 * MIB);
	more = take(MIB); /* where the head was */
	CHECK_EQUAL(held(), 2 * MIB);
	give(more);
	CHECK_AFTER(give(small), held(), 0);
}

static void test_refused(void)
{
	CUdeviceptr p = 4711, q = take(4 * KIB);
	size_t pitch = 42;

	CHECK_EQUAL(cuMemAlloc_v2(&p, 80 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAlloc_v2(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocManaged(&p, SIZE_MAX, CU_MEM_ATTACH_GLOBAL),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX - 1, 4, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocPitch_v2(&p, &pitch, GIB, SIZE_MAX, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocPitch_v2(&p, &pitch, 100, 4, 3), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocManaged(&p, MIB, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(p, 4711);
	CHECK_EQUAL(pitch, 42);
	CHECK_OK(cuMemFree_v2(0));
	CHECK_EQUAL(cuMemFree_v2(4711), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(q + 512), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(q + 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2((CUdeviceptr)(uintptr_t)&q), CUDA_ERROR_INVALID_VALUE);
	give(q);
	CHECK_EQUAL(cuMemFree_v2(q), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(held(), 0);
}

/* All that the GPU has can be had, not a granule more. */
static void test_exhaustion(void)
{
	size_t available, total;
	CUdeviceptr all, more;

	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	all = take(available / (2 * MIB) * (2 * MIB));
	CHECK_EQUAL(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_AFTER(give(all), held(), 0);
}

static void test_managed_and_pitch(void)
{
	CUdeviceptr p, q;
	size_t pitch;

	CHECK_OK(cuMemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_EQUAL(held(), 2 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
	q = take(KIB); /* does not share with it */
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 2 * MIB);
	give(q);
	CHECK_AFTER(give(p), held(), 0);
	CHECK_OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 64 * KIB, 4));
	CHECK_EQUAL(pitch, 1024);
	CHECK_EQUAL(held(), 64 * MIB);
	CHECK_AFTER(give(p), held(), 0);
}

/* Managed memory goes on where the GPU is full, and what it has of that comes back. */
static void test_managed_beyond(void)
{
	const unsigned advice = CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
	CUdeviceptr p, q, r;
	size_t available, total;

	CHECK_OK(cuMemAllocManaged(&p, GIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(cuMemAllocManaged(&q, 100 * GIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(available, 0);
	CHECK_EQUAL(cuMemAlloc_v2(&r, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuMemAllocManaged(&r, GIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(cuMemsetD8_v2(r, 1, GIB / 64));
	CHECK_OK(cuMemAdvise(q, 100 * GIB, advice, 0));
	CHECK_OK(cuMemAdvise(q + 1, 100 * GIB - 1, advice, -1));
	CHECK_EQUAL(cuMemAdvise(q + 1, 100 * GIB, advice, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAdvise(q, GIB, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAdvise(q, GIB, advice, 7), CUDA_ERROR_INVALID_DEVICE);
	give(r);
	give(p);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(available, GIB);
	p = take(GIB);
	CHECK_EQUAL(cuMemAdvise(p, GIB, advice, 0), CUDA_ERROR_INVALID_VALUE);
	give(p);
	CHECK_AFTER(give(q), held(), 0);
}

/* The functions with 32-bit pointers. */
static void test_old(void)
{
	CUdeviceptr_v1 p, base;
	unsigned pitch, available, total, size;

	CHECK_OK(cuMemAlloc(&p, 3 * MIB));
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_OK(cuMemsetD8_v2(p, 1, 3 * MIB));
	CHECK_OK(cuMemGetAddressRange(&base, &size, p + 5));
	CHECK_EQUAL(base, p);
	CHECK_EQUAL(size, 3 * MIB);
	CHECK_OK(cuMemFree(p));
	CHECK_OK(cuMemAllocPitch(&p, &pitch, 513, 4, 8));
	CHECK_EQUAL(pitch, 1024);
	CHECK_EQUAL(held(), 2 * MIB);
	CHECK_OK(cuMemFree(p));
	CHECK_OK(cuMemGetInfo(&available, &total));
	CHECK_EQUAL(total, UINT32_MAX);
	CHECK_EQUAL(held(), 0);
}

static void test_ranges(void)
{
	CUdeviceptr big = take(10 * MIB + 1), small = take(1000), next = take(1), base;
	size_t size;
	unsigned type = 0;
	void *host;

	CHECK_OK(cuMemGetAddressRange_v2(&base, &size, big + 7 * MIB));
	CHECK_EQUAL(base, big);
	CHECK_EQUAL(size, 10 * MIB + 1);
	CHECK_OK(cuMemGetAddressRange_v2(&base, &size, small + 999));
	CHECK_EQUAL(base, small);
	CHECK_EQUAL(size, 1024);
	CHECK_OK(cuMemGetAddressRange_v2(&base, &size, next));
	CHECK_EQUAL(base, next);
	CHECK_EQUAL(cuMemGetAddressRange_v2(&base, &size, next + 512), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuMemAllocHost_v2(&host, 10000));
	CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       (uintptr_t)host + 9999));
	CHECK_EQUAL(type, CU_MEMORYTYPE_HOST);
	CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, small));
	CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
	CHECK_EQUAL(cuMemFreeHost((char *)host + 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFreeHost(host));
	CHECK_EQUAL(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
	give(big);
	give(small);
	CHECK_AFTER(give(next), held(), 0);
}

static void test_copies(void)
{
	CUdeviceptr p = take(MIB), q = take(MIB);
	unsigned words[4] = {1, 2, 3, 4}, back[4] = {0};

	CHECK_OK(cuMemcpyHtoD_v2(p + 16, words, sizeof words));
	CHECK_OK(cuMemcpyDtoD_v2(q, p + 16, sizeof words));
	CHECK_OK(cuMemsetD32_v2(q + 4, 7, 2));
	CHECK_OK(cuMemcpyDtoHAsync_v2(back, q, sizeof back, NULL));
	CHECK(back[0] == 1 && back[1] == 7 && back[2] == 7 && back[3] == 4);
	CHECK_EQUAL(cuMemsetD8_v2(p, 1, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemcpyHtoD_v2(4096, words, sizeof words), CUDA_ERROR_INVALID_VALUE);
	give(p);
	CHECK_AFTER(give(q), held(), 0);
}

/* A million of 1 KiB fill their granules exactly. */
static void test_tiny(void)
{
	enum { COUNT = 1 << 20 };
	CUdeviceptr *p = malloc(COUNT * sizeof *p);

	CHECK(p);
	for (int i = 0; i < COUNT; i++)
		p[i] = take(KIB);
	CHECK_EQUAL(held(), GIB);
	for (int i = 0; i < COUNT; i += 2)
		give(p[i]);
	CHECK_EQUAL(held(), GIB);
	for (int i = 0; i < COUNT; i += 2)
		p[i] = take(KIB);
	CHECK_EQUAL(held(), GIB); /* all of the holes were found */
	for (int i = 0; i < COUNT; i++)
		give(p[(size_t)i * 7919 % COUNT]);
	CHECK_EQUAL(held(), 0);
	free(p);
}

static size_t random_size(unsigned *seed)
{
	size_t limit = (size_t)1 << (rand_r(seed) % 24);

	return 1 + (size_t)rand_r(seed) % limit;
}

/* At random: no two overlap, each keeps its mark, and in the end all is given back. */
static void test_random(void)
{
	enum { LIVE = 700, STEPS = 60000 };
	static struct {
		CUdeviceptr address;
		size_t bytes;
	} live[LIVE];
	unsigned seed = 4711;

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)rand_r(&seed) % LIVE;
		if (live[i].address) {
			unsigned char *end = (unsigned char *)live[i].address + live[i].bytes - 1;

			CHECK_EQUAL(*(unsigned char *)live[i].address, i & 255);
			CHECK_EQUAL(*end, i & 255);
			give(live[i].address);
			live[i].address = 0;
		} else {
			live[i].bytes = random_size(&seed);
			live[i].address = take(live[i].bytes);
			*(unsigned char *)live[i].address = (unsigned char)i;
			*((unsigned char *)live[i].address + live[i].bytes - 1) = (unsigned char)i;
		}
	}
	for (unsigned i = 0; i < LIVE; i++) {
		for (unsigned j = 0; j < LIVE; j++)
			CHECK(!live[i].address || !live[j].address || i == j ||
			      live[i].address + live[i].bytes <= live[j].address ||
			      live[j].address + live[j].bytes <= live[i].address);
	}
	for (unsigned i = 0; i < LIVE; i++)
		give(live[i].address);
	CHECK_EQUAL(held(), 0);
}

int main(void)
{
	CUdeviceptr p;

	selftest_begin(NULL);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
	selftest_context();
	start = selftest_used(0);
	CHECK_EQUAL(start, CONTEXT + FIRST);
	test_granules();
	test_threshold();
	test_tail();
	test_refused();
	test_exhaustion();
	test_managed_and_pitch();
	if (selftest_is_simulated())
		test_managed_beyond();
	test_old();
	test_ranges();
	test_copies();
	test_tiny();
	test_random();
	return 0;
}
