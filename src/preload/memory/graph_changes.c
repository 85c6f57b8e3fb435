/*
 * Changes of graphs: nodes that are made or changed, and updates of executable graphs.
 *
 * With lazy loading, the driver loads the code of a kernel when a node for it is made, or when the
 * graph is launched. So both make a comparison due (lazy_code.h). A new node may be refused
 * (code.h). The local memory of the kernels
 * is reserved when their functions are handed out (local.h). The driver takes it when the graph is
 * instantiated (seen on an H100 with driver 580).
 */
#include "code.h"
#include "cuda.h"
#include "hooks.h"
#include "launch.h"
#include "lazy_code.h"
#include "pace.h"

/* -- nodes ------------------------------------------------------------------------------------- */

static CUresult noded(CUresult result)
{
	if (result == CUDA_SUCCESS)
		lazy_code_in_node();
	return result;
}

/* A node names its kernel by a function, or by a kernel of a library. */
static CUresult admit_node(CUfunction function, CUkernel kernel)
{
	const void *handle = function ? (const void *)function : (const void *)kernel;

	cuda_bind();
	return handle && lazy_code_any() ? code_admit_handle(handle, NULL) : CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUresult result = admit_node(nodeParams ? nodeParams->func : NULL, NULL);

	if (result != CUDA_SUCCESS)
		return result;
	return noded(cuda.cuGraphAddKernelNode(phGraphNode, hGraph, dependencies, numDependencies,
					       nodeParams));
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = admit_node(nodeParams ? nodeParams->func : NULL,
				     nodeParams ? nodeParams->kern : NULL);

	if (result != CUDA_SUCCESS)
		return result;
	return noded(cuda.cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies,
						  numDependencies, nodeParams));
}

static CUresult admit_any_node(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_KERNEL)
		return admit_node(params->kernel.func, params->kernel.kern);
	cuda_bind();
	return CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = admit_any_node(nodeParams);

	if (result != CUDA_SUCCESS)
		return result;
	return noded(cuda.cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies,
					 nodeParams));
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
			   const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult result = admit_any_node(nodeParams);

	if (result != CUDA_SUCCESS)
		return result;
	return noded(cuda.cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData,
					    numDependencies, nodeParams));
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	cuda_bind();
	return noded(cuda.cuGraphKernelNodeSetParams(hNode, nodeParams));
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	cuda_bind();
	return noded(cuda.cuGraphKernelNodeSetParams_v2(hNode, nodeParams));
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	cuda_bind();
	return noded(cuda.cuGraphNodeSetParams(hNode, nodeParams));
}

/* -- executable graphs ------------------------------------------------------------------------- */

/* The graph was updated: its launches may have another cost, and load other code. */
static CUresult updated(CUresult result, CUgraphExec exec)
{
	const struct cost_of what = launch_of_graph(exec);

	if (result == CUDA_SUCCESS) {
		cost_resample(&what);
		lazy_code_changed(exec);
	}
	return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			   CUgraphExecUpdateResult *updateResult_out)
{
	cuda_bind();
	return updated(cuda.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out),
		       hGraphExec);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
			      CUgraphExecUpdateResultInfo *resultInfo)
{
	cuda_bind();
	return updated(cuda.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo), hGraphExec);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	cuda_bind();
	return updated(cuda.cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams),
		       hGraphExec);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	cuda_bind();
	return updated(cuda.cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams),
		       hGraphExec);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
				  CUgraphNodeParams *nodeParams)
{
	cuda_bind();
	return updated(cuda.cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams), hGraphExec);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					    CUgraph childGraph)
{
	cuda_bind();
	return updated(cuda.cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph),
		       hGraphExec);
}
