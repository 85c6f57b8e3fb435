/*
 * Arrays, with levels (CUmipmappedArray) or without (CUarray): one struct for both.
 *
 * An array takes its memory when it is made (memory.c, BLOCK_ARRAY), unless it is sparse or mapped
 * later. In these cases memory by handle is bound to it, piece by piece, and each piece is a use of
 * the handle. A level of a mipmapped array is an array without memory, which ends with the whole.
 * Arrays end with their context. They have no contents: data copied to an array is lost.
 *
 * One lock guards all arrays; virtual_lock and memory.c's are taken inside it.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* A piece of the array, and the memory that is bound to it. */
struct array_binding {
	unsigned type; /* subresourceType */
	unsigned long long place[4];
	struct memory_handle *handle;
	struct array_binding *next;
};

struct CUarray_st {
	CUcontext context;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	unsigned levels;
	enum handle_kind kind;
	uint64_t bytes, address; /* 0: it has no memory of its own */
	struct array_binding *bindings;
	struct CUarray_st *parts; /* the levels that the application has asked for, by next */
	unsigned part;            /* the number of this level */
	struct CUarray_st *next;  /* in the context's list */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct CUarray_st *array_find(const void *handle, enum handle_kind kind)
{
	return handle_is(handle, kind) ? (struct CUarray_st *)(uintptr_t)handle : NULL;
}

static void bindings_free(struct CUarray_st *array)
{
	virtual_lock();
	while (array->bindings) {
		struct array_binding *binding = array->bindings;

		array->bindings = binding->next;
		virtual_unuse(binding->handle);
		free(binding);
	}
	virtual_unlock();
}

/* Frees an array that was taken out of its list. */
static void array_free(struct CUarray_st *array)
{
	while (array->parts) {
		struct CUarray_st *part = array->parts;

		array->parts = part->next;
		handle_remove(part);
		free(part);
	}
	handle_remove(array);
	bindings_free(array);
	if (array->address)
		memory_give_array(array->address);
	free(array);
}

static struct CUarray_st *array_new(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				    unsigned levels, enum handle_kind kind)
{
	struct CUarray_st *array = calloc(1, sizeof *array);

	if (!array)
		return NULL;
	array->context = context;
	array->desc = *desc;
	array->levels = levels;
	array->kind = kind;
	array->bytes = array_size(desc, levels);
	if (handle_add(array, kind))
		return array;
	free(array);
	return NULL;
}

static CUresult make_locked(CUcontext context, struct CUarray_st *array, bool takes)
{
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (takes) {
		CUresult result = memory_take(context, array->bytes, BLOCK_ARRAY, &array->address);

		if (result)
			return result;
	}
	array->next = context->arrays;
	context->arrays = array;
	return CUDA_SUCCESS;
}

CUresult array_make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
		    enum handle_kind kind, bool takes, CUarray *ret_array)
{
	const unsigned later = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

	context = context_owner(context);
	if ((desc->Flags & later) == later || !array_size(desc, levels))
		return CUDA_ERROR_INVALID_VALUE;
	struct CUarray_st *array = array_new(context, desc, levels, kind);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	CUresult result = make_locked(context, array, takes && !(desc->Flags & later));
	if (!result)
		*ret_array = array;
	else
		array_free(array);
	pthread_mutex_unlock(&lock);
	return result;
}

void arrays_close(CUcontext context)
{
	pthread_mutex_lock(&lock);
	while (context->arrays) {
		struct CUarray_st *array = context->arrays;

		context->arrays = array->next;
		array_free(array);
	}
	pthread_mutex_unlock(&lock);
}

