/* What slices get of a GPU by turns, and how long a server's requests take beside a busy neighbour.
 * VGPU_TEST_VERBOSE=1 prints the figures. */
#include "turn_world.h"

static void say(const char *what, uint64_t of_ns)
{
	if (!harness_is_verbose())
		return;
	printf("%-34s", what);
	for (unsigned i = 0; i < actor_count && i < 8; i++)
		printf(" %6.2f (%llu turns, waits %.1f ms)", share(&actors[i], of_ns),
		       (unsigned long long)actors[i]
			       .turn.file.file->slice[actors[i].turn.file.slice]
			       .turns,
		       (double)actors[i].longest_ns / 1e6);
	printf(" overlap %.2f\n", 100.0 * (double)overlap_ns / (double)of_ns);
}

static double all_of(uint64_t of_ns)
{
	double sum = 0;

	for (unsigned i = 0; i < actor_count; i++)
		sum += share(&actors[i], of_ns);
	return sum;
}

static void measure(const char *what, uint64_t warm_ns, uint64_t of_ns)
{
	go_on(warm_ns);
	count_from_now();
	go_on(of_ns);
	say(what, of_ns);
}

static const uint64_t kernels[] = {50 * US, 200 * US, MS, 5 * MS, 20 * MS};

#define EACH_KERNEL(k)                          \
	unsigned k = 0;                         \
	k < sizeof(kernels) / sizeof(*kernels); \
	k++

UNIT_TEST(test_two_halves)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		busy(50, 50, kernels[k]);
		busy(50, 50, kernels[k]);
		measure("50+50", NS_PER_S, 10 * NS_PER_S);
		assert_between("together", all_of(10 * NS_PER_S), 98, 100.5);
		assert_between("one", share(&actors[0], 10 * NS_PER_S), 49, 51);
		world_end();
	}
}

UNIT_TEST(test_two_unlimited)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		busy(50, 100, kernels[k]);
		busy(50, 100, kernels[k]);
		measure("50-100 twice", NS_PER_S, 10 * NS_PER_S);
		assert_between("together", all_of(10 * NS_PER_S), 98, 100);
		assert_between("one", share(&actors[0], 10 * NS_PER_S), 49, 51);
		world_end();
	}
}

UNIT_TEST(test_thirty_and_sixty)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		busy(30, 30, kernels[k]);
		busy(60, 60, kernels[k]);
		measure("30+60", NS_PER_S, 10 * NS_PER_S);
		assert_between("30", share(&actors[0], 10 * NS_PER_S), 29, 31);
		assert_between("60", share(&actors[1], 10 * NS_PER_S), 59, 61);
		world_end();
	}
}

UNIT_TEST(test_weights)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		busy(20, 100, kernels[k]);
		busy(60, 100, kernels[k]);
		measure("20-100 + 60-100", NS_PER_S, 10 * NS_PER_S);
		assert_between("20", share(&actors[0], 10 * NS_PER_S), 24, 26);
		assert_between("60", share(&actors[1], 10 * NS_PER_S), 73.5, 76);
		world_end();
	}
}

/* Slices without a limit have equal parts of what the limits of others leave. */
UNIT_TEST(test_rest)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		busy(30, 30, kernels[k]);
		busy(0, 0, kernels[k])->takes_rest = true;
		measure("30 + no limit", NS_PER_S, 10 * NS_PER_S);
		assert_between("30", share(&actors[0], 10 * NS_PER_S), 29, 31);
		assert_between("the rest", share(&actors[1], 10 * NS_PER_S), 68, 71);
		busy(0, 0, kernels[k])->takes_rest = true;
		measure("30 + twice no limit", NS_PER_S, 10 * NS_PER_S);
		assert_between("30", share(&actors[0], 10 * NS_PER_S), 28.5, 31);
		assert_between("half", share(&actors[1], 10 * NS_PER_S), 33.5, 36.5);
		assert_between("half", share(&actors[2], 10 * NS_PER_S), 33.5, 36.5);
		world_end();
	}
}

