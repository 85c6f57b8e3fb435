/* nvml.def and nvml_abi.h against an nvml.h, as cuda_theirs.c does it. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* plain names mean the plain functions */
#include <nvml.h>
#pragma GCC diagnostic ignored \
	"-Wdeprecated-declarations" /* what old programs call is hooked too */

#include "layout.h"

#define ROW(name, parameters)                                                                \
	_Static_assert(                                                                      \
		__builtin_types_compatible_p(__typeof__(&name), nvmlReturn_t(*) parameters), \
		#name " has other parameters in nvml.h");
#define NVML_HOOK(name, parameters, arguments) ROW(name, parameters)
#define NVML_CALL(name, parameters)            ROW(name, parameters)
#define NVML_SIM(name, parameters)             ROW(name, parameters)
#include "nvml.def"

/* nvml_values.h: the values of nvml_abi.h, as NVML_VALUE rows made by header.sh. */
#define NVML_VALUE(name, value) \
	_Static_assert(name == (value), #name " has another value in nvml.h");
#include "nvml_values.h"

#define NVML_MEMORY_V2                nvmlMemory_v2
#define NVML_UUID_V1                  nvmlUUID_v1
#define NVML_PROCESS_DETAIL_LIST_V1   nvmlProcessDetailList_v1
#define NVML_PROCESSES_UTILIZATION_V1 nvmlProcessesUtilizationInfo_v1

static const struct layout theirs[] = {
#include "nvml_types.def"
};

int main(void)
{
	return layout_compare(theirs, sizeof(theirs) / sizeof(theirs[0]));
}
