/* Graphs whose nodes allocate: their memory is charged when it is taken, and as long as it is kept.
 */
#include "stream_api.h"

#include <pthread.h>

static CUstream stream;

static void start(const char *limit)
{
	stream = stream_start(limit);
	assert_data(0);
}

static CUgraph graph_new(void)
{
	CUgraph graph = NULL;

	CHECK_CUDA(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	return graph;
}

/* After that node, or NULL; which becomes the new one. */
static CUdeviceptr add_take(CUgraph graph, CUgraphNode *node, uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes,
	};

	CHECK_CUDA(cuGraphAddMemAllocNode(node, graph, node, *node ? 1 : 0, &wanted), CUDA_SUCCESS);
	return wanted.dptr;
}

static void add_give(CUgraph graph, CUgraphNode *node, CUdeviceptr address)
{
	CHECK_CUDA(cuGraphAddMemFreeNode(node, graph, node, *node ? 1 : 0, address), CUDA_SUCCESS);
}

/* Takes that much, and frees it if it should. */
static CUgraph graph_of(uint64_t bytes, CUdeviceptr *ret_left)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;
	CUdeviceptr address = add_take(graph, &node, bytes);

	if (ret_left)
		*ret_left = address;
	else
		add_give(graph, &node, address);
	return graph;
}

static CUgraphExec instantiate(CUgraph graph, unsigned flags)
{
	CUgraphExec exec = NULL;

	CHECK_CUDA(cuGraphInstantiateWithFlags(&exec, graph, flags), CUDA_SUCCESS);
	CHECK_CUDA(cuGraphDestroy(graph), CUDA_SUCCESS);
	return exec;
}

static CUgraphExec exec_of(uint64_t bytes)
{
	return instantiate(graph_of(bytes, NULL), 0);
}

