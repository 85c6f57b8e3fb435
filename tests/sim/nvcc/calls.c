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

#include "runtime_abi.h"

#define RT_CALL(name, parameters, call)   cudaError_t name parameters;
#define RT_INIT(name, parameters, call)   cudaError_t name parameters;
#define RT_PTSZ(name, parameters, call)   cudaError_t name parameters, name##_ptsz parameters;
#define RT_PTDS(name, parameters, call)   cudaError_t name parameters, name##_ptds parameters;
#define RT_OWN(name, result, parameters)  result name parameters;
#define RT_HOST(name, result, parameters) result name parameters;
#include "runtime.def"

cudaError_t cudaGraphicsMapResources(void); /* a stub: any parameters */

#define CHECK_EQ(found, expected) check_eq(__LINE__, #found, (long)(found), (long)(expected))

static const char ptx[] = ".version 7.0\n"
			  ".visible .global .align 4 .b8 words[64];\n"
			  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n";
static char spin_host, words_host; /* their addresses stand for the kernel and the variable */

static void check_eq(int line, const char *what, long found, long expected)
{
	if (found == expected)
		return;
	fprintf(stderr, "%d: %s is %ld, not %ld\n", line, what, found, expected);
	exit(1);
}

static void no_error_yet(void)
{
	CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
	CHECK_EQ(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
	CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
	CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
	CHECK_EQ(cudaGetLastError(), cudaSuccess);
	CHECK_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
	CHECK_EQ(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code"), 0);
	CHECK_EQ(strcmp(cudaGetErrorString(cudaErrorNotSupported), "operation not supported"), 0);
}

/* The thread begins on device 0 and without the other thread's error. */
static void *other_thread(void *unused)
{
	int device = -1;

	(void)unused;
	CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
	CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
	CHECK_EQ(device, 0);
	CHECK_EQ(cudaSetDevice(1), cudaSuccess);
	CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
	CHECK_EQ(device, 1);
	return NULL;
}

static void threads(void)
{
	pthread_t thread;
	int device = -1;

	CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
	CHECK_EQ(pthread_create(&thread, NULL, other_thread, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
	CHECK_EQ(device, 0);
	CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

/* Launches the kernel for `ns` as nvcc's host code does, in the thread's stream if `per_thread`. */
static void spin(uint64_t ns, CUstream stream, bool per_thread)
{
	void *arguments[] = {&ns};
	cudaKernel_t kernel;
	dim3 grid, block;
	size_t shared_bytes;
	CUstream popped;

	CHECK_EQ(__cudaPushCallConfiguration((dim3){2, 1, 1}, (dim3){32, 1, 1}, 16, stream), 0);
	CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &popped), cudaSuccess);
	CHECK_EQ(grid.x == 2 && block.x == 32 && shared_bytes == 16 && popped == stream, 1);
	CHECK_EQ(__cudaGetKernel(&kernel, &spin_host), cudaSuccess);
	CHECK_EQ((per_thread ? __cudaLaunchKernel_ptsz : __cudaLaunchKernel)(
			 kernel, grid, block, arguments, shared_bytes, popped),
		 cudaSuccess);
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
	CHECK_EQ(cudaGetSymbolSize(&bytes, &words_host), cudaSuccess);
	CHECK_EQ(bytes, 64);
	CHECK_EQ(cudaMemcpyToSymbol(&words_host, written, 64, 0, cudaMemcpyHostToDevice), 0);
	CHECK_EQ(cudaMemcpyFromSymbol_ptds(back, &words_host, 64, 0, cudaMemcpyDeviceToHost), 0);
	CHECK_EQ(memcmp(back, written, 64), 0);

	CHECK_EQ(cudaStreamCreateWithFlags(&stream, 1), cudaSuccess);
	CHECK_EQ(cudaEventCreate(&start), cudaSuccess);
	CHECK_EQ(cudaEventCreate(&end), cudaSuccess);
	double began = now_ms();
	CHECK_EQ(cudaEventRecord(start, stream), cudaSuccess);
	spin(50000000, stream, false);
	CHECK_EQ(cudaEventRecord(end, stream), cudaSuccess);
	CHECK_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
	CHECK_EQ(cudaEventSynchronize(end), cudaSuccess);
	CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
	CHECK_EQ(ms > 49.9 && ms < now_ms() - began + 1, 1);
	/* The thread's stream is not the legacy null stream. */
	unsigned long long legacy, own;
	CHECK_EQ(cudaStreamGetId(NULL, &legacy), cudaSuccess);
	CHECK_EQ(cudaStreamGetId_ptsz(NULL, &own), cudaSuccess);
	CHECK_EQ(legacy != own, 1);
	spin(200000000, NULL, true);
	CHECK_EQ(cudaStreamQuery_ptsz(NULL), cudaErrorNotReady);
	CHECK_EQ(cudaStreamSynchronize_ptsz(NULL), cudaSuccess);
	CHECK_EQ(cudaStreamQuery_ptsz(NULL), cudaSuccess);
	CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
	__cudaUnregisterFatBinary(fatbin);
	CHECK_EQ(__cudaGetKernel(&kernel, &spin_host), cudaErrorInvalidDeviceFunction);
	CHECK_EQ(cudaGetSymbolSize(&bytes, &words_host), cudaErrorInvalidSymbol);
}

static void rest(void)
{
	size_t left, total;
	void *memory;

	CHECK_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
	CHECK_EQ(cudaMemset_ptds(memory, 3, 1 << 20), cudaSuccess);
	CHECK_EQ(((char *)memory)[(1 << 20) - 1], 3);
	CHECK_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
	CHECK_EQ(left < total, 1);
	CHECK_EQ(cudaMalloc(&memory, SIZE_MAX / 2), cudaErrorMemoryAllocation);
	CHECK_EQ(memory == NULL, 1);
	CHECK_EQ(cudaMalloc(&memory, 0), cudaSuccess);
	CHECK_EQ(cudaGraphicsMapResources(), cudaErrorNotSupported);
	CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
	CHECK_EQ(cudaDeviceReset(), cudaSuccess);
	CHECK_EQ(cudaFree(NULL), cudaSuccess);
}

int main(void)
{
	no_error_yet();
	threads();
	host_code();
	rest();
	return 0;
}
