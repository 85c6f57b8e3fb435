/* A function of the simulated NVML that NVIDIA's does not have. */
#pragma once

#include <stdint.h>

/*
 * The most bytes of the GPU that living processes had at the same time, since the last call for
 * that GPU, or since the machine's first process began. `gpu`: its index without
 * CUDA_VISIBLE_DEVICES; 0 for one that does not exist. Called between nvmlInit and nvmlShutdown.
 */
uint64_t vgpu_sim_peak(unsigned gpu);
