/* When a slice gets a turn, keeps it and loses it: alone, with others, beside long kernels, beside
 * the stopped, the dead and those that write nonsense. */
#include "turn_world.h"

static struct vgpu_turns_slice *slice_of(const struct actor *actor)
{
	return &actor->turn.file.file->slice[actor->turn.file.slice];
}

static struct vgpu_turns_header *header_of(const struct actor *actor)
{
	return &actor->turn.file.file->header;
}

UNIT_TEST(test_alone)
{
	struct actor *it = busy(100, 100, MS);

	it->batch = 4;
	measure_after(0, NS_PER_S);
	assert_share(it, 98, 100);
	assert_false(header_of(it)->turn & VGPU_TURNS_SHARED);
	assert_int_equal(slice_of(it)->used_ns, 0);
	assert_true(slice_of(it)->turns <= 1);
}

/* The second one to come gets the GPU within one turn's length. */
UNIT_TEST(test_second_comes)
{
	struct actor *first = busy(50, 100, MS), *second = busy(50, 100, MS);

	first->batch = 4;
	second->from_ns = time_ns + 100 * MS;
	go_on(100 * MS + STEP_NS);
	assert_int_equal(second->launches, 0);
	go_on(20 * MS);
	assert_true(second->launches > 0);
	measure_after(NS_PER_S, NS_PER_S);
	assert_share(second, 47, 52);
}

/* When the other leaves, or wants nothing for a second, the first is alone again. */
UNIT_TEST(test_other_goes)
{
	struct actor *first = busy(50, 100, MS), *second = busy(50, 100, MS);

	first->batch = second->batch = 4;
	second->think_ns = 10 * NS_PER_S;
	go_on(2 * NS_PER_S);
	assert_false(header_of(first)->turn & VGPU_TURNS_SHARED);
	measure_after(0, NS_PER_S);
	assert_share(first, 98, 100);
}

/* A turn is kept while nobody else wants it, and given up by a slice that becomes idle. */
UNIT_TEST(test_idle_gives_up)
{
	struct actor *now_and_then = busy(50, 100, MS), *other = busy(50, 100, MS);
	uint64_t turns;

	now_and_then->batch = 2;
	now_and_then->think_ns = 18 * MS;
	go_on(NS_PER_S);
	turns = slice_of(other)->turns;
	measure_after(0, NS_PER_S);
	assert_share(now_and_then, 8.5, 10.5);
	assert_share(other, 87, 91.5);
	assert_true(slice_of(other)->turns - turns < 60); /* one for each pause of the other */
}

/* A slice saves nothing up in a long pause: when it comes back, it is 20 ms behind at most, also
 * where the other slice has had all of the time since. */
UNIT_TEST(test_idle_saves_nothing)
{
	struct actor *now_and_then = busy(50, 100, MS), *other = busy(50, 100, MS);

	now_and_then->batch = 100;
	now_and_then->think_ns = 300 * MS;
	measure_after(NS_PER_S, 3 * NS_PER_S);
	assert_between("the other's longest wait, ms", (double)other->longest_ns / 1e6, 20, 90);
}

/* A kernel cannot be taken from the GPU: another slice waits for its own work, for a turn, and
 * twice SOFT_NS, and goes. */
UNIT_TEST(test_long_kernels)
{
	struct actor *giant = busy(50, 100, NS_PER_S), *other = busy(50, 100, MS);

	measure_after(NS_PER_S, 20 * NS_PER_S);
	assert_true(other->longest_ns <= 85 * MS);
	assert_share(giant, 30, 60);
	assert_share(other, 35, 65);
}

/* A slice whose turn was taken, as its kernel takes long, pays for the kernel also if it pauses
 * after it. */
UNIT_TEST(test_long_kernels_are_paid)
{
	struct actor *it = busy(50, 100, 100 * MS);

	it->batch = 1;
	it->think_ns = MS;
	busy(50, 100, MS);
	go_on(5 * NS_PER_S);
	assert_between("paid, percent of its work",
		       100.0 * (double)slice_of(it)->used_ns / (double)it->busy_ns, 90, 200);
}

