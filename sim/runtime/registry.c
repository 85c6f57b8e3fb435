/*
 * The registry of fatbins, and of their kernels and variables. nvcc's host code registers these
 * when a program or a library starts, by addresses of its own.
 *
 * A fatbin becomes a library of the driver (cuLibraryLoadData) when something in it is first asked
 * for. A library is of no context, so cudaSetDevice() and cudaDeviceReset() leave it as it is.
 *
 * `lock` guards everything here. It is held over calls of the driver, which never call back.
 */
#include "runtime.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	BUCKETS = 4096,
};

struct fatbin_wrapper { /* what the host code passes: fatbinary_section.h */
	int magic, version;
	const void *data;
	void *filename_or_fatbins;
};

struct fatbin {
	const void *wrapper;
	CUlibrary library; /* NULL: not loaded yet */
	struct managed *managed;
};

struct entry {
	const void *address; /* the address of the host's function or variable */
	const char *name;    /* the device's */
	struct fatbin *fatbin;
	bool is_managed;
	CUkernel kernel; /* NULL: not asked for yet */
	struct entry *next;
};

struct managed {
	void **host;
	const char *name;
	struct managed *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS]; /* lock */

static _Thread_local struct call_configuration {
	dim3 grid, block;
	size_t shared_bytes;
	CUstream stream;
	struct call_configuration *below;
} * configurations;

static struct entry **bucket_of(const void *address)
{
	return &buckets[((uintptr_t)address >> 2) % BUCKETS];
}

/* These calls cannot return an error. A program that has no memory here cannot start. */
static void *must_allocate(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		abort();
	return memory;
}

void **__cudaRegisterFatBinary(void *fatCubin)
{
	struct fatbin *fatbin = must_allocate(sizeof *fatbin);

	fatbin->wrapper = fatCubin;
	return (void **)fatbin;
}

void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
	(void)fatCubinHandle;
}

void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
	struct fatbin *fatbin = (struct fatbin *)fatCubinHandle;

	if (!fatbin)
		return;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct entry **at = &buckets[i]; *at;) {
			struct entry *entry = *at;

			if (entry->fatbin != fatbin) {
				at = &entry->next;
				continue;
			}
			*at = entry->next;
			free(entry);
		}
	}
	while (fatbin->managed) {
		struct managed *managed = fatbin->managed;

		fatbin->managed = managed->next;
		free(managed);
	}
	if (fatbin->library)
		cu.cuLibraryUnload(fatbin->library);
	pthread_mutex_unlock(&lock);
	free(fatbin);
}

static void add_locked(struct fatbin *fatbin, const void *address, const char *name,
		       bool is_managed)
{
	struct entry *entry = must_allocate(sizeof *entry);
	struct entry **bucket = bucket_of(address);

	entry->address = address;
	entry->name = name;
	entry->fatbin = fatbin;
	entry->is_managed = is_managed;
	entry->next = *bucket;
	*bucket = entry;
}

static void add(void **handle, const void *address, const char *name)
{
	pthread_mutex_lock(&lock);
	add_locked((struct fatbin *)handle, address, name, false);
	pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
			    const char *deviceName, int thread_limit, void *tid, void *bid,
			    void *bDim, void *gDim, int *wSize)
{
	(void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim;
	(void)wSize;
	add(fatCubinHandle, hostFun, deviceName);
}

void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress,
		       const char *deviceName, int ext, size_t size, int constant, int global)
{
	(void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
	add(fatCubinHandle, hostVar, deviceName);
}

/* The host reads a managed variable through a pointer. __cudaInitModule() stores the variable's
 * address there. */
void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
			      const char *deviceName, int ext, size_t size, int constant,
			      int global)
{
	struct managed *managed = must_allocate(sizeof *managed);
	struct fatbin *fatbin = (struct fatbin *)fatCubinHandle;

	(void)deviceAddress, (void)ext, (void)size, (void)constant, (void)global;
	managed->host = hostVarPtrAddress;
	managed->name = deviceName;
	managed->next = fatbin->managed;
	fatbin->managed = managed;
}

