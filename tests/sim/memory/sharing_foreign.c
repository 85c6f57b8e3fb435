/*
 * Memory that goes to other drivers, as a dma-buf, or comes from other APIs: it is charged for as
 * long as the device has it.
 */
#include "sharing_fixture.h"

#include <fcntl.h>
#include <string.h>

/* -- dma-buf ---------------------------------------------------------------------------------- */

static uint64_t range_export(uint64_t i)
{
	CHECK_CUDA(
		cuMemGetHandleForAddressRange(&files[i], addresses[i], SIZE + GRANULE, DMA_BUF, 0),
		CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemGetHandleForAddressRange(&files[i], addresses[i] + GRANULE, GRANULE,
						 DMA_BUF, 0),
		   CUDA_SUCCESS);
	return 0;
}

TEST(dma_buf)
{
	struct member a;

	begin();
	a = actor();
	order(&a, allocate, 0);
	order(&a, range_export, 0);
	assert_held(1, SIZE);
	order(&a, give_back_address, 0);
	assert_held(1, SIZE);
	assert_charged(&a, 0, SIZE);
	order(&a, look, 0);
	assert_charged(&a, 0, SIZE);
	order(&a, file_close, 0);
	order(&a, look, 0);
	assert_held(1, 0);
	order(&a, allocate, 0);
	order(&a, range_export, 0);
	order(&a, file_close, 0);
	order(&a, give_back_address, 0);
	assert_held(1, 0);
	dismiss(&a);
}

static uint64_t granule_export(uint64_t i)
{
	CUdeviceptr page = addresses[i] / 4096 * 4096;

	CHECK_CUDA(cuMemGetHandleForAddressRange(&files[i], page, 4096, DMA_BUF, 0), CUDA_SUCCESS);
	return 0;
}

/* A dma-buf of one of two blocks in a granule keeps the granule, whichever goes first. */
TEST(dma_buf_of_neighbours)
{
	struct member a;

	begin();
	a = actor();
	for (unsigned first = 0; first < 2; first++) {
		order(&a, allocate_small, 0);
		order(&a, allocate_small, 1);
		order(&a, granule_export, 0);
		CHECK_EQUAL(outside_used(0), FIGURE + GRANULE);
		order(&a, give_back_address, first);
		CHECK_EQUAL(outside_used(0), FIGURE + GRANULE);
		CHECK_AT_MOST(CHARGE + GRANULE, ledger_used(0));
		order(&a, give_back_address, !first);
		order(&a, tidy, 0);
		assert_held(1, GRANULE);
		assert_charged(&a, 0, GRANULE);
		order(&a, file_close, 0);
		order(&a, look, 0);
		assert_held(1, 0);
	}
	dismiss(&a);
	assert_held(0, 0);
}

/* -- other APIs ------------------------------------------------------------------------------- */

static CUexternalMemory externals[THINGS];

static uint64_t external_try(uint64_t i)
{
	int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = SIZE};

	memcpy(desc.handle, &fd, sizeof(fd));
	externals[i] = NULL;
	return cuImportExternalMemory(&externals[i], &desc);
}

static uint64_t external_destroy(uint64_t i)
{
	CHECK_CUDA(cuDestroyExternalMemory(externals[i]), CUDA_SUCCESS);
	CHECK_CUDA(cuDestroyExternalMemory(externals[i]), CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

TEST(external_memory)
{
	struct member a;

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "700m"); /* a context, and room for two */
	a = actor();
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	CHECK_CUDA(order(&a, external_try, 1), CUDA_SUCCESS);
	assert_held(1, 2 * SIZE);
	assert_charged(&a, 0, 2 * SIZE);
	CHECK_CUDA(order(&a, external_try, 2), CUDA_ERROR_OUT_OF_MEMORY);
	assert_held(1, 2 * SIZE);
	order(&a, external_destroy, 0);
	assert_held(1, SIZE);
	order(&a, look, 0);
	assert_held(1, SIZE);
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	order(&a, external_destroy, 1);
	order(&a, external_destroy, 0);
	assert_held(1, 0);
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	order(&a, context_reset, 0);
	CHECK_EQUAL(ledger_used(0), CHARGE);
	dismiss(&a);
	assert_held(0, 0);
}
