/*
 * Memory that processes of a slice share: charged once, to one of them, for as long as any of them
 * holds it; in every order of exports, imports, their ends, and deaths. And what is done with
 * arguments, tables and locks that are not as they should be. Slots and processes that come after
 * the dead: region_share_deaths.c.
 */
#include <pthread.h>

#include "region_internal.h"
#include "region_share_fixture.h"

/* -- every order ------------------------------------------------------------------------------ */

enum op { DONE, EXPORT, WITHDRAW, IMPORT, END, CLOSE, DIE };

struct act {
	int who;
	enum op op;
	int result; /* of withdraw and import */
};

/* What the three hold of device 1 after each act, in units of bytes. */
struct row {
	const char *name;
	struct {
		struct act act;
		int data[SLOTS];
	} step[12];
};

#define DO(who, op, result, a, b, c) \
	{                            \
		{who, op, result},   \
		{                    \
			a, b, c      \
		}                    \
	}

/* clang-format off */
static const struct row rows[] = {
	{"nobody imports", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(0, EXPORT, 0, 2, 0, 0), DO(0, WITHDRAW, 0, 1, 0, 0),
		DO(0, WITHDRAW, 0, 0, 0, 0)}},
	{"nobody exports", {DO(1, IMPORT, 0, 0, 0, 0), DO(1, END, 0, 0, 0, 0)}},
	{"imported and closed before it is withdrawn", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(1, END, 0, 1, 0, 0),
		DO(0, WITHDRAW, 0, 0, 0, 0)}},
	{"withdrawn first", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 1, 0),
		DO(1, END, 0, 0, 0, 0)}},
	{"opened twice", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0),
		DO(0, WITHDRAW, 1, 0, 1, 0), DO(1, END, 0, 0, 1, 0), DO(1, END, 0, 0, 0, 0)}},
	{"opened again after it moved", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 1, 0),
		DO(1, IMPORT, 1, 0, 1, 0), DO(2, IMPORT, 1, 0, 1, 0), DO(1, END, 0, 0, 1, 0),
		DO(1, END, 0, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
	{"two importers, one after the other", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(2, IMPORT, 1, 1, 0, 0),
		DO(0, WITHDRAW, 1, 0, 1, 0), DO(1, END, 0, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
	{"two importers, the one without the charge first", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(2, IMPORT, 1, 1, 0, 0),
		DO(0, WITHDRAW, 1, 0, 1, 0), DO(2, END, 0, 0, 1, 0), DO(1, END, 0, 0, 0, 0)}},
	{"back to the exporter, who opened it itself", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(0, IMPORT, 1, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0),
		DO(0, WITHDRAW, 1, 0, 1, 0), DO(1, END, 0, 1, 0, 0), DO(0, END, 0, 0, 0, 0)}},
	{"the exporter alone has it open still", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(0, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 1, 0, 0),
		DO(2, IMPORT, 1, 1, 0, 0), DO(0, END, 0, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
	{"the exporter ends its import first", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(0, IMPORT, 1, 1, 0, 0), DO(0, END, 0, 1, 0, 0),
		DO(0, WITHDRAW, 0, 0, 0, 0)}},
	{"the exporter closes", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(2, IMPORT, 1, 1, 0, 0), DO(0, CLOSE, 0, 0, 0, 1),
		DO(2, END, 0, 0, 0, 0)}},
	{"the exporter dies", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(2, IMPORT, 1, 1, 0, 0),
		DO(0, DIE, 0, 0, 1, 0), DO(1, DIE, 0, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
	{"importers die, then the exporter withdraws", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(2, IMPORT, 1, 1, 0, 0),
		DO(1, DIE, 0, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 0, 1), DO(2, CLOSE, 0, 0, 0, 0)}},
	{"exporter and importer die", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(1, DIE, 0, 1, 0, 0),
		DO(0, DIE, 0, 0, 0, 0), DO(2, IMPORT, 0, 0, 0, 0)}},
	{"who had it moved to it closes with nobody left", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 1, 0),
		DO(1, CLOSE, 0, 0, 0, 0), DO(2, IMPORT, 0, 0, 0, 0)}},
	{"the exporter closes with its own import", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(0, IMPORT, 1, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0),
		DO(0, CLOSE, 0, 0, 1, 0), DO(1, CLOSE, 0, 0, 0, 0)}},
	{"the key is used again", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 1, 0),
		DO(0, EXPORT, 0, 1, 1, 0), DO(2, IMPORT, 1, 1, 1, 0), DO(1, END, 0, 1, 0, 0),
		DO(0, WITHDRAW, 1, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
	{"the key is used again, and opened again by the same", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, IMPORT, 1, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 1, 0),
		DO(0, EXPORT, 0, 1, 1, 0), DO(1, IMPORT, 1, 1, 1, 0), DO(0, WITHDRAW, 1, 0, 2, 0),
		DO(1, END, 0, 0, 1, 0), DO(1, END, 0, 0, 0, 0)}},
	{"two export the same key", {
		DO(0, EXPORT, 0, 1, 0, 0), DO(1, EXPORT, 0, 1, 1, 0), DO(2, IMPORT, 1, 1, 1, 0),
		DO(1, WITHDRAW, 0, 1, 0, 0), DO(0, WITHDRAW, 1, 0, 0, 1), DO(2, END, 0, 0, 0, 0)}},
};
/* clang-format on */

