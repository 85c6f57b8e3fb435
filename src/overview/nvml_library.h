/* NVML, opened by its name: a program that is linked to it would not start where it is missing. */
#pragma once

#include "fault.h"
#include "nvml_abi.h"

/* A function's type, from the table that has its parameters: nvmlInit_v2_fn. */
#define NVML_HOOK(name, parameters, arguments) typedef nvmlReturn_t name##_fn parameters;
#define NVML_CALL(name, parameters)            typedef nvmlReturn_t name##_fn parameters;
#include "nvml.def"

/* Loads and starts it; ret_library is for dlsym. -ENOENT without a driver, -EIO when it does not
 * start. */
int nvml_library_open(void **ret_library, struct fault *fault);
void nvml_library_close(void *library);

/* What to say, and return, when it lacks a function that all supported drivers have: -EIO. */
int nvml_library_lacks(struct fault *fault);
