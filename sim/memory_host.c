/*
 * Page-locked host memory, and what a pointer points to.
 *
 * Host allocations are mappings of their own, kept in a search tree by their range, under one lock.
 * They are not GPU memory and cost none.
 */
#include "sim.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

struct host_range {
	uintptr_t address;
	size_t bytes;
	CUcontext context;
	unsigned flags;  /* of the allocation or registration */
	bool registered; /* memory of the application, which it has registered */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *ranges; /* struct host_range by address; lock */

/* Ranges that overlap are equal, so a range of one byte finds the one that it is in. */
static int range_compare(const void *left, const void *right)
{
	const struct host_range *a = left, *b = right;

	if (a->address + a->bytes <= b->address)
		return -1;
	return a->address >= b->address + b->bytes;
}

static CUresult host_take(const char *function, void **pp, size_t bytes, unsigned flags)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!pp || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	struct host_range *range = malloc(sizeof *range);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!range || at == MAP_FAILED)
		goto refused;
	*range = (struct host_range){(uintptr_t)at, bytes, context, flags, false};
	pthread_mutex_lock(&lock);
	void *node = tsearch(range, &ranges, range_compare);
	pthread_mutex_unlock(&lock);
	if (!node)
		goto refused;
	*pp = at;
	return CUDA_SUCCESS;
refused:
	if (at != MAP_FAILED)
		munmap(at, bytes);
	free(range);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return host_take(__func__, pp, bytesize, 0);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return host_take(__func__, pp, bytesize, 0);
}

/* The flags portable, mapped and write-combined have no effect: all host memory is portable and
 * mapped here. */
CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	const unsigned known = 7;

	return host_take(__func__, Flags & ~known ? NULL : pp, bytesize, Flags);
}

/* Another thread may end the range at any moment, so the caller gets a copy. */
static bool host_find(uintptr_t address, struct host_range *ret_range)
{
	struct host_range key = {.address = address, .bytes = 1};

	pthread_mutex_lock(&lock);
	struct host_range **node = tfind(&key, &ranges, range_compare);
	if (node)
		*ret_range = **node;
	pthread_mutex_unlock(&lock);
	return node != NULL;
}

static CUresult host_register(const char *function, void *p, size_t bytes, unsigned flags)
{
	const unsigned known = 15; /* portable, mapped, memory of a device, read only */
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!p || !bytes || flags & ~known || bytes > UINTPTR_MAX - (uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE;
	struct host_range *range = malloc(sizeof *range);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*range = (struct host_range){(uintptr_t)p, bytes, context, flags, true};
	pthread_mutex_lock(&lock);
	struct host_range **node = tsearch(range, &ranges, range_compare);
	bool added = node && *node == range;
	pthread_mutex_unlock(&lock);
	if (added)
		return CUDA_SUCCESS;
	free(range);
	return node ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return host_register(__func__, p, bytesize, Flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return host_register(__func__, p, bytesize, Flags);
}

/* On an H100, an address inside a registered range that is not its first gets another error. */
CUresult cuMemHostUnregister(void *p)
{
	struct host_range key = {.address = (uintptr_t)p, .bytes = 1}, *range = NULL;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	struct host_range **node = tfind(&key, &ranges, range_compare);
	if (!node) {
		result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	} else if (!(*node)->registered || (*node)->address != key.address) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else {
		range = *node;
		tdelete(range, &ranges, range_compare);
	}
	pthread_mutex_unlock(&lock);
	free(range);
	return result;
}

static CUresult device_pointer(const char *function, uint64_t *ret_address, void *p, unsigned flags)
{
	struct host_range range;
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!ret_address || flags || !host_find((uintptr_t)p, &range))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_address = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	uint64_t address;
	CUresult result = device_pointer(__func__, pdptr ? &address : NULL, p, Flags);

	if (!result)
		*pdptr = address;
	return result;
}

/* An address of more than 32 bits does not fit into the result, and is an error. */
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	uint64_t address;
	CUresult result = device_pointer(__func__, pdptr ? &address : NULL, p, Flags);

	if (!result && address > UINT32_MAX)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*pdptr = (CUdeviceptr_v1)address;
	return result;
}

/* All host memory is mapped, as with unified addresses. */
CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct host_range range;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pFlags || !host_find((uintptr_t)p, &range))
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
	struct host_range key = {.address = (uintptr_t)p, .bytes = 1}, *range = NULL;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	struct host_range **node = tfind(&key, &ranges, range_compare);
	if (node && (*node)->address == key.address && !(*node)->registered) {
		range = *node;
		tdelete(range, &ranges, range_compare);
	}
	pthread_mutex_unlock(&lock);
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	munmap(p, range->bytes);
	free(range);
	return CUDA_SUCCESS;
}

struct pointer {
	CUcontext context; /* NULL for memory of pools and graphs */
	CUdevice device;
	CUmemoryPool pool;
	unsigned type; /* CU_MEMORYTYPE_… */
	bool managed;
	uint64_t address;
	uint64_t start, bytes; /* of the allocation that it points into */
};

static bool pointer_find(uint64_t address, struct pointer *ret_pointer)
{
	struct memory_range range;
	struct host_range host;

	*ret_pointer = (struct pointer){.address = address};
	if (memory_find(address, &range)) {
		ret_pointer->context = range.context;
		ret_pointer->device = range.device;
		ret_pointer->pool = range.pool;
		ret_pointer->type =
			range.kind == BLOCK_SPACE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		ret_pointer->managed = range.kind == BLOCK_MANAGED ||
				       range.kind == BLOCK_SPACE_MANAGED ||
				       range.kind == BLOCK_VARIABLES_MANAGED;
		ret_pointer->start = range.address;
		ret_pointer->bytes = range.bytes;
		return true;
	}
	if (!host_find((uintptr_t)address, &host))
		return false;
	ret_pointer->context = host.context;
	ret_pointer->device = host.context->device;
	ret_pointer->type = CU_MEMORYTYPE_HOST;
	ret_pointer->start = host.address;
	ret_pointer->bytes = host.bytes;
	return true;
}

static CUresult attribute_get(const struct pointer *pointer, CUpointer_attribute attribute,
			      void *data)
{
	bool on_host = pointer->type == CU_MEMORYTYPE_HOST || pointer->managed;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = pointer->context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = pointer->type;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = pointer->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!on_host)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)pointer->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = pointer->managed;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = pointer->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = pointer->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = pointer->start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = pointer->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = pointer->start; /* unique among live allocations */
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* No context has to be current: addresses are unique in a process. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct pointer pointer;
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!data || !pointer_find(ptr, &pointer))
		return leave(__func__, CUDA_ERROR_INVALID_VALUE);
	return leave(__func__, attribute_get(&pointer, attribute, data));
}

/* The answers for a pointer that the driver does not know, by the documentation. */
static void attribute_none(CUpointer_attribute attribute, void *data)
{
	const int invalid_device = -2;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(uint64_t *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = invalid_device;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)data = 0;
		break;
	default:
		break;
	}
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
				void **data, CUdeviceptr ptr)
{
	struct pointer pointer;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!numAttributes || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	bool found = pointer_find(ptr, &pointer);
	for (unsigned i = 0; i < numAttributes; i++) {
		if (!found || attribute_get(&pointer, attributes[i], data[i]))
			attribute_none(attributes[i], data[i]);
	}
	return CUDA_SUCCESS;
}

/* Only SYNC_MEMOPS can be set. It has no effect, as copies are in order anyway. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct pointer pointer;
	CUresult result = enter(__func__);

	if (result)
		return result;
	return value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && pointer_find(ptr, &pointer)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}
