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

	CHECK_OK(cuMemHostRegister_v2(memory, sizeof memory, 0));
	CHECK_EQUAL(cuMemHostRegister_v2(memory, sizeof memory, 0),
		    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_EQUAL(cuMemHostRegister_v2(memory + 4096, 1, 0),
		    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_OK(cuMemHostGetDevicePointer_v2(&address, memory + 8, 0));
	CHECK_EQUAL(address, (uintptr_t)memory + 8);
	CHECK_OK(cuMemHostGetFlags(&flags, memory));
	CHECK_EQUAL(flags, CU_MEMHOSTALLOC_DEVICEMAP);
	CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)memory));
	CHECK_EQUAL(type, CU_MEMORYTYPE_HOST);
	CHECK_EQUAL(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemHostUnregister(memory + 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemHostUnregister(memory));
	CHECK_EQUAL(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CHECK_EQUAL(cuMemHostGetDevicePointer_v2(&address, memory, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemHostAlloc(&mine, 4096, 1));
	CHECK_OK(cuMemHostGetFlags(&flags, mine));
	CHECK_EQUAL(flags, 1 | CU_MEMHOSTALLOC_DEVICEMAP);
	CHECK_EQUAL(cuMemHostUnregister(mine), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFreeHost(mine));
}

static int range_attribute(CUdeviceptr address, CUmem_range_attribute attribute)
{
	int value = 77;

	CHECK_OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, 1));
	return value;
}

static void test_advice(void)
{
	const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	CUdeviceptr address, plain;
	int by[3];

	CHECK_OK(cuMemAllocManaged(&address, MIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(cuMemAlloc_v2(&plain, MIB));
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 0);
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), -2);
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), -2);
	CHECK_OK(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CHECK_OK(cuMemAdvise(address, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1));
	CHECK_OK(cuMemAdvise_v2(address, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
	CHECK_OK(cuMemPrefetchAsync(address, MIB, -1, NULL));
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), 1);
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), 1);
	CHECK_EQUAL(range_attribute(address, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), -1);
	CHECK_OK(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address,
					MIB));
	CHECK(by[0] == -1 && by[1] == -2 && by[2] == -2);
	CHECK_EQUAL(cuMemPrefetchAsync_v2(address, MIB, (CUmemLocation){1, 9}, 0, NULL),
		    CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuMemPrefetchAsync(plain, MIB, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAdvise(address, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFree_v2(address));
	CHECK_OK(cuMemFree_v2(plain));
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

	CHECK_OK(cuMemAlloc_v2(&address, 4 * MIB));
	CHECK_OK(cuPointerGetAttributes(4, attributes, data, address + 100));
	CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
	CHECK_EQUAL(ordinal, 0);
	CHECK_EQUAL(start, address);
	CHECK_EQUAL(bytes, 4 * MIB);
	CHECK_OK(cuPointerGetAttributes(4, attributes, data, (uintptr_t)&type));
	CHECK_EQUAL(type, 0);
	CHECK_EQUAL(ordinal, -2);
	CHECK_EQUAL(start, 0);
	CHECK_EQUAL(bytes, 0);
	CHECK_OK(cuMemFree_v2(address));
}

static void test_peers(CUcontext first)
{
	CUdeviceptr here, there;
	CUcontext second;
	char back[4] = "";
	int can;

	CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 1));
	CHECK_EQUAL(can, 1);
	CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 0));
	CHECK_EQUAL(can, 0);
	CHECK_EQUAL(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 1));
	CHECK_OK(cuMemAlloc_v2(&there, 4096));
	CHECK_EQUAL(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_DEVICE);
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_EQUAL(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	CHECK_OK(cuCtxEnablePeerAccess(second, 0));
	CHECK_EQUAL(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	CHECK_OK(cuCtxDisablePeerAccess(second));
	CHECK_OK(cuMemAlloc_v2(&here, 4096));
	CHECK_OK(cuMemcpyHtoD_v2(here, "abc", 4));
	CHECK_OK(cuMemcpyPeer(there, second, here, first, 4));
	CHECK_OK(cuMemcpyDtoH_v2(back, there, 4));
	CHECK(!strcmp(back, "abc"));
	CHECK_OK(cuMemFree_v2(here));
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_EQUAL(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_INVALID_CONTEXT);
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

	CHECK_OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(least == 0 && greatest == -5);
	CHECK_OK(cuStreamCreateWithPriority(&busy, 1, -9));
	CHECK_OK(cuStreamGetPriority(busy, &priority));
	CHECK_EQUAL(priority, -5);
	CHECK_OK(cuStreamCreate(&waiting, 1));
	CHECK_OK(cuStreamGetId(busy, &id));
	CHECK_OK(cuStreamGetId(waiting, &other));
	CHECK(id != other);
	CHECK_OK(cuStreamGetDevice(busy, &device));
	CHECK_EQUAL(device, 0);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, parameters, NULL));
	CHECK_OK(cuEventRecordWithFlags(event, busy, 0));
	CHECK_OK(cuStreamWaitEvent(waiting, event, 0));
	CHECK_OK(cuLaunchHostFunc(waiting, note, &called));
	CHECK_OK(cuStreamSynchronize(waiting));
	CHECK(selftest_now_ns() - start >= duration_ns);
	CHECK_EQUAL(called, 1);
	CHECK_OK(cuStreamBeginCapture_v2(waiting, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK_EQUAL(cuStreamWaitEvent(waiting, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

static void test_textures(void)
{
	CUDA_RESOURCE_DESC resource = {.resType = 2}, back = {0};
	CUDA_TEXTURE_DESC how = {.modes = {0}, .rest = {0}};
	CUdeviceptr address;
	CUtexObject object;

	CHECK_OK(cuMemAlloc_v2(&address, 4096));
	CHECK_EQUAL(cuTexObjectCreate(&object, &resource, &how, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.resource[0] = (void *)(uintptr_t)address;
	CHECK_OK(cuTexObjectCreate(&object, &resource, &how, NULL));
	CHECK_OK(cuTexObjectGetResourceDesc(&back, object));
	CHECK(back.resource[0] == resource.resource[0]);
	CHECK_EQUAL(cuSurfObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuTexObjectDestroy(object));
	CHECK_EQUAL(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFree_v2(address));
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
