/*
 * Code in a slice that is full. Nobody knows before a load or a first launch how much memory the
 * driver will take for code. So one of them may exceed the limit, and the next is refused.
 */
#include "own_code.h"

#define MANY 40

static CUfunction many[MANY];

static void fetch_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		many[i] = lazy_load();
}

static CUresult try_launch(CUfunction function)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

/* Returns how many are accepted, and checks that all the others lack memory. */
static unsigned launch_many(void)
{
	unsigned accepted = 0;

	for (unsigned i = 0; i < MANY; i++) {
		CUresult result = try_launch(many[i]);

		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		accepted += result == CUDA_SUCCESS;
	}
	return accepted;
}

TEST(first_launches)
{
	start_lazy("4g");
	fetch_many();
	leave(2 * MODULE);
	CHECK_AT_MOST(launch_many(), 3);
	CHECK_AT_MOST(outside_used(0), QUOTA + MODULE);
}

/* Only a first launch loads code. */
TEST(later_launches)
{
	CUfunction function;

	start_lazy("4g");
	function = lazy_load();
	fetch_many();
	launch(function);
	leave(0);
	launch_many();
	launch(function);
}

TEST(launches_after_a_free)
{
	CUdeviceptr all;

	start_lazy("4g");
	fetch_many();
	all = leave(0);
	CHECK(launch_many() < MANY);
	give(all);
	CHECK_EQUAL(launch_many(), MANY);
}

TEST(loads)
{
	unsigned loaded = 0;

	start_lazy("4g");
	leave(2 * MODULE);
	for (unsigned i = 0; i < 200; i++) {
		CUfunction function = lazy_load();

		loaded += function && try_launch(function) == CUDA_SUCCESS;
	}
	CHECK_AT_MOST(loaded, 3);
	CHECK_AT_MOST(outside_used(0), QUOTA + MODULE);
}

TEST(launches_of_graphs)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = 1,
					  .blockDimY = 1,
					  .blockDimZ = 1};
	CUgraphExec graphs[MANY];
	unsigned launched = 0;

	start_lazy("4g");
	fetch_many();
	for (unsigned i = 0; i < MANY; i++) {
		CUgraph graph;
		CUgraphNode node;

		kernel.func = many[i];
		CHECK_CUDA(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel), CUDA_SUCCESS);
		CHECK_CUDA(cuGraphInstantiateWithFlags(&graphs[i], graph, 0), CUDA_SUCCESS);
	}
	leave(2 * MODULE);
	for (unsigned i = 0; i < MANY; i++)
		launched += cuGraphLaunch(graphs[i], NULL) == CUDA_SUCCESS;
	CHECK_AT_MOST(launched, 3);
	CHECK_AT_MOST(outside_used(0), QUOTA + MODULE);
}
