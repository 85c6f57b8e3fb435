/* Graphs whose nodes allocate: their memory is charged when it is taken, and as long as it is kept.
 */
#include "stream_acts.h"

static CUgraph graph_new(void)
{
	CUgraph graph = NULL;

	CHECK_OK(cuGraphCreate(&graph, 0));
	return graph;
}

/* After that node, or NULL; which becomes the new one. */
static CUdeviceptr add_take(CUgraph graph, CUgraphNode *node, uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
		.poolProps = POOL_OF_GPU_0,
		.bytesize = bytes,
	};

	CHECK_OK(cuGraphAddMemAllocNode(node, graph, node, *node ? 1 : 0, &wanted));
	return wanted.dptr;
}

static void add_give(CUgraph graph, CUgraphNode *node, CUdeviceptr address)
{
	CHECK_OK(cuGraphAddMemFreeNode(node, graph, node, *node ? 1 : 0, address));
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

	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, flags));
	CHECK_OK(cuGraphDestroy(graph));
	return exec;
}

static CUgraphExec exec_of(uint64_t bytes)
{
	return instantiate(graph_of(bytes, NULL), 0);
}

static void launch(CUgraphExec exec)
{
	CHECK_OK(cuGraphLaunch(exec, stream));
}

static void destroy(CUgraphExec exec)
{
	CHECK_OK(cuGraphExecDestroy(exec));
}

static void trim(void)
{
	CHECK_OK(cuDeviceGraphMemTrim(0));
}

/* -- rows of calls ---------------------------------------------------------------------------- */

static CUgraphExec graphs[ACT_THINGS];
static CUdeviceptr leavings[ACT_THINGS]; /* what each graph does not free itself */

static CUresult make_graph(const struct act_call *call)
{
	graphs[call->thing] = exec_of(call->size * MIB);
	return CUDA_SUCCESS;
}

static CUresult make_leaving(const struct act_call *call)
{
	CUgraph graph = graph_of(call->size * MIB, &leavings[call->thing]);

	graphs[call->thing] = instantiate(graph, (unsigned)call->at);
	return CUDA_SUCCESS;
}

static ACT(launch_graph, cuGraphLaunch(graphs[call->thing], stream));
static ACT(upload_graph, cuGraphUpload(graphs[call->thing], stream));
static ACT(destroy_graph, cuGraphExecDestroy(graphs[call->thing]));
static ACT(give_left, cuMemFree_v2(leavings[call->thing]));
static ACT(give_left_in_stream, cuMemFreeAsync(leavings[call->thing], stream));
static ACT(trim_graphs, cuDeviceGraphMemTrim(0));

/* clang-format off */
#define FREED_BY_LAUNCH CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH

#define MAKE(graph, mib)                 {make_graph, graph, NONE, 0, mib} /* takes and frees it */
#define MAKE_LEAVING(graph, flags, mib)  {make_leaving, graph, NONE, flags, mib} /* only takes it */
#define LAUNCH(graph)                    {launch_graph, graph, NONE, 0, 0}
#define UPLOAD(graph)                    {upload_graph, graph, NONE, 0, 0}
#define DESTROY(graph)                   {destroy_graph, graph, NONE, 0, 0}
#define GIVE_LEFT(graph)                 {give_left, graph, NONE, 0, 0}
#define GIVE_LEFT_ASYNC(graph)           {give_left_in_stream, graph, NONE, 0, 0}
#define TRIM                             {trim_graphs, NONE, NONE, 0, 0}

