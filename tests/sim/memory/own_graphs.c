/*
 * Code and local memory of the kernels of graphs. The driver may load the code with a node of the
 * graph (VGPU_SIM_MODULE_LAZY=2), or at the graph's first launch. It takes the local memory when
 * the graph is instantiated.
 */
#include "own_code.h"

static CUgraphNode nodes[FUNCTIONS];

static CUDA_KERNEL_NODE_PARAMS kernel_of(CUfunction function)
{
	return (CUDA_KERNEL_NODE_PARAMS){function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL};
}

/* An executable graph with `count` kernels. */
static CUgraphExec graph_of(const CUfunction *kernels, unsigned count)
{
	CUgraph graph;
	CUgraphExec exec;

	CHECK_OK(cuGraphCreate(&graph, 0));
	for (unsigned i = 0; i < count; i++) {
		const CUDA_KERNEL_NODE_PARAMS params = kernel_of(kernels[i]);

		CHECK_OK(cuGraphAddKernelNode_v2(&nodes[i], graph, NULL, 0, &params));
	}
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static void launch_graph(CUgraphExec exec)
{
	CHECK_OK(cuGraphLaunch(exec, NULL));
}

/* A comparison comes before the graph's first launch. */
static void graph_launched_first(void)
{
	CUgraphExec exec;

	start_lazy("4g");
	fetch_functions();
	exec = graph_of(functions, FUNCTIONS);
	compare();
	launch_graph(exec);
	assert_full(FUNCTIONS);
}

TEST(graph_launched)
{
	graph_launched_first();
}

TEST(graph_with_compute_quota)
{
	env_set("CUDA_DEVICE_SM_LIMIT", "50");
	graph_launched_first();
}

/* The graph has been launched, and gets a kernel that was not. */
TEST(graph_changed)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphNodeParams any;
	CUgraphExec exec;

	start_lazy("4g");
	fetch_functions();
	exec = graph_of(functions, 1);
	launch_graph(exec);
	params = kernel_of(functions[1]);
	CHECK_OK(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params));
	compare();
	launch_graph(exec);
	any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
				  .kernel = kernel_of(functions[2])};
	CHECK_OK(cuGraphExecNodeSetParams(exec, nodes[0], &any));
	compare();
	launch_graph(exec);
	assert_full(3);
}

/* The same for a graph in the graph. */
TEST(child_changed)
{
	CUgraph outer, child, other;
	CUgraphNode node, kernel;
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphExec exec;

	start_lazy("4g");
	fetch_functions();
	CHECK_OK(cuGraphCreate(&outer, 0));
	CHECK_OK(cuGraphCreate(&child, 0));
	CHECK_OK(cuGraphCreate(&other, 0));
	params = kernel_of(functions[0]);
	CHECK_OK(cuGraphAddKernelNode_v2(&kernel, child, NULL, 0, &params));
	params = kernel_of(functions[1]);
	CHECK_OK(cuGraphAddKernelNode_v2(&kernel, other, NULL, 0, &params));
	CHECK_OK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, child));
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
	launch_graph(exec);
	CHECK_OK(cuGraphExecChildGraphNodeSetParams(exec, node, other));
	compare();
	launch_graph(exec);
	assert_full(2);
}

TEST(no_graph)
{
	start_lazy("4g");
	fetch_functions();
	CHECK(cuGraphExecDestroy(NULL) != CUDA_SUCCESS);
	CHECK(cuGraphLaunch(NULL, NULL) != CUDA_SUCCESS);
	launch_functions();
	assert_full(FUNCTIONS);
}

/* The handle of a graph that has been launched is another graph's, as soon as it may be. */
TEST(graph_replaced)
{
	CUgraphExec exec;

	start_lazy("4g");
	fetch_functions();
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		exec = graph_of(&functions[i], 1);
		compare();
		launch_graph(exec);
		if (i + 1 < FUNCTIONS)
			compare();
		CHECK_OK(cuGraphExecDestroy(exec));
	}
	assert_full(FUNCTIONS);
}

/* -- the code comes with a node ---------------------------------------------------------------- */

static CUgraph start_with_nodes(void)
{
	CUgraph graph;

	env_set("VGPU_SIM_MODULE_LAZY", "2");
	start("4g");
	fetch_functions();
	CHECK_OK(cuGraphCreate(&graph, 0));
	return graph;
}

static CUgraphNodeParams any_of(CUfunction function)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
				   .kernel = kernel_of(function)};
}

static CUDA_KERNEL_NODE_PARAMS_v1 old_of(CUfunction function)
{
	return (CUDA_KERNEL_NODE_PARAMS_v1){function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL};
}

static CUresult add_old(CUgraphNode *node, CUgraph graph, CUfunction function)
{
	const CUDA_KERNEL_NODE_PARAMS_v1 params = old_of(function);

	return cuGraphAddKernelNode(node, graph, NULL, 0, &params);
}

static CUresult add_new(CUgraphNode *node, CUgraph graph, CUfunction function)
{
	CUDA_KERNEL_NODE_PARAMS params = kernel_of(NULL);

	params.kern = (CUkernel)(void *)function;
	return cuGraphAddKernelNode_v2(node, graph, NULL, 0, &params);
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, CUfunction function)
{
	CUgraphNodeParams params = any_of(function);

	return cuGraphAddNode(node, graph, NULL, 0, &params);
}

static CUresult add_any_new(CUgraphNode *node, CUgraph graph, CUfunction function)
{
	CUgraphNodeParams params = any_of(function);

	return cuGraphAddNode_v2(node, graph, NULL, NULL, 0, &params);
}

static CUresult set_old(CUgraphNode node, CUfunction function)
{
	const CUDA_KERNEL_NODE_PARAMS_v1 params = old_of(function);

	return cuGraphKernelNodeSetParams(node, &params);
}

static CUresult set_new(CUgraphNode node, CUfunction function)
{
	const CUDA_KERNEL_NODE_PARAMS params = kernel_of(function);

	return cuGraphKernelNodeSetParams_v2(node, &params);
}

static CUresult set_any(CUgraphNode node, CUfunction function)
{
	CUgraphNodeParams params = any_of(function);

	return cuGraphNodeSetParams(node, &params);
}

struct add {
	const char *name;
	CUresult (*add)(CUgraphNode *node, CUgraph graph, CUfunction function);
};

static const struct add adds[] = {
	{"added_old", add_old},
	{"added", add_new},
	{"added_any", add_any},
	{"added_any_new", add_any_new},
};

static void loads_for_added(const struct add *row)
{
	CUgraph graph;
	CUgraphNode node;

	graph = start_with_nodes();
	compare();
	for (unsigned i = 0; i < FUNCTIONS; i++)
		CHECK_OK(row->add(&node, graph, functions[i]));
	assert_full(FUNCTIONS);
}

TEST_TABLE(adds, loads_for_added);

struct set {
	const char *name;
	CUresult (*set)(CUgraphNode node, CUfunction function);
};

static const struct set sets[] = {
	{"set_old", set_old},
	{"set", set_new},
	{"set_any", set_any},
};

static void loads_for_set(const struct set *row)
{
	CUgraph graph;
	CUgraphNode node;

	graph = start_with_nodes();
	CHECK_OK(add_new(&node, graph, functions[0]));
	compare();
	for (unsigned i = 1; i < FUNCTIONS; i++)
		CHECK_OK(row->set(node, functions[i]));
	assert_full(FUNCTIONS);
}

TEST_TABLE(sets, loads_for_set);
