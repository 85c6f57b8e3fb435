#include "devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "size.h"

#define SEPARATOR "::"

/* -- which GPUs -------------------------------------------------------------------------------- */

static bool is_named_by(const char *word, const struct gpu *gpu)
{
	uint64_t index;

	return strcmp(word, gpu->uuid) == 0 ||
	       (number_parse(word, UINT32_MAX, &index) == 0 && index == gpu->index);
}

/* The index in gpus->gpu of the GPU that the word names, or gpus->count. */
static unsigned find_gpu(const struct gpus *gpus, const char *word)
{
	unsigned i = 0;

	while (i < gpus->count && !is_named_by(word, &gpus->gpu[i]))
		i++;
	return i;
}

static bool is_named(const struct config_slice *slice, const struct gpu *gpu)
{
	for (unsigned i = 0; i < slice->device_count; i++)
		if (is_named_by(slice->device[i], gpu))
			return true;
	return slice->device_count == 0;
}

int devices_find(const struct config_slice *slice, const struct gpus *gpus,
		 struct devices *ret_devices, struct fault *fault)
{
	struct devices devices = {.slice = slice, .gpus = gpus};

	for (unsigned i = 0; i < slice->device_count; i++)
		if (find_gpu(gpus, slice->device[i]) == gpus->count)
			return fault_set(
				fault, -ENODEV,
				"the slice %s is on the GPU \"%s\", which is not on this node, or "
				"is in MIG mode: see nvidia-smi -L",
				slice->resource, slice->device[i]);
	for (unsigned i = 0; i < gpus->count; i++)
		if (is_named(slice, &gpus->gpu[i]))
			devices.gpu[devices.gpu_count++] = i;
	*ret_devices = devices;
	return 0;
}

/* -- memory ------------------------------------------------------------------------------------ */

/* The memory of all slices of the GPU together, in bytes, at most UINT64_MAX. */
static uint64_t memory_of_slices(const struct config *config, const struct gpu *gpu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < config->slice_count; i++) {
		const struct config_slice *slice = &config->slice[i];
		uint64_t bytes;

		if (!is_named(slice, gpu))
			continue;
		if (__builtin_mul_overflow(slice->memory_bytes, slice->replicas, &bytes) ||
		    __builtin_add_overflow(sum, bytes, &sum))
			return UINT64_MAX;
	}
	return sum;
}

int devices_fit(const struct config *config, const struct gpus *gpus, struct fault *fault)
{
	for (unsigned i = 0; i < gpus->count; i++) {
		const struct gpu *gpu = &gpus->gpu[i];
		uint64_t sum = memory_of_slices(config, gpu);
		char wanted[32], there[32];

		if (gpu->total_bytes && sum > gpu->total_bytes)
			return fault_set(
				fault, -ENOSPC,
				"all slices of GPU %u together have %s, and the GPU has %s: "
				"write less memory or fewer replicas, or overcommit: true "
				"below sharing",
				gpu->index, size_format(sum, wanted, sizeof(wanted)),
				size_format(gpu->total_bytes, there, sizeof(there)));
	}
	return 0;
}

/* -- IDs --------------------------------------------------------------------------------------- */

void devices_id(const struct devices *devices, unsigned gpu, unsigned replica,
		char ret_id[DEVICES_ID_LEN])
{
	snprintf(ret_id, DEVICES_ID_LEN, "%.*s" SEPARATOR "%s" SEPARATOR "%u", VGPU_UUID_LEN - 1,
		 devices->gpus->gpu[gpu].uuid, devices->slice->name, replica);
}

/* An ID is compared with the one that devices_id writes, so each device has one spelling. */
bool devices_parse(const struct devices *devices, const char *id, unsigned *ret_gpu,
		   unsigned *ret_replica)
{
	const char *number = strrchr(id, ':');
	char whole[DEVICES_ID_LEN];
	uint64_t replica;

	if (!number || number_parse(number + 1, devices->slice->replicas - 1, &replica))
		return false;
	for (unsigned i = 0; i < devices->gpu_count; i++) {
		devices_id(devices, devices->gpu[i], (unsigned)replica, whole);
		if (strcmp(whole, id) == 0) {
			*ret_gpu = devices->gpu[i];
			*ret_replica = (unsigned)replica;
			return true;
		}
	}
	return false;
}
