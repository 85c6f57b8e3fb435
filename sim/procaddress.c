/*
 * The index of all functions that this library exports, and cuGetProcAddress over it.
 *
 * cuGetProcAddress("cuMemAlloc", version) finds the newest of cuMemAlloc, cuMemAlloc_v2, … that
 * existed in that CUDA version. `introduced` has the CUDA versions of versioned functions; a
 * function that is not in it exists in all of them. The pointer is the one that dlsym gives for the
 * versioned name.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_STUB(name) CUresult name(void);
#include "stubs.def"
#undef SIM_STUB

typedef void (*function_pointer)(void);

static const struct export
{
	const char *name;
	function_pointer function;
}
exports[] = {
/* sorted by name */
#define SIM_EXPORT(name) {#name, (function_pointer)name},
#include "exports.def"
#undef SIM_EXPORT
};

#define CU_HOOK(name, class, parameters, arguments) (function_pointer) name,
#define CU_CALL(name, class, parameters)            (function_pointer) name,
#define CU_SIM(name, class, parameters)             (function_pointer) name,
/* All rows of the table, also those that this variant does not export: a row without a definition
 * does not link. */
__attribute__((used)) static const function_pointer rows[] = {
#include "cuda.def"
};

static const struct introduction {
	const char *name;
	int version;
} introduced[] = {
	{"cuArray3DCreate_v2", 3020},
	{"cuArray3DGetDescriptor_v2", 3020},
	{"cuArrayCreate_v2", 3020},
	{"cuArrayGetDescriptor_v2", 3020},
	{"cuCtxCreate_v2", 3020},
	{"cuCtxCreate_v3", 11040},
	{"cuCtxCreate_v4", 12050},
	{"cuCtxDestroy_v2", 4000},
	{"cuCtxGetDevice_v2", 13000},
	{"cuCtxGetId", 12000},
	{"cuCtxPopCurrent_v2", 4000},
	{"cuCtxPushCurrent_v2", 4000},
	{"cuCtxRecordEvent", 12050},
	{"cuCtxSynchronize_v2", 13000},
	{"cuDeviceGetUuid", 9020},
	{"cuDeviceGetUuid_v2", 11040},
	{"cuDevicePrimaryCtxGetState", 7000},
	{"cuDevicePrimaryCtxRelease", 7000},
	{"cuDevicePrimaryCtxRelease_v2", 11000},
	{"cuDevicePrimaryCtxReset", 7000},
	{"cuDevicePrimaryCtxReset_v2", 11000},
	{"cuDevicePrimaryCtxRetain", 7000},
	{"cuDevicePrimaryCtxSetFlags", 7000},
	{"cuDevicePrimaryCtxSetFlags_v2", 11000},
	{"cuDeviceTotalMem_v2", 3020},
	{"cuEventDestroy_v2", 4000},
	{"cuEventElapsedTime_v2", 12080},
	{"cuGLCtxCreate_v2", 3020},
	{"cuGetErrorName", 6000},
	{"cuGetErrorString", 6000},
	{"cuGetProcAddress", 11030},
	{"cuGetProcAddress_v2", 12000},
	{"cuGraphAddKernelNode_v2", 12000},
	{"cuGraphExecKernelNodeSetParams_v2", 12000},
	{"cuGraphExecUpdate_v2", 12000},
	{"cuGraphInstantiate_v2", 11000},
	{"cuIpcOpenMemHandle_v2", 11000},
	{"cuLaunchCooperativeKernel", 9000},
	{"cuLaunchCooperativeKernelMultiDevice", 9000},
	{"cuLaunchKernel", 4000},
	{"cuLaunchKernelEx", 11060},
	{"cuMemAllocHost_v2", 3020},
	{"cuMemAllocManaged", 6000},
	{"cuMemAllocPitch_v2", 3020},
	{"cuMemAlloc_v2", 3020},
	{"cuMemFree_v2", 3020},
	{"cuMemGetAddressRange_v2", 3020},
	{"cuMemGetInfo_v2", 3020},
	{"cuMemcpy2DAsync_v2", 3020},
	{"cuMemcpy2DUnaligned_v2", 3020},
	{"cuMemcpy2D_v2", 3020},
	{"cuMemcpy3DAsync_v2", 3020},
	{"cuMemcpy3D_v2", 3020},
	{"cuMemcpyAtoA_v2", 3020},
	{"cuMemcpyAtoD_v2", 3020},
	{"cuMemcpyDtoA_v2", 3020},
	{"cuMemcpyDtoDAsync_v2", 3020},
	{"cuMemcpyDtoD_v2", 3020},
	{"cuMemcpyDtoHAsync_v2", 3020},
	{"cuMemcpyDtoH_v2", 3020},
	{"cuMemcpyHtoDAsync_v2", 3020},
	{"cuMemcpyHtoD_v2", 3020},
	{"cuMemsetD16_v2", 3020},
	{"cuMemsetD2D16_v2", 3020},
	{"cuMemsetD2D32_v2", 3020},
	{"cuMemsetD2D8_v2", 3020},
	{"cuMemsetD32_v2", 3020},
	{"cuMemsetD8_v2", 3020},
	{"cuStreamBeginCapture_v2", 10010},
	{"cuModuleGetGlobal_v2", 3020},
	{"cuStreamDestroy_v2", 4000},
	{"cuVDPAUCtxCreate_v2", 3020},
};

