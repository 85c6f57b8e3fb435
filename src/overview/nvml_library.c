/* Only loading and starting are done here. Each caller looks up the functions that it needs,
 * because drivers differ in the functions that they have. */
#include "nvml_library.h"

#include <dlfcn.h>
#include <errno.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

int nvml_library_lacks(struct fault *fault)
{
	return fault_set(fault, -EIO,
			 NVML_LIBRARY " lacks functions that vgpu needs: the driver is older than "
				      "any that it supports; update it");
}

static int start(void *library, struct fault *fault)
{
	nvmlInit_v2_fn *init = (nvmlInit_v2_fn *)dlsym(library, "nvmlInit_v2");
	nvmlReturn_t result;

	if (!init || !dlsym(library, "nvmlShutdown"))
		return nvml_library_lacks(fault);
	result = init();
	if (result == NVML_SUCCESS)
		return 0;
	if (result == NVML_ERROR_LIB_RM_VERSION_MISMATCH)
		return fault_set(fault, -EIO,
				 "NVML is of another version than the kernel's driver: reboot, or "
				 "load the driver's module again, after an update; in a container, "
				 "restart it");
	return fault_set(fault, -EIO,
			 "NVML does not start (error %d): see whether nvidia-smi works here",
			 (int)result);
}

int nvml_library_open(void **ret_library, struct fault *fault)
{
	void *library = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	int error;

	if (!library)
		return fault_set(fault, -ENOENT,
				 "no NVIDIA driver here: " NVML_LIBRARY " was not found. To try "
				 "vgpu without a GPU, see `make demo`");
	error = start(library, fault);
	if (error)
		dlclose(library);
	else
		*ret_library = library;
	return error;
}

void nvml_library_close(void *library)
{
	((nvmlShutdown_fn *)dlsym(library, "nvmlShutdown"))();
	dlclose(library);
}