static int load_locked(struct fatbin *fatbin)
{
	if (fatbin->library)
		return cudaSuccess;
	return (int)cu.cuLibraryLoadData(&fatbin->library, fatbin->wrapper, NULL, NULL, 0, NULL,
					 NULL, 0);
}

char __cudaInitModule(void **fatCubinHandle)
{
	struct fatbin *fatbin = (struct fatbin *)fatCubinHandle;
	int error = rt_begin();
	size_t bytes;

	pthread_mutex_lock(&lock);
	if (!error)
		error = load_locked(fatbin);
	for (struct managed *at = fatbin->managed; !error && at; at = at->next) {
		CUdeviceptr address;

		error = (int)cu.cuLibraryGetManaged(&address, &bytes, fatbin->library, at->name);
		if (error || *at->host == (void *)address)
			continue;
		*at->host = (void *)address;
		add_locked(fatbin, *at->host, at->name, true);
	}
	pthread_mutex_unlock(&lock);
	return rt_end(error) == cudaSuccess;
}

static struct entry *find_locked(const void *address)
{
	struct entry *entry = *bucket_of(address);

	while (entry && entry->address != address)
		entry = entry->next;
	return entry;
}

int rt_kernel(cudaKernel_t *ret_kernel, const void *entry)
{
	const char *name;
	int error = cudaSuccess;

	if (!ret_kernel)
		return cudaErrorInvalidValue;
	pthread_mutex_lock(&lock);
	struct entry *found = find_locked(entry);
	if (found && !found->kernel) {
		error = load_locked(found->fatbin);
		if (!error)
			error = (int)cu.cuLibraryGetKernel(&found->kernel, found->fatbin->library,
							   found->name);
	}
	CUkernel kernel = found ? found->kernel : (CUkernel)(uintptr_t)entry;
	pthread_mutex_unlock(&lock);
	if (error)
		return error == cudaErrorSymbolNotFound ? cudaErrorInvalidDeviceFunction : error;
	/* An address that nobody registered may be a cudaKernel_t. The simulated driver tells its
	 * handles from other addresses. */
	if (!found && (!entry || cu.cuKernelGetName(&name, kernel)))
		return cudaErrorInvalidDeviceFunction;
	*ret_kernel = kernel;
	return cudaSuccess;
}

int rt_symbol(const void *symbol, void **ret_address, size_t *ret_bytes)
{
	int error = cudaErrorInvalidSymbol;

	if (!ret_address || !ret_bytes)
		return cudaErrorInvalidValue;
	pthread_mutex_lock(&lock);
	struct entry *entry = find_locked(symbol);
	if (entry)
		error = load_locked(entry->fatbin);
	if (!error)
		error = (int)(entry->is_managed
				      ? cu.cuLibraryGetManaged((void *)ret_address, ret_bytes,
							       entry->fatbin->library, entry->name)
				      : cu.cuLibraryGetGlobal((void *)ret_address, ret_bytes,
							      entry->fatbin->library, entry->name));
	pthread_mutex_unlock(&lock);
	return error == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : error;
}

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, CUstream stream)
{
	struct call_configuration *configuration = malloc(sizeof *configuration);

	if (!configuration)
		return (unsigned)rt_end(cudaErrorMemoryAllocation);
	*configuration =
		(struct call_configuration){gridDim, blockDim, sharedMem, stream, configurations};
	configurations = configuration;
	return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
				       void *stream)
{
	struct call_configuration *configuration = configurations;

	if (!configuration)
		return rt_end(cudaErrorMissingConfiguration);
	*gridDim = configuration->grid;
	*blockDim = configuration->block;
	*sharedMem = configuration->shared_bytes;
	*(CUstream *)stream = configuration->stream;
	configurations = configuration->below;
	free(configuration);
	return cudaSuccess;
}
