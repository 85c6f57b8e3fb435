/*
 * Launches of kernels. Each waits until the pacer admits it (pace.h), and is then submitted to the
 * driver. graph.c does the same for launches of graphs.
 *
 * Work that a captured stream is given is not delayed, measured or charged. It runs when the graph
 * is launched, and the launch of the graph is charged.
 */
#include "launch.h"

#include <errno.h>
#include <stdio.h>

#include "capture.h"
#include "code.h"
#include "cuda.h"
#include "gpu_events.h"
#include "hash.h"
#include "hooks.h"
#include "lazy_code.h"
#include "local.h"
#include "lock.h"
#include "quota.h"
#include "signs.h"
#include "state.h"

/* -- the key of a launch's cost ---------------------------------------------------------------- */

/* Each word changes all bits of the product. Two words are hashed at once, as every launch with a
 * quota waits for the hash. */
uint64_t launch_hash(const uint64_t *words, unsigned pairs)
{
	uint64_t hash = HASH_START;

	for (; pairs; pairs--, words += 2) {
		unsigned __int128 product =
			(unsigned __int128)(hash ^ words[0]) * (HASH_MULTIPLIER ^ words[1]);

		hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	return hash ? hash : 1;
}

/* The low two bits of a pointer to a function or graph are free: here and in launch_name they tell
 * the kinds of work apart. */
struct cost_of launch_of_graph(CUgraphExec graph)
{
	return (struct cost_of){.function = (uintptr_t)graph | 1, .graph = true};
}

uint64_t launch_name(const void *function)
{
	return (uintptr_t)function | 2;
}

static struct cost_of of_function(CUfunction function)
{
	return (struct cost_of){.function = launch_name(function)};
}

static inline struct cost_of of_grid(CUfunction function, unsigned grid_x, unsigned grid_y,
				     unsigned grid_z, unsigned block_x, unsigned block_y,
				     unsigned block_z, unsigned shared_bytes)
{
	const uint64_t words[] = {(uint64_t)grid_x << 32 | grid_y, (uint64_t)grid_z << 32 | block_x,
				  (uint64_t)block_y << 32 | block_z, shared_bytes};

	return (struct cost_of){
		.function = launch_name(function),
		.shape = launch_hash(words, 2),
		.blocks = (uint64_t)grid_x * grid_y * grid_z,
	};
}

static struct cost_of of_config(const CUlaunchConfig *config, CUfunction function)
{
	if (!config)
		return of_function(function);
	return of_grid(function, config->gridDimX, config->gridDimY, config->gridDimZ,
		       config->blockDimX, config->blockDimY, config->blockDimZ,
		       config->sharedMemBytes);
}

static struct cost_of of_params(const CUDA_LAUNCH_PARAMS *params)
{
	return of_grid(params->function, params->gridDimX, params->gridDimY, params->gridDimZ,
		       params->blockDimX, params->blockDimY, params->blockDimZ,
		       params->sharedMemBytes);
}

/* -- the device of a launch -------------------------------------------------------------------- */

CUcontext launch_context(CUstream stream)
{
	CUcontext context = NULL;

	if ((uintptr_t)stream <= PACE_LAST_DEFAULT_STREAM ||
	    cuda.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)
		cuda.cuCtxGetCurrent(&context);
	return context;
}

CUdevice launch_device(CUcontext context)
{
	CUdevice device = quota_only_device();
	CUcontext current = NULL;

	if (device >= 0)
		return device;
	cuda.cuCtxGetCurrent(&current);
	if (current == context)
		return cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
	if (cuda.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return -1;
	if (cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		device = -1;
	cuda.cuCtxPopCurrent_v2(&current);
	return device;
}

/* -- before and after -------------------------------------------------------------------------- */

static enum pace_rule rule_of(enum slice_cores cores)
{
	return cores == SLICE_CORES_FORCE     ? PACE_RULE_FORCE
	       : cores == SLICE_CORES_DISABLE ? PACE_RULE_DISABLE
					      : PACE_RULE_SWITCH;
}

static struct lock attaching = LOCK_INIT, naming = LOCK_INIT;

static void set_named_gang(const char *name)
{
	static char
		path[SLICE_PATH_LEN + sizeof(struct policy_gang)]; /* too much for a small stack */

	lock_acquire(&naming);
	snprintf(path, sizeof(path), "%s/%s", state_slice()->gangs_dir, name);
	pace_set_named_gang(path);
	lock_release(&naming);
}

void launch_set_gang(void)
{
	struct policy_gang gang = slice_gang(state_slice());

	switch (gang.rule) {
	case POLICY_GANG_NAMED:
		set_named_gang(gang.name);
		break;
	case POLICY_GANG_YES:
		pace_set_gang(PACE_GANG_YES);
		break;
	case POLICY_GANG_NO:
		pace_set_gang(PACE_GANG_NO);
		break;
	case POLICY_GANG_FOUND:
		pace_set_gang(PACE_GANG_FOUND);
		break;
	}
}

static struct pace_quota quota_of(int device)
{
	struct quota_cores cores = {0};
	int index = quota_cores(device, &cores);

	return (struct pace_quota){.index = index,
				   .policy_pct = cores.policy_pct,
				   .policy_most_pct = cores.policy_most_pct,
				   .env_pct = cores.env_pct};
}

static void attach(void)
{
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		quotas[device] = quota_of(device);
	lock_acquire(&attaching);
	if (!pace_is_attached()) {
		launch_set_gang();
		pace_set_turns(state_slice()->turns_dir, state_slice()->socket);
		pace_attach(quota_region(), quotas, rule_of(state_slice()->env.cores),
			    &gpu_events_driver);
	}
	lock_release(&attaching);
}

void launch_forked(void)
{
	lock_init(&attaching);
	lock_init(&naming);
	pace_forked();
}

static CUresult lose(void)
{
	state_lose();
	return CUDA_ERROR_NOT_PERMITTED;
}

/* A collective is captured into a graph, which will be launched. The device joins the gang then. */
static void note_captured(CUstream stream, uint64_t function)
{
	CUcontext context = signs_is_collective(function) ? launch_context(stream) : NULL;

	if (context)
		signs_see(launch_device(context));
}

/* A quota applies to the launch: waits until the pacer admits it. */
static CUresult enter(struct launch *launch)
{
	struct pace_work *work = &launch->work;

	work->context = launch_context(work->stream);
	work->device = work->context ? launch_device(work->context) : -1;
	work->collective = signs_launch(work->device, work->what.function) || work->what.graph;
	return pace_enter(&launch->pass, work) == 0 ? CUDA_SUCCESS : lose();
}

/* Whether the thread has a lease for this launch. The context tells the device. If the process uses
 * only one device, the context does not matter. */
static bool is_leased(CUstream stream, bool per_thread, const struct cost_of *what)
{
	if (!pace_has_lease() || capture_any())
		return false;
	return pace_lease(quota_only_device() >= 0 ? NULL : launch_context(stream), stream,
			  per_thread, what);
}

LAUNCH_ASIDE static CUresult ask(struct launch *launch, CUstream stream, bool per_thread,
				 const struct cost_of *what)
{
	bool attached, captured;
	CUresult result;
	int error;

	launch->work =
		(struct pace_work){.stream = stream, .per_thread = per_thread, .what = *what};
	result = state_attach(&attached);
	if (result != CUDA_SUCCESS)
		return result;
	if (attached && !pace_is_attached())
		attach();
	else if (!attached && state_get() == STATE_INERT)
		pace_open();
	error = pace_check_monitor();
	if (error == 0 && !pace_must_enter())
		return CUDA_SUCCESS;
	captured = (error == 0 || error == -EAGAIN) && capture_has(stream, per_thread);
	if (captured) {
		note_captured(stream, what->function);
		return CUDA_SUCCESS;
	}
	if (error == -EAGAIN)
		error = pace_wait_monitor();
	if (error)
		return lose();
	return pace_must_enter() ? enter(launch) : CUDA_SUCCESS;
}

/* The function of a kernel's launch, if the driver may load its code. Other keys are no handles. */
static const void *loads(CUstream stream, const struct cost_of *what)
{
	const void *function;

	if (!lazy_code_any())
		return NULL;
	function = (const void *)(uintptr_t)(what->function & ~(uint64_t)3); /* launch_name */
	return lazy_code_is_awaited(function, stream) ? function : NULL;
}

/* With this launch, the driver may load the kernel's code, and takes local memory for it. A launch
 * that is captured loads nothing. */
static CUresult begin_code(const struct launch *launch, bool per_thread)
{
	CUresult result = CUDA_SUCCESS;

	if (!capture_any() || !capture_has(launch->loads_for, per_thread))
		result = code_admit_handle(launch->loads, launch->loads_for);
	return result == CUDA_SUCCESS ? local_of_launch(launch->loads, launch->loads_for) : result;
}

CUresult launch_begin(struct launch *launch, CUstream stream, bool per_thread,
		      const struct cost_of *what)
{
	CUresult result = CUDA_SUCCESS;

	launch->pass.meter = NULL;
	launch->loads = loads(stream, what);
	launch->loads_for = stream;
	launch->waits = false;
	if (launch->loads && !what->graph)
		result = begin_code(launch, per_thread);
	if (result != CUDA_SUCCESS)
		return result;
	if (is_leased(stream, per_thread, what))
		return CUDA_SUCCESS;
	return ask(launch, stream, per_thread, what);
}

CUresult launch_end(struct launch *launch, CUresult result)
{
	if (launch->pass.meter)
		pace_leave(&launch->pass, &launch->work, result == CUDA_SUCCESS);
	else if (launch->waits)
		pace_waited();
	if (launch->loads)
		lazy_code_launched(launch->loads, launch->loads_for, result == CUDA_SUCCESS);
	return result;
}

/* Where no launch is held back, and code is awaited of some function, name_loading looks whether it
 * is this one's. */
#define LAUNCH(name, stream, per_thread, what, parameters, arguments)                    \
	LAUNCH_HELD(launch_begin, name, stream, per_thread, what, parameters, arguments) \
	LAUNCH_ASIDE static CUresult name##_loading parameters                           \
	{                                                                                \
		CUresult(*go) parameters = name##_held;                                  \
                                                                                         \
		if (!lazy_code_is_awaited(f, stream))                                    \
			go = cuda.name;                                                  \
		return go arguments;                                                     \
	}                                                                                \
	LAUNCH_DOOR(name, lazy_code_any() ? name##_loading : cuda.name, parameters, arguments)

/* The parameters that functions with a grid's shape have in common. */
#define GRID                                                                               \
	CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
		unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,    \
		unsigned int sharedMemBytes, CUstream hStream
#define THE_GRID \
	f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream
#define OF_THE_GRID \
	of_grid(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes)

LAUNCH(cuLaunchKernel, hStream, false, OF_THE_GRID, (GRID, void **kernelParams, void **extra),
       (THE_GRID, kernelParams, extra))
LAUNCH(cuLaunchKernel_ptsz, hStream, true, OF_THE_GRID, (GRID, void **kernelParams, void **extra),
       (THE_GRID, kernelParams, extra))
LAUNCH(cuLaunchCooperativeKernel, hStream, false, OF_THE_GRID, (GRID, void **kernelParams),
       (THE_GRID, kernelParams))
LAUNCH(cuLaunchCooperativeKernel_ptsz, hStream, true, OF_THE_GRID, (GRID, void **kernelParams),
       (THE_GRID, kernelParams))

/* Without a config, the driver refuses the launch. */
static CUstream stream_of_config(const CUlaunchConfig *config)
{
	return config ? config->hStream : NULL;
}

LAUNCH(cuLaunchKernelEx, stream_of_config(config), false, of_config(config, f),
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))
LAUNCH(cuLaunchKernelEx_ptsz, stream_of_config(config), true, of_config(config, f),
       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
       (config, f, kernelParams, extra))

/* The launches of CUDA 2: the shape of the block is a property of the function. */
LAUNCH(cuLaunch, NULL, false, of_function(f), (CUfunction f), (f))
LAUNCH(cuLaunchGrid, NULL, false,
       of_grid(f, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0, 0),
       (CUfunction f, int grid_width, int grid_height), (f, grid_width, grid_height))
LAUNCH(cuLaunchGridAsync, hStream, false,
       of_grid(f, (unsigned)grid_width, (unsigned)grid_height, 1, 0, 0, 0, 0),
       (CUfunction f, int grid_width, int grid_height, CUstream hStream),
       (f, grid_width, grid_height, hStream))

/* -- waits, copies and stalls ------------------------------------------------------------------ */

/* Whether the pacer wants to hear of waits at present. */
static bool hears_of_waits(CUcontext *ret_current)
{
	*ret_current = NULL;
	if (!pace_all_must_enter() || capture_any())
		return false;
	cuda.cuCtxGetCurrent(ret_current);
	return true;
}

void launch_will_wait(bool of_all)
{
	CUcontext current;

	if (hears_of_waits(&current))
		pace_will_wait(current, of_all);
}

void launch_will_look(bool of_all)
{
	CUcontext current;

	if (hears_of_waits(&current))
		pace_will_look(current, of_all);
}

bool launch_has_waited(void)
{
	return pace_all_must_enter() && !capture_any() && pace_has_waited();
}

void launch_will_wait_for(CUstream stream, bool per_thread)
{
	const struct pace_work work = {.stream = stream, .per_thread = per_thread};

	launch_will_wait(pace_is_last(&work));
}

void launch_will_look_at(CUstream stream, bool per_thread)
{
	const struct pace_work work = {.stream = stream, .per_thread = per_thread};

	launch_will_look(pace_is_last(&work));
}

void launch_will_copy(CUstream stream, bool per_thread, uint64_t bytes)
{
	struct pace_work work = {.stream = stream, .per_thread = per_thread};

	if (!pace_all_must_enter() || capture_any())
		return;
	cuda.cuCtxGetCurrent((CUcontext *)&work.context);
	pace_will_copy(&work, bytes);
}

void launch_will_stall(CUstream stream, bool per_thread)
{
	struct pace_work work = {.stream = stream, .per_thread = per_thread};

	if (!pace_all_must_enter() || !pace_is_last(&work) || capture_any())
		return;
	cuda.cuCtxGetCurrent((CUcontext *)&work.context);
	pace_will_stall(&work);
}

/* -- on several devices ------------------------------------------------------------------------ */

static void end_all(struct launch *launches, unsigned count, CUresult result)
{
	while (count)
		launch_end(&launches[--count], result);
}

/* Kernels of a launch on several devices can wait for each other. */
static void note_devices(const CUDA_LAUNCH_PARAMS *list, unsigned count)
{
	for (unsigned i = 0; count > 1 && i < count && i < VGPU_DEVICES_MAX; i++) {
		CUcontext context = launch_context(list[i].hStream);

		if (context)
			signs_see(launch_device(context));
	}
}

/* The launches are admitted one after the other. The driver is called when all are admitted. */
LAUNCH_ASIDE static CUresult launch_many(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags)
{
	struct launch launches[VGPU_DEVICES_MAX];
	unsigned begun = 0;
	CUresult result = CUDA_SUCCESS;

	if (list)
		note_devices(list, count);
	while (list && begun < count && begun < VGPU_DEVICES_MAX && result == CUDA_SUCCESS) {
		struct cost_of what = of_params(&list[begun]);

		result = launch_begin(&launches[begun], list[begun].hStream, false, &what);
		begun += result == CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS && begun == 0) { /* the driver will refuse it */
		const struct cost_of nothing = of_function(NULL);

		result = launch_begin(&launches[begun++], NULL, false, &nothing);
	}
	if (result != CUDA_SUCCESS) {
		end_all(launches, begun, result);
		return result;
	}
	result = cuda.cuLaunchCooperativeKernelMultiDevice(list, count, flags);
	end_all(launches, begun, result);
	return result;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
					      unsigned int numDevices, unsigned int flags)
{
	if (pace_is_open() && !lazy_code_any())
		return cuda.cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices,
								 flags);
	return launch_many(launchParamsList, numDevices, flags);
}
