/*
 * As many processes as a region has slots, and one more: it is refused, told why, and gets in as
 * soon as one of the others has ended. How long a claim and a charge take then is printed, and not
 * judged.
 */
#include "cuda_api.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "region.h"
#include "spaces.h"

#define REAL      16 /* processes that use CUDA; the other slots are held by the two below */
#define HOLDERS   2
#define HELD_EACH ((VGPU_SLOTS_MAX - REAL) / HOLDERS)
#define FILES     (HELD_EACH + 64)

_Static_assert(HELD_EACH *HOLDERS + REAL == VGPU_SLOTS_MAX, "every slot");

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void open_region(struct region *region)
{
	struct fault fault = {""};

	if (region_open(scene_path("slice.cache"), NULL, region, &fault) != 0)
		check_failed(__FILE__, __LINE__, fault.text);
}

static struct region held[HELD_EACH];

/* Tells how long the last claim took; and, each time that it hears of a number, how long a charge
 * takes that is refused, after a look whether any of so many slots' processes is dead. */
static void holder(int wire)
{
	struct fault fault = {""};
	uint64_t began = 0, word;

	for (unsigned i = 0; i < HELD_EACH; i++) {
		held[i] = (struct region)REGION_CLOSED;
		open_region(&held[i]);
		began = now_ns();
		if (region_claim(&held[i], &fault) != 0)
			check_failed(__FILE__, __LINE__, fault.text);
	}
	tell(wire, now_ns() - began);
	while ((word = hear(wire))) {
		began = now_ns();
		if (word == 1)
			CHECK_EQUAL(region_charge(held, 0, REGION_DATA, 2, 1), -EDQUOT);
		else
			CHECK_EQUAL(region_charge(held, 0, REGION_DATA, 2, 0), 0);
		tell(wire, now_ns() - began);
	}
	_exit(0); /* as one that is killed: its slots are found dead */
}

static void real(int wire)
{
	CHECK_OK(cuInit(0));
	say_ready(wire);
}

static uint64_t shortest(const struct member *member, uint64_t word)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < 20; i++) {
		uint64_t took;

		tell(member->wire, word);
		took = hear(member->wire);
		best = took < best ? took : best;
	}
	return best / 1000;
}

static void one_too_many(void)
{
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

static void gets_in(void)
{
	cuda_start(0);
	give(take(MIB));
}

/* One line, with the number and what to do. */
static void refused_clearly(void)
{
	struct said said = member_listen(one_too_many);

	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strstr(said.err, "1024"));
	CHECK(strstr(said.err, "end some of them"));
}

static void let_in(void)
{
	struct said said = member_listen(gets_in);

	if (said.status)
		fputs(said.err, stderr);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 0);
}

static void fill_up(struct member reals[REAL], struct member holders[HOLDERS])
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	for (unsigned i = 0; i < REAL - 1; i++)
		reals[i] = member_begin(real);
	for (unsigned i = 0; i < HOLDERS; i++) {
		holders[i] = member_start(holder);
		printf("many: slot %u is claimed in %llu us\n", REAL - 1 + (i + 1) * HELD_EACH,
		       (unsigned long long)hear(holders[i].wire) / 1000);
	}
	reals[REAL - 1] = member_start(real);
	hear(reals[REAL - 1].wire);
}

/* Where a process may not have that many files, they are too few for this. */
static bool raise_files(void)
{
	struct rlimit files;

	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	if (files.rlim_cur >= FILES)
		return true;
	if (files.rlim_max < FILES)
		return false;
	files.rlim_cur = FILES;
	return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

TEST(every_slot)
{
	struct member reals[REAL], holders[HOLDERS];
	uint64_t began;

	if (!raise_files()) {
		printf("every_slot: left out, a process may not open %d files here\n", FILES);
		return;
	}
	fill_up(reals, holders);
	CHECK_EQUAL(ledger()->hami.slot_count, VGPU_SLOTS_MAX);
	printf("many: a charge takes %llu us, one that is refused %llu us\n",
	       (unsigned long long)shortest(&holders[0], 2),
	       (unsigned long long)shortest(&holders[0], 1));
	began = now_ms();
	refused_clearly();
	printf("many: one more is refused in %llu ms\n", (unsigned long long)(now_ms() - began));
	tell(reals[3].wire, 1);
	member_end(&reals[3]); /* it ends of itself */
	let_in();
	let_in(); /* once more: the first one's slot is free again */
	reals[3] = member_begin(real);
	refused_clearly();
	member_kill(&reals[5]);
	began = now_ms();
	let_in();
	printf("many: the next one is let in in %llu ms\n", (unsigned long long)(now_ms() - began));
	for (unsigned i = 0; i < HOLDERS; i++) { /* half of all die at once */
		member_finish(&holders[i]);
		began = now_ms();
		let_in();
		printf("many: and after %d deaths in %llu ms\n", HELD_EACH,
		       (unsigned long long)(now_ms() - began));
	}
	began = now_ms();
	CHECK_SOON_EQUAL(ledger_reap(), REAL - 1);
	printf("many: the dead are cleared in %llu ms\n", (unsigned long long)(now_ms() - began));
	for (unsigned i = 0; i < REAL; i++)
		if (i != 5)
			member_finish(&reals[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
}