/* So many busy slices run until a moment of the first one's turn. */
static void run_until(unsigned slices, unsigned moment)
{
	world_again();
	for (unsigned i = 0; i < slices; i++)
		busy(50, 100, MS);
	go_on(500 * MS + moment * MS);
}

/* A stopped process delays others by one turn and SOFT_NS, twice: for the turn that it has, and for
 * the one that it is given next. */
UNIT_TEST(test_stopped)
{
	struct actor *stopped = &actors[0], *other = &actors[1];

	for (unsigned moment = 0; moment < 40; moment++) {
		run_until(2, moment);
		stopped->is_stopped = true;
		measure_after(0, NS_PER_S);
		assert_true(other->longest_ns <= 62 * MS);
		assert_share(other, 88, 100);
		stopped->is_stopped = false;
		measure_after(NS_PER_S, NS_PER_S);
		assert_share(stopped, 47, 52);
	}
}

/* The dead are passed over as soon as somebody looks. */
UNIT_TEST(test_dead)
{
	struct actor *other = &actors[1];

	for (unsigned moment = 0; moment < 40; moment++) {
		run_until(2, moment);
		end_of(&actors[0]);
		measure_after(0, 100 * MS);
		assert_true(other->wait_from == 0 || time_ns - other->wait_from < 3 * MS);
		assert_share(other, 95, 100);
	}
}

/* With a third slice, which may be the one that takes the turn of the dead one. */
UNIT_TEST(test_dead_of_three)
{
	for (unsigned moment = 0; moment < 60; moment++) {
		run_until(3, moment);
		end_of(&actors[0]);
		measure_after(0, NS_PER_S);
		assert_between("both", share_of_all(), 97, 100);
		assert_share(&actors[1], 46, 52);
	}
}

/* The processes of a slice have its turns together. */
UNIT_TEST(test_processes)
{
	busy(50, 50, MS)->batch = 3;
	add((struct actor){
		.weight = 50, .limit_pct = 50, .kernel_ns = 2 * MS, .batch = 1, .key = 1});
	busy(50, 50, MS);
	measure_after(NS_PER_S, 5 * NS_PER_S);
	assert_between("slice", share(&actors[0]) + share(&actors[1]), 46, 51);
	assert_share(&actors[2], 47, 51);
	end_of(&actors[1]); /* its seat was active */
	measure_after(NS_PER_S, 5 * NS_PER_S);
	assert_share(&actors[0], 46, 51);
	assert_share(&actors[2], 47, 51);
}

UNIT_TEST(test_changed)
{
	busy(50, 100, MS);
	busy(50, 100, MS);
	go_on(NS_PER_S);
	turn_set(&actors[0].turn, 20, 100);
	turn_set(&actors[1].turn, 80, 70);
	measure_after(NS_PER_S, 5 * NS_PER_S);
	assert_share(&actors[0], 28.5, 31);
	assert_share(&actors[1], 69, 71);
}

/* 64 of them, half of which come and go. */
UNIT_TEST(test_crowd)
{
	for (unsigned i = 0; i < 64; i++) {
		struct actor *it = busy(1 + i % 4, 100, i % 3 ? MS : 200 * US);

		if (i % 2 == 0)
			continue;
		it->batch = 1 + i % 7;
		it->think_ns = i * 100 * US;
	}
	measure_after(3 * NS_PER_S, 10 * NS_PER_S);
	harness_note("64 slices: %.1f %%, longest wait %.0f ms", share_of_all(),
		     (double)longest_wait_ns() / 1e6);
	assert_between("all", share_of_all(), 75, 100);
	assert_true(longest_wait_ns() <= TURN_WAIT_MOST_NS + 40 * MS);
}

