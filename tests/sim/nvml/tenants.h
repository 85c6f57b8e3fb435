/* Two processes of the slice on a GPU, and a process of another tenant. */
#pragma once

#include "nvml_api.h"

static const unsigned sizes_mib[] = {100, 200}, stranger_mib = 400;
static struct member members[2], stranger;

/* The body of a process: it hears the GPU's number and the MiB to hold, and holds them. */
static inline void holder(int wire)
{
	uint64_t gpu = hear(wire);

	cuda_start((CUdevice)gpu);
	take(hear(wire) * MIB);
	tell(wire, 1);
	hear(wire);
}

static inline void strange_holder(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	holder(wire);
}

static inline struct member start(void (*body)(int wire), unsigned gpu, unsigned mib)
{
	struct member member = member_start(body);

	tell(member.wire, gpu);
	tell(member.wire, mib);
	hear(member.wire);
	return member;
}

static inline void end(struct member *member)
{
	tell(member->wire, 1);
	member_end(member);
}

/* Starts two processes of the slice and a stranger, all on GPU 0. Returns this process's handle
 * of that GPU. No function of the library may have been called before, as a forked child keeps
 * its parent's slice. */
static inline nvmlDevice_t crowd(void)
{
	nvmlDevice_t device;

	env_set("VGPU_SIM_GPUS", "3x8G");
	stranger = start(strange_holder, 0, stranger_mib);
	for (unsigned i = 0; i < 2; i++)
		members[i] = start(holder, 0, sizes_mib[i]);
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	return device;
}

static inline nvmlDevice_t crowd_in_slice(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	return crowd();
}

static inline void disperse(void)
{
	end(&members[0]);
	end(&members[1]);
	end(&stranger);
}