CUresult array_destroy(const void *handle, enum handle_kind kind)
{
	pthread_mutex_lock(&lock);
	struct CUarray_st *array = array_find(handle, kind);
	if (array) {
		struct CUarray_st **at = &array->context->arrays;

		while (*at != array)
			at = &(*at)->next;
		*at = array->next;
		array_free(array);
	}
	pthread_mutex_unlock(&lock);
	return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult array_requirements(const void *handle, enum handle_kind kind, uint64_t *ret_bytes)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&lock);
	const struct CUarray_st *array = array_find(handle, kind);
	if (array)
		result = array->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING
				 ? CUDA_SUCCESS
				 : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*ret_bytes = array->bytes;
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult array_describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
	pthread_mutex_lock(&lock);
	const struct CUarray_st *array = array_find(handle, HANDLE_ARRAY);
	if (!array)
		array = array_find(handle, HANDLE_LEVEL);
	if (array)
		*ret_desc = array->desc;
	pthread_mutex_unlock(&lock);
	return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult part_locked(struct CUarray_st *whole, unsigned level, CUarray *ret_part)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!whole)
		return CUDA_ERROR_INVALID_HANDLE;
	if (level >= whole->levels)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct CUarray_st *part = whole->parts; part; part = part->next) {
		if (part->part == level) {
			*ret_part = part;
			return CUDA_SUCCESS;
		}
	}
	desc = whole->desc;
	array_level(&desc, level);
	struct CUarray_st *part = array_new(whole->context, &desc, 1, HANDLE_LEVEL);
	if (!part)
		return CUDA_ERROR_OUT_OF_MEMORY;
	part->part = level;
	part->next = whole->parts;
	whole->parts = part;
	*ret_part = part;
	return CUDA_SUCCESS;
}

CUresult array_part(CUmipmappedArray handle, unsigned level, CUarray *ret_part)
{
	pthread_mutex_lock(&lock);
	CUresult result = part_locked(array_find(handle, HANDLE_MIPMAP), level, ret_part);
	pthread_mutex_unlock(&lock);
	return result;
}

/* The place of the piece in the array's list, or the end of the list. */
static struct array_binding **binding_find(struct CUarray_st *array, const CUarrayMapInfo *info)
{
	struct array_binding **at = &array->bindings;

	while (*at && ((*at)->type != info->subresourceType ||
		       memcmp((*at)->place, info->subresource, sizeof info->subresource)))
		at = &(*at)->next;
	return at;
}

/* The new use begins before the old one ends, as both may be of one handle. Under both locks. */
static CUresult bind_locked(struct CUarray_st *array, const CUarrayMapInfo *info)
{
	struct memory_handle *handle = virtual_handle(info->memHandle);
	struct array_binding **at = binding_find(array, info), *binding = *at;
	uint64_t need = array->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? array->bytes : 1;

	if (!handle || !handle->physical || info->offset > handle->bytes ||
	    need > handle->bytes - info->offset)
		return CUDA_ERROR_INVALID_VALUE;
	if (!binding) {
		binding = calloc(1, sizeof *binding);
		if (!binding)
			return CUDA_ERROR_OUT_OF_MEMORY;
		binding->type = info->subresourceType;
		memcpy(binding->place, info->subresource, sizeof binding->place);
		*at = binding;
	}
	virtual_use(handle);
	if (binding->handle)
		virtual_unuse(binding->handle);
	binding->handle = handle;
	return CUDA_SUCCESS;
}

static void unbind_locked(struct CUarray_st *array, const CUarrayMapInfo *info)
{
	struct array_binding **at = binding_find(array, info), *binding = *at;

	if (!binding)
		return;
	*at = binding->next;
	virtual_unuse(binding->handle);
	free(binding);
}

CUresult array_map(const CUarrayMapInfo *info)
{
	const unsigned later = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
	enum handle_kind kind = info->resourceType ? HANDLE_MIPMAP : HANDLE_ARRAY;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	virtual_lock();
	struct CUarray_st *array = array_find(info->resource, kind);
	if (!array || !(array->desc.Flags & later)) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
		result = bind_locked(array, info);
	} else if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
		unbind_locked(array, info);
		result = CUDA_SUCCESS;
	}
	virtual_unlock();
	pthread_mutex_unlock(&lock);
	return result;
}
