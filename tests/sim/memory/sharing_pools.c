/*
 * Pools that other processes import, and pointers into them. Within a slice the pool is charged
 * once: to the process that made it, and after its end to a process that has a pointer. That one
 * keeps the charge, as drivers keep the memory, although the simulated one does not. Another slice
 * is charged for each pointer.
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

/* The process has a context, which is not current. */
static uint64_t pointer_import_bare(uint64_t i)
{
	CUcontext context;
	CUresult result;

	CHECK_OK(cuCtxPopCurrent_v2(&context));
	result = cuMemPoolImportPointer(&addresses[i], pool, &board->pointers[i]);
	CHECK_OK(cuCtxPushCurrent_v2(context));
	return result;
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

/* In stream order, and nothing waits for the stream. */
static STEP(pointer_give_later, CHECK_OK(cuMemFreeAsync(addresses[i], NULL)));
static STEP(wait_for_all, CHECK_OK(cuCtxSynchronize()));

/* More such frees than the library keeps in mind. */
static uint64_t pointers_give_later(uint64_t many)
{
	for (uint64_t i = 0; i < many; i++) {
		CHECK_OK(cuMemPoolImportPointer(&addresses[0], pool, &board->pointers[0]));
		pointer_give_later(0);
	}
	return 0;
}

/* Compares the accounts with NVML's figure, and waits for no stream. */
static uint64_t ask(uint64_t unused)
{
	size_t available, total;

	for (unsigned i = 0; i < 3; i++) {
		sleep_ms(30);
		CHECK_OK(cuMemGetInfo_v2(&available, &total));
	}
	return unused;
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
	/* The exporter gives the pointer up while B has it: the charge moves, although B takes no
	 * step. */
	{"pool_outlived", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{A, pointer_give, 0}, {SCENE, scene_is_covered, 0}, {A, pool_destroy, 0},
		{SCENE, scene_is_covered, 0}, {A, look, 0, {HELD, {0, 1}}}, {SCENE, scene_kill, A},
		{SCENE, scene_reap, 0, {HELD, {0, 1}}}, {B, look, 0, {HELD, {0, 1}}},
		{B, pointer_give, 0}, {B, pool_destroy, 0}, {B, look, 0, {CHARGED, {0, 1}}}}},
	{"pool_exporter_killed", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{SCENE, scene_kill, A}, {SCENE, scene_reap, 0, {HELD, {0, 1}}},
		{B, look, 0, {HELD, {0, 1}}}, {B, pointer_give, 0}, {B, pool_destroy, 0},
		{B, look, 0, {CHARGED, {0, 1}}}, {SCENE, scene_end, B, {CHARGED}}}},
	/* The pool is destroyed with the pointer in use. */
	{"pool_destroyed_in_use", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{A, pool_destroy, 0}, {SCENE, scene_is_covered, 0}, {SCENE, scene_kill, A},
		{SCENE, scene_reap, 0, {HELD, {0, 1}}}, {B, pointer_give, 0, {CHARGED, {0, 1}}},
		{B, pool_destroy, 0}}},
	{"pool_destroyed_before_import", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {A, pool_destroy, 0},
		{B, pointer_import, 0}, {SCENE, scene_is_covered, 0}, {SCENE, scene_kill, A},
		{SCENE, scene_reap, 0}, {SCENE, scene_is_covered, 0}, {B, pointer_give, 0, {HELD}},
		{B, pool_destroy, 0}}},
	/* A's pool keeps the memory, in A's figure. So B's figure does not show that what B is
	 * charged is too much. */
	{"pool_kept", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{A, pointer_give, 0}, {B, allocate, 1, {CHARGED, {1, 2}}},
		{B, pointer_give_later, 1}, {B, ask, 0, {CHARGED, {1, 2}}},
		{B, wait_for_all, 0, {CHARGED, {1, 1}}}, {B, look, 0, {CHARGED, {1, 1}}},
		{B, pointer_give, 0, {CHARGED, {1, 1}}}, {SCENE, scene_is_covered, 0},
		{A, pool_destroy, 0}, {A, look, 0, {CHARGED, {0, 1}}}}},
	/* B's stream has not come to the free yet. */
	{"pool_freed_later", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{B, pointer_give_later, 0}, {SCENE, scene_kill, A},
		{SCENE, scene_reap, 0, {HELD, {0, 1}}}, {B, wait_for_all, 0, {CHARGED, {0, 1}}}}},
	{"pool_freed_later_alone", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{SCENE, scene_kill, A}, {SCENE, scene_reap, 0, {HELD, {0, 1}}},
		{B, pointer_give_later, 0, {HELD, {0, 1}}},
		{B, wait_for_all, 0, {CHARGED, {0, 1}}}}},
	{"pool_freed_in_ended", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{SCENE, scene_kill, A}, {SCENE, scene_reap, 0}, {B, pointer_give_later, 0},
		{B, context_reset, 0}, {SCENE, scene_is_covered, 0},
		{B, wait_for_all, 0, {CHARGED, {0, 1}}}}},
	{"pools_freed_later", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointers_give_later, 200, {HELD, {1}}},
		{B, wait_for_all, 0, {HELD, {1}}}, {A, pointer_give, 0, {HELD}},
		{A, pool_destroy, 0}}},
	/* B has no current context. */
	{"pool_bare_importer", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import_bare, 0, {HELD, {1}}},
		{SCENE, scene_kill, A}, {SCENE, scene_reap, 0, {HELD, {0, 1}}},
		{B, pointer_give, 0, {CHARGED, {0, 1}}}, {B, pool_destroy, 0}}},
	{"pool_bare_outsider", .outsider = {[B] = "1g"}, .steps = {
		{A, pool_create, 1}, {B, pool_import, 0},
		{B, pointer_import_bare, 0, {CHARGED, {1}}, CUDA_ERROR_INVALID_CONTEXT},
		{SCENE, scene_end, B}, {A, pointer_give, 0, {HELD}}, {A, pool_destroy, 0}}},
	/* The charge moves on to the next importer. */
	{"pool_two_importers", .steps = {
		{A, pool_create, 1}, {B, pool_import, 0}, {B, pointer_import, 0},
		{SCENE, scene_kill, A}, {SCENE, scene_reap, 0, {HELD, {0, 1}}},
		{B, pointer_import_bare, 0, {HELD, {0, 1}}}, {B, pointer_give, 0, {HELD, {0, 1}}}}},
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
