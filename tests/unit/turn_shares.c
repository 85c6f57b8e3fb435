/* What slices get of a GPU by turns, and how long a server's requests take beside a busy neighbour.
 * VGPU_TEST_VERBOSE=1 prints the figures. */
#include "turn_world.h"

static const uint64_t kernels[] = {50 * US, 200 * US, MS, 5 * MS, 20 * MS};

#define EACH_KERNEL(k)                          \
	unsigned k = 0;                         \
	k < sizeof(kernels) / sizeof(*kernels); \
	k++

static void measure(const char *what, uint64_t of_ns)
{
	measure_after(NS_PER_S, of_ns);
	if (!harness_is_verbose())
		return;
	printf("%-34s", what);
	for (unsigned i = 0; i < actor_count && i < 8; i++)
		printf(" %6.2f (%llu turns, waits %.1f ms)", share(&actors[i]),
		       (unsigned long long)actors[i]
			       .turn.file.file->slice[actors[i].turn.file.slice]
			       .turns,
		       (double)actors[i].longest_ns / 1e6);
	printf(" overlap %.2f\n", 100.0 * (double)overlap_ns / (double)of_ns);
}

/* -- slices that are always busy -------------------------------------------------------------- */

struct slice_row {
	unsigned weight, limit_pct; /* both 0: it takes the rest */
	struct {
		double least, most; /* in percent of the GPU */
	} gets;
	uint64_t kernel_ns; /* 0: each of the kernels in turn */
	unsigned batch;
};

static const struct row {
	const char *name;
	struct slice_row slice[4];
	double least, most; /* of all slices together */
} rows[] = {
	/* clang-format off */
	{"50+50", {{50, 50, .gets = {49, 51}}, {50, 50, .gets = {0, 100}}}, 98, 100.5},
	{"50-100 twice", {{50, 100, .gets = {49, 51}}, {50, 100, .gets = {0, 100}}}, 98, 100},
	{"30+60", {{30, 30, .gets = {29, 31}}, {60, 60, .gets = {59, 61}}}, 0, 100},
	{"20-100 + 60-100", {{20, 100, .gets = {24, 26}}, {60, 100, .gets = {73.5, 76}}}, 0, 100},
	{"25 four times",
	 {{25, 25, .gets = {24, 26}}, {25, 25, .gets = {24, 26}}, {25, 25, .gets = {24, 26}},
	  {25, 25, .gets = {24, 26}}}, 96, 100.5},
	{"limits of all of the GPU leave a slice without one a tenth as much",
	 {{40, 40, .kernel_ns = MS, .gets = {35, 38}}, {60, 60, .kernel_ns = MS, .gets = {53, 56}},
	  {0, 0, .kernel_ns = MS, .gets = {8, 11}}}, 0, 100},
	{"30 of 50 us + 60 of 20 ms",
	 {{30, 30, .kernel_ns = 50 * US, .gets = {29, 31}},
	  {60, 60, .kernel_ns = 20 * MS, .gets = {59, 61}}}, 0, 100},
	{"30+70 of 20 ms",
	 {{30, 30, .kernel_ns = 20 * MS, .gets = {29, 31}},
	  {70, 70, .kernel_ns = 20 * MS, .gets = {68.5, 71}}}, 0, 100.5},
	{"a program that waits for each kernel keeps its turn over the gaps",
	 {{50, 100, .kernel_ns = 200 * US, .batch = 1, .gets = {43, 51}},
	  {50, 100, .kernel_ns = MS, .batch = 4, .gets = {47, 53}}}, 0, 100},
	/* clang-format on */
};

static void assert_row(const struct row *row, uint64_t kernel_ns)
{
	const struct slice_row *like = row->slice;

	world_again();
	for (; like < row->slice + 4 && like->gets.most > 0; like++) {
		struct actor *it = busy(like->weight, like->limit_pct,
					like->kernel_ns ? like->kernel_ns : kernel_ns);

		it->takes_rest = !like->weight;
		it->batch = like->batch;
	}
	measure(row->name, 10 * NS_PER_S);
	for (unsigned i = 0; i < actor_count; i++)
		assert_share(&actors[i], row->slice[i].gets.least, row->slice[i].gets.most);
	assert_between("together", share_of_all(), row->least, row->most);
}

