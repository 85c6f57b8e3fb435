/*
 * The driver's functions that launch kernels, over timeline.c. All of them queue the same kind of
 * work. Attributes of a launch have no effect here, nor does a cooperative launch.
 */
#include "sim.h"

#include <string.h>

enum {
	BLOCK_THREADS_MAX = 1024,
	LAUNCH_BUFFER_POINTER = 1, /* CU_LAUNCH_PARAM_BUFFER_POINTER */
};

/* The i-th parameter of a kernel whose parameters all have 64 bits, in either way of passing them.
 */
static const uint64_t *parameter_of(unsigned i, void **parameters, void **extra)
{
	if (parameters)
		return parameters[i];
	for (; extra && *extra; extra += 2) {
		if ((uintptr_t)extra[0] == LAUNCH_BUFFER_POINTER)
			return (const uint64_t *)extra[1] + i;
	}
	return NULL;
}

static bool shape_valid(const unsigned shape[6])
{
	const unsigned *block = shape + 3;

	for (int i = 0; i < 6; i++) {
		if (!shape[i])
			return false;
	}
	return (uint64_t)block[0] * block[1] <= BLOCK_THREADS_MAX &&
	       (uint64_t)block[0] * block[1] * block[2] <= BLOCK_THREADS_MAX;
}

/* The parameters of `collective`: communicator, ranks, nanoseconds. */
static CUresult collective_read(void **parameters, void **extra, struct graph_work *work)
{
	const uint64_t *communicator = parameter_of(0, parameters, extra);

	if (!communicator)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t ranks = *parameter_of(1, parameters, extra);
	if (!*communicator || !ranks || ranks > MACHINE_RANKS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	work->communicator = *communicator;
	work->ranks = (unsigned)ranks;
	work->duration_ns = *parameter_of(2, parameters, extra);
	return CUDA_SUCCESS;
}

CUresult kernel_work(CUfunction function, const unsigned shape[6], void **parameters, void **extra,
		     struct graph_work *ret_work)
{
	if (!function || function->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!shape_valid(shape))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_work = (struct graph_work){.type = CU_GRAPH_NODE_TYPE_KERNEL, .function = function};
	if (function->collects)
		return collective_read(parameters, extra, ret_work);
	if (!function->spins)
		return CUDA_SUCCESS;
	const uint64_t *duration_ns = parameter_of(0, parameters, extra);
	if (!duration_ns)
		return CUDA_ERROR_INVALID_VALUE;
	ret_work->duration_ns = *duration_ns;
	return CUDA_SUCCESS;
}

/* The code is loaded in the context of the stream, also for a launch that is captured. */
static CUresult launch(CUstream stream, CUfunction f, const unsigned shape[6], void **parameters,
		       void **extra)
{
	struct graph_work work;
	bool capturing;
	CUresult result = function_load(f, stream->context->gpu);

	if (!result)
		result = kernel_work(f, shape, parameters, extra, &work);
	if (!result)
		result = capture_enter(stream, &capturing);
	if (result)
		return result;
	if (capturing)
		return capture_work(stream, &work);
	result = context_take_local(stream->context, function_local_bytes(f));
	if (result)
		return result;
	if (work.ranks)
		return backlog_work(stream, &work);
	stream_launch(stream, work.duration_ns);
	return CUDA_SUCCESS;
}

/* A launch as the application asks for it. */
struct request {
	CUfunction function;
	unsigned shape[6];
	CUstream stream;
	bool per_thread; /* NULL is the default stream of the thread */
	void **parameters, **extra;
};

static CUresult enter_launch(const char *entered, const struct request *request)
{
	CUcontext context;
	CUstream stream;
	CUresult result = enter_context(entered, &context);

	if (!result)
		result = stream_resolve(context, request->stream, request->per_thread, &stream);
	if (result)
		return result;
	return leave(entered, launch(stream, request->function, request->shape, request->parameters,
				     request->extra));
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
			unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
			unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
			void **kernelParams, void **extra)
{
	const struct request request = {
		f,
		{gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ},
		hStream,
		false,
		kernelParams,
		extra,
	};

	(void)sharedMemBytes;
	return enter_launch(__func__, &request);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
			     unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
			     unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
			     void **kernelParams, void **extra)
{
	const struct request request = {
		f,
		{gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ},
		hStream,
		true,
		kernelParams,
		extra,
	};

	(void)sharedMemBytes;
	return enter_launch(__func__, &request);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				   unsigned int gridDimZ, unsigned int blockDimX,
				   unsigned int blockDimY, unsigned int blockDimZ,
				   unsigned int sharedMemBytes, CUstream hStream,
				   void **kernelParams)
{
	const struct request request = {
		f,
		{gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ},
		hStream,
		false,
		kernelParams,
		NULL,
	};

	(void)sharedMemBytes;
	return enter_launch(__func__, &request);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
					unsigned int gridDimZ, unsigned int blockDimX,
					unsigned int blockDimY, unsigned int blockDimZ,
					unsigned int sharedMemBytes, CUstream hStream,
					void **kernelParams)
{
	const struct request request = {
		f,
		{gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ},
		hStream,
		true,
		kernelParams,
		NULL,
	};

	(void)sharedMemBytes;
	return enter_launch(__func__, &request);
}

/* The error of a launch that is refused for `why`. An error on entry comes first. */
static CUresult refuse(const char *entered, CUresult why)
{
	CUresult result = enter(entered);

	return result ? result : why;
}

static CUresult launch_config(const char *entered, const CUlaunchConfig *config, CUfunction f,
			      bool per_thread, void **parameters, void **extra)
{
	if (!config)
		return refuse(entered, CUDA_ERROR_INVALID_VALUE);
	const struct request request = {
		f,
		{config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
		 config->blockDimY, config->blockDimZ},
		config->hStream,
		per_thread,
		parameters,
		extra,
	};
	return enter_launch(entered, &request);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
			  void **extra)
{
	return launch_config(__func__, config, f, false, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
			       void **extra)
{
	return launch_config(__func__, config, f, true, kernelParams, extra);
}

/* One launch on each stream. On the real driver each stream is of another device. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
					      unsigned int numDevices, unsigned int flags)
{
	CUresult result = enter(__func__);

	(void)flags;
	if (!result && (!launchParamsList || !numDevices))
		result = CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; !result && i < numDevices; i++) {
		const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];
		const unsigned shape[] = {one->gridDimX,  one->gridDimY,  one->gridDimZ,
					  one->blockDimX, one->blockDimY, one->blockDimZ};

		if ((uintptr_t)one->hStream <= 2) /* a default stream does not tell the device */
			return CUDA_ERROR_INVALID_HANDLE;
		if (atomic_load(&one->hStream->kind) != OBJECT_STREAM)
			return CUDA_ERROR_INVALID_HANDLE;
		result = launch(one->hStream, one->function, shape, one->kernelParams, NULL);
	}
	return result;
}

