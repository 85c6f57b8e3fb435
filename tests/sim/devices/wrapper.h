/* A library that is preloaded behind ours: it looks at what the driver is shown by cuInit. */
#pragma once

struct wrapper {
	unsigned calls;          /* of cuInit, so far */
	char seen[2048];         /* CUDA_VISIBLE_DEVICES at the last one; "(none)" */
	void (*meanwhile)(void); /* called in it, before the driver; NULL: nothing is */
	int device_count;        /* what cuDeviceGetCount says; 0: what the driver says */
};

struct wrapper *devices_wrapper(void);
