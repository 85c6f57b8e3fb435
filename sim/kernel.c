/*
 * Kernels: their attributes from the image, attributes that may be set, and occupancy.
 *
 * Occupancy is computed from a GPU's limits and a kernel's registers, threads and shared memory.
 * The limits are an H100's; registers are handed out to a warp in units of 256.
 */
#include "image.h"
#include "sim.h"

enum {
	WARP_THREADS = 32,
	WARP_REGISTERS_UNIT = 256,
	BLOCK_THREADS_MAX = 1024,
	REGISTERS_UNKNOWN = 32, /* assumed for PTX, which is not compiled here */
	CLUSTER_BLOCKS_BIG = 16,
};

static CUresult enter_function(const char *entered, CUfunction function, const void *out)
{
	CUresult result = enter(entered);

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return function && function->kind == OBJECT_FUNCTION ? CUDA_SUCCESS
							     : CUDA_ERROR_INVALID_HANDLE;
}

static CUfunction function_of(CUkernel kernel)
{
	return (CUfunction)(void *)kernel;
}

uint32_t function_local_bytes(CUfunction function)
{
	return function->kernel->local_bytes;
}

static int registers_of(CUfunction function)
{
	return function->kernel->registers ? (int)function->kernel->registers : REGISTERS_UNKNOWN;
}

static int threads_max(CUfunction function)
{
	unsigned threads = function->kernel->threads;

	return threads && threads < BLOCK_THREADS_MAX ? (int)threads : BLOCK_THREADS_MAX;
}

/* The most dynamic shared memory that a launch may ask for, in bytes. */
static int dynamic_shared_max(CUfunction function)
{
	int set = atomic_load(&function->dynamic_shared_bytes);
	int left = SHARED_BYTES_DEFAULT - (int)function->kernel->shared_bytes;

	return set ? set : left > 0 ? left : 0;
}

