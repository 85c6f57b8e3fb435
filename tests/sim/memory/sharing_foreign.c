/*
 * Memory that goes to other drivers, as a dma-buf, or comes from other APIs: it is charged for as
 * long as the device has it.
 */
#include "sharing_scene.h"

#include <fcntl.h>
#include <string.h>

/* -- dma-buf ---------------------------------------------------------------------------------- */

static uint64_t range_export(uint64_t i)
{
	CHECK_EQUAL(
		cuMemGetHandleForAddressRange(&files[i], addresses[i], SIZE + GRANULE, DMA_BUF, 0),
		CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemGetHandleForAddressRange(&files[i], addresses[i] + GRANULE, GRANULE, DMA_BUF,
					       0));
	return 0;
}

static uint64_t granule_export(uint64_t i)
{
	CUdeviceptr page = addresses[i] / 4096 * 4096;

	CHECK_OK(cuMemGetHandleForAddressRange(&files[i], page, 4096, DMA_BUF, 0));
	return 0;
}

/* The granule is charged, at least once. */
static STEP(granule_is_charged, CHECK_AT_MOST(CHARGE + GRANULE, ledger_used(0)));

/* clang-format off */

/* A dma-buf of one of two blocks in a granule keeps the granule, whichever block is freed first. */
#define FREED_SMALL(row, first, second)                                                    \
	{row, .unit = GRANULE, .steps = {                                                  \
		{A, allocate_small, 0}, {A, allocate_small, 1}, {A, granule_export, 0},    \
		{SCENE, scene_holds, 1}, {A, give_back_address, first},                    \
		{SCENE, scene_holds, 1}, {SCENE, granule_is_charged, 0},                   \
		{A, give_back_address, second}, {A, tidy, 0, {HELD, {0}, {1}}},            \
		{A, file_close, 0}, {A, look, 0, {HELD}}}}

static const struct scene dma_bufs[] = {
	{"dma_buf_closed_last", .steps = {
		{A, allocate, 0}, {A, range_export, 0, {HELD, {1}}},
		{A, give_back_address, 0, {HELD, {0}, {1}}}, {A, look, 0, {HELD, {0}, {1}}},
		{A, file_close, 0}, {A, look, 0, {HELD}}}},
	{"dma_buf_closed_first", .steps = {
		{A, allocate, 0}, {A, range_export, 0}, {A, file_close, 0},
		{A, give_back_address, 0, {HELD}}}},
	FREED_SMALL("dma_buf_of_neighbour_last", 0, 1),
	FREED_SMALL("dma_buf_of_neighbour_first", 1, 0),
};
TEST_TABLE(dma_bufs, scene_play);
/* clang-format on */

/* -- other APIs ------------------------------------------------------------------------------- */

static CUexternalMemory externals[THINGS];

static uint64_t external_import(uint64_t i)
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
	CHECK_OK(cuDestroyExternalMemory(externals[i]));
	CHECK_EQUAL(cuDestroyExternalMemory(externals[i]), CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

/* clang-format off */
static const struct scene other_apis[] = {
	/* The limit is a context, and room for two. */
	{"external_memory", .limit = "700m", .steps = {
		{A, external_import, 0}, {A, external_import, 1, {HELD, {0}, {2}}},
		{A, external_import, 2, {HELD, {0}, {2}}, CUDA_ERROR_OUT_OF_MEMORY},
		{A, external_destroy, 0, {HELD, {0}, {1}}}, {A, look, 0, {HELD, {0}, {1}}},
		{A, external_import, 0}, {A, external_destroy, 1},
		{A, external_destroy, 0, {HELD}}}},
	{"external_context_ends", .steps = {
		{A, external_import, 0}, {A, context_reset, 0, {CHARGED}}}},
};
TEST_TABLE(other_apis, scene_play);
/* clang-format on */
