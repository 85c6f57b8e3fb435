/* What the tests of memory with a handle share: getting it, and what is true of it. */
#pragma once

#include "cuda_api.h"

typedef CUmemGenericAllocationHandle memory;

void start(const char *limit);
/* Charged, in the process's figure, and on the device. */
void assert_data(uint64_t bytes);

CUmemAllocationProp at(unsigned type, int id);
CUresult create(memory *handle, uint64_t bytes, CUdevice device);

/* These succeed. */
memory created(uint64_t bytes);
void release(memory handle);
CUdeviceptr reserve(uint64_t bytes);
void map(CUdeviceptr address, uint64_t bytes, memory handle);
void unmap(CUdeviceptr address, uint64_t bytes);
memory retain(CUdeviceptr address);