static void perform(const struct act *act)
{
	struct region *region = &regions[act->who];

	switch (act->op) {
	case DONE:
		break;
	case EXPORT:
		act_export(region);
		break;
	case WITHDRAW:
		act_withdraw(region, act->result);
		break;
	case IMPORT:
		act_import(region, act->result);
		break;
	case END:
		region_share_import_end(region, KEY);
		break;
	case CLOSE:
		region_close(region);
		break;
	case DIE:
		region_forget(region);
		region_reap(any_open());
		break;
	}
}

static void assert_held(const struct row *row, unsigned step)
{
	const struct vgpu_region_file *file = any_open()->file;
	uint64_t sum = 0;

	for (int i = 0; i < SLOTS; i++) {
		uint64_t expected = (uint64_t)row->step[step].data[i] * UNIT;

		if (file->hami.slots[i].used[1].data != expected)
			fail_msg("%s, step %u: slot %d holds %llu bytes", row->name, step, i,
				 (unsigned long long)file->hami.slots[i].used[1].data);
		sum += expected;
	}
	assert_int_equal(region_used(any_open(), 1), sum);
	assert_int_equal(region_used(any_open(), 0), 0);
	if (count_wrong(any_open()) != 0)
		fail_msg("%s, step %u: not whole", row->name, step);
}

UNIT_TEST(test_every_order)
{
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		unlink(here.path);
		make_slots();
		for (unsigned step = 0; rows[i].step[step].act.op != DONE; step++) {
			perform(&rows[i].step[step].act);
			assert_held(&rows[i], step);
		}
		assert_int_equal(region_used(any_open(), 1), 0);
		assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
		close_slots();
	}
}

/* -- figures ---------------------------------------------------------------------------------- */

UNIT_TEST(test_arguments)
{
	struct region view = REGION_CLOSED;
	struct fault fault;
	unsigned device = 55;
	uint64_t bytes = 66;

	make_slots();
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	assert_int_equal(region_share_export(&view, 0, KEY, 1), -EBADF);
	assert_int_equal(region_share_withdraw(&view, KEY, REGION_SHARE_AS_EXPORTED), -EBADF);
	assert_int_equal(region_share_import(&view, KEY, &device, &bytes), -EBADF);
	region_share_import_end(&view, KEY);
	assert_int_equal(region_share_export(&regions[0], 2, KEY, 1), -EINVAL);
	assert_int_equal(region_share_export(&regions[0], 1u << 31, KEY, 1), -EINVAL);
	assert_int_equal(region_share_export(&regions[0], 256, KEY, 1), -EINVAL);
	assert_int_equal(region_share_export(&regions[0], 0, 0, 1), -EINVAL);
	assert_int_equal(region_share_import(&regions[0], 0, &device, &bytes), 0);
	assert_int_equal(device, 55);
	assert_int_equal(bytes, 66);
	assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
	region_close(&view);
	close_slots();
}

