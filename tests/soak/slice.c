/*
 * slice FILE US: a program whose one stream always has kernels of that many microseconds, on the
 * simulated driver. In FILE it keeps three numbers of 64 bits: how many ns of work it has launched;
 * for how many ns its thread was ready and had no processor; and how often it has launched.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_abi.h"

#define LOOK_EACH 64 /* launches from one look at the processor's time to the next */

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			void **parameters, void **extra);

struct seen {
	uint64_t given_ns, delayed_ns, launches;
};

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "slice: %s: %d\n", what, (int)result);
	exit(1);
}

static struct seen *map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct seen *seen = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(*seen)) == 0)
		seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seen == MAP_FAILED)
		exit(2);
	return seen;
}

static uint64_t delayed_ns(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "re");
	unsigned long long ran = 0, waited = 0;
	int found = file ? fscanf(file, "%llu %llu", &ran, &waited) : 0;

	if (file)
		fclose(file);
	return found == 2 ? waited : 0;
}

int main(int argc, char **argv)
{
	static const char ptx[] =
		".version 7.0\n.visible .entry spin_ns(.param .u64 ns) { ret; }\n";
	uint64_t ns = argc == 3 ? (uint64_t)strtoull(argv[2], NULL, 10) * 1000 : 0;
	void *parameters[] = {&ns};
	CUcontext context;
	CUfunction spin;
	CUmodule module;
	CUstream stream;
	struct seen *seen;

	if (!ns)
		return 2;
	seen = map(argv[1]);
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	must(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	must(cuModuleGetFunction(&spin, module, "spin_ns"), "cuModuleGetFunction");
	must(cuStreamCreate(&stream, 0), "cuStreamCreate");
	for (uint64_t i = 1;; i++) {
		must(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL),
		     "cuLaunchKernel");
		__atomic_fetch_add(&seen->given_ns, ns, __ATOMIC_RELAXED);
		__atomic_store_n(&seen->launches, i, __ATOMIC_RELAXED);
		if (i % LOOK_EACH == 0 || ns > 2000000)
			__atomic_store_n(&seen->delayed_ns, delayed_ns(), __ATOMIC_RELAXED);
	}
}
