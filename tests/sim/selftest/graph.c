/*
 * Graphs that allocate, as measured on a real driver: what uploading and launching them reserves,
 * who shares it, and what gives it back. And how long a launched graph takes.
 */
#include "selftest.h"

#include <string.h>
#include <unistd.h>

#define MS selftest_ms

static const char ptx[] = ".version 7.0\n.entry spin_ns(.param .u64 ns) { ret; }\n";

static CUfunction spin;
static CUstream stream, other;
static uint64_t start; /* in use before the first graph */

static uint64_t attribute(CUgraphMem_attribute attribute)
{
	cuuint64_t value = 1;

	CHECK_OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}

/* Reserved, which is also what NVML says. */
static long long reserved(void)
{
	long long bytes = (long long)attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);

	CHECK_EQUAL(selftest_process_bytes(0, getpid()), (long long)CONTEXT + bytes);
	CHECK_EQUAL(selftest_used(0) - start, bytes);
	return bytes;
}

static CUgraph graph_new(void)
{
	CUgraph graph;

	CHECK_OK(cuGraphCreate(&graph, 0));
	return graph;
}

static CUDA_MEM_ALLOC_NODE_PARAMS parameters(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes,
	};
}

/* After that node, or NULL; which becomes the new one. */
static CUdeviceptr add_take(CUgraph graph, CUgraphNode *node, size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = parameters(bytes);

	CHECK_OK(cuGraphAddMemAllocNode(node, graph, node, *node ? 1 : 0, &wanted));
	CHECK(wanted.dptr && wanted.dptr % 512 == 0);
	return wanted.dptr;
}

static void add_give(CUgraph graph, CUgraphNode *node, CUdeviceptr address)
{
	CHECK_OK(cuGraphAddMemFreeNode(node, graph, node, *node ? 1 : 0, address));
}

static void add_spin(CUgraph graph, CUgraphNode *node, uint64_t ns)
{
	void *first[] = {&ns};
	CUDA_KERNEL_NODE_PARAMS kernel = {spin, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL, NULL};

	CHECK_OK(cuGraphAddKernelNode_v2(node, graph, node, *node ? 1 : 0, &kernel));
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* Takes that much, lasts that long, and frees it. */
static CUgraphExec exec_new(size_t bytes, uint64_t ns)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;
	CUdeviceptr address = add_take(graph, &node, bytes);

	add_spin(graph, &node, ns);
	add_give(graph, &node, address);
	CUgraphExec exec = instantiate(graph);
	CHECK_OK(cuGraphDestroy(graph));
	return exec;
}

static void launch(CUgraphExec exec, CUstream where)
{
	CHECK_OK(cuGraphLaunch(exec, where));
}

static void destroy(CUgraphExec exec)
{
	CHECK_OK(cuGraphExecDestroy(exec));
}

static void trim(long long expected)
{
	CHECK_OK(cuDeviceGraphMemTrim(0));
	CHECK_EQUAL(reserved(), expected);
}

static void test_rounding(void)
{
	static const struct {
		size_t bytes, reserved;
	} rows[] = {
		{MIB, 32 * MIB},          {31 * MIB, 32 * MIB}, {33 * MIB, 64 * MIB},
		{64 * MIB + 1, 96 * MIB}, {70 * MIB, 96 * MIB},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		CUgraphExec exec = exec_new(rows[i].bytes, 0);

		CHECK_EQUAL(reserved(), 0);
		if (i % 2)
			CHECK_OK(cuGraphUpload(exec, stream));
		else
			launch(exec, stream);
		CHECK_EQUAL(reserved(), rows[i].reserved);
		CHECK_OK(cuStreamSynchronize(stream));
		launch(exec, stream);
		destroy(exec);
		CHECK_OK(cuCtxSynchronize());
		CHECK_EQUAL(reserved(), rows[i].reserved);
		trim(0);
	}
}

/* What is not alive at the same time shares memory, if the order of the nodes says so. */
static void test_peak(void)
{
	CUgraph graph = graph_new();
	CUgraphNode node = NULL, apart = NULL;
	CUdeviceptr p[3];

	for (int i = 0; i < 3; i++)
		p[i] = add_take(graph, &node, 20 * MIB);
	for (int i = 0; i < 3; i++)
		add_give(graph, &node, p[i]);
	CUgraphExec exec = instantiate(graph);
	CHECK_AFTER(launch(exec, stream), reserved(), 64 * MIB);
	destroy(exec);
	p[0] = add_take(graph, &node, 60 * MIB); /* in what the three had */
	add_give(graph, &node, p[0]);
	exec = instantiate(graph);
	CHECK_AFTER(launch(exec, stream), reserved(), 64 * MIB);
	destroy(exec);
	p[0] = add_take(graph, &apart, 30 * MIB); /* at the same time, for all we know */
	add_give(graph, &apart, p[0]);
	exec = instantiate(graph);
	CHECK_AFTER(launch(exec, stream), reserved(), 96 * MIB);
	destroy(exec);
	CHECK_OK(cuGraphDestroy(graph));
	trim(0);
}

