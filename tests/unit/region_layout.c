/* The region's layout in figures: they are a contract with programs that were compiled long ago. */
#include "region_fixture.h"

#define AT(type, field, offset) assert_int_equal(offsetof(struct type, field), offset)

UNIT_TEST_ALONE(test_hami_header)
{
	AT(vgpu_hami_region, magic, 0);
	AT(vgpu_hami_region, version_major, 4);
	AT(vgpu_hami_region, version_minor, 8);
	AT(vgpu_hami_region, sm_init, 12);
	AT(vgpu_hami_region, owner_pid, 16);
	AT(vgpu_hami_region, sem, 24);
	AT(vgpu_hami_region, device_count, 56);
	AT(vgpu_hami_region, uuids, 64);
	AT(vgpu_hami_region, uuids[1], 160);
	AT(vgpu_hami_region, limit, 1600);
	AT(vgpu_hami_region, sm_limit, 1728);
	AT(vgpu_hami_region, slots, 1856);
	AT(vgpu_hami_region, slots[1], 3816);
	AT(vgpu_hami_region, slot_count, 2008896);
	AT(vgpu_hami_region, utilization_switch, 2008900);
	AT(vgpu_hami_region, recent_kernel, 2008904);
	AT(vgpu_hami_region, priority, 2008908);
	AT(vgpu_hami_region, last_kernel_time, 2008912);
	AT(vgpu_hami_region, sem_postinit, 2008920);
	assert_int_equal(sizeof(struct vgpu_hami_region), 2008952);
	assert_int_equal(VGPU_HAMI_MAGIC, 19920718);
}

UNIT_TEST_ALONE(test_hami_slot)
{
	AT(vgpu_hami_slot, pid, 0);
	AT(vgpu_hami_slot, hostpid, 4);
	AT(vgpu_hami_slot, used, 8);
	AT(vgpu_hami_slot, used[1], 72);
	AT(vgpu_hami_slot, monitor_used, 1032);
	AT(vgpu_hami_slot, device_util, 1160);
	AT(vgpu_hami_slot, device_util[1], 1208);
	AT(vgpu_hami_slot, status, 1928);
	AT(vgpu_hami_slot, seqlock, 1936);
	assert_int_equal(sizeof(struct vgpu_hami_slot), 1960);
	AT(vgpu_hami_usage, context, 0);
	AT(vgpu_hami_usage, module, 8);
	AT(vgpu_hami_usage, data, 16);
	AT(vgpu_hami_usage, offset, 24);
	AT(vgpu_hami_usage, total, 32);
	AT(vgpu_hami_util, decoder, 0);
	AT(vgpu_hami_util, encoder, 8);
	AT(vgpu_hami_util, sm, 16);
}

UNIT_TEST_ALONE(test_own_part)
{
	AT(vgpu_region_file, own, 2011136);
	AT(vgpu_region_own, magic, 0);
	AT(vgpu_region_own, version, 8);
	AT(vgpu_region_own, size, 12);
	AT(vgpu_region_own, lock, 16);
	AT(vgpu_region_own, takeovers, 20);
	AT(vgpu_region_own, share_count, 24);
	AT(vgpu_region_own, device, 64);
	AT(vgpu_region_own, device[1], 192);
	AT(vgpu_region_own, move, 2112);
	AT(vgpu_region_own, gang, 2176);
	AT(vgpu_region_own, slots, 4096);
	AT(vgpu_region_own, slots[1], 4160);
	AT(vgpu_region_own, shares, 69632);
	AT(vgpu_region_own, shares[1], 69664);
	AT(vgpu_region_share, key, 0);
	AT(vgpu_region_share, bytes, 8);
	AT(vgpu_region_share, claim, 16);
	AT(vgpu_region_share, count, 20);
	AT(vgpu_region_share, slot, 24);
	AT(vgpu_region_share, of, 26);
	AT(vgpu_region_share, state, 28);
	AT(vgpu_region_share, device, 29);
	AT(vgpu_region_move, to_claim, 24);
	AT(vgpu_region_move, share, 28);
	AT(vgpu_region_move, active, 36);
	assert_int_equal(sizeof(struct vgpu_region_file), 2097152);
	assert_int_equal(VGPU_SLOT_LOCK_OFFSET, 2015232);
	assert_int_equal(VGPU_INIT_LOCK_OFFSET, 0);
	assert_int_equal(VGPU_REGION_OFFSET % 4096, 0);
}

/* The same, as a monitor finds them: bytes of a file. */
UNIT_TEST(test_made_file)
{
	struct region_setup setup = setup_from(7, 2, 3 * GIB);
	struct region region = REGION_CLOSED;
	uint8_t *bytes;
	int32_t word;
	uint64_t figure;

	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	assert_int_equal(region_charge(&region, 1, REGION_DATA, 12345, 0), 0);
	bytes = (uint8_t *)region.file;
	memcpy(&word, bytes, 4);
	assert_int_equal(word, 19920718);
	memcpy(&word, bytes + 4, 4);
	assert_int_equal(word, 1);
	memcpy(&word, bytes + 8, 4);
	assert_int_equal(word, 2);
	memcpy(&figure, bytes + 56, 8);
	assert_int_equal(figure, 2);
	assert_string_equal((char *)bytes + 64 + 96, "GPU-8");
	memcpy(&figure, bytes + 1600 + 8, 8);
	assert_int_equal(figure, 3 * GIB);
	memcpy(&figure, bytes + 1728, 8);
	assert_int_equal(figure, 50);
	memcpy(&word, bytes + 1856, 4);
	assert_int_equal(word, getpid());
	memcpy(&figure, bytes + 1856 + 8 + 64 + 16, 8);
	assert_int_equal(figure, 12345);
	memcpy(&figure, bytes + 1856 + 8 + 64 + 32, 8);
	assert_int_equal(figure, 12345);
	memcpy(&word, bytes + 1856 + 1928, 4);
	assert_int_equal(word, 1);
	memcpy(&word, bytes + 2008896, 4);
	assert_int_equal(word, 1);
	memcpy(&word, bytes + 2008900, 4);
	assert_int_equal(word, 1);
	memcpy(&word, bytes + 2008904, 4);
	assert_int_equal(word, 2);
	assert_memory_equal(bytes + 2011136, "REGION01", 8);
	region_close(&region);
}
