/*
 * Memory that processes of a slice share, when they die: whose slot is used again, of whom is
 * imported, and who has the charge then.
 */
#include "region_internal.h"
#include "region_share_fixture.h"

/* -- slots that are used again ---------------------------------------------------------------- */

UNIT_TEST(test_reused_slot)
{
	unsigned device;
	uint64_t bytes;

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	region_close(&regions[1]);
	assert_int_equal(open_claimed(here.path, NULL, &regions[1]), 0);
	assert_int_equal(regions[1].slot, 1);
	act_withdraw(&regions[0], 0); /* who has the slot now imports nothing */
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	region_close(&regions[0]);
	assert_int_equal(open_claimed(here.path, NULL, &regions[0]), 0);
	assert_int_equal(regions[0].slot, 0);
	act_withdraw(&regions[0], 0); /* nor exports */
	assert_int_equal(region_used(&regions[0], 1), UNIT);
	assert_int_equal(region_share_import(&regions[0], KEY, &device, &bytes), 1);
	assert_int_equal(count_wrong(&regions[0]), 0);
	close_slots();
}

/* Dead, its slot taken by one who has counted its claim, and has not cleared the slot yet. */
UNIT_TEST(test_successor_is_not_mistaken)
{
	unsigned device;
	uint64_t bytes;
	int fd;

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	act_import(&regions[2], 1);
	fd = dup(regions[1].fd); /* the byte stays locked: somebody has it */
	region_forget(&regions[1]);
	assert_true(region_slot_alive(&regions[0], 1));
	regions[0].file->own.slots[1].claims++;
	act_withdraw(&regions[0], 1);
	assert_int_equal(region_own_usage(&regions[2], 1).data, UNIT);
	region_share_import_end(&regions[2], KEY);
	assert_int_equal(region_used(&regions[0], 1), 0);
	assert_int_equal(region_share_import(&regions[2], KEY, &device, &bytes), 0);
	close(fd);
	assert_int_equal(region_reap(&regions[0]), 1);
	assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
	close_slots();
}

/* No free slot: the dead exporter's own is taken, and the charge saved before it. */
UNIT_TEST(test_claim_over_the_exporter)
{
	struct region next = REGION_CLOSED;

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	region_forget(&regions[0]);
	for (unsigned slot = SLOTS; slot < VGPU_SLOTS_MAX; slot++)
		regions[1].file->hami.slots[slot].status = VGPU_SLOT_RUNNING;
	assert_int_equal(open_claimed(here.path, NULL, &next), 0);
	assert_int_equal(next.slot, 0);
	for (unsigned slot = SLOTS; slot < VGPU_SLOTS_MAX; slot++)
		regions[1].file->hami.slots[slot].status = VGPU_SLOT_FREE;
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT);
	assert_int_equal(region_used(&next, 1), UNIT);
	assert_int_equal(count_wrong(&next), 0);
	region_close(&next);
	close_slots();
}

/* Imported of one who is dead and not reaped: its charge is there, and comes to us. */
UNIT_TEST(test_import_from_the_dead)
{
	make_slots();
	act_export(&regions[0]);
	region_forget(&regions[0]);
	act_import(&regions[1], 1);
	assert_int_equal(region_used(&regions[1], 1), UNIT);
	assert_int_equal(region_reap(&regions[2]), 1);
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT);
	assert_int_equal(region_used(&regions[1], 1), UNIT);
	assert_int_equal(count_wrong(&regions[1]), 0);
	close_slots();
}

/* Between one who is dead and one who lives, the living one's is meant. */
UNIT_TEST(test_import_from_the_living)
{
	make_slots();
	act_export(&regions[0]);
	act_export(&regions[1]);
	region_forget(&regions[0]);
	act_import(&regions[2], 1);
	assert_int_equal(region_reap(&regions[2]), 1);
	assert_int_equal(region_own_usage(&regions[2], 1).data, 0);
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT);
	close_slots();
}

/* Nobody living has the region: the next one's setup finds no shares. */
UNIT_TEST(test_reset)
{
	struct region_setup setup = setup_from(0, 2, GIB);

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	for (int i = 0; i < SLOTS; i++)
		region_forget(&regions[i]);
	assert_int_equal(open_claimed(here.path, &setup, &regions[0]), 0);
	assert_int_equal(regions[0].file->own.share_count, 0);
	assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
	act_import(&regions[0], 0);
	assert_int_equal(region_used(&regions[0], 1), 0);
	close_slots();
}