static void test_sharing(void)
{
	CUgraphExec first = exec_new(50 * MIB, 40 * MS), second = exec_new(50 * MIB, 40 * MS);

	CHECK_AFTER(launch(first, stream), reserved(), 64 * MIB);
	trim(64 * MIB); /* it runs */
	CHECK_EQUAL(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 50 * MIB);
	CHECK_AFTER(launch(second, stream), reserved(), 64 * MIB);
	CHECK_OK(cuStreamSynchronize(stream));
	trim(0);
	launch(second, stream); /* takes it again */
	CHECK_EQUAL(reserved(), 64 * MIB);
	launch(first, other); /* while the second runs */
	CHECK_EQUAL(reserved(), 128 * MIB);
	CHECK_OK(cuCtxSynchronize());
	CHECK_AFTER(launch(first, stream), reserved(), 128 * MIB);
	destroy(first);
	destroy(second);
	CHECK_OK(cuCtxSynchronize());
	trim(0);
}

/* What a graph does not free itself. */
static void test_left(void)
{
	CUgraph graph = graph_new(), freer = graph_new();
	CUgraphNode node = NULL, last = NULL;
	CUdeviceptr p = add_take(graph, &node, 40 * MIB), base;
	CUgraphExec exec = instantiate(graph), give;
	size_t bytes;

	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	launch(exec, stream);
	CHECK_OK(cuStreamSynchronize(stream));
	trim(64 * MIB);
	CHECK_EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemsetD8_v2(p, 1, 40 * MIB));
	CHECK_OK(cuMemGetAddressRange_v2(&base, &bytes, p + 5));
	CHECK(base == p && bytes == 40 * MIB);
	CHECK_OK(cuMemFreeAsync(p, stream));
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(reserved(), 64 * MIB);
	trim(0);
	launch(exec, stream);
	CHECK_OK(cuMemFree_v2(p));
	trim(0);
	add_give(freer, &last, p); /* in another graph */
	give = instantiate(freer);
	CHECK_EQUAL(cuGraphLaunch(give, stream), CUDA_ERROR_INVALID_VALUE);
	launch(exec, stream);
	launch(give, stream);
	trim(0);
	launch(exec, stream);
	destroy(exec);
	destroy(give);
	CHECK_OK(cuGraphDestroy(graph));
	CHECK_OK(cuGraphDestroy(freer));
	trim(64 * MIB);
	CHECK_OK(cuMemFree_v2(p));
	trim(0);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

static void test_auto_free(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {
		.flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
			 CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
		.hUploadStream = stream,
		.result_out = 9,
	};
	CUgraph graph = graph_new();
	CUgraphNode node = NULL;
	CUdeviceptr p = add_take(graph, &node, 40 * MIB);
	CUgraphExec exec;

	CHECK_OK(cuGraphInstantiateWithParams(&exec, graph, &how));
	CHECK_EQUAL(how.result_out, 0);
	CHECK_EQUAL(reserved(), 64 * MIB);
	launch(exec, stream);
	CHECK_AFTER(launch(exec, stream), reserved(), 64 * MIB);
	CHECK_OK(cuMemFree_v2(p));
	destroy(exec);
	CHECK_OK(cuGraphDestroy(graph));
	trim(0);
}

/* A graph that is moved into another one may allocate, if it frees all of that. */
static void test_moved(void)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	CUgraph graph = graph_new(), parent = graph_new();
	CUgraphNode node = NULL, child;
	CUdeviceptr p = add_take(graph, &node, 40 * MIB);
	CUgraphExec exec;

	params.graph.graph = graph;
	CHECK_EQUAL(cuGraphAddNode_v2(&child, parent, NULL, NULL, 0, &params),
		    CUDA_ERROR_NOT_SUPPORTED);
	params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	CHECK_EQUAL(cuGraphAddNode_v2(&child, parent, NULL, NULL, 0, &params),
		    CUDA_ERROR_INVALID_VALUE);
	add_give(graph, &node, p);
	CHECK_OK(cuGraphAddNode_v2(&child, parent, NULL, NULL, 0, &params));
	CHECK_EQUAL(cuGraphAddNode_v2(&child, parent, NULL, NULL, 0, &params),
		    CUDA_ERROR_INVALID_VALUE); /* it is in one */
	exec = instantiate(parent);
	CHECK_OK(cuGraphLaunch(exec, stream));
	CHECK_EQUAL(reserved(), 64 * MIB);
	destroy(exec);
	CHECK_OK(cuGraphDestroy(parent));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_OK(cuDeviceGraphMemTrim(0));
	CHECK_EQUAL(reserved(), 0);
}