/* What others hold, and other classes and devices, stay out of it; and no limit is asked. */
UNIT_TEST(test_only_that_charge_moves)
{
	struct vgpu_hami_usage usage;
	unsigned device;
	uint64_t bytes;

	make_slots();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(region_charge(&regions[i], 1, REGION_DATA, 100, GIB), 0);
		assert_int_equal(region_charge(&regions[i], 1, REGION_MODULE, 20, GIB), 0);
		assert_int_equal(region_charge(&regions[i], 0, REGION_DATA, 3, GIB), 0);
	}
	assert_int_equal(region_share_export(&regions[0], 1, KEY, 60), 0);
	assert_int_equal(region_share_export(&regions[0], 1, KEY, 99), 0); /* the first counts */
	assert_int_equal(region_share_export(&regions[0], 1, KEY + 1, 40), 0);
	assert_int_equal(region_share_import(&regions[1], KEY, &device, &bytes), 1);
	assert_int_equal(bytes, 60);
	assert_int_equal(region_share_withdraw(&regions[0], KEY, REGION_SHARE_AS_EXPORTED), 1);
	usage = region_own_usage(&regions[0], 1);
	assert_int_equal(usage.data, 40);
	assert_int_equal(usage.module, 20);
	assert_int_equal(usage.total, 60);
	usage = region_own_usage(&regions[1], 1);
	assert_int_equal(usage.data, 160);
	assert_int_equal(usage.total, 180);
	assert_int_equal(region_used(&regions[0], 1), 240);
	assert_int_equal(region_used(&regions[0], 0), 6);
	assert_int_equal(region_share_withdraw(&regions[0], KEY, REGION_SHARE_AS_EXPORTED),
			 0); /* it is ours no longer */
	assert_int_equal(count_wrong(&regions[0]), 0);
	close_slots();
}

/* Refunded without a withdrawal: what is not there any more does not move. */
UNIT_TEST(test_no_more_than_there_is)
{
	unsigned device;
	uint64_t bytes;

	make_slots();
	assert_int_equal(region_charge(&regions[0], 0, REGION_DATA, 100, 0), 0);
	assert_int_equal(region_share_export(&regions[0], 0, KEY, 100), 0);
	assert_int_equal(region_share_import(&regions[1], KEY, &device, &bytes), 1);
	region_refund(&regions[0], 0, REGION_DATA, 70);
	assert_int_equal(region_share_withdraw(&regions[0], KEY, REGION_SHARE_AS_EXPORTED), 1);
	assert_int_equal(region_own_usage(&regions[0], 0).data, 0);
	assert_int_equal(region_own_usage(&regions[1], 0).data, 30);
	assert_int_equal(region_used(&regions[1], 0), 30);
	assert_int_equal(region_charge(&regions[1], 0, REGION_DATA, 5, 0), 0);
	region_share_import_end(&regions[1], KEY);
	assert_int_equal(region_own_usage(&regions[1], 0).data, 5);
	assert_int_equal(region_used(&regions[1], 0), 5);
	close_slots();
}

