/*
 * The driver as a whole: cuInit, forks, and the checks with which every exported function begins.
 *
 * COLD until cuInit succeeds, then READY for good. A child forked from a READY process is SPOILT:
 * as with the real driver all its calls fail, cuInit too. A child forked earlier starts COLD.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

enum driver_state {
	DRIVER_COLD,
	DRIVER_READY,
	DRIVER_SPOILT,
};

static _Atomic int state =
	DRIVER_COLD; /* written by cuInit, under init_lock, and in a forked child */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	machine_forked();
	backlogs_forked();
	pthread_mutex_init(&init_lock, NULL);
	if (atomic_load(&state) == DRIVER_READY)
		atomic_store(&state, DRIVER_SPOILT);
}

static void fork_watch(void)
{
	pthread_atfork(NULL, NULL, forked);
}

CUresult enter_early(const char *function)
{
	return (CUresult)faults_enter(function);
}

CUresult enter(const char *function)
{
	int fault = faults_enter(function);

	if (fault)
		return (CUresult)fault;
	return atomic_load_explicit(&state, memory_order_acquire) == DRIVER_READY
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult leave(const char *function, CUresult result)
{
	if (atomic_load_explicit(&faults_armed, memory_order_acquire) > 0)
		faults_done(function);
	return result;
}

CUresult enter_context(const char *function, CUcontext *ret_context)
{
	CUresult result = enter(function);

	if (result)
		return result;
	CUcontext context = context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_load_explicit(&context->alive, memory_order_acquire))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_context = context;
	return CUDA_SUCCESS;
}

static CUresult init_locked(void)
{
	const struct sim_config *config = config_get();

	if (atomic_load(&state) == DRIVER_SPOILT)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&state) == DRIVER_READY)
		return CUDA_SUCCESS;
	if (!config)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	CUresult seen = device_discover(config);
	if (seen)
		return seen;
	if (machine_attach())
		return CUDA_ERROR_SYSTEM_NOT_READY;
	if (machine_claim()) {
		machine_detach();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	atomic_store_explicit(&state, DRIVER_READY, memory_order_release);
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags)
{
	CUresult result = enter_early(__func__);

	if (result)
		return result;
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_once(&fork_once, fork_watch);
	pthread_mutex_lock(&init_lock);
	result = init_locked();
	pthread_mutex_unlock(&init_lock);
	return result;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
	CUresult result = enter_early(__func__);
	const struct sim_config *config = config_get();

	if (result)
		return result;
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	if (!config)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	*driverVersion = config->driver_version;
	return CUDA_SUCCESS;
}

static void runtime_refuse(void)
{
	fputs("vgpu-sim: a program with NVIDIA's CUDA runtime (libcudart) asks for the driver's "
	      "private tables, which are not simulated: use the simulator's (sim/README.md)\n",
	      stderr);
}

/* The contents of these tables are not documented. NVIDIA's CUDA runtime needs the table whose UUID
 * begins with these bytes, and fails without it. So a line tells the user why. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	static const unsigned char needed[] = {0x6b, 0xd5, 0xfb, 0x6c};
	static pthread_once_t said = PTHREAD_ONCE_INIT;
	CUresult result = enter_early(__func__);

	if (result)
		return result;
	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memcmp(pExportTableId->bytes, needed, sizeof needed))
		pthread_once(&said, runtime_refuse);
	return CUDA_ERROR_NOT_FOUND;
}
