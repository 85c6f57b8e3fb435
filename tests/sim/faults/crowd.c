#include "crowd.h"

#include <string.h>
#include <unistd.h>

#include "walk.h"

#define HELD 8

/* Who may be the first in the region, whose limit it gets, fills no more than its part. */
#define PART (256 * MIB)

struct crowd *crowd;
bool crowded;

static struct member workers[WORKERS];

static uint64_t sum(const uint64_t sizes[HELD])
{
	uint64_t held = 0;

	for (unsigned i = 0; i < HELD; i++)
		held += sizes[i];
	return held;
}

static void stand_still(unsigned self, const uint64_t sizes[HELD])
{
	word_write(&crowd->worker[self].held, sum(sizes));
	word_write(&crowd->worker[self].frozen, 1);
	while (word_read(&crowd->freeze))
		usleep(200);
	word_write(&crowd->worker[self].frozen, 0);
}

static void work(unsigned self)
{
	CUdeviceptr held[HELD] = {0};
	uint64_t sizes[HELD] = {0};
	unsigned seed = self + 1;

	while (!word_read(&crowd->finish)) {
		unsigned i = (unsigned)rand_r(&seed) % HELD;
		uint64_t size = (1 + (unsigned)rand_r(&seed) % 64) * GRANULE;

		if (held[i]) {
			give(held[i]);
			held[i] = sizes[i] = 0;
		} else if (crowd->polite && sum(sizes) + size > PART) {
			continue;
		} else if (cuMemAlloc_v2(&held[i], size) == CUDA_SUCCESS) {
			sizes[i] = size;
		} else {
			held[i] = 0;
			word_add(&crowd->worker[self].refusals, 1);
		}
		word_add(&crowd->worker[self].operations, 1);
		if (word_read(&crowd->freeze))
			stand_still(self, sizes);
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i])
			give(held[i]);
}

/* As soon as there is room for it: the walker may have filled the slice for a moment. */
static void start_soon(void)
{
	uint64_t began = now_ms();
	CUcontext context;
	CUresult result;

	CHECK_OK(cuInit(0));
	while ((result = cuDevicePrimaryCtxRetain(&context, 0)) != CUDA_SUCCESS) {
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(now_ms() - began < WAIT_S * 1000);
		sleep_ms(1);
	}
	CHECK_OK(cuCtxSetCurrent(context));
	give(take_soon(1));
}

static void worker(int wire)
{
	unsigned self = (unsigned)hear(wire);

	place_limit(crowd->polite ? QUOTA : WORKING);
	env_set("CUDA_VISIBLE_DEVICES", "0");
	start_soon();
	tell(wire, 1);
	work(self);
}

void crowd_start(bool polite)
{
	memset(crowd, 0, sizeof(*crowd));
	crowd->polite = polite;
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = member_start(worker);
		tell(workers[i].wire, i);
	}
	crowded = true;
}

void crowd_meet(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		hear(workers[i].wire);
}

void crowd_end(void)
{
	word_write(&crowd->finish, 1);
	for (unsigned i = 0; i < WORKERS; i++)
		member_end(&workers[i]);
	crowded = false;
}

void crowd_freeze(void)
{
	if (!crowded)
		return;
	word_write(&crowd->freeze, 1);
	for (unsigned i = 0; i < WORKERS; i++)
		word_await(&crowd->worker[i].frozen, 1, "everybody can stand still");
}

void crowd_thaw(void)
{
	word_write(&crowd->freeze, 0);
	for (unsigned i = 0; crowded && i < WORKERS; i++)
		while (word_read(&crowd->worker[i].frozen))
			usleep(200);
}

void crowd_note(uint64_t before[WORKERS])
{
	for (unsigned i = 0; i < WORKERS; i++)
		before[i] = word_read(&crowd->worker[i].operations);
}

void crowd_await(const uint64_t before[WORKERS])
{
	for (unsigned i = 0; i < WORKERS; i++)
		word_await(&crowd->worker[i].operations, before[i] + 5, "everybody goes on");
}

uint64_t crowd_held(void)
{
	uint64_t held = 0;

	for (unsigned i = 0; crowded && i < WORKERS; i++) {
		struct vgpu_hami_usage usage = ledger_of(workers[i].pid, 0);
		uint64_t own = crowd->worker[i].held;

		CHECK_EQUAL(outside_of(0, workers[i].pid), CONTEXT + own);
		CHECK_AT_MOST(own, usage.data);
		CHECK_AT_MOST(usage.data, own + GRANULE); /* a spare one */
		held += own;
	}
	return held;
}
