/* Launches, and what the driver says of kernels. A cudaKernel_t is launched as a CUfunction. */
#include "runtime.h"

#include <stdint.h>

static bool is_empty(dim3 size)
{
	return !size.x || !size.y || !size.z;
}

/* In a launch, the runtime reports the driver's CUDA_ERROR_INVALID_VALUE as an invalid
 * configuration. */
static int configuration_error(CUresult result)
{
	return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : (int)result;
}

int rt_launch(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
	      CUstream stream, bool cooperative)
{
	CUfunction function = (CUfunction)kernel;
	unsigned shared = (unsigned)shared_bytes;

	if (!kernel)
		return cudaErrorInvalidDeviceFunction;
	if (is_empty(grid) || is_empty(block) || shared_bytes > UINT32_MAX)
		return cudaErrorInvalidConfiguration;
	return configuration_error(
		cooperative
			? cu.cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x,
						       block.y, block.z, shared, stream, arguments)
			: cu.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
					    block.z, shared, stream, arguments, NULL));
}

int rt_launch_entry(const void *entry, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
		    CUstream stream, bool cooperative)
{
	cudaKernel_t kernel;
	int error = rt_kernel(&kernel, entry);

	return error ? error
		     : rt_launch(kernel, grid, block, arguments, shared_bytes, stream, cooperative);
}

static CUlaunchConfig config_driver(const cudaLaunchConfig_t *config, CUstream null_stream)
{
	return (CUlaunchConfig){
		.gridDimX = config->gridDim.x,
		.gridDimY = config->gridDim.y,
		.gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x,
		.blockDimY = config->blockDim.y,
		.blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned)config->dynamicSmemBytes,
		.hStream = config->stream ? config->stream : null_stream,
		.attrs = (CUlaunchAttribute *)config->attrs,
		.numAttrs = config->numAttrs,
	};
}

int rt_launch_config(const cudaLaunchConfig_t *config, const void *entry, void **arguments,
		     CUstream null_stream)
{
	cudaKernel_t kernel;
	int error = config ? rt_kernel(&kernel, entry) : (int)cudaErrorInvalidValue;

	if (error)
		return error;
	if (is_empty(config->gridDim) || is_empty(config->blockDim))
		return cudaErrorInvalidConfiguration;
	CUlaunchConfig driver = config_driver(config, null_stream);
	return configuration_error(
		cu.cuLaunchKernelEx(&driver, (CUfunction)kernel, arguments, NULL));
}

int rt_function(CUfunction *ret_function, const void *entry)
{
	cudaKernel_t kernel;
	int error = rt_kernel(&kernel, entry);

	return error ? error : (int)cu.cuKernelGetFunction(ret_function, kernel);
}

int rt_function_attributes(struct cudaFuncAttributes *ret_attributes, const void *entry)
{
	struct cudaFuncAttributes found = {0};
	int bytes[3] = {0}, device;
	const struct {
		int attribute, *value;
	} rows[] = {
		{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &bytes[0]},
		{CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &bytes[1]},
		{CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &bytes[2]},
		{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &found.maxThreadsPerBlock},
		{CU_FUNC_ATTRIBUTE_NUM_REGS, &found.numRegs},
		{CU_FUNC_ATTRIBUTE_PTX_VERSION, &found.ptxVersion},
		{CU_FUNC_ATTRIBUTE_BINARY_VERSION, &found.binaryVersion},
		{CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &found.cacheModeCA},
		{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &found.maxDynamicSharedSizeBytes},
		{CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &found.preferredShmemCarveout},
		{CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &found.clusterDimMustBeSet},
		{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &found.requiredClusterWidth},
		{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &found.requiredClusterHeight},
		{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &found.requiredClusterDepth},
		{CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
		 &found.clusterSchedulingPolicyPreference},
		{CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
		 &found.nonPortableClusterSizeAllowed},
	};
	cudaKernel_t kernel;
	int error = ret_attributes ? rt_kernel(&kernel, entry) : (int)cudaErrorInvalidValue;

	if (!error)
		error = rt_device(&device);
	for (size_t i = 0; !error && i < sizeof rows / sizeof rows[0]; i++)
		error = (int)cu.cuKernelGetAttribute(
			rows[i].value, (CUfunction_attribute)rows[i].attribute, kernel, device);
	if (error)
		return error;
	found.sharedSizeBytes = (size_t)bytes[0];
	found.constSizeBytes = (size_t)bytes[1];
	found.localSizeBytes = (size_t)bytes[2];
	*ret_attributes = found;
	return cudaSuccess;
}

int rt_function_set(const void *entry, unsigned attribute, int value)
{
	cudaKernel_t kernel;
	int device, error = rt_kernel(&kernel, entry);

	if (!error)
		error = rt_device(&device);
	return error ? error : (int)cu.cuKernelSetAttribute(attribute, value, kernel, device);
}

int rt_function_cache(const void *entry, unsigned config)
{
	cudaKernel_t kernel;
	int device, error = rt_kernel(&kernel, entry);

	if (!error)
		error = rt_device(&device);
	return error ? error : (int)cu.cuKernelSetCacheConfig(kernel, config, device);
}

int rt_function_name(const char **ret_name, const void *entry)
{
	cudaKernel_t kernel;
	int error = rt_kernel(&kernel, entry);

	return error ? error : (int)cu.cuKernelGetName(ret_name, kernel);
}

int rt_function_parameter(const void *entry, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	cudaKernel_t kernel;
	int error = rt_kernel(&kernel, entry);

	return error ? error : (int)cu.cuKernelGetParamInfo(kernel, index, ret_offset, ret_bytes);
}

int rt_occupancy(int *ret_blocks, const void *entry, int threads, size_t shared_bytes,
		 unsigned flags)
{
	CUfunction function;
	int error = rt_function(&function, entry);

	if (error)
		return error;
	return (int)cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
		ret_blocks, function, threads, shared_bytes, flags);
}

int rt_occupancy_shared(size_t *ret_bytes, const void *entry, int blocks, int threads)
{
	CUfunction function;
	int error = rt_function(&function, entry);

	if (error)
		return error;
	return (int)cu.cuOccupancyAvailableDynamicSMemPerBlock(ret_bytes, function, blocks,
							       threads);
}

int rt_occupancy_cluster(int *ret_value, const void *entry, const cudaLaunchConfig_t *config,
			 CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *))
{
	CUfunction function;
	int error = config ? rt_function(&function, entry) : (int)cudaErrorInvalidValue;

	if (error)
		return error;
	CUlaunchConfig driver = config_driver(config, NULL);
	return (int)ask(ret_value, function, &driver);
}