static void launch(CUgraphExec exec)
{
	CHECK_CUDA(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
}

static void destroy(CUgraphExec exec)
{
	CHECK_CUDA(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

static void trim(void)
{
	CHECK_CUDA(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
}

/* -- each door -- */

static CUresult by_params(CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags, .hUploadStream = stream};

	return cuGraphInstantiateWithParams(exec, graph, &params);
}

static CUresult by_params_ptsz(CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags, .hUploadStream = stream};

	return cuGraphInstantiateWithParams_ptsz(exec, graph, &params);
}

static CUresult by_name(CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	(void)flags;
	return cuGraphInstantiate(exec, graph, NULL, NULL, 0);
}

static CUresult by_name_v2(CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	(void)flags;
	return cuGraphInstantiate_v2(exec, graph, NULL, NULL, 0);
}

static CUresult by_flags(CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	return cuGraphInstantiateWithFlags(exec, graph, flags);
}

static CUresult (*const makers[])(CUgraphExec *, CUgraph, unsigned) = {
	by_name, by_name_v2, by_flags, by_params, by_params_ptsz};

static CUresult (*const takers[])(CUgraphExec, CUstream) = {cuGraphUpload, cuGraphUpload_ptsz,
							    cuGraphLaunch, cuGraphLaunch_ptsz};

/* Nothing when it is made, its need when it is uploaded or launched, all back by a trim. */
TEST(each_door)
{
	static const uint64_t sizes[] = {MIB, 33 * MIB, 500 * MIB};
	static const uint64_t needs[] = {32 * MIB, 64 * MIB, 512 * MIB};

	start("2g");
	for (unsigned i = 0; i < 5 * 4 * 3; i++) {
		CUgraph graph = graph_of(sizes[i % 3], NULL);
		CUgraphExec exec = NULL;

		CHECK_CUDA(makers[i % 5](&exec, graph, 0), CUDA_SUCCESS);
		assert_data(0);
		CHECK_CUDA(takers[i % 4](exec, stream), CUDA_SUCCESS);
		assert_data(needs[i % 3]);
		launch(exec);
		synchronise(stream);
		assert_data(needs[i % 3]);
		destroy(exec);
		CHECK_CUDA(cuGraphDestroy(graph), CUDA_SUCCESS);
		assert_data(needs[i % 3]);
		trim();
		assert_data(0);
	}
}

/* A graph that does not fit is refused however it is made or started, and costs nothing. */
TEST(refused_graphs)
{
	start("2g");
	for (unsigned i = 0; i < 5 * 4; i++) {
		CUgraph graph = graph_of(1600 * MIB, NULL);
		CUgraphExec exec = NULL;

		CHECK_CUDA(makers[i % 5](&exec, graph, 0), CUDA_SUCCESS);
		CHECK_CUDA(takers[i % 4](exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
		assert_data(0);
		destroy(exec);
		CHECK_CUDA(cuGraphDestroy(graph), CUDA_SUCCESS);
	}
	for (unsigned i = 3; i < 5; i++) {
		CUgraph graph = graph_of(1600 * MIB, NULL);
		CUgraphExec exec = (CUgraphExec)UNTOUCHED;

		CHECK_CUDA(makers[i](&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
			   CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(exec == (CUgraphExec)UNTOUCHED);
		assert_data(0);
		CHECK_CUDA(cuGraphDestroy(graph), CUDA_SUCCESS);
	}
}

TEST(uploaded_when_made)
{
	start("2g");
	for (unsigned i = 3; i < 5; i++) {
		CUgraph graph = graph_of(500 * MIB, NULL);
		CUgraphExec exec = NULL;

		CHECK_CUDA(makers[i](&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
			   CUDA_SUCCESS);
		assert_data(512 * MIB);
		launch(exec);
		synchronise(stream);
		assert_data(512 * MIB);
		destroy(exec);
		CHECK_CUDA(cuGraphDestroy(graph), CUDA_SUCCESS);
		trim();
		assert_data(0);
	}
}

/* -- in a full slice -- */

/* To the last granule, without a refusal, at which graphs would give theirs back. */
static CUdeviceptr fill_up(uint64_t quota)
{
	CUdeviceptr address = take((quota - ledger_used(0)) / GRANULE * GRANULE);

	CHECK_AT_MOST(quota, ledger_used(0) + GRANULE - 1);
	return address;
}

/* To the quota, graph by graph, which all keep their memory. */
TEST(to_the_quota)
{
	CUdeviceptr left[300];
	CUgraphExec execs[300];
	unsigned count = 0;
	CUresult result;

	start("8g");
	do {
		execs[count] = instantiate(graph_of(POOL_CHUNK, &left[count]), 0);
		result = cuGraphLaunch(execs[count], stream);
	} while (result == CUDA_SUCCESS && ++count < 300);
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(count, (8 * GIB - CONTEXT - HIDDEN) / POOL_CHUNK);
	CHECK_AT_MOST(outside_used(0), 8 * GIB + GRANULE);
	CHECK_AT_MOST(8 * GIB / 100 * 99, outside_used(0));
	assert_data(count * POOL_CHUNK);
	CHECK_CUDA(cuGraphLaunch(execs[0], stream), CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i <= count; i++) {
		if (i < count)
			give_async(left[i], stream);
		destroy(execs[i]);
	}
	synchronise(stream);
	trim();
	assert_data(0);
}

/* It has its memory, and goes on when there is no more. */
TEST(relaunched_when_full)
{
	CUgraphExec exec, second;

	start("2g");
	exec = exec_of(500 * MIB);
	launch(exec);
	second = exec_of(400 * MIB); /* has the same, one after the other */
	launch(second);
	assert_data(512 * MIB);
	fill_up(2 * GIB);
	for (unsigned round = 0; round < 50; round++) {
		launch(exec);
		launch(second);
		synchronise(stream);
	}
	CHECK_AT_MOST(outside_used(0), 2 * GIB + GRANULE);
	CHECK_AT_MOST(ledger_used(0), 2 * GIB);
	destroy(exec);
	destroy(second);
	refused(600 * MIB);
	trim();
	assert_data(2 * GIB - CONTEXT - HIDDEN - 512 * MIB);
}

/* A trim cannot take what is not freed: it has its memory even after refusals. */
TEST(relaunched_after_refusals)
{
	CUdeviceptr left, address;
	CUgraphExec exec;

	start("2g");
	exec = instantiate(graph_of(500 * MIB, &left),
			   CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	launch(exec);
	address = fill_up(2 * GIB);
	for (unsigned round = 0; round < 20; round++) {
		refused(GRANULE);
		launch(exec);
		synchronise(stream);
	}
	CHECK_AT_MOST(outside_used(0), 2 * GIB + GRANULE);
	give(address);
	give(left);
	trim();
	assert_data(0);
	destroy(exec);
}

/* What graphs keep is given to whoever needs it; then the graph must find room anew. */
TEST(given_back_when_needed)
{
	CUgraphExec exec;
	CUdeviceptr address;

	start("2g");
	exec = exec_of(1000 * MIB);
	launch(exec);
	synchronise(stream);
	assert_data(1024 * MIB);
	address = take(1200 * MIB);
	assert_data(1200 * MIB);
	CHECK_CUDA(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	assert_data(1200 * MIB);
	give(address);
	launch(exec);
	assert_data(1024 * MIB);
	address = take_async(1200 * MIB, stream);
	synchronise(stream);
	assert_data(1216 * MIB);
	CHECK_CUDA(cuGraphUpload(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	give_async(address, stream); /* the pool gives back what is free */
	launch(exec);
	synchronise(stream);
	assert_data(1024 * MIB);
	trim();
	CHECK_CUDA(cuMemAlloc_v2(&address, 1000 * MIB), CUDA_SUCCESS);
	CHECK_CUDA(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	assert_data(1000 * MIB);
	destroy(exec);
}

/* For so long it is busy, with that much. */
static CUgraphExec busy_exec(CUfunction spin, uint64_t ns, uint64_t bytes)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;
	CUdeviceptr address = add_take(graph, &node, bytes);
	void *parameters[] = {&ns};
	CUDA_KERNEL_NODE_PARAMS kernel = {spin, 1, 1, 1, 1, 1, 1, 0, parameters, NULL, NULL, NULL};

	CHECK_CUDA(cuGraphAddKernelNode_v2(&node, graph, &node, 1, &kernel), CUDA_SUCCESS);
	add_give(graph, &node, address);
	return instantiate(graph, 0);
}

/* Two that have shared memory run side by side, for the first time when there is none left. The
 * driver takes more for that, which nobody can know before; but it is charged at once. */
TEST(side_by_side_when_full)
{
	CUgraphExec execs[2];
	CUdeviceptr address;
	CUfunction spin;
	CUstream other;

	start("2g");
	spin = spin_load();
	CHECK_CUDA(cuStreamCreate(&other, NON_BLOCKING), CUDA_SUCCESS);
	for (unsigned i = 0; i < 2; i++) {
		execs[i] = busy_exec(spin, 200 * MS, 500 * MIB);
		launch(execs[i]);
	}
	assert_data(512 * MIB);
	synchronise(stream);
	address = fill_up(2 * GIB);
	launch(execs[0]);
	CHECK_CUDA(cuGraphLaunch(execs[1], other), CUDA_SUCCESS);
	assert_covered();
	CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	give(address);
	trim();
	assert_data(0);
	destroy(execs[0]);
	destroy(execs[1]);
}

/* -- what a graph leaves -- */

TEST(left_allocations)
{
	CUdeviceptr left;
	CUgraphExec exec;

	start("2g");
	for (unsigned round = 0; round < 4; round++) {
		exec = instantiate(graph_of(500 * MIB, &left), 0);
		launch(exec);
		synchronise(stream);
		CHECK_CUDA(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
		trim();
		assert_data(512 * MIB);
		refused(1200 * MIB);
		if (round % 2)
			destroy(exec);
		if (round / 2)
			give(left);
		else
			give_async(left, stream);
		synchronise(stream);
		assert_data(512 * MIB);
		trim();
		assert_data(0);
		if (round % 2)
			continue;
		launch(exec);
		give_async(left, stream);
		destroy(exec);
		synchronise(stream);
		trim();
		assert_data(0);
	}
}

TEST(freed_by_launch)
{
	CUdeviceptr left;
	CUgraphExec exec;

	start("2g");
	exec = instantiate(graph_of(1000 * MIB, &left),
			   CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	for (unsigned round = 0; round < 10; round++) {
		launch(exec);
		assert_data(1024 * MIB);
	}
	give_async(left, stream);
	synchronise(stream);
	destroy(exec);
	trim();
	assert_data(0);
}

/* Several nodes, on all of which the need depends; and a graph in a graph. */
TEST(many_nodes)
{
	CUgraph graph, child;
	CUgraphNode node = NULL, inner = NULL;
	CUdeviceptr held[3];
	CUgraphExec exec;

	start("2g");
	child = graph_new();
	CHECK_CUDA(cuGraphAddEmptyNode(&inner, child, NULL, 0), CUDA_SUCCESS);
	graph = graph_new();
	for (unsigned i = 0; i < 3; i++)
		held[i] = add_take(graph, &node, 20 * MIB);
	CHECK_CUDA(cuGraphAddChildGraphNode(&node, graph, &node, 1, child), CUDA_SUCCESS);
	for (unsigned i = 0; i < 3; i++)
		add_give(graph, &node, held[i]);
	exec = instantiate(graph, 0);
	launch(exec);
	assert_data(64 * MIB);
	destroy(exec);
	trim();
	graph = graph_new();
	node = NULL;
	for (unsigned i = 0; i < 10; i++) /* one after the other, in the same memory */
		add_give(graph, &node, add_take(graph, &node, 100 * MIB));
	exec = instantiate(graph, 0);
	launch(exec);
	assert_data(128 * MIB);
	destroy(exec);
	trim();
	assert_data(0);
	CHECK_CUDA(cuGraphDestroy(child), CUDA_SUCCESS);
}

/* In graphs in graphs, so many of them. */
static CUgraph nested(CUgraph graph, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++) {
		CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
		CUgraph outer = graph_new();
		CUgraphNode node;

		params.graph.graph = graph;
		params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
		CHECK_CUDA(cuGraphAddNode_v2(&node, outer, NULL, NULL, 0, &params), CUDA_SUCCESS);
		graph = outer;
	}
	return graph;
}

/* However deep: what a graph needs is reserved before it is launched, or it is refused. */
TEST(nested_deeply)
{
	static const unsigned depths[] = {1, 15, 16, 17, 40, 1000};

	start("2g");
	for (unsigned i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
		CUgraphExec exec = instantiate(nested(graph_of(500 * MIB, NULL), depths[i]), 0);
		CUgraphExec big = instantiate(nested(graph_of(1600 * MIB, NULL), depths[i]), 0);

		CHECK_CUDA(cuGraphLaunch(big, stream), CUDA_ERROR_OUT_OF_MEMORY);
		launch(exec);
		assert_data(512 * MIB);
		synchronise(stream);
		destroy(exec);
		destroy(big);
		trim();
		assert_data(0);
	}
}

/* -- threads -- */

static CUcontext context;

static void *launch_often(void *arg)
{
	CUstream own;
	unsigned seed = (unsigned)(uintptr_t)arg;

	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamCreate(&own, NON_BLOCKING), CUDA_SUCCESS);
	for (unsigned round = 0; round < 200; round++) {
		CUgraphExec exec = exec_of((unsigned)rand_r(&seed) % (300 * MIB) + 1);
		CUresult result = cuGraphLaunch(exec, own);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (round % 3 == 0)
			synchronise(own);
		if (round % 7 == 0)
			trim();
		destroy(exec);
	}
	synchronise(own);
	return NULL;
}

TEST(many_threads)
{
	pthread_t threads[4];

	start("1200m");
	CHECK_CUDA(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	outside_watch(0);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_often, (void *)i) == 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK_AT_MOST(outside_watched().used, 1200 * MIB + GRANULE);
	CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	trim();
	assert_data(0);
}

/* -- faults -- */

TEST(refusals_cost_nothing)
{
	CUgraphExec exec = NULL;
	CUgraph graph;

	env_set("VGPU_SIM_FAULTS",
		"cuGraphLaunch@1=999,cuGraphLaunch_ptsz=700,cuGraphUpload@1=999,"
		"cuGraphUpload_ptsz=2,cuGraphInstantiateWithParams=999,cuGraphInstantiate=700,"
		"cuDeviceGraphMemTrim@1=999,cuGraphExecDestroy@1=999");
	start("2g");
	graph = graph_of(500 * MIB, NULL);
	CHECK_CUDA(by_params(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(by_name(&exec, graph, 0), 700);
	CHECK(!exec);
	assert_data(0);
	exec = instantiate(graph, 0);
	CHECK_CUDA(cuGraphUpload(exec, stream), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuGraphUpload_ptsz(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuGraphLaunch(exec, stream), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuGraphLaunch_ptsz(exec, stream), 700);
	assert_data(0);
	launch(exec);
	CHECK_CUDA(cuDeviceGraphMemTrim(0), CUDA_ERROR_UNKNOWN);
	synchronise(stream);
	assert_data(512 * MIB);
	CHECK_CUDA(cuGraphLaunch(NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuGraphUpload(NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuDeviceGraphMemTrim(7), CUDA_ERROR_INVALID_DEVICE);
	CHECK_CUDA(cuGraphExecDestroy(exec), CUDA_ERROR_UNKNOWN);
	trim();
	assert_data(0);
	launch(exec); /* the driver has kept it, and so must the books */
	assert_data(512 * MIB);
	destroy(exec);
	trim();
	assert_data(0);
}

/* A driver that does not tell what graphs need, or hold: they run, and NVML's figure is booked. */
TEST(nothing_to_be_known)
{
	CUgraphExec exec;

	env_set("VGPU_SIM_FAULTS", "cuDeviceGetGraphMemAttribute=801,"
				   "cuGraphMemAllocNodeGetParams@2=801");
	start("2g");
	for (unsigned round = 0; round < 2; round++) {
		exec = exec_of(500 * MIB);
		launch(exec);
		synchronise(stream);
		sleep_ms(1100);
		give(take(1));
		assert_covered();
		destroy(exec);
		trim();
	}
	sleep_ms(1100);
	give(take(1400 * MIB));
	assert_data(0);
}