/* Restrictions of graphs with memory nodes. */
static void test_refused(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS wanted = parameters(MIB), none = parameters(0);
	CUgraph graph = graph_new(), copy, parent = graph_new();
	CUgraphNode node = NULL, first, child;
	CUdeviceptr p = add_take(graph, &node, MIB);
	CUgraphExec exec = instantiate(graph), again;

	CHECK_EQUAL(cuGraphInstantiateWithFlags(&again, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuGraphInstantiate_v2(&again, graph, &first, NULL, 0),
		    CUDA_ERROR_NOT_SUPPORTED);
	destroy(exec);
	destroy(instantiate(graph));
	CHECK_EQUAL(cuGraphClone(&copy, graph), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuGraphAddChildGraphNode(&child, parent, NULL, 0, graph),
		    CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuGraphAddMemFreeNode(&first, graph, NULL, 0, p), CUDA_ERROR_INVALID_VALUE);
	first = node;
	add_give(graph, &node, p);
	CHECK_EQUAL(cuGraphAddMemFreeNode(&node, graph, &node, 1, p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphAddMemFreeNode(&node, graph, &node, 1, 512), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphAddEmptyNode(&node, parent, &first, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &none), CUDA_ERROR_INVALID_VALUE);
	wanted.poolProps.location.id = 7;
	CHECK_EQUAL(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphLaunch(NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGraphDestroy(graph));
	graph = graph_new();
	node = NULL;
	add_take(graph, &node, 200 * GIB);
	exec = instantiate(graph);
	CHECK_EQUAL(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(reserved(), 0);
	destroy(exec);
	CHECK_OK(cuGraphDestroy(graph));
	CHECK_OK(cuGraphDestroy(parent));
}

static void test_nodes(void)
{
	CUgraph graph = graph_new(), inner;
	CUgraphNode node = NULL, nodes[4], first;
	CUdeviceptr p = add_take(graph, &node, 100), freed = 0;
	CUDA_MEM_ALLOC_NODE_PARAMS taken;
	CUgraphNodeType type;
	size_t count = 0;

	first = node;
	add_give(graph, &node, p);
	CHECK_OK(cuGraphMemAllocNodeGetParams(first, &taken));
	CHECK(taken.dptr == p && taken.bytesize == 100);
	CHECK_OK(cuGraphMemFreeNodeGetParams(node, &freed));
	CHECK(freed == p);
	CHECK_EQUAL(cuGraphMemFreeNodeGetParams(first, &freed), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGraphGetNodes(graph, NULL, &count));
	CHECK_EQUAL(count, 2);
	count = 4;
	CHECK_OK(cuGraphGetNodes(graph, nodes, &count));
	CHECK(count == 2 && nodes[0] == first && nodes[1] == node && !nodes[2] && !nodes[3]);
	count = 1;
	CHECK_OK(cuGraphNodeGetDependencies(node, nodes, &count));
	CHECK(count == 1 && nodes[0] == first);
	CHECK_OK(cuGraphNodeGetType(node, &type));
	CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
	CHECK_OK(cuGraphDestroy(graph));
	graph = graph_new();
	CHECK_EQUAL(cuGraphCreate(&inner, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	CHECK_OK(cuGraphNodeGetType(node, &type));
	CHECK_EQUAL(type, CU_GRAPH_NODE_TYPE_EMPTY);
	CHECK_OK(cuGraphDestroy(graph));
}

/* An exec of that graph, of one kernel, gets another one. */
static void test_set(CUgraphExec exec, CUgraph graph)
{
	uint64_t ns = 40 * MS, begin;
	void *first[] = {&ns};
	CUDA_KERNEL_NODE_PARAMS_v1 kernel = {spin, 1, 1, 1, 1, 1, 1, 0, first, NULL};
	CUgraphExecUpdateResult result = 1;
	CUgraphNode node;
	size_t count = 1;

	CHECK_OK(cuGraphGetNodes(graph, &node, &count));
	CHECK_OK(cuGraphExecKernelNodeSetParams(exec, node, &kernel));
	CHECK_EQUAL(cuGraphExecKernelNodeSetParams(exec, NULL, &kernel), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphExecKernelNodeSetParams(NULL, node, &kernel), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGraphExecKernelNodeSetParams_v2(exec, node, NULL), CUDA_ERROR_INVALID_VALUE);
	begin = selftest_now_ns();
	launch(exec, stream);
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK(selftest_now_ns() - begin >= 40 * MS);
	CHECK_OK(cuGraphExecUpdate(exec, graph, &node, &result));
	CHECK(!node && !result);
}

/* A launch takes as long as the kernels, those of children included; an update changes that. */
static void test_time(void)
{
	CUgraph inner = graph_new(), graph = graph_new(), longer = graph_new(), child, clone;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node = NULL, outer = NULL;
	uint64_t begin;

	add_spin(inner, &node, 30 * MS);
	add_spin(graph, &outer, 20 * MS);
	CHECK_OK(cuGraphAddChildGraphNode(&outer, graph, &outer, 1, inner));
	CHECK_OK(cuGraphChildGraphNodeGetGraph(outer, &child));
	CHECK(child != inner);
	CHECK_EQUAL(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGraphClone(&clone, graph));
	CUgraphExec exec = instantiate(clone), again = instantiate(clone);
	begin = selftest_now_ns();
	launch(exec, stream);
	CHECK(selftest_now_ns() - begin < 50 * MS);
	launch(again, stream);
	CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK(selftest_now_ns() - begin >= 100 * MS);
	CHECK(selftest_now_ns() - begin < 600 * MS);
	CHECK_EQUAL(cuGraphExecUpdate_v2(exec, inner, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK_EQUAL(info.result, 2);
	destroy(again);
	again = instantiate(inner);
	node = NULL;
	add_spin(longer, &node, 90 * MS);
	CHECK_OK(cuGraphExecUpdate_v2(again, longer, &info));
	begin = selftest_now_ns();
	launch(again, stream);
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK(selftest_now_ns() - begin >= 90 * MS);
	test_set(again, inner);
	destroy(exec);
	destroy(again);
	CHECK_OK(cuGraphDestroy(inner));
	CHECK_OK(cuGraphDestroy(graph));
	CHECK_OK(cuGraphDestroy(clone));
	CHECK_OK(cuGraphDestroy(longer));
}

static void test_attributes(void)
{
	cuuint64_t zero = 0, one = 1;

	CHECK_EQUAL(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 128 * MIB);
	CHECK_EQUAL(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 100 * MIB);
	CHECK_EQUAL(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &one),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &zero),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
	CHECK_OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
	CHECK_EQUAL(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
	CHECK_EQUAL(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
	CHECK_EQUAL(cuDeviceGraphMemTrim(7), CUDA_ERROR_INVALID_DEVICE);
}

/* A fill and a copy after it, that are done with each launch. */
static void test_transfers(void)
{
	CUgraphNode fill, copy, roots[2], from[2], to[2];
	CUgraph graph = graph_new();
	CUgraphExec exec;
	CUdeviceptr device;
	char host[8] = "";
	size_t count = 2;

	CHECK_OK(cuMemAlloc_v2(&device, 4096));
	CUDA_MEMSET_NODE_PARAMS what = {device, 0, 0x4142, 2, 4, 1};
	CUDA_MEMCPY3D how = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			     .srcDevice = device,
			     .dstMemoryType = CU_MEMORYTYPE_HOST,
			     .dstHost = host,
			     .WidthInBytes = sizeof host,
			     .Height = 1,
			     .Depth = 1};
	CHECK_OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &what, NULL));
	CHECK_OK(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &how, NULL));
	what.elementSize = 3;
	CHECK_EQUAL(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &what, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	how.srcDevice = 16;
	CHECK_EQUAL(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &how, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuGraphGetRootNodes(graph, roots, &count));
	CHECK(count == 1 && roots[0] == fill && !roots[1]);
	count = 0;
	CHECK_OK(cuGraphGetEdges(graph, NULL, NULL, &count));
	CHECK_EQUAL(count, 1);
	CHECK_OK(cuGraphGetEdges(graph, from, to, &count));
	CHECK(from[0] == fill && to[0] == copy);
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK_EQUAL(host[0], 0);
	CHECK_OK(cuGraphLaunch(exec, stream));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK(!memcmp(host, "BABABABA", 8));
	CHECK_OK(cuGraphExecDestroy(exec));
	CHECK_OK(cuGraphDestroy(graph));
	CHECK_OK(cuMemFree_v2(device));
}

static void test_all(void)
{
	CUmodule module;

	selftest_context();
	start = selftest_used(0);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuStreamCreate(&stream, 1));
	CHECK_OK(cuStreamCreate(&other, 1));
	test_transfers();
	test_rounding();
	test_peak();
	test_sharing();
	test_left();
	test_auto_free();
	test_moved();
	test_refused();
	test_nodes();
	test_time();
	test_attributes();
}

int main(void)
{
	selftest_begin(NULL);
	return selftest_unhurried(test_all);
}
