/*
 * Texture and surface objects: handles with the description that they were made of. No kernel reads
 * them.
 */
#include "sim.h"

#include <stdlib.h>

struct texture {
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
};

/* The types of resources: array, mipmapped array, linear and pitched memory. */
static bool resource_valid(const CUDA_RESOURCE_DESC *resource)
{
	const void *first = resource->resource[0];
	struct memory_range range;

	switch (resource->resType) {
	case 0:
		return handle_is(first, HANDLE_ARRAY) || handle_is(first, HANDLE_LEVEL);
	case 1:
		return handle_is(first, HANDLE_MIPMAP);
	case 2:
	case 3:
		return memory_find((uintptr_t)first, &range);
	default:
		return false;
	}
}

static CUresult create(const char *function, const CUDA_RESOURCE_DESC *resource,
		       const CUDA_TEXTURE_DESC *texture, enum handle_kind kind,
		       unsigned long long *ret_object)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!ret_object || !resource || (kind == HANDLE_TEXTURE && !texture) ||
	    !resource_valid(resource))
		return CUDA_ERROR_INVALID_VALUE;
	struct texture *object = calloc(1, sizeof *object);
	if (!object || !handle_add(object, kind)) {
		free(object);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	object->resource = *resource;
	if (texture)
		object->texture = *texture;
	*ret_object = (uintptr_t)object;
	return CUDA_SUCCESS;
}

static CUresult enter_object(const char *function, unsigned long long handle, enum handle_kind kind,
			     const void *out, struct texture **ret_object)
{
	struct texture *object = (struct texture *)(uintptr_t)handle;
	CUresult result = enter(function);

	if (result)
		return result;
	if (!out || !handle_is(object, kind))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_object = object;
	return CUDA_SUCCESS;
}

static CUresult destroy(const char *function, unsigned long long handle, enum handle_kind kind)
{
	struct texture *object;
	CUresult result = enter_object(function, handle, kind, function, &object);

	if (result)
		return result;
	handle_remove(object);
	free(object);
	return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			   const CUDA_TEXTURE_DESC *pTexDesc,
			   const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	(void)pResViewDesc;
	return create(__func__, pResDesc, pTexDesc, HANDLE_TEXTURE, pTexObject);
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	return destroy(__func__, texObject, HANDLE_TEXTURE);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	struct texture *object;
	CUresult result = enter_object(__func__, texObject, HANDLE_TEXTURE, pResDesc, &object);

	if (!result)
		*pResDesc = object->resource;
	return result;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	struct texture *object;
	CUresult result = enter_object(__func__, texObject, HANDLE_TEXTURE, pTexDesc, &object);

	if (!result)
		*pTexDesc = object->texture;
	return result;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	return create(__func__, pResDesc, NULL, HANDLE_SURFACE, pSurfObject);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
	return destroy(__func__, surfObject, HANDLE_SURFACE);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	struct texture *object;
	CUresult result = enter_object(__func__, surfObject, HANDLE_SURFACE, pResDesc, &object);

	if (!result)
		*pResDesc = object->resource;
	return result;
}
