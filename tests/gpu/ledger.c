/*
 * ledger FILE: prints a region, as a monitor would read it: of the first device "used LIMIT_MIB
 * USED_MIB", for each slot "slot PID COUNTED_MIB CONTEXT MODULE DATA OFFSET", where COUNTED is what
 * NVML should say, and for each device "device INDEX CHARGED_NS THROTTLED_NS".
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgpu_region.h"

static unsigned long mib(uint64_t bytes)
{
	return (unsigned long)(bytes >> 20);
}

int main(int argc, char **argv)
{
	const struct vgpu_region_file *region;
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: ledger REGION-FILE\n");
		return 2;
	}
	region = mmap(NULL, sizeof(*region), PROT_READ, MAP_SHARED, fd, 0);
	if (region == MAP_FAILED) {
		perror("ledger: mmap");
		return 1;
	}
	printf("used %lu %lu\n", mib(region->hami.limit[0]), mib(region->own.device[0].used));
	for (int i = 0; i < region->hami.slot_count; i++) {
		const struct vgpu_hami_slot *slot = &region->hami.slots[i];
		const struct vgpu_hami_usage *used = &slot->used[0];

		if (slot->status != VGPU_SLOT_FREE)
			printf("slot %d %lu %lu %lu %lu %lu\n", slot->pid,
			       mib(used->context + used->module + used->data), mib(used->context),
			       mib(used->module), mib(used->data), mib(used->offset));
	}
	for (uint64_t i = 0; i < region->hami.device_count && i < VGPU_DEVICES_MAX; i++) {
		const struct vgpu_region_device *device = &region->own.device[i];

		printf("device %d %lld %llu\n", (int)i,
		       (long long)(device->bucket.charged + device->bucket.corrected),
		       (unsigned long long)device->throttled_ns);
	}
	return 0;
}
