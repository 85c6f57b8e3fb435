/*
 * What can be done to shared memory by two slots: every step of it that steps.h names, in one
 * process that can be killed at any.
 */
#pragma once

#include "region_fixture.h"

static inline void share_export(struct region *region, unsigned device, uint64_t key,
				uint64_t bytes)
{
	CHECK(region_charge(region, device, REGION_DATA, bytes, 0) == 0);
	CHECK(region_share_export(region, device, key, bytes) == 0);
}

static inline void share_import(struct region *region, uint64_t key)
{
	unsigned device;
	uint64_t bytes;

	CHECK(region_share_import(region, key, &device, &bytes) == 1);
}

/* b is closed by it, and a holds what it held before. */
static inline void share_in_turn(struct region *a, struct region *b, unsigned device, uint64_t key)
{
	uint64_t before = region_own_usage(a, device).total;

	share_export(a, device, key, 6);
	share_import(b, key);
	share_import(b, key);
	share_import(a, key);
	CHECK(region_share_withdraw(a, key, REGION_SHARE_AS_EXPORTED) == 1); /* to b */
	region_share_import_end(b, key);
	region_share_import_end(b, key); /* and back */
	region_share_import_end(a, key);
	share_export(a, device, key, 5);
	share_import(a, key);
	CHECK(region_share_withdraw(a, key, REGION_SHARE_AS_EXPORTED) ==
	      1); /* a has it open still */
	region_share_import_end(a, key);
	share_export(a, device, key, 5);
	CHECK(region_share_withdraw(a, key, REGION_SHARE_AS_EXPORTED) == 0);
	region_refund(a, device, REGION_DATA, 5);
	share_export(b, device, key, 4);
	share_import(a, key);
	region_close(b); /* to a */
	CHECK(region_own_usage(a, device).total == before + 4);
	region_share_import_end(a, key);
	CHECK(region_own_usage(a, device).total == before);
}

/* b begins to exit, each of the two has memory of the other open, and b goes on to charge and to
 * give back. b is closed by it, and a holds what it held before. */
static inline void exit_in_turn(struct region *a, struct region *b, unsigned device, uint64_t key)
{
	uint64_t before = region_own_usage(a, device).total;

	CHECK(region_charge(b, device, REGION_CONTEXT, 9, 0) == 0);
	share_export(b, device, key, 4);
	share_import(a, key);
	share_export(a, device, key + 1, 3);
	share_import(b, key + 1);
	region_begin_exit(b);
	CHECK(region_own_usage(b, device).total == 13);
	CHECK(region_charge(b, device, REGION_DATA, 2, 0) == 0);
	region_refund(b, device, REGION_CONTEXT, 9);
	CHECK(region_charge(b, device, REGION_MODULE, 5, 0) == 0);
	CHECK(region_share_withdraw(a, key + 1, REGION_SHARE_AS_EXPORTED) == 1); /* to b */
	CHECK(region_own_usage(b, device).data == 9 && region_own_usage(b, device).total == 14);
	region_refund(b, device, REGION_DATA, 2);
	region_close(b); /* key to a */
	CHECK(region_own_usage(a, device).total == before + 4);
	region_share_import_end(a, key);
	CHECK(region_own_usage(a, device).total == before);
}
