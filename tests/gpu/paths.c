#include "paths.h"

#include <stdio.h>
#include <string.h>

static CUstream stream; /* the legacy default one */

static CUmemAllocationProp on_device(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return prop;
}

/* -- blocks -- */

static CUresult take_plain(size_t bytes)
{
	CUdeviceptr address;

	return cuMemAlloc_v2(&address, bytes);
}

static CUresult take_tiny(size_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += 1024)
		result = take_plain(1024);
	return result;
}

/* Sizes that end just behind a granule. */
static CUresult take_uneven(size_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += 4 * MIB)
		result = take_plain(2 * MIB + 1);
	return result;
}

/* Has the device take managed memory, which it does when the memory is used. */
static CUresult use_managed(CUdeviceptr address, size_t bytes)
{
	CUresult result = cuMemsetD8_v2(address, 1, bytes);

	return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static CUresult take_managed(size_t bytes)
{
	CUdeviceptr address;
	CUresult result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);

	return result == CUDA_SUCCESS ? use_managed(address, bytes) : result;
}

/* A managed variable, looked up as the CUDA runtime does. */
static CUresult load_variable(size_t bytes, CUlibrary *ret_library)
{
	CUdeviceptr address;
	CUresult result;
	char text[256];

	snprintf(text, sizeof(text),
		 ".version 8.0\n.target sm_75\n.address_size 64\n"
		 ".visible .global .attribute(.managed) .align 8 .b8 big[%zu];\n",
		 bytes);
	result = cuLibraryLoadData(ret_library, text, NULL, NULL, 0, NULL, NULL, 0);
	if (result == CUDA_SUCCESS)
		result = cuLibraryGetManaged(&address, NULL, *ret_library, "big");
	return result == CUDA_SUCCESS ? use_managed(address, bytes) : result;
}

static CUresult take_variable(size_t bytes)
{
	CUlibrary library;

	return load_variable(bytes, &library);
}

/* Given back at once: it is never refused. */
static CUresult take_and_unload_variable(size_t bytes)
{
	CUlibrary library;
	CUresult result = load_variable(bytes, &library);

	return result == CUDA_SUCCESS ? cuLibraryUnload(library) : result;
}

static CUresult take_pitch(size_t bytes)
{
	CUdeviceptr address;
	size_t pitch;

	return cuMemAllocPitch_v2(&address, &pitch, 1000, bytes / 1024, 4);
}

/* A further context each time, whatever the step. */
static CUresult take_context(size_t bytes)
{
	CUcontext context;

	(void)bytes;
	return cuCtxCreate_v2(&context, 0, 0);
}

/* -- pools -- */

static CUresult take_async(size_t bytes)
{
	CUdeviceptr address;
	CUresult result = cuMemAllocAsync(&address, bytes, stream);

	return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
}

/* Without waiting: what is charged ahead must not count for the end. */
static CUresult take_async_small(size_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr address;

	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += 100 * 1024)
		result = cuMemAllocAsync(&address, 100 * 1024, stream);
	return result;
}

static CUresult take_from_pool(size_t bytes)
{
	static CUmemoryPool pool;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr address;

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	if (!pool)
		result = cuMemPoolCreate(&pool, &props);
	if (result == CUDA_SUCCESS)
		result = cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
	return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
}

/* A pool keeps its half when it is free; then others need the room. */
static CUresult take_after_pool(size_t bytes)
{
	static int filled;
	uint64_t threshold = UINT64_MAX;
	CUdeviceptr addresses[64];
	CUmemoryPool pool;
	CUresult result = CUDA_SUCCESS;

	if (filled++)
		return take_plain(bytes);
	cuDeviceGetDefaultMemPool(&pool, 0);
	cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
	for (int i = 0; i < 64 && result == CUDA_SUCCESS; i++)
		result = cuMemAllocAsync(&addresses[i], 64 * MIB, stream);
	for (int i = 0; i < 64 && result == CUDA_SUCCESS; i++)
		result = cuMemFreeAsync(addresses[i], stream);
	if (result == CUDA_SUCCESS)
		result = cuStreamSynchronize(stream);
	return result == CUDA_SUCCESS ? take_plain(bytes) : result;
}

/* -- virtual memory -- */

static CUresult take_virtual(size_t bytes)
{
	CUmemAllocationProp prop = on_device();
	CUmemGenericAllocationHandle handle;

	return cuMemCreate(&handle, bytes, &prop, 0);
}

