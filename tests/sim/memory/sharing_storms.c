/*
 * Many processes share memory at random and are killed over it: in an orderly storm what must be
 * charged is known after every step; in a disorderly one at the end.
 */
#include "sharing_fixture.h"

#include <string.h>

#define ACTORS 5
#define ROUNDS 600

/* What a storm's actors have, as the scene keeps it. */
struct storm {
	struct member members[ACTORS];
	bool has[ACTORS][THINGS]; /* of each of THINGS shared allocations */
	unsigned makers[THINGS];  /* who alone sends it to others */
	uint64_t seed;
};

static unsigned dice(struct storm *storm, unsigned sides)
{
	storm->seed = storm->seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(storm->seed >> 33) % sides;
}

static bool is_had(const struct storm *storm, unsigned thing)
{
	bool had = false;

	for (unsigned who = 0; who < ACTORS; who++)
		had |= storm->has[who][thing];
	return had;
}

static unsigned things_had(const struct storm *storm)
{
	unsigned count = 0;

	for (unsigned i = 0; i < THINGS; i++)
		count += is_had(storm, i);
	return count;
}

static void storm_step(struct storm *storm)
{
	unsigned who = dice(storm, ACTORS), thing = dice(storm, THINGS);
	unsigned maker = storm->makers[thing];
	struct member *member = &storm->members[who];

	if (dice(storm, 25) == 0) {
		member_kill(member);
		memset(storm->has[who], 0, sizeof(storm->has[who]));
		*member = actor();
	} else if (storm->has[who][thing]) {
		order(member, release, thing);
		storm->has[who][thing] = false;
	} else if (!is_had(storm, thing)) {
		order(member, create, thing);
		storm->has[who][thing] = true;
		storm->makers[thing] = who;
	} else if (maker != who && storm->has[maker][thing]) {
		order(&storm->members[maker], send_off, thing);
		order(member, fetch, thing);
		storm->has[who][thing] = true;
	}
}

/* Who has what is known all the time, and so what must be charged. */
TEST(orderly_storm)
{
	struct storm storm = {.seed = 17};

	begin();
	for (unsigned i = 0; i < ACTORS; i++)
		storm.members[i] = actor();
	for (unsigned round = 0; round < ROUNDS; round++) {
		storm_step(&storm);
		assert_held(ACTORS, things_had(&storm) * SIZE);
	}
	for (unsigned i = 0; i < ACTORS; i++)
		member_kill(&storm.members[i]);
	assert_held(0, 0);
}

static unsigned storm_seed;

/* What the dead exported and others still have open may fill the slice. */
static CUdeviceptr take_or_none(uint64_t bytes)
{
	CUdeviceptr address = 0;
	CUresult result = cuMemAlloc_v2(&address, bytes);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	return address;
}

/* All at once: whatever lies on the board is opened, and what was opened closed, without end. */
static void rage(int wire)
{
	unsigned seed = storm_seed, mine = seed % THINGS;
	CUdeviceptr own = 0, opened[THINGS] = {0};

	cuda_start(0);
	give(take(1));
	tell(wire, 1);
	for (;;) {
		unsigned i = (unsigned)rand_r(&seed) % THINGS;

		if (i == mine && own) {
			give(own);
			own = 0;
		} else if (i == mine) {
			own = take_or_none(SIZE);
			if (own)
				CHECK_OK(cuIpcGetMemHandle(&board->ipc[i], own));
		} else if (opened[i]) {
			CHECK_OK(cuIpcCloseMemHandle(opened[i]));
			opened[i] = 0;
		} else if (cuIpcOpenMemHandle(&opened[i], board->ipc[i], 1) != CUDA_SUCCESS) {
			opened[i] = 0;
		}
	}
}

static struct member rager(unsigned seed)
{
	struct member member;

	storm_seed = seed;
	member = member_begin(rage);
	return member;
}

TEST(disorderly_storm)
{
	struct member members[ACTORS];
	struct member witness;

	begin();
	witness = actor();
	for (unsigned i = 0; i < ACTORS; i++)
		members[i] = rager(i);
	for (unsigned round = 0; round < 60; round++) {
		sleep_ms(5 + round % 7);
		member_kill(&members[round % ACTORS]);
		CHECK_SOON_EQUAL(ledger_reap(), ACTORS);
		CHECK_AT_MOST(ledger_used(0), 4 * GIB);
		members[round % ACTORS] = rager(round % ACTORS + THINGS * round);
	}
	for (unsigned i = 0; i < ACTORS; i++)
		member_kill(&members[i]);
	assert_held(1, 0);
	assert_charged(&witness, 0, 0);
	dismiss(&witness);
	assert_held(0, 0);
}
