/*
 * What happens while a call is in the driver: one thread's is parked there (VGPU_SIM_PARK), before
 * the driver does it or after, and another thread or process goes on meanwhile.
 */
#include <sys/mman.h>

#include "parked.h"
#include "sharing_scene.h"

/* -- calls that are parked ----------------------------------------------------------------------
 */

static CUdeviceptr taken;

static DRIVER_CALL(take_much, cuMemAlloc_v2(&taken, 300 * MIB));
static DRIVER_CALL(give_much, cuMemFree_v2(taken));

static CUresult make_array(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
	CUarray array;

	return cuArrayCreate_v2(&array, &desc);
}

/* -- scenes ------------------------------------------------------------------------------------ */

static void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1));
}

/* What the driver is asked for counts before it has answered. */
TEST(asked_for)
{
	struct call call;

	park("cuMemAlloc_v2@2");
	start("1g"); /* a context, and 496 MiB */
	begin_call(&call, take_much);
	CHECK_EQUAL(outside_used(0), FIGURE);
	CHECK_EQUAL(ledger_used(0), CHARGE + 300 * MIB);
	refused(300 * MIB);
	give(take(150 * MIB));
	CHECK_OK(end_call(&call));
	CHECK_EQUAL(ledger_used(0), CHARGE + 300 * MIB);
	CHECK_EQUAL(outside_used(0), FIGURE + 300 * MIB);
}

/* What is given back counts until the driver has it, and as long as it does not say so. */
static const struct give {
	const char *name, *rule;
	uint64_t held;
} gives[] = {
	{"given_back_before", "cuMemFree_v2@2", 300 * MIB},
	{"given_back_after", "cuMemFree_v2@2:done", 0},
};

static void given_back(const struct give *row)
{
	struct call call;

	park(row->rule);
	start("1g");
	CHECK_OK(take_much());
	begin_call(&call, give_much);
	CHECK_EQUAL(outside_used(0), FIGURE + row->held);
	CHECK_EQUAL(ledger_used(0), CHARGE + 300 * MIB);
	refused(300 * MIB);
	CHECK_OK(end_call(&call));
	give(take(300 * MIB));
	CHECK_EQUAL(ledger_used(0), CHARGE);
}

TEST_TABLE(gives, given_back);

/* A call that is parked. */
struct parked {
	const char *name, *rule;
	CUresult (*make)(void);
};

static const struct parked outlived[] = {
	{"block_outlived", "cuMemAlloc_v2@2:done", take_much},
	{"array_outlived", "cuArrayCreate_v2@1:done", make_array},
};

/* The context ends after the driver gave the memory, and before it is recorded. */
static void context_ends(const struct parked *row)
{
	CUcontext first, second;
	struct call call;

	park(row->rule);
	start("3g");
	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	begin_call(&call, row->make);
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_OK(end_call(&call));
	CHECK_EQUAL(outside_used(0), FIGURE);
	CHECK_EQUAL(ledger_own(0).data, 0);
	give(take(MIB));
	CHECK_EQUAL(ledger_own(0).data, 0);
}

TEST_TABLE(outlived, context_ends);

/* -- the end of a context ---------------------------------------------------------------------- */

static CUcontext ending;

static DRIVER_CALL(destroy_it, cuCtxDestroy_v2(ending));
static DRIVER_CALL(detach_it, cuCtxDetach(ending));
static DRIVER_CALL(release_primary, cuDevicePrimaryCtxRelease_v2(0));
static DRIVER_CALL(reset_primary, cuDevicePrimaryCtxReset_v2(0));

static const struct parked ends[] = {
	{"compared_while_destroyed", "cuCtxDestroy_v2@1:done", destroy_it},
	{"compared_while_detached", "cuCtxDetach@1:done", detach_it},
	{"compared_while_released", "cuDevicePrimaryCtxRelease_v2@1:done", release_primary},
	{"compared_while_reset", "cuDevicePrimaryCtxReset_v2@1:done", reset_primary},
};

/* The driver has ended one of three contexts, and its call has not returned. A comparison then
 * finds less on the device than the books say. The other two contexts stay charged. */
static void compared_while_it_ends(const struct parked *row)
{
	bool primary_ends = row->make == release_primary || row->make == reset_primary;
	CUcontext first, second, third;
	struct call call;

	park(row->rule);
	start("3g");
	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	CHECK_OK(cuCtxCreate_v2(&third, 0, 0));
	ending = primary_ends ? first : third;
	CHECK_OK(cuCtxSetCurrent(second));
	compare();
	begin_call(&call, row->make);
	compare();
	CHECK_OK(end_call(&call));
	compare();
	CHECK_EQUAL(ledger_own(0).context, 2 * CONTEXT);
	CHECK_EQUAL(ledger_own(0).module, 0);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT);
}

