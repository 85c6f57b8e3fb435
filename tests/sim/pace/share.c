/* One stream: what is delivered of a quota, what the monitor is shown of it, and who is not slowed.
 */
#include "pace.h"

/* By the kernels' length, and the quota. */
static const struct row {
	const char *name, *cores;
	uint64_t ns;
} rows[] = {
	{"us50_20", "20", 50000},   {"us50_50", "50", 50000},   {"us50_80", "80", 50000},
	{"ms1_20", "20", MS},       {"ms1_50", "50", MS},       {"ms1_80", "80", MS},
	{"ms20_20", "20", 20 * MS}, {"ms20_50", "50", 20 * MS}, {"ms20_80", "80", 20 * MS},
};

static void is_held(const struct row *row)
{
	uint64_t ns = row->ns;

	pace_start(row->cores);
	check_share(row->cores, step_alone, &ns, atof(row->cores));
	CHECK(level_of(0) <= 5 * (int64_t)MS);
}
TEST_TABLE(rows, is_held);

/* 20 % of the GPU's time, as the host has other things to do: how much of all time is spent in
 * launches, percent. */
static double in_launches(void)
{
	uint64_t began = now_ns(), delayed = delayed_ns(), within = 0, at;

	for (unsigned i = 0; i < 100; i++) {
		at = now_ns();
		busy(spin, MS, stream);
		within += now_ns() - at;
		synchronise(stream);
		usleep(4000);
	}
	delayed = delayed_ns() - delayed;
	return 100.0 * (double)(within - (delayed < within ? delayed : within)) /
	       (double)(now_ns() - began);
}

TEST(host_bound)
{
	double best = 100;

	pace_start("50");
	in_launches();
	for (unsigned i = 0; i < ATTEMPTS && best > 4; i++) {
		double pct = in_launches();

		best = pct < best ? pct : best;
	}
	printf("  %.2f %% of the time in launches\n", best);
	CHECK(best <= 4);
}

/* The slot's utilisation is what it was given. */
TEST(shown)
{
	const struct vgpu_hami_util *util;
	uint64_t ns = MS, sm = 0;

	pace_start("40");
	CHECK(ledger_slot(getpid()) >= 0);
	util = &file->hami.slots[ledger_slot(getpid())].device_util[ledger_index(0)];
	for (unsigned attempt = 0; attempt < ATTEMPTS && sm < 40 - 10; attempt++) {
		share_of(step_alone, &ns, 1200);
		sm = PEEK(util->sm);
		CHECK_AT_MOST(sm, 40 + 8);
	}
	CHECK_AT_MOST(40 - 10, sm);
}

static uint64_t shown_now(void)
{
	return PEEK(file->hami.slots[ledger_slot(getpid())].device_util[ledger_index(0)].sm);
}

/* It is 0 as soon as the process has waited for its work, and comes back with the next launch; of a
 * process that works a fifth of the time it is the figure of the time in which it works. */
TEST(rests)
{
	uint64_t ns = MS, sm = 0;

	pace_start("40");
	for (unsigned attempt = 0; attempt < ATTEMPTS && sm < 40 - 10; attempt++) {
		share_of(step_alone, &ns, 1200);
		sm = shown_now();
	}
	CHECK_AT_MOST(40 - 10, sm);
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_EQUAL(shown_now(), 0);
	step_alone(&ns);
	CHECK(shown_now() > 0);
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(shown_now(), 0);
	for (unsigned i = 0; i < 10; i++) {
		share_of(step_alone, &ns, 20);
		CHECK(shown_now() > 0);
		CHECK_OK(cuStreamSynchronize(stream));
		CHECK_EQUAL(shown_now(), 0);
		sleep_ms(80);
	}
}
