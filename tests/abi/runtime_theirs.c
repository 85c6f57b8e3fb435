/*
 * The simulated runtime's tables against a toolkit's cuda_runtime_api.h: prototypes, error numbers,
 * device attributes. A row that differs does not compile, and the compiler names it. Also that
 * structures which the runtime hands to the driver unread have the driver's layout.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layout.h"

/* The header of these is a package of its own. */
#if __has_include(<cuda_profiler_api.h>)
#include <cuda_profiler_api.h>
#endif
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

/* The toolkit declares these for C++ alone, in crt/device_functions.h. */
cudaError_t __cudaGetKernel(cudaKernel_t *, const void *);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
			       size_t sharedMem, cudaStream_t stream);

/* The variants have the parameters of the plain names. */
#define cudaGetDriverEntryPoint_ptsz          cudaGetDriverEntryPoint
#define cudaGetDriverEntryPointByVersion_ptsz cudaGetDriverEntryPointByVersion

#define ROW(name, result, parameters)                                                         \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), \
		       #name " has other parameters in cuda_runtime_api.h");
#define RT_CALL(name, parameters, call)  ROW(name, cudaError_t, parameters)
#define RT_INIT(name, parameters, call)  ROW(name, cudaError_t, parameters)
#define RT_PTSZ(name, parameters, call)  ROW(name, cudaError_t, parameters)
#define RT_PTDS(name, parameters, call)  ROW(name, cudaError_t, parameters)
#define RT_OWN(name, result, parameters) ROW(name, result, parameters)
#include "runtime.def"

#define RT_ERROR(name, value, text) \
	_Static_assert(name == value, #name " has another value in driver_types.h");
#include "errors.def"

#define SIZE(field, name, value)   RT_ERROR(name, value, NULL)
#define NUMBER(field, name, value) RT_ERROR(name, value, NULL)
#define BITS(field, name, value)   RT_ERROR(name, value, NULL)
#include "properties.def"

#define UNREAD(type, driver) \
	_Static_assert(sizeof(type) == sizeof(driver), #type " is no " #driver);
UNREAD(struct cudaMemPoolProps, CUmemPoolProps)
UNREAD(struct cudaMemAccessDesc, CUmemAccessDesc)
UNREAD(struct cudaMemPoolPtrExportData, CUmemPoolPtrExportData)
UNREAD(struct cudaMemAllocNodeParams, CUDA_MEM_ALLOC_NODE_PARAMS_v1)
UNREAD(struct cudaMemsetParams, CUDA_MEMSET_NODE_PARAMS_v1)
UNREAD(struct cudaArrayMemoryRequirements, CUDA_ARRAY_MEMORY_REQUIREMENTS)
UNREAD(struct cudaResourceViewDesc, CUDA_RESOURCE_VIEW_DESC)
UNREAD(struct cudaExternalMemoryHandleDesc, CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
UNREAD(struct cudaExternalMemoryBufferDesc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
UNREAD(cudaGraphEdgeData, CUgraphEdgeData)
UNREAD(cudaGraphInstantiateParams, CUDA_GRAPH_INSTANTIATE_PARAMS)
UNREAD(cudaGraphExecUpdateResultInfo, CUgraphExecUpdateResultInfo)
UNREAD(cudaLaunchAttribute, CUlaunchAttribute)

static const struct layout theirs[] = {
#include "runtime_types.def"
};

int main(void)
{
	return layout_compare(theirs, sizeof(theirs) / sizeof(theirs[0]));
}
