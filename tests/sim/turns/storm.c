/*
 * Processes of two slices with compute quotas launch, are killed at random moments, and are started
 * again. When all are dead, the slices and the GPU's file of turns are whole and empty, and fresh
 * processes launch.
 *
 * Half of the deaths are of a process that has launched: most processes then wait for their token
 * bucket or for a turn. The other deaths come after some milliseconds, and many processes are just
 * starting then.
 */
#include "pace.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "turn_file.h"

#define SLICES   2
#define PLACES   8 /* processes at once; every second one is of the same slice */
#define DEATHS   300
#define LAUNCHES 20 /* of a process before its death, at most: half of the deaths wait for them */
#define LIFE_MS  12 /* before each other death, at most */
#define FRESH    20 /* launches of a process that comes after the storm */
#define SAVED_NS (20 * (int64_t)MS)  /* the most credit of a token bucket */
#define OWED_NS  (500 * (int64_t)MS) /* more debt than any death can cause */

static const char *const quotas[SLICES] = {"30", "60"};
static const uint64_t lengths[] = {20000, 500000, 100000, 200000}; /* of kernels, ns */

static uint64_t *launched; /* by the process of each place; shared by all, atomic */
static unsigned place;     /* of a member: its own */

static void enter(unsigned slice)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE",
		scene_path(slice == 0 ? "first.cache" : "second.cache"));
}

static void launches_on(int wire)
{
	uint64_t ns = lengths[place / SLICES];

	(void)wire;
	enter(place % SLICES);
	pace_start(quotas[place % SLICES]);
	for (unsigned i = 1;; i++) {
		step_alone(&ns);
		__atomic_fetch_add(&launched[place], 1, __ATOMIC_SEQ_CST);
		if (place < PLACES / 2 && i % 4 == 0)
			synchronise(stream);
	}
}

static struct member begin(unsigned at)
{
	place = at;
	POKE(launched[at], 0);
	return member_start(launches_on);
}

/* Waits until a process of the place's slice has launched so often. Returns its place: the given
 * one, or another. */
static unsigned find_launching(unsigned at, uint64_t count)
{
	uint64_t began_ms = now_ms();

	for (;;) {
		for (unsigned i = 0; i < PLACES; i += SLICES)
			if (PEEK(launched[(at + i) % PLACES]) >= count)
				return (at + i) % PLACES;
		CHECK(now_ms() - began_ms < WAIT_S * 1000);
		usleep(200);
	}
}

/* Waits for the next death. Returns the place of the process that is to be killed. */
static unsigned choose(unsigned *seed)
{
	unsigned at = (unsigned)rand_r(seed) % PLACES, number = (unsigned)rand_r(seed);

	if (number % 2 == 0)
		return find_launching(at, 1 + number % LAUNCHES);
	sleep_ms(number % LIFE_MS);
	return at;
}

static void rage(void)
{
	struct member members[PLACES];
	unsigned seed = 1, after_launches = 0;

	for (unsigned at = 0; at < PLACES; at++)
		members[at] = begin(at);
	for (unsigned i = 0; i < DEATHS; i++) {
		unsigned at = choose(&seed);

		after_launches += PEEK(launched[at]) > 0;
		member_kill(&members[at]);
		members[at] = begin(at);
	}
	for (unsigned at = 0; at < PLACES; at++)
		member_kill(&members[at]);
	printf("  %u of %u processes had launched when they were killed\n", after_launches, DEATHS);
	CHECK_AT_MOST(DEATHS / 4, after_launches);
}

/* -- the books -------------------------------------------------------------------------------- */

/* In a process of its own: the slice has no process and no memory, and its token bucket has a
 * level that an honest slice can have. */
static void check_books(int wire)
{
	(void)wire;
	enter(place % SLICES);
	pace_map();
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
	for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++) {
		const struct vgpu_hami_usage *used = &file->hami.slots[slot].used[ledger_index(0)];

		CHECK_EQUAL(PEEK(file->hami.slots[slot].status), VGPU_SLOT_FREE);
		CHECK_EQUAL(PEEK(used->total), 0);
		CHECK(!ledger_slot_lives(slot));
	}
	CHECK_EQUAL(PEEK(file->own.lock), 0);
	CHECK(level_of(0) <= SAVED_NS && level_of(0) >= -OWED_NS);
}

static void check_turns(void)
{
	struct fault fault = {""};
	struct turn_file turns;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", scene_path("turns"), gpu_uuid(0));
	CHECK_EQUAL(turn_file_open(path, &turns, &fault), 0);
	CHECK(turn_file_is_valid(&turns));
	for (unsigned slice = 0; slice < VGPU_TURNS_SLICES; slice++)
		CHECK(!turn_file_slice_lives(&turns, slice));
	turn_file_forget(&turns);
}

static void check_all_books(void)
{
	CHECK_SOON_EQUAL(outside_used(0), 0);
	for (place = 0; place < SLICES; place++) {
		struct member member = member_start(check_books);

		member_end(&member);
	}
	check_turns();
}

/* -- afterwards ------------------------------------------------------------------------------- */

static void launches_fresh(int wire)
{
	uint64_t ns = MS;

	enter(place % SLICES);
	pace_start(quotas[place % SLICES]);
	for (unsigned i = 0; i < FRESH; i++)
		step_alone(&ns);
	synchronise(stream);
	tell(wire, ledger_used(0));
	CHECK_EQUAL(hear(wire), 1);
}

/* Fresh processes launch together in so many places, the first of which is given. */
static void check_fresh(unsigned first, unsigned count)
{
	struct member members[PLACES];

	for (unsigned i = 0; i < count; i++) {
		place = first + i;
		members[i] = member_start(launches_fresh);
	}
	for (unsigned i = 0; i < count; i++) {
		uint64_t used = hear(members[i].wire);

		CHECK(count > 1 || used == CONTEXT + HIDDEN);
	}
	for (unsigned i = 0; i < count; i++) {
		tell(members[i].wire, 1);
		member_end(&members[i]);
	}
}

TEST(storm)
{
	launched = mmap(NULL, PLACES * sizeof(*launched), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(launched != MAP_FAILED);
	CHECK(mkdir(scene_path("turns"), 0777) == 0);
	rage();
	check_all_books();
	check_fresh(0, 1); /* alone, by the token bucket */
	check_fresh(1, 1);
	check_fresh(0, SLICES); /* by turns */
	check_fresh(0, PLACES); /* each slice's one after the other, too */
	check_all_books();
}