static CUresult attribute_get(CUfunction function, CUfunction_attribute attribute, int *ret_value)
{
	const struct image_kernel *kernel = function->kernel;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*ret_value = threads_max(function);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*ret_value = (int)kernel->shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*ret_value = (int)kernel->constant_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*ret_value = (int)kernel->local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*ret_value = registers_of(function);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*ret_value = (int)module_ptx_version(function->module);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*ret_value = (int)module_binary_version(function->module);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*ret_value = dynamic_shared_max(function);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*ret_value = atomic_load(&function->carveout_pct);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*ret_value = atomic_load(
			&function->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*ret_value = atomic_load(&function->cluster_big);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*ret_value = atomic_load(&function->cluster_policy);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*ret_value = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute_set(CUfunction function, CUfunction_attribute attribute, int value)
{
	int most = SHARED_BYTES_MAX - (int)function->kernel->shared_bytes;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > most)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&function->dynamic_shared_bytes, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&function->carveout_pct, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		atomic_store(
			&function->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
			value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		atomic_store(&function->cluster_big, value != 0);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		atomic_store(&function->cluster_policy, value);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc || hfunc->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	return attribute_get(hfunc, attrib, pi);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	CUresult result = enter_function(__func__, hfunc, hfunc);

	return result ? result : attribute_set(hfunc, attrib, value);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	CUresult result = enter_function(__func__, function_of(kernel), pi);
	unsigned gpu;

	if (!result && !device_gpu(dev, &gpu))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result ? result : attribute_get(function_of(kernel), attrib, pi);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	CUresult result = enter_function(__func__, function_of(kernel), kernel);
	unsigned gpu;

	if (!result && !device_gpu(dev, &gpu))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result ? result : attribute_set(function_of(kernel), attrib, val);
}

/* Caches have no effect here. */
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	(void)config;
	return enter_function(__func__, hfunc, hfunc);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	CUresult result = enter_function(__func__, function_of(kernel), kernel);
	unsigned gpu;

	(void)config;
	if (!result && !device_gpu(dev, &gpu))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
	(void)config;
	return enter_function(__func__, hfunc, hfunc);
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	CUresult result = enter_function(__func__, hfunc, name);

	if (!result)
		*name = hfunc->kernel->name;
	return result;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	CUresult result = enter_function(__func__, function_of(hfunc), name);

	if (!result)
		*name = function_of(hfunc)->kernel->name;
	return result;
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	CUresult result = enter_function(__func__, hfunc, hmod);

	if (!result)
		*hmod = hfunc->module;
	return result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!function || function->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = function_is_loaded(function, context->gpu) ? CU_FUNCTION_LOADING_STATE_LOADED
							    : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return CUDA_SUCCESS;
}

static CUresult parameter_get(CUfunction function, size_t index, size_t *ret_offset,
			      size_t *ret_bytes)
{
	if (index >= function->kernel->parameter_count)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = function->kernel->parameters[index].offset;
	if (ret_bytes)
		*ret_bytes = function->kernel->parameters[index].bytes;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
			    size_t *paramSize)
{
	CUresult result = enter_function(__func__, func, paramOffset);

	return result ? result : parameter_get(func, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
			      size_t *paramSize)
{
	CUresult result = enter_function(__func__, function_of(kernel), paramOffset);

	return result ? result
		      : parameter_get(function_of(kernel), paramIndex, paramOffset, paramSize);
}

/* -- occupancy -- */

static int warps_of(int threads)
{
	return (threads + WARP_THREADS - 1) / WARP_THREADS;
}

static int blocks_of(CUfunction function, int threads, size_t dynamic_bytes)
{
	int warps = warps_of(threads), unit = WARP_REGISTERS_UNIT;
	int warp_registers = (registers_of(function) * WARP_THREADS + unit - 1) / unit * unit;
	size_t shared = function->kernel->shared_bytes + dynamic_bytes;
	int blocks = SIM_THREADS_PER_MULTIPROCESSOR / (warps * WARP_THREADS);
	int by_registers = REGISTERS_UNIT / warp_registers / warps;

	if (threads > threads_max(function) || shared > SHARED_BYTES_MAX)
		return 0;
	int by_shared = SHARED_BYTES_UNIT / ((int)shared + SHARED_BYTES_RESERVED);
	blocks = blocks < by_registers ? blocks : by_registers;
	blocks = blocks < by_shared ? blocks : by_shared;
	return blocks < BLOCKS_UNIT ? blocks : BLOCKS_UNIT;
}

static CUresult blocks_get(const char *entered, int *ret_blocks, CUfunction function, int threads,
			   size_t dynamic_bytes)
{
	CUresult result = enter_function(entered, function, ret_blocks);

	if (result)
		return result;
	if (threads < 1)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_blocks = blocks_of(function, threads, dynamic_bytes);
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
						     size_t dynamicSMemSize)
{
	return blocks_get(__func__, numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
							      int blockSize, size_t dynamicSMemSize,
							      unsigned int flags)
{
	(void)flags;
	return blocks_get(__func__, numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
						 int numBlocks, int blockSize)
{
	CUresult result = enter_function(__func__, func, dynamicSmemSize);

	if (result)
		return result;
	if (numBlocks < 1 || blockSize < 1)
		return CUDA_ERROR_INVALID_VALUE;
	int bytes = SHARED_BYTES_UNIT / numBlocks - SHARED_BYTES_RESERVED -
		    (int)func->kernel->shared_bytes;
	*dynamicSmemSize = bytes > 0 ? (size_t)bytes : 0;
	return CUDA_SUCCESS;
}

static CUresult best_block(const char *entered, int *ret_grid, int *ret_threads,
			   CUfunction function, CUoccupancyB2DSize dynamic_of, size_t dynamic_bytes,
			   int most)
{
	CUresult result = enter_function(entered, function, ret_grid ? ret_threads : NULL);
	int best = 0, best_threads = 0, best_blocks = 0;

	if (result)
		return result;
	if (most <= 0 || most > threads_max(function))
		most = threads_max(function);
	for (int threads = warps_of(most) * WARP_THREADS; threads > 0; threads -= WARP_THREADS) {
		int tried = threads < most ? threads : most;
		size_t bytes = dynamic_of ? dynamic_of(tried) : dynamic_bytes;
		int blocks = blocks_of(function, tried, bytes);

		if (blocks * tried <= best)
			continue;
		best = blocks * tried;
		best_threads = tried;
		best_blocks = blocks;
	}
	*ret_threads = best_threads;
	*ret_grid = best_blocks * SIM_MULTIPROCESSORS;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
					  CUoccupancyB2DSize blockSizeToDynamicSMemSize,
					  size_t dynamicSMemSize, int blockSizeLimit)
{
	return best_block(__func__, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
			  dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
						   CUfunction func,
						   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
						   size_t dynamicSMemSize, int blockSizeLimit,
						   unsigned int flags)
{
	(void)flags;
	return best_block(__func__, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
			  dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
					    const CUlaunchConfig *config)
{
	CUresult result = enter_function(__func__, func, config ? clusterSize : NULL);

	if (!result)
		*clusterSize =
			atomic_load(&func->cluster_big) ? CLUSTER_BLOCKS_BIG : CLUSTER_BLOCKS_MAX;
	return result;
}

/* Computed as if every cluster had the largest portable size. */
CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
				      const CUlaunchConfig *config)
{
	CUresult result = enter_function(__func__, func, config ? numClusters : NULL);

	if (result)
		return result;
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
	if (!threads || threads > BLOCK_THREADS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*numClusters = blocks_of(func, (int)threads, config->sharedMemBytes) * SIM_MULTIPROCESSORS /
		       CLUSTER_BLOCKS_MAX;
	return CUDA_SUCCESS;
}