UNIT_TEST(test_full_table)
{
	unsigned device;
	uint64_t bytes;

	make_slots();
	assert_int_equal(region_charge(&regions[0], 0, REGION_DATA, VGPU_SHARES_MAX, 0), 0);
	for (unsigned i = 0; i < VGPU_SHARES_MAX; i++)
		assert_int_equal(region_share_export(&regions[0], 0, 1 + i, 1), 0);
	assert_int_equal(region_share_export(&regions[0], 0, KEY, 1), 0); /* there already */
	assert_int_equal(region_share_export(&regions[0], 0, 9999, 1), -ENOSPC);
	assert_int_equal(region_share_import(&regions[1], KEY, &device, &bytes), -ENOSPC);
	assert_int_equal(region_share_withdraw(&regions[0], 9999, REGION_SHARE_AS_EXPORTED), 0);
	assert_int_equal(count_wrong(&regions[1]), 0);
	assert_int_equal(region_share_withdraw(&regions[0], KEY + 1, REGION_SHARE_AS_EXPORTED),
			 0); /* one is free again */
	assert_int_equal(region_share_import(&regions[1], KEY, &device, &bytes), 1);
	assert_int_equal(region_share_import(&regions[1], KEY, &device, &bytes), 1);
	assert_int_equal(region_share_import(&regions[1], KEY + 2, &device, &bytes), -ENOSPC);
	assert_int_equal(region_share_withdraw(&regions[0], KEY, REGION_SHARE_AS_EXPORTED),
			 1); /* a move needs no entry */
	region_close(&regions[0]);
	assert_int_equal(region_used(&regions[1], 0), 1);
	assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX - 2);
	assert_int_equal(count_wrong(&regions[1]), 0);
	close_slots();
}

/* -- the lock --------------------------------------------------------------------------------- */

static int results[4];

static void *try_one(void *arg)
{
	int *result = arg;
	unsigned device;
	uint64_t bytes;

	if (result == &results[0])
		*result = region_share_export(&regions[1], 1, 5, 1);
	else if (result == &results[1])
		*result = region_share_withdraw(&regions[1], KEY, REGION_SHARE_AS_EXPORTED);
	else if (result == &results[2])
		*result = region_share_import(&regions[1], KEY, &device, &bytes);
	else
		region_share_import_end(&regions[1], KEY);
	return NULL;
}

UNIT_TEST(test_timeouts)
{
	pthread_t threads[4];

	make_slots();
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	assert_int_equal(region_lock(&regions[0]), 0); /* and does not let go of it */
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, try_one, &results[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	region_unlock(&regions[0]);
	assert_int_equal(results[0], -ETIMEDOUT);
	assert_int_equal(results[1], 1); /* is withdrawn later; there is no such export */
	assert_int_equal(results[2], -ETIMEDOUT);
	assert_int_equal(entries(VGPU_SHARE_EXPORT), 1);
	assert_int_equal(entries(VGPU_SHARE_IMPORT), 1); /* its end is late */
	region_refund(&regions[1], 1, REGION_DATA, 0);
	assert_int_equal(entries(VGPU_SHARE_IMPORT), 0);
	act_withdraw(&regions[0], 0);
	assert_int_equal(region_used(&regions[0], 1), 0);
	close_slots();
}

/* Withdraws while another process has the lock, and makes a further change afterwards. */
static void withdraw_late(void)
{
	assert_int_equal(region_lock(&regions[2]), 0);
	assert_int_equal(region_share_withdraw(&regions[0], KEY, REGION_SHARE_AS_EXPORTED), 1);
	region_unlock(&regions[2]);
	assert_int_equal(entries(VGPU_SHARE_EXPORT), 1);
	assert_int_equal(region_own_usage(&regions[0], 1).data, UNIT);
	region_refund(&regions[0], 1, REGION_DATA, 0);
	assert_int_equal(entries(VGPU_SHARE_EXPORT), 0);
	assert_int_equal(region_own_usage(&regions[0], 1).data, 0);
}

UNIT_TEST(test_withdrawn_late)
{
	make_slots();
	act_export(&regions[0]);
	withdraw_late(); /* nobody has it open: it is refunded */
	assert_int_equal(region_used(&regions[0], 1), 0);
	act_export(&regions[0]);
	act_import(&regions[1], 1);
	withdraw_late();
	assert_int_equal(region_own_usage(&regions[1], 1).data, UNIT);
	assert_int_equal(region_used(&regions[0], 1), UNIT);
	region_share_import_end(&regions[1], KEY);
	assert_int_equal(region_used(&regions[0], 1), 0);
	assert_int_equal(count_wrong(&regions[0]), 0);
	close_slots();
}

/* -- what the check sees ---------------------------------------------------------------------- */

/* Entries: 0 exported by slot 0, 1 moved to slot 1, 2 its import, 3 exported by slot 0. */
static void make_entries(void)
{
	unsigned device;
	uint64_t bytes;

	make_slots();
	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, 100, 0), 0);
	assert_int_equal(region_share_export(&regions[0], 1, 1, 10), 0);
	assert_int_equal(region_share_export(&regions[0], 1, 2, 20), 0);
	assert_int_equal(region_share_import(&regions[1], 2, &device, &bytes), 1);
	assert_int_equal(region_share_withdraw(&regions[0], 2, REGION_SHARE_AS_EXPORTED), 1);
	assert_int_equal(region_share_export(&regions[0], 1, 3, 30), 0);
}

