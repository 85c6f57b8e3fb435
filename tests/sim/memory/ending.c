/*
 * Memory that ends. The driver has given it back, and its call has not returned to the library.
 * Another thread compares the accounts with NVML meanwhile, which counts less than the accounts.
 * The comparison must not take that off what the process still holds.
 */
#include "parked.h"
#include "sharing_fixture.h"
#include "stream_api.h"

#define CODE (400 * MIB) /* more than what ends */
#define ENDS (300 * MIB)

static CUstream stream;
static CUmemoryPool pool;
static CUdeviceptr block, reserved;
static CUmemGenericAllocationHandle handle;
static CUarray array;

static const char ptx[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

/* -- what ends, and the call that ends it ------------------------------------------------------ */

static void have_block(void)
{
	block = take(ENDS);
}

static DRIVER_CALL(free_block, cuMemFree_v2(block));

static void have_array(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = {4096, 4096, CU_AD_FORMAT_FLOAT, 4};

	CHECK_OK(cuArrayCreate_v2(&array, &desc));
}

static DRIVER_CALL(destroy_array, cuArrayDestroy(array));

static void have_physical(void)
{
	const CUmemAllocationProp prop = MEMORY_OF_GPU_0;

	CHECK_OK(cuMemCreate(&handle, ENDS, &prop, 0));
}

static DRIVER_CALL(release_physical, cuMemRelease(handle));

static void have_mapping(void)
{
	have_physical();
	CHECK_OK(cuMemAddressReserve(&reserved, ENDS, 0, 0, 0));
	CHECK_OK(cuMemMap(reserved, ENDS, 0, handle, 0));
	CHECK_OK(cuMemRelease(handle));
}

static DRIVER_CALL(unmap, cuMemUnmap(reserved, ENDS));

static void have_pool(void)
{
	const CUmemPoolProps props = POOL_OF_GPU_0;

	CHECK_OK(cuMemPoolCreate(&pool, &props));
	CHECK_OK(cuMemAllocFromPoolAsync(&block, ENDS, pool, stream));
	synchronise(stream);
}

static DRIVER_CALL(free_in_pool, cuMemFree_v2(block));

static void have_freed_in_stream(void)
{
	have_pool();
	give_async(block, stream);
}

static DRIVER_CALL(synchronise_stream, cuStreamSynchronize(stream));

static void have_kept(void)
{
	cuuint64_t all = UINT64_MAX;

	have_pool();
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	give_async(block, stream);
	synchronise(stream);
}

static DRIVER_CALL(trim_pool, cuMemPoolTrimTo(pool, 0));

static DRIVER_CALL(destroy_pool, cuMemPoolDestroy(pool));

static void have_graph(void)
{
	CHECK_OK(cuGraphLaunch(graph_exec_of(ENDS), stream));
	synchronise(stream);
}

static DRIVER_CALL(trim_graphs, cuDeviceGraphMemTrim(0));

/* -- rows -------------------------------------------------------------------------------------- */

struct row {
	const char *name, *rule;
	void (*have)(void);
	CUresult (*end)(void);
};

#define FREE "cuMemFree_v2@5:done" /* after stream_start's, and three of compare */

static const struct row rows[] = {
	{"block", FREE, have_block, free_block},
	{"array", "cuArrayDestroy@2:done", have_array, destroy_array},
	{"physical", "cuMemRelease@1:done", have_physical, release_physical},
	{"mapping", "cuMemUnmap@1:done", have_mapping, unmap},
	{"in_pool", FREE, have_pool, free_in_pool},
	{"in_stream", "cuStreamSynchronize@2:done", have_freed_in_stream, synchronise_stream},
	{"kept_by_pool", "cuMemPoolTrimTo@1:done", have_kept, trim_pool},
	{"with_pool", "cuMemPoolDestroy@1:done", have_kept, destroy_pool},
	{"of_graphs", "cuDeviceGraphMemTrim@1:done", have_graph, trim_graphs},
};

static CUmodule load_code(void)
{
	CUmodule module;

	CHECK_OK(cuModuleLoadData(&module, ptx));
	return module;
}

static void compared_while_it_ends(const struct row *row)
{
	struct call call;

	env_set("VGPU_SIM_MODULE_MIB", "400");
	park(row->rule);
	stream = stream_start("4g");
	load_code();
	row->have();
	compare();
	CHECK_EQUAL(ledger_own(0).module, CODE);
	begin_call(&call, row->end);
	compare();
	assert_covered();
	CHECK_OK(end_call(&call));
	assert_covered();
	CHECK_EQUAL(ledger_own(0).module, CODE);
	CHECK_EQUAL(ledger_own(0).context, CONTEXT);
	compare();
	assert_books(0);
}

TEST_TABLE(rows, compared_while_it_ends);

/* As compare(), in a slice that may have no room. */
static void try_to_compare(void)
{
	CUdeviceptr address;

	sleep_ms(30);
	if (cuMemAlloc_v2(&address, MIB) == CUDA_SUCCESS)
		give(address);
}

/* A module that does not fit is unloaded again. */
static CUresult load_too_much(void)
{
	CUmodule module;

	return cuModuleLoadData(&module, ptx);
}

TEST(code_that_does_not_fit)
{
	struct call call;

	env_set("VGPU_SIM_MODULE_MIB", "400");
	park("cuModuleUnload@1:done");
	stream_start("1400m");
	load_code();
	compare();
	take(1400 * MIB - ledger_used(0) - 100 * MIB);
	begin_call(&call, load_too_much);
	try_to_compare();
	CHECK_EQUAL(end_call(&call), CUDA_ERROR_OUT_OF_MEMORY);
	assert_covered();
	CHECK_EQUAL(ledger_own(0).module, CODE);
	CHECK_EQUAL(ledger_own(0).context, CONTEXT);
}

/* -- memory of a process that has ended -------------------------------------------------------- */

static struct call closing;

static uint64_t export_block(uint64_t unused)
{
	block = take(ENDS);
	CHECK_OK(cuIpcGetMemHandle(&board->ipc[0], block));
	return unused;
}

static uint64_t open_block(uint64_t unused)
{
	load_code();
	CHECK_OK(cuIpcOpenMemHandle_v2(&block, board->ipc[0], 1));
	compare();
	return unused;
}

static DRIVER_CALL(close_block, cuIpcCloseMemHandle(block));

static uint64_t begin_close(uint64_t unused)
{
	compare();
	CHECK_EQUAL(ledger_own(0).data, ENDS);
	begin_call(&closing, close_block);
	compare();
	return unused;
}

static uint64_t end_close(uint64_t unused)
{
	CHECK_OK(end_call(&closing));
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(ledger_own(0).context, CONTEXT);
	CHECK_EQUAL(ledger_own(0).module, CODE);
	return unused;
}

/* The memory counts for the process that has opened it, since its maker has ended. */
TEST(import_that_moved_here)
{
	struct member maker, user;

	env_set("VGPU_SIM_MODULE_MIB", "400");
	park("cuIpcCloseMemHandle@1:done");
	begin();
	maker = actor();
	user = actor();
	order(&maker, export_block, 0);
	order(&user, open_block, 0);
	dismiss(&maker);
	order(&user, begin_close, 0);
	order(&user, end_close, 0);
	dismiss(&user);
}