/* A slice of 2 GiB has room for 1520 MiB, of which a graph of 500 MiB takes 512. */
static const struct acts when_full[] = {
	/* A graph that has its memory is launched also when there is no more. The second has the
	 * same memory, as one is launched after the other. */
	{"relaunched_when_full", "2g", .acts = {
		{MAKE(A, 500), 0}, {LAUNCH(A), 512}, {MAKE(B, 400), 512}, {LAUNCH(B), 512},
		{TAKE(C, 1008), 1520}, {LAUNCH(A), 1520}, {LAUNCH(B), 1520}, {SYNCHRONISE, 1520},
		{LAUNCH(A), 1520}, {LAUNCH(B), 1520}, {LAUNCH(A), 1520}, {SYNCHRONISE, 1520},
		{DESTROY(A), 1520}, {DESTROY(B), 1520}, {TAKE(D, 600), COVERED, NO_ROOM},
		{TRIM, 1008}}},
	/* A refusal trims what is free. What the graph has not freed stays the graph's. */
	{"relaunched_after_refusals", "2g", .acts = {
		{MAKE_LEAVING(A, FREED_BY_LAUNCH, 500), 0}, {LAUNCH(A), 512}, {TAKE(B, 1008), 1520},
		{TAKE(C, 2), 1520, NO_ROOM}, {LAUNCH(A), 1520}, {SYNCHRONISE, 1520},
		{TAKE(C, 2), 1520, NO_ROOM}, {LAUNCH(A), 1520}, {SYNCHRONISE, 1520},
		{GIVE(B), 512}, {GIVE_LEFT(A), 512}, {TRIM, 0}, {DESTROY(A), 0}}},
	/* What graphs keep goes to whoever needs it. Then the graph is launched only if there is
	 * room again. */
	{"given_back_when_needed", "2g", .acts = {
		{MAKE(A, 1000), 0}, {LAUNCH(A), 1024}, {SYNCHRONISE, 1024}, {TAKE(B, 1200), 1200},
		{LAUNCH(A), 1200, NO_ROOM}, {GIVE(B), 0}, {LAUNCH(A), 1024},
		{TAKE_ASYNC(B, 1200), COVERED}, {SYNCHRONISE, 1216}, {UPLOAD(A), 1216, NO_ROOM},
		{GIVE_ASYNC(B), COVERED}, {LAUNCH(A), COVERED}, {SYNCHRONISE, 1024}, {TRIM, 0},
		{TAKE(B, 1000), 1000}, {LAUNCH(A), 1000, NO_ROOM}, {DESTROY(A), 1000}}},
};
TEST_TABLE(when_full, play);

/* A has left 512 MiB, and cannot be launched again before they are freed. */
#define LEAVES                                                                           \
	{MAKE_LEAVING(A, 0, 500), 0}, {LAUNCH(A), 512}, {SYNCHRONISE, 512},              \
		{LAUNCH(A), 512, INVALID}, {TRIM, 512}, {TAKE(B, 1200), 512, NO_ROOM}
#define LEAVES_AGAIN                                                                     \
	{LAUNCH(A), 512}, {GIVE_LEFT_ASYNC(A), 512}, {DESTROY(A), 512}, {SYNCHRONISE, 512}

static const struct acts leaving[] = {
	{"left_and_freed", "2g", .acts = {
		LEAVES, {GIVE_LEFT(A), 512}, {SYNCHRONISE, 512}, {TRIM, 0}, LEAVES_AGAIN, {TRIM, 0}}},
	{"left_and_freed_in_stream", "2g", .acts = {
		LEAVES, {GIVE_LEFT_ASYNC(A), 512}, {SYNCHRONISE, 512}, {TRIM, 0},
		LEAVES_AGAIN, {TRIM, 0}}},
	{"left_and_destroyed", "2g", .acts = {
		LEAVES, {DESTROY(A), 512}, {GIVE_LEFT(A), 512}, {SYNCHRONISE, 512}, {TRIM, 0}}},
	{"left_and_destroyed_in_stream", "2g", .acts = {
		LEAVES, {DESTROY(A), 512}, {GIVE_LEFT_ASYNC(A), 512}, {SYNCHRONISE, 512}, {TRIM, 0}}},
	{"freed_by_launch", "2g", .acts = {
		{MAKE_LEAVING(A, FREED_BY_LAUNCH, 1000), 0}, {LAUNCH(A), 1024}, {LAUNCH(A), 1024},
		{LAUNCH(A), 1024}, {GIVE_LEFT_ASYNC(A), 1024}, {SYNCHRONISE, 1024},
		{DESTROY(A), 1024}, {TRIM, 0}}},
};
TEST_TABLE(leaving, play);
/* clang-format on */

/* -- each door -- */

#define MAKERS        5
#define FIRST_UPLOADS 3 /* the makers from here on can upload */
#define UPLOADED      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD

static CUresult make_by(unsigned maker, CUgraphExec *exec, CUgraph graph, unsigned flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags, .hUploadStream = stream};

	switch (maker % MAKERS) {
	case 0:
		return cuGraphInstantiate(exec, graph, NULL, NULL, 0);
	case 1:
		return cuGraphInstantiate_v2(exec, graph, NULL, NULL, 0);
	case 2:
		return cuGraphInstantiateWithFlags(exec, graph, flags);
	case 3:
		return cuGraphInstantiateWithParams(exec, graph, &params);
	default:
		return cuGraphInstantiateWithParams_ptsz(exec, graph, &params);
	}
}

static CUresult (*const takers[])(CUgraphExec, CUstream) = {cuGraphUpload, cuGraphUpload_ptsz,
							    cuGraphLaunch, cuGraphLaunch_ptsz};

