/* Opens NVML by dlopen. A program that is linked with NVML would not start on a machine without
 * it. */
#pragma once

#include "fault.h"
#include "nvml_abi.h"

/* Defines the type of each function, such as nvmlInit_v2_fn, from the table nvml.def. */
#define NVML_HOOK(name, parameters, arguments) typedef nvmlReturn_t name##_fn parameters;
#define NVML_CALL(name, parameters)            typedef nvmlReturn_t name##_fn parameters;
#include "nvml.def"

/* Loads NVML and starts it. *ret_library is for dlsym; the caller closes it. Returns 0, or with
 * a fault -ENOENT (NVML is not found) or -EIO (NVML does not start). */
int nvml_library_open(void **ret_library, struct fault *fault);
void nvml_library_close(void *library);

/* Sets the fault for a library without a function that all supported drivers have. Returns
 * -EIO. */
int nvml_library_lacks(struct fault *fault);
