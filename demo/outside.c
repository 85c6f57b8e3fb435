/*
 * Prints "USED TOTAL" of the first GPU in MiB, as NVML counts them for the whole machine: the truth
 * to hold the ledger against, from a process that is in no slice.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "nvml_abi.h"

int main(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	nvmlReturn_t (*init)(void), (*by_index)(unsigned, nvmlDevice_t *),
		(*info)(nvmlDevice_t, nvmlMemory_v2_t *);
	nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
	nvmlDevice_t device;

	if (!library) {
		fprintf(stderr, "outside: no NVML: %s\n", dlerror());
		return 1;
	}
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&by_index = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
	if (!init || !by_index || !info || init() != NVML_SUCCESS ||
	    by_index(0, &device) != NVML_SUCCESS || info(device, &memory) != NVML_SUCCESS) {
		fprintf(stderr, "outside: NVML does not answer\n");
		return 1;
	}
	printf("%llu %llu\n", memory.used >> 20, memory.total >> 20);
	return 0;
}