/* The holder of the lock dies after it has written down what the charge's move comes to. */
UNIT_TEST(test_move_of_the_dead)
{
	struct vgpu_region_own *own;

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	own = &regions[0].file->own;
	assert_int_equal(own->shares[0].state, VGPU_SHARE_EXPORT);
	own->move = (struct vgpu_region_move){.bytes = UNIT,
					      .from_data = 0,
					      .to_data = UNIT,
					      .to_claim = own->shares[1].claim,
					      .share = 0,
					      .from = 0,
					      .to = 1,
					      .device = 1,
					      .active = 1};
	own->lock = regions[2].owner;
	region_forget(&regions[2]);
	assert_int_equal(region_charge(&regions[1], 1, REGION_DATA, 10, GIB), 0);
	assert_int_equal(own->move.active, 0);
	assert_int_equal(own->shares[0].state, VGPU_SHARE_MOVED);
	assert_int_equal(region_own_usage(&regions[0], 1).data, 0);
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT + 10);
	assert_int_equal(count_wrong(&regions[0]), 0);
	close_slots();
}

/* -- processes -------------------------------------------------------------------------------- */

struct importer {
	const char *path;
	uint64_t ready, end, ended;
};

static void import_until_killed(void *arg)
{
	struct importer *importer = arg;
	struct region region = REGION_CLOSED;
	unsigned device;
	uint64_t bytes;

	for (int i = 0; i < SLOTS; i++)
		region_forget(&regions[i]);
	CHECK(open_claimed(importer->path, NULL, &region) == 0);
	CHECK(region_share_import(&region, KEY, &device, &bytes) == 1);
	FLAG_SET(importer->ready);
	CHECK(reached(&importer->end, 1, LONG_MS));
	region_share_import_end(&region, KEY);
	FLAG_SET(importer->ended);
	for (;;)
		pause();
}

/* Two children import what the test exports, in two ways each to go: killed, or closed. */
UNIT_TEST(test_processes)
{
	struct importer *importers = shared_memory(2 * sizeof(*importers));
	pid_t pids[2];

	make_slots();
	for (unsigned way = 0; way < 4; way++) {
		act_export(&regions[0]);
		for (int i = 0; i < 2; i++) {
			importers[i] = (struct importer){here.path, 0, 0, 0};
			pids[i] = spawn(import_until_killed, &importers[i]);
			assert_true(reached(&importers[i].ready, 1, LONG_MS));
		}
		act_withdraw(&regions[0], 1);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(region_used(&regions[0], 1), UNIT);
			assert_int_equal(region_own_usage(&regions[0], 1).data, 0);
			if (way >> i & 1) {
				kill_child(pids[i]);
				assert_int_equal(region_reap(&regions[0]), 1);
			} else {
				FLAG_SET(importers[i].end);
				assert_true(reached(&importers[i].ended, 1, LONG_MS));
			}
			assert_int_equal(count_wrong(&regions[0]), 0);
		}
		assert_int_equal(region_used(&regions[0], 1), 0);
		for (int i = 0; i < 2; i++)
			if (!(way >> i & 1))
				kill_child(pids[i]);
		region_reap(&regions[0]);
		assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
	}
	close_slots();
	munmap(importers, 2 * sizeof(*importers));
}

static void export_and_die(void *arg)
{
	struct region region = REGION_CLOSED;

	for (int i = 0; i < SLOTS; i++)
		region_forget(&regions[i]);
	CHECK(open_claimed(arg, NULL, &region) == 0);
	CHECK(region_charge(&region, 1, REGION_DATA, UNIT, 0) == 0);
	CHECK(region_share_export(&region, 1, KEY, UNIT) == 0);
	kill(getpid(), SIGKILL);
}

/* What the dead had exported is no room for others, until its importer closes it. */
UNIT_TEST(test_charge_after_death)
{
	make_slots();
	assert_true(WIFSIGNALED(reap_status(spawn(export_and_die, here.path))));
	act_import(&regions[1], 1);
	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, 10, UNIT), -EDQUOT);
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT); /* reaped for it */
	region_share_import_end(&regions[1], KEY);
	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, 10, UNIT), 0);
	assert_int_equal(count_wrong(&regions[0]), 0);
	close_slots();
}
