// What a program with the CUDA runtime calls, on the simulated one. A simulated kernel changes no
// memory, so that the checks are of results, sizes and copies. calls.cu [CASE...]: all, or those.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(call)                                                                \
	do {                                                                      \
		cudaError_t must_error = (call);                                  \
		if (must_error) {                                                 \
			fprintf(stderr, "%s:%d: %s: %s\n", name, __LINE__, #call, \
				cudaGetErrorName(must_error));                    \
			exit(1);                                                  \
		}                                                                 \
	} while (0)
#define CHECK(holds)                                                                    \
	do {                                                                            \
		if (!(holds)) {                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", name, __LINE__, #holds); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

static const char *name; // of the case that runs

__device__ int table[4] = {1, 2, 3, 4};
__constant__ float factor = 1.5f;
__managed__ int shared_count = 7;

__global__ void add(const float *a, const float *b, float *sum, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		sum[i] = a[i] + b[i] * factor + (float)table[i % 4] + (float)shared_count;
}

template <typename T> __global__ void fill(T *values, T value)
{
	values[threadIdx.x] = value;
}

static void vector_add()
{
	enum { COUNT = 1000 };
	float host[COUNT], back[COUNT], *a, *b, *sum;

	for (int i = 0; i < COUNT; i++)
		host[i] = (float)i;
	MUST(cudaMalloc(&a, sizeof host));
	MUST(cudaMalloc(&b, sizeof host));
	MUST(cudaMalloc(&sum, sizeof host));
	MUST(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
	MUST(cudaMemcpy(b, a, sizeof host, cudaMemcpyDeviceToDevice));
	MUST(cudaMemset(sum, 0x11, sizeof host));
	add<<<4, 256>>>(a, b, sum, COUNT);
	MUST(cudaGetLastError());
	fill<int><<<dim3(1, 1, 1), dim3(32)>>>((int *)sum, 3);
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemcpy(back, b, sizeof back, cudaMemcpyDeviceToHost));
	CHECK(!memcmp(host, back, sizeof host));
	MUST(cudaMemcpy(back, sum, sizeof back, cudaMemcpyDefault));
	CHECK(((unsigned char *)back)[sizeof back - 1] == 0x11);
	MUST(cudaMemcpy(back, host, sizeof back, cudaMemcpyDefault));
	CHECK(back[10] == 10.0f);

	add<<<0, 256>>>(a, b, sum, COUNT);
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(cudaLaunchKernel((const void *)host, dim3(1), dim3(1), nullptr, 0, 0) ==
	      cudaErrorInvalidDeviceFunction);
	CHECK(cudaMemcpy(back, sum, 4, (cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);
	CHECK(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
	CHECK(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
	CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
	CHECK(!strcmp(cudaGetErrorString(cudaErrorInvalidDeviceFunction),
		      "invalid device function"));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	MUST(cudaFree(sum));
	MUST(cudaFree(nullptr));
	CHECK(cudaFree(sum) == cudaErrorInvalidValue);
	cudaGetLastError();
}

static void devices()
{
	int count, device, value, version, peer;
	cudaDeviceProp properties;
	char address[32];
	void *memory, *other;

	MUST(cudaGetDeviceCount(&count));
	CHECK(count == 2);
	MUST(cudaGetDevice(&device));
	CHECK(device == 0);
	MUST(cudaRuntimeGetVersion(&version));
	CHECK(version == 13000);
	MUST(cudaDriverGetVersion(&version));
	CHECK(version == 13000);
	MUST(cudaGetDeviceProperties(&properties, 1));
	CHECK(properties.major == 9 && properties.minor == 0 && properties.warpSize == 32);
	CHECK(properties.totalGlobalMem == (size_t)4 << 30 && properties.multiProcessorCount > 0);
	CHECK(properties.maxThreadsPerBlock == 1024);
	MUST(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
	CHECK(value == properties.multiProcessorCount);
	MUST(cudaDeviceGetPCIBusId(address, sizeof address, 1));
	MUST(cudaDeviceGetByPCIBusId(&device, address));
	CHECK(device == 1);
	CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
	CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
	MUST(cudaMalloc(&memory, 1 << 20));
	MUST(cudaSetDevice(1));
	MUST(cudaGetDevice(&device));
	CHECK(device == 1);
	MUST(cudaDeviceCanAccessPeer(&peer, 1, 0));
	CHECK(peer == 1);
	MUST(cudaDeviceEnablePeerAccess(0, 0));
	CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
	MUST(cudaMalloc(&other, 1 << 20));
	MUST(cudaMemset(other, 5, 1 << 20));
	MUST(cudaMemcpyPeer(memory, 0, other, 1, 1 << 20));
	CHECK(*(unsigned char *)memory == 5);
	cudaPointerAttributes attributes;
	MUST(cudaPointerGetAttributes(&attributes, other));
	CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 1);
	CHECK(attributes.devicePointer == other);
	MUST(cudaDeviceDisablePeerAccess(0));
	MUST(cudaFree(other));
	MUST(cudaDeviceReset());
	MUST(cudaMalloc(&other, 1 << 20)); // the device comes alive again
	fill<int><<<1, 32>>>((int *)other, 3);
	MUST(cudaDeviceSynchronize());
	MUST(cudaSetDevice(0));
	MUST(cudaFree(memory));
	cudaGetLastError();
}

static void CUDART_CB count_up(void *counter)
{
	++*(int *)counter;
}

static void CUDART_CB count_up_too(cudaStream_t, cudaError_t error, void *counter)
{
	*(int *)counter += error ? 100 : 10;
}

static double now_ms()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void streams()
{
	cudaStream_t stream, other;
	cudaEvent_t start, end;
	int counter = 0, least, greatest;
	float ms = -1;
	void *memory;

	MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	MUST(cudaStreamCreate(&stream));
	MUST(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, greatest));
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
	MUST(cudaMalloc(&memory, 256 << 20));
	double began = now_ms();
	MUST(cudaEventRecord(start, stream));
	MUST(cudaMemsetAsync(memory, 1, 256 << 20, stream));
	MUST(cudaEventRecord(end, stream));
	MUST(cudaStreamWaitEvent(other, end, 0));
	MUST(cudaLaunchHostFunc(other, count_up, &counter));
	MUST(cudaStreamAddCallback(stream, count_up_too, &counter, 0));
	MUST(cudaStreamSynchronize(other));
	MUST(cudaStreamSynchronize(stream));
	CHECK(counter == 11);
	MUST(cudaEventQuery(end));
	MUST(cudaEventElapsedTime(&ms, start, end));
	CHECK(ms > 0.1 && ms < now_ms() - began + 1); // 256 MiB at 2000000 MB/s
	MUST(cudaStreamQuery(stream));
	unsigned flags;
	MUST(cudaStreamGetFlags(other, &flags));
	CHECK(flags == cudaStreamNonBlocking);
	fill<float><<<1, 32, 0, stream>>>((float *)memory, 1.0f);
	fill<float><<<1, 32, 0, cudaStreamPerThread>>>((float *)memory, 1.0f);
	MUST(cudaGetLastError());
	MUST(cudaEventDestroy(start));
	MUST(cudaEventDestroy(end));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaStreamDestroy(other));
	MUST(cudaFree(memory));
}

static void graphs()
{
	enum { BYTES = 1 << 20 };
	cudaStreamCaptureStatus status;
	cudaGraphExec_t executable;
	cudaStream_t stream;
	cudaGraph_t graph;
	size_t nodes = 0;
	char *memory, *copy;

	MUST(cudaStreamCreate(&stream));
	MUST(cudaMalloc(&memory, BYTES));
	MUST(cudaMalloc(&copy, BYTES));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	MUST(cudaMemsetAsync(memory, 9, BYTES, stream));
	fill<char><<<1, 32, 0, stream>>>(memory, 1);
	MUST(cudaMemcpyAsync(copy, memory, BYTES, cudaMemcpyDeviceToDevice, stream));
	MUST(cudaStreamIsCapturing(stream, &status));
	CHECK(status == cudaStreamCaptureStatusActive);
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
	CHECK(nodes == 3);
	MUST(cudaGraphInstantiate(&executable, graph, 0));
	CHECK(copy[BYTES - 1] != 9);
	MUST(cudaGraphLaunch(executable, stream));
	MUST(cudaStreamSynchronize(stream));
	CHECK(copy[BYTES - 1] == 9);
	MUST(cudaGraphExecDestroy(executable));
	MUST(cudaGraphDestroy(graph));

	cudaGraphNode_t first, second, third;
	cudaMemsetParams set = {};
	set.dst = memory, set.value = 4, set.elementSize = 1, set.width = BYTES, set.height = 1;
	char value = 2;
	void *parameters[] = {&memory, &value};
	cudaKernelNodeParams kernel = {};
	kernel.func = (void *)fill<char>, kernel.gridDim = dim3(1), kernel.blockDim = dim3(32);
	kernel.kernelParams = parameters;
	cudaGraphNodeType type;
	MUST(cudaGraphCreate(&graph, 0));
	MUST(cudaGraphAddMemsetNode(&first, graph, nullptr, 0, &set));
	MUST(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
	MUST(cudaGraphAddMemcpyNode1D(&third, graph, &second, 1, copy, memory, BYTES,
				      cudaMemcpyDeviceToDevice));
	MUST(cudaGraphNodeGetType(second, &type));
	CHECK(type == cudaGraphNodeTypeKernel);
	MUST(cudaGraphInstantiate(&executable, graph, 0));
	MUST(cudaGraphUpload(executable, stream));
	MUST(cudaGraphLaunch(executable, stream));
	MUST(cudaStreamSynchronize(stream));
	CHECK(copy[BYTES - 1] == 4);
	MUST(cudaGraphExecDestroy(executable));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaFree(memory));
	MUST(cudaFree(copy));
}

static void symbols()
{
	int found[4] = {0}, put[2] = {30, 40};
	float one = 0;
	size_t bytes;
	void *address;

	MUST(cudaGetSymbolSize(&bytes, table));
	CHECK(bytes == sizeof found);
	MUST(cudaGetSymbolAddress(&address, table));
	MUST(cudaMemcpyFromSymbol(found, table, sizeof found));
	CHECK(found[0] == 1 && found[3] == 4);
	MUST(cudaMemcpyToSymbol(table, put, sizeof put, 2 * sizeof(int)));
	MUST(cudaMemcpy(found, address, sizeof found, cudaMemcpyDeviceToHost));
	CHECK(found[1] == 2 && found[2] == 30 && found[3] == 40);
	MUST(cudaMemcpyFromSymbol(&one, factor, sizeof one));
	CHECK(one == 1.5f);
	CHECK(cudaMemcpyToSymbol(table, put, sizeof put, 3 * sizeof(int)) == cudaErrorInvalidValue);
	CHECK(cudaGetSymbolSize(&bytes, put) == cudaErrorInvalidSymbol);
	CHECK(cudaGetLastError() == cudaErrorInvalidSymbol);
	CHECK(shared_count == 7);
	shared_count = 8;
	MUST(cudaMemcpyFromSymbol(found, shared_count, sizeof(int)));
	CHECK(found[0] == 8);
}

static void functions()
{
	cudaFuncAttributes attributes;
	cudaLaunchConfig_t config = {};
	int blocks, grid, threads;
	void *memory;
	int value = 4;

	MUST(cudaMalloc(&memory, 4096));
	MUST(cudaFuncGetAttributes(&attributes, add));
	CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.binaryVersion == 90);
	CHECK(cudaFuncGetAttributes(&attributes, (const void *)&value) ==
	      cudaErrorInvalidDeviceFunction);
	cudaGetLastError();
	MUST(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
	CHECK(blocks > 0);
	MUST(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, add));
	CHECK(grid > 0 && threads > 0);
	config.gridDim = dim3(1);
	config.blockDim = dim3(32);
	MUST(cudaLaunchKernelEx(&config, fill<int>, (int *)memory, value));
	void *parameters[] = {&memory, &value};
	MUST(cudaLaunchCooperativeKernel(fill<int>, dim3(1), dim3(32), parameters, 0, 0));
	MUST(cudaLaunchKernel(fill<int>, dim3(1), dim3(32), parameters, 0, 0));
	cudaKernel_t kernel;
	MUST(cudaGetKernel(&kernel, fill<int>));
	MUST(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), parameters, 0, 0));
	const char *found;
	MUST(cudaFuncGetName(&found, add));
	CHECK(!strcmp(found, "_Z3addPKfS0_Pfi"));
	void *function;
	cudaDriverEntryPointQueryResult status;
	MUST(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 13000, cudaEnableDefault,
					      &status));
	CHECK(status == cudaDriverEntryPointSuccess && function);
	size_t limit;
	MUST(cudaDeviceSetLimit(cudaLimitStackSize, 2048));
	MUST(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
	CHECK(limit >= 2048);
	CHECK(cudaGraphicsUnregisterResource(nullptr) == cudaErrorNotSupported);
	cudaGetLastError();
	MUST(cudaFree(memory));
}

static void pitch()
{
	enum { WIDTH = 100, HEIGHT = 8, DEPTH = 3 };
	unsigned char host[DEPTH][HEIGHT][WIDTH], back[DEPTH][HEIGHT][WIDTH];
	cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
	cudaPitchedPtr box;
	size_t pitch_bytes;
	void *rows;

	for (size_t i = 0; i < sizeof host; i++)
		(&host[0][0][0])[i] = (unsigned char)(i % 251);
	MUST(cudaMallocPitch(&rows, &pitch_bytes, WIDTH, HEIGHT));
	CHECK(pitch_bytes >= WIDTH && pitch_bytes % 32 == 0);
	MUST(cudaMemset2D(rows, pitch_bytes, 0, WIDTH, HEIGHT));
	MUST(cudaMemcpy2D(rows, pitch_bytes, host, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
	memset(back, 0, sizeof back);
	MUST(cudaMemcpy2D(back, WIDTH, rows, pitch_bytes, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
	CHECK(!memcmp(back[0], host[0], sizeof host[0]));
	CHECK(cudaMemcpy2D(rows, WIDTH - 1, host, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice) ==
	      cudaErrorInvalidPitchValue);
	cudaGetLastError();
	MUST(cudaFree(rows));

	MUST(cudaMalloc3D(&box, extent));
	MUST(cudaMemset3D(box, 0, extent));
	cudaMemcpy3DParms copy = {};
	copy.srcPtr = make_cudaPitchedPtr(host, WIDTH, WIDTH, HEIGHT);
	copy.dstPtr = box;
	copy.extent = extent;
	copy.kind = cudaMemcpyHostToDevice;
	MUST(cudaMemcpy3D(&copy));
	memset(back, 0, sizeof back);
	copy.srcPtr = box;
	copy.dstPtr = make_cudaPitchedPtr(back, WIDTH, WIDTH, HEIGHT);
	copy.kind = cudaMemcpyDeviceToHost;
	MUST(cudaMemcpy3DAsync(&copy, 0));
	MUST(cudaDeviceSynchronize());
	CHECK(!memcmp(back, host, sizeof host));
	MUST(cudaFree(box.ptr));
}

static void arrays()
{
	cudaChannelFormatDesc desc = cudaCreateChannelDesc<float4>(), found;
	cudaResourceDesc resource = {};
	cudaTextureDesc texture = {};
	cudaTextureObject_t object;
	cudaSurfaceObject_t surface;
	cudaMipmappedArray_t levels;
	cudaArray_t array, level;
	cudaExtent extent;
	unsigned flags;
	float host[16 * 4 * 8] = {0};

	MUST(cudaMallocArray(&array, &desc, 16, 8, cudaArraySurfaceLoadStore));
	MUST(cudaArrayGetInfo(&found, &extent, &flags, array));
	CHECK(found.x == 32 && found.w == 32 && found.f == cudaChannelFormatKindFloat);
	CHECK(extent.width == 16 && extent.height == 8 && flags == cudaArraySurfaceLoadStore);
	MUST(cudaMemcpy2DToArray(array, 0, 0, host, 256, 256, 8, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	MUST(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
	MUST(cudaDestroyTextureObject(object));
	MUST(cudaCreateSurfaceObject(&surface, &resource));
	MUST(cudaDestroySurfaceObject(surface));
	MUST(cudaFreeArray(array));
	MUST(cudaMallocMipmappedArray(&levels, &desc, make_cudaExtent(64, 64, 0), 3));
	MUST(cudaGetMipmappedArrayLevel(&level, levels, 1));
	MUST(cudaArrayGetInfo(&found, &extent, &flags, level));
	CHECK(extent.width == 32);
	MUST(cudaFreeMipmappedArray(levels));
	desc.z = 0;
	CHECK(cudaMallocArray(&array, &desc, 16, 8) == cudaErrorInvalidChannelDescriptor);
	cudaGetLastError();

	void *linear;
	MUST(cudaMalloc(&linear, 4096));
	resource = {};
	resource.resType = cudaResourceTypeLinear;
	resource.res.linear.devPtr = linear;
	resource.res.linear.desc = cudaCreateChannelDesc<float>();
	resource.res.linear.sizeInBytes = 4096;
	MUST(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
	MUST(cudaDestroyTextureObject(object));
	MUST(cudaFree(linear));
}

static void pools()
{
	cudaMemPool_t pool, own;
	cudaMemPoolProps properties = {};
	uint64_t keep = UINT64_MAX, used = 0;
	void *memory, *more;

	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	MUST(cudaMallocAsync(&memory, 64 << 20, 0));
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
	CHECK(used == 64 << 20);
	MUST(cudaFreeAsync(memory, 0));
	MUST(cudaStreamSynchronize(0));
	MUST(cudaMemPoolTrimTo(pool, 0));
	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	MUST(cudaMemPoolCreate(&own, &properties));
	MUST(cudaMallocFromPoolAsync(&more, 1 << 20, own, 0));
	MUST(cudaFreeAsync(more, 0));
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemPoolDestroy(own));
}

static void host()
{
	cudaPointerAttributes attributes;
	void *pinned, *device, *pages;
	int *managed, plain = 0;
	unsigned flags;

	MUST(cudaMallocHost(&pinned, 4096));
	MUST(cudaPointerGetAttributes(&attributes, pinned));
	CHECK(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
	MUST(cudaFreeHost(pinned));
	MUST(cudaHostAlloc(&pinned, 4096, cudaHostAllocMapped));
	MUST(cudaHostGetDevicePointer(&device, pinned, 0));
	CHECK(device == pinned);
	MUST(cudaHostGetFlags(&flags, pinned));
	CHECK(flags & cudaHostAllocMapped);
	MUST(cudaFreeHost(pinned));
	CHECK(!posix_memalign(&pages, 4096, 8192));
	MUST(cudaPointerGetAttributes(&attributes, pages));
	CHECK(attributes.type == cudaMemoryTypeUnregistered);
	MUST(cudaHostRegister(pages, 8192, cudaHostRegisterDefault));
	CHECK(cudaHostRegister(pages, 8192, 0) == cudaErrorHostMemoryAlreadyRegistered);
	MUST(cudaHostUnregister(pages));
	CHECK(cudaHostUnregister(pages) == cudaErrorHostMemoryNotRegistered);
	cudaGetLastError();
	free(pages);

	cudaMemLocation location = {};
	location.type = cudaMemLocationTypeDevice;
	int mostly = 0;
	MUST(cudaMallocManaged(&managed, 1 << 20));
	MUST(cudaMemcpy(managed, &plain, sizeof plain, cudaMemcpyDefault));
	managed[1] = 5;
	MUST(cudaMemAdvise(managed, 1 << 20, cudaMemAdviseSetReadMostly, location));
	MUST(cudaMemRangeGetAttribute(&mostly, sizeof mostly, cudaMemRangeAttributeReadMostly,
				      managed, 1 << 20));
	CHECK(mostly == 1);
	MUST(cudaMemPrefetchAsync(managed, 1 << 20, location, 0, 0));
	MUST(cudaDeviceSynchronize());
	MUST(cudaPointerGetAttributes(&attributes, managed));
	CHECK(attributes.type == cudaMemoryTypeManaged && managed[1] == 5);
	MUST(cudaFree(managed));
}

// A child opens what its parent allocated, and each has its own context.
static void processes()
{
	int there[2], back[2], status;
	cudaIpcMemHandle_t handle;
	char done = 0;
	void *memory;

	CHECK(!pipe(there) && !pipe(back));
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(read(there[0], &handle, sizeof handle) == sizeof handle);
		MUST(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
		fill<int><<<1, 32>>>((int *)memory, 1);
		MUST(cudaDeviceSynchronize());
		MUST(cudaIpcCloseMemHandle(memory));
		CHECK(write(back[1], &done, 1) == 1);
		exit(0);
	}
	MUST(cudaMalloc(&memory, 4 << 20));
	MUST(cudaIpcGetMemHandle(&handle, memory));
	CHECK(write(there[1], &handle, sizeof handle) == sizeof handle);
	close(back[1]);
	CHECK(read(back[0], &done, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && !status);
	MUST(cudaFree(memory));
}

// In a slice of 1 GiB.
static void slice()
{
	size_t left, total;
	void *memory;

	MUST(cudaMemGetInfo(&left, &total));
	CHECK(total == (size_t)1 << 30 && left < total);
	CHECK(cudaMalloc(&memory, (size_t)2 << 30) == cudaErrorMemoryAllocation);
	CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
	CHECK(cudaMallocManaged(&memory, (size_t)2 << 30) == cudaErrorMemoryAllocation);
	CHECK(cudaMallocAsync(&memory, (size_t)2 << 30, 0) == cudaErrorMemoryAllocation);
	cudaGetLastError();
	MUST(cudaMalloc(&memory, 256 << 20));
	MUST(cudaFree(memory));
	cudaDeviceProp properties;
	MUST(cudaGetDeviceProperties(&properties, 0));
	CHECK(properties.totalGlobalMem == (size_t)1 << 30);
}

// Without a slice.
static void whole()
{
	size_t left, total;
	void *memory;

	MUST(cudaMemGetInfo(&left, &total));
	CHECK(total == (size_t)4 << 30 && left < total);
	MUST(cudaMalloc(&memory, (size_t)2 << 30));
	MUST(cudaFree(memory));
}

static const struct {
	const char *name;
	void (*run)();
} cases[] = {
	// processes first: a child of fork() may not use CUDA if its parent had
	{"processes", processes}, {"vector_add", vector_add},
	{"devices", devices},     {"streams", streams},
	{"graphs", graphs},       {"symbols", symbols},
	{"functions", functions}, {"pitch", pitch},
	{"arrays", arrays},       {"pools", pools},
	{"host", host},           {"slice", slice},
	{"whole", whole},
};

int main(int argc, char **argv)
{
	int ran = 0;

	for (const auto &row : cases) {
		for (int i = 1; i < argc; i++) {
			if (strcmp(argv[i], row.name))
				continue;
			name = row.name;
			row.run();
			ran++;
		}
	}
	return ran == argc - 1 ? 0 : 2;
}
