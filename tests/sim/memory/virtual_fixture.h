/* Shared by the tests of memory with a handle: functions that make it, and checks. */
#pragma once

#include "acts.h"

typedef CUmemGenericAllocationHandle memory;

void start(const char *limit);
/* Checks that `bytes` are charged, are in the process's figure, and are held by the device. */
void assert_data(uint64_t bytes);

CUmemAllocationProp at(unsigned type, int id);
CUresult create(memory *handle, uint64_t bytes, CUdevice device);

/* These check that the driver succeeds. */
memory created(uint64_t bytes);
void release(memory handle);
CUdeviceptr reserve(uint64_t bytes);
void map(CUdeviceptr address, uint64_t bytes, memory handle);
void unmap(CUdeviceptr address, uint64_t bytes);
memory retain(CUdeviceptr address);

/* -- rows of calls ---------------------------------------------------------------------------- */

extern memory things[ACT_THINGS];
extern CUdeviceptr space; /* addresses that the process has reserved; places are MiB from here */

void play(const struct acts *row);

CUresult create_thing(const struct act_call *call);
CUresult release_thing(const struct act_call *call);
CUresult map_thing(const struct act_call *call);
CUresult unmap_place(const struct act_call *call);
CUresult retain_thing(const struct act_call *call);

/* clang-format off */
#define CREATE_IN(type, thing, mib) {create_thing, thing, CU_MEM_LOCATION_TYPE_##type, 0, mib}
#define CREATE(thing, mib)          CREATE_IN(DEVICE, thing, mib)
#define RELEASE(thing)              {release_thing, thing, NONE, 0, 0}
#define MAP(thing, place, mib)      {map_thing, thing, NONE, place, mib}
#define UNMAP(place, mib)           {unmap_place, NONE, NONE, place, mib}
#define RETAIN(thing, place)        {retain_thing, thing, NONE, place, 0} /* and no other thing */
/* clang-format on */
