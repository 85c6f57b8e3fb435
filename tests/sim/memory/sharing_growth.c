/*
 * A process that has others' memory open, and takes memory that no hook sees: what NVML counts for
 * it beside its books is its own, as the shared memory is in the figure of the process that made
 * it.
 */
#include "sharing_scene.h"

#include <unistd.h>

/* -- steps ------------------------------------------------------------------------------------ */

static const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

static CUlibrary library; /* each actor's last */

/* Loads code that takes SCENE_MODULE at its first launch, and launches it. False: there is no room.
 */
static bool grow(void)
{
	CUkernel kernel;
	CUresult result = cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result != CUDA_SUCCESS)
		return false;
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	CHECK_OK(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	return true;
}

/* Until there is no room for a granule. */
static uint64_t grow_until_full(uint64_t unused)
{
	(void)unused;
	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr address;

		sleep_ms(3);
		if (cuMemAlloc_v2(&address, GRANULE) != CUDA_SUCCESS)
			break;
		give(address);
		if (!grow())
			break;
	}
	return 0;
}

static uint64_t grow_by(uint64_t modules)
{
	while (modules--)
		CHECK(grow());
	return 0;
}

static STEP(shrink, CHECK_OK(cuLibraryUnload(library)));

static uint64_t send_all(uint64_t unused)
{
	for (unsigned i = 0; i < THINGS; i++) {
		create(i);
		send_off(i);
	}
	return unused;
}

static uint64_t fetch_all(uint64_t unused)
{
	for (unsigned i = 0; i < THINGS; i++)
		fetch(i);
	return unused;
}

static uint64_t release_all(uint64_t unused)
{
	for (unsigned i = 0; i < THINGS; i++)
		release(i);
	return unused;
}

/* The actor's own, in NVML. */
static uint64_t figure(uint64_t unused)
{
	(void)unused;
	return outside_of(0, getpid());
}

static STEP(device_has_at_most, CHECK_AT_MOST(outside_used(0), i));

/* -- scenes ----------------------------------------------------------------------------------- */

static void play(const struct scene *scene)
{
	env_set("VGPU_SIM_MODULE_MIB", "20");
	env_set("VGPU_SIM_MODULE_LAZY", "1");
	scene_play(scene);
}

/* clang-format off */
static const struct scene growth[] = {
	/* The limit is two contexts, what is shared, and 200 MiB more, which is less than is shared. */
	{"importer_is_held", "1768m", .steps = {
		{A, send_all, 0}, {B, fetch_all, 0, {HELD, {THINGS}}}, {B, grow_until_full, 0},
		{SCENE, device_has_at_most, 1768 * MIB + 2 * SCENE_MODULE + GRANULE}}},
	/* The ledger has exactly what the importer took, and exactly what it has open, whoever
	 * releases it first. Of two looks, one finds that it may have grown, the other that it has. */
	{"growth_is_booked", .steps = {
		{A, send_all, 0}, {B, fetch_all, 0, {HELD, {THINGS}}}, {B, grow_by, 1}, {B, look, 0},
		{B, look, 0, {HELD, {THINGS}, {0}, {0, 1}}}, {A, release_all, 0},
		{B, look, 0, {HELD, {0, THINGS}, {0}, {0, 1}}},
		/* Nobody else has the memory open: the figure is B's alone. */
		{B, shrink, 0}, {B, look, 0, {HELD, {0, THINGS}}}, {B, release_all, 0, {HELD}}}},
	/* C is charged for memory that two have open, as the region takes the first that imported
	 * it. NVML counts it for B, as the simulated driver takes the first that started. Neither is
	 * charged anything else for that. */
	{"charge_and_figure_apart", .steps = {
		{SCENE, scene_start, A}, {SCENE, scene_start, B}, {C, grow_by, 5},
		{C, look, 0, {HELD, {0}, {0}, {0, 0, 5}}},
		{A, create, 0}, {A, send_off, 0}, {C, fetch, 0}, {A, send_off, 0}, {B, fetch, 0},
		{A, release, 0}, {B, figure, 0, {UNCHECKED}, CONTEXT + SIZE},
		{C, figure, 0, {UNCHECKED}, CONTEXT + 5 * SCENE_MODULE}, {B, look, 0},
		{B, look, 0, {HELD, {0, 0, 1}, {0}, {0, 0, 5}}},
		{C, look, 0, {HELD, {0, 0, 1}, {0}, {0, 0, 5}}}}},
};
TEST_TABLE(growth, play);
/* clang-format on */