TEST_TABLE(ends, compared_while_it_ends);

/* -- two processes ----------------------------------------------------------------------------- */

static struct call call; /* each actor's own */

static STEP(unpark, env_set("VGPU_SIM_PARK", NULL));
static STEP(end_it, CHECK_OK(end_call(&call)));
static STEP(close_it, CHECK_OK(cuIpcCloseMemHandle(addresses[0])));

static DRIVER_CALL(open_block, cuIpcOpenMemHandle_v2(&addresses[0], board->ipc[0], 1));
static DRIVER_CALL(release_handle, cuMemRelease(handles[0]));
static STEP(begin_open, begin_call(&call, open_block));
static STEP(begin_release, begin_call(&call, release_handle));

static uint64_t allocate_and_get(uint64_t i)
{
	allocate(i);
	CHECK_OK(cuIpcGetMemHandle(&board->ipc[0], addresses[i]));
	return 0;
}

static uint64_t make_foreign(uint64_t unused)
{
	files[0] = memfd_create("memory of another API", MFD_CLOEXEC);
	CHECK(files[0] >= 0);
	return unused;
}

static CUresult import_foreign(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = SIZE};
	CUexternalMemory memory;

	memcpy(desc.handle, &files[0], sizeof(files[0]));
	return cuImportExternalMemory(&memory, &desc);
}

/* Another context ends after the driver has imported memory in it. */
static uint64_t begin_in_second_context(CUresult (*make)(void))
{
	CUcontext first, second;

	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	begin_call(&call, make);
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_OK(cuCtxSetCurrent(first));
	return 0;
}

static STEP(open_outlived, begin_in_second_context(open_block));
static STEP(import_outlived, begin_in_second_context(import_foreign));
static STEP(is_charged_once, CHECK_EQUAL(ledger_used(0), 2 * CHARGE + SIZE));

struct parked_scene {
	const char *name, *rule;
	struct scene scene;
};

static void play(const struct parked_scene *row)
{
	struct scene scene = row->scene;

	scene.name = row->name;
	park(row->rule);
	scene_play(&scene);
}

/* clang-format off */
static const struct parked_scene scenes[] = {
	/* The exporter frees it when the importer's driver has opened it, and nobody has written
	 * that down. */
	{"freed_while_opened", "cuIpcOpenMemHandle_v2@1:done", {.steps = {
		{A, allocate_and_get, 0}, {B, begin_open, 0}, {A, give_back_address, 0},
		{B, end_it, 0, {TOTAL, {0, 1}}}, {B, close_it, 0, {HELD}}}}},
	/* A context ends with the import of memory of the slice; the memory is freed then. */
	{"import_outlived", "cuIpcOpenMemHandle_v2@1:done", {.steps = {
		{A, allocate_and_get, 0}, {B, open_outlived, 0}, {B, end_it, 0, {HELD, {1}}},
		{A, give_back_address, 0, {HELD}}}}},
	/* The memory is of a process outside the slice. */
	{"outsiders_import_outlived", "cuIpcOpenMemHandle_v2@1:done",
		{.outsider = {[A] = "4g"}, .steps = {
		{A, allocate_and_get, 0}, {B, open_outlived, 0}, {B, end_it, 0, {CHARGED, {1}}}}}},
	/* The memory is of another API. */
	{"external_import_outlived", "cuImportExternalMemory@1:done", {.steps = {
		{A, make_foreign, 0}, {A, import_outlived, 0}, {A, end_it, 0, {CHARGED}}}}},
	/* The driver has dropped the exporter's last reference, and the exporter is charged. The
	 * importer imports the memory: it counts all the while, and once. */
	{"imported_while_released", "cuMemRelease@1:done", {.steps = {
		{SCENE, scene_start, A}, {SCENE, unpark, 0}, {A, create, 0}, {A, send_off, 0},
		{SCENE, scene_start, B}, {A, begin_release, 0}, {SCENE, is_charged_once, 0},
		{B, fetch, 0}, {SCENE, is_charged_once, 0}, {A, end_it, 0, {HELD, {0, 1}}},
		{B, release, 0, {HELD}}}}},
};
TEST_TABLE(scenes, play);
/* clang-format on */