/* Slices that come, go, and die, one every 0.3 s. */
UNIT_TEST(test_come_and_go)
{
	uint64_t chance = 7;

	for (unsigned i = 0; i < 60; i++) {
		struct actor *it = busy(10 + i, i % 4 ? 100 : 30, i % 3 ? MS : 4 * MS);

		chance = chance * 6364136223846793005u + 1442695040888963407u;
		it->from_ns = i ? time_ns + i * 300 * MS : 0;
		it->until_ns = i ? it->from_ns + (chance >> 33) % (3 * NS_PER_S) : 0;
		it->batch = i % 5 * 3;
	}
	for (unsigned i = 0; i < 60; i++) {
		go_on(300 * MS);
		if (i % 4 == 1 && actors[i].is_joined)
			end_of(&actors[i]);
	}
	counted_ns = 18 * NS_PER_S;
	harness_note("60 come and go: %.1f %%, longest wait %.0f ms", share_of_all(),
		     (double)longest_wait_ns() / 1e6);
	assert_between("all", share_of_all(), 90, 100);
	assert_true(longest_wait_ns() <= 700 * MS); /* a slice of 10 beside 200 in all */
}

/* -- nonsense --------------------------------------------------------------------------------- */

/* Every wait ends, whatever is in the file, and the slices still get most of the GPU. */
UNIT_TEST(test_garbage)
{
	uint64_t chance = 1;

	world_is_damaged = true;
	busy(50, 100, MS);
	busy(50, 100, 200 * US)->batch = 5;
	measure_after(100 * MS, 0);
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t *words = (uint64_t *)&header_of(&actors[0])->turn;
		size_t count = (sizeof(struct vgpu_turns_file) - 64) / sizeof(*words);

		for (unsigned w = 0; w < 4; w++) {
			chance = chance * 6364136223846793005u + 1442695040888963407u;
			/* most of it where it tells */
			words[(chance >> 33) % (w ? 1024 : count)] = chance * chance;
		}
		go_on(MS / 2);
	}
	counted_ns = 10 * NS_PER_S;
	assert_true(longest_wait_ns() <= TURN_WAIT_MOST_NS + 40 * MS);
	assert_share(&actors[0], 20, 80);
	assert_share(&actors[1], 20, 80);
}

/* A slice pays for no time but its own, whatever another one writes as the time since which it is
 * idle. */
UNIT_TEST(test_written_idle)
{
	struct actor *it = busy(50, 50, MS);
	uint64_t paid_ns;

	busy(50, 100, MS);
	go_on(NS_PER_S);
	paid_ns = it->account.paid_ns;
	it->account.held_from = time_ns + 5 * MS;
	slice_of(it)->idle_since = time_ns + INT64_MAX + MS;
	turn_ask(&it->turn, time_ns);
	assert_true(it->account.paid_ns - paid_ns <= 100 * MS);
}

static void be_greedy(struct actor *thief, unsigned how)
{
	struct vgpu_turns_slice *victim = slice_of(&actors[1]);

	if (how == 0)
		header_of(thief)->turn =
			(thief->turn.file.slice + 1) | VGPU_TURNS_SHARED | time_ns >> 10 << 32;
	if (how == 1)
		slice_of(thief)->weighted_ns = victim->weighted_ns - 1000 * NS_PER_S;
	if (how == 2)
		victim->idle_since = time_ns;
	if (how == 3)
		header_of(thief)->present = 0;
	if (how == 4)
		slice_of(thief)->busy_until = time_ns + NS_PER_S;
	if (how == 5)
		victim->busy_until = time_ns + 1000 * NS_PER_S;
	if (how == 6)
		header_of(thief)->turn =
			(victim->key + 1) | VGPU_TURNS_SHARED | (time_ns + 39 * MS) >> 10 << 32;
	if (how == 7)
		victim->weight = 0, slice_of(thief)->weight = UINT32_MAX;
}

/* A slice that writes words for its own good all the time: the other slice waits once for as long
 * as the bound says, and then has its part by the driver's time slices. */
UNIT_TEST(test_greedy)
{
	for (unsigned how = 0; how < 8; how++) {
		world_again();
		busy(50, 100, MS);
		busy(50, 100, MS);
		measure_after(NS_PER_S, 0);
		for (unsigned i = 0; i < 20000; i++) {
			be_greedy(&actors[0], how);
			go_on(MS / 2);
		}
		counted_ns = 10 * NS_PER_S;
		harness_note("greedy %u: victim %.1f, longest wait %.1f ms", how, share(&actors[1]),
			     (double)actors[1].longest_ns / 1e6);
		assert_true(actors[1].longest_ns <= 500 * MS);
		assert_share(&actors[1], 35, 100);
	}
}
