/*
 * Virtual memory: the memory itself, that cuMemCreate makes, and the handles to it.
 *
 *   physical   memory of a GPU; or of the host, which takes no memory of a GPU. It ends with its
 *              last handle
 *   handle     the application's name for physical memory. It lives as long as there are
 *              references (of cuMemCreate, and one of each cuMemRetainAllocationHandle) or uses
 *              (mappings, and bindings to arrays and multicast objects). Without references its
 *              value is invalid, until cuMemRetainAllocationHandle of a mapping returns it again
 *
 * Exported memory becomes an object of the shared state (machine_objects.c), and is imported from
 * there. If the process has the memory already, an import makes a second handle to the same
 * physical memory. The contents of all memory are in one file of the process, each at its place. So
 * they are the same at every address where they are mapped, and stay while they are not mapped.
 *
 * Handles and memory belong to the process, not to a context. virtual_lock guards this file,
 * virtual_map.c and multicast.c; the shared state's lock is taken inside it.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOSES_ON_EXEC 1U /* MFD_CLOEXEC, which glibc has since 2.27, as memfd_create */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int contents = -1;           /* these two: lock */
static struct physical *all_shared; /* by next; lock */
static uint64_t contents_end;       /* places are never given out again */
/* The handle that ended last, or NULL; lock. The next handle has its value: a driver may give a
 * value again. */
static struct memory_handle *ended;

void virtual_lock(void)
{
	pthread_mutex_lock(&lock);
}

void virtual_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

int virtual_contents(void)
{
	return contents;
}

/* Takes a place in the file of contents. */
static bool place_take(uint64_t bytes, uint64_t *ret_offset)
{
	if (contents < 0)
		contents = (int)syscall(SYS_memfd_create, "vgpu-sim", CLOSES_ON_EXEC);
	if (contents < 0 || ftruncate(contents, (off_t)(contents_end + bytes)))
		return false;
	*ret_offset = contents_end;
	contents_end += bytes;
	return true;
}

static struct machine_holding physical_holding(const struct physical *physical)
{
	return (struct machine_holding){
		.memory_bytes = physical->on_device ? physical->bytes : 0,
	};
}

static void shared_forget(const struct physical *physical)
{
	struct physical **at = &all_shared;

	while (*at != physical)
		at = &(*at)->next;
	*at = physical->next;
}

static void physical_put(struct physical *physical)
{
	struct machine_holding holding = physical_holding(physical);

	if (--physical->handles)
		return;
	fallocate(contents, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
		  (off_t)physical->bytes);
	if (physical->shared) {
		shared_forget(physical);
		machine_leave(physical->shared);
	} else {
		machine_give(physical->gpu, &holding);
	}
	free(physical);
}

struct memory_handle *virtual_handle_new(struct physical *physical, size_t bytes)
{
	struct memory_handle *handle = ended ? ended : malloc(sizeof *handle);

	if (!handle)
		return NULL;
	*handle = (struct memory_handle){.references = 1, .bytes = bytes, .physical = physical};
	ended = NULL;
	if (!handle_add(handle, HANDLE_MEMORY)) {
		free(handle);
		return NULL;
	}
	if (physical)
		physical->handles++;
	return handle;
}

struct memory_handle *virtual_handle(CUmemGenericAllocationHandle value)
{
	struct memory_handle *handle = (struct memory_handle *)(uintptr_t)value;

	return handle_is(handle, HANDLE_MEMORY) && handle->references ? handle : NULL;
}

void virtual_use(struct memory_handle *handle)
{
	handle->uses++;
}

static void handle_settle(struct memory_handle *handle)
{
	if (handle->references || handle->uses)
		return;
	handle_remove(handle);
	multicast_close(handle);
	if (handle->shared)
		machine_leave(handle->shared);
	if (handle->physical)
		physical_put(handle->physical);
	free(ended);
	ended = handle;
}

void virtual_unuse(struct memory_handle *handle)
{
	SIM_ASSERT(handle->uses);
	handle->uses--;
	handle_settle(handle);
}

