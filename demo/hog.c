/*
 * An ordinary CUDA program, and a greedy one: it looks how much memory the GPU has, takes all that
 * it is given, and asks for one byte more. It knows nothing of slices. Prints what it meets, then
 * waits for its standard input to end, so that somebody else can look.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_abi.h"

#define MIB      ((size_t)1 << 20)
#define MOST_MIB 4096 /* without a slice, it stops there: the card may be somebody's */

static struct {
	CUresult (*init)(unsigned flags);
	CUresult (*retain)(CUcontext *context, CUdevice device);
	CUresult (*set_current)(CUcontext context);
	CUresult (*info)(size_t *available, size_t *total);
	CUresult (*alloc)(CUdeviceptr *address, size_t bytes);
	CUresult (*error_name)(CUresult error, const char **name);
} driver;

static void *find(void *library, const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "hog: the driver has no %s\n", name);
		exit(1);
	}
	return function;
}

static void load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "hog: no CUDA driver: %s\n", dlerror());
		exit(1);
	}
	*(void **)&driver.init = find(library, "cuInit");
	*(void **)&driver.retain = find(library, "cuDevicePrimaryCtxRetain");
	*(void **)&driver.set_current = find(library, "cuCtxSetCurrent");
	*(void **)&driver.info = find(library, "cuMemGetInfo_v2");
	*(void **)&driver.alloc = find(library, "cuMemAlloc_v2");
	*(void **)&driver.error_name = find(library, "cuGetErrorName");
}

static const char *name_of(CUresult error)
{
	const char *name = "an unknown error";

	driver.error_name(error, &name);
	return name;
}

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "hog: %s: %s\n", what, name_of(result));
	exit(1);
}

/* Takes pieces of that size until refused; returns the MiB it got. */
static size_t take_all(size_t piece_mib, size_t so_far_mib)
{
	size_t got = 0;
	CUdeviceptr address;

	while (so_far_mib + got + piece_mib <= MOST_MIB &&
	       driver.alloc(&address, piece_mib * MIB) == CUDA_SUCCESS)
		got += piece_mib;
	return got;
}

int main(void)
{
	CUcontext context;
	CUdeviceptr address;
	size_t available, total, got = 0;
	CUresult last;

	load_driver();
	must(driver.init(0), "cuInit");
	must(driver.retain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(driver.set_current(context), "cuCtxSetCurrent");
	must(driver.info(&available, &total), "cuMemGetInfo");
	printf("  the program sees a GPU of %zu MiB, %zu MiB of it free\n", total / MIB,
	       available / MIB);
	for (size_t piece = 256; piece >= 2; piece /= 2)
		got += take_all(piece, got);
	last = got < MOST_MIB ? driver.alloc(&address, 1) : CUDA_SUCCESS;
	printf("  it took   %zu MiB\n", got);
	printf("  one byte more: %s\n", name_of(last));
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
