/*
 * The simulated runtime from C, without a toolkit: the calls of nvcc's host code, the thread's
 * device and last error, streams, and names that are not written. The kernel is PTX, which is
 * registered in place of a fatbin.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "runtime_abi.h"

#define RT_CALL(name, parameters, call)   cudaError_t name parameters;
#define RT_INIT(name, parameters, call)   cudaError_t name parameters;
#define RT_PTSZ(name, parameters, call)   cudaError_t name parameters, name##_ptsz parameters;
#define RT_PTDS(name, parameters, call)   cudaError_t name parameters, name##_ptds parameters;
#define RT_OWN(name, result, parameters)  result name parameters;
#define RT_HOST(name, result, parameters) result name parameters;
#include "runtime.def"

cudaError_t cudaGraphicsMapResources(void); /* a stub: any parameters */

static const char ptx[] = ".version 7.0\n"
			  ".visible .global .align 4 .b8 words[64];\n"
			  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n";
static const char managed_ptx[] =
	".version 7.0\n.visible .global .attribute(.managed) .align 4 .b8 big[1073741824];\n";
static char spin_host, words_host; /* their addresses stand for the kernel and the variable */

static void no_error_yet(void)
{
	CHECK_OK(cudaPeekAtLastError());
	CHECK_EQUAL(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
	CHECK_EQUAL(cudaPeekAtLastError(), cudaErrorInvalidValue);
	CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidValue);
	CHECK_OK(cudaGetLastError());
	CHECK_EQUAL(cudaSetDevice(-1), cudaErrorInvalidDevice);
	CHECK_EQUAL(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code"), 0);
	CHECK_EQUAL(strcmp(cudaGetErrorString(cudaErrorNotSupported), "operation not supported"),
		    0);
}

/* The thread begins on device 0 and without the other thread's error. */
static void *other_thread(void *unused)
{
	int device = -1;

	(void)unused;
	CHECK_OK(cudaPeekAtLastError());
	CHECK_OK(cudaGetDevice(&device));
	CHECK_EQUAL(device, 0);
	CHECK_OK(cudaSetDevice(1));
	CHECK_OK(cudaGetDevice(&device));
	CHECK_EQUAL(device, 1);
	return NULL;
}

static void threads(void)
{
	pthread_t thread;
	int device = -1;

	CHECK_EQUAL(cudaPeekAtLastError(), cudaErrorInvalidDevice);
	CHECK_EQUAL(pthread_create(&thread, NULL, other_thread, NULL), 0);
	CHECK_EQUAL(pthread_join(thread, NULL), 0);
	CHECK_OK(cudaGetDevice(&device));
	CHECK_EQUAL(device, 0);
	CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidDevice);
}

