/*
 * What the files of the simulated runtime share: the driver's functions, the thread's state, and
 * the helpers that the rows of runtime.def call. A helper answers a driver's or a runtime's error
 * number (an int, because most numbers are both) and leaves the last error to its caller.
 */
#pragma once

#include <stdbool.h>

#include "runtime_abi.h"

#define RT_VERSION    13000
#define RT_PER_THREAD ((CUstream)2)
#define RT_EXPORT     __attribute__((visibility("default")))

/* The driver's functions, by their exported names. A name that the driver lacks answers
 * CUDA_ERROR_NOT_SUPPORTED. Filled once, by rt_start(). */
struct rt_driver {
#define CU_HOOK(name, class, parameters, arguments) CUresult(*name) parameters;
#define CU_CALL(name, class, parameters)            CUresult(*name) parameters;
#define CU_SIM(name, class, parameters)             CUresult(*name) parameters;
#include "cuda.def"
};
extern struct rt_driver rt_driver;
#define cu rt_driver

/* Rows of runtime.def as declarations. */
#define RT_CALL(name, parameters, call) RT_EXPORT cudaError_t name parameters;
#define RT_INIT(name, parameters, call) RT_EXPORT cudaError_t name parameters;
#define RT_PTSZ(name, parameters, call)        \
	RT_EXPORT cudaError_t name parameters; \
	RT_EXPORT cudaError_t name##_ptsz parameters;
#define RT_PTDS(name, parameters, call)        \
	RT_EXPORT cudaError_t name parameters; \
	RT_EXPORT cudaError_t name##_ptds parameters;
#define RT_OWN(name, result, parameters)  RT_EXPORT result name parameters;
#define RT_HOST(name, result, parameters) RT_EXPORT result name parameters;
#include "runtime.def"

/* driver.c: the driver, and the thread's context. */
int rt_start(void);            /* loads and initializes the driver, once */
int rt_begin(void);            /* the same, and binds a context to the thread */
cudaError_t rt_end(int error); /* keeps an error as the thread's last one */
int rt_context(int device, CUcontext *ret_context); /* a device's primary context, retained */
int rt_bind(int device);                            /* makes a device the thread's */
int rt_device(int *ret_device);                     /* of the thread's context */
int rt_reset(void);
int rt_init_device(int device, unsigned device_flags, unsigned flags);
int rt_set_flags(unsigned flags);
int rt_peer(int device, bool enable, unsigned flags);
int rt_entry_point(const char *symbol, void **ret_function, unsigned version,
		   unsigned long long flags, enum cudaDriverEntryPointQueryResult *ret_status);

/* device.c */
int rt_properties(struct cudaDeviceProp *ret_properties, int device);

/* registry.c: what nvcc's host code registered. rt_kernel() answers a cudaKernel_t with itself. */
int rt_kernel(cudaKernel_t *ret_kernel, const void *entry);
int rt_symbol(const void *symbol, void **ret_address, size_t *ret_bytes);

/* launch.c */
int rt_launch(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
	      CUstream stream, bool cooperative);
int rt_launch_entry(const void *entry, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
		    CUstream stream, bool cooperative);
int rt_launch_config(const cudaLaunchConfig_t *config, const void *entry, void **arguments,
		     CUstream null_stream);
int rt_function(CUfunction *ret_function, const void *entry);
int rt_function_attributes(struct cudaFuncAttributes *ret_attributes, const void *entry);
int rt_function_set(const void *entry, unsigned attribute, int value);
int rt_function_cache(const void *entry, unsigned config);
int rt_function_name(const char **ret_name, const void *entry);
int rt_function_parameter(const void *entry, size_t index, size_t *ret_offset, size_t *ret_bytes);
int rt_occupancy(int *ret_blocks, const void *entry, int threads, size_t shared_bytes,
		 unsigned flags);
int rt_occupancy_shared(size_t *ret_bytes, const void *entry, int blocks, int threads);
int rt_occupancy_cluster(int *ret_value, const void *entry, const cudaLaunchConfig_t *config,
			 CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *));

/* memory.c */
int rt_malloc(void **ret_address, size_t bytes);
int rt_malloc_pitch(void **ret_address, size_t *ret_pitch, size_t width, size_t height);
int rt_malloc_3d(struct cudaPitchedPtr *ret_memory, struct cudaExtent extent);
int rt_pointer_attributes(struct cudaPointerAttributes *ret_attributes, const void *address);
int rt_ipc_open(void **ret_address, const cudaIpcMemHandle_t *handle, unsigned flags);

/* copy.c: one side of a copy is rows in memory, or a place in an array. */
struct rt_side {
	const void *memory;
	size_t pitch, rows; /* bytes from a row to the next, rows of a slice */
	const void *array;
	struct cudaPos at; /* x in bytes */
};
struct rt_side rt_rows(const void *memory, size_t pitch);
struct rt_side rt_in_array(const void *array, size_t x_bytes, size_t y);
int rt_copy(void *target, const void *source, size_t bytes, enum cudaMemcpyKind kind,
	    CUstream stream, bool wait);
int rt_copy_2d(struct rt_side target, struct rt_side source, size_t width, size_t height,
	       enum cudaMemcpyKind kind, CUstream stream, bool wait);
int rt_copy_3d(const struct cudaMemcpy3DParms *parameters, CUstream stream, bool wait);
int rt_copy_3d_peer(const struct cudaMemcpy3DPeerParms *parameters, CUstream stream, bool wait);
int rt_copy_peer(void *target, int target_device, const void *source, int source_device,
		 size_t bytes, CUstream stream, bool wait);
int rt_copy_to_symbol(const void *symbol, const void *source, size_t bytes, size_t offset,
		      enum cudaMemcpyKind kind, CUstream stream, bool wait);
int rt_copy_from_symbol(void *target, const void *symbol, size_t bytes, size_t offset,
			enum cudaMemcpyKind kind, CUstream stream, bool wait);
int rt_copy_driver(const struct cudaMemcpy3DParms *parameters, CUDA_MEMCPY3D *ret_copy);
int rt_set(void *address, int value, size_t bytes, CUstream stream, bool wait);
int rt_set_2d(void *address, size_t pitch, int value, size_t width, size_t height, CUstream stream,
	      bool wait);
int rt_set_3d(const struct cudaPitchedPtr *memory, int value, struct cudaExtent extent,
	      CUstream stream, bool wait);

/* array.c */
int rt_array(cudaArray_t *ret_array, const struct cudaChannelFormatDesc *channels,
	     struct cudaExtent extent, unsigned flags);
int rt_mipmapped(cudaMipmappedArray_t *ret_array, const struct cudaChannelFormatDesc *channels,
		 struct cudaExtent extent, unsigned levels, unsigned flags);
int rt_array_info(struct cudaChannelFormatDesc *ret_channels, struct cudaExtent *ret_extent,
		  unsigned *ret_flags, const void *array);
int rt_texture(cudaTextureObject_t *ret_texture, const struct cudaResourceDesc *resource,
	       const struct cudaTextureDesc *description, const CUDA_RESOURCE_VIEW_DESC *view);
int rt_surface(cudaSurfaceObject_t *ret_surface, const struct cudaResourceDesc *resource);

/* graph.c */
int rt_node_kernel(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		   size_t count, const struct cudaKernelNodeParams *parameters);
int rt_node_copy(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		 size_t count, const struct cudaMemcpy3DParms *parameters);
int rt_node_copy_1d(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
		    size_t count, void *target, const void *source, size_t bytes,
		    enum cudaMemcpyKind kind);
int rt_node_set(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
		const CUDA_MEMSET_NODE_PARAMS *parameters);