/* Mapped, and then released: the mapping keeps it. One in four is unmapped, and goes. */
static CUresult take_mapped(size_t bytes)
{
	static unsigned steps;
	CUmemAllocationProp prop = on_device();
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr address;
	CUresult result = cuMemCreate(&handle, bytes, &prop, 0);

	if (result == CUDA_SUCCESS)
		result = cuMemAddressReserve(&address, bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS)
		result = cuMemMap(address, bytes, 0, handle, 0);
	if (result == CUDA_SUCCESS)
		result = cuMemRelease(handle);
	if (result == CUDA_SUCCESS && steps % 3 == 0) {
		result = cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address);
		if (result == CUDA_SUCCESS)
			result = cuMemRelease(again);
	}
	if (result == CUDA_SUCCESS && steps++ % 4 == 0)
		result = cuMemUnmap(address, bytes);
	return result;
}

/* -- arrays -- */

static CUresult take_array(size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 16384, .Format = CU_AD_FORMAT_FLOAT};
	CUarray array;

	descriptor.Height = bytes / 16384 / 4;
	descriptor.NumChannels = 1;
	return cuArrayCreate_v2(&array, &descriptor);
}

static CUresult take_array3d(size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 1024, .Height = 1024};
	CUarray array;

	descriptor.Depth = bytes / MIB / 4;
	descriptor.Format = CU_AD_FORMAT_FLOAT;
	descriptor.NumChannels = 1;
	return cuArray3DCreate_v2(&array, &descriptor);
}

static CUresult take_mipmapped(size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 4096, .Format = CU_AD_FORMAT_HALF};
	CUmipmappedArray array;

	descriptor.Height = bytes / 4096 / 4;
	descriptor.NumChannels = 2;
	return cuMipmappedArrayCreate(&array, &descriptor, 1);
}

/* Compressed, layered, of 1/3 MiB: several to a granule. */
static CUresult take_small_arrays(size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 512, .Height = 512, .Depth = 2};
	CUresult result = CUDA_SUCCESS;
	CUarray array;

	descriptor.Format = CU_AD_FORMAT_BC1_UNORM;
	descriptor.NumChannels = 4;
	descriptor.Flags = CUDA_ARRAY3D_LAYERED;
	for (size_t taken = 0; taken < bytes && result == CUDA_SUCCESS; taken += MIB / 4)
		result = cuArray3DCreate_v2(&array, &descriptor);
	return result;
}

/* -- graphs -- */

static CUresult run(CUgraph graph)
{
	CUgraphExec exec;
	CUresult result = cuGraphInstantiateWithFlags(&exec, graph, 0);

	if (result == CUDA_SUCCESS)
		result = cuGraphLaunch(exec, stream);
	return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
}

static CUresult take_graph(size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = bytes};
	CUgraphNode node;
	CUgraph graph;
	CUresult result = cuGraphCreate(&graph, 0);

	params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	if (result == CUDA_SUCCESS)
		result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
	return result == CUDA_SUCCESS ? run(graph) : result;
}

/* What a capture makes of cuMemAllocAsync. */
static CUresult take_captured(size_t bytes)
{
	static CUstream own;
	CUdeviceptr address;
	CUgraph graph;
	CUresult result = own ? CUDA_SUCCESS : cuStreamCreate(&own, 1);

	if (result == CUDA_SUCCESS)
		result = cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_GLOBAL);
	if (result == CUDA_SUCCESS)
		result = cuMemAllocAsync(&address, bytes, own);
	if (result == CUDA_SUCCESS)
		result = cuStreamEndCapture(own, &graph);
	return result == CUDA_SUCCESS ? run(graph) : result;
}

/* -- the driver's own -- */

static CUresult take_stack(size_t bytes)
{
	static size_t stack = 1024;

	(void)bytes;
	stack += 256;
	return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack);
}

const struct path paths[] = {
	{"alloc", take_plain},
	{"tiny", take_tiny},
	{"uneven", take_uneven},
	{"managed", take_managed},
	{"pitch", take_pitch},
	{"context", take_context},
	{"async", take_async},
	{"async-small", take_async_small},
	{"pool", take_from_pool},
	{"after-pool", take_after_pool},
	{"vmm", take_virtual},
	{"mapped", take_mapped},
	{"array", take_array},
	{"array3d", take_array3d},
	{"mipmap", take_mipmapped},
	{"small-arrays", take_small_arrays},
	{"graph", take_graph},
	{"captured", take_captured},
	{"stack", take_stack},
	{"variable", take_variable},
	{"variable-unloaded", take_and_unload_variable},
	{NULL, NULL},
};
