/*
 * Pools that other processes import, and pointers into them. Within a slice the pool is charged
 * once, to who made it, and to who has a pointer when that one is gone; another slice is charged
 * for each pointer.
 */
#include "sharing_fixture.h"

#include <unistd.h>

static CUmemoryPool pool;

static uint64_t pool_create(uint64_t pieces)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .handleTypes = POSIX,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	int fd = -1;

	CHECK_CUDA(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
	for (unsigned i = 0; i < pieces; i++) {
		CHECK_CUDA(cuMemAllocFromPoolAsync(&addresses[i], SIZE, pool, NULL), CUDA_SUCCESS);
		CHECK_CUDA(cuMemPoolExportPointer(&board->pointers[i], addresses[i]), CUDA_SUCCESS);
	}
	CHECK_CUDA(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0), CUDA_SUCCESS);
	parcel_send(fd);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pool_import(uint64_t unused)
{
	int fd = parcel_receive();

	(void)unused;
	CHECK_CUDA(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0),
		   CUDA_SUCCESS);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pointer_try(uint64_t i)
{
	return cuMemPoolImportPointer(&addresses[i], pool, &board->pointers[i]);
}

/* At once, or in stream order. */
static uint64_t pointer_give(uint64_t i)
{
	if (i % 2) {
		CHECK_CUDA(cuMemFreeAsync(addresses[i], NULL), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	} else {
		CHECK_CUDA(cuMemFree_v2(addresses[i]), CUDA_SUCCESS);
	}
	return 0;
}

static uint64_t pool_destroy(uint64_t unused)
{
	(void)unused;
	CHECK_CUDA(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	return 0;
}

TEST(pool_pointers)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, pool_create, 2);
	order(&b, pool_import, 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			CHECK_CUDA(order(&b, pointer_try, i), CUDA_SUCCESS);
		assert_held(2, 2 * SIZE);
		assert_charged(&a, 2 * SIZE, 0);
		assert_charged(&b, 0, 0);
		order(&b, pointer_give, round % 2);
		order(&b, pointer_give, !(round % 2));
		assert_held(2, 2 * SIZE);
	}
	order(&b, look, 0);
	assert_charged(&b, 0, 0);
	order(&b, pool_destroy, 0);
	order(&a, pointer_give, 0);
	order(&a, pointer_give, 1);
	assert_held(2, 0);
	order(&a, pool_destroy, 0);
	dismiss(&a);
	dismiss(&b);
	assert_held(0, 0);
}

/* The exporter goes while the other has the pointer: at the next look the other is charged. */
TEST(pool_outlived)
{
	struct member a, b;

	begin();
	b = actor();
	for (unsigned dies = 0; dies < 2; dies++) {
		a = actor();
		order(&a, pool_create, 1);
		order(&b, pool_import, 0);
		CHECK_CUDA(order(&b, pointer_try, 0), CUDA_SUCCESS);
		if (!dies)
			order(&a, pointer_give, 0);
		if (!dies)
			order(&a, pool_destroy, 0);
		member_kill(&a);
		order(&b, look, 0);
		assert_held(1, SIZE);
		order(&b, pointer_give, 0);
		order(&b, pool_destroy, 0);
		order(&b, look, 0);
		assert_held(1, 0);
	}
	dismiss(&b);
}

TEST(pool_of_outsider)
{
	struct member a, b, poor;

	begin();
	b = outsider("1g");
	a = actor();
	order(&a, pool_create, 2);
	order(&b, pool_import, 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_CUDA(order(&b, pointer_try, i), CUDA_SUCCESS);
		assert_outsider(&b, 0, SIZE);
		order(&b, pointer_give, i);
		assert_outsider(&b, 0, 0);
	}
	CHECK_CUDA(order(&b, pointer_try, 0), CUDA_SUCCESS);
	CHECK_CUDA(order(&b, pointer_try, 1), CUDA_SUCCESS);
	assert_outsider(&b, 0, 2 * SIZE);
	order(&b, context_reset, 0); /* they are of no context */
	assert_outsider(&b, 0, 2 * SIZE);
	dismiss(&b);
	order(&a, pointer_give, 0);
	order(&a, pointer_give, 1);
	order(&a, pool_destroy, 0);
	poor = outsider("580m");
	order(&a, pool_create, 1);
	order(&poor, pool_import, 0);
	CHECK_CUDA(order(&poor, pointer_try, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_outsider(&poor, 0, 0);
	assert_charged(&a, SIZE, 0);
	order(&a, pointer_give, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE); /* nobody has it */
	dismiss(&poor);
	dismiss(&a);
	assert_held(0, 0);
}