/* Checks the location and the type. Returns the driver's error for others. */
static CUresult prop_check(const CUmemAllocationProp *prop, unsigned *ret_gpu)
{
	*ret_gpu = 0;
	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC
			       ? CUDA_ERROR_NOT_PERMITTED /* there is no fabric */
			       : CUDA_ERROR_NOT_SUPPORTED;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_gpu(prop->location.id, ret_gpu) ? CUDA_SUCCESS
							      : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Makes physical memory and a handle to it. Its granules are taken already, or its object is
 * joined. */
static struct memory_handle *physical_new(const CUmemAllocationProp *prop, unsigned gpu,
					  size_t bytes, uint64_t shared)
{
	struct physical *physical = calloc(1, sizeof *physical);

	if (!physical)
		return NULL;
	*physical = (struct physical){
		.on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
		.gpu = gpu,
		.bytes = bytes,
		.shared = shared,
		.prop = *prop,
	};
	struct memory_handle *handle =
		place_take(bytes, &physical->offset) ? virtual_handle_new(physical, bytes) : NULL;
	if (!handle) {
		free(physical);
		return NULL;
	}
	handle->types = prop->requestedHandleTypes;
	if (shared) {
		physical->next = all_shared;
		all_shared = physical;
	}
	return handle;
}

CUresult virtual_share(struct memory_handle *handle, uint64_t *ret_object)
{
	struct physical *physical = handle->physical;
	uint64_t *shared = physical ? &physical->shared : &handle->shared;
	struct machine_object object = {.span_bytes = handle->bytes};

	if (!*shared) {
		if (physical) {
			object.gpu = physical->gpu;
			object.bytes = physical_holding(physical).memory_bytes;
			object.tag = physical->prop.location.type;
		}
		if (machine_share(&object, shared))
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (physical) {
			physical->next = all_shared;
			all_shared = physical;
		}
	}
	*ret_object = *shared;
	return CUDA_SUCCESS;
}

/* Makes a handle to an object that was joined. */
static struct memory_handle *import(uint64_t id, const struct machine_object *object,
				    CUdevice device)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {(unsigned)object->tag, device},
	};

	if (object->tag)
		return physical_new(&prop, object->gpu, object->span_bytes, id);
	struct memory_handle *handle = virtual_handle_new(NULL, object->span_bytes);
	if (handle) {
		handle->shared = id;
		handle->types = prop.requestedHandleTypes;
		handle->devices = device_count();
	}
	return handle;
}

CUresult virtual_import(uint64_t id, struct memory_handle **ret_handle)
{
	struct physical *known = all_shared;
	struct machine_object object;
	unsigned gpu;
	CUdevice device = 0;

	while (known && known->shared != id)
		known = known->next;
	if (known) {
		*ret_handle = virtual_handle_new(known, known->bytes);
		if (!*ret_handle)
			return CUDA_ERROR_OUT_OF_MEMORY;
		(*ret_handle)->types = known->prop.requestedHandleTypes;
		return CUDA_SUCCESS;
	}
	if (machine_join(id, &object))
		return CUDA_ERROR_INVALID_VALUE;
	while (device_gpu(device, &gpu) && gpu != object.gpu)
		device++;
	bool visible = device_gpu(device, &gpu), whole = object.span_bytes != 0;
	*ret_handle = visible && whole ? import(id, &object, device) : NULL;
	if (*ret_handle)
		return CUDA_SUCCESS;
	machine_leave(id);
	if (!whole)
		return CUDA_ERROR_INVALID_VALUE; /* the object is of an allocation */
	return visible ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!handle || !prop || flags || !size || size % GRANULE_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	result = prop_check(prop, &gpu);
	if (result)
		return result;
	bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	struct machine_holding holding = {.memory_bytes = on_device ? size : 0};
	if (machine_take(gpu, &holding))
		return CUDA_ERROR_OUT_OF_MEMORY;
	virtual_lock();
	struct memory_handle *made = physical_new(prop, gpu, size, 0);
	virtual_unlock();
	if (!made) {
		machine_give(gpu, &holding);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (uintptr_t)made;
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	virtual_lock();
	struct memory_handle *found = virtual_handle(handle);
	if (found) {
		found->references--;
		handle_settle(found);
	}
	virtual_unlock();
	return leave(__func__, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *found = virtual_mapped((uintptr_t)addr);
	if (found) {
		found->references++;
		*handle = (uintptr_t)found;
	}
	virtual_unlock();
	return leave(__func__, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	const struct memory_handle *found = virtual_handle(handle);
	if (found && found->physical)
		*prop = found->physical->prop;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	virtual_unlock();
	return result;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!granularity || !prop || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	result = prop_check(prop, &gpu);
	if (!result)
		*granularity = GRANULE_BYTES;
	return result;
}