/* -- as it was in CUDA 2: block and parameters are set before -- */

static CUresult enter_function(const char *entered, CUfunction function)
{
	CUresult result = enter(entered);

	if (result)
		return result;
	return function && function->kind == OBJECT_FUNCTION ? CUDA_SUCCESS
							     : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	const unsigned shape[] = {1, 1, 1, (unsigned)x, (unsigned)y, (unsigned)z};
	CUresult result = enter_function(__func__, hfunc);

	if (result)
		return result;
	if (x < 1 || y < 1 || z < 1 || !shape_valid(shape))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(hfunc->block, shape + 3, sizeof(hfunc->block));
	return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	(void)numbytes;
	return enter_function(__func__, hfunc);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	CUresult result = enter_function(__func__, hfunc);

	if (result)
		return result;
	if (!ptr || offset < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset == 0 && numbytes == sizeof(hfunc->parameter))
		memcpy(&hfunc->parameter, ptr, numbytes);
	return CUDA_SUCCESS;
}

static CUresult launch_set(const char *entered, CUfunction f, int width, int height,
			   CUstream stream)
{
	if (!f || f->kind != OBJECT_FUNCTION)
		return refuse(entered, CUDA_ERROR_INVALID_HANDLE);
	if (width < 1 || height < 1)
		return refuse(entered, CUDA_ERROR_INVALID_VALUE);
	void *parameters[] = {&f->parameter};
	const struct request request = {
		f,
		{(unsigned)width, (unsigned)height, 1, f->block[0], f->block[1], f->block[2]},
		stream,
		false,
		parameters,
		NULL,
	};
	return enter_launch(entered, &request);
}

CUresult cuLaunch(CUfunction f)
{
	return launch_set(__func__, f, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return launch_set(__func__, f, grid_width, grid_height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	return launch_set(__func__, f, grid_width, grid_height, hStream);
}
