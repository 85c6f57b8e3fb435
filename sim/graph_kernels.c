/*
 * The driver's functions about nodes of all kinds, and about kernel nodes.
 *
 * The code of a node's kernel comes with the node where VGPU_SIM_MODULE_LAZY is 2, as it came with
 * a captured launch on an H100 with driver 580.
 */
#include "graph.h"

static CUfunction function_of(const CUDA_KERNEL_NODE_PARAMS *params)
{
	return params->func ? params->func : (CUfunction)(void *)params->kern;
}

static CUDA_KERNEL_NODE_PARAMS params_of(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = p->func,
		.gridDimX = p->gridDimX,
		.gridDimY = p->gridDimY,
		.gridDimZ = p->gridDimZ,
		.blockDimX = p->blockDimX,
		.blockDimY = p->blockDimY,
		.blockDimZ = p->blockDimZ,
		.sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams,
		.extra = p->extra,
	};
}

/* The contexts lock, which loading takes, comes before the graphs lock. */
static CUresult enter_kernel(const char *entered, const CUDA_KERNEL_NODE_PARAMS *params,
			     struct graph_work *ret_work)
{
	CUcontext context;
	CUresult result = enter_context(entered, &context);

	if (result)
		return result;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	const unsigned shape[] = {params->gridDimX,  params->gridDimY,  params->gridDimZ,
				  params->blockDimX, params->blockDimY, params->blockDimZ};
	result = kernel_work(function_of(params), shape, params->kernelParams, params->extra,
			     ret_work);
	if (!result && config_get()->module_lazy == SIM_LAZY_NODES)
		result = function_load(function_of(params), context->gpu);
	return result;
}

static CUresult add_kernel(const char *entered, CUgraphNode *ret_node, CUgraph graph,
			   const CUgraphNode *dependencies, size_t count,
			   const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct graph_work work;
	CUgraphNode node;
	CUresult result = enter_kernel(entered, params, &work);

	if (result)
		return result;
	if (!ret_node || !graph_valid(graph))
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	result = node_add_locked(graph, dependencies, count, work.type, &node);
	if (!result) {
		node->work = work;
		*ret_node = node;
	}
	graphs_unlock();
	return result;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	const CUDA_KERNEL_NODE_PARAMS params =
		nodeParams ? params_of(nodeParams) : (CUDA_KERNEL_NODE_PARAMS){.func = NULL};

	return add_kernel(__func__, phGraphNode, hGraph, dependencies, numDependencies,
			  nodeParams ? &params : NULL);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return add_kernel(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* cuGraphAddNode with ownership moves the child; cuGraphAddChildGraphNode copies it. */
static CUresult add_child(const char *entered, CUgraphNode *ret_node, CUgraph graph,
			  const CUgraphNode *dependencies, size_t count,
			  const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
	CUgraphNode node;
	CUresult result = enter_graph_locked(entered, graph, ret_node);

	if (result)
		return result;
	if (params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
		result = node_move_child_locked(graph, dependencies, count, params->graph, &node);
	else
		result = node_add_child_locked(graph, dependencies, count, params->graph, &node);
	if (!result)
		*ret_node = node;
	graphs_unlock();
	return result;
}

static CUresult not_supported(const char *entered)
{
	CUresult result = enter(entered);

	return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

/* Supports kernels and child graphs only. */
static CUresult add_node(const char *entered, CUgraphNode *ret_node, CUgraph graph,
			 const CUgraphNode *dependencies, size_t count,
			 const CUgraphNodeParams *params)
{
	if (!params || params->type == CU_GRAPH_NODE_TYPE_KERNEL)
		return add_kernel(entered, ret_node, graph, dependencies, count,
				  params ? &params->kernel : NULL);
	return params->type == CU_GRAPH_NODE_TYPE_GRAPH
		       ? add_child(entered, ret_node, graph, dependencies, count, &params->graph)
		       : not_supported(entered);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return add_node(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	if (dependencyData)
		return not_supported(__func__);
	return add_node(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

static CUresult set_kernel(const char *entered, CUgraphNode node,
			   const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct graph_work work;
	CUresult result = enter_kernel(entered, params, &work);

	if (result)
		return result;
	if (!node || node->kind != OBJECT_NODE || node->work.type != work.type)
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	node->work = work;
	graphs_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	const CUDA_KERNEL_NODE_PARAMS params =
		nodeParams ? params_of(nodeParams) : (CUDA_KERNEL_NODE_PARAMS){.func = NULL};

	return set_kernel(__func__, hNode, nodeParams ? &params : NULL);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return set_kernel(__func__, hNode, nodeParams);
}

/* Supports kernels only, as does cuGraphExecNodeSetParams. */
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	if (nodeParams && nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return not_supported(__func__);
	return set_kernel(__func__, hNode, nodeParams ? &nodeParams->kernel : NULL);
}

static CUresult exec_set_kernel(const char *entered, CUgraphExec exec, CUgraphNode node,
				const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct graph_work work;
	CUresult result = enter_kernel(entered, params, &work);

	if (result)
		return result;
	if (!exec_valid(exec) || !node || node->kind != OBJECT_NODE)
		return CUDA_ERROR_INVALID_VALUE;
	graphs_lock();
	result = exec_set_work_locked(exec, node, &work);
	graphs_unlock();
	return result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	const CUDA_KERNEL_NODE_PARAMS params =
		nodeParams ? params_of(nodeParams) : (CUDA_KERNEL_NODE_PARAMS){.func = NULL};

	return exec_set_kernel(__func__, hGraphExec, hNode, nodeParams ? &params : NULL);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return exec_set_kernel(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				  CUgraphNodeParams *nodeParams)
{
	if (nodeParams && nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return not_supported(__func__);
	return exec_set_kernel(__func__, hGraphExec, hNode,
			       nodeParams ? &nodeParams->kernel : NULL);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					    CUgraph childGraph)
{
	CUresult result = enter_graph_locked(__func__, childGraph, hNode);

	if (result)
		return result;
	if (exec_valid(hGraphExec) && hNode->kind == OBJECT_NODE)
		result = exec_set_child_locked(hGraphExec, hNode, childGraph);
	else
		result = CUDA_ERROR_INVALID_VALUE;
	graphs_unlock();
	return result;
}
