/*
 * How the simulated runtime reaches the driver, and which context a thread works in.
 *
 * The driver is libcuda.so.1, opened by name, and each function is asked of dlsym() by its exported
 * name. So a program needs no libcuda when it is linked, and a preloaded libvgpu.so answers the
 * calls as it does for NVIDIA's runtime.
 *
 * A thread that has a current context works in it. Another thread gets the primary context of the
 * device that it set last, or of device 0. The process retains each primary context at most once,
 * until cudaDeviceReset(). `lock` guards `primaries`.
 */
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum {
	DEVICES_MAX = 64,
};

struct rt_driver rt_driver; /* written by load() alone, before any other use */

static int start_error; /* written by load() alone */
static pthread_once_t started = PTHREAD_ONCE_INIT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	CUcontext context;
	_Atomic bool retained;
} primaries[DEVICES_MAX]; /* by device; lock for writers */

static _Thread_local struct {
	int device;
	cudaError_t last;
} thread;

static const struct {
	const char *name;
	size_t offset; /* in struct rt_driver */
} functions[] = {
#define CU_HOOK(name, class, parameters, arguments) {#name, offsetof(struct rt_driver, name)},
#define CU_CALL(name, class, parameters)            {#name, offsetof(struct rt_driver, name)},
#define CU_SIM(name, class, parameters)             {#name, offsetof(struct rt_driver, name)},
#include "cuda.def"
};

static CUresult missing(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		start_error = cudaErrorInsufficientDriver;
		return;
	}
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			function = (void *)missing;
		memcpy((char *)&rt_driver + functions[i].offset, &function, sizeof function);
	}
	start_error = (int)cu.cuInit(0);
}

int rt_start(void)
{
	pthread_once(&started, load);
	return start_error;
}

static int device_check(int device)
{
	int count;
	int error = (int)cu.cuDeviceGetCount(&count);

	if (error)
		return error;
	return device >= 0 && device < count && device < DEVICES_MAX ? cudaSuccess
								     : cudaErrorInvalidDevice;
}

int rt_context(int device, CUcontext *ret_context)
{
	int error = device_check(device);

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	if (!primaries[device].retained) {
		error = (int)cu.cuDevicePrimaryCtxRetain(&primaries[device].context, device);
		primaries[device].retained = !error;
	}
	*ret_context = primaries[device].context;
	pthread_mutex_unlock(&lock);
	return error;
}

int rt_bind(int device)
{
	CUcontext context;
	int error = rt_context(device, &context);

	if (error)
		return error;
	thread.device = device;
	return (int)cu.cuCtxSetCurrent(context);
}

/* Whether the context is a primary one that was reset. Its handle comes alive again with it. */
static bool is_reset(CUcontext context)
{
	return context == primaries[thread.device].context && !primaries[thread.device].retained;
}

int rt_begin(void)
{
	CUcontext context = NULL;
	int error = rt_start();

	if (error)
		return error;
	error = (int)cu.cuCtxGetCurrent(&context);
	if (!error && context && !is_reset(context))
		return cudaSuccess;
	return rt_bind(thread.device);
}

cudaError_t rt_end(int error)
{
	if (error)
		thread.last = (cudaError_t)error;
	return (cudaError_t)error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = thread.last;

	thread.last = cudaSuccess;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return thread.last;
}

int rt_device(int *ret_device)
{
	CUcontext context = NULL;

	if (!ret_device)
		return cudaErrorInvalidValue;
	if (cu.cuCtxGetCurrent(&context) || !context || cu.cuCtxGetDevice(ret_device))
		*ret_device = thread.device;
	return cudaSuccess;
}

int rt_reset(void)
{
	int device, error = rt_device(&device);

	if (!error)
		error = device_check(device);
	if (error)
		return error;
	pthread_mutex_lock(&lock);
	if (primaries[device].retained) {
		primaries[device].retained = false;
		error = (int)cu.cuDevicePrimaryCtxReset_v2(device);
		if (!error)
			error = (int)cu.cuDevicePrimaryCtxRelease_v2(device);
	}
	pthread_mutex_unlock(&lock);
	thread.device = device;
	return error ? error : (int)cu.cuCtxSetCurrent(NULL);
}

int rt_init_device(int device, unsigned device_flags, unsigned flags)
{
	CUcontext context;
	int error = device_check(device);

	/* Without cudaInitDeviceFlagsAreValid the device's flags are not given. */
	if (!error && (flags & 1))
		error = (int)cu.cuDevicePrimaryCtxSetFlags_v2(device, device_flags);
	return error ? error : rt_context(device, &context);
}

int rt_set_flags(unsigned flags)
{
	int device, error = rt_device(&device);

	return error ? error : (int)cu.cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

int rt_peer(int device, bool enable, unsigned flags)
{
	CUcontext context;
	int error = rt_context(device, &context);

	if (error)
		return error;
	return (int)(enable ? cu.cuCtxEnablePeerAccess(context, flags)
			    : cu.cuCtxDisablePeerAccess(context));
}

int rt_entry_point(const char *symbol, void **ret_function, unsigned version,
		   unsigned long long flags, enum cudaDriverEntryPointQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult status;
	int error = (int)cu.cuGetProcAddress_v2(symbol, ret_function, (int)version, flags, &status);

	if (ret_status)
		*ret_status = (enum cudaDriverEntryPointQueryResult)status;
	return ret_status && error == cudaErrorSymbolNotFound ? cudaSuccess : error;
}

cudaError_t
cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **funcPtr, unsigned int cudaVersion,
				      unsigned long long flags,
				      enum cudaDriverEntryPointQueryResult *driverStatus)
{
	int error = rt_start();

	if (!flags) /* cudaEnableDefault */
		flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	return rt_end(error ? error
			    : rt_entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus));
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr,
					 unsigned long long flags,
					 enum cudaDriverEntryPointQueryResult *driverStatus)
{
	return cudaGetDriverEntryPointByVersion_ptsz(symbol, funcPtr, RT_VERSION, flags,
						     driverStatus);
}
