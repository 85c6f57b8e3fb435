/*
 * include/vgpu_region.h against HAMi's layout (hami.def), field by field. The types count as well:
 * a monitor reads -1 in recent_kernel, and a pid, as signed.
 */
#include <stdbool.h>
#include <stdio.h>

#include "vgpu_region.h"

static const struct row {
	const char *of, *name;
	size_t offset, bytes, our_offset, our_bytes;
} rows[] = {
#define HAMI_SIZE(structure, bytes, type) \
	{#structure, "the whole", 0, bytes, 0, sizeof(struct type)},
#define HAMI(structure, name, offset, bytes, type, field) \
	{#structure,                                      \
	 #name,                                           \
	 offset,                                          \
	 bytes,                                           \
	 offsetof(struct type, field),                    \
	 sizeof(((struct type *)0)->field)},
#include "hami.def"
#undef HAMI
#undef HAMI_SIZE
};

#define IS(type, of, field)                                                              \
	_Static_assert(_Generic(((struct of *)0)->field, type : 1, default : 0), "type " \
										 "of " #field)
IS(int32_t, vgpu_hami_region, magic);
IS(uint32_t, vgpu_hami_region, version_major);
IS(uint32_t, vgpu_hami_region, version_minor);
IS(int32_t, vgpu_hami_region, slot_count);
IS(int32_t, vgpu_hami_region, utilization_switch);
IS(int32_t, vgpu_hami_region, recent_kernel);
IS(int32_t, vgpu_hami_region, priority);
IS(int64_t, vgpu_hami_region, last_kernel_time);
IS(int32_t, vgpu_hami_slot, pid);
IS(int32_t, vgpu_hami_slot, hostpid);
IS(int32_t, vgpu_hami_slot, status);

int main(void)
{
	int status = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *row = &rows[i];

		if (row->offset == row->our_offset && row->bytes == row->our_bytes)
			continue;
		fprintf(stderr, "%s of %s: %zu bytes at %zu in HAMi's layout, %zu at %zu in ours\n",
			row->name, row->of, row->bytes, row->offset, row->our_bytes,
			row->our_offset);
		status = 1;
	}
	if (VGPU_HAMI_MAGIC != 19920718 || VGPU_HAMI_VERSION_MAJOR != 1 ||
	    VGPU_HAMI_VERSION_MINOR != 2 || VGPU_DEVICES_MAX != 16 || VGPU_SLOTS_MAX != 1024 ||
	    VGPU_UUID_LEN != 96) {
		fprintf(stderr, "a number of HAMi's is another one in ours\n");
		status = 1;
	}
	return status;
}
