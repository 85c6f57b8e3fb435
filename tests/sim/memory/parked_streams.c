/* Memory in stream order, pools and graphs: the calls that take and give it, parked in the driver.
 */
#include "parked_fixture.h"

#include "stream_api.h"

#define BYTES (64 * MIB) /* a pool grows by as much */

static CUstream stream;
static CUmemoryPool pool;
static CUdeviceptr memory;

static void with_stream(void)
{
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
}

static void with_pool(void)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	with_stream();
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
}

/* -- allocations ------------------------------------------------------------------------------- */

static CUresult take_in_stream(void)
{
	return cuMemAllocAsync(&memory, BYTES, stream);
}

static CUresult take_in_stream_ptsz(void)
{
	return cuMemAllocAsync_ptsz(&memory, BYTES, stream);
}

static CUresult take_from_pool(void)
{
	return cuMemAllocFromPoolAsync(&memory, BYTES, pool, stream);
}

static CUresult take_from_pool_ptsz(void)
{
	return cuMemAllocFromPoolAsync_ptsz(&memory, BYTES, pool, stream);
}

static void give_and_wait(void)
{
	give_async(memory, stream);
	synchronise(stream);
}

static void end_pool(void)
{
	give_and_wait();
	CHECK_OK(cuMemPoolDestroy(pool));
}

/* -- frees ------------------------------------------------------------------------------------- */

static void with_memory(void)
{
	with_stream();
	CHECK_OK(take_in_stream());
}

static void with_freed(void)
{
	with_memory();
	give_async(memory, stream);
}

/* Memory that the pool keeps, and that nothing uses. */
static void with_kept(void)
{
	uint64_t threshold = UINT64_MAX;

	with_pool();
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CHECK_OK(take_from_pool());
	give_and_wait();
}

static void with_used_pool(void)
{
	with_pool();
	CHECK_OK(take_from_pool());
}

static CUresult give_at_once(void)
{
	return cuMemFree_v2(memory);
}

static CUresult give_in_stream(void)
{
	return cuMemFreeAsync(memory, stream);
}

static CUresult give_in_stream_ptsz(void)
{
	return cuMemFreeAsync_ptsz(memory, stream);
}

static CUresult wait_for_stream(void)
{
	return cuStreamSynchronize(stream);
}

static CUresult wait_for_stream_ptsz(void)
{
	return cuStreamSynchronize_ptsz(stream);
}

static CUresult wait_for_context(void)
{
	return cuCtxSynchronize();
}

static CUresult wait_for_context_v2(void)
{
	return cuCtxSynchronize_v2(NULL);
}

static CUevent event;

static void with_event(void)
{
	with_freed();
	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuEventRecord(event, stream));
}

static CUresult wait_for_event(void)
{
	return cuEventSynchronize(event);
}

static CUresult trim_pool(void)
{
	return cuMemPoolTrimTo(pool, 0);
}

static CUresult destroy_pool(void)
{
	return cuMemPoolDestroy(pool);
}

static void wait_for_it(void)
{
	synchronise(stream);
}

static void nothing(void)
{
}

#define TAKEN(row, function, before, call, after)                                             \
	PARKED(row, function "@1", .prepare = before, .make = call, .undo = after, TAKES(64), \
	       .is_pool = true)

/* While a call that gives memory back is in the driver, the others' calls trim the pool. */
#define GIVEN(row, function, before, call, after)                                        \
	PARKED(row, function, .prepare = before, .make = call, .undo = after, GIVES(64), \
	       .is_pool = true, .found = true)

