/* A library that is preloaded after libvgpu.so. It records what cuInit of the driver finds in
 * the environment. */
#pragma once

struct wrapper {
	unsigned calls;          /* calls of cuInit so far */
	char seen[2048];         /* CUDA_VISIBLE_DEVICES at the last call; "(none)": unset */
	void (*meanwhile)(void); /* called before the driver's cuInit; NULL: nothing is called */
	int device_count;        /* result of cuDeviceGetCount; 0: the driver's */
};

struct wrapper *devices_wrapper(void);