/* Nothing when it is made, its need when it is uploaded or launched, all back by a trim. */
TEST(each_door)
{
	static const uint64_t sizes[] = {MIB, 33 * MIB, 500 * MIB};
	static const uint64_t needs[] = {32 * MIB, 64 * MIB, 512 * MIB};

	start("2g");
	for (unsigned i = 0; i < MAKERS * 4 * 3; i++) {
		CUgraph graph = graph_of(sizes[i % 3], NULL);
		CUgraphExec exec = NULL;

		CHECK_OK(make_by(i, &exec, graph, 0));
		assert_data(0);
		CHECK_OK(takers[i % 4](exec, stream));
		assert_data(needs[i % 3]);
		launch(exec);
		synchronise(stream);
		assert_data(needs[i % 3]);
		destroy(exec);
		CHECK_OK(cuGraphDestroy(graph));
		assert_data(needs[i % 3]);
		trim();
		assert_data(0);
	}
}

/* A graph that does not fit is refused however it is made or started, and costs nothing. */
TEST(refused_graphs)
{
	start("2g");
	for (unsigned i = 0; i < MAKERS * 4; i++) {
		CUgraph graph = graph_of(1600 * MIB, NULL);
		CUgraphExec exec = NULL;

		CHECK_OK(make_by(i, &exec, graph, 0));
		CHECK_EQUAL(takers[i % 4](exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
		assert_data(0);
		destroy(exec);
		CHECK_OK(cuGraphDestroy(graph));
	}
	for (unsigned i = FIRST_UPLOADS; i < MAKERS; i++) {
		CUgraph graph = graph_of(1600 * MIB, NULL);
		CUgraphExec exec = (CUgraphExec)UNTOUCHED;

		CHECK_EQUAL(make_by(i, &exec, graph, UPLOADED), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(exec == (CUgraphExec)UNTOUCHED);
		assert_data(0);
		CHECK_OK(cuGraphDestroy(graph));
	}
}

TEST(uploaded_when_made)
{
	start("2g");
	for (unsigned i = FIRST_UPLOADS; i < MAKERS; i++) {
		CUgraph graph = graph_of(500 * MIB, NULL);
		CUgraphExec exec = NULL;

		CHECK_OK(make_by(i, &exec, graph, UPLOADED));
		assert_data(512 * MIB);
		launch(exec);
		synchronise(stream);
		assert_data(512 * MIB);
		destroy(exec);
		CHECK_OK(cuGraphDestroy(graph));
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
	CHECK_EQUAL(cuGraphLaunch(execs[0], stream), CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i <= count; i++) {
		if (i < count)
			give_async(left[i], stream);
		destroy(execs[i]);
	}
	synchronise(stream);
	trim();
	assert_data(0);
}

/* For so long it is busy, with that much. */
static CUgraphExec busy_exec(CUfunction spin, uint64_t ns, uint64_t bytes)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;
	CUdeviceptr address = add_take(graph, &node, bytes);
	void *parameters[] = {&ns};
	CUDA_KERNEL_NODE_PARAMS kernel = {spin, 1, 1, 1, 1, 1, 1, 0, parameters, NULL, NULL, NULL};

	CHECK_OK(cuGraphAddKernelNode_v2(&node, graph, &node, 1, &kernel));
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
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	for (unsigned i = 0; i < 2; i++) {
		execs[i] = busy_exec(spin, 200 * MS, 500 * MIB);
		launch(execs[i]);
	}
	assert_data(512 * MIB);
	synchronise(stream);
	address = fill_up(2 * GIB);
	launch(execs[0]);
	CHECK_OK(cuGraphLaunch(execs[1], other));
	assert_covered();
	CHECK_OK(cuCtxSynchronize());
	give(address);
	trim();
	assert_data(0);
	destroy(execs[0]);
	destroy(execs[1]);
}

#define THREADS 4

static CUgraphExec lasting[THREADS]; /* graphs whose memory stays allocated */

static void *launch_lasting(void *i)
{
	CUstream own;

	cuda_start(0);
	CHECK_OK(cuStreamCreate(&own, NON_BLOCKING));
	cuGraphLaunch(lasting[(intptr_t)i], own);
	return NULL;
}

/* Threads launch graphs that have shared memory, when there is none left. One of them may take
 * more, and then no other. */
TEST(alone_when_full)
{
	pthread_t threads[THREADS];
	CUdeviceptr left;

	env_set("VGPU_SIM_DELAY", "cuGraphLaunch=20000");
	start("2g");
	for (intptr_t i = 0; i < THREADS; i++) {
		lasting[i] = instantiate(graph_of(500 * MIB, &left), 0);
		launch(lasting[i]);
		give_async(left, stream);
		synchronise(stream);
	}
	fill_up(2 * GIB);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_lasting, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK_OK(cuCtxSynchronize());
	CHECK_AT_MOST(outside_used(0), 2 * GIB + 512 * MIB);
}

/* Needs that the driver does not say cannot be reserved: there is no executable graph. */
TEST(nodes_not_said)
{
	CUgraphExec exec = NULL;

	env_set("VGPU_SIM_FAULTS", "cuGraphGetNodes@1=2,cuGraphMemAllocNodeGetParams@1=2");
	start("2g");
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQUAL(cuGraphInstantiateWithFlags(&exec, graph_of(500 * MIB, NULL), 0),
			    CUDA_ERROR_OUT_OF_MEMORY);
	exec = exec_of(500 * MIB);
	launch(exec);
	assert_data(512 * MIB);
}

/* A graph that takes far less than the sum of its nodes, one after the other. */
static CUgraph thrifty_graph(void)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;

	for (unsigned i = 0; i < 10; i++)
		add_give(graph, &node, add_take(graph, &node, 100 * MIB));
	return graph;
}

/* It is launched also if there is no room for the sum, as it has its memory. */
static void launch_when_full(CUgraphExec exec)
{
	CUdeviceptr rest;

	assert_data(128 * MIB);
	rest = fill_up(2 * GIB);
	launch(exec);
	synchronise(stream);
	destroy(exec);
	give(rest);
	trim();
}

TEST(uploaded_when_made_and_full)
{
	CUgraphExec exec;

	start("2g");
	for (unsigned i = FIRST_UPLOADS; i < MAKERS; i++) {
		CUgraph graph = thrifty_graph();

		CHECK_OK(make_by(i, &exec, graph, UPLOADED));
		launch_when_full(exec);
	}
}

/* The driver has kept the graph, and its memory. */
TEST(destroy_refused_when_full)
{
	CUgraphExec exec;

	env_set("VGPU_SIM_FAULTS", "cuGraphExecDestroy@1=999");
	start("2g");
	exec = instantiate(thrifty_graph(), 0);
	launch(exec);
	CHECK_EQUAL(cuGraphExecDestroy(exec), CUDA_ERROR_UNKNOWN);
	launch_when_full(exec);
}

/* -- graphs of many nodes -- */

/* Several nodes, on all of which the need depends; and a graph in a graph. */
TEST(many_nodes)
{
	CUgraph graph, child;
	CUgraphNode node = NULL, inner = NULL;
	CUdeviceptr held[3];
	CUgraphExec exec;

	start("2g");
	child = graph_new();
	CHECK_OK(cuGraphAddEmptyNode(&inner, child, NULL, 0));
	graph = graph_new();
	for (unsigned i = 0; i < 3; i++)
		held[i] = add_take(graph, &node, 20 * MIB);
	CHECK_OK(cuGraphAddChildGraphNode(&node, graph, &node, 1, child));
	for (unsigned i = 0; i < 3; i++)
		add_give(graph, &node, held[i]);
	exec = instantiate(graph, 0);
	launch(exec);
	assert_data(64 * MIB);
	destroy(exec);
	trim();
	assert_data(0);
	exec = instantiate(thrifty_graph(), 0);
	launch(exec);
	assert_data(128 * MIB);
	destroy(exec);
	trim();
	assert_data(0);
	CHECK_OK(cuGraphDestroy(child));
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
		CHECK_OK(cuGraphAddNode_v2(&node, outer, NULL, NULL, 0, &params));
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

		CHECK_EQUAL(cuGraphLaunch(big, stream), CUDA_ERROR_OUT_OF_MEMORY);
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

	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuStreamCreate(&own, NON_BLOCKING));
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
	start("1200m");
	CHECK_OK(cuCtxGetCurrent(&context));
	outside_peak_begin(0);
	threads_join(threads_start(4, launch_often));
	CHECK_AT_MOST(outside_peak(0), 1200 * MIB + GRANULE);
	CHECK_OK(cuCtxSynchronize());
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
	CHECK_EQUAL(make_by(3, &exec, graph, UPLOADED), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(make_by(0, &exec, graph, 0), 700);
	CHECK(!exec);
	assert_data(0);
	exec = instantiate(graph, 0);
	CHECK_EQUAL(cuGraphUpload(exec, stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuGraphUpload_ptsz(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuGraphLaunch_ptsz(exec, stream), 700);
	assert_data(0);
	launch(exec);
	CHECK_EQUAL(cuDeviceGraphMemTrim(0), CUDA_ERROR_UNKNOWN);
	synchronise(stream);
	assert_data(512 * MIB);
	CHECK_EQUAL(cuGraphLaunch(NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphUpload(NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuDeviceGraphMemTrim(7), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuGraphExecDestroy(exec), CUDA_ERROR_UNKNOWN);
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
