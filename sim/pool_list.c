/*
 * The list of pools, and their attributes.
 *
 * A kind of memory is a location and a type. The default pool of a kind is made at first use, and
 * is never destroyed. It has the current pool of its kind, which at first is the default pool
 * itself. A handle is looked up in the list, so stale handles are recognised. Under the pools lock.
 */
#include "pool.h"

#include <stdlib.h>

static CUresult kind_check(const CUmemLocation *location, CUmemAllocationType type)
{
	unsigned gpu;

	if (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_gpu(location->id, &gpu) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return location->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_INVALID: /* managed memory without a preferred location */
		return type == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_SUCCESS
							      : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult create_locked(const CUmemPoolProps *properties, CUmemoryPool *ret_pool)
{
	bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUmemoryPool pool = calloc(1, sizeof *pool);

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->properties = *properties;
	pool->kind = BLOCK_SPACE_HOST;
	if (on_device) {
		device_gpu(properties->location.id, &pool->gpu);
		pool->kind = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED
				     ? BLOCK_SPACE_MANAGED
				     : BLOCK_SPACE;
	}
	for (unsigned i = 0; i < sizeof pool->reuse / sizeof *pool->reuse; i++)
		pool->reuse[i] = 1;
	if (on_device)
		pool->access[properties->location.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	pool->next = pools;
	pools = pool;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

CUresult pool_create(const CUmemPoolProps *properties, CUmemoryPool *ret_pool)
{
	const unsigned handles_known =
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
	CUresult result = kind_check(&properties->location, properties->allocType);

	if (result)
		return result;
	if (properties->handleTypes & ~handles_known)
		return CUDA_ERROR_INVALID_VALUE;
	pools_lock();
	result = create_locked(properties, ret_pool);
	pools_unlock();
	return result;
}

CUresult pool_import(const CUmemPoolProps *properties, uint64_t object, CUmemoryPool *ret_pool)
{
	pools_lock();
	CUresult result = create_locked(properties, ret_pool);
	if (!result)
		(*ret_pool)->imported = object;
	pools_unlock();
	return result;
}

static bool same_kind(const CUmemPoolProps *properties, const CUmemLocation *location,
		      CUmemAllocationType type)
{
	return properties->allocType == type && properties->location.type == location->type &&
	       (properties->location.id == location->id ||
		location->type == CU_MEM_LOCATION_TYPE_HOST ||
		location->type == CU_MEM_LOCATION_TYPE_INVALID);
}

static CUresult default_locked(const CUmemLocation *location, CUmemAllocationType type,
			       CUmemoryPool *ret_pool)
{
	CUmemPoolProps properties = {.allocType = type, .location = *location};
	CUresult result = kind_check(location, type);

	if (result)
		return result;
	for (CUmemoryPool pool = pools; pool; pool = pool->next) {
		if (pool->is_default && same_kind(&pool->properties, location, type)) {
			*ret_pool = pool;
			return CUDA_SUCCESS;
		}
	}
	result = create_locked(&properties, ret_pool);
	if (result)
		return result;
	(*ret_pool)->is_default = true;
	(*ret_pool)->current = *ret_pool;
	return CUDA_SUCCESS;
}

CUresult pool_default(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool)
{
	pools_lock();
	CUresult result = default_locked(location, type, ret_pool);
	pools_unlock();
	return result;
}

CUresult pool_current(const CUmemLocation *location, CUmemAllocationType type,
		      CUmemoryPool *ret_pool)
{
	CUmemoryPool pool;

	pools_lock();
	CUresult result = default_locked(location, type, &pool);
	if (!result)
		*ret_pool = pool->current;
	pools_unlock();
	return result;
}

CUresult pool_set_current(const CUmemLocation *location, CUmemAllocationType type,
			  CUmemoryPool pool)
{
	CUmemoryPool standard;

	pools_lock();
	CUresult result = default_locked(location, type, &standard);
	if (!result && (!pool_known_locked(pool) || pool->imported ||
			!same_kind(&pool->properties, location, type)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		standard->current = pool;
	pools_unlock();
	return result;
}

CUresult pool_destroy(CUmemoryPool pool)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pools_lock();
	if (pool_known_locked(pool) && !pool->is_default) {
		for (CUmemoryPool other = pools; other; other = other->next) {
			if (other->current == pool)
				other->current = other;
		}
		pool->destroyed = true;
		pool_collect_locked(pool);
		if (!pool->used_bytes && !pool->freed_bytes)
			pool_forget_locked(pool);
		result = CUDA_SUCCESS;
	}
	pools_unlock();
	return result;
}

CUresult pool_properties(CUmemoryPool pool, CUmemPoolProps *ret_properties)
{
	pools_lock();
	bool known = pool_known_locked(pool);
	if (known)
		*ret_properties = pool->properties;
	pools_unlock();
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_trim(CUmemoryPool pool, uint64_t keep_bytes)
{
	pools_lock();
	bool known = pool_known_locked(pool);
	if (known) {
		pool_collect_locked(pool);
		pool_shrink_locked(pool, keep_bytes);
	}
	pools_unlock();
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t *amount(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold_bytes;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->reserved_bytes;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->reserved_high_bytes;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->used_bytes;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->used_high_bytes;
	default:
		return NULL;
	}
}

static bool is_reuse(CUmemPool_attribute attribute)
{
	return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pools_lock();
	const uint64_t *bytes = pool_known_locked(pool) ? amount(pool, attribute) : NULL;
	if (bytes) {
		*(cuuint64_t *)value = *bytes;
		result = CUDA_SUCCESS;
	} else if (pool_known_locked(pool) && is_reuse(attribute)) {
		*(int *)value = pool->reuse[attribute - REUSE_FIRST];
		result = CUDA_SUCCESS;
	}
	pools_unlock();
	return result;
}

static CUresult set_attribute_locked(CUmemoryPool pool, CUmemPool_attribute attribute,
				     const void *value)
{
	if (!pool_known_locked(pool))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_reuse(attribute)) {
		pool->reuse[attribute - REUSE_FIRST] = *(const int *)value != 0;
		return CUDA_SUCCESS;
	}
	uint64_t bytes = amount(pool, attribute) ? *(const cuuint64_t *)value : 1;
	if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold_bytes = bytes;
	else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !bytes)
		pool->reserved_high_bytes = pool->reserved_bytes;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !bytes)
		pool->used_high_bytes = pool->used_bytes;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
	pools_lock();
	CUresult result = set_attribute_locked(pool, attribute, value);
	pools_unlock();
	return result;
}

static bool access_valid(const struct CUmemPoolHandle_st *pool, const CUmemAccessDesc *access)
{
	bool home = pool->kind != BLOCK_SPACE_HOST &&
		    access->location.id == pool->properties.location.id;
	unsigned gpu;

	return access->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       device_gpu(access->location.id, &gpu) &&
	       access->flags <= CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
	       (!home || access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t count)
{
	pools_lock();
	bool valid = pool_known_locked(pool);
	for (size_t i = 0; i < count && valid; i++)
		valid = access_valid(pool, &accesses[i]);
	for (size_t i = 0; i < count && valid; i++)
		pool->access[accesses[i].location.id] = accesses[i].flags;
	pools_unlock();
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_get_access(CUmemoryPool pool, const CUmemLocation *location,
			 CUmemAccess_flags *ret_flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	unsigned gpu;

	pools_lock();
	if (pool_known_locked(pool) && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    device_gpu(location->id, &gpu)) {
		*ret_flags = pool->access[location->id];
		result = CUDA_SUCCESS;
	}
	pools_unlock();
	return result;
}