UNIT_ROWS(rows)
{
	for (EACH_KERNEL(k))
		if (k == 0 || !row->slice[0].kernel_ns)
			assert_row(row, kernels[k]);
}

/* Slices without a limit have equal parts of what the limits of others leave. */
UNIT_TEST(test_rest)
{
	for (EACH_KERNEL(k)) {
		world_again();
		busy(30, 30, kernels[k]);
		busy(0, 0, kernels[k])->takes_rest = true;
		measure("30 + no limit", 10 * NS_PER_S);
		assert_share(&actors[0], 29, 31);
		assert_share(&actors[1], 68, 71);
		busy(0, 0, kernels[k])->takes_rest = true;
		measure("30 + twice no limit", 10 * NS_PER_S);
		assert_share(&actors[0], 28.5, 31);
		assert_share(&actors[1], 33.5, 36.5);
		assert_share(&actors[2], 33.5, 36.5);
	}
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

			world_again();
			it = busy(70, 100, kernels[k]);
			it->batch = (unsigned)(20 * MS / kernels[k]);
			it->think_ns = pauses[i];
			busy(30, 100, kernels[k]);
			measure("70-100 that pauses + 30-100", 10 * NS_PER_S);
			assert_share(it, 69, 71);
			assert_between("together", share_of_all(), 98, 100);
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

			world_again();
			it = server(30, 6667 * US);
			busy(60, limits[l], kernels[k]);
			measure(l ? "server beside 60-100" : "server beside 60", 10 * NS_PER_S);
			harness_note("    kernels of %.2f ms: p50 %.2f p99 %.2f ms", kernel_ms,
				     quantile_ms(it, 50), quantile_ms(it, 99));
			assert_between("p50", quantile_ms(it, 50), 1, 1.8 + kernel_ms / 2);
			assert_between("p99", quantile_ms(it, 99), 1, 2.8 + kernel_ms);
			assert_share(it, 14, 16);
			if (l == 0)
				assert_share(&actors[1], 59, 61);
		}
}

/* Costs that are wrong by a fifth, and stay so, cost both slices the same. */
UNIT_TEST(test_wrong_costs)
{
	for (int error_pct = -20; error_pct <= 20; error_pct += 40) {
		world_again();
		for (unsigned i = 0; i < 2; i++) {
			struct actor *it = busy(50, 100, MS);

			it->error_pct = error_pct;
			it->batch = 64;
		}
		measure("50-100 twice, wrong costs", 5 * NS_PER_S);
		assert_share(&actors[0], 41, 51);
		assert_share(&actors[1], 41, 51);
		assert_between("both", share(&actors[0]) - share(&actors[1]), -1, 1);
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
			world_again();
			moving_ns = 20 * MS;
			busy(50, limit_pct, 5 * MS);
			busy(50, limit_pct, 5 * MS);
			press(pressed ? 200 * MS : 0);
			measure(pressed ? "memory moves, long turns" : "memory moves",
				20 * NS_PER_S);
			if (pressed)
				assert_between("together", share_of_all(), 85, 92);
			else
				assert_between("together", share_of_all(), 5, 70);
			assert_between("one less the other", share(&actors[0]) - share(&actors[1]),
				       -3, 3);
		}
}

/* A slice that is idle gives its turn up at once, so its neighbour has the rest; a length that
 * nobody can mean delays a slice for a bounded time. */
UNIT_TEST(test_pressure_is_bounded)
{
	server(30, 6667 * US);
	busy(60, 100, 5 * MS);
	press(UINT64_MAX);
	measure("a length without end", 40 * NS_PER_S);
	assert_between("the longest wait", (double)actors[0].longest_ns / 1e9, 0, 34);
	assert_share(&actors[1], 50, 100);
}
