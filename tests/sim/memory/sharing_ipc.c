/* CUDA IPC: memory that another process opens is charged as sharing.c says, once in a slice. */
#include "sharing_scene.h"

/* -- steps ------------------------------------------------------------------------------------ */

static STEP(ipc_get, CHECK_OK(cuIpcGetMemHandle(&board->ipc[i], addresses[i] + MIB)));
static STEP(ipc_get_small, CHECK_OK(cuIpcGetMemHandle(&board->ipc[0], addresses[i])));

static uint64_t allocate_and_get(uint64_t i)
{
	allocate(i);
	return ipc_get(i);
}

/* Opens the handle 0 of the board as the i-th, by either version. Returns the CUresult. */
static uint64_t ipc_open(uint64_t i)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result;

	if (i % 2)
		result = cuIpcOpenMemHandle(&address, board->ipc[0], 1);
	else
		result = cuIpcOpenMemHandle_v2(&address, board->ipc[0], 1);
	if (result == CUDA_SUCCESS)
		addresses[i] = address;
	else
		CHECK_EQUAL(address, UNTOUCHED);
	return result;
}

/* A block that was opened twice is open until the second close. */
static uint64_t ipc_close(uint64_t i)
{
	CUdeviceptr address = addresses[i];

	CHECK_OK(cuIpcCloseMemHandle(address));
	addresses[i] = 0;
	if (addresses[0] != address && addresses[1] != address)
		CHECK_EQUAL(cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
	return 0;
}

#define OFTEN 5000 /* more imports than the library keeps */

/* Opens the handle 0 until that fails. Returns the CUresult of the last call. */
static uint64_t ipc_open_often(uint64_t i)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned times = 0; times < OFTEN && result == CUDA_SUCCESS; times++)
		result = cuIpcOpenMemHandle_v2(&addresses[i], board->ipc[0], 1);
	return result;
}

/* The granule is charged, at least once. */
static STEP(granule_is_charged, CHECK_AT_MOST(2 * CHARGE + GRANULE, ledger_used(0)));

static void play_counted(const struct scene *scene)
{
	env_set("VGPU_SIM_IPC_COUNTS", "1");
	scene_play(scene);
}

/* -- scenes ----------------------------------------------------------------------------------- */

/* clang-format off */

/* A allocates a block; B opens it twice, as 0 and 1. */
#define OPEN_TWICE                                                                         \
	{A, allocate_and_get, 0, {HELD, {1}}}, {B, ipc_open, 0}, {B, ipc_open, 1, {HELD, {1}}}
#define FREE {A, give_back_address, 0, {HELD}}

