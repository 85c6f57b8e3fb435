/*
 * Virtual memory: addresses. A reservation is address space that no other memory can use. A mapping
 * puts all memory of a handle into a reservation, and makes an entry in the map of addresses
 * (address_map.c) that copies and fills find. The host address is the device address, as with all
 * memory here. Before cuMemSetAccess it cannot be touched.
 *
 * Under virtual_lock.
 */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

struct reservation {
	uint64_t address;
	size_t bytes;
	struct reservation *next;
};

struct mapping {
	struct address_range range; /* first member: an entry at a reserved address is a mapping */
	struct memory_handle *handle;
	unsigned char access[SIM_GPUS_MAX]; /* by device */
};

static struct reservation *reservations; /* virtual_lock */

static struct reservation *reservation_of(uint64_t address, size_t bytes)
{
	for (struct reservation *r = reservations; r; r = r->next) {
		if (address >= r->address && address - r->address < r->bytes &&
		    bytes <= r->bytes - (address - r->address))
			return r;
	}
	return NULL;
}

static struct mapping *mapping_at(uint64_t address)
{
	return reservation_of(address, 1) ? (struct mapping *)address_map_at(address, 1) : NULL;
}

/* Whether the range consists of whole mappings without gaps. */
static bool is_tiled(uint64_t address, size_t bytes)
{
	uint64_t end;

	if (!bytes || __builtin_add_overflow(address, bytes, &end))
		return false;
	while (address < end) {
		const struct mapping *mapping = mapping_at(address);

		if (!mapping || mapping->range.address != address ||
		    mapping->range.bytes > end - address)
			return false;
		address += mapping->range.bytes;
	}
	return true;
}

struct memory_handle *virtual_mapped(uint64_t address)
{
	struct mapping *mapping = mapping_at(address);

	return mapping ? mapping->handle : NULL;
}

static bool reserve(size_t size, size_t alignment, struct reservation *reservation)
{
	uint64_t at = space_map(size, alignment, false);

	if (!at)
		return false;
	mprotect((void *)(uintptr_t)at, size, PROT_NONE);
	*reservation = (struct reservation){.address = at, .bytes = size};
	return true;
}

/* The address that the application asks for is a hint, which is ignored. */
CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	CUresult result = enter(__func__);

	(void)addr;
	if (result)
		return result;
	if (!ptr || flags || !size || size % GRANULE_BYTES || alignment & (alignment - 1))
		return CUDA_ERROR_INVALID_VALUE;
	struct reservation *reservation = malloc(sizeof *reservation);
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!reserve(size, alignment > GRANULE_BYTES ? alignment : GRANULE_BYTES, reservation)) {
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = reservation->address;
	virtual_lock();
	reservation->next = reservations;
	reservations = reservation;
	virtual_unlock();
	return CUDA_SUCCESS;
}

static CUresult address_free_locked(uint64_t address, size_t bytes)
{
	struct reservation **at = &reservations;

	while (*at && (*at)->address != address)
		at = &(*at)->next;
	struct reservation *reservation = *at;
	if (!reservation || reservation->bytes != bytes || address_map_at(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*at = reservation->next;
	munmap((void *)(uintptr_t)address, bytes);
	free(reservation);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	virtual_lock();
	result = address_free_locked(ptr, size);
	virtual_unlock();
	return result;
}

/* Maps the contents. A multicast object has none of its own. */
static bool contents_map(const struct mapping *mapping)
{
	const struct physical *physical = mapping->handle->physical;
	void *at = (void *)(uintptr_t)mapping->range.address;
	size_t bytes = mapping->range.bytes;
	int flags = MAP_FIXED | MAP_NORESERVE;

	if (!physical)
		return true;
	return mmap(at, bytes, PROT_NONE, flags | MAP_SHARED, virtual_contents(),
		    (off_t)physical->offset) == at;
}

static void contents_unmap(const struct mapping *mapping)
{
	mmap((void *)(uintptr_t)mapping->range.address, mapping->range.bytes, PROT_NONE,
	     MAP_FIXED | MAP_NORESERVE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static CUresult map_locked(uint64_t address, size_t bytes, struct memory_handle *handle)
{
	struct mapping *mapping = calloc(1, sizeof *mapping);

	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->handle = handle;
	mapping->range.address = address;
	mapping->range.bytes = bytes;
	mapping->range.device = handle->physical && handle->physical->on_device
					? handle->physical->prop.location.id
					: 0;
	if (!address_map_add(&mapping->range)) {
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!contents_map(mapping)) {
		address_map_remove(&mapping->range);
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	virtual_use(handle);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (flags || !size || ptr % GRANULE_BYTES || size % GRANULE_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *found = virtual_handle(handle);
	if (!found || !reservation_of(ptr, size) || address_map_at(ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (offset || size != found->bytes)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else
		result = map_locked(ptr, size, found);
	virtual_unlock();
	return leave(__func__, result);
}

/* Unmaps the mapping that begins at the address. Returns the address after it. */
static uint64_t unmap_locked(uint64_t address)
{
	struct mapping *mapping = mapping_at(address);

	address += mapping->range.bytes;
	address_map_remove(&mapping->range);
	contents_unmap(mapping);
	virtual_unuse(mapping->handle);
	free(mapping);
	return address;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	virtual_lock();
	if (is_tiled(ptr, size)) {
		for (uint64_t at = ptr; at < ptr + size;)
			at = unmap_locked(at);
	} else {
		result = CUDA_ERROR_INVALID_VALUE;
	}
	virtual_unlock();
	return leave(__func__, result);
}

static void access_set_locked(struct mapping *mapping, CUdevice device, unsigned flags)
{
	unsigned any = 0;

	mapping->access[device] = (unsigned char)flags;
	for (unsigned i = 0; i < SIM_GPUS_MAX; i++)
		any |= mapping->access[i];
	mprotect((void *)(uintptr_t)mapping->range.address, mapping->range.bytes,
		 any ? PROT_READ | PROT_WRITE : PROT_NONE);
	atomic_store(&mapping->range.access, any);
}

static bool access_valid(const CUmemAccessDesc *desc)
{
	unsigned gpu;

	switch (desc->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (!device_gpu(desc->location.id, &gpu))
			return false;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		break; /* the host always has access */
	default:
		return false;
	}
	return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
	       desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
	       desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!access_valid(&desc[i]))
			return CUDA_ERROR_INVALID_VALUE;
	}
	virtual_lock();
	if (!is_tiled(ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = ptr; !result && at < ptr + size;) {
		struct mapping *mapping = mapping_at(at);

		for (size_t i = 0; i < count; i++) {
			if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
				access_set_locked(mapping, desc[i].location.id, desc[i].flags);
		}
		at += mapping->range.bytes;
	}
	virtual_unlock();
	return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    !device_gpu(location->id, &gpu))
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	const struct mapping *mapping = mapping_at(ptr);
	if (mapping)
		*flags = mapping->access[location->id];
	else
		result = CUDA_ERROR_INVALID_VALUE;
	virtual_unlock();
	return result;
}
