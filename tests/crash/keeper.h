/*
 * The keeper: a process that lives on while another one, with which it shares memory, dies. It
 * knows what it has exported and has open, and the region must say the same: just that, each of it
 * once, and in its slot.
 */
#pragma once

#include "region_share_walk.h"

enum favour { EXPORT, WITHDRAW, IMPORT, END };

#define KEYS        8
#define BYTES(key)  ((uint64_t)1 << (4 * (key)))
#define KEEPER_DATA 3 /* what the keeper holds beside all that */

/* Of the test's own process. */
static struct region keeper = REGION_CLOSED;
static struct {
	unsigned imports;
	bool exported;
} kept[KEYS];

UNUSED static void keeper_start(const char *path)
{
	struct region_setup setup = setup_of(GIB);

	memset(kept, 0, sizeof(kept));
	keeper = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(path, &setup, &keeper), 0);
	assert_int_equal(region_charge(&keeper, 0, REGION_DATA, KEEPER_DATA, 0), 0);
}

UNUSED static void keeper_do(enum favour favour, uint64_t key)
{
	switch (favour) {
	case EXPORT:
		share_export(&keeper, 0, key, BYTES(key));
		kept[key].exported = true;
		break;
	case WITHDRAW:
		if (region_share_withdraw(&keeper, key, REGION_SHARE_AS_EXPORTED) == 0)
			region_refund(&keeper, 0, REGION_DATA, BYTES(key));
		kept[key].exported = false;
		break;
	case IMPORT:
		share_import(&keeper, key);
		kept[key].imports++;
		break;
	case END:
		region_share_import_end(&keeper, key);
		kept[key].imports--;
		break;
	}
}

UNUSED static uint64_t kept_bytes(void)
{
	uint64_t bytes = KEEPER_DATA;

	for (unsigned key = 0; key < KEYS; key++)
		if (kept[key].imports || kept[key].exported)
			bytes += BYTES(key);
	return bytes;
}

UNUSED static void keeper_fail(const char *after, const char *what)
{
	fail_msg(
		"killed %s: %s; %llu bytes used, of them %llu the keeper's data, and it keeps %llu",
		after, what, (unsigned long long)region_used(&keeper, 0),
		(unsigned long long)region_own_usage(&keeper, 0).data,
		(unsigned long long)kept_bytes());
}

/* All others are dead. */
UNUSED static void assert_counted_once(const char *after)
{
	assert_true(region_reap(&keeper) >= 0);
	region_check(&keeper, NULL, NULL); /* takes over what a dead holder left */
	if (count_wrong(&keeper) != 0)
		keeper_fail(after, "not whole");
	if (region_used(&keeper, 0) != kept_bytes() ||
	    region_own_usage(&keeper, 0).data != kept_bytes())
		keeper_fail(after, "not counted once");
	assert_int_equal(region_living(&keeper), 1);
}

/* The keeper gives all of it up, and nothing is left, in the table neither. */
UNUSED static void keeper_give_up(const char *after)
{
	for (uint64_t key = 0; key < KEYS; key++) {
		if (kept[key].exported)
			keeper_do(WITHDRAW, key);
		while (kept[key].imports)
			keeper_do(END, key);
		if (region_used(&keeper, 0) != kept_bytes())
			keeper_fail(after, "not given back");
	}
	for (unsigned i = 0; i < VGPU_SHARES_MAX; i++)
		assert_int_equal(keeper.file->own.shares[i].state, VGPU_SHARE_FREE);
	if (count_wrong(&keeper) != 0)
		keeper_fail(after, "not whole when given back");
}
