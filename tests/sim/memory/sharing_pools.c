/*
 * Pools that other processes import, and pointers into them. Within a slice the pool is charged
 * once: to the process that made it, and after its end to a process that has a pointer. Another
 * slice is charged for each pointer.
 */
#include "sharing_scene.h"

#include <unistd.h>

static CUmemoryPool pool;

static uint64_t pool_create(uint64_t pieces)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .handleTypes = POSIX,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	int fd = -1;

	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	for (unsigned i = 0; i < pieces; i++) {
		CHECK_OK(cuMemAllocFromPoolAsync(&addresses[i], SIZE, pool, NULL));
		CHECK_OK(cuMemPoolExportPointer(&board->pointers[i], addresses[i]));
	}
	CHECK_OK(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0));
	parcel_send(fd);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pool_import(uint64_t unused)
{
	int fd = parcel_receive();

	(void)unused;
	CHECK_OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pointer_import(uint64_t i)
{
	return cuMemPoolImportPointer(&addresses[i], pool, &board->pointers[i]);
}

/* At once, or in stream order. */
static uint64_t pointer_give(uint64_t i)
{
	if (i % 2) {
		CHECK_OK(cuMemFreeAsync(addresses[i], NULL));
		CHECK_OK(cuCtxSynchronize());
	} else {
		CHECK_OK(cuMemFree_v2(addresses[i]));
	}
	return 0;
}

static STEP(pool_destroy, CHECK_OK(cuMemPoolDestroy(pool)));

/* -- scenes ----------------------------------------------------------------------------------- */

/* clang-format off */
#define POINTERS {B, pointer_import, 0}, {B, pointer_import, 1, {HELD, {2}}}

static const struct scene pools[] = {
	{"pool_pointers", .steps = {
		{A, pool_create, 2}, {B, pool_import, 0},
		POINTERS, {B, pointer_give, 0}, {B, pointer_give, 1, {HELD, {2}}},
		POINTERS, {B, pointer_give, 1}, {B, pointer_give, 0, {HELD, {2}}},
		POINTERS, {B, pointer_give, 0}, {B, pointer_give, 1, {HELD, {2}}},
		{B, look, 0, {HELD, {2}}}, {B, pool_destroy, 0}, {A, pointer_give, 0},
		{A, pointer_give, 1, {HELD}}, {A, pool_destroy, 0}}},
	/* The exporter ends while B has the pointer: B is charged at its next look. */
	{"pool_outlived", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{A, pointer_give, 0}, {A, pool_destroy, 0}, {SCENE, scene_kill, A},
		{B, look, 0, {TOTAL, {0, 1}}}, {B, pointer_give, 0}, {B, pool_destroy, 0},
		{B, look, 0, {HELD}}}},
	{"pool_exporter_killed", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{SCENE, scene_kill, A}, {B, look, 0, {TOTAL, {0, 1}}}, {B, pointer_give, 0},
		{B, pool_destroy, 0}, {B, look, 0, {HELD}}}},
	/* Pointers belong to no context. */
	{"pool_of_outsider", .outsider = {[B] = "1g"}, .steps = {
		{A, pool_create, 2}, {B, pool_import, 0},
		{B, pointer_import, 0, {CHARGED, {2}, {0, 1}}}, {B, pointer_give, 0, {CHARGED, {2}}},
		{B, pointer_import, 1, {CHARGED, {2}, {0, 1}}}, {B, pointer_give, 1, {CHARGED, {2}}},
		{B, pointer_import, 0}, {B, pointer_import, 1, {CHARGED, {2}, {0, 2}}},
		{B, context_reset, 0, {CHARGED, {2}, {0, 2}}}, {SCENE, scene_end, B},
		{A, pointer_give, 0}, {A, pointer_give, 1}, {A, pool_destroy, 0, {CHARGED}}}},
	/* The limit is a context and 52 MiB. */
	{"pool_too_big", .outsider = {[B] = "580m"}, .steps = {
		{A, pool_create, 1}, {B, pool_import, 0},
		{B, pointer_import, 0, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{A, pointer_give, 0}, {SCENE, scene_holds, 0}}},
};
TEST_TABLE(pools, scene_play);
/* clang-format on */