static const struct scene blocks[] = {
	{"ipc_own_block", .steps = {
		{A, allocate_and_get, 0}, {A, ipc_open, 1, {0}, CUDA_ERROR_INVALID_CONTEXT}, FREE}},
	{"ipc_closed_first", .rounds = 3, .steps = {
		OPEN_TWICE, {B, ipc_close, 0, {HELD, {1}}}, {B, ipc_close, 1, {HELD, {1}}}, FREE}},
	{"ipc_closed_in_reverse", .steps = {
		OPEN_TWICE, {B, ipc_close, 1, {HELD, {1}}}, {B, ipc_close, 0, {HELD, {1}}}, FREE}},
	{"ipc_importer_resets", .steps = {
		OPEN_TWICE, {B, context_reset, 0, {HELD, {1}}}, FREE}},
	{"ipc_importer_killed", .steps = {
		OPEN_TWICE, {SCENE, scene_kill, B, {HELD, {1}}}, FREE}},
	{"ipc_freed_first", .rounds = 3, .steps = {
		OPEN_TWICE, {A, give_back_address, 0, {HELD, {0, 1}}},
		{B, ipc_close, 1, {HELD, {0, 1}}}, {B, ipc_close, 0, {HELD}}}},
	{"ipc_freed_and_importer_resets", .steps = {
		OPEN_TWICE, {A, give_back_address, 0, {HELD, {0, 1}}},
		{B, context_reset, 0, {HELD}}}},
	{"ipc_both_reset", .steps = {
		OPEN_TWICE, {A, context_reset, 0, {HELD, {0, 1}}}, {B, context_reset, 0, {HELD}}}},
	{"ipc_exporter_killed", .steps = {
		OPEN_TWICE, {SCENE, scene_kill, A, {HELD, {0, 1}}},
		{B, ipc_close, 0, {HELD, {0, 1}}}, {B, ipc_close, 1, {HELD}}}},
	{"ipc_looked_at_after_kill", .steps = {
		OPEN_TWICE, {SCENE, scene_kill, A}, {B, look, 0}, {SCENE, scene_is_covered, 0},
		{SCENE, scene_reap, 0}, {B, look, 0, {HELD, {0, 1}}},
		{B, ipc_close, 0, {HELD, {0, 1}}}, {B, ipc_close, 1, {HELD}}}},
	/* Two contexts and 100 MiB: the slice pays for the block once. */
	{"ipc_at_the_quota", .limit = "1156m", .steps = {
		OPEN_TWICE, {A, give_back_address, 0, {HELD, {0, 1}}},
		{A, ipc_open, 2, {0}, CUDA_ERROR_INVALID_CONTEXT}, {B, ipc_close, 0},
		{B, ipc_close, 1}, {A, allocate, 1}, {A, give_back_address, 1},
		{A, allocate, 1}, {A, give_back_address, 1}, {A, allocate, 1},
		{A, give_back_address, 1, {HELD}}}},
	/* The outsider's two openings are not known to be the same block. */
	{"ipc_of_outsider", .outsider = {[B] = "1g"}, .steps = {
		{A, allocate_and_get, 0}, {B, ipc_open, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_open, 1, {CHARGED, {1}, {0, 2}}}, {B, ipc_close, 0, {CHARGED, {1}, {0, 1}}},
		{B, look, 0, {CHARGED, {1}, {0, 1}}}, {B, context_reset, 0, {CHARGED, {1}}},
		{B, ipc_open, 0}, {B, ipc_close, 0, {CHARGED, {1}}}, {A, give_back_address, 0},
		{SCENE, scene_holds, 0}}},
	/* The limit is a context and 52 MiB: the block is closed again, and refused. */
	{"ipc_too_big", .outsider = {[B] = "580m"}, .steps = {
		{A, allocate_and_get, 0},
		{B, ipc_open, 0, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, ipc_open, 1, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, ipc_open, 2, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, ipc_open, 3, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{SCENE, scene_holds, 1}, {A, give_back_address, 0}, {SCENE, scene_holds, 0}}},
};
TEST_TABLE(blocks, scene_play);

/* The driver gives a block that is opened again the same address, and counts, as cuda.h says. */
static const struct scene counted[] = {
	{"ipc_counted", .steps = {
		OPEN_TWICE, {B, ipc_close, 0, {HELD, {1}}}, {B, ipc_close, 1, {HELD, {1}}}, FREE}},
	{"ipc_counted_of_outsider", .outsider = {[B] = "1g"}, .steps = {
		{A, allocate_and_get, 0}, {B, ipc_open, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_open, 1, {CHARGED, {1}, {0, 1}}}, {B, ipc_close, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_close, 1, {CHARGED, {1}}}, {B, ipc_open, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_open, 1}, {B, context_reset, 0, {CHARGED, {1}}},
		{A, give_back_address, 0}, {SCENE, scene_holds, 0}}},
	{"ipc_counted_too_often", .outsider = {[B] = "1g"}, .steps = {
		{A, allocate_and_get, 0},
		{B, ipc_open_often, 0, {CHARGED, {1}, {0, 1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, context_reset, 0, {CHARGED, {1}}}, {A, give_back_address, 0}}},
	/* The limit is a context and 92 MiB: there is no room for the block twice. */
	{"ipc_counted_at_the_quota", .outsider = {[B] = "620m"}, .steps = {
		{A, allocate_and_get, 0}, {B, ipc_open, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_open, 1, {CHARGED, {1}, {0, 1}}}, {B, ipc_close, 0, {CHARGED, {1}, {0, 1}}},
		{B, ipc_close, 1, {CHARGED, {1}}}, {A, give_back_address, 0}}},
};
TEST_TABLE(counted, play_counted);

/* The blocks 1 and 2 share a granule, and B has opened the block 1 as 0. */
#define OPEN_SMALL                                                                         \
	{A, allocate_small, 1}, {A, allocate_small, 2}, {A, ipc_get_small, 1},             \
		{B, ipc_open, 0}, {SCENE, scene_holds, 1}
/* An opened block keeps the whole granule, whichever block is freed first. */
#define FREED_SMALL(row, first, second)                                                    \
	{row, .unit = GRANULE, .steps = {                                                  \
		OPEN_SMALL, {A, give_back_address, first}, {SCENE, scene_holds, 1},        \
		{SCENE, granule_is_charged, 0}, {A, give_back_address, second},            \
		{A, tidy, 0, {HELD, {0, 1}}}, {B, ipc_close, 0, {HELD}}}}

static const struct scene neighbours[] = {
	FREED_SMALL("ipc_neighbour_last", 1, 2),
	FREED_SMALL("ipc_neighbour_first", 2, 1),
	{"ipc_neighbours_killed", .unit = GRANULE, .steps = {
		OPEN_SMALL, {SCENE, scene_kill, A, {HELD, {0, 1}}}, {B, ipc_close, 0, {HELD}}}},
};
TEST_TABLE(neighbours, scene_play);
/* clang-format on */