/* Limits of all of the GPU leave a slice without one a tenth as much. */
UNIT_TEST(test_no_rest)
{
	world_begin(state);
	busy(40, 40, MS);
	busy(60, 60, MS);
	busy(0, 0, MS)->takes_rest = true;
	measure("40+60 + no limit", NS_PER_S, 10 * NS_PER_S);
	assert_between("40", share(&actors[0], 10 * NS_PER_S), 35, 38);
	assert_between("60", share(&actors[1], 10 * NS_PER_S), 53, 56);
	assert_between("no limit", share(&actors[2], 10 * NS_PER_S), 8, 11);
	world_end();
}

UNIT_TEST(test_four_quarters)
{
	for (EACH_KERNEL(k)) {
		world_begin(state);
		for (unsigned i = 0; i < 4; i++)
			busy(25, 25, kernels[k]);
		measure("25 four times", NS_PER_S, 10 * NS_PER_S);
		assert_between("together", all_of(10 * NS_PER_S), 96, 100.5);
		for (unsigned i = 0; i < 4; i++)
			assert_between("one", share(&actors[i], 10 * NS_PER_S), 24, 26);
		world_end();
	}
}

UNIT_TEST(test_unlike_kernels)
{
	world_begin(state);
	busy(30, 30, 50 * US);
	busy(60, 60, 20 * MS);
	measure("30 of 50 us + 60 of 20 ms", NS_PER_S, 10 * NS_PER_S);
	assert_between("30", share(&actors[0], 10 * NS_PER_S), 29, 31);
	assert_between("60", share(&actors[1], 10 * NS_PER_S), 59, 61);
	world_end();
	world_begin(state);
	busy(30, 30, 20 * MS);
	busy(70, 70, 20 * MS);
	measure("30+70 of 20 ms", NS_PER_S, 10 * NS_PER_S);
	assert_between("30", share(&actors[0], 10 * NS_PER_S), 29, 31);
	assert_between("70", share(&actors[1], 10 * NS_PER_S), 68.5, 71);
	world_end();
}

/* A program that waits for each kernel keeps its turn over the gaps. */
UNIT_TEST(test_launch_and_wait)
{
	world_begin(state);
	busy(50, 100, 200 * US)->batch = 1;
	busy(50, 100, MS)->batch = 4;
	measure("50+50, both wait", NS_PER_S, 5 * NS_PER_S);
	assert_between("one", share(&actors[0], 5 * NS_PER_S), 43, 51);
	assert_between("other", share(&actors[1], 5 * NS_PER_S), 47, 53);
	world_end();
}

/* A slice that waits for its work, and pauses for a moment, keeps its place before the other slice,
 * which has short turns meanwhile. So its part is that of its weight, unless a kernel is as long as
 * its turns. */
UNIT_TEST(test_pauses)
{
	static const uint64_t pauses[] = {200 * US, 800 * US, 2 * MS};

	for (unsigned i = 0; i < sizeof(pauses) / sizeof(*pauses); i++)
		for (unsigned k = 0; kernels[k] <= 5 * MS; k++) {
			struct actor *it;

			world_begin(state);
			it = busy(70, 100, kernels[k]);
			it->batch = (unsigned)(20 * MS / kernels[k]);
			it->think_ns = pauses[i];
			busy(30, 100, kernels[k]);
			measure("70-100 that pauses + 30-100", NS_PER_S, 10 * NS_PER_S);
			assert_between("70", share(it, 10 * NS_PER_S), 69, 71);
			assert_between("together", all_of(10 * NS_PER_S), 98, 100);
			world_end();
		}
}

static struct actor *server(unsigned limit_pct, uint64_t request_ns)
{
	return add((struct actor){.weight = limit_pct,
				  .limit_pct = limit_pct,
				  .kernel_ns = 50 * US,
				  .batch = 20,
				  .request_ns = request_ns});
}

