/*
 * Host memory that is registered, advice about managed memory, attributes of pointers, peers, and
 * streams that wait. What registration answers was seen on an H100 with driver 580.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>

static void test_registered(void)
{
	static char memory[64 << 10];
	CUdeviceptr address;
	unsigned flags, type;
	void *mine;

	CHECK_EQ(cuMemHostRegister_v2(memory, sizeof memory, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemHostRegister_v2(memory, sizeof memory, 0),
		 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_EQ(cuMemHostRegister_v2(memory + 4096, 1, 0),
		 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_EQ(cuMemHostGetDevicePointer_v2(&address, memory + 8, 0), CUDA_SUCCESS);
	CHECK_EQ(address, (uintptr_t)memory + 8);
	CHECK_EQ(cuMemHostGetFlags(&flags, memory), CUDA_SUCCESS);
	CHECK_EQ(flags, CU_MEMHOSTALLOC_DEVICEMAP);
	CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)memory),
		 CUDA_SUCCESS);
	CHECK_EQ(type, CU_MEMORYTYPE_HOST);
	CHECK_EQ(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemHostUnregister(memory + 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemHostUnregister(memory), CUDA_SUCCESS);
	CHECK_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CHECK_EQ(cuMemHostGetDevicePointer_v2(&address, memory, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemHostAlloc(&mine, 4096, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemHostGetFlags(&flags, mine), CUDA_SUCCESS);
	CHECK_EQ(flags, 1 | CU_MEMHOSTALLOC_DEVICEMAP);
	CHECK_EQ(cuMemHostUnregister(mine), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CHECK_EQ(cuMemFreeHost(mine), CUDA_SUCCESS);
}

static int range_attribute(CUdeviceptr address, CUmem_range_attribute attribute)
{
	int value = 77;

	CHECK_EQ(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, 1), CUDA_SUCCESS);
	return value;
}

static void test_advice(void)
{
	const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	CUdeviceptr address, plain;
	int by[3];

	CHECK_EQ(cuMemAllocManaged(&address, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&plain, MIB), CUDA_SUCCESS);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), -2);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), -2);
	CHECK_EQ(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemAdvise_v2(address, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, host), CUDA_SUCCESS);
	CHECK_EQ(cuMemPrefetchAsync(address, MIB, -1, NULL), CUDA_SUCCESS);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), 1);
	CHECK_EQ(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), -1);
	CHECK_EQ(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address,
					MIB),
		 CUDA_SUCCESS);
	CHECK(by[0] == -1 && by[1] == -2 && by[2] == -2);
	CHECK_EQ(cuMemPrefetchAsync_v2(address, MIB, (CUmemLocation){1, 9}, 0, NULL),
		 CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuMemPrefetchAsync(plain, MIB, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemAdvise(address, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(plain), CUDA_SUCCESS);
}

static void test_pointers(void)
{
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	unsigned type = 9;
	int ordinal = 9;
	CUdeviceptr start = 9, address;
	size_t bytes = 9;
	void *data[] = {&type, &ordinal, &start, &bytes};

	CHECK_EQ(cuMemAlloc_v2(&address, 4 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuPointerGetAttributes(4, attributes, data, address + 100), CUDA_SUCCESS);
	CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
	CHECK_EQ(ordinal, 0);
	CHECK_EQ(start, address);
	CHECK_EQ(bytes, 4 * MIB);
	CHECK_EQ(cuPointerGetAttributes(4, attributes, data, (uintptr_t)&type), CUDA_SUCCESS);
	CHECK_EQ(type, 0);
	CHECK_EQ(ordinal, -2);
	CHECK_EQ(start, 0);
	CHECK_EQ(bytes, 0);
	CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void test_peers(CUcontext first)
{
	CUdeviceptr here, there;
	CUcontext second;
	char back[4] = "";
	int can;

	CHECK_EQ(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
	CHECK_EQ(can, 1);
	CHECK_EQ(cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(can, 0);
	CHECK_EQ(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuCtxCreate_v2(&second, 0, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&there, 4096), CUDA_SUCCESS);
	CHECK_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQ(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_EQ(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	CHECK_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_SUCCESS);
	CHECK_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	CHECK_EQ(cuCtxDisablePeerAccess(second), CUDA_SUCCESS);
	CHECK_EQ(cuMemAlloc_v2(&here, 4096), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyHtoD_v2(here, "abc", 4), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyPeer(there, second, here, first, 4), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyDtoH_v2(back, there, 4), CUDA_SUCCESS);
	CHECK(!strcmp(back, "abc"));
	CHECK_EQ(cuMemFree_v2(here), CUDA_SUCCESS);
	CHECK_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_CONTEXT);
}

static void note(void *data)
{
	*(int *)data += 1;
}

static void test_streams(void)
{
	static const char ptx[] = ".version 7.0\n.visible .entry spin_ns(.param .u64 a) { ret; }\n";
	uint64_t duration_ns = 20000000, start = selftest_now_ns();
	void *parameters[] = {&duration_ns};
	int priority, called = 0, least, greatest;
	CUstream busy, waiting;
	unsigned long long id, other;
	CUfunction spin;
	CUmodule module;
	CUevent event;
	CUdevice device;

	CHECK_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
	CHECK(least == 0 && greatest == -5);
	CHECK_EQ(cuStreamCreateWithPriority(&busy, 1, -9), CUDA_SUCCESS);
	CHECK_EQ(cuStreamGetPriority(busy, &priority), CUDA_SUCCESS);
	CHECK_EQ(priority, -5);
	CHECK_EQ(cuStreamCreate(&waiting, 1), CUDA_SUCCESS);
	CHECK_EQ(cuStreamGetId(busy, &id), CUDA_SUCCESS);
	CHECK_EQ(cuStreamGetId(waiting, &other), CUDA_SUCCESS);
	CHECK(id != other);
	CHECK_EQ(cuStreamGetDevice(busy, &device), CUDA_SUCCESS);
	CHECK_EQ(device, 0);
	CHECK_EQ(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
	CHECK_EQ(cuModuleGetFunction(&spin, module, "spin_ns"), CUDA_SUCCESS);
	CHECK_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
	CHECK_EQ(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, parameters, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuEventRecordWithFlags(event, busy, 0), CUDA_SUCCESS);
	CHECK_EQ(cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
	CHECK_EQ(cuLaunchHostFunc(waiting, note, &called), CUDA_SUCCESS);
	CHECK_EQ(cuStreamSynchronize(waiting), CUDA_SUCCESS);
	CHECK(selftest_now_ns() - start >= duration_ns);
	CHECK_EQ(called, 1);
	CHECK_EQ(cuStreamBeginCapture_v2(waiting, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
	CHECK_EQ(cuStreamWaitEvent(waiting, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

static void test_textures(void)
{
	CUDA_RESOURCE_DESC resource = {.resType = 2}, back = {0};
	CUDA_TEXTURE_DESC how = {.modes = {0}, .rest = {0}};
	CUdeviceptr address;
	CUtexObject object;

	CHECK_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
	CHECK_EQ(cuTexObjectCreate(&object, &resource, &how, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.resource[0] = (void *)(uintptr_t)address;
	CHECK_EQ(cuTexObjectCreate(&object, &resource, &how, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuTexObjectGetResourceDesc(&back, object), CUDA_SUCCESS);
	CHECK(back.resource[0] == resource.resource[0]);
	CHECK_EQ(cuSurfObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuTexObjectDestroy(object), CUDA_SUCCESS);
	CHECK_EQ(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

int main(void)
{
	selftest_begin("2x8G");
	CUcontext context = selftest_context();
	test_registered();
	test_advice();
	test_pointers();
	test_peers(context);
	test_textures();
	test_streams();
	return 0;
}