static const struct parked_row pools[] = {
	TAKEN("take", "cuMemAllocAsync", with_stream, take_in_stream, give_and_wait),
	TAKEN("take_ptsz", "cuMemAllocAsync_ptsz", with_stream, take_in_stream_ptsz, give_and_wait),
	TAKEN("pool", "cuMemAllocFromPoolAsync", with_pool, take_from_pool, end_pool),
	TAKEN("pool_ptsz", "cuMemAllocFromPoolAsync_ptsz", with_pool, take_from_pool_ptsz,
	      end_pool),
	GIVEN("give", "cuMemFree_v2@2", with_memory, give_at_once, nothing),
	/* The pool has the memory until the stream is synchronised. */
	PARKED("give_async", "cuMemFreeAsync@1", .prepare = with_memory, .make = give_in_stream,
	       .undo = wait_for_it, .is_pool = true, .leaves = 256, .unused = true),
	PARKED("give_async_ptsz", "cuMemFreeAsync_ptsz@1", .prepare = with_memory,
	       .make = give_in_stream_ptsz, .undo = wait_for_it, .is_pool = true, .leaves = 256,
	       .unused = true),
	GIVEN("wait", "cuStreamSynchronize@1", with_freed, wait_for_stream, nothing),
	GIVEN("wait_ptsz", "cuStreamSynchronize_ptsz@1", with_freed, wait_for_stream_ptsz, nothing),
	GIVEN("wait_all", "cuCtxSynchronize@1", with_freed, wait_for_context, nothing),
	GIVEN("wait_all_v2", "cuCtxSynchronize_v2@1", with_freed, wait_for_context_v2, nothing),
	GIVEN("wait_event", "cuEventSynchronize@1", with_event, wait_for_event, nothing),
	GIVEN("trim", "cuMemPoolTrimTo@1", with_kept, trim_pool, nothing),
	/* Memory of the pool is in use, and stays. */
	PARKED("destroy", "cuMemPoolDestroy@1", .prepare = with_used_pool, .make = destroy_pool,
	       .undo = give_and_wait, .is_pool = true),
};
TEST_TABLE(pools, parked_play);

/* -- pools: their making takes nothing, and another thread allocates meanwhile ----------------- */

static CUmemoryPool standard;
static CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
static CUmemPoolPtrExportData pointer;

static CUresult create_pool(void)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cuMemPoolCreate(&pool, &properties);
}

static CUresult set_pool(void)
{
	return cuDeviceSetMemPool(0, pool);
}

static CUresult set_pool_at(void)
{
	return cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

static void with_managed(void)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	with_stream();
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	CHECK_OK(take_from_pool());
	give_and_wait();
}

/* The driver keeps what the pool of managed memory had. */
static CUresult reset_highest(void)
{
	uint64_t zero = 0;

	return cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
}

static CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_HOST, 0};

static CUresult default_of_host(void)
{
	return cuMemGetDefaultMemPool(&standard, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED);
}

static CUresult current_of_host(void)
{
	return cuMemGetMemPool(&standard, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED);
}

static CUresult export_pointer(void)
{
	return cuMemPoolExportPointer(&pointer, memory);
}

/* The library knows the current pool. */
static void with_known_pool(void)
{
	with_pool();
	CHECK_OK(take_in_stream());
	give_and_wait();
	CHECK_OK(cuDeviceGetDefaultMemPool(&standard, 0));
}

static void take_meanwhile(void)
{
	CHECK_OK(take_in_stream());
}

static void set_back(void)
{
	give_and_wait();
	CHECK_OK(cuDeviceSetMemPool(0, standard));
	CHECK_OK(cuMemPoolDestroy(pool));
}

static void with_exportable(void)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .handleTypes = POSIX,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	with_stream();
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	CHECK_OK(take_from_pool());
}

static void destroy_empty(void)
{
	CHECK_OK(destroy_pool());
}

static const struct parked_row kinds[] = {
	PARKED("create", "cuMemPoolCreate@1", .make = create_pool, .undo = destroy_empty),
	PARKED("set", "cuDeviceSetMemPool@1", .prepare = with_known_pool, .make = set_pool,
	       .meanwhile = take_meanwhile, .undo = set_back, TAKES(64), .is_pool = true),
	PARKED("set_at", "cuMemSetMemPool@1", .prepare = with_known_pool, .make = set_pool_at,
	       .meanwhile = take_meanwhile, .undo = set_back, TAKES(64), .is_pool = true),
	PARKED("default_of_host", "cuMemGetDefaultMemPool@1", .make = default_of_host,
	       .undo = nothing),
	PARKED("current_of_host", "cuMemGetMemPool@1", .make = current_of_host, .undo = nothing),
	PARKED("reset_highest", "cuMemPoolSetAttribute@1", .prepare = with_managed,
	       .make = reset_highest, .undo = destroy_empty),
	PARKED("export_pointer", "cuMemPoolExportPointer@1", .prepare = with_exportable,
	       .make = export_pointer, .undo = end_pool),
};
TEST_TABLE(kinds, parked_play);