/* 15 % of the GPU, beside a neighbour that is always busy. */
UNIT_TEST(test_server)
{
	static const unsigned limits[] = {60, 100};

	for (unsigned l = 0; l < 2; l++)
		for (EACH_KERNEL(k)) {
			double kernel_ms = (double)kernels[k] / 1e6;
			struct actor *it;

			world_begin(state);
			it = server(30, 6667 * US);
			busy(60, limits[l], kernels[k]);
			measure(l ? "server beside 60-100" : "server beside 60", NS_PER_S,
				10 * NS_PER_S);
			harness_note("    kernels of %.2f ms: p50 %.2f p99 %.2f ms", kernel_ms,
				     quantile_ms(it, 50), quantile_ms(it, 99));
			assert_between("p50", quantile_ms(it, 50), 1, 1.8 + kernel_ms / 2);
			assert_between("p99", quantile_ms(it, 99), 1, 2.8 + kernel_ms);
			assert_between("server", share(it, 10 * NS_PER_S), 14, 16);
			if (l == 0)
				assert_between("60", share(&actors[1], 10 * NS_PER_S), 59, 61);
			world_end();
		}
}

/* Costs that are wrong by a fifth, and stay so, cost both slices the same. */
UNIT_TEST(test_wrong_costs)
{
	for (int error_pct = -20; error_pct <= 20; error_pct += 40) {
		world_begin(state);
		for (unsigned i = 0; i < 2; i++) {
			struct actor *it = busy(50, 100, MS);

			it->error_pct = error_pct;
			it->batch = 64;
		}
		measure("50-100 twice, wrong costs", NS_PER_S, 5 * NS_PER_S);
		assert_between("one", share(&actors[0], 5 * NS_PER_S), 41, 51);
		assert_between("other", share(&actors[1], 5 * NS_PER_S), 41, 51);
		assert_between("both",
			       share(&actors[0], 5 * NS_PER_S) - share(&actors[1], 5 * NS_PER_S),
			       -1, 1);
		world_end();
	}
}

/* -- memory pressure -------------------------------------------------------------------------- */

/* Writes the length into the file, which exists once a slice has joined. */
static void press(uint64_t length_ns)
{
	go_on(MS);
	actors[0].turn.file.file->header.pressure_ns = length_ns;
}

/* Memory that takes 20 ms to move at each change of turns costs a tenth of the time where turns are
 * 200 ms long, and about half where they are 20 ms long. */
UNIT_TEST(test_pressure)
{
	for (unsigned limit_pct = 50; limit_pct <= 100; limit_pct += 50)
		for (unsigned pressed = 0; pressed < 2; pressed++) {
			world_begin(state);
			moving_ns = 20 * MS;
			busy(50, limit_pct, 5 * MS);
			busy(50, limit_pct, 5 * MS);
			press(pressed ? 200 * MS : 0);
			measure(pressed ? "memory moves, long turns" : "memory moves", NS_PER_S,
				20 * NS_PER_S);
			if (pressed)
				assert_between("together", all_of(20 * NS_PER_S), 85, 92);
			else
				assert_between("together", all_of(20 * NS_PER_S), 5, 70);
			assert_between("one less the other",
				       share(&actors[0], 20 * NS_PER_S) -
					       share(&actors[1], 20 * NS_PER_S),
				       -3, 3);
			world_end();
		}
}

/* A slice that is idle gives its turn up at once, so its neighbour has the rest; a length that
 * nobody can mean delays a slice for a bounded time. */
UNIT_TEST(test_pressure_is_bounded)
{
	world_begin(state);
	server(30, 6667 * US);
	busy(60, 100, 5 * MS);
	press(UINT64_MAX);
	measure("a length without end", NS_PER_S, 40 * NS_PER_S);
	assert_between("the longest wait", (double)actors[0].longest_ns / 1e9, 0, 34);
	assert_between("the busy slice", share(&actors[1], 40 * NS_PER_S), 50, 100);
	world_end();
}