UNIT_TEST(test_check)
{
	struct vgpu_region_share *shares;
	struct vgpu_region_own *own;

	make_entries();
	own = &regions[0].file->own;
	shares = own->shares;
	ASSERT_SEEN(&regions[0], 2, own->share_count, 481, "481 shares: 480 is the most");
	ASSERT_SEEN(&regions[0], 2, own->share_count, 3,
		    "share 3 is used, and the high-water mark is 3");
	ASSERT_SEEN(&regions[0], 2, own->move.active, 1,
		    "a charge is half moved, from slot 0 to slot 1");
	ASSERT_SEEN(&regions[0], 2, shares[0].state, 5, "share 0: state 5 means nothing");
	ASSERT_SEEN(&regions[0], 2, shares[1].slot, 1024, "share 1: there is no slot 1024");
	ASSERT_SEEN(&regions[0], 2, shares[1].device, 2, "share 1: there is no device 2");
	ASSERT_SEEN(&regions[0], 2, shares[0].slot, 5, "share 0: slot 5 is free");
	ASSERT_SEEN(&regions[0], 2, shares[0].key, 0, "share 0: it has no key");
	ASSERT_SEEN(&regions[0], 2, shares[3].key, 1,
		    "shares 0 and 3: slot 0 exports the same twice");
	ASSERT_SEEN(&regions[0], 2, shares[1].bytes, 21,
		    "slot 1, device 1: 21 bytes moved there, and its data");
	ASSERT_SEEN(&regions[0], 2, shares[2].of, 0,
		    "share 2: nobody has charged what slot 1 imports");
	ASSERT_SEEN(&regions[0], 2, shares[2].of, 512,
		    "share 2: nobody has charged what slot 1 imports");
	ASSERT_SEEN(&regions[0], 2, shares[2].count, 0,
		    "share 2: slot 1 imports it, and has it open 0 times");
	close_slots();
}

/* Whatever stands in the table, nothing outside it is touched for it, and a death clears it. */
UNIT_TEST(test_damaged_table)
{
	unsigned seed = 1, device;
	uint64_t bytes;

	make_slots();
	for (int round = 0; round < 50; round++) {
		uint8_t *start = (uint8_t *)regions[0].file->own.shares;

		for (size_t i = 0; i < sizeof(regions[0].file->own.shares); i++)
			start[i] = (uint8_t)(i % 32 == 28 ? rand_r(&seed) % 5 : rand_r(&seed) % 7);
		start = (uint8_t *)&regions[0].file->own.move;
		for (size_t i = 0; i < sizeof(struct vgpu_region_move); i++)
			start[i] = (uint8_t)rand_r(&seed);
		regions[0].file->own.share_count = (uint32_t)rand_r(&seed);
		region_check(&regions[0], NULL, NULL);
		region_share_import(&regions[1], 1, &device, &bytes);
		region_share_import_end(&regions[1], 1);
		region_share_withdraw(&regions[0], 1, REGION_SHARE_AS_EXPORTED);
		assert_int_equal(region_lock(&regions[0]), 0);
		region_share_repair_locked(regions[0].file);
		for (unsigned slot = 0; slot < SLOTS; slot++)
			region_share_clear_locked(&regions[2], slot);
		region_compute_totals_locked(regions[0].file);
		region_unlock(&regions[0]);
	}
	for (int i = 0; i < SLOTS; i++)
		region_forget(&regions[i]);
}
