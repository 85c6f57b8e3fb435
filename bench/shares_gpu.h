/*
 * The GPU as shares uses it: one context, kernels that do a fixed amount of arithmetic, and graphs
 * of them. What the driver refuses ends the program.
 *
 * The kernel is called spin_ns, and counts in its first parameter: over the simulated driver one of
 * that name takes as many nanoseconds, and calibration finds that out as it does on a GPU.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#include "cuda_abi.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define GPU_GRAPH_KERNELS 20
#define GPU_NON_BLOCKING  1 /* a stream that does not wait for the default one */

extern CUcontext gpu_context; /* these: as gpu_start made them */
extern CUfunction gpu_kernel;
extern CUdeviceptr gpu_nowhere; /* some memory */

/* The driver, for created streams or for each thread's default stream. */
extern struct gpu_driver {
	CUresult (*kernel)(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			   unsigned, CUstream stream, void **parameters, void **extra);
	CUresult (*graph)(CUgraphExec graph, CUstream stream);
	CUresult (*record)(CUevent event, CUstream stream);
	CUresult (*synchronize)(CUstream stream);
} gpu_driver;

_Noreturn void fail(const char *what, const char *why); /* ends the program */
void must(CUresult result, const char *what);           /* so does that, where it is no success */

#define US_PER_S 1e6
double us_of(clockid_t clock);

void gpu_start(void);
void gpu_use_per_thread_streams(void);

CUfunction gpu_kernel_load(void); /* another function each time, of the same name */
CUresult gpu_launch(CUfunction function, uint64_t iters, CUstream stream);
CUgraphExec gpu_graph_of(CUfunction function, uint64_t iters); /* of some, one after the other */

double gpu_calibrate(void); /* iterations of a kernel in a microsecond */