/* Launches the kernel for `ns` as nvcc's host code does, in the thread's stream if `per_thread`. */
static void spin(uint64_t ns, CUstream stream, bool per_thread)
{
	void *arguments[] = {&ns};
	cudaKernel_t kernel;
	dim3 grid, block;
	size_t shared_bytes;
	CUstream popped;

	CHECK_EQUAL(__cudaPushCallConfiguration((dim3){2, 1, 1}, (dim3){32, 1, 1}, 16, stream), 0);
	CHECK_OK(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &popped));
	CHECK_EQUAL(grid.x == 2 && block.x == 32 && shared_bytes == 16 && popped == stream, 1);
	CHECK_OK(__cudaGetKernel(&kernel, &spin_host));
	CHECK_OK((per_thread ? __cudaLaunchKernel_ptsz : __cudaLaunchKernel)(
		kernel, grid, block, arguments, shared_bytes, popped));
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void host_code(void)
{
	void **fatbin = __cudaRegisterFatBinary((void *)(uintptr_t)ptx);
	char written[64] = "sixteen of them", back[64];
	cudaEvent_t start, end;
	cudaStream_t stream;
	cudaKernel_t kernel;
	size_t bytes;
	float ms;

	__cudaRegisterFunction(fatbin, &spin_host, &spin_host, "spin_ns", -1, NULL, NULL, NULL,
			       NULL, NULL);
	__cudaRegisterVar(fatbin, &words_host, &words_host, "words", 0, 64, 0, 0);
	__cudaRegisterFatBinaryEnd(fatbin);
	CHECK_OK(cudaGetSymbolSize(&bytes, &words_host));
	CHECK_EQUAL(bytes, 64);
	CHECK_EQUAL(cudaMemcpyToSymbol(&words_host, written, 64, 0, cudaMemcpyHostToDevice), 0);
	CHECK_EQUAL(cudaMemcpyFromSymbol_ptds(back, &words_host, 64, 0, cudaMemcpyDeviceToHost), 0);
	CHECK_EQUAL(memcmp(back, written, 64), 0);

	CHECK_OK(cudaStreamCreateWithFlags(&stream, 1));
	CHECK_OK(cudaEventCreate(&start));
	CHECK_OK(cudaEventCreate(&end));
	double began = now_ms();
	CHECK_OK(cudaEventRecord(start, stream));
	spin(50000000, stream, false);
	CHECK_OK(cudaEventRecord(end, stream));
	CHECK_EQUAL(cudaStreamQuery(stream), cudaErrorNotReady);
	CHECK_OK(cudaEventSynchronize(end));
	CHECK_OK(cudaEventElapsedTime(&ms, start, end));
	CHECK_EQUAL(ms > 49.9 && ms < now_ms() - began + 1, 1);
	/* The thread's stream is not the legacy null stream. */
	unsigned long long legacy, own;
	CHECK_OK(cudaStreamGetId(NULL, &legacy));
	CHECK_OK(cudaStreamGetId_ptsz(NULL, &own));
	CHECK_EQUAL(legacy != own, 1);
	spin(200000000, NULL, true);
	CHECK_EQUAL(cudaStreamQuery_ptsz(NULL), cudaErrorNotReady);
	CHECK_OK(cudaStreamSynchronize_ptsz(NULL));
	CHECK_OK(cudaStreamQuery_ptsz(NULL));
	CHECK_OK(cudaDeviceSynchronize());
	__cudaUnregisterFatBinary(fatbin);
	CHECK_EQUAL(__cudaGetKernel(&kernel, &spin_host), cudaErrorInvalidDeviceFunction);
	CHECK_EQUAL(cudaGetSymbolSize(&bytes, &words_host), cudaErrorInvalidSymbol);
}

static void rest(void)
{
	size_t left, total;
	void *memory;

	CHECK_OK(cudaMalloc(&memory, 1 << 20));
	CHECK_OK(cudaMemset_ptds(memory, 3, 1 << 20));
	CHECK_EQUAL(((char *)memory)[(1 << 20) - 1], 3);
	CHECK_OK(cudaMemGetInfo(&left, &total));
	CHECK_EQUAL(left < total, 1);
	CHECK_EQUAL(cudaMalloc(&memory, SIZE_MAX / 2), cudaErrorMemoryAllocation);
	CHECK_EQUAL(memory == NULL, 1);
	CHECK_OK(cudaMalloc(&memory, 0));
	CHECK_EQUAL(cudaGraphicsMapResources(), cudaErrorNotSupported);
	CHECK_EQUAL(cudaGetLastError(), cudaErrorNotSupported);
	CHECK_OK(cudaDeviceReset());
	CHECK_OK(cudaFree(NULL));
}

/* A program with a managed variable of 1 GiB. fits: there is room for it. */
static void managed_variable(bool fits)
{
	void **fatbin = __cudaRegisterFatBinary((void *)(uintptr_t)managed_ptx);
	void *big = NULL;

	__cudaRegisterManagedVar(fatbin, &big, NULL, "big", 0, (size_t)1 << 30, 0, 0);
	__cudaRegisterFatBinaryEnd(fatbin);
	CHECK_EQUAL(__cudaInitModule(fatbin), fits);
	CHECK_EQUAL(big != NULL, fits);
	if (fits)
		memset(big, 1, 4096);
	__cudaUnregisterFatBinary(fatbin);
}

/* With an argument: in a slice without room for the managed variable. */
int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		managed_variable(false);
		return 0;
	}
	no_error_yet();
	threads();
	host_code();
	rest();
	for (unsigned i = 0; i < 3; i++)
		managed_variable(true);
	return 0;
}
