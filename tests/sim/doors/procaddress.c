/*
 * cuGetProcAddress in both versions, linked or looked up (PROCADDRESS_LINKED): which function comes
 * back is the driver's choice by version and flags; that it is held is ours.
 */
#include "driver.h"
#include "ways.h"

#ifdef PROCADDRESS_LINKED
#define DOOR(name) ((__typeof__(&name))name)
#define SETUP      by_default
#else
#define DOOR(name) ((__typeof__(&name))by_handle(#name))
#define SETUP      by_handle
#endif

static const cuuint64_t all_flags[] = {CU_GET_PROC_ADDRESS_DEFAULT,
				       CU_GET_PROC_ADDRESS_LEGACY_STREAM,
				       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
static const int all_versions[] = {11000, 12000, CUDA_OF_TODAY};

#define EACH(i, array) (size_t i = 0; i < sizeof(array) / sizeof((array)[0]); i++)

static void *get_v1(const char *symbol, int version, cuuint64_t flags)
{
	void *got = NULL;
	CUresult result = DOOR(cuGetProcAddress)(symbol, &got, version, flags);

	CHECK_SAYING(result == CUDA_SUCCESS && got, "cuGetProcAddress of %s, %d, %d says %d",
		     symbol, version, (int)flags, result);
	return got;
}

static void *get_v2(const char *symbol, int version, cuuint64_t flags)
{
	void *got = NULL;
	CUdriverProcAddressQueryResult status = 77;
	CUresult result = DOOR(cuGetProcAddress_v2)(symbol, &got, version, flags, &status);

	CHECK_SAYING(result == CUDA_SUCCESS && got, "cuGetProcAddress_v2 of %s, %d, %d says %d",
		     symbol, version, (int)flags, result);
	CHECK_SAYING(status == CU_GET_PROC_ADDRESS_SUCCESS, "the status of %s is %u", symbol,
		     status);
	return got;
}

static void check_cuMemAlloc(void *(*get)(const char *symbol, int version, cuuint64_t flags))
{
	for
		EACH(i, all_versions)
		for
			EACH(j, all_flags)
			{
				found.cuMemAlloc_v2 = (__typeof__(found.cuMemAlloc_v2))get(
					"cuMemAlloc", all_versions[i], all_flags[j]);
				check_allocations();
			}
}

/* What CUDA 3.1 knew by that name has 32 bits. */
static void check_oldest(void)
{
	__typeof__(cuMemAlloc) *allocate =
		(__typeof__(allocate))get_v2("cuMemAlloc", 3010, CU_GET_PROC_ADDRESS_DEFAULT);
	CUdeviceptr_v1 address = 0;
	CUresult result = allocate(&address, (unsigned)LARGE_BYTES);

	CHECK_SAYING(result == CUDA_ERROR_OUT_OF_MEMORY, "not held: cuMemAlloc of CUDA 3.1 says %d",
		     result);
}

static void check_itself(void)
{
	__typeof__(cuGetProcAddress) *old =
		(__typeof__(old))get_v2("cuGetProcAddress", 11030, CU_GET_PROC_ADDRESS_DEFAULT);
	void *got = NULL;

	old("cuMemAlloc", &got, CUDA_OF_TODAY, CU_GET_PROC_ADDRESS_DEFAULT);
	found.cuMemAlloc_v2 = (__typeof__(found.cuMemAlloc_v2))got;
	CHECK_SAYING(got, "cuGetProcAddress of CUDA 11.3 finds no cuMemAlloc");
	check_allocations();
	CHECK_SAYING(get_v2("cuInit", CUDA_OF_TODAY, 0) == SETUP("cuInit"),
		     "cuInit is not the same function to cuGetProcAddress and dlsym");
}

/* A function that is none of ours, in the flavour that was asked for. */
static void check_flavour(void *(*get)(const char *symbol, int version, cuuint64_t flags))
{
	void *legacy = SETUP("cuStreamGetFlags"), *per_thread = SETUP("cuStreamGetFlags_ptsz");

	CHECK_SAYING(legacy && per_thread && legacy != per_thread,
		     "the driver lacks cuStreamGetFlags");
	CHECK_SAYING(get("cuStreamGetFlags", CUDA_OF_TODAY, 0) == legacy,
		     "cuStreamGetFlags is not the driver's own");
	CHECK_SAYING(get("cuStreamGetFlags", CUDA_OF_TODAY, CU_GET_PROC_ADDRESS_LEGACY_STREAM) ==
			     legacy,
		     "cuStreamGetFlags for legacy streams is not the driver's own");
	CHECK_SAYING(get("cuStreamGetFlags", CUDA_OF_TODAY,
			 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == per_thread,
		     "cuStreamGetFlags for per-thread streams is not the driver's "
		     "cuStreamGetFlags_ptsz");
}

int main(void)
{
	find_driver(SETUP);
	check_flavour(get_v1);
	check_flavour(get_v2);
	start_driver();
	check_cuMemAlloc(get_v1);
	check_cuMemAlloc(get_v2);
	check_oldest();
	check_itself();
	return 0;
}
