/*
 * Code in a slice that is full. Nobody knows before a load or a first launch how much memory the
 * driver will take for code. So one of them may exceed the limit, and the next is refused.
 */
#include "own_code.h"

#include <unistd.h>

#define MANY 40
#define ROOM                                                                                 \
	(2 * MODULE) /* what is left when the slice is full but for that: two, and one above \
		      */
#define MOST 3

static CUfunction many[MANY];

static CUresult launch_one(CUfunction function)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUresult add_node(CUfunction function)
{
	const CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = function,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
	};
	CUgraph graph;
	CUgraphNode node;

	CHECK_OK(cuGraphCreate(&graph, 0));
	return cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel);
}

static CUresult add_any_node(CUfunction function)
{
	CUgraphNodeParams params = {
		.type = CU_GRAPH_NODE_TYPE_KERNEL,
		.kernel = {function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL},
	};
	CUgraph graph;
	CUgraphNode node;

	CHECK_OK(cuGraphCreate(&graph, 0));
	return cuGraphAddNode(&node, graph, NULL, 0, &params);
}

static CUresult get_function(CUfunction function)
{
	CUfunction of_kernel;

	return cuKernelGetFunction(&of_kernel, (CUkernel)(void *)function);
}

/* Loads another library, and launches its kernel. */
static CUresult load_and_launch(CUfunction unused)
{
	CUfunction function = lazy_load();

	(void)unused;
	return function ? launch_one(function) : CUDA_ERROR_OUT_OF_MEMORY;
}

static void fetch_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		many[i] = lazy_load();
}

/* The functions of modules, which no hook has handed out one by one. */
static void list_many(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		CUmodule module;

		CHECK_OK(cuModuleLoadData(&module, code));
		CHECK_OK(cuModuleEnumerateFunctions(&many[i], 1, module));
	}
}

/* Returns how many are accepted, and checks that all the others lack memory. */
static unsigned accepted(CUresult (*call)(CUfunction))
{
	unsigned count = 0;

	for (unsigned i = 0; i < MANY; i++) {
		CUresult result = call(many[i]);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		count += result == CUDA_SUCCESS;
	}
	return count;
}

static const struct row {
	const char *name;
	void (*fetch)(void);
	CUresult (*call)(CUfunction);
	const char *lazy; /* VGPU_SIM_MODULE_LAZY */
} rows[] = {
	{"first_launches_of_kernels", fetch_many, launch_one, "1"},
	{"first_launches_of_functions", list_many, launch_one, "1"},
	{"loads", fetch_many, load_and_launch, "1"},
	{"functions_of_kernels", fetch_many, get_function, "1"},
	{"functions_that_are_loaded", list_many, cuFuncLoad, "1"},
	{"nodes_of_graphs", fetch_many, add_node, "2"},
	{"nodes_of_any_kind", fetch_many, add_any_node, "2"},
};

static void refuses(const struct row *row)
{
	env_set("VGPU_SIM_MODULE_LAZY", row->lazy);
	start("4g");
	row->fetch();
	leave(ROOM);
	CHECK_AT_MOST(accepted(row->call), MOST);
	CHECK_AT_MOST(outside_used(0), QUOTA + MODULE);
}

TEST_TABLE(rows, refuses);

static void fill_above(void)
{
	leave(0);
	launch(lazy_load());
	CHECK(load_and_launch(NULL) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* A launch of code that is loaded needs none. */
TEST(later_launches)
{
	CUfunction kernel, listed;
	CUmodule module;

	start_lazy("4g");
	kernel = lazy_load();
	launch(kernel);
	CHECK_OK(cuModuleLoadData(&module, code));
	CHECK_OK(cuModuleEnumerateFunctions(&listed, 1, module));
	CHECK_OK(cuFuncLoad(listed));
	fill_above();
	launch(kernel);
	launch(listed);
	CHECK_OK(add_node(kernel));
}

/* After an unload, a handle that is fetched again may be another function's. */
TEST(later_launches_after_an_unload)
{
	CUfunction function;
	CUmodule module, other;

	start_lazy("4g");
	CHECK_OK(cuModuleLoadData(&module, code));
	CHECK_OK(cuModuleLoadData(&other, code));
	CHECK_OK(cuModuleGetFunction(&function, module, "nothing"));
	launch(function);
	CHECK_OK(cuModuleUnload(other));
	fill_above();
	CHECK_OK(cuModuleGetFunction(&function, module, "nothing"));
	launch(function);
}

/* The launch is captured, and loads nothing. */
TEST(captured_launches)
{
	CUfunction function;
	CUgraph graph;
	CUstream stream;
	size_t nodes = 0;

	start_lazy("4g");
	function = lazy_load();
	CHECK_OK(cuStreamCreate(&stream, 1 /* non-blocking */));
	fill_above();
	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	CHECK_OK(cuStreamEndCapture(stream, &graph));
	CHECK_OK(cuGraphGetNodes(graph, NULL, &nodes));
	CHECK_EQUAL(nodes, 1);
}

/* A refused load leaves no reservation behind: an unload makes room for the next load. */
TEST(refused_and_retried)
{
	CUlibrary library;
	CUkernel kernel;

	start_lazy("4g");
	CHECK_OK(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	launch((CUfunction)(void *)kernel);
	fill_above();
	CHECK_OK(cuLibraryUnload(library));
	rest();
	CHECK_OK(load_and_launch(NULL));
	CHECK_AT_MOST(ledger_used(0), outside_used(0));
}

static void hold_and_wait(int wire)
{
	start_lazy("4g");
	take(GIB);
	tell(wire, 0);
	pause();
}

/* The memory of a killed process is charged until another process clears the slot. */
TEST(memory_of_the_dead)
{
	struct member member = member_start(hold_and_wait);
	CUfunction function;

	hear(member.wire);
	start_lazy("4g");
	function = lazy_load();
	fill_above();
	member_kill(&member);
	sleep_ms(1500);
	launch(function);
}