enum {
	VERSIONS_MAX = 9, /* of one function: _v9 */
	NAME_MAX_BYTES = 128,
};

static int export_compare(const void *key, const void *member)
{
	return strcmp(key, ((const struct export *)member)->name);
}

static const struct export *export_find(const char *name)
{
	return bsearch(name, exports, sizeof exports / sizeof *exports, sizeof *exports,
		       export_compare);
}

bool library_exports(const char *name)
{
	return export_find(name) != NULL;
}

static int introduced_in(const char *name)
{
	for (size_t i = 0; i < sizeof introduced / sizeof *introduced; i++) {
		if (!strcmp(introduced[i].name, name))
			return introduced[i].version;
	}
	return 0;
}

/* The export BASE_vN + suffix (BASE + suffix for N = 1), if there is one. */
static const struct export *version_find(const char *base, unsigned n, const char *suffix)
{
	char name[NAME_MAX_BYTES], version[16] = "";

	if (n > 1)
		snprintf(version, sizeof version, "_v%u", n);
	int length = snprintf(name, sizeof name, "%s%s%s", base, version, suffix);
	if (length >= (int)sizeof name || faults_missing(name))
		return NULL;
	return export_find(name);
}

/* Whether the name is without a version and without a stream flavour at its end. */
static bool base_plain(const char *base)
{
	const char *end = strrchr(base, '_');

	return !end || !(!strcmp(end, "_ptsz") || !strcmp(end, "_ptds") ||
			 (end[1] == 'v' && end[2] >= '0' && end[2] <= '9'));
}

static const struct export *resolve(const char *base, int version, cuuint64_t flags,
				    bool *ret_newer)
{
	*ret_newer = false;
	if (!base_plain(base))
		return NULL;
	for (unsigned n = VERSIONS_MAX; n >= 1; n--) {
		const struct export *found = version_find(base, n, ""), *flavour = NULL;

		if (!found)
			continue;
		if (introduced_in(found->name) > version) {
			*ret_newer = true;
			continue;
		}
		if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
			flavour = version_find(base, n, "_ptsz");
			flavour = flavour ? flavour : version_find(base, n, "_ptds");
		}
		return flavour ? flavour : found;
	}
	return NULL;
}

/* As driver 580 was seen to answer: for a function that does not exist in that version, NULL and a
 * status that says why. The empty name is such a function; the CUDA runtime asks for it first. */
static CUresult address_get(const char *symbol, void **ret_pointer, int version, cuuint64_t flags,
			    CUdriverProcAddressQueryResult *ret_status)
{
	const cuuint64_t known =
		CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	const struct sim_config *config = config_get();
	bool newer;

	if (!symbol || !ret_pointer || flags & ~known ||
	    (config && version > config->driver_version))
		return CUDA_ERROR_INVALID_VALUE;
	const struct export *found = resolve(symbol, version, flags, &newer);
	*ret_pointer = NULL;
	*ret_status = newer ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
			    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!found)
		return CUDA_SUCCESS;
	memcpy(ret_pointer, &found->function, sizeof *ret_pointer);
	*ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
	return CUDA_SUCCESS;
}

/* On failure, the older version leaves the pointer as it is, and answers CUDA_ERROR_NOT_FOUND. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = enter_early(__func__);
	CUdriverProcAddressQueryResult status;
	void *pointer;

	if (!result)
		result = address_get(symbol, pfn ? &pointer : NULL, cudaVersion, flags, &status);
	if (result)
		return result;
	if (!pointer)
		return CUDA_ERROR_NOT_FOUND;
	*pfn = pointer;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result = enter_early(__func__);
	CUdriverProcAddressQueryResult status;

	if (result)
		return result;
	return address_get(symbol, pfn, cudaVersion, flags, symbolStatus ? symbolStatus : &status);
}
