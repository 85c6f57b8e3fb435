/* Graph nodes whose parameters the driver has in another form. */
#include "runtime.h"

static int context_get(CUcontext *ret_context)
{
	return (int)cu.cuCtxGetCurrent(ret_context);
}

int rt_node_kernel(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		   size_t count, const struct cudaKernelNodeParams *parameters)
{
	CUfunction function;
	int error =
		parameters ? rt_function(&function, parameters->func) : (int)cudaErrorInvalidValue;

	if (error)
		return error;
	const CUDA_KERNEL_NODE_PARAMS driver = {
		.func = function,
		.gridDimX = parameters->gridDim.x,
		.gridDimY = parameters->gridDim.y,
		.gridDimZ = parameters->gridDim.z,
		.blockDimX = parameters->blockDim.x,
		.blockDimY = parameters->blockDim.y,
		.blockDimZ = parameters->blockDim.z,
		.sharedMemBytes = parameters->sharedMemBytes,
		.kernelParams = parameters->kernelParams,
		.extra = parameters->extra,
	};
	return (int)cu.cuGraphAddKernelNode_v2(ret_node, graph, dependencies, count, &driver);
}

int rt_node_copy(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		 size_t count, const struct cudaMemcpy3DParms *parameters)
{
	CUDA_MEMCPY3D copy;
	CUcontext context;
	int error = rt_copy_driver(parameters, &copy);

	if (!error)
		error = context_get(&context);
	if (error)
		return error;
	return (int)cu.cuGraphAddMemcpyNode(ret_node, graph, dependencies, count, &copy, context);
}

int rt_node_copy_1d(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		    size_t count, void *target, const void *source, size_t bytes,
		    enum cudaMemcpyKind kind)
{
	const struct cudaMemcpy3DParms parameters = {
		.srcPtr = {(void *)(CUdeviceptr)source, bytes, bytes, 1},
		.dstPtr = {target, bytes, bytes, 1},
		.extent = {bytes, 1, 1},
		.kind = kind,
	};

	return rt_node_copy(ret_node, graph, dependencies, count, &parameters);
}

int rt_node_set(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
		const CUDA_MEMSET_NODE_PARAMS *parameters)
{
	CUcontext context;
	int error = context_get(&context);

	if (error)
		return error;
	return (int)cu.cuGraphAddMemsetNode(ret_node, graph, dependencies, count, parameters,
					    context);
}
