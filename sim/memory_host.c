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

static CUresult host_take(const char *function, void **pp, size_t bytes)
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
	*range = (struct host_range){(uintptr_t)at, bytes, context};
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
	return host_take(__func__, pp, bytesize);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	(void)Flags; /* portable, mapped and write-combined: all of it is, or it makes no difference
		      */
	return host_take(__func__, pp, bytesize);
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
	if (node && (*node)->address == key.address) {
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
	CUcontext context; /* NULL for pools' and graphs' memory */
	CUdevice device;
	CUmemoryPool pool;
	unsigned type; /* CU_MEMORYTYPE_… */
	bool managed;
	uint64_t address;
};

static bool pointer_find(uint64_t address, struct pointer *ret_pointer)
{
	struct host_range key = {.address = (uintptr_t)address, .bytes = 1};
	struct memory_range range;

	*ret_pointer = (struct pointer){.address = address};
	if (memory_find(address, &range)) {
		ret_pointer->context = range.context;
		ret_pointer->device = range.device;
		ret_pointer->pool = range.pool;
		ret_pointer->type =
			range.kind == BLOCK_SPACE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		ret_pointer->managed =
			range.kind == BLOCK_MANAGED || range.kind == BLOCK_SPACE_MANAGED;
		return true;
	}
	pthread_mutex_lock(&lock);
	struct host_range **node = tfind(&key, &ranges, range_compare);
	if (node) {
		ret_pointer->context = (*node)->context;
		ret_pointer->device = (*node)->context->device;
		ret_pointer->type = CU_MEMORYTYPE_HOST;
	}
	pthread_mutex_unlock(&lock);
	return node != NULL;
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
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct pointer pointer;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!data || !pointer_find(ptr, &pointer))
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_get(&pointer, attribute, data);
}