/* -- graphs: with a node that takes memory, which no node of the graph frees ------------------- */

static CUgraph graph;
static CUgraphExec exec;

static void with_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = BYTES,
	};
	CUgraphNode node;

	with_stream();
	CHECK_OK(cuGraphCreate(&graph, 0));
	CHECK_OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
	memory = wanted.dptr;
}

static void with_exec(void)
{
	with_graph();
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static CUresult launch(void)
{
	return cuGraphLaunch(exec, stream);
}

static CUresult launch_ptsz(void)
{
	return cuGraphLaunch_ptsz(exec, stream);
}

static CUresult upload(void)
{
	return cuGraphUpload(exec, stream);
}

static CUresult upload_ptsz(void)
{
	return cuGraphUpload_ptsz(exec, stream);
}

static CUresult instantiate(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
						.hUploadStream = stream};

	return cuGraphInstantiateWithParams(&exec, graph, &params);
}

static CUresult instantiate_ptsz(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
						.hUploadStream = stream};

	return cuGraphInstantiateWithParams_ptsz(&exec, graph, &params);
}

static void trim_graphs(void)
{
	CHECK_OK(cuDeviceGraphMemTrim(0));
}

static void end_launched(void)
{
	synchronise(stream);
	give(memory);
	CHECK_OK(cuGraphExecDestroy(exec));
	trim_graphs();
}

static void end_uploaded(void)
{
	synchronise(stream);
	CHECK_OK(cuGraphExecDestroy(exec));
	trim_graphs();
}

/* The device's graph memory has it, and no graph. */
static void with_graph_memory(void)
{
	with_exec();
	CHECK_OK(launch());
	synchronise(stream);
	give(memory);
	CHECK_OK(cuGraphExecDestroy(exec));
}

static CUresult trim_graph_memory(void)
{
	return cuDeviceGraphMemTrim(0);
}

static CUresult instantiate_plain(void)
{
	return cuGraphInstantiate(&exec, graph, NULL, NULL, 0);
}

static CUresult instantiate_v2(void)
{
	return cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0);
}

static CUresult instantiate_with_flags(void)
{
	return cuGraphInstantiateWithFlags(&exec, graph, 0);
}

static CUresult destroy_exec(void)
{
	return cuGraphExecDestroy(exec);
}

static void end_exec(void)
{
	CHECK_OK(destroy_exec());
}

/* The graph is destroyed, and its memory is not freed. */
static void with_launched(void)
{
	with_exec();
	CHECK_OK(launch());
	synchronise(stream);
}

static void end_left(void)
{
	give(memory);
	trim_graphs();
}

#define UPLOADED(row, function, before, call)                                             \
	PARKED(row, function "@1", .prepare = before, .make = call, .undo = end_uploaded, \
	       TAKES(64), .is_pool = true, .leaves = 256, .unused = true)

static const struct parked_row graphs[] = {
	TAKEN("launch", "cuGraphLaunch", with_exec, launch, end_launched),
	TAKEN("launch_ptsz", "cuGraphLaunch_ptsz", with_exec, launch_ptsz, end_launched),
	UPLOADED("upload", "cuGraphUpload", with_exec, upload),
	UPLOADED("upload_ptsz", "cuGraphUpload_ptsz", with_exec, upload_ptsz),
	UPLOADED("instantiate", "cuGraphInstantiateWithParams", with_graph, instantiate),
	UPLOADED("instantiate_ptsz", "cuGraphInstantiateWithParams_ptsz", with_graph,
		 instantiate_ptsz),
	PARKED("graph", "cuGraphInstantiate@1", .prepare = with_graph, .make = instantiate_plain,
	       .undo = end_exec),
	PARKED("graph_v2", "cuGraphInstantiate_v2@1", .prepare = with_graph, .make = instantiate_v2,
	       .undo = end_exec),
	PARKED("graph_with_flags", "cuGraphInstantiateWithFlags@1", .prepare = with_graph,
	       .make = instantiate_with_flags, .undo = end_exec),
	PARKED("end_graph", "cuGraphExecDestroy@1", .prepare = with_launched, .make = destroy_exec,
	       .undo = end_left),
	GIVEN("trim_graphs", "cuDeviceGraphMemTrim@1", with_graph_memory, trim_graph_memory,
	      nothing),
};
TEST_TABLE(graphs, parked_play);
